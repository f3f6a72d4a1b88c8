//! Claims on shards, on the shelf of a tree.
//!
//! In: a shard. Out: [`LockedShard`], by which what is kept on it is read and replaced while nobody
//! else does. Must not know which claim passes.
//!
//! The shelf of a target set keeps none: targets come and go, and are rebuilt, and a claim that
//! some of them keep would have to be taken along at each such change.

mod dir;
mod page;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Shelf;
use super::dir::ShelfDir;
use crate::error::{ClaimsError, DiskError};

pub use dir::CLAIMS_PAGE_PATIENCE;
pub use page::{ClaimsOwner, KeptShowing};

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
    dir: ShelfDir,
    /// The opening that holds the lock.
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
        self.one_dir()?.kept(&shard)
    }

    /// The shards of a campaign on which claims are kept at this moment. Takes no lock and makes
    /// nothing.
    ///
    /// # Errors
    /// As [`Shelf::lock_shard`].
    pub fn kept_shards(&self, campaign: [u8; 16]) -> Result<BTreeSet<u64>, DiskError> {
        self.one_dir()?.kept_shards(&campaign)
    }

    /// Locks a shard as soon as nobody else has it, and reads what is kept on it.
    ///
    /// # Errors
    /// The system's error; [`ClaimsError`] if a file of claims is damaged, there are no locks,
    /// somebody else holds this one for longer than `patience`, or this is the shelf of a set.
    pub fn lock_shard(&self, shard: ShardKey, patience: Duration) -> Result<LockedShard, DiskError> {
        let dir = self.one_dir()?.clone();
        let _lock = dir.lock_shard(&shard, patience)?;
        let kept = dir.kept(&shard)?;
        Ok(LockedShard { shard, dir, _lock, kept })
    }

    fn one_dir(&self) -> Result<&ShelfDir, DiskError> {
        match &*self.dirs {
            [dir] if !self.is_of_set() => Ok(dir),
            _ => Err(ClaimsError::OnSet.into()),
        }
    }
}

impl LockedShard {
    /// The showing that is kept. `None`: there is none.
    pub fn kept(&self) -> Option<KeptShowing> {
        self.kept
    }

    /// Keeps a claim, shown in a session of this owner, durably. If it fails, either one may be
    /// kept.
    ///
    /// # Errors
    /// As [`Shelf::lock_shard`]; [`ClaimsError::Full`] and [`ClaimsError::OwnerFull`] if there are
    /// as many files of claims as may be.
    pub fn keep(
        &mut self,
        (fence, id, session): (u64, [u8; 16], [u8; 16]),
        owner: ClaimsOwner,
    ) -> Result<(), DiskError> {
        let serial = self.kept.map_or(0, |kept| kept.serial).saturating_add(1);
        let showing = KeptShowing { serial, fence, id, session };
        self.dir.keep(&self.shard, showing, owner)?;
        self.kept = Some(showing);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
