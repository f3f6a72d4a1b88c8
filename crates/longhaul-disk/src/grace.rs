//! [`Grace`]: moves names of a tree into a directory on its shelf, where they stay until a person
//! removes them.
//!
//! In: a tree, and names with the facts by which they are known again. Out: each name where it was,
//! or beneath the grace directory, `.longhaul/grace/LABEL`, under the same path. Removes no file,
//! ever; of the directories that it made, those into which nothing came go at its end, unless
//! another run has the same grace directory then. Knows no plan, and not why a name goes.
//!
//! - **GRACE-1**: a name goes only if it has the facts that were given, looked at right before its
//!   rename; what turns out behind the rename to be something else goes back.
//! - **GRACE-2**: no link is followed, neither at the end of a path nor above it.
//! - **GRACE-3**: a name goes by one rename within one file system. A process that is killed leaves
//!   it in one of the two places.
//! - **GRACE-4**: a directory goes only if it is empty: it is made beneath the grace directory
//!   first, and removed where it was, which the system refuses if anything is in it.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_core::RelPath;
use longhaul_core::limits::SET_DIR_NAME;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat};
use rustix::io::{Errno, retry_on_intr};

use crate::error::{DiskError, ErrorKind, PathText};
use crate::facts::{NameFacts, NameKind, facts_in};
use crate::kernel::Kernel;
use crate::shelf::{Shelf, ours_alone, shelf_name, stand_shelf};
use crate::stat::place_of;
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
    /// The first sync that failed: nobody knows then which moves a crash would undo.
    unsure: Option<Errno>,
    /// Directories beneath the grace directory whose names are known to be durable. Bounded: what
    /// was forgotten is synced once more.
    durable: HashSet<RelPath>,
    /// Directories that were made there for the name that goes now.
    fresh: Vec<RelPath>,
    /// Directories that were made there for names that did not come: they go at the end if they
    /// are empty.
    /// Bounded: others stay.
    idle: BTreeSet<RelPath>,
    /// The directories above, which go too if they are empty then.
    above: GraceAbove,
}

/// The directories above that of a label.
#[derive(Debug)]
struct GraceAbove {
    /// The shelf, and that there of all labels.
    shelf: OwnedFd,
    all: OwnedFd,
    label: String,
    /// The shelf, to be removed.
    of_tree: Shelf,
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
        let mut tries = (0..STANDING_TRIES_MAX).map(|_| stand_grace(tree, label));
        // A transfer that ends removes the shelf if it is empty.
        let is_settled =
            |made: &Result<_, DiskError>| !matches!(made, Err(error) if error.kind() == ErrorKind::NotFound);
        let (own, place, above) = match tries.find(is_settled) {
            Some(made) => made?,
            None => stand_grace(tree, label)?,
        };
        let kept = Arc::new(Dir::of(own, root.kernel(), &PathText::from(place.as_slice()))?);
        let (tree, kept) = (Walk::new(Arc::clone(root), 0), Walk::new(kept, 0));
        let (durable, fresh, idle) = (HashSet::new(), Vec::new(), BTreeSet::new());
        Ok(Grace { tree, kept, place, unsynced: None, unsure: None, durable, fresh, idle, above })
    }

    /// The path beneath a tree at which its grace directories lie, each under its label.
    pub fn place(tree: &Tree) -> String {
        let name = shelf_name(tree.root(), tree.shelf_user());
        String::from_utf8_lossy(&[&name, &b"/"[..], GRACE_NAME].concat()).into_owned()
    }

    /// Moves a name away, if it is still what these facts say.
    ///
    /// # Errors
    /// The system's error. The name is where it was, or beneath the grace directory. After a sync
    /// that failed no name goes any more, and each has that error.
    pub fn withdraw(&mut self, path: &RelPath, facts: &NameFacts) -> Result<Withdrawn, DiskError> {
        self.need_sure()?;
        let ended = self.withdrawn(path, facts);
        let fresh = std::mem::take(&mut self.fresh);
        if matches!(ended, Ok(Withdrawn::Moved | Withdrawn::MovedBefore)) {
            self.idle.remove(path);
        } else if self.idle.len() < IDLE_DIRS_MAX {
            self.idle.extend(fresh);
        }
        ended
    }

    fn withdrawn(&mut self, path: &RelPath, facts: &NameFacts) -> Result<Withdrawn, DiskError> {
        let examined = |error| DiskError::call("examine", path, error);
        let (dir, name) = match self.tree.parent(path) {
            Ok(found) => found,
            Err(error) => match error.kind() {
                ErrorKind::NotFound => return self.absent(None, path, facts),
                ErrorKind::Escape | ErrorKind::NotADirectory => return Ok(Withdrawn::Changed),
                _ => return Err(error),
            },
        };
        match facts_in(&dir, name).map_err(examined)? {
            None => self.absent(Some((&dir, name)), path, facts),
            Some(now) if !facts.is_still(&now) => Ok(Withdrawn::Changed),
            Some(_) if facts.kind == NameKind::Dir => self.withdraw_dir((&dir, name), path, facts),
            Some(_) => self.withdraw_file((&dir, name), path, facts),
        }
    }

    /// Makes all moves durable.
    ///
    /// # Errors
    /// The system's error, of this sync or of an earlier one: a name that was moved may be where it
    /// was after a crash.
    pub fn sync(&mut self) -> Result<(), DiskError> {
        self.need_sure()?;
        let Some((from, to)) = self.unsynced.take() else { return Ok(()) };
        // The new name first: a name that has two places after a crash is lost in neither.
        self.unsure = to.sync().and_then(|()| from.sync()).err();
        self.need_sure()
    }

    /// Refuses to go on after a sync that failed.
    ///
    /// # Errors
    /// The error of the sync.
    pub fn need_sure(&self) -> Result<(), DiskError> {
        let what = "sync the directories of names that were moved to";
        self.unsure.map_or(Ok(()), |error| Err(DiskError::call(what, &*self.place, error)))
    }

    /// The end of a name that does not stand in the directory `from`, or whose directory does not.
    /// A run that was killed behind its rename may have left something there that is not the name
    /// of the plan: it goes back.
    fn absent(
        &mut self,
        from: Option<(&Arc<Dir>, &[u8])>,
        path: &RelPath,
        facts: &NameFacts,
    ) -> Result<Withdrawn, DiskError> {
        let examined = |error| DiskError::call("examine", path, error);
        let (to, name) = match self.kept.parent(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Withdrawn::Gone),
            Err(error) => return Err(error),
        };
        let Some(found) = facts_in(&to, name).map_err(examined)? else { return Ok(Withdrawn::Gone) };
        if facts.is_still(&found) || (facts.kind, found.kind) == (NameKind::Dir, NameKind::Dir) {
            return Ok(Withdrawn::MovedBefore);
        }
        let Some((dir, _)) = from.filter(|_| found.kind != NameKind::Dir) else {
            return Err(self.stays_kept(path, Errno::EXIST));
        };
        self.turn_to(dir, &to)?;
        self.moved_back((&to, dir), name, path)
    }

    /// Moves back what turned out not to be the name of the plan.
    fn moved_back(
        &self,
        (to, dir): (&Arc<Dir>, &Arc<Dir>),
        name: &[u8],
        path: &RelPath,
    ) -> Result<Withdrawn, DiskError> {
        match move_back((to, dir), name) {
            // Another run did so.
            Ok(()) | Err(Errno::NOENT) => Ok(Withdrawn::Changed),
            Err(error) => Err(self.stays_kept(path, error)),
        }
    }

    /// The error of something beneath the grace directory that should not be there.
    fn stays_kept(&self, path: &RelPath, error: Errno) -> DiskError {
        let kept = [self.place.as_slice(), path.as_bytes()].join(&b'/');
        DiskError::call("move back", kept.as_slice(), error)
    }

    fn withdraw_file(
        &mut self,
        (dir, name): (&Arc<Dir>, &[u8]),
        path: &RelPath,
        facts: &NameFacts,
    ) -> Result<Withdrawn, DiskError> {
        let failed = |error| DiskError::call("move away", path, error);
        let mut to = self.kept_dir(&path.parent().unwrap_or_default())?;
        self.turn_to(dir, &to)?;
        // The grace directory is ours alone, so that nothing comes to stand there behind our back.
        let mut moved = move_to_free((dir, &to), name);
        if moved == Err(Errno::NOENT) && facts_in(dir, name).map_err(failed)?.is_some() {
            // Another run that ended has removed the directory, as it was empty.
            self.durable.clear();
            to = self.kept_dir(&path.parent().unwrap_or_default())?;
            self.turn_to(dir, &to)?;
            moved = move_to_free((dir, &to), name);
        }
        match moved {
            // Another run took it since the look.
            Err(Errno::NOENT) => return self.absent(None, path, facts),
            moved => moved.map_err(failed)?,
        }
        let moved = facts_in(&to, name).map_err(failed)?;
        if moved.is_some_and(|moved| facts.is_still(&moved)) {
            return Ok(Withdrawn::Moved);
        }
        // Something else took the name between the look and the rename.
        self.moved_back((&to, dir), name, path)
    }

    fn withdraw_dir(
        &mut self,
        (dir, name): (&Arc<Dir>, &[u8]),
        path: &RelPath,
        facts: &NameFacts,
    ) -> Result<Withdrawn, DiskError> {
        let mode = {
            let itself = match self.tree.dir(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return self.absent(None, path, facts),
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
            Err(Errno::NOENT) => return self.absent(None, path, facts),
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

    /// The directory at `path` beneath the grace directory, made if it does not stand, with a
    /// durable name also if another run made it.
    fn kept_dir(&mut self, path: &RelPath) -> Result<Arc<Dir>, DiskError> {
        match self.known_dir(path) {
            // Another run that ended has removed one of them, as it was empty.
            Err(error) if error.kind() == ErrorKind::NotFound && !self.durable.is_empty() => {
                self.durable.clear();
                self.known_dir(path)
            }
            found => found,
        }
    }

    /// The same, where those that are known to be durable are taken to stand.
    fn known_dir(&mut self, path: &RelPath) -> Result<Arc<Dir>, DiskError> {
        if self.durable.contains(path) {
            return self.kept.dir(path);
        }
        let failed = |error| DiskError::call("make the directory for names that are moved away,", path, error);
        let (mut dir, mut at) = (Arc::clone(self.kept.root()), RelPath::root());
        for name in path.components() {
            at = at.join(name).map_err(|source| DiskError::Name { path: path.into(), source })?;
            if !self.durable.contains(&at) {
                match dir.kernel().mkdirat(&dir, name, Mode::RWXU) {
                    Ok(()) => self.fresh.push(at.clone()),
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(failed(error)),
                }
                if let Err(error) = dir.sync() {
                    self.unsure = Some(error);
                    return Err(failed(error));
                }
                if self.durable.len() >= DURABLE_DIRS_MAX {
                    self.durable.clear();
                }
                self.durable.insert(at.clone());
            }
            dir = Arc::new(dir.enter(name, &at)?);
        }
        Ok(dir)
    }
}

impl Grace {
    /// Whether no other run has this grace directory, and none takes it before this is dropped. In
    /// doubt another one has it, as where there are no locks.
    fn is_alone(&self) -> bool {
        let own = self.kept.root();
        let is_locked = flock(own.as_ref(), FlockOperation::NonBlockingLockExclusive).is_ok();
        is_locked && has_name(own.place(), (&self.above.all, self.above.label.as_bytes())) == Ok(true)
    }

    /// Whether a directory stands in the tree. If none does, one that is empty beneath the grace
    /// directory may be what another run has moved there.
    fn stands_in_tree(&self, path: &RelPath) -> bool {
        let Ok((dir, name)) = self.tree.parent(path) else { return false };
        matches!(facts_in(&dir, name), Ok(Some(found)) if found.kind == NameKind::Dir)
    }
}

impl Drop for Grace {
    /// Removes the directories into which nothing came. The system refuses it of any other one.
    fn drop(&mut self) {
        // What a crash would undo is not known behind a sync that failed.
        if self.unsure.is_some() || !self.is_alone() {
            return;
        }
        // What lies in a directory has a longer path, and comes behind it.
        for path in self.idle.iter().rev().filter(|path| self.stands_in_tree(path)) {
            if let Ok((dir, name)) = self.kept.parent(path) {
                let _ = dir.kernel().rmdirat(&dir, name);
            }
        }
        let (kernel, GraceAbove { shelf, all, label, of_tree }) = (self.kept.root().kernel(), &self.above);
        if kernel.rmdirat(all, label.as_bytes()).is_ok() && kernel.rmdirat(shelf, GRACE_NAME).is_ok() {
            of_tree.remove_if_empty();
        }
    }
}

/// Makes the grace directory of a label, and gives its path beneath the tree, and what lies above
/// it.
fn stand_grace(tree: &Tree, label: &str) -> Result<(OwnedFd, Vec<u8>, GraceAbove), DiskError> {
    let (shelf, name) = stand_shelf(tree.root(), tree.shelf_user())?;
    let kernel = tree.root().kernel();
    let all = own_dir((&shelf, &name), GRACE_NAME, kernel)?;
    let path = [&name, &b"/"[..], GRACE_NAME].concat();
    let own = own_dir((&all, &path), label.as_bytes(), kernel)?;
    hold((&own, &all), label).map_err(|error| DiskError::call("lock", path.as_slice(), error))?;
    let above = GraceAbove { shelf, all, label: label.to_owned(), of_tree: tree.shelf() };
    Ok((own, [&path, &b"/"[..], label.as_bytes()].concat(), above))
}

/// Holds the directory of a label, beside other runs that do so. A run that ends removes it only
/// if no other one holds it.
///
/// # Errors
/// `NOENT` if such a run has removed it before.
fn hold((own, all): (&OwnedFd, &OwnedFd), label: &str) -> Result<(), Errno> {
    // Where there are no locks, nobody is alone, and nobody removes it.
    let _ = retry_on_intr(|| flock(own, FlockOperation::LockShared));
    if has_name(place_of(&fstat(own)?), (all, label.as_bytes()))? { Ok(()) } else { Err(Errno::NOENT) }
}

/// Whether the directory of this device and inode has a name in a directory.
fn has_name(place: (u64, u64), (dir, name): (&OwnedFd, &[u8])) -> Result<bool, Errno> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(place_of(&found) == place),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Moves a name back to where it came from, if that is free.
fn move_back((from, to): (&Arc<Dir>, &Arc<Dir>), name: &[u8]) -> Result<(), Errno> {
    let kernel = from.kernel();
    match kernel.move_new((from, name), (to, name)) {
        // This file system has no renames that replace nothing, and others may make the name there:
        // a link replaces nothing, and where there are none either, the name stays where it is.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => linked_back((from, to), name),
        moved => moved,
    }
}

/// The same of a file or a link, by a second name.
fn linked_back((from, to): (&Arc<Dir>, &Arc<Dir>), name: &[u8]) -> Result<(), Errno> {
    from.kernel().link_between((from, name), (to, name))?;
    from.kernel().unlinkat(from, name)
}

/// Moves a name into the grace directory, where it must be free. That is ours alone.
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
    let made = match kernel.mkdirat(above, name, Mode::RWXU) {
        // Whoever made it may have died before it was durable.
        Ok(()) | Err(Errno::EXIST) => kernel.fsync(above),
        failed => failed,
    };
    made.map_err(|error| DiskError::call("make the directory", &path, error))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = openat(above, name, flags, Mode::empty()).map_err(|error| DiskError::call("open", &path, error))?;
    let stat = fstat(&own).map_err(|error| DiskError::call("examine", &path, error))?;
    ours_alone(&stat, path)?;
    Ok(own)
}

/// The directory on the shelf with those of all labels.
const GRACE_NAME: &[u8] = b"grace";
/// The most times that the grace directory is made once more.
const STANDING_TRIES_MAX: usize = 16;
/// The most directories that are remembered to be durable.
const DURABLE_DIRS_MAX: usize = 4096;
/// The most directories that are remembered to be empty, but for those of one name.
const IDLE_DIRS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
