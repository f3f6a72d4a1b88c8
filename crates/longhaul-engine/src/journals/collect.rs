//! Clears away partials that nobody came back for.
//!
//! In: the root's tree, at whose top the shelf lies, and how long a journal must have been left
//! alone. Out: temporaries and then their journals removed, and a log line for each journal. It
//! takes only journals that it can lock, so none that a session writes. It knows no clocks and no
//! configuration.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::{Fault, RelPath, SessionTag};
use longhaul_disk::{ErrorKind, Journal, Shelved, TargetSet};
use longhaul_proto::journal::{JournalError, Replayed};

use super::RootJournals;
use super::file::replay;
use super::open_files::lock;

impl RootJournals {
    /// Removes the partials whose journals are free and were last written longer than `age` before
    /// `now`. A partial that cannot be removed stays, is named in the log, and is tried again the
    /// next time.
    ///
    /// # Errors
    /// A [`Fault`] when the shelf cannot be looked at.
    pub(crate) fn collect(&self, set: &TargetSet, age: Duration, now: SystemTime) -> Result<(), Fault> {
        let Some(before) = now.checked_sub(age).and_then(|then| then.duration_since(UNIX_EPOCH).ok()) else {
            return Ok(());
        };
        let before = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
        for tag in self.shelf.list()? {
            if let Err(fault) = self.collect_one(set, tag, before) {
                tracing::warn!(target: "longhaul::journal", %tag, %fault, "an abandoned partial cannot be removed");
            }
        }
        Ok(())
    }

    fn collect_one(&self, set: &TargetSet, tag: SessionTag, before: i64) -> Result<(), Fault> {
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
        // A session may have continued it, and left it again, since the first look.
        if journal.written()?.secs >= before {
            return Ok(());
        }
        remove(set, self, journal)
    }
}

/// Removes the temporaries that a locked journal names, durably, then the journal. If this stops in
/// between, the rest is still known.
fn remove(set: &TargetSet, root: &RootJournals, journal: Journal) -> Result<(), Fault> {
    let (tag, shelf) = (journal.tag(), &root.shelf);
    let replayed = match replay(&journal, root.layout)? {
        Ok(replayed) => replayed,
        // The journal never promised anything.
        Err(JournalError::Unopened) => return journal.remove().and_then(|()| shelf.sync()).map_err(Fault::from),
        Err(error) => {
            tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
            return Ok(());
        }
    };
    // Names in doubt stay so however long nobody comes: the files that stand there would be skipped
    // otherwise.
    if !replayed.doubts.is_empty() {
        return Ok(());
    }
    let mut temporaries = 0;
    for dir in dirs_of(&replayed) {
        // All temporaries of that session: those of small files are in no journal.
        temporaries += match set.sweep(&dir, &|temp| temp.tag() == tag) {
            Ok(removed) => removed,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        };
    }
    // The temporaries are removed durably.
    journal.remove().and_then(|()| shelf.sync())?;
    let (owner, principal) = (&replayed.opened.owner, &replayed.opened.principal);
    let files = replayed.files.len();
    let held: u64 = replayed.files.values().map(|partial| partial.held.bytes(partial.file.map)).sum();
    tracing::info!(target: "longhaul::journal", %tag, %owner, %principal, files, temporaries, held, "an abandoned partial was removed");
    Ok(())
}

/// The directories to which a session wrote, as far as its journal says.
fn dirs_of(replayed: &Replayed) -> BTreeSet<RelPath> {
    let open = replayed.files.values().map(|partial| &partial.file);
    let files = open.chain(replayed.done.iter().map(|done| &done.file)).filter_map(|file| file.path.parent());
    files.chain(replayed.dirs.iter().cloned()).collect()
}
