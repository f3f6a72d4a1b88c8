//! The threads of a lane: one unit at a time, hashed piece by piece while the piece is in cache.
//!
//! The only place where payload meets digest and socket. They know headers and digests, nothing of
//! files or sessions.

mod hashing;
pub(crate) mod holes;
pub(crate) mod pacer;
pub(crate) mod pulse;
pub(crate) mod receive;
pub(crate) mod send;

/// Bytes hashed and sent (or received and hashed) at a time: a piece stays in the second-level
/// cache between both (chosen for caches of 1 to 2 MiB; other sizes were not measured in these
/// lanes).
const PIECE_BYTES: usize = 256 << 10;
