//! The scheduler: which shards may be claimed next.
//!
//! In: a leader's turn. Out: planned shards that become ready, in their order; shards whose movers
//! were not heard of, which are planned again; campaigns that are done. Everything is a function of
//! the rows, so that any process may lead next. Must not know movers.
//!
//! The order on a link: campaigns that would miss their deadline otherwise, the earliest deadline
//! first; then by priority; then whoever has used the least of its share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::FaultCode;

use super::admit::{Admission, AdmitAll};
use super::commit::let_commit_go;
use super::finish::VAIN_MAX;
use super::{campaign_of, given_back, notices, permits};
use crate::calendar::Allowance;
use crate::error::JobsError;
use crate::ids::{CampaignId, Due, LinkId, Micros, MoverId, ROW_NUMBER_MAX, ShardId};
use crate::retry::PAUSE_MAX;
use crate::rows::{Campaign, CampaignState, Hold, Leader, Link, LinkState, NoticeKind, ShardKind, ShardState};
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
    /// Campaigns that were passed over, as their rows make no sense. The others go on.
    pub skipped: u64,
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

/// Lets another one lead at once: whoever leads and ends in order does not keep others waiting for
/// its lease.
///
/// # Errors
/// [`JobsError::Store`].
pub fn resign(rows: &mut dyn Rows, who: MoverId) -> Result<(), JobsError> {
    match rows.leader()? {
        Some(leader) if leader.holder == who => rows.put_leader(&Leader { until: Micros(0), ..leader }),
        _ => Ok(()),
    }
}

/// A leader's turn. `None` if another one leads, or in another term: whoever was away for long
/// finds that, and changes nothing. A campaign whose rows make no sense is passed over, and stops
/// no other.
///
/// # Errors
/// [`JobsError::Store`], and those of rows that name others which are not there.
pub fn schedule(rows: &mut dyn Rows, who: MoverId, term: u64) -> Result<Option<Scheduled>, JobsError> {
    schedule_among(rows, who, term, &AdmitAll)
}

/// The same, of a leader that moves some campaigns itself. It makes shards of the others ready too,
/// and counts them apart, owner by owner: those that only other movers claim never take the room of
/// those that it can claim, nor that of another owner, nor the other way round. Each of the others
/// has a shard that is ready, as the leader does not know which of them a mover moves.
///
/// # Errors
/// As [`schedule`], and those of the admission.
pub fn schedule_among(
    rows: &mut dyn Rows,
    who: MoverId,
    term: u64,
    among: &dyn Admission,
) -> Result<Option<Scheduled>, JobsError> {
    if rows.leader()?.is_none_or(|leader| leader.term != term || leader.holder != who) {
        return Ok(None);
    }
    let mut scheduled = Scheduled { lapsed: sweep(rows)?, ..Scheduled::default() };
    let (mut running, mut of_others, mut skipped) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    for id in rows.campaign_ids()? {
        match spare(running_or_done(rows, id))? {
            None => {
                skipped.insert(id);
            }
            Some(Turn::Running(campaign)) if among.admits(rows, &campaign)? => running.push(*campaign),
            Some(Turn::Running(campaign)) => {
                let owner = spare(rows.signature(id))?.flatten().map(|signature| signature.owner);
                of_others.entry(owner).or_insert_with(Vec::new).push(*campaign);
            }
            Some(Turn::Done) => scheduled.done += 1,
            Some(Turn::Still) => {}
        }
    }
    let before = standing(rows, of_others.values().flatten())?;
    for link in rows.links()? {
        if link.state == LinkState::Open {
            let of_others_ready: u64 = of_others.values().map(|campaigns| ready_of(&before, campaigns, &link)).sum();
            let ready = rows.count_ready(link.id)?.saturating_sub(of_others_ready);
            let room = room_of(&link).saturating_sub(ready);
            scheduled.readied += fill(rows, &link, (&running, room), &mut skipped)?;
            for campaigns in of_others.values() {
                scheduled.readied += fill_of_owner(rows, &link, (campaigns, &before), &mut skipped)?;
            }
        }
    }
    scheduled.skipped = skipped.len() as u64;
    Ok(Some(scheduled))
}

/// The result of something that concerns one campaign. `None` if the rows of that one make no
/// sense.
fn spare<T>(result: Result<T, JobsError>) -> Result<Option<T>, JobsError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_of_rows() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A campaign in a leader's turn.
enum Turn {
    /// It has something left.
    Running(Box<Campaign>),
    /// Its last shard was settled.
    Done,
    /// It does not run.
    Still,
}

fn running_or_done(rows: &mut dyn Rows, id: CampaignId) -> Result<Turn, JobsError> {
    let mut campaign = campaign_of(rows, id)?;
    if campaign.state != CampaignState::Running {
        return Ok(Turn::Still);
    }
    notices::bound_waiting(rows, &campaign)?;
    let_commit_go(rows, &campaign)?;
    if !is_settled(rows, id)? {
        return Ok(Turn::Running(Box::new(campaign)));
    }
    campaign.state = CampaignState::Done;
    rows.put_campaign(&campaign)?;
    notices::note_campaign(rows, &campaign)?;
    Ok(Turn::Done)
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
        let Some(campaign) = spare(campaign_of(rows, shard.campaign))? else { continue };
        permits::give_back(rows, shard.id, shard.claim)?;
        shard.tries.lapses = shard.tries.lapses.saturating_add(1);
        shard.state = match given_back(&campaign) {
            ShardState::Planned if shard.tries.lapses >= VAIN_MAX => ShardState::Held(Hold::Lapsed(shard.tries.lapses)),
            state => state,
        };
        rows.put_shard(&shard)?;
        if let ShardState::Held(_) = shard.state {
            notices::note_shard(rows, &campaign, &shard, (NoticeKind::Fault, Some(FaultCode::Lost)))?;
        }
    }
    Ok(lapsed.len() as u64)
}

/// Shards of campaigns on links that are ready, and whether others are planned there, as a turn
/// finds them.
type Standing = BTreeMap<(CampaignId, LinkId), (u64, bool)>;

fn standing<'a>(rows: &mut dyn Rows, campaigns: impl Iterator<Item = &'a Campaign>) -> Result<Standing, JobsError> {
    let mut standing = Standing::new();
    for campaign in campaigns {
        for sum in spare(rows.shard_sums(campaign.id))?.unwrap_or_default() {
            let (ready, is_planned) = standing.entry((campaign.id, sum.link)).or_default();
            match sum.kind {
                ShardKind::Ready => *ready += sum.shards,
                ShardKind::Planned => *is_planned = true,
                _ => {}
            }
        }
    }
    Ok(standing)
}

/// Ready shards of some campaigns on a link.
fn ready_of(standing: &Standing, campaigns: &[Campaign], link: &Link) -> u64 {
    campaigns.iter().filter_map(|campaign| standing.get(&(campaign.id, link.id))).map(|(ready, _)| ready).sum()
}

/// Makes shards of the campaigns of another owner ready on a link.
fn fill_of_owner(
    rows: &mut dyn Rows,
    link: &Link,
    (campaigns, before): (&[Campaign], &Standing),
    skipped: &mut BTreeSet<CampaignId>,
) -> Result<u64, JobsError> {
    let room = room_of(link).saturating_sub(ready_of(before, campaigns, link));
    let mut readied = fill(rows, link, (campaigns, room), skipped)?;
    // A campaign that nobody moves may have all of that room: each has one shard all the same.
    for campaign in campaigns {
        if before.get(&(campaign.id, link.id)) == Some(&(0, true)) {
            let alone = std::slice::from_ref(campaign);
            if ready_of(&standing(rows, alone.iter())?, alone, link) == 0 {
                readied += fill(rows, link, (alone, 1), skipped)?;
            }
        }
    }
    Ok(readied)
}

/// Shards that may be ready on a link at a time.
fn room_of(link: &Link) -> u64 {
    (u64::from(link.movers) * READY_FOR_PERMIT).min(READIED_AT_A_TURN)
}

/// A campaign that may have shards made ready on a link.
struct Contender<'a> {
    campaign: &'a Campaign,
    urgency: Urgency,
    /// The share of the link that it has used.
    used: u64,
}

/// Makes shards of some campaigns ready on a link, as far as there is room.
fn fill(
    rows: &mut dyn Rows,
    link: &Link,
    (running, room): (&[Campaign], u64),
    skipped: &mut BTreeSet<CampaignId>,
) -> Result<u64, JobsError> {
    let now = rows.now()?;
    let mut contenders = Vec::new();
    for campaign in running {
        let closed = link.rate_at(now).and(campaign.calendar.at(now)) == Allowance::Closed;
        if room == 0 || closed || skipped.contains(&campaign.id) {
            continue;
        }
        match spare(urgency(rows, campaign, link, now))? {
            Some(urgency) => {
                let used = rows.share_used(campaign.id, link.id)?;
                contenders.push(Contender { campaign, urgency, used });
            }
            None => {
                skipped.insert(campaign.id);
            }
        }
    }
    let mut readied = 0;
    while readied < room {
        let order = |of: &Contender| (of.urgency, Reverse(of.campaign.priority), of.used, of.campaign.id);
        let Some(next) = (0..contenders.len()).min_by_key(|index| order(&contenders[*index])) else { break };
        match spare(ready_next(rows, &mut contenders[next], link, now))? {
            Some(true) => readied += 1,
            Some(false) => {
                contenders.swap_remove(next);
            }
            None => {
                skipped.insert(contenders.swap_remove(next).campaign.id);
            }
        }
    }
    Ok(readied)
}

/// Makes the next shard of a campaign ready on a link. `false` if there is none.
fn ready_next(rows: &mut dyn Rows, of: &mut Contender, link: &Link, now: Micros) -> Result<bool, JobsError> {
    let campaign = of.campaign;
    let Some(mut shard) = rows.first_planned(campaign.id, link.id, Due::at(now, PAUSE_MAX))? else {
        return Ok(false);
    };
    let share = campaign.weight.share_of(shard.left()?.bytes);
    of.used = of.used.saturating_add(share).min(ROW_NUMBER_MAX);
    rows.put_share_used(campaign.id, link.id, of.used)?;
    shard.state = ShardState::Ready;
    shard.turn.rank = rows.next_number()?;
    rows.put_shard(&shard)?;
    Ok(true)
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
