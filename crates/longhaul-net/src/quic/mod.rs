//! Lanes over QUIC: one connection each, with a socket and a driver of its own at the end that
//! dials.
//!
//! A lane's bytes travel as a row of blocks, each a unidirectional stream of [`BLOCK_BYTES`]; the
//! receiving end reads the streams in their order, so that the layers above see one byte stream, as
//! with every lane. A block has at most 1000 packets whatever the path's MTU: a receiver of quinn
//! gives a connection up whose stream has more than 1024 gaps. No block waits for another's repair
//! below, and what arrives behind a gap waits in a window that is part of `--memory`.
//!
//! | file | |
//! |---|---|
//! | `rate` | the congestion control of our own for a lane alone, pure |
//! | `controller` | one of these or quinn's, counted |
//! | `sight` | what acknowledgements tell of the path |
//! | `driver` | the rate, kept in turns; the account of these is in `shared_path` |
//! | `figures` | what all of these share of a connection |
//! | `batch`, `socket`, `host_socket` | segments and MTU, and the mark of what leaves |
//! | `config` | what both ends agree on |
//! | `dial`, `listen` | connections |
//! | `stream` | the byte stream; `wait` blocks on it; `handle` steers it from elsewhere |

mod batch;
mod config;
mod controller;
mod dial;
mod driver;
mod figures;
mod handle;
mod host_socket;
mod listen;
mod rate;
mod sight;
mod socket;
mod stream;
mod wait;

pub(crate) use dial::dial;
pub use listen::QuicListener;
pub(crate) use socket::{adopted, listening};
use stream::algorithm;

use longhaul_core::Transport;

use crate::error::NetError;
use crate::facts::{CongestionControl, LaneMemory, Protection, TransportFacts};
use crate::wire::Congestion;

impl Congestion {
    /// Whether lanes over QUIC have it.
    ///
    /// # Errors
    /// [`NetError::NoSuchControl`] if not.
    pub(crate) fn try_over_quic(&self) -> Result<(), NetError> {
        algorithm(self).map(drop)
    }
}

/// The configurations of a port that listens.
#[cfg(feature = "fuzzing")]
pub(crate) fn server_configs(
    tls: &crate::ServerTls,
) -> Result<(quinn_proto::EndpointConfig, quinn_proto::ServerConfig), NetError> {
    let mut server = config::server(tls.lane.clone())?;
    let figures = std::sync::Arc::default();
    server.transport_config(std::sync::Arc::new(config::transport(&figures, socket::PAYLOAD_MAX)));
    Ok((config::endpoint(), server))
}

/// The facts of lanes over QUIC.
pub(crate) const FACTS: TransportFacts = TransportFacts {
    transport: Transport::Quic,
    protections: &[Protection::Private],
    memory: LaneMemory::Window { bytes_min: config::FIRST_WINDOW_BYTES },
    congestion_control: CongestionControl::Own,
};

/// Bytes of a block: at most 903 packets, even on a path that carries no more than 1200 bytes of
/// UDP payload.
const BLOCK_BYTES: usize = 1 << 20;
/// The code with which both ends close a connection when the lane is over.
const DONE: u32 = 0;
/// The code with which either end closes it when it gives the lane up.
const GIVEN_UP: u32 = 1;
