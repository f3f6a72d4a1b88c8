//! How a run publishes what it moves: by a claim, or all of it together.
//!
//! In: the job. Out: what the daemon is shown, and the wish for a dataset where this side receives.
//! It opens nothing.

use longhaul_core::{DatasetName, ShardClaim};

use super::Run;
use crate::place::dataset::DatasetWish;

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
}
