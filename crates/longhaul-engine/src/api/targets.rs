//! The figures of the targets of a destination that has several, each second and at the end.
//!
//! In: from the receiving session. Out: to an observer. Plain data.

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::{Latency, RelPath, TargetId};
use serde::{Deserialize, Serialize};

/// The figures of one target at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetFigures {
    /// Its number.
    pub target: TargetId,
    /// Its directory, as the operator named it. Empty for a target of the other side, which does
    /// not tell.
    pub dir: PathBuf,
    /// Bytes per second written there since the event before.
    pub bytes_per_s: u64,
    /// Bytes per second while it was busy, recent times counting most. `None`: not known yet.
    pub busy_bytes_per_s: Option<u64>,
    /// Bytes of requests that wait or are under way.
    pub queued_bytes: u64,
    /// Requests that wait or are under way.
    pub queued: u64,
    /// Quantiles of the latency of its recent requests. `None` before the first.
    pub latency: Option<Latency>,
    /// Its share of the bytes written on all targets since the event before, 0 to 1.
    pub share: f64,
    /// How it does beside its siblings.
    pub state: TargetState,
}

/// A target that was slow, full or failed for some time of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TroubledTarget {
    /// Its number.
    pub target: TargetId,
    /// Its directory, as the operator named it. Empty for a target of the other side, which does
    /// not tell.
    pub dir: PathBuf,
    /// Seconds for which it was [`TargetState::Slow`].
    pub slow_s: f64,
    /// Seconds for which it was [`TargetState::Full`].
    pub full_s: f64,
    /// Seconds for which it was [`TargetState::Failed`].
    pub failed_s: f64,
    /// Seconds for which it hung: a call had not come back.
    pub hung_s: f64,
    /// Bytes per second while it was busy and slow, as a mean over that time. `None`: it was not
    /// slow.
    pub busy_bytes_per_s: Option<u64>,
    /// The same of its slowest and of its fastest sibling over that time.
    pub siblings_bytes_per_s: Option<(u64, u64)>,
    /// The largest p99 of its requests while it was slow.
    pub p99: Option<Duration>,
    /// Its share of the bytes that all targets wrote while it was slow, 0 to 1. `None`: none wrote
    /// any.
    pub share: Option<f64>,
}

/// Files that were committed on a target, or a part of them, before it failed: a disk that fails
/// may lose what it called durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesAtRisk {
    /// The number of the target.
    pub target: TargetId,
    /// Its directory, as the operator named it.
    pub dir: PathBuf,
    /// The number of files.
    pub files: u64,
    /// The names of the latest 10,000 of them, beneath the top of the set, the latest first.
    pub names: Vec<RelPath>,
}

/// How a target does beside its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TargetState {
    /// As fast as they are.
    Ok,
    /// Far slower: below half of their median rate.
    Slow,
    /// A write had no room in the last 30 s: it is given nothing meanwhile.
    Full,
    /// A call on it failed: it is given nothing until a probe passes.
    Failed,
    /// A call on it has not come back: it is given nothing until it answers.
    Hung,
}

impl TargetState {
    /// Its name, for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            TargetState::Ok => "ok",
            TargetState::Slow => "slow",
            TargetState::Full => "full",
            TargetState::Failed => "failed",
            TargetState::Hung => "hung",
        }
    }
}
