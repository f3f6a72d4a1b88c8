//! Columns of the rows about delivered files.
//!
//! In: cells that a backend read, and what verifiers found. Out: the other. Must not know
//! statements, nor a database.

use longhaul_core::PlainText;

use super::{Columns, NO_VALUE, Read};
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, ClaimId, Micros, ShardId};
use crate::rows::{BadFile, BadKind, UnlistedBad, Verification};
use crate::store::{BadSum, VerificationSums};

impl Columns<'_> {
    /// A row of `verification`.
    pub fn verification(&mut self) -> Read<Verification> {
        Ok(Verification {
            shard: ShardId(self.count()?),
            campaign: CampaignId(self.count()?),
            last: self.micros()?,
            entry: self.count()?,
            claim: ClaimId(self.bytes()?),
            until: self.micros()?,
            failed: self.micros()?,
            unlisted: self.unlisted()?,
        })
    }

    /// The columns about bad files that have no rows. The kind of none of them means nothing.
    fn unlisted(&mut self) -> Read<Option<UnlistedBad>> {
        let (worst, amount) = (self.bad_kind()?, self.amount()?);
        Ok((amount.files > 0).then_some(UnlistedBad { worst, amount }))
    }

    /// The shard that is verified next, and the end of its last reading.
    pub fn to_verify(&mut self) -> Read<(ShardId, Micros)> {
        Ok((ShardId(self.count()?), self.micros()?))
    }

    /// Sums over delivered files.
    pub fn verification_sums(&mut self) -> Read<VerificationSums> {
        let (total, never, stale) = (self.amount()?, self.amount()?, self.amount()?);
        Ok(VerificationSums { total, never, stale, oldest: self.maybe_count()?.map(Micros) })
    }

    /// A row of `bad_file`.
    pub fn bad_file(&mut self) -> Read<BadFile> {
        let (shard, path, campaign) = (ShardId(self.count()?), self.long()?, CampaignId(self.count()?));
        let (files, bytes, kind) = (self.count()?, self.count()?, self.bad_kind()?);
        let (message, first, last) = (PlainText::from(self.text()?), self.micros()?, self.micros()?);
        Ok(BadFile { shard, campaign, path, files, bytes, kind, message, first, last })
    }

    /// The number of a shard with bad files.
    pub fn bad_shard(&mut self) -> Read<ShardId> {
        Ok(ShardId(self.count()?))
    }

    /// Sums over bad files of one kind.
    pub fn bad_sum(&mut self) -> Read<BadSum> {
        Ok(BadSum { kind: self.bad_kind()?, amount: self.amount()? })
    }

    fn bad_kind(&mut self) -> Read<BadKind> {
        let number = self.0.number()?.ok_or(NO_VALUE)?;
        let kind = BadKind::ALL.into_iter().find(|kind| number_of_bad_kind(*kind) == number);
        kind.ok_or(JobsError::BadRow("there is no such kind of a bad file"))
    }
}

/// The columns about bad files that have no rows: the kind, the files, the bytes.
pub fn columns_of_unlisted(unlisted: Option<UnlistedBad>) -> (i64, Amount) {
    unlisted.map_or((0, Amount::default()), |unlisted| (number_of_bad_kind(unlisted.worst), unlisted.amount))
}

/// The column `kind` of a bad file.
pub const fn number_of_bad_kind(kind: BadKind) -> i64 {
    match kind {
        BadKind::Lost => 0,
        BadKind::Changed => 1,
        BadKind::Damaged => 2,
        BadKind::Unread => 3,
    }
}
