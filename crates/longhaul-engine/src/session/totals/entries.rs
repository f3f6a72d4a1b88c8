//! Counts the entries of a transfer, and the bytes of its files, by what became of them.
//!
//! In: entries that were found, and their outcomes. Out: counts for progress and for the report. It
//! knows no sessions and no lanes.

use std::collections::HashSet;

use longhaul_core::{Entry, EntryKind, FaultCode, RelPath};

use crate::api::FileStatus;

/// A number of files and links, and the bytes of the files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileCount {
    /// The number of files and links.
    pub(super) files: u64,
    /// The bytes of the files.
    pub(super) bytes: u64,
}

impl FileCount {
    /// The count of one entry. The other side says how long a file is.
    fn of(kind: &EntryKind) -> FileCount {
        match kind {
            EntryKind::File { len, .. } => FileCount { files: 1, bytes: *len },
            // Its bytes are counted as they come.
            EntryKind::Symlink { .. } | EntryKind::Stream { .. } => FileCount { files: 1, bytes: 0 },
            EntryKind::Dir | EntryKind::DirEnd | EntryKind::Unsent { .. } => FileCount::default(),
        }
    }

    fn add(&mut self, more: FileCount) {
        self.files += more.files;
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// The entries of a transfer. Directories count only when they fail.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryCounts {
    found: FileCount,
    committed: FileCount,
    skipped: FileCount,
    done_without: FileCount,
    /// Bytes of files under further names, which were not sent again for these.
    linked_bytes: u64,
    failures: Failures,
}

/// The entries that failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    /// All failures, those of directories included.
    pub(super) all: u64,
    /// Failures of sources that changed or vanished.
    pub(super) changed: u64,
    /// Failures of bytes that differ from what they should be.
    pub(super) mismatched: u64,
    /// The codes of the first failures.
    pub(super) codes: Vec<FaultCode>,
    /// Directories that failed and have not ended.
    dirs: HashSet<RelPath>,
}

impl EntryCounts {
    /// Counts an entry that was found.
    pub(super) fn find(&mut self, kind: &EntryKind) {
        self.found.add(FileCount::of(kind));
    }

    /// Counts further bytes of a stream that was found.
    pub(super) fn find_more(&mut self, bytes: u64) {
        self.found.bytes = self.found.bytes.saturating_add(bytes);
    }

    /// Forgets what was found: the next session's sender names every entry again.
    pub(super) fn find_anew(&mut self) {
        self.found = FileCount::default();
    }

    /// Counts an entry's outcome.
    pub(super) fn settle(&mut self, kind: &EntryKind, status: &FileStatus) {
        let count = FileCount::of(kind);
        match status {
            FileStatus::Committed | FileStatus::Staged => return self.committed.add(count),
            FileStatus::Skipped => self.skipped.add(count),
            FileStatus::Linked => {
                self.committed.add(FileCount { bytes: 0, ..count });
                self.linked_bytes = self.linked_bytes.saturating_add(count.bytes);
                return self.done_without.add(FileCount { files: 0, ..count });
            }
            FileStatus::Planned => {}
            FileStatus::Failed(fault) => self.failures.add(fault.code),
        }
        self.done_without.add(count);
    }

    /// Whether a failure is new: a directory that failed once fails at its end again.
    pub(super) fn is_first_failure(&mut self, entry: &Entry, status: &FileStatus) -> bool {
        let has_failed = matches!(status, FileStatus::Failed(_));
        match entry.kind {
            EntryKind::Dir if has_failed => self.failures.dirs.insert(entry.path.clone()),
            EntryKind::DirEnd => !self.failures.dirs.remove(&entry.path) || !has_failed,
            _ => true,
        }
    }

    /// The files that were found so far.
    pub(super) fn found(&self) -> FileCount {
        self.found
    }

    /// The files that were committed.
    pub(super) fn committed(&self) -> FileCount {
        self.committed
    }

    /// The files that were skipped.
    pub(super) fn skipped(&self) -> FileCount {
        self.skipped
    }

    /// Bytes of files under further names, which were not sent again for these.
    pub(super) fn linked_bytes(&self) -> u64 {
        self.linked_bytes
    }

    /// The files that have an outcome and were not committed, and bytes that were not sent.
    pub(super) fn done_without(&self) -> FileCount {
        self.done_without
    }

    /// The entries that failed.
    pub(super) fn failures(&self) -> &Failures {
        &self.failures
    }
}

impl Failures {
    fn add(&mut self, code: FaultCode) {
        self.all += 1;
        match code {
            FaultCode::Changed | FaultCode::Vanished => self.changed += 1,
            FaultCode::Mismatch => self.mismatched += 1,
            _ => {}
        }
        if self.codes.len() < FAILURES_KEPT {
            self.codes.push(code);
        }
    }
}

/// Codes kept of single failures. Further failures are only counted.
const FAILURES_KEPT: usize = 1000;
