//! How lanes are dialled: over which addresses (`paths`), and with how large segments (`segments`).
//!
//! In: the addresses of a run. Out: a path for each lane, and how large its segments may be. Knows no sessions.

pub(crate) mod paths;
pub(crate) mod segments;
