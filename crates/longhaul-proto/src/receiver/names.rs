//! Further names of files: an entry that is another name of a file of this transfer is not sent,
//! but made a name (hard link) of that file once that one stands.
//!
//! In: entries whose sender says which name came first, the outcomes of first names, and what the
//! disk could do. Out: orders to make names, and, where one cannot be made, the entry on the way
//! that it would have gone without. A sender's word makes no link: the disk checks that the first
//! name is of a file that may get another one. Nothing is remembered of a first name that is
//! settled; what waits for one is an entry without outcome.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longhaul_core::digest::Hash32;
use longhaul_core::{EntryKind, FileId, RelPath};

use super::compare::{Comparison, goes_in_chunks};
use super::partial::Partial;
use super::policy::{PolicyDecision, Seen, is_committed};
use super::skipped::wants_digest;
use super::{EntryRef, EntryState, Receiver, ReceiverAction};
use crate::time::Timestamp;
use crate::wire::message::{CheckFiles, Message, Outcome};

/// A name that is to become one of a file with several.
#[derive(Debug)]
pub(super) struct Naming {
    /// Its way if that cannot be.
    otherwise: Otherwise,
    /// The partial that an earlier session left of it.
    partial: Option<Arc<Partial>>,
    /// The place of the first name.
    first: RelPath,
    /// How many names it has waited for that failed.
    failed: u8,
}

/// The way of an entry that cannot become a name of another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Otherwise {
    /// It is skipped.
    Skip,
    /// It is sent.
    Send,
    /// It is compared with what stands.
    Compare,
}

/// The result of an order to make a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// It stands under a temporary name. With the root of the file, if that is known.
    Staged(Option<Hash32>),
    /// It is a name of that file already. With the root of the file, if that is known; else it only
    /// stands with the length and time that the source has.
    Stood(Option<Hash32>),
    /// It cannot be made, and the disk has counted it as lost.
    Refused,
}

/// How many first names may fail before those that wait for one wait no more. A file that cannot be
/// read has all of its names fail.
const FAILED_FIRST_MAX: u8 = 4;

/// The entries that wait for first names. See the module.
#[derive(Debug, Default)]
pub(super) struct WaitingNames {
    /// The entries that wait for the entry at a path.
    waiting: HashMap<RelPath, Vec<FileId>>,
    /// How many these are.
    count: usize,
    /// First names that are skipped and read for their roots: another name would change them.
    read: HashSet<RelPath>,
}

impl WaitingNames {
    /// The number of entries that wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Notes that a skipped file is read whole.
    pub(super) fn reads(&mut self, held: &EntryRef) {
        if held.entry.meta.names.is_some() {
            self.read.insert(held.placed.clone());
        }
    }

    fn wait(&mut self, first: &RelPath, id: FileId) {
        self.waiting.entry(first.clone()).or_default().push(id);
        self.count += 1;
    }

    /// Takes out the entries that waited for a first name, which has its outcome now.
    pub(super) fn settled(&mut self, first: &RelPath) -> Vec<FileId> {
        self.read.remove(first);
        let waiting = self.waiting.remove(first).unwrap_or_default();
        self.count -= waiting.len();
        waiting
    }

    /// Panics if a counter is wrong.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn audit(&self) {
        assert_eq!(self.count, self.waiting.values().map(Vec::len).sum::<usize>(), "entries that wait for a name");
    }
}

impl Receiver {
    /// How a surveyed entry becomes a name of another file. `None` if it does not.
    pub(super) fn naming(
        &mut self,
        held: &EntryRef,
        seen: &Seen,
        (doubtful, committed): (bool, bool),
        partial: Option<&Arc<Partial>>,
    ) -> Option<Naming> {
        let names = held.entry.meta.names.as_ref().filter(|_| !self.config.dry_run)?;
        let is_file = matches!(held.entry.kind, EntryKind::File { .. });
        let was_settled = committed && !doubtful && is_committed(&held.entry, seen);
        if !is_file || was_settled || self.manifest.is_busy(&held.placed) {
            return None;
        }
        // A sender may name what was not asked for: nothing is linked to that.
        let first = self.config.landing.place(names.first.as_ref()?).ok()?;
        let otherwise = match self.config.policy.decide(&held.entry, &held.placed, seen, doubtful) {
            PolicyDecision::Skip => Otherwise::Skip,
            PolicyDecision::Send => Otherwise::Send,
            PolicyDecision::Compare => Otherwise::Compare,
            PolicyDecision::Fail(_) => return None,
        };
        (first != held.placed).then(|| Naming { otherwise, partial: partial.cloned(), first, failed: 0 })
    }

    /// Has an entry made a name of another file, once that has its outcome.
    pub(super) fn begin_naming(&mut self, id: FileId, naming: Naming) {
        let first = naming.first.clone();
        self.manifest.occupy(id, EntryState::Naming(Box::new(naming)));
        if self.manifest.is_busy(&first) || self.manifest.waiting.read.contains(&first) {
            self.manifest.waiting.wait(&first, id);
        } else {
            self.order_name(id);
        }
    }

    fn order_name(&mut self, id: FileId) {
        if let Some(slot) = self.manifest.get(id)
            && let EntryState::Naming(naming) = &slot.state
        {
            self.actions.push(ReceiverAction::MakeName { entry: slot.entry.clone(), first: naming.first.clone() });
        }
    }

    /// A first name stands: the entries that waited for it are made names of its file.
    pub(super) fn first_name_stands(&mut self, waiting: Vec<FileId>) {
        if !self.leaves_entries() {
            waiting.into_iter().for_each(|id| self.order_name(id));
        }
    }

    /// A first name failed: the first of the entries that waited for it goes the way of any entry,
    /// and the others wait for that. Those that have waited for several in vain go their own way.
    pub(super) fn first_name_failed(&mut self, waiting: Vec<FileId>) {
        if self.leaves_entries() {
            return;
        }
        let mut next: Option<RelPath> = None;
        for id in waiting {
            let waits_for = next.clone().filter(|next| self.manifest.is_busy(next));
            let Some(slot) = self.manifest.get_mut(id) else { continue };
            let EntryState::Naming(naming) = &mut slot.state else { continue };
            naming.failed = naming.failed.saturating_add(1);
            if let Some(first) = waits_for.filter(|_| naming.failed < FAILED_FIRST_MAX) {
                naming.first = first.clone();
                self.manifest.waiting.wait(&first, id);
            } else {
                next = Some(slot.entry.placed.clone());
                self.go_without_name(id);
            }
        }
    }

    /// Whether entries without an outcome are left to another session.
    fn leaves_entries(&self) -> bool {
        self.is_over() || self.is_draining() || self.session.is_ending()
    }

    /// Has an entry go the way that it would have gone if its file had no other name.
    fn go_without_name(&mut self, id: FileId) {
        let Some(slot) = self.manifest.get_mut(id) else { return };
        let EntryState::Naming(naming) = &mut slot.state else { return };
        let (otherwise, partial, held) = (naming.otherwise, naming.partial.take(), slot.entry.clone());
        let in_chunks = goes_in_chunks(&held.entry.kind, self.config.bundled_max);
        match otherwise {
            Otherwise::Skip => self.skip(id, held),
            Otherwise::Compare if !in_chunks => {
                self.manifest.set_state(id, EntryState::Comparing);
                self.compare_small(vec![held]);
            }
            Otherwise::Send | Otherwise::Compare => {
                // The answer to its page did not want it.
                let files = vec![(id, None)];
                self.actions.push(ReceiverAction::Send(Message::CheckFiles(CheckFiles { files })));
                let comparison = (otherwise == Otherwise::Compare).then(Comparison::default);
                self.begin(id, &held, partial, comparison);
            }
        }
    }

    /// Settles an entry that stands, after its root was read if that is wanted.
    fn skip(&mut self, id: FileId, held: Arc<EntryRef>) {
        if wants_digest(&self.config, &held) {
            self.manifest.set_state(id, EntryState::Digesting);
            self.digest_skipped(vec![held]);
        } else {
            self.finish(id, Outcome::Skipped);
        }
    }

    /// The name of an entry is made, or stands, or cannot be made.
    pub fn handle_name(&mut self, now: Timestamp, id: FileId, named: Named) {
        if self.is_over() {
            return;
        }
        let Some(slot) = self.manifest.get(id) else { return };
        let (EntryState::Naming(naming), held) = (&slot.state, slot.entry.clone()) else { return };
        let is_same = naming.otherwise == Otherwise::Skip;
        match named {
            Named::Staged(root) => {
                self.manifest.set_state(id, EntryState::Linked(root));
                self.committer.gather(now, id, 0, false);
            }
            // What is left without an outcome is left to another session.
            _ if self.is_draining() || self.session.is_ending() => {}
            Named::Stood(Some(root)) if !is_same => self.finish(id, Outcome::Equal(root)),
            Named::Stood(Some(root)) if wants_digest(&self.config, &held) => self.finish(id, Outcome::Stands(root)),
            Named::Stood(_) if is_same => self.skip(id, held),
            // Its length and time are not enough: its content is compared, or comes anew.
            Named::Stood(_) | Named::Refused => self.go_without_name(id),
        }
        self.settle_down(now);
    }
}
