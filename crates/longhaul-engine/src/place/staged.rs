//! Finds what a campaign has staged of its dataset in a directory of this host, for whoever gives
//! the campaign up.
//!
//! In: the directory, the dataset's name, the campaign, and the last claims that its queue gave
//! out. Out: whether a session has it; whether another queue goes on with it; and its removal. It
//! knows no queue and no connections: what is staged at a daemon is that one's to look after.

use std::collections::BTreeSet;
use std::path::Path;

use longhaul_core::{DatasetName, Fault, ShardClaim};
use longhaul_disk::{
    DatasetOrder, DatasetStage, DirectMode, FoundStage, FsTarget, IdleStage, Removed, Replace, ShardKey, Shelf,
    StagePart,
};

use crate::journals::Principal;

/// The answer to a look for what a campaign has staged.
#[derive(Debug)]
pub enum CampaignStage {
    /// Nothing of it is staged by this user.
    Nothing,
    /// A session has it.
    InUse,
    /// No session has it, and none begins while this is held.
    Idle(IdleCampaignStage),
}

/// A stage of a campaign that no session has. Dropping it changes nothing.
#[derive(Debug)]
pub struct IdleCampaignStage {
    stage: IdleStage,
    /// The shelf of the directory, which keeps the claims of shards.
    shelf: Shelf,
    campaign: [u8; 16],
}

/// Looks for what a campaign has staged as this user in a directory of this host. It makes nothing.
///
/// # Errors
/// The fault of a disk that cannot be looked at.
pub fn find_campaign_stage(dir: &Path, name: &DatasetName, campaign: [u8; 16]) -> Result<CampaignStage, Fault> {
    let who = Principal::local();
    // The part of it does not matter: all of a campaign's have one stage.
    let part = StagePart::Commit(campaign);
    let order = DatasetOrder { name, principal: &who.principal, replace: Replace::Never, part };
    Ok(match DatasetStage::find(dir, &order)? {
        FoundStage::Nothing => CampaignStage::Nothing,
        FoundStage::InUse => CampaignStage::InUse,
        FoundStage::Idle(stage) => {
            let shelf = FsTarget::open(dir, DirectMode::Buffered)?.shelf().clone();
            CampaignStage::Idle(IdleCampaignStage { stage, shelf, campaign })
        }
    })
}

impl IdleCampaignStage {
    /// The shards of the campaign on which the directory keeps claims. A queue that does not know
    /// one of them did not give out all that are kept.
    ///
    /// # Errors
    /// The fault of claims that cannot be read.
    pub fn kept_shards(&self) -> Result<BTreeSet<u64>, Fault> {
        Ok(self.shelf.kept_shards(self.campaign)?)
    }

    /// The first of these claims that the directory keeps a newer one of: a queue that gave out
    /// other claims moves the campaign too. `None`: the queue of these claims gave out all that are
    /// kept.
    ///
    /// # Errors
    /// The fault of claims that cannot be read.
    pub fn overtaken(&self, claims: &[ShardClaim]) -> Result<Option<ShardClaim>, Fault> {
        for claim in claims {
            let kept = self.shelf.kept(ShardKey { campaign: claim.campaign, shard: claim.shard })?;
            let is_newer =
                kept.is_some_and(|kept| kept.fence > claim.fence || kept.fence == claim.fence && kept.id != claim.id);
            if is_newer {
                return Ok(Some(*claim));
            }
        }
        Ok(None)
    }

    /// Removes all of it. What stays as this fails is found again.
    ///
    /// # Errors
    /// The fault of the disk.
    pub fn remove(self) -> Result<Removed, Fault> {
        Ok(self.stage.remove()?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_disk::TargetTree;

    use super::*;
    use crate::journals::presence::Presence;
    use crate::journals::{Doubts, RootJournals};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test stages a file directly")]
    fn a_stage_is_another_queues_where_a_claim_is_kept_that_this_one_did_not_give_out() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (name, campaign) = (DatasetName::new("run-7").expect("a name"), [7; 16]);
        let who = Principal::local();
        let part = StagePart::Shard(campaign);
        let order = DatasetOrder { name: &name, principal: &who.principal, replace: Replace::Never, part };
        let stage = DatasetStage::named(scratch.path(), order, Duration::ZERO).expect("staged");
        std::fs::create_dir(stage.tree().named().join("tree")).expect("made");
        std::fs::write(stage.tree().named().join("tree/f"), "text").expect("written");
        let dir = FsTarget::open(scratch.path(), DirectMode::Buffered).expect("a directory");
        let journals = RootJournals::new(dir.shelf().clone(), dir.layout(), &Doubts::default());
        let shown = ShardClaim { campaign, shard: 3, fence: 5, id: [1; 16] };
        drop(journals.claims().show(shown, &who, &std::sync::Arc::<Presence>::default()).expect("kept"));
        drop(stage);
        let found = find_campaign_stage(scratch.path(), &name, campaign).expect("looked at");
        let CampaignStage::Idle(idle) = found else { panic!("it is staged") };
        assert_eq!(idle.kept_shards().expect("read"), [3].into());
        let other = |fence, id| ShardClaim { fence, id: [id; 16], ..shown };
        for (claim, is_overtaken) in [
            (shown, false),
            (other(6, 2), false),
            (other(5, 2), true),
            (other(4, 1), true),
            (ShardClaim { shard: 4, ..other(0, 0) }, false),
        ] {
            let overtaken = idle.overtaken(&[claim]).expect("read");
            assert_eq!(overtaken.is_some(), is_overtaken, "{claim:?}");
        }
        assert_eq!(idle.remove().expect("removed").files, 1);
        let found = find_campaign_stage(scratch.path(), &name, campaign).expect("looked at");
        assert!(matches!(found, CampaignStage::Nothing), "{found:?}");
    }
}
