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
use crate::lanes::tune::{LaneTask, TuningStep};

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

    /// The step back to TCP, where lanes over UDP are of no use any more to a side that sends:
    /// their path is broken, or the last of those that were tried is lost. None is dialled again.
    pub(super) fn leave_udp(&mut self) -> Option<TuningStep> {
        let is_over_udp = self.role == Role::Sender && self.wanted.mixes_udp && self.wanted.transport == Transport::Udp;
        let is_broken = self.shares.path().is_broken();
        let is_lost = self.running.is_empty() && self.wanted.first_transport == Transport::Tcp;
        if !is_over_udp || !(is_broken || is_lost) {
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

    /// A side that grants lanes and has none left grants no more over UDP of itself: its other end
    /// says where to go on.
    pub(super) fn forget_udp(&mut self) {
        let WantedLanes { first_transport, transport, mixes_udp, .. } = &mut self.wanted;
        if self.role == Role::Receiver && *mixes_udp && *first_transport == Transport::Tcp {
            *transport = Transport::Tcp;
        }
    }
}
