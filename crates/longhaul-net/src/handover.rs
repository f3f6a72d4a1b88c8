//! Lanes that go from the process that accepted them to another one of this host.
//!
//! Owns the form of a lane on its way: a descriptor, and [`LaneParts`]. In: lanes that were
//! greeted, with the traffic secrets of their handshakes. Out: the parts, and on the other side
//! the same lane. Only the secrets of TLS's own schedule are passed on, from which its keys follow
//! (RFC 8446, 7.1 to 7.3): rustls keeps that schedule to itself, but tells its log of keys the
//! secrets. Must not know who the other process is.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::{aead, hkdf};
use rustls::{CipherSuite, ConnectionTrafficSecrets, ExtractedSecrets, KeyLog, ServerConfig};
use serde::{Deserialize, Serialize};
use socket2::Socket;
use zeroize::Zeroizing;

use crate::error::NetError;
use crate::lane::LaneStream;
use crate::private::{Private, PrivateParts};
use crate::records::{Direction, Records};
use crate::tcp::TcpLane;
use crate::wire::{Congestion, Wire};

/// A lane over TCP without its socket.
#[derive(Serialize, Deserialize)]
pub struct LaneParts {
    peer: SocketAddr,
    private: Option<PrivateParts>,
}

/// The state of the keys of a private lane.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HandedOverKeys {
    suite: u16,
    /// Records that one key may seal.
    pub(crate) limit: u64,
    tx: Secret,
    rx: Secret,
    /// The numbers of the next records.
    tx_seq: u64,
    rx_seq: u64,
}

/// The secrets of one handshake of a server, as it tells them to its log of keys.
#[derive(Default)]
pub(crate) struct HeardSecrets(Mutex<(Secret, Secret)>);

/// Bytes that are wiped when they are dropped.
type Secret = Zeroizing<Vec<u8>>;

/// Both secrets of a finished handshake, and its cipher suite.
pub(crate) struct TrafficSecrets {
    suite: CipherSuite,
    client: Secret,
    server: Secret,
}

impl LaneStream {
    /// Takes a lane apart that was accepted and of which nothing was sent or received since.
    /// `None`, and the lane is closed, if it is not over TCP, or was greeted by a server that does
    /// not hand lanes over.
    #[must_use]
    pub fn take_apart(self) -> Option<(OwnedFd, LaneParts)> {
        let lane = self.into_tcp()?;
        let (wire, private) = lane.into_parts()?;
        let peer = wire.peer_addr()?;
        let private = match private {
            Some(private) => Some(private.into_parts()?),
            None => None,
        };
        let socket = wire.observed().0.upgrade()?.try_clone().ok()?;
        Some((OwnedFd::from(socket), LaneParts { peer, private }))
    }

    /// Puts a lane together that another process of this host has taken apart.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the descriptor is no connected socket, [`NetError::Crypto`] if the
    /// parts are not those of a lane.
    pub fn put_together(socket: OwnedFd, parts: LaneParts) -> Result<LaneStream, NetError> {
        let wire = Wire::tcp(Socket::from(socket), parts.peer, &Congestion::Auto)?;
        let lane = match parts.private {
            None => TcpLane::safe(wire),
            Some(private) => {
                let private = Private::from_parts(private).ok_or(NetError::Crypto { doing: "take a lane over" })?;
                TcpLane::private(wire, private)
            }
        };
        Ok(LaneStream::over(lane))
    }
}

impl HeardSecrets {
    /// A configuration of a server whose next handshake is heard, and the ear.
    pub(crate) fn of(config: &Arc<ServerConfig>) -> (Arc<ServerConfig>, Arc<HeardSecrets>) {
        let heard = Arc::new(HeardSecrets::default());
        let mut config = ServerConfig::clone(config);
        config.key_log = heard.clone();
        (Arc::new(config), heard)
    }

    /// The secrets, if the keys that rustls extracts are the first that follow from them: a peer
    /// may have renewed one in the midst of the handshake.
    pub(crate) fn take(&self, suite: CipherSuite, extracted: &ExtractedSecrets) -> Option<TrafficSecrets> {
        let (client, server) = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let suite_of = Suite::of(suite)?;
        let ((_, tx), (_, rx)) = (&extracted.tx, &extracted.rx);
        let same = |secret: &[u8], extracted: &ConnectionTrafficSecrets| {
            suite_of.keys(secret).is_some_and(|keys| keys.are(extracted))
        };
        (same(&server, tx) && same(&client, rx)).then_some(TrafficSecrets { suite, client, server })
    }
}

impl KeyLog for HeardSecrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match label {
            CLIENT_SECRET => heard.0 = Zeroizing::new(secret.to_vec()),
            SERVER_SECRET => heard.1 = Zeroizing::new(secret.to_vec()),
            _ => {}
        }
    }

    fn will_log(&self, label: &str) -> bool {
        [CLIENT_SECRET, SERVER_SECRET].contains(&label)
    }
}

impl HandedOverKeys {
    /// The keys of a server's end, the records of which have these numbers.
    pub(crate) fn of(secrets: TrafficSecrets, (tx_seq, rx_seq, limit): (u64, u64, u64)) -> HandedOverKeys {
        let TrafficSecrets { suite, client, server } = secrets;
        HandedOverKeys { suite: suite.into(), limit, tx: server, rx: client, tx_seq, rx_seq }
    }

    /// The records that go on with them.
    pub(crate) fn into_records(self) -> Option<Records> {
        let suite = Suite::of(self.suite.into())?;
        let direction = |secret: &[u8], seq| suite.keys(secret)?.direction(&suite, seq);
        let directions = (direction(&self.tx, self.tx_seq)?, direction(&self.rx, self.rx_seq)?);
        Some(Records::handed_over(self, directions))
    }

    /// The next key to send with.
    pub(crate) fn next_tx(&mut self) -> Result<Direction, rustls::Error> {
        renewed(self.suite, &mut self.tx)
    }

    /// The next key to receive with.
    pub(crate) fn next_rx(&mut self) -> Result<Direction, rustls::Error> {
        renewed(self.suite, &mut self.rx)
    }
}

fn renewed(suite: u16, secret: &mut Secret) -> Result<Direction, rustls::Error> {
    let suite = Suite::of(suite.into());
    let next = suite.and_then(|suite| {
        let next = suite.expanded(secret, b"traffic upd", secret.len())?;
        let direction = suite.keys(&next)?.direction(&suite, 0)?;
        Some((next, direction))
    });
    let (next, direction) = next.ok_or(rustls::Error::EncryptError)?;
    *secret = next;
    Ok(direction)
}

/// The algorithms of a cipher suite.
struct Suite {
    aead: &'static aead::Algorithm,
    hkdf: hkdf::Algorithm,
}

/// A key, and what its nonces begin with.
struct Keys {
    key: Secret,
    iv: [u8; 12],
}

impl Suite {
    fn of(suite: CipherSuite) -> Option<Suite> {
        match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(Suite { aead: &aead::AES_128_GCM, hkdf: hkdf::HKDF_SHA256 }),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(Suite { aead: &aead::AES_256_GCM, hkdf: hkdf::HKDF_SHA384 }),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => {
                Some(Suite { aead: &aead::CHACHA20_POLY1305, hkdf: hkdf::HKDF_SHA256 })
            }
            _ => None,
        }
    }

    /// The key that follows from a secret (RFC 8446, 7.3).
    fn keys(&self, secret: &[u8]) -> Option<Keys> {
        let key = self.expanded(secret, b"key", self.aead.key_len())?;
        let iv = self.expanded(secret, b"iv", 12)?.as_slice().try_into().ok()?;
        Some(Keys { key, iv })
    }

    /// `HKDF-Expand-Label` without a context (RFC 8446, 7.1).
    fn expanded(&self, secret: &[u8], label: &[u8], len: usize) -> Option<Secret> {
        let len_bytes = u16::try_from(len).ok()?.to_be_bytes();
        let label_len = [u8::try_from(LABEL.len() + label.len()).ok()?];
        let info: [&[u8]; 5] = [&len_bytes, &label_len, LABEL, label, &[0]];
        let prk = hkdf::Prk::new_less_safe(self.hkdf, secret);
        let mut expanded = Zeroizing::new(vec![0; len]);
        prk.expand(&info, Bytes(len)).ok()?.fill(&mut expanded).ok()?;
        Some(expanded)
    }
}

impl Keys {
    /// Whether these are the same as rustls has.
    fn are(&self, extracted: &ConnectionTrafficSecrets) -> bool {
        let (key, iv) = match extracted {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
            _ => return false,
        };
        key.as_ref() == self.key.as_slice() && iv.as_ref() == self.iv
    }

    fn direction(&self, suite: &Suite, seq: u64) -> Option<Direction> {
        Direction::of(suite.aead, &self.key, self.iv, seq)
    }
}

/// A length for the expansion.
struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl fmt::Debug for LaneParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneParts").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl fmt::Debug for HeardSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeardSecrets")
    }
}

/// The labels by which a log of keys is told the secrets of payload.
const CLIENT_SECRET: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER_SECRET: &str = "SERVER_TRAFFIC_SECRET_0";
/// All labels of TLS 1.3 begin so.
const LABEL: &[u8] = b"tls13 ";
