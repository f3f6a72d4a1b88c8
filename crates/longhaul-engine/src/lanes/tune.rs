//! Tunes the lanes of a sending side: gives the counters of each to `proto`'s search, and
//! the search's decisions back to the lanes.
//!
//! In: handles of running lanes, once a second. Out: [`TuningStep`]s for the pool to make. The
//! search itself knows no sockets; this file knows no messages.

mod choice;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longhaul_core::LaneId;
use longhaul_net::{CongestionControl, LaneCounters, LaneHandle, Packets};
use longhaul_proto::tuning::transport::{Choice, Rival};
use longhaul_proto::tuning::{LaneDecision, LaneSample, Second, Tuner, TuningConfig, Why};
use longhaul_proto::udp::control::UdpSpare;
use longhaul_proto::wire::message::Transport;

use self::choice::ParkedSearch;
use crate::api::LanesChange;

/// The start values of the search.
#[derive(Clone, Debug)]
pub(crate) struct TuningRules {
    /// The lanes that always stay, and the most.
    pub(crate) lanes: u32,
    pub(crate) lanes_max: u32,
    /// The lanes that stay of these once the path is known, if it needs no more.
    pub(crate) usual: u32,
    /// Bytes of a chunk.
    pub(crate) unit: u64,
    /// Whether this side chooses the congestion control.
    pub(crate) choose_congestion: bool,
    /// The one that was chosen before: it is tried against another one only if the lanes come to
    /// deliver less.
    pub(crate) known_congestion: Option<String>,
    /// The transports that may be tried beside TCP, the one to try first in front.
    pub(crate) rivals: Vec<Rival>,
}

/// The search, and the last counters that it saw.
#[derive(Debug)]
pub(crate) struct Tuning {
    tuner: Option<Tuner>,
    choice: Option<Choice>,
    /// The search among lanes over TCP, and how many there were, while lanes over UDP are alone.
    parked: Option<ParkedSearch>,
    unit: u64,
    algorithms: Vec<String>,
    since: Instant,
    last_looks: HashMap<LaneId, PreviousLook>,
    /// Processor time that lanes had spent on moving bytes when they were last looked at.
    spent: Duration,
}

/// A lane's counters at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct PreviousLook {
    acked: u64,
    /// Packets delivered. 0 where they are not counted.
    delivered: u32,
    /// Time in which the other host took no more.
    receiver: Duration,
    algorithm: Option<usize>,
}

/// A running lane as the search sees it.
#[derive(Debug)]
pub(crate) struct RunningLane {
    pub(crate) lane: LaneId,
    pub(crate) handle: LaneHandle,
    /// Its counters. `None` if the lane is gone.
    pub(crate) counters: Option<LaneCounters>,
    /// Thousandths of the last second in which the lane had nothing in hand.
    pub(crate) idle: u16,
    /// Bytes of the unit in hand that its socket has not taken.
    pub(crate) in_hand: u64,
    /// Whether the lane was told to take no more units.
    pub(crate) retiring: bool,
}

/// The demand of a session on its lanes at the end of a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// Bytes that no lane has sent. `None` if not known.
    pub(crate) remaining: Option<u64>,
    /// Whether the network alone held the last second up.
    pub(crate) is_hindered: bool,
    /// Whether it did so by a window of the connections, and not by loss.
    pub(crate) is_by_window: bool,
    /// Whether it is the network that held it up, by whatever, or a receiver whose system drops
    /// datagrams.
    pub(crate) is_by_network: bool,
    /// Whether this host's processors held it up.
    pub(crate) is_by_processors: bool,
    /// Whether the processors, or the lanes' threads, of one of the sides held it up.
    pub(crate) is_by_work: bool,
    /// Processor time that lanes of this side have spent on moving bytes so far.
    pub(crate) spent: Duration,
    /// The same, with the hashing of them.
    pub(crate) worked: Duration,
    /// The path of the lanes that stand.
    pub(crate) path: PathDemand,
}

/// The demand of a path on its lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathDemand {
    /// Whether more lanes would carry no more, or take it from others.
    pub(crate) is_full: bool,
    /// Thousandths of the packets of late that lanes over TCP lost beyond what it loses by itself.
    pub(crate) excess_loss: u16,
    /// The rate that it would give lanes over UDP beyond what they carry.
    pub(crate) spare: UdpSpare,
}

/// A change of the lanes, also in words.
#[derive(Debug)]
pub(crate) struct TuningStep {
    pub(crate) task: LaneTask,
    /// The change, for people and scripts.
    pub(crate) change: LanesChange,
    pub(crate) reason: Why,
}

/// A task for the pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LaneTask {
    /// Add this many lanes.
    Add(u32),
    /// Add this many lanes over another transport.
    AddOver(Transport, u32),
    /// End these in order. Lanes that are added or replaced from now on run over the transport.
    Settle(Transport, Vec<LaneId>),
    /// Give these up, and add none but over TCP.
    Abandon(Vec<LaneId>),
    /// Go back to so many lanes over TCP, and end these in order.
    Return(u32, Vec<LaneId>),
    /// End these in order, and add so many lanes over the transport.
    Exchange(Vec<LaneId>, Transport, u32),
    /// End these in order.
    Retire(Vec<LaneId>),
    /// Give these up.
    Lose(Vec<LaneId>),
    /// The change is made already, or there is none.
    Nothing,
}

impl Tuning {
    /// Begins the search. `None` where there is nothing to find: one number of lanes, and no choice
    /// of congestion control. `first` is any lane of the session.
    pub(crate) fn begin(rules: &TuningRules, first: &LaneHandle) -> Option<Tuning> {
        // Within a host there is no path to fill; a pair of local sockets has no counters; and a
        // control of the transport's own bears loss by itself.
        let bears_loss = first.facts().congestion_control == CongestionControl::Own;
        if first.is_within_host() || first.counters().is_none() || bears_loss {
            return None;
        }
        let algorithms = if rules.choose_congestion { candidates(first) } else { Vec::new() };
        // A trial of another transport needs room beyond the lanes of the search.
        let has_room = |rival: &Rival| rules.lanes_max.saturating_sub(rival.lanes()) >= rules.lanes;
        let rivals: Vec<_> = rules.rivals.iter().copied().filter(has_room).collect();
        let room = rules.lanes_max - rivals.iter().map(|rival| rival.lanes()).max().unwrap_or(0);
        let choice = (!rivals.is_empty()).then(|| Choice::new(rivals));
        let (start, max) = (rules.lanes, room.max(rules.lanes));
        let search = start < max || algorithms.len() > 1;
        if !search && choice.is_none() {
            return None;
        }
        let known = rules.known_congestion.as_ref();
        let chosen = known.and_then(|known| algorithms.iter().position(|name| name == known));
        let (unit, usual) = (rules.unit, rules.usual.min(start));
        let config = TuningConfig { start, usual, max, unit, algorithms: algorithms.clone(), chosen };
        let tuner = search.then(|| Tuner::new(config));
        Some(Tuning {
            tuner,
            choice,
            parked: None,
            unit: rules.unit,
            algorithms,
            since: Instant::now(),
            spent: Duration::ZERO,
            last_looks: HashMap::new(),
        })
    }

    /// Gives a lane that begins to send the congestion control that is to be tried or used.
    pub(crate) fn joined(&mut self, lane: LaneId, handle: &LaneHandle) {
        let is_kernels = handle.facts().congestion_control == CongestionControl::Kernel;
        let place = self.tuner.as_ref().and_then(|tuner| tuner.algorithm_for(lane)).filter(|_| is_kernels);
        let taken = place.filter(|place| self.algorithms.get(*place).is_some_and(|name| handle.set_congestion(name)));
        let seen = PreviousLook { algorithm: taken, ..PreviousLook::default() };
        self.last_looks.insert(lane, seen);
    }

    /// Takes the length of the longest unit that a lane has in hand, bytes. 0 if none has any.
    pub(crate) fn carry_units(&mut self, bytes: u64) {
        if bytes > 0 {
            self.unit = bytes;
            self.tuner.iter_mut().for_each(|tuner| tuner.carry_units(bytes));
        }
    }

    /// Decides at the end of a second. `rate` is the bound of all lanes, in bytes/s.
    pub(crate) fn second(
        &mut self,
        now: Instant,
        lanes: &[RunningLane],
        rate: Option<u64>,
        demand: Demand,
    ) -> Vec<TuningStep> {
        let remaining = demand.remaining;
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.since, now));
        self.last_looks.retain(|id, _| lanes.iter().any(|look| look.lane == *id));
        // Each lane is looked at, so that its speed is known when it counts: at the end, lanes that
        // take no more units are waited for too.
        let looked = lanes.iter().map(|look| (look, self.sample(look, elapsed)));
        let counts = |look: &RunningLane| !look.retiring || remaining == Some(0);
        let samples: Vec<_> = looked.filter_map(|(look, sample)| sample.filter(|_| counts(look))).collect();
        let is_trying = self.tuner.as_ref().is_some_and(Tuner::is_trying);
        // A path that TCP fills carries no more by another transport. Where windows hold lanes
        // back, a queue is not theirs.
        let has_room = !demand.path.is_full || demand.is_by_window;
        let spent = demand.spent.saturating_sub(std::mem::replace(&mut self.spent, demand.spent));
        let demand = Demand { is_hindered: demand.is_hindered && !is_trying && has_room, spent, ..demand };
        // At the end the search decides, even during a trial: it knows for which lanes the others
        // wait.
        let chosen = if remaining == Some(0) { None } else { self.choose(elapsed, &samples, lanes, demand) };
        if let Some(changes) = chosen {
            return changes;
        }
        let Some(tuner) = self.tuner.as_mut() else { return Vec::new() };
        let PathDemand { is_full: full, excess_loss, .. } = demand.path;
        let decisions = tuner.second(&Second { elapsed, lanes: &samples, rate, full, excess_loss, remaining });
        decisions.into_iter().map(|decision| self.change(decision, lanes)).collect()
    }

    fn sample(&mut self, look: &RunningLane, elapsed: Duration) -> Option<LaneSample> {
        let now = look.counters?;
        let seen = self.last_looks.get_mut(&look.lane)?;
        let held_back = now.waits.receiver.saturating_sub(seen.receiver);
        let sample = LaneSample {
            lane: look.lane,
            algorithm: seen.algorithm,
            acked: seen.delivered_until(&now),
            idle: look.idle,
            held_back: thousandths(held_back, elapsed),
            rtt: now.round_trip.smoothed,
            backlog: now.unsent + now.sent.saturating_sub(now.resent + now.acked) + look.in_hand,
        };
        (seen.acked, seen.delivered) = (now.acked, now.packets.delivered.unwrap_or(0));
        seen.receiver = now.waits.receiver;
        Some(sample)
    }

    fn change(&mut self, decision: LaneDecision, lanes: &[RunningLane]) -> TuningStep {
        let (what, change, why) = match decision {
            LaneDecision::Add(count, why) => (LaneTask::Add(count), LanesChange::Added(count), why),
            LaneDecision::Retire(lanes, why) => {
                let change = match lanes.len() as u32 {
                    0 => LanesChange::Unchanged,
                    count => LanesChange::Retired(count),
                };
                (LaneTask::Retire(lanes), change, why)
            }
            LaneDecision::Lose(lanes, why) => {
                let change = LanesChange::GivenUp(lanes.len() as u32);
                (LaneTask::Lose(lanes), change, why)
            }
            LaneDecision::Switch(ids, place, why) => {
                let switched = lanes.iter().filter(|look| ids.contains(&look.lane) && self.switch(look, place)).count();
                let name = self.algorithms[place].clone();
                (LaneTask::Nothing, LanesChange::Congestion { lanes: switched as u32, name }, why)
            }
            LaneDecision::Stay(why) => (LaneTask::Nothing, LanesChange::Unchanged, why),
        };
        TuningStep { task: what, change, reason: why }
    }

    fn switch(&mut self, look: &RunningLane, place: usize) -> bool {
        let switched = self.algorithms.get(place).is_some_and(|name| look.handle.set_congestion(name));
        if let Some(seen) = self.last_looks.get_mut(&look.lane).filter(|_| switched) {
            seen.algorithm = Some(place);
        }
        switched
    }
}

impl PreviousLook {
    /// See [`delivered_between`].
    fn delivered_until(&self, now: &LaneCounters) -> u64 {
        let packets = Packets { delivered: now.packets.delivered.map(|_| self.delivered), ..Packets::default() };
        delivered_between(&LaneCounters { acked: self.acked, packets, ..LaneCounters::default() }, now)
    }
}

/// Bytes that the other host took in between two looks at a lane. A packet behind a gap counts when
/// it arrives: by acknowledged bytes alone a lane would stand still at each loss and then leap by
/// as much as its path holds.
pub(crate) fn delivered_between(before: &LaneCounters, now: &LaneCounters) -> u64 {
    match (before.packets.delivered, now.packets.delivered) {
        (before, Some(packets)) => {
            u64::from(packets.wrapping_sub(before.unwrap_or(0))) * u64::from(now.packets.payload_bytes)
        }
        (_, None) => now.acked.saturating_sub(before.acked),
    }
}

/// The congestion controls to choose from: BBR, which bears loss, and the one that the kernel chose
/// for the lane itself. Only those that this process may use.
fn candidates(lane: &LaneHandle) -> Vec<String> {
    let default = lane.congestion();
    let other = if default.as_deref() == Some("bbr") { "cubic" } else { "bbr" };
    let mut names: Vec<_> = default.clone().into_iter().collect();
    if lane.set_congestion(other) {
        names.push(other.to_owned());
    }
    if let Some(default) = default {
        lane.set_congestion(&default);
    }
    // The first lane gets the first: one that bears loss, as a transfer of one lane may never see
    // the other.
    names.sort_by_key(|name| name != "bbr");
    names
}

pub(crate) fn thousandths(part: Duration, whole: Duration) -> u16 {
    let share = part.as_secs_f64() / whole.as_secs_f64().max(1e-6);
    (share * 1000.0).clamp(0.0, 1000.0) as u16
}

#[cfg(test)]
mod tests {
    use longhaul_net::RoundTrip;

    use super::*;

    const MB: u64 = 1_000_000;

    /// The counters of one second.
    struct Shown {
        /// Bytes that lanes 0 and 1 have delivered in all.
        delivered: [u64; 2],
        /// Whether lane 1 retires.
        retiring: bool,
        /// Bytes that nobody has sent yet.
        remaining: u64,
        /// Whether the network hinders.
        hindered: bool,
        /// Whether the path is full.
        full: bool,
    }

    /// The tasks that a search that begins with two lanes decides, each with its second.
    fn decided(max: u32, choice: Option<Choice>, seconds: impl IntoIterator<Item = Shown>) -> Vec<(usize, LaneTask)> {
        let config = TuningConfig { start: 2, usual: 2, max, unit: 4 << 20, algorithms: Vec::new(), chosen: None };
        let mut tuning = Tuning {
            tuner: Some(Tuner::new(config)),
            choice,
            parked: None,
            unit: 4 << 20,
            algorithms: Vec::new(),
            since: Instant::now(),
            spent: Duration::ZERO,
            last_looks: HashMap::new(),
        };
        let lanes = [0, 1].map(|id| (LaneId(id), longhaul_net::LaneStream::pair().expect("a pair").0.handle()));
        lanes.iter().for_each(|(id, handle)| tuning.joined(*id, handle));
        let mut now = tuning.since;
        let mut decided = Vec::new();
        for (place, shown) in seconds.into_iter().enumerate() {
            let look = |place: usize, retiring| {
                let acked = shown.delivered[place];
                let round_trip = RoundTrip { smoothed: Duration::from_millis(20), ..RoundTrip::default() };
                let counters = LaneCounters { acked, sent: acked + (1 << 20), round_trip, ..LaneCounters::default() };
                let (lane, handle) = lanes[place].clone();
                RunningLane { lane, handle, counters: Some(counters), idle: 0, in_hand: 3 << 20, retiring }
            };
            let looks = [look(0, false), look(1, shown.retiring)];
            now += Duration::from_secs(1);
            let demand = Demand {
                remaining: Some(shown.remaining),
                is_hindered: shown.hindered,
                is_by_window: false,
                is_by_network: shown.hindered,
                path: PathDemand { is_full: shown.full, ..PathDemand::default() },
                ..Demand::default()
            };
            let changes = tuning.second(now, &looks, None, demand);
            decided.extend(changes.into_iter().map(|change| (place + 1, change.task)));
        }
        decided
    }

    #[test]
    fn a_lane_that_retires_and_is_all_that_is_waited_for_at_the_end_is_given_up() {
        let shown = |delivered, remaining| Shown { delivered, retiring: true, remaining, hindered: false, full: false };
        let decided = |seconds: [Shown; 2]| decided(2, None, seconds);
        // Lane 0 delivers 100 MB/s and lane 1 0.1 MB/s: it has 4 MB in hand when nothing is left to
        // give.
        let drains = || shown([100 * MB, MB / 10], 9 * MB);
        assert_eq!(decided([drains(), shown([200 * MB, MB / 5], 0)]), [(2, LaneTask::Lose(vec![LaneId(1)]))]);
        let is_soon_through = [shown([100 * MB, 90 * MB], 9 * MB), shown([200 * MB, 180 * MB], 0)];
        assert_eq!(decided(is_soon_through), []);
        // As long as there is more, the others do not wait for it.
        assert_eq!(decided([drains(), shown([200 * MB, MB / 5], 9 * MB)]), []);
    }

    #[test]
    fn quic_is_tried_neither_beside_a_trial_of_lanes_nor_before_those_that_stay_found_their_speed() {
        let second = |n: u64| Shown {
            delivered: [n * 50 * MB; 2],
            retiring: false,
            remaining: 10_000 * MB,
            hindered: n > 3,
            full: false,
        };
        let decided = decided(8, Some(Choice::new([Rival::Quic])), (1..=12).map(second));
        assert_eq!(decided[0], (3, LaneTask::Add(2)));
        assert!(matches!(decided[1], (6, LaneTask::Retire(_))), "{decided:?}");
        // The lanes find their speed and are measured for three seconds, then the network hinders
        // for three.
        assert_eq!(decided[2..], [(12, LaneTask::AddOver(Transport::Quic, Rival::Quic.lanes()))]);
    }

    #[test]
    fn a_path_that_tcp_fills_is_none_to_try_another_transport_on() {
        let second = |n: u64| Shown {
            delivered: [n * 50 * MB; 2],
            retiring: false,
            remaining: 10_000 * MB,
            hindered: true,
            full: true,
        };
        let decided = decided(2, Some(Choice::new([Rival::Quic])), (1..=20).map(second));
        assert_eq!(decided, []);
    }

    #[test]
    fn a_lane_that_is_waited_for_at_the_end_is_given_up_during_a_trial_of_quic_too() {
        let second = |n: u64| Shown {
            delivered: [n * 100 * MB, n * MB],
            retiring: false,
            remaining: if n < 8 { 10_000 * MB } else { 0 },
            hindered: true,
            full: false,
        };
        let decided = decided(2, Some(Choice::new([Rival::Quic])), (1..=8).map(second));
        assert!(decided.contains(&(6, LaneTask::AddOver(Transport::Quic, Rival::Quic.lanes()))), "{decided:?}");
        assert_eq!(decided.last(), Some(&(8, LaneTask::Lose(vec![LaneId(1)]))));
    }

    #[test]
    fn what_arrived_behind_a_gap_counts_at_once_and_not_again() {
        let counted = |acked, delivered| LaneCounters {
            acked,
            packets: Packets { delivered, payload_bytes: 1000, ..Packets::default() },
            ..LaneCounters::default()
        };
        let seen = PreviousLook { acked: 5000, delivered: u32::MAX - 1, ..PreviousLook::default() };
        assert_eq!(seen.delivered_until(&counted(5000, Some(8))), 10_000, "the counter went around");
        let seen = PreviousLook { acked: 5000, delivered: 15, ..PreviousLook::default() };
        assert_eq!(seen.delivered_until(&counted(15_000, Some(15))), 0, "the gap was filled");
        assert_eq!(seen.delivered_until(&counted(7000, None)), 2000, "nobody counts packets");
    }
}
