//! The operations of the file system for each action of the receiver's machine, in the order of the
//! promise.
//!
//! Takes actions and starts jobs, whose results `reports` gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_core::{Author, ChunkIndex, ChunkMap, ChunkSize, EntryKind, FileId, RelPath, TempName, Unit};
use longhaul_proto::journal::keeper::KeeperStep;
use longhaul_proto::receiver::{Created, EntryRef, JournalEntry, Partial, ReceiverAction, Replace, Source, Ticket};
use longhaul_proto::wire::message::Outcome;

use super::book::{JournalStep, given_up, steps_of, text};
use super::job::{Job, Queue, Step, Then};
use super::temp_dirs::{After, DirsStep};
use super::{Payload, Phase, RecvSession, Temp, stamp_of};
use crate::env::Env;
use crate::events::Event;
use crate::fs::{Ino, Node, Op, parent};
use crate::mutants::Mutant;
use crate::names::{SHELF, dirs_up, in_dir};

impl RecvSession {
    pub(super) fn order(&mut self, env: &mut Env, action: ReceiverAction) {
        match action {
            ReceiverAction::Send(message) => self.say(env, &message),
            ReceiverAction::Survey(page) => self.survey(env, page),
            ReceiverAction::MeasureRoom { .. } => self.start_job(env, Job::new(Then::Measured)),
            ReceiverAction::Create(held, partial, chunk) => self.create(env, &held, partial.as_ref(), chunk),
            ReceiverAction::MakeLink(held) => self.make_link(env, &held),
            ReceiverAction::MakeName { entry, first } => self.make_name(env, &entry, &first),
            ReceiverAction::Write { file, index, ticket } => self.write(env, file, index, ticket),
            ReceiverAction::WriteBundle { ticket, files } => self.write_bundle(env, ticket, &files),
            ReceiverAction::ReadStanding(files) => self.start_job(env, Job::new(Then::Standing(files))),
            ReceiverAction::DigestSkipped(files) => self.start_job(env, Job::new(Then::SkippedDigested(files))),
            ReceiverAction::ReadStandingChunks { base, chunks } => {
                self.start_job(env, Job::new(Then::StandingChunks(base, chunks)));
            }
            ReceiverAction::Copy { base, index, digest } => self.copy(env, &base, index, digest),
            ReceiverAction::Retouch { files, metadata } => self.retouch(env, &files, metadata),
            ReceiverAction::DropPayload(ticket) => self.drop_payload(env, ticket),
            ReceiverAction::SyncData(file) => self.sync_data(env, file),
            ReceiverAction::ReadBack { file, chunks } => self.start_job(env, Job::new(Then::ReadBack(file, chunks))),
            ReceiverAction::ReadInOrder { file, chunks } => {
                self.start_job(env, Job::new(Then::ReadInOrder(file, chunks)));
            }
            // Either way the medium is asked.
            ReceiverAction::ReadStaged { files, .. } => self.start_job(env, Job::new(Then::StagedReadBack(files))),
            ReceiverAction::Journal(records) => self.journal(env, records),
            ReceiverAction::Seal(held) => self.seal(env, &held),
            ReceiverAction::Barrier(batch) => {
                let postponed = self.postponed(env, &batch);
                self.barrier(env, &batch, postponed);
            }
            ReceiverAction::BarrierAgain(batch) => self.barrier(env, &batch, Vec::new()),
            ReceiverAction::Publish(renames) => self.publish(env, &renames),
            ReceiverAction::SyncDirs(batch) | ReceiverAction::SyncDirsAgain(batch) => self.sync_dirs(env, &batch),
            ReceiverAction::FinishDirs(dirs) => self.finish_dirs(env, &dirs),
            ReceiverAction::Discard(file) => self.discard(env, file),
            ReceiverAction::Release(file) => drop(self.temps.remove(&file)),
            ReceiverAction::Tidy => self.start_job(env, Job::new(Then::Tidied)),
            ReceiverAction::CloseLane(lane) => {
                let us = env.rng.below(1000);
                env.clock.after(us, Event::FarEnds(self.no, lane));
            }
            ReceiverAction::Settled(held, outcome) => self.settled(env, &held, &outcome),
            ReceiverAction::Finished(_) => {
                self.is_finished = true;
                self.close(env);
            }
            ReceiverAction::Abort(fault) => {
                env.say(|| format!("s{} receiver aborts: {fault}", self.no.0));
                env.check_abort("receiver", &fault);
                self.say(env, &longhaul_proto::Message::Refuse(fault));
                self.close(env);
            }
        }
    }

    /// Makes directories, and makes standing names durable: an earlier session may have made them
    /// and died before the sync, and files that are skipped or continued are called durable. Once a
    /// session for each directory.
    fn survey(&mut self, env: &mut Env, page: Vec<Arc<EntryRef>>) {
        let (standing, new): (Vec<_>, Vec<_>) =
            page.iter().map(|held| text(&held.placed)).partition(|path| env.fs.cached().names.contains_key(path));
        let dirs: BTreeSet<String> = standing.iter().flat_map(|path| dirs_up(path)).collect();
        let dirs: Vec<String> = dirs.difference(&self.dirs.synced).cloned().collect();
        if self.book.is_blind {
            // What was journalled of them may be in the journal that could not be read.
            page.iter().for_each(|held| env.ledger.forget(&text(&held.placed)));
        }
        self.dirs.made.extend(new);
        let names = &env.fs.cached().names;
        let may_be = |held: &EntryRef| matches!(names.get(&text(&held.placed)), None | Some(Node::Dir));
        let make = page.iter().filter(|held| held.entry.kind == EntryKind::Dir && may_be(held));
        let make = make.filter(|_| !env.plan.terms.dry_run);
        let make: Vec<Step> = make.map(|held| Step::new(Op::MakeDir(text(&held.placed))).of(held.id)).collect();
        let syncs: Vec<Op> = dirs.iter().cloned().map(Op::SyncDir).collect();
        let syncs = if env.is(Mutant::StandingNotSynced) { Vec::new() } else { syncs };
        // Journals are written to by one job at a time, and pages are surveyed in order.
        let queue = if env.plan.scene.claims_late { Queue::Journal } else { Queue::Survey };
        let claim = |held: &Arc<EntryRef>| Some(self.book.claim(&text(&held.placed))?.of(held.id));
        let claims: Vec<Step> = page.iter().filter(|_| queue == Queue::Journal).filter_map(claim).collect();
        let job = Job::new(Then::Surveyed(page, dirs)).in_order(queue).ops(syncs);
        self.start_job(env, make.into_iter().chain(claims).fold(job, Job::step));
    }

    /// Makes a temporary, or opens the one that an earlier session left. The journal has it before
    /// it exists; if the source has changed, the journal has durably revised its held chunks away
    /// before anything is written.
    fn create(&mut self, env: &mut Env, held: &Arc<EntryRef>, partial: Option<&Arc<Partial>>, chunk: ChunkSize) {
        let path = text(&held.placed);
        let (Some(stamp), EntryKind::File { len, .. }) = (stamp_of(held), &held.entry.kind) else { return };
        let kept = self.book.take(&path);
        let standing = kept.as_ref().and_then(|kept| env.fs.cached().file(&in_dir(&path, &kept.taken.file.temp)));
        if let (Some(kept), Some(ino), Some(partial)) = (&kept, standing, partial) {
            let mut job = Job::new(Then::Created(held.id, Created::Continued(partial.clone())));
            self.book.go_on(held.id, kept);
            env.seen.continued += 1;
            if partial.source() == Source::Same {
                // Its held chunks are called durable once they are continued.
                let chunks: Vec<_> = partial.iter().collect();
                env.ack(&path, stamp, partial.map(), &chunks);
                self.durable.insert(held.id, partial.bytes());
            } else {
                env.ledger.forget(&path);
                env.seen.revised += 1;
                let mut steps = kept.continuing(Some(stamp), None);
                if env.is(Mutant::ChangeNotSynced) {
                    steps.retain(|step| !matches!(step, KeeperStep::Sync(_)));
                }
                let steps = steps.into_iter().flat_map(|step| steps_of(step, &path, &[]));
                job = steps.fold(job.in_order(Queue::Journal), Job::step);
            }
            let temp = self.temp(held, in_dir(&path, &kept.taken.file.temp), ino, partial.map());
            self.temps.insert(held.id, Temp { continued: true, ..temp });
            return self.start_job(env, job.op(Op::SetLen(ino, padded(*len))));
        }
        env.begins_anew(&path, stamp, partial.is_some());
        let (temp, map) = (TempName::new(self.book.tag, env.rng.array()), ChunkMap::new(*len, chunk));
        let file = self.book.file(held, map, stamp, temp);
        let (name, ino) = (in_dir(&path, &temp), env.fs.new_ino());
        let stale = kept.iter().flat_map(|kept| given_up(&held.placed, kept));
        let job = stale
            .fold(Job::new(Then::Created(held.id, Created::Fresh)), Job::step)
            .journal(JournalStep::Dirs(DirsStep::Name(dir_of(held).into_iter().collect())))
            .journal(file)
            .ops([Op::MakeFile(name.clone(), ino), Op::SetLen(ino, padded(*len))])
            .step(Step::new(Op::Unlink(name.clone())).if_failed());
        let temp = self.temp(held, name, ino, map);
        self.temps.insert(held.id, temp);
        if let Some(sequence) = &mut self.arrivals.sequence {
            sequence.enter(held.id, map.chunks());
        }
        self.start_job(env, job);
    }

    fn temp(&self, held: &Arc<EntryRef>, name: String, ino: Ino, map: ChunkMap) -> Temp {
        let (unsynced, lost) = (BTreeSet::new(), BTreeSet::new());
        Temp { entry: held.clone(), name, ino, map, continued: false, name_synced: false, unsynced, lost }
    }

    fn write(&mut self, env: &mut Env, file: FileId, index: ChunkIndex, ticket: Ticket) {
        let job = Job::new(Then::Written(file, index));
        let (payload, temp) = (self.arrivals.payloads.remove(&ticket), self.temps.get_mut(&file));
        let (Some(Payload { bytes, hole, .. }), Some(temp)) = (payload, temp) else {
            return env.violate(|| format!("a write of {file:?} without its payload or its temporary"));
        };
        let was_lost = temp.lost.remove(&index);
        // A new file has zeros where nothing is written.
        let Some(mut bytes) = bytes.filter(|_| !hole || temp.continued || was_lost) else {
            return self.write_in_turn(env, file, index, job);
        };
        if env.is(Mutant::ShortTail) && index.0 + 1 == temp.map.chunks() {
            bytes.pop();
        }
        if was_lost && env.is(Mutant::LostNotRewritten) {
            return self.write_in_turn(env, file, index, job);
        }
        bytes.resize(padded(bytes.len() as u64), 0);
        let op = Op::Write { ino: temp.ino, offset: temp.map.start_of(index).0 as usize, bytes };
        self.write_in_turn(env, file, index, job.op(op));
    }

    /// Starts the write of a chunk, or keeps it until its turn has come.
    fn write_in_turn(&mut self, env: &mut Env, file: FileId, index: ChunkIndex, job: Job) {
        let Some(sequence) = &mut self.arrivals.sequence else { return self.start_job(env, job) };
        let due = sequence.put(file, index, job);
        self.machine.seen.rounds.early_most = sequence.early().max(self.machine.seen.rounds.early_most);
        due.into_iter().for_each(|job| self.start_job(env, job));
    }

    fn write_bundle(&mut self, env: &mut Env, ticket: Ticket, files: &[Arc<EntryRef>]) {
        let Some(Payload { bytes: Some(bytes), rows, .. }) = self.arrivals.payloads.remove(&ticket) else {
            return env.violate(|| "a bundle without its payload".to_owned());
        };
        self.write_unwanted(env, ticket, (&bytes, &rows), files);
        let rows: BTreeMap<_, _> = rows.into_iter().collect();
        let mut job = self.naming(Job::new(Then::Staged(files.iter().map(|held| held.id).collect())), files);
        for held in files {
            let content = bytes[rows[&held.id].clone()].to_vec();
            let temp = self.small_temp(env, held, content.len() as u64);
            let ops = [
                Op::MakeFile(temp.name.clone(), temp.ino),
                Op::Write { ino: temp.ino, offset: 0, bytes: content },
                Op::SetTime(temp.ino, held.entry.meta.mtime),
            ];
            job = ops.into_iter().map(|op| Step::new(op).of(held.id)).fold(job, Job::step);
            job = job.step(Step::new(Op::Unlink(temp.name)).of(held.id).if_failed());
        }
        self.start_job(env, job);
    }

    fn make_link(&mut self, env: &mut Env, held: &Arc<EntryRef>) {
        let EntryKind::Symlink { target } = held.entry.kind.clone() else { return };
        let temp = self.small_temp(env, held, 0);
        let job = self.naming(Job::new(Then::Staged(vec![held.id])), std::slice::from_ref(held));
        self.start_job(env, job.op(Op::MakeLink(temp.name, target)));
    }

    /// Lets a job begin by naming the directories in which it makes temporaries without a record.
    /// It waits for its turn at the journal if any of them is not named yet.
    pub(super) fn naming(&mut self, job: Job, files: &[Arc<EntryRef>]) -> Job {
        let unnamed = self.book.dirs.unnamed(files.iter().filter_map(dir_of));
        if unnamed.is_empty() { job } else { job.journal(JournalStep::Dirs(DirsStep::Name(unnamed))) }
    }

    /// A temporary that no journal speaks of.
    pub(super) fn small_temp(&mut self, env: &mut Env, held: &Arc<EntryRef>, len: u64) -> Temp {
        let name = in_dir(&text(&held.placed), &TempName::new(self.book.tag, env.rng.array()));
        let temp = self.temp(held, name, env.fs.new_ino(), ChunkMap::new(len, self.chunk));
        self.temps.insert(held.id, temp.clone());
        temp
    }

    fn drop_payload(&mut self, env: &mut Env, ticket: Ticket) {
        let Some(payload) = self.arrivals.payloads.remove(&ticket) else { return };
        if let Some(bytes) = &payload.bytes {
            self.write_unwanted(env, ticket, (bytes, &payload.rows), &[]);
        }
        if !env.is(Mutant::LateDuplicate) {
            return;
        }
        if let (Unit::Chunk { file, index }, Some(bytes)) = (payload.unit, payload.bytes) {
            self.planted.dropped.push((file, index, bytes));
            self.write_late(env);
        }
    }

    /// For a mutant: writes dropped payload of files that stand under their final names.
    fn write_late(&mut self, env: &mut Env) {
        for (file, index, bytes) in std::mem::take(&mut self.planted.dropped) {
            match self.planted.afterlife.get(&file) {
                Some((ino, map)) if index.0 < map.chunks() => {
                    let offset = map.start_of(index).0 as usize;
                    self.start_job(env, Job::new(Then::Nothing).op(Op::Write { ino: *ino, offset, bytes }));
                }
                _ => self.planted.dropped.push((file, index, bytes)),
            }
        }
    }

    /// Syncs the data, and the first time the name as well, so that a journalled chunk is found
    /// again.
    fn sync_data(&mut self, env: &mut Env, file: FileId) {
        let Some(temp) = self.temps.get_mut(&file) else { return };
        let mut ops = vec![Op::SyncFile(temp.ino)];
        if !temp.name_synced && !env.is(Mutant::NameNotSynced) {
            ops.extend(dirs_above(&self.dirs.made, &temp.name).into_iter().map(Op::SyncDir));
        }
        let then = Then::Synced(file, std::mem::take(&mut temp.unsynced));
        match env.mutant {
            Some(Mutant::JournalBeforeSync) => {
                self.start_job(env, Job::new(Then::Nothing).ops(ops));
                self.start_job(env, Job::new(then));
            }
            Some(Mutant::ChunkBeforeGroupSync) => {
                self.planted.late_syncs.extend(ops);
                self.start_job(env, Job::new(then));
            }
            Some(Mutant::ReceivedIsDurable) => self.start_job(env, Job::new(then)),
            _ => self.start_job(env, Job::new(then).ops(ops)),
        }
    }

    fn journal(&mut self, env: &mut Env, records: Vec<JournalEntry>) {
        let mut steps = self.book.records(&records);
        if env.is(Mutant::ReceivedIsDurable) {
            steps.clear();
        }
        let job = Job::new(Then::Journalled(records)).in_order(Queue::Journal);
        self.start_job(env, steps.into_iter().fold(job, Job::step));
        let late_syncs = std::mem::take(&mut self.planted.late_syncs);
        if !late_syncs.is_empty() {
            self.start_job(env, Job::new(Then::Nothing).in_order(Queue::Journal).ops(late_syncs));
        }
    }

    fn seal(&mut self, env: &mut Env, held: &Arc<EntryRef>) {
        let Some(temp) = self.temps.get(&held.id) else { return };
        let ops = [Op::SetLen(temp.ino, temp.map.len() as usize), Op::SetTime(temp.ino, held.entry.meta.mtime)];
        self.start_job(env, Job::new(Then::Staged(vec![held.id])).ops(ops));
    }

    /// The files of a batch whose target hangs.
    fn postponed(&mut self, env: &mut Env, batch: &[FileId]) -> Vec<FileId> {
        let often = env.plan.rates.hangs.files;
        let postponed: Vec<FileId> = batch.iter().filter(|_| env.mishap(often)).copied().collect();
        env.seen.files_postponed += postponed.len() as u64;
        postponed
    }

    fn barrier(&mut self, env: &mut Env, batch: &[FileId], postponed: Vec<FileId>) {
        let files = batch.iter().filter(|id| !postponed.contains(id)).filter_map(|id| self.temps.get(id));
        let files = files.filter(|temp| matches!(temp.entry.entry.kind, EntryKind::File { .. }));
        let syncs: Vec<Op> = files.map(|temp| Op::SyncFile(temp.ino)).collect();
        let syncs = if env.is(Mutant::RenameBeforeSync) { Vec::new() } else { syncs };
        let told = if env.is(Mutant::PostponedIsPublished) { Vec::new() } else { postponed };
        self.start_job(env, Job::new(Then::Barrier(told)).ops(syncs));
    }

    fn publish(&mut self, env: &mut Env, renames: &[(FileId, Replace)]) {
        let ids = renames.iter().map(|(id, _)| *id).collect();
        let rename = |(id, replace): &(FileId, Replace)| {
            let temp = self.temps.get(id)?;
            let (from, to) = (temp.name.clone(), text(&temp.entry.placed));
            Some(Step::new(Op::Rename { from, to, replace: *replace }).of(*id))
        };
        let job = renames.iter().filter_map(rename).fold(Job::new(Then::Published(ids)), Job::step);
        self.start_job(env, job);
    }

    /// The directories of the renames, and every one above that may be new.
    fn sync_dirs(&mut self, env: &mut Env, batch: &[FileId]) {
        let temps = batch.iter().filter_map(|id| self.temps.get(id));
        let mut dirs: BTreeSet<String> = temps.flat_map(|temp| dirs_above(&self.dirs.made, &temp.name)).collect();
        if env.is(Mutant::DirsNotSynced) {
            dirs.clear();
        }
        self.start_job(env, Job::new(Then::DirsSynced).ops(dirs.into_iter().rev().map(Op::SyncDir)));
    }

    /// The directories, and every name above them that may be new.
    fn finish_dirs(&mut self, env: &mut Env, dirs: &[Arc<EntryRef>]) {
        let mut job = Job::new(Then::DirsFinished(dirs.iter().map(|held| held.id).collect()));
        for held in dirs {
            let path = text(&held.placed);
            let syncs = std::iter::once(path.clone()).chain(dirs_above(&self.dirs.made, &path));
            job = syncs.map(|dir| Step::new(Op::SyncDir(dir)).of(held.id)).fold(job, Job::step);
        }
        self.start_job(env, job);
    }

    fn discard(&mut self, env: &mut Env, file: FileId) {
        let Some(temp) = self.temps.remove(&file) else { return };
        let placed = &temp.entry.placed;
        self.thin(env, placed);
        let unlink = Step::new(Op::Unlink(temp.name.clone())).anyway();
        let job = Job::new(Then::Nothing).in_order(Queue::Journal).step(unlink);
        if self.book.is_recorded(file) {
            env.ledger.forget(&text(placed));
        }
        let forgotten = self.book.given_up(file, placed, &temp.name);
        self.start_job(env, forgotten.into_iter().fold(job, Job::step));
    }

    /// A temporary of a name was removed, or may have been.
    fn thin(&mut self, env: &Env, placed: &RelPath) {
        if let Some(dir) = placed.parent().filter(|_| !env.is(Mutant::ThinnedForgotten)) {
            self.book.dirs.thinned(dir);
        }
    }

    fn settled(&mut self, env: &mut Env, held: &Arc<EntryRef>, outcome: &Outcome) {
        let path = text(&held.placed);
        env.say(|| format!("s{} {path} is {outcome:?}", self.no.0));
        match outcome {
            Outcome::Failed(fault) if fault.author == Author::Local => self.thin(env, &held.placed),
            Outcome::Committed(_) if held.entry.kind == EntryKind::DirEnd => {
                self.start_job(
                    env,
                    Job::new(Then::Nothing).journal(JournalStep::Dirs(DirsStep::Leave(held.placed.clone(), held.id))),
                );
            }
            _ => {}
        }
        // A file may have become short enough for a bundle, which does not continue its partial.
        let failed = matches!(outcome, Outcome::Failed(_) | Outcome::Planned | Outcome::Unsent);
        if !failed {
            self.drop_stale(env, &path);
        }
        self.remember_names(env, held, outcome);
        match (outcome, stamp_of(held)) {
            (Outcome::Committed(root), Some(stamp)) => {
                env.check_commit(&path, stamp, *root, self.roots.declared.get(&held.id).copied());
                self.durable.insert(held.id, stamp.len);
                if let Some(temp) = self.temps.remove(&held.id) {
                    self.planted.afterlife.insert(held.id, (temp.ino, temp.map));
                    self.write_late(env);
                }
                // A file that became short is staged whole and continues no partial.
                self.drop_stale(env, &path);
            }
            (Outcome::Linked(root), Some(stamp)) => {
                env.check_link(&path, stamp, *root);
                self.temps.remove(&held.id);
            }
            (Outcome::Equal(root), Some(stamp)) => env.check_equal(&path, stamp, *root),
            (Outcome::Skipped | Outcome::Stands(_), Some(_)) => {}
            _ => drop(self.temps.remove(&held.id)),
        }
        let due = self.arrivals.sequence.as_mut().map(|sequence| sequence.leave(held.id)).unwrap_or_default();
        due.into_iter().for_each(|job| self.start_job(env, job));
    }

    /// Drops the partial of a file that stands under its final name.
    fn drop_stale(&mut self, env: &mut Env, path: &str) {
        let Some(kept) = self.book.take(path) else { return };
        env.ledger.forget(path);
        let job = Job::new(Then::Nothing).in_order(Queue::Journal);
        self.start_job(env, given_up(&kept.taken.file.path, &kept).into_iter().fold(job, Job::step));
    }

    /// Leaves: removes files that were staged and not published, and the journal if nobody needs it
    /// any more.
    pub(super) fn leave(&mut self, env: &mut Env) {
        self.phase = Phase::Leaving;
        let temps = std::mem::take(&mut self.temps).into_iter();
        let staged = temps.filter(|(id, _)| !self.book.is_recorded(*id)).map(|(_, temp)| Op::Unlink(temp.name));
        let staged = staged.map(|op| Step::new(op).anyway());
        let shelf = [Op::SyncDir(SHELF.to_owned()), Op::RemoveDir(SHELF.to_owned()), Op::SyncDir(String::new())];
        let shelf = shelf.map(|op| Step::new(op).anyway());
        let after = if self.is_finished { After::AllSettled } else { After::Cut };
        let steps = staged.chain(self.book.put_away(after)).chain(shelf);
        self.start_job(env, steps.fold(Job::new(Then::Closed).in_order(Queue::Journal), Job::step));
    }

    pub(super) fn closed(&mut self, env: &mut Env) {
        self.phase = Phase::Closed;
        env.clock.after(0, Event::Closed(self.no));
    }
}

/// The directories whose syncs make a name durable: its own, and those in which this session made
/// one above it.
fn dirs_above(made: &BTreeSet<String>, name: &str) -> Vec<String> {
    let mut dirs = dirs_up(name);
    let own = dirs.remove(0);
    dirs.retain(|dir| made.iter().any(|path| parent(path) == dir));
    dirs.insert(0, own);
    dirs
}

/// The directory in which the temporary of an entry is made.
fn dir_of(held: &Arc<EntryRef>) -> Option<(RelPath, FileId)> {
    Some((held.placed.parent()?, held.id))
}

/// A length as direct writes need it.
fn padded(len: u64) -> usize {
    (len as usize).next_multiple_of(DIRECT_BYTES)
}

/// The alignment of direct writes here.
const DIRECT_BYTES: usize = 512;
