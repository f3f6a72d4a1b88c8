//! [`HeldChunks`]: the held chunks of a file with their digests, at little more than the size of
//! the digests.
//!
//! Filled by replay and read by the session that continues the file. Insertion costs about the same
//! in any order.

use std::collections::BTreeMap;
use std::ops::Range;

use longhaul_core::digest::Hash32;
use longhaul_core::{ChunkIndex, ChunkMap};

use crate::journal::Stretch;

/// A set of chunks with the digest of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldChunks {
    /// Pages by index / 256, so that an insertion moves at most one page of digests.
    pages: BTreeMap<u64, ChunkPage>,
    len: u64,
}

/// Up to 256 chunks in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ChunkPage {
    present: [u64; PAGE_CHUNKS as usize / 64],
    /// The digests of the chunks that are present, in order.
    digests: Vec<Hash32>,
}

impl HeldChunks {
    /// No chunks.
    pub fn new() -> HeldChunks {
        HeldChunks::default()
    }

    /// Adds a chunk. Gives the digest that it had before.
    pub fn insert(&mut self, index: ChunkIndex, digest: Hash32) -> Option<Hash32> {
        let before = self.pages.entry(index.0 / PAGE_CHUNKS).or_default().insert(within(index), digest);
        self.len += u64::from(before.is_none());
        before
    }

    /// Adds the chunks from `start` on, up to the last possible index.
    pub fn insert_run(&mut self, start: ChunkIndex, digests: &[Hash32]) {
        let mut next = Some(start.0);
        for digest in digests {
            let Some(index) = next else { return };
            self.insert(ChunkIndex(index), *digest);
            next = index.checked_add(1);
        }
    }

    /// Removes a chunk. Gives its digest.
    pub fn remove(&mut self, index: ChunkIndex) -> Option<Hash32> {
        let page = self.pages.get_mut(&(index.0 / PAGE_CHUNKS))?;
        let digest = page.remove(within(index))?;
        self.len -= 1;
        if page.digests.is_empty() {
            self.pages.remove(&(index.0 / PAGE_CHUNKS));
        }
        Some(digest)
    }

    /// Removes all chunks of a stretch, at the cost of those that are held.
    pub fn remove_stretch(&mut self, stretch: Stretch) {
        let end = stretch.start.0.saturating_add(stretch.count);
        let held: Vec<ChunkIndex> =
            self.iter_from(stretch.start).map(|(at, _)| at).take_while(|at| at.0 < end).collect();
        for index in held {
            self.remove(index);
        }
    }

    /// The digest of a chunk, if it is held.
    pub fn get(&self, index: ChunkIndex) -> Option<&Hash32> {
        let page = self.pages.get(&(index.0 / PAGE_CHUNKS))?;
        page.digests.get(page.rank(within(index)).ok()?)
    }

    /// Whether a chunk is held.
    pub fn contains(&self, index: ChunkIndex) -> bool {
        self.get(index).is_some()
    }

    /// How many chunks are held.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no chunk is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes of a file of this map are held.
    pub fn bytes(&self, map: ChunkMap) -> u64 {
        let last = ChunkIndex(map.chunks() - 1);
        let short = map.size().bytes() - map.len_of(last).unwrap_or(0);
        let whole = self.len.saturating_mul(map.size().bytes());
        if self.contains(last) { whole.saturating_sub(short) } else { whole }
    }

    /// The chunks and their digests, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ChunkIndex, &Hash32)> {
        self.iter_from(ChunkIndex(0))
    }

    /// The chunks from `start` on and their digests, in order.
    pub fn iter_from(&self, start: ChunkIndex) -> impl Iterator<Item = (ChunkIndex, &Hash32)> {
        self.pages
            .range(start.0 / PAGE_CHUNKS..)
            .flat_map(|(page, held)| held.iter().map(move |(at, digest)| (ChunkIndex(page * PAGE_CHUNKS + at), digest)))
            .skip_while(move |(at, _)| *at < start)
    }

    /// The held chunks as the longest possible stretches, in order.
    pub fn runs(&self) -> impl Iterator<Item = Stretch> {
        let mut chunks = self.iter().map(|(at, _)| at.0).peekable();
        std::iter::from_fn(move || {
            let start = chunks.next()?;
            let mut count = 1;
            while chunks.next_if(|at| at - start == count).is_some() {
                count += 1;
            }
            Some(Stretch { start: ChunkIndex(start), count })
        })
    }

    /// The chunks of a file of this map that are not held, as ranges of indices, in order.
    pub fn missing(&self, map: ChunkMap) -> impl Iterator<Item = Range<u64>> {
        let mut runs = self.runs();
        let (mut from, chunks) = (0, map.chunks());
        std::iter::from_fn(move || {
            while from < chunks {
                let (end, next) = match runs.next() {
                    Some(run) => (run.start.0.min(chunks), run.start.0.saturating_add(run.count)),
                    None => (chunks, chunks),
                };
                let gap = from..end;
                from = next;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }
}

impl ChunkPage {
    fn insert(&mut self, at: u64, digest: Hash32) -> Option<Hash32> {
        match self.rank(at) {
            Ok(rank) => Some(std::mem::replace(&mut self.digests[rank], digest)),
            Err(rank) => {
                self.present[(at / 64) as usize] |= 1 << (at % 64);
                self.digests.insert(rank, digest);
                None
            }
        }
    }

    fn remove(&mut self, at: u64) -> Option<Hash32> {
        let rank = self.rank(at).ok()?;
        self.present[(at / 64) as usize] &= !(1 << (at % 64));
        Some(self.digests.remove(rank))
    }

    /// The place of this chunk's digest among the digests: `Ok` if it is held, `Err` with the place
    /// where it would go if not.
    fn rank(&self, at: u64) -> Result<usize, usize> {
        let (word, bit) = ((at / 64) as usize, 1_u64 << (at % 64));
        let before: u32 = self.present[..word].iter().map(|word| word.count_ones()).sum();
        let rank = (before + (self.present[word] & (bit - 1)).count_ones()) as usize;
        if self.present[word] & bit != 0 { Ok(rank) } else { Err(rank) }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &Hash32)> {
        let present = (0..PAGE_CHUNKS).filter(|at| self.present[(at / 64) as usize] & (1 << (at % 64)) != 0);
        present.zip(&self.digests)
    }
}

/// The place of a chunk in its page.
fn within(index: ChunkIndex) -> u64 {
    index.0 % PAGE_CHUNKS
}

/// The chunks of a page. Larger pages make an insertion out of order dearer, smaller ones add to
/// the memory of each digest.
const PAGE_CHUNKS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::ChunkSize;
    use std::collections::BTreeMap;

    fn digest(n: u64) -> Hash32 {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        bytes
    }

    fn map(chunks: u64) -> ChunkMap {
        let size = ChunkSize::from_log2(10).expect("a size");
        ChunkMap::new(chunks * size.bytes() - 1, size)
    }

    #[test]
    fn it_is_a_map_in_any_order() {
        let (mut held, mut model) = (HeldChunks::new(), BTreeMap::new());
        let mut at = 7_u64;
        for n in 0..4000 {
            at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let index = (at >> 33) % 700;
            if at >> 60 < 4 {
                assert_eq!(held.remove(ChunkIndex(index)), model.remove(&index));
            } else {
                assert_eq!(held.insert(ChunkIndex(index), digest(n)), model.insert(index, digest(n)));
            }
            assert_eq!(held.len(), model.len() as u64);
        }
        assert!(held.iter().map(|(at, digest)| (at.0, *digest)).eq(model.iter().map(|(at, digest)| (*at, *digest))));
        for index in 0..800 {
            assert_eq!(held.get(ChunkIndex(index)), model.get(&index));
        }
        let from_runs: Vec<u64> = held.runs().flat_map(|run| run.start.0..run.start.0 + run.count).collect();
        assert!(from_runs.iter().eq(model.keys()));
        let missing: Vec<u64> = held.missing(map(800)).flatten().collect();
        assert!(missing.iter().copied().eq((0..800).filter(|at| !model.contains_key(at))));
    }

    #[test]
    fn runs_are_as_long_as_they_can_be_and_gaps_lie_between() {
        let mut held = HeldChunks::new();
        held.insert_run(ChunkIndex(250), &[[1; 32]; 20]);
        held.insert_run(ChunkIndex(3), &[[1; 32]; 2]);
        let stretch = |start, count| Stretch { start: ChunkIndex(start), count };
        assert!(held.runs().eq([stretch(3, 2), stretch(250, 20)]));
        assert!(held.missing(map(300)).eq([0..3, 5..250, 270..300]));
        assert!(held.missing(map(270)).eq([0..3, 5..250]));
        held.remove_stretch(stretch(251, u64::MAX));
        assert!(held.runs().eq([stretch(3, 2), stretch(250, 1)]));
        held.remove_stretch(stretch(0, 300));
        assert!(held.is_empty() && held.pages.is_empty());
        assert!(held.missing(map(2)).eq(std::iter::once(0..2)));
    }

    #[test]
    fn bytes_count_the_last_chunk_as_it_is() {
        let mut held = HeldChunks::new();
        held.insert(ChunkIndex(0), [0; 32]);
        assert_eq!(held.bytes(map(2)), 1024);
        held.insert(ChunkIndex(1), [0; 32]);
        assert_eq!(held.bytes(map(2)), 2047);
        let empty = ChunkMap::new(0, ChunkSize::DEFAULT);
        let mut held = HeldChunks::new();
        assert!(held.missing(empty).eq(std::iter::once(0..1)));
        held.insert(ChunkIndex(0), [0; 32]);
        assert_eq!((held.bytes(empty), held.missing(empty).count()), (0, 0));
    }

    #[test]
    fn the_last_possible_chunks_are_chunks_as_any() {
        let mut held = HeldChunks::new();
        held.insert_run(ChunkIndex(u64::MAX - 1), &[[1; 32]; 5]);
        assert_eq!(held.len(), 2);
        assert!(held.contains(ChunkIndex(u64::MAX)));
        held.remove_stretch(Stretch { start: ChunkIndex(0), count: u64::MAX });
        assert_eq!(held.len(), 1, "a stretch ends before the highest number");
    }
}
