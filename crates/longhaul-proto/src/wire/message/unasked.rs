//! Small files that nobody asked for, so that a small tree needs no round trip for an answer.
//!
//! Plain data. Its sender and its time are written at [`Message`](super::Message).

use serde::{Deserialize, Serialize};

/// Bit of [`Hello::caps`](super::Hello::caps): this receiver takes small files unasked. An acceptor
/// that receives says so before it hears anything, by the protocol name that it chooses in its TLS
/// handshake.
pub const CAP_TAKES_UNASKED: u64 = 2048;

/// Files of the first page, with their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unasked {
    /// A bundle, as [`bundle`](crate::wire::bundle) describes it; at most
    /// [`UNASKED_BYTES_MAX`](longhaul_core::limits::UNASKED_BYTES_MAX) bytes.
    pub bundle: Vec<u8>,
}
