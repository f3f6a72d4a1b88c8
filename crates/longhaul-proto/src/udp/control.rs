//! The rate of a session's UDP lanes on a path: one control for all of them.
//!
//! In: what each lane's sender learns from statuses ([`UdpSample`]), and whether the lane had
//! something to send. Out: a rate for the account on which all lanes draw, a limit of bytes on
//! their way, and what limits. Sans-I/O: it knows no sockets, no lanes but by their numbers and no
//! clock. The circuit breaker ([`super::breaker`]) is apart from it.
//!
//! [`UdpPhase`] says how it works. In the beginning the rate nearly triples each round trip, until
//! a queue stands or more is lost than the path loses by itself; that queue is drained. From then
//! on the control keeps a queue of a tenth of a round trip: with none the rate grows by 2 to 8 % a
//! round (more where the start was cut short), with a longer one it yields (Brakmo and Peterson,
//! *TCP Vegas*, 1995; Arun and Balakrishnan, *Copa*, NSDI 2018). Whoever yields and finds the queue
//! as full as before, and clearly less for itself than the path was seen to carry, is not alone:
//! then the rate is the window of one cubic flow (RFC 9438), which begins at half of that, until no
//! queue stood for the better part of the time that a cubic flow needs to grow again.
//!
//! Loss is judged against the path's own loss (`control/losses.rs`). A polite session never claims
//! the window of a cubic flow, keeps a shorter queue and yields faster, as LEDBAT++
//! (draft-irtf-iccrg-ledbat-plus-plus). One that takes all (`all`) holds the rate that was asked
//! for and bears 5 % of loss, as tsunami-udp (Meiss 2004). docs/DECISIONS.md has the figures.

mod alone;
mod carried;
mod equal;
mod known;
mod losses;
mod others;
mod receiver;
mod road;
mod rounds;
mod shallow;
mod spare;
mod start;
mod steady;

use std::time::Duration;

use longhaul_core::{LaneId, PathShare};

use self::carried::CarriedMost;
use self::equal::EqualWindow;
use self::known::TrialNews;
pub use self::known::{KnownPath, KnownRate};
use self::losses::{LossJudge, LossVerdict};
use self::others::OtherFlows;
use self::receiver::ReceiverCap;
use self::rounds::{LaneRounds, RATE_MOST, ROUND_SHORTEST, UdpRound};
use self::shallow::ShallowTop;
use self::spare::SpareRate;
use self::start::StartSearch;
use self::steady::{EDGE_SECONDS, STEP_FIRST};
use super::sending::UdpSample;
use crate::time::Timestamp;
pub use crate::tuning::udp_lanes::UdpSpare;

/// The facts with which a control begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UdpControlConfig {
    /// The share of the path that is taken beside others.
    pub share: PathShare,
    /// The rate that was asked for, bytes/s: a ceiling, and under [`PathShare::All`] the rate to
    /// hold. `None` for none.
    pub ceiling: Option<u64>,
    /// The path as an earlier session left it. `None` if it is not known.
    pub known: Option<KnownPath>,
    /// The round trip of the join.
    pub round_trip: Duration,
}

/// The phase of a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpPhase {
    /// The rate of the path is not known yet: it nearly triples each round trip.
    Start,
    /// The queue that came of that is let run empty.
    Drain,
    /// The path is full, with a short queue, or nearly so.
    Steady,
    /// Others fill the path too: the rate is that of one cubic flow.
    Equal,
}

/// The reason why a lane sent no more than it did since its last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpLaneLimit {
    /// The rate, or the limit of bytes on their way.
    Path,
    /// It had nothing to send.
    Source,
    /// The receiver admitted no unit.
    Credit,
    /// The breaker had it send less than the control's rate.
    Breaker,
}

/// The limit of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpRateLimit {
    /// The rate of the path is still looked for.
    Search,
    /// The path carries no more.
    Path,
    /// Others on the path leave this session less than there is.
    Shared,
    /// The rate that was asked for.
    Ceiling,
    /// The receiver's system drops datagrams, as its socket is full.
    Receiver,
    /// The lanes have nothing to send.
    Source,
    /// The receiver admits no more units.
    Credit,
    /// The breaker, as statuses lack.
    Breaker,
}

/// The control: see the module. Times are seconds and rates bytes/s.
#[derive(Clone, Debug)]
pub struct UdpControl {
    share: PathShare,
    phase: UdpPhase,
    /// Rounds in this phase.
    rounds: u32,
    pace: UdpPace,
    lanes: LaneRounds,
    carried: CarriedMost,
    start: StartSearch,
    losses: LossJudge,
    delay: DelaySteps,
    equal: EqualWindow,
    others: OtherFlows,
    dip: QueueDip,
}

/// The rate, and what bounds it.
#[derive(Clone, Copy, Debug)]
struct UdpPace {
    /// The rate to keep, and that of the round before.
    rate: f64,
    before: f64,
    /// The rate that was asked for, or infinity.
    ceiling: f64,
    /// A lowest rate that still lost too much, or infinity.
    floor: f64,
    receiver: ReceiverCap,
    /// The reason why the lanes send less.
    limited: Option<UdpLaneLimit>,
    spare: SpareRate,
}

/// The state of the rule by delay.
#[derive(Clone, Copy, Debug)]
struct DelaySteps {
    /// The next step up, as a part of the rate.
    step: f64,
    /// The queue that is aimed at, as a part of the usual one: a queue that overflows before it is
    /// as long as that is a short one.
    aim: f64,
    /// The rate at which the path was full last, and the seconds since.
    edge: f64,
    edge_age: f64,
    /// Rounds in a row in which there was no queue, and no more lost than is borne.
    calm: u32,
    /// The rate after the first drain, infinite before, and whether anything was lost so far.
    first: f64,
    has_lost: bool,
    shallow: ShallowTop,
}

/// A moment of less, in which the queue of this session runs empty and the shortest round trip is
/// seen, by others too.
#[derive(Clone, Copy, Debug)]
struct QueueDip {
    part: f64,
    rounds: u32,
    age: f64,
    /// The shortest and the longest queue of some time, and that time.
    still: (f64, f64, f64),
}

impl UdpControl {
    /// A control of a path on which nothing was sent.
    pub fn new(now: Timestamp, config: UdpControlConfig) -> UdpControl {
        let round_trip = config.round_trip.as_secs_f64().max(1e-4);
        let ceiling = config.ceiling.map_or(f64::INFINITY, |ceiling| ceiling.max(1) as f64);
        let start = StartSearch::new(&config);
        let rate = start.first_rate(round_trip).min(ceiling);
        UdpControl {
            share: config.share,
            phase: UdpPhase::Start,
            rounds: 0,
            pace: UdpPace {
                rate,
                before: rate,
                ceiling,
                floor: f64::INFINITY,
                receiver: ReceiverCap::new(),
                limited: None,
                spare: SpareRate::default(),
            },
            lanes: LaneRounds::new(now, config.round_trip),
            carried: CarriedMost::default(),
            start,
            losses: LossJudge::new(),
            delay: DelaySteps {
                step: STEP_FIRST,
                aim: 1.0,
                edge: 0.0,
                edge_age: f64::INFINITY,
                calm: 0,
                first: f64::INFINITY,
                has_lost: false,
                shallow: ShallowTop::new(),
            },
            equal: EqualWindow::default(),
            others: OtherFlows::new(),
            dip: QueueDip { part: 1.0, rounds: 0, age: 0.0, still: (0.0, 0.0, 0.0) },
        }
    }

    /// The rate that all lanes keep together, bytes/s: datagrams as the account counts them.
    pub fn rate(&self) -> u64 {
        let cap = self.pace.receiver.rate();
        (self.pace.rate * self.dip.part).min(self.pace.ceiling).min(cap).max(self.least()).min(RATE_MOST) as u64
    }

    /// The bytes of all lanes that may be on their way. A lane asks before each message: it sends
    /// none while the flying bytes of all lanes ([`UdpSample::flying_bytes`]) are as many. It keeps
    /// the queue short where the rate grows fast, or is too high for a round trip. One message goes
    /// all the same when nothing was heard for [`UdpControl::ask_after`]: else nothing would be
    /// sent any more once all that flies is lost.
    pub fn flight_limit(&self) -> u64 {
        let rtt = self.lanes.round_trip();
        let bytes = match self.phase {
            UdpPhase::Start if self.start.is_train() => return self.start.flight(self.pace.rate, rtt) as u64,
            UdpPhase::Start => self.start.flight(self.pace.rate, self.lanes.base().max(FLIGHT_SHORTEST)),
            UdpPhase::Drain | UdpPhase::Steady => {
                FLIGHT * self.pace.rate.min(self.pace.ceiling) * rtt.max(FLIGHT_SHORTEST)
            }
            UdpPhase::Equal => FLIGHT_EQUAL * self.equal.bytes(),
        };
        (bytes + FLIGHT_LEAST) as u64
    }

    /// The time without news after which one message may go whatever the limit: two round trips and
    /// 50 ms.
    pub fn ask_after(&self) -> Duration {
        self.round_trip() * 2 + ASK_AFTER
    }

    /// The phase.
    pub fn phase(&self) -> UdpPhase {
        self.phase
    }

    /// The limit of the rate now.
    pub fn limit(&self) -> UdpRateLimit {
        match (self.pace.limited, self.phase) {
            (Some(UdpLaneLimit::Source), _) => UdpRateLimit::Source,
            (Some(UdpLaneLimit::Credit), _) => UdpRateLimit::Credit,
            (Some(UdpLaneLimit::Breaker), _) => UdpRateLimit::Breaker,
            _ if self.pace.receiver.is_on() => UdpRateLimit::Receiver,
            _ if self.pace.rate >= self.pace.ceiling => UdpRateLimit::Ceiling,
            (_, UdpPhase::Start) => UdpRateLimit::Search,
            (_, UdpPhase::Equal) => UdpRateLimit::Shared,
            _ if self.others.pressed > PRESSED => UdpRateLimit::Shared,
            _ => UdpRateLimit::Path,
        }
    }

    /// The part of its packets that the path loses by itself, as far as is known.
    pub fn own_loss(&self) -> f64 {
        self.losses.own
    }

    /// The round trip, smoothed over all lanes.
    pub fn round_trip(&self) -> Duration {
        Duration::from_secs_f64(self.lanes.round_trip())
    }

    /// The shortest round trip of late.
    pub fn base(&self) -> Duration {
        Duration::from_secs_f64(self.lanes.base())
    }

    /// The most that the path was seen to carry for this session in the last minute, bytes/s; what
    /// is remembered of it for the next session. A minute in which others share it is four.
    pub fn capacity(&self) -> u64 {
        self.carried.highest() as u64
    }

    /// A lane is over: it is heard of no more.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.lanes.remove(lane);
    }

    /// The share of the path that is taken.
    pub fn share(&self) -> PathShare {
        self.share
    }

    /// Another share from now on: a fair one, if [`super::breaker::UdpBreaker::allows_all`] no
    /// more.
    pub fn set_share(&mut self, share: PathShare) {
        self.share = share;
        if share != PathShare::Fair && self.phase == UdpPhase::Equal {
            self.enter(UdpPhase::Steady);
        }
    }

    /// Another ceiling, bytes/s. `None` for none.
    pub fn set_ceiling(&mut self, ceiling: Option<u64>) {
        self.pace.ceiling = ceiling.map_or(f64::INFINITY, |ceiling| ceiling.max(1) as f64);
        self.pace.rate = self.pace.rate.min(self.pace.ceiling);
    }

    /// Takes a lane's sample, and whatever kept that lane from sending more since the one before.
    pub fn observe(&mut self, now: Timestamp, lane: LaneId, sample: &UdpSample, limit: UdpLaneLimit) {
        let lost = self.lanes.add(now, lane, sample, limit);
        self.try_known(now, &TrialNews { lane, sample, limit, lost });
        if let Some(step) = self.lanes.step(now, self.pace.rate).filter(|_| self.phase == UdpPhase::Start) {
            self.start_step(&step);
        }
        if let Some(round) = self.lanes.round(now, self.pace.rate) {
            self.round(now, &round);
            self.pace.rate = self.pace.rate.min(self.pace.ceiling).min(RATE_MOST).max(self.least());
        }
    }

    fn round(&mut self, now: Timestamp, round: &UdpRound) {
        self.pace.receiver.take(round, self.lanes.round_trip(), self.pace.rate.min(self.pace.ceiling));
        let asked = self.pace.before.min(self.pace.rate).min(self.pace.ceiling);
        self.pace.before = self.pace.rate;
        let is_short = round.rate < USED * (1.0 - self.losses.own) * asked;
        self.pace.limited = round.limited.filter(|_| is_short);
        self.rounds += 1;
        let queue = round.queue.unwrap_or_default();
        self.note_spare(round, queue, asked);
        if self.pace.limited.is_none() || round.rate > self.carried.recent() {
            let ages = if self.phase == UdpPhase::Equal { EQUAL_AGES } else { 1.0 };
            self.carried.add(round.rate, ages * round.seconds);
        }
        let borne = match (self.share, self.phase) {
            (PathShare::All, _) => BORNE_ALL,
            (_, UdpPhase::Start) => BORNE_START,
            _ => BORNE,
        };
        self.delay.edge_age += round.seconds;
        self.delay.shallow.pass(round.seconds);
        self.delay.has_lost |= round.lost > 0.0 || round.marked > 0 || round.dropped > 0;
        self.look_at_share();
        // Who takes all bears what overflows, up to its bound.
        let judged = if self.share == PathShare::All { 0.0 } else { queue / self.target().max(1e-6) };
        // Among cubic flows each loss counts, as each of theirs does to them.
        let spare = if self.phase == UdpPhase::Equal { SPARE_EQUAL } else { SPARE };
        let verdict = self.losses.judge(round, judged, self.may_learn(), (borne, spare));
        self.note_road(round, queue, verdict);
        self.others.pass(round.seconds);
        if verdict == LossVerdict::Excess && self.pace.rate < FLOOR_NEAR * self.least() {
            self.pace.floor = FLOOR_CUT * self.least();
        } else if self.pace.rate > 2.0 * self.usual_least() {
            self.pace.floor = f64::INFINITY;
        }
        if queue >= self.target() || verdict == LossVerdict::Excess {
            self.others.calm = 0.0;
        }
        if self.share == PathShare::All && self.pace.ceiling.is_finite() {
            return self.hold(round, verdict);
        }
        match self.phase {
            UdpPhase::Start => self.start_round(round, queue, verdict),
            UdpPhase::Drain => self.drain(queue),
            UdpPhase::Steady => self.steer(queue, verdict, round.seconds),
            UdpPhase::Equal => self.share_equally(now, queue, verdict, round.seconds),
        }
        self.breathe(now, queue, round.seconds);
    }

    /// The lowest rate: a few packets each round trip, so that something is known of the path.
    fn least(&self) -> f64 {
        self.usual_least().min(self.pace.floor).max(RATE_LEAST).min(self.pace.ceiling)
    }

    /// The lowest rate on a path that does not lose too much even so.
    fn usual_least(&self) -> f64 {
        PACKETS_LEAST * self.lanes.datagram_bytes / self.lanes.round_trip().max(ROUND_SHORTEST)
    }

    /// How fast the path's own loss may be learned: while less is sent than the path carries, what
    /// is lost without a queue is its own.
    fn may_learn(&self) -> (f64, f64) {
        let part = self.pace.rate / self.full_rate().max(1.0);
        match self.phase {
            UdpPhase::Start => (self.start.learns(), 0.0),
            UdpPhase::Steady | UdpPhase::Equal if part < FAR_BELOW => (OWN_STEP_BELOW, OWN_STEP_BELOW),
            UdpPhase::Steady | UdpPhase::Equal if part < BELOW => (OWN_STEP_BELOW, 0.0),
            _ => (0.0, 0.0),
        }
    }

    /// The rate at which the path was full last; or the most that it carried.
    fn full_rate(&self) -> f64 {
        let highest = self.carried.highest();
        if self.delay.edge_age < EDGE_SECONDS { self.delay.edge.min(highest) } else { highest }
    }

    /// The path is full at what arrives now; or at what arrived when that was found first, as less
    /// does once this session gives way.
    fn note_full(&mut self) {
        let rate = self.carried.recent() / (1.0 - self.losses.own);
        // Who loses far below it without a queue does not lose because of the rate.
        let is_other = rate < FAR_BELOW * self.delay.edge && self.losses.is_empty();
        if is_other && self.delay.edge_age < EDGE_SECONDS {
            return;
        }
        let is_same = self.delay.edge_age < EDGE_ROUNDS * self.lanes.round_trip();
        self.delay.edge = if is_same { rate.max(self.delay.edge) } else { rate };
        self.delay.edge_age = 0.0;
    }

    /// The queue that is aimed at, in seconds.
    fn target(&self) -> f64 {
        let (part, least) = match self.share {
            PathShare::Polite => POLITE_QUEUE,
            PathShare::Fair => QUEUE,
            PathShare::All => QUEUE_ALL,
        };
        self.delay.aim * (self.lanes.base() * part + least)
    }

    /// Holds the rate that was asked for: under `all`.
    fn hold(&mut self, round: &UdpRound, verdict: LossVerdict) {
        self.phase = UdpPhase::Steady;
        if verdict == LossVerdict::Excess {
            let slower = (self.pace.rate * HOLD_SLOWER).min(round.rate * HOLD_OVERFULL);
            self.pace.rate = slower.max(self.pace.ceiling * HOLD_LEAST);
            self.start.is_over = true;
        } else if self.pace.limited.is_none() {
            self.pace.rate *= if self.start.is_over { HOLD_FASTER } else { HOLD_DOUBLING };
        }
        self.start.is_over |= self.pace.rate >= self.pace.ceiling;
    }

    fn enter(&mut self, phase: UdpPhase) {
        (self.phase, self.rounds, self.delay.step) = (phase, 0, STEP_FIRST);
    }
}

/// Rounds after a drain in which losses are those of the queue that was drained.
const PARDON: u32 = 3;
/// The queue that is aimed at: a part of the round trip, and seconds besides, as threads that wake
/// late make round trips longer too.
const QUEUE: (f64, f64) = (0.1, 0.001);
const QUEUE_ALL: (f64, f64) = (0.4, 0.002);
const POLITE_QUEUE: (f64, f64) = (0.04, 0.001);
/// Round trips in which the path is full for the same reason.
const EDGE_ROUNDS: f64 = 4.0;
/// Below this part of it, what is lost without a queue is the path's own, of which this part of a
/// round is learned.
const BELOW: f64 = 0.93;
const FAR_BELOW: f64 = 0.8;
const OWN_STEP_BELOW: f64 = 0.25;
/// Lanes that deliver less than this part of it do not, if one of them had nothing to send.
const USED: f64 = 0.9;
/// From this share of rounds on, others share the path.
const PRESSED: f64 = 0.5;
/// The part of all packets that may be lost beside the path's own loss. Lanes that nearly triple
/// their rate lose more than 1 % as soon as a short queue is full.
const BORNE: f64 = 0.01;
const BORNE_START: f64 = 0.08;
const BORNE_ALL: f64 = 0.05;
/// Packets whose loss is chance beside the path's own: three deviations of this are 3 and 0.5.
const SPARE: f64 = 1.0;
const SPARE_EQUAL: f64 = 0.03;
/// Steps of a rate that is held, as in tsunami-udp: a twenty-fifth slower, a sixth faster; the
/// delivered rate and a little more than the acceptable loss; the part of the rate that is sent
/// however much is lost.
const HOLD_SLOWER: f64 = 24.0 / 25.0;
const HOLD_FASTER: f64 = 7.0 / 6.0;
const HOLD_DOUBLING: f64 = 2.0;
const HOLD_OVERFULL: f64 = 1.1;
const HOLD_LEAST: f64 = 0.1;
/// How fast what is known of the path ages while others share it.
const EQUAL_AGES: f64 = 0.25;
/// Bytes on their way, as multiples of what the rate has there, and the least: a receiver reports
/// after some of them.
const FLIGHT: f64 = 1.5;
const FLIGHT_EQUAL: f64 = 1.1;
const FLIGHT_LEAST: f64 = 65536.0;
/// The round trip that they are reckoned with at least, in seconds: on a short path, what is on its
/// way waits for threads that wake and for the next status, and not for the path.
const FLIGHT_SHORTEST: f64 = 0.004;
/// The time beside two round trips after which a sender that hears nothing sends one message.
const ASK_AFTER: Duration = Duration::from_millis(50);
/// The lowest rate that still loses too much is cut by this part, and what is near to it.
const FLOOR_CUT: f64 = 0.7;
const FLOOR_NEAR: f64 = 1.2;
/// The lowest rate, bytes/s: with packets of the usual one each round trip.
const RATE_LEAST: f64 = 65536.0;
const PACKETS_LEAST: f64 = 4.0;
