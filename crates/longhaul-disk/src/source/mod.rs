//! Where bytes come from: trees that are scanned in a stream and files in them that are opened by
//! what the scan saw.
//!
//! Gives entries and open files to the sending side; takes filters and wishes from it. Knows
//! nothing of peers.

mod bases;
mod file;
mod fs;
mod read;
mod same_name;
mod scan;
mod select;
mod shape;
mod void;

use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{Entry, PathList, Preserve, RelPath};

use crate::error::DiskError;
use crate::stat::Identity;

pub use file::SourceFile;
pub use fs::{FsSource, SourceSpec};
pub use read::SmallFile;
pub use same_name::SameName;
pub use shape::Shape;
pub use void::{TimedVoid, VoidSource};

/// What to scan, and how.
#[derive(Clone, Debug)]
pub struct ScanRequest<'a> {
    /// What is included; an excluded directory is not entered.
    pub filter: &'a Filter,
    /// Whether links are sent.
    pub preserve: Preserve,
    /// Only these names beneath the (one) source, directories with all they hold, and the
    /// directories above them.
    pub files_from: Option<Arc<PathList>>,
}

/// Where an entry lies at its source: what [`SourceTree::open`] needs. Means something to the tree
/// that gave it only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceRef {
    pub(crate) source: u32,
    pub(crate) path: RelPath,
}

/// What a scan finds, in the order of a depth-first walk.
#[derive(Debug)]
pub enum Scanned {
    /// Something to send.
    Entry {
        /// What the manifest says of it.
        entry: Entry,
        /// Where it lies.
        source: SourceRef,
        /// Which version of it this is.
        identity: Identity,
    },
    /// Something that is not sent, which is no failure.
    Skipped {
        /// Where it would go.
        path: RelPath,
        /// What it is: `fifo`, `socket`, `device`, `unknown` or `symbolic link`.
        why: &'static str,
    },
    /// Something whose name is reserved, and that is not our own: it is not sent, which is no
    /// failure. No [`RelPath`] holds such a name.
    Reserved {
        /// The directory that it lies in.
        dir: RelPath,
        /// Its bare name.
        name: Vec<u8>,
    },
    /// Something that cannot be sent. The scan goes on.
    Failed {
        /// Where it would go (for a name too long to say, the directory it is in).
        path: RelPath,
        /// Why.
        error: DiskError,
    },
}

/// Trees to send from.
pub trait SourceTree: Send + Sync + 'static {
    /// Walks all of it, depth first and in no order within a directory, and gives each find to
    /// `sink` until that breaks off. `sink` may block to hold the scan back. Holds one batch of
    /// names per level, never a whole directory.
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>);

    /// Opens a file that a scan found, if it still is the one that was found.
    ///
    /// # Errors
    /// [`DiskError::Changed`] if it is another or another version, [`DiskError::Vanished`] if it is
    /// gone.
    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError>;

    /// Opens a small file that will be read whole and soon: the system begins to fetch it at once.
    ///
    /// # Errors
    /// As [`SourceTree::open`].
    fn open_small<'a>(&'a self, at: &'a SourceRef, expect: &'a Identity) -> Result<SmallFile<'a>, DiskError>;
}
