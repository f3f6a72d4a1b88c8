//! Reads skipped files whole, for their roots: several at a time, beside the rest of the transfer,
//! through buffers and threads of their own.
//!
//! In: files that stand and are not sent. Out: the bytes read so far, and each file's root. A file
//! that is written to while it is read has none. Long jobs never take all threads, so that a short
//! one does not wait for hours. It compares nothing, stops when nobody wants the roots any more,
//! and knows no messages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::digest::{ChunkHasher, Hash32};
use longhaul_core::{Blame, DigestKind, EntryKind, Fault, FaultCode, FileOffset, hint};
use longhaul_disk::{Affinity, DiskError, ErrorKind, Identity, TargetTree};
use longhaul_proto::receiver::EntryRef;
use longhaul_sys::Slab;

use super::names::Proof;
use super::{DestinationDone, DestinationWorkers, bug};
use crate::budget::DIGEST_SLOTS;
use crate::cpu::{Stage, StageTimes};
use crate::faults::system_fault;
use crate::session::dataset::StagedDataset;
use crate::workers::Workers;

/// Threads that read skipped files, with a buffer each.
pub(super) struct Digesters {
    slab: Arc<Slab>,
    /// Whether nobody wants the roots any more.
    is_over: Arc<AtomicBool>,
    long: Arc<Long>,
    workers: Workers,
}

type DigestJob = Box<dyn FnOnce() + Send>;

/// Long jobs: the number under way, and those that wait for one of them to end.
#[derive(Default)]
struct Long(Mutex<(usize, VecDeque<DigestJob>)>);

impl Long {
    fn lock(&self) -> MutexGuard<'_, (usize, VecDeque<DigestJob>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job on a pool as soon as fewer than [`LONG_MAX`] are under way.
    fn run(self: &Arc<Self>, workers: &Workers, job: DigestJob) {
        let mut state = self.lock();
        if state.0 >= LONG_MAX {
            return state.1.push_back(job);
        }
        state.0 += 1;
        drop(state);
        let this = self.clone();
        workers.run(move || {
            let mut next = Some(job);
            while let Some(job) = next {
                job();
                next = this.next();
            }
        });
    }

    /// The next waiting job, in place of one that ended.
    fn next(&self) -> Option<DigestJob> {
        let mut state = self.lock();
        let next = state.1.pop_front();
        state.0 -= usize::from(next.is_none());
        next
    }
}

impl Digesters {
    /// Maps the buffers, of `slot_bytes` each, and starts the threads.
    pub(super) fn start(slot_bytes: usize, affinity: &Affinity) -> Result<Digesters, Fault> {
        let slab = Slab::new(slot_bytes, DIGEST_SLOTS).map_err(|e| {
            let why = format_args!("cannot map buffers to read what stands: {e}");
            Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Memory::LowerOrListNothing)
        })?;
        let workers = Workers::start("digest", DIGEST_SLOTS, affinity)
            .map_err(|e| system_fault("threads that read what stands", &e))?;
        Ok(Digesters { slab, is_over: Arc::default(), long: Arc::default(), workers })
    }

    /// Tells the threads to end, and does not wait for that.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Digesters {
    fn drop(&mut self) {
        self.stop();
    }
}

impl DestinationWorkers {
    /// Reads skipped files whole.
    pub(crate) fn digest_skipped(&self, files: Vec<Arc<EntryRef>>) {
        let reporter = self.jobs.reporter().clone();
        let Some((Digesters { slab, is_over: over, long, workers }, under_way)) = self.reading.digesters() else {
            let results = files.iter().map(|held| (held.id, Err(bug("a look at skipped files that nobody wants"))));
            return reporter.say(DestinationDone::DigestSkipped(results.collect()));
        };
        let (slab, over, named) = (slab.clone(), over.clone(), self.named_files.clone());
        let (names_standing, dataset) = (self.options.names_standing, self.journalling.dataset().cloned());
        let is_long = is_long(files.iter().map(|held| &held.entry.kind));
        let job = move || {
            let _under_way = under_way;
            let Some(mut slot) = slab.claim() else { return };
            let (mut unsaid, mut results) = (0, Vec::with_capacity(files.len()));
            for held in &files {
                let mut read = |bytes: u64| {
                    unsaid += bytes;
                    if unsaid >= SAID_BYTES {
                        reporter.say(DestinationDone::DigestProgress(std::mem::take(&mut unsaid)));
                    }
                };
                let (tree, means) = ((&**reporter.tree(), dataset.as_deref()), (reporter.times(), &*over));
                let Some(root) = root_of(tree, held, &mut slot, means, &mut read) else { return };
                // Whoever may not read what stands is not told by a link that it is what was sent.
                if let (true, Ok((root, found)), Some(names)) = (names_standing, &root, &held.entry.meta.names) {
                    named.remember(found, Proof::Read, Some(*root), names);
                }
                results.push((held.id, root.map(|(root, _)| Some(root))));
            }
            reporter.say(DestinationDone::DigestProgress(unsaid));
            reporter.say(DestinationDone::DigestSkipped(results));
        };
        if is_long { long.run(workers, Box::new(job)) } else { workers.run(job) }
    }
}

/// Whether files that are read one after the other are more than [`SHORT_BYTES`].
fn is_long<'a>(files: impl Iterator<Item = &'a EntryKind>) -> bool {
    let len = |kind: &EntryKind| if let EntryKind::File { len, .. } = kind { *len } else { 0 };
    files.map(len).fold(0, u64::saturating_add) > SHORT_BYTES
}

/// The root of the file under a name. `None` if the session ended before it was known.
fn root_of(
    (tree, dataset): (&dyn TargetTree, Option<&StagedDataset>),
    held: &EntryRef,
    slot: &mut [u8],
    (times, over): (&StageTimes, &AtomicBool),
    read: &mut dyn FnMut(u64),
) -> Option<Result<(Hash32, Identity), Fault>> {
    let EntryKind::File { len, .. } = held.entry.kind else { return Some(Err(bug("a look at no file"))) };
    let mut hasher = ChunkHasher::new(DigestKind::Root, FileOffset(0));
    let mut version: Option<Identity> = None;
    let mut at = 0;
    loop {
        if over.load(Ordering::Relaxed) {
            return None;
        }
        let piece = usize::try_from(len - at).unwrap_or(usize::MAX).min(slot.len());
        let found = match times.count(Stage::Files, || tree.read_standing(&held.placed, at, piece, slot)) {
            Ok((_, found)) => found,
            Err(error) => return Some(Err(unread(held, &error))),
        };
        if found.len != len || *version.get_or_insert(found) != found {
            return Some(Err(restless(held)));
        }
        if at == 0
            && let Some(root) = dataset.and_then(|dataset| dataset.known_root(&held.placed, &found))
        {
            return Some(Ok((root, found)));
        }
        times.count(Stage::Hash, || hasher.update(&slot[..piece]));
        at += piece as u64;
        read(piece as u64);
        if at == len {
            // The last piece may have been written to since it was opened.
            let same = tree.retouch(&held.placed, &found, None, longhaul_core::Preserve::default());
            let root = *hasher.finish().bytes();
            if same.is_ok() {
                dataset.into_iter().for_each(|dataset| dataset.note_root(&held.placed, &found, &root));
            }
            return Some(same.map(|()| (root, found)).map_err(|error| unread(held, &error)));
        }
    }
}

fn unread(held: &EntryRef, error: &DiskError) -> Fault {
    if error.kind() == ErrorKind::Changed { restless(held) } else { error.fault() }
}

fn restless(held: &EntryRef) -> Fault {
    Fault::new(FaultCode::Busy, Blame::Local, "what stands there was written to while it was read for the manifest")
        .about(held.placed.escaped())
        .hint(hint::Again::Undisturbed)
}

/// Bytes of skipped files between two reports of them: few enough for a figure each second, enough
/// to cost nothing.
const SAID_BYTES: u64 = 8 << 20;
/// Long jobs at a time: one thread is left for short ones.
const LONG_MAX: usize = DIGEST_SLOTS - 1;
/// A job is short up to this many bytes: a disk reads so much in a second or less, and small files
/// are ordered together up to a quarter of it.
const SHORT_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn long_jobs_leave_a_thread_for_short_ones_and_all_have_their_turn() {
        let (digesters, (done, ends)) = (Digesters::start(4096, &Affinity::default()).expect("threads"), channel());
        let Digesters { long, workers, .. } = &digesters;
        let holds: Vec<_> = (0..2 * DIGEST_SLOTS)
            .map(|n| {
                let ((hold, held), done) = (channel::<()>(), done.clone());
                let job = move || {
                    let _ = held.recv();
                    done.send(n).expect("a test that listens");
                };
                long.run(workers, Box::new(job));
                hold
            })
            .collect();
        workers.run(move || done.send(usize::MAX).expect("a test that listens"));
        let patience = Duration::from_secs(30);
        assert_eq!(ends.recv_timeout(patience), Ok(usize::MAX), "long ones have every thread");
        drop(holds);
        let mut all: Vec<_> = (0..2 * DIGEST_SLOTS).map(|_| ends.recv_timeout(patience).expect("its turn")).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..2 * DIGEST_SLOTS));
        assert_eq!((digesters.long.lock().1.len(), ends.recv_timeout(Duration::ZERO).is_err()), (0, true));
    }

    #[test]
    fn a_job_is_long_by_all_of_its_files() {
        let file = |len| EntryKind::File { len, sparse: false, inode: longhaul_core::Inode::default() };
        assert!(!is_long([file(SHORT_BYTES)].iter()));
        assert!(is_long([file(SHORT_BYTES), file(1)].iter()));
        assert!(is_long([file(u64::MAX), file(u64::MAX)].iter()));
    }
}
