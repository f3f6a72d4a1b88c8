//! A journal that is open for writing, and what it says: which files are still partial.
//!
//! Several sessions may write to one at a time. When the last of them lets go and nothing in it is partial any more, the
//! journal is removed; else it stays on the shelf for whoever comes.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::{Fault, RelPath, SessionTag, SourceStamp};
use longhaul_disk::Journal;
use longhaul_proto::journal::{
    FileRecord, HeldChunks, JournalError, JournalId, Opened, Record, Replay, Replayed, Writer,
};

use crate::lane::join::nonce;

/// An open journal.
#[derive(Debug)]
pub(super) struct Book {
    /// Taken out when it is removed.
    journal: Option<Journal>,
    tag: SessionTag,
    state: Mutex<State>,
    /// The session that began it lives.
    owned: AtomicBool,
}

struct State {
    writer: Writer,
    opened: Opened,
    /// Whether this process wrote its own opening.
    ours: bool,
    next_number: u32,
    /// Files that are neither done nor dropped, by number; what is held of those that no session has claimed.
    live: BTreeMap<u32, (FileRecord, Option<HeldChunks>)>,
    /// Files of these that a session writes now.
    claimed: HashSet<u32>,
    /// A session let go of a file: what is held of it stands in the journal, not here.
    stale: bool,
    /// Files that were committed by the session that left it, each as a digest of its path and version: there may be millions.
    done: HashSet<[u8; 16]>,
}

/// A partial that was taken out of a book.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) number: u32,
    pub(super) file: FileRecord,
    pub(super) held: HeldChunks,
}

impl Book {
    /// Begins an empty journal.
    pub(super) fn begin(journal: Journal, opened: Opened) -> Result<Book, Fault> {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(JournalId(nonce()?), &mut bytes);
        writer.record(&Record::Opened(opened.clone()), &mut bytes);
        journal.append(&bytes).map_err(|e| e.fault())?;
        let state = State {
            writer,
            opened,
            ours: true,
            next_number: 0,
            live: BTreeMap::new(),
            claimed: HashSet::new(),
            stale: false,
            done: HashSet::new(),
        };
        Ok(Book { tag: journal.tag(), journal: Some(journal), state: Mutex::new(state), owned: AtomicBool::new(true) })
    }

    /// Reads a journal that was left; none if nothing was ever promised in it, or nothing of it is for us to touch.
    pub(super) fn read(journal: Journal) -> Result<Option<Book>, Fault> {
        let tag = journal.tag();
        let replayed = match replay(&journal)? {
            Ok(replayed) => replayed,
            Err(JournalError::Unopened) => {
                journal.remove().map_err(|e| e.fault())?;
                return Ok(None);
            }
            Err(error) => {
                tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
                return Ok(None);
            }
        };
        if replayed.valid_len < journal.len() {
            tracing::info!(target: "longhaul::journal", %tag, valid = replayed.valid_len, len = journal.len(), "a journal's torn end is cut");
            journal.truncate(replayed.valid_len).map_err(|e| e.fault())?;
        }
        let live = replayed.files.into_iter().map(|(number, partial)| (number, (partial.file, Some(partial.held))));
        let state = State {
            writer: replayed.writer,
            opened: replayed.opened,
            ours: false,
            next_number: replayed.next_number,
            live: live.collect(),
            claimed: HashSet::new(),
            stale: false,
            done: replayed.done.iter().map(|done| done_key(&done.file.path, &done.file.source)).collect(),
        };
        Ok(Some(Book { tag, journal: Some(journal), state: Mutex::new(state), owned: AtomicBool::new(false) }))
    }

    pub(super) fn tag(&self) -> SessionTag {
        self.tag
    }

    /// Whether the session that began it lives: its temporaries are no one else's business.
    pub(super) fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Acquire)
    }

    /// That session is over.
    pub(super) fn disown(&self) {
        self.owned.store(false, Ordering::Release);
    }

    pub(super) fn principal(&self) -> String {
        self.state().opened.principal.clone()
    }

    /// Who wrote it last, and when.
    pub(super) fn opened(&self) -> Opened {
        self.state().opened.clone()
    }

    /// Files that are partial, and how many bytes of each are held as far as that is known here.
    pub(super) fn partials(&self) -> Vec<(FileRecord, u64)> {
        let state = self.state();
        let bytes = |file: &FileRecord, held: &Option<HeldChunks>| held.as_ref().map_or(0, |held| held.bytes(file.map));
        state.live.values().map(|(file, held)| (file.clone(), bytes(file, held))).collect()
    }

    /// Takes the partial of a path out, for a session that holds the path. `opened` says who goes on with it: the first
    /// time that is made durable before anything else is.
    pub(super) fn take(&self, path: &RelPath, opened: &Opened) -> Result<Option<Taken>, Fault> {
        let found = {
            let mut state = self.state();
            let one = state.live.iter_mut().filter(|(_, (file, held))| file.path == *path && held.is_some());
            one.last().and_then(|(number, (file, held))| {
                Some(Taken { number: *number, file: file.clone(), held: held.take()? })
            })
        };
        if let Some(taken) = &found {
            self.state().claimed.insert(taken.number);
            self.take_over(opened)?;
        }
        Ok(found)
    }

    /// A session lets go of a file that it did not bring to its end.
    pub(super) fn let_go(&self, number: u32) {
        let mut state = self.state();
        if state.claimed.remove(&number) && state.live.contains_key(&number) {
            state.stale = true;
        }
    }

    /// Reads again what sessions that let go had written.
    ///
    /// # Errors
    /// A [`Fault`] when the journal cannot be read.
    pub(super) fn refresh(&self) -> Result<(), Fault> {
        let mut state = self.state();
        let Some(journal) = self.journal.as_ref().filter(|_| state.stale) else { return Ok(()) };
        if let Ok(replayed) = replay(journal)? {
            for (number, partial) in replayed.files {
                if !state.claimed.contains(&number) {
                    state.live.insert(number, (partial.file, Some(partial.held)));
                }
            }
            state.stale = false;
        }
        Ok(())
    }

    /// Whether the session that left this committed this version of a source at `path`.
    pub(super) fn is_done(&self, path: &RelPath, source: &SourceStamp) -> bool {
        self.state().done.contains(&done_key(path, source))
    }

    fn take_over(&self, opened: &Opened) -> Result<(), Fault> {
        let generation = {
            let mut state = self.state();
            if std::mem::replace(&mut state.ours, true) {
                return Ok(());
            }
            state.opened.generation + 1
        };
        let opened = Opened { generation, ..opened.clone() };
        if let Some(journal) = &self.journal {
            journal.reassert().map_err(|e| e.fault())?;
        }
        self.append(&[Record::Opened(opened.clone())])?;
        self.sync()?;
        self.state().opened = opened;
        Ok(())
    }

    /// Announces a file; gives its number.
    pub(super) fn announce(&self, file: impl FnOnce(u32) -> FileRecord) -> Result<u32, Fault> {
        let mut state = self.state();
        let number = state.next_number;
        let file = file(number);
        self.append_to(&mut state, &[Record::File(file.clone())])?;
        state.next_number += 1;
        state.live.insert(number, (file, None));
        state.claimed.insert(number);
        Ok(number)
    }

    /// Appends records of files that are announced.
    pub(super) fn append(&self, records: &[Record]) -> Result<(), Fault> {
        self.append_to(&mut self.state(), records)
    }

    fn append_to(&self, state: &mut State, records: &[Record]) -> Result<(), Fault> {
        let (mut writer, mut bytes) = (state.writer.clone(), Vec::new());
        records.iter().for_each(|record| writer.record(record, &mut bytes));
        if let Some(journal) = &self.journal {
            journal.append(&bytes).map_err(|e| e.fault())?;
        }
        state.writer = writer;
        for record in records {
            if let Record::Done { number } | Record::Dropped { number } = record {
                state.live.remove(number);
                state.claimed.remove(number);
            }
        }
        Ok(())
    }

    /// Makes durable what was appended before.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.sync().map_err(|e| e.fault()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn done_key(path: &RelPath, source: &SourceStamp) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(path.as_bytes());
    let (mtime, ctime) = (source.mtime, source.ctime);
    for word in [0, source.len, source.dev, source.ino, mtime.secs as u64, ctime.secs as u64] {
        hasher.update(&word.to_le_bytes());
    }
    for word in [mtime.nanos, ctime.nanos] {
        hasher.update(&word.to_le_bytes());
    }
    let mut key = [0; 16];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    key
}

/// What a journal comes to.
pub(super) fn replay(journal: &Journal) -> Result<Result<Replayed, JournalError>, Fault> {
    let mut replay = Replay::new();
    journal
        .read(&mut |bytes| {
            replay.push(bytes);
            !replay.ended()
        })
        .map_err(|e| e.fault())?;
    Ok(replay.finish())
}

impl Drop for Book {
    fn drop(&mut self) {
        let empty = self.state().live.is_empty();
        if let Some(journal) = self.journal.take().filter(|_| empty)
            && let Err(error) = journal.remove()
        {
            tracing::warn!(target: "longhaul::journal", tag = %self.tag, %error, "a finished journal cannot be removed");
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("opened", &self.opened).field("live", &self.live.len()).finish_non_exhaustive()
    }
}
