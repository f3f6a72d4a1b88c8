//! The heartbeat of a mover: it keeps its lease, says how far it is, and hears whether to go on.
//!
//! In: a claim and its progress. Out: a longer lease, and the mover's rate, or the reason to stop.
//! Must not know what a mover does to stop.

use super::claim::rate_of_mover;
use super::permits::{self, Holder, Taken};
use super::{advance, campaign_of, given_back, link_of, shard_of};
use crate::calendar::Allowance;
use crate::error::JobsError;
use crate::ids::{Amount, Claim, Due, ShardId};
use crate::rows::{CampaignState, Lease, LinkState, ShardState};
use crate::store::Rows;
use crate::tenure::LEASE;

/// A heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The shard.
    pub shard: ShardId,
    /// The mover's claim.
    pub claim: Claim,
    /// Files that it knows to stand at the destination, in this claim.
    pub done: Amount,
    /// Bytes that became durable in this claim, those of files that are not whole yet included. It
    /// never becomes less within a claim.
    pub moved: u64,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeatAnswer {
    /// The lease is longer. The mover's part of the link's rate, bytes/s; `None` if it may use all.
    GoOn(Option<u64>),
    /// The lease is longer, and the mover ends its session in order and hands the shard back.
    Stop(Stopping),
    /// The shard is another's: the mover ends its session, and whatever it has to report is void.
    Gone,
}

/// The reason why a mover stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// Its campaign is held or cancelled.
    Campaign(CampaignState),
    /// Its link is closed.
    Link,
    /// The calendar of its campaign or link closes now.
    Hours,
    /// Fewer movers may be at its link, or at a site, than when it claimed the shard.
    Bound,
}

/// Takes a heartbeat.
///
/// A lease that has passed is still good as long as nobody was given the shard or its permits: a
/// store that was away for a minute does not stop a fleet.
///
/// # Errors
/// [`JobsError::Miscounted`] for progress beyond the shard, [`JobsError::Store`], and those of rows
/// that name others which are not there.
pub fn beat(rows: &mut dyn Rows, beat: &Beat) -> Result<BeatAnswer, JobsError> {
    let mut shard = shard_of(rows, beat.shard)?;
    let Some(lease) = shard.lease_of(beat.claim) else { return Ok(BeatAnswer::Gone) };
    let now = rows.now()?;
    let mut link = link_of(rows, shard.link)?;
    let campaign = campaign_of(rows, shard.campaign)?;
    let holder = Holder { shard: shard.id, claim: beat.claim, until: now.plus(LEASE) };
    let taken = permits::take(rows, (&link, link.movers), holder, Due::at(now, LEASE))?;
    if taken == Taken::Refused {
        permits::give_back(rows, shard.id, beat.claim)?;
        shard.state = given_back(&campaign);
        rows.put_shard(&shard)?;
        return Ok(BeatAnswer::Gone);
    }
    advance((&mut shard, &mut link), now, beat.done, beat.moved);
    shard.left()?;
    shard.state = ShardState::Leased(Lease { mover: lease.mover, until: holder.until });
    rows.put_shard(&shard)?;
    rows.put_link(&link)?;
    let allowance = link.rate_at(now).and(campaign.calendar.at(now));
    Ok(match (campaign.state, link.state, allowance) {
        (CampaignState::Running, LinkState::Open | LinkState::Drain, Allowance::Open | Allowance::Rate(_)) => {
            match taken {
                Taken::Beyond if !shard.part.is_commit() => BeatAnswer::Stop(Stopping::Bound),
                _ => BeatAnswer::GoOn(rate_of_mover(rows, &link, allowance)?),
            }
        }
        (CampaignState::Running, LinkState::Closed(_), _) => BeatAnswer::Stop(Stopping::Link),
        // It sends nothing, and what it has read since it began would be read again.
        (CampaignState::Running, _, Allowance::Closed) if shard.part.is_commit() => BeatAnswer::GoOn(None),
        (CampaignState::Running, _, Allowance::Closed) => BeatAnswer::Stop(Stopping::Hours),
        (state, _, _) => BeatAnswer::Stop(Stopping::Campaign(state)),
    })
}
