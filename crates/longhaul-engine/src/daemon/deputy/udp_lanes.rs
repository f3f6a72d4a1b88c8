//! The UDP lanes of a session that runs in a deputy, on the daemon's side.
//!
//! In: JOINs that prove to belong to the session, by its own control connection's secrets. Out: the
//! lanes' datagrams to the deputy, and back. A lane id is good for one lane, as elsewhere; which
//! ids are open the deputy knows, and drops a lane that it does not expect. It knows no payload.

use std::collections::HashSet;

use longhaul_core::LaneId;
use longhaul_core::limits::{LANES_EVER_MAX, LANES_MAX};
use longhaul_net::UdpRelay;

/// The UDP lanes of one session, since the daemon let it begin. Those that stand end as it is
/// dropped.
pub(super) struct SessionUdpLanes {
    /// The lanes that may stand at a time.
    at_once: usize,
    passed: HashSet<LaneId>,
    /// Lanes that are passed on just now.
    pending: usize,
    relays: Vec<UdpRelay>,
}

impl SessionUdpLanes {
    /// No lanes yet, of a session that may have so many.
    pub(super) fn new(lanes_max: u32) -> SessionUdpLanes {
        let at_once = lanes_max.min(LANES_MAX) as usize;
        SessionUdpLanes { at_once, passed: HashSet::new(), pending: 0, relays: Vec::new() }
    }

    /// Whether this lane may be passed on now.
    pub(super) fn expects(&self, lane: LaneId) -> bool {
        lane.0 < LANES_EVER_MAX && !self.passed.contains(&lane) && self.standing() < self.at_once
    }

    /// Lanes that stand, or are about to.
    pub(super) fn standing(&self) -> usize {
        self.pending + self.relays.iter().filter(|relay| !relay.is_over()).count()
    }

    /// Takes the id of a lane. [`SessionUdpLanes::passes`] or [`SessionUdpLanes::gives_back`] must
    /// follow. Gives whether it may be passed on.
    pub(super) fn take(&mut self, lane: LaneId) -> bool {
        let is_expected = self.expects(lane);
        if is_expected {
            self.passed.insert(lane);
            self.pending += 1;
        }
        is_expected
    }

    /// Takes an id back whose lane could not be passed on: its dialler asks again.
    pub(super) fn gives_back(&mut self, lane: LaneId) {
        self.passed.remove(&lane);
        self.pending = self.pending.saturating_sub(1);
    }

    /// Notes a lane that was taken, and whose datagrams are passed on.
    pub(super) fn passes(&mut self, relay: UdpRelay) {
        self.pending = self.pending.saturating_sub(1);
        self.relays.retain(|relay| !relay.is_over());
        self.relays.push(relay);
    }
}

impl Drop for SessionUdpLanes {
    fn drop(&mut self) {
        self.relays.iter().for_each(UdpRelay::close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_good_for_one_lane_unless_that_could_not_be_passed_on() {
        let mut lanes = SessionUdpLanes::new(u32::MAX);
        assert!(lanes.expects(LaneId(3)) && lanes.take(LaneId(3)));
        assert!(!lanes.expects(LaneId(3)) && !lanes.take(LaneId(3)), "whoever recorded it says it again");
        lanes.gives_back(LaneId(3));
        assert!(lanes.take(LaneId(3)));
        assert!(lanes.take(LaneId(LANES_EVER_MAX - 1)));
        assert!(!lanes.take(LaneId(LANES_EVER_MAX)), "there is no such id");
        assert_eq!(lanes.standing(), 2);
    }

    #[test]
    fn no_more_lanes_stand_than_the_session_may_have() {
        for (may, want) in [(0, 0), (2, 2), (LANES_MAX, LANES_MAX), (u32::MAX, LANES_MAX)] {
            let mut lanes = SessionUdpLanes::new(may);
            let taken = (0..LANES_EVER_MAX).filter(|lane| lanes.take(LaneId(*lane))).count();
            assert_eq!(taken, want as usize, "{may}");
            lanes.gives_back(LaneId(0));
            assert_eq!(lanes.take(LaneId(LANES_EVER_MAX - 1)), want > 0, "one that ended makes room");
        }
    }
}
