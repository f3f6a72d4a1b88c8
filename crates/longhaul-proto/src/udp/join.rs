//! The join of a UDP lane: JOIN of the dialler, JOINED of the acceptor, and the proofs in them.
//!
//! In: datagrams, and the key that both ends exported from the control connection. Out: what they
//! say if their proof holds. Nothing is sealed yet, and nothing secret is said. Each is 1,232 bytes
//! long: so the answer is no longer than what asked for it, and the path is known to carry that.
//! Knows no socket, no table of lanes and no clock.
//!
//! An acceptor answers one JOIN for each lane id, and the same one again (byte for byte, from the
//! same address) until the first sealed packet has come; any other gets no answer. A proof is
//! BLAKE3, keyed as those of [`crate::join`], over a role of 24 bytes that no other proof has, and
//! all bytes before the proof: of JOIN those of its own, of JOINED the whole JOIN that it answers
//! and its own. So no field of either can be changed on the way.

use longhaul_core::LaneId;
use longhaul_core::limits::{UDP_DATAGRAM_BYTES_MAX, UDP_DATAGRAM_BYTES_SAFE};

use super::packet::{LaneIndex, PacketError, PacketKind, u16_at, u32_at};
use crate::join::{JoinKey, Mac, Nonce};

/// Bytes of the datagram of JOIN and of JOINED.
pub const JOIN_BYTES: usize = UDP_DATAGRAM_BYTES_SAFE as usize;
/// Bytes of the context of a lane's keys ([`key_context`]).
pub const KEY_CONTEXT_BYTES: usize = 16 + 4 + 16 + 16;

/// The version of this join and of all packets behind it.
const VERSION: u8 = 1;
const PROOF_BYTES: usize = 32;
/// Bytes that a proof covers.
const PROVED_BYTES: usize = JOIN_BYTES - PROOF_BYTES;
/// Bytes of the fields of each; zeros follow up to the proof.
const JOIN_FIELD_BYTES: usize = 48;
const JOINED_FIELD_BYTES: usize = 32;

/// JOIN: the dialler names the lane that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpJoin {
    /// Most payload bytes of a datagram that the dialler's route carries, as its system knows it:
    /// 1,232 to 65,507. A datagram of another size may pass or not.
    pub route_bytes: u16,
    /// The index by which the dialler knows the lane.
    pub index: LaneIndex,
    /// The session, or [`early_session`] before its name has come.
    pub session: [u8; 16],
    /// The lane's id, named over control and good once. Before that has come, one of those below
    /// [`UDP_LANES_EARLY_MAX`], as an acceptor names ids from 0 on.
    ///
    /// [`UDP_LANES_EARLY_MAX`]: longhaul_core::limits::UDP_LANES_EARLY_MAX
    pub lane: LaneId,
    /// Random bytes drawn for this lane.
    pub nonce: Nonce,
    /// Units that the dialler has slots for, if it receives files: their serials are below this. 0
    /// if it sends.
    pub admit: u32,
}

/// JOINED: the acceptor takes the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpJoined {
    /// Most payload bytes of a datagram that the acceptor's route carries: 1,232 to 65,507.
    pub route_bytes: u16,
    /// The index by which the dialler knows the lane.
    pub dialer_index: LaneIndex,
    /// The index by which the acceptor knows the lane.
    pub index: LaneIndex,
    /// Random bytes drawn for this lane.
    pub nonce: Nonce,
    /// Units that the acceptor has slots for, if it receives files; 0 if it sends.
    pub admit: u32,
}

/// The reason why a datagram joins no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UdpJoinError {
    /// It is no JOIN or JOINED, as bytes.
    #[error("{0}")]
    Packet(#[from] PacketError),
    /// Its proof is not that of the key.
    #[error("a join whose proof is wrong")]
    Proof,
    /// It answers another dialler or another JOIN.
    #[error("an answer to another join")]
    Other,
}

impl UdpJoin {
    /// The datagram, with its proof.
    pub fn encode(&self, key: &JoinKey) -> [u8; JOIN_BYTES] {
        let mut out = [0; JOIN_BYTES];
        out[0] = PacketKind::Join as u8;
        out[1] = VERSION;
        out[2..4].copy_from_slice(&self.route_bytes.to_le_bytes());
        out[4..8].copy_from_slice(&self.index.0.to_le_bytes());
        out[8..24].copy_from_slice(&self.session);
        out[24..28].copy_from_slice(&self.lane.0.to_le_bytes());
        out[28..44].copy_from_slice(&self.nonce);
        out[44..48].copy_from_slice(&self.admit.to_le_bytes());
        let proof = prove_dialer(key, &out);
        out[PROVED_BYTES..].copy_from_slice(&proof);
        out
    }

    /// Reads the fields of a datagram whose proof nobody has looked at: they are good for finding
    /// the session's key and for nothing else.
    ///
    /// # Errors
    /// [`PacketError`] for anything that no dialler sends.
    pub fn claimed(datagram: &[u8]) -> Result<UdpJoin, PacketError> {
        let bytes = whole(datagram, PacketKind::Join, JOIN_FIELD_BYTES)?;
        Ok(UdpJoin {
            route_bytes: u16_at(bytes, 2),
            index: LaneIndex(u32_at(bytes, 4)),
            session: sixteen_at(bytes, 8),
            lane: LaneId(u32_at(bytes, 24)),
            nonce: sixteen_at(bytes, 28),
            admit: u32_at(bytes, 44),
        })
    }

    /// Reads a datagram, if its proof is that of the key.
    ///
    /// # Errors
    /// [`UdpJoinError`] for anything else.
    pub fn verify(datagram: &[u8], key: &JoinKey) -> Result<UdpJoin, UdpJoinError> {
        let join = UdpJoin::claimed(datagram)?;
        check_proof(prove_dialer(key, datagram), datagram)?;
        Ok(join)
    }
}

impl UdpJoined {
    /// The datagram that answers `join`, the bytes of a JOIN, with its proof.
    pub fn encode(&self, key: &JoinKey, join: &[u8; JOIN_BYTES]) -> [u8; JOIN_BYTES] {
        let mut out = [0; JOIN_BYTES];
        out[0] = PacketKind::Joined as u8;
        out[1] = VERSION;
        out[2..4].copy_from_slice(&self.route_bytes.to_le_bytes());
        out[4..8].copy_from_slice(&self.dialer_index.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.index.0.to_le_bytes());
        out[12..28].copy_from_slice(&self.nonce);
        out[28..32].copy_from_slice(&self.admit.to_le_bytes());
        let proof = prove_acceptor(key, join, &out);
        out[PROVED_BYTES..].copy_from_slice(&proof);
        out
    }

    /// Reads the answer to `join`, if its proof is that of the key.
    ///
    /// # Errors
    /// [`UdpJoinError`] for anything else.
    pub fn verify(datagram: &[u8], key: &JoinKey, join: &[u8; JOIN_BYTES]) -> Result<UdpJoined, UdpJoinError> {
        let bytes = whole(datagram, PacketKind::Joined, JOINED_FIELD_BYTES)?;
        let joined = UdpJoined {
            route_bytes: u16_at(bytes, 2),
            dialer_index: LaneIndex(u32_at(bytes, 4)),
            index: LaneIndex(u32_at(bytes, 8)),
            nonce: sixteen_at(bytes, 12),
            admit: u32_at(bytes, 28),
        };
        if joined.dialer_index != UdpJoin::claimed(join)?.index {
            return Err(UdpJoinError::Other);
        }
        check_proof(prove_acceptor(key, join, datagram), datagram)?;
        Ok(joined)
    }
}

/// The name of a session in a JOIN that is said before its [`Welcome`] has come: both ends know it
/// as soon as their control connection stands, and nobody else before it is said.
///
/// [`Welcome`]: crate::wire::message::Welcome
pub fn early_session(key: &JoinKey) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    hasher.update(b"longhaul udp early 1\0\0\0\0");
    let mut name = [0; 16];
    name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    name
}

/// The context with which both ends make a lane's keys of the secret that the control connection
/// exports: session, lane id, the dialler's nonce, the acceptor's. No two lanes have the same.
pub fn key_context(join: &UdpJoin, joined: &UdpJoined) -> [u8; KEY_CONTEXT_BYTES] {
    let mut out = [0; KEY_CONTEXT_BYTES];
    out[..16].copy_from_slice(&join.session);
    out[16..20].copy_from_slice(&join.lane.0.to_le_bytes());
    out[20..36].copy_from_slice(&join.nonce);
    out[36..].copy_from_slice(&joined.nonce);
    out
}

/// The bytes of a datagram of this kind, whose first eight and whose padding are sound.
fn whole(datagram: &[u8], kind: PacketKind, fields: usize) -> Result<&[u8; JOIN_BYTES], PacketError> {
    if PacketKind::of(datagram) != Some(kind) {
        return Err(PacketError::Kind);
    }
    let bytes: &[u8; JOIN_BYTES] = datagram.try_into().map_err(|_| PacketError::Length)?;
    if bytes[1] != VERSION || bytes[fields..PROVED_BYTES].iter().any(|byte| *byte != 0) {
        return Err(PacketError::Unknown);
    }
    let route = UDP_DATAGRAM_BYTES_SAFE..=UDP_DATAGRAM_BYTES_MAX;
    if route.contains(&u16_at(bytes, 2)) { Ok(bytes) } else { Err(PacketError::Bounds) }
}

fn prove_dialer(key: &JoinKey, join: &[u8]) -> Mac {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    hasher.update(b"longhaul udp dialer 1\0\0\0");
    hasher.update(&join[..PROVED_BYTES]);
    *hasher.finalize().as_bytes()
}

fn prove_acceptor(key: &JoinKey, join: &[u8; JOIN_BYTES], joined: &[u8]) -> Mac {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    hasher.update(b"longhaul udp acceptor 1\0");
    hasher.update(join);
    hasher.update(&joined[..PROVED_BYTES]);
    *hasher.finalize().as_bytes()
}

/// Compares in the same time wherever they differ.
fn check_proof(proof: Mac, datagram: &[u8]) -> Result<(), UdpJoinError> {
    let mut said: Mac = [0; PROOF_BYTES];
    said.copy_from_slice(&datagram[PROVED_BYTES..]);
    let right = blake3::Hash::from_bytes(proof) == blake3::Hash::from_bytes(said);
    if right { Ok(()) } else { Err(UdpJoinError::Proof) }
}

fn sixteen_at(bytes: &[u8; JOIN_BYTES], at: usize) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&bytes[at..at + 16]);
    out
}
