//! The target side of a session: has done on the disk what the receiver's machine orders, and reports each outcome.
//!
//! Owns the payload of arrivals until their verdict, open target files and staged names. Chunks are written by `disk`
//! with its depth; everything else by small pools: surveys in order, staging in parallel, group syncs beside the
//! writes, batches one step after the other.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::{
    Blame, ChunkIndex, ChunkSize, EntryKind, Fault, FaultCode, FileId, Preserve, RelPath, SessionTag, TempName,
};
use longhaul_disk::{ChunkIo, DiskError, Made, Staged, Standing, TargetFile, TargetTree};
use longhaul_proto::receiver::{Held, Replace, Seen, Ticket};
use longhaul_sys::Slot;
use tokio::sync::mpsc::UnboundedSender;

use super::{Event, FileResult};
use crate::cpu::{Stage, StageTimes};
use crate::faults::system_fault;
use crate::lane::join::nonce;
use crate::lane::receive::Arrival;
use crate::workers::Workers;

/// What the target side reports; each goes to the `handle_*` of its name.
#[derive(Debug)]
pub(crate) enum Report {
    /// What stands under the names of a page.
    Surveyed { first: FileId, seen: Vec<Result<Seen, Fault>> },
    /// A temporary file stands.
    Created(FileId, Result<Arc<TargetFile>, Fault>),
    /// A chunk is written.
    Written { file: FileId, index: ChunkIndex, result: Result<(), Fault> },
    /// A file's data is synced.
    Synced(FileResult),
    /// Names are staged.
    Staged(Vec<(FileId, Result<Staged, Fault>)>),
    /// The batch is durable under temporary names.
    Barrier(Result<(), Fault>),
    /// The batch is renamed.
    Published(Vec<FileResult>),
    /// The renames are durable.
    DirsSynced(Result<(), Fault>),
    /// Directories have their metadata.
    DirsFinished(Vec<FileResult>),
}

/// How the target side works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WritingOptions {
    /// Chunk size of the session.
    pub(crate) chunk: ChunkSize,
    /// Which metadata is set.
    pub(crate) preserve: Preserve,
    /// Look, but touch nothing.
    pub(crate) dry_run: bool,
}

/// The target side. Dropping it waits until nothing is outstanding, then removes what was not published.
pub(crate) struct Writing {
    tree: Arc<dyn TargetTree>,
    io: ChunkIo,
    options: WritingOptions,
    times: StageTimes,
    sink: UnboundedSender<Event>,
    payload: HashMap<Ticket, Payload>,
    /// Directories that this session made and whose content is still coming: no more than a path has levels.
    fresh: Arc<Mutex<HashSet<RelPath>>>,
    files: HashMap<FileId, Arc<TargetFile>>,
    staged: HashMap<FileId, Staged>,
    batch: Arc<Batch>,
    survey: Workers,
    stage: Workers,
    sync: Workers,
    commit: Workers,
    tag: SessionTag,
    /// Behind the pools: what is left goes when nothing works on it any more.
    begun: Begun,
}

/// Temporaries of large files that were ordered and are not committed. Dropping it removes them.
struct Begun {
    tree: Arc<dyn TargetTree>,
    temps: HashMap<FileId, (RelPath, TempName)>,
}

/// What an arrival brought, until its verdict.
#[derive(Debug, Default)]
struct Payload {
    /// The bytes; none for a hole.
    slot: Option<Slot>,
    len: usize,
    /// Where each file of a bundle lies in them.
    rows: Vec<(FileId, Range<usize>)>,
}

/// Staged names that are committed together; both lists are in the same order.
#[derive(Debug, Default)]
struct Batch {
    files: Vec<FileId>,
    staged: Vec<Staged>,
}

/// Threads that create, write and seal: creating names waits for the directory's lock more than for the processor.
const STAGERS: usize = 4;
/// Group syncs at a time.
const SYNCERS: usize = 2;

impl Writing {
    /// Starts the target side.
    pub(crate) fn start(
        tree: Arc<dyn TargetTree>,
        io: ChunkIo,
        options: WritingOptions,
        times: StageTimes,
        sink: UnboundedSender<Event>,
    ) -> Result<Writing, Fault> {
        let pool = |name, n| Workers::start(name, n).map_err(|e| system_fault("file threads", &e));
        Ok(Writing {
            tag: SessionTag(random()?),
            begun: Begun { tree: tree.clone(), temps: HashMap::new() },
            tree,
            io,
            options,
            times,
            sink,
            payload: HashMap::new(),
            fresh: Arc::default(),
            files: HashMap::new(),
            staged: HashMap::new(),
            batch: Arc::default(),
            survey: pool("survey", 1)?,
            stage: pool("stage", STAGERS)?,
            sync: pool("sync", SYNCERS)?,
            commit: pool("commit", 1)?,
        })
    }

    /// Keeps an arrival's payload for the verdict that follows.
    pub(crate) fn keep(&mut self, arrival: &mut Arrival) {
        let len = arrival.landed.piece.len as usize;
        let payload = Payload { slot: arrival.slot.take(), len, rows: std::mem::take(&mut arrival.rows) };
        self.payload.insert(arrival.landed.ticket, payload);
    }

    /// Gives a payload's buffer back.
    pub(crate) fn drop_payload(&mut self, ticket: Ticket) {
        self.payload.remove(&ticket);
    }

    /// Runs `job` on a pool and sends what it reports.
    fn report(&self, pool: &Workers, job: impl FnOnce(&dyn TargetTree) -> Report + Send + 'static) {
        let (tree, sink, times) = (self.tree.clone(), self.sink.clone(), self.times.clone());
        pool.run(move || {
            let report = times.count(Stage::Files, || job(&*tree));
            let _ = sink.send(Event::Wrote(report));
        });
    }

    /// Looks at what stands under the names of a page, making its directories.
    pub(crate) fn survey(&self, page: Vec<Arc<Held>>) {
        let (dry_run, fresh) = (self.options.dry_run, self.fresh.clone());
        self.report(&self.survey, move |tree| {
            let mut fresh = fresh.lock().unwrap_or_else(PoisonError::into_inner);
            Report::Surveyed {
                first: page.first().map_or(FileId(0), |held| held.id),
                seen: page.iter().map(|held| look(tree, held, dry_run, &mut fresh).map_err(|e| e.fault())).collect(),
            }
        });
    }

    /// Makes a temporary file.
    pub(crate) fn create(&mut self, held: Arc<Held>) {
        let preserve_holes = self.options.preserve.sparse;
        let temp = random().map(|random| TempName::new(self.tag, random));
        if let Ok(temp) = &temp {
            self.begun.temps.insert(held.id, (held.placed.clone(), *temp));
        }
        self.report(&self.stage, move |tree| {
            let EntryKind::File { len, sparse } = held.entry.kind else {
                return Report::Created(held.id, Err(bug("chunks for something that is no file")));
            };
            let create = |temp| tree.create(&held.placed, len, sparse && preserve_holes, &temp).map_err(|e| e.fault());
            Report::Created(held.id, temp.and_then(create))
        });
    }

    /// Takes a temporary file that stands; gives what the machine wants to know.
    pub(crate) fn created(&mut self, file: FileId, result: Result<Arc<TargetFile>, Fault>) -> Result<(), Fault> {
        self.files.insert(file, result?);
        Ok(())
    }

    /// Writes a verified chunk. A hole needs no write.
    pub(crate) fn write(&mut self, file: FileId, index: ChunkIndex, ticket: Ticket) {
        let (Some(Payload { slot, len, .. }), Some(target)) = (self.payload.remove(&ticket), self.files.get(&file))
        else {
            let result = Err(bug("a verified chunk without its payload or file"));
            let _ = self.sink.send(Event::Wrote(Report::Written { file, index, result }));
            return;
        };
        let Some(slot) = slot else {
            let _ = self.sink.send(Event::Wrote(Report::Written { file, index, result: Ok(()) }));
            return;
        };
        let place = target.place(index.start(self.options.chunk).0);
        let sink = self.sink.clone();
        let done = move |slot: Slot, result: Result<(), DiskError>| {
            drop(slot);
            let _ = sink.send(Event::Wrote(Report::Written { file, index, result: result.map_err(|e| e.fault()) }));
        };
        self.io.write(target.clone(), place, len, slot, Box::new(done));
    }

    /// Writes verified files of a bundle under temporary names.
    pub(crate) fn write_bundle(&mut self, ticket: Ticket, files: Vec<Arc<Held>>) {
        let Payload { slot, rows, .. } = self.payload.remove(&ticket).unwrap_or_default();
        let preserve = self.options.preserve;
        self.report(&self.stage, move |tree| {
            let rows: HashMap<FileId, Range<usize>> = rows.into_iter().collect();
            let stage = |held: &Arc<Held>| {
                let bytes = rows.get(&held.id).cloned().and_then(|range| slot.as_ref()?.get(range));
                let bytes = bytes.ok_or_else(|| bug("a verified file without its payload"))?;
                tree.write_small(&held.placed, bytes, &held.entry.meta, preserve).map_err(|e| e.fault())
            };
            Report::Staged(files.iter().map(|held| (held.id, stage(held))).collect())
        });
    }

    /// Stages a symbolic link.
    pub(crate) fn make_link(&self, held: Arc<Held>) {
        let preserve = self.options.preserve;
        self.report(&self.stage, move |tree| {
            let result = match &held.entry.kind {
                EntryKind::Symlink { target } => {
                    tree.make_link(&held.placed, target, &held.entry.meta, preserve).map_err(|e| e.fault())
                }
                _ => Err(bug("a link that is none")),
            };
            Report::Staged(vec![(held.id, result)])
        });
    }

    /// Syncs what was written to a file so far.
    pub(crate) fn sync_data(&self, file: FileId) {
        let target = self.files.get(&file).cloned();
        self.report(&self.sync, move |tree| {
            let result = target.ok_or_else(|| bug("a sync of a file that is not open"));
            Report::Synced((file, result.and_then(|target| tree.sync_data(&target).map_err(|e| e.fault()))))
        });
    }

    /// Cuts a whole file to its length and sets its metadata.
    pub(crate) fn seal(&mut self, held: Arc<Held>) {
        let target = self.files.remove(&held.id);
        let preserve = self.options.preserve;
        self.report(&self.stage, move |tree| {
            let target = target.ok_or_else(|| bug("a seal of a file that is not open"));
            let staged = target.and_then(|target| tree.seal(target, &held.entry.meta, preserve).map_err(|e| e.fault()));
            Report::Staged(vec![(held.id, staged)])
        });
    }

    /// Keeps what was staged; gives what the machine wants to know.
    pub(crate) fn staged(&mut self, results: Vec<(FileId, Result<Staged, Fault>)>) -> Vec<FileResult> {
        let keep = |(id, result): (FileId, Result<Staged, Fault>)| {
            (id, result.map(|staged| drop(self.staged.insert(id, staged))))
        };
        results.into_iter().map(keep).collect()
    }

    /// Makes a batch durable under its temporary names.
    pub(crate) fn barrier(&mut self, files: &[FileId]) {
        let (files, staged) = files.iter().filter_map(|id| Some((*id, self.staged.remove(id)?))).unzip();
        self.batch = Arc::new(Batch { files, staged });
        let batch = self.batch.clone();
        self.report(&self.commit, move |tree| Report::Barrier(tree.barrier(&batch.staged).map_err(|e| e.fault())));
    }

    /// Renames a batch.
    pub(crate) fn publish(&self, renames: Vec<(FileId, Replace)>) {
        let batch = self.batch.clone();
        self.report(&self.commit, move |tree| {
            let staged: HashMap<FileId, &Staged> = batch.files.iter().copied().zip(&batch.staged).collect();
            let rename = |(id, replace): (FileId, Replace)| {
                let replace = match replace {
                    Replace::Allowed => longhaul_disk::Replace::Allowed,
                    Replace::Never => longhaul_disk::Replace::Never,
                };
                let result = staged.get(&id).ok_or_else(|| bug("a rename of what is not staged"));
                (id, result.and_then(|staged| tree.publish(staged, replace).map_err(|e| e.fault())))
            };
            Report::Published(renames.into_iter().map(rename).collect())
        });
    }

    /// Makes the batch's renames durable.
    pub(crate) fn sync_dirs(&self) {
        let batch = self.batch.clone();
        self.report(&self.commit, move |tree| Report::DirsSynced(tree.sync_dirs(&batch.staged).map_err(|e| e.fault())));
    }

    /// Lets go of a batch; what of it was not published goes away.
    pub(crate) fn end_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        batch.files.iter().for_each(|file| drop(self.begun.temps.remove(file)));
        self.stage.run(move || batch.staged.iter().for_each(Staged::discard));
    }

    /// Sets mode and times of directories and makes that durable.
    pub(crate) fn finish_dirs(&self, dirs: Vec<Arc<Held>>) {
        let preserve = self.options.preserve;
        self.report(&self.commit, move |tree| {
            let finish = |held: &Arc<Held>| {
                (held.id, tree.finish_dir(&held.placed, &held.entry.meta, preserve).map_err(|e| e.fault()))
            };
            let mut results: Vec<FileResult> = dirs.iter().map(finish).collect();
            if let Err(e) = tree.sync_dirs(&[]) {
                let fault = e.fault();
                results.iter_mut().for_each(|(_, result)| *result = result.clone().and(Err(fault.clone())));
            }
            Report::DirsFinished(results)
        });
    }

    /// Removes what was made for a file.
    pub(crate) fn discard(&mut self, file: FileId) {
        let gone = (self.files.remove(&file), self.staged.remove(&file));
        let (tree, begun) = (self.tree.clone(), self.begun.temps.remove(&file));
        self.stage.run(move || {
            drop(gone);
            begun.into_iter().for_each(|(path, temp)| remove(&*tree, &path, &temp));
        });
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.temps.values().for_each(|(path, temp)| remove(&*self.tree, path, temp));
    }
}

fn remove(tree: &dyn TargetTree, path: &RelPath, temp: &TempName) {
    if let Err(error) = tree.remove_temp(path, temp) {
        tracing::warn!(%error, "cannot remove a temporary file");
    }
}

/// Random bytes for a name.
fn random() -> Result<[u8; 8], Fault> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&nonce()?[..8]);
    Ok(bytes)
}

/// What stands under a name; directories are made.
fn look(tree: &dyn TargetTree, held: &Held, dry_run: bool, fresh: &mut HashSet<RelPath>) -> Result<Seen, DiskError> {
    match held.entry.kind {
        EntryKind::DirEnd => {
            fresh.remove(&held.placed);
            Ok(Seen::Absent)
        }
        EntryKind::Unsent { .. } => Ok(Seen::Absent),
        EntryKind::Dir if !dry_run => {
            if tree.make_dir(&held.placed)? == Made::Created {
                fresh.insert(held.placed.clone());
            }
            Ok(Seen::Dir)
        }
        // Nothing stands in a directory that was made a moment ago: a look at each name there would cost as much as
        // making it. Whoever puts something there meanwhile is met by the rename, which replaces only if it may.
        _ if held.placed.parent().is_some_and(|parent| fresh.contains(&parent)) => Ok(Seen::Absent),
        _ => Ok(match tree.examine(&held.placed)? {
            None => Seen::Absent,
            Some(Standing::File { len, meta }) => Seen::File { len, mtime: meta.mtime },
            Some(Standing::Dir { .. }) => Seen::Dir,
            Some(Standing::Symlink { target, .. }) => Seen::Symlink { target },
            Some(Standing::Special { .. }) => Seen::Special,
        }),
    }
}

fn bug(message: &str) -> Fault {
    Fault::new(FaultCode::Internal, Blame::Bug, message)
}
