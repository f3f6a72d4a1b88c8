//! Counting what became of a session's entries, for progress and for the report.

use longhaul_core::{EntryKind, Fault, FaultCode};
use longhaul_disk::EngineReport;

use crate::api::{FileStatus, Progress, Report};

/// What a session side counted. Directories count only when they fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) fault: Option<Fault>,
    failures: Vec<FaultCode>,
    files_total: u64,
    bytes_total: u64,
    pub(crate) scanned: bool,
    files_committed: u64,
    files_skipped: u64,
    files_failed: u64,
    files_changed: u64,
    files_mismatched: u64,
    bytes_committed: u64,
    bytes_done_without: u64,
    pub(crate) bytes_resent: u64,
    pub(crate) bytes_resumed: u64,
    pub(crate) seconds: f64,
    pub(crate) sender_cpu_us: Option<u64>,
    pub(crate) receiver_cpu_us: Option<u64>,
    pub(crate) stages: Vec<(&'static str, f64)>,
    pub(crate) io: Option<EngineReport>,
}

/// Codes kept of single failures; beyond that only their number.
const FAILURES_KEPT: usize = 1000;

impl Totals {
    /// Of a session that a fault ended before it began.
    pub(crate) fn ended_by(fault: Fault) -> Totals {
        Totals { fault: Some(fault), ..Totals::default() }
    }

    /// An entry is known.
    pub(crate) fn found(&mut self, kind: &EntryKind) {
        match kind {
            EntryKind::File { len, .. } => {
                self.files_total += 1;
                self.bytes_total += len;
            }
            EntryKind::Symlink { .. } => self.files_total += 1,
            EntryKind::Dir | EntryKind::DirEnd | EntryKind::Unsent { .. } => {}
        }
    }

    /// An entry has its outcome.
    pub(crate) fn settled(&mut self, kind: &EntryKind, status: &FileStatus) {
        let (counts, len) = match kind {
            EntryKind::File { len, .. } => (1, *len),
            EntryKind::Symlink { .. } => (1, 0),
            EntryKind::Dir | EntryKind::DirEnd | EntryKind::Unsent { .. } => (0, 0),
        };
        match status {
            FileStatus::Committed => {
                self.files_committed += counts;
                self.bytes_committed += len;
                return;
            }
            FileStatus::Skipped => self.files_skipped += counts,
            FileStatus::Planned => {}
            FileStatus::Failed(fault) => self.failed(fault.code),
        }
        self.bytes_done_without += len;
    }

    fn failed(&mut self, code: FaultCode) {
        self.files_failed += 1;
        match code {
            FaultCode::Changed | FaultCode::Vanished => self.files_changed += 1,
            FaultCode::Mismatch => self.files_mismatched += 1,
            _ => {}
        }
        if self.failures.len() < FAILURES_KEPT {
            self.failures.push(code);
        }
    }

    /// The counters that depend on entries.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            files_total: self.files_total,
            bytes_total: self.bytes_total,
            scanned: self.scanned,
            files_committed: self.files_committed,
            bytes_committed: self.bytes_committed,
            bytes_done_without: self.bytes_done_without,
            limited_by: LIMIT_UNKNOWN,
            ..Progress::default()
        }
    }

    /// The report of a run of which this is the observed side.
    pub(crate) fn into_report(self, seconds: f64) -> Report {
        let cpu = |us: Option<u64>| us.map(|us| us as f64 / 1e6);
        Report {
            fault: self.fault,
            failures: self.failures,
            files_committed: self.files_committed,
            files_skipped: self.files_skipped,
            files_failed: self.files_failed,
            files_changed: self.files_changed,
            files_mismatched: self.files_mismatched,
            files_total: self.files_total,
            bytes_committed: self.bytes_committed,
            bytes_resent: self.bytes_resent,
            bytes_resumed: self.bytes_resumed,
            seconds,
            sender_cpu: cpu(self.sender_cpu_us),
            receiver_cpu: cpu(self.receiver_cpu_us),
            limited_by: LIMIT_UNKNOWN,
            stages: self.stages,
            io: self.io,
        }
    }
}

/// Nothing measures the limit yet.
const LIMIT_UNKNOWN: &str = "unknown";
