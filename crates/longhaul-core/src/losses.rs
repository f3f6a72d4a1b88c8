//! The metadata that a transfer was to carry and could not keep, counted by kind and reason.
//!
//! In: from a scan that cannot read something, from a destination that cannot set it, or from a
//! peer. Out: [`Losses`], to whoever tells the user. Their number is bounded by that of kinds and
//! reasons, however many entries lose something.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::path::RelPath;

/// A kind of metadata that can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LossKind {
    /// Extended attributes.
    Xattrs,
    /// Owner and group.
    Owner,
    /// Set-user-id and set-group-id bits.
    SetId,
    /// Access lists.
    Acls,
    /// Hard links: the name has a copy of its own.
    Hardlinks,
    /// Permissions.
    Mode,
    /// The time of the last change.
    Times,
    /// Checksums that were to be kept with the file.
    Checksums,
}

impl LossKind {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            LossKind::Xattrs => "xattrs",
            LossKind::Owner => "owner",
            LossKind::SetId => "set-id",
            LossKind::Acls => "acls",
            LossKind::Hardlinks => "hardlinks",
            LossKind::Mode => "mode",
            LossKind::Times => "times",
            LossKind::Checksums => "checksums",
        }
    }
}

/// The reason for which metadata is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LossReason {
    /// The file system has no such metadata.
    Unsupported,
    /// The system does not let this user set or read it.
    Denied,
    /// The root of the daemon does not take it.
    Policy,
    /// It is longer than what may travel, or than the file system keeps.
    TooLong,
    /// It belongs to the system, not to users: attributes beyond `user.`.
    System,
    /// It names an account that is unknown there, and no number.
    UnknownAccount,
    /// The file has several names, and the others would change with it.
    SeveralNames,
    /// The entry was another one when its metadata was to be read.
    Changed,
    /// It is a striped file, which belongs to whom its set does, and has one name.
    Striped,
    /// There are more files with several names than are remembered, more names of one file than the
    /// file system lets it have, or more checksums than the catalogue has room for.
    TooMany,
    /// The names lie on different file systems, or on different targets of a set.
    Elsewhere,
    /// Nothing shows that the first name is of a file of this transfer.
    Unproven,
    /// The system could not do it.
    Failed,
    /// Some bytes passed where nobody computed checksums of them.
    NotComputed,
}

impl LossReason {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            LossReason::Unsupported => "unsupported",
            LossReason::Denied => "denied",
            LossReason::Policy => "policy",
            LossReason::TooLong => "too-long",
            LossReason::System => "system",
            LossReason::UnknownAccount => "unknown-account",
            LossReason::SeveralNames => "several-names",
            LossReason::Changed => "changed",
            LossReason::Striped => "striped",
            LossReason::TooMany => "too-many",
            LossReason::Elsewhere => "elsewhere",
            LossReason::Unproven => "unproven",
            LossReason::Failed => "failed",
            LossReason::NotComputed => "not-computed",
        }
    }
}

/// The entries that lost metadata of one kind for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The kind of metadata.
    pub kind: LossKind,
    /// The reason.
    pub reason: LossReason,
    /// The number of entries.
    pub entries: u64,
    /// The first of them: its path beneath the destination.
    pub first: RelPath,
}

/// All losses, by kind and reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<(LossKind, LossReason), (u64, RelPath)>);

impl Losses {
    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts an entry.
    pub fn add(&mut self, kind: LossKind, reason: LossReason, path: &RelPath) {
        self.0.entry((kind, reason)).or_insert_with(|| (0, path.clone())).0 += 1;
    }

    /// Counts all of `more`.
    pub fn add_all(&mut self, more: &Losses) {
        for (key, (entries, first)) in &more.0 {
            let sum = self.0.entry(*key).or_insert_with(|| (0, first.clone()));
            sum.0 = sum.0.saturating_add(*entries);
        }
    }

    /// Each kind and reason, in order.
    pub fn rows(&self) -> impl Iterator<Item = Loss> + '_ {
        let row = |(&(kind, reason), (entries, first)): (&(LossKind, LossReason), &(u64, RelPath))| Loss {
            kind,
            reason,
            entries: *entries,
            first: first.clone(),
        };
        self.0.iter().map(row)
    }
}

impl FromIterator<Loss> for Losses {
    fn from_iter<T: IntoIterator<Item = Loss>>(rows: T) -> Losses {
        let mut losses = Losses::default();
        for Loss { kind, reason, entries, first } in rows {
            let sum = losses.0.entry((kind, reason)).or_insert_with(|| (0, first));
            sum.0 = sum.0.saturating_add(entries);
        }
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_by_kind_and_reason_and_keep_the_first_name() {
        let path = |text: &str| RelPath::new(text).expect("a path");
        let mut losses = Losses::default();
        assert!(losses.is_empty());
        losses.add(LossKind::Xattrs, LossReason::Denied, &path("b"));
        losses.add(LossKind::Xattrs, LossReason::Denied, &path("a"));
        losses.add(LossKind::Xattrs, LossReason::TooLong, &path("c"));
        let again: Losses = losses.rows().collect();
        losses.add_all(&again);
        let rows: Vec<_> = losses.rows().map(|loss| (loss.reason, loss.entries, loss.first)).collect();
        assert_eq!(rows, [(LossReason::Denied, 4, path("b")), (LossReason::TooLong, 2, path("c"))]);
    }
}
