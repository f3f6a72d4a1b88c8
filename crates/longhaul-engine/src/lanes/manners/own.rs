//! The manners of lanes whose transport has a congestion control of its own, QUIC's: one control
//! for all of them on a path.
//!
//! In: lanes that join, and what acknowledgements say of each, on the threads that drive them. Out:
//! the rate and the bytes on their way that all of them keep together below QUIC, and changes for
//! people. `proto`'s control of UDP lanes decides. It knows no sockets and no messages.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::limits::LONG_PATH_MILLISECONDS;
use longhaul_core::{LaneId, PathShare};
use longhaul_net::{LaneHandle, PathControl, PathOrder, PathSeen, SharedPath};
use longhaul_proto::time::Timestamp;
use longhaul_proto::tuning::road::RoadSums;
use longhaul_proto::udp::breaker::BreakerOrder;
use longhaul_proto::udp::control::{KnownPath, UdpControl, UdpControlConfig, UdpLaneLimit};
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::udp::status::Counts;

use super::{PathEnds, REMEMBERED_FOR};
use crate::lanes::past::{PathFinder, PathPast};
use crate::lanes::told::{ToldControl, ToldState};
use crate::lanes::tune::TuningStep;
use crate::lanes::worker::pacer::Pacer;

/// The paths of such lanes.
#[derive(Debug, Default)]
pub(super) struct OwnPaths {
    paths: Vec<OwnPath>,
    /// The first of them as earlier sessions left it, and as this one leaves it.
    first: PathPast,
    /// The road of paths that were forgotten.
    past: RoadSums,
}

#[derive(Debug)]
struct OwnPath {
    ends: PathEnds,
    control: SharedControl,
    path: Arc<SharedPath>,
    told: ToldControl,
}

impl OwnPaths {
    /// Paths without lanes, the first of which earlier sessions left so.
    pub(super) fn new(first: PathPast) -> OwnPaths {
        OwnPaths { first, ..OwnPaths::default() }
    }

    /// Has a lane share the path that has these ends. On a short path a lane keeps to itself,
    /// unless it is polite: threads that wake late look like a queue there.
    pub(super) fn joined(&mut self, id: LaneId, lane: &LaneHandle, ends: PathEnds, share: PathShare, pacer: &Pacer) {
        let (now, seen) = (Instant::now(), lane.counters().map(|counters| counters.round_trip).unwrap_or_default());
        let is_short = seen.min.is_some_and(|least| least < SHORT_PATH);
        if is_short && share != PathShare::Polite {
            return;
        }
        let past = &mut self.past;
        self.paths.retain(|path| {
            let stays = !path.control.is_forgotten(now);
            if !stays {
                past.add_all(path.control.lock().control.road());
            }
            stays
        });
        let path = match self.paths.iter().position(|path| path.ends == ends) {
            Some(place) => &self.paths[place],
            None => {
                // What is known is known of one path.
                let own = self.paths.is_empty().then_some(&self.first);
                let known = own.and_then(|past| past.finding().or(past.known()));
                // The shortest is what a known path is known by.
                let round_trip = seen.min.filter(|_| known.is_some()).unwrap_or(seen.smoothed);
                let control = SharedControl::new(share, round_trip, pacer.clone(), known);
                own.into_iter().for_each(|past| past.found_by(Box::new(control.clone())));
                let path = SharedPath::new(Box::new(control.clone()), control.order());
                let told = ToldControl::of(&control.lock().control);
                self.paths.push(OwnPath { ends, control, path, told });
                &self.paths[self.paths.len() - 1]
            }
        };
        // First, as a lane that ends is removed again on another thread.
        let is_new = path.control.lock().lanes.insert(id);
        if !lane.share_path(&path.path, id) && is_new {
            path.control.lock().lanes.remove(&id);
        }
    }

    /// Has the lanes of a path keep the order of its breaker. Those that keep to themselves send
    /// no more than their windows without an acknowledgement, whatever the order.
    pub(super) fn restrain(&mut self, now: Instant, ends: PathEnds, order: BreakerOrder) {
        tracing::trace!(target: "longhaul::lanes", ?order, "the breaker of lanes over QUIC");
        if let Some(path) = self.paths.iter().find(|path| path.ends == ends) {
            path.control.lock().breaker = order;
            path.path.follow(now, path.control.order());
        }
    }

    /// Whether others on a path leave this session less than there is.
    pub(super) fn is_shared(&self) -> bool {
        self.paths.iter().any(|path| path.control.state() == Some(ToldState::Shared))
    }

    /// The road so far, over all paths.
    pub(super) fn road(&self) -> RoadSums {
        let mut sums = self.past;
        self.paths.iter().for_each(|path| sums.add_all(path.control.lock().control.road()));
        sums
    }

    /// The changes since the last call, for people.
    pub(super) fn take_steps(&mut self, now: Instant) -> Vec<TuningStep> {
        self.paths.iter_mut().flat_map(|path| path.changes(now)).collect()
    }
}

impl OwnPath {
    fn changes(&mut self, now: Instant) -> Vec<TuningStep> {
        let state = self.control.state();
        self.told.changes(now, &self.control.lock().control, state)
    }
}

/// The control of a path. Clones share it.
#[derive(Clone, Debug)]
struct SharedControl(Arc<Mutex<ControlState>>);

#[derive(Debug)]
struct ControlState {
    began: Instant,
    control: UdpControl,
    /// Has the rate that was asked for.
    pacer: Pacer,
    lanes: BTreeSet<LaneId>,
    /// The order of the path's breaker.
    breaker: BreakerOrder,
    /// When the last lane has gone.
    left: Instant,
}

impl SharedControl {
    fn new(share: PathShare, round_trip: Duration, pacer: Pacer, known: Option<KnownPath>) -> SharedControl {
        let config = UdpControlConfig { share, ceiling: ceiling(&pacer), known, round_trip };
        let (began, control) = (Instant::now(), UdpControl::new(Timestamp(0), config));
        let (lanes, breaker) = (BTreeSet::new(), BreakerOrder::Go(0));
        SharedControl(Arc::new(Mutex::new(ControlState { began, control, pacer, lanes, breaker, left: began })))
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self) -> PathOrder {
        self.lock().order()
    }

    /// Whether its last lane went long ago.
    fn is_forgotten(&self, now: Instant) -> bool {
        let known = self.lock();
        known.lanes.is_empty() && now.saturating_duration_since(known.left) >= REMEMBERED_FOR
    }

    /// The state of the path as people are told of it. `None` as for [`ToldState::of`], and without
    /// a lane.
    fn state(&self) -> Option<ToldState> {
        let known = self.lock();
        if known.lanes.is_empty() { None } else { ToldState::of(&known.control) }
    }
}

impl PathFinder for SharedControl {
    fn finding(&self) -> Option<KnownPath> {
        self.lock().control.finding()
    }
}

impl PathControl for SharedControl {
    fn observe(&self, lane: LaneId, seen: &PathSeen) -> PathOrder {
        let mut known = self.lock();
        let micros = u64::try_from(known.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let ceiling = ceiling(&known.pacer);
        known.control.set_ceiling(ceiling);
        let limit = match known.breaker {
            // What the breaker held back says nothing of the path.
            BreakerOrder::Probe | BreakerOrder::Lost | BreakerOrder::Open(_) | BreakerOrder::Go(1..) => {
                UdpLaneLimit::Breaker
            }
            BreakerOrder::Go(0) if seen.is_starved => UdpLaneLimit::Source,
            BreakerOrder::Go(0) => UdpLaneLimit::Path,
        };
        known.control.observe(Timestamp(micros), lane, &sample(micros, seen), limit);
        let order = known.order();
        tracing::trace!(
            target: "longhaul::lanes",
            ?seen,
            ?order,
            phase = ?known.control.phase(),
            limit = ?known.control.limit(),
            base = ?known.control.base(),
            "a look at the path"
        );
        order
    }

    fn leave(&self, lane: LaneId) {
        let mut known = self.lock();
        known.control.remove_lane(lane);
        known.lanes.remove(&lane);
        known.left = Instant::now();
    }
}

impl ControlState {
    fn order(&self) -> PathOrder {
        let (rate, lanes) = (self.control.rate(), self.lanes.len().max(1) as u64);
        let turns = (rate as f64 * TURNS.as_secs_f64()) as u64;
        let flight = self.control.flight_limit() + lanes * UNACKNOWLEDGED_BYTES + turns;
        match self.breaker {
            BreakerOrder::Go(halved) => PathOrder { rate: (rate >> halved).max(1), flight },
            // Quinn's own probes need no room: a few, and ever fewer.
            BreakerOrder::Probe | BreakerOrder::Lost | BreakerOrder::Open(_) => PathOrder { rate, flight: 0 },
        }
    }
}

/// The sample that a status of a UDP lane would have been. Acknowledgements say when they came and
/// not when packets did, so the round trip stands for the delay, and the clock of this end for that
/// of the other.
fn sample(micros: u64, seen: &PathSeen) -> UdpSample {
    UdpSample {
        round_trip: seen.round_trip,
        arrived_us: Some(micros as u32),
        delay: seen.round_trip.map(|round_trip| (round_trip.as_micros() / 100) as u16),
        counts: Counts { packets: seen.packets, bytes: seen.bytes, marked: seen.marked, ..Counts::default() },
        lost: seen.lost,
        sent: seen.sent,
        datagram_bytes: seen.packet_bytes,
        flying_bytes: seen.flying,
    }
}

/// The rate that was asked for, as packets of QUIC have it: the account of all lanes counts
/// payload, and keeps what was asked for.
fn ceiling(pacer: &Pacer) -> Option<u64> {
    pacer.asked().map(|asked| asked.saturating_add(asked / HEADERS))
}

/// The shortest round trip from which on lanes share a path.
const SHORT_PATH: Duration = Duration::from_millis(LONG_PATH_MILLISECONDS);
/// Bytes of a lane that came and wait for an acknowledgement; and the time in which bytes leave at
/// once, as turns are so long and may begin late, and the other end looks each few milliseconds.
/// They are on their way as far as this end knows.
const UNACKNOWLEDGED_BYTES: u64 = 96 << 10;
const TURNS: Duration = Duration::from_millis(6);
/// Headers and repairs have so much room (1/20) beyond the payload. What is more comes off the
/// payload: lanes that have begun slowly have much to send that is let through already, and would
/// send it at the rate that the room makes.
const HEADERS: u64 = 20;

#[cfg(test)]
mod tests {
    use longhaul_net::{LaneCounters, LaneHold, TransportFacts};
    use longhaul_proto::tuning::Why;
    use longhaul_proto::udp::control::{KnownRate, UdpPhase};

    use super::*;

    /// A lane that delivers so many bytes/s over a path of 20 ms with a queue of so many.
    fn deliver(control: &SharedControl, seen: &mut PathSeen, rate: u64, queue_ms: u64) {
        let bytes = rate / 100;
        seen.round_trip = Some(Duration::from_millis(20 + queue_ms));
        seen.packets += bytes / 1200;
        seen.sent += bytes / 1200;
        seen.bytes += bytes;
        control.observe(LaneId(1), seen);
    }

    fn control(asked: Option<u64>) -> SharedControl {
        let control = SharedControl::new(PathShare::Fair, Duration::from_millis(20), Pacer::new(asked), None);
        control.lock().lanes.insert(LaneId(1));
        control
    }

    /// Ten milliseconds pass.
    fn pass(control: &SharedControl) {
        let mut known = control.lock();
        known.began -= Duration::from_millis(10);
    }

    #[test]
    fn acknowledgements_raise_the_rate_of_all_lanes_until_a_queue_stands() {
        let control = control(None);
        let first = control.order();
        let mut seen = PathSeen { packet_bytes: 1200, flying: 1 << 20, ..PathSeen::default() };
        for _ in 0..100 {
            pass(&control);
            let rate = control.order().rate.min(50_000_000);
            deliver(&control, &mut seen, rate, u64::from(rate == 50_000_000) * 8);
        }
        let order = control.order();
        assert!(order.rate > 4 * first.rate && order.flight > 4 * first.flight, "{first:?} {order:?}");
        assert!(order.rate < 60_000_000, "{order:?}");
        assert_eq!(control.lock().control.phase(), UdpPhase::Steady);
        assert!(control.state().is_some());
        let found = control.finding().expect("the path was full");
        assert!(
            (40_000_000..60_000_000).contains(&found.rate) && found.round_trip == Duration::from_millis(20),
            "{found:?}"
        );
        control.leave(LaneId(1));
        assert!(control.state().is_none() && !control.is_forgotten(Instant::now()));
        assert!(control.is_forgotten(Instant::now() + REMEMBERED_FOR));
    }

    #[test]
    fn a_rate_that_was_asked_for_is_a_ceiling_and_leaves_room_for_headers() {
        let control = control(Some(10_000_000));
        let mut seen = PathSeen { packet_bytes: 1200, flying: 1 << 20, ..PathSeen::default() };
        for _ in 0..100 {
            pass(&control);
            deliver(&control, &mut seen, 10_300_000, 0);
        }
        assert_eq!(control.order().rate, 10_500_000);
        assert_eq!(control.state(), None, "neither the path nor others hold it back");
    }

    #[test]
    fn half_of_a_rate_that_is_known_is_begun_with_over_quic_if_the_round_trip_is_the_same() {
        for (rtt_ms, half) in [(20, true), (40, false)] {
            let known = KnownPath { rate: 100_000_000, round_trip: Duration::from_millis(rtt_ms) };
            let round_trip = Duration::from_millis(20);
            let control = SharedControl::new(PathShare::Fair, round_trip, Pacer::new(None), Some(known));
            assert_eq!(control.order().rate == 50_000_000, half, "{rtt_ms} ms: {:?}", control.order());
        }
    }

    #[test]
    fn a_train_of_a_known_rate_that_comes_late_ends_the_trial_and_one_that_comes_as_it_was_sent_does_not() {
        for (carried, stays) in [(100_000_000, true), (5_000_000, false)] {
            let known = KnownPath { rate: 100_000_000, round_trip: Duration::from_millis(20) };
            let control = SharedControl::new(PathShare::Fair, Duration::from_millis(20), Pacer::new(None), Some(known));
            control.lock().lanes.insert(LaneId(1));
            let mut seen = PathSeen { packet_bytes: 1200, flying: 1 << 20, ..PathSeen::default() };
            for _ in 0..6 {
                pass(&control);
                let rate = control.order().rate.min(carried);
                deliver(&control, &mut seen, rate, u64::from(carried < 50_000_000) * 20);
            }
            let order = control.order();
            assert_eq!(order.rate >= 40_000_000, stays, "{carried}: {order:?}");
        }
    }

    #[test]
    fn the_order_of_a_breaker_holds_back_what_the_control_lets_through() {
        let control = control(None);
        let first = control.order();
        for (breaker, rate, flight) in [
            (BreakerOrder::Go(0), first.rate, first.flight),
            (BreakerOrder::Go(3), first.rate >> 3, first.flight),
            (BreakerOrder::Probe, first.rate, 0),
            (BreakerOrder::Lost, first.rate, 0),
            (BreakerOrder::Open(Duration::from_secs(30)), first.rate, 0),
        ] {
            control.lock().breaker = breaker;
            assert_eq!(control.order(), PathOrder { rate, flight }, "{breaker:?}");
        }
    }

    /// A lane that shares a path, or does not as it is gone.
    #[derive(Debug)]
    struct Shares(LaneHandle, bool);

    impl LaneHold for Shares {
        fn facts(&self) -> TransportFacts {
            self.0.facts()
        }

        fn close(&self) {}

        fn quiet(&self) -> Option<Duration> {
            None
        }

        fn counters(&self) -> Option<LaneCounters> {
            None
        }

        fn carried_at_end(&self) -> u64 {
            0
        }

        fn unacknowledged(&self) -> Option<Duration> {
            None
        }

        fn is_within_host(&self) -> bool {
            false
        }

        fn set_pace(&self, _bytes_per_s: Option<u64>) {}

        fn share_path(&self, _path: &Arc<SharedPath>, _lane: LaneId) -> bool {
            self.1
        }

        fn congestion(&self) -> Option<String> {
            None
        }

        fn set_congestion(&self, _name: &str) -> bool {
            false
        }
    }

    #[test]
    fn lanes_on_one_path_have_one_control_and_those_on_another_have_their_own() {
        let (stream, _other) = longhaul_net::LaneStream::pair().expect("a pair");
        let (handle, pacer) = (LaneHandle::new(Shares(stream.handle(), true)), Pacer::new(None));
        let mut paths = OwnPaths::default();
        let known = KnownPath { rate: 100_000_000, round_trip: Duration::ZERO };
        paths.first = PathPast::default().with_known(Some(known));
        for (id, interface) in [(1, 1), (2, 1), (3, 2)] {
            paths.joined(LaneId(id), &handle, (Some(interface), None), PathShare::Fair, &pacer);
        }
        let lanes: Vec<_> = paths.paths.iter().map(|path| path.control.lock().lanes.len()).collect();
        assert_eq!(lanes, [2, 1]);
        let known: Vec<_> = paths.paths.iter().map(|path| path.control.lock().control.known_rate()).collect();
        assert_eq!(known, [KnownRate::Tried, KnownRate::Unused], "what is known is known of one path");
        assert!(!paths.is_shared());
        let told: Vec<_> = paths.take_steps(Instant::now()).into_iter().map(|step| step.reason).collect();
        assert_eq!(told, [Why::KnownRateTried { left: 100_000_000 }], "nothing else is known yet");
        let gone = LaneHandle::new(Shares(stream.handle(), false));
        paths.joined(LaneId(4), &gone, (Some(2), None), PathShare::Fair, &pacer);
        assert_eq!(paths.paths[1].control.lock().lanes.len(), 1, "a lane that is gone has no place");
    }
}
