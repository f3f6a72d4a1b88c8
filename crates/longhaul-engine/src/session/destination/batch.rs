//! Commits staged names together: a barrier, the renames, a sync of their directories. Also seals
//! directories at their end.
//!
//! In: names that are staged, in the machine's order. Out: the outcome of each. There is one batch
//! at a time. It knows no messages and no lanes.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_core::{Fault, FileId};
use longhaul_disk::{DiskError, ErrorKind, Staged, TargetTree};
use longhaul_proto::receiver::{EntryRef, Replace};

use super::jobs::Pool;
use super::{DestinationDone, DestinationWorkers, bug};
use crate::session::FileResult;

/// Staged names that are committed together; both lists are in the same order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    files: Vec<FileId>,
    staged: Vec<Staged>,
}

impl DestinationWorkers {
    /// Keeps the staged files. Returns the results for the machine.
    pub(crate) fn staged(&mut self, results: Vec<(FileId, Result<Staged, Fault>)>) -> Vec<FileResult> {
        let identities = results.iter().filter_map(|(id, result)| Some((*id, result.as_ref().ok()?.identity()?)));
        self.staged_identities.extend(identities);
        let keep =
            |(id, result): (FileId, Result<Staged, Fault>)| (id, result.map(|staged| self.files.staged(id, staged)));
        results.into_iter().map(keep).collect()
    }

    /// Makes a batch durable under its temporary names.
    pub(crate) fn barrier(&mut self, files: &[FileId]) {
        let (batch, before) = self.files.begin_batch(files);
        self.jobs.run(Pool::Stage, move || drop(before));
        self.jobs.report(Pool::Commit, move |tree| {
            let staged: Vec<&Staged> = batch.staged.iter().collect();
            let postponed = tree.barrier(&staged).map_err(Fault::from);
            let files = |places: Vec<usize>| places.into_iter().filter_map(|at| batch.files.get(at).copied()).collect();
            DestinationDone::Barrier(postponed.map(files))
        });
    }

    /// Takes the files that a barrier has postponed out of the batch: they are staged and wait for
    /// another one. Returns the result for the machine.
    pub(crate) fn barrier_over(&mut self, result: Result<Vec<FileId>, Fault>) -> Result<Vec<FileId>, Fault> {
        let postponed = result?;
        self.files.postpone(&postponed).ok_or_else(|| bug("a batch that is in use while none of it is renamed"))?;
        Ok(postponed)
    }

    /// Makes the rest of a batch durable again, whose content was read back from the medium.
    pub(crate) fn barrier_again(&self, files: Vec<FileId>) {
        let batch = self.files.batch();
        self.jobs.report(Pool::Commit, move |tree| {
            let by_file = batch.by_file();
            let staged: Vec<&Staged> = files.iter().filter_map(|id| by_file.get(id).copied()).collect();
            staged.iter().for_each(|staged| tree.believe(staged));
            // A later barrier would prove nothing of these.
            DestinationDone::Barrier(tree.barrier_of_all(&staged).map(|()| Vec::new()).map_err(Fault::from))
        });
    }

    /// Renames a batch. Where the session needs a claim, it must still be the one that is kept, and
    /// no other one is kept before the last rename.
    pub(crate) fn publish(&self, renames: Vec<(FileId, Replace)>) {
        let (batch, may_replace) = (self.files.batch(), self.options.may_replace);
        let claim = self.aftermath.keeping.claim.clone();
        self.jobs.report(Pool::Commit, move |tree| {
            let _right = match claim.as_ref().map(|claim| claim.publishing()).transpose() {
                Ok(right) => right,
                Err(fault) => return DestinationDone::PublishRefused(fault),
            };
            let staged = batch.by_file();
            let rename = |(id, replace): (FileId, Replace)| {
                let staged = staged.get(&id).ok_or_else(|| bug("a rename of what is not staged"));
                let renamed = staged.and_then(|staged| {
                    let renamed = match replace {
                        Replace::Allowed => tree.publish(staged, longhaul_disk::Replace::Allowed),
                        Replace::Never => publish_new(tree, staged, may_replace),
                    };
                    renamed.map_err(Fault::from)
                });
                (id, renamed)
            };
            DestinationDone::Publish(renames.into_iter().map(rename).collect())
        });
    }

    /// Makes the batch's renames durable.
    pub(crate) fn sync_dirs(&self) {
        let batch = self.files.batch();
        self.jobs.report(Pool::Commit, move |tree| {
            DestinationDone::SyncDirs(tree.sync_dirs(&batch.staged).map_err(Fault::from))
        });
    }

    /// Makes the renames durable again, through a sync that begins now: the good files of the batch
    /// were read back.
    pub(crate) fn sync_dirs_again(&self) {
        let batch = self.files.batch();
        self.jobs.report(Pool::Commit, move |tree| {
            batch.staged.iter().for_each(|staged| tree.believe(staged));
            DestinationDone::SyncDirs(tree.sync_dirs(&batch.staged).map_err(Fault::from))
        });
    }

    /// Drops a batch. Its unpublished files are removed.
    pub(crate) fn end_batch(&mut self) {
        let batch = self.files.end_batch();
        self.jobs.run(Pool::Stage, move || drop(batch));
    }

    /// Sets mode and times of directories and makes them durable.
    pub(crate) fn finish_dirs(&self, dirs: Vec<Arc<EntryRef>>) {
        let (preserve, claim) = (self.options.preserve, self.aftermath.keeping.claim.clone());
        self.jobs.report(Pool::Commit, move |tree| {
            let right = match claim.as_ref().map(|claim| claim.publishing()).transpose() {
                Ok(right) => right,
                Err(fault) => return DestinationDone::FinishDirsRefused(fault),
            };
            let finish = |held: &Arc<EntryRef>| {
                (held.id, tree.finish_dir(&held.placed, &held.entry.meta, preserve).map_err(Fault::from))
            };
            let mut results: Vec<FileResult> = dirs.iter().map(finish).collect();
            // Only what can be seen is done under the lock.
            drop(right);
            if let Err(e) = tree.sync_dirs(&[]) {
                let fault = e.fault();
                results.iter_mut().for_each(|(_, result)| *result = result.clone().and(Err(fault.clone())));
            }
            DestinationDone::FinishDirs(results)
        });
    }
}

/// Renames to a name where nothing stood. On a file system that cannot do that without the risk of
/// replacing, the name is looked at once more, if names that stand `may_replace` at all: a moment
/// is left in which another's file could appear.
fn publish_new(tree: &dyn TargetTree, staged: &Staged, may_replace: bool) -> Result<(), DiskError> {
    match tree.publish(staged, longhaul_disk::Replace::Never) {
        Err(error) if may_replace && error.kind() == ErrorKind::OnlyReplaces => match tree.examine(staged.path())? {
            None => tree.publish(staged, longhaul_disk::Replace::Allowed),
            Some(_) => Err(DiskError::Appeared { path: staged.path().into() }),
        },
        outcome => outcome,
    }
}

impl FromIterator<(FileId, Staged)> for Batch {
    fn from_iter<T: IntoIterator<Item = (FileId, Staged)>>(names: T) -> Batch {
        let (files, staged) = names.into_iter().unzip();
        Batch { files, staged }
    }
}

impl Batch {
    /// Whether it holds a file.
    pub(super) fn has(&self, file: FileId) -> bool {
        self.files.contains(&file)
    }

    pub(super) fn by_file(&self) -> HashMap<FileId, &Staged> {
        self.files.iter().copied().zip(&self.staged).collect()
    }

    pub(super) fn get(&self, file: FileId) -> Option<&Staged> {
        self.files.iter().zip(&self.staged).find(|(id, _)| **id == file).map(|(_, staged)| staged)
    }

    /// Takes files out.
    pub(super) fn take(&mut self, files: &[FileId]) -> Vec<(FileId, Staged)> {
        let all = std::mem::take(self);
        let is_taken = |(id, _): &(FileId, Staged)| files.contains(id);
        let (taken, left): (Vec<_>, Vec<_>) = all.files.into_iter().zip(all.staged).partition(is_taken);
        *self = left.into_iter().collect();
        taken
    }

    pub(super) fn discard(&self, file: FileId) {
        self.get(file).into_iter().for_each(Staged::discard);
    }
}
