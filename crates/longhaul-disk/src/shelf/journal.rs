//! [`Journal`]: a journal of ours, as all of its copies together.
//!
//! In: bytes from the engine. Out: the answers of the disks; a journal goes on as long as one copy
//! does. The rules are those at the head of the [shelf](super). Knows nothing of its content.

mod upkeep;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::{Mtime, SessionTag};

use super::copy::JournalCopy;
use super::dir::shown;
use super::epoch::{Epoch, Trust};
use super::hands::{Act, Acted, Others, on_each};
use super::reader::compare;
use super::{Reach, Shelf};
use crate::error::DiskError;
use upkeep::LOOK_EVERY;

/// A journal of ours: locked, until it is dropped, against every other opening.
#[derive(Debug)]
pub struct Journal {
    shelf: Shelf,
    tag: SessionTag,
    /// Whether it says all that it ever said, as far as that is known.
    trust: Trust,
    /// Its copies. Locked while one counts no more, or bytes are appended.
    copies: Mutex<Copies>,
}

/// The copies of a journal.
#[derive(Debug)]
struct Copies {
    /// The copies that count, at least one. All have the same bytes once it is settled.
    live: Vec<Arc<JournalCopy>>,
    /// The copies that do not count. They stay locked.
    idle: Vec<Arc<JournalCopy>>,
    /// The epoch of those that count.
    epoch: Epoch,
    state: CopyState,
    /// When a target for a copy that is not there is to be looked for.
    look: Option<Instant>,
}

/// Whether the copies of a journal are ready to be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    Settled,
    /// They are to be made alike, or as many as there should be.
    Left(Counted),
}

/// The copies that count, as against what their epoch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// They are those, so many.
    AsSaid(usize),
    /// They are to get another epoch.
    Otherwise,
}

impl Journal {
    /// A journal that was begun with these copies, at least one.
    pub(super) fn begun(shelf: Shelf, tag: SessionTag, live: Vec<Arc<JournalCopy>>) -> Result<Journal, DiskError> {
        let is_alone = live.len() < shelf.copies;
        let look = is_alone.then(|| Instant::now() + LOOK_EVERY);
        let copies = Copies { live, idle: Vec::new(), epoch: Epoch::FIRST, state: CopyState::Settled, look };
        let journal = Journal { shelf, tag, trust: Trust::Sure, copies: Mutex::new(copies) };
        let alone = if is_alone { journal.raise(&mut journal.copies(), Trust::Sure) } else { Ok(()) };
        match alone {
            Ok(()) => Ok(journal),
            Err(error) => {
                let _ = journal.remove();
                Err(error)
            }
        }
    }

    /// A journal that was left, of which these copies were found and locked where a look was
    /// possible. `None` if there are none.
    pub(super) fn left(
        shelf: Shelf,
        tag: SessionTag,
        (found, mut reach): (Vec<Arc<JournalCopy>>, Reach),
    ) -> Result<Option<Journal>, DiskError> {
        if !shelf.is_of_set() {
            let (idle, epoch, state) = (Vec::new(), Epoch::FIRST, CopyState::Settled);
            let copies = |live| Copies { live, idle, epoch, state, look: None };
            let journal = |live| Journal { shelf, tag, trust: Trust::Sure, copies: Mutex::new(copies(live)) };
            return Ok((!found.is_empty()).then(|| journal(found)));
        }
        let (mut known, mut unknown, mut first_error) = (Vec::new(), Vec::new(), None);
        for copy in found {
            // One whose epoch cannot be read does not count, as if it were not there.
            match copy.epoch() {
                Ok(epoch) => known.push((copy, epoch)),
                Err(error) => {
                    tracing::warn!(target: "longhaul::journal", %tag, %error, "a copy of a journal cannot be used");
                    reach = Reach::Some;
                    copy.abandon();
                    unknown.push(copy);
                    first_error.get_or_insert(error);
                }
            }
        }
        let says_unsure = known.iter().any(|(_, epoch)| epoch.trust == Trust::Unsure);
        let Some(highest) = known.iter().map(|(_, epoch)| epoch.number).max() else {
            return first_error.map_or(Ok(None), Err);
        };
        let (current, stale): (Vec<_>, Vec<_>) = known.into_iter().partition(|(_, epoch)| epoch.number == highest);
        let fds: Vec<&OwnedFd> = current.iter().map(|(copy, _)| copy.fd()).collect();
        let comparison = compare(&fds, tag, shelf.proves.as_ref())?;
        let wanted = current.iter().map(|(_, epoch)| epoch.copies).max().unwrap_or(0);
        let is_sure = current.len() >= wanted as usize && !says_unsure && !comparison.parted;
        // That it is not sure is to be known to later sessions as well. That a target is missing is
        // not: should a copy there have been gone on with, that one says so.
        let said = if is_sure { Trust::Sure } else { Trust::Unsure };
        let trust = if reach == Reach::All { said } else { Trust::Unsure };
        let epoch = Epoch { number: highest, copies: wanted, trust: said };
        let is_said = current.len() == wanted as usize && current.iter().all(|(_, said)| *said == epoch);
        let counted = if is_said { Counted::AsSaid(current.len()) } else { Counted::Otherwise };
        let bare = |known: Vec<(Arc<JournalCopy>, Epoch)>| known.into_iter().map(|(copy, _)| copy).collect();
        let (mut live, mut idle): (Vec<_>, Vec<_>) = (bare(current), bare(stale));
        idle.extend(unknown);
        live.rotate_left(comparison.believed);
        let is_ready = is_said && idle.is_empty() && live.len() == shelf.copies && !comparison.differ;
        let state = if is_ready { CopyState::Settled } else { CopyState::Left(counted) };
        if trust == Trust::Unsure {
            tracing::warn!(target: "longhaul::journal", %tag, "a copy of a journal is not there, or says something else: what was received is read back before it is gone on with");
        }
        let copies = Mutex::new(Copies { live, idle, epoch, state, look: None });
        Ok(Some(Journal { shelf, tag, trust, copies }))
    }

    /// The tag of the session that owns it.
    pub fn tag(&self) -> SessionTag {
        self.tag
    }

    /// Whether no other session can have it. Without locks on the file system another session may.
    pub fn is_locked(&self) -> bool {
        self.copies().live.iter().all(|copy| copy.is_locked())
    }

    /// Whether all that it ever said is known to stand in it. What one that is not sure says of
    /// chunks is to be compared with the medium.
    pub fn is_sure(&self) -> bool {
        self.trust == Trust::Sure
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.copies().live[0].len()
    }

    /// Whether nothing was written to it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes `bytes` behind the last; durable only after [`Journal::sync`]. Calls come one after
    /// the other.
    ///
    /// # Errors
    /// The system's error: then none of `bytes` is in it, and the next append may succeed. If the
    /// part that was written could not be cut off again, every later call is
    /// [`DiskError::Abandoned`].
    pub fn append(&self, bytes: &[u8]) -> Result<(), DiskError> {
        let bytes: Arc<[u8]> = bytes.into();
        self.on_all(move |copy| copy.append(&bytes))
    }

    /// Makes durable all that was appended before the call. Appends may go on meanwhile.
    ///
    /// # Errors
    /// The system's error: then the journal is abandoned, and every later call fails.
    pub fn sync(&self) -> Result<(), DiskError> {
        let live = {
            let mut copies = self.copies();
            self.make_ready(&mut copies)?;
            copies.live.clone()
        };
        let results = act_on(&live, Others::None, |copy| copy.sync());
        self.go_on(&mut self.copies(), results)
    }

    /// Cuts it to its first `len` bytes, durably.
    ///
    /// # Errors
    /// As [`Journal::sync`]; [`DiskError::Bounds`] if it is shorter.
    pub fn truncate(&self, len: u64) -> Result<(), DiskError> {
        self.on_all(move |copy| copy.truncate(len))
    }

    /// Makes the records that another session left in it durable: that session may have died before
    /// its last sync, or after one that failed, and the system then gives bytes back that are on no
    /// medium. They are written again as they are.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn reassert(&self) -> Result<(), DiskError> {
        self.on_all(|copy| copy.reassert())
    }

    /// The time of the last write.
    ///
    /// # Errors
    /// The system's error.
    pub fn written(&self) -> Result<Mtime, DiskError> {
        self.any(|copy| copy.written())
    }

    /// Gives all its bytes to `sink`, in pieces of up to a megabyte, until `sink` returns false.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), DiskError> {
        let first = Arc::clone(&self.copies().live[0]);
        first.read(sink)
    }

    /// Removes it, and the shelf too if it was the last journal there.
    ///
    /// # Errors
    /// The system's error; the journal then stands, and is free to be taken.
    pub fn remove(self) -> Result<(), DiskError> {
        let (shelf, tag) = (self.shelf.clone(), self.tag);
        {
            let copies = self.copies();
            // One that counts no more must not be the last.
            for copy in copies.idle.iter().filter(|copy| !copy.hand().is_busy()) {
                if let Err(error) = copy.unlink() {
                    tracing::warn!(target: "longhaul::journal", %tag, %error, "a copy of a journal that does not count stays");
                }
            }
            let removed = act_on(&copies.live, Others::None, |copy| copy.unlink());
            let all_failed = removed.iter().all(|(_, result)| result.is_err());
            for error in removed.into_iter().filter_map(|(_, result)| result.err()) {
                if all_failed {
                    return Err(error);
                }
                tracing::warn!(target: "longhaul::journal", %tag, %error, "a copy of a journal stays");
            }
        }
        drop(self);
        shelf.remove_if_empty();
        Ok(())
    }

    /// Whether nothing failed so that every later call would fail.
    pub fn is_usable(&self) -> bool {
        self.copies().live.iter().any(|copy| copy.is_usable())
    }

    /// The error of a call after such a failure.
    pub fn abandoned(&self) -> DiskError {
        DiskError::Abandoned { path: shown(self.tag) }
    }

    /// Does something on all copies that count.
    fn on_all(
        &self,
        act: impl Fn(&JournalCopy) -> Result<(), DiskError> + Send + Sync + 'static,
    ) -> Result<(), DiskError> {
        let mut copies = self.copies();
        self.make_ready(&mut copies)?;
        let results = act_on(&copies.live, Others::None, act);
        self.go_on(&mut copies, results)
    }

    /// Goes on after a call on copies that counted. Those on which it failed count no more if it
    /// did not on all (COPIES-2).
    fn go_on(&self, copies: &mut Copies, results: Vec<Acted>) -> Result<(), DiskError> {
        // Another call may have found out meanwhile that a copy counts no more.
        let done = results.iter().any(|(copy, result)| result.is_ok() && is_among(&copies.live, copy));
        let (mut first_error, mut failed) = (None, Vec::new());
        for (copy, result) in results {
            if let Err(error) = result
                && is_among(&copies.live, &copy)
            {
                failed.push((copy, error.to_string()));
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            None if done => Ok(()),
            None => Err(self.abandoned()),
            // What failed and can be tried again is the same on all of them.
            Some(error) if !done => {
                let broken: Vec<_> = failed.into_iter().filter(|(copy, _)| !copy.is_usable()).collect();
                if broken.len() < copies.live.len() {
                    self.give_up(copies, broken)?;
                }
                Err(error)
            }
            Some(_) => self.give_up(copies, failed),
        }
    }

    /// Lets copies count no more, durably on those that stay, of which there is at least one.
    fn give_up(&self, copies: &mut Copies, failed: Vec<(Arc<JournalCopy>, String)>) -> Result<(), DiskError> {
        if failed.is_empty() {
            return Ok(());
        }
        for (copy, why) in failed {
            self.set_aside(copies, &copy, &why);
        }
        let trust = copies.epoch.trust;
        self.raise(copies, trust)?;
        // Before the next call, not in this one: the caller waits to hear that this one ended.
        copies.look = Some(Instant::now());
        Ok(())
    }

    /// Lets a copy count no more.
    fn set_aside(&self, copies: &mut Copies, copy: &Arc<JournalCopy>, why: &str) {
        copy.abandon();
        copies.live.retain(|live| !Arc::ptr_eq(live, copy));
        copies.idle.push(Arc::clone(copy));
        let (tag, number, left) = (self.tag, copy.shelf().number(), copies.live.len());
        tracing::warn!(target: "longhaul::journal", %tag, target = number, why, left, "a copy of a journal failed: it is given up, and the journal goes on with the other");
    }

    /// Gives those that count a higher epoch (COPIES-3).
    fn raise(&self, copies: &mut Copies, trust: Trust) -> Result<(), DiskError> {
        loop {
            let (number, count) = (copies.epoch.number_after(), copies.live.len() as u32);
            let epoch = Epoch { number, copies: count, trust };
            copies.epoch = epoch;
            let results = act_on(&copies.live, Others::None, move |copy| copy.set_epoch(epoch));
            let failure = |(copy, result): Acted| result.err().map(|error| (copy, error));
            let mut failed: Vec<_> = results.into_iter().filter_map(failure).collect();
            if failed.len() == copies.live.len() {
                // One stays to be read; nothing is written to it any more.
                return Err(failed.pop().map_or_else(|| self.abandoned(), |(_, error)| error));
            }
            if failed.is_empty() {
                return Ok(());
            }
            for (copy, error) in failed {
                self.set_aside(copies, &copy, &error.to_string());
            }
        }
    }

    /// Asks the copies that count one after the other, until one answers.
    fn any<T>(&self, ask: impl Fn(&JournalCopy) -> Result<T, DiskError>) -> Result<T, DiskError> {
        let live = self.copies().live.clone();
        let mut answers = live.iter().map(|copy| ask(copy));
        let first = answers.next().unwrap_or_else(|| Err(self.abandoned()));
        first.or_else(|error| answers.find_map(Result::ok).ok_or(error))
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Acts on copies, and judges the results as those of any other file of their targets.
fn act_on(
    copies: &[Arc<JournalCopy>],
    others: Others,
    act: impl Fn(&JournalCopy) -> Result<(), DiskError> + Send + Sync + 'static,
) -> Vec<Acted> {
    let act: Act = Arc::new(act);
    let judged = |(copy, result): Acted| {
        let result = copy.shelf().judged(result);
        (copy, result)
    };
    on_each(copies, others, &act).into_iter().map(judged).collect()
}

fn is_among(copies: &[Arc<JournalCopy>], one: &Arc<JournalCopy>) -> bool {
    copies.iter().any(|copy| Arc::ptr_eq(copy, one))
}

#[cfg(test)]
mod tests;
