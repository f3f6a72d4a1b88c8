//! The questions that a shard alone can answer; and the commit of a campaign, which is a shard
//! without files.
//!
//! In: the fields of a shard. Out: its lease, what is left of it, and whether it is a commit. Must
//! not know other rows.

use super::{Hold, Lease, Part, Shard, ShardNews, ShardState, ShardTurn, Tries};
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, Claim, LinkId, ROW_NUMBER_MAX, ShardId};

impl Part {
    /// The part of a campaign's commit, by which stores find it: no segment has this number.
    pub const COMMIT: Part = Part { segment: ROW_NUMBER_MAX, first: 0, end: 0 };

    /// Whether it is the commit of a campaign, and no entries.
    pub const fn is_commit(self) -> bool {
        self.segment == Part::COMMIT.segment
    }
}

impl Shard {
    /// A shard that was just cut.
    pub fn new(id: ShardId, campaign: CampaignId, link: LinkId, part: Part, total: Amount) -> Shard {
        let (state, tries, claim) = (ShardState::Planned, Tries::default(), Claim::default());
        let (done, failed) = (Amount::default(), Amount::default());
        let (turn, news) = (ShardTurn::default(), ShardNews::default());
        Shard { id, campaign, link, part, total, done, failed, state, turn, tries, claim, news }
    }

    /// The commit of a campaign, by which all of its files appear together. It waits until every
    /// other shard is done.
    pub fn commit(id: ShardId, campaign: CampaignId, link: LinkId) -> Shard {
        let state = ShardState::Held(Hold::AwaitsShards);
        Shard { state, ..Shard::new(id, campaign, link, Part::COMMIT, Amount::default()) }
    }

    /// The lease of a claim. `None` if the shard is not that claim's any more.
    pub fn lease_of(&self, claim: Claim) -> Option<Lease> {
        match self.state {
            ShardState::Leased(lease) if self.claim == claim => Some(lease),
            _ => None,
        }
    }

    /// The part of it that neither stands nor was given up.
    ///
    /// # Errors
    /// [`JobsError::Miscounted`] if there is more of both than the shard has.
    pub fn left(&self) -> Result<Amount, JobsError> {
        let counted = self.done.plus(self.failed).ok_or(JobsError::TooMuch("files of a shard"))?;
        let miscounted = || JobsError::Miscounted { shard: self.id, total: self.total, counted };
        self.total.minus(counted).ok_or_else(miscounted)
    }
}
