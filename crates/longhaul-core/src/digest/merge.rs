//! Chunk digests in any order into the root of their file.
//!
//! Takes the [`Digest`] of each chunk from whoever verified it; gives the file's root once all are in. Two finished
//! siblings become their parent at once, so what is held goes by how far out of order chunks arrive, not by their number.
//! Must not know how digests are made, declared or stored.

use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{Digest, Hash32};
use crate::chunkmap::{ChunkMap, DigestKind};
use crate::units::ChunkIndex;

/// Merges the chunks of one file, in any order, each once.
///
/// BLAKE3 splits a tree at the largest power of two below its length. Seen from the leaves: on each level neighbours
/// pair up, and a last one without a neighbour rises as it is.
#[derive(Clone, Debug)]
pub struct RootMerger {
    map: ChunkMap,
    /// Finished subtrees by their first chunk. They are disjoint, and no two of them are siblings.
    subtrees: BTreeMap<u64, Subtree>,
    root: Option<Hash32>,
    inserted: u64,
}

/// The subtree of `2^level` chunks from its key on, less what the file's end cuts off.
#[derive(Clone, Copy, Debug)]
struct Subtree {
    level: u32,
    cv: Hash32,
}

/// A run of chunks that is one subtree, and its digest: what was merged of a file, said in few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its first chunk.
    pub start: ChunkIndex,
    /// How many chunks it has: a power of two, or what the file's end leaves of one.
    pub chunks: u64,
    /// The root if it is the whole file, else a chaining value.
    pub digest: Digest,
}

/// Why a digest was not taken. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The file has no such chunk.
    #[error("there is no chunk {} in a file of {chunks}", index.0)]
    OutOfRange {
        /// The chunk that was given.
        index: ChunkIndex,
        /// How many the file has.
        chunks: u64,
    },
    /// The chunk is in already, with whatever digest.
    #[error("chunk {} was merged before", index.0)]
    Duplicate {
        /// The chunk that was given.
        index: ChunkIndex,
    },
    /// A run of chunks that is no subtree of this file.
    #[error("chunks from {} on, {chunks} of them, are no subtree", index.0)]
    NoSubtree {
        /// The first chunk that was given.
        index: ChunkIndex,
        /// How many were given.
        chunks: u64,
    },
    /// The file's length asks for the other kind of digest.
    #[error("the digest of chunk {} must be a {want:?}", index.0)]
    WrongKind {
        /// The chunk that was given.
        index: ChunkIndex,
        /// What its digest must be.
        want: DigestKind,
    },
}

impl RootMerger {
    /// Nothing merged yet of the file that `map` describes.
    pub const fn new(map: ChunkMap) -> RootMerger {
        RootMerger { map, subtrees: BTreeMap::new(), root: None, inserted: 0 }
    }

    /// Takes the digest of one chunk.
    ///
    /// # Errors
    /// [`MergeError`] when the chunk is none of this file's, is in already, or its digest is of the wrong kind.
    pub fn insert(&mut self, index: ChunkIndex, digest: Digest) -> Result<(), MergeError> {
        let (chunks, want) = (self.map.chunks(), self.map.kind());
        if index.0 >= chunks {
            return Err(MergeError::OutOfRange { index, chunks });
        }
        if digest.kind() != want {
            return Err(MergeError::WrongKind { index, want });
        }
        if self.contains(index) {
            return Err(MergeError::Duplicate { index });
        }
        match digest {
            Digest::Root(root) => self.root = Some(root),
            Digest::Cv(cv) => self.rise(index.0, 0, cv),
        }
        self.inserted += 1;
        Ok(())
    }

    /// Takes a whole subtree, as [`RootMerger::parts`] of another merger of the same file gives it.
    ///
    /// # Errors
    /// [`MergeError`] when it is no subtree of this file, when any of it is in already, or when its digest is of the wrong kind.
    pub fn insert_part(&mut self, part: &Part) -> Result<(), MergeError> {
        let (chunks, index) = (self.map.chunks(), part.start);
        let level = part.chunks.max(1).next_power_of_two().trailing_zeros();
        let end = index.0.checked_add(part.chunks).filter(|end| *end <= chunks);
        let Some(end) = end.filter(|_| part.chunks > 0) else {
            return Err(MergeError::OutOfRange { index, chunks });
        };
        let whole = part.chunks == chunks;
        let aligned = index.0.is_multiple_of(1 << level) && (part.chunks == 1 << level || end == chunks);
        if !aligned {
            return Err(MergeError::NoSubtree { index, chunks: part.chunks });
        }
        let want = if whole { DigestKind::Root } else { DigestKind::Cv };
        if part.digest.kind() != want {
            return Err(MergeError::WrongKind { index, want });
        }
        if self.root.is_some()
            || self.subtrees.range(..end).next_back().is_some_and(|(start, s)| start + (1 << s.level) > index.0)
        {
            return Err(MergeError::Duplicate { index });
        }
        match part.digest {
            Digest::Root(root) => self.root = Some(root),
            Digest::Cv(cv) => self.rise(index.0, level, cv),
        }
        self.inserted += part.chunks;
        Ok(())
    }

    /// What is in, in as few subtrees as there are, in order.
    pub fn parts(&self) -> Vec<Part> {
        if let Some(root) = self.root {
            return vec![Part { start: ChunkIndex(0), chunks: self.map.chunks(), digest: Digest::Root(root) }];
        }
        let part = |(start, subtree): (&u64, &Subtree)| Part {
            start: ChunkIndex(*start),
            chunks: (1 << subtree.level).min(self.map.chunks() - start),
            digest: Digest::Cv(subtree.cv),
        };
        self.subtrees.iter().map(part).collect()
    }

    /// Whether the chunk is in.
    pub fn contains(&self, index: ChunkIndex) -> bool {
        self.held_until(index) > index.0
    }

    /// Whether all chunks from `start` up to `end` are in.
    pub fn contains_all(&self, start: ChunkIndex, end: ChunkIndex) -> bool {
        let mut at = start.0;
        while at < end.0 {
            let until = self.held_until(ChunkIndex(at));
            if until <= at {
                return false;
            }
            at = until;
        }
        true
    }

    /// The end of the subtree that holds the chunk; the chunk itself if none does.
    fn held_until(&self, index: ChunkIndex) -> u64 {
        let chunks = self.map.chunks();
        if self.root.is_some() {
            return chunks;
        }
        // Subtrees are disjoint: only the last one that starts at or before the chunk can hold it.
        let before = self.subtrees.range(..=index.0).next_back();
        let end = before.map_or(0, |(start, subtree)| (start + (1 << subtree.level)).min(chunks));
        end.max(index.0)
    }

    /// The digest of the file, once every chunk is in.
    pub const fn root(&self) -> Option<Hash32> {
        self.root
    }

    /// How many chunks are in.
    pub const fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Joins the subtree with its sibling, their parent with its own, and so on until a sibling is missing.
    fn rise(&mut self, mut start: u64, from: u32, mut cv: Hash32) {
        let chunks = self.map.chunks();
        for level in from.. {
            let sibling = start ^ (1 << level);
            if sibling >= chunks {
                continue;
            }
            let Some(other) = self.take(sibling, level) else {
                self.subtrees.insert(start, Subtree { level, cv });
                return;
            };
            let (left, right) = if sibling < start { (&other, &cv) } else { (&cv, &other) };
            if chunks <= 2 << level {
                self.root = Some(*merge_subtrees_root(left, right, Mode::Hash).as_bytes());
                return;
            }
            cv = merge_subtrees_non_root(left, right, Mode::Hash);
            start = start.min(sibling);
        }
    }

    /// Removes the subtree at `start` if it has grown to `level`.
    fn take(&mut self, start: u64, level: u32) -> Option<Hash32> {
        let subtree = *self.subtrees.get(&start)?;
        if subtree.level != level {
            return None;
        }
        self.subtrees.remove(&start);
        Some(subtree.cv)
    }

    /// In how many parts it is held: what it costs.
    pub fn parts_held(&self) -> usize {
        self.subtrees.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::digest::digest_of;
    use crate::units::ChunkSize;

    fn map(len: u64, log2: u8) -> ChunkMap {
        ChunkMap::new(len, ChunkSize::from_log2(log2).expect("in range"))
    }

    fn content(len: u64) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
    }

    fn chunk_digest(bytes: &[u8], map: ChunkMap, index: u64) -> Digest {
        let index = ChunkIndex(index);
        let start = map.start_of(index);
        let len = map.len_of(index).expect("a chunk of the file");
        digest_of(&bytes[start.0 as usize..][..len as usize], map.kind(), start)
    }

    /// Merges the chunks in `order`; checks that the root appears with the last and not before.
    fn merged(bytes: &[u8], map: ChunkMap, order: impl IntoIterator<Item = u64>) -> Hash32 {
        let mut merger = RootMerger::new(map);
        for (count, index) in order.into_iter().enumerate() {
            assert_eq!((merger.root(), merger.inserted()), (None, count as u64));
            assert!(!merger.contains(ChunkIndex(index)));
            assert_eq!(merger.insert(ChunkIndex(index), chunk_digest(bytes, map, index)), Ok(()));
            assert!(merger.contains(ChunkIndex(index)));
        }
        assert_eq!((merger.inserted(), merger.parts_held()), (map.chunks(), 0));
        merger.root().expect("all chunks are in")
    }

    /// A file of `n` chunks and all of them in order; the digests are made up.
    fn in_order(chunks: u64) -> (RootMerger, usize) {
        let mut merger = RootMerger::new(map(chunks << 10, 10));
        let mut most = 0;
        for index in 0..chunks {
            assert_eq!(merger.insert(ChunkIndex(index), Digest::Cv([index as u8; 32])), Ok(()));
            most = most.max(merger.parts_held());
        }
        (merger, most)
    }

    #[test]
    fn edge_lengths_merge_to_the_hash_of_the_file() {
        for log2 in [10, 12, 14] {
            let c = 1u64 << log2;
            for len in
                [0, 1, 1023, 1024, 1025, c - 1, c, c + 1, 2 * c - 1, 2 * c, 2 * c + 1, 5 * c + 7, 8 * c, 11 * c + 1]
            {
                let (bytes, map) = (content(len), map(len, log2));
                let want = *blake3::hash(&bytes).as_bytes();
                assert_eq!(merged(&bytes, map, 0..map.chunks()), want, "{len} forwards");
                assert_eq!(merged(&bytes, map, (0..map.chunks()).rev()), want, "{len} backwards");
            }
        }
    }

    #[test]
    fn what_does_not_belong_is_refused_and_changes_nothing() {
        let (bytes, map) = (content(5 << 10), map(5 << 10, 10));
        let mut merger = RootMerger::new(map);
        let (index, chunks) = (ChunkIndex(5), 5);
        assert_eq!(merger.insert(index, Digest::Cv([0; 32])), Err(MergeError::OutOfRange { index, chunks }));
        let index = ChunkIndex(1);
        let wrong = MergeError::WrongKind { index, want: DigestKind::Cv };
        assert_eq!(merger.insert(index, Digest::Root([0; 32])), Err(wrong));
        for next in [4, 2, 3, 0, 1] {
            assert_eq!(merger.insert(ChunkIndex(next), chunk_digest(&bytes, map, next)), Ok(()));
            let index = ChunkIndex(next);
            assert_eq!(merger.insert(index, Digest::Cv([9; 32])), Err(MergeError::Duplicate { index }));
        }
        assert_eq!((merger.root(), merger.inserted()), (Some(*blake3::hash(&bytes).as_bytes()), 5));
    }

    #[test]
    fn parts_of_one_merger_and_the_chunks_that_it_lacks_make_another_whole() {
        for chunks in [1u64, 2, 5, 6, 7, 8, 13] {
            let (bytes, map) = (content((chunks << 10) - 3), map((chunks << 10) - 3, 10));
            for held in 0..1u64 << chunks {
                let (mut some, mut other) = (RootMerger::new(map), RootMerger::new(map));
                for index in (0..chunks).filter(|at| held >> at & 1 == 1) {
                    some.insert(ChunkIndex(index), chunk_digest(&bytes, map, index)).expect("once");
                }
                let parts = some.parts();
                assert_eq!(parts.iter().map(|part| part.chunks).sum::<u64>(), u64::from(held.count_ones()));
                for part in parts {
                    other.insert_part(&part).expect("a part");
                    let index = part.start;
                    assert_eq!(other.insert_part(&part), Err(MergeError::Duplicate { index }));
                }
                for index in (0..chunks).filter(|at| held >> at & 1 == 0) {
                    other.insert(ChunkIndex(index), chunk_digest(&bytes, map, index)).expect("once");
                }
                assert_eq!(other.root(), Some(*blake3::hash(&bytes).as_bytes()), "{chunks} {held:b}");
                assert_eq!(other.inserted(), chunks);
            }
        }
    }

    #[test]
    fn a_part_that_is_no_subtree_of_the_file_is_refused() {
        let part = |start, chunks, digest| Part { start: ChunkIndex(start), chunks, digest };
        let cv = Digest::Cv([1; 32]);
        for (start, chunks, digest) in [
            (1, 2, cv),
            (0, 3, cv),
            (0, 0, cv),
            (4, 4, cv),
            (u64::MAX, 2, cv),
            (0, 7, cv),
            (2, 2, Digest::Root([1; 32])),
        ] {
            let mut merger = RootMerger::new(map(7 << 10, 10));
            assert!(merger.insert_part(&part(start, chunks, digest)).is_err(), "{start} {chunks}");
            assert_eq!(merger.inserted(), 0);
        }
    }

    #[test]
    fn a_file_of_one_chunk_takes_only_a_root() {
        let index = ChunkIndex(0);
        let mut merger = RootMerger::new(map(0, 10));
        let wrong = MergeError::WrongKind { index, want: DigestKind::Root };
        assert_eq!(merger.insert(index, Digest::Cv([1; 32])), Err(wrong));
        assert_eq!(merger.insert(index, Digest::Root([1; 32])), Ok(()));
        assert_eq!(merger.insert(index, Digest::Root([1; 32])), Err(MergeError::Duplicate { index }));
        assert_eq!(merger.root(), Some([1; 32]));
    }

    #[test]
    fn chunks_in_order_hold_one_value_per_level() {
        for chunks in [2, 3, 1000, 1024, 100_003] {
            let (merger, most) = in_order(chunks);
            assert!(merger.root().is_some());
            assert!(most <= 64 - chunks.leading_zeros() as usize, "{most} values for {chunks} chunks");
        }
    }

    #[test]
    fn the_longest_file_can_be_started() {
        let map = map(u64::MAX, 10);
        let mut merger = RootMerger::new(map);
        for index in [0, 1, map.chunks() - 1, map.chunks() - 2] {
            assert_eq!(merger.insert(ChunkIndex(index), Digest::Cv([3; 32])), Ok(()));
            assert!(merger.contains(ChunkIndex(index)));
        }
        assert_eq!((merger.parts_held(), merger.root()), (2, None));
    }

    fn shuffled_file() -> impl Strategy<Value = (u64, u8, Vec<u64>)> {
        (10u8..=14, 0u64..200_000).prop_flat_map(|(log2, len)| {
            let order: Vec<u64> = (0..map(len, log2).chunks()).collect();
            (Just(len), Just(log2), Just(order).prop_shuffle())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_order_of_any_file_gives_its_hash((len, log2, order) in shuffled_file()) {
            let bytes = content(len);
            prop_assert_eq!(merged(&bytes, map(len, log2), order), *blake3::hash(&bytes).as_bytes());
        }

        #[test]
        fn any_chunk_is_refused_a_second_time((len, log2, order) in shuffled_file(), upto in any::<prop::sample::Index>()) {
            let map = map(len, log2);
            let digest = |byte| match map.kind() {
                DigestKind::Root => Digest::Root([byte; 32]),
                DigestKind::Cv => Digest::Cv([byte; 32]),
            };
            let (first, rest) = order.split_at(upto.index(order.len()) + 1);
            let mut merger = RootMerger::new(map);
            for &index in first {
                prop_assert_eq!(merger.insert(ChunkIndex(index), digest(1)), Ok(()));
            }
            for &index in first {
                let index = ChunkIndex(index);
                prop_assert_eq!(merger.insert(index, digest(2)), Err(MergeError::Duplicate { index }));
            }
            for &index in rest {
                prop_assert!(!merger.contains(ChunkIndex(index)));
            }
        }
    }
}
