//! The window of a receiver: which large files are open, which wait, and how many of their chunks
//! are asked for.
//!
//! In: ids of large files, and counts of chunks. Out: the next file to open, to ask chunks of or to
//! copy chunks in, as long as there is room. Knows neither entries nor messages.

use std::collections::BTreeSet;

use longhaul_core::FileId;
use longhaul_core::limits::{CHUNKS_WANTED_MAX, FILES_BEGUN_MAX};

use super::order::WantOrder;

/// The window. See the module.
#[derive(Debug, Default)]
pub(super) struct Window {
    order: WantOrder,
    /// Files that wait for a descriptor.
    waiting: BTreeSet<FileId>,
    /// Files with chunks to ask for.
    wanting: BTreeSet<FileId>,
    /// Files with chunks to copy from the standing file.
    copying: BTreeSet<FileId>,
    /// Files that hold a descriptor.
    open: usize,
    /// Files whose temporary is being made.
    creating: usize,
    /// Chunks that are asked for, or being copied, and not at their end.
    chunks: usize,
}

impl Window {
    /// An empty window of a session in which chunks are asked for in this order.
    pub(super) fn new(order: WantOrder) -> Window {
        Window { order, ..Window::default() }
    }

    /// A file waits for a descriptor.
    pub(super) fn queue(&mut self, id: FileId) {
        self.waiting.insert(id);
    }

    /// The first file that waits, if a descriptor is free. In sequence no file is begun before the
    /// one ahead of it can be asked for: it would take the window from that one.
    pub(super) fn next_to_open(&self) -> Option<FileId> {
        let in_turn = self.order == WantOrder::Any || self.creating == 0;
        self.waiting.first().copied().filter(|_| in_turn && self.open < LARGE_OPEN_MAX)
    }

    /// A file waits no more.
    pub(super) fn dequeue(&mut self, id: FileId) {
        self.waiting.remove(&id);
    }

    /// A file takes a descriptor.
    pub(super) fn open(&mut self) {
        self.open += 1;
    }

    /// The temporary of a file is being made.
    pub(super) fn begin_creating(&mut self) {
        self.creating += 1;
    }

    /// The temporary of a file is made, or could not be.
    pub(super) fn end_creating(&mut self) {
        self.creating -= 1;
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
        self.chunks < self.order.chunks_max()
    }

    /// How many more chunks may be asked for.
    pub(super) fn room(&self) -> u64 {
        self.order.chunks_max().saturating_sub(self.chunks) as u64
    }

    /// Chunks that are asked for, or being copied, and not at their end.
    pub(super) fn chunks(&self) -> usize {
        self.chunks
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
        assert!(self.creating <= self.open, "{} files are being made", self.creating);
        assert!(self.chunks <= self.order.chunks_max(), "{} chunks wanted", self.chunks);
        assert!(self.open <= LARGE_OPEN_MAX, "{} files open", self.open);
        assert_eq!(self.chunks, chunks, "chunks wanted");
        assert_eq!(self.open, open, "files open");
        assert_eq!(&self.waiting, waiting, "files that wait for a descriptor");
        assert!(self.wanting.is_superset(wanting), "files whose chunks are never wanted");
    }
}

impl WantOrder {
    /// The most chunks that are asked for at once: one at least.
    fn chunks_max(self) -> usize {
        match self {
            WantOrder::Any => CHUNKS_WANTED_MAX,
            WantOrder::Sequence { chunks_max } => chunks_max.clamp(1, CHUNKS_WANTED_MAX),
        }
    }
}

/// The most large files that have a descriptor open at once.
pub(super) const LARGE_OPEN_MAX: usize = FILES_BEGUN_MAX;
