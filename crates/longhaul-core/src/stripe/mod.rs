//! [`Draft`]: the places of the chunks of a striped file that is being written, which writes of
//! them are under way, and what of them is not recorded yet: a pure machine.
//!
//! In: chunks that are placed, written, synced, given up, and found to be holes. Out: slots in
//! bodies, and the records that a sync has to append. It holds about 100 bytes for each chunk that
//! was placed. Knows no disk, no file and no clock.
//!
//! Several writes of one chunk may be under way, each to a slot of its own on another target. The
//! first that completes is the chunk's place; the slots of the others are used by nothing, and are
//! never given away again, as their writes may still land.

mod pass;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::chunkmap::{ChunkMap, DigestKind};
use crate::digest::{Digest, Hash32, RootMerger};
use crate::place::TargetId;
use crate::units::ChunkIndex;

pub use pass::{SyncPass, Unsynced};

/// The place of a chunk in a body: the body on this target, at so many chunk sizes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spot {
    /// The target.
    pub target: TargetId,
    /// The number of chunk sizes before it.
    pub slot: u64,
}

/// A chunk that is durable in its body, for the record that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedChunk {
    /// The chunk.
    pub index: ChunkIndex,
    /// Its place. `None`: all of it is zeros, and lies nowhere.
    pub spot: Option<Spot>,
    /// Its digest.
    pub digest: Hash32,
}

/// The places of a striped file's chunks.
#[derive(Debug)]
pub struct Draft {
    map: ChunkMap,
    chunks: HashMap<u64, DraftChunk>,
    /// Chunks that are to be recorded by the next sync.
    fresh: BTreeSet<u64>,
    /// Writes under way, by chunk.
    writing: BTreeMap<u64, Vec<WriteUnderWay>>,
    /// The number of slots that each body has given away.
    slots: BTreeMap<TargetId, u64>,
}

#[derive(Clone, Copy, Debug)]
struct DraftChunk {
    place: ChunkPlace,
    digest: Option<Hash32>,
}

/// A write that has not come back.
#[derive(Clone, Copy, Debug)]
struct WriteUnderWay {
    spot: Spot,
    /// Whether it may become the chunk's place: the chunk was not written anew since it began.
    counts: bool,
}

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPlace {
    /// No write of it completed.
    Nowhere,
    /// It is a hole.
    Hole,
    /// It was written there.
    At(Spot),
}

/// The meaning of the end of a write for its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is the chunk's place from now on.
    Placed,
    /// Another write of the chunk was first, or the chunk was written anew since. Nobody uses its
    /// slot.
    Late,
}

impl Draft {
    /// A file of which nothing is written.
    pub fn new(map: ChunkMap) -> Draft {
        Draft { map, chunks: HashMap::new(), fresh: BTreeSet::new(), writing: BTreeMap::new(), slots: BTreeMap::new() }
    }

    /// Its length and chunks.
    pub fn map(&self) -> ChunkMap {
        self.map
    }

    /// Takes the record of a chunk that an earlier session wrote. Returns false if the file cannot
    /// have it.
    pub fn recorded(&mut self, PlacedChunk { index, spot, digest }: PlacedChunk) -> bool {
        if let Some(Spot { target, slot }) = spot {
            let slots = self.slots.entry(target).or_default();
            *slots = (*slots).max(slot.saturating_add(1));
        }
        let place = spot.map_or(ChunkPlace::Hole, ChunkPlace::At);
        self.chunks.insert(index.0, DraftChunk { place, digest: Some(digest) });
        self.map.len_of(index).is_some()
    }

    /// Takes the length in bytes of a body that an earlier session wrote: no slot that begins
    /// before its end is given away. A footer that session left may name what lies there, and where
    /// there are no locks a write of it may still land.
    pub fn reopened(&mut self, target: TargetId, body_bytes: u64) {
        let used = body_bytes.div_ceil(self.map.size().bytes());
        let slots = self.slots.entry(target).or_default();
        *slots = (*slots).max(used);
    }

    /// The chunk at an offset of the file, if a request of `len` bytes there is that chunk.
    pub fn chunk_at(&self, offset: u64, len: usize) -> Option<ChunkIndex> {
        let index = ChunkIndex(offset >> self.map.size().log2());
        let is_it = self.map.start_of(index).0 == offset && self.map.len_of(index) == Some(len as u64);
        is_it.then_some(index)
    }

    /// The place where a chunk was written. `None`: nowhere, or it is a hole.
    pub fn spot(&self, index: ChunkIndex) -> Option<Spot> {
        match self.chunks.get(&index.0)?.place {
            ChunkPlace::At(spot) => Some(spot),
            ChunkPlace::Nowhere | ChunkPlace::Hole => None,
        }
    }

    /// Notes the digest of a chunk, before it is written.
    pub fn note_digest(&mut self, index: ChunkIndex, digest: Hash32) {
        let none = DraftChunk { place: ChunkPlace::Nowhere, digest: None };
        self.chunks.entry(index.0).or_insert(none).digest = Some(digest);
    }

    /// The end of the slot that the next write to a target gets, in bytes of the body.
    pub fn next_end(&self, target: TargetId) -> u64 {
        let slots = self.slots.get(&target).copied().unwrap_or(0);
        (slots + 1) << self.map.size().log2()
    }

    /// Begins to write a chunk, to a slot of its own on a target. A place that the chunk had is its
    /// place no more, and no earlier write of it that is under way becomes its place.
    pub fn begin_write(&mut self, index: ChunkIndex, target: TargetId) -> Spot {
        let earlier = self.writing.get_mut(&index.0).into_iter().flatten();
        earlier.for_each(|write| write.counts = false);
        self.fresh.remove(&index.0);
        self.set_place(index, ChunkPlace::Nowhere);
        self.begin_hedge(index, target)
    }

    /// Begins another write of a chunk whose write is under way, of the same content, to a slot of
    /// its own on another target. The first that completes is the chunk's place.
    pub fn begin_hedge(&mut self, index: ChunkIndex, target: TargetId) -> Spot {
        let slots = self.slots.entry(target).or_default();
        let spot = Spot { target, slot: *slots };
        *slots += 1;
        self.writing.entry(index.0).or_default().push(WriteUnderWay { spot, counts: true });
        spot
    }

    /// Notes that a write completed.
    pub fn end_write(&mut self, index: ChunkIndex, spot: Spot) -> WriteOutcome {
        let counts = self.forget_write(index, spot).is_some_and(|write| write.counts);
        if !counts || self.chunks.get(&index.0).is_some_and(|chunk| chunk.place != ChunkPlace::Nowhere) {
            return WriteOutcome::Late;
        }
        self.set_place(index, ChunkPlace::At(spot));
        self.fresh.insert(index.0);
        WriteOutcome::Placed
    }

    /// Notes that a write failed. Nobody uses its slot.
    pub fn fail_write(&mut self, index: ChunkIndex, spot: Spot) {
        self.forget_write(index, spot);
    }

    /// Takes a write out of those that are under way. `None`: it is none of them.
    fn forget_write(&mut self, index: ChunkIndex, spot: Spot) -> Option<WriteUnderWay> {
        let under_way = self.writing.get_mut(&index.0)?;
        let at = under_way.iter().position(|write| write.spot == spot)?;
        let write = under_way.swap_remove(at);
        if under_way.is_empty() {
            self.writing.remove(&index.0);
        }
        Some(write)
    }

    /// The number of writes to a target that are under way.
    pub fn writes_on(&self, target: TargetId) -> usize {
        self.writing.values().flatten().filter(|write| write.spot.target == target).count()
    }

    /// Notes that a chunk is a hole.
    pub fn is_hole(&mut self, index: ChunkIndex) {
        self.set_place(index, ChunkPlace::Hole);
        self.fresh.insert(index.0);
    }

    fn set_place(&mut self, index: ChunkIndex, place: ChunkPlace) {
        let digest = self.chunks.get(&index.0).and_then(|chunk| chunk.digest);
        self.chunks.insert(index.0, DraftChunk { place, digest });
    }

    /// The BLAKE3 of the whole file. `None` if a chunk is not there, or has no digest.
    pub fn root(&self) -> Option<Hash32> {
        let mut merger = RootMerger::new(self.map);
        for index in 0..self.map.chunks() {
            let chunk = self.chunks.get(&index).filter(|chunk| chunk.place != ChunkPlace::Nowhere)?;
            let digest = match self.map.kind() {
                DigestKind::Root => Digest::Root(chunk.digest?),
                DigestKind::Cv => Digest::Cv(chunk.digest?),
            };
            merger.insert(ChunkIndex(index), digest).ok()?;
        }
        merger.root()
    }

    /// Whether any chunk lies in the body on a target.
    pub fn uses(&self, target: TargetId) -> bool {
        self.places_on(target).next().is_some()
    }

    /// The chunks in each slot of a body, each with its digest.
    pub fn slots_on(&self, target: TargetId) -> Vec<Option<(ChunkIndex, Hash32)>> {
        let count = self.slots.get(&target).copied().unwrap_or(0);
        let mut slots = vec![None; count as usize];
        for (index, spot) in self.places_on(target) {
            let digest = self.chunks.get(&index.0).and_then(|chunk| chunk.digest);
            if let (Some(digest), Some(slot)) = (digest, slots.get_mut(spot.slot as usize)) {
                *slot = Some((index, digest));
            }
        }
        // Slots at the end that were given up are cut off.
        let used = slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        slots.truncate(used);
        slots
    }

    /// The holes, each with its digest, in order.
    pub fn holes(&self) -> Vec<(ChunkIndex, Hash32)> {
        let hole = |(index, chunk): (&u64, &DraftChunk)| {
            chunk.digest.filter(|_| chunk.place == ChunkPlace::Hole).map(|digest| (ChunkIndex(*index), digest))
        };
        let mut holes: Vec<_> = self.chunks.iter().filter_map(hole).collect();
        holes.sort_unstable_by_key(|(index, _)| *index);
        holes
    }

    /// The least length of a body that holds all chunks that lie there, in bytes.
    pub fn end_needed(&self, target: TargetId) -> u64 {
        let end = |(index, spot): (ChunkIndex, Spot)| {
            (spot.slot << self.map.size().log2()) + self.map.len_of(index).unwrap_or(0)
        };
        self.places_on(target).map(end).max().unwrap_or(0)
    }

    /// Bytes of chunks that are recorded or written.
    pub fn bytes_there(&self) -> u64 {
        let there = self.chunks.iter().filter(|(_, chunk)| chunk.place != ChunkPlace::Nowhere);
        there.filter_map(|(index, _)| self.map.len_of(ChunkIndex(*index))).sum()
    }

    /// The chunks that were written to a target, each with its place there.
    fn places_on(&self, target: TargetId) -> impl Iterator<Item = (ChunkIndex, Spot)> {
        self.chunks.iter().filter_map(move |(index, chunk)| match chunk.place {
            ChunkPlace::At(spot) if spot.target == target => Some((ChunkIndex(*index), spot)),
            _ => None,
        })
    }
}
