//! Owns the destination side of a session: carries out on the disk what the receiver's machine
//! orders, and reports each outcome.
//!
//! It owns the payload of arrivals until their verdict, open temporaries and staged names. Chunks
//! are written by `disk` with its depth, everything else by small pools: surveys in order, staging
//! in parallel, group syncs beside the writes, batches one step after the other. `survey` looks
//! before anything is made, `batch` commits the files. It knows no lanes and no messages.

mod batch;
mod digests;
mod readback;
mod shortage;
mod standing;
mod survey;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::{
    Author, Blame, ChunkIndex, ChunkMap, ChunkSize, EntryKind, Fault, FaultCode, FileId, Place, Preserve, SessionTag,
    TempName,
};
use longhaul_disk::{ChunkIo, DiskError, Staged, TargetFile, TargetTree};
use longhaul_proto::receiver::{Created, EntryRef, JournalEntry, Partial, Room, Surveyed, Ticket};
use longhaul_proto::wire::message::Outcome;
use longhaul_sys::Slot;
use tokio::sync::mpsc::UnboundedSender;

use super::{FileResult, SessionEvent};
use crate::cpu::{Stage, StageTimes};
use crate::faults::system_fault;
use crate::journals::SessionJournal;
use crate::lanes::worker::receive::Arrival;
use crate::spread::place_of;
use crate::workers::Workers;

use batch::Batch;
use digests::Digesters;
use readback::Readers;
pub(crate) use shortage::Whereabouts;
use standing::Versions;

/// A report of the destination side. Each goes to the `handle_*` of its name.
#[derive(Debug)]
pub(crate) enum DestinationDone {
    /// The standing files under the names of a page.
    Survey { first: FileId, found: Vec<Result<Surveyed, Fault>> },
    /// The room where a file would go. `None` if it is not known.
    MeasureRoom(Option<Room>),
    /// A temporary was created or opened.
    Create(FileId, Result<OpenTarget, Fault>),
    /// A chunk was written.
    Write { file: FileId, index: ChunkIndex, result: Result<(), Fault> },
    /// A file's data was synced.
    SyncData(FileResult),
    /// Digests of chunks as the medium returns them.
    ReadBack { file: FileId, results: Vec<(ChunkIndex, Result<Digest, Fault>)> },
    /// Digests of staged small files as the medium returns them.
    ReadStaged(Vec<(FileId, Result<Hash32, Fault>)>),
    /// Digests of small files that stand.
    ReadStanding(Vec<(FileId, Result<Hash32, Fault>)>),
    /// More bytes of skipped files were read.
    DigestProgress(u64),
    /// The roots of skipped files.
    DigestSkipped(Vec<(FileId, Result<Option<Hash32>, Fault>)>),
    /// Digests of chunks of files that stand.
    ReadStandingChunks { file: FileId, results: Vec<(ChunkIndex, Result<Digest, Fault>)> },
    /// Files that were found the same were checked for the last time.
    Retouch(Vec<FileResult>),
    /// Records were written to the journal.
    Journal(Result<(), Fault>),
    /// Standing files are durable and the journal is put away.
    Tidy(Result<(), Fault>),
    /// Names were staged.
    Stage(Vec<(FileId, Result<Staged, Fault>)>),
    /// The batch is durable under temporary names.
    Barrier(Result<(), Fault>),
    /// The batch was renamed.
    Publish(Vec<FileResult>),
    /// The renames are durable.
    SyncDirs(Result<(), Fault>),
    /// Directories have their metadata.
    FinishDirs(Vec<FileResult>),
}

/// A temporary that takes chunks.
#[derive(Clone, Debug)]
pub(crate) struct OpenTarget {
    target: Arc<TargetFile>,
    map: ChunkMap,
    created: Created,
}

impl OpenTarget {
    /// Where a chunk of it goes.
    fn place(&self, index: ChunkIndex) -> Place {
        place_of(self.map, index)
    }
}

/// The options of the destination side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DestinationOptions {
    /// Chunk size of files that are not continued.
    pub(crate) chunk: ChunkSize,
    /// Files up to this length come in bundles.
    pub(crate) bundled_max: u64,
    /// Which metadata is set.
    pub(crate) preserve: Preserve,
    /// Whether to look and touch nothing.
    pub(crate) dry_run: bool,
    /// Whether names that stood may be replaced.
    pub(crate) may_replace: bool,
    /// Bytes of a buffer to read back and to read standing files. `None`: not wanted.
    pub(crate) reserve: Option<usize>,
    /// Bytes of a buffer to read skipped files. `None`: not wanted.
    pub(crate) digests: Option<usize>,
}

/// The destination side's workers. Dropping them waits until nothing is outstanding, then removes
/// unpublished files.
pub(crate) struct DestinationWorkers {
    tree: Arc<dyn TargetTree>,
    io: ChunkIo,
    options: DestinationOptions,
    times: StageTimes,
    sink: UnboundedSender<SessionEvent>,
    /// Held once by each write, and by each job, that is under way or waits for its turn.
    writes: Arc<()>,
    jobs: Arc<()>,
    /// Held once by each entry that is at its end and is still to be put away.
    chores: Arc<()>,
    /// Held once by each job that reads back or reads standing files.
    reads: Arc<()>,
    depth: usize,
    payload: HashMap<Ticket, ArrivedPayload>,
    /// Directories whose content is still coming.
    dirs: Arc<Mutex<survey::OpenDirectories>>,
    files: HashMap<FileId, OpenTarget>,
    staged: HashMap<FileId, Staged>,
    batch: Arc<Batch>,
    survey: Workers,
    stage: Workers,
    sync: Workers,
    commit: Workers,
    journal: Workers,
    /// Measures room while files are open; it waits for no other work.
    room: Workers,
    whereabouts: Arc<Whereabouts>,
    /// The session's journal. `None` where nothing outlives the session anyway.
    ledger: Option<Arc<SessionJournal>>,
    /// The versions of standing files that were read.
    versions: Versions,
    /// Threads that read back and read standing files. `None` if that is not wanted.
    readers: Option<Readers>,
    /// Threads that read skipped files. `None` if that is not wanted.
    digesters: Option<Digesters>,
    /// The last field: dropped when all pools have ended.
    _aftermath: Aftermath,
}

/// The payload of an arrival, kept until its verdict.
#[derive(Debug, Default)]
struct ArrivedPayload {
    /// The bytes. `None` for a hole.
    slot: Option<Slot>,
    /// The unit's length, bytes.
    len: usize,
    /// Whether it is a hole.
    hole: bool,
    /// The range of each file of a bundle in the bytes.
    rows: Vec<(FileId, Range<usize>)>,
}

/// Threads that create, write and seal: creating names waits for the directory's lock more than for
/// the processor.
const STAGERS: usize = 4;
/// Group syncs at a time.
const SYNCERS: usize = 2;
/// Entries that may wait to be put away before no more are taken in, at some 500 bytes each: as
/// many as end while a slow disk syncs once.
const CHORES_WAITING_MAX: usize = 64 << 10;

impl DestinationWorkers {
    /// Starts the target side.
    pub(crate) fn start(
        tree: Arc<dyn TargetTree>,
        io: ChunkIo,
        (ledger, whereabouts): (Option<Arc<SessionJournal>>, Whereabouts),
        options: DestinationOptions,
        times: StageTimes,
        sink: UnboundedSender<SessionEvent>,
    ) -> Result<DestinationWorkers, Fault> {
        let pool = |name, n| Workers::start(name, n).map_err(|e| system_fault("file threads", &e));
        let _aftermath = Aftermath { tree: tree.clone(), ledger: ledger.clone() };
        Ok(DestinationWorkers {
            _aftermath,
            depth: io.report().depth,
            tree,
            io,
            options,
            times,
            sink,
            writes: Arc::default(),
            jobs: Arc::default(),
            chores: Arc::default(),
            reads: Arc::default(),
            payload: HashMap::new(),
            dirs: Arc::default(),
            files: HashMap::new(),
            staged: HashMap::new(),
            batch: Arc::default(),
            survey: pool("survey", 1)?,
            stage: pool("stage", STAGERS)?,
            sync: pool("sync", SYNCERS)?,
            commit: pool("commit", 1)?,
            journal: pool("journal", 1)?,
            room: pool("room", 1)?,
            whereabouts: Arc::new(whereabouts),
            ledger,
            versions: Versions::default(),
            readers: options.reserve.map(Readers::start).transpose()?,
            digesters: options.digests.map(Digesters::start).transpose()?,
        })
    }

    /// Keeps an arrival's payload for the verdict that follows.
    pub(crate) fn hold_payload(&mut self, arrival: &mut Arrival) {
        let piece = &arrival.landed.piece;
        let (len, hole) = (piece.unit_len as usize, piece.hole);
        let payload = ArrivedPayload { slot: arrival.slot.take(), len, hole, rows: std::mem::take(&mut arrival.rows) };
        self.payload.insert(arrival.landed.ticket, payload);
    }

    /// Gives a payload's buffer back.
    pub(crate) fn drop_payload(&mut self, ticket: Ticket) {
        self.payload.remove(&ticket);
    }

    /// Runs `job` on a pool and sends its report.
    fn report(&self, pool: &Workers, job: impl FnOnce(&dyn TargetTree) -> DestinationDone + Send + 'static) {
        let (tree, sink, times) = (self.tree.clone(), self.sink.clone(), self.times.clone());
        let (under_way, whereabouts) = (self.jobs.clone(), self.whereabouts.clone());
        pool.run(move || {
            let mut report = times.count(Stage::Files, || job(&*tree));
            report.each_fault(|fault| whereabouts.name_shortage(&*tree, fault));
            drop(under_way);
            let _ = sink.send(SessionEvent::Wrote(report));
        });
    }

    /// Whether the disk has anything to do.
    pub(crate) fn is_at_work(&self) -> bool {
        [&self.jobs, &self.writes, &self.reads].into_iter().any(|held| Arc::strong_count(held) > 1)
    }

    /// Whether the disk has all the work that it takes at a time.
    pub(crate) fn is_full(&self) -> bool {
        let under_way = |held: &Arc<()>| Arc::strong_count(held) - 1;
        let jobs = under_way(&self.jobs);
        jobs >= STAGERS || under_way(&self.writes) + jobs >= self.depth
    }

    /// Whether more settled entries wait to be put away than the disk does in a moment.
    pub(crate) fn is_swamped(&self) -> bool {
        Arc::strong_count(&self.chores) > CHORES_WAITING_MAX
    }

    /// Measures the room where a file would go: at once, or behind pending discards.
    pub(crate) fn measure_room(&self, held: Arc<EntryRef>, behind_discards: bool) {
        let pool = if behind_discards { &self.journal } else { &self.room };
        self.report(pool, move |tree| {
            // Where the file may be compressed, only a write tells whether it fits.
            let room = tree.room(&held.placed).filter(|room| room.is_firm);
            DestinationDone::MeasureRoom(room.map(|room| Room {
                device: room.device,
                bytes: room.bytes,
                inodes: room.inodes,
            }))
        });
    }

    /// Creates a temporary, or opens the one of a partial.
    pub(crate) fn create(&self, held: Arc<EntryRef>, partial: Option<Arc<Partial>>) {
        let (chunk, preserve_holes) = (self.options.chunk, self.options.preserve.sparse);
        let ledger = self.ledger.clone();
        self.report(&self.stage, move |tree| {
            let EntryKind::File { len, sparse, .. } = held.entry.kind else {
                return DestinationDone::Create(held.id, Err(bug("chunks for something that is no file")));
            };
            let opened = match &ledger {
                Some(ledger) => ledger.open(tree, &held, partial.as_ref(), chunk, preserve_holes),
                None => tree
                    .create(&held.placed, len, sparse && preserve_holes, &unwritten())
                    .map(|target| (target, Created::Fresh))
                    .map_err(Fault::from),
            };
            let open = opened.map(|(target, created)| {
                let map = match &created {
                    Created::Continued(partial) => partial.map(),
                    Created::Fresh => ChunkMap::new(len, chunk),
                };
                OpenTarget { target, map, created }
            });
            DestinationDone::Create(held.id, open)
        });
    }

    /// Takes a temporary that was created. Returns the result for the machine.
    pub(crate) fn created(&mut self, file: FileId, result: Result<OpenTarget, Fault>) -> Result<Created, Fault> {
        let open = result?;
        let created = open.created.clone();
        self.files.insert(file, open);
        Ok(created)
    }

    /// Writes a verified chunk. A hole needs no write.
    pub(crate) fn write(&mut self, file: FileId, index: ChunkIndex, ticket: Ticket) {
        let (Some(ArrivedPayload { slot, len, hole, .. }), Some(open)) =
            (self.payload.remove(&ticket), self.files.get(&file))
        else {
            let result = Err(bug("a verified chunk without its payload or file"));
            let _ = self.sink.send(SessionEvent::Wrote(DestinationDone::Write { file, index, result }));
            return;
        };
        let (target, place) = (open.target.clone(), open.place(index));
        let Some(slot) = slot else {
            if hole && matches!(open.created, Created::Continued(_)) {
                return self.report(&self.stage, move |tree| {
                    let result = tree.make_hole(&target, place, len as u64).map_err(Fault::from);
                    DestinationDone::Write { file, index, result }
                });
            }
            let _ = self.sink.send(SessionEvent::Wrote(DestinationDone::Write { file, index, result: Ok(()) }));
            return;
        };
        let (sink, under_way) = (self.sink.clone(), self.writes.clone());
        let (tree, whereabouts) = (self.tree.clone(), self.whereabouts.clone());
        let done = move |slot: Slot, result: Result<(), DiskError>| {
            drop((slot, under_way));
            let result = result.map_err(|error| {
                let mut fault = error.fault();
                whereabouts.name_shortage(&*tree, &mut fault);
                fault
            });
            let _ = sink.send(SessionEvent::Wrote(DestinationDone::Write { file, index, result }));
        };
        self.io.write(target, place, len, slot, Box::new(done));
    }

    /// Writes verified files of a bundle under temporary names.
    pub(crate) fn write_bundle(&mut self, ticket: Ticket, files: Vec<Arc<EntryRef>>) {
        let ArrivedPayload { slot, rows, .. } = self.payload.remove(&ticket).unwrap_or_default();
        let preserve = self.options.preserve;
        let ledger = self.ledger.clone();
        self.report(&self.stage, move |tree| {
            let begun = begun(ledger.as_deref(), files.iter());
            let rows: HashMap<FileId, Range<usize>> = rows.into_iter().collect();
            let stage = |held: &Arc<EntryRef>| {
                begun.clone()?;
                let bytes = rows.get(&held.id).cloned().and_then(|range| slot.as_ref()?.get(range));
                let bytes = bytes.ok_or_else(|| bug("a verified file without its payload"))?;
                tree.write_small(&held.placed, bytes, &held.entry.meta, preserve).map_err(Fault::from)
            };
            DestinationDone::Stage(files.iter().map(|held| (held.id, stage(held))).collect())
        });
    }

    /// Stages a symbolic link.
    pub(crate) fn make_link(&self, held: Arc<EntryRef>) {
        let (preserve, ledger) = (self.options.preserve, self.ledger.clone());
        self.report(&self.stage, move |tree| {
            let result = match &held.entry.kind {
                EntryKind::Symlink { target } => begun(ledger.as_deref(), std::iter::once(&held)).and_then(|()| {
                    tree.make_link(&held.placed, target, &held.entry.meta, preserve).map_err(Fault::from)
                }),
                _ => Err(bug("a link that is none")),
            };
            DestinationDone::Stage(vec![(held.id, result)])
        });
    }

    /// Syncs the bytes written to a file so far.
    pub(crate) fn sync_data(&self, file: FileId) {
        let target = self.files.get(&file).map(|open| open.target.clone());
        self.report(&self.sync, move |tree| {
            let result = target.ok_or_else(|| bug("a sync of a file that is not open"));
            DestinationDone::SyncData((file, result.and_then(|target| tree.sync_data(&target).map_err(Fault::from))))
        });
    }

    /// Writes records to the journal.
    pub(crate) fn journal(&self, records: Vec<JournalEntry>) {
        let ledger = self.ledger.clone();
        self.report(&self.journal, move |_| {
            DestinationDone::Journal(ledger.map_or(Ok(()), |ledger| ledger.write(&records)))
        });
    }

    /// Makes standing files durable, checks that the destination is still where it was, and puts
    /// the journal away, behind everything that still writes there.
    pub(crate) fn tidy(&self) {
        let (ledger, dry_run) = (self.ledger.clone(), self.options.dry_run);
        self.report(&self.journal, move |tree| {
            let synced = if dry_run { Ok(()) } else { tree.sync_dirs(&[]).and_then(|()| tree.check_place()) };
            let synced = synced.map_err(Fault::from);
            if let Some(ledger) = ledger.filter(|_| synced.is_ok()) {
                ledger.put_away(tree);
            }
            DestinationDone::Tidy(synced)
        });
    }

    /// Records an outcome.
    pub(crate) fn settled(&self, held: &Arc<EntryRef>, outcome: &Outcome) {
        self.versions.forget(held.id);
        let Some(ledger) = self.ledger.clone() else { return };
        if matches!(outcome, Outcome::Failed(fault) if fault.author == Author::Local) {
            ledger.thin(&held.placed);
        }
        if held.entry.kind == EntryKind::DirEnd && matches!(outcome, Outcome::Committed(_)) {
            let (placed, chore) = (held.placed.clone(), self.chores.clone());
            // Behind the files that are still being discarded there.
            return self.journal.run(move || {
                ledger.leave_dir(&placed);
                drop(chore);
            });
        }
        if ledger.concerns(held) {
            let (tree, held, outcome) = (self.tree.clone(), held.clone(), outcome.clone());
            let chore = self.chores.clone();
            self.journal.run(move || {
                ledger.settled(&*tree, &held, &outcome);
                drop(chore);
            });
        }
    }

    /// Cuts a whole file to its length and sets its metadata.
    pub(crate) fn seal(&mut self, held: Arc<EntryRef>) {
        // The file stays among the open files until it is known to be staged: if that fails, it is
        // kept or discarded as they are.
        let target = self.files.get(&held.id).map(|open| open.target.clone());
        let preserve = self.options.preserve;
        self.report(&self.stage, move |tree| {
            let target = target.ok_or_else(|| bug("a seal of a file that is not open"));
            let staged = target.and_then(|target| tree.seal(target, &held.entry.meta, preserve).map_err(Fault::from));
            DestinationDone::Stage(vec![(held.id, staged)])
        });
    }

    /// Removes the temporary of a file.
    pub(crate) fn discard(&mut self, file: FileId) {
        let (open, staged) = (self.files.remove(&file), self.staged_or_in_batch(file));
        let (tree, ledger, chore) = (self.tree.clone(), self.ledger.clone(), self.chores.clone());
        if let Some(ledger) = &ledger {
            open.iter().for_each(|open| ledger.thin(open.target.path()));
            staged.iter().filter_map(|batch| batch.get(file)).for_each(|staged| ledger.thin(staged.path()));
        }
        // In the journal's order: a file is dropped in the journal before it is put away.
        self.journal.run(move || {
            if let Some(open) = open {
                open.target.discard();
            }
            if let Some(batch) = staged {
                batch.discard(file);
            }
            if let Some(ledger) = ledger {
                ledger.discard(&*tree, file);
            }
            drop(chore);
        });
    }

    /// Closes a file that another session may continue. A worthless file is removed.
    pub(crate) fn release(&mut self, file: FileId) {
        if self.ledger.as_ref().is_some_and(|ledger| ledger.keeps(file)) {
            let gone = (self.files.remove(&file), self.staged.remove(&file));
            self.stage.run(move || drop(gone));
        } else {
            self.discard(file);
        }
    }

    /// Ends the wait for partials that are read back before they are continued.
    pub(crate) fn hurry(&self) {
        if let Some(ledger) = &self.ledger {
            ledger.stop_proving();
        }
    }

    /// Gives up: removes those open files that are not worth keeping for another session.
    pub(crate) fn give_up(&mut self) {
        self.hurry();
        if let Some(digesters) = &self.digesters {
            digesters.stop();
        }
        let open: Vec<FileId> = self.files.keys().chain(self.staged.keys()).copied().collect();
        open.into_iter().for_each(|file| self.release(file));
    }
}

/// Has the journal name a directory before the first temporary in it: by that name others know
/// whose it is.
fn begun<'a>(ledger: Option<&SessionJournal>, held: impl Iterator<Item = &'a Arc<EntryRef>>) -> Result<(), Fault> {
    ledger.map_or(Ok(()), |ledger| ledger.begin(held.map(|held| &held.placed)))
}

/// The work that is left when nothing is under way any more.
struct Aftermath {
    tree: Arc<dyn TargetTree>,
    ledger: Option<Arc<SessionJournal>>,
}

impl Drop for Aftermath {
    fn drop(&mut self) {
        if let Some(ledger) = &self.ledger {
            ledger.close(&*self.tree);
        }
    }
}

/// The name of a temporary in a tree without a disk, which has no names.
fn unwritten() -> TempName {
    TempName::new(SessionTag([0; 8]), [0; 8])
}

fn bug(message: &str) -> Fault {
    Fault::new(FaultCode::Internal, Blame::Bug, message)
}
