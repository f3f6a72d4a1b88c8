//! The destination of a transfer: files are written under temporary names, made durable, then
//! published under their final names, each whole or not at all.
//!
//! Takes orders from the receiving side, in this order: directories, temporaries, writes,
//! [`TargetTree::seal`], [`TargetTree::barrier`], [`TargetTree::publish`],
//! [`TargetTree::sync_dirs`]. Knows nothing of digests and peers.

mod base;
mod costs;
mod device;
mod dirs;
mod file;
mod fs;
mod links;
mod meta;
mod policy;
mod readback;
mod reopen;
mod spelling;
mod staged;
mod standing;
mod sync;
mod temp;
mod void;

use std::ops::Range;
use std::sync::Arc;

use longhaul_core::{FileNode, Meta, Preserve, RelPath, TempName};

use crate::error::DiskError;
pub use crate::kernel::Replace;
use crate::stat::{Identity, Standing};

pub use device::SyncMethod;
pub use file::{Place, TargetFile, TargetId};
pub use fs::FsTarget;
pub use policy::{LinkPolicy, ModePolicy, TreePolicy};
pub use readback::Back;
pub use staged::Staged;
pub use sync::SyncCounts;
pub use void::VoidTarget;

/// The result of [`TargetTree::make_dir`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Made {
    /// Nothing stood there: the directory is new.
    Created,
    /// The directory stood already.
    Stood,
}

/// The facts that a journal holds of a temporary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journalled {
    /// The file's identity. `None` if the journal does not say.
    pub node: Option<FileNode>,
    /// The number of its bytes that are durable.
    pub bytes: u64,
}

/// Free space and file entries of a file system, as far as this user may take them: the part
/// reserved for root counts only for root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The file system's device number.
    pub device: u64,
    /// Free bytes.
    pub bytes: u64,
    /// Free inodes. `None` where their number is not fixed.
    pub inodes: Option<u64>,
    /// Whether more than `bytes` certainly cannot fit. False where files may be compressed.
    pub is_firm: bool,
}

/// A temporary that an earlier session left, open again.
#[derive(Debug)]
pub struct Reopened {
    /// The file.
    pub file: Arc<TargetFile>,
    /// The reason why it may not hold the bytes that its journal says. `None`: it is the file that
    /// was written, as long as it was, with as many blocks as its durable bytes need.
    pub differs: Option<&'static str>,
}

/// A tree to receive into. Paths are those of the manifest, beneath the destination.
pub trait TargetTree: Send + Sync + 'static {
    /// The file, directory or other thing that stands at `path`. `None` if nothing does.
    ///
    /// # Errors
    /// [`DiskError::Escape`] if a link stands above it; otherwise the system's error.
    fn examine(&self, path: &RelPath) -> Result<Option<Standing>, DiskError>;

    /// Makes a directory (for the owner alone until [`TargetTree::finish_dir`]) in one that exists.
    /// If one of ours stands already and its mode shuts its owner out, it is opened to the owner
    /// until then.
    ///
    /// # Errors
    /// [`DiskError::Exists`] if something else has the name, be it a link to a directory.
    fn make_dir(&self, path: &RelPath) -> Result<Made, DiskError>;

    /// Creates a temporary of this name for a file of `len` bytes that will be `path`, ready for
    /// chunk writes. `sparse`: blocks that are all zero stay holes. It stands until it is published
    /// or discarded, even if this process dies.
    ///
    /// # Errors
    /// The system's error.
    fn create(&self, path: &RelPath, len: u64, sparse: bool, temp: &TempName) -> Result<Arc<TargetFile>, DiskError>;

    /// Opens a temporary that [`TargetTree::create`] made earlier, ready for more chunk writes;
    /// from now on zeros are always written, as other bytes may lie there. `None` if no such file
    /// stands, or if it is not ours alone. A name proves nothing: the file is compared with what is
    /// `journalled` of it, before its length is set.
    ///
    /// # Errors
    /// [`DiskError::InUse`] if it is open for writing still, here or elsewhere; otherwise the
    /// system's error.
    fn reopen(
        &self,
        path: &RelPath,
        len: u64,
        sparse: bool,
        temp: &TempName,
        journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError>;

    /// Removes the temporary of a file that would have been `path`, if it stands. It must not be
    /// open in this process.
    ///
    /// # Errors
    /// The system's error.
    fn remove_temp(&self, path: &RelPath, temp: &TempName) -> Result<(), DiskError>;

    /// Removes from the directory at `path` (if it stands) the temporaries for which `orphan`
    /// returns true: no session will continue them. Returns how many. A temporary that is open for
    /// writing, or is not ours, stays in any case.
    ///
    /// The lack of a journal for a tag on the shelf at hand proves nothing: trees may lie in each
    /// other, each with a shelf of its own. A journal that was free and is locked by us now is a
    /// proof.
    ///
    /// # Errors
    /// The system's error.
    fn sweep(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError>;

    /// Makes the names in these directories durable, as far as the directories stand: names that
    /// were removed from them stay removed after a crash.
    ///
    /// # Errors
    /// The system's error.
    fn sync_names(&self, dirs: &[RelPath]) -> Result<(), DiskError>;

    /// Makes a range of `file` (in bytes) read as zeros: a chunk that lies wholly in a hole needs
    /// it. It costs nothing in a file that was created for this session and was not written there.
    ///
    /// # Errors
    /// The system's error.
    fn make_hole(&self, file: &TargetFile, range: Range<u64>) -> Result<(), DiskError>;

    /// Writes a small file whole under a temporary name, with its metadata; not synced.
    ///
    /// # Errors
    /// The system's error; nothing is left of the file then.
    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError>;

    /// Makes a symbolic link under a temporary name; not synced.
    ///
    /// # Errors
    /// [`DiskError::LinkRefused`] if the tree does not take it; otherwise the system's error.
    fn make_link(&self, path: &RelPath, target: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError>;

    /// Makes durable every write on `file` that was complete before the call, and its temporary
    /// name.
    ///
    /// # Errors
    /// The system's error: then nothing since the last good sync is to be believed.
    fn sync_data(&self, file: &TargetFile) -> Result<(), DiskError>;

    /// Reads `len` bytes at `offset` of a file back from the medium into `slot`, past the page
    /// cache where the file system lets it. The range must be covered by a sync that has ended. The
    /// rest of the slot may change.
    ///
    /// # Errors
    /// The system's error.
    fn read_back(&self, file: &TargetFile, offset: u64, len: usize, slot: &mut [u8]) -> Result<Back, DiskError>;

    /// Reads the first `len` bytes of a small file back, staged or published since, in the same
    /// way.
    ///
    /// # Errors
    /// The system's error.
    fn read_staged(&self, staged: &Staged, len: usize, slot: &mut [u8]) -> Result<Back, DiskError>;

    /// Reads `len` bytes at `offset` of the file that stands at `path` into `slot`, past the page
    /// cache where that is asked for and pays. Also returns the identity of the file and its
    /// version. The rest of the slot may change.
    ///
    /// # Errors
    /// [`DiskError::Changed`] if it ends before, or no regular file stands there; otherwise the
    /// system's error.
    fn read_standing(
        &self,
        path: &RelPath,
        offset: u64,
        len: usize,
        slot: &mut [u8],
    ) -> Result<(Back, Identity), DiskError>;

    /// Gives the file at `path`, which has the permissions and times `is`, the mode that a file
    /// with the permissions `wanted` gets here, if that differs. It does so as far as the owner
    /// lets us, and unless the file has several names. A tree without modes does nothing.
    ///
    /// # Errors
    /// The system's error.
    fn fit_mode(&self, _path: &RelPath, _is: &Meta, _wanted: &Meta) -> Result<(), DiskError> {
        Ok(())
    }

    /// Checks that the file at `path` is still this version; then, if `meta` is given, sets its
    /// mode and time as far as its owner lets us. Not synced: a change that is lost in a crash is
    /// made again.
    ///
    /// # Errors
    /// [`DiskError::Changed`] if it is another, or was written to; otherwise the system's error.
    fn retouch(
        &self,
        path: &RelPath,
        expect: &Identity,
        meta: Option<&Meta>,
        preserve: Preserve,
    ) -> Result<(), DiskError>;

    /// Gives a wholly written file its length, mode and, last, its times; not synced. No write may
    /// be under way.
    ///
    /// # Errors
    /// The system's error.
    fn seal(&self, file: Arc<TargetFile>, meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError>;

    /// Makes the content and metadata of all of `staged` durable.
    ///
    /// # Errors
    /// The system's error, or [`DiskError::Doubted`] if another sync failed since one of them was
    /// begun: then none of them is to be believed.
    fn barrier(&self, staged: &[&Staged]) -> Result<(), DiskError>;

    /// Notes that the content of a small staged file was read back from the medium, and is right:
    /// of failed syncs only those from now on concern it.
    fn believe(&self, staged: &Staged);

    /// Gives `staged` its final name. A file that it replaces is gone; the name is durable only
    /// after [`TargetTree::sync_dirs`].
    ///
    /// # Errors
    /// [`DiskError::Doubted`] if a sync failed since it was begun and its own barrier does not
    /// prove it; [`DiskError::Appeared`] if the name is taken and may not be replaced;
    /// [`DiskError::Exists`] if by a directory; [`DiskError::OnlyReplaces`] if the file system
    /// cannot rename without the risk of replacing.
    fn publish(&self, staged: &Staged, replace: Replace) -> Result<(), DiskError>;

    /// Makes names durable: those of `staged`, of all directories made or finished so far, and of
    /// all entries that were found standing.
    ///
    /// # Errors
    /// The system's error, or [`DiskError::Doubted`] if another sync failed since one of `staged`
    /// was begun: then no name since the last good call is to be believed.
    fn sync_dirs(&self, staged: &[Staged]) -> Result<(), DiskError>;

    /// Gives a directory its mode and times, after all entries in it, and checks that its path
    /// still leads to it.
    ///
    /// # Errors
    /// [`DiskError::Moved`] if it does not; otherwise the system's error.
    fn finish_dir(&self, path: &RelPath, meta: &Meta, preserve: Preserve) -> Result<(), DiskError>;

    /// Checks that the directory into which everything was put is still the one that the operator
    /// named.
    ///
    /// # Errors
    /// [`DiskError::Moved`] if something was mounted over it, or another took its place; otherwise
    /// the system's error.
    fn check_place(&self) -> Result<(), DiskError> {
        Ok(())
    }

    /// Free space and file entries on the file system on which a file at `path` would lie. `None`
    /// if they are not known.
    fn room(&self, path: &RelPath) -> Option<Room> {
        let _ = path;
        None
    }

    /// Bytes that the temporary of the file at `path` occupies on its file system. `None` if it
    /// does not stand, or the number is not known.
    fn occupied(&self, path: &RelPath, temp: &TempName) -> Option<u64> {
        let _ = (path, temp);
        None
    }

    /// The number of syncs so far.
    fn sync_counts(&self) -> SyncCounts;

    /// The way in which small files and names at its top are made durable. `None` if nothing is
    /// kept, and so nothing is synced.
    fn sync_method(&self) -> Option<SyncMethod>;
}
