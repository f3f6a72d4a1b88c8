//! Additions to the queue: sites, links, campaigns and their shards.
//!
//! In: what users ask for, and cuts of a planner. Out: new rows. Must not know manifests.

use std::num::NonZero;

use super::{campaign_of, link_of};
use crate::calendar::Calendar;
use crate::error::JobsError;
use crate::ids::{CampaignId, CampaignKey, LinkId, Micros, ShardId, SiteId};
use crate::plan::Cut;
use crate::retry::RetryRules;
use crate::rows::{
    BackOff, Campaign, CampaignState, Link, LinkState, Meter, Part, Priority, Segment, Shard, Site, Weight,
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
        share_used: 0,
        spec: new.spec.clone(),
    })?;
    Ok(id)
}

/// Adds a segment of a campaign's manifest, with its shards for one link. The same segment may be
/// added for each link, as a campaign with several destinations needs it.
///
/// # Errors
/// [`JobsError::WrongState`] if the campaign is planned already, [`JobsError::TooMuch`] for sums
/// that no store keeps, [`JobsError::NoCampaign`], [`JobsError::NoLink`], [`JobsError::Store`].
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
    rows.put_segment(segment)?;
    let mut added = Vec::with_capacity(cuts.len());
    for cut in cuts {
        if i64::try_from(cut.total.bytes).is_err() {
            return Err(JobsError::TooMuch("bytes of a shard"));
        }
        let part = Part { segment: segment.number, first: cut.first, end: cut.end };
        let shard = Shard::new(ShardId(rows.next_number()?), campaign.id, link, part, cut.total);
        rows.put_shard(&shard)?;
        added.push(shard.id);
    }
    Ok(added)
}

/// Lets a campaign begin: all of its segments are planned. It joins the others where the one stands
/// that has used the least of its share, so that it owes nothing for the time before, nor is owed.
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

/// Makes a campaign run, and lets it stand no further back than those that do.
pub(super) fn join_running(rows: &mut dyn Rows, campaign: &mut Campaign) -> Result<(), JobsError> {
    let others = rows.campaigns()?;
    let running = others.iter().filter(|other| other.state == CampaignState::Running && other.id != campaign.id);
    let least = running.map(|other| other.share_used).min();
    campaign.share_used = campaign.share_used.max(least.unwrap_or(0));
    campaign.state = CampaignState::Running;
    Ok(())
}
