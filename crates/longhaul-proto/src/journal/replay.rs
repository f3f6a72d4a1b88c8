//! Reading a journal again: the records that are believed, and the state that they lead to.
//!
//! Takes the bytes in any pieces; gives the open files with their held chunks, and a writer that
//! continues the journal. Holds one record at a time beside the result.

use std::collections::{BTreeMap, BTreeSet};

use crate::journal::frame::{BODY_BYTES_MAX, CHECK_BYTES, Checker, HEAD_BYTES, LENGTH_BYTES, Writer};
use crate::journal::record::{FileRecord, Opened, Origin, Record, Run};
use crate::journal::{Head, HeldChunks, JournalError, PRELUDE_BYTES, VERSION};
use longhaul_core::{ChunkIndex, ChunkMap, FileNode, Layout, Place, RelPath};

/// A replay under way.
#[derive(Debug, Default)]
pub struct Replay {
    layout: Layout,
    stage: ReplayStage,
    /// Bytes that were pushed and are not part of a whole record yet.
    pending: Vec<u8>,
    /// Bytes of `pending` that are used up.
    used: usize,
    opened: Option<Opened>,
    origin: Origin,
    files: BTreeMap<u32, JournalledPartial>,
    done: Vec<Finished>,
    dirs: BTreeSet<RelPath>,
    doubts: BTreeSet<RelPath>,
    subject: Option<Subject>,
    /// The lowest number that the next file may have.
    next_number: u64,
}

/// The subject of a journal (JOURNAL-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Files,
    Doubts,
}

/// The stage of a replay.
///
/// ```text
/// stage    event                                    next stage
/// Prelude  prelude of ours                          Records
/// Prelude  any other prelude                        Failed
/// Records  record that is believed                  Records
/// Records  first record is damaged, or no `Opened`  Failed
/// Records  later record that is not believed        Corrupt
/// Records  chunks at other places than the layout's Misplaced
/// ```
#[derive(Default)]
enum ReplayStage {
    /// The prelude is not read yet.
    #[default]
    Prelude,
    /// All records so far are believed.
    Records(Checker),
    /// A record was not believed; the checker stands before it.
    Corrupt(Checker),
    /// Chunks lie elsewhere than the layout says; the checker stands before them.
    Misplaced(Checker),
    /// The journal cannot be continued.
    Failed(JournalError),
}

/// The state that a journal leads to.
#[derive(Debug)]
pub struct Replayed {
    /// Its last writer.
    pub opened: Opened,
    /// Files that are neither done nor dropped, by number.
    pub files: BTreeMap<u32, JournalledPartial>,
    /// Files that were committed, in the order of their commits.
    pub done: Vec<Finished>,
    /// Directories in which temporaries of the session may lie that no open file names.
    pub dirs: BTreeSet<RelPath>,
    /// Final names that are in doubt.
    pub doubts: BTreeSet<RelPath>,
    /// The number for the next file.
    pub next_number: u32,
    /// Bytes of it that are believed. The journal must be cut to this length, durably, before
    /// anything is appended.
    pub valid_len: u64,
    /// The bytes behind those.
    pub end: End,
    /// A writer that continues behind them.
    pub writer: Writer,
}

/// A file that is not whole yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalledPartial {
    /// Its record, with the latest source.
    pub file: FileRecord,
    /// Its chunks that are in the temporary, verified and durable.
    pub held: HeldChunks,
    /// The identity of its temporary. `None` if no record says it: any file may have its name now.
    pub placed: Option<Placement>,
}

/// The temporary of a partial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its identity.
    pub node: FileNode,
    /// The origin of the record that says so: the held chunks were written, or read back from the
    /// medium, in that boot.
    pub origin: Origin,
}

/// A file that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its record.
    pub file: FileRecord,
    /// The origin of its commit.
    pub origin: Origin,
}

/// The bytes behind the last record that is believed. They were never promised, or they were
/// damaged since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// No bytes.
    Clean,
    /// The beginning of a record, as an interrupted append leaves it.
    Torn,
    /// A record that is not believed.
    Corrupt,
    /// A record of chunks at other places than the destination's layout gives them (JOURNAL-11): it
    /// had another number of targets then.
    Misplaced,
}

/// Reads a whole journal that lies in memory, of a destination with one target.
///
/// # Errors
/// As [`Replay::finish`].
pub fn replay(bytes: &[u8]) -> Result<Replayed, JournalError> {
    let mut replay = Replay::new();
    replay.push(bytes);
    replay.finish()
}

impl Replay {
    /// A replay before the first byte, for a destination with one target.
    pub fn new() -> Replay {
        Replay::default()
    }

    /// The same for a destination of this layout.
    pub fn over(layout: Layout) -> Replay {
        Replay { layout, ..Replay::default() }
    }

    /// Takes the next bytes. Pieces of about a megabyte are best; bytes behind the end are ignored.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.ended() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES));
            self.pending.extend_from_slice(now);
            while self.step().is_some() {}
            self.pending.drain(..self.used);
            self.used = 0;
            bytes = later;
        }
    }

    /// The last writer, as far as the journal was read.
    pub fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }

    /// Whether it is a journal of doubts, or may still turn out to be one (JOURNAL-10).
    pub fn may_be_of_doubts(&self) -> bool {
        self.subject != Some(Subject::Files) && !self.ended()
    }

    /// Whether more bytes would change nothing.
    pub fn ended(&self) -> bool {
        matches!(self.stage, ReplayStage::Corrupt(_) | ReplayStage::Misplaced(_) | ReplayStage::Failed(_))
    }

    /// Gives the state of the journal, when there are no more bytes.
    ///
    /// # Errors
    /// [`JournalError`] if the journal cannot be continued.
    pub fn finish(self) -> Result<Replayed, JournalError> {
        let (checker, end) = match self.stage {
            ReplayStage::Failed(error) => return Err(error),
            ReplayStage::Prelude => return Err(beginning(&self.pending)),
            ReplayStage::Records(checker) => (checker, if self.pending.is_empty() { End::Clean } else { End::Torn }),
            ReplayStage::Corrupt(checker) => (checker, End::Corrupt),
            ReplayStage::Misplaced(checker) => (checker, End::Misplaced),
        };
        Ok(Replayed {
            opened: self.opened.ok_or(JournalError::Unopened)?,
            files: self.files,
            done: self.done,
            dirs: self.dirs,
            doubts: self.doubts,
            next_number: u32::try_from(self.next_number).unwrap_or(u32::MAX),
            valid_len: checker.offset(),
            end,
            writer: Writer::behind(checker),
        })
    }

    /// Takes the prelude or one record off the pending bytes. `None` if none is whole, or none is
    /// believed any more.
    fn step(&mut self) -> Option<()> {
        let bytes = &self.pending[self.used..];
        let checker = match &self.stage {
            ReplayStage::Prelude => {
                let head = Head::decode(bytes.first_chunk::<PRELUDE_BYTES>()?);
                self.used += PRELUDE_BYTES;
                self.stage = head.map_or_else(ReplayStage::Failed, |head| ReplayStage::Records(Checker::new(head)));
                return Some(());
            }
            ReplayStage::Records(checker) => checker,
            ReplayStage::Corrupt(_) | ReplayStage::Misplaced(_) | ReplayStage::Failed(_) => return None,
        };
        match next(checker, bytes) {
            Next::Short => None,
            Next::Bad => {
                self.end_at(checker.clone());
                None
            }
            Next::Record { kind, body } => {
                let known = Record::since(kind) <= checker.version();
                let (record, end) = (Record::take(kind, &bytes[body.clone()]).filter(|_| known), body.end);
                let before = checker.clone();
                let mut behind = before.clone();
                behind.pass(&bytes[..end], check_at(bytes, end));
                self.used += end + CHECK_BYTES;
                self.stage = ReplayStage::Records(behind);
                self.absorb_or_end(record, before)
            }
        }
    }

    fn absorb_or_end(&mut self, record: Option<Record>, before: Checker) -> Option<()> {
        if self.opened.is_none() && !matches!(record, Some(Record::Opened(_))) {
            self.stage = ReplayStage::Failed(JournalError::NotOpened);
            return None;
        }
        if record.as_ref().is_some_and(|record| self.is_misplaced(record)) {
            self.stage = ReplayStage::Misplaced(before);
            return None;
        }
        if record.and_then(|record| self.absorb(record)).is_none() {
            self.end_at(before);
            return None;
        }
        Some(())
    }

    /// Whether it names chunks of an open file at other places than the layout gives them
    /// (JOURNAL-11).
    fn is_misplaced(&self, record: &Record) -> bool {
        let map_of = |number| self.files.get(number).map(|partial| partial.file.map);
        match record {
            Record::Chunks { number, .. } => map_of(number).is_some() && !self.layout.is_whole(),
            Record::ChunksAt { number, place, runs } => {
                map_of(number).is_some_and(|map| lie_in(map, runs) && !lie_at(self.layout, map, *place, runs))
            }
            _ => false,
        }
    }

    fn end_at(&mut self, checker: Checker) {
        self.stage = if self.opened.is_none() {
            ReplayStage::Failed(JournalError::Unopened)
        } else {
            ReplayStage::Corrupt(checker)
        };
    }

    /// Takes a record whose check is right. `None` if it makes no sense (JOURNAL-2, 5, 6, 7, 9,
    /// 10); it changes nothing then.
    fn absorb(&mut self, record: Record) -> Option<()> {
        match record {
            Record::Opened(opened) => {
                let higher = self.opened.as_ref().is_none_or(|before| opened.generation > before.generation);
                self.opened = Some(higher.then_some(opened)?);
                self.origin = Origin::default();
            }
            Record::Origin(origin) => self.origin = origin,
            Record::File(file) => {
                self.speaks_of(Subject::Files)?;
                let risen = u64::from(file.number) >= self.next_number;
                self.next_number = risen.then_some(u64::from(file.number) + 1)?;
                self.files.insert(file.number, JournalledPartial { file, held: HeldChunks::new(), placed: None });
            }
            Record::Chunks { number, runs } | Record::ChunksAt { number, runs, .. } => {
                let partial = self.files.get_mut(&number)?;
                lie_in(partial.file.map, &runs).then_some(())?;
                runs.iter().for_each(|Run { start, digests }| partial.held.insert_run(*start, digests));
            }
            Record::Done { number } => {
                let JournalledPartial { file, .. } = self.files.remove(&number)?;
                self.done.push(Finished { file, origin: self.origin });
            }
            Record::Dropped { number } => drop(self.files.remove(&number)?),
            Record::Revised { number, source, lost } => {
                let partial = self.files.get_mut(&number)?;
                lost.iter().all(|lost| lies_in(partial.file.map, lost.start.0, lost.count)).then_some(())?;
                partial.file.source = source;
                lost.into_iter().for_each(|lost| partial.held.remove_stretch(lost));
            }
            Record::Placed { number, node } => {
                self.files.get_mut(&number)?.placed = Some(Placement { node, origin: self.origin });
            }
            Record::Dirs { paths } => {
                self.speaks_of(Subject::Files)?;
                self.dirs.extend(paths);
            }
            Record::Left { path } => {
                self.dirs.remove(&path);
            }
            Record::Doubtful { paths } => {
                self.speaks_of(Subject::Doubts)?;
                self.doubts.extend(paths);
            }
            Record::Certain { paths } => {
                for path in &paths {
                    self.doubts.remove(path);
                }
            }
        }
        Some(())
    }

    /// Sets the subject of the journal. `None` if it has another.
    fn speaks_of(&mut self, subject: Subject) -> Option<()> {
        (*self.subject.get_or_insert(subject) == subject).then_some(())
    }
}

/// The beginning of some bytes.
enum Next {
    /// A part of a record.
    Short,
    /// A record whose check is right.
    Record { kind: u8, body: std::ops::Range<usize> },
    /// Bytes that are no record.
    Bad,
}

fn next(checker: &Checker, bytes: &[u8]) -> Next {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Next::Short };
    let body = u32::from_le_bytes(*length) as usize;
    if body > BODY_BYTES_MAX {
        return Next::Bad;
    }
    let Some(kind) = rest.first().filter(|_| bytes.len() >= HEAD_BYTES + body + CHECK_BYTES) else {
        return Next::Short;
    };
    let end = HEAD_BYTES + body;
    if checker.check(&bytes[..end]) != check_at(bytes, end) {
        return Next::Bad;
    }
    Next::Record { kind: *kind, body: HEAD_BYTES..end }
}

/// The check at `end`.
fn check_at(bytes: &[u8], end: usize) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&bytes[end..end + CHECK_BYTES]);
    check
}

/// The error for a file that ends within the prelude.
fn beginning(bytes: &[u8]) -> JournalError {
    let mut padded = [0; PRELUDE_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    let ours = Head { version: VERSION, id: crate::journal::JournalId([0; 16]) }.encode();
    let like = bytes.len().min(6);
    if bytes[..like] == ours[..like] || padded == [0; PRELUDE_BYTES] {
        JournalError::Unopened
    } else {
        JournalError::NotAJournal
    }
}

/// Whether `count` chunks from `start` on are chunks of the file.
fn lies_in(map: ChunkMap, start: u64, count: u64) -> bool {
    start.checked_add(count).is_some_and(|end| end <= map.chunks())
}

/// Whether all chunks of these runs are chunks of the file.
fn lie_in(map: ChunkMap, runs: &[Run]) -> bool {
    runs.iter().all(|run| lies_in(map, run.start.0, run.digests.len() as u64))
}

/// Whether the layout puts the chunks of these runs one after the other from `first` on. They lie
/// in the file.
fn lie_at(layout: Layout, map: ChunkMap, first: Place, runs: &[Run]) -> bool {
    let mut indices = runs.iter().flat_map(|run| run.start.0..run.start.0 + run.digests.len() as u64);
    let mut next = Some(first.offset);
    indices.all(|index| {
        let offset = next;
        next = offset.and_then(|offset| offset.checked_add(map.size().bytes()));
        offset.is_some_and(|offset| layout.place_of(map, ChunkIndex(index)) == Place { offset, ..first })
    })
}

impl std::fmt::Debug for ReplayStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayStage::Prelude => f.write_str("Prelude"),
            ReplayStage::Records(checker) => write!(f, "Records(at {})", checker.offset()),
            ReplayStage::Corrupt(checker) => write!(f, "Corrupt(at {})", checker.offset()),
            ReplayStage::Misplaced(checker) => write!(f, "Misplaced(at {})", checker.offset()),
            ReplayStage::Failed(error) => write!(f, "Failed({error})"),
        }
    }
}

/// Bytes that are taken over at a time.
const PIECE_BYTES: usize = 1 << 20;
