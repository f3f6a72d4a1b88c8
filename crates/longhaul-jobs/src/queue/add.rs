//! Additions to the queue: sites, links, campaigns and their shards.
//!
//! In: what users ask for, and cuts of a planner. Out: new rows. Must not know manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;

use super::{campaign_of, link_of};
use crate::calendar::Calendar;
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, CampaignKey, LinkId, Micros, ShardId, SiteId};
use crate::plan::Cut;
use crate::retry::RetryRules;
use crate::rows::{
    BackOff, Campaign, CampaignState, HookWishes, Link, LinkState, Meter, OmittedName, Part, Priority, Segment, Shard,
    Site, Weight,
};
use crate::store::Rows;

/// A campaign as a user asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewCampaign {
    /// Random bytes, by which destinations know it.
    pub key: CampaignKey,
    /// Its name: up to 255 bytes that can be shown.
    pub name: String,
    /// Its priority.
    pub priority: Priority,
    /// Its weight.
    pub weight: Weight,
    /// Its deadline. `None` if there is none.
    pub deadline: Option<Micros>,
    /// Its calendar.
    pub calendar: Calendar,
    /// How often files are tried.
    pub retry: RetryRules,
    /// Sources, destinations and rules of its transfers.
    pub spec: Vec<u8>,
    /// The hooks that are told of it.
    pub hooks: HookWishes,
}

/// The movers that a site allows at a time, one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteLimits {
    /// Movers that write to it.
    pub movers_in: NonZero<u32>,
    /// Movers that read from it.
    pub movers_out: NonZero<u32>,
}

/// The use that a link allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Movers at a time.
    pub movers: NonZero<u32>,
    /// Bytes/s of all movers together. `None` if they may use all.
    pub rate: Option<u64>,
}

/// Files and bytes of a campaign, on all of its links together: 1 EiB. Its sums fit the numbers of
/// each backend, and those of some campaigns together do too.
const CAMPAIGN_MAX: u64 = 1 << 60;
/// Names of a campaign that could not be read and are kept: enough to see what is wrong.
pub const OMITTED_NAMES_MAX: usize = 1000;
/// Bytes of a campaign's name.
const CAMPAIGN_NAME_BYTES_MAX: usize = 255;

/// Adds a site.
///
/// # Errors
/// [`JobsError::Store`].
pub fn add_site(rows: &mut dyn Rows, name: &str, limits: SiteLimits) -> Result<SiteId, JobsError> {
    let id = SiteId(rows.next_number()?);
    let (movers_in, movers_out) = (limits.movers_in.get(), limits.movers_out.get());
    rows.put_site(&Site { id, name: name.to_owned(), movers_in, movers_out })?;
    Ok(id)
}

/// Adds a link between two sites, which may be the same.
///
/// # Errors
/// [`JobsError::NoSite`], [`JobsError::Store`].
pub fn add_link(
    rows: &mut dyn Rows,
    (from, to): (SiteId, SiteId),
    limits: LinkLimits,
    calendar: &Calendar,
) -> Result<LinkId, JobsError> {
    for site in [from, to] {
        rows.site(site)?.ok_or(JobsError::NoSite(site))?;
    }
    let id = LinkId(rows.next_number()?);
    let LinkLimits { movers, rate } = limits;
    rows.put_link(&Link {
        id,
        from,
        to,
        movers: movers.get(),
        rate,
        calendar: calendar.clone(),
        state: LinkState::Open,
        back_off: BackOff::default(),
        mismatches: 0,
        meter: Meter::default(),
    })?;
    Ok(id)
}

/// Adds a campaign without shards. Nothing of it moves before [`begin_campaign`].
///
/// # Errors
/// [`JobsError::BadName`], [`JobsError::NameTaken`], [`JobsError::Store`].
pub fn add_campaign(rows: &mut dyn Rows, new: &NewCampaign) -> Result<CampaignId, JobsError> {
    let name = new.name.clone();
    if name.is_empty() || name.len() > CAMPAIGN_NAME_BYTES_MAX || name.chars().any(longhaul_core::is_deceptive) {
        return Err(JobsError::BadName(name));
    }
    if rows.campaigns()?.iter().any(|campaign| campaign.name == name) {
        return Err(JobsError::NameTaken(name));
    }
    let id = CampaignId(rows.next_number()?);
    rows.put_campaign(&Campaign {
        id,
        key: new.key,
        name,
        state: CampaignState::Planning,
        priority: new.priority,
        weight: new.weight,
        deadline: new.deadline,
        calendar: new.calendar.clone(),
        retry: new.retry.clone(),
        spec: new.spec.clone(),
        omitted: 0,
        hooks: new.hooks.clone(),
    })?;
    Ok(id)
}

/// Keeps the names of a campaign that could not be read while it was planned: their number, and
/// some of them, of which those beyond [`OMITTED_NAMES_MAX`] are left out. What was kept before
/// stays: a planner that was killed may have listed a source, and the next one does not list it
/// again.
///
/// # Errors
/// [`JobsError::WrongState`] if the campaign is planned already, [`JobsError::TooMuch`],
/// [`JobsError::NoCampaign`], [`JobsError::Store`].
pub fn note_omitted(
    rows: &mut dyn Rows,
    campaign: CampaignId,
    count: u64,
    names: &[OmittedName],
) -> Result<(), JobsError> {
    let mut campaign = campaign_of(rows, campaign)?;
    if campaign.state != CampaignState::Planning {
        return Err(JobsError::WrongState { campaign: campaign.id, state: campaign.state.name() });
    }
    if count > CAMPAIGN_MAX {
        return Err(JobsError::TooMuch("names that could not be read"));
    }
    let kept = rows.omitted(campaign.id)?.len();
    for name in names.iter().take(OMITTED_NAMES_MAX.saturating_sub(kept)) {
        let (object, message) = (name.object.clone().cut(), name.message.clone().cut());
        rows.put_omitted(&OmittedName { campaign: campaign.id, object, message, ..name.clone() })?;
    }
    campaign.omitted = count;
    rows.put_campaign(&campaign)
}

/// Adds a segment of a campaign's manifest, with its shards for one link. The same segment may be
/// added for several links.
///
/// # Errors
/// [`JobsError::WrongState`] if the campaign is planned already, [`JobsError::TooMuch`] if the
/// campaign has more than 2^60 files or bytes with it, [`JobsError::NoCampaign`],
/// [`JobsError::NoLink`], [`JobsError::Store`].
pub fn add_segment(
    rows: &mut dyn Rows,
    segment: &Segment,
    link: LinkId,
    cuts: &[Cut],
) -> Result<Vec<ShardId>, JobsError> {
    let campaign = campaign_of(rows, segment.campaign)?;
    if campaign.state != CampaignState::Planning {
        return Err(JobsError::WrongState { campaign: campaign.id, state: campaign.state.name() });
    }
    link_of(rows, link)?;
    check_sum(rows, campaign.id, cuts)?;
    rows.put_segment(segment)?;
    let mut added = Vec::with_capacity(cuts.len());
    for cut in cuts {
        let part = Part { segment: segment.number, first: cut.first, end: cut.end };
        let shard = Shard::new(ShardId(rows.next_number()?), campaign.id, link, part, cut.total);
        rows.put_shard(&shard)?;
        added.push(shard.id);
    }
    Ok(added)
}

/// Takes segments of a campaign back that a planner had added before it was stopped. A planner that
/// counts on them finds them missing before it lets the campaign begin.
///
/// # Errors
/// [`JobsError::WrongState`] if the campaign is planned already, [`JobsError::NoCampaign`],
/// [`JobsError::Store`].
pub fn take_back_segments(rows: &mut dyn Rows, campaign: CampaignId, numbers: &[u64]) -> Result<(), JobsError> {
    let campaign = campaign_of(rows, campaign)?;
    if campaign.state != CampaignState::Planning {
        return Err(JobsError::WrongState { campaign: campaign.id, state: campaign.state.name() });
    }
    numbers.iter().try_for_each(|number| rows.remove_segment(campaign.id, *number))
}

/// Whether a campaign can be counted with more shards.
fn check_sum(rows: &mut dyn Rows, campaign: CampaignId, cuts: &[Cut]) -> Result<(), JobsError> {
    let before = rows.shard_sums(campaign)?.into_iter().map(|sum| sum.total);
    let mut all = before.chain(cuts.iter().map(|cut| cut.total));
    let sum = all.try_fold(Amount::default(), Amount::plus);
    let fits = sum.is_some_and(|sum| sum.files <= CAMPAIGN_MAX && sum.bytes <= CAMPAIGN_MAX);
    if fits { Ok(()) } else { Err(JobsError::TooMuch("files or bytes of a campaign")) }
}

/// Lets a campaign begin: all of its segments are planned. On each link it joins the others where
/// the one stands that has used the least of its share, so that it owes nothing for the time
/// before, nor is owed.
///
/// # Errors
/// [`JobsError::WrongState`], [`JobsError::NoCampaign`], [`JobsError::Store`].
pub fn begin_campaign(rows: &mut dyn Rows, id: CampaignId) -> Result<(), JobsError> {
    let mut campaign = campaign_of(rows, id)?;
    if campaign.state != CampaignState::Planning {
        return Err(JobsError::WrongState { campaign: id, state: campaign.state.name() });
    }
    join_running(rows, &mut campaign)?;
    rows.put_campaign(&campaign)
}

/// Makes a campaign run, and lets it stand no further back than those that do: on each link, among
/// those of its priority that have something left there. One of a lower priority may have had
/// nothing for long, which nobody owes to a newcomer.
pub(super) fn join_running(rows: &mut dyn Rows, campaign: &mut Campaign) -> Result<(), JobsError> {
    let mine = links_left(rows, campaign.id)?;
    let mut least: BTreeMap<LinkId, u64> = BTreeMap::new();
    for other in rows.campaigns()? {
        let is_beside = other.id != campaign.id && other.priority == campaign.priority;
        if other.state != CampaignState::Running || !is_beside {
            continue;
        }
        for link in links_left(rows, other.id)?.intersection(&mine).copied() {
            let used = rows.share_used(other.id, link)?;
            least.entry(link).and_modify(|least| *least = used.min(*least)).or_insert(used);
        }
    }
    for (link, least) in least {
        if rows.share_used(campaign.id, link)? < least {
            rows.put_share_used(campaign.id, link, least)?;
        }
    }
    campaign.state = CampaignState::Running;
    Ok(())
}

/// The links on which a campaign has something left.
fn links_left(rows: &mut dyn Rows, campaign: CampaignId) -> Result<BTreeSet<LinkId>, JobsError> {
    let sums = rows.shard_sums(campaign)?;
    Ok(sums.iter().filter(|sum| !sum.kind.is_settled()).map(|sum| sum.link).collect())
}
