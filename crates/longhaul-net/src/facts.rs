//! The facts of a transport, as data on which sessions decide.
//!
//! Plain data. Each transport writes its own down, and [`TransportFacts::of`] finds them. Nobody
//! else asks which transport a lane runs over, except to choose one, to compare two, or to name it.

use longhaul_core::Transport;
use serde::{Deserialize, Serialize};

/// The protection of a lane's payload, in GridFTP's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protection {
    /// Encrypted and authenticated.
    Private,
    /// Neither encrypted nor authenticated: everyone on the way can read and change it. The layers
    /// above verify each chunk.
    Safe,
}

/// The facts of a transport on which sessions decide, known before a lane is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportFacts {
    /// Its name.
    pub transport: Transport,
    /// The protections that it has.
    pub protections: &'static [Protection],
    /// The memory that a lane takes besides the buffer of the unit that it carries.
    pub memory: LaneMemory,
    /// The congestion control that decides how fast a lane sends.
    pub congestion_control: CongestionControl,
}

impl TransportFacts {
    /// Whether a session's lanes over it keep one rate together, of which others on the path are
    /// left their part: the manners of `--share fair` and `polite`.
    pub fn has_manners(&self) -> bool {
        match self.transport {
            Transport::Tcp | Transport::Quic | Transport::Udp => true,
            Transport::Ssh => false,
        }
    }
}

/// The memory that a lane takes besides the buffer of the unit that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneMemory {
    /// None of this process: bytes on their way wait in the kernel's buffers.
    Kernel,
    /// A window of this process, in which bytes wait that are unread or not acknowledged.
    /// [`crate::LaneHold::set_window`] says how large it may be.
    Window {
        /// The least bytes with which a lane is of use.
        bytes_min: usize,
    },
    /// None: a unit that is on its way keeps its buffer at both ends until it is whole at the
    /// receiver, so that a lane holds many of them.
    Slots,
}

/// The congestion control that decides how fast a lane sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// The kernel's, which may be exchanged at any time. How much a loss costs depends on it and on
    /// the number of lanes, so both are worth a search.
    Kernel,
    /// The transport's own, which bears loss: one lane fills a path, and there is nothing to
    /// search.
    Own,
}
