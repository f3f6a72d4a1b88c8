//! The scheduler: which shards may be claimed next.
//!
//! In: a leader's turn. Out: planned shards that become ready, in their order; shards whose movers
//! were not heard of, which are planned again; campaigns that are done. Everything is a function of
//! the rows, so that any process may lead next. Must not know movers.
//!
//! The order on a link: campaigns that would miss their deadline otherwise, the earliest deadline
//! first; then by priority; then whoever has used the least of its share.

use std::cmp::Reverse;

use super::finish::VAIN_MAX;
use super::{campaign_of, given_back, permits};
use crate::calendar::Allowance;
use crate::error::JobsError;
use crate::ids::{CampaignId, Due, Micros, MoverId, ShardId};
use crate::retry::PAUSE_MAX;
use crate::rows::{Campaign, CampaignState, Hold, Leader, Link, LinkState, ShardKind, ShardState};
use crate::store::Rows;
use crate::tenure::LEASE;

/// A turn's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Shards that became ready.
    pub readied: u64,
    /// Shards whose lease had lapsed.
    pub lapsed: u64,
    /// Campaigns that are done now.
    pub done: u64,
}

/// The lease of a leader: a turn every 2 s keeps it, and another one leads 15 s after the last.
const LEADER_LEASE: std::time::Duration = std::time::Duration::from_secs(15);
/// Ready shards of a link for each of its permits: movers find the next one without waiting for a
/// turn, and an order that changes is followed soon.
const READY_FOR_PERMIT: u64 = 2;
/// Lapsed shards that one turn looks at.
const LAPSED_AT_A_TURN: usize = 100;
/// Shards that one turn makes ready on a link.
const READIED_AT_A_TURN: u64 = 1000;

/// Becomes or stays the leader, and gives the term. `None` if another one leads.
///
/// # Errors
/// [`JobsError::Store`], [`JobsError::TooMuch`].
pub fn lead(rows: &mut dyn Rows, who: MoverId) -> Result<Option<u64>, JobsError> {
    let now = rows.now()?;
    let term = match rows.leader()? {
        None => 1,
        Some(leader) if Due::at(now, LEADER_LEASE).has_passed(leader.until) => {
            leader.term.checked_add(1).ok_or(JobsError::TooMuch("terms of leaders"))?
        }
        Some(leader) if leader.holder == who => leader.term,
        Some(_) => return Ok(None),
    };
    rows.put_leader(&Leader { term, holder: who, until: now.plus(LEADER_LEASE) })?;
    Ok(Some(term))
}

/// A leader's turn. `None` if its term is over: whoever was away for long finds another leader, and
/// changes nothing.
///
/// # Errors
/// [`JobsError::Store`], and those of rows that name others which are not there.
pub fn schedule(rows: &mut dyn Rows, term: u64) -> Result<Option<Scheduled>, JobsError> {
    if rows.leader()?.is_none_or(|leader| leader.term != term) {
        return Ok(None);
    }
    let mut scheduled = Scheduled { lapsed: sweep(rows)?, ..Scheduled::default() };
    let mut running = Vec::new();
    for mut campaign in rows.campaigns()? {
        if campaign.state != CampaignState::Running {
            continue;
        }
        if is_settled(rows, campaign.id)? {
            campaign.state = CampaignState::Done;
            rows.put_campaign(&campaign)?;
            scheduled.done += 1;
        } else {
            running.push(campaign);
        }
    }
    for link in rows.links()? {
        if link.state == LinkState::Open {
            scheduled.readied += fill(rows, &link, &mut running)?;
        }
    }
    Ok(Some(scheduled))
}

fn is_settled(rows: &mut dyn Rows, campaign: CampaignId) -> Result<bool, JobsError> {
    for kind in ShardKind::ALL.into_iter().filter(|kind| !kind.is_settled()) {
        if !rows.shards(campaign, kind, ShardId(0), 1)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes back the shards of movers that were not heard of.
fn sweep(rows: &mut dyn Rows) -> Result<u64, JobsError> {
    let now = rows.now()?;
    let lapsed = rows.lapsed(Due::at(now, LEASE), LAPSED_AT_A_TURN)?;
    for mut shard in lapsed.iter().cloned() {
        permits::give_back(rows, shard.id, shard.claim)?;
        shard.tries.lapses = shard.tries.lapses.saturating_add(1);
        shard.state = match given_back(&campaign_of(rows, shard.campaign)?) {
            ShardState::Planned if shard.tries.lapses >= VAIN_MAX => ShardState::Held(Hold::Lapsed(shard.tries.lapses)),
            state => state,
        };
        rows.put_shard(&shard)?;
    }
    Ok(lapsed.len() as u64)
}

/// Makes shards of a link ready, as far as there is room.
fn fill(rows: &mut dyn Rows, link: &Link, running: &mut [Campaign]) -> Result<u64, JobsError> {
    let now = rows.now()?;
    let most = (u64::from(link.movers) * READY_FOR_PERMIT).min(READIED_AT_A_TURN);
    let room = most.saturating_sub(rows.count_ready(link.id)?);
    let mut contenders = Vec::new();
    for (at, campaign) in running.iter().enumerate() {
        if room > 0 && link.rate_at(now).and(campaign.calendar.at(now)) != Allowance::Closed {
            contenders.push((at, urgency(rows, campaign, link, now)?));
        }
    }
    let mut readied = 0;
    while readied < room {
        let order = |(at, urgent): &(usize, Urgency)| {
            (*urgent, Reverse(running[*at].priority), running[*at].share_used, running[*at].id)
        };
        let Some(next) = (0..contenders.len()).min_by_key(|index| order(&contenders[*index])) else { break };
        let campaign = &mut running[contenders[next].0];
        let Some(mut shard) = rows.first_planned(campaign.id, link.id, Due::at(now, PAUSE_MAX))? else {
            contenders.swap_remove(next);
            continue;
        };
        let share = campaign.weight.share_of(shard.left()?.bytes);
        campaign.share_used = campaign.share_used.checked_add(share).ok_or(JobsError::TooMuch("bytes of a share"))?;
        rows.put_campaign(campaign)?;
        shard.state = ShardState::Ready;
        shard.rank = rows.next_number()?;
        rows.put_shard(&shard)?;
        readied += 1;
    }
    Ok(readied)
}

/// Whether a campaign's deadline is at risk on a link. Less is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    AtRisk(Micros),
    InTime,
}

/// A deadline is at risk if what is left takes half of the time until then, or more, at the link's
/// present rate. One that has passed is not: it cannot be met, and others can.
fn urgency(rows: &mut dyn Rows, campaign: &Campaign, link: &Link, now: Micros) -> Result<Urgency, JobsError> {
    let Some(deadline) = campaign.deadline.filter(|deadline| *deadline > now) else { return Ok(Urgency::InTime) };
    let rate = u128::from(link.meter.rate_at(now));
    let mut bytes = 0;
    for sum in rows.shard_sums(campaign.id)? {
        if sum.link == link.id && !sum.kind.is_settled() {
            bytes += u128::from(sum.total.bytes.saturating_sub(sum.done.bytes).saturating_sub(sum.failed.bytes));
        }
    }
    let available = rate * deadline.since(now).as_micros() / 1_000_000;
    Ok(if rate > 0 && bytes * 2 >= available { Urgency::AtRisk(deadline) } else { Urgency::InTime })
}
