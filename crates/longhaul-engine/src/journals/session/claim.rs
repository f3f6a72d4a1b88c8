//! Claims names that are surveyed, and finds the partials of them.
//!
//! In: an entry, and how it comes. Out: the history of its path, which this session owns until the
//! entry is settled. A journal is locked only when this session continues one of its partials.
//! Journals with other partials stay unlocked, so that the commands that made them can continue
//! them. It knows no messages.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Fault, RelPath, SessionTag};
use longhaul_disk::TargetTree;
use longhaul_proto::journal::keeper::{FoundPartial, PartialChoice};
use longhaul_proto::receiver::{EntryRef, Partial, Source};

use super::super::outline::{Elsewhere, Looked, Outline, Whose, look};
use super::{Arriving, PathClaim, PathHistory, SessionJournal, lock, stamp_of};
use crate::journals::file::JournalFile;
use crate::journals::listing::user_of;
use crate::journals::owners;
use crate::journals::owners::busy_path;
use crate::journals::root::Acquired;

/// The readings of other sessions' journals, after the first.
#[derive(Debug, Default)]
pub(super) struct Rereads {
    /// Journals that another process did not let go of while this session waited.
    elsewhere: HashSet<SessionTag>,
    /// When journals of sessions that live were last read again.
    last: Option<Instant>,
}

impl Rereads {
    /// Whether journals of sessions that live are to be read again now: at most once a second.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= LOOK_AGAIN_AFTER);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

impl SessionJournal {
    /// Claims the path of a name that is surveyed, if it comes in chunks or a partial of it is
    /// left. Returns the path's history. Blocks while another owner is asked.
    ///
    /// # Errors
    /// A [`Fault`] of code `Busy` if another session writes to it.
    pub(crate) fn claim(
        &self,
        tree: &dyn TargetTree,
        entry: &EntryRef,
        coming: Arriving,
    ) -> Result<PathHistory, Fault> {
        let doubtful = self.is_doubtful(&entry.placed);
        if coming == Arriving::Whole && !self.is_left(&entry.placed)? {
            return Ok(PathHistory { doubtful, ..PathHistory::default() });
        }
        let path = self.full(&entry.placed)?;
        self.refuse_foreign(&path)?;
        if self.store.holds.take(&path, &self.holder, &mut lock(&self.questions))? == owners::PathTaken::Over {
            // A session that ended a moment ago may have begun its journal after this one had
            // looked.
            self.look_again()?;
        }
        let stamp = stamp_of(entry);
        let committed = lock(&self.leftover).own_outlines.iter().any(|outline| outline.is_finished(&path, &stamp));
        let found =
            self.find(tree, &entry.placed, &path).inspect_err(|_| self.store.holds.release(&path, self.holder.tag));
        let mut found = found?;
        // One that its journal cannot follow over several targets is given up as the file begins.
        let takes = |found: &&mut FoundPartial| {
            self.journal(found.journal).is_some_and(|book| book.book().takes(self.author.layout))
        };
        let partial = found.as_mut().filter(takes).map(|FoundPartial { taken, .. }| {
            let source = if taken.file.source == stamp { Source::Same } else { Source::Changed };
            let occupied = tree.occupied(&entry.placed, &taken.file.temp).unwrap_or(0);
            Arc::new(Partial::new(taken.file.map, source, std::mem::take(&mut taken.held)).occupying(occupied))
        });
        self.claims().paths.insert(entry.id, PathClaim { path, found: found.map(Box::new) });
        Ok(PathHistory { partial: partial.filter(|_| coming == Arriving::InChunks), committed, doubtful })
    }

    /// Whether a journal of this principal names the path.
    fn is_left(&self, placed: &RelPath) -> Result<bool, Fault> {
        let left = lock(&self.leftover);
        if left.own_outlines.iter().all(|outline| outline.files.is_empty()) {
            return Ok(false);
        }
        let path = self.full(placed)?;
        Ok(left.own_outlines.iter().any(|outline| outline.files.contains_key(&path)))
    }

    /// Refuses a path that another principal is writing from another process.
    fn refuse_foreign(&self, path: &RelPath) -> Result<(), Fault> {
        for other in lock(&self.leftover).foreign.iter().filter(|other| other.files.contains_key(path)) {
            if self.store.shelf.is_live(other.tag)? {
                return Err(busy(path, other));
            }
        }
        Ok(())
    }

    fn look_again(&self) -> Result<(), Fault> {
        *lock(&self.leftover) = self.store.outlines(&self.author)?;
        Ok(())
    }

    /// Looks again at journals that sessions had at the last look: those may have ended, and left
    /// more. It does so at most once a second, as each costs a reading of the whole journal.
    fn look_at_grown(&self) -> Result<(), Fault> {
        let now = Instant::now();
        if !lock(&self.rereads).is_due(now) {
            return Ok(());
        }
        let whose = Whose::of(&self.author);
        let mut left = lock(&self.leftover);
        for at in 0..left.own_outlines.len() {
            let outline = &left.own_outlines[at];
            if outline.live
                && outline.tag != self.holder.tag
                && let Some(reader) = self.store.shelf.look(outline.tag)?
                && reader.len()? != outline.len
                && let Looked::Own(now) = look(&reader, &whose, Elsewhere::Maybe)?
            {
                left.own_outlines[at] = now;
            }
        }
        Ok(())
    }

    /// The partial that is continued. Others are given up.
    fn find(&self, tree: &dyn TargetTree, placed: &RelPath, path: &RelPath) -> Result<Option<FoundPartial>, Fault> {
        self.look_at_grown()?;
        let speaking: Vec<SessionTag> = {
            let left = lock(&self.leftover);
            let speaking = left.own_outlines.iter().filter(|outline| outline.files.contains_key(path));
            speaking.map(|outline| outline.tag).collect()
        };
        let mut books = Vec::new();
        for tag in speaking {
            books.extend(self.acquire(tag, path)?);
        }
        let of_book = |book: &Arc<JournalFile>| {
            let (book, journal) = (book.clone(), book.tag());
            std::iter::from_fn(move || book.take(path)).map(move |taken| FoundPartial { journal, taken })
        };
        let found: Vec<FoundPartial> = books.iter().flat_map(of_book).collect();
        let numbers: Vec<_> = found.iter().map(|found| (found.journal, found.taken.number)).collect();
        let chosen = choose(tree, placed, found).and_then(|choice| {
            choice.iter().try_for_each(|choice| self.follow(tree, placed, &choice.steps(placed), &books))?;
            Ok(choice)
        });
        let Some(choice) = chosen.inspect_err(|_| {
            // All of them still are what they were, for another session.
            for (tag, number) in &numbers {
                books.iter().filter(|book| book.tag() == *tag).for_each(|book| book.let_go(*number));
            }
        })?
        else {
            return Ok(None);
        };
        let winner = choice.winner;
        let book = books.into_iter().find(|book| book.tag() == winner.journal);
        Ok(book.map(|book| {
            lock(&self.taken).insert(winner.journal, book);
            winner
        }))
    }

    /// Opens a journal that names a path. `None` if it went meanwhile.
    fn acquire(&self, tag: SessionTag, path: &RelPath) -> Result<Option<Arc<JournalFile>>, Fault> {
        let taken = lock(&self.taken).get(&tag).cloned();
        if let Some(book) = taken {
            book.refresh()?;
            return Ok(Some(book));
        }
        let patience =
            if lock(&self.rereads).elsewhere.contains(&tag) { Duration::ZERO } else { self.store.patience() };
        match self.store.acquire(tag, patience)? {
            Acquired::Book(book) => Ok(Some(book)),
            Acquired::Gone => Ok(None),
            Acquired::Elsewhere => {
                lock(&self.rereads).elsewhere.insert(tag);
                let left = lock(&self.leftover);
                let outline = left.own_outlines.iter().find(|outline| outline.tag == tag);
                outline.map_or(Ok(None), |outline| Err(busy(path, outline)))
            }
        }
    }
}

/// A path that a session of another process writes.
fn busy(path: &RelPath, other: &Outline) -> Fault {
    busy_path(path, &user_of(&other.opened), other.since())
}

/// The partial of a name that is continued. A temporary that cannot be looked for is no reason to
/// give up the partial that it belongs to.
fn choose(tree: &dyn TargetTree, placed: &RelPath, found: Vec<FoundPartial>) -> Result<Option<PartialChoice>, Fault> {
    let mut standing = BTreeSet::new();
    // One alone is continued, whatever became of its temporary.
    for FoundPartial { taken, .. } in found.iter().filter(|_| found.len() > 1) {
        if tree.has_temp(placed, &taken.file.temp)? {
            standing.insert(taken.file.temp);
        }
    }
    Ok(PartialChoice::of(found, |taken| standing.contains(&taken.file.temp)))
}

/// Journals of sessions that live are read again after this time, in case those have ended.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
