//! The rows about delivered files, as statements.
//!
//! In: reads and writes of the rules. Out: the server's answers. Must not know a rule.

use longhaul_jobs::columns::{columns_of_unlisted, number_of_bad_kind};
use longhaul_jobs::{
    BadFile, BadSum, CampaignId, Due, Micros, ShardId, Verification, VerificationRows, VerificationSums,
};

use super::{Answer, PostgresRows, bounds, n, small};
use crate::connection::Value;
use crate::statements::Statement;

impl VerificationRows for PostgresRows<'_> {
    fn verification(&mut self, shard: ShardId) -> Answer<Option<Verification>> {
        self.one(Statement::Verification, vec![n(shard.0)?], |columns| columns.verification())
    }

    fn put_verification(&mut self, row: &Verification) -> Answer<()> {
        let (kind, unlisted) = columns_of_unlisted(row.unlisted);
        let values = vec![
            n(row.shard.0)?,
            n(row.campaign.0)?,
            n(row.last.0)?,
            n(row.entry)?,
            Value::bytes(&row.claim.0),
            n(row.until.0)?,
            n(row.failed.0)?,
            small(kind),
            n(unlisted.files)?,
            n(unlisted.bytes)?,
        ];
        self.write(Statement::PutVerification, values)
    }

    fn first_to_verify(
        &mut self,
        campaign: CampaignId,
        leases: Due,
        (believed, failed_before): (Micros, Micros),
    ) -> Answer<Option<(ShardId, Micros)>> {
        let (now, latest) = bounds(leases)?;
        let values = vec![n(campaign.0)?, last_of(believed), now, latest, last_of(failed_before)];
        self.one(Statement::FirstToVerify, values, |columns| columns.to_verify())
    }

    fn verification_sums(
        &mut self,
        campaign: CampaignId,
        stale_before: Micros,
        believed: Micros,
    ) -> Answer<VerificationSums> {
        let values = vec![n(campaign.0)?, last_of(believed), n(stale_before.0)?];
        Ok(self.one(Statement::VerificationSums, values, |columns| columns.verification_sums())?.unwrap_or_default())
    }

    fn bad_files_of(&mut self, shard: ShardId) -> Answer<Vec<BadFile>> {
        self.list(Statement::BadFilesOf, vec![n(shard.0)?], |columns| columns.bad_file())
    }

    fn put_bad_file(&mut self, file: &BadFile) -> Answer<()> {
        let values = vec![
            n(file.shard.0)?,
            Value::bytes(&file.path),
            n(file.campaign.0)?,
            n(file.files)?,
            n(file.bytes)?,
            small(number_of_bad_kind(file.kind)),
            Value::text(file.message.as_str()),
            n(file.first.0)?,
            n(file.last.0)?,
        ];
        self.write(Statement::PutBadFile, values)
    }

    fn remove_bad_file(&mut self, shard: ShardId, path: &[u8]) -> Answer<()> {
        self.write(Statement::RemoveBadFile, vec![n(shard.0)?, Value::bytes(path)])
    }

    fn bad_shard(&mut self, campaign: CampaignId, after: ShardId) -> Answer<Option<ShardId>> {
        self.one(Statement::BadShard, vec![n(campaign.0)?, n(after.0)?], |columns| columns.bad_shard())
    }

    fn bad_sums(&mut self, campaign: CampaignId) -> Answer<Vec<BadSum>> {
        self.list(Statement::BadSums, vec![n(campaign.0)?], |columns| columns.bad_sum())
    }
}

/// A bound of times. No row has a later time than the last one here.
fn last_of(time: Micros) -> Value {
    Value::Number(Some(i64::try_from(time.0).unwrap_or(i64::MAX)))
}
