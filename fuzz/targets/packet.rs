//! A datagram of a UDP lane, and its plain text as if it had been opened: what parses encodes to
//! the same bytes, and its numbers are within their bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_fuzz::within;
use longhaul_proto::udp::packet::{
    CloseReason, Outer, OuterBody, PieceBytes, TAG_BYTES, UnitBody, check_probe, decode_end, encode_end,
};
use longhaul_proto::udp::status::{Status, UnitStanding};

fuzz_target!(|datagram: &[u8]| {
    let Ok(outer) = Outer::parse(datagram) else { return };
    let header = outer.encode();
    assert_eq!(header.as_ref(), &datagram[..outer.bytes()]);
    let plain = &datagram[outer.bytes()..datagram.len() - TAG_BYTES];
    assert_eq!(plain.len(), outer.plain_bytes(datagram.len()));
    match outer.body {
        OuterBody::Data(place) => {
            assert!(place.piece != u16::MAX && plain.len() <= usize::from(place.piece_bytes.get()));
            assert!(!plain.is_empty() && place.offset() + plain.len() as u64 <= 64 << 20);
        }
        OuterBody::Unit(_) => {
            let Ok(unit) = UnitBody::decode(plain) else { return };
            assert_eq!(unit.encode(), plain);
            let pieces = unit.piece_bytes.pieces(unit.payload());
            assert!(u64::from(pieces) * u64::from(unit.piece_bytes.get()) >= unit.payload() && pieces < u16::MAX);
            assert!(unit.piece_bytes >= PieceBytes::new(1152).expect("in bounds"));
        }
        OuterBody::Status => within(4096 + 32 * plain.len(), || check_status(plain)),
        OuterBody::Probe(_) => assert_eq!(check_probe(plain).is_ok(), plain.iter().all(|byte| *byte == 0)),
        OuterBody::End => assert_eq!(encode_end(decode_end(plain).expect("it has its length")), plain),
        OuterBody::Close => {
            if let Ok(reason) = CloseReason::decode(plain) {
                assert_eq!(reason.encode(), plain);
            }
        }
    }
});

fn check_status(plain: &[u8]) {
    let Ok(status) = Status::decode(plain) else { return };
    assert_eq!(status.encode(), plain);
    let standing = &status.standing;
    assert!(status.below <= standing.from && standing.end() <= u64::from(status.admit.0));
    let gaps = standing.units.iter().map(|unit| match unit {
        UnitStanding::Part(part) => usize::from(part.gaps),
        UnitStanding::Whole(_) | UnitStanding::Absent(_) => 0,
    });
    assert_eq!(gaps.sum::<usize>(), standing.gaps.len());
}
