//! Puts a new, empty directory in the place of a target: one that fails and can still be read, or
//! one that is lost.
//!
//! In: a set that nobody else uses, the target, and the directory. Out: the directory has the
//! number of the target, and, if that can be read, all that lay there: names with their metadata,
//! bodies, journals. In this order: the coming mark on the new directory; the copies, each read
//! back and compared; a sync of the whole file system; the marks of the others, of which the first
//! is the commit point; the mark of the new one; the mark of the old one is retired. Before the
//! commit point the set is what it was, and may be used and changed: what was changed since the
//! replacement began is copied again. Knows no sessions.

mod copy;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::limits::SET_DIR_NAME;
use longhaul_core::{Mtime, RelPath, TargetId, TempName};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind, PathText, SetError};
use crate::load::TargetLoad;
use crate::names::each_name;
use crate::set::bodies::Orphans;
use crate::set::mark::{SetMark, give_own_dir};
use crate::set::open::{Looked, need_empty, need_writable, refuse_nested, refuse_same};
use crate::set::pace::Pace;
use crate::set::rebalance::Moving;
use crate::set::replace::copy::{Replicating, remove_all};
use crate::set::{SameDevice, SetTarget, TargetSet, making, secret};
use crate::tree::Tree;
use crate::walk::Dir;

/// A replacement that is wanted.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The target: its directory, as its set knows it, or where it is.
    pub old: PathBuf,
    /// The directory that takes its place.
    pub new: PathBuf,
    /// Whether that may lie on the file system of another target.
    pub same_device: SameDevice,
    /// The state of the target.
    pub state: OldTarget,
    /// Bytes per second that are copied at most. `None`: as fast as the disks.
    pub rate: Option<u64>,
}

/// The state of a target that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OldTarget {
    /// It can be read, and all of it has to be copied.
    Readable,
    /// It can be read in part: what cannot be copied is told, and given up.
    Failing,
    /// It cannot be read at all.
    Lost,
}

/// A find of a replacement.
#[derive(Debug)]
pub enum Replaced {
    /// A file, a link or a body was copied, or is to be.
    Copied {
        /// Its path beneath the target; of the set's own files, a path to tell them by.
        path: RelPath,
        /// The kind of the thing.
        kind: CopyKind,
        /// Its length in bytes.
        bytes: u64,
    },
    /// Something cannot be copied, or is lost with the target.
    Left(DiskError),
}

/// The kind of a thing that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyKind {
    /// A name of the tree.
    Name,
    /// A body of a striped file.
    Body,
    /// A journal of unfinished files.
    Journal,
}

/// The end of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplaceEnd {
    /// The directory has taken the place of the target.
    Done,
    /// It was only told.
    Planned,
    /// The set is what it was: something could not be copied, or the sink has broken off.
    Open,
}

type ReplaceSink<'s> = &'s mut dyn FnMut(Replaced) -> ControlFlow<()>;

impl TargetSet {
    /// Puts a directory in the place of a target. The set must be held alone: see
    /// [`TargetSet::open_to_replace`]. If it was interrupted before, it is gone on with.
    ///
    /// # Errors
    /// [`DiskError::Set`] with the reason why it cannot be done; the system's error.
    pub fn replace_target(
        &self,
        wanted: &Replacement,
        moving: Moving,
        sink: ReplaceSink<'_>,
    ) -> Result<ReplaceEnd, DiskError> {
        let (mark, shown) = (self.known_mark()?, PathText::from(wanted.new.as_path()));
        let place = std::path::absolute(&wanted.new).unwrap_or_else(|_| wanted.new.clone());
        let new = Tree::open_like(&wanted.new, self.first())?;
        let old_place = std::path::absolute(&wanted.old).unwrap_or_else(|_| wanted.old.clone());
        let taken = self.targets.iter().find(|target| target.tree.root().place() == new.root().place());
        let old = match wanted.state {
            OldTarget::Lost => None,
            OldTarget::Readable | OldTarget::Failing => match Tree::open_like(&wanted.old, self.first()) {
                // It has died, and nothing of it is needed any more.
                Err(error) if taken.is_some() && error.kind() == ErrorKind::Io => None,
                outcome => Some(outcome?),
            },
        };
        let is_it = |tree: &Tree| old.as_ref().is_some_and(|old| old.root().place() == tree.root().place());
        let from = self.targets.iter().find(|target| is_it(&target.tree));
        let missing = self.missing.iter().find(|target| mark.places[target.id.0 as usize] == old_place);
        let id = match (from, missing, taken) {
            (Some(target), ..) => target.id,
            (None, Some(missing), _) => missing.id,
            // An earlier run came that far.
            (None, None, Some(taken)) => {
                return self.end_replacement((taken.id, &new), (old.as_deref(), &wanted.old), moving);
            }
            (None, None, None) => return Err(SetError::NoTarget { dir: wanted.old.as_path().into() }.into()),
        };
        let mut places = mark.places.clone();
        places[id.0 as usize] = place;
        let next = mark.next(places);
        let begun = self.need_fit(&new, &next.of(id.0), wanted)?;
        let load = TargetLoad::of(id, &wanted.new);
        let to = SetTarget { id, tree: Arc::clone(&new), load };
        let mut left = 0;
        if from.is_none() {
            for error in self.survey_bodies(Orphans::Told)?.wrong {
                if sink(Replaced::Left(error)).is_break() {
                    return Ok(ReplaceEnd::Open);
                }
            }
        }
        let began = self.prepare(&new, (begun, &next.of(id.0)), moving)?;
        if let Some(from) = from {
            let work = Replicating { set: self, from, to: &to, moving, began, pace: Pace::new(wanted.rate), sink };
            match work.run()? {
                ControlFlow::Continue(count) => left = count,
                ControlFlow::Break(()) => return Ok(ReplaceEnd::Open),
            }
        }
        if moving == Moving::Planned {
            return Ok(ReplaceEnd::Planned);
        }
        if left > 0 && wanted.state == OldTarget::Readable {
            return Ok(ReplaceEnd::Open);
        }
        let synced = new.root().readable().and_then(|fd| new.root().kernel().syncfs(fd));
        synced.map_err(|error| DiskError::call("sync", &shown, error))?;
        // The first of these is the commit point.
        for SetTarget { id: other, tree, .. } in self.targets.iter().filter(|target| target.id != id) {
            next.of(other.0).write(tree.root(), &tree.named().into())?;
        }
        making::finish(&next.of(id.0), &Looked { dir: &wanted.new, tree: Arc::clone(&new), mark: None })?;
        tracing::info!(set = %next.set, number = id.0, generation = next.generation, "a target of a set was replaced");
        self.end_replacement((id, &new), (old.as_deref(), &wanted.old), moving)
    }

    /// Gives the new directory its coming mark and the secret. Returns when that was done first.
    fn prepare(
        &self,
        new: &Tree,
        (begun, coming): (Begun, &SetMark),
        moving: Moving,
    ) -> Result<Option<Mtime>, DiskError> {
        if moving == Moving::Planned {
            return Ok(None);
        }
        let shown = PathText::from(new.named());
        match begun {
            // What is left of a set that was not made in the end.
            Begun::Not => making::give_up(new.root(), &shown)?,
            Begun::Otherwise => clear(new.root()).map_err(|error| DiskError::call("clear", &shown, error))?,
            Begun::Now => {}
        }
        if begun != Begun::Now {
            coming.write_coming(new.root(), &shown)?;
        }
        let other = self.targets.iter().find(|target| target.id.0 != coming.number).unwrap_or(&self.targets[0]);
        if self.striping().is_some() {
            let known = secret::read(other.tree.root(), &other.tree.named().into())?;
            secret::copy(new.root(), &shown, &known)?;
        }
        let given = give_own_dir(new.root(), other.tree.root());
        given.map_err(|error| DiskError::call("give the set's own files to the owner of the set at", &shown, error))?;
        Ok(SetMark::coming_since(new.root()))
    }

    /// Retires the mark of a target in whose place another one stands.
    fn end_replacement(
        &self,
        (id, new): (TargetId, &Tree),
        (old, named): (Option<&Tree>, &Path),
        moving: Moving,
    ) -> Result<ReplaceEnd, DiskError> {
        if moving == Moving::Planned {
            return Ok(ReplaceEnd::Done);
        }
        SetMark::forget_coming(new.root(), &new.named().into())?;
        let Some(old) = old else { return Ok(ReplaceEnd::Done) };
        let shown = PathText::from(named);
        let is_it = |(theirs, ours): (SetMark, &SetMark)| (theirs.set, theirs.number) == (ours.set, id.0);
        let retired =
            SetMark::read(old.root(), &shown).and_then(|mark| match mark.zip(self.mark()).is_some_and(is_it) {
                true => SetMark::retire(old.root(), &shown),
                false => Ok(()),
            });
        if let Err(error) = retired {
            // It is one of an older generation all the same, and is refused wherever it stands.
            tracing::warn!(target: "longhaul::disk", %error, dir = %named.display(), "the old target keeps its mark");
        }
        Ok(ReplaceEnd::Done)
    }

    /// Checks that a directory can take the place of a target. Returns whether that was begun
    /// before.
    fn need_fit(&self, new: &Arc<Tree>, coming: &SetMark, wanted: &Replacement) -> Result<Begun, DiskError> {
        let (dir, shown) = (wanted.new.as_path(), PathText::from(wanted.new.as_path()));
        if let Some(theirs) = SetMark::read(new.root(), &shown)? {
            let (ours, theirs_set) = (coming.set.to_string(), theirs.set.to_string());
            return Err(match theirs.set == coming.set {
                true => SetError::Former { dir: shown },
                false => SetError::OtherSet { dir: shown, theirs: theirs_set, ours },
            }
            .into());
        }
        let place = |mark: &SetMark| mark.places.get(mark.number as usize).cloned();
        let begun = match SetMark::read_coming(new.root(), &shown)? {
            Some(mark) if mark == *coming => Begun::Now,
            Some(mark) if (mark.set, mark.number, place(&mark)) == (coming.set, coming.number, place(coming)) => {
                Begun::Otherwise
            }
            _ => Begun::Not,
        };
        let mut all: Vec<PathBuf> = self.targets.iter().map(|target| target.tree.named().to_owned()).collect();
        all.push(dir.to_owned());
        refuse_nested(&all)?;
        let looked = |(id, dir, tree)| (id, Looked { dir, tree, mark: None });
        let standing = self.targets.iter().map(|target| (target.id, target.tree.named(), target.tree.clone()));
        let mut found: Vec<_> = standing.map(looked).collect();
        found.push(looked((TargetId(coming.number), dir, Arc::clone(new))));
        refuse_same(&found, wanted.same_device)?;
        if let Some((_, looked)) = found.last() {
            need_writable(looked)?;
            if begun == Begun::Not {
                need_empty(looked)?;
            }
        }
        Ok(begun)
    }
}

/// Whether a replacement was begun before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    Not,
    /// The targets of the set are what they were then.
    Now,
    /// The set was changed since: what was copied does not count.
    Otherwise,
}

/// Removes all that an earlier replacement has copied to the target at `root`.
fn clear(root: &Dir) -> Result<(), Errno> {
    let mut names = Vec::new();
    each_name(root.readable()?, |name| names.push(name.to_vec()))?;
    let stays = |name: &Vec<u8>| name == SET_DIR_NAME || name == b"lost+found";
    names.iter().filter(|name| !stays(name)).try_for_each(|name| remove_all(root, name))?;
    if let Some(bodies) = secret::listed_bodies(root)? {
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        each_name(openat(&bodies, c".", flags, Mode::empty())?, |name| names.extend(TempName::parse(name)))?;
        names.iter().try_for_each(|name| root.kernel().unlinkat(&bodies, &name.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
