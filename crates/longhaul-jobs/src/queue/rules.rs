//! Changes by users to the rules of a link and of a campaign: who may move, when, how fast, and in
//! which order.
//!
//! In: a wish, which says nothing of what stays as it is. Out: the row, changed in one step, and
//! what holds on a link now. No claim is touched: movers at work hear of it with their next
//! heartbeat. Must not know who asks, nor whether that one may.

use std::num::NonZero;

use super::permits::movers_at;
use super::{campaign_of, link_of};
use crate::calendar::{Allowance, Calendar};
use crate::error::JobsError;
use crate::ids::{CampaignId, Due, LinkId, Micros, SiteId};
use crate::retry::RetryRules;
use crate::rows::{BackOff, CampaignState, Link, LinkState, LinkWait, Priority, Weight};
use crate::store::Rows;
use crate::tenure::LEASE;

/// A user's wish for something that may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// There is none from now on.
    Remove,
    /// It is this from now on.
    Set(T),
}

/// A user's wish for a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkWish {
    /// Movers that may use it at a time. `None`: as many as before.
    pub movers: Option<NonZero<u32>>,
    /// Bytes/s that all of them may use together.
    pub rate: Change<u64>,
    /// Its hours and maintenance windows.
    pub calendar: Change<Calendar>,
    /// Whether it is used. `None`: as before.
    pub state: Option<LinkState>,
}

/// A user's wish for the rules of a campaign. None of them is signed by its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CampaignWish {
    /// Its priority. `None`: as before.
    pub priority: Option<Priority>,
    /// Its weight. `None`: as before.
    pub weight: Option<Weight>,
    /// The time at which it should be done.
    pub deadline: Change<Micros>,
    /// When it may move, and how fast on each link.
    pub calendar: Change<Calendar>,
    /// How often files are tried. Without rules it is the default.
    pub retry: Change<RetryRules>,
}

/// A link, and what holds there at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFigures {
    /// Its row.
    pub link: Link,
    /// The name of the host that is read from.
    pub from: String,
    /// The name of the host that is written to.
    pub to: String,
    /// Movers that are there.
    pub movers_busy: u32,
    /// The rate of all of them together by its own limit and its hours, whatever its state.
    pub allowance: Allowance,
    /// The reason why nothing begins there, though it is open.
    pub waits: Option<LinkWait>,
}

/// Carries out a wish for a link. Opening it forgets its failures.
///
/// # Errors
/// [`JobsError::NoLink`], [`JobsError::Store`].
pub fn set_link(rows: &mut dyn Rows, id: LinkId, wish: &LinkWish) -> Result<(), JobsError> {
    let mut link = link_of(rows, id)?;
    link.movers = wish.movers.map_or(link.movers, NonZero::get);
    link.rate = wish.rate.over(link.rate);
    link.calendar = wish.calendar.clone().over(Some(link.calendar)).unwrap_or_default();
    if wish.state == Some(LinkState::Open) {
        (link.back_off, link.mismatches) = (BackOff::default(), 0);
    }
    link.state = wish.state.unwrap_or(link.state);
    rows.put_link(&link)
}

/// Opens, drains or closes a link. Opening it forgets its failures.
///
/// # Errors
/// [`JobsError::NoLink`], [`JobsError::Store`].
pub fn set_link_state(rows: &mut dyn Rows, id: LinkId, state: LinkState) -> Result<(), JobsError> {
    set_link(rows, id, &LinkWish { state: Some(state), ..LinkWish::default() })
}

/// Carries out a wish for the rules of a campaign. Its order counts for shards that are scheduled
/// from now on; hours and tries count at once.
///
/// # Errors
/// [`JobsError::WrongState`] if it is done or cancelled, [`JobsError::NoCampaign`],
/// [`JobsError::Store`].
pub fn set_campaign(rows: &mut dyn Rows, id: CampaignId, wish: &CampaignWish) -> Result<(), JobsError> {
    let mut campaign = campaign_of(rows, id)?;
    if matches!(campaign.state, CampaignState::Done | CampaignState::Cancelled) {
        return Err(JobsError::WrongState { campaign: id, state: campaign.state.name() });
    }
    campaign.priority = wish.priority.unwrap_or(campaign.priority);
    campaign.weight = wish.weight.unwrap_or(campaign.weight);
    campaign.deadline = wish.deadline.over(campaign.deadline);
    campaign.calendar = wish.calendar.clone().over(Some(campaign.calendar)).unwrap_or_default();
    campaign.retry = wish.retry.clone().over(Some(campaign.retry)).unwrap_or_default();
    rows.put_campaign(&campaign)
}

/// The link between two hosts, each by any of some names. `None` if no plan has made it yet.
///
/// # Errors
/// [`JobsError::Store`].
pub fn link_between(rows: &mut dyn Rows, (from, to): (&[String], &[String])) -> Result<Option<LinkId>, JobsError> {
    let sites = rows.sites()?;
    let is_one = |id: SiteId, names: &[String]| sites.iter().any(|site| site.id == id && names.contains(&site.name));
    let links = rows.links()?;
    Ok(links.into_iter().find(|link| is_one(link.from, from) && is_one(link.to, to)).map(|link| link.id))
}

/// A link, and what holds there at present.
///
/// # Errors
/// [`JobsError::NoLink`], [`JobsError::NoSite`], [`JobsError::Store`].
pub fn link_figures(rows: &mut dyn Rows, id: LinkId) -> Result<LinkFigures, JobsError> {
    let (link, now) = (link_of(rows, id)?, rows.now()?);
    let mut name = |id| rows.site(id)?.map(|site| site.name).ok_or(JobsError::NoSite(id));
    let (from, to) = (name(link.from)?, name(link.to)?);
    let movers_busy = movers_at(rows, &link, Due::at(now, LEASE))?;
    let (allowance, waits) = (link.rate_at(now), link.waits(&Calendar::default(), now));
    Ok(LinkFigures { link, from, to, movers_busy, allowance, waits })
}

impl<T> Change<T> {
    /// The value from now on, in place of the one before.
    pub fn over(self, before: Option<T>) -> Option<T> {
        match self {
            Change::Keep => before,
            Change::Remove => None,
            Change::Set(value) => Some(value),
        }
    }
}
