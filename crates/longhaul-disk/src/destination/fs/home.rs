//! The place of a destination directory, and its rules for names.
//!
//! In: the operator's path or a path of a served tree, and its policy. Out: both, to the
//! destination. It looks at nothing.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::RelPath;

use super::super::policy::LinkPolicy;
use super::super::spelling::Spellings;
use crate::tree::Tree;

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
}

impl Home {
    /// Whether it is the top of a served tree: its mode and times are its operator's, whatever mode
    /// and times a sender gives it.
    pub(super) fn is_served_root(&self) -> bool {
        matches!(self, Home::Beneath(_, path) if path.is_root())
    }
}
