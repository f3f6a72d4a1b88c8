//! Claims on shards, on the shelf of a tree or of a set.
//!
//! In: a shard. Out: [`LockedShard`], by which what is kept on it is read and replaced while nobody
//! else does. Owns the rules about several targets; must not know which claim passes.
//!
//! On a set each claim is kept by more than half of all its targets, missing ones counted: any two
//! halves have a target in common, so that whoever looks later sees it, and two never hold the lock
//! of a shard at a time. Of copies that differ the one with the highest serial counts. Two
//! that have one serial and differ were written by processes that did not come so far as to be
//! welcome: then the highest fence counts, and nobody's session.

mod dir;
mod page;

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Shelf;
use super::dir::ShelfDir;
use crate::error::{ClaimsError, DiskError};

pub use page::KeptShowing;

/// A shard of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardKey {
    /// 16 random bytes by which destinations know the campaign.
    pub campaign: [u8; 16],
    /// The shard's number in it.
    pub shard: u64,
}

/// A shard whose lock is held until this is dropped.
#[derive(Debug)]
pub struct LockedShard {
    shard: ShardKey,
    copies: Vec<ClaimCopy>,
    /// The targets of the set, with those that are missing.
    targets: usize,
}

/// The copy of one target, with the opening that holds the lock there.
#[derive(Debug)]
struct ClaimCopy {
    dir: ShelfDir,
    _lock: OwnedFd,
    kept: Option<KeptShowing>,
}

impl Shelf {
    /// The showing that is kept on a shard at this moment. `None`: there is none. Takes no lock and
    /// makes nothing.
    ///
    /// # Errors
    /// As [`Shelf::lock_shard`].
    pub fn kept(&self, shard: ShardKey) -> Result<Option<KeptShowing>, DiskError> {
        let (mut copies, mut first_error) = (Vec::new(), None);
        for dir in self.answering() {
            match dir.kept(&shard) {
                Ok(kept) => copies.push(kept),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        match first_error {
            _ if copies.len() > self.targets / 2 => Ok(believed(&copies.into_iter().flatten().collect::<Vec<_>>())),
            Some(error) => Err(error),
            None => Err(ClaimsError::Minority { there: copies.len(), count: self.targets }.into()),
        }
    }

    /// Locks a shard as soon as nobody else has it, and reads what is kept on it.
    ///
    /// # Errors
    /// The system's error; [`ClaimsError`] if a file of claims is damaged, there are no locks,
    /// somebody else holds this one for longer than `patience`, or if half of the targets or more
    /// are not there.
    pub fn lock_shard(&self, shard: ShardKey, patience: Duration) -> Result<LockedShard, DiskError> {
        let (mut copies, mut first_error) = (Vec::new(), None);
        for dir in self.answering() {
            let locked = dir.lock_shard(&shard, patience);
            match locked.and_then(|lock| Ok(ClaimCopy { dir: dir.clone(), _lock: lock, kept: dir.kept(&shard)? })) {
                Ok(copy) => copies.push(copy),
                // Who waits for one target with the others locked keeps nobody out who has more.
                Err(error @ DiskError::Claims(ClaimsError::Held { .. })) => return Err(error),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        let locked = LockedShard { shard, copies, targets: self.targets };
        match first_error {
            _ if locked.is_majority(locked.copies.len()) => Ok(locked),
            Some(error) => Err(error),
            None => Err(locked.minority(locked.copies.len())),
        }
    }
}

impl LockedShard {
    /// The showing that is kept. `None`: there is none.
    pub fn kept(&self) -> Option<KeptShowing> {
        let copies: Vec<KeptShowing> = self.copies.iter().filter_map(|copy| copy.kept).collect();
        believed(&copies)
    }

    /// Keeps a claim, shown in a session, durably. If it fails, either one may be kept.
    ///
    /// # Errors
    /// As [`Shelf::lock_shard`]; [`ClaimsError::Full`] if there are as many files of claims as may
    /// be.
    pub fn keep(&mut self, fence: u64, id: [u8; 16], session: [u8; 16]) -> Result<(), DiskError> {
        let serial = self.copies.iter().filter_map(|copy| copy.kept).map(|kept| kept.serial).max().unwrap_or(0);
        let showing = KeptShowing { serial: serial.saturating_add(1), fence, id, session };
        let (mut count, mut first_error) = (0, None);
        for copy in &mut self.copies {
            match copy.dir.keep(&self.shard, showing) {
                Ok(()) => {
                    copy.kept = Some(showing);
                    count += 1;
                }
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        match first_error {
            _ if self.is_majority(count) => Ok(()),
            Some(error) => Err(error),
            None => Err(self.minority(count)),
        }
    }

    fn is_majority(&self, copies: usize) -> bool {
        copies > self.targets / 2
    }

    fn minority(&self, there: usize) -> DiskError {
        ClaimsError::Minority { there, count: self.targets }.into()
    }
}

/// The showing that counts of several copies.
fn believed(copies: &[KeptShowing]) -> Option<KeptShowing> {
    let serial = copies.iter().map(|kept| kept.serial).max()?;
    let latest = || copies.iter().copied().filter(|kept| kept.serial == serial);
    let first = latest().max_by_key(|kept| kept.fence)?;
    if latest().all(|kept| kept == first) {
        return Some(first);
    }
    let is_one_claim = latest().filter(|kept| kept.fence == first.fence).all(|kept| kept.id == first.id);
    let id = if is_one_claim { first.id } else { NOBODYS };
    Some(KeptShowing { id, session: NOBODYS, ..first })
}

/// A session, or the id of a claim, that nobody has.
const NOBODYS: [u8; 16] = [0; 16];

#[cfg(test)]
mod tests;
