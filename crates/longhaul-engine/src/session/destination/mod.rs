//! Owns the destination side of a session: carries out on the disk what the receiver's machine
//! orders, and reports each outcome.
//!
//! Chunks are written by `disk` with its depth (`chunks`), everything else by small pools (`jobs`):
//! surveys in order, staging in parallel, group syncs beside the writes, batches one step after the
//! other. `survey` looks before anything is made, `files` knows what is open, `batch` commits it,
//! `journalling` records it, `reading` reads it back. It knows no lanes and no messages.

mod batch;
mod chunks;
mod digests;
mod files;
mod jobs;
mod journalling;
mod names;
mod readback;
mod reading;
mod shortage;
mod standing;
mod sums;
mod survey;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use longhaul_core::checksum::{FileSums, Hashing};
use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::{
    Blame, ChunkIndex, ChunkMap, ChunkSize, EntryKind, Fault, FaultCode, FileId, PartSums, Preserve, SessionTag,
    TempName,
};
use longhaul_disk::{ChunkIo, Identity, NameMade, Staged, TargetTree, Zeros};
use longhaul_proto::receiver::{Created, EntryRef, Partial, Room, Surveyed};
use tokio::sync::mpsc::UnboundedSender;

use super::{FileResult, SessionEvent};
use crate::cpu::StageTimes;
use crate::journals::SessionJournal;
use crate::journals::claims::HeldClaim;
use crate::session::dataset::StagedDataset;

use chunks::ChunkWrites;
use files::{OpenTarget, UnsettledFiles};
use jobs::{DestinationJobs, Pool};
use journalling::Journalling;
use names::NamedFiles;
use reading::Readings;
pub(crate) use shortage::Whereabouts;
use sums::{ReceivedSums, with_sums};

/// The things that a session keeps beside its tree.
#[derive(Clone, Default)]
pub(crate) struct Keeping {
    /// Its journal. `None` where nothing outlives it.
    pub(crate) ledger: Option<Arc<SessionJournal>>,
    /// The claim by which it publishes. `None` where it needs none.
    pub(crate) claim: Option<Arc<HeldClaim>>,
    /// The dataset as which everything appears together. `None`: each file appears when it is done.
    pub(crate) dataset: Option<Arc<StagedDataset>>,
}

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
    /// With the chunks whose bytes were given up.
    SyncData((FileId, Result<Vec<ChunkIndex>, Fault>)),
    /// Digests of chunks as the medium returns them.
    ReadBack { file: FileId, results: Vec<(ChunkIndex, Result<Digest, Fault>)> },
    /// Digests of chunks of a whole file, with its checksums up to the last of them.
    ReadInOrder { file: FileId, results: Vec<(ChunkIndex, Result<Digest, Fault>)>, hashing: Box<Hashing> },
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
    /// The further checksums of chunks of a file that were read here, not received.
    SumChunks(FileId, Vec<(ChunkIndex, PartSums)>),
    /// The further checksums of small files, which are being staged.
    SumSmall(Vec<(FileId, Arc<FileSums>)>),
    /// Names were staged.
    Stage(Vec<(FileId, Result<Staged, Fault>)>),
    /// A further name of a file was made or not. With the root of the file, if it is known.
    Name(FileId, NameMade, Option<Hash32>),
    /// The batch is durable under temporary names.
    /// With the files that are postponed.
    Barrier(Result<Vec<FileId>, Fault>),
    /// The batch was renamed.
    Publish(Vec<FileResult>),
    /// The session may not rename the batch.
    PublishRefused(Fault),
    /// The renames are durable.
    SyncDirs(Result<(), Fault>),
    /// Directories have their metadata.
    FinishDirs(Vec<FileResult>),
    /// The session may not change directories.
    FinishDirsRefused(Fault),
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
    /// The metadata that a file gets which is skipped as it has the same length and time. Where
    /// such files are replaced or compared they get it then.
    pub(crate) fitted: Preserve,
    /// Whether files that stand as the source has them may get further names: the rights allow to
    /// read and to replace them.
    pub(crate) names_standing: bool,
    /// Bytes of a buffer to read back and to read standing files. `None`: not wanted.
    pub(crate) reserve: Option<usize>,
    /// Bytes of a buffer to read skipped files. `None`: not wanted.
    pub(crate) digests: Option<usize>,
}

/// The destination side's workers. Dropping them waits until nothing is outstanding, then removes
/// unpublished files.
pub(crate) struct DestinationWorkers {
    options: DestinationOptions,
    chunks: ChunkWrites,
    /// Directories whose content is still coming.
    dirs: Arc<Mutex<survey::OpenDirectories>>,
    files: UnsettledFiles,
    jobs: DestinationJobs,
    journalling: Journalling,
    reading: Readings,
    /// Files that may get further names.
    named_files: NamedFiles,
    /// The same that are not committed yet.
    staged_identities: HashMap<FileId, Identity>,
    /// Further checksums of files that are not settled.
    sums: ReceivedSums,
    /// The last field: dropped when all pools have ended.
    aftermath: Aftermath,
}

impl DestinationWorkers {
    /// Starts the target side.
    pub(crate) fn start(
        tree: Arc<dyn TargetTree>,
        io: ChunkIo,
        (keeping, whereabouts): (Keeping, Whereabouts),
        options: DestinationOptions,
        times: StageTimes,
        sink: UnboundedSender<SessionEvent>,
    ) -> Result<DestinationWorkers, Fault> {
        let journalling = Journalling::new(keeping.ledger.clone(), keeping.dataset.clone());
        let aftermath = Aftermath { tree: tree.clone(), keeping };
        let affinity = io.affinity().clone();
        Ok(DestinationWorkers {
            aftermath,
            options,
            chunks: ChunkWrites::new(io, tree.loads().len()),
            dirs: Arc::default(),
            files: UnsettledFiles::default(),
            jobs: DestinationJobs::start(tree, whereabouts, &affinity, times, sink)?,
            journalling,
            reading: Readings::start(&options, affinity)?,
            named_files: NamedFiles::default(),
            staged_identities: HashMap::new(),
            sums: ReceivedSums::new(options.preserve.sums),
        })
    }

    /// Whether the disk has anything to do.
    pub(crate) fn is_at_work(&self) -> bool {
        self.jobs.under_way() > 0 || self.chunks.under_way() > 0 || self.reading.is_at_work()
    }

    /// Whether the disk has all the work that it takes at a time.
    pub(crate) fn is_full(&self) -> bool {
        self.jobs.is_full() || self.chunks.under_way() + self.jobs.under_way() >= self.chunks.depth()
    }

    /// Measures the room where a file would go: at once, or behind pending discards.
    pub(crate) fn measure_room(&self, held: Arc<EntryRef>, behind_discards: bool) {
        let pool = if behind_discards { Pool::Journal } else { Pool::Room };
        self.jobs.report(pool, move |tree| {
            // Where the file may be compressed, only a write tells whether it fits.
            let room = tree.room(&held.placed).filter(|room| room.is_firm);
            DestinationDone::MeasureRoom(room.map(|room| Room {
                device: room.device,
                bytes: room.bytes,
                inodes: room.inodes,
            }))
        });
    }

    /// Creates a temporary in chunks of this size, or opens the one of a partial.
    pub(crate) fn create(&self, held: Arc<EntryRef>, partial: Option<Arc<Partial>>, chunk: ChunkSize) {
        let preserve_holes = self.options.preserve.sparse;
        let ledger = self.journalling.ledger().cloned();
        self.jobs.report(Pool::Stage, move |tree| {
            let (fresh, sparse) = match held.entry.kind {
                EntryKind::File { len, sparse, .. } => (ChunkMap::new(len, chunk), sparse),
                EntryKind::Stream { .. } => (ChunkMap::unended(chunk), false),
                _ => return DestinationDone::Create(held.id, Err(bug("chunks for something that is no file"))),
            };
            let opened = match &ledger {
                Some(ledger) => ledger.open(tree, &held, partial.as_ref(), chunk, preserve_holes),
                None => tree
                    .create_known(
                        &held.placed,
                        fresh,
                        Zeros::from(sparse && preserve_holes),
                        &unwritten(),
                        &held.entry.meta,
                    )
                    .map(|target| (target, Created::Fresh))
                    .map_err(Fault::from),
            };
            let open = opened.map(|(target, created)| {
                let map = match &created {
                    Created::Continued(partial) => partial.map(),
                    Created::Fresh => fresh,
                };
                OpenTarget::new(target, tree.layout(), map, created)
            });
            DestinationDone::Create(held.id, open)
        });
    }

    /// Takes a temporary that was created. Returns the result for the machine.
    pub(crate) fn created(&mut self, file: FileId, result: Result<OpenTarget, Fault>) -> Result<Created, Fault> {
        let open = result?;
        let created = open.created().clone();
        self.files.opened(file, open);
        Ok(created)
    }

    /// Stages a symbolic link.
    pub(crate) fn make_link(&self, held: Arc<EntryRef>) {
        let (preserve, ledger) = (self.options.preserve, self.journalling.ledger().cloned());
        self.jobs.report(Pool::Stage, move |tree| {
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
        let target = self.files.target(file);
        self.jobs.report(Pool::Sync, move |tree| {
            let result = target.ok_or_else(|| bug("a sync of a file that is not open"));
            DestinationDone::SyncData((file, result.and_then(|target| tree.sync_data(&target).map_err(Fault::from))))
        });
    }

    /// Cuts a whole file to its length and sets its metadata, with the checksums that are kept.
    fn seal_with(&mut self, held: Arc<EntryRef>, sums: Option<FileSums>) {
        sums.iter().for_each(|sums| self.sums.staged(held.id, sums));
        // The file stays among the open files until it is known to be staged: if that fails, it is
        // kept or discarded as they are.
        let target = self.files.target(held.id);
        let preserve = self.options.preserve;
        self.jobs.report(Pool::Seal, move |tree| {
            let target = target.ok_or_else(|| bug("a seal of a file that is not open"));
            if let (Ok(target), EntryKind::File { len, .. }) = (&target, &held.entry.kind) {
                target.end_if_unended(*len);
            }
            let meta = with_sums(&held.entry.meta, sums.map(Arc::new));
            let staged = target.and_then(|target| tree.seal(target, &meta, preserve).map_err(Fault::from));
            DestinationDone::Stage(vec![(held.id, staged)])
        });
    }
}

/// Has the journal name a directory before the first temporary in it: by that name others know
/// whose it is.
fn begun<'a>(ledger: Option<&SessionJournal>, held: impl Iterator<Item = &'a Arc<EntryRef>>) -> Result<(), Fault> {
    ledger.map_or(Ok(()), |ledger| ledger.begin(held.map(|held| &**held)))
}

/// The work that is left when nothing is under way any more.
struct Aftermath {
    tree: Arc<dyn TargetTree>,
    /// The journal is closed first. The shard of a claim is free for a newer session of this
    /// process once nothing is under way then, and so is the place of a dataset.
    keeping: Keeping,
}

impl Drop for Aftermath {
    fn drop(&mut self) {
        if let Some(ledger) = &self.keeping.ledger {
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
