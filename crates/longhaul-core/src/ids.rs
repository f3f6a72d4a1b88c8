//! Names of things within one session: files, bundles, lanes and their transports, attempts, and
//! the units that lanes carry.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::units::ChunkIndex;

/// The number of a manifest entry in its session, from 0 in manifest order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// The number of a bundle in its session, given by the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BundleId(pub u64);

/// The number of a lane in its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId(pub u32);

/// The number of a sending of a unit, from 1. The receiver admits one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The first sending.
    pub const FIRST: Attempt = Attempt(1);

    /// The sending after this one.
    pub const fn next(self) -> Attempt {
        Attempt(self.0.saturating_add(1))
    }

    /// How many attempts there were from `first` up to this one.
    pub const fn since(self, first: Attempt) -> u32 {
        self.0.saturating_sub(first.0).saturating_add(1)
    }
}

/// The unit that a lane carries at a time: one chunk of a file, or one bundle of small files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// A chunk of a file.
    Chunk {
        /// The file.
        file: FileId,
        /// Which of its chunks.
        index: ChunkIndex,
    },
    /// Many small files in one.
    Bundle(BundleId),
}

/// The transport of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// TCP, with or without TLS inside.
    #[default]
    Tcp,
    /// QUIC, at the UDP port of the same number.
    Quic,
    /// The pipe of the ssh session that started the other side, which it shares with the control
    /// connection.
    Ssh,
    /// Datagrams of this program's own making, at the UDP port that QUIC has.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Quic => "QUIC",
            Transport::Ssh => "ssh",
            Transport::Udp => "UDP",
        })
    }
}

/// The role of a side of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The side that has the sources: it reads and sends.
    Sender,
    /// The side that has the destination: it judges, writes and commits.
    Receiver,
}

impl Role {
    /// The other side's role.
    pub const fn other(self) -> Role {
        match self {
            Role::Sender => Role::Receiver,
            Role::Receiver => Role::Sender,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::Chunk { file, index } => write!(f, "chunk {} of entry {}", index.0, file.0),
            Unit::Bundle(id) => write!(f, "bundle {}", id.0),
        }
    }
}
