//! Owns the whole life of lanes: how one is dialled and joins, its thread, the number of lanes, the
//! search for what limits them, and when one is given up.
//!
//! `dial` chooses paths and segments; `join` proves to which session a lane belongs; `registry`
//! brings accepted lanes to their sessions. `worker` is a lane's thread, `lane` is one lane that
//! stands, and `pool` is all lanes of one side. `event` is what they tell their session. `tune` and
//! `shares` decide how many lanes there are and how fast they go, `health` which to give up,
//! `replace` what takes their place, and `bottleneck` what they wait for. It knows no messages of
//! sessions and no machines.

pub(crate) mod bottleneck;
pub(crate) mod dial;
pub(crate) mod event;
mod health;
pub(crate) mod join;
mod lane;
pub(crate) mod pool;
pub(crate) mod registry;
pub(crate) mod replace;
mod search;
mod shares;
pub(crate) mod tune;
pub(crate) mod udp;
mod vacancy;
pub(crate) mod worker;

use longhaul_core::LaneId;
use longhaul_net::LaneStream;

/// A lane whose proof was accepted.
#[derive(Debug)]
pub(crate) struct JoinedLane {
    /// Its id.
    pub(crate) id: LaneId,
    /// Its stream.
    pub(crate) stream: LaneStream,
    /// Whether this end knows that the other has taken the lane. If false, the first byte from the
    /// other end says so.
    pub(crate) taken: bool,
}
