//! The manners of a session on a path: one rate for all of its lanes there, whatever carries them.
//!
//! In: the bytes delivered and lost and the round trip, round by round, summed over all lanes. Out:
//! the rate that the lanes keep together. Sans-I/O: the engine reads counters and paces lanes.
//! Knows no sockets, no lanes and no clock.
//!
//! A session is one citizen of the network, not as many as it has lanes. In the beginning the lanes
//! find the path's rate by themselves ([`PathPhase::Open`]), until a queue stands or more is lost
//! than the path loses by itself. That queue is drained ([`PathPhase::Drain`]). From then on
//! ([`PathPhase::Steady`]) two rules say a rate, and the higher one holds; while others are known
//! to fill the path too, the second one alone:
//!
//! - *By delay*: keep a queue of a tenth of a round trip. With none, the rate grows by a fiftieth a
//!   round, and faster while that is delivered; with a longer one it yields (Brakmo and Peterson,
//!   *TCP Vegas*, 1995; Arun and Balakrishnan, *Copa*, NSDI 2018). Alone, this fills a path and
//!   leaves its queue nearly empty; whoever comes finds room.
//! - *By loss*: the window of one cubic flow (RFC 9438), which begins at half of what the path was
//!   seen to carry, and grows beyond that only slowly. A session that comes to a queue of others
//!   claims half of what the growth of the queue says the path carries. Beside others that fill the
//!   queue and never look at it, the first rule yields until nothing is left; this one keeps a fair
//!   share.
//!
//! Loss is judged against the *own loss* of the path, which is seen while its queue is short: a
//! path that loses one in a hundred by itself is filled all the same. Beyond that, one in a hundred
//! is borne (BBRv3 bears two, draft-ietf-ccwg-bbr); but while a queue stands, each loss counts, as
//! it is the queue that overflows. A polite session has the first rule alone, with a shorter queue
//! and larger steps down, as LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus). docs/DECISIONS.md says
//! why it is not BBR, and what it does in a model and on emulated paths.

mod claim;
mod dip;
mod history;
mod losses;
mod reroute;
mod road;
mod round;
#[cfg(test)]
mod tests;

use std::time::Duration;

use longhaul_core::PathShare;

use self::claim::{Floor, OpenPhase};
use self::dip::Dip;
use self::history::{BaseRoundTrip, CarriedRates, Shows};
use self::losses::{Loss, Losses};
use self::reroute::SameRoundTrip;
use self::round::OpenRound;
use super::road::RoadSums;

pub use self::round::PathRound;

/// The phase of the control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPhase {
    /// The lanes do not fill the path, as far as is known: there is no rate to keep.
    Open,
    /// A queue is let run empty.
    Drain,
    /// The path is full, with a short queue, or shared with others.
    Steady,
}

/// The control: see the module. Times are seconds and rates bytes/s.
#[derive(Clone, Debug)]
pub struct PathControl {
    share: PathShare,
    phase: PathPhase,
    rounds: Rounds,
    kept: KeptRate,
    base: BaseRoundTrip,
    same: SameRoundTrip,
    carried: CarriedRates,
    open: OpenPhase,
    losses: Losses,
    delay: DelayRule,
    floor: Floor,
    others: Others,
}

/// The rate that is kept.
#[derive(Clone, Copy, Debug)]
struct KeptRate {
    rate: f64,
    /// The part of it that is kept in this round.
    dip: Dip,
    /// The lowest that it may be.
    least: f64,
}

/// The rounds of a phase.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    count: u32,
    /// The looks of the one that is not over.
    open: OpenRound,
    /// Rounds whose counts still show that the lanes lacked work, or the other host room.
    lacking: u32,
    /// The sums of all rounds, of whatever phase.
    road: RoadSums,
}

/// Others that fill the queue of the path.
#[derive(Clone, Copy, Debug)]
struct Others {
    /// They were felt of late, and ever.
    are_here: bool,
    were_here: bool,
    /// The time since.
    calm: f64,
    /// The highest rate that this session had since they went. Infinite if they never were here.
    left: f64,
    /// The share of recent rounds in which they held the rate down.
    pressed: f64,
}

/// The state of the rule by delay.
#[derive(Clone, Copy, Debug)]
struct DelayRule {
    /// The next step up, as a part of the rate.
    step: f64,
    /// The queue that is aimed at, as a part of the usual one: a queue that overflows before it is
    /// as long as that is a short one.
    aim: f64,
    /// The share of recent rounds in which the lanes did not use the rate, though no queue stood.
    unused: f64,
}

impl PathControl {
    /// A control that has seen nothing.
    pub fn new(share: PathShare) -> PathControl {
        PathControl {
            share,
            phase: PathPhase::Open,
            rounds: Rounds::default(),
            kept: KeptRate { rate: 0.0, dip: Dip::default(), least: RATE_LEAST },
            base: BaseRoundTrip::default(),
            same: SameRoundTrip::default(),
            carried: CarriedRates::default(),
            open: OpenPhase::default(),
            losses: Losses::default(),
            delay: DelayRule { step: STEP_FIRST, aim: 1.0, unused: 0.0 },
            floor: Floor::default(),
            others: Others { are_here: false, were_here: false, calm: 0.0, left: f64::INFINITY, pressed: 0.0 },
        }
    }

    /// The rate that all lanes keep together, bytes/s. `None` if they need not keep any.
    pub fn rate(&self) -> Option<u64> {
        let keeps = self.share != PathShare::All && self.phase != PathPhase::Open;
        keeps.then_some((self.kept.rate * self.kept.dip.part) as u64)
    }

    /// The phase.
    pub fn phase(&self) -> PathPhase {
        self.phase
    }

    /// Whether others on the path leave this session less than there is.
    pub fn is_shared(&self) -> bool {
        self.phase == PathPhase::Steady && (self.others.are_here || self.others.pressed > PRESSED)
    }

    /// Whether the path is full, or others have their part of it, so that more lanes would carry no
    /// more or take from others. If the lanes do not use what they may though no queue stands, they
    /// are what limits. A polite session never asks for more lanes.
    pub fn is_full(&self) -> bool {
        self.share == PathShare::Polite || self.rate().is_some() && self.delay.unused < UNUSED
    }

    /// The part of its packets that the path loses by itself, as far as is known.
    pub fn own_loss(&self) -> f64 {
        self.losses.own
    }

    /// The part of its packets that it loses beyond that. 0 where chance explains it.
    pub fn excess_loss(&self) -> f64 {
        self.losses.excess()
    }

    /// The shortest round trip of late. 0 before the first round.
    pub fn base(&self) -> Duration {
        let shortest = self.base.shortest;
        if shortest.is_finite() { Duration::from_secs_f64(shortest) } else { Duration::ZERO }
    }

    /// The most that the path was seen to carry for this session in the last minute, bytes/s.
    pub fn capacity(&self) -> f64 {
        self.carried.highest()
    }

    /// The time after which the next look is due.
    pub fn next_look(&self) -> Duration {
        self.rounds.open.next_look()
    }

    /// Takes the measurements since the last look, and decides if a round is over by that.
    pub fn look(&mut self, look: &PathRound) {
        if self.share == PathShare::All {
            return;
        }
        if let Some(round) = self.rounds.open.add(look) {
            self.round(&round);
        }
    }

    fn round(&mut self, round: &PathRound) {
        let (seconds, rtt) = (round.elapsed.as_secs_f64(), round.rtt.as_secs_f64());
        // What was not sent is missed a round trip later.
        self.rounds.lacking = if round.idle > LACKING { LACKING_ROUNDS } else { self.rounds.lacking.saturating_sub(1) };
        let least = RATE_LEAST.max(f64::from(round.lanes) * RATE_LEAST_OF_LANE);
        self.kept.least = least.min((RATE_LEAST_PART * self.capacity()).max(RATE_LEAST_OF_LANE));
        self.base.add(rtt, seconds);
        let rate = round.delivered as f64 / seconds;
        // A round in which less was sent than could be says nothing, unless it is a high rate.
        if self.rounds.lacking == 0 || rate > self.carried.recent() {
            self.carried.add(rate);
        }
        let queue = rtt - self.base.shortest;
        self.carried.remember(self.shows(queue), seconds);
        let has_little = self.carried.recent() < LITTLE * self.capacity();
        let loss = self.losses.judge(round, (queue / self.target().max(1e-6), has_little), self.phase);
        self.rounds.count += 1;
        self.floor.age += seconds;
        let is_near = self.share != PathShare::Polite && self.base.is_near(round.rtt_first);
        if is_near {
            self.phase = PathPhase::Open;
        }
        match self.phase {
            PathPhase::Open => {
                self.open.look(self.carried.recent(), round);
                if self.rounds.lacking == 0 {
                    self.open.meet(round);
                }
                if !is_near {
                    self.look_for_the_end(queue, loss);
                }
            }
            PathPhase::Drain => self.drain(queue),
            PathPhase::Steady => self.steer(queue, loss, round),
        }
        self.note_road(round);
    }

    fn shows(&self, queue: f64) -> Shows {
        let is_held_down = self.others.are_here || self.others.pressed > PRESSED;
        match (self.rounds.lacking > 0, is_held_down, queue > self.target()) {
            (true, _, _) => Shows::Nothing,
            (false, false, _) => Shows::All,
            (false, true, true) => Shows::Part,
            (false, true, false) => Shows::Less,
        }
    }

    /// The queue that is aimed at, as a time.
    fn target(&self) -> f64 {
        self.patient_target(1.0)
    }

    /// The same with this patience. Threads wake no sooner for having little of it.
    fn patient_target(&self, patience: f64) -> f64 {
        let (part, least) = if self.share == PathShare::Polite { POLITE_QUEUE } else { QUEUE };
        self.delay.aim * (self.base.shortest * part * patience + least * patience.max(1.0))
    }

    fn look_for_the_end(&mut self, queue: f64, loss: Loss) {
        let now = self.carried.recent();
        self.open.grown =
            if now > self.open.grown.0 * GROWTH { (now, 0) } else { (self.open.grown.0, self.open.grown.1 + 1) };
        let limit = (self.base.shortest * FULL).max(FULL_LEAST);
        // Lanes that lack work grow no more either.
        let has_grown_up = self.open.grown.1 > 0 && self.rounds.lacking == 0;
        if queue > limit && has_grown_up || queue > 2.0 * limit || loss == Loss::Excess {
            self.enter(PathPhase::Drain);
            self.kept.rate = self.carried.most() * DRAIN;
        }
    }

    fn drain(&mut self, queue: f64) {
        self.kept.rate = self.carried.most() * DRAIN;
        if queue < self.target() || self.rounds.count >= DRAIN_ROUNDS {
            let part = if self.share == PathShare::Polite { POLITE_BEGIN } else { BEGIN };
            self.kept.rate = self.carried.most() * part;
            self.enter(PathPhase::Steady);
            self.losses.pardon = PARDON;
            self.open.first.0 = self.capacity();
            self.floor = Floor::at(self.claim());
        }
    }

    fn steer(&mut self, queue: f64, loss: Loss, round: &PathRound) {
        let (rtt, seconds) = (round.rtt.as_secs_f64(), round.elapsed.as_secs_f64());
        let packet = f64::from(round.packet_bytes);
        self.look_for_others(queue, loss, seconds, packet);
        let floor = self.floor_rate(packet);
        let stands = queue > self.target();
        let is_down = self.others.are_here || self.kept.rate <= floor * DOWN;
        if loss == Loss::Excess {
            self.losses.pardon = (rtt / seconds).ceil() as u32 + 1;
            self.losses.overflow = 0.0;
            if queue < 2.0 * self.target() {
                self.delay.aim = (self.delay.aim * AIM_CUT).max(AIM_LEAST);
            }
            self.floor = self.floor.lose(floor.min(self.kept.rate));
            let cut = if self.share == PathShare::Polite { POLITE_CUT } else { CUT };
            self.kept.rate = self.kept.rate.min(self.carried.most()) * cut;
            self.delay.step = STEP_FIRST;
        } else {
            self.delay.aim = (self.delay.aim * AIM_GROWS).min(1.0);
            self.by_delay(queue, round);
            let bolder = if stands && is_down { seconds } else { -seconds };
            self.floor.bold = (self.floor.bold + bolder).clamp(0.0, BOLD_MOST);
        }
        let is_unused = !stands && (self.rounds.lacking > 0 || self.carried.recent() < KEPT * self.kept.rate);
        let is_pressed = loss == Loss::Excess || stands && is_down;
        self.others.pressed += (f64::from(u8::from(is_pressed)) - self.others.pressed) / MEAN_ROUNDS;
        self.delay.unused += (f64::from(u8::from(is_unused)) - self.delay.unused) / MEAN_ROUNDS;
        let floor = self.floor_rate(packet);
        self.kept.rate = if self.others.are_here { floor } else { self.kept.rate.max(floor) }.max(self.kept.least);
        self.carried.ask(self.kept.rate);
        self.look_for_a_longer_path(queue, loss, round);
        self.kept.dip.look(&self.base, queue, (rtt, seconds));
    }

    /// Finds out whether others fill the path too: the queue overflows, or stands, while this
    /// session has clearly less than the path carries; or was there before this session was.
    fn look_for_others(&mut self, queue: f64, loss: Loss, seconds: f64, packet: f64) {
        if self.share == PathShare::Polite {
            return;
        }
        let is_late = self.open.came_late(self.base.shortest, self.capacity());
        let was_late = std::mem::replace(&mut self.floor.is_late, is_late);
        let has_less = self.rounds.lacking == 0 && self.carried.recent() < LESS * self.capacity();
        let is_pressed = has_less && (loss == Loss::Excess || self.others.pressed > PRESSED);
        let is_news = self.floor.is_late && !was_late;
        if is_news {
            self.floor = self.floor.cut(self.floor.cut_at.max(self.claim()));
            self.others.calm = 0.0;
        }
        self.others.are_here |= is_news || is_pressed;
        self.others.were_here |= self.others.are_here;
        if self.others.are_here {
            self.others.left = 0.0;
        }
        self.others.left = self.others.left.max(self.carried.recent());
        let is_calm = loss == Loss::Own && queue < self.target();
        self.others.calm = if is_calm { self.others.calm + seconds } else { 0.0 };
        if self.others.calm > (CALM * self.floor.back(self.base.shortest, packet)).max(CALM_LEAST) {
            self.others.are_here = false;
        }
    }

    fn by_delay(&mut self, queue: f64, round: &PathRound) {
        let rtt = round.rtt.as_secs_f64();
        let (is_polite, is_lacking) = (self.share == PathShare::Polite, self.rounds.lacking > 0);
        let target = self.patient_target(self.patience());
        let recent = self.carried.recent();
        if queue > STANDS * target {
            // While a queue stands, what is delivered is what there is for this session.
            let (gain, most) = if is_polite { POLITE_YIELD } else { YIELD };
            let over = (queue - target) / self.base.shortest.max(rtt / 2.0).max(OVER_LEAST);
            // But after a cut it is, for a while, what was before; and others take what is left.
            let is_careful = self.others.were_here || self.losses.pardon > 0;
            let (from, up) = match (is_lacking, is_careful) {
                // What was not sent was not refused.
                (true, _) => (self.kept.rate, 0.0),
                (false, true) => (recent.min(self.kept.rate), STEP_FIRST),
                (false, false) => (recent, STEP_FIRST),
            };
            // A round may be shorter than what it is taken for: threads may have stood still.
            let rate = (from * (1.0 - (gain * over).clamp(-up, most))).max(self.kept.rate * FALLS_MOST);
            // A short queue that loses nothing, with nobody else seen, takes nothing of the rate.
            let stays = !is_careful && !is_polite && queue < target && round.lost == 0;
            self.kept.rate = if stays { rate.max(self.kept.rate) } else { rate };
            self.delay.step = STEP_FIRST;
        } else {
            let now = if is_lacking { round.delivered as f64 / round.elapsed.as_secs_f64() } else { recent };
            if self.carried.is_used(now, self.losses.own) {
                // What was asked for some rounds ago is what is delivered by now.
                self.kept.rate *= 1.0 + self.delay.step;
                let faster = if self.kept.rate > NEAR * self.capacity() { FASTER_NEAR } else { FASTER };
                self.delay.step = (self.delay.step * faster).min(STEP_MOST);
            }
        }
    }

    /// A session that has less of the path may wait longer in its queue: that makes sessions equal.
    fn patience(&self) -> f64 {
        let fair = (RATE_USUAL / self.kept.rate.max(1.0)).sqrt().clamp(PATIENCE.0, PATIENCE.1);
        if self.share == PathShare::Polite { 1.0 } else { fair }
    }

    /// Takes a queue that does not shrink when less is sent for a part of the path.
    fn look_for_a_longer_path(&mut self, queue: f64, loss: Loss, round: &PathRound) {
        let (rtt, seconds) = (round.rtt.as_secs_f64(), round.elapsed.as_secs_f64());
        // At the target, this session itself holds the queue where it is while another one grows.
        let is_held = queue < ABOVE * self.patient_target(self.patience());
        if loss == Loss::Excess || self.losses.pardon > 0 || self.rounds.lacking > 0 || is_held {
            self.same.forget();
        } else if let Some(longer) = self.same.look((rtt, seconds), queue, self.carried.recent(), self.capacity()) {
            self.base.renew(longer);
            self.same.forget();
        }
    }

    /// The rate of the rule by loss.
    fn floor_rate(&self, packet: f64) -> f64 {
        let path = (self.base.shortest, packet);
        // What others left since they went is what there is, as far as can be told without them.
        let whole = if self.others.are_here { f64::INFINITY } else { self.others.left };
        let claim = self.claim().min(claim::HALF * whole);
        if self.share == PathShare::Polite { 0.0 } else { self.floor.rate(path, claim) }
    }

    fn claim(&self) -> f64 {
        self.open.claim(self.capacity(), self.base.shortest)
    }

    fn enter(&mut self, phase: PathPhase) {
        (self.phase, self.rounds.count, self.delay.step) = (phase, 0, STEP_FIRST);
    }
}

/// The lanes still find their rate while it grows by a quarter.
const GROWTH: f64 = 1.25;
/// The queue, as a part of the round trip and in seconds at least, that shows a path to be full.
const FULL: f64 = 0.25;
const FULL_LEAST: f64 = 0.005;
/// The part of the delivered rate at which a queue is drained, and for how many rounds at most: a
/// queue that stands after that is somebody else's.
const DRAIN: f64 = 0.5;
const DRAIN_ROUNDS: u32 = 8;
/// The part of the delivered rate that is begun with.
const BEGIN: f64 = 0.95;
const POLITE_BEGIN: f64 = 0.6;
/// Rounds after a drain in which losses are those of the queue that was drained.
const PARDON: u32 = 3;
/// The queue that is aimed at: a part of the round trip, and seconds besides, as threads that wake
/// late make round trips longer too.
const QUEUE: (f64, f64) = (0.1, 0.001);
const POLITE_QUEUE: (f64, f64) = (0.04, 0.001);
/// From this part of it on, a queue stands.
const STANDS: f64 = 0.3;
/// The rate that waits for just that queue, and how much shorter and longer others do.
const RATE_USUAL: f64 = 125e6;
const PATIENCE: (f64, f64) = (0.5, 2.0);
/// From this multiple of the queue that is aimed at on, a queue that does not shrink is none.
const ABOVE: f64 = 1.5;
/// A queue is compared with so many seconds at least.
const OVER_LEAST: f64 = 0.003;
/// How much less is sent for a queue that is longer by a round trip, and at most.
const YIELD: (f64, f64) = (0.3, 0.1);
const POLITE_YIELD: (f64, f64) = (1.5, 0.3);
/// The first step up, and the largest.
const STEP_FIRST: f64 = 0.02;
const STEP_MOST: f64 = 0.08;
/// How steps grow, and how they do near to what the path was seen to carry.
const FASTER: f64 = 2.0;
const FASTER_NEAR: f64 = 1.2;
const NEAR: f64 = 0.9;
/// Lanes that deliver this part of the rate use it.
const KEPT: f64 = 0.85;
/// Losses without a queue, while less than this part of what the path carried is sent, are no
/// overflow.
const LITTLE: f64 = 0.45;
/// A session that has less than this part of what the path carried has it not alone.
const LESS: f64 = 0.85;
/// Others are gone when no queue stood and none overflowed for this part of the time that a cubic
/// flow takes to grow again, and seconds at least.
const CALM: f64 = 0.6;
const CALM_LEAST: f64 = 1.0;
/// The part of the rate that is left when more is lost than may be.
const CUT: f64 = 0.85;
const POLITE_CUT: f64 = 0.5;
const AIM_CUT: f64 = 0.7;
const AIM_LEAST: f64 = 0.2;
const AIM_GROWS: f64 = 1.005;
/// A rate of up to this many times the rule by loss is that rule's.
const DOWN: f64 = 1.02;
/// The lowest rate, bytes/s, of all lanes and for each: two grains of the account of the lanes a
/// second, so that none is taken for one that stands still.
const RATE_LEAST: f64 = 65536.0;
const RATE_LEAST_OF_LANE: f64 = 8192.0;
/// It is no more than this part of what the path was seen to carry, and that of one lane.
const RATE_LEAST_PART: f64 = 0.1;
/// The part of the time without work from which on lanes lack it, and the rounds in which that is
/// seen.
const LACKING: f64 = 0.1;
const LACKING_ROUNDS: u32 = 2;
/// The part of the rate that is left after a round at least.
const FALLS_MOST: f64 = 0.5;
/// Seconds of boldness at most: a quarter more than the path was seen to carry.
const BOLD_MOST: f64 = 1.5 * claim::BOLD_AFTER;
/// From this share of rounds on, others share the path, ...
const PRESSED: f64 = 0.3;
/// ... and the lanes do not use what they may.
const UNUSED: f64 = 0.5;
/// Rounds over which these shares are means.
const MEAN_ROUNDS: f64 = 20.0;
