//! [`Draft`]: the places of the chunks of a striped file that is being written, and what of them is
//! not recorded yet.
//!
//! In: chunks that are placed, written and found to be holes. Out: slots in bodies, and the records
//! that a sync has to append. Pure: it knows no disk. It holds about 100 bytes for each chunk that
//! was placed.

use std::collections::{BTreeMap, HashMap};

use longhaul_core::digest::{Digest, Hash32, RootMerger};
use longhaul_core::{ChunkIndex, ChunkMap, DigestKind, TargetId};

use super::records::{Record, Spot};

/// The places of a striped file's chunks.
#[derive(Debug)]
pub(crate) struct Draft {
    map: ChunkMap,
    chunks: HashMap<u64, DraftChunk>,
    /// Chunks that are to be recorded by the next sync.
    fresh: BTreeMap<u64, ()>,
    /// The number of slots that each body has given away.
    slots: HashMap<TargetId, u64>,
}

#[derive(Clone, Copy, Debug)]
struct DraftChunk {
    /// `None`: a hole.
    spot: Option<Spot>,
    digest: Option<Hash32>,
    is_there: bool,
}

/// The chunks that a sync covers: whatever was there when it began.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    /// Their records.
    pub(crate) records: Vec<Record>,
}

impl Draft {
    /// A file of which nothing is written.
    pub(crate) fn new(map: ChunkMap) -> Draft {
        Draft { map, chunks: HashMap::new(), fresh: BTreeMap::new(), slots: HashMap::new() }
    }

    /// Its length and chunks.
    pub(crate) fn map(&self) -> ChunkMap {
        self.map
    }

    /// Takes a record that an earlier session wrote. Returns false if the file cannot have it.
    pub(crate) fn recorded(&mut self, record: Record) -> bool {
        let Record::Chunk { index, spot, digest } = record else { return true };
        if let Some(Spot { target, slot }) = spot {
            let slots = self.slots.entry(target).or_default();
            *slots = (*slots).max(slot + 1);
        }
        self.chunks.insert(index.0, DraftChunk { spot, digest: Some(digest), is_there: true });
        self.map.len_of(index).is_some()
    }

    /// The chunk at an offset of the file, if a request of `len` bytes there is that chunk.
    pub(crate) fn chunk_at(&self, offset: u64, len: usize) -> Option<ChunkIndex> {
        let index = ChunkIndex(offset >> self.map.size().log2());
        let is_it = self.map.start_of(index).0 == offset && self.map.len_of(index) == Some(len as u64);
        is_it.then_some(index)
    }

    /// The place that a chunk has already. It is written there again.
    pub(crate) fn spot(&self, index: ChunkIndex) -> Option<Spot> {
        self.chunks.get(&index.0)?.spot
    }

    /// Notes the digest of a chunk, before it is written.
    pub(crate) fn digest(&mut self, index: ChunkIndex, digest: Hash32) {
        let none = DraftChunk { spot: None, digest: None, is_there: false };
        self.chunks.entry(index.0).or_insert(none).digest = Some(digest);
    }

    /// Gives a chunk a place on a target, in place of the one that it had.
    pub(crate) fn place(&mut self, index: ChunkIndex, target: TargetId) -> Spot {
        let slots = self.slots.entry(target).or_default();
        let spot = Spot { target, slot: *slots };
        *slots += 1;
        // What was not recorded of its old place is not recorded any more.
        self.fresh.remove(&index.0);
        let digest = self.chunks.get(&index.0).and_then(|chunk| chunk.digest);
        self.chunks.insert(index.0, DraftChunk { spot: Some(spot), digest, is_there: false });
        spot
    }

    /// Notes that a chunk was written to its place.
    pub(crate) fn written(&mut self, index: ChunkIndex) {
        if let Some(chunk) = self.chunks.get_mut(&index.0) {
            chunk.is_there = true;
            self.fresh.insert(index.0, ());
        }
    }

    /// Notes that a chunk is a hole.
    pub(crate) fn is_hole(&mut self, index: ChunkIndex) {
        let digest = self.chunks.get(&index.0).and_then(|chunk| chunk.digest);
        self.chunks.insert(index.0, DraftChunk { spot: None, digest, is_there: true });
        self.fresh.insert(index.0, ());
    }

    /// Takes out what the next sync has to record.
    pub(crate) fn take_fresh(&mut self) -> Fresh {
        let fresh = std::mem::take(&mut self.fresh);
        let record = |(index, ()): (u64, ())| {
            let DraftChunk { spot, digest, .. } = *self.chunks.get(&index).filter(|chunk| chunk.is_there)?;
            Some(Record::Chunk { index: ChunkIndex(index), spot, digest: digest? })
        };
        Fresh { records: fresh.into_iter().filter_map(record).collect() }
    }

    /// Takes back what could not be recorded.
    pub(crate) fn put_back(&mut self, fresh: &Fresh) {
        for record in &fresh.records {
            if let Record::Chunk { index, .. } = record {
                self.fresh.insert(index.0, ());
            }
        }
    }

    /// The BLAKE3 of the whole file. `None` if a chunk is not there, or has no digest.
    pub(crate) fn root(&self) -> Option<Hash32> {
        let mut merger = RootMerger::new(self.map);
        for index in 0..self.map.chunks() {
            let chunk = self.chunks.get(&index).filter(|chunk| chunk.is_there)?;
            let digest = match self.map.kind() {
                DigestKind::Root => Digest::Root(chunk.digest?),
                DigestKind::Cv => Digest::Cv(chunk.digest?),
            };
            merger.insert(ChunkIndex(index), digest).ok()?;
        }
        merger.root()
    }

    /// The chunks in each slot of a body, each with its digest.
    pub(crate) fn slots_on(&self, target: TargetId) -> Vec<Option<(ChunkIndex, Hash32)>> {
        let count = self.slots.get(&target).copied().unwrap_or(0);
        let mut slots = vec![None; count as usize];
        for (index, chunk) in &self.chunks {
            if let (Some(spot), Some(digest)) = (chunk.spot, chunk.digest)
                && spot.target == target
                && let Some(slot) = slots.get_mut(spot.slot as usize)
            {
                *slot = Some((ChunkIndex(*index), digest));
            }
        }
        // Slots at the end that were given up are cut off.
        let used = slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        slots.truncate(used);
        slots
    }

    /// The holes, each with its digest, in order.
    pub(crate) fn holes(&self) -> Vec<(ChunkIndex, Hash32)> {
        let hole = |(index, chunk): (&u64, &DraftChunk)| {
            let is_hole = chunk.spot.is_none() && chunk.is_there;
            chunk.digest.filter(|_| is_hole).map(|digest| (ChunkIndex(*index), digest))
        };
        let mut holes: Vec<_> = self.chunks.iter().filter_map(hole).collect();
        holes.sort_unstable_by_key(|(index, _)| *index);
        holes
    }

    /// The least length of a body that holds all chunks that lie there, in bytes.
    pub(crate) fn end_needed(&self, target: TargetId) -> u64 {
        let on = self.chunks.iter().filter_map(|(index, chunk)| Some((*index, chunk.spot?)));
        let on = on.filter(|(_, spot)| spot.target == target);
        let end = |(index, spot): (u64, Spot)| {
            (spot.slot << self.map.size().log2()) + self.map.len_of(ChunkIndex(index)).unwrap_or(0)
        };
        on.map(end).max().unwrap_or(0)
    }

    /// Bytes of chunks that are recorded or written.
    pub(crate) fn bytes_there(&self) -> u64 {
        let there = self.chunks.iter().filter(|(_, chunk)| chunk.is_there);
        there.filter_map(|(index, _)| self.map.len_of(ChunkIndex(*index))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::ChunkSize;
    use longhaul_core::digest::digest_of;

    const MIB: u64 = 1 << 20;

    fn draft(len: u64) -> Draft {
        Draft::new(ChunkMap::new(len, ChunkSize::from_log2(20).expect("a size")))
    }

    fn put(draft: &mut Draft, index: u64, target: u32, bytes: &[u8]) -> Spot {
        let map = draft.map();
        let digest = digest_of(bytes, map.kind(), map.start_of(ChunkIndex(index)));
        draft.digest(ChunkIndex(index), *digest.bytes());
        let spot = draft.place(ChunkIndex(index), TargetId(target));
        draft.written(ChunkIndex(index));
        spot
    }

    #[test]
    fn each_chunk_has_a_slot_of_its_own_and_the_root_is_that_of_the_content() {
        let content: Vec<u8> = (0..2 * MIB + 5).map(|n| (n % 251) as u8).collect();
        let mut draft = draft(content.len() as u64);
        let (a, b) = content.split_at(MIB as usize);
        let (b, c) = b.split_at(MIB as usize);
        assert_eq!(put(&mut draft, 2, 1, c), Spot { target: TargetId(1), slot: 0 });
        assert_eq!(put(&mut draft, 0, 1, a), Spot { target: TargetId(1), slot: 1 });
        assert_eq!(draft.root(), None, "a chunk is missing");
        put(&mut draft, 1, 0, b);
        let whole = digest_of(&content, DigestKind::Root, longhaul_core::FileOffset(0));
        assert_eq!(draft.root(), Some(*whole.bytes()));
        assert_eq!((draft.bytes_there(), draft.end_needed(TargetId(1))), (2 * MIB + 5, 2 * MIB));
        let slots = draft.slots_on(TargetId(1));
        assert_eq!(slots.iter().map(|slot| slot.expect("used").0.0).collect::<Vec<_>>(), [2, 0]);
    }

    #[test]
    fn what_is_written_is_recorded_once_and_again_if_its_record_failed() {
        let mut draft = draft(3 * MIB);
        put(&mut draft, 0, 0, &[1; MIB as usize]);
        let fresh = draft.take_fresh();
        assert_eq!(fresh.records.len(), 1);
        assert!(draft.take_fresh().records.is_empty());
        draft.put_back(&fresh);
        assert_eq!(draft.take_fresh().records, fresh.records);
        draft.digest(ChunkIndex(1), [0; 32]);
        draft.place(ChunkIndex(1), TargetId(0));
        assert!(draft.take_fresh().records.is_empty(), "it is not written yet");
    }

    #[test]
    fn a_chunk_that_was_moved_leaves_a_slot_that_nobody_uses_again() {
        let mut draft = draft(2 * MIB);
        put(&mut draft, 0, 0, &[1; MIB as usize]);
        draft.place(ChunkIndex(1), TargetId(0));
        put(&mut draft, 1, 1, &[2; MIB as usize]);
        assert_eq!(put(&mut draft, 0, 0, &[3; MIB as usize]).slot, 2);
        let slots = draft.slots_on(TargetId(0));
        assert_eq!(slots.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true]);
        draft.is_hole(ChunkIndex(1));
        assert_eq!(draft.holes().len(), 1);
        assert!(draft.slots_on(TargetId(1)).is_empty());
    }

    #[test]
    fn records_bring_the_same_places_back() {
        let mut draft = draft(2 * MIB);
        put(&mut draft, 0, 3, &[1; MIB as usize]);
        put(&mut draft, 1, 3, &[2; MIB as usize]);
        let records = draft.take_fresh().records;
        let mut again = Draft::new(draft.map());
        assert!(records.iter().all(|record| again.recorded(*record)));
        assert_eq!((again.root(), again.spot(ChunkIndex(1))), (draft.root(), draft.spot(ChunkIndex(1))));
        assert_eq!(again.place(ChunkIndex(0), TargetId(3)).slot, 2, "no slot is given twice");
        let beyond = Record::Chunk { index: ChunkIndex(2), spot: None, digest: [0; 32] };
        assert!(!again.recorded(beyond));
    }
}
