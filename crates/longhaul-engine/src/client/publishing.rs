//! How a run publishes what it moves: by a claim, or all of it together.
//!
//! In: the job. Out: what the daemon is shown, and the wish for a dataset where this side receives.
//! It opens nothing.

use longhaul_core::{Blame, DatasetName, DatasetPart, Fault, Role, ShardClaim};

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
    /// The part of a campaign's dataset that it brings. `None`: all of it.
    pub(crate) part: Option<DatasetPart>,
}

impl Run {
    /// Whether all files appear together: sources go beneath the destination, whatever stands
    /// there.
    pub(super) fn is_dataset(&self) -> bool {
        self.publishing.dataset.is_some()
    }

    /// Whether all files appear together at the end of the run, which lists them. Those of a shard
    /// do not.
    pub(super) fn is_listed_dataset(&self) -> bool {
        self.is_dataset() && !matches!(self.publishing.part, Some(DatasetPart::Shard { .. }))
    }

    /// The dataset as which everything appears together where this side receives.
    pub(super) fn dataset_wish(&self) -> Option<DatasetWish> {
        let name = self.publishing.dataset.clone()?;
        Some(DatasetWish::new(name, self.settings.if_exists).in_part(self.publishing.part.clone()))
    }

    /// Gives what the daemon is shown around the hello. Where this side receives, its own directory
    /// keeps the claim, and a dataset is staged there.
    pub(super) fn shown(&self, role: Role, dialling: &Dialling) -> Shown {
        let (Publishing { claim, dataset, part }, grant) = (self.publishing.clone(), dialling.grant.clone());
        let none = Shown { grant, ..Shown::default() };
        if role == Role::Sender { Shown { claim, dataset, part, ..none } } else { none }
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
