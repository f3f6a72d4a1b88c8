//! The message with which each side names the limit of the transfer.
//!
//! Plain data; [`tuning::limit`](crate::tuning::limit) decides it.

use serde::{Deserialize, Serialize};

/// The part that limits the transfer, as one side sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limiting {
    /// From a receiver: the limiting part at its own end. From a sender: the part that limits the
    /// transfer. `None` if it knows of none.
    pub by: Option<Limited>,
}

/// A part that limits, and its share of the last second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    /// The part.
    pub by: Limit,
    /// Thousandths of the second. A peer may claim anything, so more than 1000 counts as 1000.
    pub thousandths: u16,
}

impl Limited {
    /// A part with its share, from 0 to 1.
    pub fn new(by: Limit, share: f64) -> Limited {
        Limited { by, thousandths: (share.clamp(0.0, 1.0) * 1000.0).round() as u16 }
    }

    /// The same for a peer that does not know [`Limit::NetworkShared`].
    #[must_use]
    pub fn without_shared(self) -> Limited {
        let by = if self.by == Limit::NetworkShared { Limit::NetworkRate } else { self.by };
        Limited { by, ..self }
    }

    /// The share, from 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.thousandths.min(1000)) / 1000.0
    }
}

/// A part of the way from disk to disk that can limit the speed. Parts are only ever appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Limit {
    /// The sender's disk, or its scan.
    Source,
    /// Hashing, at either end.
    Hash,
    /// The processors, at either end, with other work than hashing.
    Cpu,
    /// Losses on the way, which make connections hold back; also a policer that drops packets above
    /// its rate and queues none.
    NetworkLoss,
    /// Buffers of connections, at either end, that are too small for the path.
    NetworkWindow,
    /// The line, or a rate that was asked for.
    NetworkRate,
    /// The receiver, for a reason that it did not say.
    Receiver,
    /// The receiver's disk.
    Target,
    /// The receiver's memory: with more of it, its disk would have more to do at a time.
    Memory,
    /// Others on the path, to whom their part of it is left.
    NetworkShared,
}

impl Limit {
    /// All of them, in order.
    pub const ALL: [Limit; 10] = [
        Limit::Source,
        Limit::Hash,
        Limit::Cpu,
        Limit::NetworkLoss,
        Limit::NetworkWindow,
        Limit::NetworkRate,
        Limit::Receiver,
        Limit::Target,
        Limit::Memory,
        Limit::NetworkShared,
    ];

    /// Its name, for people and scripts.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Source => "source",
            Limit::Hash => "hash",
            Limit::Cpu => "cpu",
            Limit::NetworkLoss => "network:loss",
            Limit::NetworkWindow => "network:window",
            Limit::NetworkRate => "network:rate",
            Limit::Receiver => "receiver",
            Limit::Target => "target",
            Limit::Memory => "memory",
            Limit::NetworkShared => "network:shared",
        }
    }
}
