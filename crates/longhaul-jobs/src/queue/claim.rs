//! How a mover comes to a shard, and to a higher fence for it.
//!
//! In: a mover, the links that it can serve, and random bytes. Out: a shard with its claim, which
//! the destination is shown. Must not know how shards come to be ready.

use super::admit::{Admission, AdmitAll};
use super::commit::may_commit;
use super::permits::{self, Holder, Taken, movers_at};
use super::{campaign_of, given_back, link_of, shard_of};
use crate::calendar::Allowance;
use crate::error::JobsError;
use crate::ids::{Claim, ClaimId, Due, Fence, LinkId, MoverId, ShardId};
use crate::rows::{Campaign, CampaignState, FailedFile, FaultState, Hold, Lease, Link, Shard, ShardState};
use crate::store::Rows;
use crate::tenure::LEASE;

/// The wish of a mover for a shard.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The mover.
    pub mover: MoverId,
    /// The links that it can serve, in the order in which it is asked to; movers begin at different
    /// ones.
    pub links: &'a [LinkId],
    /// Random bytes for the claim.
    pub id: ClaimId,
}

/// A shard that a mover was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The shard; its claim is the mover's. If it was judged, its mover goes on though files fail
    /// alike ([`AlikeWatch::of`](crate::AlikeWatch::of)).
    pub shard: Shard,
    /// Its campaign.
    pub campaign: Campaign,
    /// Files of it that were given up before: they are not tried again.
    pub given_up: Vec<FailedFile>,
    /// The mover's part of the link's rate, bytes/s. `None` if it may use all.
    pub rate: Option<u64>,
}

/// Ready shards of a link that are looked at for one claim: their campaigns may stand still since.
const LOOKED_AT: usize = 32;

/// Claims the next shard on one of the mover's links. `None` if there is none, or no permit for it.
///
/// # Errors
/// [`JobsError::Store`], and those of rows that name others which are not there.
pub fn claim(rows: &mut dyn Rows, ask: &Ask) -> Result<Option<Granted>, JobsError> {
    claim_among(rows, ask, &AdmitAll)
}

/// The same, of a mover that moves some campaigns. Shards of the others stay ready.
///
/// # Errors
/// As [`claim`], and those of the admission.
pub fn claim_among(rows: &mut dyn Rows, ask: &Ask, among: &dyn Admission) -> Result<Option<Granted>, JobsError> {
    for id in ask.links {
        let Some(link) = rows.link(*id)? else { continue };
        if let Some(granted) = claim_on(rows, &link, (ask, among))? {
            return Ok(Some(granted));
        }
    }
    Ok(None)
}

fn claim_on(
    rows: &mut dyn Rows,
    link: &Link,
    (ask, among): (&Ask, &dyn Admission),
) -> Result<Option<Granted>, JobsError> {
    let now = rows.now()?;
    let mut passed_over = Vec::new();
    let mut looked_at = 0;
    while looked_at < LOOKED_AT {
        let Some(mut shard) = rows.first_ready(link.id, &passed_over)? else { return Ok(None) };
        let campaign = campaign_of(rows, shard.campaign)?;
        // No look is spent on it: there may be any number of campaigns of other owners.
        if campaign.state == CampaignState::Running && !among.admits(rows, &campaign)? {
            passed_over.push(campaign.id);
            continue;
        }
        looked_at += 1;
        let (allowance, movers) = link.allowance(&campaign.calendar, now);
        if campaign.state != CampaignState::Running || campaign.calendar.at(now) == Allowance::Closed {
            shard.state = given_back(&campaign);
            rows.put_shard(&shard)?;
            continue;
        }
        if allowance == Allowance::Closed {
            return Ok(None);
        }
        // Nothing lets it go too early: this is the last look, in the transaction of the claim.
        if shard.part.is_commit() && !may_commit(rows, &campaign)? {
            shard.state = ShardState::Held(Hold::AwaitsShards);
            rows.put_shard(&shard)?;
            continue;
        }
        let Some(fence) = shard.claim.fence.next() else {
            shard.state = ShardState::Held(Hold::FenceSpent);
            rows.put_shard(&shard)?;
            continue;
        };
        let claim = Claim { fence, id: ask.id };
        let holder = Holder { shard: shard.id, claim, until: now.plus(LEASE) };
        if permits::take(rows, (link, movers), holder, Due::at(now, LEASE))? == Taken::Refused {
            return Ok(None);
        }
        shard.state = ShardState::Leased(Lease { mover: ask.mover, until: holder.until });
        shard.claim = claim;
        // A commit reads again what its last claim had read, and comes farther only behind that.
        shard.news.moved = if shard.part.is_commit() { shard.news.moved } else { 0 };
        rows.put_shard(&shard)?;
        let mut given_up = rows.faults_of(shard.id)?;
        given_up.retain(|fault| fault.state == FaultState::GivenUp);
        let rate = rate_of_mover(rows, link, allowance)?;
        return Ok(Some(Granted { shard, campaign, given_up, rate }));
    }
    Ok(None)
}

/// One mover's part of what its link is allowed.
pub(super) fn rate_of_mover(rows: &mut dyn Rows, link: &Link, allowance: Allowance) -> Result<Option<u64>, JobsError> {
    let Allowance::Rate(rate) = allowance else { return Ok(None) };
    let due = Due::at(rows.now()?, LEASE);
    let movers = movers_at(rows, link, due)?.max(1);
    Ok(Some((rate / u64::from(movers)).max(1)))
}

/// Gives a mover whose claim the destination refused a claim above the fence that is kept there.
/// The store was restored from a backup, and had given that fence out before. `None` if the shard
/// is not the mover's any more.
///
/// # Errors
/// [`JobsError::Store`], and those of rows that name others which are not there.
pub fn raise(
    rows: &mut dyn Rows,
    (id, refused): (ShardId, Claim),
    kept: Fence,
    fresh: ClaimId,
) -> Result<Option<Claim>, JobsError> {
    let mut shard = shard_of(rows, id)?;
    let Some(lease) = shard.lease_of(refused) else { return Ok(None) };
    let Some(fence) = kept.max(refused.fence).next() else {
        shard.state = match given_back(&campaign_of(rows, shard.campaign)?) {
            ShardState::Planned => ShardState::Held(Hold::FenceSpent),
            state => state,
        };
        rows.put_shard(&shard)?;
        permits::give_back(rows, id, refused)?;
        return Ok(None);
    };
    let (now, claim) = (rows.now()?, Claim { fence, id: fresh });
    let link = link_of(rows, shard.link)?;
    permits::give_back(rows, id, refused)?;
    let holder = Holder { shard: id, claim, until: now.plus(LEASE) };
    let taken = permits::take(rows, (&link, link.movers), holder, Due::at(now, LEASE))? != Taken::Refused;
    // The mover goes on with its count of bytes, and those that were told stay told.
    shard.claim = claim;
    shard.state = if taken {
        ShardState::Leased(Lease { mover: lease.mover, until: holder.until })
    } else {
        given_back(&campaign_of(rows, shard.campaign)?)
    };
    rows.put_shard(&shard)?;
    Ok(taken.then_some(claim))
}
