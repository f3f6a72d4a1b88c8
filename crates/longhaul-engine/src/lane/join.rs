//! Joining a lane to its session by proof, over the lane's own stream. `longhaul_proto::join` has the proof itself.

use std::time::Duration;

use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use longhaul_core::{Blame, Fault, FaultCode, LaneId};
use longhaul_net::LaneStream;
use longhaul_proto::join::{
    Claim, JoinKey, Mac, Nonce, OPENING_BYTES, Prover, REPLY_BYTES, decode_opening, encode_opening,
};

use crate::faults::net_fault;

const JOINED: u8 = 1;

/// The dialler's side: shows that it belongs to `session` and that the other end does.
pub(crate) fn join(stream: &mut LaneStream, key: &JoinKey, session: [u8; 16], lane: LaneId) -> Result<(), Fault> {
    stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX))).map_err(|e| net_fault(&e))?;
    let dialer_nonce = nonce()?;
    stream.send(&[&encode_opening(&session, lane, &dialer_nonce)]).map_err(|e| net_fault(&e))?;
    let mut reply = [0; REPLY_BYTES];
    stream.recv_exact(&mut reply).map_err(|e| net_fault(&e))?;
    let (mut acceptor_nonce, mut mac): (Nonce, Mac) = ([0; 16], [0; 32]);
    acceptor_nonce.copy_from_slice(&reply[..16]);
    mac.copy_from_slice(&reply[16..]);
    let claim = Claim { session, lane, dialer_nonce, acceptor_nonce };
    if !key.accepts(Prover::Acceptor, &claim, &mac) {
        return Err(Fault::new(
            FaultCode::Denied,
            Blame::Path,
            "a lane reached someone who does not hold this session's key",
        )
        .hint("something between the hosts answers in the daemon's place"));
    }
    stream.send(&[&key.prove(Prover::Dialer, &claim)]).map_err(|e| net_fault(&e))?;
    let mut joined = [0];
    stream.recv_exact(&mut joined).map_err(|e| net_fault(&e))?;
    stream.set_deadline(None).map_err(|e| net_fault(&e))
}

/// The acceptor's side, up to the dialler's proof. `key_of` finds the key of a lane that may join now.
pub(crate) fn accept(
    stream: &mut LaneStream,
    key_of: impl FnOnce(&[u8; 16], LaneId) -> Option<JoinKey>,
) -> Result<([u8; 16], LaneId), Fault> {
    let refused = || Fault::new(FaultCode::Denied, Blame::Peer, "a lane that belongs to no session");
    stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX))).map_err(|e| net_fault(&e))?;
    let mut opening = [0; OPENING_BYTES];
    stream.recv_exact(&mut opening).map_err(|e| net_fault(&e))?;
    let (session, lane, dialer_nonce) = decode_opening(&opening);
    let key = key_of(&session, lane).ok_or_else(refused)?;
    let acceptor_nonce = nonce()?;
    let claim = Claim { session, lane, dialer_nonce, acceptor_nonce };
    stream.send(&[&acceptor_nonce, &key.prove(Prover::Acceptor, &claim)]).map_err(|e| net_fault(&e))?;
    let mut mac = [0; 32];
    stream.recv_exact(&mut mac).map_err(|e| net_fault(&e))?;
    if !key.accepts(Prover::Dialer, &claim, &mac) {
        return Err(refused());
    }
    Ok((session, lane))
}

/// Tells the dialler that its lane is in use from here on.
pub(crate) fn confirm(stream: &mut LaneStream) -> Result<(), Fault> {
    stream.send(&[&[JOINED]]).map_err(|e| net_fault(&e))?;
    stream.set_deadline(None).map_err(|e| net_fault(&e))
}

/// 16 bytes that nobody can foretell.
pub(crate) fn nonce() -> Result<[u8; 16], Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Fault::new(FaultCode::Internal, Blame::Local, format_args!("no random numbers: {e}")))?;
    Ok(bytes)
}
