//! The rules of reading in order: a whole file, from its first chunk to its last, each order behind
//! the reports of the one before it, and a few files at a time.
//!
//! Takes orders and reports; panics at an order that nobody asked for, that comes before all is
//! written or before the last one was reported, or that leaves a chunk out. Chunks count when they
//! were read as they were written, and none of them any more when one is lost.

use longhaul_core::{ChunkIndex, Digest, Fault, FileId};
use longhaul_proto::receiver::{FILES_IN_ORDER_MAX, ReceiverConfig, WantOrder};

use super::Rules;

/// Whether files are to be read in order. What leaves in sequence cannot be read.
pub(super) fn is_wanted(config: &ReceiverConfig) -> bool {
    !config.preserve.sums.in_order().is_empty() && !matches!(config.order, WantOrder::Sequence { .. })
}

/// How far a file was read in order.
#[derive(Debug, Default)]
pub(super) struct ReadSoFar {
    /// Chunks from the first on that were read, none of which was lost since.
    chunks: u64,
    /// Whether an order is under way.
    is_ordered: bool,
    /// Whether a chunk was lost since it was given.
    is_stale: bool,
}

impl ReadSoFar {
    /// Whether all chunks of a file of so many were read.
    pub(super) fn is_all(&self, chunks: u64) -> bool {
        self.chunks == chunks && !self.is_ordered
    }

    /// A chunk was lost.
    pub(super) fn lost(&mut self) {
        (self.chunks, self.is_stale) = (0, self.is_ordered);
    }
}

impl Rules {
    /// An order begins a file, once again maybe, or goes on where the last one ended.
    pub(super) fn check_in_order(&mut self, file: FileId, chunks: &[ChunkIndex]) {
        assert!(self.must_read_in_order, "read in order without being asked to");
        let read = self.temps.values().filter(|temp| temp.in_order.is_ordered).count();
        assert!(read < FILES_IN_ORDER_MAX, "{read} files are read in order already");
        let temp = self.temp(file);
        assert_eq!(temp.written.len() as u64, temp.map.chunks(), "read in order before all was written");
        let first = chunks.first().expect("an order is for a chunk at least").0;
        let so_far = &mut temp.in_order;
        assert!(!so_far.is_ordered, "two orders of a file at once");
        assert!(first == 0 || first == so_far.chunks, "chunk {first} is read behind {} chunks", so_far.chunks);
        assert!(chunks.iter().zip(first..).all(|(index, at)| index.0 == at), "out of order: {chunks:?}");
        *so_far = ReadSoFar { chunks: first, is_ordered: true, is_stale: false };
        temp.outstanding += 1;
    }

    /// Chunks were read in order, or not.
    pub(in crate::watched) fn read_in_order(&mut self, file: FileId, results: &[(ChunkIndex, Result<Digest, Fault>)]) {
        let temp = self.temp(file);
        temp.outstanding -= 1;
        temp.in_order.is_ordered = false;
        let is_good = |(index, result): &(ChunkIndex, Result<Digest, Fault>)| {
            result.as_ref().is_ok_and(|digest| temp.digests.get(&index.0) == Some(digest))
        };
        let good = results.iter().filter(|result| is_good(result)).count() as u64;
        temp.in_order.chunks += if temp.in_order.is_stale { 0 } else { good };
    }
}
