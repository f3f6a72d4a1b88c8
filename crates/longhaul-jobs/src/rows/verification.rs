//! The rows about files that were delivered: when each shard was last read back, and which of its
//! files are not any more what was delivered.
//!
//! In: what verifiers find. Out: plain data. A file that is well has no row. Must not know how a
//! file is read.

use longhaul_core::{FaultCode, PlainText};

use crate::ids::{Amount, CampaignId, ClaimId, Micros, ShardId};

/// The readings of a shard at its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The shard.
    pub shard: ShardId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// The end of the last whole reading. 0: it was never read.
    pub last: Micros,
    /// Names of the shard that the reading under way is through with.
    pub entry: u64,
    /// The random id of the verifier that reads it, or read it last.
    pub claim: ClaimId,
    /// The end of that verifier's lease. It is the time of its last word if it gave the shard back.
    pub until: Micros,
    /// The time of the last try that failed. 0: none did.
    pub failed: Micros,
    /// The bad files of the reading under way that have no rows.
    pub unlisted: Option<UnlistedBad>,
}

/// Bad files of a shard that have no rows of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnlistedBad {
    /// The worst of their kinds.
    pub worst: BadKind,
    /// Files, and their bytes by the manifest.
    pub amount: Amount,
}

/// A file that was delivered, and is not any more what it was. Files that are well have no row. A
/// row without a path stands for all beyond [`BAD_FILES_MAX`](crate::queue::BAD_FILES_MAX).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// Its shard.
    pub shard: ShardId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// Its path in the manifest: bytes.
    pub path: Vec<u8>,
    /// Files that the row stands for.
    pub files: u64,
    /// Its size by the manifest.
    pub bytes: u64,
    /// The way in which it is bad.
    pub kind: BadKind,
    /// The words of it.
    pub message: PlainText,
    /// The time at which it was first found so.
    pub first: Micros,
    /// The time at which it was last found so.
    pub last: Micros,
}

/// The way in which a delivered file is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BadKind {
    /// Nothing stands under its name.
    Lost,
    /// Another length, time or kind stands under its name: somebody wrote it since.
    Changed,
    /// It has the length and the time with which it was delivered, and other content.
    Damaged,
    /// It cannot be read.
    Unread,
}

impl BadKind {
    /// All kinds.
    pub const ALL: [BadKind; 4] = [BadKind::Lost, BadKind::Changed, BadKind::Damaged, BadKind::Unread];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            BadKind::Lost => "lost",
            BadKind::Changed => "changed",
            BadKind::Damaged => "damaged",
            BadKind::Unread => "unread",
        }
    }

    /// The fault that hooks are told.
    pub const fn code(self) -> FaultCode {
        match self {
            BadKind::Lost => FaultCode::NotFound,
            BadKind::Changed => FaultCode::Changed,
            BadKind::Damaged => FaultCode::Mismatch,
            BadKind::Unread => FaultCode::Io,
        }
    }

    /// The worse of two: other content is worse than none.
    #[must_use]
    pub fn worse(self, other: BadKind) -> BadKind {
        let severity = |kind| match kind {
            BadKind::Changed => 0,
            BadKind::Unread => 1,
            BadKind::Lost => 2,
            BadKind::Damaged => 3,
        };
        if severity(other) > severity(self) { other } else { self }
    }
}
