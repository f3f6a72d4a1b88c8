//! Divides the slots of a receiving side among its UDP lanes, as lanes come and go.
//!
//! In: how many lanes stand, from the pool. Out: to the thread of each UDP lane how many units its
//! sender may have begun. It knows no slots and no lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_core::limits::UDP_UNITS_OPEN_MAX;

/// The lanes that share the slots of a side. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotSharers(Arc<SharerCounts>);

#[derive(Debug, Default)]
struct SharerCounts {
    udp: AtomicU32,
    streams: AtomicU32,
}

impl SlotSharers {
    /// Counts the UDP lanes that there are or are to come, and those that are streams.
    pub(crate) fn set(&self, udp: u32, streams: u32) {
        self.0.udp.store(udp, Ordering::Relaxed);
        self.0.streams.store(streams, Ordering::Relaxed);
    }

    /// The part of a UDP lane, out of `slots`: streams keep two each, or half of all at most, and
    /// the rest is divided evenly.
    pub(crate) fn window(&self, slots: u32) -> u32 {
        let streams = self.0.streams.load(Ordering::Relaxed);
        let kept = streams.saturating_mul(SLOTS_A_STREAM).min(slots / 2);
        ((slots - kept) / self.0.udp.load(Ordering::Relaxed).max(1)).clamp(1, UDP_UNITS_OPEN_MAX)
    }
}

/// Slots of a stream: one fills while the one before is handed on.
const SLOTS_A_STREAM: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_a_lane_follow_those_that_join_and_leave() {
        let sharers = SlotSharers::default();
        assert_eq!(sharers.window(64), 64, "it is alone before it is counted");
        for (udp, streams, want) in [(1, 0, 64), (3, 0, 21), (1, 8, 48), (2, 8, 24), (1, 31, 32), (100, 0, 1)] {
            sharers.set(udp, streams);
            assert_eq!(sharers.window(64), want, "{udp} UDP lanes and {streams} streams");
        }
        assert_eq!(sharers.window(4), 1);
    }
}
