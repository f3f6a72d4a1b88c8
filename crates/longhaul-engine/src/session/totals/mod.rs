//! Counts the outcomes of a transfer's entries, over all of its sessions, for progress and for the
//! report.
//!
//! In: outcomes from either session loop, and the counters of each session that ends. Out: a
//! [`Progress`] and a [`Report`]. `entries` counts what became of the entries, `sessions` the bytes
//! that sessions moved, `moving` the units and their time, `costs` processor time and limits,
//! `losses` metadata that was not kept, and `troubles` the targets that were not well.
//! It knows no connection and no disk.

mod costs;
mod entries;
mod losses;
mod moving;
mod sessions;
mod troubles;

use std::time::Instant;

use longhaul_core::{Entry, EntryKind, Fault, FaultCode};
use longhaul_disk::{EngineReport, StreamFigures};
use longhaul_proto::wire::message::Tally;

pub(crate) use self::costs::TransferCosts;
use self::entries::{EntryCounts, FileCount};
pub(crate) use self::losses::{TransferLosses, heard as heard_losses};
pub(crate) use self::moving::MovingUnits;
pub(crate) use self::sessions::Moved;
use self::sessions::SessionSums;
pub(crate) use self::troubles::TargetTroubles;
use crate::api::{FileStatus, Progress, Report, RoadFigures, RoadReport, WayFigures};
use crate::lanes::road::LaneRoad;

/// The counters of one side of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// The fault that ended the last session. `None` if it ended well or goes on.
    pub(crate) fault: Option<Fault>,
    /// Whether every entry was found.
    pub(crate) scanned: bool,
    /// Whether files are only staged until all of them appear together at the end.
    pub(crate) stages_all: bool,
    /// Units of payload and their time.
    pub(crate) units: MovingUnits,
    /// Processor time and limits.
    pub(crate) costs: TransferCosts,
    /// The figures of the stream that went out. `None` for any other destination.
    pub(crate) stream: Option<StreamFigures>,
    /// The targets of the destination that were not well.
    pub(crate) troubles: TargetTroubles,
    /// Files that were committed on targets that failed afterwards.
    pub(crate) files_at_risk: u64,
    /// The road that its lanes took.
    pub(crate) road: LaneRoad,
    /// Metadata that could not be kept.
    pub(crate) losses: TransferLosses,
    entries: EntryCounts,
    sessions: SessionSums,
}

impl Totals {
    /// The totals of a session that a fault ended before it began.
    pub(crate) fn ended_by(fault: Fault) -> Totals {
        Totals { fault: Some(fault), ..Totals::default() }
    }

    /// Payload bytes that finished sessions brought and verified.
    pub(crate) fn bytes_received(&self) -> u64 {
        self.sessions.all().received
    }

    /// Payload bytes that finished sessions sent or received.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.sessions.all().sent.max(self.sessions.all().received)
    }

    /// Seconds that finished sessions lasted.
    pub(crate) fn seconds(&self) -> f64 {
        self.sessions.all().seconds
    }

    /// Begins another session, which continues with the entries without outcome.
    pub(crate) fn begin_session(&mut self) {
        self.fault = None;
        self.losses.begin_session();
        self.sessions.begin();
    }

    /// Resets the totals found: the next session's sender names every entry again.
    pub(crate) fn count_anew(&mut self) {
        self.entries.find_anew();
    }

    /// Forgets all entries and their outcomes: the next session names every entry again.
    pub(crate) fn settle_anew(&mut self) {
        self.entries = EntryCounts::default();
        self.sessions.forget_committed();
        self.scanned = false;
    }

    /// Adds the counters of a session that is over.
    pub(crate) fn session_over(&mut self, moved: &Moved) {
        self.sessions.add(moved, self.entries.committed());
    }

    /// The durable bytes that a session adds: it resumes those that earlier ones of this run
    /// counted.
    pub(crate) fn durable_of(&self, durable: u64, resumed: u64) -> u64 {
        self.sessions.durable_of(durable, resumed)
    }

    /// Bytes of files that this session brought to the receiver, durable or not yet.
    pub(crate) fn arrived_of(&self, tally: &Tally) -> u64 {
        self.sessions.arrived_of(tally)
    }

    /// Bytes that this session has still to send, `done` of which it has sent or need not send.
    /// Files that were not committed count with their outcomes alone. `None` if the scan is not
    /// over. Nobody knows how much was sent of a file that failed.
    pub(crate) fn left_to_send(&self, done: u64) -> Option<u64> {
        let settled = [self.entries.done_without().bytes, self.sessions.committed().bytes, done];
        let left = || settled.into_iter().fold(self.entries.found().bytes, u64::saturating_sub);
        (self.scanned && self.entries.failures().all == 0).then(left)
    }

    /// Records that an earlier session committed a file of `bytes` bytes: they were not lost.
    pub(crate) fn was_committed_before(&mut self, bytes: u64) {
        self.sessions.were_not_resent(bytes);
    }

    /// Joins the receiving half of a copy within one process to this sending half.
    pub(crate) fn join(&mut self, received: &Totals) {
        self.sessions.take_held(&received.sessions);
        self.costs.join(&received.costs);
        // The same targets, with their directories.
        self.troubles.clone_from(&received.troubles);
        self.files_at_risk = received.files_at_risk;
    }

    /// Counts an entry that was found.
    pub(crate) fn found(&mut self, kind: &EntryKind) {
        self.entries.find(kind);
    }

    /// Counts further bytes of a stream that was found.
    pub(crate) fn stream_came(&mut self, bytes: u64) {
        self.entries.find_more(bytes);
    }

    /// Whether a failure is new: a directory that failed once fails at its end again.
    pub(crate) fn is_first_failure(&mut self, entry: &Entry, status: &FileStatus) -> bool {
        self.entries.is_first_failure(entry, status)
    }

    /// Counts an entry's outcome.
    pub(crate) fn settled(&mut self, kind: &EntryKind, status: &FileStatus) {
        self.entries.settle(kind, status);
    }

    /// The counters, including those of the session under way.
    pub(crate) fn progress_with(&self, session: &Progress) -> Progress {
        let (before, committed_before) = (self.sessions.all(), self.sessions.committed());
        let (found, committed, without) = (self.entries.found(), self.entries.committed(), self.entries.done_without());
        Progress {
            seconds: before.seconds + session.seconds,
            counted_s: before.seconds + session.counted_s,
            bytes_sent: before.sent.saturating_add(session.bytes_sent),
            bytes_received: before.received.saturating_add(session.bytes_received),
            // Bytes that had arrived in a lost session and were not durable come again.
            bytes_arrived: before.durable.saturating_add(session.bytes_arrived),
            bytes_resumed: self.sessions.resumed_with(session.bytes_resumed),
            bytes_durable: before.durable.saturating_add(session.bytes_durable),
            // The receiver's own count runs ahead of the outcomes that the sender has heard.
            bytes_committed: committed.bytes.max(committed_before.bytes.saturating_add(session.bytes_committed)),
            files_committed: committed.files.max(committed_before.files.saturating_add(session.files_committed)),
            files_total: found.files,
            bytes_total: found.bytes,
            scanned: self.scanned,
            bytes_done_without: without.bytes,
            files_done_without: without.files,
            limited_by: session.limited_by,
            silent_s: session.silent_s,
            bytes_digested: before.digested.saturating_add(session.bytes_digested),
        }
    }

    /// The road of a run that began then and is over now. `None` where no lane went to another
    /// host.
    pub(crate) fn road(&self, begun: Instant) -> Option<RoadReport> {
        let (first_byte, last_byte) = self.road.around(begun, Instant::now());
        let figures = RoadFigures::of(&self.road.sums).unwrap_or_default();
        let udp_bytes_resent = self.road.udp_bytes_resent;
        Some(RoadReport { round_trip: self.road.round_trip?, figures, first_byte, last_byte, udp_bytes_resent })
    }

    /// The report of a run, on the side that was observed. Its road is told apart.
    pub(crate) fn into_report(self, seconds: f64) -> Report {
        let (moved, failures) = (self.sessions.all(), self.entries.failures());
        let (found, committed, skipped) = (self.entries.found(), self.entries.committed(), self.entries.skipped());
        let appeared = self.fault.as_ref().is_none_or(|fault| fault.code == FaultCode::Published);
        // What was staged of a dataset that did not appear stands under no name.
        let committed = if self.stages_all && !appeared { FileCount::default() } else { committed };
        Report {
            fault: self.fault,
            failures: failures.codes.clone(),
            files_committed: committed.files,
            files_skipped: skipped.files,
            files_failed: failures.all,
            files_changed: failures.changed,
            files_mismatched: failures.mismatched,
            files_total: found.files,
            bytes_committed: committed.bytes,
            bytes_moved: moved.received,
            bytes_holes: moved.holes,
            bytes_wanted: found.bytes.saturating_sub(skipped.bytes).saturating_sub(self.entries.linked_bytes()),
            scanned: self.scanned,
            bytes_resent: moved.resent,
            bytes_resumed: moved.resumed,
            bytes_held: moved.held,
            bytes_read_back: moved.read_back,
            bytes_misread: moved.misread,
            bytes_digested: moved.digested,
            seconds,
            sender_cpu: self.costs.sender(),
            receiver_cpu: self.costs.receiver(),
            limits: self.costs.limits(),
            stages: self.costs.stages().to_vec(),
            io: self.costs.io().map(|io| EngineReport { stream: self.stream, ..io }),
            ways: WayFigures::default(),
            troubled_targets: self.troubles.into_report(),
            files_at_risk: self.files_at_risk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(len: u64) -> EntryKind {
        EntryKind::File { len, sparse: false, inode: longhaul_core::Inode::default() }
    }

    #[test]
    fn sums_of_what_the_other_side_says_end_at_the_largest_number() {
        let huge = file(u64::MAX);
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
            totals.costs.add_receiver(all);
            totals.costs.add_sender(all);
            let session =
                Progress { bytes_committed: all, files_committed: all, bytes_sent: all, ..Progress::default() };
            assert_eq!(totals.progress_with(&session).bytes_committed, all);
            assert_eq!(totals.left_to_send(all), Some(0));
        }
    }

    #[test]
    fn what_is_left_to_send_is_all_without_what_was_done_and_what_outcomes_settled() {
        let (mut totals, files) = (Totals::default(), [100, 20, 3].map(file));
        files.iter().for_each(|file| totals.found(file));
        assert_eq!(totals.left_to_send(0), None, "more may be found");
        totals.scanned = true;
        assert_eq!(totals.left_to_send(60), Some(63));
        // The second file was equal: the sender counts it no more once that is settled.
        assert_eq!(totals.left_to_send(120), Some(3));
        totals.settled(&files[1], &FileStatus::Skipped);
        totals.settled(&files[0], &FileStatus::Committed);
        assert_eq!((totals.left_to_send(100), totals.left_to_send(103)), (Some(3), Some(0)));
        totals.session_over(&Moved::default());
        totals.begin_session();
        assert_eq!(totals.left_to_send(0), Some(3), "of what earlier sessions committed nothing is left");
        totals.settled(&files[2], &FileStatus::Failed(Fault::protocol("a fault")));
        assert_eq!(totals.left_to_send(0), None);
    }

    #[test]
    fn what_arrived_is_what_came_holes_and_what_was_resumed_once() {
        let tally = Tally { received: 10, arriving: 3, holes: 5, resumed: 20, durable: 25, ..Tally::default() };
        let mut totals = Totals::default();
        totals.found(&file(100));
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
}
