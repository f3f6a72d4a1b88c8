//! The orders of a verifier: how much it reads, how long, and which findings are none.
//!
//! In: a campaign's transfers. Out: plain data. Must not know how a file is read.

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::{ByteCount, Hash32};
use longhaul_jobs::{BadKind, Campaign, CampaignId};
use tokio::time::Instant;

use crate::jobs::spec::{CampaignPlace, CampaignSpec};

/// The orders of a verifier.
#[derive(Clone, Debug)]
pub struct VerifyOrders {
    /// The campaign.
    pub campaign: CampaignId,
    /// The directory of this host that is the campaign's destination. `None`: it is one of this
    /// host by its name.
    pub at: Option<PathBuf>,
    /// Each byte is read once in this time.
    pub cycle: Duration,
    /// The rate that is not exceeded, bytes/s. `None`: as fast as it goes.
    pub budget: Option<u64>,
    /// When it ends by itself.
    pub until: VerifyUntil,
    /// The time that a run may take: a file that takes longer at the budget is never through.
    /// `None`: any.
    pub time_max: Option<Duration>,
    /// When it stops reading: campaigns that are read one after the other share one run. `None`:
    /// never.
    pub deadline: Option<Instant>,
    /// The use of files that somebody wrote to.
    pub changed: ChangedUse,
    /// The use of shards of which nearly nothing can be read.
    pub absences: AbsenceUse,
    /// Buffers. `None`: the engine's.
    pub memory: Option<ByteCount>,
    /// How bad files are copied anew. `None`: they are only told.
    pub mend: Option<MendOrders>,
}

/// The orders to copy bad files anew.
#[derive(Clone, Debug)]
pub struct MendOrders {
    /// The kinds of bad files that are: lost or damaged. Nothing that was changed or cannot be read
    /// ever is.
    pub kinds: Vec<BadKind>,
    /// Trees with the names that the destination has. Each is asked for what those before it did
    /// not give. Empty: the campaign's own sources.
    pub from: Vec<CampaignPlace>,
    /// The transfers of the campaign as its owner signed them, whatever the queue says by now.
    pub spec: CampaignSpec,
    /// The campaign as the queue had it as the verifier began. Nothing is mended of one that has
    /// other transfers by now, or was cancelled since.
    pub begun: Campaign,
    /// The digests of the manifests that the owner signed, in the order of the sources. `None`:
    /// nobody has signed them.
    pub roots: Option<Vec<Hash32>>,
}

/// When a verifier ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyUntil {
    /// It does not: it waits until something is due.
    Never,
    /// Once nothing is due.
    NothingDue,
}

/// The use of files that have another length, time or kind than they were delivered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedUse {
    /// They are bad: somebody changed them.
    Bad,
    /// They are passed over: those who may do so replaced them.
    PassedOver,
}

/// The use of many files of a shard that are lost or cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsenceUse {
    /// The disk may not be mounted: nothing of them is recorded, and the shard is left alone for a
    /// while.
    Doubted,
    /// They are lost.
    Believed,
}
