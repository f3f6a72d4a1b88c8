//! Copies everything that lies on a target to the directory that takes its place.
//!
//! In: the target, and the directory. Out: the same names, bodies and journals there, each copied
//! by `carry`, and whatever cannot be copied is told. A copy of an earlier run is kept if nobody
//! has changed the original since the replacement began. Writes no marks.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::limits::{RESERVED_PREFIX, SET_DIR_NAME};
use longhaul_core::{Mtime, RelPath, TempName, is_reserved};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::{CopyKind, ReplaceSink, Replaced};
use crate::destination::DirHandle;
use crate::error::{DiskError, ErrorKind, PathText};
use crate::names::each_name;
use crate::set::pace::Pace;
use crate::set::rebalance::Moving;
use crate::set::{SetTarget, TargetSet};
use crate::stat::{identity_of, len_of, meta_of, times, type_of};
use crate::walk::Dir;

/// A target that is being copied to the directory that takes its place.
pub(super) struct Replicating<'s> {
    /// The set.
    pub(super) set: &'s TargetSet,
    /// The target.
    pub(super) from: &'s SetTarget,
    /// The directory, under the number of the target.
    pub(super) to: &'s SetTarget,
    /// Whether copies are made.
    pub(super) moving: Moving,
    /// When the replacement began. A file that was changed since is copied again. `None`: every
    /// file is copied.
    pub(super) began: Option<Mtime>,
    /// The pace of the copies.
    pub(super) pace: Pace,
    /// The taker of finds.
    pub(super) sink: ReplaceSink<'s>,
}

/// The first name of each file that has several, by its device and inode.
type Links = HashMap<(u64, u64), RelPath>;

/// The next thing that is done to a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirStep {
    /// Its names are copied.
    Names,
    /// It gets its metadata, once all is in it.
    Metadata,
}

impl Replicating<'_> {
    /// Copies everything. Returns how much could not be copied.
    pub(super) fn run(mut self) -> Result<ControlFlow<(), u64>, DiskError> {
        let (mut left, mut links) = (0, Links::new());
        for (own, kind) in [(&[SET_DIR_NAME, b"bodies"][..], CopyKind::Body), (&[RESERVED_PREFIX], CopyKind::Journal)] {
            let flow = match self.own_files(own, kind, &mut left) {
                Ok(flow) => flow,
                Err(error) => self.leave(error, &mut left)?,
            };
            if flow.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let mut todo = vec![(RelPath::root(), DirStep::Names)];
        while let Some((path, seen)) = todo.pop() {
            let outcome = match seen {
                DirStep::Names => {
                    todo.push((path.clone(), DirStep::Metadata));
                    self.names_of(&path, &mut todo, &mut links, &mut left)
                }
                DirStep::Metadata => self.dress_dir(&path).map(ControlFlow::Continue),
            };
            match outcome {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
                Err(error) => {
                    if self.leave(error, &mut left)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(left))
    }

    /// Tells what cannot be copied, unless there is no room, which ends everything.
    fn leave(&mut self, error: DiskError, left: &mut u64) -> Result<ControlFlow<()>, DiskError> {
        if error.kind() == ErrorKind::NoSpace {
            return Err(error);
        }
        *left += 1;
        Ok((self.sink)(Replaced::Left(error)))
    }

    /// Copies the files in a directory of the set's own: bodies, or journals.
    fn own_files(&mut self, own: &[&[u8]], kind: CopyKind, left: &mut u64) -> Result<ControlFlow<()>, DiskError> {
        // A reserved name is none of a path.
        let shown: &[u8] = if kind == CopyKind::Body { b"bodies" } else { b"journals" };
        let shown = RelPath::new(shown).unwrap_or_default();
        let opened = |target: &SetTarget| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let (first, rest) = own.split_first().ok_or(Errno::NOENT)?;
            let top = openat(target.tree.root(), *first, flags, Mode::empty())?;
            rest.iter().try_fold(top, |dir, name| openat(&dir, *name, flags, Mode::empty()))
        };
        let failed = |error| DiskError::call("list", &shown, error);
        let here = match opened(self.from) {
            Err(Errno::NOENT) => return self.drop_journals(kind).map(ControlFlow::Continue),
            outcome => outcome.map_err(failed)?,
        };
        if self.moving == Moving::Done
            && let [name] = own
        {
            let root = self.to.tree.root();
            match root.kernel().mkdirat(root, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(DiskError::call("make the directory", &shown, error)),
            }
            let given = fstat(&here).and_then(|stat| give_like(&stat, root, name));
            given.map_err(|error| DiskError::call("set the owner of the directory", &shown, error))?;
        }
        let dir = |target: &SetTarget| {
            let fd = opened(target).map_err(failed)?;
            Dir::of(fd, target.tree.root().kernel(), &PathText::from(&shown)).map(Arc::new)
        };
        let there = if self.moving == Moving::Done { Some(dir(self.to)?) } else { None };
        let mut names = Vec::new();
        each_name(&here, |name| names.push(name.to_vec())).map_err(failed)?;
        let here = dir(self.from)?;
        // In a directory of bodies lies a text as well, which the new one has.
        let is_body = kind == CopyKind::Body;
        names.retain(|name| !is_body || TempName::parse(name).is_some());
        if let Some(there) = &there {
            self.drop_others(there, &shown, |name| {
                (is_body && TempName::parse(name).is_none()) || names.iter().any(|known| known == name)
            })?;
        }
        for name in names {
            let Ok(path) = shown.join(name.strip_prefix(b".").unwrap_or(&name)) else { continue };
            let stat = match statat(&here, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                outcome => outcome.map_err(|error| DiskError::call("examine", &path, error)),
            };
            let copied = stat.and_then(|stat| match type_of(&stat) {
                FileType::RegularFile => self.file((&here, there.as_ref()), (&path, &name, kind), &stat),
                _ => Ok(ControlFlow::Continue(())),
            });
            let flow = match copied {
                Ok(flow) => flow,
                Err(error) => self.leave(error, left)?,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Removes the journals that an earlier run has copied: the target has none any more.
    fn drop_journals(&self, kind: CopyKind) -> Result<(), DiskError> {
        if (self.moving, kind) != (Moving::Done, CopyKind::Journal) {
            return Ok(());
        }
        match remove_all(self.to.tree.root(), RESERVED_PREFIX) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(DiskError::call("clear", &RelPath::new(b"journals").unwrap_or_default(), error)),
        }
    }

    /// Copies the names in a directory; adds the directories in it to `todo`.
    fn names_of(
        &mut self,
        path: &RelPath,
        todo: &mut Vec<(RelPath, DirStep)>,
        links: &mut Links,
        left: &mut u64,
    ) -> Result<ControlFlow<()>, DiskError> {
        let here = self.from.tree.dir(path)?;
        let failed = |error| DiskError::call("list", path, error);
        let mut names = BTreeSet::new();
        each_name(here.readable().map_err(failed)?, |name| {
            let is_ours = is_reserved(name) || (path.is_root() && name == b"lost+found");
            if !is_ours {
                names.insert(name.to_vec());
            }
        })
        .map_err(failed)?;
        let there = if self.moving == Moving::Done { Some(self.made_dir(path)?) } else { None };
        if let Some(there) = &there {
            self.drop_others(there, path, |name| {
                let stays = [RESERVED_PREFIX, SET_DIR_NAME, b"lost+found"];
                names.contains(name) || (path.is_root() && stays.contains(&name))
            })?;
        }
        for name in names {
            let Ok(below) = path.join(&name) else { continue };
            let copied = match statat(&here, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                Err(error) => Err(DiskError::call("examine", &below, error)),
                Ok(stat) => match there.as_ref().map_or(Ok(()), |there| drop_other_kind(there, &below, &stat)) {
                    Ok(()) if type_of(&stat) == FileType::Directory => {
                        todo.push((below, DirStep::Names));
                        continue;
                    }
                    Ok(()) => self.name((&here, there.as_ref()), &below, &stat, links),
                    Err(error) => Err(error),
                },
            };
            let flow = match copied {
                Ok(flow) => flow,
                Err(error) => self.leave(error, left)?,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Copies a file or link, or gives the copy of one its second name.
    fn name(
        &mut self,
        (here, there): (&Arc<Dir>, Option<&Arc<Dir>>),
        path: &RelPath,
        stat: &Stat,
        links: &mut Links,
    ) -> Result<ControlFlow<()>, DiskError> {
        if stat.st_nlink > 1 && type_of(stat) == FileType::RegularFile {
            let key = (identity_of(stat).dev, identity_of(stat).ino);
            match links.get(&key) {
                Some(first) => {
                    if let (Some(there), Some(above), Some(first_name)) = (there, first.parent(), first.name()) {
                        let from = self.to.tree.dir(&above)?;
                        let name = path.name().unwrap_or_default();
                        let failed = |error| DiskError::call("link", path, error);
                        match there.kernel().unlinkat(there, name) {
                            Ok(()) | Err(Errno::NOENT) => {}
                            Err(error) => return Err(failed(error)),
                        }
                        there.kernel().link_between((&from, first_name), (there, name)).map_err(failed)?;
                    }
                    let (path, kind) = (path.clone(), CopyKind::Name);
                    return Ok((self.sink)(Replaced::Copied { path, kind, bytes: 0 }));
                }
                None => _ = links.insert(key, path.clone()),
            }
        }
        self.file((here, there), (path, path.name().unwrap_or_default(), CopyKind::Name), stat)
    }

    /// Copies a file or link, if it was not copied before.
    fn file(
        &mut self,
        (here, there): (&Arc<Dir>, Option<&Arc<Dir>>),
        (path, name, kind): (&RelPath, &[u8], CopyKind),
        stat: &Stat,
    ) -> Result<ControlFlow<()>, DiskError> {
        if let Some(there) = there
            && !self.is_there(there, (path, name), stat)?
        {
            self.set.replicate((path, name, stat), (self.from, self.to), (here, there), &self.pace)?;
        }
        Ok((self.sink)(Replaced::Copied { path: path.clone(), kind, bytes: len_of(stat) }))
    }

    /// Whether an earlier run has copied a file that nobody has changed since.
    fn is_there(&self, there: &Dir, (path, name): (&RelPath, &[u8]), stat: &Stat) -> Result<bool, DiskError> {
        let copy = match statat(there, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            outcome => outcome.map_err(|error| DiskError::call("examine the copy of", path, error))?,
        };
        let Some(began) = self.began else { return Ok(false) };
        let is_older = identity_of(stat).ctime.secs.saturating_add(CLOCK_SECS) < began.secs;
        let says = |stat: &Stat| (len_of(stat), stat.st_mode, stat.st_uid, stat.st_gid, meta_of(stat).mtime);
        Ok(is_older && says(&copy) == says(stat))
    }

    /// The directory at a path on the new target, made if it does not stand.
    fn made_dir(&self, path: &RelPath) -> Result<Arc<Dir>, DiskError> {
        let (Some(above), Some(name)) = (path.parent(), path.name()) else { return self.to.tree.dir(path) };
        let parent = self.to.tree.dir(&above)?;
        let failed = |error| DiskError::call("make the directory", path, error);
        match parent.kernel().mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => {}
            // An earlier run may have given it a mode that shuts even its owner out.
            Err(Errno::EXIST) => {
                DirHandle::open(&parent, name).and_then(|dir| dir.let_owner_in()).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        self.to.tree.dir(path)
    }

    /// Gives a directory the owner, attributes, permissions and times of the original, once all is
    /// in it.
    fn dress_dir(&self, path: &RelPath) -> Result<(), DiskError> {
        if self.moving == Moving::Planned {
            return Ok(());
        }
        let failed = |error| DiskError::call("set the metadata of the directory", path, error);
        let (like, made) = (self.from.tree.dir(path)?, self.to.tree.dir(path)?);
        let stat = statat(&like, c".", AtFlags::empty()).map_err(failed)?;
        let known = statat(&made, c".", AtFlags::empty()).map_err(failed)?;
        if (known.st_uid, known.st_gid) != (stat.st_uid, stat.st_gid) {
            made.kernel().give_to_owner_of(&stat, &made, b".").map_err(failed)?;
        }
        if let (Ok(from), Ok(to)) = (like.readable(), made.readable()) {
            made.kernel().copy_xattrs(&from, &to).map_err(failed)?;
        }
        // Also a bit goes that an earlier run has set.
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        made.kernel().chmod_place(&made, mode).map_err(failed)?;
        made.kernel().set_times_of_place(&made, &times(&meta_of(&stat))).map_err(failed)
    }

    /// Removes from a directory of the new target what an earlier run has left and the old one has
    /// not, or not any more.
    fn drop_others(&self, there: &Dir, path: &RelPath, stays: impl Fn(&[u8]) -> bool) -> Result<(), DiskError> {
        let failed = |error| DiskError::call("clear", path, error);
        let mut names = Vec::new();
        let listed = there.readable().map_err(failed)?;
        each_name(listed, |name| names.extend((!stays(name)).then(|| name.to_vec()))).map_err(failed)?;
        names.iter().try_for_each(|name| remove_all(there, name)).map_err(failed)
    }
}

/// Removes from a directory of the new target what an earlier run has copied under the name of
/// `path`, if that was a thing of another kind than the one with this `stat`: no copy takes the
/// name of a directory, and no directory that of a copy.
fn drop_other_kind(there: &Dir, path: &RelPath, stat: &Stat) -> Result<(), DiskError> {
    let name = path.name().unwrap_or_default();
    let dropped = match statat(there, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Ok(known) if type_of(&known) == type_of(stat) => Ok(()),
        Ok(_) => remove_all(there, name),
        Err(error) => Err(error),
    };
    dropped.map_err(|error| DiskError::call("remove the former copy of", path, error))
}

/// Gives the directory `name` in `above` to the owner of another one, unless it is that already.
fn give_like(like: &Stat, above: &Dir, name: &[u8]) -> Result<(), Errno> {
    let known = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match (known.st_uid, known.st_gid) == (like.st_uid, like.st_gid) {
        true => Ok(()),
        false => above.kernel().give_to_owner_of(like, above, name),
    }
}

/// Removes a name of the new target, and all beneath it.
pub(super) fn remove_all(dir: &Dir, name: &[u8]) -> Result<(), Errno> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if type_of(&stat) != FileType::Directory {
        return dir.kernel().unlinkat(dir, name);
    }
    // An earlier run may have given it a mode that shuts even its owner out.
    DirHandle::open(dir, name)?.let_owner_in()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = openat(dir, name, flags, Mode::empty())?;
    let below = Dir::of(below, dir.kernel(), &name.into()).map_err(|_| Errno::IO)?;
    let mut names = Vec::new();
    each_name(below.readable()?, |name| names.push(name.to_vec()))?;
    names.iter().try_for_each(|name| remove_all(&below, name))?;
    dir.kernel().rmdirat(dir, name)
}

/// Times of change are as coarse as the clock's tick, and of two file systems.
const CLOCK_SECS: i64 = 2;
