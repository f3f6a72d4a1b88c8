//! The receiver's end of a UDP lane: where each piece goes, which units are whole, and what is
//! reported.
//!
//! In: headers of datagrams before they are opened, and what was opened; slots as they are claimed;
//! time. Out: the place of each piece in its slot, units that are whole, statuses. Knows no
//! payload, no key and no digest: whether a whole unit is right is judged elsewhere.
//!
//! A piece is opened straight into its slot, before anybody knows that it is genuine. So
//! [`UdpReceiving::look`] lets that happen only where nothing has landed yet: a forged packet may
//! soil a place that lacks, which the true piece overwrites, and never one that landed. What a
//! header claims about a unit (its cut, the size of its pieces) counts only once a packet with it
//! was opened, which is why the first one is opened elsewhere ([`Look::First`]).
//!
//! Nothing here decides what is sent again. It reports how things stand
//! ([`status`](super::status)): while packets come, soon after the last one, and now and then until
//! all is whole.

mod report;
mod unit;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use longhaul_core::limits::UDP_UNITS_OPEN_MAX;

use self::report::Reports;
pub(super) use self::report::report_interval;
use self::unit::{UnitIn, UnitParts};
use super::UdpBreach;
use super::packet::{DataPlace, PacketNumber, SendTime, Serial, SizeSearch, UnitBody, UnitCut};
use super::status::Counts;
use crate::time::Timestamp;

/// The facts with which a receiver's end begins.
#[derive(Clone, Copy, Debug)]
pub struct UdpReceivingConfig {
    /// Bytes of each slot: no unit is longer.
    pub slot_bytes: u64,
    /// Slots that were claimed, as JOIN or JOINED says: so many units may come.
    pub admit: Serial,
    /// The round trip of the join.
    pub round_trip: Duration,
}

/// The receiver's end of a lane.
#[derive(Debug)]
pub struct UdpReceiving {
    /// Units from `below` on, up to the last of which something came.
    units: VecDeque<UnitIn>,
    below: u32,
    admit: u32,
    /// The credit that the join said. Of more the sender is only known to have heard when it begins
    /// a unit for it.
    first_admit: u32,
    /// The units in all, once END has come.
    end: Option<u32>,
    slot_bytes: u64,
    counts: Counts,
    /// Pieces whose place had landed, with numbers below that of another packet.
    old_seen: u32,
    largest: Option<(PacketNumber, Timestamp)>,
    reports: Reports,
}

/// The way to go with a datagram of DATA that is not opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// It may be opened straight into the slot of its unit, into these bytes, which lack. Then
    /// [`UdpReceiving::landed`].
    Land(Range<u64>),
    /// It is the first of its unit or of another cut of it: it is opened elsewhere, and goes into
    /// the slot, at the place that [`UdpReceiving::landed`] names, only then.
    First,
    /// It has landed, or its unit is whole. If its number is above all that came
    /// ([`UdpReceiving::is_newer`]) the sender has sent it again: it is opened elsewhere, and then
    /// [`UdpReceiving::again`]. Otherwise it is dropped, as anybody may have recorded it; before
    /// that a part of them is opened elsewhere ([`UdpReceiving::samples`]), to count forged ones.
    Seen,
    /// Its unit is not admitted: it is dropped, and counts as wrong.
    Beyond,
    /// Its place contradicts what is known of its unit: it is dropped.
    Wrong,
}

/// A packet that came and opened.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its number.
    pub number: PacketNumber,
    /// Its send time.
    pub sent: SendTime,
    /// When it came.
    pub at: Timestamp,
}

/// A piece that has landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandedPiece {
    /// Its bytes in the slot.
    pub at: Range<u64>,
    /// Its unit, if it is whole now.
    pub whole: Option<UnitBody>,
}

/// The news of a UNIT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The description, if this is the first one of the unit in this cut: its bytes may be hashed
    /// as they land.
    pub first: Option<UnitBody>,
    /// The unit, if it is whole now.
    pub whole: Option<UnitBody>,
}

impl UdpReceiving {
    /// A receiver's end whose lane has just joined.
    pub fn new(now: Timestamp, config: UdpReceivingConfig) -> UdpReceiving {
        let admit = config.admit.0.min(UDP_UNITS_OPEN_MAX);
        UdpReceiving {
            units: VecDeque::new(),
            below: 0,
            admit,
            first_admit: admit,
            end: None,
            slot_bytes: config.slot_bytes,
            counts: Counts::default(),
            old_seen: 0,
            largest: None,
            reports: Reports::new(now, config.round_trip),
        }
    }

    /// More slots were claimed: so many more units may come. Returns how many of them are admitted;
    /// no more than 16,384 units are open.
    pub fn admit(&mut self, now: Timestamp, slots: u32) -> u32 {
        let room = (self.below.saturating_add(UDP_UNITS_OPEN_MAX)).saturating_sub(self.admit);
        let admitted = slots.min(room);
        if admitted > 0 {
            // A sender that has credit for long need not hear at once that it has more.
            let rest = self.admit - self.begun().min(self.admit);
            if rest <= (self.admit - self.below) / 4 {
                self.reports.urgent_credit(now);
            } else {
                self.reports.credit(now);
            }
            self.admit += admitted;
        }
        admitted
    }

    /// Whether a piece of so many bytes may be opened, and into which bytes of the slot. Counts the
    /// datagrams that contradict what is known.
    pub fn look(&mut self, place: &DataPlace, bytes: usize) -> Look {
        let look = self.place_of(place, bytes as u64);
        if matches!(look, Look::Wrong | Look::Beyond) {
            self.refused();
        }
        look
    }

    /// Whether this number is above that of all packets that opened: whoever plays an earlier one
    /// again has none that is.
    pub fn is_newer(&self, number: PacketNumber) -> bool {
        self.largest.is_none_or(|(largest, _)| number > largest)
    }

    /// A piece that had landed was opened once more, under a number above all that came. It counts:
    /// the sender has taken it for lost though it was not.
    pub fn again(&mut self, arrived: Arrived) {
        if self.is_newest(arrived) {
            self.counts.twice = self.counts.twice.wrapping_add(1);
            self.reports.arrived(arrived.at, arrived.sent);
        }
    }

    /// A piece of so many bytes was opened. `None` if it must be dropped all the same, as another
    /// one has landed since.
    pub fn landed(&mut self, arrived: Arrived, place: &DataPlace, bytes: usize) -> Option<LandedPiece> {
        let at = match self.place_of(place, bytes as u64) {
            Look::Land(at) => at,
            Look::First => place.offset()..place.offset() + bytes as u64,
            Look::Seen | Look::Beyond | Look::Wrong => return None,
        };
        self.is_newest(arrived);
        self.reports.arrived(arrived.at, arrived.sent);
        self.counts.packets += 1;
        self.counts.bytes += bytes as u64;
        let unit = self.opened(place.serial.0);
        let parts = unit.parts(place.cut, place.piece_bytes)?;
        parts.land(place.piece, at.clone());
        let whole = parts.whole();
        self.settle(place.serial, whole.as_ref());
        Some(LandedPiece { at, whole })
    }

    /// A UNIT of this cut was opened.
    ///
    /// # Errors
    /// [`UdpBreach`] if it was not admitted, or contradicts what came: the lane ends.
    pub fn unit(&mut self, arrived: Arrived, cut: UnitCut, body: &UnitBody) -> Result<Described, UdpBreach> {
        let serial = body.serial.0;
        if serial >= self.admit || body.payload() > self.slot_bytes || self.end.is_some_and(|end| serial >= end) {
            return Err(UdpBreach::NotAdmitted);
        }
        if self.is_newest(arrived) {
            self.reports.arrived(arrived.at, arrived.sent);
        }
        if serial < self.below {
            return Ok(Described::default());
        }
        let unit = self.opened(serial);
        if unit.contradicts(cut, body.piece_bytes) {
            return Err(UdpBreach::Unit);
        }
        let Some(parts) = unit.parts(cut, body.piece_bytes) else { return Ok(Described::default()) };
        let lacked = parts.lacks_unit();
        let first = parts.describe(body)?.then_some(*body);
        let is_news = first.is_some() || lacked != parts.lacks_unit();
        let whole = parts.whole();
        if is_news {
            self.counts.packets += 1;
            self.reports.came(arrived.at);
        }
        self.settle(body.serial, whole.as_ref());
        Ok(Described { first, whole })
    }

    /// A PROBE of this search was opened, with a datagram of so many bytes.
    pub fn probe(&mut self, arrived: Arrived, search: SizeSearch, datagram: u16) {
        self.reports.probe(search, datagram);
        if self.is_newest(arrived) {
            self.reports.arrived(arrived.at, arrived.sent);
            self.reports.at_once(arrived.at);
        }
    }

    /// An END was opened.
    ///
    /// # Errors
    /// [`UdpBreach::End`] if it contradicts another one, or the units that came or may come.
    pub fn end(&mut self, arrived: Arrived, units: u32) -> Result<(), UdpBreach> {
        if units < self.begun() || units > self.admit || self.end.is_some_and(|end| end != units) {
            return Err(UdpBreach::End);
        }
        let is_newest = self.is_newest(arrived);
        if is_newest {
            self.reports.arrived(arrived.at, arrived.sent);
        }
        if is_newest || self.end.is_none() {
            self.reports.at_once(arrived.at);
        }
        self.end = Some(units);
        Ok(())
    }

    /// A datagram did not open, or is not one of this lane.
    pub fn refused(&mut self) {
        self.counts.wrong = self.counts.wrong.wrapping_add(1);
    }

    /// A piece came whose place has landed, under a number that is not above all that came. Gives
    /// whether this one is to be opened elsewhere: each eighth is, so that a flood of them costs
    /// little. If it does not open it stands for all eight: [`UdpReceiving::refused_sample`].
    pub fn samples(&mut self) -> bool {
        self.old_seen = self.old_seen.wrapping_add(1);
        self.old_seen.is_multiple_of(SAMPLED_OF)
    }

    /// A datagram for which [`UdpReceiving::samples`] asked did not open.
    pub fn refused_sample(&mut self) {
        self.counts.wrong = self.counts.wrong.wrapping_add(SAMPLED_OF);
    }

    /// This many packets more had the mark of congestion (ECN CE).
    pub fn marked(&mut self, packets: u32) {
        self.counts.marked = self.counts.marked.wrapping_add(packets);
    }

    /// The datagrams that the system dropped at this socket, in all (`SO_RXQ_OVFL`).
    pub fn dropped(&mut self, datagrams: u32) {
        self.counts.dropped = datagrams;
    }

    /// Totals since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Units below this are whole: with [`UdpReceiving::whole_beyond`] all that landed, if the lane
    /// is lost.
    pub fn below(&self) -> Serial {
        Serial(self.below)
    }

    /// Units that are whole though one before them is not.
    pub fn whole_beyond(&self) -> impl Iterator<Item = Serial> {
        (self.below..).zip(&self.units).filter(|(_, unit)| unit.is_whole()).map(|(serial, _)| Serial(serial))
    }

    /// Units of which something came and that are not whole.
    pub fn open_units(&self) -> usize {
        self.units.iter().filter(|unit| unit.is_part()).count()
    }

    /// Units of the lane that may come and did not begin.
    pub fn credit(&self) -> u32 {
        self.admit.saturating_sub(self.begun())
    }

    /// Whether all units of the lane are whole, and there will be no more.
    pub fn is_over(&self) -> bool {
        self.end == Some(self.below)
    }

    /// The unit behind the last of which something came.
    fn begun(&self) -> u32 {
        self.below + self.units.len() as u32
    }

    fn place_of(&self, place: &DataPlace, bytes: u64) -> Look {
        let serial = place.serial.0;
        if serial < self.below {
            return Look::Seen;
        }
        if serial >= self.admit || self.end.is_some_and(|end| serial >= end) {
            return Look::Beyond;
        }
        let at = place.offset()..place.offset() + bytes;
        if bytes == 0 || bytes > u64::from(place.piece_bytes.get()) || at.end > self.slot_bytes {
            return Look::Wrong;
        }
        match self.units.get((serial - self.below) as usize) {
            None | Some(UnitIn::Absent) => Look::First,
            Some(UnitIn::Whole) => Look::Seen,
            Some(UnitIn::Part(parts)) => parts.look(place, at),
        }
    }

    /// The unit, which is open: with those before it, if it is the first of them.
    fn opened(&mut self, serial: u32) -> &mut UnitIn {
        let at = (serial - self.below) as usize;
        if at >= self.units.len() {
            self.units.resize_with(at + 1, || UnitIn::Absent);
        }
        &mut self.units[at]
    }

    /// A packet opened: whether its number is the largest. Of one that is not, and that brings no
    /// piece, it is not known whether it came before: so its send time counts for nothing, and
    /// nobody who plays it again is answered.
    fn is_newest(&mut self, arrived: Arrived) -> bool {
        let is_newest = self.is_newer(arrived.number);
        if is_newest {
            self.largest = Some((arrived.number, arrived.at));
        }
        is_newest
    }

    /// Forgets the pieces of a unit that is whole, and units that are whole and the first.
    fn settle(&mut self, serial: Serial, whole: Option<&UnitBody>) {
        if whole.is_some() {
            *self.opened(serial.0) = UnitIn::Whole;
        }
        while self.units.front().is_some_and(UnitIn::is_whole) {
            self.units.pop_front();
            self.below += 1;
        }
    }
}

/// One of so many pieces whose place has landed is opened, to see whether it is forged.
const SAMPLED_OF: u32 = 8;
