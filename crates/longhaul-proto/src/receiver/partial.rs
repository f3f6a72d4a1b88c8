//! A partial: the chunks of a file that an earlier session left, and their digests.
//!
//! Comes from the keeper of journals, with the survey of a name; `large` continues from it. Its
//! chunks were verified, synced and journalled once. If the source is unchanged they are believed;
//! if only its length is the same, they are compared one by one.

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::{ChunkIndex, ChunkMap, DigestKind};

use crate::journal::HeldChunks;

/// Part of a file that is held under a temporary name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    map: ChunkMap,
    source: Source,
    held: HeldChunks,
    /// Bytes that its temporary occupies on the destination's file system, as far as that is known.
    occupied: u64,
}

/// Whether a partial was made of the source that is offered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The same file, unchanged since.
    Same,
    /// Another version of equal length.
    Changed,
}

/// A stretch of chunks that are all held or all missing. A long stretch may be given in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartialStretch {
    Held { end: ChunkIndex },
    Missing { end: ChunkIndex },
}

impl Partial {
    /// The partial of a file of `map` that holds `held`.
    pub const fn new(map: ChunkMap, source: Source, held: HeldChunks) -> Partial {
        Partial { map, source, held, occupied: 0 }
    }

    /// The same partial, with a temporary that occupies `bytes`: more than are held, if some were
    /// written and not journalled or room was reserved ahead.
    #[must_use]
    pub fn occupying(self, bytes: u64) -> Partial {
        Partial { occupied: bytes, ..self }
    }

    /// The geometry of the file: its chunk size is the partial's own.
    pub const fn map(&self) -> ChunkMap {
        self.map
    }

    /// Whether it was made of the source that is offered now.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// How many bytes are held.
    pub fn bytes(&self) -> u64 {
        self.held.bytes(self.map)
    }

    /// Bytes of the file that need no more room at the destination.
    pub(super) fn occupied(&self) -> u64 {
        self.occupied.max(self.bytes())
    }

    /// The digest of a chunk, if it is held.
    pub fn get(&self, index: ChunkIndex) -> Option<Hash32> {
        self.held.get(index).copied()
    }

    /// All chunks that are held, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ChunkIndex, Digest)> {
        let kind = self.map.kind();
        self.held.iter().map(move |(index, hash)| (index, of_kind(kind, *hash)))
    }

    /// The chunks that are held, in order, from `index` on.
    pub(super) fn indices_from(&self, index: ChunkIndex) -> impl Iterator<Item = ChunkIndex> {
        self.held.iter_from(index).map(|(index, _)| index)
    }

    /// The digests of `count` chunks from `start` on, all of which are held.
    pub(super) fn digests(&self, start: ChunkIndex, count: u64) -> Vec<Hash32> {
        (start.0..start.0 + count).filter_map(|at| self.get(ChunkIndex(at))).collect()
    }

    /// The stretch that begins at `index`.
    pub(super) fn stretch(&self, index: ChunkIndex) -> PartialStretch {
        let mut end = index.0;
        for (at, _) in self.held.iter_from(index).take(STRETCH_MAX) {
            if at.0 != end {
                break;
            }
            end += 1;
        }
        if end > index.0 {
            return PartialStretch::Held { end: ChunkIndex(end) };
        }
        let next = self.held.iter_from(index).next().map_or(self.map.chunks(), |(at, _)| at.0);
        PartialStretch::Missing { end: ChunkIndex(next) }
    }
}

/// Held chunks that one call walks over, so that a call costs the same however many are held.
const STRETCH_MAX: usize = 1024;

/// The digest of a chunk, with the kind that its file has.
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

    #[test]
    fn stretches_say_what_is_held_and_what_is_missing_to_the_end() {
        let mut held = HeldChunks::new();
        for at in [2, 3, 4, 7] {
            held.insert(ChunkIndex(at), [at as u8; 32]);
        }
        let map = ChunkMap::new(10 << 10, ChunkSize::from_log2(10).expect("a size"));
        let partial = Partial::new(map, Source::Same, held);
        assert_eq!(partial.stretch(ChunkIndex(0)), PartialStretch::Missing { end: ChunkIndex(2) });
        assert_eq!(partial.stretch(ChunkIndex(3)), PartialStretch::Held { end: ChunkIndex(5) });
        assert_eq!(partial.stretch(ChunkIndex(5)), PartialStretch::Missing { end: ChunkIndex(7) });
        assert_eq!(partial.stretch(ChunkIndex(8)), PartialStretch::Missing { end: ChunkIndex(10) });
        assert_eq!(partial.digests(ChunkIndex(3), 2), [[3; 32], [4; 32]]);
    }
}
