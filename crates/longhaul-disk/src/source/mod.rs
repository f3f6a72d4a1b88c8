//! The source of a transfer: trees that are scanned in a stream, and their files, which are opened
//! by what the scan found.
//!
//! Gives entries and open files to the sending side; takes filters and requests from it. Knows
//! nothing of peers.

mod bases;
mod extras;
mod file;
mod fs;
mod names;
mod read;
mod same_name;
mod scan;
mod select;
mod shape;
mod stream;
mod void;

use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{Entry, Losses, PathList, Preserve, RelPath};

use crate::error::DiskError;
use crate::stat::Identity;

pub use file::SourceFile;
pub use fs::{FsSource, SourceSpec};
pub use names::NamesMemory;
pub(crate) use read::SmallBytes;
pub use read::SmallFile;
pub use same_name::SameName;
pub use shape::Shape;
pub use stream::{StreamFrom, StreamMemory, StreamSoFar, StreamSource, StreamSpec};
pub use void::{TimedVoid, VoidSource};

/// A scan that is asked for.
#[derive(Clone, Debug)]
pub struct ScanRequest<'a> {
    /// The filter of entries; an excluded directory is not entered.
    pub filter: &'a Filter,
    /// Whether links are sent, and which extras are read.
    pub preserve: Preserve,
    /// Sends only these names beneath the (one) source, directories with all entries in them, and
    /// the directories above them. `None`: everything.
    pub files_from: Option<Arc<PathList>>,
    /// The memory of files with several names.
    pub names: Arc<NamesMemory>,
    /// Names of files: a directory that stands under one of them is told with its end, and not
    /// read. A tree that is no directory of this host may read it all the same. `None`: there are
    /// none such.
    pub files: Option<&'a dyn FileNames>,
}

impl<'a> ScanRequest<'a> {
    /// The scan of everything that the filter lets through.
    pub fn of_all(filter: &'a Filter, preserve: Preserve) -> ScanRequest<'a> {
        ScanRequest { filter, preserve, files_from: None, names: Arc::default(), files: None }
    }
}

/// The names under which files are meant, and no directories.
pub trait FileNames: std::fmt::Debug {
    /// Whether a file is meant by the entry at this path.
    fn has(&self, path: &RelPath) -> bool;
}

/// The place of an entry at its source, which [`SourceTree::open`] needs. It has a meaning only to
/// the tree that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceRef {
    pub(crate) source: u32,
    pub(crate) path: RelPath,
}

impl SourceRef {
    /// The place of the entry at `path`, in a tree of another kind that finds its entries by path.
    pub fn new(path: RelPath) -> SourceRef {
        SourceRef { source: 0, path }
    }

    /// The path by which the tree finds it.
    pub fn path(&self) -> &RelPath {
        &self.path
    }
}

/// A find of a scan. Finds come in the order of a depth-first walk.
#[derive(Debug)]
pub enum Scanned {
    /// An entry to send.
    Entry {
        /// Its entry in the manifest.
        entry: Entry,
        /// Its place at the source.
        source: SourceRef,
        /// The identity of this version of it.
        identity: Identity,
    },
    /// An entry of a kind that is not sent, which is no failure.
    Skipped {
        /// Its path beneath the destination, if it were sent.
        path: RelPath,
        /// Its kind: `fifo`, `socket`, `device`, `unknown` or `symbolic link`.
        why: &'static str,
    },
    /// An entry whose name is reserved, and that is not our own: it is not sent, which is no
    /// failure. No [`RelPath`] holds such a name.
    Reserved {
        /// The directory that it lies in.
        dir: RelPath,
        /// Its bare name.
        name: Vec<u8>,
    },
    /// An entry that cannot be sent. The scan goes on.
    Failed {
        /// Its path beneath the destination (for a name that is too long, the path of the directory
        /// it is in).
        path: RelPath,
        /// The reason.
        error: DiskError,
    },
}

/// Trees to send from.
///
/// A tree of another kind than a directory writes [`SourceTree::scan`] and [`SourceTree::open`],
/// whose files are made by [`SourceFile::of`].
pub trait SourceTree: Send + Sync + 'static {
    /// Walks the whole source, depth first and in no order within a directory, and gives each find
    /// to `sink` until `sink` breaks off. `sink` may block to hold the scan back. Holds one batch
    /// of names per level, never a whole directory.
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>);

    /// Opens a file that a scan found, if it is still the same version.
    ///
    /// # Errors
    /// [`DiskError::Changed`] if it is another file or another version, [`DiskError::Vanished`] if
    /// it is gone.
    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError>;

    /// Opens a small file that will be read whole and soon: the system begins to fetch it at once.
    /// Default: it is opened as any other.
    ///
    /// # Errors
    /// As [`SourceTree::open`].
    fn open_small<'a>(&'a self, at: &'a SourceRef, expect: &'a Identity) -> Result<SmallFile<'a>, DiskError> {
        Ok(SmallFile::of(self.open(at, expect)?, &at.path, expect))
    }

    /// The path of an entry, as messages show it. Default: the one by which the tree finds it.
    fn shown(&self, at: &SourceRef) -> Vec<u8> {
        at.path.as_bytes().to_vec()
    }

    /// The extras that scans so far could not read, or that may not travel. Default: none.
    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// A session that read from this is over, and what was opened for it will not be wanted.
    /// Requests that are still queued must not wait for anybody from now on. Default: none does.
    fn session_ended(&self) {}
}
