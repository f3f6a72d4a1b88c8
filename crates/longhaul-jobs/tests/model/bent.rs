//! Rows between the rules and the store: they pass everything on, but for what a planted bug
//! changes.
//!
//! In: the rules' reads and writes. Out: the store's. Must not know the world.

use longhaul_jobs::{
    BadFile, BadSum, Calendar, Campaign, CampaignId, CampaignSignature, Claim, Due, FailedFile, FaultSum, Fence,
    HookKey, JobsError, Leader, Link, LinkId, Micros, Notice, OmittedName, Permit, PermitPlace, Priority, QueueId,
    Rows, Segment, Shard, ShardId, ShardKind, ShardState, ShardSum, Site, SiteId, Verification, VerificationRows,
    VerificationSums, Weight,
};

use crate::mutants::Mutant;

/// The rows of a transaction, with a bug.
pub(crate) struct Bent<'a> {
    pub(crate) rows: &'a mut dyn Rows,
    pub(crate) mutant: Option<Mutant>,
    /// The claim of whoever asks, if the bug is that everybody is believed.
    pub(crate) believed: Option<Claim>,
    /// The term of the leader who asks, likewise.
    pub(crate) term: Option<u64>,
    permits_written: bool,
    /// The steps of shards from state to state.
    pub(crate) steps: Vec<(ShardKind, ShardKind)>,
}

type Answer<T> = Result<T, JobsError>;

impl<'a> Bent<'a> {
    pub(crate) fn new(rows: &'a mut dyn Rows, mutant: Option<Mutant>) -> Bent<'a> {
        Bent { rows, mutant, believed: None, term: None, permits_written: false, steps: Vec::new() }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn bent(&self, link: Link) -> Link {
        if self.has(Mutant::LinkHoursForgotten) { Link { calendar: Calendar::default(), ..link } } else { link }
    }
}

impl VerificationRows for Bent<'_> {
    fn verification(&mut self, shard: ShardId) -> Answer<Option<Verification>> {
        self.rows.verification(shard)
    }

    fn put_verification(&mut self, row: &Verification) -> Answer<()> {
        self.rows.put_verification(row)
    }

    fn first_to_verify(
        &mut self,
        campaign: CampaignId,
        leases: Due,
        times: (Micros, Micros),
    ) -> Answer<Option<(ShardId, Micros)>> {
        self.rows.first_to_verify(campaign, leases, times)
    }

    fn verification_sums(
        &mut self,
        campaign: CampaignId,
        stale_before: Micros,
        believed: Micros,
    ) -> Answer<VerificationSums> {
        self.rows.verification_sums(campaign, stale_before, believed)
    }

    fn bad_files_of(&mut self, shard: ShardId) -> Answer<Vec<BadFile>> {
        self.rows.bad_files_of(shard)
    }

    fn put_bad_file(&mut self, file: &BadFile) -> Answer<()> {
        self.rows.put_bad_file(file)
    }

    fn remove_bad_file(&mut self, shard: ShardId, path: &[u8]) -> Answer<()> {
        self.rows.remove_bad_file(shard, path)
    }

    fn bad_shard(&mut self, campaign: CampaignId, after: ShardId) -> Answer<Option<ShardId>> {
        self.rows.bad_shard(campaign, after)
    }

    fn bad_sums(&mut self, campaign: CampaignId) -> Answer<Vec<BadSum>> {
        self.rows.bad_sums(campaign)
    }
}

impl Rows for Bent<'_> {
    fn now(&mut self) -> Answer<Micros> {
        self.rows.now()
    }

    fn next_number(&mut self) -> Answer<u64> {
        self.rows.next_number()
    }

    fn campaign(&mut self, id: CampaignId) -> Answer<Option<Campaign>> {
        let mut found = self.rows.campaign(id)?;
        if let Some(campaign) = &mut found {
            match self.mutant {
                Some(Mutant::CampaignHoursForgotten) => campaign.calendar = Calendar::default(),
                Some(Mutant::PriorityForgotten) => campaign.priority = Priority::default(),
                Some(Mutant::WeightForgotten) => campaign.weight = Weight::default(),
                Some(Mutant::DeadlineForgotten) => campaign.deadline = None,
                _ => {}
            }
        }
        Ok(found)
    }

    fn campaigns(&mut self) -> Answer<Vec<Campaign>> {
        self.rows.campaigns()
    }

    fn campaign_ids(&mut self) -> Answer<Vec<CampaignId>> {
        self.rows.campaign_ids()
    }

    fn share_used(&mut self, campaign: CampaignId, link: LinkId) -> Answer<u64> {
        self.rows.share_used(campaign, link)
    }

    fn put_share_used(&mut self, campaign: CampaignId, link: LinkId, used: u64) -> Answer<()> {
        if self.has(Mutant::ShareForgotten) {
            return Ok(());
        }
        self.rows.put_share_used(campaign, link, used)
    }

    fn put_campaign(&mut self, campaign: &Campaign) -> Answer<()> {
        self.rows.put_campaign(campaign)
    }

    fn site_above(&mut self, host: SiteId) -> Answer<Option<SiteId>> {
        self.rows.site_above(host)
    }

    fn put_site_above(&mut self, host: SiteId, above: Option<SiteId>) -> Answer<()> {
        self.rows.put_site_above(host, above)
    }

    fn queue_id(&mut self) -> Answer<Option<QueueId>> {
        self.rows.queue_id()
    }

    fn put_queue_id(&mut self, id: QueueId) -> Answer<()> {
        self.rows.put_queue_id(id)
    }

    fn signature(&mut self, campaign: CampaignId) -> Answer<Option<CampaignSignature>> {
        self.rows.signature(campaign)
    }

    fn put_signature(&mut self, signature: &CampaignSignature) -> Answer<()> {
        self.rows.put_signature(signature)
    }

    fn put_segment(&mut self, segment: &Segment) -> Answer<()> {
        self.rows.put_segment(segment)
    }

    fn remove_segment(&mut self, campaign: CampaignId, number: u64) -> Answer<()> {
        self.rows.remove_segment(campaign, number)
    }

    fn segments(&mut self, campaign: CampaignId) -> Answer<Vec<Segment>> {
        self.rows.segments(campaign)
    }

    fn put_omitted(&mut self, name: &OmittedName) -> Answer<()> {
        self.rows.put_omitted(name)
    }

    fn omitted(&mut self, campaign: CampaignId) -> Answer<Vec<OmittedName>> {
        self.rows.omitted(campaign)
    }

    fn site(&mut self, id: SiteId) -> Answer<Option<Site>> {
        self.rows.site(id)
    }

    fn sites(&mut self) -> Answer<Vec<Site>> {
        self.rows.sites()
    }

    fn put_site(&mut self, site: &Site) -> Answer<()> {
        self.rows.put_site(site)
    }

    fn link(&mut self, id: LinkId) -> Answer<Option<Link>> {
        Ok(self.rows.link(id)?.map(|link| self.bent(link)))
    }

    fn links(&mut self) -> Answer<Vec<Link>> {
        Ok(self.rows.links()?.into_iter().map(|link| self.bent(link)).collect())
    }

    fn put_link(&mut self, link: &Link) -> Answer<()> {
        self.rows.put_link(link)
    }

    fn shard(&mut self, id: ShardId) -> Answer<Option<Shard>> {
        let mut shard = self.rows.shard(id)?;
        if let (Some(shard), Some(claim)) = (&mut shard, self.believed) {
            shard.claim = claim;
        }
        Ok(shard)
    }

    fn put_shard(&mut self, shard: &Shard) -> Answer<()> {
        let mut shard = shard.clone();
        let before = self.rows.shard(shard.id)?;
        self.steps.extend(before.as_ref().map(|before| (before.state.kind(), shard.state.kind())));
        let newly = matches!(shard.state, ShardState::Leased(_))
            && before.is_some_and(|before| before.state == ShardState::Ready);
        if newly && self.has(Mutant::FenceNotRaised) {
            shard.claim.fence = Fence(shard.claim.fence.0 - 1);
        }
        if newly && self.has(Mutant::FenceFalls) && shard.claim.fence.0 > 2 {
            shard.claim.fence = Fence(1);
        }
        if self.has(Mutant::TornCommit) && self.permits_written && newly {
            return Ok(());
        }
        self.rows.put_shard(&shard)
    }

    fn first_ready(&mut self, link: LinkId, passed_over: &[CampaignId]) -> Answer<Option<Shard>> {
        let first = self.rows.first_ready(link, passed_over)?;
        let Some(first) = first.filter(|_| self.has(Mutant::LaterReadyFirst)) else {
            return self.rows.first_ready(link, passed_over);
        };
        let passed_over: Vec<_> = passed_over.iter().copied().chain([first.campaign]).collect();
        Ok(self.rows.first_ready(link, &passed_over)?.or(Some(first)))
    }

    fn first_planned(&mut self, campaign: CampaignId, link: LinkId, due: Due) -> Answer<Option<Shard>> {
        self.rows.first_planned(campaign, link, due)
    }

    fn count_ready(&mut self, link: LinkId) -> Answer<u64> {
        self.rows.count_ready(link)
    }

    fn lapsed(&mut self, due: Due, most: usize) -> Answer<Vec<Shard>> {
        match self.mutant {
            Some(Mutant::LapsedForgotten) => Ok(Vec::new()),
            Some(Mutant::ClockBackForgotten) => self.rows.lapsed(Due { latest: Micros(u64::MAX), ..due }, most),
            _ => self.rows.lapsed(due, most),
        }
    }

    fn shards(&mut self, campaign: CampaignId, kind: ShardKind, after: ShardId, most: usize) -> Answer<Vec<Shard>> {
        // Only whoever looks for what a commit waits for asks for two.
        if self.has(Mutant::CommitEarly) && most == 2 {
            return Ok(Vec::new());
        }
        self.rows.shards(campaign, kind, after, most)
    }

    fn commit_of(&mut self, campaign: CampaignId) -> Answer<Option<Shard>> {
        self.rows.commit_of(campaign)
    }

    fn shard_sums(&mut self, campaign: CampaignId) -> Answer<Vec<ShardSum>> {
        self.rows.shard_sums(campaign)
    }

    fn permits(&mut self, place: PermitPlace) -> Answer<Vec<Permit>> {
        let mut permits = self.rows.permits(place)?;
        if self.has(Mutant::PermitsUncounted) {
            permits.clear();
        }
        Ok(permits)
    }

    fn permits_of(&mut self, shard: ShardId) -> Answer<Vec<Permit>> {
        self.rows.permits_of(shard)
    }

    fn put_permit(&mut self, permit: &Permit) -> Answer<()> {
        self.permits_written = true;
        self.rows.put_permit(permit)
    }

    fn remove_permit(&mut self, permit: &Permit) -> Answer<()> {
        if self.has(Mutant::PermitKept) {
            return Ok(());
        }
        self.rows.remove_permit(permit)
    }

    fn faults_of(&mut self, shard: ShardId) -> Answer<Vec<FailedFile>> {
        self.rows.faults_of(shard)
    }

    fn put_fault(&mut self, fault: &FailedFile) -> Answer<()> {
        if self.has(Mutant::FaultRowsLost) {
            return Ok(());
        }
        self.rows.put_fault(fault)
    }

    fn remove_fault(&mut self, fault: &FailedFile) -> Answer<()> {
        self.rows.remove_fault(fault)
    }

    fn fault_sums(&mut self, campaign: CampaignId) -> Answer<Vec<FaultSum>> {
        self.rows.fault_sums(campaign)
    }

    fn put_notice(&mut self, notice: &Notice) -> Answer<()> {
        self.rows.put_notice(notice)
    }

    fn remove_notice(&mut self, number: u64) -> Answer<()> {
        self.rows.remove_notice(number)
    }

    fn notice(&mut self, number: u64) -> Answer<Option<Notice>> {
        self.rows.notice(number)
    }

    fn first_notice(&mut self, hook: &HookKey, due: Due, passed_over: &[CampaignId]) -> Answer<Option<Notice>> {
        self.rows.first_notice(hook, due, passed_over)
    }

    fn give_up_first_notice(&mut self, hook: &HookKey, due: Due, passed_over: &[CampaignId]) -> Answer<()> {
        self.rows.give_up_first_notice(hook, due, passed_over)
    }

    fn trim_waiting(&mut self, campaign: CampaignId, hook: &HookKey, kept: u64) -> Answer<()> {
        self.rows.trim_waiting(campaign, hook, kept)
    }

    fn trim_given_up(&mut self, campaign: CampaignId, hook: &HookKey, kept: usize) -> Answer<()> {
        self.rows.trim_given_up(campaign, hook, kept)
    }

    fn notices(&mut self, campaign: CampaignId, after: u64, most: usize) -> Answer<Vec<Notice>> {
        self.rows.notices(campaign, after, most)
    }

    fn leader(&mut self) -> Answer<Option<Leader>> {
        let mut leader = self.rows.leader()?;
        if let (Some(leader), Some(term), true) = (&mut leader, self.term, self.has(Mutant::TermUnchecked)) {
            leader.term = term;
        }
        Ok(leader)
    }

    fn put_leader(&mut self, leader: &Leader) -> Answer<()> {
        self.rows.put_leader(leader)
    }
}
