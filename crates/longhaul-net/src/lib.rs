//! Connections only: the identity of the other end, and bytes to and from it.
//!
//! Owns keys, TLS, sockets, dialling, accepting, and the two kinds of stream that the rest is built
//! on: [`Control`] (asynchronous, always encrypted) and [`LaneStream`] (blocking, one thread each,
//! `private` or `safe`, over any [`LaneTransport`]). Takes addresses and keys from `engine`; gives
//! it streams whose peer is known by its [`PublicKey`]. Must not know messages, files or chunks: a
//! lane carries bytes, and the layers above interpret them.

mod accept;
mod control;
mod counters;
mod crowd;
mod error;
mod facts;
mod fault;
mod handle;
mod handover;
mod handshake;
mod incoming;
mod interface;
mod keys;
mod known_hosts;
mod lane;
mod pair;
mod passed;
mod path;
mod private;
mod public_key;
mod quic;
mod records;
mod reverse;
mod seats;
mod secrets;
mod seldom;
mod shared_path;
mod silence;
mod tcp;
mod tls;
mod transport;
mod tunnel;
mod turns;
mod udp;
mod wire;

pub use accept::{Greeted, Listener, greet, greet_tunnelled};
pub use control::{Control, ControlEnds, WhenLong, control_over, dial_control, dial_control_over, resolve};
pub use counters::{LaneCounters, Packets, RoundTrip, SendWaits};
pub use crowd::Source;
pub use error::{NetError, NetErrorKind, Over, system_words};
pub use facts::{CongestionControl, LaneMemory, Protection, TransportFacts};
pub use handle::{LaneHandle, LaneHold};
pub use handover::LaneParts;
pub use keys::Identity;
pub use known_hosts::KnownHosts;
pub use lane::LaneStream;
pub use passed::{bind_pair, listen_passed};
pub use path::{NetPath, PathError};
pub use public_key::{BadKey, PublicKey};
pub use quic::QuicListener;
pub use reverse::{ReverseListener, first_free};
pub use seats::{Loss, Seat, Seats, Tally};
pub use seldom::Seldom;
pub use shared_path::{PathControl, PathOrder, PathSeen, SharedPath};
pub use tcp::SAFE_MAGIC;
pub use tls::{GreetLimits, PeerCheck, ServerTls};
pub use transport::{LaneTransport, PieceRoom, ReceivedPiece, UnitPart};
pub use tunnel::{Tunnel, TunnelDoor};
pub use udp::{
    Asking, AskingHandle, Knock, Knocks, LaneEnd, NotOpened, Opener, PassedSeat, RelayClaim, SEAL_BYTES, Sealer,
    UdpDial, UdpFigure, UdpHandle, UdpLane, UdpReceiveHalf, UdpRelay, UdpSeat, UdpSecret, UdpSendHalf,
};
pub use wire::{Congestion, LaneOptions, More};

#[cfg(test)]
mod tests;

/// Configurations for fuzz targets, as a daemon has them.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use crate::error::NetError;
    use crate::{GreetLimits, Identity, ServerTls};

    /// The configurations of a port that listens over QUIC.
    ///
    /// # Errors
    /// [`NetError::Crypto`].
    pub fn quic_server() -> Result<(quinn_proto::EndpointConfig, quinn_proto::ServerConfig), NetError> {
        let tls = ServerTls::new(&Identity::generate()?, GreetLimits::default())?;
        crate::quic::server_configs(&tls)
    }
}
