//! Both ends of a UDP lane with a path between them that loses, copies, delays and spoils, and
//! slots whose content is compared: what is handed on as whole must be what was sent.
//!
//! Time is virtual, and everything random comes from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_core::{Attempt, ChunkIndex, ChunkSize, DigestKind, FileId, Unit};
use longhaul_proto::Timestamp;
use longhaul_proto::udp::UdpBreach;
use longhaul_proto::udp::packet::{
    DataPlace, LaneIndex, Outer, OuterBody, PacketNumber, SendTime, Serial, TAG_BYTES, UnitBody, UnitCut,
};
use longhaul_proto::udp::plan::{MessageRoom, UdpPlan};
use longhaul_proto::udp::receiving::{Arrived, Look, UdpReceiving, UdpReceivingConfig};
use longhaul_proto::udp::sending::{UdpSending, UdpSendingConfig};
use longhaul_proto::udp::status::{Status, UnitStanding};
use longhaul_proto::wire::data::Piece;

use super::mutants::Mutant;

/// The path and the work of a world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Payload bytes of each unit.
    pub(crate) units: Vec<u64>,
    /// Slots of the receiver, and of the sender.
    pub(crate) slots: u32,
    /// One way.
    pub(crate) delay: Duration,
    /// Bytes a second.
    pub(crate) rate: u64,
    /// Shares of a thousand: datagrams lost, statuses lost, datagrams copied, spoiled.
    pub(crate) lost: u64,
    pub(crate) statuses_lost: u64,
    pub(crate) copied: u64,
    pub(crate) spoiled: u64,
    /// A datagram is late by up to this.
    pub(crate) late: Duration,
    /// Most bytes of a datagram on the routes; and within the path, from this time on.
    pub(crate) route: u16,
    pub(crate) hole: Option<(u16, Timestamp)>,
    /// No datagram passes from the first of these times to the second; statuses do.
    pub(crate) outage: Option<(Timestamp, Timestamp)>,
    pub(crate) seed: u64,
}

impl Plan {
    /// A path without any fault: 100 Mbit/s, 20 ms of round trip.
    pub(crate) fn sound(units: Vec<u64>, seed: u64) -> Plan {
        Plan {
            units,
            slots: 16,
            delay: Duration::from_millis(10),
            rate: 12_500_000,
            lost: 0,
            statuses_lost: 0,
            copied: 0,
            spoiled: 0,
            late: Duration::ZERO,
            route: 1472,
            hole: None,
            outage: None,
            seed,
        }
    }
}

/// A datagram on its way to the receiver, or a status on its way back.
enum Travelling {
    Datagram { bytes: Vec<u8>, payload: Vec<u8>, opens: bool },
    Status { number: u64, plain: Vec<u8> },
}

/// Both ends and the path.
pub(crate) struct World {
    plan: Plan,
    mutant: Option<Mutant>,
    dice: u64,
    now: Timestamp,
    pub(crate) sending: UdpSending,
    pub(crate) receiving: UdpReceiving,
    path: BTreeMap<(Timestamp, u64), Travelling>,
    posted: u64,
    /// When the sender's account allows the next message.
    turn: Timestamp,
    next_packet: u64,
    next_status: u64,
    /// The sender's slots: the content of units that may be sent again.
    held: BTreeMap<u32, Vec<u8>>,
    begun: usize,
    /// Units whose digest the sender knows.
    digests: BTreeSet<u32>,
    /// The receiver's slots.
    slots: BTreeMap<u32, Vec<u8>>,
    /// Units that were handed on.
    pub(crate) handed_on: Vec<Serial>,
    /// Datagrams with a piece that the path lost or spoiled, and copies that it made.
    pub(crate) lost: u64,
    pub(crate) copied: u64,
    /// Times that the sender cut units anew.
    pub(crate) cuts: u64,
    /// When all was sent once, and when all was handed on.
    pub(crate) all_sent: Option<Timestamp>,
    pub(crate) all_there: Option<Timestamp>,
}

const SLOT_BYTES: u64 = 1 << 20;
/// No world takes longer, or more packets: then it is stuck.
const TIME_MAX: Timestamp = Timestamp(600_000_000);
const PACKETS_MAX: u64 = 500_000;

/// The content of a unit.
fn content(serial: u32, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ (serial as u8).wrapping_mul(97) | 1).collect()
}

fn body(serial: u32, payload: u64, piece_bytes: longhaul_proto::udp::packet::PieceBytes) -> UnitBody {
    let header = Piece {
        unit: Unit::Chunk { file: FileId(7), index: ChunkIndex(u64::from(serial)) },
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
    UnitBody { serial: Serial(serial), piece_bytes, header, digest: Some([serial as u8; 32]) }
}

impl World {
    pub(crate) fn new(plan: Plan, mutant: Option<Mutant>) -> World {
        let now = Timestamp(1_000_000);
        let (admit, round_trip) = (Serial(plan.slots), plan.delay * 2);
        let config = UdpSendingConfig { routes: [plan.route; 2], admit, round_trip };
        World {
            dice: plan.seed | 1,
            now,
            sending: UdpSending::new(now, config),
            receiving: UdpReceiving::new(now, UdpReceivingConfig { slot_bytes: SLOT_BYTES, admit, round_trip }),
            path: BTreeMap::new(),
            posted: 0,
            turn: now,
            next_packet: 0,
            next_status: 0,
            held: BTreeMap::new(),
            begun: 0,
            digests: BTreeSet::new(),
            slots: BTreeMap::new(),
            handed_on: Vec::new(),
            lost: 0,
            copied: 0,
            cuts: 0,
            all_sent: None,
            all_there: None,
            plan,
            mutant,
        }
    }

    /// Plays until both ends are over. The first promise that is broken otherwise.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        while !(self.receiving.is_over() && self.sending.timeout().is_none()) {
            if self.now > TIME_MAX || self.next_packet > PACKETS_MAX {
                return Err(format!("stuck with {} of {} units", self.handed_on.len(), self.plan.units.len()));
            }
            self.begin();
            self.send();
            self.report();
            self.travel()?;
        }
        let mut handed_on = self.handed_on.clone();
        handed_on.sort_unstable();
        let all: Vec<_> = (0..self.plan.units.len() as u32).map(Serial).collect();
        if handed_on == all { Ok(()) } else { Err(format!("handed on {handed_on:?}")) }
    }

    fn chance(&mut self, of_thousand: u64) -> bool {
        self.random() % 1000 < of_thousand
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.dice;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn begin(&mut self) {
        while self.begun < self.plan.units.len() && self.held.len() < self.plan.slots as usize {
            let bytes = self.plan.units[self.begun];
            let Some(unit) = self.sending.begin(bytes) else { break };
            self.held.insert(unit.serial.0, content(unit.serial.0, bytes));
            self.begun += 1;
            // Of every other unit the digest is known late: when the next one begins.
            if unit.serial.0 % 2 == 1 {
                self.digest_known(unit.serial.0 - 1);
                self.digest_known(unit.serial.0);
            }
        }
        if self.begun == self.plan.units.len()
            || self.held.len() == self.plan.slots as usize
            || self.sending.credit() == 0
        {
            (0..self.begun as u32).for_each(|serial| self.digest_known(serial));
        }
        if self.begun == self.plan.units.len() {
            self.sending.finish();
        }
    }

    fn digest_known(&mut self, serial: u32) {
        self.sending.digest_known(Serial(serial));
        self.digests.insert(serial);
    }

    fn send(&mut self) {
        let room = MessageRoom { bytes: 20_000, datagrams: 12 };
        while self.now >= self.turn {
            let Some(message) = self.sending.next(self.now, room) else { break };
            assert_eq!(self.sending.next(self.now, room), Some(message.clone()), "the same until it is sent");
            self.check(&message, room);
            let first = PacketNumber::new(self.next_packet).expect("few packets");
            let wire = message.bytes() as u64 * 1_000_000 / self.plan.rate;
            for datagram in message.datagrams() {
                self.seal(&message, &datagram.body, datagram.at.clone(), usize::from(datagram.bytes));
            }
            self.sending.sent(self.now, &message, first);
            if matches!(message, UdpPlan::End(_)) {
                self.all_sent.get_or_insert(self.now);
            }
            assert_eq!(self.next_packet, first.get() + message.count() as u64);
            self.turn = Timestamp(self.turn.max(self.now).0 + wire);
        }
        if self.mutant == Some(Mutant::FreesSlotEarly) {
            // Its slot has other content once all of it was sent.
            let end = self.begun as u32;
            for (serial, slot) in &mut self.held {
                if *serial + 2 < end {
                    slot.fill(0);
                }
            }
        }
    }

    /// One system call can send it, and it has no more than fits.
    fn check(&self, message: &UdpPlan, room: MessageRoom) {
        let sizes: Vec<_> = message.datagrams().map(|datagram| datagram.bytes).collect();
        assert_eq!(sizes.len(), message.count());
        let (last, others) = sizes.split_last().expect("it has a datagram");
        assert!(others.iter().all(|size| *size == sizes[0]) && *last <= sizes[0], "{sizes:?}");
        assert!(sizes.len() <= room.datagrams && (others.is_empty() || message.bytes() <= room.bytes), "{message:?}");
        assert_eq!(message.segment_bytes(), sizes[0]);
    }

    fn seal(&mut self, message: &UdpPlan, body_of: &OuterBody, at: std::ops::Range<u64>, bytes: usize) {
        let number = PacketNumber::new(self.next_packet).expect("few packets");
        self.next_packet += 1;
        let sent = SendTime((self.now.0 / 100) as u16);
        let outer = Outer { index: LaneIndex(9), number, sent, body: *body_of };
        let plain = match (message, body_of) {
            (UdpPlan::Unit(unit), OuterBody::Data(_)) => {
                self.held[&unit.serial.0][at.start as usize..at.end as usize].to_vec()
            }
            (UdpPlan::Unit(unit), _) => {
                let known = self.digests.contains(&unit.serial.0).then_some([unit.serial.0 as u8; 32]);
                let body = UnitBody { digest: known, ..body(unit.serial.0, unit.payload, unit.piece_bytes) };
                body.encode().to_vec()
            }
            (UdpPlan::Probe(..), _) => vec![0; outer.plain_bytes(bytes)],
            (UdpPlan::End(units), _) => longhaul_proto::udp::packet::encode_end(*units).to_vec(),
        };
        let mut datagram = outer.encode().as_ref().to_vec();
        assert_eq!(datagram.len() + plain.len() + TAG_BYTES, bytes);
        datagram.resize(bytes, 0xee);
        self.post(datagram, plain);
    }

    fn post(&mut self, bytes: Vec<u8>, payload: Vec<u8>) {
        let too_large = self.plan.hole.is_some_and(|(size, from)| self.now >= from && bytes.len() > usize::from(size));
        let opens = !self.chance(self.plan.spoiled);
        let times = 1 + u64::from(self.chance(self.plan.copied));
        let is_piece = matches!(Outer::parse(&bytes), Ok(Outer { body: OuterBody::Data(_), .. }));
        self.copied += times - 1;
        if too_large || self.chance(self.plan.lost) || self.is_out() {
            self.lost += u64::from(is_piece);
            return;
        }
        self.lost += u64::from(is_piece && !opens);
        for _ in 0..times {
            let late = self.random() % (self.plan.late.as_micros() as u64 + 1);
            let at = Timestamp(self.now.after(self.plan.delay).0 + late);
            self.posted += 1;
            let travelling = Travelling::Datagram { bytes: bytes.clone(), payload: payload.clone(), opens };
            self.path.insert((at, self.posted), travelling);
        }
    }

    fn is_out(&self) -> bool {
        self.plan.outage.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    fn report(&mut self) {
        for mut status in self.receiving.report(self.now, 200) {
            if self.mutant == Some(Mutant::ForgetsGap) {
                forget_gap(&mut status);
            }
            let plain = status.encode();
            assert!(plain.len() <= 200, "{} bytes", plain.len());
            assert_eq!(Status::decode(&plain), Ok(status));
            let number = self.next_status;
            self.next_status += 1;
            if self.chance(self.plan.statuses_lost) {
                continue;
            }
            let late = self.random() % (self.plan.late.as_micros() as u64 + 1);
            self.posted += 1;
            let at = Timestamp(self.now.after(self.plan.delay).0 + late);
            self.path.insert((at, self.posted), Travelling::Status { number, plain });
        }
    }

    /// To the next moment at which something happens.
    fn travel(&mut self) -> Result<(), String> {
        let next = self.path.first_key_value().map(|((at, _), _)| *at);
        let sender = self.sending.timeout().map(|at| at.max(self.turn));
        let more = self.sending.next(self.now, MessageRoom { bytes: 20_000, datagrams: 12 }).map(|_| self.turn);
        let receiver =
            (!self.receiving.is_over() || next.is_some() || sender.is_some()).then(|| self.receiving.timeout());
        let soonest = [next, sender, more, receiver].into_iter().flatten().min().ok_or("nothing happens")?;
        self.now = soonest.max(Timestamp(self.now.0 + 1));
        while let Some(first) = self.path.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            match first.remove() {
                Travelling::Status { number, plain } => self.hear(number, &plain)?,
                Travelling::Datagram { bytes, payload, opens } => {
                    self.arrive(&bytes, &payload, opens).map_err(|breach| breach.to_string())?;
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, number: u64, plain: &[u8]) -> Result<(), String> {
        let status = Status::decode(plain).expect("a status");
        let number = PacketNumber::new(number).expect("few statuses");
        let heard = self.sending.status(self.now, number, &status).map_err(|breach| breach.to_string())?;
        for serial in heard.whole {
            if self.held.remove(&serial.0).is_none() {
                return Err(format!("{serial:?} is whole twice"));
            }
        }
        self.cuts += u64::from(heard.cut_anew.is_some());
        Ok(())
    }

    fn arrive(&mut self, datagram: &[u8], plain: &[u8], opens: bool) -> Result<(), UdpBreach> {
        let outer = Outer::parse(datagram).expect("a packet");
        let arrived = Arrived { number: outer.number, sent: outer.sent, at: self.now };
        match outer.body {
            OuterBody::Data(place) => self.piece(arrived, place, plain, opens),
            _ if !opens => self.receiving.refused(),
            OuterBody::Unit(cut) => {
                let described =
                    self.receiving.unit(arrived, self.cut(cut), &UnitBody::decode(plain).expect("a unit"))?;
                described.whole.iter().for_each(|body| self.hand_on(body));
            }
            OuterBody::Probe(search) => self.receiving.probe(arrived, search, datagram.len() as u16),
            OuterBody::End => {
                self.receiving.end(arrived, longhaul_proto::udp::packet::decode_end(plain).expect("an end"))?
            }
            OuterBody::Status | OuterBody::Close => unreachable!("nobody sends these here"),
        }
        Ok(())
    }

    fn cut(&self, cut: UnitCut) -> UnitCut {
        if self.mutant == Some(Mutant::IgnoresCut) { UnitCut(0) } else { cut }
    }

    fn piece(&mut self, arrived: Arrived, place: DataPlace, plain: &[u8], opens: bool) {
        let place = DataPlace { cut: self.cut(place.cut), ..place };
        let slot = self.slots.entry(place.serial.0).or_insert_with(|| vec![0; SLOT_BYTES as usize]);
        let look = self.receiving.look(&place, plain.len());
        if let (Look::Seen, Some(Mutant::CountsCopy)) = (&look, self.mutant) {
            // It counts for the piece behind it.
            self.receiving.landed(arrived, &DataPlace { piece: place.piece + 1, ..place }, plain.len());
        }
        if look == Look::Seen && opens && self.receiving.is_newer(arrived.number) {
            self.receiving.again(arrived);
        }
        if let Look::Land(at) = &look {
            // What did not open has soiled its place.
            let bytes = &mut slot[at.start as usize..at.end as usize];
            if opens { bytes.copy_from_slice(plain) } else { bytes.fill(0) }
        }
        if !matches!(look, Look::Land(_) | Look::First) {
            return;
        }
        if !opens && self.mutant != Some(Mutant::AcksUnopened) {
            return self.receiving.refused();
        }
        let landed = self.receiving.landed(arrived, &place, plain.len()).expect("it was looked at");
        if opens {
            slot[landed.at.start as usize..landed.at.end as usize].copy_from_slice(plain);
        }
        if let Some(body) = landed.whole {
            self.hand_on(&body);
        }
    }

    fn hand_on(&mut self, body: &UnitBody) {
        let (serial, bytes) = (body.serial.0, self.plan.units[body.serial.0 as usize]);
        assert_eq!((body.payload(), body.digest), (bytes, Some([serial as u8; 32])));
        let slot = self.slots.remove(&serial).unwrap_or_default();
        let (slot, want) = (&slot[..bytes as usize], content(serial, bytes));
        assert!(slot == want, "unit {serial} is not what was sent");
        self.handed_on.push(body.serial);
        if self.handed_on.len() == self.plan.units.len() {
            self.all_there = Some(self.now);
        }
        let room = self.plan.units.len() as u32;
        if self.handed_on.len() as u32 + self.plan.slots <= room {
            assert_eq!(self.receiving.admit(self.now, 1), 1);
        }
    }
}

/// The first gap of a status is not in it.
fn forget_gap(status: &mut Status) {
    if status.standing.gaps.is_empty() {
        return;
    }
    status.standing.gaps.remove(0);
    let parts = status.standing.units.iter_mut().filter_map(|unit| match unit {
        UnitStanding::Part(part) if part.gaps > 0 => Some(part),
        _ => None,
    });
    parts.take(1).for_each(|part| part.gaps -= 1);
}
