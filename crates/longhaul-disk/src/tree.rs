//! A served directory tree: held by its root, looked into without following any link beneath it.
//!
//! Gives standings and listings to the service, and starting points to
//! [`FsSource`](crate::FsSource) and [`FsTarget`](crate::FsTarget). Holds nothing open but the
//! root, as it lives as long as the daemon.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::{Clock, RelPath, TempName};
use rustix::fs::{AtFlags, FileType, Stat, StatVfsMountFlags, fstatvfs, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{DiskError, ErrorKind};
use crate::facts::{NameFacts, facts_in};
use crate::names::names_until;
use crate::room::{Asker, room_of};
use crate::shelf::{Shelf, sweep};
use crate::stat::{Standing, len_of, meta_of, special_name, type_of};
use crate::stripe::Stripes;
use crate::walk::{Dir, Walk};

/// A directory tree that is served or examined.
#[derive(Debug)]
pub struct Tree {
    walk: Walk,
    /// The path that the operator named.
    named: PathBuf,
    /// The user who alone uses the shelf. `None`: it is everybody's who may.
    shelf_of: Option<u32>,
}

/// The room on the file system of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeRoom {
    /// Bytes free, as this user may take them. `None`: not known.
    pub(crate) free_bytes: Option<u64>,
    /// Bytes in all. `None`: not known.
    pub(crate) total_bytes: Option<u64>,
    /// Whether nothing can be written there.
    pub(crate) read_only: bool,
}

impl Tree {
    /// Holds the directory at `dir`, following links to it as any program does.
    ///
    /// # Errors
    /// If there is no directory or it may not be entered.
    pub fn open(dir: &Path) -> Result<Arc<Tree>, DiskError> {
        let root = Arc::new(Dir::open_named(dir)?);
        Ok(Arc::new(Tree { walk: Walk::new(root, 0), named: dir.to_owned(), shelf_of: None }))
    }

    /// Holds the directory at `path` beneath `dir`. No link is followed beneath `dir`.
    ///
    /// # Errors
    /// As [`Tree::open`]; [`ErrorKind::Escape`](crate::ErrorKind::Escape) for a link.
    pub fn open_beneath(dir: &Path, path: &RelPath) -> Result<Arc<Tree>, DiskError> {
        let own = Tree::open(dir)?.dir(path)?;
        Ok(Tree::held(own, dir.join(OsStr::from_bytes(path.as_bytes()))))
    }

    /// The same for a user who has a shelf of its own there, beside those of others.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn open_for_user(dir: &Path, uid: u32) -> Result<Arc<Tree>, DiskError> {
        let root = Arc::new(Dir::open_named(dir)?);
        Ok(Arc::new(Tree { walk: Walk::new(root, 0), named: dir.to_owned(), shelf_of: Some(uid) }))
    }

    /// A tree in a directory that is open already and lies at the path `named`.
    pub(crate) fn held(root: Arc<Dir>, named: PathBuf) -> Arc<Tree> {
        Arc::new(Tree { walk: Walk::new(root, 0), named, shelf_of: None })
    }

    /// Holds the directory at `dir`, to be changed in the way in which `like` is.
    pub(crate) fn open_like(dir: &Path, like: &Tree) -> Result<Arc<Tree>, DiskError> {
        let root = Arc::new(Dir::open_behind(dir, like.root().kernel())?);
        Ok(Arc::new(Tree { walk: Walk::new(root, 0), named: dir.to_owned(), shelf_of: None }))
    }

    /// The same tree as one of a set with striped files.
    pub(crate) fn knowing(&self, stripes: &Arc<Stripes>) -> Result<Arc<Tree>, DiskError> {
        let root = self.root().knowing(stripes);
        let root = root.map_err(|error| DiskError::call("open", self.named.as_path(), error))?;
        Ok(Arc::new(Tree { walk: Walk::new(Arc::new(root), 0), named: self.named.clone(), shelf_of: self.shelf_of }))
    }

    /// The same tree behind an interposer.
    #[cfg(test)]
    pub(crate) fn behind(&self, kernel: &crate::kernel::Kernel) -> Arc<Tree> {
        let root = Arc::new(Dir::open_behind(&self.named, kernel).expect("open"));
        Arc::new(Tree { walk: Walk::new(root, 0), named: self.named.clone(), shelf_of: self.shelf_of })
    }

    /// The user who alone uses the shelf. `None`: it is everybody's who may.
    pub(crate) fn shelf_user(&self) -> Option<u32> {
        self.shelf_of
    }

    /// The path that the operator named.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// Bytes free on its file system, as this user may take them. `None` if that is not known.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.room().free_bytes
    }

    /// The room on its file system.
    pub(crate) fn room(&self) -> TreeRoom {
        let asker = if geteuid().is_root() { Asker::Root } else { Asker::Others };
        let Ok(stat) = fstatvfs(self.walk.root().as_ref()) else { return TreeRoom::default() };
        TreeRoom {
            free_bytes: room_of(&stat, asker).map(|(bytes, _)| bytes),
            total_bytes: (stat.f_blocks > 0).then(|| stat.f_blocks.saturating_mul(stat.f_frsize)),
            read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        }
    }

    /// The walk through it, which follows no link.
    pub(crate) fn walk(&self) -> &Walk {
        &self.walk
    }

    /// Its top.
    pub(crate) fn root(&self) -> &Arc<Dir> {
        self.walk.root()
    }

    /// Checks that the held directory is still the one at its path.
    ///
    /// # Errors
    /// [`DiskError::Moved`] if something was mounted over it, or another directory took its place.
    pub fn check_place(&self) -> Result<(), DiskError> {
        self.walk.root().check_named(&self.named)
    }

    /// The entry that stands at `path`. `None` if nothing does.
    ///
    /// # Errors
    /// [`DiskError::Escape`] if a link stands above it; otherwise the system's error.
    pub fn stat(&self, path: &RelPath) -> Result<Option<Standing>, DiskError> {
        examine(&self.walk, path)
    }

    /// The facts of a name. `None` if nothing has it, or something above it is no directory.
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::Escape`] if a link stands above it.
    pub fn facts(&self, path: &RelPath) -> Result<Option<NameFacts>, DiskError> {
        let (dir, name) = match self.walk().parent(path) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(error),
        };
        facts_in(&dir, name).map_err(|error| DiskError::call("examine", path, error))
    }

    /// The number of names in a directory, whatever they are: those of longhaul's own too. `None`
    /// if `goes_on`, which hears the number so far at each name, ends the count.
    ///
    /// # Errors
    /// The system's error.
    pub fn names_in(&self, path: &RelPath, goes_on: impl Fn(u64) -> bool) -> Result<Option<u64>, DiskError> {
        let dir = self.dir(path)?;
        let (mut names, mut is_over) = (0, false);
        let count = |_: &[u8]| {
            names += 1;
            is_over = !goes_on(names);
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let read = dir.readable().and_then(|dir| names_until(dir, count));
        read.map_err(|error| DiskError::call("list", path, error))?;
        Ok((!is_over).then_some(names))
    }

    /// The device that its top lies on.
    pub fn device(&self) -> u64 {
        self.root().dev()
    }

    /// The shelf with the journals of sessions that write beneath this tree.
    pub fn shelf(&self) -> Shelf {
        match self.shelf_of {
            Some(uid) => Shelf::of_user(self.walk.root(), uid),
            None => Shelf::of(self.walk.root()),
        }
    }

    /// Removes from the directory at `path` the temporaries that are orphans: see
    /// [`TargetTree::sweep`](crate::TargetTree::sweep). On return they are gone for good, also
    /// those that were removed before and not synced.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    pub fn sweep(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError> {
        Ok(self.swept(path, orphan)?.len())
    }

    /// The same; returns those that were removed.
    pub(crate) fn swept(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<Vec<TempName>, DiskError> {
        let dir = self.walk.dir(path)?;
        let removed =
            sweep(&dir, orphan).map_err(|error| DiskError::call("remove old temporary files from", path, error))?;
        let synced = dir.sync();
        synced.map_err(|error| DiskError::call("sync the directory", path, error))?;
        Ok(removed)
    }

    /// The directory at `path`, as the start of a walk.
    pub(crate) fn dir(&self, path: &RelPath) -> Result<Arc<Dir>, DiskError> {
        self.walk.dir(path)
    }
}

/// The entry that stands at `path` beneath the root of `walk`. `None` if it or a directory above it
/// does not exist.
pub(crate) fn examine(walk: &Walk, path: &RelPath) -> Result<Option<Standing>, DiskError> {
    let outcome = if path.is_root() {
        standing(walk.root(), b".", Clock::Unknown)
    } else {
        match walk.parent(path) {
            Ok((dir, name)) => standing(&dir, name, dir.clock()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
    };
    outcome.map_err(|error| DiskError::call("examine", path, error))
}

/// The entry of a name in a directory. `None` if nothing has the name.
pub(crate) fn standing(dir: &Dir, name: &[u8], clock: Clock) -> Result<Option<Standing>, Errno> {
    let found = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).and_then(|stat| describe(dir, name, &stat, clock));
    match found {
        Ok(standing) => Ok(Some(standing)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn describe(dir: &Dir, name: &[u8], stat: &Stat, clock: Clock) -> Result<Standing, Errno> {
    let meta = meta_of(stat);
    Ok(match type_of(stat) {
        FileType::RegularFile => {
            let striped = dir.striped(name, stat)?;
            let len = striped.map_or_else(|| len_of(stat), |header| header.map.len());
            Standing::File { len, meta, clock }
        }
        FileType::Directory => Standing::Dir { meta },
        FileType::Symlink => Standing::Symlink { target: readlinkat(dir, name, Vec::new())?.into_bytes(), meta },
        other => Standing::Special { what: special_name(other), meta },
    })
}

#[cfg(test)]
mod tests;
