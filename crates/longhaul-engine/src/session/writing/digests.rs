//! Reads files that are skipped, whole, for their roots: several at a time, beside the rest of the transfer, through buffers and
//! threads of their own.
//!
//! In: files that stand and are not sent. Out: how much was read so far, and each file's root. A file that is written to while it
//! is read has none. Compares nothing, and is broken off when nobody wants to know any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::digest::{ChunkHasher, Hash32};
use longhaul_core::{Blame, DigestKind, EntryKind, Fault, FaultCode, FileOffset};
use longhaul_disk::{DiskError, ErrorKind, Identity, TargetTree};
use longhaul_proto::receiver::Held;
use longhaul_sys::Slab;

use super::{Event, Report, Writing, bug};
use crate::budget::DIGEST_SLOTS;
use crate::cpu::{Stage, StageTimes};
use crate::faults::system_fault;
use crate::workers::Workers;

/// Threads that read skipped files, with a buffer each.
pub(super) struct Digesters {
    slab: Arc<Slab>,
    /// Nobody wants to know any more.
    over: Arc<AtomicBool>,
    workers: Workers,
}

impl Digesters {
    /// Maps the buffers, of `slot_bytes` each, and starts the threads.
    pub(super) fn start(slot_bytes: usize) -> Result<Digesters, Fault> {
        let slab = Slab::new(slot_bytes, DIGEST_SLOTS).map_err(|e| {
            let why = format_args!("cannot map buffers to read what stands: {e}");
            Fault::new(FaultCode::Unsupported, Blame::Local, why).hint("lower --memory, or leave --manifest out")
        })?;
        let workers =
            Workers::start("digest", DIGEST_SLOTS).map_err(|e| system_fault("threads that read what stands", &e))?;
        Ok(Digesters { slab, over: Arc::default(), workers })
    }

    /// Tells the threads to end, and does not wait for that.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Digesters {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Writing {
    /// Reads skipped files whole.
    pub(crate) fn digest_skipped(&self, files: Vec<Arc<Held>>) {
        let Some(Digesters { slab, over, workers }) = &self.digesters else {
            let results = files.iter().map(|held| (held.id, Err(bug("a look at skipped files that nobody wants"))));
            return drop(self.sink.send(Event::Wrote(Report::SkippedDigested(results.collect()))));
        };
        let (slab, over) = (slab.clone(), over.clone());
        let (tree, sink, times) = (self.tree.clone(), self.sink.clone(), self.times.clone());
        let under_way = self.reads.clone();
        workers.run(move || {
            let _under_way = under_way;
            let Some(mut slot) = slab.claim() else { return };
            let (mut unsaid, mut results) = (0, Vec::with_capacity(files.len()));
            for held in &files {
                let mut read = |bytes: u64| {
                    unsaid += bytes;
                    if unsaid >= SAID_BYTES {
                        let _ = sink.send(Event::Wrote(Report::SkippedRead(std::mem::take(&mut unsaid))));
                    }
                };
                let Some(root) = root_of(&*tree, held, &mut slot, (&times, &over), &mut read) else { return };
                results.push((held.id, root.map(Some)));
            }
            let _ = sink.send(Event::Wrote(Report::SkippedRead(unsaid)));
            let _ = sink.send(Event::Wrote(Report::SkippedDigested(results)));
        });
    }
}

/// The root of what stands under a name; nothing if it is over before that is known.
fn root_of(
    tree: &dyn TargetTree,
    held: &Held,
    slot: &mut [u8],
    (times, over): (&StageTimes, &AtomicBool),
    read: &mut dyn FnMut(u64),
) -> Option<Result<Hash32, Fault>> {
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
        times.count(Stage::Hash, || hasher.update(&slot[..piece]));
        at += piece as u64;
        read(piece as u64);
        if at == len {
            // The last piece may have been written to since it was opened.
            let same = tree.retouch(&held.placed, &found, None, longhaul_core::Preserve::default());
            return Some(same.map(|()| *hasher.finish().bytes()).map_err(|error| unread(held, &error)));
        }
    }
}

fn unread(held: &Held, error: &DiskError) -> Fault {
    if error.kind() == ErrorKind::Changed { restless(held) } else { error.fault() }
}

fn restless(held: &Held) -> Fault {
    Fault::new(FaultCode::Busy, Blame::Local, "what stands there was written to while it was read for the manifest")
        .about(held.placed.escaped())
        .hint("run the same command again when nobody writes to it")
}

/// What is read of skipped files is told whenever it is so much: often enough for a figure each second, seldom enough to cost nothing.
const SAID_BYTES: u64 = 8 << 20;
