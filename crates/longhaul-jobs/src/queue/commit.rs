//! The commit of a campaign whose files appear together: one more shard, without files, which is
//! claimed once every other shard is done.
//!
//! In: a campaign that is planned, and shards that are done. Out: the row of the commit, which is
//! held until then. It is claimed, beaten, finished and cancelled by the rules of any shard. Must
//! not know how anything appears.

use longhaul_core::FaultCode;

use super::control::Selection;
use super::{campaign_of, link_of};
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, LinkId, ShardId};
use crate::rows::{Campaign, CampaignState, Hold, Shard, ShardKind, ShardState, Tries};
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

/// Whether a commit that was held with this fault did not find all files as they were delivered.
pub const fn misses_files(code: FaultCode) -> bool {
    use FaultCode::{Changed, Incomplete, Mismatch, NotFound, Vanished};
    matches!(code, Incomplete | Changed | Vanished | NotFound | Mismatch)
}

/// The turn that a commit takes that is to be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitRetried {
    /// The state that the commit has now. `None`: it is as it was, since it was not held with such
    /// a fault, or as there are shards to go on behind.
    pub state: Option<ShardState>,
    /// Files that are moved again, for their commit to find them.
    pub files: u64,
    /// The shard to go on behind. `None`: that was the last one.
    pub next: Option<ShardId>,
}

/// Has a commit tried again that was held with a fault. If it did not find all files where they are
/// staged, the shards of its campaign are moved again, a thousand of those behind `after` at most:
/// files that stand there as they shall are compared, and not sent; and the commit waits for them
/// again.
///
/// # Errors
/// [`JobsError::WrongState`] if the campaign is cancelled or still planned,
/// [`JobsError::NoCampaign`], [`JobsError::Store`].
pub fn retry_commit(
    rows: &mut dyn Rows,
    id: CampaignId,
    selection: Selection,
    after: ShardId,
) -> Result<CommitRetried, JobsError> {
    let campaign = campaign_of(rows, id)?;
    if matches!(campaign.state, CampaignState::Cancelled | CampaignState::Planning) {
        return Err(JobsError::WrongState { campaign: campaign.id, state: campaign.state.name() });
    }
    let as_it_was = CommitRetried::default();
    let Some(mut commit) = rows.commit_of(id)? else { return Ok(as_it_was) };
    let ShardState::Held(Hold::Broken(code)) = commit.state else { return Ok(as_it_was) };
    if selection != Selection::All && selection != Selection::Code(code) {
        return Ok(as_it_was);
    }
    (commit.tries, commit.news.moved) = (Tries::default(), 0);
    if !misses_files(code) {
        commit.state = ShardState::Planned;
        rows.put_shard(&commit)?;
        return Ok(CommitRetried { state: Some(commit.state), ..as_it_was });
    }
    let shards = rows.shards(id, ShardKind::Done, after, AGAIN_AT_A_TIME)?;
    let last = shards.last().filter(|_| shards.len() == AGAIN_AT_A_TIME).map(|shard| shard.id);
    let mut files = 0;
    for mut shard in shards {
        files += shard.done.files;
        (shard.state, shard.tries, shard.done) = (ShardState::Planned, Tries::default(), Amount::default());
        rows.put_shard(&shard)?;
    }
    if last.is_some() {
        // Until the last page it is held as before: a call that is cut off is made again.
        return Ok(CommitRetried { state: None, files, next: last });
    }
    commit.state = ShardState::Held(Hold::AwaitsShards);
    rows.put_shard(&commit)?;
    let_commit_go(rows, &campaign)?;
    let state = rows.commit_of(id)?.map(|commit| commit.state);
    Ok(CommitRetried { state, files, next: None })
}

/// Shards that are planned again at a time.
const AGAIN_AT_A_TIME: usize = 1000;

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
