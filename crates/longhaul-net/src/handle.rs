//! A hold on a lane for another thread, whatever carries the lane.
//!
//! Owns the trait that each transport implements beside [`crate::LaneTransport`]. Takes holds from
//! `tcp` and `quic`, which do not keep a lane open; gives `engine` a way to end a lane, to ask for
//! its counters, and to steer how it sends. Must not know what a lane carries.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::LaneId;

use crate::counters::LaneCounters;
use crate::facts::TransportFacts;
use crate::shared_path::SharedPath;

/// A transport's hold on one lane for other threads, which end the lane (blocked calls on it then
/// return), ask how it fares, and steer how it sends. It does not keep the lane open.
pub trait LaneHold: fmt::Debug + Send + Sync {
    /// The facts of its transport.
    fn facts(&self) -> TransportFacts;

    /// Closes both directions. The lane's own calls then give [`crate::NetError::Closed`]; the peer
    /// sees a truncated stream.
    fn close(&self);

    /// How long ago payload came in on this lane, whether it was read or not. Over TCP the kernel
    /// knows it; over QUIC it is as of the last call. `None` for a lane that is gone or runs
    /// between two ends in this process.
    fn quiet(&self) -> Option<Duration>;

    /// The lane's counters. `None` for a lane that is gone or runs between two ends in this
    /// process.
    fn counters(&self) -> Option<LaneCounters>;

    /// Bytes that a lane that is gone sent and had acknowledged, plus those that it received. For a
    /// lane that ended in order it counts all sent bytes, though some were still on their way. 0
    /// for a pair within this process.
    fn carried_at_end(&self) -> u64;

    /// Bytes that the lane sent and had acknowledged, plus those that it received, until now or
    /// until it was gone: see [`LaneHold::carried_at_end`].
    fn carried(&self) -> u64 {
        self.counters().map_or_else(|| self.carried_at_end(), |now| now.acked + now.received)
    }

    /// How long the other host has acknowledged nothing, while data is on its way to it. `None`
    /// when no data is, or when the lane runs within this process. (After a pause the time begins
    /// before the data left, so it is meaningful only if it is asked for repeatedly.)
    fn unacknowledged(&self) -> Option<Duration>;

    /// Whether both ends are addresses of this host.
    fn is_within_host(&self) -> bool;

    /// Lets the lane send at most `bytes_per_s` from now on; `None` takes the limit away. A pair
    /// within this process stays as it is.
    fn set_pace(&self, bytes_per_s: Option<u64>);

    /// Marks what the lane sends from now on as of less importance than anybody else's (DSCP LE,
    /// RFC 8622). A network that does not know the mark treats it like the rest.
    fn set_scavenger(&self) {}

    /// Has the lane keep the rate of `path` together with the others there, from now on. It acts on
    /// lanes over QUIC. Returns whether it does: one that is gone, or shares a path already, does
    /// not.
    fn share_path(&self, _path: &Arc<SharedPath>, _lane: LaneId) -> bool {
        false
    }

    /// Lets `bytes` wait at this end, unread or not acknowledged, from now on. It acts on lanes
    /// that keep such bytes in this process: see [`crate::LaneMemory`].
    fn set_window(&self, _bytes: usize) {}

    /// The congestion control in use. `None` for a lane that is gone or has none.
    fn congestion(&self) -> Option<String>;

    /// Has the lane use the congestion control `name` from now on; false if there is none of this
    /// name.
    fn set_congestion(&self, name: &str) -> bool;
}

/// A [`LaneHold`] on a lane of any kind. Clones hold the same lane.
#[derive(Clone, Debug)]
pub struct LaneHandle(Arc<dyn LaneHold>);

impl LaneHandle {
    /// A handle of this hold.
    pub fn new(hold: impl LaneHold + 'static) -> LaneHandle {
        LaneHandle(Arc::new(hold))
    }
}

impl Deref for LaneHandle {
    type Target = dyn LaneHold;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
