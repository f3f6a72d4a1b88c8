//! The rules of reading in order: a whole file, from its first chunk to its last, each order behind
//! the one before it.
//!
//! Takes orders and reports; panics at an order that nobody asked for, that comes before all is
//! written, or that leaves a chunk out. Believes every report.

use longhaul_core::{ChunkIndex, FileId};
use longhaul_proto::receiver::{ReceiverConfig, WantOrder};

use super::Rules;

/// Whether files are to be read in order. What leaves in sequence cannot be read.
pub(super) fn is_wanted(config: &ReceiverConfig) -> bool {
    !config.preserve.sums.in_order().is_empty() && !matches!(config.order, WantOrder::Sequence { .. })
}

impl Rules {
    /// An order begins a file, once again maybe, or goes on where the last one ended.
    pub(super) fn check_in_order(&mut self, file: FileId, chunks: &[ChunkIndex]) {
        assert!(self.must_read_in_order, "read in order without being asked to");
        let temp = self.temp(file);
        assert_eq!(temp.written.len() as u64, temp.map.chunks(), "read in order before all was written");
        let first = chunks.first().expect("an order is for a chunk at least").0;
        assert!(first == 0 || first == temp.in_order, "chunk {first} is read behind {} chunks", temp.in_order);
        assert!(chunks.iter().zip(first..).all(|(index, at)| index.0 == at), "out of order: {chunks:?}");
        temp.in_order = first + chunks.len() as u64;
        temp.outstanding += 1;
    }

    /// Chunks were read in order.
    pub(in crate::watched) fn read_in_order(&mut self, file: FileId) {
        self.temp(file).outstanding -= 1;
    }
}
