//! The rules of the receiver's orders: which reports an order needs, and which orders exclude each
//! other.
//!
//! Takes orders and reports; panics at an order that comes too early, twice, or at the wrong time.
//! Believes every report.

mod in_order;
mod said;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use longhaul_core::digest::Digest;
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, EntryKind, Fault, FileId, LaneId};
use longhaul_proto::Message;
use longhaul_proto::receiver::{
    Base, Created, EntryRef, JournalEntry, Landed, ReadBackReason, ReceiverAction, ReceiverConfig, Source, Ticket,
};
use longhaul_proto::wire::message::Outcome;

use super::Seen;
use said::{check_dirs, check_said};

/// A file or link under a temporary name.
#[derive(Debug)]
struct HeldTemp {
    map: ChunkMap,
    /// The digests of chunks that were to be written, or that a partial held.
    digests: BTreeMap<u64, Digest>,
    /// Chunks whose write was reported.
    written: BTreeSet<u64>,
    /// Chunks that a finished sync covers.
    synced: BTreeSet<u64>,
    /// Chunks whose bytes were given up and that were not written again.
    lost: BTreeSet<u64>,
    /// Synced chunks that were read back as they were written.
    checked: BTreeSet<u64>,
    /// Chunks of which the journal was synced.
    durable: BTreeSet<u64>,
    /// The chunks that each sync under way covers.
    syncs: VecDeque<BTreeSet<u64>>,
    /// How far it was read in order.
    in_order: in_order::ReadSoFar,
    /// Whether a sync of it failed, so that no more of it can be made durable.
    unsynced: bool,
    /// Operations under way.
    outstanding: usize,
    steps: BTreeSet<EntryStep>,
}

/// A payload without a verdict.
#[derive(Debug)]
struct HeldPayload {
    /// Its digest. `None` if it came without bytes.
    digest: Option<Digest>,
    /// Whether its digest was declared behind it.
    has_trailer: bool,
}

/// A step of an entry as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EntryStep {
    SealOrdered,
    Staged,
    BarrierOrdered,
    Durable,
    Renamed,
    RenameDurable,
}

/// The rules, and the reports so far.
#[derive(Debug)]
pub(super) struct Rules {
    chunk: ChunkSize,
    dry_run: bool,
    must_read_back: bool,
    must_read_in_order: bool,
    temps: BTreeMap<FileId, HeldTemp>,
    /// The payloads without a verdict.
    payloads: BTreeMap<Ticket, HeldPayload>,
    /// The arrivals that the sender declared.
    declared: BTreeSet<Ticket>,
    /// Lanes of which this end is closed.
    closed: BTreeSet<LaneId>,
    /// The files of the batch step under way.
    batch: Option<Vec<FileId>>,
    /// The journal entries under way.
    journal: Option<Vec<JournalEntry>>,
    /// Entries that were surveyed.
    surveyed: u64,
    /// Whether written chunks may be given up unsaved, as the journal failed.
    may_lose_work: bool,
}

impl Rules {
    /// The rules under these terms.
    pub(super) fn new(config: &ReceiverConfig) -> Rules {
        Rules {
            chunk: config.chunk,
            dry_run: config.dry_run,
            must_read_back: config.read_back,
            must_read_in_order: in_order::is_wanted(config),
            temps: BTreeMap::new(),
            payloads: BTreeMap::new(),
            declared: BTreeSet::new(),
            closed: BTreeSet::new(),
            batch: None,
            journal: None,
            surveyed: 0,
            may_lose_work: false,
        }
    }

    /// Panics if an order is forbidden now.
    pub(super) fn check(&mut self, action: &ReceiverAction, seen: &mut Seen) {
        assert!(!self.dry_run || changes_nothing(action), "a dry run orders {action:?}");
        match action {
            ReceiverAction::Create(entry, _, chunk) => self.make_temp_of_chunks(entry, *chunk),
            ReceiverAction::MakeLink(entry) => {
                assert!(matches!(entry.entry.kind, EntryKind::Symlink { .. }), "no link: {entry:?}");
                self.make_temp(entry);
            }
            ReceiverAction::MakeName { entry, first } => {
                assert!(entry.entry.meta.names.is_some() && entry.placed != *first, "no further name: {entry:?}");
                self.make_temp(entry);
            }
            ReceiverAction::Write { file, index, ticket } => self.check_write(*file, *index, *ticket),
            ReceiverAction::WriteBundle { ticket, files } => {
                self.use_payload(*ticket);
                files.iter().for_each(|entry| self.make_temp(entry));
            }
            ReceiverAction::Copy { base, index, digest } => self.check_copy(base, *index, *digest),
            ReceiverAction::Retouch { files, .. } => {
                files.iter().for_each(|entry| assert!(!self.temps.contains_key(&entry.id), "equal, with a temporary"));
            }
            ReceiverAction::DropPayload(ticket) => drop(self.use_payload(*ticket)),
            ReceiverAction::SyncData(file) => {
                let temp = self.temp(*file);
                assert!(!temp.steps.contains(&EntryStep::SealOrdered));
                temp.outstanding += 1;
                temp.syncs.push_back(temp.written.clone());
            }
            ReceiverAction::ReadBack { file, chunks } => {
                assert!(self.must_read_back, "read back without being asked to");
                let temp = self.temp(*file);
                assert!(chunks.iter().all(|at| temp.synced.contains(&at.0)), "read back before it was synced");
                temp.outstanding += 1;
            }
            ReceiverAction::ReadInOrder { file, chunks } => self.check_in_order(*file, chunks),
            ReceiverAction::ReadStaged { files, why } => self.check_read_staged(files, *why),
            ReceiverAction::Journal(records) => self.check_journal(records),
            ReceiverAction::Seal(entry) => self.check_seal(entry.id),
            ReceiverAction::Barrier(_)
            | ReceiverAction::BarrierAgain(_)
            | ReceiverAction::Publish(_)
            | ReceiverAction::SyncDirs(_)
            | ReceiverAction::SyncDirsAgain(_) => self.check_batch(action),
            ReceiverAction::FinishDirs(dirs) => check_dirs(dirs, seen),
            ReceiverAction::Release(file) => self.check_release(*file),
            ReceiverAction::Discard(file) => {
                let temp = self.temps.remove(file).expect("something was made");
                assert_eq!(temp.outstanding, 0, "discarded while the disk was at work");
                assert!(!temp.steps.contains(&EntryStep::Renamed), "what is published is not discarded");
            }
            ReceiverAction::Settled(entry, outcome) => self.check_settled(entry, outcome, seen),
            ReceiverAction::Send(message) => check_said(message, seen),
            ReceiverAction::Finished(_) => {
                assert!(self.temps.is_empty(), "left behind: {:?}", self.temps.keys());
                let unjudged: Vec<&Ticket> = self.unjudged().collect();
                assert!(unjudged.is_empty(), "payload without a verdict: {unjudged:?}");
            }
            ReceiverAction::Survey(_)
            | ReceiverAction::MeasureRoom { .. }
            | ReceiverAction::ReadStanding(_)
            | ReceiverAction::DigestSkipped(_)
            | ReceiverAction::ReadStandingChunks { .. }
            | ReceiverAction::CloseLane(_)
            | ReceiverAction::Tidy
            | ReceiverAction::Abort(_) => {}
        }
    }

    fn make_temp_of_chunks(&mut self, entry: &EntryRef, chunk: ChunkSize) {
        self.make_temp(entry);
        let temp = self.temp(entry.id);
        temp.map = ChunkMap::new(temp.map.len(), chunk);
        temp.outstanding = 1;
    }

    fn make_temp(&mut self, entry: &EntryRef) {
        let len = match entry.entry.kind {
            EntryKind::File { len, .. } => len,
            _ => 0,
        };
        let temp = HeldTemp {
            map: ChunkMap::new(len, self.chunk),
            digests: BTreeMap::new(),
            written: BTreeSet::new(),
            synced: BTreeSet::new(),
            lost: BTreeSet::new(),
            checked: BTreeSet::new(),
            durable: BTreeSet::new(),
            syncs: VecDeque::new(),
            in_order: in_order::ReadSoFar::default(),
            unsynced: false,
            outstanding: 0,
            steps: BTreeSet::new(),
        };
        assert!(self.temps.insert(entry.id, temp).is_none(), "{entry:?} is made twice");
    }

    fn temp(&mut self, id: FileId) -> &mut HeldTemp {
        self.temps.get_mut(&id).unwrap_or_else(|| panic!("nothing was made for {id:?}"))
    }

    fn use_payload(&mut self, ticket: Ticket) -> Option<Digest> {
        self.payloads.remove(&ticket).expect("payload is used once").digest
    }

    /// The payloads that are owed a verdict: a unit that nobody declared is judged at no time, and
    /// one whose lane was lost may be sent again instead.
    fn unjudged(&self) -> impl Iterator<Item = &Ticket> {
        let is_declared = |ticket: &Ticket, held: &HeldPayload| held.has_trailer || self.declared.contains(ticket);
        let owed = self.payloads.iter().filter(move |(ticket, held)| is_declared(ticket, held));
        owed.map(|(ticket, _)| ticket).filter(|ticket| !self.closed.contains(&ticket.lane))
    }

    /// The sender says something.
    pub(super) fn hears(&mut self, message: &Message) {
        if let Message::Digests(list) = message {
            self.declared.extend(list.iter().map(|declared| Ticket { lane: declared.lane, seq: declared.seq }));
        }
    }

    /// This end of a lane is closed.
    pub(super) fn lane_ended(&mut self, lane: LaneId) {
        self.closed.insert(lane);
    }

    fn check_write(&mut self, file: FileId, index: ChunkIndex, ticket: Ticket) {
        let digest = self.use_payload(ticket);
        let temp = self.temp(file);
        assert!(!temp.steps.contains(&EntryStep::SealOrdered) && !temp.written.contains(&index.0));
        temp.outstanding += 1;
        let before = temp.digests.get(&index.0).filter(|_| temp.lost.remove(&index.0)).copied();
        assert!(before.is_none() || before == digest, "a chunk came again with other bytes");
        temp.digests.extend(digest.map(|digest| (index.0, digest)));
        assert!(temp.digests.contains_key(&index.0), "called the same, and nothing is held");
    }

    fn check_copy(&mut self, base: &Base, index: ChunkIndex, digest: Digest) {
        let temp = self.temp(base.entry.id);
        assert_eq!(temp.map, base.map, "copied into another geometry");
        assert!(!temp.steps.contains(&EntryStep::SealOrdered) && !temp.written.contains(&index.0));
        temp.outstanding += 1;
        temp.digests.insert(index.0, digest);
    }

    fn check_read_staged(&mut self, files: &[FileId], why: ReadBackReason) {
        let after = match why {
            ReadBackReason::Doubt => EntryStep::BarrierOrdered,
            ReadBackReason::Verify => EntryStep::Durable,
        };
        files.iter().for_each(|id| assert!(self.temp(*id).steps.contains(&after), "read back too early for {why:?}"));
        assert!(why == ReadBackReason::Doubt || self.must_read_back, "read back without being asked to");
    }

    /// Records need their chunks synced, and one group is under way at a time.
    fn check_journal(&mut self, records: &[JournalEntry]) {
        assert!(self.journal.is_none(), "two groups at once");
        for record in records {
            // An entry that ended meanwhile takes its records with it.
            if let JournalEntry::Chunks { file, chunks } = record
                && let Some(temp) = self.temps.get(file)
            {
                let synced = |(index, _): &(ChunkIndex, _)| temp.synced.contains(&index.0);
                assert!(chunks.iter().all(synced), "journalled before it was synced");
                let checked = |(index, _): &(ChunkIndex, _)| temp.checked.contains(&index.0);
                assert!(!self.must_read_back || chunks.iter().all(checked), "journalled before it was read back");
            }
        }
        self.journal = Some(records.to_vec());
    }

    fn check_seal(&mut self, file: FileId) {
        let (must_read_back, must_read_in_order) = (self.must_read_back, self.must_read_in_order);
        let temp = self.temp(file);
        let unchecked = temp.map.chunks() - temp.checked.len() as u64;
        assert!(!must_read_back || unchecked == 0, "{unchecked} chunks were never read back");
        assert_eq!(temp.written.len() as u64, temp.map.chunks(), "sealed before all was written");
        assert!(!must_read_in_order || temp.in_order.is_all(temp.map.chunks()), "sealed before it was read in order");
        assert_eq!(temp.outstanding, 0, "sealed while the disk was at work");
        assert!(temp.steps.insert(EntryStep::SealOrdered));
        temp.outstanding += 1;
    }

    /// The steps of a batch come one after the other, each after the step before it.
    fn check_batch(&mut self, action: &ReceiverAction) {
        assert!(self.batch.is_none(), "two steps of batches at once");
        let (batch, after): (Vec<FileId>, EntryStep) = match action {
            ReceiverAction::Barrier(batch) => (batch.clone(), EntryStep::Staged),
            ReceiverAction::BarrierAgain(batch) => (batch.clone(), EntryStep::BarrierOrdered),
            ReceiverAction::Publish(renames) => (renames.iter().map(|(id, _)| *id).collect(), EntryStep::Durable),
            ReceiverAction::SyncDirs(batch) | ReceiverAction::SyncDirsAgain(batch) => {
                (batch.clone(), EntryStep::Renamed)
            }
            other => panic!("no step of a batch: {other:?}"),
        };
        for id in &batch {
            let temp = self.temp(*id);
            assert!(temp.steps.contains(&after) && temp.outstanding == 0, "{id:?} in {action:?} before {after:?}");
            if matches!(action, ReceiverAction::Barrier(_)) {
                assert!(temp.steps.insert(EntryStep::BarrierOrdered), "{id:?} in two batches");
            }
        }
        self.batch = Some(batch);
    }

    fn check_release(&mut self, file: FileId) {
        let temp = self.temps.remove(&file).expect("something was made");
        assert_eq!(temp.outstanding, 0, "closed while the disk was at work");
        assert!(!temp.steps.contains(&EntryStep::Renamed), "what is published has nothing to keep");
        let good = if self.must_read_back { &temp.checked } else { &temp.written };
        let may_be_saved = !self.may_lose_work && !temp.unsynced && !temp.steps.contains(&EntryStep::SealOrdered);
        assert!(!may_be_saved || good.is_subset(&temp.durable), "what is kept was not written down");
    }

    fn check_settled(&mut self, entry: &Arc<EntryRef>, outcome: &Outcome, seen: &mut Seen) {
        let temp = self.temps.remove(&entry.id);
        match (outcome, &entry.entry.kind) {
            (Outcome::Committed(_) | Outcome::Linked(_), EntryKind::File { .. } | EntryKind::Symlink { .. }) => {
                let temp = temp.expect("something was made");
                assert!(temp.steps.contains(&EntryStep::RenameDurable), "committed before the rename was durable");
            }
            (Outcome::Failed(_), _) => {
                if let Some(temp) = temp {
                    assert!(temp.steps.contains(&EntryStep::Renamed), "a temporary is left behind");
                    seen.unsure.insert(entry.id);
                }
            }
            _ => assert!(temp.is_none(), "{entry:?} is {outcome:?} and has a temporary"),
        }
        assert!(seen.outcomes.insert(entry.id, outcome.clone()).is_none(), "{entry:?} has two outcomes");
    }

    /// A unit arrived.
    pub(super) fn landed(&mut self, landed: &Landed) {
        let digest = (!landed.piece.same).then_some(landed.computed);
        let held = HeldPayload { digest, has_trailer: landed.declared.is_some() };
        assert!(self.payloads.insert(landed.ticket, held).is_none(), "{:?} arrived twice", landed.ticket);
    }

    /// Names were looked up.
    pub(super) fn surveyed(&mut self, first: FileId, count: u64) {
        assert_eq!(first.0, self.surveyed, "surveys are reported in order");
        self.surveyed += count;
    }

    /// A temporary was made or opened, or not.
    pub(super) fn created(&mut self, file: FileId, result: &Result<Created, Fault>) {
        let temp = self.temp(file);
        temp.outstanding = 0;
        match result {
            Ok(Created::Fresh) => {}
            Ok(Created::Continued(partial)) => {
                temp.map = partial.map();
                temp.digests = partial.iter().map(|(index, digest)| (index.0, digest)).collect();
                if partial.source() == Source::Same {
                    let held: BTreeSet<u64> = temp.digests.keys().copied().collect();
                    (temp.written, temp.synced, temp.durable) = (held.clone(), held.clone(), held);
                }
            }
            Err(_) => drop(self.temps.remove(&file)),
        }
    }

    /// A chunk was written, or not.
    pub(super) fn written(&mut self, file: FileId, index: ChunkIndex, result: &Result<(), Fault>) {
        let temp = self.temp(file);
        temp.outstanding -= 1;
        if result.is_ok() {
            temp.written.insert(index.0);
        }
    }

    /// A file was synced, but for some chunks that count as never written, or not.
    pub(super) fn synced(&mut self, file: FileId, result: &Result<Vec<ChunkIndex>, Fault>) {
        let temp = self.temp(file);
        temp.outstanding -= 1;
        let covered = temp.syncs.pop_front().expect("a sync is under way");
        match result {
            Ok(lost) => {
                temp.synced.extend(covered);
                for index in lost {
                    temp.written.remove(&index.0);
                    temp.synced.remove(&index.0);
                    temp.lost.insert(index.0);
                    temp.in_order.lost();
                }
            }
            Err(_) => temp.unsynced = true,
        }
    }

    /// Chunks were read back. One with another digest counts as never written.
    pub(super) fn read_back(&mut self, file: FileId, results: &[(ChunkIndex, Result<Digest, Fault>)]) {
        let temp = self.temp(file);
        temp.outstanding -= 1;
        for (index, digest) in results.iter().filter_map(|(index, result)| Some((index, result.as_ref().ok()?))) {
            if temp.digests.get(&index.0) == Some(digest) {
                temp.checked.insert(index.0);
            } else {
                temp.written.remove(&index.0);
                temp.synced.remove(&index.0);
            }
        }
    }

    /// An entry is staged, or not.
    pub(super) fn staged(&mut self, file: FileId, result: &Result<(), Fault>) {
        let temp = self.temp(file);
        let is_sealed = temp.steps.contains(&EntryStep::SealOrdered);
        temp.outstanding -= usize::from(is_sealed);
        if result.is_ok() {
            temp.steps.insert(EntryStep::Staged);
        } else if !is_sealed {
            self.temps.remove(&file);
        }
    }

    /// Records are in the journal, or not.
    pub(super) fn journalled(&mut self, result: &Result<(), Fault>) {
        self.may_lose_work |= result.is_err();
        for record in self.journal.take().expect("records are under way") {
            if let JournalEntry::Chunks { file, chunks } = record
                && let Some(temp) = self.temps.get_mut(&file).filter(|_| result.is_ok())
            {
                temp.durable.extend(chunks.iter().map(|(index, _)| index.0));
            }
        }
    }

    /// A batch is durable under its temporary names, but for the files that are postponed, or not.
    pub(super) fn made_durable(&mut self, result: &Result<Vec<FileId>, Fault>) {
        for id in result.iter().flatten() {
            self.temp(*id).steps.remove(&EntryStep::BarrierOrdered);
            self.batch.iter_mut().for_each(|batch| batch.retain(|of| of != id));
        }
        self.end_step(EntryStep::Durable, &result.as_ref().map(drop).map_err(Fault::clone));
    }

    /// Files have their final names, or not.
    pub(super) fn published(&mut self, results: &[(FileId, Result<(), Fault>)]) {
        self.batch = None;
        for (file, _) in results.iter().filter(|(_, result)| result.is_ok()) {
            self.temp(*file).steps.insert(EntryStep::Renamed);
        }
    }

    /// The renames of a batch are durable, or not.
    pub(super) fn dirs_synced(&mut self, result: &Result<(), Fault>) {
        self.end_step(EntryStep::RenameDurable, result);
    }

    fn end_step(&mut self, step: EntryStep, result: &Result<(), Fault>) {
        let batch = self.batch.take().expect("a step of a batch is under way");
        for id in batch.into_iter().filter(|_| result.is_ok()) {
            self.temp(id).steps.insert(step);
        }
    }
}

fn changes_nothing(action: &ReceiverAction) -> bool {
    matches!(
        action,
        ReceiverAction::Tidy
            | ReceiverAction::Survey(_)
            | ReceiverAction::Settled(..)
            | ReceiverAction::Send(_)
            | ReceiverAction::CloseLane(_)
            | ReceiverAction::Finished(_)
            | ReceiverAction::Abort(_)
    )
}

#[cfg(test)]
mod tests;
