//! A failed sync: which files of the batch under way are on the medium all the same.
//!
//! A failed sync does not say whose data was lost. Therefore the small files of the batch are read
//! back from the medium. Those with the right digest go on, behind a second sync that must succeed:
//! before the renames, or after them if the renames could not be made durable. Everything else
//! fails, and a name that stands already is journalled as doubtful, so that no later session skips
//! it by its size and time.
//!
//! A file that came in chunks fails if the barrier fails; its journalled chunks are believed and
//! stay. If the renames are in doubt, its content was synced through its own descriptor, and its
//! name waits for the second sync. Knows nothing of how a medium is read.

use std::collections::{HashMap, HashSet};

use longhaul_core::digest::Hash32;
use longhaul_core::{Fault, FaultCode, FileId};

use super::super::journal::JournalEntry;
use super::super::{EntryState, ReadBackReason, Receiver, ReceiverAction};
use super::{BatchStage, forgotten};

/// The failed sync that leaves a batch in doubt.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    /// The fault of the sync.
    fault: Fault,
    of: Doubted,
}

/// The part that could not be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubted {
    /// The files under their temporary names.
    Content,
    /// Their final names.
    Names,
}

impl Receiver {
    /// The barrier failed, the first time or again.
    pub(super) fn doubt_content(&mut self, fault: Fault) {
        if self.committer.doubt.is_some() {
            self.fail_rest(&fault);
            return self.settle_batch(&Ok(()));
        }
        let small = self.small_of_batch();
        let readable: HashSet<FileId> = small.iter().copied().collect();
        for id in self.committer.batch.iter().filter(|id| !readable.contains(id)) {
            self.committer.failures.entry(*id).or_insert_with(|| fault.clone());
        }
        self.prove(Doubt { fault, of: Doubted::Content }, small);
    }

    /// The renames could not be made durable, the first time or again.
    pub(super) fn doubt_names(&mut self, fault: Fault) {
        if matches!(&self.committer.doubt, Some(doubt) if doubt.of == Doubted::Names) {
            return self.settle_batch(&Err(fault));
        }
        // The doubt is journalled at once: however the session ends during the reading back, no
        // later one skips these files unread. A commit ends the doubt.
        self.write_down();
        let mut renamed = self.small_of_batch();
        renamed.retain(|id| !self.committer.failures.contains_key(id));
        self.prove(Doubt { fault, of: Doubted::Names }, renamed);
    }

    /// Has files read back from the medium, or goes on at once if there are none.
    fn prove(&mut self, doubt: Doubt, files: Vec<FileId>) {
        self.committer.doubt = Some(doubt);
        self.committer.enter(BatchStage::ReadBack);
        if files.is_empty() {
            return self.sync_again();
        }
        self.committer.reading = files.clone();
        self.actions.push(ReceiverAction::ReadStaged { files, why: ReadBackReason::Doubt });
    }

    /// The roots of files in doubt, as the medium gives them back. A file with another root, or one
    /// that cannot be read, fails.
    pub(super) fn proven(&mut self, results: Vec<(FileId, Result<Hash32, Fault>)>) {
        let Some(Doubt { fault, .. }) = self.committer.doubt.clone() else { return };
        let mut results: HashMap<_, _> = results.into_iter().collect();
        for id in std::mem::take(&mut self.committer.reading) {
            let (len, root) = self.staged(id);
            let failure = match results.remove(&id) {
                Some(Ok(found)) => {
                    self.tally.read_back += len;
                    if root == Some(found) {
                        continue;
                    }
                    self.tally.misread += len;
                    lost(&fault)
                }
                Some(Err(unreadable)) => unreadable,
                None => forgotten(),
            };
            self.committer.failures.insert(id, failure);
        }
        self.sync_again();
    }

    /// Orders the second sync, for the files of the batch that have not failed.
    fn sync_again(&mut self) {
        let failures = &self.committer.failures;
        let good: Vec<FileId> = self.committer.batch.iter().filter(|id| !failures.contains_key(id)).copied().collect();
        match self.committer.doubt.as_ref().map(|doubt| doubt.of) {
            _ if good.is_empty() => self.settle_batch(&Ok(())),
            Some(Doubted::Content) => {
                self.committer.enter(BatchStage::Barrier);
                self.actions.push(ReceiverAction::BarrierAgain(good));
            }
            Some(Doubted::Names) => {
                self.committer.enter(BatchStage::SyncDirs);
                self.actions.push(ReceiverAction::SyncDirsAgain(good));
            }
            None => {}
        }
    }

    /// Fails every file of the batch that has not failed yet.
    fn fail_rest(&mut self, fault: &Fault) {
        for id in &self.committer.batch {
            self.committer.failures.entry(*id).or_insert_with(|| fault.clone());
        }
    }

    /// Fails files of a batch in doubt whose target did not answer to the second sync.
    pub(super) fn fail_postponed(&mut self, files: Vec<FileId>) {
        let Some(Doubt { fault, .. }) = &self.committer.doubt else { return };
        for id in files {
            self.committer.failures.entry(id).or_insert_with(|| fault.clone());
        }
    }

    /// Has the renamed files of the batch journalled as doubtful, so that no session skips them
    /// unread.
    fn write_down(&mut self) {
        let failures = &self.committer.failures;
        let renamed = self.committer.batch.iter().filter(|id| !failures.contains_key(id));
        let held = renamed.filter_map(|id| self.manifest.get(*id).map(|slot| slot.entry.clone())).collect();
        self.journal.add(JournalEntry::Doubtful(held));
    }

    /// The files of the batch that came in bundles.
    pub(super) fn small_of_batch(&self) -> Vec<FileId> {
        let small =
            |id: &&FileId| matches!(self.manifest.get(**id).map(|slot| &slot.state), Some(EntryState::Staged(Some(_))));
        self.committer.batch.iter().filter(small).copied().collect()
    }
}

/// The fault of a file that the medium did not keep, after the failed sync with `fault`.
fn lost(fault: &Fault) -> Fault {
    let message = format_args!("the disk did not keep what was written: {}", fault.message);
    Fault { hint: fault.hint.clone(), ..Fault::new(FaultCode::Io, fault.blame, message) }
}
