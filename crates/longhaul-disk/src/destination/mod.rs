//! The destination of a transfer: files are written under temporary names, made durable, then
//! published under their final names, each whole or not at all.
//!
//! Takes orders from the receiving side, in this order: directories, temporaries, writes,
//! [`TargetTree::seal`], [`TargetTree::barrier`], [`TargetTree::publish`],
//! [`TargetTree::sync_dirs`]. Knows nothing of digests and peers.

mod base;
mod body;
mod costs;
mod dataset;
mod device;
mod dirs;
mod extras;
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
mod stream;
mod striped;
mod sync;
mod temp;
mod void;

use std::sync::Arc;

use longhaul_core::{ChunkIndex, ChunkMap, Layout, Losses, Meta, Place, Preserve, RelPath, TempName};
use rustix::io::Errno;

use crate::error::DiskError;
pub use crate::fill::Back;
pub use crate::kernel::Replace;
use crate::load::TargetLoad;
pub use crate::room::Room;
use crate::stat::{Identity, Standing};

pub(crate) use body::DiskBody;
pub use body::{Body, Zeros};
pub use dataset::{
    CountLeft, DatasetError, DatasetOrder, DatasetStage, DatasetTop, FoundStage, IdleStage, ListedName, Published,
    ReadRoots, Removed, StageFacts, StagePart, StagedKind, StagedNames, look_at_dataset,
};
pub use device::SyncMethod;
pub(crate) use dirs::DirHandle;
pub use file::TargetFile;
pub(crate) use fs::ReopenedPart;
pub use fs::{FsTarget, NameBefore, NameMade, NameProof, NamedBytes, ReopenedBody};
pub use policy::{ExtrasPolicy, LinkPolicy, ModePolicy, TreePolicy};
pub use reopen::{Journalled, Reopened};
pub(crate) use striped::{Full, Striped, StripedName, WriteTurn, is_for_another};
pub(crate) use temp::random;

pub use staged::Staged;
pub use stream::{LastBlock, Prefill, StreamFigures, StreamForm, StreamOutput, StreamShape, StreamSink, StreamTarget};
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

/// A tree to receive into. Paths are those of the manifest, beneath the destination.
///
/// A tree that wraps another one names it in [`TargetTree::beneath`], and writes the methods that
/// it changes: the default of every method is to ask the tree beneath. A tree of another kind than
/// a directory has none beneath. It writes [`TargetTree::examine`], [`TargetTree::make_dir`],
/// [`TargetTree::create`] (with files made by [`TargetFile::new`] of bodies by [`Body::of`]),
/// [`TargetTree::write_small`] and [`TargetTree::publish`], which fail by default; the others have
/// no effect then, or act on the bodies.
pub trait TargetTree: Send + Sync + 'static {
    /// The tree that does everything which this one does not. `None`: there is none.
    fn beneath(&self) -> Option<&dyn TargetTree> {
        None
    }

    /// The rule by which chunks are laid over the bodies of its temporaries, which have one for
    /// each target.
    fn layout(&self) -> Layout {
        self.beneath().map_or(Layout::WHOLE, TargetTree::layout)
    }

    /// The file, directory or other thing that stands at `path`. `None` if nothing does.
    ///
    /// # Errors
    /// [`DiskError::Escape`] if a link stands above it; otherwise the system's error.
    fn examine(&self, path: &RelPath) -> Result<Option<Standing>, DiskError> {
        match self.beneath() {
            Some(tree) => tree.examine(path),
            None => Err(lacking("examine", path)),
        }
    }

    /// Makes a directory (for the owner alone until [`TargetTree::finish_dir`]) in one that exists.
    /// If one of ours stands already and its mode shuts its owner out, it is opened to the owner
    /// until then.
    ///
    /// # Errors
    /// [`DiskError::Exists`] if something else has the name, be it a link to a directory.
    fn make_dir(&self, path: &RelPath) -> Result<Made, DiskError> {
        match self.beneath() {
            Some(tree) => tree.make_dir(path),
            None => Err(lacking("make the directory", path)),
        }
    }

    /// Creates a temporary of this name for a file that will be `path`, ready for writes of the
    /// chunks of `map`. Where several targets hold it, the map says how long each body is.
    /// `sparse`: blocks that are all zero stay holes. It stands until it is published or discarded,
    /// even if this process dies.
    ///
    /// # Errors
    /// The system's error.
    fn create(
        &self,
        path: &RelPath,
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
    ) -> Result<Arc<TargetFile>, DiskError> {
        match self.beneath() {
            Some(tree) => tree.create(path, map, sparse, temp),
            None => Err(lacking("create a temporary file for", path)),
        }
    }

    /// As [`TargetTree::create`], for a file that will have this metadata: a tree that must tell it
    /// before the bytes. Default: it comes with [`TargetTree::seal`].
    ///
    /// # Errors
    /// The system's error.
    fn create_known(
        &self,
        path: &RelPath,
        map: ChunkMap,
        zeros: Zeros,
        temp: &TempName,
        meta: &Meta,
    ) -> Result<Arc<TargetFile>, DiskError> {
        let _ = meta;
        self.create(path, map, zeros == Zeros::LeftOut, temp)
    }

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
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
        journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError> {
        match self.beneath() {
            Some(tree) => tree.reopen(path, map, sparse, temp, journalled),
            None => Ok(None),
        }
    }

    /// Removes the temporary of a file that would have been `path`, if it stands. It must not be
    /// open in this process.
    ///
    /// # Errors
    /// The system's error.
    fn remove_temp(&self, path: &RelPath, temp: &TempName) -> Result<(), DiskError> {
        match self.beneath() {
            Some(tree) => tree.remove_temp(path, temp),
            None => Ok(()),
        }
    }

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
    fn sweep(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError> {
        match self.beneath() {
            Some(tree) => tree.sweep(path, orphan),
            None => Ok(0),
        }
    }

    /// Makes the names in these directories durable, as far as the directories stand: names that
    /// were removed from them stay removed after a crash.
    ///
    /// # Errors
    /// The system's error.
    fn sync_names(&self, dirs: &[RelPath]) -> Result<(), DiskError> {
        match self.beneath() {
            Some(tree) => tree.sync_names(dirs),
            None => Ok(()),
        }
    }

    /// Makes `len` bytes at `place` of `file` read as zeros: a chunk that lies wholly in a hole
    /// needs it. It costs nothing in a file that was created for this session and was not written
    /// there.
    ///
    /// # Errors
    /// [`DiskError::Bounds`] if the file has no such target; otherwise the system's error.
    fn make_hole(&self, file: &TargetFile, place: Place, len: u64) -> Result<(), DiskError> {
        match self.beneath() {
            Some(tree) => tree.make_hole(file, place, len),
            None => file.make_hole(place, len),
        }
    }

    /// Writes a small file whole under a temporary name, with its metadata; not synced.
    ///
    /// # Errors
    /// The system's error; nothing is left of the file then.
    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        match self.beneath() {
            Some(tree) => tree.write_small(path, bytes, meta, preserve),
            None => Err(lacking("write", path)),
        }
    }

    /// Makes a symbolic link under a temporary name; not synced.
    ///
    /// # Errors
    /// [`DiskError::LinkRefused`] if the tree does not take it; otherwise the system's error.
    fn make_link(&self, path: &RelPath, target: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        match self.beneath() {
            Some(tree) => tree.make_link(path, target, meta, preserve),
            None => Err(lacking("make a link for", path)),
        }
    }

    /// Makes `path`, under a temporary name, another name of the file at `first`, if `proof` lets
    /// that file have one; not synced. By default a file has one name.
    fn make_name(&self, path: &RelPath, first: &RelPath, proof: &NameProof<'_>) -> NameMade {
        self.beneath().map_or(NameMade::Refused, |tree| tree.make_name(path, first, proof))
    }

    /// Makes durable every write on `file` that was complete before the call, and its temporary
    /// name. Gives the chunks whose bytes it gives up instead, as their target does not answer:
    /// each of them once, and none that an earlier sync has covered.
    ///
    /// # Errors
    /// The system's error: then nothing since the last good sync is to be believed.
    fn sync_data(&self, file: &TargetFile) -> Result<Vec<ChunkIndex>, DiskError> {
        match self.beneath() {
            Some(tree) => tree.sync_data(file),
            None => file.sync_given().map(|()| Vec::new()),
        }
    }

    /// Reads `len` bytes at `place` of a file back from the medium into `slot`, past the page cache
    /// where the file system lets it. The range must have been written, and be written by nothing
    /// meanwhile. Only bytes that a sync covers that has ended are the medium's: others may be read
    /// too, and show what a later sync makes durable. The rest of the slot may change.
    ///
    /// # Errors
    /// The system's error.
    fn read_back(&self, file: &TargetFile, place: Place, len: usize, slot: &mut [u8]) -> Result<Back, DiskError> {
        match self.beneath() {
            Some(tree) => tree.read_back(file, place, len, slot),
            None => file.read_back(place, len, slot),
        }
    }

    /// Reads the first `len` bytes of a small file back, staged or published since, in the same
    /// way.
    ///
    /// # Errors
    /// The system's error.
    fn read_staged(&self, staged: &Staged, len: usize, slot: &mut [u8]) -> Result<Back, DiskError> {
        match self.beneath() {
            Some(tree) => tree.read_staged(staged, len, slot),
            None => Err(readback::impossible(staged.path())),
        }
    }

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
    ) -> Result<(Back, Identity), DiskError> {
        match self.beneath() {
            Some(tree) => tree.read_standing(path, offset, len, slot),
            None => Err(readback::impossible(path)),
        }
    }

    /// Gives the file at `path`, which has the permissions and times `is`, the mode and extras that
    /// a file with `wanted` gets here, if they differ: as far as the owner lets us, and unless it
    /// has several names. A tree without metadata does nothing.
    ///
    /// # Errors
    /// The system's error.
    fn fit(&self, path: &RelPath, is: &Meta, wanted: &Meta, preserve: Preserve) -> Result<(), DiskError> {
        self.beneath().map_or(Ok(()), |tree| tree.fit(path, is, wanted, preserve))
    }

    /// The extras that could not be kept so far. A tree that keeps none says so here.
    fn losses(&self) -> Losses {
        self.beneath().map(TargetTree::losses).unwrap_or_default()
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
    ) -> Result<(), DiskError> {
        match self.beneath() {
            Some(tree) => tree.retouch(path, expect, meta, preserve),
            None => Err(readback::impossible(path)),
        }
    }

    /// Gives a wholly written file its length, mode, extras and, last, its times; not synced. No
    /// write may be under way.
    ///
    /// # Errors
    /// The system's error.
    fn seal(&self, file: Arc<TargetFile>, meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        match self.beneath() {
            Some(tree) => tree.seal(file, meta, preserve),
            None => file.seal_given(meta, preserve).map(|()| Staged::large(file)),
        }
    }

    /// Makes the content and metadata of all of `staged` durable, but for those that it gives, by
    /// their places in it: their target does not answer, and they are to be asked for again.
    ///
    /// # Errors
    /// As [`TargetTree::barrier_of_all`].
    fn barrier(&self, staged: &[&Staged]) -> Result<Vec<usize>, DiskError> {
        match self.beneath() {
            Some(tree) => tree.barrier(staged),
            None => self.barrier_of_all(staged).map(|()| Vec::new()),
        }
    }

    /// Makes the content and metadata of all of `staged` durable, however long a target takes.
    ///
    /// # Errors
    /// The system's error, or [`DiskError::Doubted`] if another sync failed since one of them was
    /// begun: then none of them is to be believed.
    fn barrier_of_all(&self, staged: &[&Staged]) -> Result<(), DiskError> {
        match self.beneath() {
            Some(tree) => tree.barrier_of_all(staged),
            None => staged.iter().try_for_each(|staged| staged.sync_given()),
        }
    }

    /// Notes that the content of a small staged file was read back from the medium, and is right:
    /// of failed syncs only those from now on concern it.
    fn believe(&self, staged: &Staged) {
        if let Some(tree) = self.beneath() {
            tree.believe(staged);
        }
    }

    /// Gives `staged` its final name. A file that it replaces is gone; the name is durable only
    /// after [`TargetTree::sync_dirs`].
    ///
    /// # Errors
    /// [`DiskError::Doubted`] if a sync failed since it was begun and its own barrier does not
    /// prove it; [`DiskError::Appeared`] if the name is taken and may not be replaced;
    /// [`DiskError::Exists`] if by a directory; [`DiskError::OnlyReplaces`] if the file system
    /// cannot rename without the risk of replacing.
    fn publish(&self, staged: &Staged, replace: Replace) -> Result<(), DiskError> {
        match self.beneath() {
            Some(tree) => tree.publish(staged, replace),
            None => Err(lacking("publish", staged.path())),
        }
    }

    /// Makes names durable: those of `staged`, of all directories made or finished so far, and of
    /// all entries that were found standing.
    ///
    /// # Errors
    /// The system's error, or [`DiskError::Doubted`] if another sync failed since one of `staged`
    /// was begun: then no name since the last good call is to be believed.
    fn sync_dirs(&self, staged: &[Staged]) -> Result<(), DiskError> {
        match self.beneath() {
            Some(tree) => tree.sync_dirs(staged),
            None => Ok(()),
        }
    }

    /// Gives a directory its mode, extras and times, after all entries in it, and checks that its
    /// path still leads to it.
    ///
    /// # Errors
    /// [`DiskError::Moved`] if it does not; otherwise the system's error.
    fn finish_dir(&self, path: &RelPath, meta: &Meta, preserve: Preserve) -> Result<(), DiskError> {
        match self.beneath() {
            Some(tree) => tree.finish_dir(path, meta, preserve),
            None => Ok(()),
        }
    }

    /// Checks that the directory into which everything was put is still the one that the operator
    /// named.
    ///
    /// # Errors
    /// [`DiskError::Moved`] if something was mounted over it, or another took its place; otherwise
    /// the system's error.
    fn check_place(&self) -> Result<(), DiskError> {
        self.beneath().map_or(Ok(()), |tree| tree.check_place())
    }

    /// Ends the destination: every entry has its outcome, and none follows. Default: nothing, or
    /// what the tree beneath does.
    ///
    /// # Errors
    /// The system's error.
    fn finish(&self) -> Result<(), DiskError> {
        self.beneath().map_or(Ok(()), |tree| tree.finish())
    }

    /// Free space and file entries on the file system on which a file at `path` would lie. `None`
    /// if they are not known.
    fn room(&self, path: &RelPath) -> Option<Room> {
        self.beneath()?.room(path)
    }

    /// Whether the temporary of the file at `path` stands.
    ///
    /// # Errors
    /// The system's error, if that cannot be told.
    fn has_temp(&self, path: &RelPath, temp: &TempName) -> Result<bool, DiskError> {
        self.beneath().map_or(Ok(false), |tree| tree.has_temp(path, temp))
    }

    /// Bytes that the temporary of the file at `path` occupies on its file system. `None` if it
    /// does not stand, or the number is not known.
    fn occupied(&self, path: &RelPath, temp: &TempName) -> Option<u64> {
        self.beneath()?.occupied(path, temp)
    }

    /// The loads of its targets, in order. Empty for a tree that is not on a disk.
    fn loads(&self) -> Vec<Arc<TargetLoad>> {
        self.beneath().map_or_else(Vec::new, |tree| tree.loads())
    }

    /// The number of syncs so far.
    fn sync_counts(&self) -> SyncCounts {
        self.beneath().map_or_else(SyncCounts::default, |tree| tree.sync_counts())
    }

    /// The way in which small files and names at its top are made durable. `None` if nothing is
    /// kept, and so nothing is synced.
    fn sync_method(&self) -> Option<SyncMethod> {
        self.beneath()?.sync_method()
    }
}

/// The error of a tree that does not do something and has no tree beneath it.
fn lacking(call: &'static str, path: &RelPath) -> DiskError {
    DiskError::call(call, path, Errno::OPNOTSUPP)
}
