//! The keys of a UDP lane: from the control connection's exported secret to sealed packets.
//!
//! Owns the secrets, the numbers of packets and the change of keys. In: headers and payload, sealed
//! from where they lie and opened to where they belong. Out: packets. It must not know what a
//! header says, nor sockets.
//!
//! The scheme, each step HKDF-Expand over SHA-256 (RFC 5869) with `info` in ASCII:
//!
//! | secret | from | `info` |
//! |---|---|---|
//! | exported, 32 bytes | TLS of the control connection (RFC 8446, 7.5) | see below |
//! | of a direction, 32 bytes | exported | a role, then the lane's context |
//! | of the next epoch, 32 bytes | of this epoch | `longhaul udp next` |
//! | key, IV | of an epoch | `longhaul udp key`, `longhaul udp iv` |
//!
//! The label of the exported secret is `longhaul udp lane`, without a context. A role says who
//! sends: `longhaul udp dialer 1` or `longhaul udp acceptor 1`.
//!
//! The AEAD is that of the control connection's cipher suite. A nonce is the IV, its last eight
//! bytes xor the packet's number (big endian), as in TLS 1.3 and QUIC. A number is used once: one
//! [`Sealer`] counts for its direction, and each lane has keys of its own, as its context has two
//! fresh nonces. An epoch is 2^22 packets, within the 2^23 that RFC 9001, 6.6 allows AES-GCM.

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use longhaul_core::limits::UDP_PACKETS_MAX;
use rustls::CipherSuite;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::NetError;

/// A secret that only the two ends of a control connection know, from which the keys of their UDP
/// lanes are made. Different for each connection; it is used for nothing else.
#[derive(Clone, Serialize, Deserialize)]
pub struct UdpSecret {
    cipher: Cipher,
    secret: Zeroizing<[u8; SECRET_BYTES]>,
}

/// The end of a lane that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneEnd {
    /// It dialled the lane.
    Dialer,
    /// It accepted the lane.
    Acceptor,
}

/// The AEAD of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl UdpSecret {
    /// The secret of a connection with this cipher suite. `None` for a suite that is not of TLS
    /// 1.3.
    pub(crate) fn of(suite: CipherSuite, secret: [u8; SECRET_BYTES]) -> Option<UdpSecret> {
        let cipher = match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => Cipher::Aes128Gcm,
            CipherSuite::TLS13_AES_256_GCM_SHA384 => Cipher::Aes256Gcm,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Cipher::ChaCha20Poly1305,
            _ => return None,
        };
        Some(UdpSecret { cipher, secret: Zeroizing::new(secret) })
    }

    /// The keys of the lane with this context, at `end` of it: to send, and to receive. No two
    /// lanes of a connection may have the same context.
    ///
    /// # Errors
    /// [`NetError::Crypto`].
    pub fn keys(&self, context: &[u8], end: LaneEnd) -> Result<(Sealer, Opener), NetError> {
        let epoch = |role: &[u8]| {
            let secret = expand(&self.secret, &[role, context])?;
            EpochKey::of(self.cipher, secret)
        };
        let both = || Some((epoch(DIALER)?, epoch(ACCEPTOR)?));
        let (dialer, acceptor) = both().ok_or(NetError::Crypto { doing: "make the keys of a UDP lane" })?;
        let (sends, receives) = match end {
            LaneEnd::Dialer => (dialer, acceptor),
            LaneEnd::Acceptor => (acceptor, dialer),
        };
        let opener = Opener::new(receives).ok_or(NetError::Crypto { doing: "make the keys of a UDP lane" })?;
        Ok((Sealer { key: sends, number: 0, epoch_log2: EPOCH_LOG2 }, opener))
    }
}

impl fmt::Debug for UdpSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSecret").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

/// Seals the packets of one direction of a lane, each with a number of its own.
pub struct Sealer {
    key: EpochKey,
    /// The number of the next packet.
    number: u64,
    epoch_log2: u32,
}

impl Sealer {
    /// The number of the packet that is sealed next. `None` when there are no more.
    pub fn number(&self) -> Option<u64> {
        (self.number < NUMBERS_END).then_some(self.number)
    }

    /// Seals a packet at the start of `out`: `header` as it is, then `plain`, then the tag. The
    /// header must say [`Sealer::number`], or nobody opens the packet. Gives its length,
    /// [`SEAL_BYTES`] more than both.
    ///
    /// # Errors
    /// [`NetError::Crypto`] if numbers are used up, or the cryptographic library fails.
    ///
    /// # Panics
    /// If `out` is too short.
    pub fn seal(&mut self, header: &[u8], plain: &[u8], out: &mut [u8]) -> Result<usize, NetError> {
        let failed = || NetError::Crypto { doing: "seal a packet of a UDP lane" };
        let number = self.number().ok_or_else(failed)?;
        if number > 0 && number.trailing_zeros() >= self.epoch_log2 {
            self.key = self.key.next().ok_or_else(failed)?;
        }
        // It is spent even if sealing fails.
        self.number += 1;
        let (head, rest) = out.split_at_mut(header.len());
        let (text, rest) = rest.split_at_mut(plain.len());
        head.copy_from_slice(header);
        let nonce = self.key.nonce(number);
        self.key
            .aead
            .seal_out_of_place_scatter(nonce, Aad::from(header), plain, text, &[], &mut rest[..SEAL_BYTES])
            .map_err(|_| failed())?;
        Ok(header.len() + plain.len() + SEAL_BYTES)
    }

    /// Changes keys after 2^`log2` packets.
    #[cfg(test)]
    pub(crate) fn with_epochs_of(self, log2: u32) -> Sealer {
        Sealer { epoch_log2: log2, ..self }
    }

    /// Has the next packet be this one.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, number: u64) {
        self.number = number;
    }
}

/// Opens the packets of one direction of a lane. It does not know which of them came before: a
/// packet that is repeated opens again.
pub struct Opener {
    /// `None` in the first epoch.
    last: Option<EpochKey>,
    now: EpochKey,
    next: EpochKey,
    epoch: u64,
    epoch_log2: u32,
    forged: u64,
}

/// Why a packet does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// It is damaged, or not from the other end. Nothing follows from it.
    Forged,
    /// Too many were forged: the lane must end.
    TooMany,
}

impl Opener {
    fn new(now: EpochKey) -> Option<Opener> {
        Some(Opener { last: None, next: now.next()?, now, epoch: 0, epoch_log2: EPOCH_LOG2, forged: 0 })
    }

    /// Opens the packet of this number straight into `into`, which is as long as its plain text:
    /// [`SEAL_BYTES`] shorter than `sealed`. If it fails, the content of `into` is undefined.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub fn open(&mut self, number: u64, header: &[u8], sealed: &[u8], into: &mut [u8]) -> Result<(), NotOpened> {
        let epoch = number >> self.epoch_log2;
        let key = match epoch.wrapping_sub(self.epoch) {
            0 => Some(&self.now),
            1 => Some(&self.next),
            u64::MAX => self.last.as_ref(),
            _ => None,
        };
        let split = sealed.len().checked_sub(SEAL_BYTES).filter(|plain| *plain == into.len());
        let opened = key.zip(split).filter(|_| number < NUMBERS_END).is_some_and(|(key, split)| {
            let (text, tag) = sealed.split_at(split);
            key.aead.open_separate_gather(key.nonce(number), Aad::from(header), text, tag, into).is_ok()
        });
        if !opened {
            self.forged += 1;
            return Err(if self.forged < FORGED_MAX { NotOpened::Forged } else { NotOpened::TooMany });
        }
        if epoch > self.epoch {
            // Only who has this key can have the next one.
            let next = self.next.next().ok_or(NotOpened::TooMany)?;
            self.last = Some(std::mem::replace(&mut self.now, std::mem::replace(&mut self.next, next)));
            self.epoch = epoch;
        }
        Ok(())
    }

    /// Packets that did not open.
    pub fn forged(&self) -> u64 {
        self.forged
    }

    #[cfg(test)]
    pub(crate) fn with_epochs_of(self, log2: u32) -> Opener {
        Opener { epoch_log2: log2, ..self }
    }

    #[cfg(test)]
    pub(crate) fn with_forged(self, forged: u64) -> Opener {
        Opener { forged, ..self }
    }
}

/// The key of an epoch, and the secret from which the next one is made.
struct EpochKey {
    cipher: Cipher,
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    aead: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
}

impl EpochKey {
    fn of(cipher: Cipher, secret: Zeroizing<[u8; SECRET_BYTES]>) -> Option<EpochKey> {
        let algorithm = cipher.algorithm();
        let key = expand::<SECRET_BYTES>(&secret, &[KEY])?;
        let iv = *expand(&secret, &[IV])?;
        let key = UnboundKey::new(algorithm, &key[..algorithm.key_len()]).ok()?;
        Some(EpochKey { cipher, secret, aead: LessSafeKey::new(key), iv })
    }

    fn next(&self) -> Option<EpochKey> {
        EpochKey::of(self.cipher, expand(&self.secret, &[NEXT])?)
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher {
    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Cipher::Aes128Gcm => &aead::AES_128_GCM,
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("epoch", &self.epoch).field("forged", &self.forged).finish_non_exhaustive()
    }
}

/// HKDF-Expand with the parts of `info` in a row.
fn expand<const LEN: usize>(secret: &[u8; SECRET_BYTES], info: &[&[u8]]) -> Option<Zeroizing<[u8; LEN]>> {
    let mut out = Zeroizing::new([0; LEN]);
    Prk::new_less_safe(HKDF_SHA256, secret).expand(info, OutputBytes(LEN)).ok()?.fill(&mut *out).ok()?;
    Some(out)
}

/// A length for the expansion.
struct OutputBytes(usize);

impl KeyType for OutputBytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// OutputBytes by which a packet is longer than its header and its plain text: the tag.
pub const SEAL_BYTES: usize = 16;
/// The label of the secret among those that TLS exports.
pub(crate) const UDP_EXPORTER_LABEL: &[u8] = b"longhaul udp lane";
const SECRET_BYTES: usize = 32;
const DIALER: &[u8] = b"longhaul udp dialer 1";
const ACCEPTOR: &[u8] = b"longhaul udp acceptor 1";
const KEY: &[u8] = b"longhaul udp key";
const IV: &[u8] = b"longhaul udp iv";
const NEXT: &[u8] = b"longhaul udp next";
/// Packets of an epoch, as a power of two: half of what RFC 9001 allows one key of AES-GCM.
const EPOCH_LOG2: u32 = 22;
/// The end of numbers: 300 PB of the smallest pieces.
const NUMBERS_END: u64 = UDP_PACKETS_MAX;
/// The packets that do not open after which a lane ends, in all of its epochs together. RFC 9001,
/// 6.6 allows AES-GCM 2^52 and ChaCha20-Poly1305 2^36.
const FORGED_MAX: u64 = 1 << 36;

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(suite: CipherSuite) -> UdpSecret {
        UdpSecret::of(suite, std::array::from_fn(|at| at as u8)).unwrap()
    }

    fn context() -> Vec<u8> {
        (100..152).collect()
    }

    /// Both ends' keys for what the dialler sends, with epochs of 2^`log2` packets.
    fn direction(log2: u32) -> (Sealer, Opener) {
        let secret = secret(CipherSuite::TLS13_AES_128_GCM_SHA256);
        let (sealer, _) = secret.keys(&context(), LaneEnd::Dialer).unwrap();
        let (_, opener) = secret.keys(&context(), LaneEnd::Acceptor).unwrap();
        (sealer.with_epochs_of(log2), opener.with_epochs_of(log2))
    }

    fn sealed(sealer: &mut Sealer) -> (u64, Vec<u8>) {
        let (number, mut out) = (sealer.number().unwrap(), vec![0; 64]);
        let len = sealer.seal(b"header", b"piece", &mut out).unwrap();
        out.truncate(len);
        (number, out)
    }

    fn open(opener: &mut Opener, (number, packet): &(u64, Vec<u8>)) -> Result<[u8; 5], NotOpened> {
        let mut plain = [0; 5];
        opener.open(*number, &packet[..6], &packet[6..], &mut plain).map(|()| plain)
    }

    /// Computed with Python's `hmac` and its package `cryptography`.
    #[test]
    fn packets_are_sealed_as_the_scheme_says_in_every_suite_direction_and_epoch() {
        let suites = [
            CipherSuite::TLS13_AES_128_GCM_SHA256,
            CipherSuite::TLS13_AES_256_GCM_SHA384,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        ];
        let golden = [
            [
                [
                    "f794a3c491f4d0aa69fdfa6e44ef35e7f403b79897",
                    "ac15b7331e5083c2a6b28a1f92a68c4de39e6f5101",
                    "7ff542256bcaa2440ccd4f014af0fe49b6d3be23d9",
                ],
                [
                    "407bfbb16b76c0b9af8ed95427ca75ca17b76f74ca",
                    "5af00bee8b069b7f2074707de3d8bee5a9880beb30",
                    "2cecc4002dbd4fb0728fb90e660de211a83012be5b",
                ],
                [
                    "e18c6fa9d222ee169175e6b0f9d6542df6abbde293",
                    "73d55006cba8f72a5da44df690cfa713dc7e996a09",
                    "02e7ec499fd68b0cbcbfdcf18c4e9f32a52bfd0b13",
                ],
            ],
            [
                [
                    "e1040261572cd3b8fcee5d3c55c931cdd9b1f8c96e",
                    "8f7e1ac0123305a89ec73571fa264fe33f08c2f3ff",
                    "08cb52c8e4a2558e873888d5968e3c75f678797e6d",
                ],
                [
                    "10394a3a67f63dcd97459a2791dd6db99bc7c9bfc7",
                    "6b6af008f06fe6d655cc8e8f4d10a2fab7f83f9541",
                    "a916d43e77b2b06e72bb0e73251e20e442da473ac1",
                ],
                [
                    "807b7110a323dc9e80aa47e583da6db26aef5728d9",
                    "fae71940b2a862291d973bbe665086dc0c9509a8d1",
                    "e868640ee78172e52c4442606f8bf5740e53968113",
                ],
            ],
        ];
        for (end, golden) in [LaneEnd::Dialer, LaneEnd::Acceptor].into_iter().zip(golden) {
            for (suite, golden) in suites.into_iter().zip(golden) {
                let (mut sealer, _) = secret(suite).keys(&context(), end).unwrap();
                for (number, golden) in [0, 0x102, 1 << EPOCH_LOG2].into_iter().zip(golden) {
                    sealer.skip_to(number);
                    let (_, packet) = sealed(&mut sealer);
                    let hex: String = packet[6..].iter().map(|byte| format!("{byte:02x}")).collect();
                    assert_eq!((&packet[..6], &hex[..]), (&b"header"[..], golden), "{end:?} {suite:?} {number}");
                }
            }
        }
    }

    #[test]
    fn keys_change_with_the_epoch_and_packets_of_the_last_and_the_next_open() {
        let (mut sealer, mut opener) = direction(2);
        let packets: Vec<_> = (0..40).map(|_| sealed(&mut sealer)).collect();
        assert_eq!(packets.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        // Of epochs 0 to 9, with the last packet of each behind the first three of the next.
        for epoch in 0..9 {
            for at in [0, 1, 2, 4, 3] {
                let opened = open(&mut opener, &packets[epoch * 4 + at]);
                assert_eq!(opened, Ok(*b"piece"), "{epoch} {at}");
            }
        }
        // Two epochs ago, and two ahead.
        assert_eq!(open(&mut opener, &packets[7 * 4 - 1]), Err(NotOpened::Forged));
        let (_, mut fresh) = direction(2);
        assert_eq!(open(&mut fresh, &packets[8]), Err(NotOpened::Forged));
        assert_eq!((open(&mut fresh, &packets[4]), open(&mut fresh, &packets[8])), (Ok(*b"piece"), Ok(*b"piece")));
    }

    #[test]
    fn a_forged_packet_of_the_next_epoch_changes_no_key() {
        let (mut sealer, mut opener) = direction(2);
        let packets: Vec<_> = (0..8).map(|_| sealed(&mut sealer)).collect();
        for _ in 0..4 {
            let (number, mut packet) = packets[4].clone();
            packet[9] ^= 1;
            assert_eq!(open(&mut opener, &(number, packet)), Err(NotOpened::Forged));
        }
        assert!(packets.iter().all(|packet| open(&mut opener, packet).is_ok()));
        assert_eq!(opener.forged(), 4);
    }

    #[test]
    fn a_change_of_any_byte_or_of_the_number_or_direction_is_found() {
        let (mut sealer, mut opener) = direction(22);
        let (number, packet) = sealed(&mut sealer);
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 0x10;
            assert_eq!(open(&mut opener, &(number, changed)), Err(NotOpened::Forged), "byte {at}");
        }
        for other in [number + 1, 1 << 22, 1 << 48, u64::MAX] {
            assert_eq!(open(&mut opener, &(other, packet.clone())), Err(NotOpened::Forged), "{other}");
        }
        // The tag alone, and less than that.
        for len in [6 + SEAL_BYTES, 6 + SEAL_BYTES - 1, 6] {
            assert_eq!(open(&mut opener, &(number, packet[..len].to_vec())), Err(NotOpened::Forged), "{len}");
        }
        let (_, mut back) = secret(CipherSuite::TLS13_AES_128_GCM_SHA256).keys(&context(), LaneEnd::Dialer).unwrap();
        assert_eq!(open(&mut back, &(number, packet.clone())), Err(NotOpened::Forged), "reflected");
        let other: Vec<u8> = (101..153).collect();
        let (_, mut other) = secret(CipherSuite::TLS13_AES_128_GCM_SHA256).keys(&other, LaneEnd::Acceptor).unwrap();
        assert_eq!(open(&mut other, &(number, packet.clone())), Err(NotOpened::Forged), "of another lane");
        assert_eq!(open(&mut opener, &(number, packet)), Ok(*b"piece"));
    }

    #[test]
    fn a_lane_ends_when_too_many_were_forged_or_numbers_are_used_up() {
        let (mut sealer, opener) = direction(22);
        let mut opener = opener.with_forged(FORGED_MAX - 2);
        let forged = (0, vec![0; 6 + 5 + SEAL_BYTES]);
        assert_eq!(open(&mut opener, &forged), Err(NotOpened::Forged));
        assert_eq!(open(&mut opener, &forged), Err(NotOpened::TooMany));
        sealer.skip_to(NUMBERS_END - 1);
        assert_eq!(sealed(&mut sealer).0, NUMBERS_END - 1);
        assert_eq!(sealer.number(), None);
        assert!(sealer.seal(b"", b"", &mut [0; SEAL_BYTES]).is_err());
    }
}
