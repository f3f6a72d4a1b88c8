//! The reasons why claims on shards cannot be looked at or kept.
//!
//! Made by the shelf; becomes a [`DiskError`](crate::DiskError). Knows no rule about claims.

use longhaul_core::{FaultCode, Hint, hint};

use super::PathText;

/// A reason why a claim cannot be looked at or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimsError {
    /// A file of claims is not as it was written.
    #[error("'{path}' is damaged ({why}), and so nobody can tell who may move its shards")]
    Damaged {
        /// The file.
        path: PathText,
        /// The part that does not fit.
        why: &'static str,
    },
    /// The file system has no locks.
    #[error("'{path}' cannot be locked: its file system has no locks, without which no claim is kept")]
    Unlockable {
        /// The file whose bytes are locked.
        path: PathText,
    },
    /// A lock was refused where locks have kept claims before.
    #[error("'{path}' cannot be locked now ({error}), and claims are kept beside it: nobody can tell who publishes")]
    LocksAway {
        /// The file whose bytes are locked.
        path: PathText,
        /// The system's error.
        error: std::io::Error,
    },
    /// Another process has had the lock of the shard for too long.
    #[error("another process holds the lock of shard {shard} in '{path}' for {seconds} s")]
    Held {
        /// The file whose bytes are locked.
        path: PathText,
        /// The number of the shard.
        shard: u64,
        /// The time for which it was waited for.
        seconds: u64,
    },
    /// There are as many files of claims as there may be.
    #[error("'{path}' holds {count} files of claims, and none of them is older than {days} days: no more are kept")]
    Full {
        /// The directory.
        path: PathText,
        /// Their number.
        count: usize,
        /// The age in days from which one may be removed.
        days: u64,
    },
    /// One principal has as many files of claims as it may.
    #[error(
        "'{path}' holds {count} files of claims of this client, as many as one may have, and none of them is older \
        than {days} days: no more are kept"
    )]
    OwnerFull {
        /// The directory.
        path: PathText,
        /// Their number.
        count: usize,
        /// The age in days from which one may be removed.
        days: u64,
    },
    /// The destination is a target set.
    #[error("a target set keeps no claims on shards, as its targets may change")]
    OnSet,
}

impl ClaimsError {
    /// The code of its fault.
    pub(super) fn code(&self) -> FaultCode {
        match self {
            ClaimsError::Damaged { .. } => FaultCode::Mismatch,
            ClaimsError::Unlockable { .. } | ClaimsError::OnSet => FaultCode::Unsupported,
            ClaimsError::Held { .. } | ClaimsError::LocksAway { .. } => FaultCode::Busy,
            ClaimsError::Full { .. } | ClaimsError::OwnerFull { .. } => FaultCode::NoSpace,
        }
    }

    /// The hint what to do about it.
    pub(super) fn hint(&self) -> Hint {
        match self {
            ClaimsError::Damaged { .. } => hint::Storage::RemoveClaims.into(),
            ClaimsError::Unlockable { .. } | ClaimsError::LocksAway { .. } => hint::Storage::AllowLocks.into(),
            ClaimsError::Held { .. } => hint::Again::Later.into(),
            ClaimsError::Full { .. } | ClaimsError::OwnerFull { .. } => hint::Storage::RemoveOldClaims.into(),
            ClaimsError::OnSet => hint::Storage::ClaimOneDirectory.into(),
        }
    }

    /// The path it concerns. `None` if it concerns several.
    pub(super) fn path(&self) -> Option<&PathText> {
        match self {
            ClaimsError::Damaged { path, .. }
            | ClaimsError::Unlockable { path }
            | ClaimsError::LocksAway { path, .. }
            | ClaimsError::Held { path, .. }
            | ClaimsError::Full { path, .. }
            | ClaimsError::OwnerFull { path, .. } => Some(path),
            ClaimsError::OnSet => None,
        }
    }
}
