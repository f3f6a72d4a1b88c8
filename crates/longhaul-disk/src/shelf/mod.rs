//! The shelf: where the journals of sessions lie: in the directory `.longhaul` at the top of a tree
//! ([`ShelfDir`]), or of several targets of a set, each journal in two copies.
//!
//! Takes tags and bytes from the engine; gives journals, each locked while its session lives, and
//! journals that other sessions left. Owns the rules about copies. Knows nothing of the content of
//! a journal: how much of one is proven, it asks ([`Proves`]).
//!
//! Beside them lie the claims on shards that movers have shown ([`LockedShard`]), and notes of
//! datasets that are staged beneath the tree ([`StageNote`]).
//!
//! # The rules
//!
//! - **COPIES-1**: a journal of a plain tree has one copy. One of a target set is begun on the
//!   first two targets that are there and well, or on one if no other takes it.
//! - **COPIES-2**: each append, cut and sync is done on every copy that counts, and has ended when
//!   it has on all of them. A copy on which one fails counts no more, if another one stands; nor
//!   does one on which it does not come back while its target answers nothing ([`hands`]).
//! - **COPIES-3**: each copy has an epoch: 0 with two copies if none is written beside it. Whenever
//!   other copies come to count, those get a higher one, durably, before the call returns: one
//!   more, or the seconds since 1970 if those are more. Only copies of the highest epoch that is
//!   found count.
//! - **COPIES-4**: of copies of one epoch that differ, the one that is proven further is believed.
//!   Where one is the beginning of the other, that is the longer.
//! - **COPIES-5**: a journal is *sure* if each target of the set was looked at (or failed while
//!   this process used it), as many copies of its epoch are found as that says, no copy of any
//!   epoch says that it is not, and no two are proven beyond the point where they part. What one
//!   that is not sure says of chunks is compared with the medium before it is believed, in each
//!   later session as well.
//! - **COPIES-6**: whoever opens a journal locks every copy that is there, in the order of the
//!   targets, and has it only if nobody has any of them. A copy that counts no more stays locked
//!   until the journal is closed.
//! - **COPIES-7**: before anything is written to a journal that was left, its copies are made
//!   alike, one that is missing is made on another target, and those that do not count go. Where it
//!   is not sure, or fewer count than should, those that count get a higher epoch before, too.
//! - **COPIES-8**: of a journal that is removed, copies that do not count go first. One of two that
//!   stays, or comes back, is not sure.
//! - **COPIES-9**: where fewer copies count than should, one is made on another target, or anew on
//!   one that is well again: before the next call after a copy was given up, then each 30 s.

mod boot;
mod claims;
mod copy;
mod dir;
mod epoch;
mod hands;
mod journal;
mod locks;
mod reader;
mod stages;
mod sweep;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_core::SessionTag;
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind};
use crate::load::{TargetCondition, TargetLoad};
use crate::walk::Dir;

pub use boot::boot_id;
pub use claims::{CLAIMS_PAGE_PATIENCE, ClaimsOwner, KeptShowing, LockedShard, ShardKey};
#[cfg(test)]
pub(crate) use dir::ALIASES;
pub(crate) use dir::NAME as SHELF_NAME;
pub(crate) use dir::ours_alone;
use dir::{Opening, ShelfDir, TRIES_MAX};
pub use journal::Journal;
pub(crate) use locks::has_no_locks;
pub use reader::JournalReader;
pub use stages::StageNote;
pub(crate) use stages::stager_of;
pub(crate) use sweep::{remove_idle, sweep};

/// The shelf of a tree or of a set. Cheap to make and to clone: nothing is opened before the first
/// call.
#[derive(Clone, Debug)]
pub struct Shelf {
    /// One for a plain tree; one for each target of a set that is there, in order.
    dirs: Arc<[ShelfDir]>,
    /// The number of copies that a journal is to have.
    copies: usize,
    reach: Reach,
    proves: Arc<dyn Proves>,
}

/// Whether all targets of a set can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    All,
    /// Some are missing.
    Some,
}

/// Gives the bytes of a journal in pieces, as long as it hears `true`.
pub type Pieces<'p> = dyn FnMut(&mut dyn FnMut(&[u8]) -> bool) + 'p;

/// Says how much of a journal is proven.
pub trait Proves: Debug + Send + Sync {
    /// The number of bytes from the beginning that are proven, of the journal that `read` gives.
    fn proven_len(&self, read: &mut Pieces<'_>) -> u64;
}

/// The result of [`Shelf::open`].
#[derive(Debug)]
pub enum Shelved {
    /// A journal that no session had: it is ours now.
    Free(Journal),
    /// A journal whose session lives. It may be read as far as it is written.
    Held(JournalReader),
    /// No journal stands there.
    Gone,
}

impl Shelf {
    /// The shelf of a plain tree.
    pub(crate) fn of(root: &Arc<Dir>) -> Shelf {
        let dirs = Arc::new([ShelfDir::of(root, None)]);
        Shelf { dirs, copies: 1, reach: Reach::All, proves: Arc::new(AllOfIt) }
    }

    /// The shelf of a plain tree for one user alone, beside those of others.
    pub(crate) fn of_user(root: &Arc<Dir>, uid: u32) -> Shelf {
        Shelf { dirs: Arc::new([ShelfDir::of_user(root, uid)]), ..Shelf::of(root) }
    }

    /// The shelf of a set, of which these targets are there.
    pub(crate) fn over<'a>(targets: impl Iterator<Item = (&'a Arc<Dir>, &'a Arc<TargetLoad>)>, reach: Reach) -> Shelf {
        let dirs = targets.map(|(root, load)| ShelfDir::of(root, Some(Arc::clone(load)))).collect();
        Shelf { dirs, copies: COPIES, reach, proves: Arc::new(AllOfIt) }
    }

    /// The same shelf, which asks here how much of a journal is proven. Without that, it believes
    /// all of it.
    #[must_use]
    pub fn proved_by(self, proves: Arc<dyn Proves>) -> Shelf {
        Shelf { proves, ..self }
    }

    /// Makes an empty journal, locked by us, with a durable name. If it fails, nothing is left.
    ///
    /// # Errors
    /// The system's error; [`DiskError::Exists`] if this tag has a journal, or something that is no
    /// directory of ours has the shelf's name.
    pub fn create(&self, tag: SessionTag) -> Result<Journal, DiskError> {
        let (mut made, mut first_error) = (Vec::new(), None);
        for dir in self.takers() {
            match dir.judged(dir.create(tag)) {
                Ok(copy) => made.push(Arc::new(copy)),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
            if made.len() == self.copies {
                break;
            }
        }
        match first_error {
            Some(error) if made.is_empty() => Err(error),
            None if made.is_empty() => Err(self.nowhere(tag)),
            _ => Journal::begun(self.clone(), tag, made),
        }
    }

    /// Opens the journal of this tag, and locks it if no other session has.
    ///
    /// # Errors
    /// The system's error; [`DiskError::NotAFile`] for anything but a regular file,
    /// [`DiskError::Foreign`] for one that another user owns, [`DiskError::Escape`] for a link.
    pub fn open(&self, tag: SessionTag) -> Result<Shelved, DiskError> {
        let (mut found, mut reach, mut first_error) = (Vec::new(), self.reach, None);
        for dir in self.dirs.iter() {
            if dir.condition() == TargetCondition::Hung {
                reach = Reach::Some;
                continue;
            }
            match dir.open(tag) {
                Ok(Opening::Free(copy)) => found.push(Arc::new(copy)),
                Ok(Opening::Held) => return Ok(self.look(tag)?.map_or(Shelved::Gone, Shelved::Held)),
                Ok(Opening::Gone) => {}
                Err(error) => {
                    if dir.condition() != TargetCondition::Failed {
                        reach = Reach::Some;
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(Journal::left(self.clone(), tag, (found, reach))?.map_or(Shelved::Gone, Shelved::Free)),
        }
    }

    /// Opens the journal of this tag for reading, locked or not. `None` if it does not stand. Locks
    /// nothing.
    ///
    /// # Errors
    /// As [`Shelf::open`].
    pub fn look(&self, tag: SessionTag) -> Result<Option<JournalReader>, DiskError> {
        let opened = self.on_each(|dir| {
            let Some(fd) = dir.opened(tag)? else { return Ok(None) };
            let epoch = if self.is_of_set() { epoch::read(dir, tag)? } else { epoch::Epoch::FIRST };
            Ok(Some((fd, epoch)))
        })?;
        let found: Vec<_> = opened.into_iter().flatten().collect();
        Ok((!found.is_empty()).then(|| JournalReader::new(tag, found, Arc::clone(&self.proves))))
    }

    /// Whether a session of this tag lives: its journal stands and is locked, by this process or
    /// another. Locks nothing itself.
    ///
    /// # Errors
    /// As [`Shelf::open`].
    pub fn is_live(&self, tag: SessionTag) -> Result<bool, DiskError> {
        self.look(tag)?.map_or(Ok(false), |reader| reader.is_live())
    }

    /// The tags of all journals, sorted. Empty where there is no shelf.
    ///
    /// # Errors
    /// The system's error.
    pub fn list(&self) -> Result<Vec<SessionTag>, DiskError> {
        let tags: BTreeSet<SessionTag> = self.on_each(ShelfDir::list)?.into_iter().flatten().collect();
        Ok(tags.into_iter().collect())
    }

    /// Makes the names on the shelf durable, and whether the shelf itself stands.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.on_each(ShelfDir::sync).map(drop)
    }

    /// Removes the shelf if no journal stands on it. Removed journals must be closed first: FUSE
    /// and NFS keep a file that is open under another name in its directory.
    pub fn remove_if_empty(&self) {
        self.answering().for_each(ShelfDir::remove_if_empty);
    }

    /// The targets that are not known to hang.
    fn answering(&self) -> impl Iterator<Item = &ShelfDir> {
        self.dirs.iter().filter(|dir| dir.condition() != TargetCondition::Hung)
    }

    /// Whether it is that of a set.
    fn is_of_set(&self) -> bool {
        self.copies > 1
    }

    /// The targets that may be given a copy, in the order in which they are asked: those that are
    /// well, then those that are full.
    fn takers(&self) -> Vec<&ShelfDir> {
        let known: Vec<_> = self.dirs.iter().map(|dir| (dir, dir.condition())).collect();
        let of = |wanted| known.iter().filter(move |(_, is)| *is == wanted).map(|(dir, _)| *dir);
        of(TargetCondition::Well).chain(of(TargetCondition::Full)).collect()
    }

    /// Does something on each target that is not known to hang. One on which it fails is left out,
    /// as if it were not there, unless it fails on all of them.
    fn on_each<T>(&self, act: impl Fn(&ShelfDir) -> Result<T, DiskError>) -> Result<Vec<T>, DiskError> {
        let (mut done, mut first_error) = (Vec::new(), None);
        for dir in self.answering() {
            match act(dir) {
                Ok(one) => done.push(one),
                Err(error) => {
                    let is_news = error.kind() != ErrorKind::Denied && dir.condition() != TargetCondition::Failed;
                    if self.is_of_set() && is_news {
                        let number = dir.number();
                        tracing::warn!(target: "longhaul::journal", number, %error, "the journals on a target cannot be used");
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) if done.is_empty() => Err(error),
            _ => Ok(done),
        }
    }

    /// The error of a journal that no target takes.
    fn nowhere(&self, tag: SessionTag) -> DiskError {
        let down = self.dirs.iter().find_map(ShelfDir::down);
        down.unwrap_or_else(|| DiskError::Abandoned { path: dir::shown(tag) })
    }
}

/// Believes a journal as long as it is.
#[derive(Debug)]
struct AllOfIt;

impl Proves for AllOfIt {
    fn proven_len(&self, read: &mut Pieces<'_>) -> u64 {
        let mut len = 0;
        read(&mut |piece| {
            len += piece.len() as u64;
            true
        });
        len
    }
}

/// The copies of a journal of a set.
const COPIES: usize = 2;

/// Makes the shelf's directory at the top of a tree, or takes the one that stands: that of one user
/// alone, if there is a `user`. Gives it with its name.
pub(crate) fn stand_shelf(root: &Arc<Dir>, user: Option<u32>) -> Result<(OwnedFd, Vec<u8>), DiskError> {
    let shelf = match user {
        Some(uid) => ShelfDir::of_user(root, uid),
        None => ShelfDir::of(root, None),
    };
    let made = (0..TRIES_MAX).find_map(|_| shelf.make().transpose());
    let made = made.unwrap_or_else(|| Err(DiskError::call("make the directory", shelf.bare_name(), Errno::BUSY)))?;
    Ok((made, shelf.bare_name().to_vec()))
}

/// The name of the shelf at the top of a tree: that of one user alone, if there is a `user`.
pub(crate) fn shelf_name(root: &Arc<Dir>, user: Option<u32>) -> Vec<u8> {
    user.map_or_else(|| SHELF_NAME.to_vec(), |uid| ShelfDir::of_user(root, uid).bare_name().to_vec())
}

#[cfg(test)]
mod tests;
