//! The opening of a lane, and proofs for its values: only the right proof is accepted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_proto::join::{Claim, JoinKey, OPENING_BYTES, Opening, Prover};

fuzz_target!(|input: ([u8; OPENING_BYTES], [u8; 32])| {
    let (opening, mac) = input;
    let read = Opening::decode(&opening);
    assert_eq!(read.encode(), opening);
    let Opening { session, lane, nonce: dialer_nonce, .. } = read;
    let claim = Claim { session, lane, dialer_nonce, acceptor_nonce: [7; 16] };
    let key = JoinKey([9; 32]);
    let right = key.prove(Prover::Dialer, &claim);
    assert!(key.accepts(Prover::Dialer, &claim, &right) && !key.accepts(Prover::Acceptor, &claim, &right));
    assert_eq!(key.accepts(Prover::Dialer, &claim, &mac), mac == right);
});
