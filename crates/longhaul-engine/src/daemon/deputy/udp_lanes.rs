//! The UDP lanes of a session that runs in a deputy, on the daemon's side.
//!
//! In: JOINs that prove to belong to the session, by its own control connection's secrets. Out: the
//! lanes' datagrams to the deputy, and back. A lane id is good for one lane, as elsewhere; which
//! ids are open the deputy knows, and drops a lane that it does not expect. It knows no payload.

use std::collections::HashSet;

use longhaul_core::LaneId;
use longhaul_core::limits::{LANES_EVER_MAX, LANES_MAX};
use longhaul_net::UdpRelay;

use crate::lanes::udp::join::UdpTerms;

/// The UDP lanes of one session. Those that stand end as it is dropped.
pub(super) struct TalkUdpLanes {
    terms: UdpTerms,
    passed: HashSet<LaneId>,
    relays: Vec<UdpRelay>,
}

impl TalkUdpLanes {
    /// The lanes of a session with these secrets: none yet.
    pub(super) fn new(terms: UdpTerms) -> TalkUdpLanes {
        TalkUdpLanes { terms, passed: HashSet::new(), relays: Vec::new() }
    }

    /// The secrets, if this lane may be passed on now.
    pub(super) fn terms(&self, lane: LaneId) -> Option<UdpTerms> {
        let is_new = lane.0 < LANES_EVER_MAX && !self.passed.contains(&lane);
        let standing = self.relays.iter().filter(|relay| !relay.is_over()).count();
        (is_new && standing < LANES_MAX as usize).then(|| self.terms.clone())
    }

    /// Takes the id of a lane. Gives whether it may be passed on.
    pub(super) fn take(&mut self, lane: LaneId) -> bool {
        self.terms(lane).is_some() && self.passed.insert(lane)
    }

    /// Notes a lane whose datagrams are passed on.
    pub(super) fn passes(&mut self, relay: UdpRelay) {
        self.relays.retain(|relay| !relay.is_over());
        self.relays.push(relay);
    }
}

impl Drop for TalkUdpLanes {
    fn drop(&mut self) {
        self.relays.iter().for_each(UdpRelay::close);
    }
}
