//! Removes what a cancelled campaign has staged of its dataset in a directory of this host.
//!
//! In: a campaign, and pages of its shards. Out: what is staged of it is gone, unless a session or
//! a mover's claim still has to do with it, or another queue goes on with the campaign. What is
//! staged at a daemon is left to that one. Must not know who asks.

use std::path::PathBuf;

use longhaul_core::{Blame, DatasetName, Fault, FaultCode, PlainText, ShardClaim};
use longhaul_engine::{CampaignStage, Removed, find_campaign_stage};
use longhaul_jobs::tenure::LEASE;
use longhaul_jobs::{
    Campaign, CampaignId, CampaignState, Due, JobsError, Lease, Micros, Rows, Shard, ShardId, ShardKind, ShardState,
};

use super::faults::fault_of_jobs;
use super::spec::{CampaignPlace, CampaignSpec};

/// The end of what a campaign has staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// Nothing is staged here, or the campaign is not cancelled.
    Nothing,
    /// A mover has a shard of it still, or a session has the stage: it is to be tried again.
    InUse,
    /// The files that were removed, and their bytes.
    Removed(Removed),
}

/// Shards of a campaign, and the time by the clock of its queue.
pub type ShardPage = (Vec<Shard>, Micros);

/// Shards of a campaign of one kind behind one, a thousand at most.
///
/// # Errors
/// Those of the store.
pub fn page_of(
    rows: &mut dyn Rows,
    campaign: CampaignId,
    (kind, after): (ShardKind, ShardId),
) -> Result<ShardPage, JobsError> {
    Ok((rows.shards(campaign, kind, after, SHARDS_OF_PAGE)?, rows.now()?))
}

/// The directory of this host in which a campaign stages its dataset, and the dataset's name.
/// `None`: it stages none, or at a daemon.
fn stage_of(campaign: &Campaign) -> Option<(PathBuf, DatasetName)> {
    // Whatever a spec says that this program cannot read, it did not stage.
    let spec = CampaignSpec::decode(&campaign.spec).ok()?;
    match (spec.to, spec.dataset) {
        (CampaignPlace::Here(dir), Some(name)) => Some((dir, name)),
        _ => None,
    }
}

/// Removes what a cancelled campaign has staged here as this user. `page` gives pages of its
/// shards, each in a transaction of its own ([`page_of`]). A mover's claim keeps it, as that may
/// begin a session yet; so does a claim at the destination that this queue did not give out. Where
/// the destination keeps none, nothing shows who has staged it, and it stays.
///
/// # Errors
/// Those of the queue, and of the disk; a fault of code superseded if another queue has the
/// campaign too, or may have it.
pub fn discard_staged(
    campaign: &Campaign,
    page: &mut dyn FnMut((ShardKind, ShardId)) -> Result<ShardPage, JobsError>,
) -> Result<Discarded, Fault> {
    let Some((dir, name)) = stage_of(campaign).filter(|_| campaign.state == CampaignState::Cancelled) else {
        return Ok(Discarded::Nothing);
    };
    let mut read = |at| page(at).map_err(|error| fault_of_jobs(&error));
    let (claimed, now) = read((ShardKind::Leased, ShardId(0)))?;
    if claimed.iter().any(|shard| is_claimed(shard, now)) {
        return Ok(Discarded::InUse);
    }
    let idle = match find_campaign_stage(&dir, &name, campaign.key.0)? {
        CampaignStage::Nothing => return Ok(Discarded::Nothing),
        CampaignStage::InUse => return Ok(Discarded::InUse),
        CampaignStage::Idle(idle) => idle,
    };
    let mut kept = idle.kept_shards()?;
    if kept.is_empty() {
        return Err(unclaimed(campaign));
    }
    for kind in ShardKind::ALL {
        let mut after = ShardId(0);
        loop {
            let (shards, _) = read((kind, after))?;
            let Some(last) = shards.last() else { break };
            after = last.id;
            shards.iter().for_each(|shard| _ = kept.remove(&shard.id.0));
            let claims: Vec<ShardClaim> = shards.iter().map(|shard| claim_of(campaign, shard)).collect();
            if let Some(claim) = idle.overtaken(&claims)? {
                return Err(of_another_queue(campaign, claim.shard));
            }
        }
    }
    // A queue of which this one is an older copy has planned it.
    if let Some(shard) = kept.first() {
        return Err(of_another_queue(campaign, *shard));
    }
    idle.remove().map(Discarded::Removed)
}

/// Whether a mover may still begin something by its claim.
fn is_claimed(shard: &Shard, now: Micros) -> bool {
    match shard.state {
        ShardState::Leased(Lease { until, .. }) => !Due::at(now, LEASE).has_passed(until),
        _ => false,
    }
}

/// The last claim of a shard that its queue gave out.
fn claim_of(campaign: &Campaign, shard: &Shard) -> ShardClaim {
    ShardClaim { campaign: campaign.key.0, shard: shard.id.0, fence: shard.claim.fence.0, id: shard.claim.id.0 }
}

fn of_another_queue(campaign: &Campaign, shard: u64) -> Fault {
    let why = "that this queue did not give out, so that another queue has the campaign too";
    stays(campaign, format_args!("the destination keeps a claim on shard {shard} {why}"))
}

/// The fault of a stage where no claims are kept: its file system has no locks, or it stands for so
/// long that they went.
fn unclaimed(campaign: &Campaign) -> Fault {
    stays(campaign, "the destination keeps no claims of the campaign, so that another queue may have it too")
}

fn stays(campaign: &Campaign, why: impl std::fmt::Display) -> Fault {
    let name = PlainText::from(campaign.name.as_str());
    let message = format_args!("what the campaign '{name}' has staged is not removed: {why}");
    let fault = Fault::new(FaultCode::Superseded, Blame::Local, message);
    fault.hint_in_words("if no other queue goes on with it, remove the directory '.longhaul-dataset-*' by hand")
}

/// Shards that are read at a time.
const SHARDS_OF_PAGE: usize = 1000;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test makes directories of its own")]
mod tests {
    use longhaul_core::RelPath;
    use longhaul_engine::Settings;
    use longhaul_jobs::queue::{NewCampaign, add_campaign, cancel};
    use longhaul_jobs::{Amount, CampaignKey, Claim, ClaimId, Fence, LinkId, Memory, MoverId, Part, Store};

    use super::*;
    use crate::jobs::spec::{CampaignSource, ShardBounds};

    const KEY: CampaignKey = CampaignKey([7; 16]);

    /// A queue with a campaign that stages its dataset in a directory, and has one shard.
    struct OneStaged {
        store: Memory,
        id: CampaignId,
    }

    impl OneStaged {
        fn new(dir: &std::path::Path) -> OneStaged {
            let source = CampaignSource { top: CampaignPlace::Here("/from".into()), only: None, onto: RelPath::root() };
            let to = CampaignPlace::Here(dir.to_owned());
            let spec = CampaignSpec::new(vec![source], to, Settings::default(), ShardBounds::default());
            let spec = spec.as_dataset(Some(DatasetName::new("run-7").unwrap())).encode().unwrap();
            let mut store = Memory::at(Micros(1_000_000_000_000));
            let new = NewCampaign { key: KEY, name: "night".to_owned(), spec, ..NewCampaign::default() };
            let id = store.transact(|rows| add_campaign(rows, &new)).unwrap();
            OneStaged { store, id }
        }

        fn put(&mut self, state: ShardState, fence: u64) {
            let part = Part { segment: 0, first: 0, end: 0 };
            let mut shard = Shard::new(ShardId(1), self.id, LinkId(1), part, Amount::default());
            (shard.state, shard.claim) = (state, Claim { fence: Fence(fence), id: ClaimId([1; 16]) });
            self.store.transact(|rows| rows.put_shard(&shard)).unwrap();
        }

        fn discard(&mut self) -> Result<Discarded, Fault> {
            let id = self.id;
            let campaign = self.store.transact(|rows| rows.campaign(id)).unwrap().unwrap();
            let store = &mut self.store;
            discard_staged(&campaign, &mut |at| store.transact(|rows| page_of(rows, id, at)))
        }
    }

    #[test]
    fn nothing_is_removed_of_a_campaign_that_goes_on_or_that_a_mover_has_a_shard_of() {
        let dir = tempfile::tempdir().unwrap();
        let mut staged = OneStaged::new(dir.path());
        assert_eq!(staged.discard().unwrap(), Discarded::Nothing, "it is not cancelled");
        let id = staged.id;
        staged.store.transact(|rows| cancel(rows, id)).unwrap();
        let until = staged.store.now.plus(LEASE);
        staged.put(ShardState::Leased(Lease { mover: MoverId([1; 16]), until }), 3);
        assert_eq!(staged.discard().unwrap(), Discarded::InUse);
        staged.store.now = until.plus(LEASE);
        assert_eq!(staged.discard().unwrap(), Discarded::Nothing, "its mover is gone, and nothing is staged");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a look makes nothing");
    }
}
