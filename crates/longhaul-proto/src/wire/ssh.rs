//! The words of an ssh session that come before and beside its connections: the first message of
//! either end, and the signals.
//!
//! Takes keys, places and ports from both ends; gives them as bytes and reads them back. Each end
//! begins with [`SSH_LINE`], so that builds that do not understand each other say so, and so that
//! what a shell's own start files print before it does no harm. Knows bounds, and no pipes.

use std::net::IpAddr;

use longhaul_core::Transport;
use serde::{Deserialize, Serialize};

use super::frame::{self, FrameError};

/// The line before the first message of either end. Its number changes with the messages' form.
pub const SSH_LINE: &[u8] = b"\nlonghaul-ssh 2\n";
/// The part of [`SSH_LINE`] that every form has.
pub const SSH_LINE_ANY: &[u8] = b"\nlonghaul-ssh ";

/// The first message of the end that started ssh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientHello {
    /// Its version, for messages.
    pub version: String,
    /// Its one-time key.
    pub key: [u8; 32],
    /// Paths of the far host as its user wrote them, without slashes at their ends. The roots of
    /// the session are named by their numbers.
    pub places: Vec<Vec<u8>>,
    /// Ports of which one is to be listened at, from and to. `None` for any.
    pub ports: Option<(u16, u16)>,
    /// Addresses of the far host at which lanes are to be accepted too, beside the one to which ssh
    /// came: those that the user named. Of more than [`ADDRESSES_MAX`] the others are ignored.
    pub at: Vec<IpAddr>,
}

/// The first message of the end that ssh started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarHello {
    /// Its version, for messages.
    pub version: String,
    /// Its one-time key.
    pub key: [u8; 32],
    /// The port at which it accepts lanes, over TCP and UDP. `None` if it can listen at none.
    pub port: Option<u16>,
    /// The address at which that is, as sshd knows it. `None` for all of that host.
    pub at: Option<IpAddr>,
}

/// A signal to the end that ssh started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshSignal {
    /// It shall dial the host from which the ssh session came at this port, where a lane is
    /// expected.
    DialBack {
        /// The port.
        port: u16,
    },
    /// There is a way beside ssh: lanes over this transport may be granted.
    WayFound(Transport),
}

impl ClientHello {
    /// The line and the message.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] for more places than a message holds.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        framed(self)
    }

    /// Reads what follows the length (`frame::announced`).
    ///
    /// # Errors
    /// [`FrameError`] if it is no such message.
    pub fn decode(bytes: &[u8]) -> Result<ClientHello, FrameError> {
        read(bytes)
    }
}

impl FarHello {
    /// The line and the message.
    ///
    /// # Errors
    /// As [`ClientHello::encode`].
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        framed(self)
    }

    /// As [`ClientHello::decode`].
    ///
    /// # Errors
    /// [`FrameError`] if it is no such message.
    pub fn decode(bytes: &[u8]) -> Result<FarHello, FrameError> {
        read(bytes)
    }
}

impl SshSignal {
    /// Its bytes.
    pub fn encode(self) -> [u8; SIGNAL_BYTES] {
        match self {
            SshSignal::DialBack { port } => {
                let [low, high] = port.to_le_bytes();
                [DIAL_BACK, low, high]
            }
            SshSignal::WayFound(Transport::Quic) => [WAY_FOUND, 1, 0],
            SshSignal::WayFound(Transport::Tcp | Transport::Ssh | Transport::Udp) => [WAY_FOUND, 0, 0],
        }
    }

    /// The signal of these bytes. `None` for one that this version does not know.
    pub fn decode([number, low, high]: [u8; SIGNAL_BYTES]) -> Option<SshSignal> {
        match number {
            DIAL_BACK => Some(SshSignal::DialBack { port: u16::from_le_bytes([low, high]) }),
            WAY_FOUND if low == 1 => Some(SshSignal::WayFound(Transport::Quic)),
            WAY_FOUND => Some(SshSignal::WayFound(Transport::Tcp)),
            _ => None,
        }
    }
}

fn framed<T: Serialize>(hello: &T) -> Result<Vec<u8>, FrameError> {
    Ok([SSH_LINE, &frame::check(frame::encode(HELLO, hello))?].concat())
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    match bytes {
        [HELLO, body @ ..] => frame::decode(HELLO, body),
        [number, ..] => Err(FrameError::Unknown { number: *number }),
        [] => Err(FrameError::Empty),
    }
}

/// Addresses that an end accepts lanes at because it was asked to.
pub const ADDRESSES_MAX: usize = 16;
/// The number of a hello.
const HELLO: u8 = 1;
/// Bytes of a signal: its number and a port, little endian.
pub const SIGNAL_BYTES: usize = 3;
const DIAL_BACK: u8 = 1;
const WAY_FOUND: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::LENGTH_BYTES;

    /// The message behind the line and the length.
    fn body(encoded: &[u8]) -> &[u8] {
        &encoded[SSH_LINE.len() + LENGTH_BYTES..]
    }

    #[test]
    fn both_hellos_are_read_back_and_nothing_else_is_one() {
        let places = vec![b"a b\n".to_vec(), Vec::new()];
        let client = ClientHello {
            version: "1".into(),
            key: [1; 32],
            places,
            ports: Some((5, 9)),
            at: vec![[192, 0, 2, 9].into()],
        };
        let encoded = client.encode().expect("it fits");
        assert_eq!(ClientHello::decode(body(&encoded)), Ok(client));
        let at = Some([192, 0, 2, 1].into());
        let far = FarHello { version: "2".into(), key: [2; 32], port: Some(7), at };
        let encoded = far.encode().expect("it fits");
        assert_eq!(FarHello::decode(body(&encoded)), Ok(far));
        for cut in 0..body(&encoded).len() {
            assert!(FarHello::decode(&body(&encoded)[..cut]).is_err(), "{cut}");
        }
        assert_eq!(FarHello::decode(&[7, 0]), Err(FrameError::Unknown { number: 7 }));
    }

    #[test]
    fn more_places_than_a_message_holds_are_refused() {
        let places = vec![vec![b'x'; 4096]; 1024];
        let hello = ClientHello { version: String::new(), key: [0; 32], places, ports: None, at: Vec::new() };
        assert!(matches!(hello.encode(), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn signals_are_read_back_and_unknown_ones_are_none() {
        let found = [Transport::Tcp, Transport::Quic].map(SshSignal::WayFound);
        for signal in found.into_iter().chain([SshSignal::DialBack { port: 0xabcd }]) {
            assert_eq!(SshSignal::decode(signal.encode()), Some(signal));
        }
        assert_eq!(SshSignal::decode([9, 0, 0]), None);
    }
}
