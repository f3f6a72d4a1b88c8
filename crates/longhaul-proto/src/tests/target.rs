//! The target side of a world: takes the orders of the receiver's machine and holds it to its
//! promise at every step.
//!
//! `disk` completes the orders.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longhaul_core::digest::Digest;
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, EntryKind, FaultCode, FileId, RelPath};

use super::plan::{CHUNK, Left, Plan};
use super::wire::Rows;
use crate::receiver::{
    Base, Created, EntryRef, JournalEntry, Landed, Partial, ReadBackReason, ReceiverAction, Replace, Seen, Source,
    Ticket,
};
use crate::wire::message::{Message, Outcome};

/// A standing file or link under a final name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Before(Seen),
    File(FileId, Vec<u8>),
    Link(FileId, Vec<u8>),
}

/// The temporary of an entry.
#[derive(Debug)]
pub(super) struct Temp {
    pub(super) held: Arc<EntryRef>,
    pub(super) map: ChunkMap,
    pub(super) bytes: Vec<u8>,
    /// Chunks whose write was reported to the machine.
    pub(super) written: BTreeSet<u64>,
    /// Chunks that a finished sync covers.
    pub(super) synced: BTreeSet<u64>,
    /// Synced chunks that were read back as they were written.
    pub(super) checked: BTreeSet<u64>,
    /// Chunks whose records a finished sync of the journal covers: of the checked ones, or of all
    /// synced ones if nothing is read back.
    pub(super) durable: BTreeSet<u64>,
    /// Chunks that the medium keeps with other bytes than were written.
    pub(super) spoilt: BTreeSet<u64>,
    /// Whether a sync of it failed, so that no more of it can be made durable.
    pub(super) unsynced: bool,
    /// Operations under way.
    pub(super) outstanding: usize,
    pub(super) steps: BTreeSet<Step>,
}

/// The last step of an entry as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    SealOrdered,
    Staged,
    BarrierOrdered,
    Durable,
    Renamed,
    RenameDurable,
}

/// An operation under way.
#[derive(Debug)]
pub(super) enum Op {
    Survey(Vec<Arc<EntryRef>>),
    MeasureRoom,
    Create(Arc<EntryRef>, Created),
    /// Whether it is a chunk that is there already, of which nothing is written.
    Write {
        file: FileId,
        index: ChunkIndex,
        bytes: Option<Vec<u8>>,
    },
    ReadBack {
        file: FileId,
        chunks: Vec<ChunkIndex>,
    },
    ReadBackStaged(Vec<FileId>),
    ReadStanding(Vec<Arc<EntryRef>>),
    DigestSkipped(Vec<Arc<EntryRef>>),
    ReadStandingChunks {
        base: Base,
        chunks: Vec<ChunkIndex>,
    },
    Copy {
        base: Base,
        index: ChunkIndex,
        digest: Digest,
    },
    Retouch(Vec<Arc<EntryRef>>),
    Journal(Vec<JournalEntry>),
    Tidy,
    Stage(Vec<(Arc<EntryRef>, Vec<u8>)>),
    Seal(FileId),
    Sync {
        file: FileId,
        speaks_for: BTreeSet<u64>,
    },
    Barrier(Vec<FileId>),
    Publish(Vec<(FileId, Replace)>),
    SyncDirs(Vec<FileId>),
    FinishDirs(Vec<Arc<EntryRef>>),
}

/// The target side.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) names: BTreeMap<RelPath, Standing>,
    pub(crate) outcomes: BTreeMap<FileId, Outcome>,
    /// Entries whose rename may not have survived: they fail, but stand.
    pub(crate) unsure: HashSet<FileId>,
    pub(crate) barriers: usize,
    pub(crate) syncs: usize,
    /// Chunks that another session may continue from.
    pub(crate) kept: usize,
    pub(super) temps: BTreeMap<FileId, Temp>,
    pub(super) payloads: HashMap<Ticket, (Option<Vec<u8>>, Rows)>,
    pub(super) ops: Vec<Op>,
    pub(super) faults: (u32, FaultCode),
    pub(super) dry_run: bool,
    pub(super) durable_bytes: u64,
    pub(super) surveyed: u64,
    pub(super) left: Vec<Left>,
    /// Whether everything is read back, and how often the medium keeps other bytes.
    pub(super) medium: Medium,
    /// Files that stood before.
    pub(super) stood: Stood,
    /// Bytes of room, and bytes of chunks that were written.
    pub(super) room: (Option<u64>, u64),
    /// Number of chunks and small files that were read back, and of those that differed.
    pub(crate) checks: (usize, usize),
}

/// The content of files that stood before, and who wrote to them since.
#[derive(Debug)]
pub(super) struct Stood {
    pub(super) contents: BTreeMap<RelPath, Vec<u8>>,
    pub(super) restless: u32,
    /// How often each file was written to, now and when an entry read it first.
    pub(super) versions: BTreeMap<RelPath, u32>,
    pub(super) read: BTreeMap<FileId, u32>,
    /// The content of the standing file when an entry was found equal.
    pub(super) equal: BTreeMap<FileId, Vec<u8>>,
    /// Chunks and small files that were read to be compared, and chunks that were copied.
    pub(super) reads: usize,
    pub(super) copies: usize,
}

/// A medium that may keep other bytes than were written.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) is_read_back: bool,
    pub(super) spoils: u32,
    pub(super) always: HashSet<(RelPath, u64)>,
}

impl Target {
    pub(crate) fn new(plan: &Plan) -> Target {
        let before = plan.standing.iter().cloned().map(|(path, seen)| (path, Standing::Before(seen)));
        Target {
            names: before.collect(),
            outcomes: BTreeMap::new(),
            unsure: HashSet::new(),
            barriers: 0,
            syncs: 0,
            kept: 0,
            temps: BTreeMap::new(),
            payloads: HashMap::new(),
            ops: Vec::new(),
            faults: plan.disk_faults,
            dry_run: plan.dry_run,
            durable_bytes: 0,
            surveyed: 0,
            left: plan.left.clone(),
            medium: Medium { is_read_back: plan.read_back, spoils: plan.spoils, always: plan.always_spoilt.clone() },
            stood: Stood::new(plan),
            room: (plan.room, 0),
            checks: (0, 0),
        }
    }

    pub(crate) fn keep(&mut self, landed: &Landed, payload: Vec<u8>, rows: Rows) {
        let ticket = landed.ticket;
        let payload = match &landed.piece {
            piece if piece.same => None,
            piece if piece.hole => Some(vec![0; piece.unit_len as usize]),
            _ => Some(payload),
        };
        assert!(self.payloads.insert(ticket, (payload, rows)).is_none(), "{ticket:?} arrived twice");
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ops.is_empty()
    }

    /// Asserts that only published files are left. (Work on a failed file may end after the
    /// session.)
    pub(crate) fn assert_clean(&self) {
        assert!(self.temps.is_empty(), "left behind: {:?}", self.temps.keys());
        let failed = self.outcomes.values().any(|outcome| matches!(outcome, Outcome::Failed(_)));
        assert!(failed || self.payloads.is_empty(), "payload without a verdict: {:?}", self.payloads.keys());
        assert!(self.is_idle());
    }

    /// Asserts that the durable bytes which the machine says were synced, and no others.
    pub(crate) fn assert_durable(&self, said: u64) {
        assert!(said <= self.durable_bytes, "{said} bytes are called durable, {} are", self.durable_bytes);
    }

    /// Takes an order; panics if the promise forbids it now.
    pub(crate) fn order(&mut self, action: ReceiverAction) {
        assert!(
            !self.dry_run
                || matches!(
                    action,
                    ReceiverAction::Tidy
                        | ReceiverAction::Survey(_)
                        | ReceiverAction::Settled(..)
                        | ReceiverAction::Send(_)
                        | ReceiverAction::CloseLane(_)
                        | ReceiverAction::Finished(_)
                        | ReceiverAction::Abort(_)
                ),
            "a dry run orders {action:?}"
        );
        match action {
            ReceiverAction::Survey(held) => self.ops.push(Op::Survey(held)),
            // One that says nothing of its room says so at once.
            ReceiverAction::MeasureRoom { .. } if self.room.0.is_none() => {}
            ReceiverAction::MeasureRoom { .. } => self.ops.push(Op::MeasureRoom),
            ReceiverAction::Create(held, partial) => {
                let created = self.open_temp(&held, partial.as_ref());
                self.temp(held.id).outstanding = 1;
                self.ops.push(Op::Create(held, created));
            }
            ReceiverAction::MakeLink(held) => {
                let EntryKind::Symlink { target } = held.entry.kind.clone() else { panic!("no link: {held:?}") };
                self.stage(vec![(held, target)]);
            }
            ReceiverAction::Write { file, index, ticket } => self.write(file, index, ticket),
            ReceiverAction::WriteBundle { ticket, files } => {
                let (payload, rows) = self.payloads.remove(&ticket).expect("payload is used once");
                let payload = payload.expect("a bundle has payload");
                let rows: HashMap<_, _> = rows.into_iter().collect();
                self.stage(
                    files.into_iter().map(|held| (held.clone(), payload[rows[&held.id].clone()].to_vec())).collect(),
                );
            }
            ReceiverAction::ReadStanding(files) => self.ops.push(Op::ReadStanding(files)),
            ReceiverAction::DigestSkipped(files) => self.ops.push(Op::DigestSkipped(files)),
            ReceiverAction::ReadStandingChunks { base, chunks } => {
                self.ops.push(Op::ReadStandingChunks { base, chunks })
            }
            ReceiverAction::Copy { base, index, digest } => {
                let temp = self.temp(base.entry.id);
                assert_eq!(temp.map, base.map, "copied into another geometry");
                assert!(!temp.steps.contains(&Step::SealOrdered) && !temp.written.contains(&index.0));
                temp.outstanding += 1;
                self.ops.push(Op::Copy { base, index, digest });
            }
            ReceiverAction::Retouch { files, .. } => {
                files.iter().for_each(|held| assert!(!self.temps.contains_key(&held.id), "equal, with a temporary"));
                self.ops.push(Op::Retouch(files));
            }
            ReceiverAction::DropPayload(ticket) => drop(self.payloads.remove(&ticket).expect("payload is used once")),
            ReceiverAction::SyncData(file) => {
                self.syncs += 1;
                let temp = self.temp(file);
                assert!(!temp.steps.contains(&Step::SealOrdered));
                temp.outstanding += 1;
                let speaks_for = temp.written.clone();
                self.ops.push(Op::Sync { file, speaks_for });
            }
            ReceiverAction::ReadBack { file, chunks } => {
                assert!(self.medium.is_read_back, "read back without being asked to");
                let temp = self.temp(file);
                assert!(chunks.iter().all(|at| temp.synced.contains(&at.0)), "read back before it was synced");
                temp.outstanding += 1;
                self.ops.push(Op::ReadBack { file, chunks });
            }
            ReceiverAction::ReadStaged { files, why: ReadBackReason::Doubt } => {
                files.iter().for_each(|id| assert!(self.temp(*id).steps.contains(&Step::BarrierOrdered)));
                self.ops.push(Op::ReadBackStaged(files));
            }
            ReceiverAction::ReadStaged { files, why: ReadBackReason::Verify } => {
                for id in &files {
                    let steps = &self.temp(*id).steps;
                    assert!(steps.contains(&Step::Durable), "read back before the barrier");
                }
                assert!(self.medium.is_read_back);
                self.ops.push(Op::ReadBackStaged(files));
            }
            ReceiverAction::Seal(held) => {
                let is_read_back = self.medium.is_read_back;
                let temp = self.temp(held.id);
                let unchecked = temp.map.chunks() - temp.checked.len() as u64;
                assert!(!is_read_back || unchecked == 0, "{unchecked} chunks were never read back");
                assert_eq!(temp.written.len() as u64, temp.map.chunks(), "sealed before all was written");
                assert_eq!(temp.outstanding, 0, "sealed while the disk was at work");
                assert!(temp.steps.insert(Step::SealOrdered));
                temp.outstanding += 1;
                self.ops.push(Op::Seal(held.id));
            }
            ReceiverAction::Barrier(batch) => self.batch_step(&batch, Step::Staged, Step::BarrierOrdered, Op::Barrier),
            ReceiverAction::BarrierAgain(batch) => {
                batch.iter().for_each(|id| assert!(self.temp(*id).steps.contains(&Step::BarrierOrdered)));
                self.ops.push(Op::Barrier(batch));
            }
            ReceiverAction::Publish(renames) => {
                let batch: Vec<_> = renames.iter().map(|(id, _)| *id).collect();
                for id in &batch {
                    assert!(self.temp(*id).steps.contains(&Step::Durable), "renamed too early");
                }
                self.ops.push(Op::Publish(renames));
            }
            ReceiverAction::SyncDirs(batch) | ReceiverAction::SyncDirsAgain(batch) => {
                batch.iter().for_each(|id| assert!(self.temp(*id).steps.contains(&Step::Renamed)));
                self.ops.push(Op::SyncDirs(batch));
            }
            ReceiverAction::FinishDirs(dirs) => {
                for held in &dirs {
                    let before = self.outcomes.range(..held.id).count() as u64;
                    let ends = dirs.iter().filter(|d| d.id < held.id).count() as u64;
                    assert_eq!(before + ends, held.id.0, "a directory ends before what lies in it");
                }
                self.ops.push(Op::FinishDirs(dirs));
            }
            ReceiverAction::Tidy => self.ops.push(Op::Tidy),
            ReceiverAction::Journal(records) => self.journal(records),
            ReceiverAction::Release(file) => {
                let temp = self.temps.remove(&file).expect("something was made");
                assert_eq!(temp.outstanding, 0, "closed while the disk was at work");
                assert!(!temp.steps.contains(&Step::Renamed), "what is published has nothing to keep");
                let good = if self.medium.is_read_back { &temp.checked } else { &temp.written };
                let may_be_saved = !temp.unsynced && !temp.steps.contains(&Step::SealOrdered);
                assert!(!may_be_saved || good.is_subset(&temp.durable), "what is kept was not written down");
                self.kept += temp.durable.len();
            }
            ReceiverAction::Discard(file) => {
                let temp = self.temps.remove(&file).expect("something was made");
                assert_eq!(temp.outstanding, 0, "discarded while the disk was at work");
                assert!(!temp.steps.contains(&Step::Renamed), "what is published is not discarded");
            }
            ReceiverAction::Settled(held, outcome) => self.settle(&held, outcome),
            ReceiverAction::Send(Message::Settled(list)) => {
                for settlement in list {
                    let said = &self.outcomes[&settlement.file];
                    assert_eq!(std::mem::discriminant(said), std::mem::discriminant(&settlement.outcome));
                }
            }
            ReceiverAction::Send(_)
            | ReceiverAction::CloseLane(_)
            | ReceiverAction::Finished(_)
            | ReceiverAction::Abort(_) => {}
        }
    }

    fn settle(&mut self, held: &Arc<EntryRef>, outcome: Outcome) {
        let temp = self.temps.remove(&held.id);
        match (&outcome, &held.entry.kind) {
            (Outcome::Committed(root), EntryKind::File { .. } | EntryKind::Symlink { .. }) => {
                let temp = temp.expect("something was made");
                assert!(temp.steps.contains(&Step::RenameDurable), "committed before the rename was durable");
                let is_file = matches!(held.entry.kind, EntryKind::File { .. });
                assert_eq!(*root, is_file.then(|| *blake3::hash(&temp.bytes).as_bytes()), "the root that is told");
            }
            (Outcome::Failed(_), _) => {
                if let Some(temp) = temp {
                    assert!(temp.steps.contains(&Step::Renamed), "a temporary is left behind");
                    self.unsure.insert(held.id);
                }
            }
            _ => assert!(temp.is_none()),
        }
        assert!(self.outcomes.insert(held.id, outcome).is_none(), "{held:?} has two outcomes");
    }

    /// Takes records: their chunks must be synced, and one group is under way at a time.
    fn journal(&mut self, records: Vec<JournalEntry>) {
        assert!(!self.ops.iter().any(|op| matches!(op, Op::Journal(_))), "two groups at once");
        for record in &records {
            // An entry that ended meanwhile takes its records with it.
            if let JournalEntry::Chunks { file, chunks } = record
                && let Some(temp) = self.temps.get(file)
            {
                let synced = |(index, _): &(ChunkIndex, _)| temp.synced.contains(&index.0);
                assert!(chunks.iter().all(synced), "journalled before it was synced");
                let checked = |(index, _): &(ChunkIndex, _)| temp.checked.contains(&index.0);
                assert!(!self.medium.is_read_back || chunks.iter().all(checked), "journalled before it was read back");
            }
        }
        self.ops.push(Op::Journal(records));
    }

    /// A new temporary, or the one that was left.
    fn open_temp(&mut self, held: &Arc<EntryRef>, partial: Option<&Arc<Partial>>) -> Created {
        self.make_temp(held);
        let left = self.left.iter().find(|left| left.path == held.placed).filter(|left| !left.gone).cloned();
        let (Some(partial), Some(left)) = (partial, left) else { return Created::Fresh };
        let mut durable = 0;
        let lost: Vec<u64> =
            self.medium.always.iter().filter(|(path, _)| *path == held.placed).map(|(_, chunk)| *chunk).collect();
        let temp = self.temp(held.id);
        temp.map = partial.map();
        temp.bytes = left.bytes;
        for chunk in lost {
            temp.bytes[temp.map.start_of(ChunkIndex(chunk)).0 as usize] ^= 1;
            temp.spoilt.insert(chunk);
        }
        if partial.source() == Source::Same {
            temp.written = left.held.clone();
            temp.synced = left.held.clone();
            temp.durable = left.held;
            durable = partial.bytes();
        }
        self.durable_bytes += durable;
        Created::Continued(partial.clone())
    }

    fn make_temp(&mut self, held: &Arc<EntryRef>) {
        let len = match held.entry.kind {
            EntryKind::File { len, .. } => len as usize,
            _ => 0,
        };
        let temp = Temp {
            held: held.clone(),
            map: ChunkMap::new(len as u64, ChunkSize::from_bytes(CHUNK as u64).expect("a size")),
            bytes: vec![0; len],
            written: BTreeSet::new(),
            synced: BTreeSet::new(),
            checked: BTreeSet::new(),
            durable: BTreeSet::new(),
            spoilt: BTreeSet::new(),
            unsynced: false,
            outstanding: 0,
            steps: BTreeSet::new(),
        };
        assert!(self.temps.insert(held.id, temp).is_none(), "{held:?} is made twice");
    }

    pub(super) fn temp(&mut self, id: FileId) -> &mut Temp {
        self.temps.get_mut(&id).unwrap_or_else(|| panic!("nothing was made for {id:?}"))
    }

    fn stage(&mut self, files: Vec<(Arc<EntryRef>, Vec<u8>)>) {
        files.iter().for_each(|(held, _)| self.make_temp(held));
        self.ops.push(Op::Stage(files));
    }

    fn write(&mut self, file: FileId, index: ChunkIndex, ticket: Ticket) {
        let (payload, _) = self.payloads.remove(&ticket).expect("payload is used once");
        let temp = self.temp(file);
        assert!(!temp.steps.contains(&Step::SealOrdered) && !temp.written.contains(&index.0));
        temp.outstanding += 1;
        self.ops.push(Op::Write { file, index, bytes: payload });
    }

    fn batch_step(&mut self, batch: &[FileId], after: Step, step: Step, op: fn(Vec<FileId>) -> Op) {
        self.barriers += 1;
        let batch_ops = |op: &Op| matches!(op, Op::Barrier(_) | Op::Publish(_) | Op::SyncDirs(_));
        assert!(!self.ops.iter().any(batch_ops), "two batches at once");
        for id in batch {
            let temp = self.temp(*id);
            assert!(temp.steps.contains(&after) && temp.outstanding == 0 && temp.steps.insert(step));
        }
        self.ops.push(op(batch.to_vec()));
    }
}

impl Stood {
    fn new(plan: &Plan) -> Stood {
        let empty = |(path, seen): &(RelPath, Seen)| match seen {
            Seen::File { len, .. } => Some((path.clone(), vec![0x5a; *len as usize])),
            _ => None,
        };
        let mut contents: BTreeMap<_, _> = plan.standing.iter().filter_map(empty).collect();
        for (path, bytes) in &plan.contents {
            contents.entry(path.clone()).and_modify(|stands| {
                if stands.len() == bytes.len() {
                    *stands = bytes.clone();
                }
            });
        }
        let (versions, read, equal) = Default::default();
        Stood { contents, restless: plan.restless, versions, read, equal, reads: 0, copies: 0 }
    }
}
