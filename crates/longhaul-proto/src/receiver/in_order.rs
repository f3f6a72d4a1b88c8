//! Reading in order: a file that is whole is read once more from its first byte to its last, for
//! the checksums that do not combine from those of its chunks, before it is sealed.
//!
//! In: files that are whole, and digests of the chunks that the disk gives back. Out: orders of a
//! few chunks each, in turn with those of other files. The bytes that were read must have the root
//! that the sender declared, so that a checksum is of the proven bytes or is none. Where chunks are
//! lost meanwhile, the reading begins again once they have come. A drain waits for one order.
//! Knows no checksums.

use longhaul_core::digest::{Digest, RootMerger};
use longhaul_core::{Blame, ChunkIndex, ChunkMap, Fault, FaultCode, FileId};

use super::large::{LargeTarget, Leftover};
use super::order::{ReceiverConfig, WantOrder};
use super::readback::misread;
use super::{Receiver, ReceiverAction};
use crate::time::Timestamp;

/// How far a file is read in order.
///
/// ```text
/// state     event                                         next state
/// Due       the file is whole, its root the declared one  Reading
/// Reading   chunks read, others follow                    Reading
/// Reading   chunks read, while the session drains         Due
/// Reading   last chunks read, root is the declared one    Read
/// Reading   any other root, or an error; the file fails   Unwanted
/// Reading   a chunk is lost                               Stale
/// Stale     chunks read                                   Due
/// Read      a chunk is lost                               Due
/// ```
#[derive(Debug, Default)]
pub(super) enum OrderedReading {
    /// It is not to be read in order.
    #[default]
    Unwanted,
    /// It is, once it is whole.
    Due,
    /// An order is under way. With the chunks before it.
    Reading(RootMerger),
    /// An order is under way, and what was read is not what will be there.
    Stale,
    /// All of it was read.
    Read,
}

impl OrderedReading {
    /// The state of a file of which nothing is there. A stream that leaves in order has no bytes
    /// that can be read again.
    pub(super) fn under(config: &ReceiverConfig) -> OrderedReading {
        let is_wanted = !config.preserve.sums.in_order().is_empty();
        let leaves = matches!(config.order, WantOrder::Sequence { .. });
        if is_wanted && !leaves { OrderedReading::Due } else { OrderedReading::Unwanted }
    }

    /// Whether the disk has an order.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, OrderedReading::Reading(_) | OrderedReading::Stale)
    }

    /// Whether the file is read, or was, or will be.
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self, OrderedReading::Unwanted)
    }

    /// Notes that a chunk was lost.
    pub(super) fn lost(&mut self) {
        *self = match std::mem::take(self) {
            OrderedReading::Reading(_) | OrderedReading::Stale => OrderedReading::Stale,
            OrderedReading::Read | OrderedReading::Due => OrderedReading::Due,
            OrderedReading::Unwanted => OrderedReading::Unwanted,
        }
    }
}

/// The outcome of an order.
enum Progress {
    /// Other chunks follow, from this one on.
    GoOn(ChunkIndex),
    /// The file is read, or has failed, or is to be read again.
    Over,
    /// The disk gave back other bytes.
    Misread,
    /// It could not be read.
    Failed(Fault),
}

impl LargeTarget {
    /// Begins to read. `None` if the file is not to be read, or was.
    pub(super) fn begin_in_order(&mut self) -> Option<Vec<ChunkIndex>> {
        let OrderedReading::Due = self.checks.in_order else { return None };
        self.checks.in_order = OrderedReading::Reading(RootMerger::new(self.map));
        Some(some_from(self.map, ChunkIndex(0)))
    }

    /// Takes what the disk gave back.
    fn read_in_order(&mut self, results: Vec<(ChunkIndex, Result<Digest, Fault>)>) -> Progress {
        let mut merger = match std::mem::take(&mut self.checks.in_order) {
            OrderedReading::Reading(merger) => merger,
            OrderedReading::Stale => {
                self.checks.in_order = OrderedReading::Due;
                return Progress::Over;
            }
            other => {
                self.checks.in_order = other;
                return Progress::Over;
            }
        };
        let mut next = ChunkIndex(0);
        for (index, result) in results {
            let merged = result.and_then(|digest| {
                merger.insert(index, digest).map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))
            });
            if let Err(fault) = merged {
                return Progress::Failed(fault);
            }
            next = ChunkIndex(index.0 + 1);
        }
        let Some(root) = merger.root() else {
            self.checks.in_order = OrderedReading::Reading(merger);
            return Progress::GoOn(next);
        };
        if self.declared_root != Some(root) {
            return Progress::Misread;
        }
        self.checks.in_order = OrderedReading::Read;
        Progress::Over
    }
}

impl Receiver {
    /// Orders the first chunks of a whole file, if it is to be read in order. False if it is not,
    /// or was.
    pub(super) fn begin_in_order(&mut self, file: FileId) -> bool {
        let Some(chunks) = self.large(file).and_then(LargeTarget::begin_in_order) else { return false };
        self.actions.push(ReceiverAction::ReadInOrder { file, chunks });
        true
    }

    /// The digests of chunks that were read in order: all chunks of one order.
    pub fn handle_read_in_order(
        &mut self,
        now: Timestamp,
        file: FileId,
        results: Vec<(ChunkIndex, Result<Digest, Fault>)>,
    ) {
        if self.is_over() {
            return;
        }
        let is_draining = self.is_draining();
        let Some(large) = self.large(file) else { return };
        let read = results.iter().filter(|(_, result)| result.is_ok());
        let bytes: u64 = read.filter_map(|(index, _)| large.map.len_of(*index)).sum();
        let (map, progress) = (large.map, large.read_in_order(results));
        let goes_on = !is_draining && large.failed.is_none();
        if !goes_on && large.checks.in_order.is_under_way() {
            large.checks.in_order = OrderedReading::Due;
        }
        self.tally.read_back += bytes;
        match progress {
            Progress::GoOn(next) if goes_on => {
                self.actions.push(ReceiverAction::ReadInOrder { file, chunks: some_from(map, next) });
            }
            Progress::GoOn(_) | Progress::Over => {}
            Progress::Misread => {
                self.tally.misread += map.len();
                let fault = misread("the disk gives back other bytes of the file than were written to it");
                self.fail_file_leaving(file, fault, Leftover::Discard);
            }
            Progress::Failed(fault) => self.fail_file(file, fault),
        }
        self.proceed(file);
        self.settle_down(now);
    }
}

/// The chunks of one order, from this one on.
fn some_from(map: ChunkMap, from: ChunkIndex) -> Vec<ChunkIndex> {
    let count = (BYTES_AT_ONCE / map.size().bytes()).clamp(1, CHUNKS_AT_ONCE);
    (from.0..map.chunks().min(from.0.saturating_add(count))).map(ChunkIndex).collect()
}

/// Bytes of one order, but for a larger chunk. A drain waits for them, and so does whatever else is
/// to be read: some tenths of a second.
const BYTES_AT_ONCE: u64 = 64 << 20;
/// Chunks of one order at most.
const CHUNKS_AT_ONCE: u64 = 64;
