//! Holds the threads of a lane: each moves one unit at a time, and hashes it piece by piece while
//! the piece is in cache.
//!
//! In: filled slots from the source, or bytes from a stream. Out: sent units and arrivals to the
//! session loop. This is the only place where payload meets digest and socket. It knows headers and
//! digests, but no files and no sessions.

pub(in crate::lanes) mod hashing;
pub(crate) mod hole_costs;
pub(crate) mod holes;
pub(crate) mod pacer;
pub(crate) mod pieces;
pub(crate) mod pulse;
pub(crate) mod receive;
pub(crate) mod send;
#[cfg(test)]
mod tests;
pub(in crate::lanes) mod zeros;

use longhaul_disk::{Affinity, ThreadWork};

use super::JoinedLane;

/// Binds the calling thread, which begins to serve a lane, to the CPUs of the lane's interface or
/// to those that the user named.
pub(crate) fn bind(affinity: &Affinity, lane: &JoinedLane) {
    let interface = if affinity.is_by_node() { lane.interface() } else { None };
    affinity.bind(interface.map_or(ThreadWork::Elsewhere("lanes"), ThreadWork::Interface));
}

/// Bytes hashed and sent (or received and hashed) at a time. A piece stays in the second-level
/// cache between both (chosen for caches of 1 to 2 MiB; other sizes were not measured in these
/// lanes).
pub(crate) const PIECE_BYTES: usize = 256 << 10;
