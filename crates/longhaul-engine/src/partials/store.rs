//! The partials of one root: its shelf of journals, the books that are open, the paths that are held.
//!
//! Gives each receiving session a [`Ledger`]. One of them for each root in a process, so that its sessions share books.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::{Fault, FaultCode, RelPath, SessionTag};
use longhaul_disk::{JournalReader, Shelf, Shelved};
use longhaul_proto::journal::{Opened, Replay};

use super::book::Book;
use super::holds::{Holder, Holds};
use super::look::user_of;
use super::{Ledger, Who};
use crate::lane::join::nonce;
use crate::presence::Presence;

/// The partials of one root.
#[derive(Debug)]
pub(crate) struct Store {
    pub(super) shelf: Shelf,
    books: Mutex<HashMap<SessionTag, Weak<Book>>>,
    pub(super) holds: Holds,
}

/// A path that a session of another process is writing.
#[derive(Clone, Debug)]
pub(super) struct Elsewhere {
    pub(super) owner: String,
    pub(super) since: SystemTime,
}

/// What other processes are at, by path.
pub(super) type Elsewheres = HashMap<RelPath, Elsewhere>;

impl Store {
    /// The partials whose journals lie on `shelf`.
    pub(crate) fn new(shelf: Shelf) -> Arc<Store> {
        Arc::new(Store { shelf, books: Mutex::default(), holds: Holds::default() })
    }

    /// Begins a receiving session, whose paths lie beneath `prefix`: opens the journals that were left.
    ///
    /// # Errors
    /// A [`Fault`] when no journal can be made or those that stand cannot be read.
    pub(crate) fn begin(
        self: &Arc<Self>,
        who: &Who,
        session: [u8; 16],
        prefix: RelPath,
        presence: Arc<Presence>,
    ) -> Result<Ledger, Fault> {
        let mut tag = SessionTag([0; 8]);
        tag.0.copy_from_slice(&nonce()?[..8]);
        let now = SystemTime::now();
        let opened = Opened {
            principal: who.principal.clone(),
            owner: who.owner.clone(),
            pid: std::process::id(),
            at_unix: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            generation: 1,
            session,
        };
        let (left, elsewhere) = self.open_left(&who.principal)?;
        let me = Holder { tag, owner: who.owner.clone(), since: now, presence };
        Ok(Ledger::new(self.clone(), left, elsewhere, opened, me, prefix))
    }

    /// Begins the journal of a session.
    pub(super) fn begin_book(&self, tag: SessionTag, opened: Opened) -> Result<Arc<Book>, Fault> {
        let journal = self.shelf.create(tag).map_err(|e| e.fault())?;
        let book = Arc::new(Book::begin(journal, opened)?);
        self.books().insert(tag, Arc::downgrade(&book));
        Ok(book)
    }

    /// Books of `principal` that sessions left, and what sessions of other processes are writing.
    pub(super) fn open_left(&self, principal: &str) -> Result<(Vec<Arc<Book>>, Elsewheres), Fault> {
        let (mut left, mut elsewhere) = (Vec::new(), HashMap::new());
        let mut books = self.books();
        books.retain(|_, book| book.strong_count() > 0);
        let tags = self.shelf.list().map_err(|e| e.fault()).or_else(|fault| match fault.code {
            // Another user's: it says nothing of ours.
            FaultCode::Denied => Ok(Vec::new()),
            _ => Err(fault),
        });
        for tag in tags? {
            if let Some(book) = books.get(&tag).and_then(Weak::upgrade) {
                book.refresh()?;
                left.push(book);
                continue;
            }
            match self.shelf.open(tag) {
                Ok(Shelved::Free(journal)) => {
                    if let Some(book) = Book::read(journal)? {
                        let book = Arc::new(book);
                        books.insert(tag, Arc::downgrade(&book));
                        left.push(book);
                    }
                }
                Ok(Shelved::Held(reader)) => read_elsewhere(&reader, &mut elsewhere),
                Ok(Shelved::Gone) => {}
                Err(error) => tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone"),
            }
        }
        left.retain(|book| book.principal() == principal);
        Ok((left, elsewhere))
    }

    pub(super) fn books(&self) -> MutexGuard<'_, HashMap<SessionTag, Weak<Book>>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the session that writes this journal is at.
fn read_elsewhere(reader: &JournalReader, elsewhere: &mut Elsewheres) {
    let mut replay = Replay::new();
    let read = reader.read(&mut |bytes| {
        replay.push(bytes);
        !replay.ended()
    });
    let (Ok(()), Ok(replayed)) = (read, replay.finish()) else { return };
    let opened = replayed.opened;
    let since = UNIX_EPOCH + Duration::from_secs(opened.at_unix);
    let owner = user_of(&opened);
    for (_, partial) in replayed.files {
        elsewhere.insert(partial.file.path, Elsewhere { owner: owner.clone(), since });
    }
}
