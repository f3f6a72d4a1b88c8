//! A destination directory as one target of a set.
//!
//! In: orders of the set's destination ([`SpreadTarget`](crate::SpreadTarget)), for the files that
//! lie here. It does the same work as for a directory by itself, and knows no other target.

use std::sync::Arc;

use longhaul_core::{RelPath, TargetId, TempName};

use super::super::staged::Staged;
use super::FsTarget;
use crate::error::{DiskError, ErrorKind};
use crate::load::{TargetCondition, TargetLoad};
use crate::shelf::sweep;
use crate::stat::Standing;
use crate::tree::examine;
use crate::walk::{Dir, cached_dirs_max};

impl FsTarget {
    /// Counts what is written here as the load of this target, and holds its part of the
    /// directories that a session keeps open over so many targets.
    #[must_use]
    pub(crate) fn loading(self, load: Arc<TargetLoad>, targets: usize) -> FsTarget {
        let walk = self.walk.holding(cached_dirs_max() / targets.max(1));
        FsTarget { load, walk, ..self }
    }

    /// The same destination, as part of the load of the target that it lies on.
    #[must_use]
    pub fn as_part_of(self, load: &Arc<TargetLoad>) -> FsTarget {
        FsTarget { load: Arc::clone(load), ..self }
    }

    /// The number of this target.
    pub(crate) fn load_id(&self) -> TargetId {
        self.load.id()
    }

    /// The load of this target.
    pub(crate) fn load(&self) -> &Arc<TargetLoad> {
        &self.load
    }

    /// The condition of this target.
    pub(crate) fn condition(&self) -> TargetCondition {
        self.load.condition()
    }

    /// The error of something that can only go here, once this target failed.
    pub(crate) fn down(&self) -> Option<DiskError> {
        self.load.down()
    }

    /// Judges the result of a call that writes here: if this target failed or is full, and another
    /// one can take what was to go here, the error says so.
    pub(crate) fn judged<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        self.load.judged(result)
    }

    /// The entry that stands at `path`; nothing is noted to be made durable.
    pub(crate) fn look_at(&self, path: &RelPath) -> Result<Option<Standing>, DiskError> {
        match examine(&self.walk, path) {
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
            outcome => outcome,
        }
    }

    /// Removes temporaries that are orphans, as [`TargetTree::sweep`](crate::TargetTree::sweep)
    /// does. Returns those that are gone.
    pub(crate) fn swept(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<Vec<TempName>, DiskError> {
        let dir = match self.walk.dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            outcome => outcome?,
        };
        sweep(&dir, orphan).map_err(|error| DiskError::call("remove old temporary files from", path, error))
    }

    /// The directory that the file at `path` lies in, and its name there.
    pub(crate) fn place_of<'p>(&self, path: &'p RelPath) -> Result<(Arc<Dir>, &'p [u8]), DiskError> {
        self.walk.parent(path)
    }

    /// The directory at `path`. `None` if it does not stand.
    pub(crate) fn dir_at(&self, path: &RelPath) -> Result<Option<Arc<Dir>>, DiskError> {
        match self.walk.dir(path) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes names durable as [`TargetTree::sync_dirs`] does, of these files among others.
    pub(crate) fn sync_dirs_of(&self, staged: &[&Staged]) -> Result<(), DiskError> {
        self.syncer.dirs(&self.walk, staged)?;
        self.rules.extras.catalogue(staged);
        Ok(())
    }
}
