//! The sender's end of a UDP lane, with a receiver's end that misses any of its packets and any
//! statuses, or that says anything: no piece is sent that is known to have landed, none is
//! forgotten, and a receiver that lies breaks nothing but the lane.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, DigestKind, FileId, Unit};
use longhaul_fuzz::within;
use longhaul_proto::Timestamp;
use longhaul_proto::udp::packet::{OuterBody, PacketNumber, PieceBytes, SendTime, Serial, UnitBody, UnitCut};
use longhaul_proto::udp::plan::{MessageRoom, UdpPlan};
use longhaul_proto::udp::receiving::{Arrived, Look, UdpReceiving, UdpReceivingConfig};
use longhaul_proto::udp::sending::{UdpSending, UdpSendingConfig};
use longhaul_proto::udp::status::{Status, UnitStanding};
use longhaul_proto::wire::data::Piece;

const UNITS_OPEN: u32 = 8;
const UNITS_MOST: usize = 64;
const ROUND_TRIP: Duration = Duration::from_millis(20);
const ROOM: MessageRoom = MessageRoom { bytes: 12_000, datagrams: 9 };

fuzz_target!(|bytes: &[u8]| within((4 << 20) + 64 * bytes.len(), || Play::new().run(bytes)));

struct Play {
    now: Timestamp,
    sending: UdpSending,
    receiving: UdpReceiving,
    next: u64,
    statuses: u64,
    units: Vec<u64>,
    /// Pieces of the newest cut of each unit that the sender knows to have landed.
    known: BTreeMap<u32, (UnitCut, BTreeSet<u16>)>,
    whole: BTreeSet<u32>,
    /// Units whose digest is known.
    digests: BTreeSet<u32>,
}

impl Play {
    fn new() -> Play {
        let (now, admit, round_trip) = (Timestamp(0), Serial(UNITS_OPEN), ROUND_TRIP);
        let routes = [8972, 65_507];
        Play {
            now,
            sending: UdpSending::new(now, UdpSendingConfig { routes, admit, round_trip }),
            receiving: UdpReceiving::new(now, UdpReceivingConfig { slot_bytes: 1 << 18, admit, round_trip }),
            next: 0,
            statuses: 0,
            units: Vec::new(),
            known: BTreeMap::new(),
            whole: BTreeSet::new(),
            digests: BTreeSet::new(),
        }
    }

    fn run(mut self, bytes: &[u8]) {
        for (at, op) in bytes.chunks_exact(3).enumerate() {
            match op[0] % 6 {
                0 => self.begin(u64::from(op[1]) * 256 + u64::from(op[2])),
                1 => self.digest_known(u32::from(op[1] % 64)),
                2 | 3 => {
                    self.send(u16::from_le_bytes([op[1], op[2]]));
                }
                4 => {
                    self.now = self.now.after(Duration::from_micros(u64::from(op[1]) * 500));
                    self.report(op[2]);
                }
                _ if op[1] == 0xff => return self.lie(&bytes[at * 3 + 3..]),
                _ if op[1] == 0xfe => self.sending.refused(u16::from(op[2]) * 40),
                _ => self.now = self.now.after(Duration::from_millis(u64::from(op[2]))),
            }
        }
        self.end();
    }

    fn begin(&mut self, bytes: u64) {
        if self.units.len() < UNITS_MOST
            && let Some(unit) = self.sending.begin(bytes)
        {
            assert_eq!(unit.serial.0 as usize, self.units.len());
            self.units.push(bytes);
        }
    }

    fn digest_known(&mut self, serial: u32) {
        if (serial as usize) < self.units.len() {
            self.sending.digest_known(Serial(serial));
            self.digests.insert(serial);
        }
    }

    /// One message, of which the datagrams with a bit in `lost` do not come.
    fn send(&mut self, lost: u16) -> bool {
        let Some(plan) = self.sending.next(self.now, ROOM) else { return false };
        let first = PacketNumber::new(self.next).expect("few packets");
        let datagrams: Vec<_> = plan.datagrams().collect();
        assert!(datagrams.len() == plan.count() && plan.count() <= ROOM.datagrams);
        assert!(datagrams.iter().rev().skip(1).all(|datagram| datagram.bytes == plan.segment_bytes()));
        for (at, datagram) in datagrams.iter().enumerate() {
            if let OuterBody::Data(place) = datagram.body {
                let known = self.known.get(&place.serial.0);
                let landed = known.is_some_and(|(cut, pieces)| *cut == place.cut && pieces.contains(&place.piece));
                assert!(!landed && !self.whole.contains(&place.serial.0), "{place:?} has landed");
            }
            if lost >> (at % 16) & 1 == 0 {
                self.arrive(&plan, &datagram.body, datagram.at.end - datagram.at.start, datagram.bytes);
            }
            self.next += 1;
        }
        self.sending.sent(self.now, &plan, first);
        true
    }

    fn arrive(&mut self, plan: &UdpPlan, body_of: &OuterBody, bytes: u64, datagram: u16) {
        let number = PacketNumber::new(self.next).expect("few packets");
        let arrived = Arrived { number, sent: SendTime(0), at: self.now };
        match (plan, body_of) {
            (_, OuterBody::Data(place)) => {
                if self.receiving.look(place, bytes as usize) == Look::Seen {
                    self.receiving.again(arrived);
                }
                self.receiving.landed(arrived, place, bytes as usize);
            }
            (UdpPlan::Unit(unit), OuterBody::Unit(cut)) => {
                let body = self.body(unit.serial.0, unit.payload, unit.piece_bytes);
                self.receiving.unit(arrived, *cut, &body).expect("the sender says nothing wrong");
            }
            (UdpPlan::Probe(search, _), _) => self.receiving.probe(arrived, *search, datagram),
            (UdpPlan::End(units), _) => self.receiving.end(arrived, *units).expect("the sender says nothing wrong"),
            other => unreachable!("{other:?}"),
        }
    }

    /// The statuses that are due are said; those with a bit in `lost` do not come.
    fn report(&mut self, lost: u8) {
        for (at, status) in self.receiving.report(self.now, 120).iter().enumerate() {
            self.statuses += 1;
            if lost >> (at % 8) & 1 == 1 {
                continue;
            }
            let number = PacketNumber::new(self.statuses).expect("few statuses");
            let heard = self.sending.status(self.now, number, status).expect("the receiver says nothing wrong");
            for serial in heard.whole {
                assert!(self.whole.insert(serial.0), "{serial:?} is whole twice");
                self.known.remove(&serial.0);
            }
            self.learn(status);
        }
        let (below, open) = (self.receiving.below().0, self.receiving.credit());
        if below as usize + (open as usize) < UNITS_MOST {
            self.receiving.admit(self.now, UNITS_OPEN.saturating_sub(open));
        }
    }

    fn learn(&mut self, status: &Status) {
        let (mut serial, mut gaps) = (status.standing.from.0, status.standing.gaps.iter());
        for unit in &status.standing.units {
            if let UnitStanding::Part(part) = unit {
                let (cut, pieces) = self.known.entry(serial).or_default();
                if *cut < part.cut {
                    (*cut, *pieces) = (part.cut, BTreeSet::new());
                }
                let lacking: BTreeSet<u16> = gaps
                    .by_ref()
                    .take(usize::from(part.gaps))
                    .flat_map(|gap| (gap.first..).take(usize::from(gap.pieces)))
                    .collect();
                pieces.extend((part.first..part.reach).filter(|piece| !lacking.contains(piece)));
            }
            serial += unit.count();
        }
    }

    /// From now on nothing is lost: all units become whole, in few rounds.
    fn end(mut self) {
        self.sending.finish();
        for _ in 0..4000 {
            (0..self.units.len() as u32).for_each(|serial| self.digest_known(serial));
            while self.send(0) {}
            let Some(sender) = self.sending.timeout() else {
                assert!(self.receiving.is_over() && self.sending.open_units() == 0);
                assert_eq!(self.whole.len(), self.units.len());
                return;
            };
            self.now = sender.min(self.receiving.timeout()).max(Timestamp(self.now.0 + 1));
            self.report(0);
        }
        panic!("{} of {} units are whole", self.whole.len(), self.units.len());
    }

    /// A receiver that says anything.
    fn lie(mut self, bytes: &[u8]) {
        for plain in bytes.chunks(100) {
            let Ok(status) = Status::decode(plain) else { continue };
            self.statuses += 1;
            let number = PacketNumber::new(self.statuses).expect("few statuses");
            if self.sending.status(self.now, number, &status).is_err() {
                return;
            }
            self.now = self.now.after(ROUND_TRIP);
            while let Some(plan) = self.sending.next(self.now, ROOM) {
                let first = PacketNumber::new(self.next).expect("few packets");
                self.sending.sent(self.now, &plan, first);
                self.next += plan.count() as u64;
            }
        }
    }

    fn body(&self, serial: u32, payload: u64, piece_bytes: PieceBytes) -> UnitBody {
        let header = Piece {
            unit: Unit::Chunk { file: FileId(1), index: ChunkIndex(u64::from(serial)) },
            attempt: Attempt(1),
            offset: 0,
            len: payload,
            unit_len: payload.max(1),
            chunk: ChunkSize::DEFAULT,
            digest: DigestKind::Cv,
            hole: payload == 0,
            same: false,
            trailer: true,
        };
        UnitBody {
            serial: Serial(serial),
            piece_bytes,
            header,
            digest: self.digests.contains(&serial).then_some([1; 32]),
        }
    }
}
