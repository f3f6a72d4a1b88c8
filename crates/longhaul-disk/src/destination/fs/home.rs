//! The place of a destination directory, and its rules for names.
//!
//! In: the operator's path or a path of a served tree, and its policy. Out: both, to the
//! destination: whether a link may be made in it, and whether it still stands there.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::RelPath;

use super::super::links;
use super::super::policy::LinkPolicy;
use super::super::spelling::Spellings;
use crate::error::{DiskError, ErrorKind};
use crate::tree::Tree;
use crate::walk::Dir;

/// The rules for names, and the spellings of those that were given.
pub(super) struct NameRules {
    /// The rule for links.
    pub(super) links: LinkPolicy,
    /// The spellings of names that were given.
    pub(super) spellings: Spellings,
}

/// The place of the destination, as the operator named it.
pub(super) enum Home {
    /// At a path of this host.
    Named(PathBuf),
    /// At a path beneath a served tree.
    Beneath(Arc<Tree>, RelPath),
    /// In the holder of a dataset.
    Staged(StagedHome),
}

/// The place in which a dataset is staged.
pub(crate) struct StagedHome {
    /// The holder.
    pub(crate) tree: Arc<Tree>,
    /// The path of the dataset's own directory in that.
    pub(crate) top: RelPath,
    /// The path that it shall have, beneath the root in which it appears.
    pub(crate) place: RelPath,
}

impl Home {
    /// Whether it is the top of a served tree: its mode and times are its operator's, whatever mode
    /// and times a sender gives it.
    pub(super) fn is_served_root(&self) -> bool {
        matches!(self, Home::Beneath(_, path) if path.is_root())
    }

    /// Refuses a link that may lead out of the served tree. What is staged of a dataset counts as
    /// at the place that it shall have.
    pub(super) fn check_link(&self, rule: LinkPolicy, path: &RelPath, target: &[u8]) -> Result<(), DiskError> {
        let below = |top: &RelPath| top.concat(path).map_err(|source| DiskError::Name { path: path.into(), source });
        match self {
            Home::Named(_) => Ok(()),
            Home::Beneath(_, top) => links::check(rule, &below(top)?, target),
            Home::Staged(home) => links::check(rule, &below(&home.place)?, target),
        }
    }

    /// Checks that the directory is still found at its place.
    pub(super) fn check_place(&self, root: &Dir) -> Result<(), DiskError> {
        let (tree, path) = match self {
            Home::Named(path) => return root.check_named(path),
            Home::Beneath(tree, path) => (tree, path),
            Home::Staged(home) => (&home.tree, &home.top),
        };
        tree.check_place()?;
        match tree.dir(path) {
            Ok(found) if found.place() == root.place() => Ok(()),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Err(error),
            _ => Err(DiskError::Moved { path: path.into() }),
        }
    }
}
