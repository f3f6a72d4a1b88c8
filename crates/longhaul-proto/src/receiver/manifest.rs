//! The manifest as the receiver holds it: entries without outcome, the pages that brought them, and
//! the paths that are being written.
//!
//! In: pages and their entries, outcomes. Out: the entry of an id, the credit for more pages, and
//! the directories at whose end nothing before is left. Knows nothing of what becomes of an entry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_core::digest::Hash32;
use longhaul_core::limits::{
    ENTRIES_UNSETTLED_MAX, EXTRAS_COST_MAX, MESSAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PAGE_EXTRAS_COST, PAGES_UNANSWERED_MAX,
};
use longhaul_core::{BundleId, Entry, EntryKind, Fault, FileId, RelPath};

use super::dirs::OpenDirs;
use super::large::LargeTarget;
use super::names::{Naming, WaitingNames};
use super::order::{EntryRef, Replace};
use crate::steps;
use crate::wire::message::{Page, PageExtras, PageNames};

/// The entries of a session that have no outcome yet. See the module.
#[derive(Debug, Default)]
pub(super) struct ReceivedManifest {
    /// The entries, by id.
    entries: BTreeMap<FileId, PendingEntry>,
    /// Bytes that the names of all entries occupy.
    names_bytes: usize,
    /// Number of entries that are ends of directories.
    dir_ends: usize,
    /// Placed paths of files and links that are on their way, so that no two entries share one.
    busy: BTreeSet<RelPath>,
    /// Entries that wait to become names of other files.
    pub(super) waiting: WaitingNames,
    /// The id that the next page must begin with.
    next: FileId,
    open_dirs: OpenDirs,
    pages: Pages,
    /// The extras of the page that is to come next.
    extras: Option<PageExtras>,
    /// The files with several names of the page that is to come next.
    names: Option<PageNames>,
    /// Whether directories at the front are being finished.
    is_finishing_dirs: bool,
}

/// The flow of manifest pages: how many were taken, answered and asked for.
#[derive(Debug, Default)]
struct Pages {
    taken: u64,
    answered: u64,
    credit: u64,
    last_seen: bool,
}

/// An entry without outcome, and its state.
#[derive(Debug)]
pub(super) struct PendingEntry {
    /// The entry, as the disk is told of it.
    pub(super) entry: Arc<EntryRef>,
    /// How far it is.
    pub(super) state: EntryState,
    /// The bundle that the file came in, if the verdict on the bundle waits for this file.
    pub(super) bundle: Option<BundleId>,
    /// Whether its rename may replace a standing file. Never, if nothing stood under its name.
    pub(super) replace: Replace,
    /// Whether it holds its path in [`ReceivedManifest::busy`].
    pub(super) busy: bool,
}

/// The state of an entry until it is settled: each with its next states and their events.
///
/// ```text
/// state       event                                      next state
/// (new)       its page came, and it has a place          Surveyed
/// (new)       its page came, and it has no place         Unplaced
/// (new)       its page came, and it ends a directory     DirEnd
/// Unplaced    its page is surveyed                       (settled)
/// Surveyed    link                                       Staging
/// Surveyed    small file to send                         Wanted
/// Surveyed    small file to compare                      Comparing
/// Surveyed    file in chunks                             Large
/// Surveyed    skipped, and its root is wanted            Digesting
/// Surveyed    another name of a file that came before    Naming
/// Surveyed    any other, or its survey failed            (settled)
/// Digesting   the root is read, or not                   (settled)
/// Comparing   the root is read                           Compared
/// Comparing   unreadable, and it may be replaced         Wanted
/// Comparing   unreadable, and it may not be replaced     (settled)
/// Compared    the source has its root                    Retouching
/// Compared    the source has another root                Staging
/// Compared    wrong digest, not sent, or not to replace  (settled)
/// Wanted      it came in a bundle                        Staging
/// Wanted      wrong digest, or not sent                  (settled)
/// Retouching  unchanged and its metadata set, or not     (settled)
/// Staging     written under a temporary name             Staged
/// Staging     not written                                (settled)
/// Staged      read back and spoilt, with attempts left   Wanted
/// Staged      its batch is over                          (settled)
/// Naming      the name is made                           Linked
/// Naming      it is one already, or is skipped           (settled)
/// Naming      the same, and its root is wanted           Digesting
/// Naming      it cannot be; small file to send           Wanted
/// Naming      it cannot be; small file to compare        Comparing
/// Naming      it cannot be; file in chunks               Large
/// Linked      its batch is over                          (settled)
/// Large       see LargeStage                             (settled)
/// DirEnd      all before it is settled, and it is set    (settled)
/// ```
#[derive(Debug)]
pub(super) enum EntryState {
    /// The disk looks up its name.
    Surveyed,
    /// It has no place beneath the destination. It fails when its page is answered.
    Unplaced(Fault),
    /// A small file: the root of the standing file is being read.
    Comparing,
    /// A skipped file: the standing file is being read for its root.
    Digesting,
    /// A small file that is wanted unless the source has this root, which the standing file has.
    Compared(Hash32),
    /// A small file that stands with this root, as in the source: its metadata is being set.
    Retouching(Hash32),
    /// A small file that is wanted.
    Wanted,
    /// A small file (its root) or a link (`None`) that is written under a temporary name.
    Staging(Option<Hash32>),
    /// A small file (its root) or a link (`None`) that waits for its batch or is in it.
    Staged(Option<Hash32>),
    /// It is to become a name of another file: that has no outcome yet, or the disk makes the name.
    Naming(Box<Naming>),
    /// It is a name of another file (the root of that, if it is known), under a temporary name, and
    /// waits for its batch or is in it.
    Linked(Option<Hash32>),
    /// A file that comes in chunks.
    Large(Box<LargeTarget>),
    /// The end of a directory. It waits until everything before it is settled.
    DirEnd,
}

impl ReceivedManifest {
    /// A manifest of which `credit` pages are asked for.
    pub(super) fn new(credit: u64) -> ReceivedManifest {
        ReceivedManifest { pages: Pages { credit, ..Pages::default() }, ..ReceivedManifest::default() }
    }

    /// Takes a page, whose entries follow by [`ReceivedManifest::insert`].
    ///
    /// # Errors
    /// A [`Fault`] of the peer if the page was not asked for, or does not follow the one before.
    pub(super) fn take_page(&mut self, page: &Page) -> Result<(), Fault> {
        if self.pages.last_seen || self.pages.taken >= self.pages.credit {
            return Err(Fault::protocol("more manifest pages than were asked for"));
        }
        let count = page.entries.len();
        if page.first != self.next || count > PAGE_ENTRIES_MAX || (count == 0 && !page.last) {
            return Err(Fault::protocol("a manifest page that does not follow the one before"));
        }
        self.pages.taken += 1;
        self.pages.last_seen = page.last;
        Ok(())
    }

    /// Takes the extras of the page that is to come next.
    ///
    /// # Errors
    /// A [`Fault`] of the peer if the page before has not come, or if they are not what one page
    /// may have.
    pub(super) fn take_extras(&mut self, extras: PageExtras) -> Result<(), Fault> {
        let is_ordered = extras.entries.is_sorted_by(|(one, _), (next, _)| one < next);
        let begins_there = extras.entries.first().is_some_and(|(first, _)| *first >= self.next);
        let fits = extras.cost() <= PAGE_EXTRAS_COST + EXTRAS_COST_MAX
            && extras.entries.iter().all(|(_, extras)| extras.cost() <= EXTRAS_COST_MAX);
        if self.pages.last_seen || self.extras.is_some() || !is_ordered || !begins_there || !fits {
            return Err(Fault::protocol("extras that belong to no page"));
        }
        self.extras = Some(extras);
        Ok(())
    }

    /// Gives the entries of a page their extras.
    ///
    /// # Errors
    /// A [`Fault`] of the peer if some are of no entry of the page.
    pub(super) fn add_extras(&mut self, page: &mut Page) -> Result<(), Fault> {
        for (id, extras) in self.extras.take().into_iter().flat_map(|extras| extras.entries) {
            let at = usize::try_from(id.0.wrapping_sub(page.first.0)).unwrap_or(usize::MAX);
            let entry = page.entries.get_mut(at).ok_or_else(|| Fault::protocol("extras of no entry of their page"))?;
            entry.meta.extras = Some(Arc::new(extras));
        }
        Ok(())
    }

    /// Takes the files with several names of the page that is to come next.
    ///
    /// # Errors
    /// A [`Fault`] of the peer if the page before has not come, or if they are not what one page
    /// may have.
    pub(super) fn take_names(&mut self, names: PageNames) -> Result<(), Fault> {
        let is_ordered = names.entries.is_sorted_by(|(one, _), (next, _)| one < next);
        let begins_there = names.entries.first().is_some_and(|(first, _)| *first >= self.next);
        let fits = names.cost() <= PAGE_EXTRAS_COST + EXTRAS_COST_MAX;
        if self.pages.last_seen || self.names.is_some() || !is_ordered || !begins_there || !fits {
            return Err(Fault::protocol("several names of files that belong to no page"));
        }
        self.names = Some(names);
        Ok(())
    }

    /// Tells the files of a page which names they have.
    ///
    /// # Errors
    /// A [`Fault`] of the peer if some are of no file of the page.
    pub(super) fn add_names(&mut self, page: &mut Page) -> Result<(), Fault> {
        for (id, names) in self.names.take().into_iter().flat_map(|names| names.entries) {
            let at = usize::try_from(id.0.wrapping_sub(page.first.0)).unwrap_or(usize::MAX);
            let file = page.entries.get_mut(at).filter(|entry| matches!(entry.kind, EntryKind::File { .. }));
            let file = file.ok_or_else(|| Fault::protocol("several names of no file of their page"))?;
            file.meta.names = Some(Arc::new(names));
        }
        Ok(())
    }

    /// Checks that the next entry lies where a scan goes on.
    ///
    /// # Errors
    /// A [`Fault`] of the peer, see [`OpenDirs::take`].
    pub(super) fn follow(&mut self, entry: &Entry) -> Result<(), Fault> {
        self.open_dirs.take(entry)
    }

    /// Holds the next entry, which is to lie at `placed`. Gives it as the disk is told of it.
    pub(super) fn insert(&mut self, id: FileId, entry: Entry, placed: RelPath, state: EntryState) -> Arc<EntryRef> {
        let held = Arc::new(EntryRef { id, entry, placed });
        self.names_bytes += held.name_bytes();
        self.dir_ends += usize::from(matches!(state, EntryState::DirEnd));
        steps::begin(&state);
        self.next = FileId(id.0 + 1);
        let pending = PendingEntry { entry: held.clone(), state, bundle: None, replace: Replace::Never, busy: false };
        self.entries.insert(id, pending);
        held
    }

    /// Counts a page as answered.
    pub(super) fn answer_page(&mut self) {
        self.pages.answered += 1;
    }

    /// The number of pages that may come in all, if it grows: as many as fit the bounds. They then
    /// count as asked for.
    pub(super) fn grant(&mut self) -> Option<u64> {
        let entries = ENTRIES_UNSETTLED_MAX.saturating_sub(self.entries.len()) / PAGE_ENTRIES_MAX;
        let bytes = ENTRIES_BYTES_MAX.saturating_sub(self.names_bytes) / PAGE_NAME_BYTES_MAX;
        let upto = self.pages.answered + (entries.min(bytes) as u64).min(PAGES_UNANSWERED_MAX);
        if upto <= self.pages.credit || self.pages.last_seen {
            return None;
        }
        self.pages.credit = upto;
        Some(upto)
    }

    /// Whether the sender has named everything.
    pub(super) fn has_every_name(&self) -> bool {
        self.pages.last_seen
    }

    /// Whether the sender has named everything, and every entry has its outcome.
    pub(super) fn is_over(&self) -> bool {
        self.pages.last_seen && self.pages.answered == self.pages.taken && self.entries.is_empty()
    }

    /// Whether an entry was on a page that came.
    pub(super) fn was_offered(&self, id: FileId) -> bool {
        id < self.next
    }

    /// An entry, if it has no outcome yet.
    pub(super) fn get(&self, id: FileId) -> Option<&PendingEntry> {
        self.entries.get(&id)
    }

    /// An entry, to be changed.
    pub(super) fn get_mut(&mut self, id: FileId) -> Option<&mut PendingEntry> {
        self.entries.get_mut(&id)
    }

    /// A file in chunks, to be changed.
    pub(super) fn large(&mut self, id: FileId) -> Option<&mut LargeTarget> {
        match self.entries.get_mut(&id).map(|pending| &mut pending.state) {
            Some(EntryState::Large(large)) => Some(large),
            _ => None,
        }
    }

    /// All files in chunks, in the order of the manifest.
    pub(super) fn all_large(&self) -> impl Iterator<Item = (FileId, &LargeTarget)> {
        self.entries.iter().filter_map(|(id, pending)| match &pending.state {
            EntryState::Large(large) => Some((*id, &**large)),
            _ => None,
        })
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of entries that are no ends of directories.
    pub(super) fn len_without_ends(&self) -> usize {
        self.entries.len() - self.dir_ends
    }

    /// Bytes that the names of all entries occupy.
    pub(super) fn names_bytes(&self) -> usize {
        self.names_bytes
    }

    /// Whether small files or links are being written under temporary names.
    pub(super) fn is_staging(&self) -> bool {
        self.entries.values().any(|pending| matches!(pending.state, EntryState::Staging(_)))
    }

    /// Whether another entry is being written at this path.
    pub(super) fn is_busy(&self, placed: &RelPath) -> bool {
        self.busy.contains(placed)
    }

    /// Gives an entry its state.
    pub(super) fn set_state(&mut self, id: FileId, state: EntryState) {
        if let Some(pending) = self.entries.get_mut(&id) {
            steps::step(&mut pending.state, state);
        }
    }

    /// Gives an entry its state, and its path to it alone.
    pub(super) fn occupy(&mut self, id: FileId, state: EntryState) {
        if let Some(pending) = self.entries.get_mut(&id) {
            steps::step(&mut pending.state, state);
            pending.busy = true;
            self.busy.insert(pending.entry.placed.clone());
        }
    }

    /// Removes an entry that has its outcome, and frees its path.
    pub(super) fn remove(&mut self, id: FileId) -> Option<PendingEntry> {
        let pending = self.entries.remove(&id)?;
        self.names_bytes -= pending.entry.name_bytes();
        self.dir_ends -= usize::from(matches!(pending.state, EntryState::DirEnd));
        steps::end(&pending.state);
        if let EntryState::Large(large) = &pending.state {
            steps::end(&large.stage);
        }
        if pending.busy {
            self.busy.remove(&pending.entry.placed);
        }
        Some(pending)
    }

    /// The directories whose entries are all settled: a run of directory ends at the front of all
    /// entries. None while others are being finished.
    pub(super) fn ended_dirs(&self) -> Vec<Arc<EntryRef>> {
        if self.is_finishing_dirs {
            return Vec::new();
        }
        let ends = self.entries.values().take_while(|pending| matches!(pending.state, EntryState::DirEnd));
        ends.map(|pending| pending.entry.clone()).collect()
    }

    /// Directories are being finished from now on.
    pub(super) fn begin_finishing_dirs(&mut self) {
        self.is_finishing_dirs = true;
    }

    /// No directory is being finished any more.
    pub(super) fn end_finishing_dirs(&mut self) {
        self.is_finishing_dirs = false;
    }

    /// Panics at the first bound that is broken, and at the first counter that differs from what
    /// the entries themselves say.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn audit(&self) {
        assert!(self.entries.len() <= ENTRIES_UNSETTLED_MAX, "{} entries", self.entries.len());
        let bytes = self.entries.values().map(|pending| pending.entry.name_bytes()).sum::<usize>();
        assert_eq!(self.names_bytes, bytes, "bytes of names");
        let dir_ends = self.entries.values().filter(|pending| matches!(pending.state, EntryState::DirEnd)).count();
        assert_eq!(self.dir_ends, dir_ends, "ends of directories");
        let busy = self.entries.values().filter(|pending| pending.busy).map(|pending| pending.entry.placed.clone());
        assert_eq!(self.busy, busy.collect(), "busy paths");
    }
}

/// Bytes of the names of unsettled entries. A usual window of 32 Ki entries takes two fifths of it.
const ENTRIES_BYTES_MAX: usize = 16 << 20;
/// Bytes that one page may add: names as sent, as placed (maybe under a longer top), as reserved;
/// and extras.
const PAGE_NAME_BYTES_MAX: usize =
    3 * MESSAGE_BYTES_MAX + 2 * 256 * PAGE_ENTRIES_MAX + 2 * (PAGE_EXTRAS_COST + EXTRAS_COST_MAX);
const _: () = assert!(PAGES_UNANSWERED_MAX as usize * PAGE_NAME_BYTES_MAX <= ENTRIES_BYTES_MAX);
