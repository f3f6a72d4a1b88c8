//! The journal of a receiving session, by a copy of the engine's rules: found or begun, taken over,
//! appended to, and its records of each path.
//!
//! A journal that stands is cut behind its believed records, written once more as it was read, and
//! continued with a higher generation; all of that is durable before anything else is done. (It is
//! written once more because a sync of it may have failed in the session before: the cache then
//! shows bytes that the medium does not have, and no later sync would write them. The shelf is
//! synced once more because the session that made the journal may have died before that sync.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_core::{ChunkIndex, ChunkMap, Digest, FileId, RelPath, SessionTag, SourceStamp, TempName};
use longhaul_proto::journal::{self, FileRecord, JournalId, Opened, Record, Run, Stretch, Writer};
use longhaul_proto::receiver::{self, Partial, Source};

use super::job::{Job, Queue, Records, Step, Then};
use crate::env::{Env, SessionNo};
use crate::fs::{Ino, Op};
use crate::mutants::Mutant;
use crate::names::{self, SHELF};

/// A file as the journal has it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) number: u32,
    pub(super) temp: TempName,
    pub(super) stamp: SourceStamp,
    map: ChunkMap,
    held: journal::HeldChunks,
}

/// The journal of a session.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) name: String,
    pub(super) tag: SessionTag,
    pub(super) ino: Ino,
    writer: Writer,
    len: usize,
    /// Whether an append or a sync failed, so that no record is appended any more.
    abandoned: bool,
    next_number: u32,
    /// The partials of earlier sessions, by final name.
    kept: BTreeMap<String, Kept>,
    /// The files that earlier sessions committed.
    done: BTreeMap<String, SourceStamp>,
    /// Files of this session.
    numbers: BTreeMap<FileId, u32>,
    /// Numbers of open files, which records may name.
    open: BTreeSet<u32>,
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
            Some((name, ino, replayed)) => Book::take_over(env, no, name, ino, replayed),
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
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(JournalId(env.rng.array()), &mut bytes);
        writer.record(&opened(no, 0), &mut bytes);
        let job = Job::new(Then::Opened).ops([
            Op::MakeDir(SHELF.to_owned()),
            Op::SyncDir(String::new()),
            Op::MakeFile(name.clone(), ino),
            Op::Write { ino, offset: 0, bytes: bytes.clone() },
            Op::SyncFile(ino),
            Op::SyncDir(SHELF.to_owned()),
        ]);
        let book = Book {
            name,
            tag,
            ino,
            writer,
            len: bytes.len(),
            abandoned: false,
            next_number: 0,
            kept: BTreeMap::new(),
            done: BTreeMap::new(),
            numbers: BTreeMap::new(),
            open: BTreeSet::new(),
        };
        (book, job)
    }

    fn take_over(env: &mut Env, no: SessionNo, name: String, ino: Ino, replayed: journal::Replayed) -> (Book, Job) {
        let valid = replayed.valid_len as usize;
        env.say(|| format!("s{} takes over {name}: {} files, {:?}", no.0, replayed.files.len(), replayed.end));
        let believed = env.fs.cached().content(ino).bytes[..valid].to_vec();
        let mut writer = replayed.writer;
        let mut opening = Vec::new();
        writer.record(&opened(no, replayed.opened.generation + 1), &mut opening);
        let (mut kept, mut open) = (BTreeMap::new(), BTreeSet::new());
        for (number, partial) in replayed.files {
            let FileRecord { path, map, source, temp, .. } = partial.file;
            open.insert(number);
            let entry = Kept { number, temp, stamp: source, map, held: partial.held };
            // The later of two files with one name counts: the earlier was about to be dropped.
            if let Some(Kept { number, .. }) = kept.insert(text(&path), entry) {
                open.remove(&number);
                writer.record(&Record::Dropped { number }, &mut opening);
            }
        }
        let mut ops = vec![Op::SetLen(ino, valid), Op::Write { ino, offset: 0, bytes: believed }, Op::SyncFile(ino)];
        if env.is(Mutant::CachedJournal) {
            ops.truncate(1);
        }
        let mut len = valid;
        if env.is(Mutant::TornTailKept) {
            ops.clear();
            len = env.fs.cached().content(ino).bytes.len();
        }
        ops.extend([Op::Write { ino, offset: len, bytes: opening.clone() }, Op::SyncFile(ino)]);
        if !env.is(Mutant::ShelfNotSynced) {
            ops.extend([Op::SyncDir(SHELF.to_owned()), Op::SyncDir(String::new())]);
        }
        let tag = SessionTag(env.rng.array());
        let book = Book {
            name,
            tag,
            ino,
            writer,
            len: len + opening.len(),
            abandoned: false,
            next_number: replayed.next_number,
            kept,
            done: replayed.done.iter().map(|done| (text(&done.file.path), done.file.source)).collect(),
            numbers: BTreeMap::new(),
            open,
        };
        (book, Job::new(Then::Opened).ops(ops))
    }

    /// Removes temporaries that no record speaks of.
    fn sweep(&self, env: &Env) -> Vec<Op> {
        let claimed = |temp: &TempName| self.kept.values().any(|kept| kept.temp == *temp);
        let orphan = |name: &&String| names::temp(name).is_some_and(|temp| !claimed(&temp));
        env.fs.cached().names.keys().filter(orphan).map(|name| Op::Unlink(name.clone())).collect()
    }

    /// The partial of a file for a source of this stamp, if there is one.
    pub(super) fn partial(&self, path: &str, stamp: SourceStamp) -> Option<Arc<Partial>> {
        let kept = self.kept.get(path).filter(|kept| kept.stamp.len == stamp.len)?;
        let source = if kept.stamp == stamp { Source::Same } else { Source::Changed };
        Some(Arc::new(Partial::new(kept.map, source, kept.held.clone())))
    }

    /// Whether an earlier session committed this version.
    pub(super) fn was_done(&self, path: &str, stamp: SourceStamp) -> bool {
        self.done.get(path) == Some(&stamp)
    }

    /// Takes the record of a partial that is continued or removed.
    pub(super) fn take(&mut self, path: &str) -> Option<Kept> {
        self.kept.remove(path)
    }

    /// Continues a file under the record that it has.
    pub(super) fn go_on(&mut self, file: FileId, kept: &Kept) {
        self.numbers.insert(file, kept.number);
    }

    /// The record of a file that continues from another version of its source: none of its chunks
    /// is held of that version.
    pub(super) fn revised(&self, kept: &Kept, source: SourceStamp) -> Record {
        let lost = vec![Stretch { start: ChunkIndex(0), count: kept.map.chunks() }];
        Record::Revised { number: kept.number, source, lost }
    }

    /// The record of a file that begins.
    pub(super) fn file(
        &mut self,
        file: FileId,
        path: &RelPath,
        map: ChunkMap,
        source: SourceStamp,
        temp: TempName,
    ) -> Record {
        let number = self.next_number;
        self.next_number += 1;
        self.numbers.insert(file, number);
        self.open.insert(number);
        Record::File(FileRecord { number, path: path.clone(), map, source, sparse: false, temp })
    }

    /// The record of a file that is given up. `None` if it was given up before.
    pub(super) fn dropped(&mut self, number: u32) -> Option<Record> {
        self.open.remove(&number).then_some(Record::Dropped { number })
    }

    pub(super) fn number(&self, file: FileId) -> Option<u32> {
        self.numbers.get(&file).copied()
    }

    /// The journal records of the machine's entries, without files that are given up.
    pub(super) fn records(&mut self, records: &[receiver::JournalEntry]) -> Vec<Record> {
        let mut said = Vec::new();
        for record in records {
            match record {
                receiver::JournalEntry::Chunks { file, chunks } => {
                    let number = self.number(*file).filter(|number| self.open.contains(number));
                    said.extend(number.map(|number| Record::Chunks { number, runs: runs(chunks) }));
                }
                receiver::JournalEntry::Done(file) => {
                    let number = self.number(*file).filter(|number| self.open.remove(number));
                    said.extend(number.map(|number| Record::Done { number }));
                }
                // A name that could not be synced is not lost here: the next sync of its directory
                // covers it.
                receiver::JournalEntry::Doubtful(_) => {}
            }
        }
        said
    }

    /// The operations that append records; `None` if the journal is abandoned.
    pub(super) fn append(&mut self, records: &[Record], durably: Records) -> Option<Vec<Op>> {
        if self.abandoned {
            return None;
        }
        let mut bytes = Vec::new();
        records.iter().for_each(|record| self.writer.record(record, &mut bytes));
        let offset = self.len;
        self.len += bytes.len();
        let write = Op::Write { ino: self.ino, offset, bytes };
        let sync = (durably == Records::Synced).then_some(Op::SyncFile(self.ino));
        Some(std::iter::once(write).chain(sync).collect())
    }

    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Whether it has no record that another session would need.
    pub(super) fn is_spent(&self) -> bool {
        self.open.is_empty() && !self.abandoned
    }
}

fn opened(no: SessionNo, generation: u64) -> Record {
    Record::Opened(Opened {
        principal: "uid:1".to_owned(),
        owner: "someone".to_owned(),
        pid: 1,
        at_unix: u64::from(no.0),
        generation,
        session: [no.0 as u8; 16],
    })
}

fn runs(chunks: &[(ChunkIndex, Digest)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, digest) in chunks {
        match runs.last_mut() {
            Some(run) if run.start.0 + run.digests.len() as u64 == index.0 => run.digests.push(*digest.bytes()),
            _ => runs.push(Run { start: *index, digests: vec![*digest.bytes()] }),
        }
    }
    runs
}

/// A path as the file system has it.
pub(super) fn text(path: &RelPath) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}
