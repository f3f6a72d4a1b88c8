//! The beginning: the rate nearly triples each round trip until the path is full.
//!
//! In: quarters of rounds, and rounds. Out: a rate, and when the path is full. Where an earlier
//! session left a rate, `control/known.rs` tries that first.

use longhaul_core::PathShare;

use super::known::KnownTrial;
use super::losses::LossVerdict;
use super::rounds::UdpRound;
use super::{KnownRate, UdpControl, UdpControlConfig, UdpPhase};
use crate::tuning::KnownRateSign;

/// The search for the path's rate.
#[derive(Clone, Debug)]
pub(super) struct StartSearch {
    /// The trial of the rate that an earlier session left. `None` if there is none, or it is over.
    pub(super) trial: Option<KnownTrial>,
    /// Its outcome.
    pub(super) known: KnownRate,
    /// Bytes/s that an earlier session left. 0 if none did.
    pub(super) left: u64,
    /// Seconds for which the rate stays as it is, after such a rate turned out wrong.
    hold: f64,
    /// The delivered rate when it last grew by a quarter, and the rounds since.
    grown: (f64, u32),
    /// The most that arrived in a quarter of a round.
    most: f64,
    /// Quarters of rounds in a row in which a queue stood.
    queued: u32,
    /// The path's own loss as it was thought to be one and two rounds ago.
    own: [f64; 2],
    /// How many of these do not end it, how fast it grows, and bytes on their way as a multiple of
    /// what arrived.
    patience: u32,
    gain: f64,
    flight: f64,
    /// Whether the rate of the path is known.
    pub(super) is_over: bool,
}

impl StartSearch {
    /// Nothing is known but what an earlier session left.
    pub(super) fn new(config: &UdpControlConfig) -> StartSearch {
        let (is_polite, trial) = (config.share == PathShare::Polite, KnownTrial::new(config));
        let patience = if is_polite { 0 } else { PATIENCE };
        let (gain, flight) = if is_polite { POLITE_GROWTH } else { USUAL_GROWTH };
        StartSearch {
            known: if trial.is_some() { KnownRate::Tried } else { KnownRate::Unused },
            left: config.known.map_or(0, |known| known.rate),
            trial,
            hold: 0.0,
            grown: (0.0, 0),
            most: 0.0,
            queued: 0,
            own: [0.0; 2],
            patience,
            gain,
            flight,
            is_over: false,
        }
    }

    /// The rate at first.
    pub(super) fn first_rate(&self, round_trip: f64) -> f64 {
        self.trial.as_ref().map_or_else(|| self.usual_rate(round_trip), KnownTrial::rate)
    }

    /// The rate at first on a path that is not known.
    pub(super) fn usual_rate(&self, round_trip: f64) -> f64 {
        FIRST_PACKETS * FIRST_PACKET / round_trip.max(super::rounds::ROUND_SHORTEST)
    }

    /// How fast the path's own loss is learned while each round carries a quarter more than the one
    /// before. Where a known rate is, or was, tried there are few such rounds, of many packets
    /// each.
    pub(super) fn learns(&self) -> f64 {
        match self.known {
            _ if self.hold > 0.0 || self.grown.1 > 0 => 0.0,
            KnownRate::Unused => OWN_STEP,
            KnownRate::Tried | KnownRate::Proven | KnownRate::Wrong(_) => OWN_STEP_KNOWN,
        }
    }

    /// Begins as if nothing had been known, once so many seconds are over.
    pub(super) fn begin_again(&mut self, hold: f64) {
        (self.trial, self.hold, self.grown, self.queued) = (None, hold, (0.0, 0), 0);
    }

    /// Whether no more may be on its way than the train of a known rate.
    pub(super) fn is_train(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.train().is_some())
    }

    /// Bytes that may be on their way.
    pub(super) fn flight(&self, rate: f64, base: f64) -> f64 {
        if let Some(train) = self.trial.as_ref().and_then(KnownTrial::train) {
            return train;
        }
        let first = if self.most == 0.0 || self.trial.is_some() { rate } else { 0.0 };
        first.max(self.flight * self.most) * base
    }
}

impl UdpControl {
    /// A quarter of a round of the start is over.
    pub(super) fn start_step(&mut self, step: &UdpRound) {
        self.start.most = self.start.most.max(step.rate);
        let queue = step.queue.unwrap_or_default();
        let limit = self.full_queue();
        let packets = step.packets + step.lost;
        let share = step.lost / packets.max(1.0);
        if self.start.trial.is_some() || self.start.hold > 0.0 {
            return self.trial_step(step, queue, limit / 2.0);
        }
        self.others.look(step.rate, self.lanes.round_trip(), share);
        let is_lossy = step.lost >= LOST_LEAST
            && (share > LOST_START || queue > limit / 2.0 && share > LOST_QUEUED + OWN_ROOM * self.losses.own);
        self.start.queued = if queue > limit { self.start.queued + 1 } else { 0 };
        if self.start.queued > self.start.patience || is_lossy {
            return self.leave_start(if is_lossy { KnownRateSign::Lost } else { KnownRateSign::Queued });
        }
        self.grow(step);
    }

    fn grow(&mut self, step: &UdpRound) {
        if step.limited.is_some() && step.rate <= USED * self.pace.rate {
            return;
        }
        let mut rate = self.start.gain * step.rate;
        if self.start.known == KnownRate::Proven {
            // What an earlier session left is likely all there is: no more is looked for before
            // that has arrived, and then in smaller steps, so that no long queue has to be drained.
            let left = self.start.left as f64 * (1.0 - self.losses.own);
            let (usual, usual_flight) = if self.share == PathShare::Polite { POLITE_GROWTH } else { USUAL_GROWTH };
            let (gain, flight) = BEYOND_KNOWN;
            (self.start.gain, self.start.flight) = match step.rate {
                // There is far more than was known: it is looked for as on a first visit.
                rate if rate > FAR_BEYOND * left => (usual, usual_flight),
                rate if rate > REACHED * left => (gain.min(usual), flight.min(usual_flight)),
                _ => (self.start.gain, self.start.flight),
            };
            rate = self.start.gain * step.rate;
            if step.rate <= REACHED * left {
                rate = rate.min(self.start.left as f64);
            }
        }
        self.pace.rate = self.pace.rate.max(rate).min(self.pace.ceiling);
    }

    /// A quarter of a round is over in which a known rate is tried, or was just now. A queue
    /// longer than `most` begins to stand.
    fn trial_step(&mut self, step: &UdpRound, queue: f64, most: f64) {
        let queued = queue > most;
        let Some(trial) = &self.start.trial else {
            self.start.hold -= step.seconds;
            return;
        };
        let (is_sent, is_lossy) = (trial.train().is_none(), trial.loses_more_than(LOST_QUEUED));
        if is_sent {
            self.others.look(step.rate, self.lanes.round_trip(), step.lost / (step.packets + step.lost).max(1.0));
        }
        let is_starved = trial.is_starved();
        let sign = if queued { KnownRateSign::Queued } else { KnownRateSign::Lost };
        if is_sent && !is_starved && (queued || trial.loses_more_than(LOST_START)) {
            // It arrives as fast as the path carries it.
            return self.leave_start(sign);
        }
        if queued || is_lossy {
            let arrived = if is_sent && !is_starved { trial.rate() } else { step.rate };
            return self.retreat(arrived, sign);
        }
        if trial.is_beyond_train(self.lanes.base()) && step.rate > PROVEN * trial.rate() {
            (self.start.trial, self.start.known) = (None, KnownRate::Proven);
            self.grow(step);
        }
    }

    /// A round of the start is over.
    pub(super) fn start_round(&mut self, round: &UdpRound, queue: f64, verdict: LossVerdict) {
        let (rate, rounds) = self.start.grown;
        self.start.own = [self.losses.own, self.start.own[0]];
        if self.start.hold > 0.0 {
            // It does not grow because it is not let.
            self.start.grown = (0.0, 0);
            return;
        }
        let grows = round.rate > GROWTH * rate;
        self.start.grown = match (grows, self.pace.limited) {
            (true, _) => (round.rate, 0),
            (false, Some(_)) => (rate, rounds),
            // What the receiver's system takes is not what the path carries.
            (false, None) if self.pace.receiver.is_on() => (rate, rounds),
            (false, None) => (rate, rounds + 1),
        };
        let rounds = self.start.grown.1;
        if self.pace.rate >= self.pace.ceiling && round.rate > USED * self.pace.ceiling {
            self.carried_on();
        } else if verdict == LossVerdict::Excess && rounds > 0 {
            self.leave_start(KnownRateSign::Lost);
        } else if queue > self.full_queue() && rounds > 0 {
            self.leave_start(KnownRateSign::Queued);
        } else if rounds >= FULL_ROUNDS {
            self.leave_start(KnownRateSign::Full);
        }
    }

    /// The ceiling is reached: there is nothing to drain.
    fn carried_on(&mut self) {
        self.pace.rate = self.pace.ceiling;
        if self.start.trial.take().is_some() {
            self.start.known = KnownRate::Proven;
        }
        self.enter(UdpPhase::Steady);
    }

    /// The path is full, as `sign` shows.
    fn leave_start(&mut self, sign: KnownRateSign) {
        self.start.is_over = true;
        if let Some(trial) = self.start.trial.take() {
            self.start.known = if trial.is_starved() { KnownRate::Unused } else { KnownRate::Wrong(sign) };
            self.losses.bound_own(0.0);
        }
        // The last rounds may have lost in a queue that is too short to be seen.
        self.losses.bound_own(self.start.own[1]);
        let drains = self.drains(self.lanes.queue());
        self.pace.rate = self.carried.most().max(self.start.most.min(self.pace.rate)) * drains;
        self.enter(UdpPhase::Drain);
    }

    /// A queue as long as this shows that the path is full.
    fn full_queue(&self) -> f64 {
        let (part, least) = if self.share == PathShare::Polite { POLITE_FULL } else { FULL };
        (self.lanes.base() * part).max(least)
    }
}

/// Quarters of rounds with a queue that do not end the start, of a session that is not polite.
const PATIENCE: u32 = 1;
/// The rate of what arrives, times this, is sent: 2 / ln 2 as BBR has it, nearly; bytes on their
/// way, as a multiple of what arrived.
const USUAL_GROWTH: (f64, f64) = (2.77, 2.4);
const POLITE_GROWTH: (f64, f64) = (1.25, 1.2);
/// The part of a known rate from which on it has arrived, and that from which on the path carries
/// far more; and how it grows in between.
const REACHED: f64 = 0.9;
const FAR_BEYOND: f64 = 3.0;
const BEYOND_KNOWN: (f64, f64) = (1.4, 1.4);
/// The part of a round's loss that is learned for the path's own.
const OWN_STEP: f64 = 0.2;
const OWN_STEP_KNOWN: f64 = 0.6;
/// Packets of the first round trip.
pub(super) const FIRST_PACKETS: f64 = 32.0;
/// Bytes of a packet of the first round trip.
pub(super) const FIRST_PACKET: f64 = 1232.0;
/// The part of a known rate that must arrive.
const PROVEN: f64 = 0.8;
/// The rate still grows if it does by a quarter, and the path is full after so many rounds in which
/// it does not.
const GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// The queue, as a part of the round trip and in seconds at least, that shows a path to be full.
const FULL: (f64, f64) = (0.125, 0.004);
const POLITE_FULL: (f64, f64) = (0.05, 0.0015);
/// The part of all packets whose loss ends the start, the one that does if a queue stands, and the
/// packets at least.
const LOST_START: f64 = 0.15;
const LOST_QUEUED: f64 = 0.02;
const OWN_ROOM: f64 = 1.2;
const LOST_LEAST: f64 = 8.0;
/// Lanes that had nothing to send and carry this part of the rate use it all the same.
const USED: f64 = 0.9;
