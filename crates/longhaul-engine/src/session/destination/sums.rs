//! Owns the further checksums of the files that are being received: of chunks as they come, and of
//! whole files until their outcome.
//!
//! In: the sums of chunks that lanes computed as they hashed them. Out: the checksums of a file,
//! which are kept with it when it is sealed. Chunks whose sums nobody computed here, as an earlier
//! session brought them or they were copied from a file that stood, are read from the temporary: a
//! checksum is never guessed. It knows no lanes and no messages.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use longhaul_core::checksum::FileSums;
use longhaul_core::{Algorithms, ChunkIndex, ChunkMap, ChunkSums, EntryKind, Fault, FileId, Meta, PartSums, Sums};
use longhaul_disk::TargetTree;
use longhaul_proto::receiver::EntryRef;

use super::files::OpenTarget;
use super::readback::Reader;
use super::{DestinationDone, DestinationWorkers, bug};
use crate::cpu::Stage;

/// The checksums of a session's files. See the module.
#[derive(Debug, Default)]
pub(super) struct ReceivedSums {
    wanted: Algorithms,
    /// The sums of files that take chunks.
    chunks: HashMap<FileId, ChunkSums>,
    /// The checksums of files that are staged.
    files: HashMap<FileId, Sums>,
}

impl ReceivedSums {
    /// Computes those of `wanted`.
    pub(super) fn new(wanted: Algorithms) -> ReceivedSums {
        ReceivedSums { wanted, ..ReceivedSums::default() }
    }

    /// The checksums that are wanted.
    pub(super) fn wanted(&self) -> Algorithms {
        self.wanted
    }

    /// The sums of a hole of so many bytes, by arithmetic.
    pub(super) fn of_hole(&self, bytes: u64) -> Option<PartSums> {
        (!self.wanted.is_empty()).then(|| PartSums::of_zeros(self.wanted, bytes))
    }

    /// A verified chunk is written, with these sums.
    pub(super) fn note(&mut self, file: FileId, index: ChunkIndex, sums: Option<PartSums>) {
        match sums {
            Some(sums) => self.chunks.entry(file).or_default().note(index, sums),
            None => self.forget_chunk(file, index),
        }
    }

    /// A chunk was copied from elsewhere: what was known of it says nothing.
    pub(super) fn forget_chunk(&mut self, file: FileId, index: ChunkIndex) {
        if let Some(chunks) = self.chunks.get_mut(&file) {
            chunks.forget(index);
        }
    }

    /// The sums of a file's chunks, as far as they are known. They stay, as it may be sealed again.
    fn chunks_of(&self, file: FileId) -> ChunkSums {
        self.chunks.get(&file).cloned().unwrap_or_default()
    }

    /// A file is staged with these checksums.
    pub(super) fn staged(&mut self, file: FileId, sums: &FileSums) {
        self.files.insert(file, sums.sums.clone());
    }

    /// Forgets a file. Returns its checksums, if it has been staged.
    pub(super) fn settle(&mut self, file: FileId) -> Option<Sums> {
        self.chunks.remove(&file);
        self.files.remove(&file)
    }
}

/// The checksums of a small file. `None` if none are wanted.
pub(super) fn sums_of(bytes: &[u8], wanted: Algorithms) -> Option<Arc<FileSums>> {
    if wanted.is_empty() {
        return None;
    }
    let mut sums = PartSums::empty(wanted);
    sums.update(bytes);
    Some(Arc::new(FileSums { len: bytes.len() as u64, sums: sums.sums() }))
}

impl DestinationWorkers {
    /// Cuts a whole file to its length and sets its metadata, once its checksums are known.
    pub(crate) fn seal(&mut self, held: Arc<EntryRef>) {
        let EntryKind::File { len, .. } = held.entry.kind else { return self.seal_with(held, None) };
        let wanted = self.sums.wanted;
        if wanted.is_empty() {
            return self.seal_with(held, None);
        }
        let known = self.sums.chunks_of(held.id);
        match (known.whole(wanted, len), self.files.get(held.id).cloned()) {
            (Some(sums), _) => self.seal_with(held, Some(FileSums { len, sums })),
            (None, None) => self.seal_with(held, None),
            (None, Some(open)) => self.read(move |tree, reader| {
                let sums = read_missing(tree, reader, &open, (known, wanted), len);
                DestinationDone::Sum(held, sums.map(|sums| FileSums { len, sums }))
            }),
        }
    }

    /// Seals a file, chunks of which were read for its checksums.
    pub(crate) fn summed(&mut self, held: Arc<EntryRef>, sums: Result<FileSums, Fault>) {
        match sums {
            Ok(sums) => self.seal_with(held, Some(sums)),
            Err(fault) => self.jobs.reporter().say(DestinationDone::Stage(vec![(held.id, Err(fault))])),
        }
    }

    /// Takes the checksums of small files, which are being staged.
    pub(crate) fn summed_small(&mut self, files: &[(FileId, Arc<FileSums>)]) {
        files.iter().for_each(|(file, sums)| self.sums.staged(*file, sums));
    }

    /// The checksums of a file that is settled. `None`: it has none.
    pub(crate) fn settled_sums(&mut self, file: FileId) -> Option<Sums> {
        self.sums.settle(file)
    }
}

/// The metadata of a file that is staged, with its checksums.
pub(super) fn with_sums(meta: &Meta, sums: Option<Arc<FileSums>>) -> Cow<'_, Meta> {
    match sums {
        Some(_) => Cow::Owned(Meta { sums, ..meta.clone() }),
        None => Cow::Borrowed(meta),
    }
}

/// The checksums of a file of `len` bytes of which some chunks are known, and the others are read.
fn read_missing(
    tree: &dyn TargetTree,
    reader: &mut Reader,
    open: &OpenTarget,
    (mut known, wanted): (ChunkSums, Algorithms),
    len: u64,
) -> Result<Sums, Fault> {
    let map = ChunkMap::new(len, open.map().size());
    for index in known.missing(map.chunks()).into_iter().flatten().map(ChunkIndex) {
        let bytes = map.len_of(index).unwrap_or(0) as usize;
        let Reader { slot, times, .. } = &mut *reader;
        let back = times.count(Stage::Files, || tree.read_back(open.target(), open.place(index), bytes, slot))?;
        let read = slot.get(..bytes).filter(|_| back.len == bytes);
        let read = read.ok_or_else(|| bug("a chunk that was written is not there"))?;
        let mut part = PartSums::empty(wanted);
        times.count(Stage::Hash, || part.update(read));
        known.note(index, part);
    }
    known.whole(wanted, len).ok_or_else(|| bug("a file whose chunks are not its length"))
}
