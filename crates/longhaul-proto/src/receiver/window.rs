//! The window of a receiver: which large files are open, which wait, and how many of their chunks
//! are asked for.
//!
//! In: ids of large files, and counts of chunks. Out: the next file to open, to ask chunks of or to
//! copy chunks in, as long as there is room. Knows neither entries nor messages.

use std::collections::BTreeSet;

use longhaul_core::FileId;
use longhaul_core::limits::{CHUNKS_WANTED_MAX, FILES_BEGUN_MAX};

/// The window. See the module.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Files that wait for a descriptor.
    waiting: BTreeSet<FileId>,
    /// Files with chunks to ask for.
    wanting: BTreeSet<FileId>,
    /// Files with chunks to copy from the standing file.
    copying: BTreeSet<FileId>,
    /// Files that hold a descriptor.
    open: usize,
    /// Chunks that are asked for, or being copied, and not at their end.
    chunks: usize,
}

impl Window {
    /// A file waits for a descriptor.
    pub(super) fn queue(&mut self, id: FileId) {
        self.waiting.insert(id);
    }

    /// The first file that waits, if a descriptor is free.
    pub(super) fn next_to_open(&self) -> Option<FileId> {
        self.waiting.first().copied().filter(|_| self.open < LARGE_OPEN_MAX)
    }

    /// A file waits no more.
    pub(super) fn dequeue(&mut self, id: FileId) {
        self.waiting.remove(&id);
    }

    /// A file takes a descriptor.
    pub(super) fn open(&mut self) {
        self.open += 1;
    }

    /// A file gives its descriptor back.
    pub(super) fn close(&mut self) {
        self.open -= 1;
    }

    /// Whether any file holds a descriptor.
    pub(super) fn has_open(&self) -> bool {
        self.open > 0
    }

    /// A file has chunks to ask for.
    pub(super) fn want_chunks_of(&mut self, id: FileId) {
        self.wanting.insert(id);
    }

    /// The first file with chunks to ask for, if there is room for one more.
    pub(super) fn next_to_want(&self) -> Option<FileId> {
        self.wanting.first().copied().filter(|_| self.has_room())
    }

    /// A file has no more chunks to ask for.
    pub(super) fn want_no_more_of(&mut self, id: FileId) {
        self.wanting.remove(&id);
    }

    /// A file has chunks to copy.
    pub(super) fn copy_chunks_of(&mut self, id: FileId) {
        self.copying.insert(id);
    }

    /// The files with chunks to copy.
    pub(super) fn files_to_copy(&self) -> Vec<FileId> {
        self.copying.iter().copied().collect()
    }

    /// A file has no more chunks to copy.
    pub(super) fn copy_no_more_of(&mut self, id: FileId) {
        self.copying.remove(&id);
    }

    /// Whether one more chunk may be asked for.
    pub(super) fn has_room(&self) -> bool {
        self.chunks < CHUNKS_WANTED_MAX
    }

    /// How many more chunks may be asked for.
    pub(super) fn room(&self) -> u64 {
        (CHUNKS_WANTED_MAX - self.chunks) as u64
    }

    /// This many more chunks are asked for.
    pub(super) fn take(&mut self, chunks: usize) {
        self.chunks += chunks;
    }

    /// This many chunks came to their end.
    pub(super) fn give_back(&mut self, chunks: usize) {
        self.chunks -= chunks;
    }

    /// A file came to its end, with so many of its chunks asked for.
    pub(super) fn forget(&mut self, id: FileId, chunks: usize) {
        self.waiting.remove(&id);
        self.wanting.remove(&id);
        self.copying.remove(&id);
        self.give_back(chunks);
    }

    /// Panics at the first bound that is broken, and at the first set or counter that differs from
    /// what the files themselves say.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn audit(&self, waiting: &BTreeSet<FileId>, wanting: &BTreeSet<FileId>, open: usize, chunks: usize) {
        assert!(self.chunks <= CHUNKS_WANTED_MAX, "{} chunks wanted", self.chunks);
        assert!(self.open <= LARGE_OPEN_MAX, "{} files open", self.open);
        assert_eq!(self.chunks, chunks, "chunks wanted");
        assert_eq!(self.open, open, "files open");
        assert_eq!(&self.waiting, waiting, "files that wait for a descriptor");
        assert!(self.wanting.is_superset(wanting), "files whose chunks are never wanted");
    }
}

/// The most large files that have a descriptor open at once.
pub(super) const LARGE_OPEN_MAX: usize = FILES_BEGUN_MAX;
