//! Owns the list of journals that sessions of this process have open, or look through at this
//! moment.
//!
//! In: tags. Out: an entry for each, which the thread that opens, replays or sweeps a journal holds
//! meanwhile: others wait for the journal that they want, never for another. It knows no files and
//! no sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use longhaul_core::SessionTag;

use super::file::JournalFile;

/// The place of a journal's file, filled if it is open. It is locked by the thread that is about to
/// open it, or keeps others from it.
pub(super) type OpenFile = Arc<Mutex<Weak<JournalFile>>>;

/// The open journals of one root.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Mutex<HashMap<SessionTag, OpenFile>>);

impl OpenFiles {
    /// The entry of a journal, open or not.
    pub(super) fn entry(&self, tag: SessionTag) -> OpenFile {
        let mut entries = lock(&self.0);
        entries.retain(|_, entry| Arc::strong_count(entry) > 1 || is_open(entry));
        entries.entry(tag).or_default().clone()
    }

    /// Whether a thread of this process has a journal open or looks through it. Does not wait.
    pub(super) fn is_open(&self, tag: SessionTag) -> bool {
        let entry = lock(&self.0).get(&tag).cloned();
        entry.is_some_and(|entry| is_open(&entry))
    }
}

fn is_open(entry: &OpenFile) -> bool {
    match entry.try_lock() {
        Ok(book) => book.strong_count() > 0,
        Err(TryLockError::Poisoned(book)) => book.into_inner().strong_count() > 0,
        Err(TryLockError::WouldBlock) => true,
    }
}

/// No code that holds such a lock can panic halfway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_is_at_a_journal_keeps_nobody_from_others() {
        let (books, mine, other) = (OpenFiles::default(), SessionTag([1; 8]), SessionTag([2; 8]));
        let entry = books.entry(mine);
        let at_it = lock(&entry);
        assert!(books.is_open(mine) && !books.is_open(other));
        assert!(books.entry(other).try_lock().is_ok());
        drop(at_it);
        drop(entry);
        assert!(!books.is_open(mine));
        books.entry(other);
        assert_eq!(lock(&books.0).len(), 1, "what nobody has is forgotten");
    }
}
