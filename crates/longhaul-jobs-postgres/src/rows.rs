//! The rows of one transaction, as statements.
//!
//! In: reads and writes of the rules. Out: the server's answers. A failure is kept, so that a rule
//! cannot go on over it. `verification` has those about delivered files. Must not know a rule, nor
//! how a transaction begins and ends.

mod verification;

use longhaul_jobs::columns::{
    Cells, Columns, OTHER_TYPE, columns_of_link_state, columns_of_place, number_of_campaign_state,
    number_of_fault_state, number_of_kind, text_of_campaigns,
};
use longhaul_jobs::{
    Campaign, CampaignId, CampaignSignature, Due, FailedFile, FaultSum, HookKey, JobsError, Leader, Link, LinkId,
    Micros, Notice, OmittedName, Permit, PermitPlace, QueueId, Rows, Segment, Shard, ShardId, ShardKind, ShardSum,
    Site, SiteId,
};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::connection::{Connection, Value};
use crate::error::{Failure, PostgresError};
use crate::statements::Statement;
use crate::values::{maybe, n, small, values_of_notice, values_of_shard, values_of_signature};

/// The rows of a transaction.
pub(crate) struct PostgresRows<'a> {
    connection: &'a Connection,
    now: Option<Micros>,
    /// The first failure of a statement.
    failure: Option<Failure>,
    wrote: bool,
}

/// The end of a rule's work with the rows.
pub(crate) struct RowsEnd {
    /// The first failure of a statement, behind which nothing can be committed.
    pub(crate) failure: Option<Failure>,
    /// Whether anything was written.
    pub(crate) wrote: bool,
}

type Answer<T> = Result<T, JobsError>;

impl<'a> PostgresRows<'a> {
    /// The rows of an open transaction. Its time is that of the server, unless it is given another.
    pub(crate) fn new(connection: &'a Connection, now: Option<Micros>) -> PostgresRows<'a> {
        PostgresRows { connection, now, failure: None, wrote: false }
    }

    /// The end of the work.
    pub(crate) fn end(self) -> RowsEnd {
        RowsEnd { failure: self.failure, wrote: self.wrote }
    }

    fn query(&mut self, statement: Statement, values: Vec<Value>) -> Answer<Vec<Row>> {
        let failed = || {
            let (place, words) = (self.connection.place().to_owned(), "its transaction has failed".to_owned());
            JobsError::store(PostgresError::Failed { place, words })
        };
        if self.failure.is_some() {
            return Err(failed());
        }
        self.connection.query(statement, values).map_err(|failure| {
            // It is taken from here behind the rule, which only has to end.
            let told = failed();
            self.failure = Some(failure);
            told
        })
    }

    fn write(&mut self, statement: Statement, values: Vec<Value>) -> Answer<()> {
        self.wrote = true;
        self.query(statement, values).map(drop)
    }

    fn list<T>(
        &mut self,
        statement: Statement,
        values: Vec<Value>,
        read: impl Fn(&mut Columns) -> Answer<T>,
    ) -> Answer<Vec<T>> {
        let rows = self.query(statement, values)?;
        rows.iter().map(|row| read(&mut Columns::of(&mut RowCells::of(row)))).collect()
    }

    fn one<T>(
        &mut self,
        statement: Statement,
        values: Vec<Value>,
        read: impl Fn(&mut Columns) -> Answer<T>,
    ) -> Answer<Option<T>> {
        Ok(self.list(statement, values, read)?.pop())
    }
}

/// The cells of a row, read from left to right.
pub(crate) struct RowCells<'a> {
    row: &'a Row,
    next: usize,
}

impl<'a> RowCells<'a> {
    /// The cells of a row, from the first one on.
    pub(crate) fn of(row: &'a Row) -> RowCells<'a> {
        RowCells { row, next: 0 }
    }

    fn get<T: FromSql<'a>>(&mut self) -> Answer<Option<T>> {
        self.next += 1;
        self.row.try_get(self.next - 1).map_err(|_| OTHER_TYPE)
    }
}

impl Cells for RowCells<'_> {
    fn number(&mut self) -> Answer<Option<i64>> {
        self.get()
    }

    fn bytes(&mut self) -> Answer<Option<Vec<u8>>> {
        self.get()
    }

    fn text(&mut self) -> Answer<Option<String>> {
        // Names are bytes where an index needs that.
        let column = self.row.columns().get(self.next);
        if column.is_some_and(|column| *column.type_() == tokio_postgres::types::Type::BYTEA) {
            return self.bytes()?.map(String::from_utf8).transpose().map_err(|_| OTHER_TYPE);
        }
        self.get()
    }
}

impl Rows for PostgresRows<'_> {
    fn now(&mut self) -> Answer<Micros> {
        if let Some(now) = self.now {
            return Ok(now);
        }
        let now = self.one(Statement::Now, Vec::new(), |columns| columns.count())?;
        let now = now.map(Micros).ok_or(JobsError::BadRow("the server has no time"))?;
        self.now = Some(now);
        Ok(now)
    }

    fn next_number(&mut self) -> Answer<u64> {
        let next = self.one(Statement::NextNumber, Vec::new(), |columns| columns.count())?;
        next.ok_or(JobsError::BadRow("the server has no next number"))
    }

    fn campaign(&mut self, id: CampaignId) -> Answer<Option<Campaign>> {
        self.one(Statement::Campaign, vec![n(id.0)?], |columns| columns.campaign())
    }

    fn campaigns(&mut self) -> Answer<Vec<Campaign>> {
        self.list(Statement::Campaigns, Vec::new(), |columns| columns.campaign())
    }

    fn campaign_ids(&mut self) -> Answer<Vec<CampaignId>> {
        self.list(Statement::CampaignIds, Vec::new(), |columns| Ok(CampaignId(columns.count()?)))
    }

    fn put_campaign(&mut self, campaign: &Campaign) -> Answer<()> {
        let values = vec![
            n(campaign.id.0)?,
            Value::bytes(&campaign.key.0),
            Value::text(&campaign.name),
            small(number_of_campaign_state(campaign.state)),
            small(campaign.priority.get()),
            small(campaign.weight.get()),
            maybe(campaign.deadline.map(|deadline| deadline.0))?,
            Value::text(campaign.calendar.text()),
            Value::Text(Some(campaign.retry.to_string())),
            Value::bytes(&campaign.spec),
            n(campaign.omitted)?,
            Value::Text(Some(campaign.hooks.to_string())),
        ];
        self.write(Statement::PutCampaign, values)
    }

    fn queue_id(&mut self) -> Answer<Option<QueueId>> {
        self.one(Statement::QueueId, Vec::new(), |columns| columns.queue_id())
    }

    fn put_queue_id(&mut self, id: QueueId) -> Answer<()> {
        self.write(Statement::PutQueueId, vec![Value::bytes(&id.0)])
    }

    fn signature(&mut self, campaign: CampaignId) -> Answer<Option<CampaignSignature>> {
        self.one(Statement::Signature, vec![n(campaign.0)?], |columns| columns.signature())
    }

    fn put_signature(&mut self, signature: &CampaignSignature) -> Answer<()> {
        let values = values_of_signature(signature)?;
        self.write(Statement::PutSignature, values)
    }

    fn put_segment(&mut self, segment: &Segment) -> Answer<()> {
        let Segment { campaign, number, digest, total } = segment;
        let values = vec![n(campaign.0)?, n(*number)?, Value::bytes(digest), n(total.files)?, n(total.bytes)?];
        self.write(Statement::PutSegment, values)
    }

    fn remove_segment(&mut self, campaign: CampaignId, number: u64) -> Answer<()> {
        self.write(Statement::RemoveShards, vec![n(campaign.0)?, n(number)?])?;
        self.write(Statement::RemoveSegment, vec![n(campaign.0)?, n(number)?])
    }

    fn segments(&mut self, campaign: CampaignId) -> Answer<Vec<Segment>> {
        self.list(Statement::Segments, vec![n(campaign.0)?], |columns| columns.segment())
    }

    fn put_omitted(&mut self, name: &OmittedName) -> Answer<()> {
        let values = vec![
            n(name.campaign.0)?,
            n(name.source)?,
            Value::bytes(name.object.as_str().as_bytes()),
            Value::text(name.code.name()),
            Value::text(name.message.as_str()),
        ];
        self.write(Statement::PutOmitted, values)
    }

    fn omitted(&mut self, campaign: CampaignId) -> Answer<Vec<OmittedName>> {
        self.list(Statement::Omitted, vec![n(campaign.0)?], |columns| columns.omitted())
    }

    fn site(&mut self, id: SiteId) -> Answer<Option<Site>> {
        self.one(Statement::Site, vec![n(id.0)?], |columns| columns.site())
    }

    fn sites(&mut self) -> Answer<Vec<Site>> {
        self.list(Statement::Sites, Vec::new(), |columns| columns.site())
    }

    fn put_site(&mut self, site: &Site) -> Answer<()> {
        let values = vec![n(site.id.0)?, Value::text(&site.name), small(site.movers_in), small(site.movers_out)];
        self.write(Statement::PutSite, values)
    }

    fn site_above(&mut self, host: SiteId) -> Answer<Option<SiteId>> {
        self.one(Statement::SiteAbove, vec![n(host.0)?], |columns| columns.count().map(SiteId))
    }

    fn put_site_above(&mut self, host: SiteId, above: Option<SiteId>) -> Answer<()> {
        match above {
            Some(above) => self.write(Statement::PutSiteAbove, vec![n(host.0)?, n(above.0)?]),
            None => self.write(Statement::RemoveSiteAbove, vec![n(host.0)?]),
        }
    }

    fn link(&mut self, id: LinkId) -> Answer<Option<Link>> {
        self.one(Statement::Link, vec![n(id.0)?], |columns| columns.link())
    }

    fn links(&mut self) -> Answer<Vec<Link>> {
        self.list(Statement::Links, Vec::new(), |columns| columns.link())
    }

    fn put_link(&mut self, link: &Link) -> Answer<()> {
        let (state, reason) = columns_of_link_state(link.state);
        let values = vec![
            n(link.id.0)?,
            n(link.from.0)?,
            n(link.to.0)?,
            small(link.movers),
            maybe(link.rate)?,
            Value::text(link.calendar.text()),
            small(state),
            Value::Text(reason.map(str::to_owned)),
            small(link.back_off.failures),
            n(link.back_off.until.0)?,
            small(link.mismatches),
            n(link.meter.since.0)?,
            n(link.meter.bytes)?,
            n(link.meter.rate)?,
        ];
        self.write(Statement::PutLink, values)
    }

    fn share_used(&mut self, campaign: CampaignId, link: LinkId) -> Answer<u64> {
        let used = self.one(Statement::ShareUsed, vec![n(campaign.0)?, n(link.0)?], |columns| columns.count())?;
        Ok(used.unwrap_or(0))
    }

    fn put_share_used(&mut self, campaign: CampaignId, link: LinkId, used: u64) -> Answer<()> {
        self.write(Statement::PutShareUsed, vec![n(campaign.0)?, n(link.0)?, n(used)?])
    }

    fn shard(&mut self, id: ShardId) -> Answer<Option<Shard>> {
        self.one(Statement::Shard, vec![n(id.0)?], |columns| columns.shard())
    }

    fn put_shard(&mut self, shard: &Shard) -> Answer<()> {
        let values = values_of_shard(shard)?;
        self.write(Statement::PutShard, values)
    }

    fn first_ready(&mut self, link: LinkId, passed_over: &[CampaignId]) -> Answer<Option<Shard>> {
        let values = vec![n(link.0)?, Value::Text(Some(text_of_campaigns(passed_over)))];
        self.one(Statement::FirstReady, values, |columns| columns.shard())
    }

    fn first_planned(&mut self, campaign: CampaignId, link: LinkId, due: Due) -> Answer<Option<Shard>> {
        let (now, latest) = bounds(due)?;
        let values = vec![n(campaign.0)?, n(link.0)?, now, latest];
        self.one(Statement::FirstPlanned, values, |columns| columns.shard())
    }

    fn count_ready(&mut self, link: LinkId) -> Answer<u64> {
        let count = self.one(Statement::CountReady, vec![n(link.0)?], |columns| columns.count())?;
        Ok(count.unwrap_or(0))
    }

    fn lapsed(&mut self, due: Due, most: usize) -> Answer<Vec<Shard>> {
        let (now, latest) = bounds(due)?;
        self.list(Statement::Lapsed, vec![now, latest, n(most as u64)?], |columns| columns.shard())
    }

    fn shards(&mut self, campaign: CampaignId, kind: ShardKind, after: ShardId, most: usize) -> Answer<Vec<Shard>> {
        let values = vec![n(campaign.0)?, small(number_of_kind(kind)), n(after.0)?, n(most as u64)?];
        self.list(Statement::Shards, values, |columns| columns.shard())
    }

    fn commit_of(&mut self, campaign: CampaignId) -> Answer<Option<Shard>> {
        self.one(Statement::CommitOf, vec![n(campaign.0)?], |columns| columns.shard())
    }

    fn shard_sums(&mut self, campaign: CampaignId) -> Answer<Vec<ShardSum>> {
        self.list(Statement::ShardSums, vec![n(campaign.0)?], |columns| columns.shard_sum())
    }

    fn permits(&mut self, place: PermitPlace) -> Answer<Vec<Permit>> {
        let (kind, id) = columns_of_place(place);
        self.list(Statement::Permits, vec![small(kind), n(id)?], |columns| columns.permit())
    }

    fn permits_of(&mut self, shard: ShardId) -> Answer<Vec<Permit>> {
        self.list(Statement::PermitsOf, vec![n(shard.0)?], |columns| columns.permit())
    }

    fn put_permit(&mut self, permit: &Permit) -> Answer<()> {
        let (kind, id) = columns_of_place(permit.place);
        let Permit { slot, shard, claim, until, .. } = permit;
        let values = vec![
            small(kind),
            n(id)?,
            small(*slot),
            n(shard.0)?,
            n(claim.fence.0)?,
            Value::bytes(&claim.id.0),
            n(until.0)?,
        ];
        self.write(Statement::PutPermit, values)
    }

    fn remove_permit(&mut self, permit: &Permit) -> Answer<()> {
        let (kind, id) = columns_of_place(permit.place);
        self.write(Statement::RemovePermit, vec![small(kind), n(id)?, small(permit.slot)])
    }

    fn faults_of(&mut self, shard: ShardId) -> Answer<Vec<FailedFile>> {
        self.list(Statement::FaultsOf, vec![n(shard.0)?], |columns| columns.fault())
    }

    fn put_fault(&mut self, fault: &FailedFile) -> Answer<()> {
        let values = vec![
            n(fault.shard.0)?,
            Value::bytes(&fault.path),
            n(fault.campaign.0)?,
            n(fault.bytes)?,
            Value::text(fault.code.name()),
            Value::text(fault.blame.name()),
            Value::text(fault.message.as_str()),
            small(number_of_fault_state(fault.state)),
            small(fault.tries),
            n(fault.first.0)?,
            n(fault.last.0)?,
        ];
        self.write(Statement::PutFault, values)
    }

    fn remove_fault(&mut self, fault: &FailedFile) -> Answer<()> {
        self.write(Statement::RemoveFault, vec![n(fault.shard.0)?, Value::bytes(&fault.path)])
    }

    fn fault_sums(&mut self, campaign: CampaignId) -> Answer<Vec<FaultSum>> {
        self.list(Statement::FaultSums, vec![n(campaign.0)?], |columns| columns.fault_sum())
    }

    fn put_notice(&mut self, notice: &Notice) -> Answer<()> {
        let values = values_of_notice(notice)?;
        self.write(Statement::PutNotice, values)
    }

    fn remove_notice(&mut self, number: u64) -> Answer<()> {
        self.write(Statement::RemoveNotice, vec![n(number)?])
    }

    fn notice(&mut self, number: u64) -> Answer<Option<Notice>> {
        self.one(Statement::Notice, vec![n(number)?], |columns| columns.notice())
    }

    fn first_notice(&mut self, hook: &HookKey, due: Due, passed_over: &[CampaignId]) -> Answer<Option<Notice>> {
        let ((now, latest), passed_over) = (bounds(due)?, Value::Text(Some(text_of_campaigns(passed_over))));
        let values = vec![Value::text(hook.as_str()), now, latest, passed_over];
        self.one(Statement::FirstNotice, values, |columns| columns.notice())
    }

    fn give_up_first_notice(&mut self, hook: &HookKey, due: Due, passed_over: &[CampaignId]) -> Answer<()> {
        let ((now, latest), passed_over) = (bounds(due)?, Value::Text(Some(text_of_campaigns(passed_over))));
        self.write(Statement::GiveUpFirstNotice, vec![Value::text(hook.as_str()), now, latest, passed_over])
    }

    fn trim_waiting(&mut self, campaign: CampaignId, hook: &HookKey, kept: u64) -> Answer<()> {
        self.write(Statement::TrimWaiting, vec![n(campaign.0)?, Value::text(hook.as_str()), n(kept)?])
    }

    fn trim_given_up(&mut self, campaign: CampaignId, hook: &HookKey, kept: usize) -> Answer<()> {
        let values = vec![n(campaign.0)?, Value::text(hook.as_str()), n(kept as u64)?];
        self.write(Statement::TrimGivenUp, values)
    }

    fn notices(&mut self, campaign: CampaignId, after: u64, most: usize) -> Answer<Vec<Notice>> {
        self.list(Statement::Notices, vec![n(campaign.0)?, n(after)?, n(most as u64)?], |columns| columns.notice())
    }

    fn leader(&mut self) -> Answer<Option<Leader>> {
        self.one(Statement::Leader, Vec::new(), |columns| columns.leader())
    }

    fn put_leader(&mut self, leader: &Leader) -> Answer<()> {
        let values = vec![n(leader.term)?, Value::bytes(&leader.holder.0), n(leader.until.0)?];
        self.write(Statement::PutLeader, values)
    }
}

/// The bounds of times that have not passed. No row has a later time than the last one here.
fn bounds(due: Due) -> Answer<(Value, Value)> {
    Ok((n(due.now.0)?, small(i64::try_from(due.latest.0).unwrap_or(i64::MAX))))
}
