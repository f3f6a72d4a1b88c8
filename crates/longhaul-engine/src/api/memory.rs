//! The memory of paths that earlier runs used: what a program may keep of them, and gives back.
//!
//! In: from `client`, at the end of a run. Out: to `client`, when the same path is met again. Plain
//! data, and the trait that the program answers; where it keeps them is its own affair.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use longhaul_net::PublicKey;

/// A path to a daemon: who is there, and which way leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathKey {
    /// The daemon's key.
    pub peer: PublicKey,
    /// The daemon's address.
    pub remote: IpAddr,
    /// This host's address.
    pub local: IpAddr,
    /// The index of the network interface. `None` if the kernel did not say.
    pub interface: Option<u32>,
}

/// The facts that pushes found out about a path. Each has a time of its own, as not every run finds
/// everything out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFacts {
    /// The round trip of the control connection's handshake.
    pub rtt: Duration,
    /// The lanes over TCP on which the search for their number settled, and when.
    pub lanes: Option<(u32, SystemTime)>,
    /// The kernel's congestion control that the search chose, and when.
    pub congestion: Option<(String, SystemTime)>,
    /// The rate that it carried for lanes whose rate this program decides, and when.
    pub rate: Option<(PathRate, SystemTime)>,
}

/// The rate that a path carried for lanes whose rate this program decides: those over UDP. Half of
/// it is begun with, once a train of packets has shown that the path carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRate {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// The shortest round trip of these lanes.
    pub rtt: Duration,
}

/// Keeps the facts of paths from one run to the next. It is asked once in a session and told once
/// in a run, on a thread that may wait. Facts that are a day old are of no use any more.
pub trait PathMemory: Send + Sync {
    /// The facts of a path, if it knows any.
    fn recall(&self, path: &PathKey) -> Option<PathFacts>;

    /// Takes the facts of a path in the place of older ones. A failure is its own affair: a run
    /// does not fail for it.
    fn remember(&self, path: &PathKey, facts: &PathFacts);
}
