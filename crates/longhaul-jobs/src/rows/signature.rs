//! The signature of a campaign, as a store keeps it.
//!
//! In: what an owner signed. Out: plain data. Must not know keys, nor how anything is signed or
//! checked: movers do that.

use longhaul_core::Hash32;

use crate::ids::{CampaignId, Micros};

/// The signatures of a campaign by its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignSignature {
    /// The campaign.
    pub campaign: CampaignId,
    /// The public key of its owner.
    pub owner: [u8; 32],
    /// The time at which the campaign was signed.
    pub at: Micros,
    /// The signature of what the campaign says.
    pub spec: [u8; 64],
    /// The signature of what it was planned as. `None`: it is not planned.
    pub manifest: Option<ManifestSignature>,
}

/// The signature of a campaign's manifests by its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestSignature {
    /// The digests of the manifests, one for each source, in their order.
    pub roots: Vec<Hash32>,
    /// The signature of them.
    pub signature: [u8; 64],
}
