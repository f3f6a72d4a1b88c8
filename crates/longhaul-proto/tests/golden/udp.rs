//! The packets of a UDP lane as bytes, and each field of theirs out of bounds.

use longhaul_core::{Attempt, ChunkIndex, ChunkSize, DigestKind, FileId, LaneId, Transport, Unit};
use longhaul_proto::Message;
use longhaul_proto::join::JoinKey;
use longhaul_proto::udp::join::{JOIN_BYTES, UdpJoin, UdpJoinError, UdpJoined, early_session, key_context};
use longhaul_proto::udp::packet::{
    CloseReason, DataPlace, LaneIndex, Outer, OuterBody, PacketError, PacketKind, PacketNumber, PieceBytes, SendTime,
    Serial, SizeSearch, TAG_BYTES, UnitBody, UnitCut, check_probe, decode_end, encode_end,
};
use longhaul_proto::udp::status::{Counts, Gap, LargestArrived, PartUnit, Standing, Status, UnitStanding};
use longhaul_proto::wire::data::Piece;
use longhaul_proto::wire::message::{LandedUnits, LaneTarget, UdpLaneClosed};

use super::hex;

fn number(number: u64) -> PacketNumber {
    PacketNumber::new(number).expect("a number")
}

fn piece_bytes(bytes: u16) -> PieceBytes {
    PieceBytes::new(bytes).expect("bytes of a piece")
}

fn outer(body: OuterBody) -> Outer {
    Outer { index: LaneIndex(0x0403_0201), number: number(0x0506_0708_090a), sent: SendTime(0x0b0c), body }
}

fn place() -> DataPlace {
    DataPlace { serial: Serial(0x0102_0304), cut: UnitCut(2), piece: 0x0506, piece_bytes: piece_bytes(1432) }
}

/// A datagram with zeros in the place of what is sealed.
fn datagram(body: OuterBody, plain: usize) -> Vec<u8> {
    let mut bytes = outer(body).encode().as_ref().to_vec();
    bytes.resize(bytes.len() + plain + TAG_BYTES, 0);
    bytes
}

#[test]
fn outer_headers_are_these_bytes() {
    for (body, plain, golden) in [
        (OuterBody::Data(place()), 1432, "23020c0b010203040a090807060500000403020106059805"),
        (OuterBody::Unit(UnitCut(2)), 104, "24020c0b010203040a09080706050000"),
        (OuterBody::Status, 68, "25000c0b010203040a09080706050000"),
        (OuterBody::Probe(SizeSearch(3)), 0, "26030c0b010203040a09080706050000"),
        (OuterBody::End, 4, "27000c0b010203040a09080706050000"),
        (OuterBody::Close, 1, "28000c0b010203040a09080706050000"),
    ] {
        let outer = outer(body);
        assert_eq!(hex(outer.encode().as_ref()), golden);
        let bytes = datagram(body, plain);
        assert_eq!(Outer::parse(&bytes), Ok(outer));
        assert_eq!((outer.bytes(), outer.plain_bytes(bytes.len())), (golden.len() / 2, plain));
    }
}

#[test]
fn outer_headers_with_a_field_out_of_bounds_are_refused() {
    let data = datagram(OuterBody::Data(place()), 1432);
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = data.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes
    };
    let short = |bytes: Vec<u8>, len: usize| bytes[..len].to_vec();
    let last = DataPlace { piece: 32_767, piece_bytes: piece_bytes(2048), ..place() };
    assert!(Outer::parse(&datagram(OuterBody::Data(last), 2048)).is_ok(), "it ends where the largest unit does");
    let beyond = DataPlace { piece: last.piece + 1, ..last };
    for (case, bytes, want) in [
        ("nothing", Vec::new(), PacketError::Kind),
        ("of QUIC", changed(0, &[0x63]), PacketError::Kind),
        ("a kind before the first", changed(0, &[0x20]), PacketError::Kind),
        ("a kind behind the last", changed(0, &[0x29]), PacketError::Kind),
        ("a join", changed(0, &[0x21]), PacketError::Kind),
        ("an answer to a join", changed(0, &[0x22]), PacketError::Kind),
        ("a number of 2^48", changed(14, &[1]), PacketError::Bounds),
        ("the number of no piece", changed(20, &[0xff, 0xff]), PacketError::Bounds),
        ("pieces too small", changed(22, &1151_u16.to_le_bytes()), PacketError::Bounds),
        ("pieces too large", changed(22, &65_468_u16.to_le_bytes()), PacketError::Bounds),
        ("longer than its pieces", changed(22, &1431_u16.to_le_bytes()), PacketError::Length),
        ("beyond the largest unit", datagram(OuterBody::Data(beyond), 1), PacketError::Bounds),
        ("an empty piece", short(data.clone(), 40), PacketError::Length),
        ("a header of DATA cut short", short(data.clone(), 39), PacketError::Length),
        ("a header cut short", short(datagram(OuterBody::Probe(SizeSearch(0)), 0), 31), PacketError::Length),
        ("a cut of a status", changed(0, &[0x25]), PacketError::Unknown),
        ("a cut of an end", changed(0, &[0x27]), PacketError::Unknown),
        ("a cut of a close", changed(0, &[0x28]), PacketError::Unknown),
        ("a unit too short", datagram(OuterBody::Unit(UnitCut(0)), 103), PacketError::Length),
        ("a unit too long", datagram(OuterBody::Unit(UnitCut(0)), 105), PacketError::Length),
        ("a status too short", datagram(OuterBody::Status, 67), PacketError::Length),
        ("an end too short", datagram(OuterBody::End, 3), PacketError::Length),
        ("an end too long", datagram(OuterBody::End, 5), PacketError::Length),
        ("a close too long", datagram(OuterBody::Close, 2), PacketError::Length),
        ("a probe too long", datagram(OuterBody::Probe(SizeSearch(0)), 65_476), PacketError::Length),
    ] {
        assert_eq!(Outer::parse(&bytes), Err(want), "{case}");
    }
    assert_eq!(PacketNumber::new(1 << 48), None);
    assert_eq!(PacketKind::of(&[0x61]), None);
}

fn unit_body() -> UnitBody {
    let header = Piece {
        unit: Unit::Chunk { file: FileId(0x0102), index: ChunkIndex(3) },
        attempt: Attempt(2),
        offset: 0,
        len: 0x400,
        unit_len: 0x400,
        chunk: ChunkSize::DEFAULT,
        digest: DigestKind::Cv,
        hole: false,
        same: false,
        trailer: true,
    };
    UnitBody { serial: Serial(0x0102_0304), piece_bytes: piece_bytes(1432), header, digest: Some([0xcd; 32]) }
}

#[test]
fn units_ends_and_closes_are_these_bytes() {
    let body = unit_body();
    let unknown = UnitBody { digest: None, ..body };
    for (body, golden) in [(body, UNITS[0]), (unknown, UNITS[1])] {
        assert_eq!(hex(&body.encode()), golden);
        assert_eq!(UnitBody::decode(&body.encode()), Ok(body));
        assert_eq!(body.payload(), 0x400);
    }
    let hole = Piece { len: 0, hole: true, ..body.header };
    let hole = UnitBody { header: hole, ..body };
    assert_eq!((UnitBody::decode(&hole.encode()), hole.payload()), (Ok(hole), 0));
    assert_eq!(encode_end(0x0102_0304), [4, 3, 2, 1]);
    assert_eq!(decode_end(&[4, 3, 2, 1]), Ok(0x0102_0304));
    for (reason, byte) in [(CloseReason::Over, 0), (CloseReason::GivenUp, 1), (CloseReason::Breach, 2)] {
        assert_eq!((reason.encode(), CloseReason::decode(&[byte])), ([byte], Ok(reason)));
    }
    assert_eq!(CloseReason::decode(&[3]), Err(PacketError::Unknown));
    assert_eq!(CloseReason::decode(&[]), Err(PacketError::Length));
    assert_eq!(decode_end(&[0; 3]), Err(PacketError::Length));
    assert_eq!((check_probe(&[0; 9]), check_probe(&[0, 1])), (Ok(()), Err(PacketError::Unknown)));
}

const UNITS: [&str; 2] = [
    "04030201980501004c486431010616000201000000000000030000000000000002000000000000000000000000000000000400000000000000040000000000000000000000000000cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
    "04030201980500004c4864310106160002010000000000000300000000000000020000000000000000000000000000000004000000000000000400000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
];

#[test]
fn units_with_a_field_out_of_bounds_are_refused() {
    let good = unit_body().encode();
    for (case, at, byte, want) in [
        ("pieces too small", 5, 3, PacketError::Bounds),
        ("neither with digest nor without", 6, 2, PacketError::Unknown),
        ("without a digest that is there", 6, 0, PacketError::Unknown),
        ("a reserved byte", 7, 1, PacketError::Unknown),
        ("no header", 8, 0, PacketError::Header),
        ("the end of a lane", 12, 3, PacketError::Header),
        ("no digest behind it", 13, 2, PacketError::Header),
        ("a part of the unit", 8 + 32, 1, PacketError::Header),
        ("less than the unit", 8 + 41, 3, PacketError::Header),
    ] {
        let mut bytes = good;
        bytes[at] = byte;
        assert_eq!(UnitBody::decode(&bytes), Err(want), "{case}");
    }
    let mut large = good;
    large[4..6].copy_from_slice(&65_468_u16.to_le_bytes());
    assert_eq!(UnitBody::decode(&large), Err(PacketError::Bounds), "pieces too large");
    assert_eq!(UnitBody::decode(&good[..103]), Err(PacketError::Length));
}

fn status() -> Status {
    let part = PartUnit { cut: UnitCut(1), first: 7, reach: 0x0120, goes_on: false, lacks_unit: true, gaps: 2 };
    let more = PartUnit { first: 0, goes_on: true, lacks_unit: false, gaps: 1, ..part };
    let counts = Counts { packets: 1, bytes: 2, marked: 3, dropped: 4, twice: 5, wrong: 6 };
    Status {
        largest: Some(LargestArrived { number: number(0x0102_0304_0506), waited_us: 7, at_us: 8 }),
        delay: Some(9),
        search: SizeSearch(2),
        probe: 8932,
        counts,
        below: Serial(10),
        admit: Serial(30),
        ended: true,
        held: true,
        standing: Standing {
            from: Serial(11),
            complete: false,
            units: vec![
                UnitStanding::Part(part),
                UnitStanding::Whole(3),
                UnitStanding::Absent(2),
                UnitStanding::Part(more),
            ],
            gaps: vec![Gap { first: 8, pieces: 1 }, Gap { first: 10, pieces: 15 }, Gap { first: 0, pieces: 0x0120 }],
        },
    }
}

#[test]
fn statuses_are_these_bytes() {
    let first = Status { standing: Standing { complete: true, ..Standing::default() }, ..Status::default() };
    for (status, golden) in [(status(), STATUSES[0]), (first, STATUSES[1])] {
        let plain = status.encode();
        assert_eq!(hex(&plain), golden);
        assert_eq!(Status::decode(&plain), Ok(status));
    }
}

const STATUSES: [&str; 2] = [
    "060504030201000007000000080000000900e42201000000000000000200000000000000030000000400000005000000060000000a0000001e0000000b0000000f0002000220010007002001080001000a000f0003800240011001000000200100002001",
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000010000000",
];

#[test]
fn statuses_with_a_field_out_of_bounds_are_refused() {
    let good = status().encode();
    for (case, at, byte, want) in [
        ("a number of 2^48", 6, 1, PacketError::Bounds),
        ("a largest that is not there", 64, 0x0e, PacketError::Bounds),
        ("a delay that is not there", 64, 0x0d, PacketError::Bounds),
        ("complete, and goes on", 64, 0x1f, PacketError::Bounds),
        ("an unknown flag", 64, 0x2f, PacketError::Unknown),
        ("another unknown flag", 65, 1, PacketError::Unknown),
        ("a reserved byte", 67, 1, PacketError::Unknown),
        ("more admitted than may be open", 57, 0x41, PacketError::Bounds),
        ("fewer admitted than are whole", 56, 9, PacketError::Bounds),
        ("units that are not admitted", 56, 17, PacketError::Bounds),
        ("a stretch before those that are whole", 60, 9, PacketError::Bounds),
        ("a reserved byte of a unit", 71, 1, PacketError::Unknown),
        ("it begins behind its reach", 73, 2, PacketError::Bounds),
        ("a gap before the beginning", 76, 6, PacketError::Bounds),
        ("an empty gap", 78, 0, PacketError::Bounds),
        ("a gap beside another one", 80, 9, PacketError::Bounds),
        ("a gap beyond the reach", 83, 2, PacketError::Bounds),
        ("no unit that is whole", 84, 0, PacketError::Unknown),
        ("a standing of no kind", 85, 0xc0, PacketError::Unknown),
        ("a second unit begins late", 92, 1, PacketError::Bounds),
        ("more gaps than bytes", 88, 2, PacketError::Length),
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(Status::decode(&bytes), Err(want), "{case}");
    }
    assert_eq!(Status::decode(&good[..67]), Err(PacketError::Length));
    assert_eq!(Status::decode(&good[..good.len() - 1]), Err(PacketError::Length));
    let mut behind = good.clone();
    behind.extend_from_slice(&[1, 0x80]);
    assert_eq!(Status::decode(&behind), Err(PacketError::Bounds), "more behind a unit that goes on");
}

fn join() -> UdpJoin {
    UdpJoin {
        route_bytes: 8932,
        index: LaneIndex(0x0403_0201),
        session: [1; 16],
        lane: LaneId(2),
        nonce: [3; 16],
        admit: 64,
    }
}

fn joined() -> UdpJoined {
    UdpJoined {
        route_bytes: 1432,
        dialer_index: LaneIndex(0x0403_0201),
        index: LaneIndex(0x0807_0605),
        nonce: [4; 16],
        admit: 0,
    }
}

#[test]
fn a_udp_lane_joins_by_these_bytes() {
    let key = JoinKey([5; 32]);
    let asked = join().encode(&key);
    assert_eq!((hex(&asked[..48]), hex(&asked[1200..])), (JOINS[0].to_owned(), JOINS[1].to_owned()));
    assert!(asked[48..1200].iter().all(|byte| *byte == 0));
    assert_eq!(UdpJoin::verify(&asked, &key), Ok(join()));
    let answer = joined().encode(&key, &asked);
    assert_eq!((hex(&answer[..32]), hex(&answer[1200..])), (JOINS[2].to_owned(), JOINS[3].to_owned()));
    assert!(answer[32..1200].iter().all(|byte| *byte == 0));
    assert_eq!(UdpJoined::verify(&answer, &key, &asked), Ok(joined()));
    assert_eq!(hex(&key_context(&join(), &joined())), JOINS[4]);
}

const JOINS: [&str; 5] = [
    "2101e4220102030401010101010101010101010101010101020000000303030303030303030303030303030340000000",
    "c49fd29c35c299eec98fbb8656491d0758d93e842baa2c2b58dc60ccf8aab424",
    "2201980501020304050607080404040404040404040404040404040400000000",
    "b747dddd5a0560c59156672883fb8b48d4291051bb725866f90b980aeeaa38b8",
    "01010101010101010101010101010101020000000303030303030303030303030303030304040404040404040404040404040404",
];

#[test]
fn a_udp_lane_that_is_asked_for_before_its_session_has_a_name_joins_by_these_bytes() {
    let key = JoinKey([5; 32]);
    let join = UdpJoin { session: early_session(&key), ..join() };
    let asked = join.encode(&key);
    assert_eq!((hex(&asked[..48]), hex(&asked[1200..])), (EARLY_JOIN[0].to_owned(), EARLY_JOIN[1].to_owned()));
    assert_eq!(hex(&key_context(&join, &joined())), EARLY_JOIN[2], "its keys are those of this name");
}

const EARLY_JOIN: [&str; 3] = [
    "2101e422010203041c982cf8486a1d8e71049f6108f3aad2020000000303030303030303030303030303030340000000",
    "7f8ed51915420f93db02d2fc25f0667562ff7d82aa966003778a2b3a113f44f4",
    "1c982cf8486a1d8e71049f6108f3aad2020000000303030303030303030303030303030304040404040404040404040404040404",
];

#[test]
fn a_join_that_was_changed_anywhere_or_is_of_another_key_is_refused() {
    let (key, other) = (JoinKey([5; 32]), JoinKey([6; 32]));
    let asked = join().encode(&key);
    let answer = joined().encode(&key, &asked);
    assert_eq!(UdpJoin::verify(&asked, &other), Err(UdpJoinError::Proof));
    assert_eq!(UdpJoined::verify(&answer, &other, &asked), Err(UdpJoinError::Proof));
    for at in 0..JOIN_BYTES {
        let (mut asked_so, mut answered_so) = (asked, answer);
        asked_so[at] ^= 1;
        answered_so[at] ^= 1;
        assert!(UdpJoin::verify(&asked_so, &key).is_err(), "byte {at} of JOIN");
        assert!(UdpJoined::verify(&answered_so, &key, &asked).is_err(), "byte {at} of JOINED");
        assert!(UdpJoined::verify(&answer, &key, &asked_so).is_err(), "byte {at} of the JOIN that is answered");
    }
    // An end that is sent its own words back hears no proof of the other one.
    assert!(UdpJoined::verify(&asked, &key, &asked).is_err());
    assert!(UdpJoin::verify(&answer, &key).is_err());
    let another = UdpJoin { nonce: [9; 16], ..join() }.encode(&key);
    assert_eq!(UdpJoined::verify(&answer, &key, &another), Err(UdpJoinError::Proof));
    let stranger = UdpJoin { index: LaneIndex(7), ..join() }.encode(&key);
    assert_eq!(UdpJoined::verify(&answer, &key, &stranger), Err(UdpJoinError::Other));
}

#[test]
fn joins_with_a_field_out_of_bounds_are_refused() {
    let key = JoinKey([5; 32]);
    let asked = join().encode(&key);
    let answer = joined().encode(&key, &asked);
    for (case, at, with, want) in [
        ("another kind", 0, [0x23, 1].as_slice(), PacketError::Kind),
        ("another version", 1, &[2], PacketError::Unknown),
        ("a route that is too small", 2, &1231_u16.to_le_bytes(), PacketError::Bounds),
        ("a route that is too large", 2, &65_508_u16.to_le_bytes(), PacketError::Bounds),
        ("a byte of the padding", 1199, &[1], PacketError::Unknown),
    ] {
        let (mut asked_so, mut answered_so) = (asked, answer);
        asked_so[at..at + with.len()].copy_from_slice(with);
        answered_so[at..at + with.len()].copy_from_slice(with);
        assert_eq!(UdpJoin::claimed(&asked_so), Err(want), "{case}");
        assert_eq!(UdpJoin::verify(&asked_so, &key), Err(want.into()), "{case}");
        assert_eq!(UdpJoined::verify(&answered_so, &key, &asked), Err(want.into()), "{case}");
    }
    for len in [0, 1, JOIN_BYTES - 1] {
        assert!(UdpJoin::claimed(&asked[..len]).is_err(), "{len} bytes");
    }
    assert_eq!(UdpJoin::claimed(&[asked.as_slice(), &[0]].concat()), Err(PacketError::Length));
}

/// The word about a lane of which units came beyond one that did not.
pub(crate) fn lane_closed() -> Message {
    let landed = LandedUnits { below: 300, beyond: vec![1, 300] };
    Message::UdpLaneClosed(UdpLaneClosed { lane: LaneId(2), landed })
}

/// The bytes of [`lane_closed`].
pub(crate) const LANE_CLOSED: &str = "080000002702ac020201ac02";

#[test]
fn a_target_of_lanes_names_udp() {
    let target = Message::LaneTarget(LaneTarget { count: 2, transport: Transport::Udp });
    assert_eq!(hex(&target.encode()), "030000001a0203");
}
