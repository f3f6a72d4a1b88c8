//! The store that lies in memory: for tests, simulators and trials. Nothing of it outlives it.
//!
//! `verification` has the rows about delivered files.
//! In: transactions, and the time that whoever owns it sets. Out: rows. Must not know a rule; other
//! backends are held against it.

mod verification;

use std::collections::BTreeMap;

use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, Due, LinkId, Micros, QueueId, ROW_NUMBER_MAX, ShardId, SiteId};
use crate::rows::{
    BadFile, Campaign, CampaignSignature, FailedFile, FaultState, HookKey, Leader, Link, Notice, NoticeKind,
    OmittedName, Permit, PermitPlace, Segment, Shard, ShardKind, ShardState, Site, Verification,
};
use crate::store::{FaultSum, Rows, ShardSum, Store};

/// A store in memory. A clone is a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The time by its clock.
    pub now: Micros,
    last_number: u64,
    campaigns: CampaignRows,
    listed: ListedRows,
    sites: SiteRows,
    links: BTreeMap<LinkId, Link>,
    shares: BTreeMap<(CampaignId, LinkId), u64>,
    shards: BTreeMap<ShardId, Shard>,
    permits: BTreeMap<(PermitPlace, u32), Permit>,
    files: FileRows,
    notices: BTreeMap<u64, Notice>,
    leader: Option<Leader>,
}

/// The rows of single files, and of the readings that find them bad.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileRows {
    faults: BTreeMap<(ShardId, Vec<u8>), FailedFile>,
    verifications: BTreeMap<ShardId, Verification>,
    bad: BTreeMap<(ShardId, Vec<u8>), BadFile>,
}

/// The rows of what planners listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ListedRows {
    segments: BTreeMap<(CampaignId, u64), Segment>,
    omitted: BTreeMap<(CampaignId, u64, String), OmittedName>,
}

/// The rows of sites, and the sites of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SiteRows {
    rows: BTreeMap<SiteId, Site>,
    above: BTreeMap<SiteId, SiteId>,
}

/// The rows of campaigns, and of what their owners signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CampaignRows {
    queue: Option<QueueId>,
    rows: BTreeMap<CampaignId, Campaign>,
    signatures: BTreeMap<CampaignId, CampaignSignature>,
}

impl Memory {
    /// An empty store whose clock shows a time.
    pub fn at(now: Micros) -> Memory {
        Memory { now, ..Memory::default() }
    }

    /// All shards.
    pub fn all_shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.values()
    }

    /// All permits.
    pub fn all_permits(&self) -> impl Iterator<Item = &Permit> {
        self.permits.values()
    }

    /// All notices.
    pub fn all_notices(&self) -> impl Iterator<Item = &Notice> {
        self.notices.values()
    }

    /// All failed files.
    pub fn all_faults(&self) -> impl Iterator<Item = &FailedFile> {
        self.files.faults.values()
    }
}

/// Numbers as every backend keeps them: a larger one is refused here as it is there.
fn bounded(numbers: &[u64]) -> Result<(), JobsError> {
    if numbers.iter().all(|number| *number <= ROW_NUMBER_MAX) {
        Ok(())
    } else {
        Err(JobsError::TooMuch("numbers of a row"))
    }
}

/// A sum as every backend can make it.
fn sum(one: Amount, other: Amount) -> Result<Amount, JobsError> {
    let sum = one.plus(other).filter(|sum| sum.files <= ROW_NUMBER_MAX && sum.bytes <= ROW_NUMBER_MAX);
    sum.ok_or(JobsError::TooMuch("files of a campaign"))
}

impl Store for Memory {
    fn transact<T>(&mut self, mut work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError>) -> Result<T, JobsError> {
        let before = self.clone();
        let result = work(self);
        if result.is_err() {
            *self = before;
        }
        result
    }
}

impl Rows for Memory {
    fn now(&mut self) -> Result<Micros, JobsError> {
        Ok(self.now)
    }

    fn next_number(&mut self) -> Result<u64, JobsError> {
        self.last_number += 1;
        Ok(self.last_number)
    }

    fn campaign(&mut self, id: CampaignId) -> Result<Option<Campaign>, JobsError> {
        Ok(self.campaigns.rows.get(&id).cloned())
    }

    fn campaigns(&mut self) -> Result<Vec<Campaign>, JobsError> {
        Ok(self.campaigns.rows.values().cloned().collect())
    }

    fn campaign_ids(&mut self) -> Result<Vec<CampaignId>, JobsError> {
        Ok(self.campaigns.rows.keys().copied().collect())
    }

    fn put_campaign(&mut self, campaign: &Campaign) -> Result<(), JobsError> {
        bounded(&[campaign.id.0, campaign.deadline.map_or(0, |deadline| deadline.0), campaign.omitted])?;
        self.campaigns.rows.insert(campaign.id, campaign.clone());
        Ok(())
    }

    fn queue_id(&mut self) -> Result<Option<QueueId>, JobsError> {
        Ok(self.campaigns.queue)
    }

    fn put_queue_id(&mut self, id: QueueId) -> Result<(), JobsError> {
        self.campaigns.queue = Some(id);
        Ok(())
    }

    fn signature(&mut self, campaign: CampaignId) -> Result<Option<CampaignSignature>, JobsError> {
        Ok(self.campaigns.signatures.get(&campaign).cloned())
    }

    fn put_signature(&mut self, signature: &CampaignSignature) -> Result<(), JobsError> {
        bounded(&[signature.at.0])?;
        self.campaigns.signatures.insert(signature.campaign, signature.clone());
        Ok(())
    }

    fn put_segment(&mut self, segment: &Segment) -> Result<(), JobsError> {
        bounded(&[segment.number, segment.total.files, segment.total.bytes])?;
        self.listed.segments.insert((segment.campaign, segment.number), segment.clone());
        Ok(())
    }

    fn remove_segment(&mut self, campaign: CampaignId, number: u64) -> Result<(), JobsError> {
        self.listed.segments.remove(&(campaign, number));
        self.shards.retain(|_, shard| (shard.campaign, shard.part.segment) != (campaign, number));
        Ok(())
    }

    fn segments(&mut self, campaign: CampaignId) -> Result<Vec<Segment>, JobsError> {
        Ok(self.listed.segments.values().filter(|segment| segment.campaign == campaign).cloned().collect())
    }

    fn put_omitted(&mut self, name: &OmittedName) -> Result<(), JobsError> {
        bounded(&[name.source])?;
        self.listed.omitted.insert((name.campaign, name.source, name.object.to_string()), name.clone());
        Ok(())
    }

    fn omitted(&mut self, campaign: CampaignId) -> Result<Vec<OmittedName>, JobsError> {
        Ok(self.listed.omitted.values().filter(|name| name.campaign == campaign).cloned().collect())
    }

    fn site(&mut self, id: SiteId) -> Result<Option<Site>, JobsError> {
        Ok(self.sites.rows.get(&id).cloned())
    }

    fn sites(&mut self) -> Result<Vec<Site>, JobsError> {
        Ok(self.sites.rows.values().cloned().collect())
    }

    fn put_site(&mut self, site: &Site) -> Result<(), JobsError> {
        self.sites.rows.insert(site.id, site.clone());
        Ok(())
    }

    fn site_above(&mut self, host: SiteId) -> Result<Option<SiteId>, JobsError> {
        Ok(self.sites.above.get(&host).copied())
    }

    fn put_site_above(&mut self, host: SiteId, above: Option<SiteId>) -> Result<(), JobsError> {
        match above {
            Some(above) => self.sites.above.insert(host, above),
            None => self.sites.above.remove(&host),
        };
        Ok(())
    }

    fn link(&mut self, id: LinkId) -> Result<Option<Link>, JobsError> {
        Ok(self.links.get(&id).cloned())
    }

    fn links(&mut self) -> Result<Vec<Link>, JobsError> {
        Ok(self.links.values().cloned().collect())
    }

    fn put_link(&mut self, link: &Link) -> Result<(), JobsError> {
        let meter = link.meter;
        bounded(&[link.rate.unwrap_or(0), link.back_off.until.0, meter.since.0, meter.bytes, meter.rate])?;
        self.links.insert(link.id, link.clone());
        Ok(())
    }

    fn share_used(&mut self, campaign: CampaignId, link: LinkId) -> Result<u64, JobsError> {
        Ok(self.shares.get(&(campaign, link)).copied().unwrap_or(0))
    }

    fn put_share_used(&mut self, campaign: CampaignId, link: LinkId, used: u64) -> Result<(), JobsError> {
        bounded(&[used])?;
        self.shares.insert((campaign, link), used);
        Ok(())
    }

    fn shard(&mut self, id: ShardId) -> Result<Option<Shard>, JobsError> {
        Ok(self.shards.get(&id).cloned())
    }

    fn put_shard(&mut self, shard: &Shard) -> Result<(), JobsError> {
        let Shard { part, total, done, failed, .. } = shard;
        bounded(&[part.segment, part.first, part.end, total.files, total.bytes, done.files, done.bytes])?;
        bounded(&[
            failed.files,
            failed.bytes,
            shard.turn.rank,
            shard.turn.not_before.0,
            shard.claim.fence.0,
            shard.news.moved,
        ])?;
        self.shards.insert(shard.id, shard.clone());
        Ok(())
    }

    fn first_ready(&mut self, link: LinkId, passed_over: &[CampaignId]) -> Result<Option<Shard>, JobsError> {
        let ready = self.shards.values().filter(|shard| shard.link == link && shard.state == ShardState::Ready);
        let ready = ready.filter(|shard| !passed_over.contains(&shard.campaign));
        Ok(ready.min_by_key(|shard| (shard.turn.rank, shard.id)).cloned())
    }

    fn first_planned(&mut self, campaign: CampaignId, link: LinkId, due: Due) -> Result<Option<Shard>, JobsError> {
        let mut planned = self.shards.values().filter(|shard| shard.link == link && shard.state == ShardState::Planned);
        Ok(planned.find(|shard| shard.campaign == campaign && due.has_passed(shard.turn.not_before)).cloned())
    }

    fn count_ready(&mut self, link: LinkId) -> Result<u64, JobsError> {
        let ready = self.shards.values().filter(|shard| shard.link == link && shard.state == ShardState::Ready);
        Ok(ready.count() as u64)
    }

    fn lapsed(&mut self, due: Due, most: usize) -> Result<Vec<Shard>, JobsError> {
        let lapsed = |shard: &&Shard| match shard.state {
            ShardState::Leased(lease) => due.has_passed(lease.until),
            _ => false,
        };
        Ok(self.shards.values().filter(lapsed).take(most).cloned().collect())
    }

    fn shards(
        &mut self,
        campaign: CampaignId,
        kind: ShardKind,
        after: ShardId,
        most: usize,
    ) -> Result<Vec<Shard>, JobsError> {
        let of_kind = |shard: &&Shard| shard.campaign == campaign && shard.state.kind() == kind && shard.id > after;
        Ok(self.shards.values().filter(of_kind).take(most).cloned().collect())
    }

    fn commit_of(&mut self, campaign: CampaignId) -> Result<Option<Shard>, JobsError> {
        let mut commits = self.shards.values().filter(|shard| shard.campaign == campaign && shard.part.is_commit());
        Ok(commits.next().cloned())
    }

    fn shard_sums(&mut self, campaign: CampaignId) -> Result<Vec<ShardSum>, JobsError> {
        let mut sums: BTreeMap<(LinkId, ShardKind), ShardSum> = BTreeMap::new();
        for shard in self.shards.values().filter(|shard| shard.campaign == campaign) {
            let (link, kind, zero) = (shard.link, shard.state.kind(), Amount::default());
            let fresh = ShardSum { link, kind, shards: 0, total: zero, done: zero, failed: zero, unclaimed: 0 };
            let row = sums.entry((link, kind)).or_insert(fresh);
            row.shards += 1;
            row.unclaimed += u64::from(shard.news.unclaimed);
            row.total = sum(row.total, shard.total)?;
            row.done = sum(row.done, shard.done)?;
            row.failed = sum(row.failed, shard.failed)?;
        }
        Ok(sums.into_values().collect())
    }

    fn permits(&mut self, place: PermitPlace) -> Result<Vec<Permit>, JobsError> {
        Ok(self.permits.values().filter(|permit| permit.place == place).copied().collect())
    }

    fn permits_of(&mut self, shard: ShardId) -> Result<Vec<Permit>, JobsError> {
        Ok(self.permits.values().filter(|permit| permit.shard == shard).copied().collect())
    }

    fn put_permit(&mut self, permit: &Permit) -> Result<(), JobsError> {
        self.permits.insert((permit.place, permit.slot), *permit);
        Ok(())
    }

    fn remove_permit(&mut self, permit: &Permit) -> Result<(), JobsError> {
        self.permits.remove(&(permit.place, permit.slot));
        Ok(())
    }

    fn faults_of(&mut self, shard: ShardId) -> Result<Vec<FailedFile>, JobsError> {
        Ok(self.files.faults.values().filter(|fault| fault.shard == shard).cloned().collect())
    }

    fn put_fault(&mut self, fault: &FailedFile) -> Result<(), JobsError> {
        bounded(&[fault.bytes, fault.first.0, fault.last.0])?;
        self.files.faults.insert((fault.shard, fault.path.clone()), fault.clone());
        Ok(())
    }

    fn remove_fault(&mut self, fault: &FailedFile) -> Result<(), JobsError> {
        self.files.faults.remove(&(fault.shard, fault.path.clone()));
        Ok(())
    }

    fn fault_sums(&mut self, campaign: CampaignId) -> Result<Vec<FaultSum>, JobsError> {
        let mut sums: BTreeMap<(&str, FaultState), FaultSum> = BTreeMap::new();
        for fault in self.files.faults.values().filter(|fault| fault.campaign == campaign) {
            let fresh = FaultSum { code: fault.code, state: fault.state, amount: Amount::default() };
            let row = sums.entry((fault.code.name(), fault.state)).or_insert(fresh);
            row.amount = sum(row.amount, Amount { files: 1, bytes: fault.bytes })?;
        }
        Ok(sums.into_values().collect())
    }

    fn put_notice(&mut self, notice: &Notice) -> Result<(), JobsError> {
        let Notice { event, delivery, .. } = notice;
        bounded(&[notice.number, event.at.0, delivery.not_before.0])?;
        bounded(&[event.total.files, event.total.bytes, event.done.files, event.done.bytes])?;
        bounded(&[event.failed.files, event.failed.bytes])?;
        self.notices.insert(notice.number, notice.clone());
        Ok(())
    }

    fn remove_notice(&mut self, number: u64) -> Result<(), JobsError> {
        self.notices.remove(&number);
        Ok(())
    }

    fn notice(&mut self, number: u64) -> Result<Option<Notice>, JobsError> {
        Ok(self.notices.get(&number).cloned())
    }

    fn first_notice(
        &mut self,
        hook: &HookKey,
        due: Due,
        passed_over: &[CampaignId],
    ) -> Result<Option<Notice>, JobsError> {
        let is_due = |notice: &&Notice| !notice.delivery.given_up && due.has_passed(notice.delivery.not_before);
        let mut of_hook = self.notices.values().filter(|notice| notice.hook == *hook).filter(is_due);
        Ok(of_hook.find(|notice| !passed_over.contains(&notice.campaign)).cloned())
    }

    fn give_up_first_notice(&mut self, hook: &HookKey, due: Due, passed_over: &[CampaignId]) -> Result<(), JobsError> {
        let Some(mut notice) = self.first_notice(hook, due, passed_over)? else { return Ok(()) };
        notice.delivery.given_up = true;
        self.put_notice(&notice)
    }

    fn trim_waiting(&mut self, campaign: CampaignId, hook: &HookKey, kept: u64) -> Result<(), JobsError> {
        let is_meant = |notice: &&Notice| {
            let waits = !notice.delivery.given_up && notice.event.kind != NoticeKind::Campaign;
            (notice.campaign, &notice.hook) == (campaign, hook) && waits
        };
        let waiting = self.notices.values().filter(is_meant).map(|notice| notice.number);
        for number in waiting.skip(kept as usize).collect::<Vec<_>>() {
            self.notices.remove(&number);
        }
        Ok(())
    }

    fn trim_given_up(&mut self, campaign: CampaignId, hook: &HookKey, kept: usize) -> Result<(), JobsError> {
        let is_meant =
            |notice: &&Notice| (notice.campaign, &notice.hook) == (campaign, hook) && notice.delivery.given_up;
        let beyond = self.notices.values().rev().filter(is_meant).skip(kept).map(|notice| notice.number);
        for number in beyond.collect::<Vec<_>>() {
            self.notices.remove(&number);
        }
        Ok(())
    }

    fn notices(&mut self, campaign: CampaignId, after: u64, most: usize) -> Result<Vec<Notice>, JobsError> {
        let of = |notice: &&Notice| notice.campaign == campaign && notice.number > after;
        Ok(self.notices.values().filter(of).take(most).cloned().collect())
    }

    fn leader(&mut self) -> Result<Option<Leader>, JobsError> {
        Ok(self.leader)
    }

    fn put_leader(&mut self, leader: &Leader) -> Result<(), JobsError> {
        self.leader = Some(*leader);
        Ok(())
    }
}
