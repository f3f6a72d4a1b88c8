//! The message with which a receiver tells how its targets do.
//!
//! Plain data. It names no directory: where the disks of a host are mounted is no business of its
//! peers. Nothing is decided by it; it is there to be shown.

use serde::{Deserialize, Serialize};

/// The figures of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Its number.
    pub target: u32,
    /// Bytes per second written there since the message before.
    pub bytes_per_s: u64,
    /// Bytes per second while it was busy. `None`: not known yet.
    pub busy_bytes_per_s: Option<u64>,
    /// Bytes of requests that wait or are under way.
    pub queued_bytes: u64,
    /// Requests that wait or are under way.
    pub queued: u64,
    /// Microseconds that half, nine of ten and 99 of 100 of its recent requests took at most.
    /// `None` before the first.
    pub latency_us: Option<[u64; 3]>,
    /// Its thousandths of the bytes written on all targets since the message before. More than 1000
    /// count as 1000.
    pub thousandths: u16,
    /// How it does.
    pub state: TargetStanding,
}

/// How a target does beside its siblings. States are only ever appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetStanding {
    /// As fast as they are.
    Ok,
    /// Far slower.
    Slow,
    /// It had no room a short while ago.
    Full,
    /// A call on it failed, and no probe passed since.
    Failed,
    /// A call on it has not come back.
    Hung,
}

/// The targets in one message at most.
pub const TARGETS_TOLD_MAX: usize = 1024;
