//! Counts the outcomes of a transfer's entries, over all of its sessions, for progress and for the
//! report.
//!
//! In: outcomes from either session loop, and the counters of each session that ends. Out: a
//! [`Progress`] and a [`Report`]. It knows no connection and no disk.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use longhaul_core::{Entry, EntryKind, Fault, FaultCode, RelPath};
use longhaul_disk::EngineReport;
use longhaul_proto::tuning::limit::Spent;
use longhaul_proto::wire::message::Tally;

use crate::api::{FileStatus, Limited, Progress, Report};

/// The counters of one side of a transfer. Directories count only when they fail.
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
    /// Directories that failed and have not ended.
    failed_dirs: HashSet<RelPath>,
    bytes_committed: u64,
    bytes_done_without: u64,
    files_done_without: u64,
    bytes_resent: u64,
    bytes_resumed: u64,
    bytes_held: u64,
    bytes_read_back: u64,
    bytes_misread: u64,
    /// Whether an earlier session of the run is over.
    is_resumed: bool,
    /// The sum of earlier sessions, and the bytes of the last one that another would resend.
    earlier_sessions: Progress,
    bytes_lost: u64,
    bytes_skipped: u64,
    bytes_holes: u64,
    pub(crate) sender_cpu_us: Option<u64>,
    pub(crate) receiver_cpu_us: Option<u64>,
    /// Time for which each part limited the transfer.
    limits: Spent,
    pub(crate) stages: Vec<(&'static str, f64)>,
    pub(crate) io: Option<EngineReport>,
    moving: Option<Moving>,
    /// Units count within this time after the first request. `None`: all count.
    pub(crate) window: Option<Duration>,
}

/// The payload's time and number of units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    /// When payload was first asked for.
    first: Instant,
    /// When the last counted unit was known to be there.
    last: Instant,
    /// The number of counted units.
    pub(crate) units: u64,
}

impl Moving {
    /// When payload was first asked for.
    pub(crate) fn begun(&self) -> Instant {
        self.first
    }

    /// The time from the first request to the last unit.
    pub(crate) fn time(&self) -> Duration {
        self.last - self.first
    }
}

/// The counters of a session that is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    /// Seconds that it lasted.
    pub(crate) seconds: f64,
    /// Payload bytes handed to lanes.
    pub(crate) sent: u64,
    /// Payload bytes taken from lanes and verified.
    pub(crate) received: u64,
    /// Bytes that are durable, including those that it resumed.
    pub(crate) durable: u64,
    /// Bytes that an earlier session had brought.
    pub(crate) resumed: u64,
    /// Bytes of holes that arrived.
    pub(crate) holes: u64,
    /// Durable bytes of files that it did not commit, as far as it came to them.
    pub(crate) held: u64,
    /// Bytes that the receiver read back.
    pub(crate) read_back: u64,
    /// Bytes that were read back and differed from those written.
    pub(crate) misread: u64,
    /// Bytes of skipped files that the receiver read.
    pub(crate) digested: u64,
    /// Payload bytes that were sent again within the session.
    pub(crate) resent: u64,
    /// Payload bytes sent in vain, as their file was not committed.
    pub(crate) lost: u64,
}

impl Moved {
    /// The counters that a sender has of a session by the receiver's last report. Its durable bytes
    /// include those that earlier sessions brought of files that this one did not come to. These
    /// are held, but this session neither brought nor resumed them.
    pub(crate) fn by_last_words(tally: &Tally) -> Moved {
        let came = tally.received.saturating_add(tally.holes).saturating_add(tally.resumed);
        Moved {
            received: tally.received,
            durable: tally.durable.min(came),
            resumed: tally.resumed,
            holes: tally.holes,
            held: tally.held(),
            read_back: tally.read_back,
            misread: tally.misread,
            digested: tally.standing,
            ..Moved::default()
        }
    }

    /// Bytes that this session itself made durable.
    pub(crate) fn fresh(&self) -> u64 {
        self.durable.saturating_sub(self.resumed)
    }
}

/// Codes kept of single failures. Further failures are only counted.
const FAILURES_KEPT: usize = 1000;

impl Totals {
    /// The totals of a session that a fault ended before it began.
    pub(crate) fn ended_by(fault: Fault) -> Totals {
        Totals { fault: Some(fault), ..Totals::default() }
    }

    /// Records that payload is asked for, for the first time or again.
    pub(crate) fn begin_moving(&mut self) {
        let now = Instant::now();
        self.moving.get_or_insert(Moving { first: now, last: now, units: 0 });
    }

    /// Counts units that arrived.
    pub(crate) fn moved(&mut self, units: usize) {
        self.moved_at(Instant::now(), units);
    }

    fn moved_at(&mut self, now: Instant, units: usize) {
        let within = |moving: &&mut Moving| self.window.is_none_or(|window| now - moving.first <= window);
        if let Some(moving) = self.moving.as_mut().filter(within) {
            moving.last = now;
            moving.units += units as u64;
        }
    }

    /// The payload's time and units. `None` if none was asked for.
    pub(crate) fn moving(&self) -> Option<Moving> {
        self.moving
    }

    /// Payload bytes that finished sessions brought and verified.
    pub(crate) fn bytes_received(&self) -> u64 {
        self.earlier_sessions.bytes_received
    }

    /// Payload bytes that finished sessions sent or received.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.earlier_sessions.bytes_sent.max(self.earlier_sessions.bytes_received)
    }

    /// Seconds that finished sessions lasted.
    pub(crate) fn seconds(&self) -> f64 {
        self.earlier_sessions.seconds
    }

    /// Begins another session, which continues with the entries without outcome.
    pub(crate) fn begin_session(&mut self) {
        self.fault = None;
        self.bytes_resent = self.bytes_resent.saturating_add(std::mem::take(&mut self.bytes_lost));
    }

    /// Resets the totals found: the next session's sender names every entry again.
    pub(crate) fn count_anew(&mut self) {
        (self.files_total, self.bytes_total) = (0, 0);
    }

    /// Adds the counters of a session that is over.
    pub(crate) fn session_over(&mut self, moved: &Moved) {
        self.earlier_sessions = Progress {
            seconds: self.earlier_sessions.seconds + moved.seconds,
            bytes_sent: self.earlier_sessions.bytes_sent.saturating_add(moved.sent),
            bytes_received: self.earlier_sessions.bytes_received.saturating_add(moved.received),
            bytes_durable: self
                .earlier_sessions
                .bytes_durable
                .saturating_add(self.durable_of(moved.durable, moved.resumed)),
            bytes_committed: self.bytes_committed,
            files_committed: self.files_committed,
            bytes_digested: self.earlier_sessions.bytes_digested.saturating_add(moved.digested),
            ..self.earlier_sessions
        };
        self.bytes_resumed = self.resumed_with(moved.resumed);
        self.is_resumed = true;
        self.bytes_holes = self.bytes_holes.saturating_add(moved.holes);
        // Bytes that an earlier session held and this one did not come to are still there.
        self.bytes_held = moved.held.max(self.bytes_held.saturating_sub(moved.resumed));
        self.bytes_read_back = self.bytes_read_back.saturating_add(moved.read_back);
        self.bytes_misread = self.bytes_misread.saturating_add(moved.misread);
        self.bytes_resent = self.bytes_resent.saturating_add(moved.resent);
        self.bytes_lost = moved.lost;
    }

    /// The durable bytes that a session adds: it resumes those that earlier ones of this run
    /// counted.
    pub(crate) fn durable_of(&self, durable: u64, resumed: u64) -> u64 {
        if self.is_resumed { durable.saturating_sub(resumed) } else { durable }
    }

    /// The bytes that earlier runs had brought and this run resumed, if the session under way
    /// resumed `resumed`. Bytes that a later session resumes this run brought itself.
    pub(crate) fn resumed_with(&self, resumed: u64) -> u64 {
        if self.is_resumed { self.bytes_resumed } else { resumed }
    }

    /// Bytes of files that this session brought to the receiver, durable or not yet.
    pub(crate) fn arrived_of(&self, tally: &Tally) -> u64 {
        let came = tally.received.saturating_add(tally.arriving).saturating_add(tally.holes);
        let resumed = if self.is_resumed { 0 } else { tally.resumed };
        came.saturating_add(resumed).max(self.durable_of(tally.durable, tally.resumed))
    }

    /// Bytes that this session has still to send after `sent`. `None` if the scan is not over.
    /// Nobody knows how much was sent of a file that failed.
    pub(crate) fn left_to_send(&self, sent: u64, resumed: u64) -> Option<u64> {
        let settled = [self.bytes_done_without, self.earlier_sessions.bytes_committed, sent, resumed];
        let left = || settled.into_iter().fold(self.bytes_total, u64::saturating_sub);
        (self.scanned && self.files_failed == 0).then(left)
    }

    /// Records that an earlier session committed a file of `bytes` bytes: they were not lost.
    pub(crate) fn was_committed_before(&mut self, bytes: u64) {
        self.bytes_resent = self.bytes_resent.saturating_sub(bytes);
    }

    /// Adds CPU microseconds of the sending process.
    pub(crate) fn add_sender_cpu(&mut self, us: u64) {
        let sum = self.sender_cpu_us.get_or_insert(0);
        *sum = sum.saturating_add(us);
    }

    /// Adds CPU microseconds of the receiving process.
    pub(crate) fn add_receiver_cpu(&mut self, us: u64) {
        let sum = self.receiver_cpu_us.get_or_insert(0);
        *sum = sum.saturating_add(us);
    }

    /// Adds the limits of a session that is over.
    pub(crate) fn add_limits(&mut self, limits: &Spent) {
        self.limits.add_all(limits);
    }

    /// Takes the bytes held at the destination from the half of a copy that wrote there.
    pub(crate) fn take_held(&mut self, received: &Totals) {
        self.bytes_held = received.bytes_held;
    }

    /// Adds CPU seconds by stage of a session that is over.
    pub(crate) fn add_stages(&mut self, stages: Vec<(&'static str, f64)>) {
        if self.stages.is_empty() {
            self.stages = stages;
            return;
        }
        self.stages.iter_mut().zip(stages).for_each(|((_, sum), (_, more))| *sum += more);
    }

    /// Counts an entry that was found.
    pub(crate) fn found(&mut self, kind: &EntryKind) {
        match kind {
            EntryKind::File { len, .. } => {
                self.files_total += 1;
                // The other side says how long the file is.
                self.bytes_total = self.bytes_total.saturating_add(*len);
            }
            EntryKind::Symlink { .. } => self.files_total += 1,
            EntryKind::Dir | EntryKind::DirEnd | EntryKind::Unsent { .. } => {}
        }
    }

    /// Whether a failure is new: a directory that failed once fails at its end again.
    pub(crate) fn is_first_failure(&mut self, entry: &Entry, status: &FileStatus) -> bool {
        let has_failed = matches!(status, FileStatus::Failed(_));
        match entry.kind {
            EntryKind::Dir if has_failed => self.failed_dirs.insert(entry.path.clone()),
            EntryKind::DirEnd => !self.failed_dirs.remove(&entry.path) || !has_failed,
            _ => true,
        }
    }

    /// Counts an entry's outcome.
    pub(crate) fn settled(&mut self, kind: &EntryKind, status: &FileStatus) {
        let (counts, len) = match kind {
            EntryKind::File { len, .. } => (1, *len),
            EntryKind::Symlink { .. } => (1, 0),
            EntryKind::Dir | EntryKind::DirEnd | EntryKind::Unsent { .. } => (0, 0),
        };
        match status {
            FileStatus::Committed => {
                self.files_committed += counts;
                self.bytes_committed = self.bytes_committed.saturating_add(len);
                return;
            }
            FileStatus::Skipped => {
                self.files_skipped += counts;
                self.bytes_skipped = self.bytes_skipped.saturating_add(len);
            }
            FileStatus::Planned => {}
            FileStatus::Failed(fault) => self.failed(fault.code),
        }
        self.bytes_done_without = self.bytes_done_without.saturating_add(len);
        self.files_done_without += counts;
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

    /// The counters, including those of the session under way.
    pub(crate) fn progress_with(&self, session: &Progress) -> Progress {
        let before = &self.earlier_sessions;
        Progress {
            seconds: before.seconds + session.seconds,
            counted_s: before.seconds + session.counted_s,
            bytes_sent: before.bytes_sent.saturating_add(session.bytes_sent),
            bytes_received: before.bytes_received.saturating_add(session.bytes_received),
            // Bytes that had arrived in a lost session and were not durable come again.
            bytes_arrived: before.bytes_durable.saturating_add(session.bytes_arrived),
            bytes_resumed: self.resumed_with(session.bytes_resumed),
            bytes_durable: before.bytes_durable.saturating_add(session.bytes_durable),
            // The receiver's own count runs ahead of the outcomes that the sender has heard.
            bytes_committed: self.bytes_committed.max(before.bytes_committed.saturating_add(session.bytes_committed)),
            files_committed: self.files_committed.max(before.files_committed.saturating_add(session.files_committed)),
            files_total: self.files_total,
            bytes_total: self.bytes_total,
            scanned: self.scanned,
            bytes_done_without: self.bytes_done_without,
            files_done_without: self.files_done_without,
            limited_by: session.limited_by,
            silent_s: session.silent_s,
            bytes_digested: before.bytes_digested.saturating_add(session.bytes_digested),
        }
    }

    /// The report of a run, on the side that was observed.
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
            bytes_moved: self.earlier_sessions.bytes_received,
            bytes_holes: self.bytes_holes,
            bytes_wanted: self.bytes_total.saturating_sub(self.bytes_skipped),
            scanned: self.scanned,
            bytes_resent: self.bytes_resent,
            bytes_resumed: self.bytes_resumed,
            bytes_held: self.bytes_held,
            bytes_read_back: self.bytes_read_back,
            bytes_misread: self.bytes_misread,
            bytes_digested: self.earlier_sessions.bytes_digested,
            seconds,
            sender_cpu: cpu(self.sender_cpu_us),
            receiver_cpu: cpu(self.receiver_cpu_us),
            limits: self.limits.shares().into_iter().map(Limited::from).collect(),
            stages: self.stages,
            io: self.io,
            paths: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_what_the_other_side_says_end_at_the_largest_number() {
        let huge = EntryKind::File { len: u64::MAX, sparse: false, inode: longhaul_core::Inode::default() };
        let mut totals = Totals { scanned: true, ..Totals::default() };
        for _ in 0..2 {
            totals.found(&huge);
            totals.settled(&huge, &FileStatus::Skipped);
            totals.settled(&huge, &FileStatus::Committed);
            let all = u64::MAX;
            totals.session_over(&Moved {
                seconds: 1.0,
                sent: all,
                received: all,
                durable: all,
                resumed: 0,
                holes: all,
                held: all,
                read_back: all,
                misread: all,
                digested: all,
                resent: all,
                lost: all,
            });
            totals.begin_session();
            totals.add_receiver_cpu(all);
            totals.add_sender_cpu(all);
            let session =
                Progress { bytes_committed: all, files_committed: all, bytes_sent: all, ..Progress::default() };
            assert_eq!(totals.progress_with(&session).bytes_committed, all);
            assert_eq!(totals.left_to_send(all, all), Some(0));
        }
    }

    #[test]
    fn bytes_held_are_those_of_the_last_session_and_what_it_did_not_come_to() {
        let mut totals = Totals::default();
        totals.session_over(&Moved { durable: 30, held: 30, ..Moved::default() });
        assert_eq!(totals.bytes_held, 30);
        // The session was lost before a name was looked at.
        totals.session_over(&Moved::default());
        assert_eq!(totals.bytes_held, 30);
        // The session continued 20 of them, of a file that it committed.
        totals.session_over(&Moved { durable: 20, resumed: 20, ..Moved::default() });
        assert_eq!(totals.bytes_held, 10);
    }

    #[test]
    fn what_lies_there_unopened_is_held_and_is_durable_by_no_session_of_this_run() {
        let mut totals = Totals::default();
        // Two files of which earlier runs brought 60 and 40 bytes; the first is continued.
        let first = Tally { received: 10, durable: 110, resumed: 60, ..Tally::default() };
        totals.session_over(&Moved::by_last_words(&first));
        assert_eq!((totals.earlier_sessions.bytes_durable, totals.bytes_held, totals.bytes_resumed), (70, 110, 60));
        // Sessions that are lost before they open anything.
        for _ in 0..3 {
            totals.begin_session();
            let moved = Moved::by_last_words(&Tally { durable: 110, ..Tally::default() });
            assert_eq!((moved.durable, moved.fresh()), (0, 0));
            totals.session_over(&moved);
            assert_eq!((totals.earlier_sessions.bytes_durable, totals.bytes_held, totals.bytes_resumed), (70, 110, 60));
        }
    }

    #[test]
    fn what_arrived_is_what_came_holes_and_what_was_resumed_once() {
        let tally = Tally { received: 10, arriving: 3, holes: 5, resumed: 20, durable: 25, ..Tally::default() };
        let mut totals = Totals { bytes_total: 100, ..Totals::default() };
        assert_eq!(totals.arrived_of(&tally), 38);
        assert_eq!(totals.arrived_of(&Tally { durable: 50, ..tally }), 50, "never less than is durable");
        totals.session_over(&Moved { received: 13, durable: 25, resumed: 20, holes: 5, ..Moved::default() });
        // The next session resumes bytes that this run brought: they did not come again, and are
        // there already.
        let next = Tally { received: 1, resumed: 25, durable: 25, ..Tally::default() };
        assert_eq!(totals.arrived_of(&next), 1);
        let session = Progress { bytes_arrived: 1, bytes_resumed: 25, bytes_received: 1, ..Progress::default() };
        let progress = totals.progress_with(&session);
        assert_eq!((progress.bytes_arrived, progress.bytes_resumed, progress.bytes_received), (26, 20, 14));
        let report = totals.into_report(1.0);
        assert_eq!((report.bytes_moved, report.bytes_holes, report.bytes_resumed), (13, 5, 20));
    }

    #[test]
    fn what_comes_after_the_time_does_not_count() {
        let second = Duration::from_secs(1);
        let counted = |window| {
            let mut totals = Totals { window, ..Totals::default() };
            totals.moved(1);
            totals.begin_moving();
            let first = totals.moving().expect("begun").first;
            [(1, 2), (3, 4), (5, 8)]
                .into_iter()
                .for_each(|(after, units)| totals.moved_at(first + after * second, units));
            totals.moving().map(|moving| (moving.units, moving.time()))
        };
        assert_eq!(counted(None), Some((14, 5 * second)));
        assert_eq!(counted(Some(4 * second)), Some((6, 3 * second)));
        assert_eq!(counted(Some(second / 2)), Some((0, Duration::ZERO)));
    }
}
