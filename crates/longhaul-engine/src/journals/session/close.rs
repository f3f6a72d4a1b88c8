//! Sweeps directories, and puts journals away.
//!
//! In: directories that are surveyed or at their end, and the end of the session. Out: temporaries
//! that nobody continues are removed, then the journals that knew them. No journal is removed
//! before every directory that it names was looked through. It knows no messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Fault, RelPath, SessionTag, TempName};
use longhaul_disk::{ErrorKind, TargetTree};
use longhaul_proto::journal::keeper::left_behind;
use longhaul_proto::receiver::EntryRef;

use super::{Own, SessionJournal, lock};
use crate::journals::file::JournalFile;
use crate::journals::root::Acquired;

impl SessionJournal {
    /// Removes from a directory the temporaries of this principal's finished sessions that nobody
    /// will continue.
    pub(crate) fn sweep(&self, tree: &dyn TargetTree, placed: &RelPath) {
        // A journal is locked when a temporary of it is met, and until the directory was looked
        // through.
        let books: RefCell<HashMap<SessionTag, Option<Arc<JournalFile>>>> = RefCell::default();
        let is_orphan = |temp: &TempName| {
            let mut books = books.borrow_mut();
            let book = books.entry(temp.tag()).or_insert_with(|| self.left_book(temp.tag()));
            book.as_ref().is_some_and(|book| book.is_ours() && !book.is_owned() && !book.book().speaks_of(temp))
        };
        match tree.sweep(placed, &is_orphan) {
            Ok(0) => {}
            Ok(removed) => {
                tracing::info!(target: "longhaul::journal", path = %placed.escaped(), removed, "old temporary files are removed")
            }
            Err(error) => {
                tracing::warn!(target: "longhaul::journal", path = %placed.escaped(), %error, "old temporary files stay")
            }
        }
    }

    /// The journal of this tag, if a session of this principal left it and nobody has it.
    fn left_book(&self, tag: SessionTag) -> Option<Arc<JournalFile>> {
        if !lock(&self.leftover).own_outlines.iter().any(|outline| outline.tag == tag) {
            return None;
        }
        if let Some(book) = lock(&self.taken).get(&tag) {
            return Some(book.clone());
        }
        match self.store.acquire(tag, Duration::ZERO) {
            Ok(Acquired::Book(book)) => Some(book),
            Ok(Acquired::Elsewhere | Acquired::Gone) => None,
            Err(fault) => {
                tracing::warn!(target: "longhaul::journal", %tag, %fault, "a journal is left alone");
                None
            }
        }
    }

    /// Records that a directory is at its end, which is that entry: the only temporaries of entries
    /// before it that lie there are those with records. A directory from which any was removed
    /// stays in the journal: it is synced before the journal forgets it.
    pub(crate) fn leave_dir(&self, end: &EntryRef) {
        let Ok(path) = self.full(&end.placed) else { return };
        // Held until the record stands, so that nobody names the directory meanwhile.
        let mut dirs = lock(&self.dirs);
        if let Some(step) = dirs.left(self.holder.tag, &path, end.id)
            && let Err(fault) = self.write_steps(&[step], &[])
        {
            tracing::debug!(target: "longhaul::journal", %fault, "a directory will be looked through once more");
        }
    }

    /// Ends the session when no work of it is under way: removes its own journal if no file in it
    /// is left to be continued.
    pub(crate) fn close(&self, tree: &dyn TargetTree) {
        let own = self.let_go();
        if let Some(book) = own {
            self.put_away_one(tree, book);
        }
    }

    /// Does the same after every entry was settled, and puts away the journals that earlier
    /// sessions of this principal left.
    pub(crate) fn put_away(&self, tree: &dyn TargetTree) {
        let taken: Vec<_> = lock(&self.taken).values().cloned().collect();
        self.close(tree);
        for book in taken.into_iter().filter(|book| !book.is_owned()) {
            self.put_away_one(tree, book);
        }
        let left = std::mem::take(&mut *lock(&self.leftover));
        for outline in left.own_outlines.iter().filter(|outline| outline.tag != self.holder.tag) {
            match self.store.acquire(outline.tag, Duration::ZERO) {
                Ok(Acquired::Book(book)) if book.is_ours() && !book.is_owned() => self.put_away_one(tree, book),
                Ok(_) => {}
                Err(fault) => {
                    tracing::warn!(target: "longhaul::journal", tag = %outline.tag, %fault, "a journal is left alone")
                }
            }
        }
        // The last journal may have gone with a session that could not remove the shelf as well, or
        // that died before.
        self.store.shelf.remove_if_empty();
    }

    /// Looks through the directories of a journal, and removes it if nothing in it is left.
    fn put_away_one(&self, tree: &dyn TargetTree, book: Arc<JournalFile>) {
        let tag = book.tag();
        if let Err(fault) = self.look_through(tree, &book) {
            tracing::warn!(target: "longhaul::journal", %tag, %fault, "temporary files stay, and the journal that knows them");
            return;
        }
        // Another session that writes to it puts it away later.
        if book.book().is_spent()
            && let Some(book) = Arc::into_inner(book)
            && let Err(fault) = book.remove()
        {
            tracing::warn!(target: "longhaul::journal", %tag, %fault, "a finished journal cannot be removed");
        }
    }

    fn look_through(&self, tree: &dyn TargetTree, book: &Arc<JournalFile>) -> Result<(), Fault> {
        let tag = book.tag();
        let mut looked = Vec::new();
        let dirs = book.book().dirs();
        for path in dirs {
            // Temporaries elsewhere beneath a daemon's root are swept by sessions that write there.
            let Some(placed) = self.placed(&path) else { continue };
            let removed = match tree.sweep(&placed, &|temp| temp.tag() == tag && !book.book().speaks_of(temp)) {
                Ok(removed) => removed,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => 0,
                Err(error) => return Err(error.into()),
            };
            if removed > 0 {
                tracing::info!(target: "longhaul::journal", path = %placed.escaped(), removed, "old temporary files are removed");
            }
            looked.push((path, placed));
        }
        let steps = left_behind(tag, &book.book(), looked);
        self.follow(tree, &RelPath::root(), &steps, std::slice::from_ref(book))
    }

    /// A path as the destination names it. `None` if it lies elsewhere.
    pub(super) fn placed(&self, path: &RelPath) -> Option<RelPath> {
        if self.prefix.is_root() {
            return Some(path.clone());
        }
        let rest = path.as_bytes().strip_prefix(self.prefix.as_bytes())?;
        match rest.strip_prefix(b"/") {
            Some(rest) => RelPath::new(rest).ok(),
            None => rest.is_empty().then(RelPath::root),
        }
    }

    /// Releases paths and journals. Returns the session's own journal.
    pub(super) fn let_go(&self) -> Option<Arc<JournalFile>> {
        let (claims, files, certain) = {
            let mut claims = self.claims();
            (std::mem::take(&mut claims.paths), claims.files.forget_all(), std::mem::take(&mut claims.certain))
        };
        claims.values().for_each(|claim| self.let_go_of(Some(claim), None));
        files.into_iter().for_each(|number| self.let_go_of(None, Some(number)));
        lock(&self.taken).clear();
        self.end_doubts(&certain);
        let own = match std::mem::take(&mut *lock(&self.own_file)) {
            Own::Book(own) => {
                own.disown();
                Some(own)
            }
            Own::NotYet | Own::Unwritten => None,
        };
        lock(&self.dirs).clear();
        self.store.holds.release_all(self.holder.tag);
        own
    }
}
