//! The receiver's end of a UDP lane against any packets that open, in any order: bytes that landed
//! are never written again in the same cut, what is said of a unit is the same in all cuts, memory
//! is bounded, and statuses parse, fit, and say what has landed.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, DigestKind, FileId, Unit};
use longhaul_fuzz::within;
use longhaul_proto::Timestamp;
use longhaul_proto::udp::packet::{
    DataPlace, PacketNumber, PieceBytes, SendTime, Serial, SizeSearch, UnitBody, UnitCut,
};
use longhaul_proto::udp::receiving::{Arrived, Look, UdpReceiving, UdpReceivingConfig};
use longhaul_proto::udp::status::{Status, UnitStanding};
use longhaul_proto::wire::data::Piece;

const SLOT_BYTES: u64 = 1 << 18;
const PLAIN_BYTES: usize = 120;

fuzz_target!(|bytes: &[u8]| within((2 << 20) + 1024 * bytes.len(), || play(bytes)));

/// The units that are not whole: the cut, and the pieces that landed in it.
type Landed = BTreeMap<u32, (UnitCut, BTreeSet<u16>)>;

fn play(bytes: &[u8]) {
    let config = UdpReceivingConfig { slot_bytes: SLOT_BYTES, admit: Serial(4), round_trip: Duration::from_millis(40) };
    let mut receiving = UdpReceiving::new(Timestamp(0), config);
    let (mut landed, mut whole) = (Landed::new(), BTreeSet::new());
    let mut said = BTreeMap::new();
    let mut now = Timestamp(0);
    for (step, op) in (0..).zip(bytes.chunks_exact(6)) {
        let number = PacketNumber::new(step ^ u64::from(op[5] & 7)).expect("few packets");
        now = Timestamp(now.0 + u64::from(op[5]) * 100);
        let arrived = Arrived { number, sent: SendTime(u16::from(op[5])), at: now };
        let serial = u32::from(op[1]);
        let cut = UnitCut(op[2] >> 6);
        let piece_bytes = PieceBytes::new([1192, 1432, 8892][usize::from(op[2] >> 4 & 3) % 3]).expect("in bounds");
        let size = u64::from(op[3]) * 1024 + u64::from(op[4]);
        match op[0] % 8 {
            0..4 => {
                let place = DataPlace { serial: Serial(serial), cut, piece: u16::from(op[3]), piece_bytes };
                let full = usize::from(piece_bytes.get());
                let len = if op[0] & 8 == 0 { full } else { usize::from(op[4]) };
                piece(&mut receiving, arrived, &place, len, (&mut landed, &mut whole));
            }
            4 | 5 => {
                let body = body(serial, size, piece_bytes, op[0]);
                let Ok(described) = receiving.unit(arrived, cut, &body) else { return };
                for body in described.first.iter().chain(&described.whole) {
                    assert_eq!(*said.entry(serial).or_insert(body.header), body.header, "a unit becomes another one");
                }
                anew(&mut landed, &whole, serial, cut, described.first.is_some());
                described.whole.iter().for_each(|body| hand_on(body, (&mut landed, &mut whole)));
            }
            6 => {
                receiving.admit(now, u32::from(op[1]) << (op[2] % 9));
                receiving.probe(arrived, SizeSearch(op[3]), u16::from(op[4]));
            }
            _ if op[1] == 0xff => {
                if receiving.end(arrived, u32::from(op[2])).is_err() {
                    return;
                }
            }
            _ => {
                now = Timestamp(now.0 + u64::from(op[2]) * 1000);
                report(&mut receiving, now, &landed, &whole);
            }
        }
        assert!(receiving.open_units() <= landed.len());
        assert!((0..receiving.below().0).all(|serial| whole.contains(&serial)), "not all below is whole");
    }
    report(&mut receiving, Timestamp(now.0 + 10_000_000), &landed, &whole);
}

/// A first packet of a later cut forgets what landed in the one before it.
fn anew(landed: &mut Landed, whole: &BTreeSet<u32>, serial: u32, cut: UnitCut, is_heard: bool) {
    if !whole.contains(&serial) && is_heard {
        let unit = landed.entry(serial).or_default();
        if unit.0 < cut {
            *unit = (cut, BTreeSet::new());
        }
    }
}

fn piece(
    receiving: &mut UdpReceiving,
    arrived: Arrived,
    place: &DataPlace,
    len: usize,
    (landed, whole): (&mut Landed, &mut BTreeSet<u32>),
) {
    let look = receiving.look(place, len);
    if look == Look::Seen {
        let (is_newer, twice) = (receiving.is_newer(arrived.number), receiving.counts().twice);
        receiving.again(arrived);
        assert_eq!(receiving.counts().twice - twice, u32::from(is_newer));
    }
    let came = receiving.landed(arrived, place, len);
    assert_eq!(came.is_some(), matches!(look, Look::Land(_) | Look::First), "{look:?}");
    let Some(came) = came else { return };
    assert!(came.at.start == place.offset() && came.at.end == place.offset() + len as u64 && came.at.end <= SLOT_BYTES);
    assert!(look == Look::First || look == Look::Land(came.at.clone()), "{look:?}");
    assert!(!whole.contains(&place.serial.0), "written to after it was whole");
    anew(landed, whole, place.serial.0, place.cut, true);
    let unit = landed.entry(place.serial.0).or_default();
    assert!(unit.0 == place.cut && unit.1.insert(place.piece), "{place:?} is written twice");
    came.whole.iter().for_each(|body| hand_on(body, (landed, whole)));
}

/// All pieces of a unit that is whole are there.
fn hand_on(body: &UnitBody, (landed, whole): (&mut Landed, &mut BTreeSet<u32>)) {
    let (_, pieces) = landed.remove(&body.serial.0).unwrap_or_default();
    assert!(pieces.into_iter().eq(0..body.piece_bytes.pieces(body.payload())), "{body:?} is not whole");
    assert!(body.digest.is_some() && whole.insert(body.serial.0));
}

fn body(serial: u32, size: u64, piece_bytes: PieceBytes, flags: u8) -> UnitBody {
    let header = Piece {
        unit: Unit::Chunk { file: FileId(1), index: ChunkIndex(u64::from(serial)) },
        attempt: Attempt(1),
        offset: 0,
        len: if flags & 16 == 0 { size } else { 0 },
        unit_len: size.max(1),
        chunk: ChunkSize::DEFAULT,
        digest: DigestKind::Cv,
        hole: flags & 16 != 0,
        same: false,
        trailer: true,
    };
    let header = Piece { len: if header.hole { 0 } else { header.unit_len }, ..header };
    UnitBody { serial: Serial(serial), piece_bytes, header, digest: (flags & 32 == 0).then_some([flags & 64; 32]) }
}

/// Statuses say what has landed.
fn report(receiving: &mut UdpReceiving, now: Timestamp, landed: &Landed, whole: &BTreeSet<u32>) {
    let report = receiving.report(now, PLAIN_BYTES);
    assert!(report.len() <= 32);
    for status in report {
        let plain = status.encode();
        assert!(plain.len() <= PLAIN_BYTES);
        assert_eq!(Status::decode(&plain).as_ref(), Ok(&status));
        let (mut serial, mut gaps) = (status.standing.from.0, status.standing.gaps.iter());
        for unit in &status.standing.units {
            for serial in serial..serial + unit.count() {
                let there = landed.get(&serial).map_or(0, |(_, pieces)| pieces.len());
                match unit {
                    UnitStanding::Whole(_) => assert!(whole.contains(&serial), "{serial} is not whole"),
                    UnitStanding::Absent(_) => assert!(!whole.contains(&serial) && there == 0, "{serial} is there"),
                    UnitStanding::Part(part) => {
                        let (cut, pieces) = landed.get(&serial).expect("something of it came");
                        assert_eq!(*cut, part.cut);
                        let own: Vec<_> = gaps.by_ref().take(usize::from(part.gaps)).collect();
                        let lacks =
                            |piece: u16| own.iter().any(|gap| gap.first <= piece && u32::from(piece) < gap.end());
                        for piece in part.first..part.reach {
                            assert_eq!(pieces.contains(&piece), !lacks(piece), "piece {piece} of {serial}");
                        }
                        assert!(
                            part.goes_on || pieces.range(part.reach..).next().is_none(),
                            "more of {serial} is there"
                        );
                    }
                }
            }
            serial += unit.count();
        }
        assert!(!status.standing.complete || landed.range(serial..).next().is_none(), "more units are there");
    }
}
