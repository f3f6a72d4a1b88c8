//! When a session leaves QUIC for TCP: the breaker of a path of its lanes has opened; and when one
//! that began over QUIC goes there again: that breaker was open for its time.
//!
//! In: whether one is open, and the lanes that stand. Out: the step back to TCP, and those to QUIC.
//! It knows no messages.
//!
//! On the way to QUIC one lane over TCP stays until another over QUIC has joined, so that a path
//! that takes no datagrams by now costs nothing but the lanes for a while. A breaker that opens
//! again stays open for twice as long.

use std::time::{Duration, Instant};

use longhaul_core::{LaneId, Role};
use longhaul_proto::tuning::Why;
use longhaul_proto::wire::message::Transport;

use super::Lanes;
use crate::api::LanesChange;
use crate::budget::LANES_DEFAULT;
use crate::lanes::lane::StandingLane;
use crate::lanes::tune::{LaneTask, TuningStep};

/// The way of a session back to QUIC, with which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuicReturn {
    /// There is none: it began over something else, or QUIC does not come through any more.
    Never,
    /// It goes over QUIC.
    There,
    /// It had so many lanes when it went to TCP, and waits for the breaker's time to be over.
    Waits(u32),
    /// It asked for so many lanes over QUIC then, for which there has been room since, and none has
    /// joined yet.
    Asked(u32, Instant),
}

impl QuicReturn {
    /// The way of a session that begins over this transport.
    pub(super) fn of(transport: Transport) -> QuicReturn {
        if transport == Transport::Quic { QuicReturn::There } else { QuicReturn::Never }
    }
}

impl Lanes {
    /// Has breakers look at the lanes over QUIC. The threads of lanes that are over end by that,
    /// and say so.
    pub(super) fn guard_quic(&mut self, now: Instant) {
        for over in self.manners.guard(now, self.running.iter().map(|(id, lane)| lane.met(*id))) {
            self.running.get(&over).into_iter().for_each(|lane| lane.handle.close());
        }
    }

    /// Whether the step back to TCP is due: nothing goes over QUIC any more.
    pub(crate) fn is_leaving_quic(&self) -> bool {
        self.role == Role::Sender && self.wanted.transport == Transport::Quic && self.manners.is_broken()
    }

    /// The step back to TCP, where a path of lanes over QUIC is broken to a side that sends. No
    /// other lane over QUIC is dialled, on whichever path: one session keeps to one way. Nothing is
    /// to be done if one of the `changes` of this moment goes back already.
    pub(super) fn leave_quic(&mut self, changes: &[TuningStep]) -> Option<TuningStep> {
        let goes_back = changes.iter().any(|step| matches!(step.task, LaneTask::Settle(Transport::Tcp, _)));
        if goes_back || !self.is_leaving_quic() {
            return None;
        }
        self.wanted.first_transport = Transport::Tcp;
        let over_quic = self.over(Transport::Quic);
        let others = self.running.values().filter(|lane| lane.facts().transport != Transport::Quic).count();
        self.search.end_choice();
        let count = match self.wanted.quic_return {
            // Lanes that were left over on the way to QUIC are fewer than it takes.
            QuicReturn::There | QuicReturn::Asked(..) => {
                self.wanted.quic_return = QuicReturn::Waits(self.wanted.count);
                LANES_DEFAULT
            }
            QuicReturn::Never | QuicReturn::Waits(_) if others == 0 => LANES_DEFAULT,
            QuicReturn::Never | QuicReturn::Waits(_) => 0,
        };
        let task = LaneTask::Return(count, over_quic);
        Some(TuningStep { task, change: LanesChange::Tcp, reason: Why::QuicBroken })
    }

    /// The next step back to QUIC, of a session that began there and whose breaker was open for its
    /// time. `remaining`: bytes that no lane has sent, `None` if that is not known. None is made
    /// beside other `changes` of this moment.
    pub(super) fn return_to_quic(
        &mut self,
        now: Instant,
        remaining: Option<u64>,
        changes: &[TuningStep],
    ) -> Option<TuningStep> {
        if changes.iter().any(|step| step.task != LaneTask::Nothing) || self.manners.is_broken() {
            return None;
        }
        let mut over_tcp = self.over(Transport::Tcp);
        match self.wanted.quic_return {
            QuicReturn::Waits(lanes) if remaining.is_none_or(|left| left >= WORTH_BYTES) => {
                self.wanted.quic_return = QuicReturn::Asked(lanes, now);
                // If there is to be but one, it makes room.
                let stay = over_tcp.len().min(lanes.saturating_sub(1).min(1) as usize);
                over_tcp.truncate(over_tcp.len() - stay);
                let count = lanes - stay as u32;
                let task = LaneTask::Exchange(over_tcp, Transport::Quic, count);
                Some(TuningStep { task, change: LanesChange::AddedOverQuic(count), reason: Why::QuicMended })
            }
            QuicReturn::Asked(lanes, _) if !self.over(Transport::Quic).is_empty() => {
                self.wanted.quic_return = QuicReturn::There;
                let missing = lanes.saturating_sub(self.over(Transport::Quic).len() as u32);
                let task = LaneTask::Exchange(over_tcp, Transport::Quic, missing);
                Some(TuningStep { task, change: LanesChange::Quic, reason: Why::QuicMended })
            }
            // Lanes over TCP that finish what they have in hand leave no room yet.
            QuicReturn::Asked(lanes, _) if self.running.len() >= self.wanted.count as usize => {
                self.wanted.quic_return = QuicReturn::Asked(lanes, now);
                None
            }
            QuicReturn::Asked(lanes, since) if now.saturating_duration_since(since) >= JOIN_WITHIN => {
                self.wanted.quic_return = QuicReturn::Never;
                let task = LaneTask::Return(lanes, Vec::new());
                Some(TuningStep { task, change: LanesChange::Tcp, reason: Why::NoQuic { waited: JOIN_WITHIN } })
            }
            _ => None,
        }
    }

    /// The lanes over a transport that go on.
    fn over(&self, transport: Transport) -> Vec<LaneId> {
        let goes_on = |lane: &StandingLane| lane.facts().transport == transport && !lane.is_retiring();
        self.running.iter().filter(|(_, lane)| goes_on(lane)).map(|(id, _)| *id).collect()
    }
}

/// Lanes over QUIC that were asked for again have so long to join.
const JOIN_WITHIN: Duration = Duration::from_secs(4);
/// Bytes that are left to send where it is worth to exchange all lanes.
const WORTH_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use longhaul_net::{LaneCounters, LaneHandle, LaneHold, LaneStream, TransportFacts};

    use super::super::tests::lanes;
    use super::*;
    use crate::lanes::tune::Demand;
    use crate::lanes::worker::pulse::Pulse;

    #[test]
    fn a_session_whose_path_of_lanes_over_quic_breaks_goes_back_to_tcp_once() {
        let mut lanes = lanes(Role::Sender, None);
        (lanes.wanted.most, lanes.wanted.first_transport) = (8, Transport::Quic);
        lanes.set_target(4, Transport::Quic);
        assert!(lanes.leave_quic(&[]).is_none(), "it carries");
        lanes.manners.break_quic();
        assert!(lanes.is_leaving_quic());
        let settles = LaneTask::Settle(Transport::Tcp, Vec::new());
        let settles = TuningStep { task: settles, change: LanesChange::Tcp, reason: Why::QuicBroken };
        assert!(lanes.leave_quic(&[settles]).is_none(), "it goes back already");
        let demand = Demand::default();
        let changes = lanes.tune(demand);
        assert!(matches!(&changes[..], [TuningStep { task: LaneTask::Return(4, _), reason: Why::QuicBroken, .. }]));
        assert_eq!((lanes.transport(), lanes.target()), (Transport::Tcp, 4));
        assert!(lanes.comes_late(Transport::Quic), "a lane that was dialled before has no use");
        assert!(lanes.tune(demand).is_empty() && !lanes.is_leaving_quic());
    }

    #[test]
    fn lanes_over_tcp_that_stand_beside_those_over_quic_stay_as_many() {
        let mut lanes = lanes(Role::Sender, None);
        lanes.wanted.most = 8;
        let (stream, _other) = LaneStream::pair().expect("a pair");
        let lane = StandingLane::start(LaneId(0), stream.handle(), Pulse::default(), |_| ()).expect("a thread");
        lanes.running.insert(LaneId(0), lane);
        lanes.set_target(5, Transport::Quic);
        lanes.manners.break_quic();
        lanes.tune(Demand::default());
        assert_eq!((lanes.transport(), lanes.target()), (Transport::Tcp, 1));
        lanes.join();
    }

    /// A lane over QUIC, as far as the pool sees it.
    #[derive(Debug)]
    struct OverQuic;

    impl LaneHold for OverQuic {
        fn facts(&self) -> TransportFacts {
            TransportFacts::of(Transport::Quic)
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

        fn congestion(&self) -> Option<String> {
            None
        }

        fn set_congestion(&self, _name: &str) -> bool {
            false
        }
    }

    fn stand(lanes: &mut Lanes, id: u32, handle: LaneHandle) {
        let lane = StandingLane::start(LaneId(id), handle, Pulse::default(), |_| ()).expect("a thread");
        lanes.running.insert(LaneId(id), lane);
    }

    /// A session that began with so many lanes over QUIC, went to TCP and has so many there, and
    /// whose breaker's time is over.
    fn mended(count: u32) -> Lanes {
        let mut lanes = lanes(Role::Sender, None);
        (lanes.wanted.most, lanes.wanted.quic_return) = (count, QuicReturn::of(Transport::Quic));
        lanes.wanted.first_transport = Transport::Quic;
        lanes.set_target(count, Transport::Quic);
        lanes.manners.break_quic();
        let task = LaneTask::Return(LANES_DEFAULT, Vec::new());
        assert_eq!(tasks(&mut lanes, None), [task]);
        for id in 0..count {
            let (stream, _other) = LaneStream::pair().expect("a pair");
            stand(&mut lanes, id, stream.handle());
        }
        assert_eq!(tasks(&mut lanes, None), [], "it is still open");
        lanes.manners.mend_quic();
        assert_eq!((lanes.transport(), lanes.target()), (Transport::Tcp, count));
        lanes
    }

    fn tasks(lanes: &mut Lanes, remaining: Option<u64>) -> Vec<LaneTask> {
        lanes.tune(Demand { remaining, ..Demand::default() }).into_iter().map(|step| step.task).collect()
    }

    #[test]
    fn a_session_that_began_over_quic_goes_there_again_once_its_breaker_was_open_for_its_time() {
        let mut lanes = mended(3);
        assert_eq!(tasks(&mut lanes, Some(WORTH_BYTES - 1)), [], "it is not worth it");
        let ends = vec![LaneId(0), LaneId(1)];
        assert_eq!(tasks(&mut lanes, Some(WORTH_BYTES)), [LaneTask::Exchange(ends, Transport::Quic, 2)]);
        assert_eq!((lanes.transport(), lanes.target()), (Transport::Quic, 3), "one stays over TCP");
        assert!(lanes.running[&LaneId(0)].is_retiring() && !lanes.running[&LaneId(2)].is_retiring());
        assert_eq!(tasks(&mut lanes, None), [], "none has joined");
        stand(&mut lanes, 7, LaneHandle::new(OverQuic));
        assert_eq!(tasks(&mut lanes, None), [LaneTask::Exchange(vec![LaneId(2)], Transport::Quic, 2)]);
        assert_eq!((lanes.transport(), lanes.target()), (Transport::Quic, 3));
        assert!(lanes.running[&LaneId(2)].is_retiring());
        assert_eq!(tasks(&mut lanes, None), []);
        // It opens again, and closes again.
        lanes.manners.break_quic();
        assert_eq!(tasks(&mut lanes, None), [LaneTask::Return(LANES_DEFAULT, vec![LaneId(7)])]);
        lanes.manners.mend_quic();
        assert!(matches!(tasks(&mut lanes, None)[..], [LaneTask::Exchange(..)]));
        lanes.join();
    }

    #[test]
    fn a_session_to_which_quic_does_not_come_through_any_more_stays_with_tcp_for_good() {
        let mut lanes = mended(4);
        assert!(matches!(tasks(&mut lanes, None)[..], [LaneTask::Exchange(..)]));
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert!(lanes.return_to_quic(at(100), None, &[]).is_none(), "three still finish what they have in hand");
        (0..3).for_each(|id| lanes.close(LaneId(id)));
        assert!(lanes.return_to_quic(at(103), None, &[]).is_none(), "they may join yet");
        let back = lanes.return_to_quic(at(105), None, &[]).expect("none has joined");
        assert_eq!((back.task, back.change), (LaneTask::Return(4, Vec::new()), LanesChange::Tcp));
        lanes.set_target(4, Transport::Tcp);
        assert_eq!(tasks(&mut lanes, None), []);
        lanes.join();
    }

    #[test]
    fn the_one_lane_of_a_session_makes_room_for_one_over_quic() {
        let mut lanes = mended(1);
        assert_eq!(tasks(&mut lanes, None), [LaneTask::Exchange(vec![LaneId(0)], Transport::Quic, 1)]);
        assert_eq!((lanes.transport(), lanes.target()), (Transport::Quic, 1));
        lanes.join();
    }

    #[test]
    fn a_session_that_did_not_begin_over_quic_does_not_go_there_again() {
        let mut lanes = lanes(Role::Sender, None);
        (lanes.wanted.most, lanes.wanted.first_transport) = (8, Transport::Quic);
        lanes.set_target(4, Transport::Quic);
        lanes.manners.break_quic();
        assert!(matches!(tasks(&mut lanes, None)[..], [LaneTask::Return(..)]));
        lanes.manners.mend_quic();
        assert_eq!(tasks(&mut lanes, None), []);
    }

    #[test]
    fn a_side_that_receives_does_not_decide() {
        let mut lanes = lanes(Role::Receiver, None);
        lanes.set_target(1, Transport::Quic);
        lanes.manners.break_quic();
        assert!(!lanes.is_leaving_quic());
    }
}
