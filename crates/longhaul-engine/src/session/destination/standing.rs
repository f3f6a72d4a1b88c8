//! Reads standing files, for comparison with the source, and copies chunks that are the same.
//!
//! In: orders of the receiver's machine. Out: digests, and chunks that are written. A piece is
//! read, hashed and, if it is to be copied and still has its digest, written from the same buffer
//! of the reserve. Everything that is read of an entry must be of one version of one file. It
//! judges only that, and knows no messages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::digest::{Digest, digest_of};
use longhaul_core::{Blame, ChunkIndex, DigestKind, EntryKind, Fault, FaultCode, FileId, FileOffset, hint};
use longhaul_disk::{DiskError, ErrorKind, Identity, TargetTree};
use longhaul_proto::receiver::{Base, EntryRef};
use longhaul_sys::Slot;

use super::jobs::Pool;
use super::readback::{Reader, with_each};
use super::{DestinationDone, DestinationWorkers, bug};
use crate::cpu::Stage;

/// The version of the file that was read first for each entry that is being compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Arc<Mutex<HashMap<FileId, Identity>>>);

impl Versions {
    /// Records the version that was read. It must be the version that was read before.
    fn check(&self, held: &EntryRef, found: Identity) -> Result<(), Fault> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *known.entry(held.id).or_insert(found);
        if first == found { Ok(()) } else { Err(restless(held)) }
    }

    /// The version that was read of an entry. `None` if none was.
    pub(super) fn get(&self, file: FileId) -> Option<Identity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&file).copied()
    }

    /// Forgets an entry that is settled.
    pub(super) fn forget(&self, file: FileId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&file);
    }
}

impl DestinationWorkers {
    /// Reads small files whole.
    pub(crate) fn read_standing(&self, files: Vec<Arc<EntryRef>>) {
        let versions = self.reading.versions();
        self.read(move |tree, reader| {
            let root = |held: &Arc<EntryRef>| {
                let EntryKind::File { len, .. } = held.entry.kind else { return Err(bug("a look at no file")) };
                let piece = Piece { held, kind: DigestKind::Root, start: FileOffset(0), len: len as usize };
                piece.digest(tree, reader, &versions).map(|digest| *digest.bytes())
            };
            let mut root = root;
            DestinationDone::ReadStanding(files.iter().map(|held| (held.id, root(held))).collect())
        });
    }

    /// Reads chunks of a standing file.
    pub(crate) fn read_standing_chunks(&self, base: Base, chunks: Vec<ChunkIndex>) {
        let versions = self.reading.versions();
        self.read(move |tree, reader| {
            let read = |index| Piece::of(&base, index).digest(tree, reader, &versions);
            DestinationDone::ReadStandingChunks { file: base.entry.id, results: with_each(chunks, read) }
        });
    }

    /// Reads a chunk of a standing file once more and writes it to the temporary, if it still has
    /// its digest.
    pub(crate) fn copy(&mut self, base: Base, index: ChunkIndex, digest: Digest) {
        self.sums.forget_chunk(base.entry.id, index);
        let (versions, open) = (self.reading.versions(), self.files.get(base.entry.id).cloned());
        let (io, reporter, wanted) = (self.chunks.io().clone(), self.jobs.reporter().clone(), self.sums.by_chunk());
        self.lend(move |tree, mut reader| {
            let file = base.entry.id;
            let piece = Piece::of(&base, index);
            let read = piece.digest(tree, &mut reader, &versions).and_then(|found| match found == digest {
                true => open.ok_or_else(|| bug("a copy into a file that is not open")),
                false => Err(restless(&base.entry)),
            });
            let open = match read {
                Ok(open) => open,
                Err(fault) => return Some(DestinationDone::Write { file, index, result: Err(fault) }),
            };
            let place = open.place(index);
            open.target().note_digest(index, digest);
            if let Some(part) = reader.sums(piece.len, wanted) {
                reporter.say(DestinationDone::SumChunks(file, vec![(index, part)]));
            }
            let done = move |slot: Option<Slot>, result: Result<(), DiskError>| {
                drop(slot);
                let result = result.map_err(Fault::from);
                reporter.say(DestinationDone::Write { file, index, result });
            };
            io.write(open.target().clone(), place, piece.len, reader.slot, Box::new(done));
            None
        });
    }

    /// Checks that files that were found the same still are the version that was read, and sets
    /// their metadata.
    pub(crate) fn retouch(&self, files: Vec<Arc<EntryRef>>, metadata: bool) {
        let (versions, preserve) = (self.reading.versions(), self.options.preserve);
        self.jobs.report(Pool::Stage, move |tree| {
            let touch = |held: &Arc<EntryRef>| {
                let version = versions.get(held.id).ok_or_else(|| bug("a file is called the same and was not read"))?;
                let meta = metadata.then_some(&held.entry.meta);
                tree.retouch(&held.placed, &version, meta, preserve).map_err(|e| standing_fault(held, &e))
            };
            DestinationDone::Retouch(files.iter().map(|held| (held.id, touch(held))).collect())
        });
    }
}

/// The part of a standing file to read.
struct Piece<'a> {
    held: &'a EntryRef,
    kind: DigestKind,
    start: FileOffset,
    len: usize,
}

impl Piece<'_> {
    fn of(base: &Base, index: ChunkIndex) -> Piece<'_> {
        let (start, len) = (base.map.start_of(index), base.map.len_of(index).unwrap_or(0));
        Piece { held: &base.entry, kind: base.map.kind(), start, len: len as usize }
    }

    /// Reads it into the reader's buffer. Returns its digest.
    fn digest(&self, tree: &dyn TargetTree, reader: &mut Reader, versions: &Versions) -> Result<Digest, Fault> {
        let Piece { held, kind, start, len } = *self;
        let Reader { slot, times, .. } = reader;
        let read = times.count(Stage::Files, || tree.read_standing(&held.placed, start.0, len, slot));
        let (back, version) = read.map_err(|e| standing_fault(held, &e))?;
        versions.check(held, version)?;
        Ok(times.count(Stage::Hash, || digest_of(&slot[..back.len], kind, start)))
    }
}

/// The fault of a standing file that cannot be compared. A change of it is no fault of the source.
fn standing_fault(held: &EntryRef, error: &DiskError) -> Fault {
    if error.kind() == ErrorKind::Changed { restless(held) } else { error.fault() }
}

fn restless(held: &EntryRef) -> Fault {
    Fault::new(FaultCode::Busy, Blame::Local, "what stands there was written to or replaced while it was compared")
        .about(held.placed.escaped())
        .hint(hint::Again::Undisturbed)
}
