//! The campaigns that a mover passes over, as their signatures are not of owners that it trusts.
//!
//! In: campaigns that may be moved, within the transaction that reads them. Out: whether they are;
//! and each refusal once, to be told. A campaign that was refused is looked at again each time, so
//! that it goes on once its rows are right. Must not know what a signature is over.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::{Fault, Hash32, PlainText};
use longhaul_jobs::queue::Admission;
use longhaul_jobs::{Campaign, CampaignId, JobsError, Rows};

use crate::jobs::owners::{Owners, Refusal};
use crate::jobs::signing::signed;

/// The owners of a mover, and what it refused by them.
#[derive(Debug)]
pub(super) struct Admitting {
    owners: Owners,
    refused: Mutex<BTreeMap<CampaignId, Refused>>,
}

/// A campaign that is passed over.
#[derive(Debug)]
struct Refused {
    refusal: Refusal,
    fault: Fault,
    is_told: bool,
}

impl Admitting {
    /// Nothing is refused yet.
    pub(super) fn new(owners: Owners) -> Admitting {
        Admitting { owners, refused: Mutex::default() }
    }

    /// Whether a campaign is moved. Gives the digests of the manifests that its owner signed.
    ///
    /// # Errors
    /// Those of the store. The fault within is the reason why it is not moved.
    pub(super) fn admit(
        &self,
        rows: &mut dyn Rows,
        campaign: &Campaign,
    ) -> Result<Result<Option<Vec<Hash32>>, Fault>, JobsError> {
        let admitted = self.owners.admit(&campaign.name, signed(rows, campaign)?);
        let mut known = self.known();
        let refusal = match admitted {
            Ok(roots) => {
                known.remove(&campaign.id);
                return Ok(Ok(roots));
            }
            Err(refusal) => refusal,
        };
        let name = PlainText::from(campaign.name.as_str());
        let fault = refusal.fault(format_args!("this mover does not move the campaign '{name}'"));
        if known.get(&campaign.id).is_none_or(|before| before.refusal != refusal) {
            known.insert(campaign.id, Refused { refusal, fault: fault.clone(), is_told: false });
        }
        Ok(Err(fault))
    }

    /// The refusals that were not told yet.
    pub(super) fn untold(&self) -> Vec<Fault> {
        let mut known = self.known();
        let untold = known.values_mut().filter(|refused| !refused.is_told);
        untold
            .map(|refused| {
                refused.is_told = true;
                refused.fault.clone()
            })
            .collect()
    }

    /// The campaigns that are passed over and should be moved, with the reasons: these, or if none
    /// is given those of owners that are trusted. A campaign of others is no failure of this mover.
    pub(super) fn refused(&self, only: &[CampaignId]) -> Vec<(CampaignId, Fault)> {
        let known = self.known();
        let is_meant = |id: &CampaignId, refused: &Refused| match only {
            [] => !refused.refusal.is_of_others(),
            only => only.contains(id),
        };
        let meant = known.iter().filter(|(id, refused)| is_meant(id, refused));
        meant.map(|(id, refused)| (*id, refused.fault.clone())).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<CampaignId, Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission for Admitting {
    fn admits(&self, rows: &mut dyn Rows, campaign: &Campaign) -> Result<bool, JobsError> {
        Ok(self.admit(rows, campaign)?.is_ok())
    }
}

/// The campaigns that are admitted, but for some.
pub(super) struct AdmittedBut<'a> {
    /// The owners that are trusted.
    pub(super) admitting: &'a Admitting,
    /// The campaigns that are passed over all the same.
    pub(super) not: &'a [CampaignId],
}

impl Admission for AdmittedBut<'_> {
    fn admits(&self, rows: &mut dyn Rows, campaign: &Campaign) -> Result<bool, JobsError> {
        Ok(!self.not.contains(&campaign.id) && self.admitting.admits(rows, campaign)?)
    }
}
