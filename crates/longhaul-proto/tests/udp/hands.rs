//! Packets and statuses with which the ends are fed by hand.

use std::time::Duration;

use longhaul_core::{Attempt, ChunkIndex, ChunkSize, DigestKind, FileId, Unit};
use longhaul_proto::Timestamp;
use longhaul_proto::udp::packet::{DataPlace, PacketNumber, PieceBytes, SendTime, Serial, UnitBody, UnitCut};
use longhaul_proto::udp::plan::{Description, MessageRoom, Purpose, UdpPlan};
use longhaul_proto::udp::receiving::{Arrived, UdpReceiving, UdpReceivingConfig};
use longhaul_proto::udp::sending::{UdpSending, UdpSendingConfig};
use longhaul_proto::udp::status::{Gap, LargestArrived, PartUnit, Standing, Status, UnitStanding};
use longhaul_proto::wire::data::Piece;

pub(crate) const ROOM: MessageRoom = MessageRoom { bytes: 65_000, datagrams: 64 };
pub(crate) const PIECE: u64 = 1192;
/// The round trip of all paths here.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(80);

pub(crate) fn ms(millis: u64) -> Timestamp {
    Timestamp(millis * 1000)
}

pub(crate) fn number(number: u64) -> PacketNumber {
    PacketNumber::new(number).expect("a number")
}

/// A sender whose path carries the smallest datagrams only.
pub(crate) fn sender(admit: u32) -> UdpSending {
    let config = UdpSendingConfig { routes: [1232; 2], admit: Serial(admit), round_trip: ROUND_TRIP };
    UdpSending::new(ms(0), config)
}

/// Sends all that is due, in messages of this room: pieces, and whether there is a description.
pub(crate) fn flush(sending: &mut UdpSending, now: Timestamp, next: &mut u64, room: MessageRoom) -> Vec<UdpPlan> {
    let mut sent = Vec::new();
    while let Some(plan) = sending.next(now, room) {
        sending.sent(now, &plan, number(*next));
        *next += plan.count() as u64;
        sent.push(plan);
        assert!(sent.len() < 10_000, "it never ends");
    }
    sent
}

/// A status of a lane whose largest packet is this.
pub(crate) fn status(largest: u64, units: Vec<UnitStanding>, gaps: Vec<Gap>) -> Status {
    let standing = Standing { from: Serial(0), complete: true, units, gaps };
    let largest = Some(LargestArrived { number: number(largest), waited_us: 0, at_us: 0 });
    Status { largest, admit: Serial(4), standing, ..Status::default() }
}

pub(crate) fn part(reach: u16, gaps: u16) -> UnitStanding {
    let cut = UnitCut(0);
    UnitStanding::Part(PartUnit { cut, first: 0, reach, goes_on: false, lacks_unit: false, gaps })
}

/// The pieces and the description of a plan.
pub(crate) fn pieces(plan: &UdpPlan) -> (Vec<u16>, Description, Purpose) {
    match plan {
        UdpPlan::Unit(unit) => (unit.pieces.iter().cloned().flatten().collect(), unit.description, unit.purpose),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn gap(first: u16) -> Gap {
    Gap { first, pieces: 1 }
}

pub(crate) const SLOT: u64 = 1 << 20;

pub(crate) fn receiver(admit: u32) -> UdpReceiving {
    let config = UdpReceivingConfig { slot_bytes: SLOT, admit: Serial(admit), round_trip: ROUND_TRIP };
    UdpReceiving::new(ms(0), config)
}

pub(crate) fn arrived(packet: u64, at: Timestamp) -> Arrived {
    Arrived { number: number(packet), sent: SendTime(0), at }
}

pub(crate) fn place(serial: u32, piece: u16) -> DataPlace {
    DataPlace { serial: Serial(serial), cut: UnitCut(0), piece, piece_bytes: PieceBytes::SAFE }
}

pub(crate) fn body(serial: u32, bytes: u64, digest: Option<[u8; 32]>) -> UnitBody {
    let header = Piece {
        unit: Unit::Chunk { file: FileId(7), index: ChunkIndex(u64::from(serial)) },
        attempt: Attempt(1),
        offset: 0,
        len: bytes,
        unit_len: bytes,
        chunk: ChunkSize::DEFAULT,
        digest: DigestKind::Cv,
        hole: false,
        same: false,
        trailer: true,
    };
    UnitBody { serial: Serial(serial), piece_bytes: PieceBytes::SAFE, header, digest }
}
