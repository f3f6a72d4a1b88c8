//! When a session leaves QUIC for TCP: the breaker of a path of its lanes has opened.
//!
//! In: whether one has, and the lanes that stand. Out: the step back to TCP. It knows no messages.

use std::time::Instant;

use longhaul_core::{LaneId, Role};
use longhaul_proto::tuning::Why;
use longhaul_proto::wire::message::Transport;

use super::Lanes;
use crate::api::LanesChange;
use crate::budget::LANES_DEFAULT;
use crate::lanes::tune::{LaneTask, TuningStep};

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
        let over_quic: Vec<LaneId> = self
            .running
            .iter()
            .filter(|(_, lane)| lane.facts().transport == Transport::Quic)
            .map(|(id, _)| *id)
            .collect();
        let others = self.running.len() - over_quic.len();
        self.search.end_choice();
        let count = if others == 0 { LANES_DEFAULT } else { 0 };
        let task = LaneTask::Return(count, over_quic);
        Some(TuningStep { task, change: LanesChange::Tcp, reason: Why::QuicBroken })
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::LaneStream;

    use super::super::tests::lanes;
    use super::*;
    use crate::lanes::lane::StandingLane;
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

    #[test]
    fn a_side_that_receives_does_not_decide() {
        let mut lanes = lanes(Role::Receiver, None);
        lanes.set_target(1, Transport::Quic);
        lanes.manners.break_quic();
        assert!(!lanes.is_leaving_quic());
    }
}
