//! Owns the partials of one root: its shelf of journals, the journal files that are open, and the
//! owners of paths.
//!
//! In: the shelf, and each receiving session that begins. Out: a [`SessionJournal`] for each. There
//! is one of it for each root in a process, so that its sessions share journal files. It knows no
//! messages and no machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::{Blame, Fault, FaultCode, Layout, RelPath, SessionTag, hint};
use longhaul_disk::{Shelf, Shelved, boot_id};
use longhaul_proto::journal::keeper::Beginning;
use longhaul_proto::journal::{Opened, Origin};

use super::claims::RootClaims;
use super::doubts::Doubts;
use super::file::{JournalFile, SoundRecords};
use super::open_files::{OpenFiles, lock};
use super::outline::{Elsewhere, Looked, Outline, Whose, look};
use super::owners::{Holder, PathOwners};
use super::presence::Presence;
use super::{Principal, SessionJournal};
use crate::random::nonce;

/// The partials of one root.
#[derive(Debug)]
pub(crate) struct RootJournals {
    pub(super) shelf: Shelf,
    pub(super) books: OpenFiles,
    pub(super) holds: PathOwners,
    /// Names in doubt, as far as this process knows.
    pub(super) doubts: Doubts,
    /// The layout of the destinations that lie in it.
    pub(super) layout: Layout,
    /// The claims of movers on shards.
    claims: Arc<RootClaims>,
    /// The id of this host's boot.
    boot: [u8; 16],
    /// The number of unfinished transfers that one principal may leave.
    unfinished_max: AtomicUsize,
    /// Milliseconds for which a journal of another process is waited for.
    patience_ms: AtomicU64,
}

/// The outcome of an attempt to open a journal that was left.
#[derive(Debug)]
pub(super) enum Acquired {
    /// It is open, in this process alone.
    Book(Arc<JournalFile>),
    /// Another process has it.
    Elsewhere,
    /// It stands no more, or holds nothing to continue.
    Gone,
}

/// Journals on the shelf, newest first.
#[derive(Debug, Default)]
pub(super) struct Outlines {
    /// Journals of the principal that asks.
    pub(super) own_outlines: Vec<Outline>,
    /// Journals of other principals, whose sessions live in other processes.
    pub(super) foreign: Vec<Outline>,
}

impl RootJournals {
    /// The partials whose journals lie on `shelf`, of a destination of this layout, without a
    /// limit. `doubts` are those of earlier sessions of the run.
    pub(crate) fn new(shelf: Shelf, layout: Layout, doubts: &Doubts) -> Arc<RootJournals> {
        RootJournals::knowing(shelf, layout, (boot_id(), usize::MAX), doubts.clone())
    }

    /// The partials of a dataset that is staged beneath this root, on a shelf of its own, with the
    /// same limit.
    pub(crate) fn staged(&self, shelf: Shelf, layout: Layout, doubts: &Doubts) -> Arc<RootJournals> {
        let unfinished_max = self.unfinished_max.load(Ordering::Relaxed);
        RootJournals::knowing(shelf, layout, (self.boot, unfinished_max), doubts.clone())
    }

    /// The same for a root, which has one target, with a limit: a principal that has left
    /// `unfinished_max` transfers unfinished begins no other one.
    pub(crate) fn keeping(shelf: Shelf, unfinished_max: usize) -> Arc<RootJournals> {
        RootJournals::with(shelf, Layout::WHOLE, boot_id(), unfinished_max)
    }

    /// The same in a boot of this id.
    pub(super) fn with(shelf: Shelf, layout: Layout, boot: [u8; 16], unfinished_max: usize) -> Arc<RootJournals> {
        RootJournals::knowing(shelf, layout, (boot, unfinished_max), Doubts::default())
    }

    fn knowing(
        shelf: Shelf,
        layout: Layout,
        (boot, unfinished_max): ([u8; 16], usize),
        doubts: Doubts,
    ) -> Arc<RootJournals> {
        let (books, holds) = (OpenFiles::default(), PathOwners::default());
        let shelf = shelf.proved_by(Arc::new(SoundRecords(layout)));
        let unfinished_max = AtomicUsize::new(unfinished_max);
        let patience_ms = AtomicU64::new(LOOKED_THROUGH_MAX.as_millis() as u64);
        let claims = RootClaims::new(shelf.clone());
        Arc::new(RootJournals { claims, shelf, books, holds, doubts, layout, boot, unfinished_max, patience_ms })
    }

    /// Waits for so long from now on where another process has a journal that a session wants. By
    /// default that is only as long as a sweep looks through one.
    pub(crate) fn wait_for_others(&self, patience: Duration) {
        self.patience_ms.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The claims of movers on shards that are written beneath this root.
    pub(crate) fn claims(&self) -> &Arc<RootClaims> {
        &self.claims
    }

    /// See [`RootJournals::wait_for_others`].
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.load(Ordering::Relaxed))
    }

    /// Sets the number of unfinished transfers that one principal may leave. Those that are left
    /// stay.
    pub(crate) fn keep_at_most(&self, unfinished_max: usize) {
        self.unfinished_max.store(unfinished_max, Ordering::Relaxed);
    }

    /// The number of unfinished transfers that one principal may leave.
    pub(super) fn unfinished_max(&self) -> usize {
        self.unfinished_max.load(Ordering::Relaxed)
    }

    /// Refuses another journal to a principal that has left too many.
    ///
    /// # Errors
    /// A [`Fault`] of code [`FaultCode::NoSpace`] that says what to do.
    pub(super) fn need_room(&self, left: &Outlines) -> Result<(), Fault> {
        let unfinished = left.own_outlines.iter().filter(|outline| !outline.live).count();
        if unfinished < self.unfinished_max.load(Ordering::Relaxed) {
            return Ok(());
        }
        let why =
            format_args!("{unfinished} transfers of the same client were left unfinished here, and no more are kept");
        Err(Fault::new(FaultCode::NoSpace, Blame::Local, why).hint(hint::Daemon::FinishOrAskForUnfinished))
    }

    /// Begins a receiving session of a run whose paths lie beneath `prefix`: looks at the journals
    /// that were left.
    ///
    /// A [`Fault`] when the journals on the shelf cannot be looked at.
    pub(crate) fn begin(
        self: &Arc<Self>,
        who: &Principal,
        run: [u8; 16],
        prefix: RelPath,
        presence: Arc<Presence>,
    ) -> Result<SessionJournal, Fault> {
        let session = nonce()?;
        let mut tag = SessionTag([0; 8]);
        tag.0.copy_from_slice(&nonce()?[..8]);
        let now = SystemTime::now();
        let opened = Opened {
            principal: who.principal.clone(),
            owner: who.owner.clone(),
            pid: std::process::id(),
            at_unix: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            generation: 1,
            session,
        };
        let author = Beginning { opened, origin: Origin { boot: self.boot, run }, layout: self.layout };
        let outlines = self.outlines(&author)?;
        let me = Arc::new(Holder { tag, owner: who.owner.clone(), since: now, presence });
        Ok(SessionJournal::new(self.clone(), outlines, author, me, prefix))
    }

    /// Begins the journal of a session.
    pub(super) fn begin_book(&self, tag: SessionTag, author: &Beginning) -> Result<Arc<JournalFile>, Fault> {
        let journal = self.shelf.create(tag)?;
        let book = Arc::new(JournalFile::begin(journal, author, Vec::new())?);
        *lock(&self.books.entry(tag)) = Arc::downgrade(&book);
        Ok(book)
    }

    /// Looks at all journals, for `author`. Locks only those that never promised anything, which
    /// are removed.
    pub(super) fn outlines(&self, author: &Beginning) -> Result<Outlines, Fault> {
        let whose = Whose::of(author);
        let tags = self.shelf.list().map_err(Fault::from).or_else(|fault| match fault.code {
            // The shelf is another user's: it has no journals of ours.
            FaultCode::Denied => Ok(Vec::new()),
            _ => Err(fault),
        });
        let mut outlines = Outlines::default();
        for tag in tags? {
            match self.look(tag, &whose)? {
                Looked::Own(outline) => outlines.own_outlines.push(outline),
                Looked::Foreign(outline) if !self.books.is_open(tag) => outlines.foreign.push(outline),
                Looked::Doubts(paths) => self.know_doubts(paths),
                Looked::Unopened => drop(self.acquire(tag, Duration::ZERO)?),
                Looked::Foreign(_) | Looked::Nothing => {}
            }
        }
        outlines.own_outlines.sort_by_key(|outline| std::cmp::Reverse(outline.opened.at_unix));
        Ok(outlines)
    }

    /// Looks at a journal.
    pub(super) fn look(&self, tag: SessionTag, whose: &Whose) -> Result<Looked, Fault> {
        match self.shelf.look(tag) {
            Ok(Some(reader)) if self.books.is_open(tag) => look(&reader, whose, Elsewhere::No),
            Ok(Some(reader)) => look(&reader, whose, Elsewhere::Maybe),
            Ok(None) => Ok(Looked::Nothing),
            Err(error) => {
                tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
                Ok(Looked::Nothing)
            }
        }
    }

    /// Opens a journal for writing, or returns the journal file that is open here. Waits `patience`
    /// for one that another process holds: that may only be looking through it.
    pub(super) fn acquire(&self, tag: SessionTag, patience: Duration) -> Result<Acquired, Fault> {
        let until = Instant::now() + patience;
        loop {
            if let Some(acquired) = self.try_acquire(tag)? {
                return Ok(acquired);
            }
            if Instant::now() >= until {
                return Ok(Acquired::Elsewhere);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn try_acquire(&self, tag: SessionTag) -> Result<Option<Acquired>, Fault> {
        let entry = self.books.entry(tag);
        let mut open = lock(&entry);
        if let Some(book) = open.upgrade() {
            book.refresh()?;
            return Ok(Some(Acquired::Book(book)));
        }
        match self.shelf.open(tag) {
            Ok(Shelved::Free(journal)) => {
                let Some(book) = JournalFile::read(journal, self.layout)? else { return Ok(Some(Acquired::Gone)) };
                let book = Arc::new(book);
                *open = Arc::downgrade(&book);
                Ok(Some(Acquired::Book(book)))
            }
            Ok(Shelved::Held(_)) => Ok(None),
            Ok(Shelved::Gone) => Ok(Some(Acquired::Gone)),
            Err(error) => {
                tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
                Ok(Some(Acquired::Gone))
            }
        }
    }
}

/// How long to wait for a journal that a sweep or a daemon's collection only looks through.
const LOOKED_THROUGH_MAX: Duration = Duration::from_secs(1);
/// The wait between two attempts to open a journal that another process holds.
const LOOK_EVERY: Duration = Duration::from_millis(10);
