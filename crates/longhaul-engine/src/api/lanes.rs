//! Changes of a session's lanes, and why, as its observer hears them.
//!
//! In: from the session loops and the client. Out: to an [`Observer`](super::Observer), within an
//! event. Plain data.

use std::fmt;

use longhaul_proto::tuning::Why;
use serde::{Deserialize, Serialize};

/// A change of the lanes, with its reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LanesTuned {
    /// Seconds since the session stood.
    pub seconds: f64,
    /// Lanes that stand now: those that are being added or ended are not yet counted, or still are.
    pub lanes: u32,
    /// The change.
    pub change: LanesChange,
    /// Why. Its text is for people.
    pub reason: LanesReason,
}

/// The reason of a change of the lanes, or why they stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LanesReason {
    /// The search for their number decided it.
    Search(Why),
    /// Large packets vanish on the way and nothing reports it.
    LargePacketsVanish,
    /// A direct way to the other host was found.
    WayFound,
    /// An earlier run over this path did best so.
    PathKnown,
}

impl fmt::Display for LanesReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LanesReason::Search(why) => why.fmt(f),
            LanesReason::LargePacketsVanish => f.write_str(
                "larger packets vanish on the way and nobody says so: something there keeps ICMP messages back",
            ),
            LanesReason::WayFound => f.write_str("a direct way to the other host was found, beside ssh"),
            LanesReason::PathKnown => f.write_str("an earlier run over this path did best so"),
        }
    }
}

/// A change of a session's lanes. Its text is short, for people and scripts: `+4`, `-4`, `2 to
/// bbr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LanesChange {
    /// None: they stay as they are.
    Unchanged,
    /// This many lanes are added.
    Added(u32),
    /// This many lanes are added, over QUIC.
    AddedOverQuic(u32),
    /// This many lanes are added, over UDP.
    AddedOverUdp(u32),
    /// This many lanes end: they finish what they have in hand.
    Retired(u32),
    /// This many lanes are given up: others send again what they had in hand.
    GivenUp(u32),
    /// This many lanes use another congestion control.
    Congestion {
        /// Lanes that changed.
        lanes: u32,
        /// The congestion control's name in the kernel.
        name: String,
    },
    /// From now on lanes are made over TCP alone.
    Tcp,
    /// From now on lanes are made over QUIC alone, and those over TCP end.
    Quic,
    /// From now on lanes are made over QUIC, and those over TCP stay.
    TcpAndQuic,
    /// From now on lanes are made over UDP alone, and those over TCP end.
    Udp,
    /// Lanes use segments of so many bytes at most.
    Segments(u32),
    /// This many lanes go straight to the other host, and those over ssh end.
    Straight(u32),
    /// Lanes keep a rate together, in bytes/s, which follows the path from now on.
    Paced(u64),
    /// Lanes take a fair share of the path from now on, and not all that they can have.
    Fair,
    /// The session begins with what an earlier run found out about lanes over TCP.
    Begun {
        /// Lanes to begin with. `None` if the user gave the number, or none is known.
        lanes: Option<u32>,
        /// The congestion control that is tried first. `None` if the user named one, or none is
        /// known.
        congestion: Option<String>,
    },
}

impl fmt::Display for LanesChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LanesChange::Unchanged => f.write_str("="),
            LanesChange::Added(count) => write!(f, "+{count}"),
            LanesChange::AddedOverQuic(count) => write!(f, "+{count} over quic"),
            LanesChange::AddedOverUdp(count) => write!(f, "+{count} over udp"),
            LanesChange::Retired(count) => write!(f, "-{count}"),
            LanesChange::GivenUp(count) => write!(f, "lose {count}"),
            LanesChange::Congestion { lanes, name } => write!(f, "{lanes} to {name}"),
            LanesChange::Tcp => f.write_str("tcp"),
            LanesChange::Quic => f.write_str("quic"),
            LanesChange::TcpAndQuic => f.write_str("tcp and quic"),
            LanesChange::Udp => f.write_str("udp"),
            LanesChange::Segments(bytes) => write!(f, "to segments of {bytes} bytes"),
            LanesChange::Straight(count) => write!(f, "{count} straight"),
            LanesChange::Paced(rate) => write!(f, "paced at {:.1} MB/s", *rate as f64 / 1e6),
            LanesChange::Fair => f.write_str("fair"),
            LanesChange::Begun { lanes, congestion } => {
                let lanes = lanes.map(|count| count.to_string());
                let known: Vec<String> = lanes.into_iter().chain(congestion.clone()).collect();
                write!(f, "begun with {}", known.join(", "))
            }
        }
    }
}
