//! The tree of a shared reading as one reader sees it: the scan of another tree, and files whose
//! bytes come from the place that all readers share.
//!
//! In: another tree, and the seat of its reader. Out: open files, errors as the other tree has
//! them. Knows nothing of who else reads.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::Losses;

use super::blocks::{BlockKey, BlockSize};
use super::{AskedKey, BlockPart, ReaderSeat};
use crate::bytes::ReadAt;
use crate::error::DiskError;
use crate::source::{ScanRequest, Scanned, SmallBytes, SmallFile, SourceFile, SourceRef, SourceTree};
use crate::stat::Identity;

/// A tree that a reader shares with others.
pub(super) struct SharedTree {
    tree: Arc<dyn SourceTree>,
    seat: Arc<ReaderSeat>,
}

impl SharedTree {
    /// A tree as the reader with this seat sees it.
    pub(super) fn new(tree: Arc<dyn SourceTree>, seat: Arc<ReaderSeat>) -> SharedTree {
        SharedTree { tree, seat }
    }
}

impl SourceTree for SharedTree {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        self.tree.scan(what, sink);
    }

    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        let file = self.tree.open(at, expect)?;
        let (path, identity) = (file.path(), file.identity());
        let bytes = SharedBytes { file, seat: self.seat.clone(), session: self.seat.session() };
        Ok(Arc::new(SourceFile::of(path, identity, Box::new(bytes))))
    }

    fn open_small<'a>(&'a self, at: &'a SourceRef, expect: &'a Identity) -> Result<SmallFile<'a>, DiskError> {
        let key = BlockKey { file: *expect, number: 0 };
        // One that another reader has read, or reads, need not be opened.
        let key = AskedKey { block: key, session: self.seat.session() };
        let opened = if self.seat.is_known(key.block) { None } else { Some(self.tree.open_small(at, expect)?) };
        Ok(SmallFile::given(Box::new(SharedSmall { tree: self, at, expect, key, opened }), at, expect))
    }

    fn shown(&self, at: &SourceRef) -> Vec<u8> {
        self.tree.shown(at)
    }

    fn losses(&self) -> Losses {
        self.tree.losses()
    }

    fn session_ended(&self) {
        self.seat.end_session();
        self.tree.session_ended();
    }
}

/// A small file of a shared reading.
struct SharedSmall<'a> {
    tree: &'a SharedTree,
    at: &'a SourceRef,
    expect: &'a Identity,
    key: AskedKey,
    /// The file, if it was opened for that already.
    opened: Option<SmallFile<'a>>,
}

impl SmallBytes for SharedSmall<'_> {
    fn read(self: Box<Self>, buf: &mut [u8]) -> Result<(), DiskError> {
        let SharedSmall { tree, at, expect, key, opened } = *self;
        tree.seat.fill_small(key, buf, move |buf| {
            let file = opened.map_or_else(|| tree.tree.open_small(at, expect), Ok)?;
            file.read(buf)
        })
    }
}

impl std::fmt::Debug for SharedSmall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedSmall").field("at", self.at).finish_non_exhaustive()
    }
}

/// The bytes of a file of a shared reading.
#[derive(Debug)]
struct SharedBytes {
    file: Arc<SourceFile>,
    seat: Arc<ReaderSeat>,
    /// The session of the reader in which it was opened.
    session: u64,
}

impl ReadAt for SharedBytes {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let (len, block_bytes) = (self.file.len(), self.seat.place.block_bytes());
        let (number, from) = (offset / block_bytes, offset % block_bytes);
        let in_block = block_bytes.min(len.saturating_sub(number * block_bytes));
        let bytes = in_block.saturating_sub(from).min(buf.len() as u64) as usize;
        let Some(into) = buf.get_mut(..bytes).filter(|into| !into.is_empty()) else { return Ok(0) };
        let key = AskedKey { block: BlockKey { file: self.file.identity(), number }, session: self.session };
        let is_small = len <= block_bytes / SMALL_PART && into.len() as u64 == len;
        let filled = if is_small {
            self.seat.fill_small(key, into, |into| self.file.read_whole(into))
        } else {
            let size = BlockSize { len: in_block as usize, kept: block_bytes };
            self.seat.fill(&self.file, BlockPart { key, size, from: from as usize, into })
        };
        match filled {
            Ok(()) => Ok(bytes),
            // It has another length or version now: for whoever reads, it ends here.
            Err(DiskError::Changed { .. } | DiskError::Vanished { .. }) => Ok(0),
            Err(error) => Err(system_error(error)),
        }
    }

    fn unchanged(&self) -> io::Result<bool> {
        self.file.unchanged().map_err(system_error)
    }

    fn data_in(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.file.data_in(offset, len).map_err(system_error)
    }
}

/// The system's error in one of the disk's. It gets the call and the path again where it goes.
fn system_error(error: DiskError) -> io::Error {
    match error {
        DiskError::Call { source, .. } => source,
        other => io::Error::other(other),
    }
}

/// The part of a block up to which a file is kept without a buffer of its own: a quarter.
const SMALL_PART: u64 = 4;
