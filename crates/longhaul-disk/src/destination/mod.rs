//! Where bytes go: files under temporary names, then durable, then published under their final
//! names, all at once or not at all.
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

/// What [`TargetTree::make_dir`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Made {
    /// Nothing: the directory is new.
    Created,
    /// The directory.
    Stood,
}

/// What a journal says of a temporary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journalled {
    /// Which file it is. `None`: nothing is said of that.
    pub node: Option<FileNode>,
    /// How many of its bytes are held.
    pub bytes: u64,
}

/// Free space and file entries of a file system, as far as this user may take them: what is kept
/// for root only if it is root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The file system's device number.
    pub device: u64,
    /// Free bytes.
    pub bytes: u64,
    /// Free inodes. `None` where their number is not fixed.
    pub inodes: Option<u64>,
    /// Whether more than that cannot fit. It may where files are compressed.
    pub is_firm: bool,
}

/// A temporary that an earlier session left, open again.
#[derive(Debug)]
pub struct Reopened {
    /// The file.
    pub file: Arc<TargetFile>,
    /// Why it may not hold what its journal says. `None`: it is the file that was written, as long
    /// as it was, with as many blocks as what is held needs.
    pub differs: Option<&'static str>,
}

/// A tree to receive into. Paths are those of the manifest, beneath the destination.
pub trait TargetTree: Send + Sync + 'static {
    /// What stands at `path`; none if nothing does.
    ///
    /// # Errors
    /// [`DiskError::Escape`] if a link stands above it; what the system says of others.
    fn examine(&self, path: &RelPath) -> Result<Option<Standing>, DiskError>;

    /// Makes a directory (for the owner alone until [`TargetTree::finish_dir`]) in one that exists.
    /// One of ours that stands and shuts its owner out is opened to the owner until then.
    ///
    /// # Errors
    /// [`DiskError::Exists`] if something else has the name, be it a link to a directory.
    fn make_dir(&self, path: &RelPath) -> Result<Made, DiskError>;

    /// Creates a temporary of this name for a file of `len` bytes that will be `path`, ready for
    /// chunk writes. `sparse`: blocks that are all zero stay holes. It stands until it is published
    /// or discarded, whatever becomes of this process.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, path: &RelPath, len: u64, sparse: bool, temp: &TempName) -> Result<Arc<TargetFile>, DiskError>;

    /// Opens a temporary that [`TargetTree::create`] made earlier, ready for more chunk writes;
    /// from now on zeros are written wherever they come, as anything may lie there. None if it does
    /// not stand, or not as a file of ours alone. A name proves nothing: what stands there is
    /// compared with what is `journalled` of it, before its length is set.
    ///
    /// # Errors
    /// [`DiskError::InUse`] if it is open for writing still, here or elsewhere; what the system
    /// says of others.
    fn reopen(
        &self,
        path: &RelPath,
        len: u64,
        sparse: bool,
        temp: &TempName,
        journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError>;

    /// Removes a temporary of a file that would have been `path`, if it stands. It must not be open
    /// here.
    ///
    /// # Errors
    /// What the system says.
    fn remove_temp(&self, path: &RelPath, temp: &TempName) -> Result<(), DiskError>;

    /// Removes from the directory at `path` (none: nothing to do) the temporaries that `orphan`
    /// says nobody will go on with; gives how many. One that is open for writing, or is not ours,
    /// stays in any case.
    ///
    /// That a tag has no journal on the shelf at hand is no proof: trees may lie in each other,
    /// each with a shelf of its own. A journal that was free and is locked by us now is one.
    ///
    /// # Errors
    /// What the system says.
    fn sweep(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError>;

    /// Makes durable which names stand in these directories, as far as they stand: what was removed
    /// from them is gone for good.
    ///
    /// # Errors
    /// What the system says.
    fn sync_names(&self, dirs: &[RelPath]) -> Result<(), DiskError>;

    /// Sees to it that a range of `file` (in bytes) reads as zeros: what a chunk needs that lies
    /// wholly in a hole. Costs nothing in a file that was created for this session and was not
    /// written there.
    ///
    /// # Errors
    /// What the system says.
    fn make_hole(&self, file: &TargetFile, range: Range<u64>) -> Result<(), DiskError>;

    /// Writes a small file whole under a temporary name, with its metadata; not synced.
    ///
    /// # Errors
    /// What the system says; nothing is left of it then.
    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError>;

    /// Makes a symbolic link under a temporary name; not synced.
    ///
    /// # Errors
    /// [`DiskError::LinkRefused`] if the tree does not take it; what the system says.
    fn make_link(&self, path: &RelPath, target: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError>;

    /// Makes durable every write on `file` that was complete before the call, and its temporary
    /// name.
    ///
    /// # Errors
    /// What the system says: then nothing since the last good sync is to be believed.
    fn sync_data(&self, file: &TargetFile) -> Result<(), DiskError>;

    /// Reads `len` bytes at `offset` of a file back from the medium into `slot`, past the page
    /// cache where the file system lets it: what a sync covered that ended before. What lies behind
    /// them in the slot may change.
    ///
    /// # Errors
    /// What the system says.
    fn read_back(&self, file: &TargetFile, offset: u64, len: usize, slot: &mut [u8]) -> Result<Back, DiskError>;

    /// The same for the first `len` bytes of something small that is staged, or published since.
    ///
    /// # Errors
    /// What the system says.
    fn read_staged(&self, staged: &Staged, len: usize, slot: &mut [u8]) -> Result<Back, DiskError>;

    /// Reads `len` bytes at `offset` of the file that stands at `path` into `slot`, past the page
    /// cache where that is asked for and pays, and says which version of which file that is. What
    /// lies behind them in the slot may change.
    ///
    /// # Errors
    /// [`DiskError::Changed`] if it ends before, or no regular file stands there; what the system
    /// says of others.
    fn read_standing(
        &self,
        path: &RelPath,
        offset: u64,
        len: usize,
        slot: &mut [u8],
    ) -> Result<(Back, Identity), DiskError>;

    /// Gives the file at `path`, which stands there with the permissions and times `is`, the mode
    /// that one with these permissions gets, if that is another; as far as its owner lets us, and
    /// unless it has several names. A tree without modes has none to give.
    ///
    /// # Errors
    /// When the system fails.
    fn fit_mode(&self, _path: &RelPath, _is: &Meta, _wanted: &Meta) -> Result<(), DiskError> {
        Ok(())
    }

    /// Sees to it that the file at `path` is still this version; then, if `meta` is given, that it
    /// has this mode and time as far as its owner lets us. Not synced: what is lost of it is set
    /// again.
    ///
    /// # Errors
    /// [`DiskError::Changed`] if it is another, or was written to; what the system says of others.
    fn retouch(
        &self,
        path: &RelPath,
        expect: &Identity,
        meta: Option<&Meta>,
        preserve: Preserve,
    ) -> Result<(), DiskError>;

    /// Gives a file that is wholly written its length, mode and, last, its times; not synced. No
    /// write may be under way.
    ///
    /// # Errors
    /// What the system says.
    fn seal(&self, file: Arc<TargetFile>, meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError>;

    /// Makes the content and metadata of all of `staged` durable.
    ///
    /// # Errors
    /// What the system says, or [`DiskError::Doubted`] if another sync failed since one of them was
    /// begun: then none of them is to be believed.
    fn barrier(&self, staged: &[&Staged]) -> Result<(), DiskError>;

    /// The content of something small that is staged was read back from the medium, and is right:
    /// of failed syncs only those from now on concern it.
    fn believe(&self, staged: &Staged);

    /// Gives it its final name. What it replaced is gone; durable only after
    /// [`TargetTree::sync_dirs`].
    ///
    /// # Errors
    /// [`DiskError::Doubted`] if a sync failed since it was begun and its own barrier does not
    /// prove it; [`DiskError::Appeared`] if the name is taken and may not be replaced;
    /// [`DiskError::Exists`] if by a directory; [`DiskError::OnlyReplaces`] if the file system
    /// cannot rename without the risk of replacing.
    fn publish(&self, staged: &Staged, replace: Replace) -> Result<(), DiskError>;

    /// Makes names durable: those of `staged`, of all directories made or finished so far, and of
    /// what was found standing.
    ///
    /// # Errors
    /// What the system says, or [`DiskError::Doubted`] if another sync failed since one of `staged`
    /// was begun: then no name since the last good call is to be believed.
    fn sync_dirs(&self, staged: &[Staged]) -> Result<(), DiskError>;

    /// Gives a directory its mode and times, after all that lies in it, and sees to it that its
    /// path still leads to it.
    ///
    /// # Errors
    /// [`DiskError::Moved`] if it does not; what the system says of others.
    fn finish_dir(&self, path: &RelPath, meta: &Meta, preserve: Preserve) -> Result<(), DiskError>;

    /// Sees to it that the directory that everything was put into is still the one that the
    /// operator named.
    ///
    /// # Errors
    /// [`DiskError::Moved`] if something was mounted over it, or another took its place; what the
    /// system says of others.
    fn check_place(&self) -> Result<(), DiskError> {
        Ok(())
    }

    /// Free space and file entries on the file system on which a file at `path` would lie. `None`:
    /// nothing is known of them.
    fn room(&self, path: &RelPath) -> Option<Room> {
        let _ = path;
        None
    }

    /// Bytes that the temporary of the file at `path` occupies on its file system. `None`: it is
    /// not there, or nothing is known of it.
    fn occupied(&self, path: &RelPath, temp: &TempName) -> Option<u64> {
        let _ = (path, temp);
        None
    }

    /// How many syncs there were.
    fn sync_counts(&self) -> SyncCounts;

    /// How small files and names at its top are made durable. `None`: they are not, as nothing is
    /// kept.
    fn sync_method(&self) -> Option<SyncMethod>;
}
