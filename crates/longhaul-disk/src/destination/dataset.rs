//! [`DatasetStage`]: where the files of a dataset are staged until all of them appear at once.
//!
//! In: the directory in which the dataset shall appear, its name, and whether one of that name may
//! be replaced. Out: a tree to which a session writes as to any other, and one rename at its end.
//! Knows nothing of sessions, lists and peers.
//!
//! Beside the name lies a *holder*, a directory of a reserved name of ours. In it lie
//!
//! | name | what |
//! |---|---|
//! | `name` | the dataset's name and whose it is, as text; locked by the session that stages |
//! | `tree` | the dataset as far as it came |
//! | `.longhaul` | the journals of its unfinished files |
//! | `roots` | the roots of files that a campaign's commit has read |
//! | `ready.INODE` | a note of the dataset that is in its last steps |
//!
//! In its last steps the dataset lies beside its name, under that of the holder and `.ready`: so
//! the rename that gives its name stays within one directory, and needs no right to write to what
//! it moves. What lies there is the new one if it has the inode that the note names, and else the
//! old one, which goes on as `NAME.ID~`.
//!
//! - **DATASET-1**: nothing in the dataset changes any more when its rename is made, and everything
//!   in it is durable before.
//! - **DATASET-2**: a name that stands is never replaced by a rename; it is exchanged, and what
//!   stood there is only ever moved to a name that is free.
//! - **DATASET-3**: one session at a time has a holder, which is that of one name and one
//!   principal of one user. Between holders of two principals the rename decides.

mod campaign;
mod holder;
mod left;
mod lock;
mod prune;
mod roots;

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::limits::DATASET_MANIFEST_NAME;
use longhaul_core::{Blame, DatasetName, Fault, FaultCode, RelPath};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, Timespec, Timestamps, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use self::campaign::CampaignMark;
pub use self::campaign::StagePart;
use self::holder::Holder;
pub use self::left::{CountLeft, FoundStage, IdleStage, StageFacts};
pub use self::prune::{ListedName, Removed, StagedKind, StagedNames};
pub use self::roots::ReadRoots;
use super::base;
use super::fs::{FsTarget, StagedHome};
use super::meta::mode;
use super::policy::{ModePolicy, TreePolicy};
use crate::direct::DirectMode;
use crate::error::{DiskError, PathText};
use crate::kernel::{Kernel, Replace};
use crate::names::each_name;
use crate::shelf::{Shelf, StageNote};
use crate::tree::Tree;
use crate::walk::Dir;

/// The place of a dataset that is being staged. Dropping it removes what nobody needs any more; a
/// dataset that has not appeared stays for the next session.
#[derive(Debug)]
pub struct DatasetStage {
    holder: Holder,
    replace: Replace,
    /// The mark of the campaign whose dataset it is. `None`: it is that of one transfer.
    mark: Option<CampaignMark>,
    tree: Arc<Tree>,
    /// The path that it shall have beneath the served tree, or its name alone.
    place: RelPath,
}

/// A dataset that is to be staged.
#[derive(Clone, Copy, Debug)]
pub struct DatasetOrder<'o> {
    /// Its name.
    pub name: &'o DatasetName,
    /// The principal that stages it. Nobody else goes on with what was staged, or removes it.
    pub principal: &'o str,
    /// Whether it may replace what has its name.
    pub replace: Replace,
    /// The part of it that the session stages.
    pub part: StagePart,
}

/// The dataset's own directory, open to be finished.
#[derive(Debug)]
pub struct DatasetTop {
    dir: Arc<Dir>,
    /// The directory as the session has left it.
    stat: Stat,
}

/// A dataset that has its name.
#[derive(Debug)]
pub struct Published {
    /// Whether it took the place of something else.
    pub replaced: bool,
    /// The name under which that is kept.
    pub old: Option<Vec<u8>>,
    /// A failure behind the rename: the dataset may not stay after a crash of this host, or what
    /// it replaced is kept under the name of its holder until the next session of that.
    pub fault: Option<DatasetError>,
}

/// A failure of staging or committing a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Something has the name.
    #[error("'{path}' stands already: a dataset takes a name that is free, unless it is to replace what has it")]
    Stands {
        /// The name.
        path: PathText,
    },
    /// Another session stages it.
    #[error("'{path}' is being staged by another transfer")]
    Busy {
        /// The name.
        path: PathText,
    },
    /// It has appeared already: what has the name is the dataset of the same campaign.
    #[error("'{path}' is the dataset of this campaign, which has appeared before")]
    Published {
        /// The name.
        path: PathText,
    },
    /// This destination cannot do it.
    #[error("'{path}' cannot appear at once: {why}")]
    Unable {
        /// The name.
        path: PathText,
        /// The reason.
        why: &'static str,
    },
}

impl DatasetError {
    /// The form for people and peers.
    pub fn fault(&self) -> Fault {
        let (code, path) = match self {
            DatasetError::Disk(error) => return error.fault(),
            DatasetError::Stands { path } => (FaultCode::Exists, path),
            DatasetError::Busy { path } => (FaultCode::Busy, path),
            DatasetError::Published { path } => (FaultCode::Published, path),
            DatasetError::Unable { path, .. } => (FaultCode::Usage, path),
        };
        Fault::new(code, Blame::Local, self).about(path)
    }
}

impl From<DatasetError> for Fault {
    fn from(error: DatasetError) -> Fault {
        error.fault()
    }
}

impl DatasetStage {
    /// Stages a dataset in the directory that a user named, which is made if it is missing. A
    /// session that has it already is waited for so long.
    ///
    /// # Errors
    /// A [`DatasetError`], before anything of the dataset is made.
    pub fn named(dir: &Path, order: DatasetOrder<'_>, patience: Duration) -> Result<DatasetStage, DatasetError> {
        let parent = base::named(dir, &Kernel::default())?;
        DatasetStage::at(parent, (dir.to_owned(), &RelPath::root(), None), order, patience)
    }

    /// The same in a directory beneath a served tree, of which that has a note.
    ///
    /// # Errors
    /// As [`DatasetStage::named`].
    pub fn beneath(
        (tree, path, modes): (&Tree, &RelPath, ModePolicy),
        order: DatasetOrder<'_>,
        patience: Duration,
    ) -> Result<DatasetStage, DatasetError> {
        let parent = base::beneath(tree, path, modes)?;
        DatasetStage::at(parent, (below(tree.named(), path), path, Some(tree.shelf())), order, patience)
    }

    fn at(
        parent: Arc<Dir>,
        (dir, beneath, shelf): (PathBuf, &RelPath, Option<Shelf>),
        order: DatasetOrder<'_>,
        patience: Duration,
    ) -> Result<DatasetStage, DatasetError> {
        let (replace, mark) = (order.replace, order.mark());
        let place = beneath.join(order.name.as_bytes());
        let place = place.map_err(|source| DiskError::Name { path: order.name.as_bytes().into(), source })?;
        let mut holder = Holder::take((parent, &dir), order, patience)?;
        if let Some(shelf) = shelf {
            holder = holder.noted(shelf, StageNote { place: place.clone(), principal: order.stager() })?;
        }
        // Cleaned up where it cannot be used.
        let tree = Tree::held(holder.dir(), dir.join(holder.shown_name()));
        let mut stage = DatasetStage { holder, replace, mark, tree, place };
        // Whoever has it beside others came behind one that has done so alone.
        if stage.holder.is_alone() {
            stage.holder.recover()?;
            stage.holder.try_renames(replace)?;
        } else if stage.holder.is_in_last_steps()? {
            return Err(DatasetError::Busy { path: stage.shown() });
        }
        stage.need_free_name()?;
        if order.part.is_of_shard() {
            stage.holder.let_others_in()?;
        }
        Ok(stage)
    }

    /// The tree with the dataset, which lies at [`DatasetStage::top_path`] in it.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The path of the dataset's own directory in its tree.
    pub fn top_path() -> RelPath {
        RelPath::new(holder::TREE).unwrap_or_default()
    }

    /// The path of a directory of the dataset in its tree. The root path is the dataset itself.
    ///
    /// # Errors
    /// A [`DatasetError`] of a path that is too long.
    pub fn path_of(onto: &RelPath) -> Result<RelPath, DatasetError> {
        joined_to(&DatasetStage::top_path(), onto)
    }

    /// The destination that writes to what is staged, at a directory of the dataset, under the
    /// policy of the tree in which it shall appear.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk, or of a path that is too long.
    pub fn target(&self, onto: &RelPath, direct: DirectMode, policy: TreePolicy) -> Result<FsTarget, DatasetError> {
        let (tree, top, place) = (Arc::clone(&self.tree), DatasetStage::path_of(onto)?, joined_to(&self.place, onto)?);
        Ok(FsTarget::staged(StagedHome { tree, top, place }, direct, policy)?)
    }

    /// A path by which this process reaches a directory for files without names.
    pub fn scratch_path(&self) -> PathBuf {
        path_of(&self.holder.dir())
    }

    /// The roots of staged files that earlier sessions of the commit have read.
    pub fn read_roots(&self) -> ReadRoots {
        ReadRoots::in_holder(&self.holder.dir())
    }

    /// The path at which the dataset shall appear, for people.
    pub fn shown(&self) -> PathText {
        self.holder.shown()
    }

    /// Notes that its session still stages files, at most once a minute.
    pub fn goes_on(&self) {
        self.holder.use_goes_on();
    }

    /// Refuses a dataset whose name is taken, if it may not replace what has it or could not, or if
    /// it is that very dataset which has it.
    fn need_free_name(&self) -> Result<(), DatasetError> {
        if self.mark.is_some() && self.holder.mark_of_name()? == self.mark {
            // Whoever had it appear may have died before that was durable.
            self.holder.sync()?;
            return Err(DatasetError::Published { path: self.shown() });
        }
        match self.replace {
            Replace::Never if self.holder.name_stands()? => Err(DatasetError::Stands { path: self.shown() }),
            Replace::Never => Ok(()),
            Replace::Allowed => self.holder.need_movable_name(),
        }
    }

    /// Opens the dataset's directory to finish it. A list that was begun and not published goes.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn open_top(&self) -> Result<DatasetTop, DatasetError> {
        let path = DatasetStage::top_path();
        let dir = self.tree.dir(&path)?;
        let failed = |call| move |error: Errno| DiskError::call(call, &DatasetStage::top_path(), error);
        let stat = fstat(dir.as_ref()).map_err(failed("examine"))?;
        // To move it into another directory, its owner must be let in too.
        let_owner_in(dir.kernel(), dir.as_ref()).map_err(failed("open to its owner"))?;
        remove_flat(&dir, DATASET_MANIFEST_NAME).map_err(failed("remove an old list from"))?;
        Ok(DatasetTop { dir, stat })
    }

    /// Notes the campaign whose dataset it is beside its sealed manifest: a mover that has not
    /// heard that it appeared knows it by that. Does nothing for the dataset of one transfer.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn note_campaign(&self, top: &DatasetTop) -> Result<(), DatasetError> {
        let Some(mark) = self.mark else { return Ok(()) };
        campaign::note(&top.dir, mark)
            .map_err(|error| DiskError::call("note the campaign of", self.shown(), error).into())
    }

    /// Gives the dataset's directory the times back that it had, as it does not appear this time.
    pub fn keep_times(&self, top: &DatasetTop) {
        let _ = top.dir.kernel().set_times_of_place(top.dir.as_ref(), &times_of(&top.stat));
    }

    /// Makes everything in the dataset durable.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn make_durable(&self, top: &DatasetTop) -> Result<(), DatasetError> {
        let failed = |call| move |error: Errno| DatasetError::from(DiskError::call(call, self.shown(), error));
        let (kernel, dir) = (top.dir.kernel(), top.dir.as_ref());
        kernel.set_times_of_place(dir, &times_of(&top.stat)).map_err(failed("set the times of"))?;
        let fd = self.holder.dir().readable().map_err(failed("open the staged files of"))?;
        kernel.syncfs(fd).map_err(failed("sync the file system of"))
    }

    /// Has the dataset appear, of which everything is durable.
    ///
    /// # Errors
    /// A [`DatasetError`]; then nothing has appeared.
    pub fn publish(&self, top: &DatasetTop) -> Result<Published, DatasetError> {
        let published = self.holder.make_ready().and_then(|()| {
            self.finish_top(top)?;
            self.holder.publish(self.replace)
        });
        // The note goes, or what has not got its name is staged again. Should it fail, the next
        // session does it.
        let recovered = self.holder.recover();
        if recovered.is_ok() {
            // Before anybody hears that it is done.
            self.holder.clear();
        }
        published
    }

    /// Gives the dataset's directory the mode that it shall have, durably, before anybody sees it.
    fn finish_top(&self, top: &DatasetTop) -> Result<(), DatasetError> {
        let (kernel, dir) = (top.dir.kernel(), top.dir.as_ref());
        let failed = |error| DatasetError::from(DiskError::call("set the mode of", self.shown(), error));
        // Before its mode may forbid it.
        let readable = top.dir.readable().map_err(failed)?;
        kernel.chmod_place(dir, mode(top.stat.st_mode & 0o7777)).map_err(failed)?;
        kernel.fsync(readable).map_err(failed)
    }
}

impl Drop for DatasetStage {
    fn drop(&mut self) {
        self.holder.note_use();
    }
}

impl DatasetTop {
    /// A path by which this process reaches the directory for the dataset's sealed manifest,
    /// wherever the dataset lies by then. It does not stand.
    pub fn manifest_path(&self) -> PathBuf {
        path_of(&self.dir).join(OsStr::from_bytes(DATASET_MANIFEST_NAME))
    }
}

/// A path below another one.
fn joined_to(above: &RelPath, below: &RelPath) -> Result<RelPath, DatasetError> {
    above.concat(below).map_err(|source| DiskError::Name { path: below.into(), source }.into())
}

/// The path of an open directory, for this process.
fn path_of(dir: &Dir) -> PathBuf {
    Path::new("/proc/self/fd").join(dir.as_fd().as_raw_fd().to_string())
}

/// The times of a file.
#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
fn times_of(stat: &Stat) -> Timestamps {
    let time = |secs: i64, nanos: i64| Timespec { tv_sec: secs as _, tv_nsec: nanos as _ };
    Timestamps {
        last_access: time(stat.st_atime as i64, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
    }
}

/// Whether a dataset could be staged there: a dry run makes nothing.
///
/// # Errors
/// [`DatasetError::Stands`], or the disk's error. A directory that does not stand is no error.
pub fn look_at_dataset(dir: &Path, name: &DatasetName, replace: Replace) -> Result<(), DatasetError> {
    let found = statat(CWD, dir.join(shown_of(name)), AtFlags::SYMLINK_NOFOLLOW);
    match (found, replace) {
        (Ok(_), Replace::Never) => Err(DatasetError::Stands { path: dir.join(shown_of(name)).as_path().into() }),
        (Ok(_), Replace::Allowed) | (Err(Errno::NOENT | Errno::NOTDIR), _) => Ok(()),
        (Err(error), _) => Err(DiskError::call("examine", dir, error).into()),
    }
}

/// The name as a path of this host.
fn shown_of(name: &DatasetName) -> &Path {
    Path::new(OsStr::from_bytes(name.as_bytes()))
}

/// A path beneath a tree, as a path of this host.
fn below(top: &Path, path: &RelPath) -> PathBuf {
    if path.is_root() { top.to_owned() } else { top.join(OsStr::from_bytes(path.as_bytes())) }
}

/// Lets the owner into a directory of ours, whose mode may forbid it. Gives the mode that it had,
/// if it was changed.
fn let_owner_in(kernel: &Kernel, dir: impl AsFd) -> Result<Option<u32>, Errno> {
    let bits = fstat(&dir)?.st_mode & 0o7777;
    if bits & 0o700 == 0o700 || geteuid().is_root() {
        return Ok(None);
    }
    kernel.chmod_place(&dir, mode(bits | 0o700))?;
    Ok(Some(bits))
}

/// Removes a directory of ours and the files in it, if it stands. It never has directories in it.
fn remove_flat(parent: &Dir, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        outcome => outcome?,
    };
    let mut names = Vec::new();
    each_name(&dir, |name| names.push(name.to_vec()))?;
    for name in names {
        parent.kernel().unlinkat(&dir, &name)?;
    }
    parent.kernel().rmdirat(parent, name)
}

#[cfg(test)]
mod tests;
