//! The rule by delay: a queue of a tenth of a round trip, and no more.
//!
//! In: the queue and the losses of a round. Out: a rate; and others, if they are felt. It judges no
//! losses.

use longhaul_core::PathShare;

use super::equal::EqualWindow;
use super::losses::LossVerdict;
use super::others::OVERFLOW_ROUNDS;
use super::{KnownRate, PARDON, PRESSED, QueueDip, UdpControl, UdpPhase};
use crate::time::Timestamp;

impl UdpControl {
    /// Lets the queue run empty that the start has made.
    pub(super) fn drain(&mut self, queue: f64) {
        self.pace.rate = self.carried.most() * self.drains(queue);
        if queue < self.target() || self.rounds >= DRAIN_ROUNDS {
            let part = if self.share == PathShare::Polite { POLITE_BEGIN } else { BEGIN };
            self.pace.rate = self.carried.most() * part;
            if self.delay.first.is_infinite() {
                self.delay.first = self.pace.rate;
            }
            self.enter(UdpPhase::Steady);
            self.losses.pardon = PARDON;
        }
    }

    /// Takes a round with a short queue, or nearly so.
    pub(super) fn steer(&mut self, queue: f64, verdict: LossVerdict, seconds: f64) {
        let stands = queue > PRESSES * self.target() / self.delay.aim;
        let has_less = self.carried.recent() < LESS * self.carried.highest();
        if verdict == LossVerdict::Excess {
            self.losses.pardon = (self.lanes.round_trip() / seconds).ceil() as u32 + 1;
            if queue < 2.0 * self.target() {
                self.delay.aim = (self.delay.aim * AIM_CUT).max(AIM_LEAST);
            }
            self.note_overflow(queue);
            self.note_full();
            let cut = if self.share == PathShare::Polite { POLITE_CUT } else { CUT };
            let rate = self.pace.rate.min(self.carried.most()) * cut;
            self.pace.rate = rate.min(self.losses.deep);
            (self.delay.step, self.delay.calm) = (STEP_FIRST, 0);
        } else {
            self.delay.aim = (self.delay.aim * AIM_GROWS).min(1.0);
            let before = self.pace.rate;
            self.by_delay(queue);
            let most = self.delay.shallow.most(self.lanes.round_trip(), self.lanes.datagram_bytes);
            self.pace.rate = self.pace.rate.min(most.max(before));
        }
        let is_lost = verdict == LossVerdict::Excess && (has_less || stands);
        if self.pace.limited.is_none() {
            let overflow = if is_lost { OVERFLOW_ROUNDS } else { 0.0 };
            self.others.press(f64::from(u8::from(stands)) + overflow);
        }
        self.others.note_first(self.lanes.first(), self.lanes.base(), self.carried.highest());
        // A window of few packets is none.
        let is_wide = self.pace.rate * self.lanes.round_trip() > WINDOW_LEAST;
        let is_free = self.pace.limited.is_none() && is_wide;
        if self.share == PathShare::Fair && is_free && self.others.pressed > PRESSED {
            let rate = self.others.claim(self.carried.highest(), self.carried.recent());
            self.equal = EqualWindow::at(rate * self.lanes.round_trip(), self.lanes.datagram_bytes);
            self.enter(UdpPhase::Equal);
            self.losses.pardon = PARDON;
            self.pace.rate = rate;
        }
    }

    /// The part of the delivered rate at which a queue is drained. Where a known rate has arrived,
    /// the steps beyond it were small, so that it is short: it is drained within a round trip.
    pub(super) fn drains(&self, queue: f64) -> f64 {
        let is_proven = self.start.known == KnownRate::Proven;
        let part = if is_proven { 1.0 - DRAIN_MORE * queue / self.lanes.base() } else { DRAIN_LEAST };
        part.clamp(DRAIN_LEAST, DRAIN_MOST)
    }

    fn by_delay(&mut self, queue: f64) {
        let is_polite = self.share == PathShare::Polite;
        // Whoever has less of the path may wait longer in its queue: that makes sessions equal.
        let patience = (RATE_USUAL / self.pace.rate.max(1.0)).sqrt().clamp(PATIENCE.0, PATIENCE.1);
        let target = self.target() * if is_polite { 1.0 } else { patience };
        let is_limited = self.pace.limited.is_some();
        self.delay.calm = if queue > STANDS * target { 0 } else { self.delay.calm.saturating_add(1) };
        if queue > STANDS * target {
            // While a queue stands, what is delivered is what there is for this session; but after
            // a cut it is, for a while, what was before.
            let (gain, most) = if is_polite { POLITE_YIELD } else { YIELD };
            // ... and who came to others grows faster meanwhile: it would take a minute else.
            let is_less = !is_polite && queue < target && patience > 1.0 && self.others.came_first();
            let less = ((patience - PATIENCE_OF_TWO) / (PATIENCE.1 - PATIENCE_OF_TWO)).clamp(0.0, 1.0);
            let (gain, step) = if is_less { (gain * (1.0 + less), STEP_LESS) } else { (gain, STEP_FIRST) };
            let over = (queue - target) / self.lanes.base().max(self.lanes.round_trip() / 2.0);
            let up = if is_limited { 0.0 } else { -step };
            let recent = if is_limited { self.pace.rate } else { self.carried.recent() / (1.0 - self.losses.own) };
            let from =
                if self.losses.pardon > 0 || self.others.were_here() { recent.min(self.pace.rate) } else { recent };
            self.pace.rate = from * (1.0 - (gain * over).clamp(up, most));
            if queue > target {
                self.note_full();
                self.delay.step = STEP_EDGE;
            }
        } else if !is_limited && self.returns() {
            self.pace.rate *= 1.0 + STEP_RETURNS;
        } else if !is_limited && self.carried.recent() > KEPT * (1.0 - self.losses.own) * self.pace.rate {
            // What was asked for some rounds ago is what is delivered by now.
            let full = self.full_rate();
            let was_near = self.pace.rate > NEAR * full;
            self.pace.rate *= 1.0 + self.delay.step;
            let is_calm = self.delay.calm >= CALM_ROUNDS;
            let is_cut_short = is_calm && self.was_start_cut_short();
            self.delay.step = match (self.pace.rate > NEAR * full, was_near) {
                _ if is_cut_short => self.delay.step * FASTER,
                (true, false) => self.delay.step.min(STEP_EDGE),
                (true, true) => self.delay.step * FASTER_NEAR,
                (false, _) => self.delay.step * FASTER,
            };
            let most = match self.share {
                PathShare::Polite if is_calm => STEP_CALM,
                PathShare::Polite => STEP_POLITE,
                PathShare::Fair | PathShare::All if is_cut_short => STEP_CUT_SHORT,
                PathShare::Fair | PathShare::All => STEP_MOST,
            };
            self.delay.step = self.delay.step.min(most);
        }
    }

    /// Whether what ended the start was not the path: nothing was lost so far, no queue was longer
    /// than it should be since then, nobody else was there, and far more is carried by now. Not for
    /// polite sessions, which look for no more than what is left.
    fn was_start_cut_short(&self) -> bool {
        let is_fair = self.share != PathShare::Polite && !self.others.were_here();
        let is_free = self.delay.edge_age.is_infinite() && !self.delay.has_lost;
        is_fair && is_free && self.pace.rate > CUT_SHORT * self.delay.first
    }

    /// Whether a polite session that had next to nothing beside others finds that they have gone.
    fn returns(&self) -> bool {
        let is_little = self.pace.rate < RETURNS_BELOW * self.carried.highest();
        let is_kept = self.carried.recent() > RETURNS_KEPT * (1.0 - self.losses.own) * self.pace.rate;
        self.share == PathShare::Polite && self.delay.calm >= CALM_ROUNDS && is_little && is_kept
    }

    /// A queue that stays as it is, though this session has given way to nearly nothing, is none:
    /// the path has become longer.
    fn look_for_a_longer_path(&mut self, now: Timestamp, queue: f64, seconds: f64) {
        let (low, high, age) = self.dip.still;
        let (low, high) = (low.min(queue), high.max(queue));
        let is_still = high - low < (STILL * high).max(STILL_LEAST) && queue > 2.0 * self.target();
        self.dip.still = if is_still { (low, high, age + seconds) } else { (queue, queue, 0.0) };
        let gave_way = self.pace.rate < GAVE_WAY * self.carried.highest();
        if gave_way && age > STILL_SECONDS.max(STILL_ROUNDS * self.lanes.round_trip()) {
            self.lanes.renew_base(now);
            self.dip.still.2 = 0.0;
        }
    }

    /// Lets the queue run empty for a moment, if it has long stood.
    pub(super) fn breathe(&mut self, now: Timestamp, queue: f64, seconds: f64) {
        self.dip.age += seconds;
        self.look_for_a_longer_path(now, queue, seconds);
        if self.dip.rounds > 0 {
            self.dip.rounds -= 1;
        } else if self.phase == UdpPhase::Steady && self.lanes.base_age(now) > DIP_EACH && self.dip.age > DIP_SECONDS {
            let part = (1.0 - queue / self.lanes.base() - DIP_MORE).max(DIP_LEAST);
            self.dip =
                QueueDip { part, rounds: (self.lanes.round_trip() / seconds).ceil() as u32, age: 0.0, ..self.dip };
        }
        if self.dip.rounds == 0 {
            self.dip.part = 1.0;
        }
    }
}

/// The least and the largest part of the delivered rate at which a queue is drained, by how much
/// more than it, and for how many rounds at most: a queue that stands after that is somebody
/// else's.
const DRAIN_LEAST: f64 = 0.5;
const DRAIN_MOST: f64 = 0.9;
const DRAIN_MORE: f64 = 1.25;
const DRAIN_ROUNDS: u32 = 8;
/// The part of the delivered rate that is begun with.
const BEGIN: f64 = 0.95;
const POLITE_BEGIN: f64 = 0.6;
/// From this part of it on, a queue stands.
const STANDS: f64 = 0.3;
/// The rate that waits for just that queue, and how much shorter and longer others do.
const RATE_USUAL: f64 = 125e6;
const PATIENCE: (f64, f64) = (0.5, 2.0);
/// ... how long those do that share a path by two; and the largest step of who has less.
const PATIENCE_OF_TWO: f64 = 1.41;
const STEP_LESS: f64 = 0.04;
/// How much less is sent for a queue that is longer by a round trip, and at most.
const YIELD: (f64, f64) = (0.3, 0.2);
const POLITE_YIELD: (f64, f64) = (1.5, 0.3);
/// The first step up, the largest, and the one near to where the path was full last.
pub(super) const STEP_FIRST: f64 = 0.02;
const STEP_MOST: f64 = 0.08;
const STEP_POLITE: f64 = 0.03;
const STEP_EDGE: f64 = 0.004;
/// From this many times the first rate on, something else than the path ended the start.
const CUT_SHORT: f64 = 1.5;
/// The largest step from then on. Lanes show only in the next round whether they use it.
const STEP_CUT_SHORT: f64 = 0.25;
/// Round trips without a queue after which others have left the path to a polite session, and the
/// largest step from then on. Up to this part of what the path carried, and as long as lanes
/// deliver this part of the rate, it goes by larger ones: from its least rate, 200 round trips of
/// [`STEP_POLITE`] lie before it.
const CALM_ROUNDS: u32 = 8;
const STEP_CALM: f64 = 0.05;
const RETURNS_BELOW: f64 = 0.5;
const RETURNS_KEPT: f64 = 0.6;
const STEP_RETURNS: f64 = 0.25;
/// How steps grow, and how they do near to that.
const FASTER: f64 = 2.0;
const FASTER_NEAR: f64 = 1.15;
const NEAR: f64 = 0.92;
/// Seconds for which the rate is remembered at which the path was full.
pub(super) const EDGE_SECONDS: f64 = 20.0;
/// Lanes that deliver this part of the rate use it.
const KEPT: f64 = 0.85;
/// A session that has less than this part of what the path carried has it not alone.
const LESS: f64 = 0.85;
/// A queue of this many times the one that is aimed at is not this session's alone, if it stays.
const PRESSES: f64 = 1.65;
/// The part of the rate that is left when more is lost than may be.
const CUT: f64 = 0.85;
const POLITE_CUT: f64 = 0.7;
/// Bytes of the smallest window of a cubic flow that is begun with.
const WINDOW_LEAST: f64 = 14720.0;
const AIM_CUT: f64 = 0.7;
const AIM_LEAST: f64 = 0.2;
const AIM_GROWS: f64 = 1.005;
/// Spans without a short round trip before a dip, seconds between two, and how much less than the
/// queue a dip is, and at least.
const DIP_EACH: u64 = 7;
const DIP_SECONDS: f64 = 5.0;
const DIP_MORE: f64 = 0.05;
const DIP_LEAST: f64 = 0.5;
/// A queue is still that changed by less than this part, or by so many seconds, for so many seconds
/// and round trips; and the part of what the path carried that is nearly nothing.
const STILL: f64 = 0.1;
const STILL_LEAST: f64 = 0.0005;
const STILL_SECONDS: f64 = 2.0;
const STILL_ROUNDS: f64 = 16.0;
const GAVE_WAY: f64 = 0.1;
