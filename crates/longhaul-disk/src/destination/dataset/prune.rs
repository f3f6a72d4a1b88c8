//! The last look at a staged dataset: what lies in it is what its list names, and nothing else.
//!
//! In: the paths that are listed. Out: how many names stand. Names that earlier sessions staged of
//! other sources, and what they left of unfinished files, go. Must not know who sent what.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_core::limits::DATASET_MANIFEST_NAME;
use longhaul_core::{RelPath, is_reserved};
use rustix::fs::{AtFlags, FileType, Timestamps, fstat, statat};
use rustix::io::Errno;

use super::{DatasetError, DatasetStage, DatasetTop, times_of};
use crate::error::DiskError;
use crate::names::each_name;
use crate::stat::type_of;
use crate::walk::{Dir, Walk, cached_dirs_max};

/// The names of a staged dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagedNames {
    /// Names that stand, directories among them.
    pub kept: u64,
    /// Names that were removed.
    pub removed: u64,
}

impl DatasetStage {
    /// Removes every name that is not `listed`, and what earlier sessions left of unfinished files.
    /// Directories keep their times.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn prune(&self, top: &DatasetTop, listed: &dyn Fn(&RelPath) -> bool) -> Result<StagedNames, DatasetError> {
        let walk = Walk::new(Arc::clone(&top.dir), cached_dirs_max());
        let (to_do, names) = (vec![(RelPath::root(), InList::Yes)], StagedNames::default());
        let mut pruning = Pruning { walk, listed, to_do, unlisted: Vec::new(), times: HashMap::new(), names };
        while let Some((path, is_listed)) = pruning.to_do.pop() {
            pruning.look(&path, is_listed)?;
        }
        pruning.remove_dirs()?;
        pruning.restore_times()?;
        Ok(pruning.names)
    }
}

/// Whether a directory is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InList {
    Yes,
    No,
}

struct Pruning<'l> {
    walk: Walk,
    listed: &'l dyn Fn(&RelPath) -> bool,
    /// Directories to look through, and whether they are listed.
    to_do: Vec<(RelPath, InList)>,
    /// Directories to be removed, each behind the one in which it lies.
    unlisted: Vec<RelPath>,
    /// Times of directories from which names were removed.
    times: HashMap<RelPath, Timestamps>,
    names: StagedNames,
}

impl Pruning<'_> {
    fn look(&mut self, path: &RelPath, own: InList) -> Result<(), DiskError> {
        let dir = self.walk.dir(path)?;
        let mut found = Vec::new();
        let read = dir.readable().and_then(|fd| each_name(fd, |name| found.push(name.to_vec())));
        read.map_err(|error| DiskError::call("read the directory", path, error))?;
        for name in found {
            if is_reserved(&name) {
                if !(path.is_root() && name == DATASET_MANIFEST_NAME) {
                    self.remove(&dir, path, &name)?;
                }
                continue;
            }
            let at = path.join(&name).map_err(|source| DiskError::Name { path: path.into(), source })?;
            let stat = statat(&*dir, &*name, AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|error| DiskError::call("examine", &at, error))?;
            let stays = own == InList::Yes && (self.listed)(&at);
            self.names.kept += u64::from(stays);
            match (type_of(&stat), stays) {
                (FileType::Directory, _) => {
                    self.to_do.push((at.clone(), if stays { InList::Yes } else { InList::No }));
                    if !stays {
                        self.unlisted.push(at);
                    }
                }
                (_, true) => {}
                (_, false) => self.remove(&dir, path, &name)?,
            }
        }
        Ok(())
    }

    /// Removes a name that is no directory.
    fn remove(&mut self, dir: &Dir, path: &RelPath, name: &[u8]) -> Result<(), DiskError> {
        self.keep_times(dir, path)?;
        dir.kernel()
            .unlinkat(dir, name)
            .map_err(|error| DiskError::call("remove what is not listed from", path, error))?;
        self.names.removed += 1;
        Ok(())
    }

    fn remove_dirs(&mut self) -> Result<(), DiskError> {
        while let Some(path) = self.unlisted.pop() {
            let above = path.parent().unwrap_or_default();
            let dir = self.walk.dir(&above)?;
            self.keep_times(&dir, &above)?;
            let removed = dir.kernel().rmdirat(&*dir, path.name().unwrap_or_default());
            removed.map_err(|error| DiskError::call("remove the directory", &path, error))?;
            self.times.remove(&path);
            self.names.removed += 1;
        }
        Ok(())
    }

    fn keep_times(&mut self, dir: &Dir, path: &RelPath) -> Result<(), DiskError> {
        if !self.times.contains_key(path) {
            let stat = fstat(dir).map_err(|error: Errno| DiskError::call("examine", path, error))?;
            self.times.insert(path.clone(), times_of(&stat));
        }
        Ok(())
    }

    fn restore_times(&mut self) -> Result<(), DiskError> {
        for (path, times) in std::mem::take(&mut self.times) {
            let dir = self.walk.dir(&path)?;
            let set = dir.kernel().set_times_of_place(&*dir, &times);
            set.map_err(|error| DiskError::call("set the times of", &path, error))?;
        }
        Ok(())
    }
}
