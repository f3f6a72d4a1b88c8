//! Clearing away what nobody came back for.
//!
//! In: the tree that the shelf is at the top of, and how long a journal must have been left alone.
//! Out: temporaries and then their journal gone, a log line for each. Takes only what it can lock,
//! so never what a session writes; knows nothing of clocks or configuration.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::{Fault, RelPath, SessionTag};
use longhaul_disk::{ErrorKind, Journal, Shelf, Shelved, Tree};
use longhaul_proto::journal::{JournalError, Replayed};

use super::RootJournals;
use super::file::replay;
use super::open_files::lock;

impl RootJournals {
    /// Removes the partials whose journals are free and were written last longer than `age` before
    /// `now`. What cannot be removed stays, is named in the log, and is tried again the next time.
    ///
    /// # Errors
    /// A [`Fault`] when the shelf cannot be looked at.
    pub(crate) fn collect(&self, tree: &Tree, age: Duration, now: SystemTime) -> Result<(), Fault> {
        let Some(before) = now.checked_sub(age).and_then(|then| then.duration_since(UNIX_EPOCH).ok()) else {
            return Ok(());
        };
        let before = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
        for tag in self.shelf.list()? {
            if let Err(fault) = self.collect_one(tree, tag, before) {
                tracing::warn!(target: "longhaul::journal", %tag, %fault, "an abandoned partial cannot be removed");
            }
        }
        Ok(())
    }

    fn collect_one(&self, tree: &Tree, tag: SessionTag, before: i64) -> Result<(), Fault> {
        let Some(looked) = self.shelf.look(tag)? else { return Ok(()) };
        if looked.written()?.secs >= before || looked.is_live()? {
            return Ok(());
        }
        // A session of this process that begins meanwhile must not take our lock for that of a
        // session, nor wait for us unless it wants this journal.
        let entry = self.books.entry(tag);
        let open = lock(&entry);
        if open.strong_count() > 0 {
            return Ok(());
        }
        let Shelved::Free(journal) = self.shelf.open(tag)? else { return Ok(()) };
        // Somebody may have gone on with it, and left it again, since it was looked at.
        if journal.written()?.secs >= before {
            return Ok(());
        }
        remove(tree, &self.shelf, journal)
    }
}

/// Removes what a journal that is ours speaks of, durably, then the journal: if this stops in
/// between, the rest is still known.
fn remove(tree: &Tree, shelf: &Shelf, journal: Journal) -> Result<(), Fault> {
    let tag = journal.tag();
    let replayed = match replay(&journal)? {
        Ok(replayed) => replayed,
        // It never promised anything.
        Err(JournalError::Unopened) => return journal.remove().and_then(|()| shelf.sync()).map_err(Fault::from),
        Err(error) => {
            tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
            return Ok(());
        }
    };
    // What is in doubt stays so however long nobody comes: what stands there would be skipped else.
    if !replayed.doubts.is_empty() {
        return Ok(());
    }
    let mut temporaries = 0;
    for dir in dirs_of(&replayed) {
        // Whatever of that session lies there: small files' temporaries are in no journal.
        temporaries += match tree.sweep(&dir, &|temp| temp.tag() == tag) {
            Ok(removed) => removed,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error.fault()),
        };
    }
    // What is said to be gone is gone for good.
    journal.remove().and_then(|()| shelf.sync())?;
    let (owner, principal) = (&replayed.opened.owner, &replayed.opened.principal);
    let files = replayed.files.len();
    let held: u64 = replayed.files.values().map(|partial| partial.held.bytes(partial.file.map)).sum();
    tracing::info!(target: "longhaul::journal", %tag, %owner, %principal, files, temporaries, held, "an abandoned partial was removed");
    Ok(())
}

/// The directories that a session wrote to, as far as its journal says.
fn dirs_of(replayed: &Replayed) -> BTreeSet<RelPath> {
    let open = replayed.files.values().map(|partial| &partial.file);
    let files = open.chain(replayed.done.iter().map(|done| &done.file)).filter_map(|file| file.path.parent());
    files.chain(replayed.dirs.iter().cloned()).collect()
}
