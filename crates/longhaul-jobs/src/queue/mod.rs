//! The rules of the queue, each over the rows of one transaction.
//!
//! In: what planners, leaders, movers and users ask for. Out: rows that are written, and answers.
//! Must not know a backend: every rule is called within [`Store::transact`](crate::Store::transact)
//! and writes nothing before it has read all that it decides by.

mod add;
mod admit;
mod beat;
mod claim;
mod commit;
mod control;
mod finish;
mod notices;
mod permits;
mod rules;
mod schedule;
mod sites;
mod verify;

pub use add::{
    LinkLimits, NewCampaign, OMITTED_NAMES_MAX, SiteLimits, add_campaign, add_link, add_segment, add_site,
    begin_campaign, note_omitted, take_back_segments,
};
pub use admit::{Admission, AdmitAll, queue_id};
pub use beat::{Beat, BeatAnswer, Stopping, beat};
pub use claim::{Ask, Granted, claim, claim_among, raise};
pub use commit::{CommitRetried, add_commit, misses_files, retry_commit};
pub use control::{Selection, cancel, hold, release, retry};
pub use finish::{BreakPlace, FileFault, Finished, Outcome, Report, finish};
pub use notices::{NOTICE_TIME_MAX, NOTICES_MAX, TakenNotice, Telling, settle_notice, take_notice, take_notice_among};
pub use rules::{
    CampaignWish, Change, LinkFigures, LinkWish, link_between, link_figures, set_campaign, set_link, set_link_state,
};
pub use schedule::{Scheduled, lead, resign, schedule, schedule_among};
pub use sites::{SiteWish, hosts_of, set_site, site_named};
pub use verify::{
    BAD_FILES_MAX, FoundBad, VerifyAsk, VerifyFigures, VerifyHeard, VerifyNews, VerifyNext, VerifyShard, VerifyTurn,
    is_known_bad, note_verified, take_to_mend, take_to_verify, verify_figures,
};

use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, LinkId, Micros, ROW_NUMBER_MAX, ShardId};
use crate::rows::{BackOff, Campaign, CampaignState, Link, Shard, ShardState};
use crate::store::Rows;

fn campaign_of(rows: &mut dyn Rows, id: CampaignId) -> Result<Campaign, JobsError> {
    rows.campaign(id)?.ok_or(JobsError::NoCampaign(id))
}

fn link_of(rows: &mut dyn Rows, id: LinkId) -> Result<Link, JobsError> {
    rows.link(id)?.ok_or(JobsError::NoLink(id))
}

fn shard_of(rows: &mut dyn Rows, id: ShardId) -> Result<Shard, JobsError> {
    rows.shard(id)?.ok_or(JobsError::NoShard(id))
}

/// The progress of a claim: files that stand, and bytes that became durable. A shard that came
/// farther has not lapsed or broken anything since, and its link carries something. A commit comes
/// farther when it has read more than in any claim before; its link is well as soon as it reads
/// anything, unless it pauses, for a failure that came since this claim was given.
fn advance((shard, link): (&mut Shard, &mut Link), now: Micros, done: Amount, moved: u64) {
    let (done_before, moved_before) = (shard.done, shard.news.moved);
    shard.done = done_before.max_of_each(done);
    shard.news.moved = moved_before.max(moved.min(ROW_NUMBER_MAX));
    let bytes = shard.news.moved - moved_before;
    if bytes > 0 || shard.done != done_before {
        (shard.tries.lapses, shard.tries.breaks) = (0, 0);
        link.back_off = BackOff::default();
    } else if shard.part.is_commit() && moved > 0 && !link.pauses(now) {
        link.back_off = BackOff::default();
    }
    // A commit reads where the files are staged: nothing passes the link.
    link.progress(now, if shard.part.is_commit() { 0 } else { bytes });
}

/// The state of a shard that nobody has any more: what is left of a cancelled campaign is not
/// planned again.
fn given_back(campaign: &Campaign) -> ShardState {
    match campaign.state {
        CampaignState::Cancelled => ShardState::Cancelled,
        _ => ShardState::Planned,
    }
}

#[cfg(test)]
mod tests;
