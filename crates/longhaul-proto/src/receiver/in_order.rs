//! Reading in order: a file that is whole is read once more from its first byte to its last, for
//! the checksums that do not combine from those of its chunks, before it is sealed.
//!
//! In: files that are whole, and digests of the chunks that the disk gives back. Out: orders of a
//! few chunks each, in turn with those of other files. The bytes that were read must have the root
//! that the sender declared, so that a checksum is of the proven bytes or is none. Where chunks are
//! lost meanwhile, the reading begins again once they have come. A few files are read at a time,
//! and others wait for their turn. A drain waits for the orders under way. Knows no checksums.

use std::collections::BTreeSet;

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
/// Due       whole, the root the declared one, its turn    Reading
/// Reading   chunks read, others follow                    Reading
/// Reading   chunks read, while the session drains         Due
/// Reading   last chunks read, root is the declared one    Read
/// Reading   last chunks read, any other root              Due
/// Reading   the same once more, or an error; file fails   Unwanted
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

/// The files that are being read in order, and those that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct OrderedReadings {
    /// Orders that the disk has, at most one of each file.
    under_way: usize,
    /// Files that were whole when they came to wait. One that is not any more gives up its turn.
    waiting: BTreeSet<FileId>,
}

impl OrderedReadings {
    /// Whether a file more may be read.
    fn has_room(&self) -> bool {
        self.under_way < FILES_IN_ORDER_MAX
    }

    /// Panics unless the disk has so many orders.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn audit(&self, under_way: usize) {
        assert_eq!(self.under_way, under_way, "files that are read in order");
        assert!(under_way <= FILES_IN_ORDER_MAX, "{under_way} files are read in order");
    }
}

/// The outcome of an order.
enum Progress {
    /// Other chunks follow, from this one on.
    GoOn(ChunkIndex),
    /// The file is read, or has failed, or is to be read again.
    Over,
    /// The disk gave back other bytes. It is asked once more, and the file begins again.
    Again,
    /// It did so once more.
    Misread,
    /// It could not be read.
    Failed(Fault),
}

impl LargeTarget {
    /// Whether the file is to be read, and is not being read.
    fn is_due(&self) -> bool {
        matches!(self.checks.in_order, OrderedReading::Due)
    }

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
            if std::mem::replace(&mut self.checks.was_misread, true) {
                return Progress::Misread;
            }
            self.checks.in_order = OrderedReading::Due;
            return Progress::Again;
        }
        self.checks.in_order = OrderedReading::Read;
        Progress::Over
    }
}

impl Receiver {
    /// Orders the first chunks of a whole file, if it is to be read in order, or has it wait for
    /// its turn. False if it is not to be read, or was.
    pub(super) fn begin_in_order(&mut self, file: FileId) -> bool {
        if !self.large(file).is_some_and(|large| large.is_due()) {
            return false;
        }
        if !self.window.in_order.has_room() {
            self.window.in_order.waiting.insert(file);
            return true;
        }
        let Some(chunks) = self.large(file).and_then(LargeTarget::begin_in_order) else { return false };
        self.order_in_order(file, chunks);
        true
    }

    fn order_in_order(&mut self, file: FileId, chunks: Vec<ChunkIndex>) {
        self.window.in_order.under_way += 1;
        self.actions.push(ReceiverAction::ReadInOrder { file, chunks });
    }

    /// Lets files that wait take their turn.
    fn next_in_order(&mut self) {
        while self.window.in_order.has_room()
            && let Some(file) = self.window.in_order.waiting.pop_first()
        {
            self.proceed(file);
        }
    }

    /// The digests of chunks that were read in order: all chunks of one order, or those up to the
    /// first that could not be read.
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
        self.window.in_order.under_way = self.window.in_order.under_way.saturating_sub(1);
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
                self.order_in_order(file, some_from(map, next));
            }
            Progress::GoOn(_) | Progress::Over => {}
            Progress::Again => self.tally.misread += map.len(),
            Progress::Misread => {
                self.tally.misread += map.len();
                let fault = misread("the disk gives back other bytes of the file than were written to it");
                self.fail_file_leaving(file, fault, Leftover::Discard);
            }
            Progress::Failed(fault) => self.fail_file(file, fault),
        }
        self.proceed(file);
        self.next_in_order();
        self.settle_down(now);
    }
}

/// The chunks of one order, from this one on.
fn some_from(map: ChunkMap, from: ChunkIndex) -> Vec<ChunkIndex> {
    let count = (BYTES_AT_ONCE / map.size().bytes()).clamp(1, CHUNKS_AT_ONCE);
    (from.0..map.chunks().min(from.0.saturating_add(count))).map(ChunkIndex).collect()
}

/// Files that are read at a time. The disk reads with two threads, and what else is to be read back
/// waits behind no more orders than these.
pub const FILES_IN_ORDER_MAX: usize = 2;
/// Bytes of one order, but for a larger chunk. A drain waits for them, and so does whatever else is
/// to be read: a tenth of a second.
const BYTES_AT_ONCE: u64 = 16 << 20;
/// Chunks of one order at most.
const CHUNKS_AT_ONCE: u64 = 64;
