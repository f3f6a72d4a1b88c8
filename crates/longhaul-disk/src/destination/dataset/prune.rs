//! The last look at a staged dataset: what lies in it is what its list names, and nothing else.
//!
//! In: the names that are listed, in order. Out: those of them that do not stand as they should.
//! Names that earlier sessions staged of other sources, and what they left of unfinished files, go.
//! Must not know who sent what.

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

impl DatasetStage {
    /// Removes every name that is not `listed`, and what earlier sessions left of unfinished files.
    /// The list is in the order of the bytes of its paths. Directories keep their times and modes.
    ///
    /// # Errors
    /// An error of the list, or a [`DatasetError`] of the disk.
    pub fn prune<E: From<DatasetError>>(
        &self,
        top: &DatasetTop,
        listed: impl Iterator<Item = Result<ListedName, E>>,
    ) -> Result<StagedNames, E> {
        let walk = Walk::new(Arc::clone(&top.dir), cached_dirs_max());
        let mut pruning = Pruning { walk, listed, next: None, names: StagedNames::default() };
        pruning.advance()?;
        let mut levels = vec![pruning.level(RelPath::root())?];
        while let Some(level) = levels.last_mut() {
            match level.names.next() {
                Some(Key::Itself(name)) => pruning.look(level, &name)?,
                Some(Key::Below(name)) => {
                    let below = pruning.below(&level.path, &name)?;
                    levels.extend(below);
                }
                None => {
                    pruning.leave(level).map_err(DatasetError::from)?;
                    levels.pop();
                }
            }
        }
        while let Some(rest) = pruning.next.take() {
            pruning.missed(rest.path);
            pruning.advance()?;
        }
        Ok(pruning.names)
    }

    /// Removes what an earlier session staged under a name, as something else is to have it.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn make_way(&self, path: &RelPath) -> Result<Removed, DatasetError> {
        let at =
            DatasetStage::top_path().concat(path).map_err(|source| DiskError::Name { path: path.into(), source })?;
        let above = self.tree.dir(&at.parent().unwrap_or_default())?;
        let mut removed = Removed::default();
        remove(&above, at.name().unwrap_or_default(), &mut removed).map(|()| removed)
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
}

/// A directory that is being looked through.
struct StagedLevel {
    path: RelPath,
    names: std::vec::IntoIter<Key>,
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
    fn below(&self, above: &RelPath, name: &[u8]) -> Result<Option<StagedLevel>, DatasetError> {
        let path = joined(above, name)?;
        match self.walk.dir(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
            Ok(dir) if dir.dev() != self.walk.root().dev() => Err(mounted(&path)),
            Ok(_) => self.level(path).map(Some),
        }
    }

    /// Reads a directory, into which its owner is let if its mode forbids that.
    fn level(&self, path: RelPath) -> Result<StagedLevel, DatasetError> {
        let dir = self.walk.dir(&path)?;
        let failed = |error: Errno| DiskError::call("read the directory", &path, error);
        let stat = fstat(dir.as_ref()).map_err(failed)?;
        let is_shut = stat.st_mode & 0o500 != 0o500;
        let opened = if is_shut { let_owner_in(dir.kernel(), dir.as_ref()).map_err(failed)? } else { None };
        let mut found = Vec::new();
        dir.readable().and_then(|fd| each_name(fd, |name| found.push(name.to_vec()))).map_err(failed)?;
        let mut names = Vec::with_capacity(found.len());
        for name in found {
            let stat = statat(dir.as_ref(), &*name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            if type_of(&stat) == FileType::Directory && !is_reserved(&name) {
                names.push(Key::Below(name.clone()));
            }
            names.push(Key::Itself(name));
        }
        names.sort_unstable_by(|one, other| one.bytes().cmp(other.bytes()));
        let had = opened.map(|bits| (Some(bits), times_of(&stat)));
        Ok(StagedLevel { path, names: names.into_iter(), had })
    }

    /// Removes a name and what lies below it.
    fn remove(&mut self, level: &mut StagedLevel, name: &[u8]) -> Result<(), DatasetError> {
        let dir = self.walk.dir(&level.path)?;
        if level.had.is_none() {
            let failed = |error: Errno| DiskError::call("open to its owner", &level.path, error);
            let times = times_of(&fstat(dir.as_ref()).map_err(failed)?);
            level.had = Some((let_owner_in(dir.kernel(), dir.as_ref()).map_err(failed)?, times));
        }
        remove(&dir, name, &mut self.names.removed)
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

/// Removes a name in a directory, and what lies below it. The owner is let in everywhere.
fn remove(above: &Arc<Dir>, name: &[u8], removed: &mut Removed) -> Result<(), DatasetError> {
    let failed = |error: Errno| DiskError::call("remove what is not listed from", &RelPath::root(), error);
    if !unlink(above, name, removed).map_err(failed)? {
        return Ok(());
    }
    let walk = Walk::new(Arc::clone(above), cached_dirs_max());
    let mut to_do = vec![joined(&RelPath::root(), name)?];
    while let Some(path) = to_do.last() {
        let dir = walk.dir(path)?;
        if dir.dev() != above.dev() {
            return Err(mounted(path));
        }
        let failed = |error: Errno| DiskError::call("remove what is not listed from", path, error);
        let_owner_in(dir.kernel(), dir.as_ref()).map_err(failed)?;
        let mut found = Vec::new();
        dir.readable().and_then(|fd| each_name(fd, |name| found.push(name.to_vec()))).map_err(failed)?;
        let mut dirs = Vec::new();
        for name in found {
            if unlink(&dir, &name, removed).map_err(failed)? {
                dirs.push(joined(path, &name)?);
            }
        }
        if dirs.is_empty() {
            let (above, name) = walk.parent(path)?;
            above.kernel().rmdirat(&above, name).map_err(failed)?;
            removed.others += 1;
            to_do.pop();
        }
        to_do.extend(dirs);
    }
    Ok(())
}

/// Removes a name that is no directory. Gives whether it is one.
fn unlink(dir: &Dir, name: &[u8], removed: &mut Removed) -> Result<bool, Errno> {
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
    removed.files += files;
    removed.bytes = removed.bytes.saturating_add(bytes);
    removed.others += others;
    Ok(false)
}

fn joined(path: &RelPath, name: &[u8]) -> Result<RelPath, DatasetError> {
    path.join(name).map_err(|source| DiskError::Name { path: path.into(), source }.into())
}

/// The refusal to look through another file system.
fn mounted(path: &RelPath) -> DatasetError {
    DatasetError::Unable { path: path.into(), why: "a file system is mounted in what is staged" }
}
