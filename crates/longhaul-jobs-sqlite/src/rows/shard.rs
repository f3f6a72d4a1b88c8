//! The rows of shards, of which commits of campaigns are some.
//!
//! In: a shard, or a campaign. Out: its row, written or read. Must not know a rule.

use longhaul_jobs::columns::{number, number_of_kind, text_of_hold};
use longhaul_jobs::{CampaignId, Part, Shard, ShardState};
use rusqlite::params;

use super::{Answer, SqliteRows};

/// The columns of a shard, in the order in which they are read.
pub(super) const SHARD: &str = "id, campaign, link, segment, entry_first, entry_end, files, bytes, done_files, \
    done_bytes, \
    failed_files, failed_bytes, state, mover, lease_until, hold, rank, not_before, again, lapses, breaks, \
    fence, claim, moved, judged, unclaimed";

/// The number of no segment, by which the commit of a campaign is found.
const COMMIT: u64 = Part::COMMIT.segment;

impl SqliteRows<'_> {
    /// Writes a shard.
    pub(super) fn write_shard(&self, shard: &Shard) -> Answer<()> {
        let (lease, hold) = match shard.state {
            ShardState::Leased(lease) => (Some(lease), None),
            ShardState::Held(hold) => (None, Some(text_of_hold(hold))),
            _ => (None, None),
        };
        let statement = format!(
            "INSERT OR REPLACE INTO shard ({SHARD}) VALUES
            (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        );
        self.write(
            &statement,
            params![
                number(shard.id.0)?,
                number(shard.campaign.0)?,
                number(shard.link.0)?,
                number(shard.part.segment)?,
                number(shard.part.first)?,
                number(shard.part.end)?,
                number(shard.total.files)?,
                number(shard.total.bytes)?,
                number(shard.done.files)?,
                number(shard.done.bytes)?,
                number(shard.failed.files)?,
                number(shard.failed.bytes)?,
                number_of_kind(shard.state.kind()),
                lease.map(|lease| lease.mover.0),
                lease.map(|lease| number(lease.until.0)).transpose()?,
                hold,
                number(shard.turn.rank)?,
                number(shard.turn.not_before.0)?,
                shard.tries.again,
                shard.tries.lapses,
                shard.tries.breaks,
                number(shard.claim.fence.0)?,
                shard.claim.id.0,
                number(shard.news.moved)?,
                shard.news.judged,
                shard.news.unclaimed,
            ],
        )
    }

    /// The commit of a campaign.
    pub(super) fn read_commit(&self, campaign: CampaignId) -> Answer<Option<Shard>> {
        let statement = format!("SELECT {SHARD} FROM shard WHERE campaign = ? AND segment = {COMMIT}");
        self.one(&statement, params![number(campaign.0)?], |columns| columns.shard())
    }
}
