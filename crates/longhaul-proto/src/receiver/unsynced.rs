//! Counts the bytes that all files of a session have written and that are not durable yet, and
//! knows which files take part in the next group sync.
//!
//! In: bytes that are written, synced and journalled. Out: whether a group is due, and its files.
//! Knows no disk.

use std::collections::BTreeSet;

use longhaul_core::FileId;

use super::large::LargeTarget;
use super::order::SyncGroup;
use crate::time::Timestamp;

/// Bytes that all files have written and not synced.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    /// Files whose next sync can begin at any time: open, not failed, with bytes written since
    /// their last sync.
    files: BTreeSet<FileId>,
    /// Bytes written of these files, the first of them at `since`.
    bytes: u64,
    since: Option<Timestamp>,
    /// Bytes of all files that are written and not durable.
    undurable: u64,
}

impl Unsynced {
    /// When the next group sync is due. `None` if nothing waits for one.
    pub(super) fn deadline(&self, group: SyncGroup) -> Option<Timestamp> {
        self.since.map(|since| since.after(group.age))
    }

    /// The files of the group sync that is due now. They take part no more. Empty if none is due.
    pub(super) fn take_due(&mut self, now: Timestamp, group: SyncGroup) -> BTreeSet<FileId> {
        let is_late = self.deadline(group).is_some_and(|deadline| now >= deadline);
        if self.files.is_empty() || self.bytes < group.bytes && !is_late {
            return BTreeSet::new();
        }
        self.bytes = 0;
        self.since = None;
        std::mem::take(&mut self.files)
    }

    /// Adds `bytes` of a file, which wait for its next sync since `since`.
    pub(super) fn join(&mut self, id: FileId, bytes: u64, since: Option<Timestamp>) {
        self.files.insert(id);
        self.bytes += bytes;
        self.since = [self.since, since].into_iter().flatten().min();
    }

    /// Removes a file that takes no part in the next group sync: it is sealed, or it failed.
    pub(super) fn leave(&mut self, id: FileId, large: &LargeTarget) {
        if self.files.remove(&id) {
            self.bytes -= large.written;
        }
        if self.files.is_empty() {
            self.since = None;
        }
    }

    /// Counts bytes that were written.
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.undurable += bytes;
    }

    /// Counts no longer bytes that are durable, or given up.
    pub(super) fn count_no_more(&mut self, bytes: u64) {
        self.undurable -= bytes;
    }

    /// Bytes of all files that are written and not durable.
    pub(super) fn undurable(&self) -> u64 {
        self.undurable
    }

    /// Panics at the first counter that differs from what the files themselves say. `large`: all
    /// of them, each with whether a sync of it may begin.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn audit(&self, large: &[(FileId, &LargeTarget)], syncable: &BTreeSet<FileId>) {
        let undurable: u64 = large.iter().map(|(_, large)| large.undurable()).sum();
        assert_eq!(self.undurable, undurable, "bytes not durable");
        assert!(self.files.is_superset(syncable), "files that no sync will reach");
        let waiting: u64 = large.iter().filter(|(id, _)| self.files.contains(id)).map(|(_, l)| l.written).sum();
        assert_eq!(self.bytes, waiting, "bytes that wait for a sync");
        assert_eq!(self.since.is_some(), !self.files.is_empty(), "the clock of the next sync");
    }
}
