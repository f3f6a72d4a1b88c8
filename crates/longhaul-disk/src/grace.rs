//! [`Grace`]: moves names of a tree into a directory on its shelf, where they stay until a person
//! removes them.
//!
//! In: a tree, and names with the facts by which they are known again. Out: each name where it was,
//! or beneath the grace directory, `.longhaul/grace/LABEL`, under the same path. Removes no file,
//! ever. Knows no plan, and not why a name goes.
//!
//! - **GRACE-1**: a name goes only if it has the facts that were given, looked at right before its
//!   rename; what turns out behind the rename to be something else goes back.
//! - **GRACE-2**: no link is followed, neither at the end of a path nor above it.
//! - **GRACE-3**: a name goes by one rename within one file system. A process that is killed leaves
//!   it in one of the two places.
//! - **GRACE-4**: a directory goes only if it is empty: it is made beneath the grace directory
//!   first, and removed where it was, which the system refuses if anything is in it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_core::RelPath;
use longhaul_core::limits::SET_DIR_NAME;
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind, PathText};
use crate::facts::{NameFacts, NameKind, facts_in};
use crate::kernel::Kernel;
use crate::shelf::{ours_alone, shelf_name, stand_shelf};
use crate::tree::Tree;
use crate::walk::{Dir, Walk};

/// A directory of names that were moved out of a tree.
#[derive(Debug)]
pub struct Grace {
    tree: Walk,
    kept: Walk,
    /// The path of the directory beneath the tree.
    place: Vec<u8>,
    /// Directories in which names changed and that were not synced.
    unsynced: Option<(Arc<Dir>, Arc<Dir>)>,
}

/// The end of a name that was to be moved away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// It lies beneath the grace directory now.
    Moved,
    /// It lay there already, from an earlier run.
    MovedBefore,
    /// Nothing has the name, there or here.
    Gone,
    /// Something else has the name, or it was changed: it stays.
    Changed,
    /// It is a directory with something in it: it stays.
    NotEmpty,
}

impl Grace {
    /// Makes the grace directory of this label, or takes the one that stands.
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::Denied`] if the shelf, or what is in it, is another user's
    /// or open to others; [`ErrorKind::Unsupported`] for one target of a set.
    pub fn open(tree: &Tree, label: &str) -> Result<Grace, DiskError> {
        let root = tree.root();
        let mark = facts_in(root, SET_DIR_NAME).map_err(|error| DiskError::call("examine", tree.named(), error))?;
        if mark.is_some() {
            let path = PathText::from(tree.named());
            return Err(DiskError::call("move names away from one target of a set at", path, Errno::OPNOTSUPP));
        }
        let (above, name) = stand_shelf(root, tree.shelf_user())?;
        let kernel = root.kernel();
        let all = own_dir((&above, &name), GRACE_NAME, kernel)?;
        let path = [&name, &b"/"[..], GRACE_NAME].concat();
        let own = own_dir((&all, &path), label.as_bytes(), kernel)?;
        let place = [&path, &b"/"[..], label.as_bytes()].concat();
        let kept = Arc::new(Dir::of(own, kernel, &PathText::from(place.as_slice()))?);
        Ok(Grace { tree: Walk::new(Arc::clone(root), 0), kept: Walk::new(kept, 0), place, unsynced: None })
    }

    /// The path beneath a tree at which its grace directories lie, each under its label.
    pub fn place(tree: &Tree) -> String {
        let name = shelf_name(tree.root(), tree.shelf_user());
        String::from_utf8_lossy(&[&name, &b"/"[..], GRACE_NAME].concat()).into_owned()
    }

    /// Moves a name away, if it is still what these facts say.
    ///
    /// # Errors
    /// The system's error. The name is where it was, or beneath the grace directory.
    pub fn withdraw(&mut self, path: &RelPath, facts: &NameFacts) -> Result<Withdrawn, DiskError> {
        let examined = |error| DiskError::call("examine", path, error);
        let (dir, name) = match self.tree.parent(path) {
            Ok(found) => found,
            Err(error) => match error.kind() {
                ErrorKind::NotFound => return self.absent(path, facts),
                ErrorKind::Escape | ErrorKind::NotADirectory => return Ok(Withdrawn::Changed),
                _ => return Err(error),
            },
        };
        match facts_in(&dir, name).map_err(examined)? {
            None => self.absent(path, facts),
            Some(now) if !facts.is_still(&now) => Ok(Withdrawn::Changed),
            Some(_) if facts.kind == NameKind::Dir => self.withdraw_dir((&dir, name), path, facts),
            Some(_) => self.withdraw_file((&dir, name), path, facts),
        }
    }

    /// Makes all moves durable.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&mut self) -> Result<(), DiskError> {
        let Some((from, to)) = self.unsynced.take() else { return Ok(()) };
        // The new name first: a name that has two places after a crash is lost in neither.
        let synced = to.sync().and_then(|()| from.sync());
        synced.map_err(|error| DiskError::call("sync the directories of names that were moved to", &*self.place, error))
    }

    /// The end of a name that does not stand.
    fn absent(&self, path: &RelPath, facts: &NameFacts) -> Result<Withdrawn, DiskError> {
        let found = match self.kept.parent(path) {
            Ok((dir, name)) => facts_in(&dir, name).map_err(|error| DiskError::call("examine", path, error))?,
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_same = found.is_some_and(|found| facts.is_still(&found) || facts.kind == NameKind::Dir);
        Ok(if is_same { Withdrawn::MovedBefore } else { Withdrawn::Gone })
    }

    fn withdraw_file(
        &mut self,
        (dir, name): (&Arc<Dir>, &[u8]),
        path: &RelPath,
        facts: &NameFacts,
    ) -> Result<Withdrawn, DiskError> {
        let to = self.kept_dir(&path.parent().unwrap_or_default())?;
        self.turn_to(dir, &to)?;
        let failed = |error| DiskError::call("move away", path, error);
        // The grace directory is ours alone, so that nothing comes to stand there behind our back.
        match move_to_free((dir, &to), name) {
            // Another run took it since the look.
            Err(Errno::NOENT) => return self.absent(path, facts),
            moved => moved.map_err(failed)?,
        }
        let moved = facts_in(&to, name).map_err(failed)?;
        if moved.is_some_and(|moved| facts.is_still(&moved)) {
            return Ok(Withdrawn::Moved);
        }
        // Something else took the name between the look and the rename.
        match move_to_free((&to, dir), name) {
            Ok(()) => Ok(Withdrawn::Changed),
            Err(error) => {
                let kept = [self.place.as_slice(), path.as_bytes()].join(&b'/');
                Err(DiskError::call("move back", kept.as_slice(), error))
            }
        }
    }

    fn withdraw_dir(
        &mut self,
        (dir, name): (&Arc<Dir>, &[u8]),
        path: &RelPath,
        facts: &NameFacts,
    ) -> Result<Withdrawn, DiskError> {
        let mode = {
            let itself = match self.tree.dir(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return self.absent(path, facts),
                found => found?,
            };
            let stat = fstat(itself.as_ref()).map_err(|error| DiskError::call("examine", path, error))?;
            Mode::from_raw_mode(stat.st_mode & 0o777)
        };
        let made = self.kept_dir(path)?;
        let above = self.kept_dir(&path.parent().unwrap_or_default())?;
        self.turn_to(dir, &above)?;
        match dir.kernel().rmdirat(dir, name) {
            Ok(()) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Withdrawn::NotEmpty),
            Err(Errno::NOENT) => return self.absent(path, facts),
            Err(error) => return Err(DiskError::call("move away", path, error)),
        }
        // Its mode is a courtesy to whoever moves it back: the directory above lets nobody in.
        let _ = made.kernel().chmod_place(made.as_ref(), mode | Mode::RWXU);
        Ok(Withdrawn::Moved)
    }

    /// Notes in which directories names change now, and makes earlier changes durable.
    fn turn_to(&mut self, from: &Arc<Dir>, to: &Arc<Dir>) -> Result<(), DiskError> {
        let places = (from.place(), to.place());
        if self.unsynced.as_ref().is_some_and(|(from, to)| (from.place(), to.place()) == places) {
            return Ok(());
        }
        self.sync()?;
        self.unsynced = Some((Arc::clone(from), Arc::clone(to)));
        Ok(())
    }

    /// The directory at `path` beneath the grace directory, made if it does not stand.
    fn kept_dir(&self, path: &RelPath) -> Result<Arc<Dir>, DiskError> {
        match self.kept.dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found,
        }
        let (Some(above), Some(name)) = (path.parent(), path.name()) else { return self.kept.dir(path) };
        let parent = self.kept_dir(&above)?;
        let made = parent.kernel().mkdirat(&parent, name, Mode::RWXU);
        if let Err(error) = made.and_then(|()| parent.sync())
            && error != Errno::EXIST
        {
            return Err(DiskError::call("make the directory for names that are moved away,", path, error));
        }
        self.kept.dir(path)
    }
}

/// Moves a name into another directory, where it must be free.
fn move_to_free((from, to): (&Arc<Dir>, &Arc<Dir>), name: &[u8]) -> Result<(), Errno> {
    let kernel = from.kernel();
    match kernel.move_new((from, name), (to, name)) {
        // This file system has no renames that replace nothing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match facts_in(to, name)? {
            Some(_) => Err(Errno::EXIST),
            None => kernel.move_over((from, name), (to, name)),
        },
        moved => moved,
    }
}

/// A directory of ours alone in one of ours, made if it does not stand, with a durable name.
fn own_dir((above, at): (&OwnedFd, &[u8]), name: &[u8], kernel: &Kernel) -> Result<OwnedFd, DiskError> {
    let path = PathText::from([at, b"/", name].concat().as_slice());
    match kernel.mkdirat(above, name, Mode::RWXU).and_then(|()| kernel.fsync(above)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(DiskError::call("make the directory", path, error)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = openat(above, name, flags, Mode::empty()).map_err(|error| DiskError::call("open", &path, error))?;
    let stat = fstat(&own).map_err(|error| DiskError::call("examine", &path, error))?;
    ours_alone(&stat, path)?;
    Ok(own)
}

/// The directory on the shelf with those of all labels.
const GRACE_NAME: &[u8] = b"grace";
#[cfg(test)]
mod tests;
