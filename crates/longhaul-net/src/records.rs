//! TLS 1.3 records of a private lane: seals pieces into them, opens them, renews keys (RFC 8446,
//! sections 5, 4.6.3 and 6).
//!
//! Owns the traffic keys after the handshake. Takes them from `handshake` through rustls's
//! interface for kernels, which keeps the key schedule; gives sealed and opened bytes to `private`.
//! Must not know sockets or buffers beyond its arguments.
//!
//! Rustls does not do this itself because its record layer allocates for each record and copies
//! twice each way. Sealing from the caller's buffer and opening into it takes 0.09 + 0.09 s/GB,
//! rustls's unbuffered interface 0.15 + 0.10 (`tests::speed`, AES-128-GCM).

use crate::secrets::{HandedOverKeys, TrafficKey};
use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::client::ClientConnectionData;
use rustls::crypto::cipher;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{AlertDescription, ConnectionTrafficSecrets, ExtractedSecrets, InvalidMessage, PeerMisbehaved};

/// The record protection of both directions of one lane.
pub(crate) struct Records {
    tx: Direction,
    rx: Direction,
    schedule: Schedule,
    /// Records that one key may seal.
    limit: u64,
    /// The peer asked for new keys from this side, too; they are due before the next payload.
    owes_update: bool,
    /// Records received since the last one with payload.
    idle: u32,
}

/// rustls's key schedule, which gives the next keys.
pub(crate) enum Schedule {
    /// The key schedule of the dialling side.
    Client(KernelConnection<ClientConnectionData>),
    /// The key schedule of the accepting side.
    Server(KernelConnection<ServerConnectionData>),
    /// The key schedule of a lane that another process has accepted.
    HandedOver(HandedOverKeys),
}

/// The meaning of a record without payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It changes nothing here.
    Nothing,
    /// The peer will send no more.
    End,
}

/// A record's content, once opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The kind of content: [`PAYLOAD`] or one that [`Records::absorb`] understands.
    pub(crate) kind: u8,
    /// The length of the content, from the start of the place it was opened into.
    pub(crate) len: usize,
}

impl Records {
    /// Takes over where the handshake ended.
    pub(crate) fn new(secrets: ExtractedSecrets, schedule: Schedule) -> Result<Records, rustls::Error> {
        let limit = schedule.limit();
        let (tx, rx) = (Direction::new(secrets.tx)?, Direction::new(secrets.rx)?);
        Ok(Records { tx, rx, schedule, limit, owes_update: false, idle: 0 })
    }

    /// Takes over where another process has left them. `None` if the keys are none.
    pub(crate) fn handed_over(keys: HandedOverKeys) -> Option<Records> {
        let [(tx, tx_seq), (rx, rx_seq)] = keys.first()?;
        let (tx, rx) = (Direction::of(&tx, tx_seq).ok()?, Direction::of(&rx, rx_seq).ok()?);
        let schedule = Schedule::HandedOver(keys);
        Some(Records { tx, rx, limit: schedule.limit(), schedule, owes_update: false, idle: 0 })
    }

    /// The numbers of the next records, to send and to receive, and how many one key may seal. They
    /// are all that the keys of the handshake do not say as long as none of them was renewed.
    pub(crate) fn numbers(&self) -> (u64, u64, u64) {
        (self.tx.seq, self.rx.seq, self.limit)
    }

    /// Seals up to [`FRAGMENT_BYTES_MAX`] of payload as one record at the start of `out`, where
    /// [`OVERHEAD`] more must fit. Call [`Records::renew`] before it.
    pub(crate) fn seal(&mut self, payload: &[u8], out: &mut [u8]) -> Result<usize, rustls::Error> {
        self.tx.seal(PAYLOAD, payload, out)
    }

    /// If new keys are due, seals the announcement at the start of `out` (at least
    /// [`RECORD_BYTES_MAX`]) and takes them. Returns its length, 0 if none is due.
    pub(crate) fn renew(&mut self, out: &mut [u8]) -> Result<usize, rustls::Error> {
        // One record is kept for the announcement itself.
        if !self.owes_update && self.tx.seq + 1 < self.limit {
            return Ok(0);
        }
        let written = self.tx.seal(HANDSHAKE, KEY_UPDATE, out)?;
        self.tx = self.schedule.next_tx()?;
        self.owes_update = false;
        Ok(written)
    }

    /// Seals an alert, which ends this direction.
    pub(crate) fn seal_alert(&mut self, alert: AlertDescription, out: &mut [u8]) -> Result<usize, rustls::Error> {
        let level = if alert == AlertDescription::CloseNotify { ALERT_WARNING } else { ALERT_FATAL };
        self.tx.seal(ALERT, &[level, u8::from(alert)], out)
    }

    /// Opens a record straight into `into`, which is at least `body.len() - TAG_BYTES` long. If it
    /// fails, the content of `into` is undefined.
    pub(crate) fn open_into(
        &mut self,
        header: [u8; HEADER_BYTES],
        body: &[u8],
        into: &mut [u8],
    ) -> Result<Opened, rustls::Error> {
        let inner = body.len().checked_sub(TAG_BYTES).ok_or(rustls::Error::DecryptError)?;
        let (text, tag) = body.split_at(inner);
        let into = &mut into[..inner];
        let (key, nonce) = self.rx.next()?;
        key.open_separate_gather(nonce, Aad::from(header), text, tag, into).map_err(|_| rustls::Error::DecryptError)?;
        self.opened(into)
    }

    /// Opens a record where it lies.
    pub(crate) fn open_in_place(
        &mut self,
        header: [u8; HEADER_BYTES],
        body: &mut [u8],
    ) -> Result<Opened, rustls::Error> {
        let (key, nonce) = self.rx.next()?;
        let inner = key.open_in_place(nonce, Aad::from(header), body).map_err(|_| rustls::Error::DecryptError)?;
        self.opened(inner)
    }

    /// Acts on a record that is no payload.
    pub(crate) fn absorb(&mut self, kind: u8, content: &[u8]) -> Result<Heard, rustls::Error> {
        match (kind, content) {
            (ALERT, &[_, description]) => hear_alert(AlertDescription::from(description)),
            (HANDSHAKE, &[KEY_UPDATE_TYPE, 0, 0, 1, request @ (0 | 1)]) => {
                self.rx = self.schedule.next_rx()?;
                self.owes_update |= request == 1;
                Ok(Heard::Nothing)
            }
            (ALERT | HANDSHAKE, _) => Err(InvalidMessage::UnexpectedMessage("after the handshake").into()),
            _ => Err(InvalidMessage::InvalidContentType.into()),
        }
    }

    /// Finds the kind behind the content and its padding (`content || kind || zeros`), and bounds
    /// the number of records without payload.
    fn opened(&mut self, inner: &[u8]) -> Result<Opened, rustls::Error> {
        let len = inner.iter().rposition(|&byte| byte != 0).ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
        if len > FRAGMENT_BYTES_MAX {
            return Err(rustls::Error::PeerSentOversizedRecord);
        }
        let opened = Opened { kind: inner[len], len };
        self.idle = if opened.kind == PAYLOAD && len > 0 { 0 } else { self.idle + 1 };
        match self.idle > IDLE_RECORDS_MAX {
            true => Err(PeerMisbehaved::TooManyEmptyFragments.into()),
            false => Ok(opened),
        }
    }

    /// Lowers the number of records that one key may seal.
    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Seals any content as a record of any kind.
    #[cfg(test)]
    pub(crate) fn seal_as(&mut self, kind: u8, content: &[u8], out: &mut [u8]) -> Result<usize, rustls::Error> {
        self.tx.seal(kind, content, out)
    }

    /// Renews the key though nothing asks for it.
    #[cfg(test)]
    pub(crate) fn renew_now(&mut self, out: &mut [u8]) -> Result<usize, rustls::Error> {
        self.owes_update = true;
        self.renew(out)
    }

    /// The number of records that the present key has sealed.
    #[cfg(test)]
    pub(crate) fn sealed(&self) -> u64 {
        self.tx.seq
    }
}

impl Schedule {
    /// Records that one key may seal before it must be renewed (2^24 for AES-GCM, about 256 GiB of
    /// payload).
    fn limit(&self) -> u64 {
        let suite = match self {
            Schedule::Client(kernel) => kernel.negotiated_cipher_suite(),
            Schedule::Server(kernel) => kernel.negotiated_cipher_suite(),
            Schedule::HandedOver(keys) => return keys.limit,
        };
        suite.tls13().map_or(1, |suite| suite.common.confidentiality_limit).min(RECORDS_PER_KEY_MAX)
    }

    fn next_tx(&mut self) -> Result<Direction, rustls::Error> {
        match self {
            Schedule::Client(kernel) => Direction::new(kernel.update_tx_secret()?),
            Schedule::Server(kernel) => Direction::new(kernel.update_tx_secret()?),
            Schedule::HandedOver(keys) => Direction::of(&keys.next_tx()?, 0),
        }
    }

    fn next_rx(&mut self) -> Result<Direction, rustls::Error> {
        match self {
            Schedule::Client(kernel) => Direction::new(kernel.update_rx_secret()?),
            Schedule::Server(kernel) => Direction::new(kernel.update_rx_secret()?),
            Schedule::HandedOver(keys) => Direction::of(&keys.next_rx()?, 0),
        }
    }
}

/// One direction's key and the number of the next record.
struct Direction {
    key: LessSafeKey,
    iv: cipher::Iv,
    seq: u64,
}

impl Direction {
    fn new((seq, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Direction, rustls::Error> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(rustls::Error::General("a cipher suite that was not offered".into())),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| rustls::Error::EncryptError)?;
        Ok(Direction { key: LessSafeKey::new(key), iv, seq })
    }

    fn of(key: &TrafficKey, seq: u64) -> Result<Direction, rustls::Error> {
        let TrafficKey { algorithm, key, iv } = key;
        let key = UnboundKey::new(algorithm, key).map_err(|_| rustls::Error::EncryptError)?;
        Ok(Direction { key: LessSafeKey::new(key), iv: cipher::Iv::from(*iv), seq })
    }

    fn seal(&mut self, kind: u8, content: &[u8], out: &mut [u8]) -> Result<usize, rustls::Error> {
        assert!(
            content.len() <= FRAGMENT_BYTES_MAX && content.len() + OVERHEAD <= out.len(),
            "callers cut and make room"
        );
        let header = cipher::make_tls13_aad(content.len() + 1 + TAG_BYTES);
        let (start, rest) = out.split_at_mut(HEADER_BYTES);
        let (text, rest) = rest.split_at_mut(content.len());
        start.copy_from_slice(&header);
        let (key, nonce) = self.next()?;
        key.seal_out_of_place_scatter(nonce, Aad::from(header), content, text, &[kind], &mut rest[..1 + TAG_BYTES])
            .map_err(|_| rustls::Error::EncryptError)?;
        Ok(content.len() + OVERHEAD)
    }

    /// The key with a nonce that is used this once: the number is spent even if the record then
    /// fails.
    fn next(&mut self) -> Result<(&LessSafeKey, Nonce), rustls::Error> {
        let nonce = cipher::Nonce::new(&self.iv, self.seq);
        self.seq = self.seq.checked_add(1).ok_or(rustls::Error::EncryptError)?;
        Ok((&self.key, Nonce::assume_unique_for_key(nonce.0)))
    }
}

fn hear_alert(alert: AlertDescription) -> Result<Heard, rustls::Error> {
    match alert {
        AlertDescription::CloseNotify => Ok(Heard::End),
        AlertDescription::UserCanceled => Ok(Heard::Nothing),
        fatal => Err(rustls::Error::AlertReceived(fatal)),
    }
}

/// Kind of a record that carries payload; also the kind that every protected record shows outside.
pub(crate) const PAYLOAD: u8 = 23;
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const ALERT_WARNING: u8 = 1;
const ALERT_FATAL: u8 = 2;
const KEY_UPDATE_TYPE: u8 = 24;
/// `KeyUpdate { update_not_requested }`: each direction counts for itself, so nothing is asked of
/// the peer.
const KEY_UPDATE: &[u8] = &[KEY_UPDATE_TYPE, 0, 0, 1, 0];

/// Kind, version and length before each record.
pub(crate) const HEADER_BYTES: usize = 5;
/// The tag behind each record.
pub(crate) const TAG_BYTES: usize = 16;
/// The most payload of one record.
pub(crate) const FRAGMENT_BYTES_MAX: usize = 1 << 14;
/// The bytes that a record adds to its payload: header, inner kind, tag.
pub(crate) const OVERHEAD: usize = HEADER_BYTES + 1 + TAG_BYTES;
/// The largest record that this side makes.
pub(crate) const RECORD_BYTES_MAX: usize = FRAGMENT_BYTES_MAX + OVERHEAD;
/// The longest body that a peer may send (RFC 8446, 5.2: padding and expansion up to 256 bytes).
pub(crate) const BODY_BYTES_MAX: usize = FRAGMENT_BYTES_MAX + 256;
/// The most records without payload in a row. No honest peer needs so many.
const IDLE_RECORDS_MAX: u32 = 32;
/// The most records that one key seals, even where the cipher suite has no limit.
const RECORDS_PER_KEY_MAX: u64 = 1 << 32;
