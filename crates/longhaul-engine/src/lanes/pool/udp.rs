//! Lanes over UDP beside lanes over TCP: what they share, and when a session goes back to TCP.
//!
//! In: the lanes that stand, and whether the breaker of their path has opened. Out: how many share
//! the slots of a receiver, and the step back to TCP. It knows no messages.

use longhaul_core::{LaneId, Role};
use longhaul_proto::tuning::Why;
use longhaul_proto::wire::message::Transport;

use super::{Lanes, WantedLanes};
use crate::api::LanesChange;
use crate::budget::LANES_DEFAULT;
use crate::lanes::tune::{LaneTask, PathDemand, TuningStep};

impl Lanes {
    /// Tells lanes over UDP how many others have slots of this side, and whether an account of
    /// lanes over TCP counts beside theirs.
    pub(super) fn divide_slots(&mut self) {
        let over_udp = self.running.values().filter(|lane| lane.facts().transport == Transport::Udp).count();
        let streams = self.running.len() - over_udp;
        let to_come = match self.wanted.transport {
            Transport::Udp => (self.wanted.count as usize).saturating_sub(streams),
            _ => 0,
        };
        self.shares.slots().set(over_udp.max(to_come) as u32, streams as u32);
        self.shares.path().set_beside(streams);
    }

    /// The demand of the path on its lanes.
    pub(super) fn path_demand(&self) -> PathDemand {
        let (is_full, excess_loss) = (self.manners.is_full(), self.manners.excess_loss());
        PathDemand { is_full, excess_loss, spare: self.shares.path().spare() }
    }

    /// The step back to TCP, where lanes over UDP are of no use any more to a side that sends:
    /// their path is broken, or the last of those that were tried is lost. None is dialled again.
    /// Nothing is to be done if one of the `changes` of this moment goes back already.
    pub(super) fn leave_udp(&mut self, changes: &[TuningStep]) -> Option<TuningStep> {
        let is_over_udp = self.role == Role::Sender && self.wanted.mixes_udp && self.wanted.transport == Transport::Udp;
        let is_broken = self.shares.path().is_broken();
        // Another lane may stand in its place by now, over TCP, or one that has not ended yet.
        let has_gone_over = self.running.is_empty() || self.search.is_parked();
        let is_lost = self.wanted.first_transport == Transport::Tcp && has_gone_over && !self.has_udp();
        let goes_back = changes.iter().any(|step| {
            matches!(step.task, LaneTask::Return(..) | LaneTask::Abandon(_) | LaneTask::Settle(Transport::Tcp, _))
        });
        if !is_over_udp || goes_back || !(is_broken || is_lost) {
            return None;
        }
        self.wanted.first_transport = Transport::Tcp;
        let over_udp: Vec<LaneId> = self
            .running
            .iter()
            .filter(|(_, lane)| lane.facts().transport == Transport::Udp)
            .map(|(id, _)| *id)
            .collect();
        let others = self.running.len() - over_udp.len();
        let before = self.search.leave_udp();
        let count = if before == 0 && others == 0 { LANES_DEFAULT } else { before };
        let reason = if is_broken { Why::UdpBroken } else { Why::UdpLost };
        Some(TuningStep { task: LaneTask::Return(count, over_udp), change: LanesChange::Tcp, reason })
    }

    /// Whether a lane that joins now has no use any more: it was asked for in a trial that is over
    /// and went back to the first transport, or over TCP before lanes over UDP went on alone.
    pub(super) fn comes_late(&self, over: Transport) -> bool {
        let WantedLanes { first_transport, transport, .. } = self.wanted;
        let is_of_trial = over != transport && transport == first_transport && over != Transport::Ssh;
        let is_beside_udp = over == Transport::Tcp && self.search.is_parked() && self.has_udp();
        self.role == Role::Sender && (is_of_trial || is_beside_udp)
    }

    /// Whether any lane over UDP stands.
    fn has_udp(&self) -> bool {
        self.running.values().any(|lane| lane.facts().transport == Transport::Udp)
    }

    /// A side that grants lanes and has none left grants no more over UDP of itself: its other end
    /// says where to go on.
    pub(super) fn forget_udp(&mut self) {
        let WantedLanes { first_transport, transport, mixes_udp, .. } = &mut self.wanted;
        if self.role == Role::Receiver && *mixes_udp && *first_transport == Transport::Tcp {
            *transport = Transport::Tcp;
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::{LaneHandle, LaneStream};

    use super::super::tests::lanes;
    use super::*;
    use crate::lanes::lane::StandingLane;
    use crate::lanes::search::LaneSearch;
    use crate::lanes::udp::desk::tests::World;
    use crate::lanes::worker::pulse::Pulse;

    /// A sender that left three lanes over TCP for one over UDP.
    fn gone_over() -> Lanes {
        let mut lanes = lanes(Role::Sender, None);
        (lanes.wanted.mixes_udp, lanes.wanted.most) = (true, 8);
        lanes.search = LaneSearch::parked(3);
        lanes.set_target(1, Transport::Udp);
        lanes
    }

    fn stand(lanes: &mut Lanes, id: u32, handle: LaneHandle) {
        let lane = StandingLane::start(LaneId(id), handle, Pulse::default(), |_| ()).expect("a thread");
        lanes.running.insert(LaneId(id), lane);
    }

    fn step(task: LaneTask) -> TuningStep {
        TuningStep { task, change: LanesChange::Tcp, reason: Why::UdpLost }
    }

    #[test]
    fn a_session_whose_last_lane_over_udp_is_lost_goes_back_though_another_stands_in_its_place() {
        let (mut lanes, mut world) = (gone_over(), World::new());
        let (udp, _accepted) = world.lane(None);
        let (stream, _other) = LaneStream::pair().expect("a pair");
        stand(&mut lanes, 0, LaneHandle::new(udp.lane.handle.clone()));
        stand(&mut lanes, 1, stream.handle());
        assert!(lanes.leave_udp(&[]).is_none(), "it stands");
        lanes.close(LaneId(0));
        for task in [LaneTask::Return(3, vec![]), LaneTask::Abandon(vec![]), LaneTask::Settle(Transport::Tcp, vec![])] {
            assert!(lanes.leave_udp(&[step(task)]).is_none(), "it goes back already");
        }
        let back = lanes.leave_udp(&[step(LaneTask::Nothing)]).expect("it is lost");
        assert_eq!((back.task, back.change), (LaneTask::Return(3, vec![]), LanesChange::Tcp));
        lanes.join();
    }

    #[test]
    fn a_lane_over_tcp_that_joins_late_beside_udp_alone_has_no_use() {
        let (mut lanes, mut world) = (gone_over(), World::new());
        assert!(!lanes.comes_late(Transport::Tcp), "it takes the place of the last one over UDP");
        let (udp, _accepted) = world.lane(None);
        stand(&mut lanes, 0, LaneHandle::new(udp.lane.handle.clone()));
        assert!(lanes.comes_late(Transport::Tcp) && !lanes.comes_late(Transport::Udp));
        lanes.join();
    }
}
