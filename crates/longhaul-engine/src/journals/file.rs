//! Owns a journal that is open for writing, and its content: which files are still partial, and
//! where temporaries lie.
//!
//! In: records of sessions. Out: partials to continue. Several sessions may write to one journal
//! file at a time. Dropping it never removes the journal: only the journal knows of temporaries
//! without a record, so the code that removes it has looked for them first (`session/close`,
//! `collect`). It knows no paths of other sessions and no messages.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::{Fault, RelPath, SessionTag, TempName};
use longhaul_disk::Journal;
use longhaul_proto::journal::{
    FileRecord, HeldChunks, JournalError, JournalId, Opened, Origin, Placement, Record, Replay, Replayed, Writer,
};

use crate::random::nonce;

/// A journal that is open for writing.
#[derive(Debug)]
pub(super) struct JournalFile {
    journal: Journal,
    tag: SessionTag,
    state: Mutex<FileState>,
    /// Whether the session that began it lives.
    owned: AtomicBool,
}

/// The session that writes records: its opening and its origin.
#[derive(Clone, Debug)]
pub(super) struct Author {
    pub(super) opened: Opened,
    pub(super) origin: Origin,
}

struct FileState {
    writer: Writer,
    opened: Opened,
    /// Whether this process wrote an opening of its own.
    ours: bool,
    next_number: u32,
    /// Files that are neither done nor dropped, by number.
    live: BTreeMap<u32, LiveRecord>,
    /// The numbers of those that a session writes now.
    claimed: HashSet<u32>,
    /// Whether a session let go of a file: its held chunks are in the journal, and not here.
    stale: bool,
    /// Directories in which temporaries without a record may lie.
    dirs: BTreeSet<RelPath>,
}

/// A file that is neither done nor dropped.
struct LiveRecord {
    file: FileRecord,
    /// The chunks held of it. `None` once a session has claimed it.
    held: Option<HeldChunks>,
    placed: Option<Placement>,
}

/// A partial that a session took out of a journal file.
#[derive(Debug)]
pub(super) struct ClaimedPartial {
    pub(super) number: u32,
    pub(super) file: FileRecord,
    pub(super) held: HeldChunks,
    pub(super) placed: Option<Placement>,
}

impl Author {
    /// The records that begin a journal, or take it over as `generation`.
    pub(super) fn opening(&self, generation: u64) -> [Record; 2] {
        [Record::Opened(Opened { generation, ..self.opened.clone() }), Record::Origin(self.origin)]
    }
}

impl JournalFile {
    /// Begins an empty journal. It is not durable before [`JournalFile::sync`].
    pub(super) fn begin(journal: Journal, author: &Author) -> Result<JournalFile, Fault> {
        let (writer, bytes) = beginning(&author.opening(author.opened.generation))?;
        if let Err(error) = journal.append(&bytes) {
            // A journal that promises nothing would keep its name from the next attempt.
            if let Err(error) = journal.remove() {
                tracing::warn!(target: "longhaul::journal", %error, "an empty journal stays");
            }
            return Err(error.fault());
        }
        let state = FileState {
            writer,
            opened: author.opened.clone(),
            ours: true,
            next_number: 0,
            live: BTreeMap::new(),
            claimed: HashSet::new(),
            stale: false,
            dirs: BTreeSet::new(),
        };
        Ok(JournalFile { tag: journal.tag(), journal, state: Mutex::new(state), owned: AtomicBool::new(true) })
    }

    /// Reads a journal that was left. `None` if it never promised anything, or nothing of it is for
    /// us to touch.
    pub(super) fn read(journal: Journal) -> Result<Option<JournalFile>, Fault> {
        let tag = journal.tag();
        let replayed = match replay(&journal)? {
            Ok(replayed) => replayed,
            // Where there are no locks, a session that lives may be about to write its beginning.
            Err(JournalError::Unopened) if !journal.is_locked() => return Ok(None),
            Err(JournalError::Unopened) => {
                journal.remove()?;
                return Ok(None);
            }
            Err(error) => {
                tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
                return Ok(None);
            }
        };
        if replayed.valid_len < journal.len() {
            tracing::info!(target: "longhaul::journal", %tag, valid = replayed.valid_len, len = journal.len(), "a journal's torn end is cut");
            journal.truncate(replayed.valid_len)?;
        }
        let live = replayed.files.into_iter().map(|(number, partial)| (number, partial.into()));
        let state = FileState {
            writer: replayed.writer,
            opened: replayed.opened,
            ours: false,
            next_number: replayed.next_number,
            live: live.collect(),
            claimed: HashSet::new(),
            stale: false,
            dirs: replayed.dirs,
        };
        Ok(Some(JournalFile { tag, journal, state: Mutex::new(state), owned: AtomicBool::new(false) }))
    }

    pub(super) fn tag(&self) -> SessionTag {
        self.tag
    }

    /// Whether it is known that no session of another process has it: it is locked, or it was
    /// continued here. Where a file system has no locks, a journal that nobody seems to have may be
    /// that of a session that lives.
    pub(super) fn is_ours(&self) -> bool {
        self.journal.is_locked() || self.state().ours
    }

    /// Whether the session that began it lives: nobody else touches its temporaries then.
    pub(super) fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Acquire)
    }

    /// Records that the session that began it is over.
    pub(super) fn disown(&self) {
        self.owned.store(false, Ordering::Release);
    }

    /// Whether no file in it is left to be continued.
    pub(super) fn is_finished(&self) -> bool {
        self.state().live.is_empty()
    }

    /// Whether a file that is still partial has this temporary.
    pub(super) fn speaks_of(&self, temp: &TempName) -> bool {
        self.state().live.values().any(|live| live.file.temp == *temp)
    }

    /// Directories in which temporaries without a record may lie. A journal of version 1 does not
    /// name them: there they are those of the files that are left.
    pub(super) fn dirs(&self) -> BTreeSet<RelPath> {
        let state = self.state();
        let of_files = state.live.values().filter(|_| state.writer.version() == 1);
        state.dirs.iter().cloned().chain(of_files.filter_map(|live| live.file.path.parent())).collect()
    }

    /// Takes the partial of a path out, for a session that owns the path. `author` is that session;
    /// the first time, its opening is made durable before anything else.
    pub(super) fn take(&self, path: &RelPath, author: &Author) -> Result<Option<ClaimedPartial>, Fault> {
        let found = {
            let mut state = self.state();
            let one = state.live.iter_mut().filter(|(_, live)| live.file.path == *path && live.held.is_some());
            one.last().and_then(|(number, live)| {
                let held = live.held.take()?;
                Some(ClaimedPartial { number: *number, file: live.file.clone(), held, placed: live.placed })
            })
        };
        if let Some(taken) = &found {
            self.state().claimed.insert(taken.number);
            self.take_over(author)?;
        }
        Ok(found)
    }

    /// Records that a session lets go of a file that it did not bring to its end.
    pub(super) fn let_go(&self, number: u32) {
        let mut state = self.state();
        if state.claimed.remove(&number) && state.live.contains_key(&number) {
            state.stale = true;
        }
    }

    /// Reads again the records of sessions that let go.
    ///
    /// # Errors
    /// A [`Fault`] when the journal cannot be read.
    pub(super) fn refresh(&self) -> Result<(), Fault> {
        let mut state = self.state();
        if !state.stale {
            return Ok(());
        }
        if let Ok(replayed) = replay(&self.journal)? {
            for (number, partial) in replayed.files {
                if !state.claimed.contains(&number) {
                    state.live.insert(number, partial.into());
                }
            }
            state.stale = false;
        }
        Ok(())
    }

    fn take_over(&self, author: &Author) -> Result<(), Fault> {
        let generation = {
            let mut state = self.state();
            if std::mem::replace(&mut state.ours, true) {
                return Ok(());
            }
            state.opened.generation + 1
        };
        self.journal.reassert()?;
        self.append(&author.opening(generation))?;
        self.sync()?;
        self.state().opened = Opened { generation, ..author.opened.clone() };
        Ok(())
    }

    /// Announces a file. Returns its number.
    pub(super) fn announce(&self, file: impl FnOnce(u32) -> FileRecord) -> Result<u32, Fault> {
        let mut state = self.state();
        let number = state.next_number;
        let file = file(number);
        self.append_to(&mut state, &[Record::File(file.clone())])?;
        state.next_number += 1;
        state.live.insert(number, LiveRecord { file, held: None, placed: None });
        state.claimed.insert(number);
        Ok(number)
    }

    /// Appends records of announced files and of directories.
    pub(super) fn append(&self, records: &[Record]) -> Result<(), Fault> {
        self.append_to(&mut self.state(), records)
    }

    fn append_to(&self, state: &mut FileState, records: &[Record]) -> Result<(), Fault> {
        let (mut writer, mut bytes) = (state.writer.clone(), Vec::new());
        records.iter().for_each(|record| writer.record(record, &mut bytes));
        self.journal.append(&bytes)?;
        state.writer = writer;
        for record in records {
            match record {
                Record::Done { number } | Record::Dropped { number } => {
                    state.live.remove(number);
                    state.claimed.remove(number);
                }
                Record::Dirs { paths } => state.dirs.extend(paths.iter().cloned()),
                Record::Left { path } => {
                    state.dirs.remove(path);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes durable all records that were appended before.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        self.journal.sync().map_err(Fault::from)
    }

    /// Removes the journal from the shelf.
    ///
    /// # Errors
    /// A [`Fault`] of the disk. The journal stands then.
    pub(super) fn remove(self) -> Result<(), Fault> {
        self.journal.remove().map_err(Fault::from)
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<longhaul_proto::journal::JournalledPartial> for LiveRecord {
    fn from(partial: longhaul_proto::journal::JournalledPartial) -> LiveRecord {
        LiveRecord { file: partial.file, held: Some(partial.held), placed: partial.placed }
    }
}

/// The first bytes of a journal with these records, and the writer that continues behind them.
pub(super) fn beginning(records: &[Record]) -> Result<(Writer, Vec<u8>), Fault> {
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(JournalId(nonce()?), &mut bytes);
    records.iter().for_each(|record| writer.record(record, &mut bytes));
    Ok((writer, bytes))
}

/// Replays a journal. The inner error is that of a journal that cannot be read.
pub(super) fn replay(journal: &Journal) -> Result<Result<Replayed, JournalError>, Fault> {
    let mut replay = Replay::new();
    journal.read(&mut |bytes| {
        replay.push(bytes);
        !replay.ended()
    })?;
    Ok(replay.finish())
}

impl std::fmt::Debug for FileState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("opened", &self.opened).field("live", &self.live.len()).finish_non_exhaustive()
    }
}
