//! Owns the names that a failed sync left in doubt: they are written to journals of their own, and
//! known to every session of the root.
//!
//! In: names that were published and may not be on the medium; names that were committed anew, or
//! read back. Out: whether a name is in doubt. A journal of doubts is made anew each time, as that
//! of the session may have failed with the disk. It stands until the last doubt in it has ended. It
//! knows no messages and no machines.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{Fault, RelPath, SessionTag};
use longhaul_disk::Shelved;
use longhaul_proto::journal::Record;
use longhaul_proto::journal::keeper::Beginning;

use super::file::JournalFile;
use super::{RootJournals, SessionJournal};
use crate::random::nonce;

/// Names in doubt, as far as this process knows. Clones are the same names: a run gives them from
/// one of its sessions to the next, as the disk may have failed to keep the journal of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts(Arc<Mutex<HashSet<RelPath>>>);

impl Doubts {
    fn lock(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionJournal {
    /// Records that these names, as placed at the destination, are in doubt; durable on return. In
    /// this process they are in doubt even if that fails.
    ///
    /// # Errors
    /// A [`Fault`] of the disk: then other processes do not know of the doubt.
    pub(crate) fn doubt(&self, placed: &[RelPath]) -> Result<(), Fault> {
        let paths = placed.iter().map(|path| self.full(path)).collect::<Result<Vec<_>, _>>()?;
        if paths.is_empty() {
            return Ok(());
        }
        self.store.doubt(paths, self.author())
    }

    /// Whether a name is in doubt: the content that the system shows of it proves nothing.
    pub(crate) fn is_doubtful(&self, placed: &RelPath) -> bool {
        !self.store.doubts().is_empty() && self.full(placed).is_ok_and(|path| self.store.doubts().contains(&path))
    }

    /// Ends doubts: these names were committed anew, durably, or read back from the medium and
    /// found right. A name whose end of doubt cannot be recorded stays in doubt for later sessions,
    /// which costs no more than sending it again.
    pub(crate) fn end_doubts(&self, placed: &[RelPath]) {
        let paths: Vec<RelPath> = placed.iter().filter_map(|path| self.full(path).ok()).collect();
        if let Err(fault) = self.store.end_doubts(&paths) {
            tracing::warn!(target: "longhaul::journal", %fault, "names stay in doubt that no longer are");
        }
    }
}

impl RootJournals {
    fn doubts(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.doubts.lock()
    }

    /// Adds the doubts of a journal on the shelf.
    pub(super) fn know_doubts(&self, paths: Vec<RelPath>) {
        self.doubts().extend(paths);
    }

    fn doubt(&self, paths: Vec<RelPath>, author: &Beginning) -> Result<(), Fault> {
        tracing::warn!(target: "longhaul::journal", names = paths.len(), "a sync failed: names are in doubt and will be sent anew");
        self.know_doubts(paths.clone());
        let mut tag = SessionTag([0; 8]);
        tag.0.copy_from_slice(&nonce()?[..8]);
        let journal = self.shelf.create(tag)?;
        JournalFile::begin(journal, author, vec![Record::Doubtful { paths }])?.sync()
    }

    fn end_doubts(&self, paths: &[RelPath]) -> Result<(), Fault> {
        let ended: BTreeSet<RelPath> = {
            let mut doubts = self.doubts();
            paths.iter().filter(|path| doubts.remove(path)).cloned().collect()
        };
        if ended.is_empty() {
            return Ok(());
        }
        for tag in self.shelf.list()? {
            self.end_doubts_of(tag, &ended)?;
        }
        Ok(())
    }

    /// Ends doubts in one journal, if it is one of doubts and nobody has it.
    fn end_doubts_of(&self, tag: SessionTag, ended: &BTreeSet<RelPath>) -> Result<(), Fault> {
        let Some(reader) = self.shelf.look(tag)? else { return Ok(()) };
        let mut peek = longhaul_proto::journal::Replay::new();
        reader.read(&mut |bytes| {
            peek.push(bytes);
            peek.may_be_of_doubts()
        })?;
        if !peek.finish().is_ok_and(|replayed| !replayed.doubts.is_disjoint(ended)) {
            return Ok(());
        }
        // Another process that ends doubts in it at this moment leaves ours to a later session.
        let Shelved::Free(journal) = self.shelf.open(tag)? else { return Ok(()) };
        let Some(file) = JournalFile::read(journal, self.layout)? else { return Ok(()) };
        if file.book().doubts().is_subset(ended) {
            return file.remove();
        }
        let paths = file.book().doubts().intersection(ended).cloned().collect();
        file.append(vec![Record::Certain { paths }])?;
        file.sync()
    }
}
