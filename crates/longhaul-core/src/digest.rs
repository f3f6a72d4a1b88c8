//! Digests: BLAKE3 of a chunk, and its place in the digest of the whole file.
//!
//! Takes bytes from the lanes and geometry from [`ChunkMap`](crate::ChunkMap); gives one [`Digest`]
//! per chunk, and through [`RootMerger`] the root that `b3sum` prints. Must not know files,
//! buffers, peers or threads.

mod merge;

pub use merge::{MergeError, RootMerger, TreePart};

use blake3::hazmat::HasherExt;
use serde::{Deserialize, Serialize};
use std::fmt;

use crate::checksum::{Algorithms, PartSums};
use crate::chunkmap::DigestKind;
use crate::units::FileOffset;

/// A BLAKE3 output. It stands bare only if its kind is beyond doubt; everywhere else it is a
/// [`Digest`].
pub type Hash32 = [u8; 32];

/// The digest of a chunk. Its kind is part of the value, so that a chaining value never passes for
/// a file's digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Digest {
    /// The digest of a whole file (or bundle), as `b3sum` prints it.
    Root(Hash32),
    /// The chaining value of a subtree; good only for merging.
    Cv(Hash32),
}

impl Digest {
    /// Its kind.
    pub const fn kind(&self) -> DigestKind {
        match self {
            Digest::Root(_) => DigestKind::Root,
            Digest::Cv(_) => DigestKind::Cv,
        }
    }

    /// The bytes, of either kind.
    pub const fn bytes(&self) -> &Hash32 {
        match self {
            Digest::Root(bytes) | Digest::Cv(bytes) => bytes,
        }
    }
}

/// 64 digits of lower case hex, as `b3sum` writes them.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.kind())
    }
}

/// Hashes one chunk, piece by piece in order.
#[derive(Clone, Debug)]
pub struct ChunkHasher {
    kind: DigestKind,
    state: blake3::Hasher,
    /// Further checksums of the chunk. `None`: none is wanted.
    sums: Option<PartSums>,
}

impl ChunkHasher {
    /// A hasher for the chunk at `start`, whose digest shall be of `kind` (both as its `ChunkMap`
    /// says).
    ///
    /// # Panics
    /// When `start` is not a multiple of 1 KiB, or not 0 for a root: such a chunk comes from no
    /// `ChunkMap`.
    pub fn new(kind: DigestKind, start: FileOffset) -> ChunkHasher {
        let mut state = blake3::Hasher::new();
        match kind {
            DigestKind::Root => assert_eq!(start.0, 0, "a root covers its file from the first byte"),
            DigestKind::Cv => _ = state.set_input_offset(start.0),
        }
        ChunkHasher { kind, state, sums: None }
    }

    /// The same hasher, which also computes those of `wanted` that combine, of the bytes to come,
    /// while they are in cache.
    #[must_use]
    pub fn summing(self, wanted: Algorithms) -> ChunkHasher {
        let wanted = wanted.combining();
        ChunkHasher { sums: (!wanted.is_empty()).then(|| PartSums::empty(wanted)), ..self }
    }

    /// Hashes the next bytes.
    ///
    /// # Panics
    /// When a chaining value gets more bytes than a subtree at its start can hold, which is never
    /// less than the chunk.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        if let Some(sums) = &mut self.sums {
            sums.update(bytes);
        }
    }

    /// Hashes the next `len` bytes as zeros, as for a hole.
    ///
    /// # Panics
    /// As [`ChunkHasher::update`].
    pub fn update_zeros(&mut self, len: u64) {
        let mut left = len;
        while left > 0 {
            let step = left.min(ZEROS.len() as u64);
            self.state.update(&ZEROS[..step as usize]);
            left -= step;
        }
        self.sums = self.sums.map(|sums| sums.then(PartSums::of_zeros(sums.wanted(), len)));
    }

    /// The further checksums of all bytes given. `None` if none is wanted.
    pub fn sums(&self) -> Option<PartSums> {
        self.sums
    }

    /// How many bytes were hashed.
    pub fn hashed(&self) -> u64 {
        self.state.count()
    }

    /// The digest of all bytes given.
    ///
    /// # Panics
    /// When a chaining value is asked of no bytes: only an empty file has an empty chunk, and that
    /// is a root.
    pub fn finish(self) -> Digest {
        match self.kind {
            DigestKind::Root => Digest::Root(*self.state.finalize().as_bytes()),
            DigestKind::Cv => Digest::Cv(self.state.finalize_non_root()),
        }
    }
}

/// The digest of a chunk that lies in memory.
///
/// # Panics
/// As [`ChunkHasher`].
pub fn digest_of(bytes: &[u8], kind: DigestKind, start: FileOffset) -> Digest {
    let mut hasher = ChunkHasher::new(kind, start);
    hasher.update(bytes);
    hasher.finish()
}

/// Long enough for the widest SIMD of BLAKE3 (16 KiB at once), short enough to stay in the first
/// cache levels.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Algorithm;

    #[test]
    fn a_root_is_what_b3sum_prints() {
        let empty = digest_of(b"", DigestKind::Root, FileOffset(0));
        assert_eq!(empty.to_string(), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
        assert_eq!(format!("{empty:?}"), format!("Root({empty})"));
    }

    #[test]
    fn pieces_give_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        for (kind, start) in [(DigestKind::Root, FileOffset(0)), (DigestKind::Cv, FileOffset(8192))] {
            let mut hasher = ChunkHasher::new(kind, start);
            bytes.chunks(777).for_each(|piece| hasher.update(piece));
            assert_eq!(hasher.hashed(), 5000);
            assert_eq!(hasher.finish(), digest_of(&bytes, kind, start));
        }
    }

    #[test]
    fn zeros_count_as_bytes_of_zero() {
        for len in [0, 1, ZEROS.len() - 1, ZEROS.len(), ZEROS.len() + 1, 3 * ZEROS.len() + 7] {
            let mut hasher = ChunkHasher::new(DigestKind::Root, FileOffset(0));
            hasher.update_zeros(len as u64);
            assert_eq!(hasher.finish(), digest_of(&vec![0; len], DigestKind::Root, FileOffset(0)), "{len}");
        }
    }

    #[test]
    fn further_checksums_are_those_of_all_pieces_and_change_no_digest() {
        let wanted = Algorithms::NONE.with(Algorithm::Adler32).with(Algorithm::Crc32c);
        let bytes = [&[7; 3000][..], &[0; 100_000], &[9; 5]].concat();
        let plain = ChunkHasher::new(DigestKind::Root, FileOffset(0));
        let in_order = Algorithms::NONE.with(Algorithm::Md5);
        assert_eq!((plain.sums(), plain.clone().summing(in_order).sums()), (None, None));
        let mut hasher = plain.summing(wanted);
        hasher.update(&bytes[..1000]);
        hasher.update(&bytes[1000..3000]);
        hasher.update_zeros(100_000);
        hasher.update(&bytes[103_000..]);
        let mut want = PartSums::empty(wanted);
        want.update(&bytes);
        assert_eq!(hasher.sums(), Some(want));
        assert_eq!(hasher.finish(), digest_of(&bytes, DigestKind::Root, FileOffset(0)));
    }

    #[test]
    fn kind_and_place_are_part_of_the_digest() {
        let at = |kind, start| digest_of(b"same bytes", kind, FileOffset(start));
        assert_ne!(at(DigestKind::Root, 0).bytes(), at(DigestKind::Cv, 0).bytes());
        assert_ne!(at(DigestKind::Cv, 0), at(DigestKind::Cv, 1024));
        assert_ne!(Digest::Root([7; 32]), Digest::Cv([7; 32]));
    }
}
