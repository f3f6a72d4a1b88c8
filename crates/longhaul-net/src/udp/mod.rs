//! Native UDP lanes: sealed datagrams between two connected sockets.
//!
//! A lane's packets are laid out, sent again and told of by the machines of `proto`, which the
//! engine runs on the lane's thread; this is what such a thread needs of the network. In: the
//! control connection's secret, addresses, packets. Out: sockets, keys, bulk input and output. It
//! must not know packets beyond their seal.
//!
//! | file | |
//! |---|---|
//! | `keys` | from the exported secret to sealed packets |
//! | `socket` | how UDP sockets are made |
//! | `port` | datagrams of lanes that come to the listening port, and sockets apart for lanes |
//! | `dial` | the dialler's socket, and asking until an answer comes |
//! | `lane` | one end of a lane: its halves |
//! | `carrier` | the socket of a lane, which another process of this host may have |
//! | `relay` | lanes of another process of this host, whose datagrams are passed on |
//! | `state` | what its handle tells and steers |

mod carrier;
mod dial;
mod keys;
mod lane;
mod port;
mod relay;
pub(crate) mod socket;
mod state;

pub use dial::{Asking, AskingHandle, UdpDial};
pub(crate) use keys::UDP_EXPORTER_LABEL;
pub use keys::{LaneEnd, NotOpened, Opener, SEAL_BYTES, Sealer, UdpSecret};
pub use lane::{UdpLane, UdpReceiveHalf, UdpSendHalf};
pub(crate) use port::Door;
pub use port::{Knock, Knocks, UdpSeat};
pub use relay::{PassedSeat, RelayClaim, UdpRelay};
pub use state::{UdpFigure, UdpHandle};

use longhaul_core::Transport;

use crate::error::NetError;
use crate::facts::{CongestionControl, LaneMemory, Protection, TransportFacts};
use crate::wire::Congestion;

/// The facts of native UDP lanes.
pub(crate) const FACTS: TransportFacts = TransportFacts {
    transport: Transport::Udp,
    protections: &[Protection::Private],
    memory: LaneMemory::Slots,
    congestion_control: CongestionControl::Own,
};

impl Congestion {
    /// Whether native UDP lanes may use it.
    ///
    /// # Errors
    /// [`NetError::NoSuchControl`] for any that is named: they have one control alone.
    pub(crate) fn try_over_udp(&self) -> Result<(), NetError> {
        match self {
            Congestion::Auto => Ok(()),
            Congestion::Named(name) => Err(NetError::NoSuchControl {
                asked: name.clone(),
                over: Transport::Udp,
                offered: "they have none that can be chosen",
            }),
        }
    }
}
