//! Changes by users: campaigns that are held, released or cancelled, and faults that are tried
//! again.
//!
//! In: a campaign. Out: its rows, changed. Movers hear of it with their next heartbeat.
//! Must not know who asks, nor whether that one may.

use longhaul_core::FaultCode;

use super::add::join_running;
use super::{campaign_of, notices};
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, ShardId};
use crate::rows::{Campaign, CampaignState, FaultState, Hold, ShardKind, ShardState, Tries};
use crate::store::Rows;

/// Faults that are to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All that were given up.
    All,
    /// Faults with this code.
    Code(FaultCode),
}

/// Shards that are read at a time, to be changed.
const CHANGED_AT_A_TIME: usize = 1000;

/// Holds a campaign: nothing of it begins, and its movers stop in order.
///
/// # Errors
/// [`JobsError::WrongState`] unless it runs or is held, [`JobsError::NoCampaign`],
/// [`JobsError::Store`].
pub fn hold(rows: &mut dyn Rows, id: CampaignId) -> Result<(), JobsError> {
    let mut campaign = campaign_of(rows, id)?;
    match campaign.state {
        CampaignState::Held => return Ok(()),
        CampaignState::Running => campaign.state = CampaignState::Held,
        _ => return Err(wrong_state(&campaign)),
    }
    rows.put_campaign(&campaign)?;
    change_shards(rows, id, ShardKind::Ready, ShardState::Planned)
}

/// Releases a campaign, and each of its shards that is held. One whose files fail alike is not held
/// for that again: those of its files that can be moved are.
///
/// # Errors
/// [`JobsError::WrongState`] unless it runs or is held, [`JobsError::NoCampaign`],
/// [`JobsError::Store`].
pub fn release(rows: &mut dyn Rows, id: CampaignId) -> Result<(), JobsError> {
    let mut campaign = campaign_of(rows, id)?;
    match campaign.state {
        CampaignState::Running => {}
        CampaignState::Held => join_running(rows, &mut campaign)?,
        _ => return Err(wrong_state(&campaign)),
    }
    rows.put_campaign(&campaign)?;
    change_shards(rows, id, ShardKind::Held, ShardState::Planned)
}

/// Cancels a campaign for good. What stands at its destinations stays.
///
/// # Errors
/// [`JobsError::WrongState`] if it is done, [`JobsError::NoCampaign`], [`JobsError::Store`].
pub fn cancel(rows: &mut dyn Rows, id: CampaignId) -> Result<(), JobsError> {
    let mut campaign = campaign_of(rows, id)?;
    match campaign.state {
        CampaignState::Cancelled => return Ok(()),
        CampaignState::Done => return Err(wrong_state(&campaign)),
        _ => campaign.state = CampaignState::Cancelled,
    }
    rows.put_campaign(&campaign)?;
    for kind in [ShardKind::Planned, ShardKind::Ready, ShardKind::Held] {
        change_shards(rows, id, kind, ShardState::Cancelled)?;
    }
    notices::note_campaign(rows, &campaign)
}

/// Has faults tried again that were given up, of the settled shards behind `after`, a thousand at
/// most. Gives the files, and the shard to go on behind; `None` there if that was the last one.
///
/// # Errors
/// [`JobsError::WrongState`] if the campaign is cancelled or still planned,
/// [`JobsError::NoCampaign`], [`JobsError::Store`].
pub fn retry(
    rows: &mut dyn Rows,
    id: CampaignId,
    selection: Selection,
    after: ShardId,
) -> Result<(u64, Option<ShardId>), JobsError> {
    let mut campaign = campaign_of(rows, id)?;
    if matches!(campaign.state, CampaignState::Cancelled | CampaignState::Planning) {
        return Err(wrong_state(&campaign));
    }
    let shards = rows.shards(id, ShardKind::Partial, after, CHANGED_AT_A_TIME)?;
    let last = shards.last().filter(|_| shards.len() == CHANGED_AT_A_TIME).map(|shard| shard.id);
    let mut files = 0;
    for mut shard in shards {
        let before = files;
        for mut fault in rows.faults_of(shard.id)? {
            let chosen = selection == Selection::All || selection == Selection::Code(fault.code);
            if !chosen || fault.state != FaultState::GivenUp {
                continue;
            }
            let amount = Amount { files: 1, bytes: fault.bytes };
            shard.failed =
                shard.failed.minus(amount).ok_or(JobsError::BadRow("a shard has fewer failed files than rows"))?;
            (fault.state, fault.tries) = (FaultState::Waiting, 0);
            rows.put_fault(&fault)?;
            files += 1;
        }
        if files > before {
            shard.state = ShardState::Planned;
            shard.tries = Tries::default();
            rows.put_shard(&shard)?;
        }
    }
    if files > 0 && campaign.state == CampaignState::Done {
        join_running(rows, &mut campaign)?;
        rows.put_campaign(&campaign)?;
    }
    Ok((files, last))
}

fn change_shards(
    rows: &mut dyn Rows,
    campaign: CampaignId,
    kind: ShardKind,
    state: ShardState,
) -> Result<(), JobsError> {
    let mut after = ShardId(0);
    loop {
        let shards = rows.shards(campaign, kind, after, CHANGED_AT_A_TIME)?;
        let Some(last) = shards.last() else { return Ok(()) };
        after = last.id;
        for mut shard in shards {
            if shard.state == ShardState::Held(Hold::AwaitsShards) && state == ShardState::Planned {
                // No user lets it go: the last of the other shards does.
                continue;
            }
            if kind == ShardKind::Held {
                shard.tries = Tries::default();
                shard.news.moved = 0;
                shard.news.judged |= matches!(shard.state, ShardState::Held(Hold::Alike { .. }));
            }
            shard.state = state;
            rows.put_shard(&shard)?;
        }
    }
}

fn wrong_state(campaign: &Campaign) -> JobsError {
    JobsError::WrongState { campaign: campaign.id, state: campaign.state.name() }
}
