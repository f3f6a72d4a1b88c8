//! The offer of a backend of the queue: transactions over rows.
//!
//! In: the rules of the queue, as closures over the rows of one transaction. Out: their result,
//! durably, or an error and nothing changed. Must not know a rule.

use longhaul_core::FaultCode;

use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, Due, LinkId, Micros, QueueId, ShardId, SiteId};
use crate::rows::{
    BadFile, BadKind, Campaign, CampaignSignature, FailedFile, FaultState, HookKey, Leader, Link, Notice, OmittedName,
    Permit, PermitPlace, Segment, Shard, ShardKind, Site, Verification,
};

/// A place where the queue's rows are kept.
pub trait Store {
    /// Carries out one transaction: all of it becomes durable before this returns, or nothing of it
    /// is ever seen. Transactions are serializable. A backend may call `work` again if the
    /// transactions of others came in between, so it must not do anything but read and write rows.
    ///
    /// # Errors
    /// The errors of `work`, and [`JobsError::Store`].
    fn transact<T>(&mut self, work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError>) -> Result<T, JobsError>;
}

/// The sums of a campaign's shards of one kind on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSum {
    /// The link.
    pub link: LinkId,
    /// The kind.
    pub kind: ShardKind,
    /// Shards.
    pub shards: u64,
    /// Their files and bytes.
    pub total: Amount,
    /// The part of them that stands.
    pub done: Amount,
    /// The part of them that was given up.
    pub failed: Amount,
    /// Shards among them whose last mover showed no claim.
    pub unclaimed: u64,
}

/// The sums of a campaign's failed files with one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSum {
    /// The fault.
    pub code: FaultCode,
    /// Whether they are tried again.
    pub state: FaultState,
    /// Files, and their bytes by the manifest.
    pub amount: Amount,
}

/// The sums of what was delivered of a campaign, by its last readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerificationSums {
    /// All that stands of settled shards.
    pub total: Amount,
    /// The part of shards that were never read whole.
    pub never: Amount,
    /// The part of shards that were last read before the time that was asked for.
    pub stale: Amount,
    /// The oldest of the last readings. `None`: nothing was read.
    pub oldest: Option<Micros>,
}

/// The sums of a campaign's bad files of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSum {
    /// The kind.
    pub kind: BadKind,
    /// Files, and their bytes by the manifest.
    pub amount: Amount,
}

/// The rows about delivered files, in one transaction. A time of a last reading that is later than
/// `believed` was noted by a clock that ran ahead, and counts as never.
pub trait VerificationRows {
    /// The readings of a shard.
    fn verification(&mut self, shard: ShardId) -> Result<Option<Verification>, JobsError>;
    /// Writes the readings of a shard.
    fn put_verification(&mut self, row: &Verification) -> Result<(), JobsError>;
    /// The shard that was read last the longest time ago, of those that are settled, of which
    /// something stands, which no verifier has, and of which no try failed since a time, with the
    /// end of that reading: 0 for never. `times` are `believed` and that time. Of several it is the
    /// one with the lowest number. A backend with row locks gives the first that no other
    /// transaction has locked, and locks it.
    fn first_to_verify(
        &mut self,
        campaign: CampaignId,
        leases: Due,
        times: (Micros, Micros),
    ) -> Result<Option<(ShardId, Micros)>, JobsError>;
    /// Sums over what was delivered of a campaign.
    fn verification_sums(
        &mut self,
        campaign: CampaignId,
        stale_before: Micros,
        believed: Micros,
    ) -> Result<VerificationSums, JobsError>;

    /// The bad files of a shard, in the order of their paths.
    fn bad_files_of(&mut self, shard: ShardId) -> Result<Vec<BadFile>, JobsError>;
    /// Writes a bad file.
    fn put_bad_file(&mut self, file: &BadFile) -> Result<(), JobsError>;
    /// Removes a bad file.
    fn remove_bad_file(&mut self, shard: ShardId, path: &[u8]) -> Result<(), JobsError>;
    /// The shard of a campaign with rows of bad files that has the lowest number above `after`.
    fn bad_shard(&mut self, campaign: CampaignId, after: ShardId) -> Result<Option<ShardId>, JobsError>;
    /// Sums over the bad files of a campaign, by kind.
    fn bad_sums(&mut self, campaign: CampaignId) -> Result<Vec<BadSum>, JobsError>;
}

/// The rows of one transaction. Lists come in the order of the numbers of their rows.
pub trait Rows: VerificationRows {
    /// The time by the clock of the store, the same throughout a transaction.
    fn now(&mut self) -> Result<Micros, JobsError>;
    /// A number that was never given out before, of a row or a rank.
    fn next_number(&mut self) -> Result<u64, JobsError>;

    /// A campaign.
    fn campaign(&mut self, id: CampaignId) -> Result<Option<Campaign>, JobsError>;
    /// All campaigns.
    fn campaigns(&mut self) -> Result<Vec<Campaign>, JobsError>;
    /// The numbers of all campaigns: each row is read by itself where a bad one must stop no other.
    fn campaign_ids(&mut self) -> Result<Vec<CampaignId>, JobsError>;
    /// Writes a campaign.
    fn put_campaign(&mut self, campaign: &Campaign) -> Result<(), JobsError>;
    /// The id of the queue. `None` before the first campaign is signed.
    fn queue_id(&mut self) -> Result<Option<QueueId>, JobsError>;
    /// Writes the id of the queue.
    fn put_queue_id(&mut self, id: QueueId) -> Result<(), JobsError>;
    /// The signature of a campaign. `None`: it has none.
    fn signature(&mut self, campaign: CampaignId) -> Result<Option<CampaignSignature>, JobsError>;
    /// Writes the signature of a campaign.
    fn put_signature(&mut self, signature: &CampaignSignature) -> Result<(), JobsError>;
    /// Writes a segment.
    fn put_segment(&mut self, segment: &Segment) -> Result<(), JobsError>;
    /// Removes a segment of a campaign, with the shards that were cut of it.
    fn remove_segment(&mut self, campaign: CampaignId, number: u64) -> Result<(), JobsError>;
    /// The segments of a campaign.
    fn segments(&mut self, campaign: CampaignId) -> Result<Vec<Segment>, JobsError>;
    /// Writes a name that could not be read.
    fn put_omitted(&mut self, name: &OmittedName) -> Result<(), JobsError>;
    /// The names of a campaign that could not be read and are kept, by source and name.
    fn omitted(&mut self, campaign: CampaignId) -> Result<Vec<OmittedName>, JobsError>;

    /// A site.
    fn site(&mut self, id: SiteId) -> Result<Option<Site>, JobsError>;
    /// All sites.
    fn sites(&mut self) -> Result<Vec<Site>, JobsError>;
    /// Writes a site.
    fn put_site(&mut self, site: &Site) -> Result<(), JobsError>;
    /// The site of hosts to which a host belongs. `None`: it is a site of its own alone.
    fn site_above(&mut self, host: SiteId) -> Result<Option<SiteId>, JobsError>;
    /// Writes the site of hosts to which a host belongs.
    fn put_site_above(&mut self, host: SiteId, above: Option<SiteId>) -> Result<(), JobsError>;
    /// A link.
    fn link(&mut self, id: LinkId) -> Result<Option<Link>, JobsError>;
    /// All links.
    fn links(&mut self) -> Result<Vec<Link>, JobsError>;
    /// Writes a link.
    fn put_link(&mut self, link: &Link) -> Result<(), JobsError>;

    /// The share of a link that a campaign has used: bytes that were scheduled for it there,
    /// divided by its weight. The campaign that has least is next. 0 if nothing was written.
    fn share_used(&mut self, campaign: CampaignId, link: LinkId) -> Result<u64, JobsError>;
    /// Writes the share of a link that a campaign has used.
    fn put_share_used(&mut self, campaign: CampaignId, link: LinkId, used: u64) -> Result<(), JobsError>;

    /// A shard.
    fn shard(&mut self, id: ShardId) -> Result<Option<Shard>, JobsError>;
    /// Writes a shard.
    fn put_shard(&mut self, shard: &Shard) -> Result<(), JobsError>;
    /// The ready shard of a link with the lowest rank, of campaigns that are not passed over. A
    /// backend with row locks gives the first that no other transaction has locked, and locks it.
    fn first_ready(&mut self, link: LinkId, passed_over: &[CampaignId]) -> Result<Option<Shard>, JobsError>;
    /// The planned shard of a campaign on a link with the lowest number whose time has come.
    fn first_planned(&mut self, campaign: CampaignId, link: LinkId, due: Due) -> Result<Option<Shard>, JobsError>;
    /// Ready shards of a link.
    fn count_ready(&mut self, link: LinkId) -> Result<u64, JobsError>;
    /// Leased shards whose lease has passed, so many at most.
    fn lapsed(&mut self, due: Due, most: usize) -> Result<Vec<Shard>, JobsError>;
    /// Shards of a campaign of one kind with a higher number, so many at most.
    fn shards(
        &mut self,
        campaign: CampaignId,
        kind: ShardKind,
        after: ShardId,
        most: usize,
    ) -> Result<Vec<Shard>, JobsError>;
    /// The commit of a campaign: the shard of [`Part::COMMIT`](crate::Part::COMMIT). `None`: its
    /// files appear one by one.
    fn commit_of(&mut self, campaign: CampaignId) -> Result<Option<Shard>, JobsError>;
    /// Sums over the shards of a campaign.
    fn shard_sums(&mut self, campaign: CampaignId) -> Result<Vec<ShardSum>, JobsError>;

    /// The permits of a place, lapsed ones too.
    fn permits(&mut self, place: PermitPlace) -> Result<Vec<Permit>, JobsError>;
    /// The permits of a shard, of any claim.
    fn permits_of(&mut self, shard: ShardId) -> Result<Vec<Permit>, JobsError>;
    /// Writes a permit in place of the one that has its slot.
    fn put_permit(&mut self, permit: &Permit) -> Result<(), JobsError>;
    /// Removes the permit of a slot.
    fn remove_permit(&mut self, permit: &Permit) -> Result<(), JobsError>;

    /// The failed files of a shard, in the order of their paths.
    fn faults_of(&mut self, shard: ShardId) -> Result<Vec<FailedFile>, JobsError>;
    /// Writes a failed file.
    fn put_fault(&mut self, fault: &FailedFile) -> Result<(), JobsError>;
    /// Removes a failed file.
    fn remove_fault(&mut self, fault: &FailedFile) -> Result<(), JobsError>;
    /// Sums over the failed files of a campaign.
    fn fault_sums(&mut self, campaign: CampaignId) -> Result<Vec<FaultSum>, JobsError>;

    /// Writes a notice.
    fn put_notice(&mut self, notice: &Notice) -> Result<(), JobsError>;
    /// Removes a notice.
    fn remove_notice(&mut self, number: u64) -> Result<(), JobsError>;
    /// A notice.
    fn notice(&mut self, number: u64) -> Result<Option<Notice>, JobsError>;
    /// The notice to a hook with the lowest number that is not given up, whose time has come, and
    /// whose campaign is not passed over. A backend with row locks gives the first that no other
    /// transaction has locked, and locks it.
    fn first_notice(
        &mut self,
        hook: &HookKey,
        due: Due,
        passed_over: &[CampaignId],
    ) -> Result<Option<Notice>, JobsError>;
    /// Gives that notice up, though nothing of its row may make sense.
    fn give_up_first_notice(&mut self, hook: &HookKey, due: Due, passed_over: &[CampaignId]) -> Result<(), JobsError>;
    /// Removes the notices of a campaign's shards and faults to a hook that are not given up, but
    /// for so many with the lowest numbers.
    fn trim_waiting(&mut self, campaign: CampaignId, hook: &HookKey, kept: u64) -> Result<(), JobsError>;
    /// Removes the notices of a campaign to a hook that were given up, but for so many with the
    /// highest numbers.
    fn trim_given_up(&mut self, campaign: CampaignId, hook: &HookKey, kept: usize) -> Result<(), JobsError>;
    /// Notices of a campaign with a higher number, so many at most.
    fn notices(&mut self, campaign: CampaignId, after: u64, most: usize) -> Result<Vec<Notice>, JobsError>;

    /// The leader.
    fn leader(&mut self) -> Result<Option<Leader>, JobsError>;
    /// Writes the leader.
    fn put_leader(&mut self, leader: &Leader) -> Result<(), JobsError>;
}
