//! Joins a lane to its session by proof, over the lane's own stream.
//!
//! In: a new stream and the join key of a session, from the dialler or the registry. Out: a stream
//! whose two ends belong to one session. `longhaul_proto::join` has the proof itself. It knows no
//! sessions and sends no payload.

use std::time::Duration;

use longhaul_core::limits::{HANDSHAKE_SECONDS_MAX, TRIAL_BYTES_MAX};
use longhaul_core::{Blame, Fault, FaultCode, LaneId, hint};
use longhaul_net::{LaneStream, NetError, Protection};
use longhaul_proto::join::{Claim, JoinKey, Mac, Nonce, OPENING_BYTES, Opening, Prover, REPLY_BYTES};

use crate::random::nonce;

const JOINED: u8 = 1;

/// Why a lane did not join.
#[derive(Debug)]
pub(crate) enum Unjoined {
    /// A failure of the network.
    Net(NetError),
    /// Any other failure.
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

/// Tries the path of a private lane that is to join: when this returns, large segments have passed
/// both ways. It needs no session, so that it can be done while one is being agreed on.
pub(crate) fn try_path(stream: &mut LaneStream) -> Result<(), NetError> {
    let bytes = if stream.protection() == Protection::Private { stream.trial_bytes() } else { 0 };
    if bytes == 0 {
        return Ok(());
    }
    stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX)))?;
    stream.make_room();
    let mut trial = vec![0; bytes as usize];
    stream.send(&[&Opening::of_trial(bytes).encode(), &trial])?;
    stream.recv_exact(&mut trial)
}

/// Joins at the dialler's side: shows that this end belongs to `session`, and on a safe lane checks
/// that the other end does. (On a private lane its key has shown that.) Where a safe lane has a
/// path to try, large segments have passed both ways and the acceptor has taken the lane when this
/// returns true. Any other lane is of use at once, and [`hear_taken`] hears later whether it was
/// taken.
pub(crate) fn join(stream: &mut LaneStream, key: &JoinKey, session: [u8; 16], lane: LaneId) -> Result<bool, Unjoined> {
    stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX)))?;
    // A private lane has tried its path before.
    let is_safe = stream.protection() == Protection::Safe;
    let mut trial = vec![0; if is_safe { stream.trial_bytes() as usize } else { 0 }];
    let opening = Opening { session, lane, nonce: nonce()?, trial: trial.len() as u32 };
    let claim = Claim { session, lane, dialer_nonce: opening.nonce, acceptor_nonce: NO_NONCE };
    match stream.protection() {
        Protection::Private => {
            stream.send(&[&opening.encode(), &key.prove(Prover::PrivateDialer, &claim)])?;
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

fn hear_opening(stream: &mut LaneStream) -> Result<Opening, NetError> {
    let mut opening = [0; OPENING_BYTES];
    stream.recv_exact(&mut opening)?;
    Ok(Opening::decode(&opening))
}

/// Waits for the acceptor's confirmation that it has taken the lane: the first byte after its
/// proof.
pub(crate) fn hear_taken(stream: &mut LaneStream) -> Result<(), NetError> {
    stream.recv_exact(&mut [0])
}

/// Checks the acceptor's proof and gives this side's.
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
        return Err(fault.hint(hint::Network::SuspectInterception).into());
    }
    Ok(key.prove(Prover::Dialer, &claim))
}

/// Joins at the acceptor's side. `key_of` finds the key of a lane that may join now. The bytes
/// after the proof belong to the session.
pub(crate) fn accept(
    stream: &mut LaneStream,
    key_of: impl FnOnce(&[u8; 16], LaneId) -> Option<JoinKey>,
) -> Result<([u8; 16], LaneId), Fault> {
    let refused = || Fault::new(FaultCode::Denied, Blame::Peer, "a lane that belongs to no session");
    stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX)))?;
    let is_private = stream.protection() == Protection::Private;
    let mut opening = hear_opening(stream)?;
    if is_private && opening.is_of_trial() && opening.trial <= TRIAL_BYTES_MAX {
        let mut trial = vec![0; opening.trial as usize];
        stream.recv_exact(&mut trial)?;
        stream.send(&[&trial])?;
        opening = hear_opening(stream)?;
    }
    let Opening { session, lane, nonce: dialer_nonce, trial } = opening;
    let trial_max = if is_private { 0 } else { TRIAL_BYTES_MAX };
    let key = key_of(&session, lane).filter(|_| trial <= trial_max).ok_or_else(refused)?;
    let mut trial = vec![0; trial as usize];
    let mut claim = Claim { session, lane, dialer_nonce, acceptor_nonce: NO_NONCE };
    let mut mac = [0; 32];
    match stream.protection() {
        Protection::Private => {
            stream.recv_exact(&mut mac)?;
            if !key.accepts(Prover::PrivateDialer, &claim, &mac) {
                return Err(refused());
            }
            // It belongs to a session now, and to what that may take.
            stream.make_room();
        }
        Protection::Safe => {
            claim.acceptor_nonce = nonce()?;
            let proof = key.prove(Prover::Acceptor, &claim);
            stream.send(&[&claim.acceptor_nonce, &proof])?;
            // The trial is a segment of its own, so that the dialler hears the proof even where the
            // trial is lost.
            stream.send(&[&trial])?;
            stream.recv_exact(&mut mac)?;
            if !key.accepts(Prover::Dialer, &claim, &mac) {
                return Err(refused());
            }
        }
    }
    // The lane's id is good until the trial is over: the dialler may have to dial again.
    stream.recv_exact(&mut trial)?;
    stream.set_deadline(None)?;
    Ok((session, lane))
}

/// Tells the dialler that its lane is in use from here on.
pub(crate) fn confirm(stream: &mut LaneStream) -> Result<(), Fault> {
    stream.send(&[&[JOINED]]).map_err(Fault::from)
}

/// The nonce in the proof where the acceptor sends none.
const NO_NONCE: Nonce = [0; 16];

#[cfg(test)]
mod tests {
    use longhaul_net::Identity;

    use super::*;

    const KEY: JoinKey = JoinKey([7; 32]);
    const SESSION: [u8; 16] = [1; 16];

    /// Has an acceptor hear a dialler that does this on a private lane. Whether each was content.
    fn accepted(dial: impl FnOnce(&mut LaneStream) -> Result<(), Unjoined>) -> (bool, bool) {
        let identity = || Identity::generate().expect("a key");
        let (mut dialler, mut acceptor) = LaneStream::pair_private(&identity(), &identity()).expect("a pair");
        let accepting = std::thread::spawn(move || {
            let key_of = |session: &[u8; 16], lane| (*session == SESSION && lane == LaneId(3)).then_some(KEY);
            accept(&mut acceptor, key_of).is_ok()
        });
        (dial(&mut dialler).is_ok(), accepting.join().expect("it ends"))
    }

    fn tries(stream: &mut LaneStream, bytes: u32) -> Result<(), Unjoined> {
        let mut trial = vec![0; bytes as usize];
        stream.send(&[&Opening::of_trial(bytes).encode(), &trial])?;
        Ok(stream.recv_exact(&mut trial)?)
    }

    #[test]
    fn a_private_lane_tries_its_path_before_it_names_a_session_or_not_at_all() {
        let joins = |stream: &mut LaneStream| join(stream, &KEY, SESSION, LaneId(3)).map(|_| ());
        assert_eq!(accepted(joins), (true, true));
        for bytes in [1, 8948, TRIAL_BYTES_MAX] {
            assert_eq!(accepted(|stream| tries(stream, bytes).and_then(|()| joins(stream))), (true, true), "{bytes}");
        }
    }

    #[test]
    fn a_trial_that_is_too_long_or_comes_twice_or_behind_an_opening_joins_nothing() {
        assert_eq!(accepted(|stream| tries(stream, TRIAL_BYTES_MAX + 1)), (false, false));
        assert_eq!(accepted(|stream| tries(stream, 10).and_then(|()| tries(stream, 10))), (false, false));
        let late = |stream: &mut LaneStream| {
            let opening = Opening { session: SESSION, lane: LaneId(3), nonce: [5; 16], trial: 10 };
            stream.send(&[&opening.encode()])?;
            Ok(stream.recv_exact(&mut [0])?)
        };
        assert_eq!(accepted(late), (false, false));
    }
}
