//! The last look at a staged dataset: what lies in it is what its list names, and nothing else.
//!
//! In: the names that are listed, in order. Out: those of them that do not stand as they should.
//! Names that earlier sessions staged of other sources, and what they left of unfinished files, go.
//! Must not know who sent what.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_core::limits::DATASET_MANIFEST_NAME;
use longhaul_core::{RelPath, is_reserved};
use rustix::fs::{AtFlags, FileType, Timestamps, fstat, statat};
use rustix::io::Errno;

use super::{DatasetError, DatasetStage, DatasetTop, let_owner_in, times_of};
use crate::destination::meta::mode;
use crate::error::{DiskError, ErrorKind};
use crate::names::each_name;
use crate::stat::type_of;
use crate::walk::{Dir, Walk, cached_dirs_max};

/// A name that is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// Its path in the dataset.
    pub path: RelPath,
    /// The kind of thing that stands there.
    pub kind: StagedKind,
}

/// The kind of a listed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagedKind {
    /// A directory.
    Dir,
    /// A file of so many bytes.
    File(u64),
    /// A symbolic link.
    Link,
}

/// The names of a staged dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StagedNames {
    /// Listed names that do not stand, or are something else.
    pub missing: u64,
    /// The first of them.
    pub first: Option<RelPath>,
    /// The names that were removed.
    pub removed: Removed,
}

/// Names that were removed where a dataset is staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files and links that had their names.
    pub files: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// Directories, and temporaries of unfinished files.
    pub others: u64,
}

impl Removed {
    /// Adds what was removed besides.
    pub(super) fn add(&mut self, more: Removed) {
        self.files += more.files;
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.others += more.others;
    }
}

impl DatasetStage {
    /// Removes every name that is not `listed`, and what earlier sessions left of unfinished files.
    /// The list is in the order of the bytes of its paths. Directories keep their times and modes.
    /// `sink` hears what was removed, also when it fails half way.
    ///
    /// # Errors
    /// An error of the list, or a [`DatasetError`] of the disk.
    pub fn prune<E: From<DatasetError>>(
        &self,
        top: &DatasetTop,
        listed: impl Iterator<Item = Result<ListedName, E>>,
        sink: &mut dyn FnMut(Removed),
    ) -> Result<StagedNames, E> {
        let walk = Walk::new(Arc::clone(&top.dir), cached_dirs_max());
        let mut pruning = Pruning { walk, listed, next: None, names: StagedNames::default() };
        let pruned = pruning.all();
        sink(pruning.names.removed);
        pruned.map(|()| pruning.names)
    }

    /// Removes what an earlier session staged under a name. `sink` hears of it, as of `prune`.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn make_way(&self, path: &RelPath, sink: &mut dyn FnMut(Removed)) -> Result<(), DatasetError> {
        let at =
            DatasetStage::top_path().concat(path).map_err(|source| DiskError::Name { path: path.into(), source })?;
        let above = self.tree.dir(&at.parent().unwrap_or_default())?;
        remove(&above, at.name().unwrap_or_default(), sink)
    }
}

/// A name in a directory, in the order in which a list has it: that of the bytes of whole paths, in
/// which what lies below `d` comes behind `d-x`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Itself(Vec<u8>),
    Below(Vec<u8>),
}

impl Key {
    fn bytes(&self) -> impl Iterator<Item = u8> {
        let (name, slash) = match self {
            Key::Itself(name) => (name, None),
            Key::Below(name) => (name, Some(b'/')),
        };
        name.iter().copied().chain(slash)
    }

    /// The memory that it takes.
    fn held_bytes(&self) -> usize {
        let (Key::Itself(name) | Key::Below(name)) = self;
        name.len() + 2 * size_of::<Key>()
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A directory that is being looked through.
struct StagedLevel {
    path: RelPath,
    /// The next names in it.
    names: std::vec::IntoIter<Key>,
    /// The last of those, if more were left on the disk behind it.
    last: Option<Key>,
    /// The bytes of names that are held at a time.
    held_max: usize,
    /// The mode and the times that it gets back. `None` if it was not changed.
    had: Option<(Option<u32>, Timestamps)>,
}

struct Pruning<I> {
    walk: Walk,
    listed: I,
    /// The next listed name.
    next: Option<ListedName>,
    names: StagedNames,
}

impl<E: From<DatasetError>, I: Iterator<Item = Result<ListedName, E>>> Pruning<I> {
    fn all(&mut self) -> Result<(), E> {
        self.advance()?;
        let mut levels = vec![self.level(RelPath::root(), 0)?];
        while let Some(depth) = levels.len().checked_sub(1) {
            let level = &mut levels[depth];
            let below = match self.next_of(level)? {
                Some(Key::Itself(name)) => self.look(level, &name).map(|()| None)?,
                Some(Key::Below(name)) => self.below(&level.path, &name, depth + 1)?,
                None => {
                    self.leave(level).map_err(DatasetError::from)?;
                    levels.pop().and(None)
                }
            };
            levels.extend(below);
        }
        while let Some(rest) = self.next.take() {
            self.missed(rest.path);
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), E> {
        self.next = self.listed.next().transpose()?;
        Ok(())
    }

    fn missed(&mut self, path: RelPath) {
        self.names.missing += 1;
        self.names.first.get_or_insert(path);
    }

    /// Looks at a name: it stays if it is listed.
    fn look(&mut self, level: &mut StagedLevel, name: &[u8]) -> Result<(), E> {
        if is_reserved(name) {
            let stays = level.path.is_root() && name == DATASET_MANIFEST_NAME;
            return if stays { Ok(()) } else { Ok(self.remove(level, name)?) };
        }
        let at = joined(&level.path, name)?;
        while let Some(missing) = self.next.take_if(|next| next.path < at) {
            self.missed(missing.path);
            self.advance()?;
        }
        let Some(listed) = self.next.take_if(|next| next.path == at) else { return Ok(self.remove(level, name)?) };
        self.advance()?;
        let dir = self.walk.dir(&level.path).map_err(DatasetError::from)?;
        let stat = statat(dir.as_ref(), name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|error| DatasetError::from(DiskError::call("examine", &at, error)))?;
        let is_same = match listed.kind {
            StagedKind::Dir => type_of(&stat) == FileType::Directory,
            StagedKind::File(len) => type_of(&stat) == FileType::RegularFile && u64::try_from(stat.st_size) == Ok(len),
            StagedKind::Link => type_of(&stat) == FileType::Symlink,
        };
        if !is_same {
            self.missed(at);
            self.remove(level, name)?;
        }
        Ok(())
    }

    /// The level of a directory in one that is looked through. `None` if it was removed.
    fn below(&self, above: &RelPath, name: &[u8], depth: usize) -> Result<Option<StagedLevel>, DatasetError> {
        let path = joined(above, name)?;
        match self.walk.dir(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
            Ok(dir) if dir.dev() != self.walk.root().dev() => Err(mounted(&path)),
            Ok(_) => self.level(path, depth).map(Some),
        }
    }

    /// The next name of a level, in order.
    fn next_of(&self, level: &mut StagedLevel) -> Result<Option<Key>, DatasetError> {
        if let Some(name) = level.names.next() {
            return Ok(Some(name));
        }
        let Some(last) = level.last.take() else { return Ok(None) };
        let dir = self.walk.dir(&level.path)?;
        let failed = |error: Errno| DiskError::call("read the directory", &level.path, error);
        let (names, last) = first_names(&dir, Some(&last), level.held_max).map_err(failed)?;
        (level.names, level.last) = (names.into_iter(), last);
        Ok(level.names.next())
    }

    /// Reads a directory, into which its owner is let if its mode forbids that.
    fn level(&self, path: RelPath, depth: usize) -> Result<StagedLevel, DatasetError> {
        let dir = self.walk.dir(&path)?;
        let failed = |error: Errno| DiskError::call("read the directory", &path, error);
        let stat = fstat(dir.as_ref()).map_err(failed)?;
        let is_shut = stat.st_mode & 0o500 != 0o500;
        let opened = if is_shut { let_owner_in(dir.kernel(), dir.as_ref()).map_err(failed)? } else { None };
        let held_max = HELD_BYTES.checked_shr(u32::try_from(depth).unwrap_or(u32::MAX)).unwrap_or(0).max(HELD_LEAST);
        let (names, last) = first_names(&dir, None, held_max).map_err(failed)?;
        let had = opened.map(|bits| (Some(bits), times_of(&stat)));
        Ok(StagedLevel { path, names: names.into_iter(), last, held_max, had })
    }

    /// Removes a name and what lies below it.
    fn remove(&mut self, level: &mut StagedLevel, name: &[u8]) -> Result<(), DatasetError> {
        let dir = self.walk.dir(&level.path)?;
        if level.had.is_none() {
            let failed = |error: Errno| DiskError::call("open to its owner", &level.path, error);
            let times = times_of(&fstat(dir.as_ref()).map_err(failed)?);
            level.had = Some((let_owner_in(dir.kernel(), dir.as_ref()).map_err(failed)?, times));
        }
        remove(&dir, name, &mut |more| self.names.removed.add(more))
    }

    /// Gives a directory its times and mode back.
    fn leave(&self, level: &StagedLevel) -> Result<(), DiskError> {
        let Some((bits, times)) = &level.had else { return Ok(()) };
        let dir = self.walk.dir(&level.path)?;
        let failed = |error: Errno| DiskError::call("set the times and mode of", &level.path, error);
        dir.kernel().set_times_of_place(dir.as_ref(), times).map_err(failed)?;
        bits.map_or(Ok(()), |bits| dir.kernel().chmod_place(dir.as_ref(), mode(bits))).map_err(failed)
    }
}

/// The first names of a directory behind one, in order, as many as `held_max` bytes hold, and the
/// last of them if more follow: a directory may have more names than memory should hold, and is
/// read again for the next ones.
fn first_names(dir: &Dir, behind: Option<&Key>, held_max: usize) -> Result<(Vec<Key>, Option<Key>), Errno> {
    let (mut held, mut held_bytes, mut leaves_some) = (BTreeSet::new(), 0, false);
    let mut take = |key: Key| {
        if behind.is_some_and(|behind| key <= *behind) || leaves_some && held.last().is_some_and(|last| key > *last) {
            return;
        }
        held_bytes += key.held_bytes();
        held.insert(key);
        while held_bytes > held_max && held.len() > 1 {
            held_bytes -= held.pop_last().map_or(0, |key| key.held_bytes());
            leaves_some = true;
        }
    };
    let mut failed = Ok(());
    each_name(dir.readable()?, |name| match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(error) => failed = Err(error),
        Ok(stat) => {
            if type_of(&stat) == FileType::Directory && !is_reserved(name) {
                take(Key::Below(name.to_vec()));
            }
            take(Key::Itself(name.to_vec()));
        }
    })?;
    failed?;
    let last = held.last().filter(|_| leaves_some).cloned();
    Ok((held.into_iter().collect(), last))
}

/// Names that are being removed, of which somebody hears every so often, and at any end.
struct Telling<'s> {
    /// The names that were removed since.
    untold: Removed,
    /// The number of all names that were removed.
    names: u64,
    sink: &'s mut dyn FnMut(Removed),
}

impl Telling<'_> {
    /// Removes a name that is no directory. Gives whether it is one.
    fn unlink(&mut self, dir: &Dir, name: &[u8]) -> Result<bool, Errno> {
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            outcome => outcome?,
        };
        let (files, bytes, others) = match type_of(&stat) {
            FileType::Directory => return Ok(true),
            _ if is_reserved(name) => (0, 0, 1),
            FileType::RegularFile => (1, u64::try_from(stat.st_size).unwrap_or(0), 0),
            _ => (1, 0, 0),
        };
        dir.kernel().unlinkat(dir, name)?;
        self.add(Removed { files, bytes, others });
        Ok(false)
    }

    fn add(&mut self, removed: Removed) {
        self.names += removed.files + removed.others;
        self.untold.add(removed);
        if self.untold.files + self.untold.others >= TELL_EVERY {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if untold != Removed::default() {
            (self.sink)(untold);
        }
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.tell();
    }
}

/// Removes a name in a directory, and what lies below it. The owner is let in everywhere. `sink`
/// hears what went, also when it fails.
pub(super) fn remove(above: &Arc<Dir>, name: &[u8], sink: &mut dyn FnMut(Removed)) -> Result<(), DatasetError> {
    let mut removed = Telling { untold: Removed::default(), names: 0, sink };
    let failed = |error: Errno| DiskError::call("remove what is not listed from", &RelPath::root(), error);
    if !removed.unlink(above, name).map_err(failed)? {
        return Ok(());
    }
    let walk = Walk::new(Arc::clone(above), cached_dirs_max());
    let mut to_do = vec![joined(&RelPath::root(), name)?];
    while let Some(path) = to_do.last().cloned() {
        let path = &path;
        let dir = walk.dir(path)?;
        if dir.dev() != above.dev() {
            return Err(mounted(path));
        }
        let failed = |error: Errno| DiskError::call("remove what is not listed from", path, error);
        let_owner_in(dir.kernel(), dir.as_ref()).map_err(failed)?;
        let (first, mut failure) = (to_do.len(), None);
        let before = removed.names;
        let sink = |name: &[u8]| match removed.unlink(&dir, name) {
            // Of very many, the rest is found when the directory is read again.
            Ok(true) if to_do.len() > first && to_do.len() >= DIRS_HELD => {}
            Ok(true) => match joined(path, name) {
                Ok(below) => to_do.push(below),
                Err(error) => failure = Some(error),
            },
            Ok(false) => {}
            Err(error) => failure = Some(failed(error).into()),
        };
        dir.readable().and_then(|fd| each_name(fd, sink)).map_err(failed)?;
        failure.map_or(Ok(()), Err)?;
        if to_do.len() > first {
            continue;
        }
        let (above, name) = walk.parent(path)?;
        match above.kernel().rmdirat(&above, name) {
            // A name was passed over, as others went while the directory was read.
            Err(Errno::NOTEMPTY) if removed.names > before => continue,
            outcome => outcome.map_err(failed)?,
        }
        removed.add(Removed { others: 1, ..Removed::default() });
        to_do.pop();
    }
    Ok(())
}

fn joined(path: &RelPath, name: &[u8]) -> Result<RelPath, DatasetError> {
    path.join(name).map_err(|source| DiskError::Name { path: path.into(), source }.into())
}

/// The refusal to look through another file system.
fn mounted(path: &RelPath) -> DatasetError {
    DatasetError::Unable { path: path.into(), why: "a file system is mounted in what is staged" }
}

/// The bytes of names that are held of the top. Each level below has half of that of the one above,
/// and this at least.
const HELD_BYTES: usize = 32 << 20;
const HELD_LEAST: usize = 64 << 10;
/// Directories to be removed that are held at a time, besides one for each level.
const DIRS_HELD: usize = 1024;
/// Names that are removed until somebody hears of them: a stop in between loses these.
const TELL_EVERY: u64 = 1000;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::destination::base;
    use crate::kernel::Kernel;

    #[test]
    fn however_few_names_are_held_all_of_them_come_and_in_order() {
        let scratch = tempfile::tempdir().expect("a directory");
        for name in ["d", "e", ".longhaul"] {
            fs::create_dir(scratch.path().join(name)).expect("made");
        }
        for name in ["d-x", "d.x", "d0", "a", "z"] {
            fs::write(scratch.path().join(name), name).expect("written");
        }
        let dir = base::named(scratch.path(), &Kernel::default()).expect("open");
        let (all, last) = first_names(&dir, None, HELD_LEAST).expect("read");
        assert_eq!((all.len(), last), (10, None));
        assert!(all.is_sorted());
        for held_max in [0, 2 * all[0].held_bytes(), 300] {
            let (mut found, mut last) = (Vec::new(), None);
            loop {
                let (some, left) = first_names(&dir, last.as_ref(), held_max).expect("read");
                assert!(some.len() == 1 || some.iter().map(Key::held_bytes).sum::<usize>() <= held_max);
                found.extend(some);
                last = left;
                if last.is_none() {
                    break;
                }
            }
            assert_eq!(found, all, "{held_max}");
        }
    }

    #[test]
    fn more_directories_than_are_held_go_all() {
        let scratch = tempfile::tempdir().expect("a directory");
        for n in 0..2 * DIRS_HELD + 5 {
            fs::create_dir_all(scratch.path().join(format!("gone/{n}/in"))).expect("made");
        }
        let dir = base::named(scratch.path(), &Kernel::default()).expect("open");
        let mut removed = Removed::default();
        remove(&dir, b"gone", &mut |more| removed.add(more)).expect("removed");
        assert_eq!(removed.others, 2 * (2 * DIRS_HELD as u64 + 5) + 1);
        assert!(!scratch.path().join("gone").exists());
    }

    #[test]
    fn what_went_is_told_every_so_often_and_when_the_rest_cannot_go() {
        let scratch = tempfile::tempdir().expect("a directory");
        let gone = scratch.path().join("gone");
        // Together they are longer than a path may be, and a path of the system never is.
        let [above, below] = [b'a', b'b'].map(|letter| {
            (0..11).fold(scratch.path().join(char::from(letter).to_string()), |path, _| {
                path.join(String::from_utf8(vec![letter; 200]).expect("text"))
            })
        });
        fs::create_dir_all(&above).expect("made");
        fs::create_dir_all(&below).expect("made");
        for n in 0..TELL_EVERY + 5 {
            fs::write(scratch.path().join(format!("a/{n}")), "xy").expect("written");
        }
        fs::rename(scratch.path().join("b"), above.join("b")).expect("moved");
        fs::rename(scratch.path().join("a"), &gone).expect("moved");
        let dir = base::named(scratch.path(), &Kernel::default()).expect("open");
        let mut told = Vec::new();
        remove(&dir, b"gone", &mut |more| told.push(more)).expect_err("too long");
        let all = TELL_EVERY + 5;
        assert_eq!(told.iter().map(|more| more.files).collect::<Vec<_>>(), [TELL_EVERY, 5], "{told:?}");
        assert_eq!(told.iter().map(|more| more.bytes).sum::<u64>(), 2 * all);
    }
}
