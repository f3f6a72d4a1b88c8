//! The commit of a campaign whose files appear together: one more shard, without files, which is
//! claimed once every other shard is done.
//!
//! In: a campaign that is planned, and shards that are done. Out: the row of the commit, which is
//! held until then. It is claimed, beaten, finished and cancelled by the rules of any shard. Must
//! not know how anything appears.

use super::{campaign_of, link_of};
use crate::error::JobsError;
use crate::ids::{CampaignId, LinkId, ShardId};
use crate::rows::{Campaign, CampaignState, Hold, Shard, ShardKind, ShardState};
use crate::store::Rows;

/// Has all files of a campaign that is being planned appear together, by a commit over this link. A
/// campaign has one: asked again, it is the same.
///
/// # Errors
/// [`JobsError::WrongState`] if the campaign is planned already, [`JobsError::NoCampaign`],
/// [`JobsError::NoLink`], [`JobsError::Store`].
pub fn add_commit(rows: &mut dyn Rows, campaign: CampaignId, link: LinkId) -> Result<ShardId, JobsError> {
    let campaign = campaign_of(rows, campaign)?;
    if campaign.state != CampaignState::Planning {
        return Err(JobsError::WrongState { campaign: campaign.id, state: campaign.state.name() });
    }
    if let Some(commit) = rows.commit_of(campaign.id)? {
        return Ok(commit.id);
    }
    link_of(rows, link)?;
    let commit = Shard::commit(ShardId(rows.next_number()?), campaign.id, link);
    rows.put_shard(&commit)?;
    Ok(commit.id)
}

/// Lets the commit of a campaign go, if it waits for nothing any more.
pub(super) fn let_commit_go(rows: &mut dyn Rows, campaign: &Campaign) -> Result<(), JobsError> {
    let Some(mut commit) = rows.commit_of(campaign.id)? else { return Ok(()) };
    if commit.state != ShardState::Held(Hold::AwaitsShards) || !may_commit(rows, campaign)? {
        return Ok(());
    }
    commit.state = ShardState::Planned;
    rows.put_shard(&commit)
}

/// Whether every shard of a campaign but the commit is done, and every name of its sources is in
/// one of them.
pub(super) fn may_commit(rows: &mut dyn Rows, campaign: &Campaign) -> Result<bool, JobsError> {
    if campaign.omitted > 0 {
        return Ok(false);
    }
    for kind in ShardKind::ALL.into_iter().filter(|kind| *kind != ShardKind::Done) {
        // One of them may be the commit.
        let some = rows.shards(campaign.id, kind, ShardId(0), 2)?;
        if some.iter().any(|shard| !shard.part.is_commit()) {
            return Ok(false);
        }
    }
    Ok(true)
}
