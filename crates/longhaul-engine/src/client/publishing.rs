//! How a run publishes what it moves: by a claim, or all of it together.
//!
//! In: the job. Out: what the daemon is shown, and the wish for a dataset where this side receives.
//! It opens nothing.

use longhaul_core::{Blame, DatasetName, Fault, Role, ShardClaim};

use super::Run;
use super::connect::Dialling;
use crate::place::dataset::DatasetWish;
use crate::session::course::SendCourse;
use crate::session::handshake::Shown;

/// How a run publishes what it moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Publishing {
    /// The claim by which it publishes. `None`: it needs none.
    pub(crate) claim: Option<ShardClaim>,
    /// The name under which all files appear together. `None`: each appears when it is done.
    pub(crate) dataset: Option<DatasetName>,
}

impl Run {
    /// Whether all files appear together: sources go beneath the destination, whatever stands
    /// there.
    pub(super) fn is_dataset(&self) -> bool {
        self.publishing.dataset.is_some()
    }

    /// The dataset as which everything appears together where this side receives.
    pub(super) fn dataset_wish(&self) -> Option<DatasetWish> {
        let name = self.publishing.dataset.clone()?;
        Some(DatasetWish::new(name, self.settings.if_exists))
    }

    /// Gives what the daemon is shown around the hello. Where this side receives, its own directory
    /// keeps the claim, and a dataset is staged there.
    pub(super) fn shown(&self, role: Role, dialling: &Dialling) -> Shown {
        let (Publishing { claim, dataset }, grant) = (self.publishing.clone(), dialling.grant.clone());
        let none = Shown { grant, ..Shown::default() };
        if role == Role::Sender { Shown { claim, dataset, ..none } } else { none }
    }

    /// Ends a push whose dataset has appeared, as the `fault` of the daemon says, though it was not
    /// heard. Digests that were asked for may be lost: then the run ends with that fault.
    pub(super) fn has_appeared(&self, fault: &Fault, course: &mut SendCourse) {
        let unheard = course.has_appeared(&*self.observer);
        if unheard > 0 && self.settings.digests {
            let why = format_args!(
                "dataset '{}' has appeared, and the digests of {unheard} files were lost with the connection: the \
                 manifest in it has them",
                fault.object
            );
            course.totals.fault = Some(Fault::new(fault.code, Blame::Path, why).about(&fault.object));
        }
    }
}
