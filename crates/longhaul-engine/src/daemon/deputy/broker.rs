//! Owns the words between the daemon and the broker, the process that starts deputies.
//!
//! In: the number of a user, or the wish to read the configuration again. Out: the daemon's end of
//! the socket of a new deputy, or a refusal. A request has [`BrokerRequest::BYTES`], and that for a
//! deputy names one number; the broker decides by its own table. It must not know clients.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_sys::passing::{self, Passing};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// The way to the broker.
#[derive(Debug)]
pub struct Broker(Mutex<OwnedFd>);

/// A request to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerRequest {
    /// Starts a deputy for the user of this number.
    Start {
        /// The number of the user.
        uid: u32,
    },
    /// Reads the configuration again.
    Read,
    /// Takes what was read last in place of what it knows.
    Take,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerAnswer {
    /// It is done. A deputy's socket comes with it.
    Done,
    /// The configuration has no such user.
    Refused,
    /// It could not be done; the broker has said in the log why.
    Failed,
}

impl BrokerRequest {
    /// Bytes of a request.
    pub const BYTES: usize = 8;

    /// The bytes of a request.
    pub fn encode(self) -> [u8; REQUEST_BYTES] {
        let (kind, uid) = match self {
            BrokerRequest::Start { uid } => (1, uid),
            BrokerRequest::Read => (2, 0),
            BrokerRequest::Take => (3, 0),
        };
        let mut bytes = [kind, 0, 0, 0, 0, 0, 0, 0];
        bytes[4..].copy_from_slice(&uid.to_le_bytes());
        bytes
    }

    /// The request of these bytes. `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<BrokerRequest> {
        let [kind, 0, 0, 0, uid @ ..] = *bytes.first_chunk::<REQUEST_BYTES>()? else { return None };
        match (bytes.len(), kind, u32::from_le_bytes(uid)) {
            (REQUEST_BYTES, 1, uid) => Some(BrokerRequest::Start { uid }),
            (REQUEST_BYTES, 2, 0) => Some(BrokerRequest::Read),
            (REQUEST_BYTES, 3, 0) => Some(BrokerRequest::Take),
            _ => None,
        }
    }
}

impl BrokerAnswer {
    /// The byte of an answer.
    pub fn encode(self) -> [u8; 1] {
        match self {
            BrokerAnswer::Done => [0],
            BrokerAnswer::Refused => [1],
            BrokerAnswer::Failed => [2],
        }
    }

    /// The answer of these bytes. `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<BrokerAnswer> {
        match bytes {
            [0] => Some(BrokerAnswer::Done),
            [1] => Some(BrokerAnswer::Refused),
            [2] => Some(BrokerAnswer::Failed),
            _ => None,
        }
    }
}

impl Broker {
    /// The broker at the other end of a socket.
    pub fn over(socket: OwnedFd) -> Broker {
        Broker(Mutex::new(socket))
    }

    /// Has a deputy started. Blocks.
    pub(super) fn start(&self, uid: u32) -> Result<OwnedFd, Fault> {
        match self.ask(BrokerRequest::Start { uid })? {
            (BrokerAnswer::Done, Some(socket)) => Ok(socket),
            (BrokerAnswer::Refused, _) => Err(failed("the configuration has no client with this user any more")),
            _ => Err(failed("the process for a user of this host cannot be started")),
        }
    }

    /// Has the broker read the configuration again. Blocks.
    pub(crate) fn read(&self) -> Result<(), Fault> {
        match self.ask(BrokerRequest::Read)? {
            (BrokerAnswer::Done, _) => Ok(()),
            _ => Err(failed("the process that starts others for users cannot read the configuration")),
        }
    }

    /// Has the broker take what it read last. Blocks.
    pub(crate) fn take(&self) -> Result<(), Fault> {
        self.ask(BrokerRequest::Take).map(drop)
    }

    fn ask(&self, request: BrokerRequest) -> Result<(BrokerAnswer, Option<OwnedFd>), Fault> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = [0; 1];
        let answered = set_socket_timeout(&*socket, Timeout::Recv, Some(PATIENCE))
            .map_err(std::io::Error::from)
            .and_then(|()| passing::send(&*socket, &request.encode(), None))
            .and_then(|()| passing::receive(&*socket, &mut room, Passing::Taken));
        let answer = match answered {
            Ok(Some((len, descriptor))) => BrokerAnswer::decode(&room[..len]).map(|answer| (answer, descriptor)),
            Ok(None) => None,
            Err(error) => {
                tracing::error!(target: "longhaul::serve", %error, "the process that starts others for users does not answer");
                None
            }
        };
        // An answer that comes late would be taken for that of the next request.
        if answer.is_none() {
            let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
        }
        answer.ok_or_else(|| failed("the process that starts others for users has ended"))
    }
}

/// The fault of a client for which nobody can be started.
fn failed(why: &str) -> Fault {
    Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Daemon::SeeItsLog)
}

const REQUEST_BYTES: usize = BrokerRequest::BYTES;
/// Longer than the databases of users take, and as long as a client waits for a handshake.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_what_they_were_and_other_bytes_are_none() {
        for request in [BrokerRequest::Start { uid: 0xfffe_1234 }, BrokerRequest::Read, BrokerRequest::Take] {
            assert_eq!(BrokerRequest::decode(&request.encode()), Some(request));
        }
        for bad in [&[1; 8][..], &[1, 0, 0, 0, 7, 0, 0], &[1, 0, 0, 0, 7, 0, 0, 0, 0], &[2, 0, 0, 0, 1, 0, 0, 0], &[]] {
            assert_eq!(BrokerRequest::decode(bad), None, "{bad:?}");
        }
        for answer in [BrokerAnswer::Done, BrokerAnswer::Refused, BrokerAnswer::Failed] {
            assert_eq!(BrokerAnswer::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(BrokerAnswer::decode(&[3]), None);
    }
}
