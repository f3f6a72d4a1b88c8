//! Framing of control messages: length (u32, little endian, counts number and body), number (u8),
//! postcard body.
//!
//! Takes bodies from `message` and bytes from the reader of the control connection. Knows bounds,
//! not meanings.

use serde::Serialize;
use serde::de::DeserializeOwned;

use longhaul_core::limits::MESSAGE_BYTES_MAX;

/// Bytes before a message's number: its length.
pub const LENGTH_BYTES: usize = 4;

/// The reason why bytes are not a control message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It claims more bytes than a message may have.
    #[error("control message of {len} bytes exceeds the limit of {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// The claimed length in bytes.
        len: usize,
    },
    /// It has no number.
    #[error("control message without a number")]
    Empty,
    /// Its number is unknown to this version.
    #[error("control message of unknown number {number}")]
    Unknown {
        /// The number.
        number: u8,
    },
    /// Its body does not parse.
    #[error("control message {number} does not parse: {why}")]
    Body {
        /// Its number.
        number: u8,
        /// The parser's reason.
        why: &'static str,
    },
}

/// The length of the message that `header` announces (number and body).
///
/// # Errors
/// [`FrameError`] when it is over the limit or zero; nothing is allocated for it then.
pub fn announced(header: [u8; LENGTH_BYTES]) -> Result<usize, FrameError> {
    let len = u32::from_le_bytes(header) as usize;
    match len {
        0 => Err(FrameError::Empty),
        len if len > MESSAGE_BYTES_MAX + 1 => Err(FrameError::TooLong { len }),
        len => Ok(len),
    }
}

/// Frames one message.
pub(super) fn encode<T: Serialize>(number: u8, body: &T) -> Vec<u8> {
    let mut out = vec![0; LENGTH_BYTES];
    out.push(number);
    // Serialising into a growing vector fails only for types that postcard cannot express, and ours
    // all can.
    let mut out = postcard::to_extend(body, out).unwrap_or_else(|_| vec![0; LENGTH_BYTES]);
    let len = u32::try_from(out.len() - LENGTH_BYTES).unwrap_or(u32::MAX);
    out[..LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
    out
}

/// Gives a framed message back if a peer will accept its length.
pub(super) fn check(framed: Vec<u8>) -> Result<Vec<u8>, FrameError> {
    match framed.len().saturating_sub(LENGTH_BYTES) {
        len if len > MESSAGE_BYTES_MAX + 1 => Err(FrameError::TooLong { len }),
        _ => Ok(framed),
    }
}

/// Reads the body of a message; every byte must be used.
pub(super) fn decode<T: DeserializeOwned>(number: u8, body: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes::<T>(body) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(FrameError::Body { number, why: "bytes are left over" }),
        Err(postcard::Error::DeserializeUnexpectedEnd) => Err(FrameError::Body { number, why: "it ends too soon" }),
        Err(_) => Err(FrameError::Body { number, why: "a value is out of range" }),
    }
}
