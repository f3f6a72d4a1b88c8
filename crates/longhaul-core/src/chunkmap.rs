//! How a file is cut into chunks. Pure arithmetic on a length and a chunk size.

use serde::{Deserialize, Serialize};

use crate::limits::STREAM_BYTES_MAX;
use crate::units::{ChunkIndex, ChunkSize, FileOffset};

/// The geometry of one file: its frozen length and its chunk size. The chunk size belongs to the
/// file, not to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkMap {
    len: u64,
    size: ChunkSize,
}

/// The kind of a chunk's digest, fixed by its file's length: the whole file's root, or a chaining
/// value of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DigestKind {
    /// The file is this one chunk (or empty).
    Root,
    /// The file is longer than one chunk.
    Cv,
}

impl ChunkMap {
    /// The map of a file of `len` bytes in chunks of `size`.
    pub const fn new(len: u64, size: ChunkSize) -> ChunkMap {
        ChunkMap { len, size }
    }

    /// The map of a stream whose end is not known: whole chunks, more than there will ever be.
    pub const fn unended(size: ChunkSize) -> ChunkMap {
        ChunkMap { len: STREAM_BYTES_MAX, size }
    }

    /// Whether it is the map of a stream whose end is not known. No file is as long.
    pub const fn is_unended(self) -> bool {
        self.len == STREAM_BYTES_MAX
    }

    /// The number of chunks that are as long as a chunk can be.
    pub const fn whole_chunks(self) -> u64 {
        self.len >> self.size.log2()
    }

    /// The file's length.
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether the file is empty: it then has one chunk of no bytes.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The chunk size.
    pub const fn size(self) -> ChunkSize {
        self.size
    }

    /// The number of chunks: at least one, as the empty file has a root too.
    pub const fn chunks(self) -> u64 {
        let whole = self.len >> self.size.log2();
        let rest = (self.len & (self.size.bytes() - 1) != 0) as u64;
        if whole + rest == 0 { 1 } else { whole + rest }
    }

    /// The bytes of chunk `index`, or `None` if the file has no such chunk.
    pub const fn len_of(self, index: ChunkIndex) -> Option<u64> {
        if index.0 >= self.chunks() {
            return None;
        }
        let left = self.len - (index.0 << self.size.log2());
        Some(if left < self.size.bytes() { left } else { self.size.bytes() })
    }

    /// The position where chunk `index` starts.
    pub const fn start_of(self, index: ChunkIndex) -> FileOffset {
        index.start(self.size)
    }

    /// The kind of each chunk's digest.
    pub const fn kind(self) -> DigestKind {
        if self.len <= self.size.bytes() { DigestKind::Root } else { DigestKind::Cv }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_file_exactly() {
        let size = ChunkSize::from_log2(20).unwrap_or(ChunkSize::DEFAULT);
        let c = size.bytes();
        for (len, chunks, kind) in [
            (0, 1, DigestKind::Root),
            (1, 1, DigestKind::Root),
            (c - 1, 1, DigestKind::Root),
            (c, 1, DigestKind::Root),
            (c + 1, 2, DigestKind::Cv),
            (3 * c + 7, 4, DigestKind::Cv),
            (u64::MAX, u64::MAX / c + 1, DigestKind::Cv),
        ] {
            let map = ChunkMap::new(len, size);
            assert_eq!((map.chunks(), map.kind()), (chunks, kind), "{len}");
            assert_eq!(map.len_of(ChunkIndex(chunks)), None);
            let last = ChunkIndex(chunks - 1);
            assert_eq!(map.start_of(last).0 + map.len_of(last).unwrap_or(u64::MAX), len);
        }
    }
}
