//! Owns the session's journal at the destination side: records, outcomes, and the removal of what
//! is given up, each behind the record that must come first.
//!
//! In: the machine's orders and outcomes. Out: jobs of the one thread that writes the journal. It
//! knows no chunks and no messages.

use std::sync::Arc;

use longhaul_core::{Author, EntryKind, Fault, FileId, Sums};
use longhaul_disk::{DiskError, TargetTree};
use longhaul_proto::receiver::{EntryRef, JournalEntry};
use longhaul_proto::wire::message::Outcome;

use super::jobs::Pool;
use super::{DestinationDone, DestinationWorkers};
use crate::journals::SessionJournal;
use crate::session::dataset::StagedDataset;

/// The session's journal, and the entries that are still to be put away.
pub(super) struct Journalling {
    /// The session's journal. `None` where nothing outlives the session anyway.
    ledger: Option<Arc<SessionJournal>>,
    /// The dataset that it receives. `None`: each file appears when it is done.
    dataset: Option<Arc<StagedDataset>>,
    /// Held once by each entry that is at its end and is still to be put away.
    chores: Arc<()>,
}

impl Journalling {
    /// The journal of a session, and the dataset that it receives.
    pub(super) fn new(ledger: Option<Arc<SessionJournal>>, dataset: Option<Arc<StagedDataset>>) -> Journalling {
        Journalling { ledger, dataset, chores: Arc::default() }
    }

    /// The session's journal. `None` where nothing outlives the session anyway.
    pub(super) fn ledger(&self) -> Option<&Arc<SessionJournal>> {
        self.ledger.as_ref()
    }

    /// The dataset that the session receives, if everything is to appear together.
    pub(super) fn dataset(&self) -> Option<&Arc<StagedDataset>> {
        self.dataset.as_ref()
    }
}

impl DestinationWorkers {
    /// Whether more settled entries wait to be put away than the disk does in a moment.
    pub(crate) fn is_swamped(&self) -> bool {
        Arc::strong_count(&self.journalling.chores) > CHORES_WAITING_MAX
    }

    /// Writes records to the journal.
    pub(crate) fn journal(&self, records: Vec<JournalEntry>) {
        let ledger = self.journalling.ledger.clone();
        self.jobs.report(Pool::Journal, move |_| {
            DestinationDone::Journal(ledger.map_or(Ok(()), |ledger| ledger.write(&records)))
        });
    }

    /// Whether all files are to appear together at the end of this session.
    pub(crate) fn has_dataset(&self) -> bool {
        self.journalling.dataset.as_ref().is_some_and(|dataset| dataset.is_listed())
    }

    /// Makes standing files durable, checks that the destination is still where it was, and puts
    /// the journal away, behind everything that still writes there. Then a dataset appears.
    pub(crate) fn tidy(&self) {
        let (ledger, dry_run) = (self.journalling.ledger.clone(), self.options.dry_run);
        let (dataset, claim) = (self.journalling.dataset.clone(), self.aftermath.keeping.claim.clone());
        self.jobs.report(Pool::Journal, move |tree| {
            let synced = if dry_run { Ok(()) } else { end_tree(tree) };
            let synced = synced.map_err(Fault::from);
            if let Some(ledger) = ledger.filter(|_| synced.is_ok()) {
                ledger.put_away(tree);
            }
            let appeared = || dataset.map_or(Ok(()), |dataset| dataset.commit(claim.as_deref()));
            DestinationDone::Tidy(synced.and_then(|()| appeared()))
        });
    }

    /// Records an outcome. With the further checksums of a file.
    pub(crate) fn settled(&mut self, held: &Arc<EntryRef>, outcome: &Outcome, sums: &Sums) {
        self.list(held, outcome, sums);
        self.settled_name(held, outcome);
        self.reading.forget(held.id);
        let Some(ledger) = self.journalling.ledger.clone() else { return };
        if matches!(outcome, Outcome::Failed(fault) if fault.author == Author::Local) {
            ledger.thin(&held.placed);
        }
        let chore = self.journalling.chores.clone();
        if held.entry.kind == EntryKind::DirEnd && matches!(outcome, Outcome::Committed(_)) {
            let end = held.clone();
            // Behind the files that are still being discarded there.
            return self.jobs.run(Pool::Journal, move || {
                ledger.leave_dir(&end);
                drop(chore);
            });
        }
        if ledger.concerns(held) {
            let (tree, held, outcome) = (self.jobs.reporter().tree().clone(), held.clone(), outcome.clone());
            self.jobs.run(Pool::Journal, move || {
                ledger.settled(&*tree, &held, &outcome);
                drop(chore);
            });
        }
    }

    /// Puts an entry with its outcome on the list of the dataset.
    fn list(&self, held: &Arc<EntryRef>, outcome: &Outcome, sums: &Sums) {
        let Some(dataset) = self.journalling.dataset.clone() else { return };
        if !dataset.is_listed() {
            return dataset.goes_on_staging();
        }
        let (held, outcome, sums) = (held.clone(), outcome.clone(), sums.clone());
        let (preserve, chore) = (self.options.preserve, self.journalling.chores.clone());
        self.jobs.run(Pool::Journal, move || {
            dataset.settled(&held, &outcome, &sums, preserve);
            drop(chore);
        });
    }

    /// Removes the temporary of a file.
    pub(crate) fn discard(&mut self, file: FileId) {
        let (open, staged) = self.files.take(file);
        let (tree, ledger) = (self.jobs.reporter().tree().clone(), self.journalling.ledger.clone());
        let chore = self.journalling.chores.clone();
        if let Some(ledger) = &ledger {
            open.iter().for_each(|open| ledger.thin(open.target().path()));
            staged.iter().filter_map(|batch| batch.get(file)).for_each(|staged| ledger.thin(staged.path()));
        }
        // In the journal's order: a file is dropped in the journal before it is put away.
        self.jobs.run(Pool::Journal, move || {
            if let Some(open) = open {
                open.target().discard();
            }
            if let Some(batch) = staged {
                batch.discard(file);
            }
            if let Some(ledger) = ledger {
                ledger.discard(&*tree, file);
            }
            drop(chore);
        });
    }

    /// Closes a file that another session may continue. A worthless file is removed.
    pub(crate) fn release(&mut self, file: FileId) {
        if self.journalling.ledger().is_some_and(|ledger| ledger.keeps(file)) {
            let gone = self.files.take_unbatched(file);
            self.jobs.run(Pool::Stage, move || drop(gone));
        } else {
            self.discard(file);
        }
    }

    /// Ends the wait for partials that are read back before they are continued.
    pub(crate) fn hurry(&self) {
        if let Some(ledger) = self.journalling.ledger() {
            ledger.stop_proving();
        }
    }

    /// Gives up: removes those open files that are not worth keeping for another session.
    pub(crate) fn give_up(&mut self) {
        self.hurry();
        self.journalling.dataset().into_iter().for_each(|dataset| dataset.give_up());
        self.reading.stop_digests();
        self.files.unbatched().into_iter().for_each(|file| self.release(file));
    }
}

/// Makes standing names durable, checks where they are, and ends the destination.
fn end_tree(tree: &dyn TargetTree) -> Result<(), DiskError> {
    tree.sync_dirs(&[])?;
    tree.check_place()?;
    tree.finish()
}

/// Entries that may wait to be put away before no more are taken in, at some 500 bytes each: as
/// many as end while a slow disk syncs once.
const CHORES_WAITING_MAX: usize = 64 << 10;
