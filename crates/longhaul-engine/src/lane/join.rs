//! Joining a lane to its session by proof, over the lane's own stream. `longhaul_proto::join` has the proof itself.

use std::time::Duration;

use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use longhaul_core::{Blame, Fault, FaultCode, LaneId};
use longhaul_net::{LaneStream, Protection};
use longhaul_proto::join::{
    Claim, JoinKey, Mac, Nonce, OPENING_BYTES, Prover, REPLY_BYTES, decode_opening, encode_opening,
};

use crate::faults::net_fault;

/// The dialler's side: shows that it belongs to `session`, and on a safe lane sees that the other end does; on a private one its
/// key has said so. The lane is of use at once; if the acceptor does not take it after all, it breaks.
pub(crate) fn join(stream: &mut LaneStream, key: &JoinKey, session: [u8; 16], lane: LaneId) -> Result<(), Fault> {
    let claim = Claim { session, lane, dialer_nonce: nonce()?, acceptor_nonce: NO_NONCE };
    stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX))).map_err(|e| net_fault(&e))?;
    match stream.protection() {
        Protection::Private => {
            let proof = key.prove(Prover::PrivateDialer, &claim);
            stream.send(&[&opening(&claim), &proof]).map_err(|e| net_fault(&e))?;
        }
        Protection::Safe => prove_to_each_other(stream, key, claim)?,
    }
    stream.set_deadline(None).map_err(|e| net_fault(&e))
}

fn prove_to_each_other(stream: &mut LaneStream, key: &JoinKey, claim: Claim) -> Result<(), Fault> {
    stream.send(&[&opening(&claim)]).map_err(|e| net_fault(&e))?;
    let mut reply = [0; REPLY_BYTES];
    stream.recv_exact(&mut reply).map_err(|e| net_fault(&e))?;
    let (mut acceptor_nonce, mut mac): (Nonce, Mac) = ([0; 16], [0; 32]);
    acceptor_nonce.copy_from_slice(&reply[..16]);
    mac.copy_from_slice(&reply[16..]);
    let claim = Claim { acceptor_nonce, ..claim };
    if !key.accepts(Prover::Acceptor, &claim, &mac) {
        return Err(Fault::new(
            FaultCode::Denied,
            Blame::Path,
            "a lane reached someone who does not hold this session's key",
        )
        .hint("something between the hosts answers in the daemon's place"));
    }
    stream.send(&[&key.prove(Prover::Dialer, &claim)]).map_err(|e| net_fault(&e))
}

fn opening(claim: &Claim) -> [u8; OPENING_BYTES] {
    encode_opening(&claim.session, claim.lane, &claim.dialer_nonce)
}

/// The acceptor's side. `key_of` finds the key of a lane that may join now. What follows the proof is the session's.
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
    let mut claim = Claim { session, lane, dialer_nonce, acceptor_nonce: NO_NONCE };
    let prover = match stream.protection() {
        Protection::Private => Prover::PrivateDialer,
        Protection::Safe => {
            claim.acceptor_nonce = nonce()?;
            let proof = key.prove(Prover::Acceptor, &claim);
            stream.send(&[&claim.acceptor_nonce, &proof]).map_err(|e| net_fault(&e))?;
            Prover::Dialer
        }
    };
    let mut mac = [0; 32];
    stream.recv_exact(&mut mac).map_err(|e| net_fault(&e))?;
    if !key.accepts(prover, &claim, &mac) {
        return Err(refused());
    }
    stream.set_deadline(None).map_err(|e| net_fault(&e))?;
    Ok((session, lane))
}

/// 16 bytes that nobody can foretell.
pub(crate) fn nonce() -> Result<[u8; 16], Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Fault::new(FaultCode::Internal, Blame::Local, format_args!("no random numbers: {e}")))?;
    Ok(bytes)
}

/// Where there is no acceptor's nonce.
const NO_NONCE: Nonce = [0; 16];
