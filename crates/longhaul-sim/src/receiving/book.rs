//! The journal of a receiving session on the simulated disk: found or begun, and the operations
//! that its machine decides.
//!
//! What is written, and in which order, is decided by the machine that the engine has too
//! ([`keeper::Book`]). This file knows where the journal lies and how long it is, turns changes
//! into operations, and is where mutants leave some of them out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use longhaul_core::{ChunkIndex, ChunkMap, FileId, RelPath, SessionTag, SourceStamp, TempName};
use longhaul_proto::journal::keeper::{self, Abandoned, Beginning, Failed, JournalChange, JournalOp, TakenPartial};
use longhaul_proto::journal::{self, FileRecord, JournalId, Opened, Origin, Record, Run, Stretch};
use longhaul_proto::receiver::{self, EntryRef, Partial, Source};

use super::job::{Job, Queue, Step, Then};
use crate::env::{Env, SessionNo};
use crate::fs::{Ino, Op};
use crate::mutants::Mutant;
use crate::names::{self, SHELF};

/// The journal of a session: what the machine decides of it, and where it lies.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) name: String,
    pub(super) tag: SessionTag,
    pub(super) ino: Ino,
    machine: keeper::Book,
    /// Bytes that were written to it, or are on their way.
    len: usize,
    /// The changes that are being carried out, in order.
    under_way: VecDeque<JournalChange>,
    /// The partials of earlier sessions, by final name.
    kept: BTreeMap<String, TakenPartial>,
    /// The files that earlier sessions committed.
    done: BTreeMap<String, SourceStamp>,
    /// Files of this session.
    numbers: BTreeMap<FileId, u32>,
}

/// A step of a job that the journal's machine decides when it is reached.
#[derive(Clone, Debug)]
pub(super) enum JournalStep {
    /// Announces a file, under the next number.
    Announce(FileId, Box<FileRecord>),
    /// Appends records.
    Append(Vec<Record>),
    /// Makes durable all that was appended before.
    Sync,
}

/// The reason for a change of the journal, which mutants ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Takeover,
    Records,
}

impl Book {
    /// Finds the journal that stands, or begins one; the job does that on the disk.
    pub(super) fn open(env: &mut Env, no: SessionNo) -> (Book, Job) {
        let view = env.fs.cached();
        let standing: Vec<String> = view.names.keys().filter(|name| names::is_journal(name)).cloned().collect();
        let replayed = standing.iter().find_map(|name| {
            let ino = view.file(name)?;
            Some((name.clone(), ino, journal::replay(&view.content(ino).bytes).ok()?))
        });
        let (book, job) = match replayed {
            Some((name, ino, replayed)) => Book::take_over(env, no, (name, ino), replayed),
            None => Book::begin(env, no),
        };
        let stray = standing.into_iter().filter(|name| *name != book.name).map(Op::Unlink);
        let job = stray.fold(job, |job, op| job.step(Step::new(op).anyway()));
        let job = book.sweep(env).into_iter().fold(job, |job, op| job.step(Step::new(op).anyway()));
        (book, job.in_order(Queue::Journal))
    }

    fn begin(env: &mut Env, no: SessionNo) -> (Book, Job) {
        let tag = SessionTag(env.rng.array());
        let (name, ino) = (names::journal(tag), env.fs.new_ino());
        let (machine, change) = keeper::Book::begin(JournalId(env.rng.array()), &beginning(no), Vec::new());
        let mut book = Book::with(machine, tag, (name.clone(), ino), 0);
        let job = Job::new(Then::Opened).ops([
            Op::MakeDir(SHELF.to_owned()),
            Op::SyncDir(String::new()),
            Op::MakeFile(name, ino),
        ]);
        let job = book.steps(env, change, Reason::Records).into_iter().fold(job, Job::step);
        // Its name is synced last, which is later than on a real shelf: so journals are met whose
        // name is not durable.
        (book, job.journal(JournalStep::Sync).op(Op::SyncDir(SHELF.to_owned())))
    }

    fn take_over(env: &mut Env, no: SessionNo, (name, ino): (String, Ino), replayed: journal::Replayed) -> (Book, Job) {
        env.say(|| format!("s{} takes over {name}: {} files, {:?}", no.0, replayed.files.len(), replayed.end));
        let mut done = BTreeMap::new();
        done.extend(replayed.done.iter().map(|done| (text(&done.file.path), done.file.source)));
        let paths: BTreeSet<RelPath> = replayed.files.values().map(|partial| partial.file.path.clone()).collect();
        let len = env.fs.cached().content(ino).bytes.len();
        let (mut machine, cut) = keeper::Book::left(replayed, len as u64);
        let (mut kept, mut dropped) = (BTreeMap::new(), Vec::new());
        for path in paths {
            // The later of two files with one name counts: the earlier was about to be dropped.
            kept.extend(machine.take(&path).map(|taken| (text(&path), taken)));
            dropped.extend(std::iter::from_fn(|| machine.take(&path)).map(|taken| taken.number));
        }
        let ours = machine.take_over(&beginning(no)).ok().flatten();
        let tag = SessionTag(env.rng.array());
        let mut book = Book { kept, done, ..Book::with(machine, tag, (name, ino), len) };
        let job = cut.into_iter().chain(ours).fold(Job::new(Then::Opened), |job, change| {
            book.steps(env, change, Reason::Takeover).into_iter().fold(job, Job::step)
        });
        let dropped: Vec<Record> = dropped.into_iter().map(|number| Record::Dropped { number }).collect();
        (book, job.journal(JournalStep::Append(dropped)))
    }

    fn with(machine: keeper::Book, tag: SessionTag, (name, ino): (String, Ino), len: usize) -> Book {
        Book {
            name,
            tag,
            ino,
            machine,
            len,
            under_way: VecDeque::new(),
            kept: BTreeMap::new(),
            done: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// The operations of a step that is reached; none if the machine leaves all of it out.
    pub(super) fn resolve(&mut self, env: &Env, step: JournalStep) -> Result<Vec<Step>, Abandoned> {
        let change = match step {
            JournalStep::Announce(file, record) => {
                let number = self.machine.number();
                self.numbers.insert(file, number);
                self.machine.append(vec![Record::File(FileRecord { number, ..*record })])?
            }
            JournalStep::Append(records) => self.machine.append(records)?,
            JournalStep::Sync => Some(self.machine.sync()?),
        };
        Ok(change.map(|change| self.steps(env, change, Reason::Records)).unwrap_or_default())
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
        let mut steps: Vec<Step> = ops.into_iter().map(Step::new).collect();
        match steps.pop() {
            Some(last) => {
                steps.push(last.ending_change());
                self.under_way.push_back(change);
            }
            None => self.machine.done(change),
        }
        steps
    }

    /// The change that is being carried out has ended well.
    pub(super) fn change_done(&mut self) {
        if let Some(change) = self.under_way.pop_front() {
            self.machine.done(change);
        }
    }

    /// An operation on the journal failed; part of a write may be there.
    pub(super) fn change_failed(&mut self) {
        self.under_way.clear();
        self.machine.failed(Failed::Broken);
    }

    /// Removes temporaries that no record speaks of.
    fn sweep(&self, env: &Env) -> Vec<Op> {
        let claimed = |temp: &TempName| self.kept.values().any(|kept| kept.file.temp == *temp);
        let orphan = |name: &&String| names::temp(name).is_some_and(|temp| !claimed(&temp));
        env.fs.cached().names.keys().filter(orphan).map(|name| Op::Unlink(name.clone())).collect()
    }

    /// The partial of a file for a source of this stamp, if there is one.
    pub(super) fn partial(&self, path: &str, stamp: SourceStamp) -> Option<Arc<Partial>> {
        let kept = self.kept.get(path).filter(|kept| kept.file.source.len == stamp.len)?;
        let source = if kept.file.source == stamp { Source::Same } else { Source::Changed };
        Some(Arc::new(Partial::new(kept.file.map, source, kept.held.clone())))
    }

    /// Whether an earlier session committed this version.
    pub(super) fn was_done(&self, path: &str, stamp: SourceStamp) -> bool {
        self.done.get(path) == Some(&stamp)
    }

    /// Takes the record of a partial that is continued or removed.
    pub(super) fn take(&mut self, path: &str) -> Option<TakenPartial> {
        self.kept.remove(path)
    }

    /// Continues a file under the record that it has.
    pub(super) fn go_on(&mut self, file: FileId, kept: &TakenPartial) {
        self.numbers.insert(file, kept.number);
    }

    /// The record of a file that continues from another version of its source: none of its chunks
    /// is held of that version.
    pub(super) fn revised(&self, kept: &TakenPartial, source: SourceStamp) -> Record {
        let lost = vec![Stretch { start: ChunkIndex(0), count: kept.file.map.chunks() }];
        Record::Revised { number: kept.number, source, lost }
    }

    /// The announcement of a file that begins.
    pub(super) fn file(&self, held: &EntryRef, map: ChunkMap, source: SourceStamp, temp: TempName) -> JournalStep {
        let path = held.placed.clone();
        JournalStep::Announce(held.id, Box::new(FileRecord { number: 0, path, map, source, sparse: false, temp }))
    }

    pub(super) fn number(&self, file: FileId) -> Option<u32> {
        self.numbers.get(&file).copied()
    }

    /// The journal records of the receiver's entries.
    pub(super) fn records(&self, entries: &[receiver::JournalEntry]) -> Vec<Record> {
        let record = |entry: &receiver::JournalEntry| match entry {
            receiver::JournalEntry::Chunks { file, chunks } => {
                Some(Record::Chunks { number: self.number(*file)?, runs: Run::of(chunks) })
            }
            receiver::JournalEntry::Done(file) => Some(Record::Done { number: self.number(*file)? }),
            // A name that could not be synced is not lost here: the next sync of its directory
            // covers it.
            receiver::JournalEntry::Doubtful(_) => None,
        };
        entries.iter().filter_map(record).collect()
    }

    /// Whether it has no record that another session would need.
    pub(super) fn is_spent(&self) -> bool {
        self.machine.is_spent()
    }
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
    Beginning { opened, origin: Origin::default() }
}

/// A path as the file system has it.
pub(super) fn text(path: &RelPath) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}
