//! Moves files and chunks until the targets of a set are about equally full, or one holds nothing.
//!
//! In: a set that nobody else uses, and what is wanted. Out: moves, each finished before the next
//! one begins, told one after the other. A target's fullness is what the set has there, of that and
//! what is free. A target that is to give nothing but its surplus is never given anything. What
//! cannot be moved is told and stays. Files are moved by `carry`, chunks by `restripe`. Knows no
//! sessions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use longhaul_core::{RelPath, TargetId, TempName, is_reserved};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use crate::error::{DiskError, SetError};
use crate::names::each_name;
use crate::set::carry::leave_dir;
use crate::set::levels::Levels;
use crate::set::pace::Pace;
use crate::set::{SetTarget, TargetSet};
use crate::stat::type_of;
use crate::stripe::may_be_stripe;
use crate::tree::Tree;

/// A rebalancing that is wanted.
#[derive(Clone, Debug, Default)]
pub struct Rebalance {
    /// The target that is to hold nothing. `None`: all are to be about equally full.
    pub drained: Option<PathBuf>,
    /// Bytes per second that are copied at most. `None`: as fast as the disks.
    pub rate: Option<u64>,
}

/// Whether moves are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moving {
    /// They are told.
    Planned,
    /// They are made, and told when each is finished.
    Done,
}

/// A find of a rebalancing.
#[derive(Debug)]
pub enum Moved {
    /// A file, or chunks of a striped one, went to another target, or is to.
    Moved {
        /// Its path beneath the set.
        path: RelPath,
        /// The number of the target that it lay on.
        from: u32,
        /// The number of the target that it went to.
        to: u32,
        /// The bytes that moved.
        bytes: u64,
    },
    /// A file stays where it is, or a directory cannot be looked at.
    Left(DiskError),
}

type Sink<'s> = &'s mut dyn FnMut(Moved) -> ControlFlow<()>;

impl TargetSet {
    /// Moves what has to be moved, and gives each move to `sink` until that breaks off. The set
    /// must be held alone: see [`TargetSet::open_alone`].
    ///
    /// # Errors
    /// [`SetError::NoTarget`] if the one to drain is none of the set; the system's error, if the
    /// set cannot be looked at.
    pub fn rebalance(&self, wanted: &Rebalance, moving: Moving, sink: Sink<'_>) -> Result<(), DiskError> {
        let find = |dir: &PathBuf| -> Result<TargetId, DiskError> {
            let place = Tree::open(dir)?.root().place();
            let target = self.targets().iter().find(|target| target.tree.root().place() == place);
            Ok(target.ok_or_else(|| SetError::NoTarget { dir: dir.as_path().into() })?.id)
        };
        let drained = wanted.drained.as_ref().map(find).transpose()?;
        let levels = Levels::new(self.held()?, drained);
        let mut work = MovingWork { set: self, levels, moving, pace: Pace::new(wanted.rate), sink };
        let _ = work.run(drained);
        Ok(())
    }

    /// The bytes that the set has on each target, and those that are free there for it.
    fn held(&self) -> Result<Vec<(TargetId, u64, u64)>, DiskError> {
        let mut found = Vec::new();
        for target in self.targets() {
            let mut bytes = 0;
            let _ = walk(target, &mut |step| {
                if let Ok(WalkStep::Name { stat, .. }) = step {
                    bytes += allocated(stat);
                }
                ControlFlow::Continue(())
            });
            for (_, dir) in self.bodies_there().filter(|(known, _)| known.id == target.id) {
                let failed = |error| DiskError::call("look at the bodies of", target.tree.named(), error);
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let listed = openat(dir, c".", flags, Mode::empty()).map_err(failed)?;
                each_name(listed, |name| {
                    if TempName::parse(name).is_some() {
                        bytes += statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| allocated(&stat));
                    }
                })
                .map_err(failed)?;
            }
            let dev = target.tree.root().dev();
            let sharing = self.targets().iter().filter(|other| other.tree.root().dev() == dev).count() as u64;
            found.push((target.id, bytes, target.tree.free_bytes().unwrap_or(0) / sharing.max(1)));
        }
        Ok(found)
    }
}

/// A rebalancing under way.
struct MovingWork<'s> {
    set: &'s TargetSet,
    levels: Levels,
    moving: Moving,
    pace: Pace,
    sink: Sink<'s>,
}

impl MovingWork<'_> {
    fn run(&mut self, drained: Option<TargetId>) -> ControlFlow<()> {
        let set = self.set;
        if self.levels.givers().next().is_none() {
            return ControlFlow::Continue(());
        }
        for home in set.targets().iter().filter(|_| set.striping().is_some()) {
            walk(home, &mut |step| match step {
                Ok(WalkStep::Name { path, stat }) if may_be_stripe(stat) => self.spread_chunks(home, &path),
                _ => ControlFlow::Continue(()),
            })?;
        }
        let givers: Vec<&SetTarget> = set.targets().iter().filter(|one| self.levels.gives(one.id)).collect();
        for from in givers {
            // Large files first: fewer of them do.
            let least = if drained.is_some() { 0 } else { self.levels.surplus(from.id) / LARGE_PART };
            for (least, below) in [(least, u64::MAX), (0, least)] {
                walk(from, &mut |step| match step {
                    Ok(WalkStep::Name { path, stat }) if (least..below).contains(&allocated(stat)) => {
                        self.give_file(from, &path, stat)
                    }
                    Ok(WalkStep::Dir(path)) if drained.is_some() && below == u64::MAX => self.give_dir(from, &path),
                    Err(error) if below == u64::MAX => (self.sink)(Moved::Left(error)),
                    _ => ControlFlow::Continue(()),
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Gives a whole file or link, or a stripe file, to another target.
    fn give_file(&mut self, from: &SetTarget, path: &RelPath, stat: &Stat) -> ControlFlow<()> {
        let bytes = allocated(stat);
        let Some(to) = self.levels.taker(from.id, bytes).and_then(|id| target_of(self.set, id)) else {
            return match self.levels.is_drained(from.id) {
                true => (self.sink)(Moved::Left(DiskError::call("find a target with room for", path, Errno::NOSPC))),
                false => ControlFlow::Continue(()),
            };
        };
        if self.moving == Moving::Done
            && let Err(error) = self.set.carry(path, (from, to), &self.pace)
        {
            return (self.sink)(Moved::Left(error));
        }
        self.levels.moved(from.id, to.id, bytes);
        (self.sink)(Moved::Moved { path: path.clone(), from: from.id.0, to: to.id.0, bytes })
    }

    /// Gives up a directory that is empty by now, once it stands elsewhere.
    fn give_dir(&mut self, from: &SetTarget, path: &RelPath) -> ControlFlow<()> {
        let stands = |target: &&SetTarget| target.id != from.id && target.tree.dir(path).is_ok();
        let other = self.set.targets().iter().find(stands);
        let to = other.or_else(|| self.levels.taker(from.id, 0).and_then(|id| target_of(self.set, id)));
        match to.filter(|_| self.moving == Moving::Done).map(|to| leave_dir(from, to, path)) {
            Some(Err(error)) => (self.sink)(Moved::Left(error)),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Deals the chunks of a striped file anew, if any lie on a target that gives.
    fn spread_chunks(&mut self, home: &SetTarget, path: &RelPath) -> ControlFlow<()> {
        let layout = match self.set.layout_at(home, path) {
            Ok(Some(layout)) => layout,
            Ok(None) => return ControlFlow::Continue(()),
            Err(error) => return (self.sink)(Moved::Left(error)),
        };
        let mut levels = self.levels.clone();
        let (mut dealt, mut sums) = (BTreeMap::new(), BTreeMap::<(TargetId, TargetId), u64>::new());
        let mut no_room = false;
        for (chunk, spot) in layout.chunks.iter().filter_map(|(chunk, (spot, _))| Some((*chunk, (*spot)?))) {
            let (from, bytes) = (spot.target, layout.len_of(chunk));
            match levels.taker(from, bytes) {
                Some(to) => {
                    levels.moved(from, to, bytes);
                    dealt.insert(chunk, to);
                    *sums.entry((from, to)).or_default() += bytes;
                }
                None => no_room |= levels.is_drained(from),
            }
        }
        if no_room {
            return (self.sink)(Moved::Left(DiskError::call("find a target with room for", path, Errno::NOSPC)));
        }
        let all: u64 = layout.chunks.keys().map(|chunk| layout.len_of(*chunk)).sum();
        let moved: u64 = sums.values().sum();
        // All of it is written anew, which is not worth a small part; a part that is to go goes.
        let is_worth_it = sums.keys().any(|(from, _)| levels.is_drained(*from)) || moved >= all / WORTH_PART;
        if moved == 0 || !is_worth_it {
            return ControlFlow::Continue(());
        }
        if self.moving == Moving::Done
            && let Err(error) = self.set.restripe((home, path), &layout, &dealt, &self.pace)
        {
            return (self.sink)(Moved::Left(error));
        }
        self.levels = levels;
        sums.into_iter().try_for_each(|((from, to), bytes)| {
            (self.sink)(Moved::Moved { path: path.clone(), from: from.0, to: to.0, bytes })
        })
    }
}

fn target_of(set: &TargetSet, id: TargetId) -> Option<&SetTarget> {
    set.targets().iter().find(|target| target.id == id)
}

/// A step of a walk over a target.
enum WalkStep<'w> {
    /// A file or anything else that is no directory.
    Name { path: RelPath, stat: &'w Stat },
    /// A directory, after all that is in it.
    Dir(RelPath),
}

/// Walks over the names on a target, without reserved ones. A name that vanishes is passed over.
fn walk(
    target: &SetTarget,
    sink: &mut dyn FnMut(Result<WalkStep<'_>, DiskError>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut todo = vec![(RelPath::root(), Seen::Not)];
    while let Some((path, seen)) = todo.pop() {
        if seen == Seen::Names {
            sink(Ok(WalkStep::Dir(path)))?;
            continue;
        }
        if !path.is_root() {
            todo.push((path.clone(), Seen::Names));
        }
        let failed = |error| DiskError::call("list", &path, error);
        let mut names = Vec::new();
        let listed = target.tree.dir(&path).and_then(|dir| {
            each_name(dir.readable().map_err(failed)?, |name| names.push(name.to_vec())).map_err(failed)?;
            Ok(dir)
        });
        let dir = match listed {
            Ok(dir) => dir,
            Err(error) => {
                sink(Err(error))?;
                continue;
            }
        };
        let is_ours = |name: &[u8]| is_reserved(name) || (path.is_root() && name == b"lost+found");
        for name in names.into_iter().filter(|name| !is_ours(name)) {
            let Ok(below) = path.join(&name) else { continue };
            match statat(&dir, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if type_of(&stat) == FileType::Directory => todo.push((below, Seen::Not)),
                Ok(stat) => sink(Ok(WalkStep::Name { path: below, stat: &stat }))?,
                Err(Errno::NOENT) => {}
                Err(error) => sink(Err(DiskError::call("examine", &below, error)))?,
            }
        }
    }
    ControlFlow::Continue(())
}

/// How much of a directory was walked over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Not,
    Names,
}

/// The bytes that a file occupies.
#[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
fn allocated(stat: &Stat) -> u64 {
    (stat.st_blocks as u64).saturating_mul(512)
}

/// A file is large that has this part of the surplus of its target: some hundred moves do.
const LARGE_PART: u64 = 256;
/// A striped file is written anew if at least this part of it goes elsewhere.
const WORTH_PART: u64 = 32;

#[cfg(test)]
pub(super) mod tests;
