//! Owns the whole life of lanes: how one is dialled and joins, its thread, the number of lanes, the
//! search for what limits them, and when one is given up.
//!
//! `dial` chooses paths and segments; `join` proves to which session a lane belongs; `registry`
//! brings accepted lanes to their sessions. `worker` is a lane's thread, `lane` is one lane that
//! stands, and `pool` is all lanes of one side, under its `rules`. `event` is what they tell their
//! session. `tune` and, over UDP, `growth` decide how many lanes there are, `shares` how fast they
//! go, `health` which to give up, `replace` what takes their place, `manners` what they leave to
//! others on the path, and `bottleneck` what they wait for. `past` is what sessions of a run leave
//! to one another, and `told` what people hear of a path. It knows no messages of sessions and no
//! machines.

pub(crate) mod bottleneck;
pub(crate) mod dial;
pub(crate) mod event;
mod growth;
mod health;
pub(crate) mod join;
mod lane;
mod manners;
pub(crate) mod past;
pub(crate) mod pool;
pub(crate) mod registry;
pub(crate) mod replace;
pub(crate) mod road;
pub(crate) mod rules;
mod search;
mod shares;
pub(crate) mod told;
pub(crate) mod tune;
pub(crate) mod udp;
mod vacancy;
pub(crate) mod worker;

use longhaul_core::LaneId;
use longhaul_net::{LaneHandle, LaneStream};

use self::udp::join::JoinedUdp;

/// A lane whose proof was accepted.
#[derive(Debug)]
pub(crate) enum JoinedLane {
    /// It is a stream of bytes.
    Stream(StreamLane),
    /// It carries datagrams of its own.
    Udp(Box<JoinedUdp>),
}

/// A lane over a stream of bytes.
#[derive(Debug)]
pub(crate) struct StreamLane {
    /// Its id.
    pub(crate) id: LaneId,
    /// Its stream.
    pub(crate) stream: LaneStream,
    /// Whether this end knows that the other has taken the lane. If false, the first byte from the
    /// other end says so.
    pub(crate) taken: bool,
}

impl From<StreamLane> for JoinedLane {
    fn from(lane: StreamLane) -> JoinedLane {
        JoinedLane::Stream(lane)
    }
}

impl JoinedLane {
    /// Its id.
    pub(crate) fn id(&self) -> LaneId {
        match self {
            JoinedLane::Stream(lane) => lane.id,
            JoinedLane::Udp(lane) => lane.id,
        }
    }

    /// Closes the lane, which has no thread yet.
    pub(crate) fn refuse(self) {
        match self {
            // Its other end sees the stream end.
            JoinedLane::Stream(_) => {}
            JoinedLane::Udp(lane) => lane.refuse(),
        }
    }

    /// A hold on it for other threads.
    pub(crate) fn handle(&self) -> LaneHandle {
        match self {
            JoinedLane::Stream(lane) => lane.stream.handle(),
            JoinedLane::Udp(lane) => LaneHandle::new(lane.lane.handle.clone()),
        }
    }

    /// The congestion control in use; `none` for a pair of local sockets, `-` where there is but
    /// one.
    pub(crate) fn congestion(&self) -> String {
        match self {
            JoinedLane::Stream(lane) => lane.stream.congestion(),
            JoinedLane::Udp(_) => "-".to_owned(),
        }
    }

    /// The largest segment that it was dialled with. `None` where nobody asked for one.
    pub(crate) fn segment_max(&self) -> Option<u32> {
        match self {
            JoinedLane::Stream(lane) => lane.stream.segment_max(),
            JoinedLane::Udp(_) => None,
        }
    }

    /// The index of the network interface that it runs over. `None` for a pair within this process,
    /// and where the kernel does not say.
    pub(crate) fn interface(&self) -> Option<u32> {
        match self {
            JoinedLane::Stream(lane) => lane.stream.interface(),
            JoinedLane::Udp(lane) => lane.lane.interface(),
        }
    }
}
