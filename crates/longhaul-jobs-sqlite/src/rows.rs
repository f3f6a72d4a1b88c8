//! The rows of one transaction, as statements.
//!
//! In: reads and writes of the rules. Out: SQLite's answers. Each statement is prepared once for a
//! connection. `verification` is about delivered files. Must not know a rule, nor transactions.

mod shard;
mod verification;

use std::path::Path;

use longhaul_jobs::columns::{
    Columns, bytes_of_roots, columns_of_link_state, columns_of_place, number, number_of_campaign_state,
    number_of_fault_state, number_of_kind, number_of_notice, text_of_campaigns,
};
use longhaul_jobs::{
    Campaign, CampaignId, CampaignSignature, Due, FailedFile, FaultSum, HookKey, JobsError, Leader, Link, LinkId,
    Micros, Notice, OmittedName, Permit, PermitPlace, QueueId, Rows, Segment, Shard, ShardId, ShardKind, ShardSum,
    Site, SiteId,
};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params};

use self::shard::SHARD;
use crate::columns::RowCells;
use crate::error::SqliteError;

/// The rows of a transaction.
pub(crate) struct SqliteRows<'a> {
    connection: &'a Connection,
    path: &'a Path,
    now: Micros,
}

type Answer<T> = Result<T, JobsError>;

impl<'a> SqliteRows<'a> {
    /// The rows of an open transaction, which began at `now`.
    pub(crate) fn new(connection: &'a Connection, path: &'a Path, now: Micros) -> SqliteRows<'a> {
        SqliteRows { connection, path, now }
    }

    fn failed(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> JobsError + use<'_> {
        move |source| JobsError::store(SqliteError::failed(self.path, doing, source))
    }

    fn write(&self, statement: &str, values: &[&dyn ToSql]) -> Answer<()> {
        let failed = self.failed("a row cannot be written");
        self.connection.prepare_cached(statement).map_err(&failed)?.execute(values).map_err(&failed)?;
        Ok(())
    }

    fn list<T>(
        &self,
        statement: &str,
        values: &[&dyn ToSql],
        read: impl Fn(&mut Columns) -> Answer<T>,
    ) -> Answer<Vec<T>> {
        let failed = self.failed("rows cannot be read");
        let mut statement = self.connection.prepare_cached(statement).map_err(&failed)?;
        let mut rows = statement.query(values).map_err(&failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(&failed)? {
            found.push(read(&mut Columns::of(&mut RowCells::of(row)))?);
        }
        Ok(found)
    }

    fn one<T>(
        &self,
        statement: &str,
        values: &[&dyn ToSql],
        read: impl Fn(&mut Columns) -> Answer<T>,
    ) -> Answer<Option<T>> {
        Ok(self.list(statement, values, read)?.pop())
    }
}

impl Rows for SqliteRows<'_> {
    fn now(&mut self) -> Answer<Micros> {
        Ok(self.now)
    }

    fn next_number(&mut self) -> Answer<u64> {
        let next = self.one("UPDATE number SET last = last + 1 RETURNING last", &[], |columns| columns.count())?;
        next.ok_or(JobsError::BadRow("the row of the last number is missing"))
    }

    fn campaign(&mut self, id: CampaignId) -> Answer<Option<Campaign>> {
        self.one("SELECT * FROM campaign WHERE id = ?", params![number(id.0)?], |columns| columns.campaign())
    }

    fn campaigns(&mut self) -> Answer<Vec<Campaign>> {
        self.list("SELECT * FROM campaign ORDER BY id", &[], |columns| columns.campaign())
    }

    fn campaign_ids(&mut self) -> Answer<Vec<CampaignId>> {
        self.list("SELECT id FROM campaign ORDER BY id", &[], |columns| Ok(CampaignId(columns.count()?)))
    }

    fn put_campaign(&mut self, campaign: &Campaign) -> Answer<()> {
        self.write(
            "INSERT INTO campaign VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
                state = excluded.state, priority = excluded.priority, weight = excluded.weight,
                deadline = excluded.deadline, calendar = excluded.calendar, retry = excluded.retry,
                spec = excluded.spec, name = excluded.name, key = excluded.key, omitted = excluded.omitted,
                hooks = excluded.hooks",
            params![
                number(campaign.id.0)?,
                campaign.key.0,
                campaign.name,
                number_of_campaign_state(campaign.state),
                campaign.priority.get(),
                campaign.weight.get(),
                campaign.deadline.map(|deadline| number(deadline.0)).transpose()?,
                campaign.calendar.text(),
                campaign.retry.to_string(),
                campaign.spec,
                number(campaign.omitted)?,
                campaign.hooks.to_string(),
            ],
        )
    }

    fn queue_id(&mut self) -> Answer<Option<QueueId>> {
        self.one("SELECT id FROM queue_id", &[], |columns| columns.queue_id())
    }

    fn put_queue_id(&mut self, id: QueueId) -> Answer<()> {
        self.write("INSERT OR REPLACE INTO queue_id VALUES (1, ?)", params![id.0])
    }

    fn signature(&mut self, campaign: CampaignId) -> Answer<Option<CampaignSignature>> {
        let statement = "SELECT * FROM signature WHERE campaign = ?";
        self.one(statement, params![number(campaign.0)?], |columns| columns.signature())
    }

    fn put_signature(&mut self, signature: &CampaignSignature) -> Answer<()> {
        let CampaignSignature { campaign, owner, at, spec, manifest } = signature;
        let (roots, manifest) = (manifest.as_ref().map(bytes_of_roots), manifest.as_ref().map(|of| of.signature));
        self.write(
            "INSERT OR REPLACE INTO signature VALUES (?, ?, ?, ?, ?, ?)",
            params![number(campaign.0)?, owner, number(at.0)?, spec, roots, manifest],
        )
    }

    fn put_segment(&mut self, segment: &Segment) -> Answer<()> {
        let Segment { campaign, number: at, digest, total } = segment;
        self.write(
            "INSERT OR REPLACE INTO segment VALUES (?, ?, ?, ?, ?)",
            params![number(campaign.0)?, number(*at)?, digest, number(total.files)?, number(total.bytes)?],
        )
    }

    fn remove_segment(&mut self, campaign: CampaignId, at: u64) -> Answer<()> {
        let (campaign, at) = (number(campaign.0)?, number(at)?);
        self.write("DELETE FROM shard WHERE campaign = ? AND segment = ?", params![campaign, at])?;
        self.write("DELETE FROM segment WHERE campaign = ? AND number = ?", params![campaign, at])
    }

    fn segments(&mut self, campaign: CampaignId) -> Answer<Vec<Segment>> {
        let statement = "SELECT * FROM segment WHERE campaign = ? ORDER BY number";
        self.list(statement, params![number(campaign.0)?], |columns| columns.segment())
    }

    fn put_omitted(&mut self, name: &OmittedName) -> Answer<()> {
        self.write(
            "INSERT OR REPLACE INTO omitted VALUES (?, ?, ?, ?, ?)",
            params![
                number(name.campaign.0)?,
                number(name.source)?,
                name.object.as_str(),
                name.code.name(),
                name.message.as_str()
            ],
        )
    }

    fn omitted(&mut self, campaign: CampaignId) -> Answer<Vec<OmittedName>> {
        let statement = "SELECT * FROM omitted WHERE campaign = ? ORDER BY source, object";
        self.list(statement, params![number(campaign.0)?], |columns| columns.omitted())
    }

    fn site(&mut self, id: SiteId) -> Answer<Option<Site>> {
        self.one("SELECT * FROM site WHERE id = ?", params![number(id.0)?], |columns| columns.site())
    }

    fn sites(&mut self) -> Answer<Vec<Site>> {
        self.list("SELECT * FROM site ORDER BY id", &[], |columns| columns.site())
    }

    fn put_site(&mut self, site: &Site) -> Answer<()> {
        self.write(
            "INSERT OR REPLACE INTO site VALUES (?, ?, ?, ?)",
            params![number(site.id.0)?, site.name, site.movers_in, site.movers_out],
        )
    }

    fn site_above(&mut self, host: SiteId) -> Answer<Option<SiteId>> {
        let statement = "SELECT above FROM site_above WHERE host = ?";
        self.one(statement, params![number(host.0)?], |columns| columns.count().map(SiteId))
    }

    fn put_site_above(&mut self, host: SiteId, above: Option<SiteId>) -> Answer<()> {
        match above {
            Some(above) => {
                let values = params![number(host.0)?, number(above.0)?];
                self.write("INSERT OR REPLACE INTO site_above VALUES (?, ?)", values)
            }
            None => self.write("DELETE FROM site_above WHERE host = ?", params![number(host.0)?]),
        }
    }

    fn link(&mut self, id: LinkId) -> Answer<Option<Link>> {
        self.one("SELECT * FROM link WHERE id = ?", params![number(id.0)?], |columns| columns.link())
    }

    fn links(&mut self) -> Answer<Vec<Link>> {
        self.list("SELECT * FROM link ORDER BY id", &[], |columns| columns.link())
    }

    fn put_link(&mut self, link: &Link) -> Answer<()> {
        let (state, reason) = columns_of_link_state(link.state);
        self.write(
            "INSERT OR REPLACE INTO link VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                number(link.id.0)?,
                number(link.from.0)?,
                number(link.to.0)?,
                link.movers,
                link.rate.map(number).transpose()?,
                link.calendar.text(),
                state,
                reason,
                link.back_off.failures,
                number(link.back_off.until.0)?,
                link.mismatches,
                number(link.meter.since.0)?,
                number(link.meter.bytes)?,
                number(link.meter.rate)?,
            ],
        )
    }

    fn share_used(&mut self, campaign: CampaignId, link: LinkId) -> Answer<u64> {
        let statement = "SELECT used FROM share WHERE campaign = ? AND link = ?";
        let used = self.one(statement, params![number(campaign.0)?, number(link.0)?], |columns| columns.count())?;
        Ok(used.unwrap_or(0))
    }

    fn put_share_used(&mut self, campaign: CampaignId, link: LinkId, used: u64) -> Answer<()> {
        self.write(
            "INSERT OR REPLACE INTO share VALUES (?, ?, ?)",
            params![number(campaign.0)?, number(link.0)?, number(used)?],
        )
    }

    fn shard(&mut self, id: ShardId) -> Answer<Option<Shard>> {
        let statement = format!("SELECT {SHARD} FROM shard WHERE id = ?");
        self.one(&statement, params![number(id.0)?], |columns| columns.shard())
    }

    fn put_shard(&mut self, shard: &Shard) -> Answer<()> {
        self.write_shard(shard)
    }

    fn first_ready(&mut self, link: LinkId, passed_over: &[CampaignId]) -> Answer<Option<Shard>> {
        let statement = format!(
            "SELECT {SHARD} FROM shard WHERE state = 1 AND link = ?
            AND campaign NOT IN (SELECT value FROM json_each('[' || ? || ']')) ORDER BY rank, id LIMIT 1"
        );
        let passed_over = text_of_campaigns(passed_over);
        self.one(&statement, params![number(link.0)?, passed_over], |columns| columns.shard())
    }

    fn first_planned(&mut self, campaign: CampaignId, link: LinkId, due: Due) -> Answer<Option<Shard>> {
        let statement = format!(
            "SELECT {SHARD} FROM shard WHERE state = 0 AND campaign = ? AND link = ?
            AND (not_before <= ? OR not_before > ?) ORDER BY id LIMIT 1"
        );
        let (now, latest) = bounds(due)?;
        self.one(&statement, params![number(campaign.0)?, number(link.0)?, now, latest], |columns| columns.shard())
    }

    fn count_ready(&mut self, link: LinkId) -> Answer<u64> {
        let statement = "SELECT count(*) FROM shard WHERE state = 1 AND link = ?";
        Ok(self.one(statement, params![number(link.0)?], |columns| columns.count())?.unwrap_or(0))
    }

    fn lapsed(&mut self, due: Due, most: usize) -> Answer<Vec<Shard>> {
        let statement = format!(
            "SELECT {SHARD} FROM shard WHERE state = 2 AND (lease_until <= ? OR lease_until > ?) ORDER BY id LIMIT ?"
        );
        let (now, latest) = bounds(due)?;
        self.list(&statement, params![now, latest, number(most as u64)?], |columns| columns.shard())
    }

    fn shards(&mut self, campaign: CampaignId, kind: ShardKind, after: ShardId, most: usize) -> Answer<Vec<Shard>> {
        let statement =
            format!("SELECT {SHARD} FROM shard WHERE campaign = ? AND state = ? AND id > ? ORDER BY id LIMIT ?");
        let values = params![number(campaign.0)?, number_of_kind(kind), number(after.0)?, number(most as u64)?];
        self.list(&statement, values, |columns| columns.shard())
    }

    fn commit_of(&mut self, campaign: CampaignId) -> Answer<Option<Shard>> {
        self.read_commit(campaign)
    }

    fn shard_sums(&mut self, campaign: CampaignId) -> Answer<Vec<ShardSum>> {
        let statement = "SELECT link, state, count(*), sum(files), sum(bytes), sum(done_files), sum(done_bytes),
            sum(failed_files), sum(failed_bytes), sum(unclaimed) FROM shard WHERE campaign = ? GROUP BY link, state
            ORDER BY link, state";
        self.list(statement, params![number(campaign.0)?], |columns| columns.shard_sum())
    }

    fn permits(&mut self, place: PermitPlace) -> Answer<Vec<Permit>> {
        let (kind, id) = columns_of_place(place);
        let statement = "SELECT * FROM permit WHERE kind = ? AND place = ? ORDER BY slot";
        self.list(statement, params![kind, number(id)?], |columns| columns.permit())
    }

    fn permits_of(&mut self, shard: ShardId) -> Answer<Vec<Permit>> {
        let statement = "SELECT * FROM permit WHERE shard = ? ORDER BY kind, place, slot";
        self.list(statement, params![number(shard.0)?], |columns| columns.permit())
    }

    fn put_permit(&mut self, permit: &Permit) -> Answer<()> {
        let (kind, id) = columns_of_place(permit.place);
        let Permit { slot, shard, claim, until, .. } = permit;
        self.write(
            "INSERT OR REPLACE INTO permit VALUES (?, ?, ?, ?, ?, ?, ?)",
            params![kind, number(id)?, slot, number(shard.0)?, number(claim.fence.0)?, claim.id.0, number(until.0)?],
        )
    }

    fn remove_permit(&mut self, permit: &Permit) -> Answer<()> {
        let (kind, id) = columns_of_place(permit.place);
        let statement = "DELETE FROM permit WHERE kind = ? AND place = ? AND slot = ?";
        self.write(statement, params![kind, number(id)?, permit.slot])
    }

    fn faults_of(&mut self, shard: ShardId) -> Answer<Vec<FailedFile>> {
        let statement = "SELECT * FROM fault WHERE shard = ? ORDER BY path";
        self.list(statement, params![number(shard.0)?], |columns| columns.fault())
    }

    fn put_fault(&mut self, fault: &FailedFile) -> Answer<()> {
        self.write(
            "INSERT OR REPLACE INTO fault VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                number(fault.shard.0)?,
                fault.path,
                number(fault.campaign.0)?,
                number(fault.bytes)?,
                fault.code.name(),
                fault.blame.name(),
                fault.message.as_str(),
                number_of_fault_state(fault.state),
                fault.tries,
                number(fault.first.0)?,
                number(fault.last.0)?,
            ],
        )
    }

    fn remove_fault(&mut self, fault: &FailedFile) -> Answer<()> {
        let statement = "DELETE FROM fault WHERE shard = ? AND path = ?";
        self.write(statement, params![number(fault.shard.0)?, fault.path])
    }

    fn fault_sums(&mut self, campaign: CampaignId) -> Answer<Vec<FaultSum>> {
        let statement = "SELECT code, given_up, count(*), sum(bytes) FROM fault WHERE campaign = ?
            GROUP BY code, given_up ORDER BY code, given_up";
        self.list(statement, params![number(campaign.0)?], |columns| columns.fault_sum())
    }

    fn put_notice(&mut self, notice: &Notice) -> Answer<()> {
        let Notice { event, delivery, .. } = notice;
        let shard = event.shard;
        self.write(
            "INSERT OR REPLACE INTO notice VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                number(notice.number)?,
                notice.hook.as_str(),
                number(notice.campaign.0)?,
                number_of_notice(event.kind),
                shard.map(|shard| number(shard.id.0)).transpose()?,
                shard.map(|shard| number(shard.link.0)).transpose()?,
                shard.map(|shard| number(shard.fence.0)).transpose()?,
                event.state.as_str(),
                number(event.total.files)?,
                number(event.total.bytes)?,
                number(event.done.files)?,
                number(event.done.bytes)?,
                number(event.failed.files)?,
                number(event.failed.bytes)?,
                event.code_name(),
                number(event.at.0)?,
                delivery.given_up,
                delivery.tries,
                number(delivery.not_before.0)?,
                delivery.taker.0,
                delivery.failure_text(),
            ],
        )
    }

    fn remove_notice(&mut self, at: u64) -> Answer<()> {
        self.write("DELETE FROM notice WHERE number = ?", params![number(at)?])
    }

    fn notice(&mut self, at: u64) -> Answer<Option<Notice>> {
        self.one("SELECT * FROM notice WHERE number = ?", params![number(at)?], |columns| columns.notice())
    }

    fn first_notice(&mut self, hook: &HookKey, due: Due, passed_over: &[CampaignId]) -> Answer<Option<Notice>> {
        let ((now, latest), passed_over) = (bounds(due)?, text_of_campaigns(passed_over));
        let statement = "SELECT * FROM notice WHERE given_up = 0 AND hook = ? AND (not_before <= ? OR not_before > ?)
            AND campaign NOT IN (SELECT value FROM json_each('[' || ? || ']')) ORDER BY number LIMIT 1";
        self.one(statement, params![hook.as_str(), now, latest, passed_over], |columns| columns.notice())
    }

    fn give_up_first_notice(&mut self, hook: &HookKey, due: Due, passed_over: &[CampaignId]) -> Answer<()> {
        let ((now, latest), passed_over) = (bounds(due)?, text_of_campaigns(passed_over));
        let statement = "UPDATE notice SET given_up = 1 WHERE number = (SELECT number FROM notice
            WHERE given_up = 0 AND hook = ? AND (not_before <= ? OR not_before > ?)
            AND campaign NOT IN (SELECT value FROM json_each('[' || ? || ']')) ORDER BY number LIMIT 1)";
        self.write(statement, params![hook.as_str(), now, latest, passed_over])
    }

    fn trim_waiting(&mut self, campaign: CampaignId, hook: &HookKey, kept: u64) -> Answer<()> {
        let statement = "DELETE FROM notice WHERE number IN (SELECT number FROM notice
            WHERE campaign = ? AND hook = ? AND given_up = 0 AND kind <> 1 ORDER BY number LIMIT -1 OFFSET ?)";
        self.write(statement, params![number(campaign.0)?, hook.as_str(), number(kept)?])
    }

    fn trim_given_up(&mut self, campaign: CampaignId, hook: &HookKey, kept: usize) -> Answer<()> {
        let statement = "DELETE FROM notice WHERE number IN (SELECT number FROM notice
            WHERE campaign = ? AND hook = ? AND given_up <> 0 ORDER BY number DESC LIMIT -1 OFFSET ?)";
        self.write(statement, params![number(campaign.0)?, hook.as_str(), number(kept as u64)?])
    }

    fn notices(&mut self, campaign: CampaignId, after: u64, most: usize) -> Answer<Vec<Notice>> {
        let statement = "SELECT * FROM notice WHERE campaign = ? AND number > ? ORDER BY number LIMIT ?";
        let values = params![number(campaign.0)?, number(after)?, number(most as u64)?];
        self.list(statement, values, |columns| columns.notice())
    }

    fn leader(&mut self) -> Answer<Option<Leader>> {
        self.one("SELECT term, holder, until FROM leader", &[], |columns| columns.leader())
    }

    fn put_leader(&mut self, leader: &Leader) -> Answer<()> {
        self.write(
            "INSERT OR REPLACE INTO leader VALUES (1, ?, ?, ?)",
            params![number(leader.term)?, leader.holder.0, number(leader.until.0)?],
        )
    }
}

/// The bounds of times that have not passed. No row has a later time than the last one here.
fn bounds(due: Due) -> Answer<(i64, i64)> {
    Ok((number(due.now.0)?, i64::try_from(due.latest.0).unwrap_or(i64::MAX)))
}
