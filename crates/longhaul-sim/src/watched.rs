//! The receiver's machine, held to its promise at every order: no order comes before the reports
//! that it needs.
//!
//! Takes what the machine takes and gives what it gives; `rules` notes the orders and the reports
//! and panics at the first order that they forbid. Counts what tests ask for. Carries nothing out,
//! and knows nothing of the file system.

mod owed;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::{ChunkIndex, Fault, FileId, LaneId, Unit};
use longhaul_proto::receiver::{Created, Landed, Named, Receiver, ReceiverAction, Room, Surveyed};
use longhaul_proto::wire::message::{Finding, LandedUnits, Outcome};
use longhaul_proto::{Message, Timestamp};

use crate::plan::Plan;
use owed::{Owed, ReportKind};
use rules::Rules;

/// The end of the receiver's part of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReceiverEnd {
    /// Every entry is settled.
    Finished,
    /// The session could not go on.
    Aborted(Fault),
}

/// The orders and words of a machine so far, for tests.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The outcome of each entry.
    pub(crate) outcomes: BTreeMap<FileId, Outcome>,
    /// Entries whose rename may not have survived: they fail, but stand.
    pub(crate) unsure: BTreeSet<FileId>,
    /// The findings on units.
    pub(crate) findings: Vec<(Unit, Finding)>,
    /// Chunks asked for.
    pub(crate) wanted: usize,
    /// Chunks asked for again, as their bytes were given up.
    pub(crate) again: usize,
    /// Chunks and small files whose digests the sender was asked to compare.
    pub(crate) compared: usize,
    /// Syncs of single files.
    pub(crate) syncs: usize,
    /// Batches.
    pub(crate) barriers: usize,
    /// Chunks of standing files that were copied.
    pub(crate) copies: usize,
    /// The reading of what was written.
    pub(crate) read: ReadSeen,
    /// The rounds in which it heard events and its orders were carried out.
    pub(crate) rounds: Rounds,
    /// Times that nothing could happen before a timeout of the machine.
    pub(crate) waits: usize,
    /// `None` while the session goes on.
    pub(crate) end: Option<ReceiverEnd>,
}

/// The reading of what was written.
#[derive(Debug, Default)]
pub(crate) struct ReadSeen {
    /// Chunks and small files that were read back.
    pub(crate) back: usize,
    /// Chunks that were read in order.
    pub(crate) in_order: usize,
}

/// The rounds of a machine.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// The most events that were taken in before its orders were carried out.
    pub(crate) events_at_once: usize,
    /// Times that it was told of too little memory, or of too much that waits.
    pub(crate) pressed: usize,
    /// The most chunks that were kept at a time, as they came before their turn.
    pub(crate) early_most: usize,
}

/// The machine. See the module.
#[derive(Debug)]
pub(crate) struct Watched {
    machine: Receiver,
    /// `None` where crashes and stalls end sessions at any moment: there the medium alone is
    /// judged.
    rules: Option<Rules>,
    /// The reports that it waits for.
    owed: Owed,
    /// Its orders so far.
    pub(crate) seen: Seen,
    /// Times that it was idle.
    idle: usize,
}

impl Watched {
    /// The machine of the command's session of that number, from 1.
    pub(crate) fn new(plan: &Plan, session: u32) -> Watched {
        let config = plan.receiver_config(session);
        let rules = plan.scene.is_one_session.then(|| Rules::new(&config));
        let machine = Receiver::new(config, "/destination".to_owned());
        Watched { machine, rules, owed: Owed::default(), seen: Seen::default(), idle: 0 }
    }

    /// The machine's next order.
    pub(crate) fn poll_action(&mut self) -> Option<ReceiverAction> {
        let Some(action) = self.machine.poll_action() else {
            self.idle += 1;
            return None;
        };
        assert!(self.seen.end.is_none(), "an order after the end: {action:?}");
        self.count(&action);
        self.owed.ordered(&action);
        if let Some(rules) = &mut self.rules {
            rules.check(&action, &mut self.seen);
        }
        Some(action)
    }

    /// Panics if the machine, whose session is over, orders anything more.
    pub(crate) fn check_over(&mut self) {
        assert!(self.poll_action().is_none(), "an order after the end");
    }

    /// Counts the machine's counters anew, at every so many of its pauses: often enough to find a
    /// drift near its cause, not so often that worlds crawl.
    pub(crate) fn audit(&self) {
        if self.idle.is_multiple_of(1 + self.machine.unsettled() / 8) {
            self.machine.audit();
        }
    }

    fn count(&mut self, action: &ReceiverAction) {
        let seen = &mut self.seen;
        match action {
            ReceiverAction::Send(Message::WantChunks(want)) => seen.wanted += want.count as usize,
            ReceiverAction::Send(Message::SendAgain(again)) => seen.again += again.chunks.len(),
            ReceiverAction::Send(Message::CheckChunks(check)) => seen.compared += check.digests.len(),
            ReceiverAction::Send(Message::CheckFiles(check)) => seen.compared += check.files.len(),
            ReceiverAction::Send(Message::Verdicts(list)) => {
                seen.findings.extend(list.iter().map(|verdict| (verdict.unit, verdict.finding)));
            }
            ReceiverAction::SyncData(_) => seen.syncs += 1,
            ReceiverAction::Barrier(_) => seen.barriers += 1,
            ReceiverAction::Copy { .. } => seen.copies += 1,
            ReceiverAction::Finished(_) => seen.end = Some(ReceiverEnd::Finished),
            ReceiverAction::Abort(fault) => seen.end = Some(ReceiverEnd::Aborted(fault.clone())),
            _ => {}
        }
    }

    /// See [`Receiver::handle_landed`].
    pub(crate) fn handle_landed(&mut self, now: Timestamp, landed: Landed) {
        // Behind the end that the machine has decided on, payload goes with its session.
        if let Some(rules) = self.rules.as_mut().filter(|_| !self.machine.is_over()) {
            rules.landed(&landed);
        }
        self.machine.handle_landed(now, landed);
    }

    /// See [`Receiver::handle_unasked`].
    pub(crate) fn handle_unasked(&mut self, now: Timestamp, landed: Landed) {
        if let Some(rules) = self.rules.as_mut().filter(|_| !self.machine.is_over()) {
            rules.landed(&landed);
        }
        self.machine.handle_unasked(now, landed);
    }

    /// See [`Receiver::handle_survey`].
    pub(crate) fn handle_survey(&mut self, now: Timestamp, first: FileId, found: Vec<Result<Surveyed, Fault>>) {
        self.owed.came(ReportKind::Survey, 1);
        if let Some(rules) = &mut self.rules {
            rules.surveyed(first, found.len() as u64);
        }
        self.machine.handle_survey(now, first, found);
    }

    /// See [`Receiver::handle_create`].
    pub(crate) fn handle_create(&mut self, now: Timestamp, file: FileId, result: Result<Created, Fault>) {
        self.owed.came(ReportKind::Create, 1);
        if let Some(rules) = &mut self.rules {
            rules.created(file, &result);
        }
        self.machine.handle_create(now, file, result);
    }

    /// See [`Receiver::handle_write`].
    pub(crate) fn handle_write(&mut self, now: Timestamp, file: FileId, index: ChunkIndex, result: Result<(), Fault>) {
        self.owed.came(ReportKind::Write, 1);
        if let Some(rules) = &mut self.rules {
            rules.written(file, index, &result);
        }
        self.machine.handle_write(now, file, index, result);
    }

    /// See [`Receiver::handle_sync_data`].
    pub(crate) fn handle_sync_data(&mut self, now: Timestamp, file: FileId, result: Result<Vec<ChunkIndex>, Fault>) {
        self.owed.came(ReportKind::SyncData, 1);
        if let Some(rules) = &mut self.rules {
            rules.synced(file, &result);
        }
        self.machine.handle_sync_data(now, file, result);
    }

    /// See [`Receiver::handle_read_back`].
    pub(crate) fn handle_read_back(
        &mut self,
        now: Timestamp,
        file: FileId,
        results: Vec<(ChunkIndex, Result<Digest, Fault>)>,
    ) {
        self.owed.came(ReportKind::ReadBack, 1);
        self.seen.read.back += results.iter().filter(|(_, result)| result.is_ok()).count();
        if let Some(rules) = &mut self.rules {
            rules.read_back(file, &results);
        }
        self.machine.handle_read_back(now, file, results);
    }

    /// See [`Receiver::handle_read_in_order`].
    pub(crate) fn handle_read_in_order(
        &mut self,
        now: Timestamp,
        file: FileId,
        results: Vec<(ChunkIndex, Result<Digest, Fault>)>,
    ) {
        self.owed.came(ReportKind::ReadInOrder, 1);
        self.seen.read.in_order += results.iter().filter(|(_, result)| result.is_ok()).count();
        if let Some(rules) = &mut self.rules {
            rules.read_in_order(file, &results);
        }
        self.machine.handle_read_in_order(now, file, results);
    }

    /// See [`Receiver::handle_read_staged`].
    pub(crate) fn handle_read_staged(&mut self, now: Timestamp, results: Vec<(FileId, Result<Hash32, Fault>)>) {
        self.owed.came(ReportKind::ReadStaged, 1);
        self.seen.read.back += results.len();
        self.machine.handle_read_staged(now, results);
    }

    /// See [`Receiver::handle_stage`].
    pub(crate) fn handle_stage(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        self.owed.came(ReportKind::Stage, results.len());
        if let Some(rules) = &mut self.rules {
            results.iter().for_each(|(file, result)| rules.staged(*file, result));
        }
        self.machine.handle_stage(now, results);
    }

    /// See [`Receiver::handle_name`].
    pub(crate) fn handle_name(&mut self, now: Timestamp, file: FileId, named: Named) {
        self.owed.came(ReportKind::Name, 1);
        if let Some(rules) = &mut self.rules {
            let is_made = matches!(named, Named::Staged(_));
            rules.staged(file, &if is_made { Ok(()) } else { Err(Fault::protocol("no name")) });
        }
        self.machine.handle_name(now, file, named);
    }

    /// See [`Receiver::handle_journal`].
    pub(crate) fn handle_journal(&mut self, now: Timestamp, result: Result<(), Fault>) {
        self.owed.came(ReportKind::Journal, 1);
        if let Some(rules) = &mut self.rules {
            rules.journalled(&result);
        }
        self.machine.handle_journal(now, result);
    }

    /// See [`Receiver::handle_barrier`].
    pub(crate) fn handle_barrier(&mut self, now: Timestamp, result: Result<Vec<FileId>, Fault>) {
        self.owed.came(ReportKind::Barrier, 1);
        if let Some(rules) = &mut self.rules {
            rules.made_durable(&result);
        }
        self.machine.handle_barrier(now, result);
    }

    /// See [`Receiver::handle_publish`].
    pub(crate) fn handle_publish(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        self.owed.came(ReportKind::Publish, 1);
        if let Some(rules) = &mut self.rules {
            rules.published(&results);
        }
        self.machine.handle_publish(now, results);
    }

    /// See [`Receiver::handle_sync_dirs`].
    pub(crate) fn handle_sync_dirs(&mut self, now: Timestamp, result: Result<(), Fault>) {
        self.owed.came(ReportKind::SyncDirs, 1);
        if let Some(rules) = &mut self.rules {
            rules.dirs_synced(&result);
        }
        self.machine.handle_sync_dirs(now, result);
    }

    /// See [`Receiver::handle_message`].
    pub(crate) fn handle_message(&mut self, now: Timestamp, message: Message) {
        if let Some(rules) = &mut self.rules {
            rules.hears(&message);
        }
        self.machine.handle_message(now, message);
    }

    /// See [`Receiver::handle_lane_ended`].
    pub(crate) fn handle_lane_ended(&mut self, now: Timestamp, lane: LaneId, landed: LandedUnits) {
        if let Some(rules) = &mut self.rules {
            rules.lane_ended(lane);
        }
        self.machine.handle_lane_ended(now, lane, landed);
    }

    /// See [`Receiver::handle_measure_room`].
    pub(crate) fn handle_measure_room(&mut self, now: Timestamp, room: Option<Room>) {
        self.owed.came(ReportKind::MeasureRoom, 1);
        self.machine.handle_measure_room(now, room);
    }

    /// See [`Receiver::handle_read_standing`].
    pub(crate) fn handle_read_standing(&mut self, now: Timestamp, results: Vec<(FileId, Result<Hash32, Fault>)>) {
        self.owed.came(ReportKind::ReadStanding, 1);
        self.machine.handle_read_standing(now, results);
    }

    /// See [`Receiver::handle_read_standing_chunks`].
    pub(crate) fn handle_read_standing_chunks(
        &mut self,
        now: Timestamp,
        file: FileId,
        results: Vec<(ChunkIndex, Result<Digest, Fault>)>,
    ) {
        self.owed.came(ReportKind::ReadStandingChunks, 1);
        self.machine.handle_read_standing_chunks(now, file, results);
    }

    /// See [`Receiver::handle_digest_skipped`].
    pub(crate) fn handle_digest_skipped(
        &mut self,
        now: Timestamp,
        results: Vec<(FileId, Result<Option<Hash32>, Fault>)>,
    ) {
        self.owed.came(ReportKind::DigestSkipped, results.len());
        self.machine.handle_digest_skipped(now, results);
    }

    /// See [`Receiver::handle_retouch`].
    pub(crate) fn handle_retouch(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        self.owed.came(ReportKind::Retouch, 1);
        self.machine.handle_retouch(now, results);
    }

    /// See [`Receiver::handle_finish_dirs`].
    pub(crate) fn handle_finish_dirs(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        self.owed.came(ReportKind::FinishDirs, 1);
        self.machine.handle_finish_dirs(now, results);
    }

    /// See [`Receiver::handle_tidy`].
    pub(crate) fn handle_tidy(&mut self, result: Result<(), Fault>) {
        self.owed.came(ReportKind::Tidy, 1);
        self.machine.handle_tidy(result);
    }
}

/// All that no rule is about.
impl Deref for Watched {
    type Target = Receiver;

    fn deref(&self) -> &Receiver {
        &self.machine
    }
}

impl DerefMut for Watched {
    fn deref_mut(&mut self) -> &mut Receiver {
        &mut self.machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "an order after the end: Send(Offer")]
    fn an_order_after_the_end_is_found() {
        let mut machine = Watched::new(&Plan::quiet(1), 1);
        machine.seen.end = Some(ReceiverEnd::Finished);
        machine.check_over();
    }
}
