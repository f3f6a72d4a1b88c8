//! A destination directory as one target of a set.
//!
//! In: orders of the set's destination ([`SpreadTarget`](crate::SpreadTarget)), for the files that
//! lie here. It does the same work as for a directory by itself, and knows no other target.

use std::sync::Arc;

use longhaul_core::RelPath;

use super::super::staged::Staged;
use super::FsTarget;
use crate::error::{DiskError, ErrorKind};
use crate::load::TargetLoad;
use crate::stat::Standing;
use crate::tree::examine;

impl FsTarget {
    /// Counts what is written here as the load of this target.
    #[must_use]
    pub(crate) fn loading(self, load: Arc<TargetLoad>) -> FsTarget {
        FsTarget { load, ..self }
    }

    /// The entry that stands at `path`; nothing is noted to be made durable.
    pub(crate) fn look_at(&self, path: &RelPath) -> Result<Option<Standing>, DiskError> {
        match examine(&self.walk, path) {
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
            outcome => outcome,
        }
    }

    /// Makes names durable as [`TargetTree::sync_dirs`] does, of these files among others.
    pub(crate) fn sync_dirs_of(&self, staged: &[&Staged]) -> Result<(), DiskError> {
        self.syncer.dirs(&self.walk, staged)
    }
}
