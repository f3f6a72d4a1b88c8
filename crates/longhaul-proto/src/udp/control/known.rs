//! The rate that an earlier session left, until the path has shown whether it still carries it.
//!
//! In: the samples of all lanes. Out: the rate to begin with, the bytes that may be on their way,
//! and a finding; at the end the rate that is left to the next session. The search of the start
//! (`control/start.rs`) asks it.
//!
//! This is careful resume (draft-ietf-tsvwg-careful-resume), with one step more. Half of the rate
//! is tried, and first with a train: an eighth of a round trip of it, and no more until that has
//! arrived. A line that is slower stretches a train, and the receiver's clock says by how much, so
//! that a rate that is ten times too high costs a short queue and not five round trips of packets.
//! A train that came as it was sent lets half of the rate go, unvalidated: it does not grow until a
//! part of that has arrived as well, at that rate and without a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::{LaneId, PathShare};

use super::rounds::ROUND_SHORTEST;
use super::start::{FIRST_PACKET, FIRST_PACKETS};
use super::{UdpControl, UdpControlConfig, UdpLaneLimit, UdpPhase};
use crate::time::Timestamp;
use crate::tuning::KnownRateSign;
use crate::udp::sending::UdpSample;

/// A path as an earlier session left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// Bytes/s that it carried.
    pub rate: u64,
    /// Its round trip then.
    pub round_trip: Duration,
}

/// The outcome of the rate that an earlier session left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownRate {
    /// None was left, or the path has another round trip now, or it is no more than what an unknown
    /// path is begun with; or it was tried, and another part than the path carried too little of
    /// it.
    Unused,
    /// It is tried.
    Tried,
    /// Half of it arrived as it was sent.
    Proven,
    /// It did not, or a queue or losses came of it: this showed it first.
    Wrong(KnownRateSign),
}

/// The trial of a known rate.
#[derive(Clone, Debug)]
pub(super) struct KnownTrial {
    /// The rate that is tried, bytes/s, and the bytes of the train.
    rate: f64,
    train: f64,
    stage: TrialStage,
    lanes: BTreeMap<LaneId, TrialLane>,
    /// When the first bytes were heard of.
    begun: Option<Timestamp>,
    /// Packets found lost on the path.
    lost: f64,
    /// Whether the receiver's system dropped any.
    is_dropped: bool,
}

/// The news of a lane, while a known rate is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialNews<'a> {
    /// The lane.
    pub(super) lane: LaneId,
    /// Its sample.
    pub(super) sample: &'a UdpSample,
    /// The reason why it sent no more.
    pub(super) limit: UdpLaneLimit,
    /// Packets that the path lost.
    pub(super) lost: u32,
}

/// The stage of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialStage {
    /// The train is on its way.
    Train,
    /// It came as it was sent: the rate is sent.
    Unvalidated,
}

/// One lane of a trial: its bytes and packets, and when the last of them arrived, in microseconds
/// of the receiver's clock; at its first sample and at its last one.
#[derive(Clone, Copy, Debug, Default)]
struct TrialLane {
    first: Option<(u64, u32)>,
    last: (u64, u32),
    packets: u64,
    /// Whether another part than the path kept it from sending more, at any moment.
    is_limited: bool,
}

/// The finding of a train.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TrainFinding {
    /// It came as it was sent.
    Came,
    /// It came at so many bytes/s, or in part, as this shows.
    Slower(f64, KnownRateSign),
}

impl KnownTrial {
    /// The trial of the rate that is known. `None` if none is known, if the path has another round
    /// trip now, if an unknown path is begun as fast, or if a rate is held whatever is known.
    pub(super) fn new(config: &UdpControlConfig) -> Option<KnownTrial> {
        let is_same = |known: &KnownPath| {
            let (then, now) = (known.round_trip.as_secs_f64(), config.round_trip.as_secs_f64());
            (then - now).abs() <= SAME_ROUND_TRIP * then
        };
        let known = config.known.filter(is_same)?;
        if config.share == PathShare::All && config.ceiling.is_some() {
            return None;
        }
        let ceiling = config.ceiling.map_or(f64::INFINITY, |ceiling| ceiling as f64);
        let rate = (KNOWN_PART * known.rate as f64).min(super::rounds::RATE_MOST).min(ceiling);
        let round_trip = config.round_trip.as_secs_f64().max(ROUND_SHORTEST);
        let least = FIRST_PACKETS * FIRST_PACKET;
        let rounds = if config.share == PathShare::Polite { TRAIN_ROUNDS_POLITE } else { TRAIN_ROUNDS };
        let train = (rounds * round_trip * rate).min(TRAIN_MOST).max(least);
        (rate * round_trip > least).then_some(KnownTrial {
            rate,
            train,
            stage: TrialStage::Train,
            lanes: BTreeMap::new(),
            begun: None,
            lost: 0.0,
            is_dropped: false,
        })
    }

    /// The rate that is tried.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Bytes of a train that may be on their way, and no more. `None` once it came.
    pub(super) fn train(&self) -> Option<f64> {
        (self.stage == TrialStage::Train).then_some(self.train)
    }

    /// Whether so much has arrived beyond the train that the rate of now is not that of the train.
    pub(super) fn is_beyond_train(&self, round_trip: f64) -> bool {
        self.stage == TrialStage::Unvalidated && self.arrived() > self.train + BEYOND * self.rate * round_trip
    }

    /// Whether more than this part of the packets was lost so far, beyond chance.
    pub(super) fn loses_more_than(&self, part: f64) -> bool {
        let came: u64 = self.lanes.values().map(|lane| lane.packets).sum();
        let expected = part * (came as f64 + self.lost);
        self.lost >= LOST_LEAST && self.lost > expected + SIGMAS * expected.sqrt()
    }

    /// Whether it says nothing of the path if little arrives: no lane had enough to send, or the
    /// receiver's system dropped a part. All lanes draw on one account.
    pub(super) fn is_starved(&self) -> bool {
        self.is_dropped || self.lanes.values().all(|lane| lane.is_limited)
    }

    /// Takes the news of a lane. Gives the finding of the train, once.
    fn take(&mut self, now: Timestamp, news: &TrialNews<'_>, round_trip: f64) -> Option<TrainFinding> {
        let sample = news.sample;
        let lane = self.lanes.entry(news.lane).or_default();
        lane.is_limited |= news.limit != UdpLaneLimit::Path;
        self.is_dropped |= sample.counts.dropped > 0;
        if let Some(at) = sample.arrived_us.filter(|_| sample.counts.bytes > lane.last.0) {
            lane.last = (sample.counts.bytes, at);
            lane.packets = sample.counts.packets;
            lane.first.get_or_insert(lane.last);
            self.begun.get_or_insert(now);
        }
        self.lost += f64::from(news.lost);
        if self.stage == TrialStage::Unvalidated {
            return None;
        }
        let is_lossy = self.loses_more_than(LOST_MOST);
        let rate = self.train_rate();
        let is_late = self.begun.is_some_and(|begun| now.since(begun) > Duration::from_secs_f64(round_trip) + LATE);
        if is_lossy || is_late {
            let sign = if is_lossy { KnownRateSign::Lost } else { KnownRateSign::Late };
            return Some(TrainFinding::Slower(rate.min(self.arrived() / round_trip.max(ROUND_SHORTEST)), sign));
        }
        if self.arrived() < COMPLETE * self.train {
            return None;
        }
        let is_slow = rate < CAME_AT * self.rate;
        Some(if is_slow { TrainFinding::Slower(rate, KnownRateSign::Late) } else { TrainFinding::Came })
    }

    /// Bytes that arrived.
    fn arrived(&self) -> f64 {
        self.lanes.values().map(|lane| lane.last.0 as f64).sum()
    }

    /// The rate of the train by the receiver's clock, without the first packets of each lane, of
    /// which it is not known since when they came. Infinite if next to nothing came after them.
    fn train_rate(&self) -> f64 {
        let mut later = 0.0;
        let rate: f64 = self
            .lanes
            .values()
            .filter_map(|lane| {
                let (bytes, at) = lane.first?;
                let (more, span_us) = ((lane.last.0 - bytes) as f64, lane.last.1.wrapping_sub(at));
                later += more;
                (more > 0.0).then(|| more / (f64::from(span_us) / 1e6).max(SPAN_LEAST))
            })
            .sum();
        if later < AT_ONCE * self.train { f64::INFINITY } else { rate }
    }
}

impl UdpControl {
    /// The outcome of the rate that an earlier session left.
    pub fn known_rate(&self) -> KnownRate {
        self.start.known
    }

    /// Bytes/s that an earlier session left, whether they are of use or not. 0 if none did.
    pub fn known_rate_left(&self) -> u64 {
        self.start.left
    }

    /// The path as this session leaves it to the next one: the most that it carried and its
    /// shortest round trip. `None` if that says less than what was known: the path was never full,
    /// or this session gave way to others, and what was known of it may still be so. `None` as well
    /// if it carried the rate that was asked for, which says only that it carries as much.
    pub fn finding(&self) -> Option<KnownPath> {
        let was_full = self.start.is_over || self.delay.edge_age.is_finite();
        let is_all = (was_full || matches!(self.start.known, KnownRate::Wrong(_))) && self.share != PathShare::Polite;
        let rate = self.capacity();
        let is_asked_for = (rate as f64 / self.pace.ceiling - 1.0).abs() < NEAR_CEILING;
        (rate > 0 && !is_asked_for && (is_all || rate > self.start.left))
            .then(|| KnownPath { rate, round_trip: Duration::from_secs_f64(self.lanes.least()) })
    }

    /// Takes the news of a lane while a known rate is tried.
    pub(super) fn try_known(&mut self, now: Timestamp, news: &TrialNews<'_>) {
        let round_trip = self.lanes.round_trip();
        let Some(trial) = self.start.trial.as_mut().filter(|_| self.phase == UdpPhase::Start) else { return };
        match trial.take(now, news, round_trip) {
            None => {}
            Some(TrainFinding::Came) => trial.stage = TrialStage::Unvalidated,
            Some(TrainFinding::Slower(rate, sign)) => self.retreat(rate, sign),
        }
    }

    /// The known rate is not what the path carries, or not what there was to send: what is known is
    /// that this much arrived. Half of it is sent for a round trip, until what was sent before is
    /// out of the way, and then the path is looked for as if nothing had been known.
    pub(super) fn retreat(&mut self, arrived: f64, sign: KnownRateSign) {
        let usual = self.start.usual_rate(self.lanes.round_trip());
        let rate = if arrived.is_finite() { RETREAT * arrived } else { 0.0 };
        self.pace.rate = rate.clamp(usual, self.pace.rate.max(usual)).min(self.pace.ceiling);
        let is_starved = self.start.trial.as_ref().is_some_and(KnownTrial::is_starved);
        self.start.begin_again(HOLD * self.lanes.round_trip());
        self.start.known = if is_starved { KnownRate::Unused } else { KnownRate::Wrong(sign) };
        self.losses.pardon = HOLD as u32;
        self.losses.bound_own(0.0);
    }
}

/// The part of a known rate that is tried, and the change of the round trip up to which the path is
/// taken for the same.
const KNOWN_PART: f64 = 0.5;
const SAME_ROUND_TRIP: f64 = 0.25;
/// Round trips of the tried rate that a train has: with a rate that is ten times too high it takes
/// more than half a round trip to arrive, in which there are two statuses.
const TRAIN_ROUNDS: f64 = 0.125;
const TRAIN_ROUNDS_POLITE: f64 = 0.03125;
/// Bytes of the longest train: as many cost little on any path, whatever is known of it.
const TRAIN_MOST: f64 = 2097152.0;
/// The part of a train that is judged: as much may be the headers of small datagrams.
const COMPLETE: f64 = 0.75;
/// A train that arrives at this part of the tried rate came as it was sent: packets come in
/// bunches.
const CAME_AT: f64 = 0.6;
/// If less than this part of a train came after the first packets, it came at once.
const AT_ONCE: f64 = 0.25;
/// The shortest time of arrival that is reckoned with, in seconds.
const SPAN_LEAST: f64 = 2e-5;
/// The part of a train that may be lost, packets that may be, and deviations of a Poisson process:
/// some paths lose by themselves.
const LOST_MOST: f64 = 0.02;
const LOST_LEAST: f64 = 3.0;
const SIGMAS: f64 = 3.0;
/// A train is incomplete if it is so a round trip and this much after its first packet.
const LATE: Duration = Duration::from_millis(25);
/// The round trips of the tried rate that arrive before that is proven.
const BEYOND: f64 = 0.2;
/// Round trips until what was sent before a retreat is out of the way.
const HOLD: f64 = 1.25;
/// A rate that is as near as this to the one that was asked for is that one.
const NEAR_CEILING: f64 = 0.1;
/// The part of what arrived that is sent after a known rate turned out wrong.
const RETREAT: f64 = 0.5;
