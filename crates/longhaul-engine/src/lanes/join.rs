//! Joining a lane to its session by proof, over the lane's own stream. `longhaul_proto::join` has
//! the proof itself.

use std::time::Duration;

use longhaul_core::limits::{HANDSHAKE_SECONDS_MAX, TRIAL_BYTES_MAX};
use longhaul_core::{Blame, Fault, FaultCode, LaneId};
use longhaul_net::{LaneStream, NetError, Protection};
use longhaul_proto::join::{Claim, JoinKey, Mac, Nonce, OPENING_BYTES, Opening, Prover, REPLY_BYTES};

use crate::random::nonce;

const JOINED: u8 = 1;

/// Why a lane did not join.
#[derive(Debug)]
pub(crate) enum Unjoined {
    /// What the network did to it.
    Net(NetError),
    /// Anything else.
    Fault(Fault),
}

impl From<NetError> for Unjoined {
    fn from(error: NetError) -> Unjoined {
        Unjoined::Net(error)
    }
}

impl From<Fault> for Unjoined {
    fn from(fault: Fault) -> Unjoined {
        Unjoined::Fault(fault)
    }
}

impl From<Unjoined> for Fault {
    fn from(unjoined: Unjoined) -> Fault {
        match unjoined {
            Unjoined::Net(error) => Fault::from(&error),
            Unjoined::Fault(fault) => fault,
        }
    }
}

/// The dialler's side: shows that it belongs to `session`, and on a safe lane sees that the other
/// end does; on a private one its key has said so. Where there is a path to try, large segments
/// pass both ways and the acceptor has taken the lane when this returns true. Where there is none
/// the lane is of use at once: whether it was taken is heard later, by [`hear_taken`].
pub(crate) fn join(stream: &mut LaneStream, key: &JoinKey, session: [u8; 16], lane: LaneId) -> Result<bool, Unjoined> {
    stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX)))?;
    let mut trial = vec![0; stream.trial_bytes() as usize];
    let opening = Opening { session, lane, nonce: nonce()?, trial: trial.len() as u32 };
    let claim = Claim { session, lane, dialer_nonce: opening.nonce, acceptor_nonce: NO_NONCE };
    match stream.protection() {
        Protection::Private => {
            stream.send(&[&opening.encode(), &key.prove(Prover::PrivateDialer, &claim)])?;
            stream.recv_exact(&mut trial)?;
            stream.send(&[&trial])?;
        }
        Protection::Safe => {
            stream.send(&[&opening.encode()])?;
            let proof = prove_to_each_other(stream, key, claim)?;
            stream.recv_exact(&mut trial)?;
            stream.send(&[&proof, &trial])?;
        }
    }
    if !trial.is_empty() {
        hear_taken(stream)?;
    }
    stream.set_deadline(None)?;
    Ok(!trial.is_empty())
}

/// Waits for the acceptor's word that it has taken the lane, the first that it says after its
/// proof.
pub(crate) fn hear_taken(stream: &mut LaneStream) -> Result<(), NetError> {
    stream.recv_exact(&mut [0])
}

/// Hears the acceptor's proof; gives this side's.
fn prove_to_each_other(stream: &mut LaneStream, key: &JoinKey, claim: Claim) -> Result<Mac, Unjoined> {
    let mut reply = [0; REPLY_BYTES];
    stream.recv_exact(&mut reply)?;
    let (mut acceptor_nonce, mut mac): (Nonce, Mac) = ([0; 16], [0; 32]);
    acceptor_nonce.copy_from_slice(&reply[..16]);
    mac.copy_from_slice(&reply[16..]);
    let claim = Claim { acceptor_nonce, ..claim };
    if !key.accepts(Prover::Acceptor, &claim, &mac) {
        let fault =
            Fault::new(FaultCode::Denied, Blame::Path, "a lane reached someone who does not hold this session's key");
        return Err(fault.hint("something between the hosts answers in the daemon's place").into());
    }
    Ok(key.prove(Prover::Dialer, &claim))
}

/// The acceptor's side. `key_of` finds the key of a lane that may join now. What follows is the
/// session's.
pub(crate) fn accept(
    stream: &mut LaneStream,
    key_of: impl FnOnce(&[u8; 16], LaneId) -> Option<JoinKey>,
) -> Result<([u8; 16], LaneId), Fault> {
    let refused = || Fault::new(FaultCode::Denied, Blame::Peer, "a lane that belongs to no session");
    stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX)))?;
    let mut opening = [0; OPENING_BYTES];
    stream.recv_exact(&mut opening)?;
    let Opening { session, lane, nonce: dialer_nonce, trial } = Opening::decode(&opening);
    let key = key_of(&session, lane).filter(|_| trial <= TRIAL_BYTES_MAX).ok_or_else(refused)?;
    let mut trial = vec![0; trial as usize];
    let mut claim = Claim { session, lane, dialer_nonce, acceptor_nonce: NO_NONCE };
    let mut mac = [0; 32];
    match stream.protection() {
        Protection::Private => {
            stream.recv_exact(&mut mac)?;
            if !key.accepts(Prover::PrivateDialer, &claim, &mac) {
                return Err(refused());
            }
            stream.send(&[&trial])?;
        }
        Protection::Safe => {
            claim.acceptor_nonce = nonce()?;
            let proof = key.prove(Prover::Acceptor, &claim);
            stream.send(&[&claim.acceptor_nonce, &proof])?;
            // In a segment of its own, so that the dialler hears the proof even where this is lost.
            stream.send(&[&trial])?;
            stream.recv_exact(&mut mac)?;
            if !key.accepts(Prover::Dialer, &claim, &mac) {
                return Err(refused());
            }
        }
    }
    // The lane's id is good until its trial is over: the dialler may have to dial again.
    stream.recv_exact(&mut trial)?;
    stream.set_deadline(None)?;
    Ok((session, lane))
}

/// Tells the dialler that its lane is in use from here on.
pub(crate) fn confirm(stream: &mut LaneStream) -> Result<(), Fault> {
    stream.send(&[&[JOINED]]).map_err(Fault::from)
}

/// Where there is no acceptor's nonce.
const NO_NONCE: Nonce = [0; 16];
