//! [`Book`]: the machine of one journal file.
//!
//! In: the journal as it was read, records of sessions, ends of changes. Out: changes, partials to
//! continue, and whether the journal may go. Several sessions may write to one journal at a time.
//! It knows no other journals and no temporaries but by their names.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::{Layout, RelPath, TempName};

use super::change::{Abandoned, Beginning, Effect, Failed, JournalChange, JournalOp};
use crate::journal::{
    FileRecord, HeldChunks, JournalId, JournalledPartial, Opened, Placement, Record, Replayed, Writer,
};

/// A journal that is open for writing.
///
/// ```text
/// state      event                                      next state
/// Left       taken over                                 Ours
/// Left, Ours change failed, and is undone               the same
/// Left, Ours change failed, and the journal is broken   Abandoned
/// ```
#[derive(Debug)]
pub struct Book {
    state: BookState,
    writer: Writer,
    opened: Opened,
    next_number: u32,
    /// Files that are neither done nor dropped, by number.
    open: BTreeMap<u32, OpenRecord>,
    /// The numbers of those that a session writes now.
    claimed: BTreeSet<u32>,
    /// Whether a session let go of a file: its held chunks are in the journal, and not here.
    stale: bool,
    /// Directories in which temporaries without a record may lie.
    dirs: BTreeSet<RelPath>,
    /// Final names in doubt, of a journal of doubts.
    doubts: BTreeSet<RelPath>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BookState {
    /// An earlier session left it: no session of ours has an opening in it.
    Left,
    /// A session of ours began it, or took it over.
    Ours,
    /// Nothing is written to it any more.
    Abandoned {
        /// Whether a session of ours had an opening in it.
        was_ours: bool,
    },
}

/// A file that is neither done nor dropped.
#[derive(Debug)]
struct OpenRecord {
    file: FileRecord,
    /// The chunks held of it. `None` once a session has claimed it.
    held: Option<HeldChunks>,
    placed: Option<Placement>,
}

/// A partial that a session took out of a book.
#[derive(Debug)]
pub struct TakenPartial {
    /// Its number in its journal.
    pub number: u32,
    /// Its record.
    pub file: FileRecord,
    /// The chunks held of it.
    pub held: HeldChunks,
    /// The identity of its temporary. `None` if no record says it.
    pub placed: Option<Placement>,
}

impl Book {
    /// A new journal that opens with these records. None of it is durable before a sync.
    pub fn begin(id: JournalId, beginning: &Beginning, more: Vec<Record>) -> (Book, JournalChange) {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin_over(beginning.layout, id, &mut bytes);
        let opening = beginning.records(beginning.opened.generation);
        opening.iter().chain(&more).for_each(|record| writer.record(record, &mut bytes));
        let book = Book {
            state: BookState::Ours,
            writer: writer.clone(),
            opened: beginning.opened.clone(),
            next_number: 0,
            open: BTreeMap::new(),
            claimed: BTreeSet::new(),
            stale: false,
            dirs: BTreeSet::new(),
            doubts: BTreeSet::new(),
        };
        let effect = Effect::Appended { writer, records: more };
        (book, JournalChange { ops: vec![JournalOp::Append(bytes)], effect })
    }

    /// A journal that was left, `len` bytes long. What is not believed of it is cut off first.
    pub fn left(replayed: Replayed, len: u64) -> (Book, Option<JournalChange>) {
        let valid = replayed.valid_len;
        let cut =
            (valid < len).then(|| JournalChange { ops: vec![JournalOp::Cut { len: valid }], effect: Effect::Durable });
        let open = replayed.files.into_iter().map(|(number, partial)| (number, partial.into()));
        let book = Book {
            state: BookState::Left,
            writer: replayed.writer,
            opened: replayed.opened,
            next_number: replayed.next_number,
            open: open.collect(),
            claimed: BTreeSet::new(),
            stale: false,
            dirs: replayed.dirs,
            doubts: replayed.doubts,
        };
        (book, cut)
    }

    /// Makes a journal that was left ours: what it holds, and an opening of a higher generation,
    /// are durable before anything else is written to it, or done because of it. `None` if it is
    /// ours.
    ///
    /// # Errors
    /// [`Abandoned`] if nothing may be written to it.
    pub fn take_over(&self, beginning: &Beginning) -> Result<Option<JournalChange>, Abandoned> {
        match self.state {
            BookState::Abandoned { was_ours: false } => return Err(Abandoned),
            // Of one that was ours, what is written next fails, and that ends the session: its next
            // file does not fail alone.
            BookState::Ours | BookState::Abandoned { was_ours: true } => return Ok(None),
            BookState::Left => {}
        }
        let generation = self.opened.generation.saturating_add(1);
        let (writer, bytes) = self.framed(&beginning.records(generation));
        let ops = vec![JournalOp::Rewrite, JournalOp::Append(bytes), JournalOp::Sync];
        let opened = Opened { generation, ..beginning.opened.clone() };
        Ok(Some(JournalChange { ops, effect: Effect::TakenOver { writer, opened } }))
    }

    /// A number for a file that is about to be announced. Numbers only rise (JOURNAL-5), so one
    /// that is not used is lost.
    pub fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        number
    }

    /// Appends records. Those that name a file which is not open are left out: they would end the
    /// replay (JOURNAL-5). `None` if no record is left.
    ///
    /// # Errors
    /// [`Abandoned`] if nothing may be written to it.
    pub fn append(&self, mut records: Vec<Record>) -> Result<Option<JournalChange>, Abandoned> {
        self.usable()?;
        records.retain(|record| named(record).is_none_or(|number| self.open.contains_key(&number)));
        if records.is_empty() {
            return Ok(None);
        }
        let (writer, bytes) = self.framed(&records);
        let effect = Effect::Appended { writer, records };
        Ok(Some(JournalChange { ops: vec![JournalOp::Append(bytes)], effect }))
    }

    /// Makes durable all that was appended before. Appends may go on meanwhile.
    ///
    /// # Errors
    /// [`Abandoned`] if nothing may be written to it.
    pub fn sync(&self) -> Result<JournalChange, Abandoned> {
        self.usable()?;
        Ok(JournalChange { ops: vec![JournalOp::Sync], effect: Effect::Durable })
    }

    /// A change has ended well.
    pub fn done(&mut self, change: JournalChange) {
        match change.effect {
            Effect::Durable => {}
            Effect::Appended { writer, records } => {
                self.writer = writer;
                records.into_iter().for_each(|record| self.absorb(record));
            }
            Effect::TakenOver { writer, opened } => {
                (self.writer, self.opened) = (writer, opened);
                if self.state == BookState::Left {
                    self.state = BookState::Ours;
                }
            }
        }
    }

    /// A change has failed.
    pub fn failed(&mut self, how: Failed) {
        if how == Failed::Broken {
            self.state = BookState::Abandoned { was_ours: self.is_taken_over() };
        }
    }

    /// Takes the partial of a path out, for a session that owns the path: the latest of those that
    /// no session has. The session takes the journal over before it does anything else with it.
    pub fn take(&mut self, path: &RelPath) -> Option<TakenPartial> {
        let of_path = self.open.iter_mut().filter(|(_, open)| open.file.path == *path);
        let (number, open) = of_path.filter(|(_, open)| open.held.is_some()).last()?;
        let (number, held) = (*number, open.held.take()?);
        self.claimed.insert(number);
        Some(TakenPartial { number, file: open.file.clone(), held, placed: open.placed })
    }

    /// A session lets go of a file that it did not bring to its end.
    pub fn let_go(&mut self, number: u32) {
        if self.claimed.remove(&number) && self.open.contains_key(&number) {
            self.stale = true;
        }
    }

    /// Whether a session let go of a file since the journal was read: it is read again before
    /// another session looks for partials in it.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// The journal was read again.
    pub fn refresh(&mut self, replayed: Replayed) {
        for (number, partial) in replayed.files {
            if !self.claimed.contains(&number) {
                self.open.insert(number, partial.into());
            }
        }
        self.stale = false;
    }

    /// Whether it takes records of this layout's places. A file of one that does not is begun anew
    /// in another journal.
    pub fn takes(&self, layout: Layout) -> bool {
        self.writer.takes(layout)
    }

    /// Whether a session of this process began it or took it over.
    pub fn is_ours(&self) -> bool {
        self.state != BookState::Left
    }

    /// Whether no file in it is left to be continued.
    pub fn is_finished(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether it may go: no file is left to be continued, no directory is to be looked through,
    /// and no name is in doubt.
    pub fn is_spent(&self) -> bool {
        self.open.is_empty() && self.dirs().is_empty() && self.doubts.is_empty()
    }

    /// Whether a file that is still partial has this temporary.
    pub fn speaks_of(&self, temp: &TempName) -> bool {
        self.open.values().any(|open| open.file.temp == *temp)
    }

    /// Directories in which temporaries without a record may lie. A journal of version 1 does not
    /// name them: there they are those of the files that are left.
    pub fn dirs(&self) -> BTreeSet<RelPath> {
        let of_files = self.open.values().filter(|_| self.writer.version() == 1);
        self.dirs.iter().cloned().chain(of_files.filter_map(|open| open.file.path.parent())).collect()
    }

    /// The final names of files that are left to be continued. One may stand there more than once.
    pub fn paths(&self) -> impl Iterator<Item = &RelPath> {
        self.open.values().map(|open| &open.file.path)
    }

    /// Final names that it says are in doubt.
    pub fn doubts(&self) -> &BTreeSet<RelPath> {
        &self.doubts
    }

    fn is_taken_over(&self) -> bool {
        matches!(self.state, BookState::Ours | BookState::Abandoned { was_ours: true })
    }

    fn usable(&self) -> Result<(), Abandoned> {
        if matches!(self.state, BookState::Abandoned { .. }) { Err(Abandoned) } else { Ok(()) }
    }

    fn framed(&self, records: &[Record]) -> (Writer, Vec<u8>) {
        let (mut writer, mut bytes) = (self.writer.clone(), Vec::new());
        records.iter().for_each(|record| writer.record(record, &mut bytes));
        (writer, bytes)
    }

    fn absorb(&mut self, record: Record) {
        match record {
            Record::File(file) => {
                self.claimed.insert(file.number);
                self.open.insert(file.number, OpenRecord { file, held: None, placed: None });
            }
            Record::Done { number } | Record::Dropped { number } => {
                self.open.remove(&number);
                self.claimed.remove(&number);
            }
            Record::Dirs { paths } => self.dirs.extend(paths),
            Record::Left { path } => {
                self.dirs.remove(&path);
            }
            Record::Doubtful { paths } => self.doubts.extend(paths),
            Record::Certain { paths } => {
                for path in &paths {
                    self.doubts.remove(path);
                }
            }
            // A session that has the file knows these; another one reads the journal again.
            Record::Chunks { .. } | Record::ChunksAt { .. } | Record::Revised { .. } | Record::Placed { .. } => {}
            Record::Opened(_) | Record::Origin(_) => {}
        }
    }
}

impl From<JournalledPartial> for OpenRecord {
    fn from(partial: JournalledPartial) -> OpenRecord {
        OpenRecord { file: partial.file, held: Some(partial.held), placed: partial.placed }
    }
}

/// The number of the open file that a record names. `None` if it names none.
fn named(record: &Record) -> Option<u32> {
    match record {
        Record::Chunks { number, .. }
        | Record::Done { number }
        | Record::Dropped { number }
        | Record::Revised { number, .. }
        | Record::Placed { number, .. }
        | Record::ChunksAt { number, .. } => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, SessionTag, SourceStamp};

    use super::*;
    use crate::journal::{Origin, Run, replay};

    fn beginning() -> Beginning {
        let opened = Opened { generation: 1, ..Opened::default() };
        Beginning { opened, origin: Origin::default(), layout: Layout::WHOLE }
    }

    fn file(number: u32, path: &str) -> Record {
        let map = ChunkMap::new(9, ChunkSize::from_bytes(1024).expect("a size"));
        let temp = TempName::new(SessionTag([1; 8]), u64::from(number).to_le_bytes());
        let (path, source) = (RelPath::new(path).expect("a path"), SourceStamp::default());
        Record::File(FileRecord { number, path, map, source, sparse: false, temp })
    }

    fn chunk(number: u32) -> Record {
        Record::Chunks { number, runs: vec![Run { start: ChunkIndex(0), digests: vec![[7; 32]] }] }
    }

    /// Carries a change out on bytes in memory.
    fn write(book: &mut Book, change: Option<JournalChange>, journal: &mut Vec<u8>) {
        let Some(change) = change else { return };
        for op in change.ops() {
            match op {
                JournalOp::Cut { len } => journal.truncate(*len as usize),
                JournalOp::Append(bytes) => journal.extend_from_slice(bytes),
                JournalOp::Rewrite | JournalOp::Sync => {}
            }
        }
        book.done(change);
    }

    /// A journal with these records.
    fn journal(records: Vec<Record>) -> Vec<u8> {
        let (mut bytes, (mut book, begun)) = (Vec::new(), Book::begin(JournalId([3; 16]), &beginning(), Vec::new()));
        write(&mut book, Some(begun), &mut bytes);
        for record in records {
            let change = book.append(vec![record]).expect("usable");
            write(&mut book, change, &mut bytes);
        }
        bytes
    }

    #[test]
    fn a_journal_is_taken_over_once_and_again_only_if_that_was_undone() {
        let mut bytes = journal(vec![file(0, "a")]);
        let valid = bytes.len();
        bytes.extend_from_slice(b"torn");
        let (mut book, cut) = Book::left(replay(&bytes).expect("ours"), bytes.len() as u64);
        assert_eq!(cut.as_ref().map(|cut| cut.ops().to_vec()), Some(vec![JournalOp::Cut { len: valid as u64 }]));
        write(&mut book, cut, &mut bytes);
        let first = book.take_over(&beginning()).expect("usable").expect("left");
        assert!(matches!(first.ops(), [JournalOp::Rewrite, JournalOp::Append(_), JournalOp::Sync]));
        book.failed(Failed::Undone);
        assert!(!book.is_ours());
        let again = book.take_over(&beginning()).expect("usable");
        write(&mut book, again, &mut bytes);
        assert!(book.is_ours() && book.take_over(&beginning()).expect("usable").is_none());
        assert_eq!(replay(&bytes).expect("ours").opened.generation, 2);
    }

    #[test]
    fn nothing_is_written_after_a_sync_that_failed_and_what_was_ours_stays_ours() {
        let (ours, _begun) = Book::begin(JournalId([3; 16]), &beginning(), Vec::new());
        let (left, _cut) = Book::left(replay(&journal(vec![])).expect("ours"), 0);
        for (mut book, is_ours) in [(ours, true), (left, false)] {
            book.failed(Failed::Broken);
            assert!(book.append(vec![file(0, "a")]).is_err() && book.sync().is_err());
            assert_eq!(book.take_over(&beginning()).is_ok_and(|change| change.is_none()), is_ours);
            book.failed(Failed::Broken);
            assert_eq!(book.take_over(&beginning()).is_ok(), is_ours, "it failed once more");
        }
    }

    #[test]
    fn records_of_a_file_that_is_not_open_are_left_out() {
        let bytes = journal(vec![file(0, "a"), Record::Dropped { number: 0 }, chunk(0), file(1, "b"), chunk(1)]);
        let replayed = replay(&bytes).expect("ours");
        assert_eq!(replayed.valid_len, bytes.len() as u64, "one of them would end the replay");
        assert_eq!(replayed.files.keys().copied().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn of_two_partials_of_a_name_the_later_is_taken_first_and_each_once() {
        let bytes = journal(vec![file(0, "a"), file(1, "b"), file(2, "a")]);
        let (mut book, _) = Book::left(replay(&bytes).expect("ours"), bytes.len() as u64);
        let path = RelPath::new("a").expect("a path");
        let taken: Vec<u32> = std::iter::from_fn(|| book.take(&path)).map(|taken| taken.number).collect();
        assert_eq!(taken, [2, 0]);
    }

    #[test]
    fn a_journal_is_spent_when_no_file_directory_or_doubt_is_left() {
        let path = || RelPath::new("d").expect("a path");
        let rows = [
            (file(0, "a"), Record::Done { number: 0 }),
            (Record::Dirs { paths: vec![path()] }, Record::Left { path: path() }),
            (Record::Doubtful { paths: vec![path()] }, Record::Certain { paths: vec![path()] }),
        ];
        for (begins, ends) in rows {
            let (mut book, begun) = Book::begin(JournalId([3; 16]), &beginning(), Vec::new());
            book.done(begun);
            for (record, spent) in [(begins, false), (ends, true)] {
                let change = book.append(vec![record.clone()]).expect("usable");
                write(&mut book, change, &mut Vec::new());
                assert_eq!(book.is_spent(), spent, "{record:?}");
            }
        }
    }
}
