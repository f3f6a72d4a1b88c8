//! What one receiving session writes down, and what it finds that others wrote.
//!
//! In: names that are surveyed, orders to open, records. Out: partials to continue, open temporaries. Called from the
//! target side's threads; the order of calls for one file is the machine's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::digest::Digest;
use longhaul_core::{
    Blame, ChunkIndex, ChunkMap, ChunkSize, EntryKind, Fault, FaultCode, FileId, RelPath, SessionTag, SourceStamp,
    TempName,
};
use longhaul_disk::{TargetFile, TargetTree};
use longhaul_proto::journal::{FileRecord, Opened, Record, Run, Stretch};
use longhaul_proto::receiver::{self, Created, Held, Partial, Source};
use longhaul_proto::wire::message::Outcome;

use super::Store;
use super::book::{Book, Taken};
use super::holds::{self, Holder, held};
use super::store::Elsewheres;
use crate::lane::join::nonce;

/// The journal side of a receiving session. Dropping it lets go of its paths and of the journals.
#[derive(Debug)]
pub(crate) struct Ledger {
    store: Arc<Store>,
    /// Its own journal, once anything is made.
    own: Mutex<Own>,
    /// Books of the same principal, newest first; none any more when all is put away.
    left: Mutex<Vec<Arc<Book>>>,
    elsewhere: Elsewheres,
    opened: Opened,
    me: Holder,
    prefix: RelPath,
    /// Files that are claimed, until they are settled.
    claims: Mutex<HashMap<FileId, Claim>>,
}

/// A session's own journal.
#[derive(Debug, Default)]
enum Own {
    /// Nothing was made yet.
    #[default]
    NotYet,
    /// It stands.
    Book(Arc<Book>),
    /// The top of the tree is not ours to write a journal to: nothing is written down, and nothing will be continued.
    Unwritten,
}

/// A path that this session writes.
#[derive(Debug)]
struct Claim {
    path: RelPath,
    /// What an earlier session left of it, and where it is written down.
    found: Option<Found>,
    /// Where the file is written down now.
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Found {
    book: Arc<Book>,
    taken: Taken,
}

#[derive(Clone, Debug)]
struct Entry {
    book: Arc<Book>,
    number: u32,
    /// Whether any chunk of it is journalled.
    worth: bool,
}

/// What is known of a path that is about to be received.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// What is left of it under a temporary name.
    pub(crate) partial: Option<Arc<Partial>>,
    /// An earlier session committed this very version.
    pub(crate) committed: bool,
}

impl Ledger {
    pub(super) fn new(
        store: Arc<Store>,
        mut left: Vec<Arc<Book>>,
        elsewhere: Elsewheres,
        opened: Opened,
        me: Holder,
        prefix: RelPath,
    ) -> Ledger {
        left.sort_by_key(|book| std::cmp::Reverse(book.opened().at_unix));
        let (own, left, claims) = (Mutex::default(), Mutex::new(left), Mutex::default());
        Ledger { store, own, left, elsewhere, opened, me, prefix, claims }
    }

    /// By which temporaries of this session are known.
    pub(crate) fn tag(&self) -> SessionTag {
        self.me.tag
    }

    /// Sees to it that this session has a journal.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub(crate) fn begin(&self) -> Result<(), Fault> {
        self.own().map(drop)
    }

    /// This session's journal, made when it is needed first; none where it may not be made.
    fn own(&self) -> Result<Option<Arc<Book>>, Fault> {
        let mut own = lock(&self.own);
        if matches!(*own, Own::NotYet) {
            *own = match self.store.begin_book(self.me.tag, self.opened.clone()) {
                Ok(book) => Own::Book(book),
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

    /// Lets go of all journals: those in which nothing is left to be continued go.
    pub(crate) fn put_away(&self) {
        self.let_go();
        lock(&self.left).clear();
    }

    fn let_go(&self) {
        self.claims().drain().for_each(|(_, claim)| claim.let_go());
        if let Own::Book(own) = std::mem::take(&mut *lock(&self.own)) {
            own.disown();
        }
        self.store.holds.release_all(self.me.tag);
    }

    /// The largest chunk of what may be continued.
    pub(crate) fn largest_chunk(&self) -> Option<ChunkSize> {
        let left = lock(&self.left);
        let partials = left.iter().flat_map(|book| book.partials());
        let beneath = partials.filter(|(file, _)| self.prefix.is_root() || is_beneath(&file.path, &self.prefix));
        beneath.map(|(file, _)| file.map.size()).max_by_key(|size| size.bytes())
    }

    /// Whether a temporary belongs to a session that is over and does not speak of it: nobody will go on with it.
    pub(crate) fn is_orphan(&self, temp: &TempName) -> bool {
        lock(&self.left).iter().any(|book| {
            book.tag() == temp.tag() && !book.is_owned() && !book.partials().iter().any(|(file, _)| file.temp == *temp)
        })
    }

    /// Takes the path of a file that comes in chunks; says what is known of it. Blocks while another holder is asked.
    ///
    /// # Errors
    /// A [`Fault`] of code `Busy` if another session writes it.
    pub(crate) fn claim(&self, held_entry: &Held) -> Result<Known, Fault> {
        let path = self.full(&held_entry.placed)?;
        if let Some(other) = self.elsewhere.get(&path) {
            return Err(held(&path, &other.owner, other.since));
        }
        if self.store.holds.take(&path, &self.me)? == holds::Taken::Over {
            self.look_again()?;
        }
        let stamp = stamp_of(held_entry);
        let committed = lock(&self.left).iter().any(|book| book.is_done(&path, &stamp));
        let mut found = self.find(&path)?;
        let partial = found.as_mut().map(|Found { taken, .. }| {
            let source = if taken.file.source == stamp { Source::Same } else { Source::Changed };
            Arc::new(Partial::new(taken.file.map, source, std::mem::take(&mut taken.held)))
        });
        self.claims().insert(held_entry.id, Claim { path, found, entry: None });
        Ok(Known { partial, committed })
    }

    /// A session that ended a moment ago may have begun its journal after this one had looked.
    fn look_again(&self) -> Result<(), Fault> {
        let (found, _) = self.store.open_left(&self.opened.principal)?;
        let mut left = lock(&self.left);
        for book in found {
            if book.tag() != self.me.tag && !left.iter().any(|known| Arc::ptr_eq(known, &book)) {
                left.push(book);
            }
        }
        Ok(())
    }

    /// The partial of which most is held; it alone is continued.
    fn find(&self, path: &RelPath) -> Result<Option<Found>, Fault> {
        let mut best: Option<Found> = None;
        for book in lock(&self.left).iter() {
            // Its session may have ended since this one began.
            book.refresh()?;
            while let Some(taken) = book.take(path, &self.opened)? {
                let better = best.as_ref().is_none_or(|best| taken.held.len() > best.taken.held.len());
                let found = Found { book: book.clone(), taken };
                let worse = if better { best.replace(found) } else { Some(found) };
                if let Some(worse) = worse {
                    worse.book.append(&[Record::Dropped { number: worse.taken.number }])?;
                }
            }
        }
        Ok(best)
    }

    /// Opens what a file is received into: the partial's temporary if that is to be continued and stands, else a new one,
    /// which is written down first.
    ///
    /// # Errors
    /// A [`Fault`] of the disk; nothing is left of a new temporary then.
    pub(crate) fn open(
        &self,
        tree: &dyn TargetTree,
        entry: &Held,
        partial: Option<&Partial>,
        chunk: ChunkSize,
        preserve_holes: bool,
    ) -> Result<(Arc<TargetFile>, Created), Fault> {
        let EntryKind::File { len, sparse, .. } = entry.entry.kind else {
            return Err(Fault::new(FaultCode::Internal, Blame::Bug, "chunks for something that is no file"));
        };
        let sparse = sparse && preserve_holes;
        if let Some(Found { book, taken }) = self.take_found(entry.id) {
            if let Some(partial) = partial
                && let Some(file) = tree.reopen(&entry.placed, len, sparse, &taken.file.temp).map_err(|e| e.fault())?
            {
                if partial.source() == Source::Changed {
                    revise(&book, &taken, stamp_of(entry))?;
                }
                self.enter(entry.id, Entry { book, number: taken.number, worth: true });
                return Ok((file, Created::Continued));
            }
            drop_partial(tree, &entry.placed, &book, &taken)?;
        }
        let mut random = [0; 8];
        random.copy_from_slice(&nonce()?[..8]);
        let temp = TempName::new(self.me.tag, random);
        let (path, source, map) = (self.full(&entry.placed)?, stamp_of(entry), ChunkMap::new(len, chunk));
        let book = self.own()?;
        let announce =
            |book: &Arc<Book>| book.announce(|number| FileRecord { number, path, map, source, sparse, temp });
        let number = book.as_ref().map(announce).transpose()?;
        let entered = book.zip(number);
        match (tree.create(&entry.placed, len, sparse, &temp), entered) {
            (Ok(file), entered) => {
                if let Some((book, number)) = entered {
                    self.enter(entry.id, Entry { book, number, worth: false });
                }
                Ok((file, Created::Fresh))
            }
            (Err(error), Some((book, number))) => {
                book.append(&[Record::Dropped { number }])?;
                Err(error.fault())
            }
            (Err(error), None) => Err(error.fault()),
        }
    }

    /// Appends what the machine wants remembered; durable on return where chunks are among it.
    ///
    /// # Errors
    /// A [`Fault`]: then nothing of it may be relied on.
    pub(crate) fn write(&self, records: &[receiver::Record]) -> Result<(), Fault> {
        let mut by_book: HashMap<SessionTag, (Arc<Book>, Vec<Record>, bool)> = HashMap::new();
        {
            let mut claims = self.claims();
            for record in records {
                let file = match record {
                    receiver::Record::Chunks { file, .. } | receiver::Record::Done(file) => file,
                    receiver::Record::Doubtful(_) => continue,
                };
                let Some(entry) = claims.get_mut(file).and_then(|claim| claim.entry.as_mut()) else { continue };
                let (_, lines, sync) =
                    by_book.entry(entry.book.tag()).or_insert_with(|| (entry.book.clone(), Vec::new(), false));
                match record {
                    receiver::Record::Chunks { chunks, .. } => {
                        entry.worth = true;
                        *sync = true;
                        lines.push(Record::Chunks { number: entry.number, runs: runs_of(chunks) });
                    }
                    receiver::Record::Done(_) => lines.push(Record::Done { number: entry.number }),
                    receiver::Record::Doubtful(_) => {}
                }
            }
        }
        for (book, lines, sync) in by_book.into_values() {
            book.append(&lines)?;
            if sync {
                book.sync()?;
            }
        }
        let done = records.iter().filter_map(|record| match record {
            receiver::Record::Done(file) => Some(file),
            receiver::Record::Chunks { .. } | receiver::Record::Doubtful(_) => None,
        });
        done.for_each(|file| self.forget(*file));
        Ok(())
    }

    /// What was received of a file is good for nothing.
    pub(crate) fn discard(&self, file: FileId) {
        let entry = self.claims().get_mut(&file).and_then(|claim| claim.entry.take());
        if let Some(entry) = entry
            && let Err(fault) = entry.book.append(&[Record::Dropped { number: entry.number }])
        {
            tracing::warn!(target: "longhaul::journal", %fault, "a dropped file stays in its journal");
        }
    }

    /// Whether anything of a file is worth keeping for another session.
    pub(crate) fn keeps(&self, file: FileId) -> bool {
        self.claims().get(&file).and_then(|claim| claim.entry.as_ref()).is_some_and(|entry| entry.worth)
    }

    /// An entry came to its outcome. What was left of a file that stands whole is removed; the path is free for others.
    pub(crate) fn settled(&self, tree: &dyn TargetTree, entry: &Held, outcome: &Outcome) {
        if matches!(outcome, Outcome::Skipped | Outcome::Equal(_))
            && let Some(Found { book, taken }) = self.take_found(entry.id)
            && let Err(fault) = drop_partial(tree, &entry.placed, &book, &taken)
        {
            tracing::warn!(target: "longhaul::journal", %fault, "what was left of a file cannot be removed");
        }
        // Its record still needs its number.
        if !matches!(outcome, Outcome::Committed(_)) {
            self.forget(entry.id);
        }
    }

    fn forget(&self, file: FileId) {
        if let Some(claim) = self.claims().remove(&file) {
            claim.let_go();
            self.store.holds.release(&claim.path, self.me.tag);
        }
    }

    fn enter(&self, file: FileId, entry: Entry) {
        if let Some(claim) = self.claims().get_mut(&file) {
            claim.entry = Some(entry);
        }
    }

    fn take_found(&self, file: FileId) -> Option<Found> {
        self.claims().get_mut(&file)?.found.take()
    }

    fn full(&self, placed: &RelPath) -> Result<RelPath, Fault> {
        let too_long = |e| Fault::new(FaultCode::Unsupported, Blame::Local, e).about(placed.escaped());
        self.prefix.concat(placed).map_err(too_long)
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<FileId, Claim>> {
        lock(&self.claims)
    }
}

impl Claim {
    /// Leaves what is not at its end to whoever comes.
    fn let_go(&self) {
        if let Some(entry) = &self.entry {
            entry.book.let_go(entry.number);
        }
        if let Some(found) = &self.found {
            found.book.let_go(found.taken.number);
        }
    }
}

impl Drop for Ledger {
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
fn stamp_of(held: &Held) -> SourceStamp {
    match held.entry.kind {
        EntryKind::File { len, inode, .. } => {
            SourceStamp { len, mtime: held.entry.meta.mtime, ctime: inode.ctime, dev: inode.dev, ino: inode.ino }
        }
        _ => SourceStamp::default(),
    }
}

/// The partial goes on from another version of its source: until its chunks are compared, none of them is held. Durable
/// before any of them is written anew.
fn revise(book: &Book, taken: &Taken, source: SourceStamp) -> Result<(), Fault> {
    let lost = vec![Stretch { start: ChunkIndex(0), count: taken.file.map.chunks() }];
    book.append(&[Record::Revised { number: taken.number, source, lost }])?;
    book.sync()
}

/// Gives up what was left of a file.
fn drop_partial(tree: &dyn TargetTree, placed: &RelPath, book: &Book, taken: &Taken) -> Result<(), Fault> {
    book.append(&[Record::Dropped { number: taken.number }])?;
    tree.remove_temp(placed, &taken.file.temp).map_err(|e| e.fault())
}

/// Chunks in order as runs of neighbours.
fn runs_of(chunks: &[(ChunkIndex, Digest)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, digest) in chunks {
        match runs.last_mut() {
            Some(run) if run.start.0 + run.digests.len() as u64 == index.0 => run.digests.push(*digest.bytes()),
            _ => runs.push(Run { start: *index, digests: vec![*digest.bytes()] }),
        }
    }
    runs
}
