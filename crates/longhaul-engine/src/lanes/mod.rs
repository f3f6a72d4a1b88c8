//! A lane's whole life: who dials it and how it joins, its thread, how many there are, what it
//! waits for, when it is given up.
//!
//! `dial` chooses paths and segments, `join` proves to which session a lane belongs, `registry`
//! brings accepted ones there. `worker` is a lane's thread, `lane` one that stands, `pool` all
//! those of one side; `event` is what all of them tell their session; `tune` and `shares` say how
//! many and how fast, `health` which to give up, `replace` what comes instead, `bottleneck` what
//! they wait for. Knows no messages of sessions and no machines.

pub(crate) mod bottleneck;
pub(crate) mod dial;
pub(crate) mod event;
mod health;
pub(crate) mod join;
mod lane;
pub(crate) mod pool;
pub(crate) mod registry;
pub(crate) mod replace;
mod shares;
pub(crate) mod tune;
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
    /// This end knows that the other has taken it; else that is the first byte that comes.
    pub(crate) taken: bool,
}
