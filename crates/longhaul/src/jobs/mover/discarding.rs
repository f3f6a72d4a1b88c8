//! Removes what cancelled campaigns have staged in directories of this host, beside the shards that
//! are moved.
//!
//! In: the queue, every so often, and a word as a shard of a cancelled campaign ends. Out: what was
//! staged of such campaigns is gone once no mover has a shard of them. A campaign of owners that
//! are not trusted, or in a place that this mover does not serve, is left alone. Must not know how
//! anything is staged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Fault, FaultCode};
use longhaul_jobs::{Campaign, CampaignId, CampaignState, JobsError, Rows, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::session::{admit_ground, blocking};
use super::{Halt, Mover, halted, until};
use crate::jobs::discard::{Discarded, discard_staged, page_of};
use crate::jobs::families::ids_named;
use crate::jobs::signing::signed;
use crate::jobs::spec::CampaignSpec;

/// How long what cancelled campaigns have staged is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiscardPhase {
    /// For as long as shards are moved.
    Working,
    /// Once more.
    Ending,
}

/// The cancelled campaigns that a mover has looked at.
#[derive(Debug, Default)]
struct DiscardLooks {
    /// Nothing is staged of them here any more.
    through: BTreeSet<CampaignId>,
    /// The fault that was told last of each that could not be removed.
    told: BTreeMap<CampaignId, FaultCode>,
}

impl Mover {
    /// Removes what cancelled campaigns have staged here until the phase says that it is enough,
    /// and once more then.
    pub(super) async fn discard_cancelled(self: Arc<Self>, mut phase: watch::Receiver<DiscardPhase>) {
        let mut looked_at = DiscardLooks::default();
        loop {
            let now = *phase.borrow_and_update();
            self.discard_once(&mut looked_at).await;
            if now == DiscardPhase::Ending {
                return;
            }
            tokio::select! {
                changed = phase.changed() => if changed.is_err() { return },
                () = self.cancelled.notified() => {}
                () = sleep(DISCARD_EVERY) => {}
            }
        }
    }

    /// Looks at each cancelled campaign that is not through yet. Forgets those that are gone.
    async fn discard_once(&self, looked_at: &mut DiscardLooks) {
        let (known, orders) = (looked_at.through.clone(), self.orders.clone());
        let cancelled = self.queue.transact(move |rows| {
            let mut cancelled = Vec::new();
            let (all, named) = (rows.campaign_ids()?, ids_named(rows, &orders.names)?);
            let mut ids = all.clone();
            let only = &orders.campaigns;
            ids.retain(|id| !known.contains(id) && (only.is_empty() || only.contains(id)));
            for id in ids {
                let Some(campaign) = cancelled_of(rows, id)? else { continue };
                let is_meant = orders.names.is_empty() || named.contains(&id);
                if is_meant && orders.owners.admit(&campaign.name, signed(rows, &campaign)?).is_ok() {
                    cancelled.push(campaign);
                }
            }
            Ok((cancelled, all))
        });
        // A store that does not answer is told of by those who claim.
        let Ok((cancelled, all)) = cancelled.await else { return };
        looked_at.through.retain(|id| all.contains(id));
        looked_at.told.retain(|id, _| all.contains(id));
        for campaign in cancelled {
            let id = campaign.id;
            match self.discard(campaign).await {
                Ok(Discarded::InUse) => {}
                Ok(Discarded::Nothing | Discarded::Removed(_)) => _ = looked_at.through.insert(id),
                // It is tried again, as the next look may go well.
                Err(fault) => {
                    if looked_at.told.insert(id, fault.code) != Some(fault.code) {
                        self.observer.trouble(&fault);
                    }
                }
            }
        }
    }

    /// Removes what one of them has staged.
    ///
    /// # Errors
    /// Those of [`discard_staged`].
    async fn discard(&self, campaign: Campaign) -> Result<Discarded, Fault> {
        let commit = CampaignSpec::decode(&campaign.spec).ok().and_then(|spec| spec.commit());
        let Some(job) = commit else { return Ok(Discarded::Nothing) };
        if admit_ground(self, &job).await.is_err() {
            return Ok(Discarded::Nothing);
        }
        let (queue, id) = (self.queue.clone(), campaign.id);
        let discarding =
            blocking(move || discard_staged(&campaign, &mut |at| queue.store().transact(|rows| page_of(rows, id, at))));
        let discarded = discarding.await??;
        if let Discarded::Removed(removed) = discarded {
            let (files, bytes) = (removed.files, removed.bytes);
            tracing::info!(campaign = id.0, files, bytes, "what a cancelled campaign had staged is removed");
        }
        Ok(discarded)
    }
}

/// A campaign, if it is cancelled. A row that makes no sense is that of none.
fn cancelled_of(rows: &mut dyn Rows, id: CampaignId) -> Result<Option<Campaign>, JobsError> {
    match rows.campaign(id) {
        Err(error) if error.is_of_rows() => Ok(None),
        found => Ok(found?.filter(|campaign| campaign.state == CampaignState::Cancelled)),
    }
}

/// Has what is staged looked for once more, unless the mover halts before, or its time is over.
/// What halts it is given.
pub(super) async fn finish_discarding(
    (discarding, phase): (JoinHandle<()>, &watch::Sender<DiscardPhase>),
    deadline: Option<Instant>,
    halt: &mut Halt,
) -> Option<FaultCode> {
    phase.send_replace(DiscardPhase::Ending);
    tokio::select! {
        ended = discarding => {
            if let Err(error) = ended {
                tracing::debug!(%error, "what cancelled campaigns have staged is left to the next mover");
            }
            None
        }
        code = halted(halt) => Some(code),
        () = until(deadline) => None,
    }
}

/// Cancelled campaigns are looked for so often: another command may have cancelled one of which no
/// mover had a shard.
const DISCARD_EVERY: Duration = Duration::from_secs(60);
