//! The rate of all UDP lanes of a session that sends: one control for them, and a breaker apart
//! from it.
//!
//! In: what each lane's thread learns from statuses, and what it sends. Out: the rate of the
//! account on which all of them draw, and whether data may be sent now. The modules `control` and
//! `breaker` of `longhaul_proto::udp` decide. It knows no sockets and no units.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{LaneId, PathShare};
use longhaul_proto::time::Timestamp;
use longhaul_proto::tuning::road::RoadSums;
use longhaul_proto::udp::breaker::{BreakerOrder, UdpBreaker};
use longhaul_proto::udp::control::{KnownPath, UdpControl, UdpControlConfig, UdpLaneLimit, UdpRateLimit, UdpSpare};
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::wire::message::Limit;

use crate::lanes::past::PathPast;
use crate::lanes::told::{ToldControl, ToldState};
use crate::lanes::tune::TuningStep;
use crate::lanes::worker::pacer::Pacer;

/// The path of a session's UDP lanes. Clones share it. It begins with the first lane.
#[derive(Clone, Debug)]
pub(crate) struct UdpPath {
    share: PathShare,
    /// The path as earlier sessions left it, and as this one leaves it.
    past: PathPast,
    state: Arc<Mutex<Option<PathState>>>,
    beside: Arc<Beside>,
}

/// Lanes over TCP beside those over UDP: together they keep the rate that was asked for.
#[derive(Debug)]
struct Beside {
    /// Their account.
    pacer: Pacer,
    /// Whether any stands.
    stands: AtomicBool,
}

#[derive(Debug)]
struct PathState {
    began: Instant,
    control: UdpControl,
    breaker: UdpBreaker,
    /// Bytes on their way, lane by lane.
    flying: BTreeMap<LaneId, u64>,
    /// Whether the breaker was found open.
    is_broken: bool,
    told: ToldControl,
}

/// The leave of a lane to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathLeave {
    /// Data may be sent, as the account allows.
    Data,
    /// As much is on its way as may be.
    Full,
    /// No data may be sent, as nothing is heard: a sign of life each second.
    Signs,
    /// The lanes are of no use any more, and this is why.
    Over(&'static str),
}

impl UdpPath {
    /// One of which the session takes this share, of which nothing is known, and that has no lane
    /// yet.
    pub(crate) fn new(share: PathShare) -> UdpPath {
        let beside = Arc::new(Beside { pacer: Pacer::new(None), stands: AtomicBool::new(false) });
        UdpPath { share, past: PathPast::default(), state: Arc::default(), beside }
    }

    /// The same, as earlier sessions left it.
    pub(crate) fn after(self, past: PathPast) -> UdpPath {
        UdpPath { past, ..self }
    }

    /// The path as earlier sessions left it, and as this one leaves it.
    pub(crate) fn past(&self) -> &PathPast {
        &self.past
    }

    /// The same, beside lanes over TCP that draw on the account `pacer`.
    pub(crate) fn beside_lanes_of(self, pacer: Pacer) -> UdpPath {
        UdpPath { beside: Arc::new(Beside { pacer, stands: AtomicBool::new(false) }), ..self }
    }

    /// The path as this session leaves it. `None` if it has found out nothing about it.
    pub(crate) fn finding(&self) -> Option<KnownPath> {
        self.lock().as_ref().and_then(|state| state.control.finding())
    }

    /// The share that the session takes of it.
    pub(crate) fn share(&self) -> PathShare {
        self.share
    }

    /// Says how many lanes over TCP stand.
    pub(crate) fn set_beside(&self, streams: usize) {
        self.beside.stands.store(streams > 0, Ordering::Relaxed);
    }

    /// The account of lanes over TCP, if they stand and a rate was asked for, which all lanes keep
    /// together.
    pub(crate) fn beside(&self) -> Option<&Pacer> {
        let stands = self.beside.stands.load(Ordering::Relaxed);
        stands.then_some(&self.beside.pacer).filter(|pacer| pacer.asked().is_some())
    }

    /// Whether the breaker has opened: the lanes of this session are of no use any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().as_ref().is_some_and(|state| state.is_broken)
    }

    /// A lane begins, over a path with this round trip.
    pub(crate) fn begin(&self, lane: LaneId, round_trip: Duration, pacer: &Pacer) {
        let mut guard = self.lock();
        let state = guard.get_or_insert_with(|| {
            let (now, ceiling) = (Timestamp(0), pacer.asked());
            let config = UdpControlConfig { share: self.share, ceiling, known: self.past.known(), round_trip };
            let past = self.past.breaker(Instant::now());
            let mut breaker = UdpBreaker::new(now, round_trip).after(now, past);
            breaker.set_share(self.share);
            let (began, control, flying) = (Instant::now(), UdpControl::new(now, config), BTreeMap::new());
            let told = ToldControl::of(&control);
            PathState { began, control, breaker, flying, is_broken: false, told }
        });
        state.flying.insert(lane, 0);
        let now = state.now();
        state.breaker.begin_lane(now, lane);
        pacer.set_path_rate(state.control.rate());
    }

    /// Takes a sample of a lane, and the reason why it sent no more since the last one.
    pub(crate) fn observe(&self, lane: LaneId, sample: &UdpSample, limit: UdpLaneLimit, pacer: &Pacer) {
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return };
        let now = state.now();
        state.flying.insert(lane, sample.flying_bytes);
        // What the breaker held back says nothing of the path.
        let limit = if state.breaker.poll_order(now) == BreakerOrder::Go(0) { limit } else { UdpLaneLimit::Breaker };
        state.control.set_ceiling(pacer.asked());
        state.control.observe(now, lane, sample, limit);
        tracing::trace!(
            target: "longhaul::lanes",
            lane = lane.0,
            ?sample,
            ?limit,
            rate = state.control.rate(),
            phase = ?state.control.phase(),
            by = ?state.control.limit(),
            "a look at the path"
        );
        let round_trip = state.control.round_trip();
        state.breaker.handle_status(now, lane, sample, round_trip);
        if state.control.share() == PathShare::All && !state.breaker.allows_all() {
            state.control.set_share(PathShare::Fair);
            state.breaker.set_share(PathShare::Fair);
        }
        state.pace(now, pacer);
    }

    /// A lane has sent so many bytes of data.
    pub(crate) fn sent(&self, lane: LaneId, bytes: u64) {
        if let Some(state) = self.lock().as_mut() {
            *state.flying.entry(lane).or_default() += bytes;
            let now = state.now();
            state.breaker.handle_sent(now);
        }
    }

    /// Has the account keep the rate of now, as a lane that waits for its turn asks no leave.
    pub(crate) fn pace(&self, pacer: &Pacer) {
        if let Some(state) = self.lock().as_mut() {
            let now = state.now();
            state.pace(now, pacer);
        }
    }

    /// Whether a lane may send now.
    pub(crate) fn leave(&self, pacer: &Pacer) -> PathLeave {
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return PathLeave::Data };
        let (now, flying) = (state.now(), state.flying.values().sum::<u64>());
        if flying == 0 {
            state.breaker.handle_idle();
        }
        match state.pace(now, pacer) {
            BreakerOrder::Go(_) if flying < state.control.flight_limit() => PathLeave::Data,
            BreakerOrder::Go(_) => PathLeave::Full,
            BreakerOrder::Probe => PathLeave::Signs,
            BreakerOrder::Lost => PathLeave::Over("the other end of UDP lanes says nothing"),
            BreakerOrder::Open(_) => {
                if !std::mem::replace(&mut state.is_broken, true) {
                    self.past.broke(Instant::now(), state.breaker.past(now));
                }
                PathLeave::Over("the path loses too much of what UDP lanes send")
            }
        }
    }

    /// The part of the network that limits, as the control sees it. `None` if it does not know, or
    /// something else limits, or no lane of it stands; or if lanes over TCP stand beside it, whose
    /// counters tell.
    pub(crate) fn limit(&self) -> Option<Limit> {
        if self.beside.stands.load(Ordering::Relaxed) {
            return None;
        }
        let guard = self.lock();
        let control = &guard.as_ref().filter(|state| !state.flying.is_empty())?.control;
        match control.limit() {
            UdpRateLimit::Shared => Some(Limit::NetworkShared),
            UdpRateLimit::Path if control.is_held_by_loss() => Some(Limit::NetworkLoss),
            UdpRateLimit::Path => Some(Limit::NetworkRate),
            // Nothing of what was sent is heard of, or far too little.
            UdpRateLimit::Breaker => Some(Limit::NetworkLoss),
            UdpRateLimit::Receiver => Some(Limit::Receiver),
            UdpRateLimit::Search | UdpRateLimit::Ceiling | UdpRateLimit::Source | UdpRateLimit::Credit => None,
        }
    }

    /// The rate that the control would give the lanes beyond what they carry. Nothing while lanes
    /// over TCP stand beside them, or the breaker holds them back.
    pub(crate) fn spare(&self) -> UdpSpare {
        let is_beside = self.beside.stands.load(Ordering::Relaxed);
        let guard = self.lock();
        let state = guard.as_ref().filter(|state| !is_beside && !state.is_broken && !state.flying.is_empty());
        state.map_or(UdpSpare::Nothing, |state| state.control.spare())
    }

    /// The changes since the last call, for people. Of a path that lanes over TCP share, whose
    /// counters tell, no state is told.
    pub(crate) fn take_steps(&self, now: Instant) -> Vec<TuningStep> {
        let is_beside = self.beside.stands.load(Ordering::Relaxed);
        let mut guard = self.lock();
        let Some(PathState { control, flying, told, .. }) = guard.as_mut() else { return Vec::new() };
        let state = if is_beside || flying.is_empty() { None } else { ToldState::of(control) };
        told.changes(now, control, state)
    }

    /// The road so far.
    pub(crate) fn road(&self) -> RoadSums {
        self.lock().as_ref().map_or_else(RoadSums::default, |state| *state.control.road())
    }

    /// A lane is over.
    pub(crate) fn end(&self, lane: LaneId) {
        if let Some(state) = self.lock().as_mut() {
            state.flying.remove(&lane);
            state.control.remove_lane(lane);
            state.breaker.remove_lane(lane);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<PathState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathState {
    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Has the account keep the rate of now.
    fn pace(&mut self, now: Timestamp, pacer: &Pacer) -> BreakerOrder {
        let order = self.breaker.poll_order(now);
        let halved = if let BreakerOrder::Go(halved) = order { halved } else { 0 };
        pacer.set_path_rate((self.control.rate() >> halved).max(1));
        order
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::tuning::Why;
    use longhaul_proto::udp::breaker::BreakerPast;
    use longhaul_proto::udp::control::KnownPath;
    use longhaul_proto::udp::status::Counts;

    use super::*;
    use crate::api::LanesChange;

    const ROUND_TRIP: Duration = Duration::from_millis(20);

    fn sample(packets: u64, flying_bytes: u64) -> UdpSample {
        let counts = Counts { packets, bytes: packets * 1400, ..Counts::default() };
        UdpSample {
            round_trip: Some(ROUND_TRIP),
            arrived_us: Some(packets as u32 * 100),
            delay: Some(0),
            counts,
            lost: 0,
            sent: packets,
            datagram_bytes: 1472,
            flying_bytes,
        }
    }

    #[test]
    fn lanes_of_a_path_share_its_rate_and_what_may_be_on_its_way() {
        let (path, pacer) = (UdpPath::new(PathShare::Fair), Pacer::new(None));
        assert_eq!(path.leave(&pacer), PathLeave::Data, "it has no lane");
        path.begin(LaneId(1), ROUND_TRIP, &pacer);
        path.begin(LaneId(2), ROUND_TRIP, &pacer);
        let first = pacer.rate().expect("a rate");
        assert!(pacer.is_by_path() && pacer.asked().is_none());
        path.sent(LaneId(1), 1 << 40);
        assert_eq!(path.leave(&pacer), PathLeave::Full);
        path.observe(LaneId(1), &sample(10, 1000), UdpLaneLimit::Path, &pacer);
        assert_eq!(path.leave(&pacer), PathLeave::Data);
        path.sent(LaneId(2), 1 << 40);
        assert_eq!(path.leave(&pacer), PathLeave::Full, "the other one's count too");
        path.end(LaneId(2));
        assert_eq!(path.leave(&pacer), PathLeave::Data);
        // A round is over after a round trip.
        let begun = Instant::now();
        while path.finding().is_none() && begun.elapsed() < Duration::from_secs(10) {
            path.observe(LaneId(1), &sample(10, 1000), UdpLaneLimit::Path, &pacer);
            std::thread::yield_now();
        }
        assert_eq!(path.finding().map(|found| found.round_trip), Some(ROUND_TRIP), "what arrived is known");
        // Somebody asks for less than the path has.
        pacer.set_rate(Some(first / 2));
        path.observe(LaneId(1), &sample(20, 1000), UdpLaneLimit::Path, &pacer);
        assert!(!pacer.is_by_path() && pacer.rate() == Some(first / 2));
    }

    #[test]
    fn a_path_that_was_sent_messages_and_answers_none_has_its_rate_halved() {
        let (path, pacer) = (UdpPath::new(PathShare::Fair), Pacer::new(None));
        path.begin(LaneId(1), ROUND_TRIP, &pacer);
        let first = pacer.rate().expect("a rate");
        for _ in 0..3 {
            path.sent(LaneId(1), 1000);
        }
        let begun = Instant::now();
        while pacer.rate() > Some(first / 2) && begun.elapsed() < Duration::from_secs(10) {
            assert_eq!(path.leave(&pacer), PathLeave::Data);
            std::thread::yield_now();
        }
        assert!(pacer.rate() <= Some(first / 2), "{:?} of {first}", pacer.rate());
    }

    #[test]
    fn lanes_over_tcp_count_beside_those_over_udp_only_while_they_stand_and_a_rate_was_asked_for() {
        let of_tcp = Pacer::new(None);
        let path = UdpPath::new(PathShare::Fair).beside_lanes_of(of_tcp.clone());
        path.set_beside(8);
        assert!(path.beside().is_none());
        of_tcp.set_rate(Some(1000));
        assert!(path.beside().is_some());
        path.set_beside(0);
        assert!(path.beside().is_none());
    }

    #[test]
    fn a_path_names_what_limits_only_while_it_has_lanes_and_none_over_tcp_stand_beside_them() {
        let (path, pacer) = (UdpPath::new(PathShare::Fair), Pacer::new(None));
        path.begin(LaneId(1), ROUND_TRIP, &pacer);
        let mut heard = sample(10, 1000);
        path.observe(LaneId(1), &heard, UdpLaneLimit::Path, &pacer);
        // The receiver's system drops, and the round is over in which it does.
        let begun = Instant::now();
        while path.limit() != Some(Limit::Receiver) && begun.elapsed() < Duration::from_secs(10) {
            let packets = heard.counts.packets + 10;
            heard = sample(packets, 1000);
            heard.counts.dropped = packets as u32;
            path.observe(LaneId(1), &heard, UdpLaneLimit::Path, &pacer);
            std::thread::yield_now();
        }
        assert_eq!(path.limit(), Some(Limit::Receiver));
        path.set_beside(1);
        assert_eq!(path.limit(), None, "lanes over TCP stand beside it");
        path.set_beside(0);
        assert_eq!(path.limit(), Some(Limit::Receiver));
        path.end(LaneId(1));
        assert_eq!(path.limit(), None, "its lanes have gone");
    }

    #[test]
    fn half_of_a_rate_that_an_earlier_session_left_is_begun_with_if_the_round_trip_is_the_same() {
        for (rtt_ms, expected) in [(20, Some(50_000_000)), (40, None)] {
            let known = KnownPath { rate: 100_000_000, round_trip: Duration::from_millis(rtt_ms) };
            let past = PathPast::default().with_known(Some(known));
            let (path, pacer) = (UdpPath::new(PathShare::Fair).after(past), Pacer::new(None));
            path.begin(LaneId(1), ROUND_TRIP, &pacer);
            assert_eq!(pacer.rate().filter(|rate| *rate > 10_000_000), expected, "{rtt_ms} ms");
        }
    }

    /// Plays a line of 20 MB/s whose queue fills when the path takes more, and gives what it told.
    fn told_on_a_full_line(path: &UdpPath, pacer: &Pacer) -> Vec<Why> {
        const LINE: u64 = 20_000_000;
        let (start, mut counts, mut told) = (Instant::now(), Counts::default(), Vec::new());
        for ms in (5..10_000).step_by(5) {
            let rate = {
                let mut guard = path.lock();
                let state = guard.as_mut().expect("it has a lane");
                // So much time passes.
                state.began -= Duration::from_millis(5);
                state.control.rate()
            };
            counts.packets += rate.min(LINE) / 200_000;
            counts.bytes = counts.packets * 1000;
            let queue = Duration::from_millis(if rate >= LINE { 8 } else { 0 });
            let heard = UdpSample {
                round_trip: Some(ROUND_TRIP + queue),
                arrived_us: Some(ms * 1000),
                delay: Some(queue.as_micros() as u16 / 100),
                counts,
                sent: counts.packets,
                datagram_bytes: 1028,
                ..sample(0, rate / 50)
            };
            path.observe(LaneId(1), &heard, UdpLaneLimit::Path, pacer);
            told.extend(
                path.take_steps(start + Duration::from_millis(u64::from(ms))).into_iter().map(|step| step.reason),
            );
        }
        told
    }

    #[test]
    fn lanes_over_udp_tell_that_their_path_is_full_and_nothing_of_it_beside_lanes_over_tcp() {
        for beside in [0, 1] {
            let (path, pacer) = (UdpPath::new(PathShare::Fair), Pacer::new(None));
            path.begin(LaneId(1), ROUND_TRIP, &pacer);
            path.set_beside(beside);
            let told = told_on_a_full_line(&path, &pacer);
            let is_full = told.iter().any(|why| matches!(why, Why::PathFull { .. }));
            assert_eq!(is_full, beside == 0, "{beside} lanes over TCP beside it: {told:?}");
            assert!(beside == 0 || told.is_empty(), "{told:?}");
        }
    }

    #[test]
    fn lanes_over_udp_tell_that_a_known_rate_is_tried() {
        let known = KnownPath { rate: 100_000_000, round_trip: ROUND_TRIP };
        let past = PathPast::default().with_known(Some(known));
        let (path, pacer) = (UdpPath::new(PathShare::Fair).after(past), Pacer::new(None));
        let now = Instant::now();
        assert!(path.take_steps(now).is_empty(), "it has no lane");
        path.begin(LaneId(1), ROUND_TRIP, &pacer);
        let told: Vec<_> = path.take_steps(now).into_iter().map(|step| step.reason).collect();
        assert_eq!(told, [Why::KnownRateTried { left: 100_000_000 }]);
    }

    #[test]
    fn who_takes_all_of_a_path_of_which_less_than_half_arrives_says_that_it_takes_a_fair_share() {
        let (path, pacer) = (UdpPath::new(PathShare::All), Pacer::new(None));
        path.begin(LaneId(1), ROUND_TRIP, &pacer);
        let mut told = Vec::new();
        for n in 1..200 {
            // Ten milliseconds pass.
            path.lock().iter_mut().for_each(|state| state.began -= Duration::from_millis(10));
            let heard = UdpSample { lost: 40, ..sample(n * 10, 1000) };
            path.observe(LaneId(1), &heard, UdpLaneLimit::Path, &pacer);
            let steps = path.take_steps(Instant::now());
            told.extend(steps.into_iter().filter(|step| step.change == LanesChange::Fair).map(|step| step.reason));
        }
        assert_eq!(told, [Why::AllArrivesInPart]);
    }

    #[test]
    fn a_session_that_begins_while_the_breaker_of_an_earlier_one_is_open_sends_nothing() {
        let (past, pacer) = (PathPast::default(), Pacer::new(None));
        past.broke(Instant::now(), BreakerPast { times: 1, open: Duration::from_secs(30) });
        let path = UdpPath::new(PathShare::Fair).after(past.with_known(None));
        path.begin(LaneId(1), ROUND_TRIP, &pacer);
        assert!(matches!(path.leave(&pacer), PathLeave::Over(_)) && path.is_broken());
        let left = past.breaker(Instant::now());
        assert!(left.times == 1 && left.open > Duration::from_secs(20), "it was opened once: {left:?}");
        past.broke(Instant::now(), BreakerPast { times: 1, open: Duration::ZERO });
        let path = UdpPath::new(PathShare::Fair).after(past);
        path.begin(LaneId(1), ROUND_TRIP, &pacer);
        assert_eq!(path.leave(&pacer), PathLeave::Data);
    }
}
