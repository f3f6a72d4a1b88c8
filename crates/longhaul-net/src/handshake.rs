//! The TLS handshake of a private lane, without I/O: bytes go in and come out, and at its end there
//! are keys and a proved peer.
//!
//! Owns rustls's unbuffered connection until it is done. Takes configurations from `tls` and bytes
//! from its driver (blocking in `lane`, asynchronous in `accept`, in memory in `pair`); gives
//! [`Secured`] to `private`. Must not know sockets.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, ServerConfig};

use crate::error::NetError;
use crate::public_key::PublicKey;
use crate::records::{Records, Schedule};
use crate::secrets::{HeardSecrets, TrafficSecrets};
use crate::tls::{LANE, nominal_name, proved_key};

/// A handshake under way.
pub(crate) struct Handshake {
    side: Side,
    /// Bytes that were received and not yet consumed.
    received: Vec<u8>,
    /// Payload that came right behind the handshake.
    early: Vec<u8>,
    /// Hears the secrets of a lane that may be handed over.
    heard: Option<Arc<HeardSecrets>>,
}

/// The end of the handshake that this side is.
pub(crate) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// The result of a finished handshake.
pub(crate) struct Secured {
    /// The protection of everything that follows.
    pub(crate) records: Records,
    /// The key that the peer has proved.
    pub(crate) peer_key: PublicKey,
    /// Payload that was received already.
    pub(crate) early: Vec<u8>,
    /// Ciphertext that was received already, from the start of a record.
    pub(crate) leftover: Vec<u8>,
    /// The secrets of a lane that may be handed over.
    pub(crate) secrets: Option<TrafficSecrets>,
}

/// The next step of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeTurn {
    /// The peer must say more.
    Peer,
    /// Both are done; call [`Handshake::finish`].
    Done,
}

impl Handshake {
    /// The dialling side.
    pub(crate) fn client(config: Arc<ClientConfig>, peer: &str) -> Result<Handshake, NetError> {
        let connection = UnbufferedClientConnection::new(config, nominal_name()?);
        Handshake::new(connection.map(Side::Client), Vec::new(), peer)
    }

    /// The accepting side, which has received the beginning already.
    pub(crate) fn server(config: Arc<ServerConfig>, heard: Vec<u8>, peer: &str) -> Result<Handshake, NetError> {
        Handshake::new(UnbufferedServerConnection::new(config).map(Side::Server), heard, peer)
    }

    fn new(side: Result<Side, rustls::Error>, heard: Vec<u8>, peer: &str) -> Result<Handshake, NetError> {
        side.map(|side| Handshake { side, received: heard, early: Vec::new(), heard: None })
            .map_err(|e| NetError::tls(peer, e))
    }

    /// The same, of a lane that may be handed over to another process.
    pub(crate) fn heard_by(self, heard: Arc<HeardSecrets>) -> Handshake {
        Handshake { heard: Some(heard), ..self }
    }

    /// Takes bytes from the peer.
    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Goes as far as it can. In each case `say` then holds bytes for the peer (an alert, if it
    /// failed).
    pub(crate) fn advance(&mut self, say: &mut Vec<u8>) -> Result<HandshakeTurn, rustls::Error> {
        loop {
            let (discard, next) = match &mut self.side {
                Side::Client(c) => absorb(c.process_tls_records(&mut self.received), say, &mut self.early),
                Side::Server(s) => absorb(s.process_tls_records(&mut self.received), say, &mut self.early),
            };
            self.received.drain(..discard);
            match next {
                Ok(Next::Again) => {}
                Ok(Next::Turn(turn)) => return Ok(turn),
                Err(error) => {
                    self.say_alert(say);
                    return Err(error);
                }
            }
        }
    }

    /// Trades the finished connection for its keys.
    pub(crate) fn finish(self) -> Result<Secured, rustls::Error> {
        let (peer_key, secrets, schedule, suite) = match self.side {
            Side::Client(c) => {
                let peer_key = proved_key(&c, LANE)?;
                let (secrets, kernel) = c.dangerous_into_kernel_connection()?;
                let suite = kernel.negotiated_cipher_suite().suite();
                (peer_key, secrets, Schedule::Client(kernel), suite)
            }
            Side::Server(s) => {
                let peer_key = proved_key(&s, LANE)?;
                let (secrets, kernel) = s.dangerous_into_kernel_connection()?;
                let suite = kernel.negotiated_cipher_suite().suite();
                (peer_key, secrets, Schedule::Server(kernel), suite)
            }
        };
        let heard = self.heard.and_then(|heard| heard.take(suite, &secrets));
        let records = Records::new(secrets, schedule)?;
        Ok(Secured { records, peer_key, early: self.early, leftover: self.received, secrets: heard })
    }

    /// The rustls connection, for measurements of rustls's own records.
    #[cfg(test)]
    pub(crate) fn into_side(self) -> Side {
        self.side
    }

    /// After an error rustls still holds the alert that tells the peer why. It is asked only while
    /// it has something to send: it then does not look at received bytes, which would be an error
    /// of their own.
    fn say_alert(&mut self, say: &mut Vec<u8>) {
        loop {
            let (_, next) = match &mut self.side {
                Side::Client(c) if c.wants_write() => absorb(c.process_tls_records(&mut []), say, &mut self.early),
                Side::Server(s) if s.wants_write() => absorb(s.process_tls_records(&mut []), say, &mut self.early),
                _ => return,
            };
            if next.is_err() {
                return;
            }
        }
    }
}

enum Next {
    Again,
    Turn(HandshakeTurn),
}

/// Carries out what rustls asks for. Returns the number of received bytes that are used up, and the
/// next step.
fn absorb<D>(
    status: UnbufferedStatus<'_, '_, D>,
    say: &mut Vec<u8>,
    early: &mut Vec<u8>,
) -> (usize, Result<Next, rustls::Error>) {
    let mut discard = status.discard;
    let next = status.state.and_then(|state| match state {
        ConnectionState::EncodeTlsData(mut chunk) => {
            encode(|out| chunk.encode(out), say)?;
            Ok(Next::Again)
        }
        // The bytes go out before anything else is heard: `advance` returns only when the peer has
        // to speak.
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            Ok(Next::Again)
        }
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                early.extend_from_slice(record.payload);
            }
            Ok(Next::Again)
        }
        ConnectionState::BlockedHandshake => Ok(Next::Turn(HandshakeTurn::Peer)),
        ConnectionState::WriteTraffic(_) => Ok(Next::Turn(HandshakeTurn::Done)),
        _ => Err(rustls::Error::HandshakeNotComplete),
    });
    (discard, next)
}

fn encode(
    mut into: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    say: &mut Vec<u8>,
) -> Result<(), rustls::Error> {
    let Err(EncodeError::InsufficientSize(size)) = into(&mut []) else {
        return Ok(());
    };
    let start = say.len();
    say.resize(start + size.required_size, 0);
    let written = into(&mut say[start..]).map_err(|_| rustls::Error::EncryptError)?;
    say.truncate(start + written);
    Ok(())
}
