//! Owns the rule where the chunks of a file go: to which target of the destination, and where
//! there.
//!
//! In: a chunk of a file. Out: its place, by which it is written and read back. No journal records
//! a place, so a file that may be continued must lie on target 0 alone. It knows no disk and no
//! journal.

use longhaul_core::{ChunkIndex, ChunkMap, Place};

/// The place of a chunk. A destination has one target, where each file lies whole.
pub(crate) fn place_of(map: ChunkMap, index: ChunkIndex) -> Place {
    Place::whole(map.start_of(index).0)
}
