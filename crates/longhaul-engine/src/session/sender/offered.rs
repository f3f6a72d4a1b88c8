//! Owns the entries that a sending session has offered and that have no outcome.
//!
//! In: entries as the machine numbers them, and their outcomes. Out: where this side reads an
//! entry, and what another session has to offer again. It knows no machine and no messages.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longhaul_core::{Entry, EntryKind, FileId, RelPath};
use longhaul_proto::receiver::{EntryRef, Landing};
use longhaul_proto::wire::message::Outcome;

use super::sums::SentSums;
use crate::session::course::{EntrySource, UnsettledEntry};
use crate::session::dirs::Dirs;
use crate::session::source::Origin;

/// The offered entries. See the module.
pub(in crate::session) struct OfferedEntries {
    outstanding: HashMap<FileId, UnsettledEntry>,
    /// Bytes of the names of outstanding entries.
    names_bytes: usize,
    /// Directories that were offered and whose end is not settled.
    dirs: Dirs,
    /// Where the receiver puts entries.
    landing: Landing,
    /// Their further checksums.
    pub(super) sums: SentSums,
    /// Entries under whose names something stood. `None`: the receiver does not say.
    pub(super) replaced: Option<HashSet<FileId>>,
}

impl OfferedEntries {
    /// No entries. The receiver puts them where they are named, as long as it says nothing else.
    pub(super) fn new() -> OfferedEntries {
        OfferedEntries {
            outstanding: HashMap::new(),
            names_bytes: 0,
            dirs: Dirs::default(),
            landing: Landing::beneath(),
            sums: SentSums::default(),
            replaced: None,
        }
    }

    /// Has the one source take this name at the receiver.
    pub(super) fn rename(&mut self, name: Vec<u8>) {
        self.landing = Landing::beneath().renamed_to(name);
        // Entries of the first page were offered before this was known.
        for known in self.outstanding.values_mut() {
            let entry = &known.held.entry;
            let placed = self.landing.place(&entry.path).unwrap_or_else(|_| entry.path.clone());
            self.names_bytes -= name_bytes(&known.held);
            known.held = Arc::new(EntryRef { id: known.held.id, entry: entry.clone(), placed });
            self.names_bytes += name_bytes(&known.held);
        }
    }

    /// Whether the one source takes the destination's name.
    pub(super) fn are_renamed(&self) -> bool {
        self.landing.renamed().is_some()
    }

    /// Whether the names of another entry have room.
    pub(super) fn have_room(&self) -> bool {
        self.names_bytes < NAMES_BYTES_MAX
    }

    /// Bytes of the names of outstanding entries.
    pub(super) fn names_bytes(&self) -> usize {
        self.names_bytes
    }

    /// Adds an entry that the machine offers as `id`. `known`: what else is known of it.
    pub(super) fn add(&mut self, id: FileId, entry: Entry, known: impl FnOnce(Arc<EntryRef>) -> UnsettledEntry) {
        // Where the receiver says it puts the entry, or the entry's own path.
        let placed = self.landing.place(&entry.path).unwrap_or_else(|_| entry.path.clone());
        self.dirs.offered(id, &entry.kind);
        let held = Arc::new(EntryRef { id, entry, placed });
        self.names_bytes += name_bytes(&held);
        self.outstanding.insert(id, known(held));
    }

    /// Where this side reads an entry. `None` if it has its outcome or cannot be read.
    pub(super) fn origin(&self, file: FileId) -> Option<Arc<Origin>> {
        match self.outstanding.get(&file).map(|known| &known.source) {
            Some(EntrySource::Readable(origin)) => Some(origin.clone()),
            _ => None,
        }
    }

    /// The length of a file that has no outcome, and where it is placed. `None` if there is no such
    /// file. The length of a stream is not known here.
    pub(super) fn file(&self, file: FileId) -> Option<(Option<u64>, &RelPath)> {
        let held = &self.outstanding.get(&file)?.held;
        match held.entry.kind {
            EntryKind::File { len, .. } => Some((Some(len), &held.placed)),
            EntryKind::Stream { .. } => Some((None, &held.placed)),
            _ => None,
        }
    }

    /// Notes an entry under whose name something stood. Gives whether the receiver may say so: it
    /// was agreed on, and the entry has no outcome and no such note.
    pub(super) fn note_replaced(&mut self, file: FileId) -> bool {
        let is_known = self.outstanding.contains_key(&file);
        is_known && self.replaced.as_mut().is_some_and(|replaced| replaced.insert(file))
    }

    /// Removes an entry that has its outcome. `None` if there is none such, or its outcome was
    /// reported before.
    pub(super) fn settle(&mut self, file: FileId, outcome: &Outcome) -> Option<UnsettledEntry> {
        let known = self.outstanding.remove(&file)?;
        self.names_bytes -= name_bytes(&known.held);
        match known.held.entry.kind {
            EntryKind::Dir => {
                let has_failed = matches!(outcome, Outcome::Failed(_));
                self.dirs.settled(file, UnsettledEntry { is_reported: has_failed, ..known.clone() });
                if has_failed && known.is_reported {
                    return None;
                }
            }
            EntryKind::DirEnd => self.dirs.ended(file),
            _ => {}
        }
        Some(known)
    }

    /// The entries without outcome, and the directories to offer again before their content.
    pub(in crate::session) fn into_parts(
        self,
    ) -> (impl Iterator<Item = (FileId, UnsettledEntry)>, impl Iterator<Item = UnsettledEntry>) {
        (self.outstanding.into_iter(), self.dirs.into_settled())
    }
}

/// Bytes of the names of an offered entry, as it is sent and as it is placed, of its extras, and
/// of the first name of its file.
fn name_bytes(held: &EntryRef) -> usize {
    let bytes = |path: &RelPath| path.as_bytes().len();
    let extras = held.entry.meta.extras.as_ref().map_or(0, |extras| extras.cost());
    let names = held.entry.meta.names.as_ref().map_or(0, |names| names.cost());
    bytes(&held.entry.path) + bytes(&held.placed) + extras + names
}

/// Bytes of names of entries without outcome. It is three times the most that an honest receiver
/// allows, as that lets no more be outstanding than it holds itself.
const NAMES_BYTES_MAX: usize = 32 << 20;
