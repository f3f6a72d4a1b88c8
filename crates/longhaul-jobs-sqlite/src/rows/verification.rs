//! The rows about delivered files, as statements.
//!
//! In: reads and writes of the rules. Out: SQLite's answers. Must not know a rule.

use longhaul_jobs::columns::{columns_of_unlisted, number, number_of_bad_kind};
use longhaul_jobs::{
    BadFile, BadSum, CampaignId, Due, Micros, ShardId, Verification, VerificationRows, VerificationSums,
};
use rusqlite::params;

use super::{Answer, SqliteRows, bounds};

impl VerificationRows for SqliteRows<'_> {
    fn verification(&mut self, shard: ShardId) -> Answer<Option<Verification>> {
        let statement = "SELECT shard, campaign, last, entry, claim, until, failed, unlisted_kind, unlisted_files,
            unlisted_bytes FROM verification WHERE shard = ?";
        self.one(statement, params![number(shard.0)?], |columns| columns.verification())
    }

    fn put_verification(&mut self, row: &Verification) -> Answer<()> {
        let (kind, unlisted) = columns_of_unlisted(row.unlisted);
        self.write(
            "INSERT OR REPLACE INTO verification (shard, campaign, last, entry, claim, until, failed, unlisted_kind,
                unlisted_files, unlisted_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                number(row.shard.0)?,
                number(row.campaign.0)?,
                number(row.last.0)?,
                number(row.entry)?,
                row.claim.0,
                number(row.until.0)?,
                number(row.failed.0)?,
                kind,
                number(unlisted.files)?,
                number(unlisted.bytes)?,
            ],
        )
    }

    fn first_to_verify(
        &mut self,
        campaign: CampaignId,
        leases: Due,
        (believed, failed_before): (Micros, Micros),
    ) -> Answer<Option<(ShardId, Micros)>> {
        let (now, latest) = bounds(leases)?;
        let statement = "SELECT s.id, CASE WHEN v.last IS NULL OR v.last > ?2 THEN 0 ELSE v.last END AS read
            FROM shard s LEFT JOIN verification v ON v.shard = s.id
            WHERE s.campaign = ?1 AND s.state IN (3, 4) AND s.done_files > 0
            AND (v.until IS NULL OR (v.until <= ?3 OR v.until > ?4) AND (v.failed < ?5 OR v.failed > ?2)) ORDER BY read, s.id LIMIT 1";
        self.one(
            statement,
            params![number(campaign.0)?, last_of(believed), now, latest, last_of(failed_before)],
            |columns| columns.to_verify(),
        )
    }

    fn verification_sums(
        &mut self,
        campaign: CampaignId,
        stale_before: Micros,
        believed: Micros,
    ) -> Answer<VerificationSums> {
        let statement = "SELECT coalesce(sum(files), 0), coalesce(sum(bytes), 0),
                coalesce(sum(CASE WHEN read = 0 THEN files END), 0),
                coalesce(sum(CASE WHEN read = 0 THEN bytes END), 0),
                coalesce(sum(CASE WHEN read > 0 AND read < ?3 THEN files END), 0),
                coalesce(sum(CASE WHEN read > 0 AND read < ?3 THEN bytes END), 0),
                min(CASE WHEN read > 0 THEN read END)
            FROM (SELECT s.done_files AS files, s.done_bytes AS bytes,
                    CASE WHEN v.last IS NULL OR v.last > ?2 THEN 0 ELSE v.last END AS read
                FROM shard s LEFT JOIN verification v ON v.shard = s.id
                WHERE s.campaign = ?1 AND s.state IN (3, 4) AND s.done_files > 0)";
        let values = params![number(campaign.0)?, last_of(believed), number(stale_before.0)?];
        Ok(self.one(statement, values, |columns| columns.verification_sums())?.unwrap_or_default())
    }

    fn bad_files_of(&mut self, shard: ShardId) -> Answer<Vec<BadFile>> {
        let statement = "SELECT shard, path, campaign, files, bytes, kind, message, first, last FROM bad_file
            WHERE shard = ? ORDER BY path";
        self.list(statement, params![number(shard.0)?], |columns| columns.bad_file())
    }

    fn put_bad_file(&mut self, file: &BadFile) -> Answer<()> {
        self.write(
            "INSERT OR REPLACE INTO bad_file (shard, path, campaign, files, bytes, kind, message, first, last)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                number(file.shard.0)?,
                file.path,
                number(file.campaign.0)?,
                number(file.files)?,
                number(file.bytes)?,
                number_of_bad_kind(file.kind),
                file.message.as_str(),
                number(file.first.0)?,
                number(file.last.0)?,
            ],
        )
    }

    fn remove_bad_file(&mut self, shard: ShardId, path: &[u8]) -> Answer<()> {
        self.write("DELETE FROM bad_file WHERE shard = ? AND path = ?", params![number(shard.0)?, path])
    }

    fn bad_shard(&mut self, campaign: CampaignId, after: ShardId) -> Answer<Option<ShardId>> {
        let statement = "SELECT shard FROM bad_file WHERE campaign = ? AND shard > ? ORDER BY shard LIMIT 1";
        self.one(statement, params![number(campaign.0)?, number(after.0)?], |columns| columns.bad_shard())
    }

    fn bad_sums(&mut self, campaign: CampaignId) -> Answer<Vec<BadSum>> {
        let statement =
            "SELECT kind, sum(files), sum(bytes) FROM bad_file WHERE campaign = ? GROUP BY kind ORDER BY kind";
        self.list(statement, params![number(campaign.0)?], |columns| columns.bad_sum())
    }
}

/// A bound of times. No row has a later time than the last one here.
fn last_of(time: Micros) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
