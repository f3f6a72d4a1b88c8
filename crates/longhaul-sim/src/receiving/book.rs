//! The journals of a receiving session on the simulated disk: found or begun, and the operations
//! that their machines decide.
//!
//! The machines that the engine has too decide what is written, and in which order
//! ([`keeper`]). This file knows where a journal lies and how long it is, turns changes into
//! operations, and is where mutants leave some of them out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use longhaul_core::{ChunkMap, FileId, Layout, RelPath, SessionTag, SourceStamp, TempName};
use longhaul_proto::journal::keeper::{
    self, Abandoned, Beginning, Failed, FoundPartial, JournalChange, JournalOp, JournalWrites, KeeperStep,
    PartialChoice, RecordedFiles, TakenPartial, TempDirs,
};
use longhaul_proto::journal::{self, FileRecord, HeldChunks, JournalId, Opened, Origin, Record};
use longhaul_proto::receiver::{self, EntryRef, Partial, Source};

use super::job::{Job, Queue, Step, Then};
use super::temp_dirs::DirsStep;
use crate::env::Env;
use crate::events::SessionNo;
use crate::fs::{Ino, Op};
use crate::mutants::Mutant;
use crate::names::{self, SHELF, in_dir};

/// A journal of a session: what its machine decides, and where it lies.
#[derive(Debug)]
pub(super) struct JournalOnDisk {
    tag: SessionTag,
    ino: Ino,
    /// Decides what is written to it.
    pub(super) machine: keeper::Book,
    /// Bytes that were written to it, or are on their way.
    len: usize,
    /// Bytes to the end of the last change that ended well.
    written: usize,
    /// The cut of what is not believed of it, before it is taken over.
    cut: Option<JournalChange>,
    /// The changes that are being carried out, in order, each with the length that it leads to.
    under_way: VecDeque<(JournalChange, usize)>,
}

/// The journals of a session.
#[derive(Debug)]
pub(super) struct Book {
    /// The tag of temporaries, and of the journal in which files are announced.
    pub(super) tag: SessionTag,
    /// The journals that stood when it began, and its own.
    pub(super) journals: BTreeMap<SessionTag, JournalOnDisk>,
    /// Whether a journal stands that could not be read.
    pub(super) is_blind: bool,
    /// The partials of earlier sessions, by final name.
    kept: BTreeMap<String, FoundPartial>,
    /// The files that earlier sessions committed.
    done: BTreeMap<String, SourceStamp>,
    /// The files of this session that stand in journals.
    files: RecordedFiles,
    /// The directories that its own journal names.
    pub(super) dirs: TempDirs,
    /// Whether its own journal stands.
    pub(super) is_begun: bool,
    /// Whether its own journal is that of an earlier session, of which temporaries may lie where it
    /// has none.
    pub(super) is_adopted: bool,
}

/// A step of a job that a machine decides when it is reached.
#[derive(Clone, Debug)]
pub(super) enum JournalStep {
    /// Takes a journal over, unless it is ours.
    TakeOver(SessionTag),
    /// Announces a file, under the next number.
    Announce(FileId, Box<FileRecord>),
    /// Appends records.
    Append(SessionTag, Vec<Record>),
    /// Makes durable all that was appended before.
    Sync(SessionTag),
    /// Removes the temporary of this name, if it stands.
    RemoveTemp(String),
    /// Appends that a file is given up, whose temporary has this name.
    Drop(SessionTag, u32, String),
    /// Removes the temporary of this name, if it stands, because this partial is continued.
    RemoveLoser(String, Box<(FileRecord, HeldChunks)>),
    /// A step about the directories of temporaries.
    Dirs(DirsStep),
}

/// The reason for a change of the journal, which mutants ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Takeover,
    Records,
}

impl Book {
    /// Finds the journals that stand, or begins one; the job does that on the disk.
    pub(super) fn open(env: &mut Env, no: SessionNo) -> (Book, Job) {
        let tag = SessionTag(env.rng.array());
        let mut book = Book {
            tag,
            journals: BTreeMap::new(),
            is_blind: false,
            kept: BTreeMap::new(),
            done: BTreeMap::new(),
            files: RecordedFiles::new(Layout::WHOLE),
            dirs: TempDirs::default(),
            is_begun: false,
            is_adopted: false,
        };
        let mut job = Job::new(Then::Opened).in_order(Queue::Journal);
        let mut stray = Vec::new();
        for name in env.fs.cached().names.keys().filter(|name| names::is_journal(name)).cloned().collect::<Vec<_>>() {
            if env.mishap(env.plan.rates.names.journals_unread) {
                env.say(|| format!("s{} cannot read {name}", no.0));
                book.is_blind = true;
                env.ledger.blind = Some(no.0);
            } else if !book.read(env, &name) {
                stray.push(name);
            }
        }
        job = book.choose(env).into_iter().fold(job, Job::step);
        if let Some(first) = book.journals.keys().next().filter(|_| !env.plan.scene.claims_late) {
            // Harsher than the engine, whose sessions begin a journal of their own: this one goes
            // on in a journal whose name may not be durable.
            (book.tag, book.is_begun, book.is_adopted) = (*first, true, true);
            for tag in book.journals.keys() {
                job = job.journal(JournalStep::TakeOver(*tag));
            }
        }
        let gone = stray.into_iter().map(Op::Unlink);
        let job = gone.fold(job, |job, op| job.step(Step::new(op).anyway()));
        (book, job)
    }

    /// The steps by which the session begins a journal of its own, when it first needs one: one
    /// that only continues partials has none. What an attempt that failed left of it goes first.
    pub(super) fn begin(&mut self, env: &mut Env, no: SessionNo) -> Vec<Step> {
        let (name, ino) = (names::journal(self.tag), env.fs.new_ino());
        let stale = env.fs.cached().names.contains_key(&name).then(|| Op::Unlink(name.clone()));
        let (machine, change) = keeper::Book::begin(JournalId(env.rng.array()), &beginning(no), Vec::new());
        let mut journal = JournalOnDisk::new(self.tag, ino, machine, 0);
        let made = [Op::MakeDir(SHELF.to_owned()), Op::SyncDir(String::new()), Op::MakeFile(name, ino)];
        let made = stale.into_iter().chain(made).map(Step::new);
        let opened = journal.steps(env, change, Reason::Records);
        self.journals.insert(self.tag, journal);
        // Its name is synced last, which is later than on a real shelf: so journals are met whose
        // name is not durable.
        let durable = [Step::journal(JournalStep::Sync(self.tag)), Step::new(Op::SyncDir(SHELF.to_owned()))];
        made.chain(opened).chain(durable).collect()
    }

    /// Reads a journal that was left. Gives whether it promised anything.
    fn read(&mut self, env: &mut Env, name: &str) -> bool {
        let (Some(tag), Some(ino)) = (names::journal_tag(name), env.fs.cached().file(name)) else { return false };
        let bytes = &env.fs.cached().content(ino).bytes;
        let Ok(replayed) = journal::replay(bytes) else { return false };
        let len = bytes.len();
        env.say(|| format!("{name} is read: {} files, {:?}", replayed.files.len(), replayed.end));
        self.done.extend(replayed.done.iter().map(|done| (text(&done.file.path), done.file.source)));
        let (machine, cut) = keeper::Book::left(replayed, len as u64);
        self.journals.insert(tag, JournalOnDisk { cut, ..JournalOnDisk::new(tag, ino, machine, len) });
        true
    }

    /// Chooses one partial of each name. Gives the steps by which the others are given up.
    fn choose(&mut self, env: &mut Env) -> Vec<Step> {
        let paths: BTreeSet<RelPath> =
            self.journals.values().flat_map(|journal| journal.machine.paths().cloned().collect::<Vec<_>>()).collect();
        let mut steps = Vec::new();
        for path in paths {
            let mut found = Vec::new();
            for (tag, journal) in &mut self.journals {
                let taken = std::iter::from_fn(|| journal.machine.take(&path));
                found.extend(taken.map(|taken| FoundPartial { journal: *tag, taken }));
            }
            let name = text(&path);
            let stands = |taken: &TakenPartial| env.fs.cached().names.contains_key(&in_dir(&name, &taken.file.temp));
            let Some(choice) = PartialChoice::of(found, stands) else { continue };
            // Each of them could have been continued: what was journalled of others is rightly
            // given up. A temporary that does not stand may have got its final name already.
            let is_renamed = !choice.losers.is_empty() && env.stands_offered(&name);
            if is_renamed || choice.losers.iter().any(|loser| stands(&loser.taken)) {
                env.ledger.forget(&name);
            }
            if choice.losers.is_empty() && env.plan.scene.claims_late {
                self.kept.insert(name, choice.winner);
                continue;
            }
            let winner = &choice.winner.taken;
            let winner = Box::new((winner.file.clone(), winner.held.clone()));
            let mut ordered = choice.steps(&path);
            if env.is(Mutant::LoserFirst) {
                ordered.rotate_left(1);
            }
            steps.extend(ordered.into_iter().flat_map(|step| match step {
                KeeperStep::RemoveTemp(temp) => {
                    vec![Step::journal(JournalStep::RemoveLoser(in_dir(&name, &temp), winner.clone()))]
                }
                step => steps_of(step, &name, &choice.losers),
            }));
            self.kept.insert(name, choice.winner);
        }
        steps
    }

    /// The operations of a step that is reached; none if the machine leaves all of it out.
    pub(super) fn resolve(&mut self, env: &mut Env, no: SessionNo, step: JournalStep) -> Result<Vec<Step>, Abandoned> {
        let (tag, step) = match step {
            JournalStep::RemoveLoser(temp, winner) => {
                env.check_winner(&winner.0, &winner.1);
                let stands = env.fs.cached().names.contains_key(&temp);
                return Ok(stands.then(|| Step::new(Op::Unlink(temp))).into_iter().collect());
            }
            JournalStep::RemoveTemp(temp) => {
                let stands = env.fs.cached().names.contains_key(&temp);
                let unlink = stands.then(|| Step::new(Op::Unlink(temp))).into_iter();
                let unchecked = env.is(Mutant::RemovalUnchecked);
                return Ok(unlink.map(|step| if unchecked { step.anyway() } else { step }).collect());
            }
            JournalStep::Drop(tag, number, temp) => {
                env.check_forgotten(&temp);
                (tag, JournalStep::Append(tag, vec![Record::Dropped { number }]))
            }
            JournalStep::Announce(file, record) => {
                let Some(journal) = self.journals.get_mut(&self.tag) else { return Ok(Vec::new()) };
                let record = FileRecord { number: journal.machine.number(), ..*record };
                self.files.begun(file, self.tag, &record, None);
                (self.tag, JournalStep::Append(self.tag, vec![Record::File(record)]))
            }
            JournalStep::Dirs(step) => return Ok(self.resolve_dirs(env, no, step)),
            JournalStep::TakeOver(tag) | JournalStep::Append(tag, _) | JournalStep::Sync(tag) => (tag, step),
        };
        let Some(journal) = self.journals.get_mut(&tag) else { return Ok(Vec::new()) };
        match step {
            JournalStep::TakeOver(_) => {
                let change = journal.machine.take_over(&beginning(no))?;
                let changes: Vec<JournalChange> = journal.cut.take().into_iter().chain(change).collect();
                Ok(changes.into_iter().flat_map(|change| journal.steps(env, change, Reason::Takeover)).collect())
            }
            JournalStep::Append(_, records) => {
                let change = journal.machine.append(records)?;
                Ok(change.map(|change| journal.steps(env, change, Reason::Records)).unwrap_or_default())
            }
            _ => {
                let change = journal.machine.sync()?;
                Ok(journal.steps(env, change, Reason::Records))
            }
        }
    }

    /// The change of a journal that is being carried out has ended well.
    pub(super) fn change_done(&mut self, tag: SessionTag) {
        if let Some(journal) = self.journals.get_mut(&tag)
            && let Some((change, len)) = journal.under_way.pop_front()
        {
            journal.written = len;
            journal.machine.done(change);
        }
    }

    /// An operation of a change of a journal failed. As on a real shelf, the change is undone if
    /// nothing of it stays: the part of an append that was written is cut off again, and a takeover
    /// writes again what was there. After any other failure nothing of the journal is relied on.
    pub(super) fn change_failed(&mut self, env: &mut Env, tag: SessionTag, op: &Op) {
        let Some(journal) = self.journals.get_mut(&tag) else { return };
        journal.len = journal.written;
        let how = match op {
            Op::SetLen(..) => Failed::Undone,
            Op::Write { offset, .. } if *offset < journal.written => Failed::Undone,
            Op::Write { .. } => journal.cut_off(env),
            _ => Failed::Broken,
        };
        env.say(|| format!("a change of {tag} is {how:?}"));
        let mut changes = std::mem::take(&mut journal.under_way).into_iter().map(|(change, _)| change);
        if env.is(Mutant::UndoneIsDone) && how == Failed::Undone {
            return changes.for_each(|change| journal.machine.done(change));
        }
        if matches!(op, Op::SetLen(..)) {
            journal.cut = changes.next();
        }
        journal.machine.failed(how);
    }

    /// The partial of a file for a source of this stamp, if there is one.
    pub(super) fn partial(&self, path: &str, stamp: SourceStamp) -> Option<Arc<Partial>> {
        let kept = &self.kept.get(path).filter(|kept| kept.taken.file.source.len == stamp.len)?.taken;
        let source = if kept.file.source == stamp { Source::Same } else { Source::Changed };
        Some(Arc::new(Partial::new(kept.file.map, source, kept.held.clone())))
    }

    /// Whether an earlier session committed this version.
    pub(super) fn was_done(&self, path: &str, stamp: SourceStamp) -> bool {
        self.done.get(path) == Some(&stamp)
    }

    /// The step by which the journal of a name's partial is taken over. `None` if there is none.
    pub(super) fn claim(&self, path: &str) -> Option<Step> {
        self.kept.get(path).map(|kept| Step::journal(JournalStep::TakeOver(kept.journal)))
    }

    /// Takes the record of a partial that is continued or given up.
    pub(super) fn take(&mut self, path: &str) -> Option<FoundPartial> {
        self.kept.remove(path)
    }

    /// Continues a file under the record that it has.
    pub(super) fn go_on(&mut self, file: FileId, kept: &FoundPartial) {
        self.files.continued(file, kept);
    }

    /// The announcement of a file that begins.
    pub(super) fn file(&self, held: &EntryRef, map: ChunkMap, source: SourceStamp, temp: TempName) -> JournalStep {
        let path = held.placed.clone();
        JournalStep::Announce(held.id, Box::new(FileRecord { number: 0, path, map, source, sparse: false, temp }))
    }

    /// Whether a file of this session stands in a journal.
    pub(super) fn is_recorded(&self, file: FileId) -> bool {
        self.files.number(file).is_some()
    }

    /// The steps by which the journal of a file forgets it. Its temporary was removed.
    pub(super) fn given_up(&mut self, file: FileId, placed: &RelPath, temp: &str) -> Vec<Step> {
        let dir = placed.parent().map(|dir| (dir.clone(), dir));
        let steps = self.files.given_up(file, (self.tag, &self.dirs), dir);
        let is_earlier = steps.len() > 1;
        let steps = steps.into_iter().flat_map(|step| match step {
            KeeperStep::Append { journal, records } if is_earlier => match records[..] {
                [Record::Dropped { number }] => {
                    vec![Step::journal(JournalStep::Drop(journal, number, temp.to_owned()))]
                }
                _ => vec![Step::journal(JournalStep::Append(journal, records))],
            },
            step => steps_of(step, &text(placed), &[]),
        });
        steps.collect()
    }

    /// The steps that write the receiver's entries.
    pub(super) fn records(&mut self, entries: &[receiver::JournalEntry]) -> Vec<Step> {
        let mut writes = JournalWrites::default();
        for entry in entries {
            match entry {
                receiver::JournalEntry::Chunks { file, chunks } => self.files.hold(*file, chunks, &mut writes),
                receiver::JournalEntry::Done(file) => self.files.done(*file, &mut writes),
                // A name that could not be synced is not lost here: the next sync of its directory
                // covers it.
                receiver::JournalEntry::Doubtful(_) => {}
            }
        }
        writes.into_steps().into_iter().flat_map(|step| steps_of(step, "", &[])).collect()
    }
}

impl JournalOnDisk {
    fn new(tag: SessionTag, ino: Ino, machine: keeper::Book, len: usize) -> JournalOnDisk {
        JournalOnDisk { tag, ino, machine, len, written: len, cut: None, under_way: VecDeque::new() }
    }

    /// Cuts off what an append that failed left, unless that fails as well.
    fn cut_off(&mut self, env: &mut Env) -> Failed {
        if env.is(Mutant::TornAppendKept) {
            self.len = env.fs.cached().content(self.ino).bytes.len();
            return Failed::Undone;
        }
        if env.rng.permille(300) {
            return Failed::Broken;
        }
        env.fs.cut(self.ino, self.written);
        Failed::Undone
    }

    /// A change as operations on the disk. The machine is told of its end by the last of them.
    fn steps(&mut self, env: &Env, change: JournalChange, why: Reason) -> Vec<Step> {
        let mut ops = Vec::new();
        for op in change.ops() {
            match op {
                // The file is longer than the machine takes it to be, and the appends follow that.
                JournalOp::Cut { .. } | JournalOp::Rewrite if env.is(Mutant::TornTailKept) => {}
                JournalOp::Rewrite if env.is(Mutant::CachedJournal) => {}
                JournalOp::Cut { len } => {
                    self.len = *len as usize;
                    ops.extend([Op::SetLen(self.ino, self.len), Op::SyncFile(self.ino)]);
                }
                JournalOp::Rewrite => {
                    let held = env.fs.cached().content(self.ino).bytes[..self.len].to_vec();
                    ops.push(Op::Write { ino: self.ino, offset: 0, bytes: held });
                    if !env.is(Mutant::ShelfNotSynced) {
                        ops.extend([Op::SyncDir(SHELF.to_owned()), Op::SyncDir(String::new())]);
                    }
                    ops.push(Op::SyncFile(self.ino));
                }
                JournalOp::Append(bytes) => {
                    ops.push(Op::Write { ino: self.ino, offset: self.len, bytes: bytes.clone() });
                    self.len += bytes.len();
                }
                JournalOp::Sync => ops.push(Op::SyncFile(self.ino)),
            }
        }
        if why == Reason::Takeover && env.is(Mutant::TakeoverNotSynced) {
            ops.retain(|op| !matches!(op, Op::SyncFile(_)));
        }
        let Some(last) = ops.pop() else {
            self.machine.done(change);
            return Vec::new();
        };
        self.under_way.push_back((change, self.len));
        let within = ops.into_iter().map(|op| Step::new(op).within_change(self.tag));
        within.chain([Step::new(last).ending_change(self.tag)]).collect()
    }
}

/// The steps by which the partial of this name is given up.
pub(super) fn given_up(path: &RelPath, kept: &FoundPartial) -> Vec<Step> {
    let name = text(path);
    kept.given_up(path).into_iter().flat_map(|step| steps_of(step, &name, std::slice::from_ref(kept))).collect()
}

/// A step of the journal's machines as steps of a job. `name` is the final name that it is about,
/// of which these partials are given up.
pub(super) fn steps_of(step: KeeperStep, name: &str, given_up: &[FoundPartial]) -> Vec<Step> {
    let step = match step {
        KeeperStep::TakeOver(tag) => JournalStep::TakeOver(tag),
        KeeperStep::RemoveTemp(temp) => JournalStep::RemoveTemp(in_dir(name, &temp)),
        KeeperStep::SyncNames(dirs) => {
            return dirs.iter().map(|dir| Step::new(Op::SyncDir(text(dir)))).collect();
        }
        KeeperStep::Sync(tag) => JournalStep::Sync(tag),
        KeeperStep::Append { journal, records } => {
            let is_it = |found: &&FoundPartial| records == [Record::Dropped { number: found.taken.number }];
            let found = given_up.iter().filter(|found| found.journal == journal).find(is_it);
            match found.map(|found| (found.taken.number, in_dir(name, &found.taken.file.temp))) {
                Some((number, temp)) => JournalStep::Drop(journal, number, temp),
                None => JournalStep::Append(journal, records),
            }
        }
    };
    vec![Step::journal(step)]
}

fn beginning(no: SessionNo) -> Beginning {
    let opened = Opened {
        principal: "uid:1".to_owned(),
        owner: "someone".to_owned(),
        pid: 1,
        at_unix: u64::from(no.0),
        generation: 1,
        session: [no.0 as u8; 16],
    };
    Beginning { opened, origin: Origin::default(), layout: Layout::WHOLE }
}

/// A path as the file system has it.
pub(super) fn text(path: &RelPath) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}
