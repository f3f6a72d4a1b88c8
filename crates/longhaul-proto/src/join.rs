//! The proof by which a lane joins a session: both ends show that they hold the control
//! connection's exported key.
//!
//! Nothing secret crosses the lane. The dialler proves last and sends at once behind its proof; if
//! the proof is wrong, its connection is closed. `docs/WIRE.md` has the exchange; the engine
//! carries it over the lane's stream.

use longhaul_core::LaneId;

/// The key both ends export from the control connection's TLS session (in one process: drawn at
/// random).
#[derive(Clone)]
pub struct JoinKey(pub [u8; 32]);

/// 16 random bytes that make a proof good once.
pub type Nonce = [u8; 16];
/// A message authentication code.
pub type Mac = [u8; 32];

/// The end that proves: the one that dialled the lane, or the one that accepted it. A proof of one
/// end is never valid for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The end that dialled the lane.
    Dialer,
    /// The end that accepted the lane.
    Acceptor,
    /// The end that dialled a private lane, where nobody but the acceptor hears the proof.
    PrivateDialer,
}

/// The claim that is proved: this lane of this session, fresh for both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The session.
    pub session: [u8; 16],
    /// The lane's id, named over control and good once.
    pub lane: LaneId,
    /// Random bytes that the dialler drew for this connection.
    pub dialer_nonce: Nonce,
    /// Random bytes that the acceptor drew for this connection. Zeros on a private lane, where
    /// nothing can be recorded and replayed.
    pub acceptor_nonce: Nonce,
}

impl JoinKey {
    /// The proof of `prover` for `claim`: keyed BLAKE3 over role, session, lane and both nonces.
    pub fn prove(&self, prover: Prover, claim: &Claim) -> Mac {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(match prover {
            Prover::Dialer => b"longhaul lane dialer 1\0\0",
            Prover::Acceptor => b"longhaul lane acceptor 1",
            Prover::PrivateDialer => b"longhaul private lane 1\0",
        });
        hasher.update(&claim.session);
        hasher.update(&claim.lane.0.to_le_bytes());
        hasher.update(&claim.dialer_nonce);
        hasher.update(&claim.acceptor_nonce);
        *hasher.finalize().as_bytes()
    }

    /// Whether `mac` is the proof of `prover` for `claim`; takes the same time wherever they
    /// differ.
    pub fn accepts(&self, prover: Prover, claim: &Claim, mac: &Mac) -> bool {
        blake3::Hash::from_bytes(self.prove(prover, claim)) == blake3::Hash::from_bytes(*mac)
    }
}

/// Bytes of the dialler's opening: session, lane id, nonce, bytes of a trial.
pub const OPENING_BYTES: usize = 16 + 4 + 16 + 4;
/// Bytes of the acceptor's reply: nonce, proof.
pub const REPLY_BYTES: usize = 16 + 32;

/// The opening of a dialler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The session.
    pub session: [u8; 16],
    /// The lane's id.
    pub lane: LaneId,
    /// Random bytes drawn for this connection.
    pub nonce: Nonce,
    /// Bytes without meaning that each end sends, so that the lane joins only if the path carries
    /// segments as large as its own: on a safe lane behind the proofs, on a private one before the
    /// opening proper ([`Opening::of_trial`]). 0 if there are none. A change of this number on the
    /// way only breaks the join.
    pub trial: u32,
}

impl Opening {
    /// The opening of a trial, with so many bytes behind it: a private lane says it before its own
    /// where the path is to be tried. It names no session, and so needs none: the trial is over
    /// when the lane's id becomes known.
    pub fn of_trial(trial: u32) -> Opening {
        Opening { session: [0; 16], lane: LaneId(0), nonce: [0; 16], trial }
    }

    /// Whether it is that of a trial.
    pub fn is_of_trial(&self) -> bool {
        self.session == [0; 16]
    }

    /// The bytes of the opening.
    pub fn encode(&self) -> [u8; OPENING_BYTES] {
        let mut out = [0; OPENING_BYTES];
        out[..16].copy_from_slice(&self.session);
        out[16..20].copy_from_slice(&self.lane.0.to_le_bytes());
        out[20..36].copy_from_slice(&self.nonce);
        out[36..].copy_from_slice(&self.trial.to_le_bytes());
        out
    }

    /// Reads an opening.
    pub fn decode(bytes: &[u8; OPENING_BYTES]) -> Opening {
        let (mut session, mut lane, mut nonce, mut trial) = ([0; 16], [0; 4], [0; 16], [0; 4]);
        session.copy_from_slice(&bytes[..16]);
        lane.copy_from_slice(&bytes[16..20]);
        nonce.copy_from_slice(&bytes[20..36]);
        trial.copy_from_slice(&bytes[36..]);
        Opening { session, lane: LaneId(u32::from_le_bytes(lane)), nonce, trial: u32::from_le_bytes(trial) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_answers_for_one_role_lane_session_and_nonce_only() {
        let key = JoinKey([7; 32]);
        let claim = Claim { session: [1; 16], lane: LaneId(3), dialer_nonce: [4; 16], acceptor_nonce: [5; 16] };
        let mac = key.prove(Prover::Dialer, &claim);
        assert!(key.accepts(Prover::Dialer, &claim, &mac));
        assert!(!key.accepts(Prover::Acceptor, &claim, &mac) && !key.accepts(Prover::PrivateDialer, &claim, &mac));
        assert!(!JoinKey([8; 32]).accepts(Prover::Dialer, &claim, &mac));
        for other in [
            Claim { session: [2; 16], ..claim },
            Claim { lane: LaneId(4), ..claim },
            Claim { dialer_nonce: [0; 16], ..claim },
            Claim { acceptor_nonce: [0; 16], ..claim },
        ] {
            assert!(!key.accepts(Prover::Dialer, &other, &mac), "{other:?}");
        }
    }

    #[test]
    fn an_opening_reads_back() {
        let opening = Opening { session: [1; 16], lane: LaneId(77), nonce: [2; 16], trial: 0x1234_5678 };
        assert_eq!(Opening::decode(&opening.encode()), opening);
    }
}
