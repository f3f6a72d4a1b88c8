//! Owns the journal side of one receiving session: the records that it writes, and the partials of
//! earlier sessions that it finds.
//!
//! In: names that are surveyed, orders to open, records. Out: partials to continue, open
//! temporaries. It is called from the destination side's threads; the machine orders the calls for
//! one file. `claim` finds the partials of a name, `open` makes temporaries or continues partials,
//! `proof` reads back chunks that are not trusted, `close` sweeps directories and puts journals
//! away. It knows no messages and no lanes.

mod claim;
mod close;
mod open;
mod proof;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::limits::STREAM_BYTES_MAX;
use longhaul_core::{Blame, ChunkSize, EntryKind, Fault, FaultCode, FileId, RelPath, SessionTag, SourceStamp};
use longhaul_disk::TargetTree;
use longhaul_proto::journal::keeper::{
    Beginning, FileNumber, FoundPartial, JournalWrites, KeeperStep, RecordedFiles, TempDirs,
};
use longhaul_proto::receiver::{self, EntryRef, Partial};
use longhaul_proto::wire::message::Outcome;

use self::claim::Rereads;
use self::proof::Proofs;
use super::RootJournals;
use super::file::JournalFile;
use super::owners::{Holder, Questions};
use super::root::Outlines;

/// The journal side of a receiving session. Dropping it releases its paths and journals.
#[derive(Debug)]
pub(crate) struct SessionJournal {
    pub(super) store: Arc<RootJournals>,
    /// Its own journal, once anything is made.
    own_file: Mutex<Own>,
    /// Directories that its own journal names as holding temporaries. Locked while that is
    /// recorded.
    dirs: Mutex<TempDirs>,
    /// Outlines of the journals that stood on the shelf when the session began.
    leftover: Mutex<Outlines>,
    /// Journals whose partials it continues. They are locked from the first partial that is taken
    /// until the session ends.
    taken: Mutex<HashMap<SessionTag, Arc<JournalFile>>>,
    author: Beginning,
    holder: Arc<Holder>,
    prefix: RelPath,
    /// Files that are claimed, until they are settled.
    claims: Mutex<Claims>,
    /// Readings back of partials.
    proofs: Proofs,
    /// Questions to the owners of paths that it wants.
    questions: Mutex<Questions>,
    /// Readings of other sessions' journals, after the first.
    rereads: Mutex<Rereads>,
}

/// A session's own journal.
#[derive(Debug, Default)]
enum Own {
    /// Nothing was made yet.
    #[default]
    NotYet,
    /// It stands.
    Book(Arc<JournalFile>),
    /// The top of the tree is not ours to write a journal to: no record is written, and no partial
    /// will be continued.
    Unwritten,
}

/// The paths that this session owns, by the numbers of their entries in the transfer.
#[derive(Debug)]
struct Claims {
    paths: HashMap<FileId, PathClaim>,
    /// Files that are recorded in journals.
    files: RecordedFiles,
    /// Names that were in doubt and were committed anew. They are recorded many at a time, at the
    /// latest when the session ends.
    certain: Vec<RelPath>,
}

/// A path that this session owns.
#[derive(Debug)]
struct PathClaim {
    path: RelPath,
    /// The partial that an earlier session left. `None` if there is none, or it is continued. Most
    /// paths have none, so that the place for one would be most of a claim.
    found: Option<Box<FoundPartial>>,
}

/// The history of a path that is about to be received.
#[derive(Debug, Default)]
pub(crate) struct PathHistory {
    /// The partial of it, if there is one.
    pub(crate) partial: Option<Arc<Partial>>,
    /// Whether an earlier session of the same run committed this very version.
    pub(crate) committed: bool,
    /// Whether a failed sync left it in doubt.
    pub(crate) doubtful: bool,
}

/// The way in which a file comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arriving {
    /// In chunks: its partial may be continued.
    InChunks,
    /// Whole, as it is short or no regular file: its partial is of no use.
    Whole,
}

impl SessionJournal {
    pub(super) fn new(
        store: Arc<RootJournals>,
        left: Outlines,
        author: Beginning,
        me: Arc<Holder>,
        prefix: RelPath,
    ) -> SessionJournal {
        let claims = Claims { paths: HashMap::new(), files: RecordedFiles::new(author.layout), certain: Vec::new() };
        SessionJournal {
            store,
            own_file: Mutex::default(),
            dirs: Mutex::default(),
            leftover: Mutex::new(left),
            taken: Mutex::default(),
            author,
            holder: me,
            prefix,
            claims: Mutex::new(claims),
            proofs: Proofs::default(),
            questions: Mutex::default(),
            rereads: Mutex::default(),
        }
    }

    /// The tag by which temporaries of this session are known.
    pub(crate) fn tag(&self) -> SessionTag {
        self.holder.tag
    }

    pub(super) fn author(&self) -> &Beginning {
        &self.author
    }

    /// Makes sure that this session has a journal that names, durably, the directories of these
    /// names as holding temporaries. It is called before the first of the temporaries is made.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub(crate) fn begin<'a>(&self, held: impl Iterator<Item = &'a EntryRef>) -> Result<(), Fault> {
        let mut wanted: Vec<(RelPath, FileId)> = Vec::new();
        let mut before = None;
        for (dir, id) in held.filter_map(|held| Some((held.placed.parent()?, held.id))) {
            // Names come in order, so that those of one directory mostly follow each other.
            match wanted.last_mut().filter(|_| before.as_ref() == Some(&dir)) {
                Some((_, last)) => *last = id.max(*last),
                None => {
                    wanted.push((self.full(&dir)?, id));
                    before = Some(dir);
                }
            }
        }
        let mut dirs = lock(&self.dirs);
        let new = dirs.unnamed(wanted);
        if new.is_empty() {
            return Ok(());
        }
        if let Some(own) = self.own()? {
            self.write_steps(&TempDirs::naming(own.tag(), &new), &[own])?;
        }
        dirs.named(new);
        Ok(())
    }

    /// This session's journal, made when it is first needed. `None` where it may not be made.
    fn own(&self) -> Result<Option<Arc<JournalFile>>, Fault> {
        let mut own = lock(&self.own_file);
        if matches!(*own, Own::NotYet) {
            self.store.need_room(&lock(&self.leftover))?;
            *own = match self.store.begin_book(self.holder.tag, &self.author) {
                Ok(book) => {
                    tracing::debug!(target: "longhaul::journal", tag = %self.holder.tag, "a journal is begun: what arrives from now on outlives this run");
                    Own::Book(book)
                }
                Err(fault) if fault.code == FaultCode::Denied => {
                    tracing::warn!(target: "longhaul::journal", %fault, "no journal can be written: what is cut off begins anew");
                    Own::Unwritten
                }
                Err(fault) => return Err(fault),
            };
        }
        Ok(match &*own {
            Own::Book(book) => Some(book.clone()),
            Own::NotYet | Own::Unwritten => None,
        })
    }

    /// The largest chunk of the partials that may be continued. `None` if there are none.
    pub(crate) fn largest_chunk(&self) -> Option<ChunkSize> {
        let left = lock(&self.leftover);
        let files = left.own_outlines.iter().flat_map(|outline| &outline.files);
        let beneath = files.filter(|(path, _)| self.prefix.is_root() || is_beneath(path, &self.prefix));
        beneath.map(|(_, size)| *size).max_by_key(|size| size.bytes())
    }

    /// Appends the machine's records. They are durable on return if chunks are among them.
    ///
    /// # Errors
    /// A [`Fault`]: then none of the records may be relied on.
    pub(crate) fn write(&self, records: &[receiver::JournalEntry]) -> Result<(), Fault> {
        for record in records {
            if let receiver::JournalEntry::Doubtful(names) = record {
                let placed: Vec<RelPath> = names.iter().map(|held| held.placed.clone()).collect();
                self.doubt(&placed)?;
            }
        }
        let mut writes = JournalWrites::default();
        {
            let files = &mut self.claims().files;
            for record in records {
                match record {
                    receiver::JournalEntry::Chunks { file, chunks } => files.hold(*file, chunks, &mut writes),
                    receiver::JournalEntry::Done(file) => files.done(*file, &mut writes),
                    receiver::JournalEntry::Doubtful(_) => {}
                }
            }
        }
        self.write_steps(&writes.into_steps(), &[])?;
        let done = records.iter().filter_map(|record| match record {
            receiver::JournalEntry::Done(file) => Some(file),
            receiver::JournalEntry::Chunks { .. } | receiver::JournalEntry::Doubtful(_) => None,
        });
        done.for_each(|file| self.forget(*file));
        Ok(())
    }

    /// Drops a file whose received bytes are good for nothing. Its temporary was removed.
    pub(crate) fn discard(&self, tree: &dyn TargetTree, file: FileId) {
        let (placed, number, steps) = {
            let dirs = lock(&self.dirs);
            let mut claims = self.claims();
            let full = claims.paths.get(&file).map(|claim| claim.path.clone()).unwrap_or_default();
            let placed = self.placed(&full).unwrap_or_default();
            let number = claims.files.number(file);
            let steps = claims.files.given_up(file, (self.holder.tag, &dirs), full.parent().zip(placed.parent()));
            (placed, number, steps)
        };
        if let Err(fault) = self.follow(tree, &placed, &steps, &[]) {
            self.let_go_of(None, number);
            tracing::warn!(target: "longhaul::journal", %fault, "a dropped file stays in its journal");
        }
    }

    /// Records that a temporary without a record was removed, or may have been. Where none was ever
    /// made, nothing is remembered: names may fail in millions of directories.
    pub(crate) fn thin(&self, placed: &RelPath) {
        let dir = self.full(placed).ok().and_then(|path| path.parent());
        if let Some(dir) = dir {
            lock(&self.dirs).thinned(dir);
        }
    }

    /// Whether any chunk of a file is worth keeping for another session.
    pub(crate) fn keeps(&self, file: FileId) -> bool {
        self.claims().files.is_held(file)
    }

    /// Whether the outcome of an entry is of interest here.
    pub(crate) fn concerns(&self, entry: &EntryRef) -> bool {
        self.claims().paths.contains_key(&entry.id) || self.is_doubtful(&entry.placed)
    }

    /// Records that an entry is settled. The partial of a file that stands whole is removed; the
    /// path is free for others.
    pub(crate) fn settled(&self, tree: &dyn TargetTree, entry: &EntryRef, outcome: &Outcome) {
        let is_committed = matches!(outcome, Outcome::Committed(_) | Outcome::Linked(_));
        if (is_committed || matches!(outcome, Outcome::Skipped | Outcome::Equal(_) | Outcome::Stands(_)))
            && let Some(found) = self.take_found(entry.id)
            && let Err(fault) = self.drop_partial(tree, &entry.placed, &found)
        {
            tracing::warn!(target: "longhaul::journal", %fault, "what was left of a file cannot be removed");
        }
        if is_committed && self.is_doubtful(&entry.placed) {
            let mut certain = Vec::new();
            {
                let gathered = &mut self.claims().certain;
                gathered.push(entry.placed.clone());
                if gathered.len() >= CERTAIN_MAX {
                    certain.append(gathered);
                }
            }
            self.end_doubts(&certain);
        }
        // The record that the file is done still needs its number.
        let is_written_down = self.claims().files.number(entry.id).is_some();
        if !matches!(outcome, Outcome::Committed(_)) || !is_written_down {
            self.forget(entry.id);
        }
    }

    /// Gives up a partial.
    fn drop_partial(&self, tree: &dyn TargetTree, placed: &RelPath, found: &FoundPartial) -> Result<(), Fault> {
        let given_up = self.follow(tree, placed, &found.given_up(placed), &[]);
        // It still is what it was, for another session.
        let number = FileNumber { journal: found.journal, number: found.taken.number };
        given_up.inspect_err(|_| self.let_go_of(None, Some(number)))
    }

    /// Takes the steps of a machine that concern journals and names. `placed` is the final name
    /// that they are about. `opened` are journals that this session has not taken yet.
    fn follow(
        &self,
        tree: &dyn TargetTree,
        placed: &RelPath,
        steps: &[KeeperStep],
        opened: &[Arc<JournalFile>],
    ) -> Result<(), Fault> {
        steps.iter().try_for_each(|step| match step {
            KeeperStep::RemoveTemp(temp) => tree.remove_temp(placed, temp).map_err(Fault::from),
            KeeperStep::SyncNames(dirs) => tree.sync_names(dirs).map_err(Fault::from),
            step => self.write_steps(std::slice::from_ref(step), opened),
        })
    }

    /// Takes steps that concern journals alone.
    fn write_steps(&self, steps: &[KeeperStep], opened: &[Arc<JournalFile>]) -> Result<(), Fault> {
        let of = |tag: &SessionTag| {
            let opened = opened.iter().find(|book| book.tag() == *tag).cloned();
            let over = || Fault::new(FaultCode::Interrupted, Blame::Local, "the session has let go of its journals");
            opened.or_else(|| self.journal(*tag)).ok_or_else(over)
        };
        steps.iter().try_for_each(|step| match step {
            KeeperStep::TakeOver(tag) => of(tag)?.take_over(&self.author),
            KeeperStep::Append { journal, records } => of(journal)?.append(records.clone()),
            KeeperStep::Sync(tag) => of(tag)?.sync(),
            KeeperStep::RemoveTemp(_) | KeeperStep::SyncNames(_) => {
                Err(Fault::new(FaultCode::Internal, Blame::Bug, "a step on names where only journals are written"))
            }
        })
    }

    /// A journal that this session began, or whose partials it continues.
    fn journal(&self, tag: SessionTag) -> Option<Arc<JournalFile>> {
        let own = match &*lock(&self.own_file) {
            Own::Book(own) if own.tag() == tag => Some(own.clone()),
            _ => None,
        };
        own.or_else(|| lock(&self.taken).get(&tag).cloned())
    }

    /// Ends the claim of a path. What is not at its end is left to the next session.
    fn forget(&self, file: FileId) {
        let (claim, number) = {
            let mut claims = self.claims();
            (claims.paths.remove(&file), claims.files.forget(file))
        };
        self.let_go_of(claim.as_ref(), number);
        if let Some(claim) = claim {
            self.store.holds.release(&claim.path, self.holder.tag);
        }
    }

    /// Leaves a file to the next session, in the journals that have it.
    fn let_go_of(&self, claim: Option<&PathClaim>, recorded: Option<FileNumber>) {
        let found = claim.and_then(|claim| claim.found.as_ref());
        let found = found.map(|found| FileNumber { journal: found.journal, number: found.taken.number });
        for FileNumber { journal, number } in found.into_iter().chain(recorded) {
            if let Some(book) = self.journal(journal) {
                book.let_go(number);
            }
        }
    }

    fn take_found(&self, file: FileId) -> Option<Box<FoundPartial>> {
        self.claims().paths.get_mut(&file)?.found.take()
    }

    pub(super) fn full(&self, placed: &RelPath) -> Result<RelPath, Fault> {
        let too_long = |e| Fault::new(FaultCode::Unsupported, Blame::Local, e).about(placed.escaped());
        self.prefix.concat(placed).map_err(too_long)
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        lock(&self.claims)
    }
}

impl Drop for SessionJournal {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn is_beneath(path: &RelPath, top: &RelPath) -> bool {
    std::iter::successors(path.parent(), RelPath::parent).any(|above| above == *top)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The version of the source that is offered.
fn stamp_of(held: &EntryRef) -> SourceStamp {
    match held.entry.kind {
        EntryKind::File { len, inode, .. } => {
            SourceStamp { len, mtime: held.entry.meta.mtime, ctime: inode.ctime, dev: inode.dev, ino: inode.ino }
        }
        EntryKind::Stream { inode, .. } => {
            let (len, mtime) = (STREAM_BYTES_MAX, held.entry.meta.mtime);
            SourceStamp { len, mtime, ctime: inode.ctime, dev: inode.dev, ino: inode.ino }
        }
        _ => SourceStamp::default(),
    }
}

/// Doubts that are ended together: all journals of doubts are read each time.
const CERTAIN_MAX: usize = 4096;
