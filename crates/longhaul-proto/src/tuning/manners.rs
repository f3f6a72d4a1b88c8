//! The manners of a session on a path: one rate for all of its lanes there, whatever carries them.
//!
//! In: the bytes delivered and lost and the round trip, round by round, summed over all lanes. Out:
//! the rate that the lanes keep together. Sans-I/O: the engine reads counters and paces lanes.
//! Knows no sockets, no lanes and no clock.
//!
//! A session is one citizen of the network, not as many as it has lanes. In the beginning the lanes
//! find the path's rate by themselves ([`PathPhase::Open`]), until a queue stands or more is lost
//! than the path loses by itself. That queue is drained ([`PathPhase::Drain`]). From then on
//! ([`PathPhase::Steady`]) two rules say a rate, and the higher one holds:
//!
//! - *By delay*: keep a queue of a tenth of a round trip. With none, the rate grows by a fiftieth a
//!   round, and faster while that is delivered; with a longer one it yields (Brakmo and Peterson,
//!   *TCP Vegas*, 1995; Arun and Balakrishnan, *Copa*, NSDI 2018). Alone, this fills a path and
//!   leaves its queue nearly empty; whoever comes finds room.
//! - *By loss*: the window of one cubic flow (RFC 9438), which begins at half of what the path was
//!   seen to carry, and grows beyond that only slowly. Beside others that fill the queue and never
//!   look at it, the first rule yields until nothing is left; this one keeps a fair share.
//!
//! Loss is judged against the *own loss* of the path, which is seen while its queue is short: a
//! path that loses one in a hundred by itself is filled all the same. Beyond that, one in a hundred
//! is borne (BBRv3 bears two, draft-ietf-ccwg-bbr); but while a queue stands, each loss counts, as
//! it is the queue that overflows. A polite session has the first rule alone, with a shorter queue
//! and larger steps down, as LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus). docs/DECISIONS.md says
//! why it is not BBR, and what it does in a model and on emulated paths.

mod history;
#[cfg(test)]
mod tests;

use std::time::Duration;

use longhaul_core::PathShare;

use self::history::{BaseRoundTrip, CarriedRates};

/// The measurements of a round over all lanes of a path together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathRound {
    /// Its length: a round trip at least.
    pub elapsed: Duration,
    /// Bytes that the other host was found to have.
    pub delivered: u64,
    /// Bytes that were found lost.
    pub lost: u64,
    /// The smoothed round trip at its end.
    pub rtt: Duration,
    /// Payload of one packet, in bytes.
    pub packet_bytes: u32,
}

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
    /// Rounds in this phase.
    rounds: u32,
    /// The rate to keep, and the part of it that is kept in this round.
    rate: f64,
    dip: Dip,
    base: BaseRoundTrip,
    carried: CarriedRates,
    open: OpenPhase,
    losses: Losses,
    delay: DelayRule,
    floor: Floor,
    recently: Recently,
}

/// The time before the path was full.
#[derive(Clone, Copy, Debug)]
struct OpenPhase {
    /// The delivered rate when it last grew by a quarter, and the rounds since.
    grown: (f64, u32),
    /// The rate, and the shortest round trip, when the path was found to be full.
    first: (f64, f64),
}

/// The state of the rule by delay.
#[derive(Clone, Copy, Debug)]
struct DelayRule {
    /// The next step up, as a part of the rate.
    step: f64,
    /// The queue that is aimed at, as a part of the usual one: a queue that overflows before it is
    /// as long as that is a short one.
    aim: f64,
}

/// Shares of the recent rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Recently {
    /// Others held the rate down.
    pressed: f64,
    /// The lanes did not use the rate, though no queue stood.
    unused: f64,
}

/// A judgement of the losses of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The path loses as much by itself.
    Own,
    /// More than that was lost.
    Excess,
}

/// The losses, and what is made of them.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// The part of its packets that the path loses by itself.
    own: f64,
    /// Packets lost beyond that while a queue stood.
    overflow: f64,
    /// Rounds for which losses are still those of a queue that stood.
    stood: u32,
    /// Rounds for which losses do not count: they belong to what was answered already.
    pardon: u32,
}

/// The window of one cubic flow.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    /// The rate when it was last cut, and the time since.
    cut_at: f64,
    age: f64,
    /// The time for which it has been the higher rule while a queue stood.
    bold: f64,
}

/// A moment of less, in which the queue of this session runs empty and the shortest round trip is
/// seen, by others too.
#[derive(Clone, Copy, Debug)]
struct Dip {
    part: f64,
    rounds: u32,
    age: f64,
}

impl PathControl {
    /// A control that has seen nothing.
    pub fn new(share: PathShare) -> PathControl {
        PathControl {
            share,
            phase: PathPhase::Open,
            rounds: 0,
            rate: 0.0,
            dip: Dip { part: 1.0, rounds: 0, age: 0.0 },
            base: BaseRoundTrip::default(),
            carried: CarriedRates::default(),
            open: OpenPhase { grown: (0.0, 0), first: (0.0, f64::INFINITY) },
            losses: Losses::default(),
            delay: DelayRule { step: STEP_FIRST, aim: 1.0 },
            floor: Floor::default(),
            recently: Recently::default(),
        }
    }

    /// The rate that all lanes keep together, bytes/s. `None` if they need not keep any.
    pub fn rate(&self) -> Option<u64> {
        let keeps = self.share != PathShare::All && self.phase != PathPhase::Open;
        keeps.then_some((self.rate * self.dip.part) as u64)
    }

    /// The phase.
    pub fn phase(&self) -> PathPhase {
        self.phase
    }

    /// Whether others on the path leave this session less than there is.
    pub fn is_shared(&self) -> bool {
        self.phase == PathPhase::Steady && self.recently.pressed > PRESSED
    }

    /// The rate that the lanes carry together on a path that is full, bytes/s. `None` if it is not
    /// full, as far as is known, or if the lanes do not use what they may though no queue stands:
    /// then they are what limits. A polite session never asks for more lanes. The rate is somewhat
    /// less than that of the last rounds, as one second is not like another.
    pub fn full_at(&self) -> Option<u64> {
        let is_full = self.share == PathShare::Polite || self.recently.unused < UNUSED;
        self.rate().filter(|_| is_full).map(|rate| rate.min((self.carried.recent() * SURELY) as u64))
    }

    /// The part of its packets that the path loses by itself, as far as is known.
    pub fn own_loss(&self) -> f64 {
        self.losses.own
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

    /// Takes the measurements of a round that is over.
    pub fn round(&mut self, round: &PathRound) {
        let seconds = round.elapsed.as_secs_f64();
        if self.share == PathShare::All || round.delivered == 0 || seconds <= 0.0 || round.rtt.is_zero() {
            return;
        }
        self.base.add(round.rtt.as_secs_f64(), seconds);
        self.carried.add(round.delivered as f64 / seconds, seconds);
        let queue = round.rtt.as_secs_f64() - self.base.shortest;
        let loss = self.judge_loss(round, queue);
        self.rounds += 1;
        self.floor.age += seconds;
        match self.phase {
            PathPhase::Open => self.look_for_the_end(queue, loss),
            PathPhase::Drain => self.drain(queue),
            PathPhase::Steady => self.steer(queue, loss, round),
        }
    }

    /// Whether more was lost than the path loses by itself. While a queue stands, losses add up
    /// from round to round (a CUSUM, Page 1954): its overflow costs each flow few packets at a
    /// time.
    fn judge_loss(&mut self, round: &PathRound, queue: f64) -> Loss {
        let target = self.target();
        let size = f64::from(round.packet_bytes.max(1));
        let (packets, lost) = ((round.delivered + round.lost) as f64 / size, round.lost as f64 / size);
        let losses = &mut self.losses;
        let expected = OWN_LOSS_ROOM * losses.own * packets;
        let noise = SIGMAS * (expected + 1.0).sqrt();
        // A loss is found a round trip or more after the queue overflowed.
        losses.stood = if queue > STANDING * target { STOOD_ROUNDS } else { losses.stood.saturating_sub(1) };
        let stands = losses.stood > 0;
        let is_calm = match self.phase {
            PathPhase::Open => queue < target,
            PathPhase::Drain => false,
            PathPhase::Steady => !stands && losses.pardon == 0,
        };
        if is_calm {
            losses.own += OWN_LOSS_STEP * ((lost / packets.max(1.0)).min(OWN_LOSS_MAX) - losses.own);
        }
        if losses.pardon > 0 {
            (losses.pardon, losses.overflow) = (losses.pardon - 1, 0.0);
            return Loss::Own;
        }
        let more = lost - expected;
        losses.overflow =
            if stands { (losses.overflow + more).max(0.0) } else { losses.overflow * OVERFLOW_REMEMBERED };
        let borne = if self.phase == PathPhase::Open { LOSS_BORNE_OPEN } else { LOSS_BORNE };
        let is_excess = losses.overflow > noise || more > noise + borne * packets;
        if is_excess { Loss::Excess } else { Loss::Own }
    }

    /// The queue that is aimed at, as a time.
    fn target(&self) -> f64 {
        let (part, least) = if self.share == PathShare::Polite { POLITE_QUEUE } else { QUEUE };
        self.delay.aim * (self.base.shortest * part + least)
    }

    fn look_for_the_end(&mut self, queue: f64, loss: Loss) {
        let now = self.carried.recent();
        self.open.grown =
            if now > self.open.grown.0 * GROWTH { (now, 0) } else { (self.open.grown.0, self.open.grown.1 + 1) };
        let limit = (self.base.shortest * FULL).max(FULL_LEAST);
        self.open.first.1 = self.base.shortest;
        if queue > limit && self.open.grown.1 > 0 || queue > 2.0 * limit || loss == Loss::Excess {
            self.enter(PathPhase::Drain);
            self.rate = self.carried.most() * DRAIN;
        }
    }

    fn drain(&mut self, queue: f64) {
        self.rate = self.carried.most() * DRAIN;
        if queue < self.target() || self.rounds >= DRAIN_ROUNDS {
            let part = if self.share == PathShare::Polite { POLITE_BEGIN } else { BEGIN };
            self.rate = self.carried.most() * part;
            self.enter(PathPhase::Steady);
            self.losses.pardon = PARDON;
            self.open.first.0 = self.capacity();
            self.floor = Floor { cut_at: self.claim(), ..Floor::default() };
        }
    }

    fn steer(&mut self, queue: f64, loss: Loss, round: &PathRound) {
        let (rtt, seconds) = (round.rtt.as_secs_f64(), round.elapsed.as_secs_f64());
        let packet = f64::from(round.packet_bytes);
        let floor = self.floor_rate(packet);
        let stands = queue > self.target();
        let is_down = self.rate <= floor * DOWN;
        if loss == Loss::Excess {
            self.losses.pardon = (rtt / seconds).ceil() as u32 + 1;
            self.losses.overflow = 0.0;
            if queue < 2.0 * self.target() {
                self.delay.aim = (self.delay.aim * AIM_CUT).max(AIM_LEAST);
            }
            self.floor = Floor { cut_at: floor.min(self.rate), ..Floor::default() };
            let cut = if self.share == PathShare::Polite { POLITE_CUT } else { CUT };
            self.rate = self.rate.min(self.carried.most()) * cut;
            self.delay.step = STEP_FIRST;
        } else {
            self.delay.aim = (self.delay.aim * AIM_GROWS).min(1.0);
            self.by_delay(queue, rtt);
            let bolder = if stands && is_down { seconds } else { -seconds };
            self.floor.bold = (self.floor.bold + bolder).max(0.0);
        }
        let is_unused = !stands && self.carried.recent() < KEPT * self.rate;
        let is_pressed = loss == Loss::Excess || stands && is_down;
        self.recently.pressed += (f64::from(u8::from(is_pressed)) - self.recently.pressed) / MEAN_ROUNDS;
        self.recently.unused += (f64::from(u8::from(is_unused)) - self.recently.unused) / MEAN_ROUNDS;
        self.rate = self.rate.max(self.floor_rate(packet)).max(RATE_LEAST);
        self.breathe(queue, rtt, seconds);
    }

    fn by_delay(&mut self, queue: f64, rtt: f64) {
        let is_polite = self.share == PathShare::Polite;
        // Whoever has less of the path may wait longer in its queue: that makes sessions equal.
        let patience = (RATE_USUAL / self.rate.max(1.0)).sqrt().clamp(PATIENCE.0, PATIENCE.1);
        let target = self.target() * if is_polite { 1.0 } else { patience };
        if queue > STANDS * target {
            // While a queue stands, what is delivered is what there is for this session.
            let (gain, most) = if is_polite { POLITE_YIELD } else { YIELD };
            let over = (queue - target) / self.base.shortest.max(rtt / 2.0);
            self.rate = self.carried.recent() * (1.0 - (gain * over).clamp(-STEP_FIRST, most));
            self.delay.step = STEP_FIRST;
        } else if self.carried.recent() > KEPT * self.rate {
            self.rate *= 1.0 + self.delay.step;
            self.delay.step = (self.delay.step * 2.0).min(STEP_MOST);
        }
    }

    /// Lets the queue run empty for a moment, if it has long stood.
    fn breathe(&mut self, queue: f64, rtt: f64, seconds: f64) {
        self.dip.age += seconds;
        if self.dip.rounds > 0 {
            self.dip.rounds -= 1;
        } else if self.base.age > DIP_EACH && self.dip.age > DIP_EACH {
            let part = (1.0 - queue / self.base.shortest - DIP_MORE).max(DIP_LEAST);
            self.dip = Dip { part, rounds: (rtt / seconds).ceil() as u32, age: 0.0 };
        }
        if self.dip.rounds == 0 {
            self.dip.part = 1.0;
        }
    }

    /// The rate of the rule by loss.
    fn floor_rate(&self, packet: f64) -> f64 {
        if self.share == PathShare::Polite {
            return 0.0;
        }
        let Floor { cut_at, age, bold } = self.floor;
        let base = self.base.shortest.max(1e-4);
        let window = cut_at * base / packet.max(1.0);
        let back = (window * (1.0 - CUBIC_CUT) / CUBIC_C).cbrt();
        let cubic = CUBIC_C * (age - back).powi(3) + window;
        let reno = window * CUBIC_CUT + RENO * age / base;
        let rate = cubic.max(reno).max(window * CUBIC_CUT) * packet / base;
        rate.min(self.claim() * (1.0 + bold / BOLD_AFTER))
    }

    /// The rate that is claimed beside others: half of what the path was seen to carry. Who came to
    /// a queue that stood already, which is known when the round trip becomes shorter than it ever
    /// was, had seen but a part of it, and claims all of that.
    fn claim(&self) -> f64 {
        let half = HALF * self.capacity();
        let came_late = self.base.shortest < self.open.first.1 * CAME_LATE;
        if came_late { half.max(self.open.first.0) } else { half }
    }

    fn enter(&mut self, phase: PathPhase) {
        (self.phase, self.rounds, self.delay.step) = (phase, 0, STEP_FIRST);
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
/// How much less is sent for a queue that is longer by a round trip, and at most.
const YIELD: (f64, f64) = (0.3, 0.1);
const POLITE_YIELD: (f64, f64) = (1.5, 0.3);
/// The first step up, and the largest.
const STEP_FIRST: f64 = 0.02;
const STEP_MOST: f64 = 0.08;
/// Lanes that deliver this part of the rate use it.
const KEPT: f64 = 0.85;
/// The part of the rate that is left when more is lost than may be.
const CUT: f64 = 0.85;
const POLITE_CUT: f64 = 0.5;
const AIM_CUT: f64 = 0.7;
const AIM_LEAST: f64 = 0.2;
const AIM_GROWS: f64 = 1.005;
/// Seconds between two dips, and how much less than the queue a dip is, and at least.
const DIP_EACH: f64 = 10.0;
const DIP_MORE: f64 = 0.05;
const DIP_LEAST: f64 = 0.5;
/// RFC 9438: the constants of a cubic window, and the slope of the Reno window beside it.
const CUBIC_C: f64 = 0.4;
const CUBIC_CUT: f64 = 0.7;
const RENO: f64 = 0.53;
/// The part of the path that is claimed beside others.
const HALF: f64 = 0.5;
/// A shortest round trip of less than this part of the first one shows that a queue stood then.
const CAME_LATE: f64 = 0.9;
/// Seconds after which twice the claim may be had, if no loss tells of others.
const BOLD_AFTER: f64 = 10.0;
/// A rate of up to this many times the rule by loss is that rule's.
const DOWN: f64 = 1.02;
/// How much more than the path's own loss is its own, as losses come unevenly.
const OWN_LOSS_ROOM: f64 = 1.5;
const OWN_LOSS_STEP: f64 = 0.1;
const OWN_LOSS_MAX: f64 = 0.1;
/// The part of all packets that may be lost besides.
const LOSS_BORNE: f64 = 0.01;
/// The same while the path's own loss is hardly known: lanes that double their rate lose more than
/// that as soon as a short queue is full.
const LOSS_BORNE_OPEN: f64 = 0.08;
/// Deviations of a Poisson process within which a loss is chance.
const SIGMAS: f64 = 5.0;
/// From this multiple of the queue that is aimed at on, losses are those of a queue ...
const STANDING: f64 = 1.3;
/// ... and so they are for this many rounds.
const STOOD_ROUNDS: u32 = 3;
/// The part of these losses that is remembered from one round without a queue to the next.
const OVERFLOW_REMEMBERED: f64 = 0.95;
/// The lowest rate, bytes/s.
const RATE_LEAST: f64 = 65536.0;
/// From this share of rounds on, others share the path, ...
const PRESSED: f64 = 0.3;
/// ... and the lanes do not use what they may.
const UNUSED: f64 = 0.5;
/// The part of the rate of two rounds that is carried in any second.
const SURELY: f64 = 0.7;
/// Rounds over which these shares are means.
const MEAN_ROUNDS: f64 = 20.0;
