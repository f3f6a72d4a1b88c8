//! The claim by which a shard is moved: which one the queue's row has now, and what a destination's
//! answer to it means.
//!
//! In: the claim that was granted, and the fault that ended a transfer. Out: the claim that the
//! next transfer shows, raised above a fence that the destination keeps. Must not know files.

use longhaul_core::{Fault, FaultCode, ShardClaim};
use longhaul_engine::Job;
use longhaul_jobs::queue::{Granted, raise};
use longhaul_jobs::{CampaignKey, Claim, ClaimId, Fence, JobsError, ShardId};
use tokio::sync::{Mutex, MutexGuard};

use super::{Mover, random_id};

/// The claim of a shard that is in hand. Whoever names it to the queue holds it for so long: it is
/// not raised in between.
pub(super) struct ClaimInHand {
    campaign: CampaignKey,
    shard: ShardId,
    claim: Mutex<Claim>,
}

/// How the transfers of a shard go about its claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimShowing {
    /// The destination keeps no claims, and is shown none.
    pub(super) goes_without: bool,
    /// Without a claim nobody knows whose dataset the shard is of.
    is_needed: bool,
    raises: u32,
}

/// The step behind a transfer that a fault has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimStep {
    /// The fault is none of the claim: the shard ends with it.
    End,
    /// The claim is raised above this fence, and shown again.
    Raise(Fence),
    /// The transfer is begun again without a claim.
    GoWithout,
}

impl ClaimInHand {
    /// The claim that was granted.
    pub(super) fn of(granted: &Granted) -> ClaimInHand {
        let (campaign, shard) = (granted.campaign.key, granted.shard.id);
        ClaimInHand { campaign, shard, claim: Mutex::new(granted.shard.claim) }
    }

    /// The claim that the queue's row has, for as long as it is held.
    pub(super) async fn hold(&self) -> MutexGuard<'_, Claim> {
        self.claim.lock().await
    }

    /// The claim as a destination is shown it.
    pub(super) async fn shown(&self) -> ShardClaim {
        let Claim { fence, id } = *self.hold().await;
        ShardClaim { campaign: self.campaign.0, shard: self.shard.0, fence: fence.0, id: id.0 }
    }

    /// Raises it above the fence that the destination keeps. `false`: the shard is this mover's no
    /// more. It goes over the connection of heartbeats, which wait for it.
    ///
    /// # Errors
    /// Those of the queue, and a system without random numbers.
    pub(super) async fn raise(&self, mover: &Mover, kept: Fence) -> Result<bool, JobsError> {
        let (mut claim, fresh) = (self.hold().await, ClaimId(random_id()?));
        let refused = (self.shard, *claim);
        let raised = mover.queue.transact_beat(move |rows| raise(rows, refused, kept, fresh)).await?;
        if let Some(raised) = raised {
            *claim = raised;
        }
        Ok(raised.is_some())
    }
}

impl ClaimShowing {
    /// The way of the transfers of a shard that this job begins.
    pub(super) fn of(job: &Job) -> ClaimShowing {
        ClaimShowing { is_needed: job.dataset.is_some(), ..ClaimShowing::default() }
    }

    /// The step behind a fault, where a claim was kept in any transfer or in none.
    ///
    /// A claim that is refused before anything began was given out by a queue that is behind the
    /// destination: it is raised. So it is if the destination keeps it no more, or keeps it for
    /// another session. A higher one that came while this one was moving is another mover's, which
    /// is left the shard: each would else end the other's session for ever.
    pub(super) fn behind(&mut self, fault: &Fault, shown: ShardClaim, begun: Begun) -> ClaimStep {
        match fault.code {
            FaultCode::Superseded if !self.goes_without => match fault.kept_fence() {
                Some(kept) if (begun == Begun::No || kept == shown.fence) && self.raises < RAISES_MAX => {
                    self.raises += 1;
                    ClaimStep::Raise(Fence(kept))
                }
                _ => ClaimStep::End,
            },
            // Whether it is for the claim is told by the try without one.
            FaultCode::Unsupported if begun == Begun::No && !self.goes_without && !self.is_needed => {
                self.goes_without = true;
                ClaimStep::GoWithout
            }
            _ => ClaimStep::End,
        }
    }
}

/// Whether a destination has kept a claim of the shard in any transfer. A session that was agreed
/// on is no sign of it: a directory of this host is shown the claim only when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// None.
    No,
    /// One at least.
    Yes,
}

/// Times that a mover raises a claim before it leaves the shard to whoever is ahead of it.
const RAISES_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use longhaul_core::Blame;

    use super::*;

    const SHOWN: ShardClaim = ShardClaim { campaign: [1; 16], shard: 2, fence: 5, id: [3; 16] };

    fn refused(kept: u64) -> Fault {
        Fault::superseded(&SHOWN, kept, "a newer claim is kept")
    }

    #[test]
    fn a_claim_is_raised_where_it_is_refused_and_left_to_a_newer_one_that_came_later() {
        let behind = |kept, begun| ClaimShowing::default().behind(&refused(kept), SHOWN, begun);
        assert_eq!(behind(9, Begun::No), ClaimStep::Raise(Fence(9)));
        assert_eq!(behind(5, Begun::No), ClaimStep::Raise(Fence(5)), "the fence was given out twice");
        assert_eq!(behind(5, Begun::Yes), ClaimStep::Raise(Fence(5)), "somebody removed it");
        assert_eq!(behind(9, Begun::Yes), ClaimStep::End);
        let mut showing = ClaimShowing::default();
        for raise in 0..=RAISES_MAX {
            let step = showing.behind(&refused(9), SHOWN, Begun::No);
            assert_eq!(step == ClaimStep::End, raise == RAISES_MAX, "{raise}: {step:?}");
        }
    }

    #[test]
    fn a_destination_that_keeps_no_claims_is_asked_once_more_without_one() {
        let unsupported = Fault::new(FaultCode::Unsupported, Blame::Peer, "a target set keeps no claims");
        let mut showing = ClaimShowing::default();
        assert_eq!(showing.behind(&unsupported, SHOWN, Begun::Yes), ClaimStep::End);
        assert_eq!(showing.behind(&unsupported, SHOWN, Begun::No), ClaimStep::GoWithout);
        assert!(showing.goes_without);
        let mut needed = ClaimShowing { is_needed: true, ..ClaimShowing::default() };
        assert_eq!(needed.behind(&unsupported, SHOWN, Begun::No), ClaimStep::End, "a dataset is staged by a claim");
        assert_eq!(showing.behind(&unsupported, SHOWN, Begun::No), ClaimStep::End, "it was not for the claim");
        assert_eq!(showing.behind(&refused(9), SHOWN, Begun::No), ClaimStep::End, "none was shown");
    }
}
