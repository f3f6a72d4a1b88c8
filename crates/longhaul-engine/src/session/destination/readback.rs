//! Reads written files back from the medium, beside the rest of the transfer, into buffers of its
//! own. `standing` reads standing files with the same threads.
//!
//! In: synced chunks and durable small files, and whole files whose checksums need all bytes in
//! order. Out: their digests, for the machine to compare, and these checksums. It judges nothing
//! and knows no messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::digest::{Digest, digest_of};
use longhaul_core::limits::BUNDLED_FILE_BYTES_MAX;
use longhaul_core::{Algorithms, Blame, ChunkIndex, DigestKind, Fault, FaultCode, FileId, FileOffset, PartSums, hint};
use longhaul_disk::{Affinity, Back, DiskError, IoMode, TargetTree};
use longhaul_proto::receiver::ReadBackReason;
use longhaul_sys::{Slab, Slot};

use super::jobs::JobReporter;
use super::{DestinationDone, DestinationWorkers, bug};
use crate::budget::READ_BACK_SLOTS;
use crate::cpu::{Stage, StageTimes};
use crate::faults::system_fault;
use crate::workers::Workers;

/// Threads that read back, with a buffer each.
pub(super) struct Readers {
    slab: Arc<Slab>,
    /// Whether it was reported that direct I/O cannot be had.
    said: Arc<AtomicBool>,
    /// Whether nobody wants the digests any more.
    is_over: Arc<AtomicBool>,
    workers: Workers,
}

/// The means of one job.
pub(super) struct Reader {
    pub(super) slot: Slot,
    pub(super) times: StageTimes,
    said: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Readers {
    /// Maps the reserve and starts the threads. A buffer holds `slot_bytes`.
    pub(super) fn start(slot_bytes: usize, affinity: &Affinity) -> Result<Readers, Fault> {
        let slab = Slab::new(slot_bytes, READ_BACK_SLOTS).map_err(|e| {
            Fault::new(FaultCode::Unsupported, Blame::Local, format_args!("cannot map buffers to read back: {e}"))
                .hint(hint::Memory::LowerOrReadNothingBack)
        })?;
        let workers = Workers::start("read-back", READ_BACK_SLOTS, affinity)
            .map_err(|e| system_fault("threads that read back", &e))?;
        Ok(Readers { slab, said: Arc::default(), is_over: Arc::default(), workers })
    }

    /// Lends a reader to a job, which holds `under_way` and reports now or later.
    pub(super) fn lend(
        &self,
        reporter: JobReporter,
        under_way: Arc<()>,
        job: impl FnOnce(&dyn TargetTree, Reader) -> Option<DestinationDone> + Send + 'static,
    ) {
        let (slab, said, over) = (self.slab.clone(), self.said.clone(), self.is_over.clone());
        self.workers.run(move || {
            let _under_way = under_way;
            // There are as many buffers as threads; one may still be being written.
            let Some(slot) = slab.claim().filter(|_| !over.load(Ordering::Relaxed)) else { return };
            let times = reporter.times().clone();
            if let Some(report) = job(&**reporter.tree(), Reader { slot, times, said, is_over: over }) {
                reporter.say(report);
            }
        });
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl DestinationWorkers {
    /// Reads synced chunks back, and computes the further checksums of those that have none yet.
    pub(crate) fn read_back(&self, file: FileId, chunks: Vec<ChunkIndex>) {
        let open = self.files.get(file).cloned();
        let (wanted, reporter) = (self.sums.lacking(file, &chunks), self.jobs.reporter().clone());
        self.read(move |tree, reader| {
            let mut sums = Vec::new();
            let read = |index: ChunkIndex| {
                let open = open.as_ref().ok_or_else(|| bug("a look at a file that is not open"))?;
                let (start, len) = open.range_of(index);
                let read = |slot: &mut [u8]| tree.read_back(open.target(), open.place(index), len, slot);
                let digest = reader.digest(open.map().kind(), start, ReadBackReason::Verify, read)?;
                sums.extend(reader.sums(len, wanted).map(|part| (index, part)));
                Ok(digest)
            };
            let results = with_each(chunks, read);
            if !sums.is_empty() {
                reporter.say(DestinationDone::SumChunks(file, sums));
            }
            DestinationDone::ReadBack { file, results }
        });
    }

    /// Reads chunks of a whole file, which follow those that were read before, for its checksums.
    pub(crate) fn read_in_order(&mut self, file: FileId, chunks: Vec<ChunkIndex>) {
        let open = self.files.get(file).cloned();
        let mut hashing = self.sums.go_on_in_order(file, chunks.first().copied().unwrap_or(ChunkIndex(0)));
        self.read(move |tree, reader| {
            let read = |index: ChunkIndex| {
                let open = open.as_ref().ok_or_else(|| bug("a look at a file that is not open"))?;
                let (start, len) = open.range_of(index);
                let read = |slot: &mut [u8]| tree.read_back(open.target(), open.place(index), len, slot);
                let back = reader.times.count(Stage::Files, || read(&mut reader.slot))?;
                let bytes = &reader.slot[..back.len];
                Ok(reader.times.count(Stage::Hash, || {
                    hashing.update(bytes);
                    digest_of(bytes, open.map().kind(), start)
                }))
            };
            let results = in_turn(chunks, &reader.is_over, read);
            DestinationDone::ReadInOrder { file, results, hashing }
        });
    }

    /// Reads small files of the batch back, under the names that they have now.
    pub(crate) fn read_staged(&mut self, files: Vec<FileId>, why: ReadBackReason) {
        // Reading back may not have been asked for, but a sync failed.
        if let Err(fault) = self.reading.want_readers(DOUBT_SLOT_BYTES) {
            let results = with_each(files, |_| Err(fault.clone()));
            return self.jobs.reporter().say(DestinationDone::ReadStaged(results));
        }
        let batch = self.files.batch();
        self.read(move |tree, reader| {
            let staged = batch.by_file();
            let read = |file: FileId| {
                let staged = staged.get(&file).ok_or_else(|| bug("a look at what is not staged"))?;
                let read = |slot: &mut [u8]| {
                    let len = slot.len();
                    tree.read_staged(staged, len, slot)
                };
                reader.digest(DigestKind::Root, FileOffset(0), why, read).map(|digest| *digest.bytes())
            };
            DestinationDone::ReadStaged(with_each(files, read))
        });
    }

    /// Has a reader do a job and report it.
    pub(super) fn read(&self, job: impl FnOnce(&dyn TargetTree, &mut Reader) -> DestinationDone + Send + 'static) {
        self.lend(|tree, mut reader| Some(job(tree, &mut reader)));
    }

    /// Lends a reader to a job, which reports now or later.
    pub(super) fn lend(&self, job: impl FnOnce(&dyn TargetTree, Reader) -> Option<DestinationDone> + Send + 'static) {
        self.reading.lend(self.jobs.reporter(), job);
    }
}

impl Reader {
    /// The further checksums of the `len` bytes that were read last. `None`: none are wanted.
    pub(super) fn sums(&self, len: usize, wanted: Algorithms) -> Option<PartSums> {
        let bytes = self.slot.get(..len).filter(|_| !wanted.is_empty())?;
        let mut part = PartSums::empty(wanted);
        self.times.count(Stage::Hash, || part.update(bytes));
        Some(part)
    }

    /// The digest of the bytes that `read` finds.
    fn digest(
        &mut self,
        kind: DigestKind,
        start: FileOffset,
        why: ReadBackReason,
        read: impl FnOnce(&mut [u8]) -> Result<Back, DiskError>,
    ) -> Result<Digest, Fault> {
        let Reader { slot, times, said, .. } = self;
        let back = times.count(Stage::Files, || read(slot))?;
        if back.mode == IoMode::Buffered && why == ReadBackReason::Doubt {
            return Err(unproven());
        }
        if back.mode == IoMode::Buffered && !said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "longhaul::disk",
                "no direct I/O here: what is read back to verify it may come from memory, not from the medium"
            );
        }
        Ok(times.count(Stage::Hash, || digest_of(&slot[..back.len], kind, start)))
    }
}

/// The fault of a file whose sync failed, where direct I/O cannot be had: the page cache, which has
/// the written bytes in any case, proves nothing.
fn unproven() -> Fault {
    Fault::new(
        FaultCode::Io,
        Blame::Local,
        "the disk failed to write something, and this file system cannot be asked what it has",
    )
    .hint(hint::Storage::SeeKernelLog)
}

/// Bytes of a buffer to read back files that came in bundles.
const DOUBT_SLOT_BYTES: usize = BUNDLED_FILE_BYTES_MAX as usize;

pub(super) fn with_each<K: Copy, T>(keys: Vec<K>, of: impl FnMut(K) -> T) -> Vec<(K, T)> {
    let mut of = of;
    keys.into_iter().map(|key| (key, of(key))).collect()
}

/// As [`with_each`], up to the first error, and no further once nobody wants to know.
fn in_turn<K: Copy, T>(
    keys: Vec<K>,
    is_over: &AtomicBool,
    of: impl FnMut(K) -> Result<T, Fault>,
) -> Vec<(K, Result<T, Fault>)> {
    let mut of = of;
    let mut results = Vec::with_capacity(keys.len());
    for key in keys {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let result = of(key);
        let goes_on = result.is_ok();
        results.push((key, result));
        if !goes_on {
            break;
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_ends_at_its_first_error_and_when_nobody_wants_it_any_more() {
        let is_over = AtomicBool::new(false);
        let read = |key: u64| if key == 2 { Err(bug("a bad block")) } else { Ok(()) };
        let results = in_turn(vec![0, 1, 2, 3], &is_over, read);
        let keys: Vec<_> = results.iter().map(|(key, result)| (*key, result.is_ok())).collect();
        assert_eq!(keys, [(0, true), (1, true), (2, false)]);
        let results = in_turn(vec![0, 1, 2], &is_over, |key| {
            is_over.store(key == 1, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(results.len(), 2, "it is over behind the second");
    }
}
