//! What an earlier session left of a file: which chunks are held, and their digests.
//!
//! Comes from whoever keeps journals, with the survey of a name; `large` continues from it. Verified, synced and journalled
//! once: it is believed as it is when the source is the same, and compared chunk by chunk when only its length is.

use std::collections::BTreeMap;

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::{ChunkIndex, ChunkMap, DigestKind};

/// Part of a file that is held under a temporary name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    map: ChunkMap,
    source: Source,
    /// Runs of chunks, by the first of each; they neither touch nor overlap.
    runs: BTreeMap<u64, Vec<Hash32>>,
    chunks: u64,
}

/// Whether a partial was made of what is offered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The same file, unchanged since.
    Same,
    /// Another version of equal length.
    Changed,
}

/// What holds from a chunk on, up to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stretch {
    Held { end: ChunkIndex },
    Missing { end: ChunkIndex },
}

impl Partial {
    /// A partial of which nothing is held yet.
    pub const fn new(map: ChunkMap, source: Source) -> Partial {
        Partial { map, source, runs: BTreeMap::new(), chunks: 0 }
    }

    /// Adds digests of chunks from `start` on. Chunks that the file does not have and those that are in already are left out.
    pub fn hold(&mut self, start: ChunkIndex, digests: &[Hash32]) {
        for (index, digest) in (start.0..self.map.chunks()).zip(digests) {
            self.hold_one(index, *digest);
        }
    }

    fn hold_one(&mut self, index: u64, digest: Hash32) {
        if self.get(ChunkIndex(index)).is_some() {
            return;
        }
        self.chunks += 1;
        let follows = self.runs.remove(&(index + 1));
        let before = self.runs.range_mut(..index).next_back();
        let run = match before {
            Some((start, run)) if start + run.len() as u64 == index => run,
            _ => self.runs.entry(index).or_default(),
        };
        run.push(digest);
        run.extend(follows.unwrap_or_default());
    }

    /// The geometry of the file: its chunk size is the partial's own.
    pub const fn map(&self) -> ChunkMap {
        self.map
    }

    /// Whether it was made of what is offered now.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// How many chunks are held.
    pub const fn chunks(&self) -> u64 {
        self.chunks
    }

    /// How many bytes are held.
    pub fn bytes(&self) -> u64 {
        let last = ChunkIndex(self.map.chunks() - 1);
        let whole = self.chunks * self.map.size().bytes();
        match self.get(last).and(self.map.len_of(last)) {
            Some(len) => whole - self.map.size().bytes() + len,
            None => whole,
        }
    }

    /// The digest of a chunk, if it is held.
    pub fn get(&self, index: ChunkIndex) -> Option<Hash32> {
        let (start, run) = self.runs.range(..=index.0).next_back()?;
        run.get(usize::try_from(index.0 - start).ok()?).copied()
    }

    /// All chunks that are held, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ChunkIndex, Digest)> {
        let kind = self.map.kind();
        let run = move |(start, run): (&u64, &'_ Vec<Hash32>)| {
            let start = *start;
            (start..).zip(run.clone()).map(move |(at, hash)| (ChunkIndex(at), of_kind(kind, hash)))
        };
        self.runs.iter().flat_map(run)
    }

    /// The digests of `count` chunks from `start` on, all of which are held.
    pub(super) fn digests(&self, start: ChunkIndex, count: u64) -> Vec<Hash32> {
        (start.0..start.0 + count).filter_map(|at| self.get(ChunkIndex(at))).collect()
    }

    /// How far what holds at `index` goes.
    pub(super) fn stretch(&self, index: ChunkIndex) -> Stretch {
        if let Some((start, run)) = self.runs.range(..=index.0).next_back()
            && index.0 - start < run.len() as u64
        {
            return Stretch::Held { end: ChunkIndex(start + run.len() as u64) };
        }
        let next = self.runs.range(index.0..).next().map_or(self.map.chunks(), |(start, _)| *start);
        Stretch::Missing { end: ChunkIndex(next) }
    }
}

/// A chunk's digest as what it is in its file.
pub(super) const fn of_kind(kind: DigestKind, hash: Hash32) -> Digest {
    match kind {
        DigestKind::Root => Digest::Root(hash),
        DigestKind::Cv => Digest::Cv(hash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::ChunkSize;

    fn partial(len: u64) -> Partial {
        Partial::new(ChunkMap::new(len, ChunkSize::from_log2(10).expect("a size")), Source::Same)
    }

    #[test]
    fn chunks_in_any_order_make_the_same_runs() {
        let mut held = partial(10 << 10);
        for at in [4, 2, 7, 3, 9, 2, 8] {
            held.hold(ChunkIndex(at), &[[at as u8; 32]]);
        }
        assert_eq!(held.chunks(), 6);
        assert_eq!(held.runs.keys().copied().collect::<Vec<_>>(), [2, 7]);
        let iter: Vec<_> = held.iter().map(|(at, digest)| (at.0, digest.bytes()[0])).collect();
        assert_eq!(iter, [(2, 2), (3, 3), (4, 4), (7, 7), (8, 8), (9, 9)]);
        assert_eq!(held.stretch(ChunkIndex(0)), Stretch::Missing { end: ChunkIndex(2) });
        assert_eq!(held.stretch(ChunkIndex(3)), Stretch::Held { end: ChunkIndex(5) });
        assert_eq!(held.stretch(ChunkIndex(5)), Stretch::Missing { end: ChunkIndex(7) });
        assert_eq!(held.digests(ChunkIndex(3), 2), [[3; 32], [4; 32]]);
    }

    #[test]
    fn what_the_file_does_not_have_is_not_held_and_the_last_chunk_counts_its_own_length() {
        let mut held = partial((3 << 10) + 7);
        held.hold(ChunkIndex(2), &[[1; 32]; 5]);
        assert_eq!((held.chunks(), held.bytes()), (2, 1024 + 7));
        assert_eq!(held.stretch(ChunkIndex(2)), Stretch::Held { end: ChunkIndex(4) });
        held.hold(ChunkIndex(0), &[[1; 32]]);
        assert_eq!(held.bytes(), 2048 + 7);
    }
}
