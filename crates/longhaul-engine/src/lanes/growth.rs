//! Adds lanes over UDP where their threads, or a socket of the receiver, are full: gives what the
//! lanes worked and delivered to `proto`, and its decision back.
//!
//! In: lanes that stand, once a second, and the demand on them. Out: a [`TuningStep`] for the pool
//! to make. Where lanes over another transport stand as well, nothing is added. It knows no
//! sockets, no threads and no messages.

use std::collections::HashMap;
use std::time::Duration;

use longhaul_core::LaneId;
use longhaul_proto::tuning::udp_lanes::{UdpLaneGrowth, UdpLanesChange, UdpLanesSecond};
use longhaul_proto::wire::message::Transport;

use super::tune::{Demand, LaneTask, RunningLane, TuningStep};
use crate::api::LanesChange;

/// See the module.
#[derive(Debug)]
pub(super) struct UdpGrowth {
    machine: UdpLaneGrowth,
    /// Bytes that each lane had delivered at the last look.
    delivered: HashMap<LaneId, u64>,
    /// Processor time that lanes had worked at the last look.
    worked: Duration,
}

impl UdpGrowth {
    /// Adds lanes up to this number.
    pub(super) fn new(lanes_max: u32) -> UdpGrowth {
        UdpGrowth { machine: UdpLaneGrowth::new(lanes_max), delivered: HashMap::new(), worked: Duration::ZERO }
    }

    /// Decides at the end of a second of this length.
    pub(super) fn second(&mut self, elapsed: Duration, looks: &[RunningLane], demand: Demand) -> Option<TuningStep> {
        let worked = demand.worked.saturating_sub(std::mem::replace(&mut self.worked, demand.worked));
        let are_alone = looks.iter().all(|look| look.handle.facts().transport == Transport::Udp);
        let delivered = self.delivered_by(looks);
        let lanes = if are_alone { looks.iter().filter(|look| !look.retiring).count() as u32 } else { 0 };
        let change = self.machine.second(&UdpLanesSecond {
            elapsed,
            lanes,
            delivered,
            worked,
            is_by_work: demand.is_by_work,
            is_pressed: demand.is_by_processors,
            spare: demand.path.spare,
            remaining: demand.remaining,
        })?;
        let (task, change, reason) = match change {
            UdpLanesChange::Add(why) => (LaneTask::AddOver(Transport::Udp, 1), LanesChange::Added(1), why),
            UdpLanesChange::End(why) => {
                let last = looks.iter().filter(|look| !look.retiring).map(|look| look.lane).max()?;
                (LaneTask::Retire(vec![last]), LanesChange::Retired(1), why)
            }
            // So many are wanted as stand.
            UdpLanesChange::GiveUp(why) => (LaneTask::Retire(Vec::new()), LanesChange::Unchanged, why),
        };
        Some(TuningStep { task, change, reason })
    }

    /// Bytes that the lanes delivered since the last look.
    fn delivered_by(&mut self, looks: &[RunningLane]) -> u64 {
        let seen = looks.iter().filter_map(|look| Some((look.lane, look.counters?.acked)));
        let now: HashMap<_, _> = seen.collect();
        let before = std::mem::replace(&mut self.delivered, now);
        self.delivered.iter().map(|(lane, acked)| acked.saturating_sub(before.get(lane).copied().unwrap_or(0))).sum()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::{LaneHandle, LaneStream};
    use longhaul_proto::tuning::Why;
    use longhaul_proto::udp::control::UdpSpare;

    use super::*;
    use crate::lanes::tune::PathDemand;
    use crate::lanes::udp::desk::tests::World;

    fn look(id: u32, handle: &LaneHandle) -> RunningLane {
        let counters = handle.counters();
        RunningLane { lane: LaneId(id), handle: handle.clone(), counters, idle: 0, in_hand: 0, retiring: false }
    }

    /// The changes of so many seconds, in each of which the lanes' threads work so long.
    fn grown(looks: impl Fn() -> Vec<RunningLane>, seconds: u32, worked: Duration) -> Vec<TuningStep> {
        let mut growth = UdpGrowth::new(4);
        let path = PathDemand { spare: UdpSpare::Unused, ..PathDemand::default() };
        let demand = |n: u32| Demand { worked: worked * n, path, ..Demand::default() };
        (1..=seconds).filter_map(|n| growth.second(Duration::from_secs(1), &looks(), demand(n))).collect()
    }

    #[test]
    fn a_lane_over_udp_whose_thread_is_busy_gets_another_beside_it_unless_lanes_over_tcp_stand_there() {
        let mut world = World::new();
        let (udp, _accepted) = world.lane(None);
        let (stream, _other) = LaneStream::pair().expect("a pair");
        let (udp, tcp) = (LaneHandle::new(udp.lane.handle.clone()), stream.handle());
        let busy = Duration::from_millis(900);
        let steps = grown(|| vec![look(0, &udp)], 6, busy);
        let [TuningStep { task: LaneTask::AddOver(Transport::Udp, 1), change, reason }] = &steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!((change, *reason), (&LanesChange::Added(1), Why::LanesBusy { thousandths: 900 }));
        // It does not come: no more are wanted than stand.
        let steps = grown(|| vec![look(0, &udp)], 16, busy);
        let last = steps.last().map(|step| (&step.task, &step.change));
        assert_eq!(last, Some((&LaneTask::Retire(Vec::new()), &LanesChange::Unchanged)));
        assert!(grown(|| vec![look(0, &udp), look(1, &tcp)], 20, busy * 2).is_empty());
        assert!(grown(|| vec![look(0, &udp), look(1, &udp)], 20, busy).is_empty(), "two do the work of one");
        // One that ends is none of them.
        let retiring = || vec![look(0, &udp), RunningLane { retiring: true, ..look(1, &udp) }];
        assert_eq!(grown(retiring, 6, busy).len(), 1);
    }
}
