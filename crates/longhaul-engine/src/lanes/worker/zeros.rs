//! Keeps digests of chunks that lie wholly in holes.
//!
//! In: the kind, the place and the length of a chunk of zeros. Out: its digest, if this process
//! computed it lately. The chaining value of a chunk depends on its place, so the chunks of one
//! file differ; but the digest at one place is the same in every file, on both sides of a session
//! within a process, and at each further reading. It hashes nothing, and must not know lanes.

use std::sync::{Mutex, PoisonError};

use longhaul_core::digest::{ChunkHasher, Digest};
use longhaul_core::{DigestKind, FileOffset};

/// A chunk of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lanes) struct ZeroChunk {
    /// The kind of its digest.
    pub(in crate::lanes) kind: DigestKind,
    /// Its place in the file.
    pub(in crate::lanes) start: FileOffset,
    /// Its length, bytes.
    pub(in crate::lanes) len: u64,
}

/// Digests of chunks of zeros, a bounded number: a new one takes the place of another.
pub(super) struct ZeroDigests {
    shards: [Mutex<Vec<Option<KnownZeros>>>; SHARDS],
}

#[derive(Clone, Copy)]
struct KnownZeros {
    chunk: ZeroChunk,
    digest: Digest,
}

impl ZeroChunk {
    /// A hasher for it, which has no bytes yet.
    pub(super) fn hasher(self) -> ChunkHasher {
        ChunkHasher::new(self.kind, self.start)
    }

    /// The shard and the place there of its digest. Chunks that follow each other in a file have
    /// places of their own. `None`: to hash it costs about as much as to look.
    fn place(self) -> Option<(usize, usize)> {
        let number = self.start.0.checked_div(self.len).filter(|_| self.len >= KEPT_BYTES_MIN)?;
        let number = (number % (SHARDS * DIGESTS_OF_SHARD) as u64) as usize;
        Some((number % SHARDS, number / SHARDS))
    }
}

impl ZeroDigests {
    /// None yet.
    pub(super) const fn new() -> ZeroDigests {
        ZeroDigests { shards: [const { Mutex::new(Vec::new()) }; SHARDS] }
    }

    /// The digest of a chunk. `None`: it is to be hashed.
    pub(super) fn find(&self, chunk: ZeroChunk) -> Option<Digest> {
        let (shard, at) = chunk.place()?;
        let shard = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let known = shard.get(at).copied().flatten();
        known.filter(|known| known.chunk == chunk).map(|known| known.digest)
    }

    /// Keeps the digest of a chunk.
    pub(super) fn keep(&self, chunk: ZeroChunk, digest: Digest) {
        let Some((shard, at)) = chunk.place() else { return };
        let mut shard = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        if shard.is_empty() {
            shard.resize(DIGESTS_OF_SHARD, None);
        }
        if let Some(place) = shard.get_mut(at) {
            *place = Some(KnownZeros { chunk, digest });
        }
    }
}

/// Parts of the account that are locked one by one.
const SHARDS: usize = 16;
/// Digests of each: together those of 64 GiB in chunks of 4 MiB, in 1 MiB of memory.
const DIGESTS_OF_SHARD: usize = 1024;
/// Shorter chunks are hashed in less than 100 us.
const KEPT_BYTES_MIN: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn chunk(kind: DigestKind, start: u64, len: u64) -> ZeroChunk {
        ZeroChunk { kind, start: FileOffset(start), len }
    }

    #[test]
    fn a_digest_is_found_for_its_own_kind_place_and_length_alone() {
        let digests = ZeroDigests::new();
        let known = chunk(DigestKind::Cv, 8 * MIB, MIB);
        digests.keep(known, Digest::Cv([7; 32]));
        assert_eq!(digests.find(known), Some(Digest::Cv([7; 32])));
        for other in [
            chunk(DigestKind::Root, 8 * MIB, MIB),
            chunk(DigestKind::Cv, 9 * MIB, MIB),
            chunk(DigestKind::Cv, 16 * MIB, 2 * MIB),
            chunk(DigestKind::Cv, 8 * MIB, MIB + 1),
        ] {
            assert_eq!(digests.find(other), None, "{other:?}");
        }
    }

    #[test]
    fn chunks_in_a_row_all_have_places_and_those_far_behind_take_them() {
        let digests = ZeroDigests::new();
        let all = (SHARDS * DIGESTS_OF_SHARD) as u64;
        let at = |number: u64| chunk(DigestKind::Cv, number * MIB, MIB);
        (0..all).for_each(|number| digests.keep(at(number), Digest::Cv([number as u8; 32])));
        assert!((0..all).all(|number| digests.find(at(number)) == Some(Digest::Cv([number as u8; 32]))));
        digests.keep(at(all + 3), Digest::Cv([9; 32]));
        assert_eq!((digests.find(at(3)), digests.find(at(all + 3))), (None, Some(Digest::Cv([9; 32]))));
    }

    #[test]
    fn short_and_empty_chunks_are_not_kept() {
        let digests = ZeroDigests::new();
        for len in [0, 1, KEPT_BYTES_MIN - 1] {
            digests.keep(chunk(DigestKind::Root, 0, len), Digest::Root([1; 32]));
            assert_eq!(digests.find(chunk(DigestKind::Root, 0, len)), None, "{len}");
        }
    }
}
