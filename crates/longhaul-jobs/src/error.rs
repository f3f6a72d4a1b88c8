//! Everything that can fail here.
//!
//! In: the facts of a failure, and the error of a store beneath it. Out: one enum. Must not know
//! how it is said to users.

use std::error::Error;

use crate::ids::{Amount, CampaignId, LinkId, ShardId, SiteId};

/// A failure of the queue.
#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    /// The store failed, or was refused to be read.
    #[error("the queue's store failed: {source}")]
    Store {
        /// The error of the backend.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// There is no such campaign.
    #[error("there is no campaign {}", .0.0)]
    NoCampaign(CampaignId),
    /// A campaign of that name is there already.
    #[error("there is a campaign named '{0}' already")]
    NameTaken(String),
    /// A campaign needs a name that can be shown and typed.
    #[error("'{0}' cannot be the name of a campaign: it is empty, longer than 255 bytes or has control characters")]
    BadName(String),
    /// There is no such link.
    #[error("there is no link {}", .0.0)]
    NoLink(LinkId),
    /// There is no such site.
    #[error("there is no site {}", .0.0)]
    NoSite(SiteId),
    /// The site cannot be as it is wished.
    #[error("the site '{0}' cannot be so: {1}")]
    BadSite(String, &'static str),
    /// There is no such shard.
    #[error("there is no shard {}", .0.0)]
    NoShard(ShardId),
    /// The campaign is in a state in which this cannot be asked of it.
    #[error("campaign {} is {state}", .campaign.0)]
    WrongState {
        /// The campaign.
        campaign: CampaignId,
        /// The name of its state.
        state: &'static str,
    },
    /// Another planner of the campaign was stopped meanwhile, and took back what it had added.
    #[error("another planner of campaign {} was stopped, and took its segments back", .0.0)]
    PlanTakenBack(CampaignId),
    /// The store gives back something else than what was written to it, or than what was read
    /// before: somebody else writes to it too, and nothing is signed there.
    #[error("the queue gives back something else than what was written to it: {0}")]
    Altered(&'static str),
    /// A mover's figures do not add up to the shard.
    #[error(
        "shard {} has {} files with {} bytes, and {} files with {} bytes are accounted for",
        .shard.0, .total.files, .total.bytes, .counted.files, .counted.bytes
    )]
    Miscounted {
        /// The shard.
        shard: ShardId,
        /// Its files and bytes.
        total: Amount,
        /// The sum of what the mover reported.
        counted: Amount,
    },
    /// A mover named a failed file twice, or one that was given up before.
    #[error("shard {} has a failed file twice", .0.0)]
    NamedTwice(ShardId),
    /// A sum does not fit the numbers that a store keeps.
    #[error("the {0} are more than can be counted")]
    TooMuch(&'static str),
    /// A row says something that no rule writes.
    #[error("the queue's store has a row that nothing here wrote: {0}")]
    BadRow(&'static str),
}

impl JobsError {
    /// Whether it is the failure of single rows, beside which others are good.
    pub fn is_of_rows(&self) -> bool {
        matches!(self, JobsError::TooMuch(_) | JobsError::BadRow(_) | JobsError::Miscounted { .. })
    }

    /// The error of a backend.
    pub fn store(source: impl Error + Send + Sync + 'static) -> JobsError {
        JobsError::Store { source: Box::new(source) }
    }
}
