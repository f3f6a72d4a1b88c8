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

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::limits::{RESERVED_PREFIX, SET_DIR_NAME};
use longhaul_core::{Mtime, RelPath, TargetId, TempName, is_reserved};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use crate::destination::DirHandle;
use crate::error::{DiskError, ErrorKind, PathText, SetError};
use crate::load::TargetLoad;
use crate::names::each_name;
use crate::set::bodies::Orphans;
use crate::set::mark::SetMark;
use crate::set::open::{Looked, need_empty, need_writable, refuse_nested, refuse_same};
use crate::set::pace::Pace;
use crate::set::rebalance::Moving;
use crate::set::{SameDevice, SetTarget, TargetSet, making, secret};
use crate::stat::{identity_of, len_of, meta_of, times, type_of};
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
        /// What it is.
        kind: CopyKind,
        /// Its length in bytes.
        bytes: u64,
    },
    /// Something cannot be copied, or is lost with the target.
    Left(DiskError),
}

/// What a copy is.
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

type Sink<'s> = &'s mut dyn FnMut(Replaced) -> ControlFlow<()>;

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
        sink: Sink<'_>,
    ) -> Result<ReplaceEnd, DiskError> {
        let (mark, shown) = (self.known_mark()?, PathText::from(wanted.new.as_path()));
        let place = std::path::absolute(&wanted.new).unwrap_or_else(|_| wanted.new.clone());
        let new = Tree::open_like(&wanted.new, self.first())?;
        let old_place = std::path::absolute(&wanted.old).unwrap_or_else(|_| wanted.old.clone());
        let old = match wanted.state {
            OldTarget::Lost => None,
            OldTarget::Readable | OldTarget::Failing => Some(Tree::open_like(&wanted.old, self.first())?),
        };
        let is_it = |tree: &Tree| old.as_ref().is_some_and(|old| old.root().place() == tree.root().place());
        let from = self.targets.iter().find(|target| is_it(&target.tree));
        let missing = self.missing.iter().find(|target| mark.places[target.id.0 as usize] == old_place);
        let taken = self.targets.iter().find(|target| target.tree.root().place() == new.root().place());
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
        if moving == Moving::Done && begun != Begun::Now {
            if begun == Begun::Otherwise {
                clear(new.root()).map_err(|error| DiskError::call("clear", &shown, error))?;
            }
            next.of(id.0).write_coming(new.root(), &shown)?;
        }
        let began = if moving == Moving::Done { SetMark::coming_since(new.root()) } else { None };
        if moving == Moving::Done && self.striping().is_some() {
            let other = self.targets.iter().find(|target| target.id != id).unwrap_or(&self.targets[0]);
            let known = secret::read(other.tree.root(), &other.tree.named().into())?;
            secret::copy(new.root(), &shown, &known)?;
        }
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
        let mark = SetMark::read(old.root(), &shown)?;
        let is_it = |(theirs, ours): (SetMark, &SetMark)| (theirs.set, theirs.number) == (ours.set, id.0);
        let is_ours = mark.zip(self.mark()).is_some_and(is_it);
        if is_ours && let Err(error) = SetMark::retire(old.root(), &shown) {
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
                making::give_up(new.root(), &shown)?;
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

/// A target that is being copied to the directory that takes its place.
struct Replicating<'s> {
    set: &'s TargetSet,
    from: &'s SetTarget,
    to: &'s SetTarget,
    moving: Moving,
    /// When the replacement began. A file that was changed since is copied again. `None`: every
    /// file is copied.
    began: Option<Mtime>,
    pace: Pace,
    sink: Sink<'s>,
}

/// The first name of each file that has several, by its device and inode.
type Links = HashMap<(u64, u64), RelPath>;

/// How much of a directory was copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Not,
    Names,
}

impl Replicating<'_> {
    /// Copies everything. Returns how much could not be copied.
    fn run(mut self) -> Result<ControlFlow<(), u64>, DiskError> {
        let (mut left, mut links) = (0, Links::new());
        for (own, kind) in [(&[SET_DIR_NAME, b"bodies"][..], CopyKind::Body), (&[RESERVED_PREFIX], CopyKind::Journal)] {
            let flow = self.own_files(own, kind, &mut left)?;
            if flow.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let mut todo = vec![(RelPath::root(), Seen::Not)];
        while let Some((path, seen)) = todo.pop() {
            let outcome = match seen {
                Seen::Not => {
                    todo.push((path.clone(), Seen::Names));
                    self.names_of(&path, &mut todo, &mut links, &mut left)
                }
                Seen::Names => self.dress_dir(&path).map(ControlFlow::Continue),
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
            Err(Errno::NOENT) => return Ok(ControlFlow::Continue(())),
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

    /// Copies the names in a directory; adds the directories in it to `todo`.
    fn names_of(
        &mut self,
        path: &RelPath,
        todo: &mut Vec<(RelPath, Seen)>,
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
                Ok(stat) if type_of(&stat) == FileType::Directory => {
                    todo.push((below, Seen::Not));
                    continue;
                }
                Ok(stat) => self.name((&here, there.as_ref()), &below, &stat, links),
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

/// Removes a name of the new target, and all beneath it.
fn remove_all(dir: &Dir, name: &[u8]) -> Result<(), Errno> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if type_of(&stat) != FileType::Directory {
        return dir.kernel().unlinkat(dir, name);
    }
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

#[cfg(test)]
mod tests;
