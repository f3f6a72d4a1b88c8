//! Owns a unit of a lane that sends, until it is whole at the receiver: how far it is hashed, sent
//! and reported.
//!
//! In: what the lane's thread has sent of it. Out: its payload, description and digest. It knows no
//! socket and no other unit.

use std::ops::Deref;

use longhaul_core::digest::{ChunkHasher, Digest};
use longhaul_core::{Attempt, FileOffset, Unit};
use longhaul_proto::udp::packet::{PieceBytes, Serial, UnitBody};
use longhaul_sys::udp::RUN_BYTES_MAX;

use super::units::{UdpFeed, UdpUnit};
use crate::cpu::{Stage, StageTimes};
use crate::lanes::worker::PIECE_BYTES;
use crate::lanes::worker::pulse::Pulse;

/// A unit that is not whole at the receiver.
pub(super) struct OpenUnit<B> {
    /// The unit.
    pub(super) unit: UdpUnit<B>,
    /// `None` once the digest is known.
    hasher: Option<ChunkHasher>,
    hashed: usize,
    /// Bytes from the beginning that were sent once.
    pub(super) sent: usize,
    /// Whether that is all of it.
    pub(super) is_sent: bool,
    is_reported: bool,
}

impl<B: Deref<Target = [u8]>> OpenUnit<B> {
    /// One of which nothing was sent.
    pub(super) fn new(unit: UdpUnit<B>) -> OpenUnit<B> {
        let start = match unit.header.unit {
            Unit::Chunk { index, .. } => index.start(unit.header.chunk),
            Unit::Bundle(_) => FileOffset(0),
        };
        let hasher = unit.digest.is_none().then(|| ChunkHasher::new(unit.header.digest, start));
        OpenUnit { unit, hasher, hashed: 0, sent: 0, is_sent: false, is_reported: false }
    }

    /// Reports that all of it was sent, unless that was done.
    pub(super) fn report<F: UdpFeed<Bytes = B>>(&mut self, serial: u32, digest: Digest, feed: &mut F, pulse: &Pulse) {
        if !std::mem::replace(&mut self.is_reported, true) {
            feed.sent(serial, &self.unit.header, digest);
            // The session counts its bytes from now on.
            pulse.reported(self.fresh_bytes(), self.sent as u64);
        }
    }

    /// Its bytes, 0 if it was sent before.
    pub(super) fn fresh_bytes(&self) -> u64 {
        if self.unit.header.attempt > Attempt::FIRST { 0 } else { self.unit.header.unit_len }
    }

    /// The payload that travels.
    pub(super) fn payload(&self) -> &[u8] {
        let len = if self.unit.header.is_bare() { 0 } else { self.unit.header.unit_len as usize };
        self.unit.bytes.as_deref().map_or(&[], |bytes| &bytes[..len])
    }

    /// Hashes until it is a step ahead of `sent` bytes. Gives whether the digest became known.
    pub(super) fn hash_beyond(&mut self, sent: usize, times: &StageTimes) -> bool {
        let Some(mut hasher) = self.hasher.take() else { return false };
        let payload = self.payload();
        let (len, mut hashed) = (payload.len(), self.hashed);
        while hashed < len && hashed < sent + AHEAD_BYTES {
            let end = (hashed + PIECE_BYTES).min(len);
            times.count(Stage::Hash, || hasher.update(&payload[hashed..end]));
            hashed = end;
        }
        self.hashed = hashed;
        if hashed < len {
            self.hasher = Some(hasher);
            return false;
        }
        self.unit.digest = Some(hasher.finish());
        true
    }

    /// Its description in pieces of so many bytes.
    pub(super) fn described(&self, serial: Serial, piece_bytes: PieceBytes) -> UnitBody {
        let digest = self.unit.digest.as_ref().map(|digest| *digest.bytes());
        UnitBody { serial, piece_bytes, header: self.unit.header, digest }
    }
}

/// Bytes that are hashed at least beyond what was sent: the digest is known before the last message
/// of a unit, and goes with it.
const AHEAD_BYTES: usize = 2 * RUN_BYTES_MAX;
