//! JOIN and JOINED: what parses encodes to the same fields, and only with the right proof it is
//! believed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_proto::join::JoinKey;
use longhaul_proto::udp::join::{JOIN_BYTES, UdpJoin, UdpJoined};

/// Bytes before the proof.
const PROVED_BYTES: usize = JOIN_BYTES - 32;

fuzz_target!(|datagram: &[u8]| {
    let (key, stranger) = (JoinKey([9; 32]), JoinKey([8; 32]));
    if let Ok(join) = UdpJoin::claimed(datagram) {
        let right = join.encode(&key);
        assert_eq!(right[..PROVED_BYTES], datagram[..PROVED_BYTES]);
        assert_eq!(UdpJoin::verify(datagram, &key).is_ok(), right == *datagram);
        assert_eq!(UdpJoin::verify(&right, &key), Ok(join));
        assert!(UdpJoin::verify(&right, &stranger).is_err());
    }
    let asked = UdpJoin::claimed(&JOIN).expect("a join").encode(&key);
    // With the right proof behind its fields it is believed, if the fields are sound.
    if let Ok(joined) = UdpJoined::verify(datagram, &key, &asked) {
        assert_eq!(joined.encode(&key, &asked), *datagram);
        assert!(UdpJoined::verify(datagram, &stranger, &asked).is_err());
    }
});

/// A join that says as little as it may.
const JOIN: [u8; JOIN_BYTES] = {
    let mut join = [0; JOIN_BYTES];
    (join[0], join[1]) = (0x21, 1);
    (join[2], join[3]) = (0xd0, 0x04);
    join
};
