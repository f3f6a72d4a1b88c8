//! Decides how lanes are dialled: over which addresses (`paths`), and with how large segments
//! (`segments`).
//!
//! In: the addresses of a run. Out: a path for each lane, and the largest segment it may send. It
//! knows no sessions.

pub(crate) mod paths;
pub(crate) mod segments;

use longhaul_core::LaneId;
use longhaul_net::LaneHandle;

/// Is told of each lane that this side dialled and that has joined.
pub(crate) trait DialObserver: Send + Sync {
    /// The lane `id` joined; `handle` tells how it fares.
    fn lane_joined(&self, id: LaneId, handle: LaneHandle);
}
