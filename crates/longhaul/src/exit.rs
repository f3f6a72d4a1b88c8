//! Exit codes, and the choice of one for a run.
//!
//! In: the engine's [`Report`]. Out: [`Exit`] to `main` and to the `summary` event. The table is
//! part of the contract: codes are only ever added.

use longhaul_core::FaultCode;
use longhaul_engine::Report;

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is done and committed, or there was nothing to do.
    Complete = 0,
    /// The run failed for a reason that has no code of its own.
    Unclassified = 1,
    /// The command line or a configuration file is wrong.
    Usage = 2,
    /// A source or the destination does not exist.
    NotFound = 3,
    /// Keys, rights or permissions forbid it.
    Denied = 4,
    /// The failure may pass: a retry may work.
    Temporary = 5,
    /// Bytes that arrived are not those that were sent, after every try; or `check` found a file
    /// with other content than the manifest says, or `set verify` a chunk that is not what was
    /// written, or `job verify` a file that is not what was delivered.
    Mismatch = 6,
    /// This host or the other one cannot do it, as without space on the disk.
    Unable = 7,
    /// Some files failed, and the rest is done; or `check` found files that are missing, could not
    /// be read, or are not in the manifest; or `manifest diff` names that only one of both has, or
    /// of which nothing tells; or `job verify` files that are lost, changed or unread, or `manifest
    /// consistency` some that are lost or dark.
    Partial = 23,
    /// Some sources changed or vanished while they were sent, and the rest is done.
    Changed = 24,
    /// The user stopped the run (SIGINT).
    Interrupted = 130,
    /// Nobody reads standard output any more. It is the code with which a shell reports a death by
    /// SIGPIPE.
    BrokenPipe = 141,
    /// The system stopped the run (SIGTERM, or SIGHUP of a terminal that closes).
    Terminated = 143,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The `status` of the `summary` event.
    pub const fn status(self) -> &'static str {
        match self {
            Exit::Complete => "complete",
            Exit::Unclassified => "failed",
            Exit::Usage => "usage",
            Exit::NotFound => "not-found",
            Exit::Denied => "denied",
            Exit::Temporary => "temporary",
            Exit::Mismatch => "mismatch",
            Exit::Unable => "unable",
            Exit::Partial => "partial",
            Exit::Changed => "changed",
            Exit::Interrupted => "interrupted",
            Exit::BrokenPipe => "broken-pipe",
            Exit::Terminated => "terminated",
        }
    }

    /// Whether the same command, run again, continues from here.
    pub const fn resumable(self) -> bool {
        matches!(self, Exit::Temporary | Exit::Interrupted | Exit::Terminated)
    }

    /// The worse of two exits, for a command with several destinations: a user's or the system's
    /// stop first, then what the same command, run again, would meet again, then what may pass, and
    /// at last what concerns some files only.
    #[must_use]
    pub fn worse(self, other: Exit) -> Exit {
        if other.gravity() > self.gravity() { other } else { self }
    }

    fn gravity(self) -> u8 {
        match self {
            Exit::Complete => 0,
            Exit::Changed => 1,
            Exit::Partial => 2,
            Exit::Temporary => 3,
            Exit::NotFound => 4,
            Exit::Unable => 5,
            Exit::Denied => 6,
            Exit::Usage => 7,
            Exit::Unclassified => 8,
            Exit::Mismatch => 9,
            Exit::BrokenPipe => 10,
            Exit::Interrupted => 11,
            Exit::Terminated => 12,
        }
    }

    /// The exit code of a run is that of the fault that ended it, if one did. Else it is 0 where no
    /// file failed, 6 where any file failed by a mismatch, and 3 where no source exists. Where the
    /// run had one file, that file's fault decides. Of several files it is 24 if all that failed
    /// changed or vanished, and 23 otherwise.
    pub fn of_report(report: &Report, sources: usize) -> Exit {
        if let Some(fault) = &report.fault {
            return fault.code.into();
        }
        if report.files_failed == 0 {
            return Exit::Complete;
        }
        if report.files_mismatched > 0 {
            return Exit::Mismatch;
        }
        if nothing_existed(report, sources) {
            return Exit::NotFound;
        }
        match report.failures.as_slice() {
            [only] if was_alone(report) => (*only).into(),
            _ if report.files_failed == report.files_changed => Exit::Changed,
            _ => Exit::Partial,
        }
    }
}

impl From<FaultCode> for Exit {
    fn from(code: FaultCode) -> Exit {
        match code {
            FaultCode::Usage => Exit::Usage,
            FaultCode::NotFound => Exit::NotFound,
            // The same command would be refused again, whatever passes meanwhile.
            FaultCode::Denied | FaultCode::Superseded => Exit::Denied,
            FaultCode::Unreachable | FaultCode::Lost | FaultCode::TimedOut | FaultCode::Busy | FaultCode::Exhausted => {
                Exit::Temporary
            }
            FaultCode::Mismatch => Exit::Mismatch,
            FaultCode::NoSpace
            | FaultCode::ReadOnly
            | FaultCode::Io
            | FaultCode::TargetFailed
            | FaultCode::Unsupported => Exit::Unable,
            FaultCode::Exists | FaultCode::InTheWay | FaultCode::Incomplete | FaultCode::Published => Exit::Partial,
            FaultCode::Changed | FaultCode::Vanished => Exit::Changed,
            FaultCode::Interrupted => Exit::Interrupted,
            FaultCode::Terminated => Exit::Terminated,
            FaultCode::Unclassified | FaultCode::Protocol | FaultCode::Internal => Exit::Unclassified,
        }
    }
}

/// Whether the failed file was the only one to send. (A source that could not even be examined is
/// not in the total.)
fn was_alone(report: &Report) -> bool {
    report.files_total == 1 && report.files_committed + report.files_skipped == 0
}

/// Whether the only failure is that no source exists at all.
fn nothing_existed(report: &Report, sources: usize) -> bool {
    let missing = report.failures.iter().filter(|code| **code == FaultCode::NotFound).count();
    missing >= sources && missing as u64 == report.files_failed && report.files_committed + report.files_skipped == 0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use longhaul_core::{Blame, Fault};
    use longhaul_engine::WayFigures;

    /// The report of a run in which nothing happened.
    pub(crate) fn report() -> Report {
        Report {
            fault: None,
            failures: Vec::new(),
            files_committed: 0,
            files_skipped: 0,
            files_failed: 0,
            files_changed: 0,
            files_mismatched: 0,
            files_total: 0,
            bytes_committed: 0,
            bytes_resent: 0,
            bytes_resumed: 0,
            bytes_moved: 0,
            bytes_holes: 0,
            bytes_held: 0,
            bytes_wanted: 0,
            scanned: true,
            bytes_read_back: 0,
            bytes_digested: 0,
            bytes_misread: 0,
            seconds: 0.0,
            sender_cpu: None,
            receiver_cpu: None,
            limits: Vec::new(),
            stages: Vec::new(),
            io: None,
            ways: WayFigures::default(),
            troubled_targets: Vec::new(),
            files_at_risk: 0,
        }
    }

    /// A run over `total` files of which these failed.
    fn failed(total: u64, failures: &[FaultCode]) -> Report {
        let count = |which: &[FaultCode]| failures.iter().filter(|code| which.contains(code)).count() as u64;
        let files_failed = failures.len() as u64;
        Report {
            failures: failures.to_vec(),
            files_total: total,
            files_failed,
            files_committed: total.saturating_sub(files_failed),
            files_changed: count(&[FaultCode::Changed, FaultCode::Vanished]),
            files_mismatched: count(&[FaultCode::Mismatch]),
            ..report()
        }
    }

    #[test]
    fn what_ends_the_session_gives_its_own_code() {
        for (code, exit) in [
            (FaultCode::Usage, 2),
            (FaultCode::NotFound, 3),
            (FaultCode::Denied, 4),
            (FaultCode::Superseded, 4),
            (FaultCode::Incomplete, 23),
            (FaultCode::Published, 23),
            (FaultCode::Lost, 5),
            (FaultCode::Busy, 5),
            (FaultCode::Exhausted, 5),
            (FaultCode::Mismatch, 6),
            (FaultCode::NoSpace, 7),
            (FaultCode::ReadOnly, 7),
            (FaultCode::Protocol, 1),
            (FaultCode::Internal, 1),
            (FaultCode::Interrupted, 130),
            (FaultCode::Terminated, 143),
        ] {
            let fault = Some(Fault::new(code, Blame::Path, "x"));
            let ended = Report { fault, ..failed(9, &[FaultCode::Mismatch]) };
            assert_eq!(Exit::of_report(&ended, 1).code(), exit, "{code:?}");
            assert_eq!(Exit::from(code).code(), exit, "{code:?}");
        }
    }

    #[test]
    fn a_run_that_went_through_every_file_is_judged_by_what_failed() {
        use FaultCode::*;
        for (total, failures, sources, exit) in [
            (3, &[][..], 1, 0),
            (0, &[], 1, 0),
            (3, &[Mismatch], 1, 6),
            (3, &[Denied, Mismatch, Changed], 1, 6),
            (1, &[Mismatch], 1, 6),
            (1, &[Denied], 1, 4),
            (1, &[Exists], 1, 23),
            (1, &[Changed], 1, 24),
            (1, &[Vanished], 1, 24),
            (1, &[Io], 1, 7),
            (3, &[Denied], 1, 23),
            (3, &[Changed], 1, 24),
            (3, &[Changed, Vanished], 1, 24),
            (3, &[Changed, Denied], 1, 23),
            (0, &[NotFound], 1, 3),
            (0, &[NotFound, NotFound], 2, 3),
            (5, &[NotFound], 2, 23),
            (0, &[NotFound], 2, 23),
            (1, &[NotFound, Denied], 2, 23),
        ] {
            let report = failed(total, failures);
            assert_eq!(Exit::of_report(&report, sources).code(), exit, "{total} {failures:?} {sources}");
        }
    }

    #[test]
    fn of_several_destinations_the_worst_decides() {
        let worst = |exits: &[Exit]| exits.iter().fold(Exit::Complete, |worst, exit| worst.worse(*exit));
        assert_eq!(worst(&[Exit::Complete, Exit::Complete]), Exit::Complete);
        assert_eq!(worst(&[Exit::Complete, Exit::Partial, Exit::Changed]), Exit::Partial);
        assert_eq!(worst(&[Exit::Temporary, Exit::Unable, Exit::Partial]), Exit::Unable);
        assert_eq!(worst(&[Exit::Mismatch, Exit::Temporary]), Exit::Mismatch);
        assert_eq!(worst(&[Exit::Mismatch, Exit::Interrupted]), Exit::Interrupted);
    }

    #[test]
    fn a_name_that_could_not_be_examined_does_not_decide_for_those_that_arrived() {
        let report = Report { files_committed: 1, ..failed(1, &[FaultCode::NotFound]) };
        assert_eq!(Exit::of_report(&report, 1), Exit::Partial);
    }
}
