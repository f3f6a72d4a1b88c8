//! Owns the further checksums of the files that are being received: of chunks as they come, and of
//! whole files until their outcome.
//!
//! In: the sums of chunks that lanes computed as they hashed them, and of those that were read here
//! and have the digest that they should have: what an earlier session brought, and what is copied
//! from a file that stood. Or, where one of the checksums does not combine, all bytes of a whole
//! file in their order (`readback`). Out: the checksums of a file, which are kept with it when it
//! is sealed. A checksum is never guessed: a file of which a chunk has none gets none. It knows no
//! lanes and no messages.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use longhaul_core::checksum::{FileSums, Hashing};
use longhaul_core::{Algorithms, ChunkIndex, ChunkSums, EntryKind, FileId, Meta, PartSums, Sums};
use longhaul_proto::receiver::EntryRef;

use super::DestinationWorkers;

/// The checksums of a session's files. See the module.
#[derive(Debug, Default)]
pub(super) struct ReceivedSums {
    wanted: Algorithms,
    /// The sums of files that take chunks.
    chunks: HashMap<FileId, ChunkSums>,
    /// The checksums of files that are being read in order, or were.
    in_order: HashMap<FileId, Box<Hashing>>,
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

    /// The checksums that are wanted of chunks as they come.
    pub(super) fn by_chunk(&self) -> Algorithms {
        self.wanted.by_chunk()
    }

    /// The sums of a hole of so many bytes, by arithmetic.
    pub(super) fn of_hole(&self, bytes: u64) -> Option<PartSums> {
        let wanted = self.by_chunk();
        (!wanted.is_empty()).then(|| PartSums::of_zeros(wanted, bytes))
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

    /// The checksums to compute of chunks that are read: none, if the sums of all are known.
    pub(super) fn lacking(&self, file: FileId, chunks: &[ChunkIndex]) -> Algorithms {
        let known = self.chunks.get(&file);
        let has_all = chunks.iter().all(|index| known.is_some_and(|known| known.has(*index)));
        if has_all { Algorithms::NONE } else { self.by_chunk() }
    }

    /// The checksums of the bytes before `first`, to go on with. Those of a file that begins, or
    /// begins once more, are of no bytes.
    pub(super) fn go_on_in_order(&mut self, file: FileId, first: ChunkIndex) -> Box<Hashing> {
        let known = self.in_order.remove(&file).filter(|_| first.0 > 0);
        known.unwrap_or_else(|| Box::new(Hashing::new(self.wanted)))
    }

    /// The checksums of a file of `len` bytes. `None`: none are wanted, or a chunk lacks them. What
    /// is known of it stays, as it may be sealed again.
    fn whole(&self, file: FileId, len: u64) -> Option<Sums> {
        if self.wanted.is_empty() {
            return None;
        }
        if !self.wanted.in_order().is_empty() {
            return self.in_order.get(&file).filter(|hashing| hashing.hashed() == len).map(|hashing| hashing.finish());
        }
        let known = self.chunks.get(&file);
        let none = ChunkSums::default();
        known.unwrap_or(&none).whole(self.wanted, len)
    }

    /// A file is staged with these checksums.
    pub(super) fn staged(&mut self, file: FileId, sums: &FileSums) {
        self.files.insert(file, sums.sums.clone());
    }

    /// Forgets a file. Returns its checksums, if it has been staged.
    pub(super) fn settle(&mut self, file: FileId) -> Option<Sums> {
        self.chunks.remove(&file);
        self.in_order.remove(&file);
        self.files.remove(&file)
    }
}

/// The checksums of a small file. `None` if none are wanted.
pub(super) fn sums_of(bytes: &[u8], wanted: Algorithms) -> Option<Arc<FileSums>> {
    if wanted.is_empty() {
        return None;
    }
    let mut hashing = Hashing::new(wanted);
    hashing.update(bytes);
    Some(Arc::new(FileSums { len: bytes.len() as u64, sums: hashing.finish() }))
}

impl DestinationWorkers {
    /// Cuts a whole file to its length and sets its metadata, with its checksums if all its chunks
    /// have some. That they are wanted and not known is counted where they would be kept.
    pub(crate) fn seal(&mut self, held: Arc<EntryRef>) {
        let sums = match held.entry.kind {
            EntryKind::File { len, .. } => self.sums.whole(held.id, len).map(|sums| FileSums { len, sums }),
            _ => None,
        };
        self.seal_with(held, sums);
    }

    /// Takes the checksums of chunks that were read here.
    pub(crate) fn summed_chunks(&mut self, file: FileId, sums: Vec<(ChunkIndex, PartSums)>) {
        sums.into_iter().for_each(|(index, part)| self.sums.note(file, index, Some(part)));
    }

    /// Takes the checksums of a file as far as it was read in order.
    pub(crate) fn read_in_order_so_far(&mut self, file: FileId, hashing: Box<Hashing>) {
        self.sums.in_order.insert(file, hashing);
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

#[cfg(test)]
mod tests {
    use longhaul_core::Algorithm;

    use super::*;

    const FILE: FileId = FileId(3);

    /// Two chunks are read in order.
    fn read(sums: &mut ReceivedSums) -> Option<Sums> {
        let mut hashing = sums.go_on_in_order(FILE, ChunkIndex(0));
        hashing.update(b"12345");
        sums.in_order.insert(FILE, hashing);
        let mut hashing = sums.go_on_in_order(FILE, ChunkIndex(1));
        hashing.update(b"6789");
        sums.in_order.insert(FILE, hashing);
        sums.whole(FILE, 9)
    }

    #[test]
    fn all_checksums_are_of_one_reading_where_one_of_them_needs_it() {
        let wanted = Algorithms::NONE.with(Algorithm::Md5).with(Algorithm::Crc32c);
        let mut sums = ReceivedSums::new(wanted);
        assert_eq!((sums.by_chunk(), sums.of_hole(5)), (Algorithms::NONE, None), "lanes compute none");
        assert_eq!(sums.whole(FILE, 9), None, "nothing was read");
        let found = read(&mut sums).expect("it was read");
        assert_eq!(found.hex(Algorithm::Md5).as_deref(), Some("25f9e794323b453885f5181f1b624d0b"));
        assert_eq!(found.hex(Algorithm::Crc32c).as_deref(), Some("e3069283"));
        assert_eq!(sums.whole(FILE, 10), None, "a checksum is of all bytes");
        assert_eq!(read(&mut sums), Some(found), "a reading that begins again begins with no bytes");
        sums.settle(FILE);
        assert_eq!(sums.whole(FILE, 9), None);
    }
}
