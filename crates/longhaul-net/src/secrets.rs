//! Traffic secrets of TLS 1.3, and the keys that follow from them (RFC 8446, 7.1 to 7.3).
//!
//! Owns the schedule of keys of a lane that is handed over to another process. In: the secrets of a
//! handshake, which rustls tells its log of keys and nobody else. Out: keys to `records`. Must not
//! know records or sockets.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::{aead, hkdf};
use rustls::{CipherSuite, ConnectionTrafficSecrets, ExtractedSecrets, KeyLog, ServerConfig};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

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
pub(crate) type Secret = Zeroizing<Vec<u8>>;

/// Both secrets of a finished handshake, and its cipher suite.
pub(crate) struct TrafficSecrets {
    suite: CipherSuite,
    client: Secret,
    server: Secret,
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
            suite_of.key(secret).is_some_and(|key| key.is(extracted))
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

    /// The keys to send and to receive with, each with the number of the next record.
    pub(crate) fn first(&self) -> Option<[(TrafficKey, u64); 2]> {
        let suite = Suite::of(self.suite.into())?;
        Some([(suite.key(&self.tx)?, self.tx_seq), (suite.key(&self.rx)?, self.rx_seq)])
    }

    /// The next key to send with.
    pub(crate) fn next_tx(&mut self) -> Result<TrafficKey, rustls::Error> {
        renewed(self.suite, &mut self.tx)
    }

    /// The next key to receive with.
    pub(crate) fn next_rx(&mut self) -> Result<TrafficKey, rustls::Error> {
        renewed(self.suite, &mut self.rx)
    }
}

fn renewed(suite: u16, secret: &mut Secret) -> Result<TrafficKey, rustls::Error> {
    let suite = Suite::of(suite.into());
    let next = suite.and_then(|suite| {
        let next = suite.expanded(secret, b"traffic upd", secret.len())?;
        Some((suite.key(&next)?, next))
    });
    let (key, next) = next.ok_or(rustls::Error::EncryptError)?;
    *secret = next;
    Ok(key)
}

/// The algorithms of a cipher suite.
struct Suite {
    aead: &'static aead::Algorithm,
    hkdf: hkdf::Algorithm,
}

/// A key of one direction.
pub(crate) struct TrafficKey {
    /// Its algorithm.
    pub(crate) algorithm: &'static aead::Algorithm,
    /// Its bytes.
    pub(crate) key: Secret,
    /// The bytes from which nonces are made.
    pub(crate) iv: [u8; 12],
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
    fn key(&self, secret: &[u8]) -> Option<TrafficKey> {
        let key = self.expanded(secret, b"key", self.aead.key_len())?;
        let iv = self.expanded(secret, b"iv", 12)?.as_slice().try_into().ok()?;
        Some(TrafficKey { algorithm: self.aead, key, iv })
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

impl TrafficKey {
    /// Whether it is the one that rustls has.
    fn is(&self, extracted: &ConnectionTrafficSecrets) -> bool {
        let (key, iv) = match extracted {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
            _ => return false,
        };
        key.as_ref() == self.key.as_slice() && iv.as_ref() == self.iv
    }
}

/// A length for the expansion.
struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
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
