//! Gathers the figures of the road of a side's lanes: round trips, when payload moved first and
//! last, and the sums of the controls of their paths.
//!
//! In: readings of lanes that end or stand. Out: to the session, once a second and at its end. It
//! decides nothing, and knows no messages.

use std::time::{Duration, Instant};

use longhaul_core::Transport;
use longhaul_net::LaneHandle;
use longhaul_proto::tuning::road::RoadSums;

use super::worker::pulse::PayloadTimes;

/// The road of some lanes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneRoad {
    /// The sums of the controls.
    pub(crate) sums: RoadSums,
    /// The shortest round trip. `None` within a host, and before the first.
    pub(crate) round_trip: Option<Duration>,
    /// When payload moved.
    pub(crate) payload: PayloadTimes,
    /// Payload bytes that lanes over UDP sent again. `None` where none ran over UDP.
    pub(crate) udp_bytes_resent: Option<u64>,
}

impl LaneRoad {
    /// Takes a lane's shortest round trip so far. Its counters are gone when it has ended, which
    /// the other end may do at any time.
    pub(crate) fn see(&mut self, handle: &LaneHandle) {
        // Within a host there is no road.
        if !handle.is_within_host() {
            let seen = handle.counters().and_then(|counters| counters.round_trip.min).filter(|rtt| !rtt.is_zero());
            self.round_trip = self.round_trip.into_iter().chain(seen).min();
        }
    }

    /// Adds a lane, as it is now.
    pub(crate) fn add_lane(&mut self, handle: &LaneHandle, payload: PayloadTimes) {
        self.see(handle);
        if !handle.is_within_host() {
            self.payload.add(payload);
        }
        // What the counters of others say is gone when they have ended.
        if handle.facts().transport == Transport::Udp {
            self.add_resent(handle.counters().map(|counters| counters.resent));
        }
    }

    fn add_resent(&mut self, bytes: Option<u64>) {
        let so_far = self.udp_bytes_resent;
        self.udp_bytes_resent = bytes.map(|bytes| so_far.unwrap_or(0).saturating_add(bytes)).or(so_far);
    }

    /// Adds the road of another session of the run.
    pub(crate) fn add(&mut self, other: &LaneRoad) {
        self.sums.add_all(&other.sums);
        self.round_trip = self.round_trip.into_iter().chain(other.round_trip).min();
        self.payload.add(other.payload);
        self.add_resent(other.udp_bytes_resent);
    }

    /// When payload moved first and last, as times from `begun` and until `ended`.
    pub(crate) fn around(&self, begun: Instant, ended: Instant) -> (Option<Duration>, Option<Duration>) {
        let first = self.payload.first.map(|first| first.saturating_duration_since(begun));
        (first, self.payload.last.map(|last| ended.saturating_duration_since(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sent_again_over_udp_are_summed_and_are_not_known_without_such_lanes() {
        let mut road = LaneRoad::default();
        road.add(&LaneRoad::default());
        assert_eq!(road.udp_bytes_resent, None);
        for bytes in [0, 5, 7] {
            road.add(&LaneRoad { udp_bytes_resent: Some(bytes), ..LaneRoad::default() });
        }
        road.add(&LaneRoad::default());
        assert_eq!(road.udp_bytes_resent, Some(12));
    }
}
