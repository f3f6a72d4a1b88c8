//! [`SyncPass`]: one sync of a striped file, from the moment it begins to the records of what it
//! made durable.
//!
//! In: what was written when it began, and the targets whose sync did not come back. Out: the
//! records to append, and the chunks that are given up, which have to be sent again. A chunk that
//! is written later belongs to the next pass.

use std::collections::BTreeSet;

use super::{ChunkPlace, Draft, PlacedChunk, Spot};
use crate::place::TargetId;
use crate::units::ChunkIndex;

/// The chunks that a sync covers: those that were written when it began and are not recorded.
#[derive(Debug, Default)]
pub struct SyncPass {
    chunks: Vec<PlacedChunk>,
}

/// The targets whose sync did not come back in time.
pub type Unsynced = BTreeSet<TargetId>;

impl SyncPass {
    /// The targets whose bodies have to be synced.
    pub fn targets(&self) -> BTreeSet<TargetId> {
        self.chunks.iter().filter_map(|chunk| chunk.spot).map(|spot| spot.target).collect()
    }

    /// The chunks whose bodies are synced, for their records.
    pub fn synced(&self, unsynced: &Unsynced) -> Vec<PlacedChunk> {
        self.chunks.iter().filter(|chunk| !is_on(chunk.spot, unsynced)).copied().collect()
    }
}

impl Draft {
    /// Begins a sync: it covers whatever is written now.
    pub fn begin_sync(&mut self) -> SyncPass {
        let fresh = std::mem::take(&mut self.fresh);
        let placed = |index: u64| {
            let chunk = *self.chunks.get(&index)?;
            let spot = match chunk.place {
                ChunkPlace::Nowhere => return None,
                ChunkPlace::Hole => None,
                ChunkPlace::At(spot) => Some(spot),
            };
            Some(PlacedChunk { index: ChunkIndex(index), spot, digest: chunk.digest? })
        };
        SyncPass { chunks: fresh.into_iter().filter_map(placed).collect() }
    }

    /// Gives up the chunks of a sync that lie on targets whose sync did not come back: they lie
    /// nowhere from now on, and their slots are used by nothing. Returns them.
    pub fn give_up(&mut self, pass: &SyncPass, unsynced: &Unsynced) -> Vec<ChunkIndex> {
        let lost: Vec<PlacedChunk> = pass.chunks.iter().filter(|chunk| is_on(chunk.spot, unsynced)).copied().collect();
        // A chunk that is being written anew has another place by now.
        let lost = lost.into_iter().filter(|chunk| self.spot(chunk.index) == chunk.spot);
        let lost: Vec<ChunkIndex> = lost.map(|chunk| chunk.index).collect();
        for index in &lost {
            self.set_place(*index, ChunkPlace::Nowhere);
        }
        lost
    }

    /// Takes back the chunks of a sync that could not be recorded.
    pub fn put_back(&mut self, pass: &SyncPass) {
        for chunk in &pass.chunks {
            let lies_there = match self.chunks.get(&chunk.index.0).map(|chunk| chunk.place) {
                Some(ChunkPlace::At(spot)) => chunk.spot == Some(spot),
                Some(ChunkPlace::Hole) => chunk.spot.is_none(),
                Some(ChunkPlace::Nowhere) | None => false,
            };
            if lies_there {
                self.fresh.insert(chunk.index.0);
            }
        }
    }
}

fn is_on(spot: Option<Spot>, targets: &Unsynced) -> bool {
    spot.is_some_and(|spot| targets.contains(&spot.target))
}
