//! The places of a campaign that is mended: its destination, and its dataset in that.
//!
//! In: the orders of a verifier. Out: plain places and paths. Touches no disk, and must not know
//! candidates.

use std::path::PathBuf;

use longhaul_core::{Blame, Fault, FaultCode, PathError, RelPath};

use crate::jobs::spec::{CampaignPlace, beneath};
use crate::jobs::verify::Verifier;
use crate::jobs::verify::orders::MendOrders;

impl Verifier {
    /// The campaign's destination.
    pub(super) fn destination(&self, orders: &MendOrders) -> CampaignPlace {
        self.orders.at.clone().map_or_else(|| orders.spec.to.clone(), CampaignPlace::Here)
    }

    /// The directory of this host that is the campaign's dataset. `None`: its files appeared one by
    /// one, or the dataset is at a daemon.
    ///
    /// # Errors
    /// As [`dataset_name`].
    pub(super) fn dataset_here(&self, orders: &MendOrders) -> Result<Option<PathBuf>, Fault> {
        let CampaignPlace::Here(dest) = self.destination(orders) else { return Ok(None) };
        Ok(dataset_name(orders)?.map(|name| beneath(&dest, &name)))
    }
}

/// The name of the campaign's dataset, as a path.
///
/// # Errors
/// The fault of a name that is no path.
pub(super) fn dataset_name(orders: &MendOrders) -> Result<Option<RelPath>, Fault> {
    let name = orders.spec.dataset.as_ref().map(|name| RelPath::new(name.as_bytes()));
    name.transpose().map_err(unfit)
}

/// The fault of a path that no transfer takes.
pub(super) fn unfit(error: PathError) -> Fault {
    Fault::new(FaultCode::Usage, Blame::Local, error)
}
