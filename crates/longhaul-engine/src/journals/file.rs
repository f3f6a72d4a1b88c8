//! Owns a journal that is open for writing, with its lock. What is written to it, and in which
//! order, is decided by its [`Book`]; this file carries it out.
//!
//! In: records of sessions. Out: partials to continue. Several sessions may write to one journal
//! file at a time. Dropping it never removes the journal: only the journal knows of temporaries
//! without a record, so the code that removes it has looked for them first (`session/close`,
//! `collect`). It knows no paths of other sessions and no messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::{Fault, Layout, RelPath, SessionTag};
use longhaul_disk::{DiskError, Journal, Pieces, Proves};
use longhaul_proto::journal::keeper::{Abandoned, Beginning, Book, Failed, JournalChange, JournalOp, TakenPartial};
use longhaul_proto::journal::{End, FileRecord, JournalError, JournalId, Record, Replay, Replayed};

use crate::random::nonce;

/// A journal that is open for writing.
#[derive(Debug)]
pub(super) struct JournalFile {
    journal: Journal,
    tag: SessionTag,
    layout: Layout,
    /// Decides what is written. Locked while anything but a sync by itself is carried out.
    book: Mutex<Book>,
    /// Whether the session that began it lives.
    owned: AtomicBool,
}

impl JournalFile {
    /// Begins a journal that opens with these records. It is not durable before
    /// [`JournalFile::sync`].
    pub(super) fn begin(journal: Journal, beginning: &Beginning, more: Vec<Record>) -> Result<JournalFile, Fault> {
        let (book, change) = Book::begin(JournalId(nonce()?), beginning, more);
        let file = JournalFile { owned: AtomicBool::new(true), ..JournalFile::of(journal, beginning.layout, book) };
        let begun = file.carry_out(&mut file.book(), change);
        if let Err(fault) = begun {
            // A journal that promises nothing would keep its name from the next attempt.
            if let Err(error) = file.remove() {
                tracing::warn!(target: "longhaul::journal", %error, "an empty journal stays");
            }
            return Err(fault);
        }
        Ok(file)
    }

    /// Reads a journal that was left at a destination of this layout. `None` if it never promised
    /// anything, or nothing of it is for us to touch.
    pub(super) fn read(journal: Journal, layout: Layout) -> Result<Option<JournalFile>, Fault> {
        let tag = journal.tag();
        let replayed = match replay(&journal, layout)? {
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
        let (valid, len, end) = (replayed.valid_len, journal.len(), replayed.end);
        let (book, cut) = Book::left(replayed, len);
        let file = JournalFile::of(journal, layout, book);
        if let Some(cut) = cut {
            if end == End::Misplaced {
                tracing::warn!(target: "longhaul::journal", %tag, "a journal was written for another number of targets: what it says of chunks is not believed");
            }
            tracing::info!(target: "longhaul::journal", %tag, valid, len, "a journal's torn end is cut");
            file.carry_out(&mut file.book(), cut)?;
        }
        Ok(Some(file))
    }

    /// A journal whose session is over.
    fn of(journal: Journal, layout: Layout, book: Book) -> JournalFile {
        let (tag, owned) = (journal.tag(), AtomicBool::new(false));
        JournalFile { tag, journal, layout, book: Mutex::new(book), owned }
    }

    pub(super) fn tag(&self) -> SessionTag {
        self.tag
    }

    /// Whether it is known that no session of another process has it: it is locked, or it was
    /// continued here. Where a file system has no locks, a journal that nobody seems to have may be
    /// that of a session that lives.
    pub(super) fn is_ours(&self) -> bool {
        self.journal.is_locked() || self.book().is_ours()
    }

    /// Whether the session that began it lives: nobody else touches its temporaries then.
    pub(super) fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Acquire)
    }

    /// Records that the session that began it is over.
    pub(super) fn disown(&self) {
        self.owned.store(false, Ordering::Release);
    }

    /// Takes a partial of a path out, for a session that owns the path and takes the journal over
    /// next.
    pub(super) fn take(&self, path: &RelPath) -> Option<TakenPartial> {
        self.book().take(path)
    }

    /// Takes the journal over, durably, for the session of this beginning; once is enough.
    pub(super) fn take_over(&self, beginning: &Beginning) -> Result<(), Fault> {
        let mut book = self.book();
        match book.take_over(beginning).map_err(|error| self.abandoned(error))? {
            Some(change) => self.carry_out(&mut book, change),
            None => Ok(()),
        }
    }

    /// Records that a session lets go of a file that it did not bring to its end.
    pub(super) fn let_go(&self, number: u32) {
        self.book().let_go(number);
    }

    /// Reads again the records of sessions that let go.
    ///
    /// # Errors
    /// A [`Fault`] when the journal cannot be read.
    pub(super) fn refresh(&self) -> Result<(), Fault> {
        let mut book = self.book();
        if book.is_stale()
            && let Ok(replayed) = replay(&self.journal, self.layout)?
        {
            book.refresh(replayed);
        }
        Ok(())
    }

    /// Announces a file. Returns its record, with its number.
    pub(super) fn announce(&self, file: FileRecord) -> Result<FileRecord, Fault> {
        let mut book = self.book();
        let record = FileRecord { number: book.number(), ..file };
        self.append_to(&mut book, vec![Record::File(record.clone())])?;
        Ok(record)
    }

    /// Appends records of announced files and of directories.
    pub(super) fn append(&self, records: Vec<Record>) -> Result<(), Fault> {
        self.append_to(&mut self.book(), records)
    }

    fn append_to(&self, book: &mut Book, records: Vec<Record>) -> Result<(), Fault> {
        match book.append(records).map_err(|error| self.abandoned(error))? {
            Some(change) => self.carry_out(book, change),
            None => Ok(()),
        }
    }

    /// Makes durable all records that were appended before.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        let change = self.book().sync().map_err(|error| self.abandoned(error))?;
        // Appends go on meanwhile.
        let synced = self.do_all(&change);
        let mut book = self.book();
        self.end(&mut book, change, synced)
    }

    /// Removes the journal from the shelf.
    ///
    /// # Errors
    /// A [`Fault`] of the disk. The journal stands then.
    pub(super) fn remove(self) -> Result<(), Fault> {
        self.journal.remove().map_err(Fault::from)
    }

    /// Carries a change out while nothing else is written, and tells the book of its end.
    fn carry_out(&self, book: &mut Book, change: JournalChange) -> Result<(), Fault> {
        let done = self.do_all(&change);
        self.end(book, change, done)
    }

    fn do_all(&self, change: &JournalChange) -> Result<(), DiskError> {
        change.ops().iter().try_for_each(|op| match op {
            JournalOp::Cut { len } => self.journal.truncate(*len),
            JournalOp::Rewrite => self.journal.reassert(),
            JournalOp::Append(bytes) => self.journal.append(bytes),
            JournalOp::Sync => self.journal.sync(),
        })
    }

    fn end(&self, book: &mut Book, change: JournalChange, done: Result<(), DiskError>) -> Result<(), Fault> {
        match &done {
            Ok(()) => book.done(change),
            Err(_) if self.journal.is_usable() => book.failed(Failed::Undone),
            Err(_) => book.failed(Failed::Broken),
        }
        done.map_err(Fault::from)
    }

    fn abandoned(&self, _: Abandoned) -> Fault {
        self.journal.abandoned().fault()
    }

    /// The machine of this journal.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replays a journal of a destination of this layout. The inner error is that of a journal that
/// cannot be read.
pub(super) fn replay(journal: &Journal, layout: Layout) -> Result<Result<Replayed, JournalError>, Fault> {
    let mut replay = Replay::over(layout);
    journal.read(&mut |bytes| {
        replay.push(bytes);
        !replay.ended()
    })?;
    let mut replayed = replay.finish();
    if let Ok(replayed) = &mut replayed
        && !journal.is_sure()
    {
        // A copy that is not here may have taken chunks back: what is held is read back (COPIES-5).
        replayed.files.values_mut().for_each(|partial| partial.placed = None);
    }
    Ok(replayed)
}

/// Says how far the records of a journal are sound, where its copies differ.
#[derive(Debug)]
pub(super) struct SoundRecords(pub(super) Layout);

impl Proves for SoundRecords {
    fn proven_len(&self, read: &mut Pieces<'_>) -> u64 {
        let mut replay = Replay::over(self.0);
        read(&mut |bytes| {
            replay.push(bytes);
            !replay.ended()
        });
        replay.finish().map_or(0, |replayed| replayed.valid_len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, FileNode, SourceStamp, TempName};
    use longhaul_disk::{Marks, SameDevice, Shelved, TargetDirs, TargetSet, Writing};
    use longhaul_proto::journal::{Opened, Origin, Run};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test takes a copy away")]
    fn where_a_copy_of_a_journal_is_not_there_what_the_other_one_holds_is_not_trusted() {
        // COPIES-5.
        let top = tempfile::tempdir().expect("scratch");
        let dirs = ["a", "b"].map(|name| top.path().join(name));
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
        let named = TargetDirs { same_device: SameDevice::Allowed, ..TargetDirs::set(dirs.to_vec()) };
        let set = TargetSet::open(&named, Marks::Made, Writing::Wanted).expect("a set");
        let shelf = set.shelf().proved_by(Arc::new(SoundRecords(Layout::WHOLE)));
        let (path, map) = (RelPath::new("f").expect("a path"), ChunkMap::new(9, ChunkSize::DEFAULT));
        for (number, lost) in [(1, None), (2, Some(0)), (3, Some(1))] {
            let tag = SessionTag([number; 8]);
            let opened = Opened { generation: 1, ..Opened::default() };
            let beginning = Beginning { opened, origin: Origin::default(), layout: Layout::WHOLE };
            let journal = shelf.create(tag).expect("created");
            let file = JournalFile::begin(journal, &beginning, Vec::new()).expect("begun");
            let (source, temp) = (SourceStamp::default(), TempName::new(tag, [1; 8]));
            let record = FileRecord { number: 0, path: path.clone(), map, source, sparse: false, temp };
            let number = file.announce(record).expect("announced").number;
            let runs = vec![Run { start: ChunkIndex(0), digests: vec![[7; 32]] }];
            let records = vec![Record::Placed { number, node: FileNode::default() }, Record::Chunks { number, runs }];
            file.append(records).expect("appended");
            file.sync().expect("synced");
            drop(file);
            if let Some(n) = lost {
                let dir: &std::path::Path = &dirs[n];
                std::fs::remove_file(dir.join(format!(".longhaul/{tag}.journal"))).expect("there");
            }
            let Shelved::Free(journal) = shelf.open(tag).expect("opened") else { panic!("it is free") };
            let left = JournalFile::read(journal, Layout::WHOLE).expect("read").expect("it holds something");
            let taken = left.take(&path).expect("it is there");
            assert_eq!((taken.held.bytes(map), taken.placed.is_some()), (9, lost.is_none()), "{lost:?}");
        }
    }
}
