//! Metadata that a run was to carry over and could not keep, as observers hear of it.
//!
//! In: from the totals of a run. Out: with an event at its end. Plain data.

use longhaul_core::{LossKind, LossReason, RelPath};
use serde::{Deserialize, Serialize};

/// Metadata of one kind that could not be kept for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataLoss {
    /// The side at which it was lost.
    pub at: LossAt,
    /// The kind of metadata.
    pub kind: LossKind,
    /// The reason.
    pub reason: LossReason,
    /// The number of entries.
    pub entries: u64,
    /// The first of them: its path beneath the destination.
    pub first: RelPath,
}

/// The side at which metadata is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LossAt {
    /// It could not be read, or may not travel.
    Source,
    /// It could not be set, or is not taken.
    Destination,
}
