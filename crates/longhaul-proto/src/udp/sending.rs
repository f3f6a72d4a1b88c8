//! The sender's end of a UDP lane: which pieces go next, and which went and did not come.
//!
//! In: units as they are begun, messages as they went, statuses of the receiver, time. Out: plans
//! of messages ([`UdpPlan`]), units that are whole at the receiver, and what a rate control wants
//! to know ([`UdpSample`]). Knows no payload, no key and no rate: when a message may go is its
//! caller's to say.
//!
//! The receiver reports how things stand and asks for nothing. A piece that is not there is sent
//! again when its number was overtaken: a later packet came, and either that one was sent or has
//! waited at the receiver for an eighth of a round trip longer (2 ms at least). So packets that
//! change places on the way are not taken for lost. If pieces come twice although it waited so
//! long, it waits twice as long, up to half a round trip, and goes back after 16 of them.
//!
//! In the tail, when all was sent once and no more is to come, a repair is sent three times, 5 ms
//! apart: otherwise the last packet that is lost twice costs the session a round trip.

mod flight;
mod planning;
mod standing;
mod times;
mod unit;

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::limits::{CHUNK_BYTES_USER_MAX, UDP_UNITS_OPEN_MAX};

use self::flight::Flight;
use self::planning::{Copies, copy_of, news_of, question_of, repair_of};
use self::times::PathTimes;
use self::unit::OpenUnit;
use super::UdpBreach;
use super::mtu::Mtu;
use super::packet::{OuterBody, PROBE_DATAGRAM_BYTES_MIN, PacketNumber, PieceBytes, Serial};
use super::plan::{MessageRoom, Purpose, UdpPlan, UnitPlan};
use super::status::{Counts, Status};
use crate::time::Timestamp;

/// Time between two ENDs at least, beside the round trip.
const END_EACH: Duration = Duration::from_millis(50);
/// Time without a packet after which one is sent as a sign of life.
const SIGN_AFTER: Duration = Duration::from_secs(5);
/// Most doublings of the time after which a silent receiver is asked again.
const ASKS_DOUBLED: u32 = 6;

/// The facts with which a sender's end begins.
#[derive(Clone, Copy, Debug)]
pub struct UdpSendingConfig {
    /// Most payload bytes of a datagram on the routes of both ends, as JOIN and JOINED say.
    pub routes: [u16; 2],
    /// The first credit, as JOIN or JOINED says.
    pub admit: Serial,
    /// The round trip of the join.
    pub round_trip: Duration,
}

/// The sender's end of a lane.
#[derive(Debug)]
pub struct UdpSending {
    /// Units from `first` on; `None` for one that is whole.
    units: VecDeque<Option<Box<OpenUnit>>>,
    first: u32,
    admit: u32,
    stage: SendingStage,
    /// No unit before these has anything unsent, or missing.
    news_from: u32,
    gaps_from: u32,
    flight: Flight,
    /// The last status, and the largest number that came.
    heard: Option<LastStatus>,
    times: PathTimes,
    timers: Timers,
    copies: Copies,
    sizes: Sizes,
}

/// How far a sender's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendingStage {
    /// Units may be begun.
    Open,
    /// None will be begun.
    Finished,
    /// The receiver has all.
    Ended,
}

/// The last status that was heard.
#[derive(Clone, Copy, Debug)]
struct LastStatus {
    number: PacketNumber,
    at: Timestamp,
    largest: Option<u64>,
    below: u32,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Timers {
    /// When something was sent or landed last.
    moved: Timestamp,
    /// How often the receiver was asked since something landed.
    asks: u32,
    /// When the next END is due, and the next sign of life.
    end: Timestamp,
    sign: Timestamp,
}

/// The size of datagrams, and counts.
#[derive(Debug)]
struct Sizes {
    mtu: Mtu,
    counts: SendCounts,
    flying_bytes: u64,
}

/// Counts of a sender's end since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Datagrams with a piece.
    pub sent: u64,
    /// Datagrams among these whose piece had been sent before, copies included.
    pub resent: u64,
    /// Datagrams among these that were sent again before anything could be known of the first
    /// repair.
    pub copies: u64,
    /// Packets that did not come, as far as is known. One that only came late is among them.
    pub lost: u64,
    /// Pieces that landed.
    pub landed: u64,
    /// Times that all units were cut anew.
    pub cuts: u64,
}

/// A unit that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitBegun {
    /// Its number.
    pub serial: Serial,
    /// Payload bytes of its pieces in its first cut.
    pub piece_bytes: PieceBytes,
}

/// The news of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdpHeard {
    /// Units that are whole now: their slots are free.
    pub whole: Vec<Serial>,
    /// The observation of the path. `None` if the status is not newer than one that was heard.
    pub sample: Option<UdpSample>,
    /// All units that are not whole were cut into pieces of this size, as the path swallows larger
    /// ones.
    pub cut_anew: Option<PieceBytes>,
    /// The disk keeps the receiver from admitting more.
    pub held: bool,
    /// The receiver has all units, and there will be no more: the lane is over.
    pub ended: bool,
}

/// An observation of the path, from one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpSample {
    /// The round trip of the largest packet that came, without the time that it waited. `None` if
    /// no larger one came since the last status.
    pub round_trip: Option<Duration>,
    /// The arrival of the largest packet by the receiver's clock: microseconds modulo 2^32.
    pub arrived_us: Option<u32>,
    /// The smallest difference of arrival and send time since the last status: units of 100 us,
    /// modulo 2^16. Its growth is the growth of the queue.
    pub delay: Option<u16>,
    /// The receiver's totals.
    pub counts: Counts,
    /// Packets that this status has shown to be lost.
    pub lost: u32,
    /// Datagrams with a piece that were sent since the lane's start.
    pub sent: u64,
    /// Bytes of the largest datagrams that are sent now.
    pub datagram_bytes: u16,
    /// Bytes of pieces that are on their way now; each counts as one of full size.
    pub flying_bytes: u64,
}

impl UdpSending {
    /// A sender's end whose lane has just joined.
    pub fn new(now: Timestamp, config: UdpSendingConfig) -> UdpSending {
        UdpSending {
            units: VecDeque::new(),
            first: 0,
            admit: config.admit.0.min(UDP_UNITS_OPEN_MAX),
            stage: SendingStage::Open,
            news_from: 0,
            gaps_from: 0,
            flight: Flight::default(),
            heard: None,
            times: PathTimes::new(config.round_trip),
            timers: Timers { moved: now, asks: 0, end: now, sign: now.after(SIGN_AFTER) },
            copies: Copies::default(),
            sizes: Sizes { mtu: Mtu::new(now, config.routes), counts: SendCounts::default(), flying_bytes: 0 },
        }
    }

    /// Begins a unit with so many bytes of payload (0 for a hole, or one that the receiver has).
    /// `None` if the receiver admits no further one. Its slot is not free before the unit is whole.
    ///
    /// # Panics
    /// If it has more bytes than the largest unit.
    pub fn begin(&mut self, payload: u64) -> Option<UnitBegun> {
        assert!(payload <= CHUNK_BYTES_USER_MAX, "a unit of {payload} bytes");
        let serial = self.end();
        if serial >= self.admit || self.stage != SendingStage::Open {
            return None;
        }
        let piece_bytes = PieceBytes::filling(self.sizes.mtu.size()).unwrap_or(PieceBytes::SAFE);
        self.units.push_back(Some(Box::new(OpenUnit::new(payload, piece_bytes))));
        Some(UnitBegun { serial: Serial(serial), piece_bytes })
    }

    /// The digest of a unit is known: it goes with the description from now on, behind the last
    /// piece at the latest. No unit is whole before that.
    pub fn digest_known(&mut self, serial: Serial) {
        if let Some(unit) = self.unit(serial.0) {
            unit.has_digest = true;
            self.news_from = self.news_from.min(serial.0);
        }
    }

    /// No further unit will be begun.
    pub fn finish(&mut self) {
        if self.stage == SendingStage::Open {
            self.stage = SendingStage::Finished;
        }
    }

    /// The message to send now: sizes to probe, what is missing of the oldest unit, what is new,
    /// and then what keeps the lane going. The same again until [`UdpSending::sent`]. `None` until
    /// [`UdpSending::timeout`], or until something else happens.
    pub fn next(&mut self, now: Timestamp, room: MessageRoom) -> Option<UdpPlan> {
        if self.stage == SendingStage::Ended {
            return None;
        }
        if let Some(bytes) = self.sizes.mtu.probe(now) {
            return Some(UdpPlan::Probe(self.sizes.mtu.search(), bytes));
        }
        let plan = self.repair(room).or_else(|| self.copy(now, room)).or_else(|| self.news(room));
        if let Some(plan) = plan.or_else(|| self.question(now)) {
            return Some(UdpPlan::Unit(plan));
        }
        if self.stage == SendingStage::Finished && now >= self.timers.end {
            return Some(UdpPlan::End(self.end()));
        }
        (now >= self.timers.sign).then(|| self.sign())
    }

    /// A sign of life, which the receiver answers at once. It may be sent at any time.
    pub fn sign(&self) -> UdpPlan {
        UdpPlan::Probe(self.sizes.mtu.search(), PROBE_DATAGRAM_BYTES_MIN)
    }

    /// Whether a status with this number would be news: it is above that of all that were heard.
    pub fn is_news(&self, number: PacketNumber) -> bool {
        self.heard.is_none_or(|heard| number > heard.number)
    }

    /// A message that [`UdpSending::next`] planned was sent, or was given to the system and may be
    /// lost: its datagrams have the numbers from `first` on, in their order.
    ///
    /// # Panics
    /// If a number is not above all before.
    pub fn sent(&mut self, now: Timestamp, plan: &UdpPlan, first: PacketNumber) {
        let in_tail = self.is_in_tail();
        self.flight.sent(now, first.get(), plan.count() as u64);
        self.timers.sign = now.after(SIGN_AFTER);
        match plan {
            UdpPlan::Probe(_, bytes) if *bytes > PROBE_DATAGRAM_BYTES_MIN => {
                self.sizes.mtu.probed(now, *bytes, self.times.answer());
            }
            UdpPlan::Probe(..) => {}
            UdpPlan::End(_) => self.timers.end = now.after(END_EACH.max(self.times.round_trip())),
            UdpPlan::Unit(unit) => {
                self.sent_unit(now, unit, first.get());
                match unit.purpose {
                    Purpose::Repair if in_tail => self.copies.repaired(now, unit),
                    Purpose::Copy => self.copies.copied(now),
                    _ => {}
                }
            }
        }
    }

    /// The system refuses to send a datagram as large as this (EMSGSIZE). Units that were begun
    /// with larger pieces are cut anew.
    pub fn refused(&mut self, bytes: u16) {
        self.sizes.mtu.refused(bytes);
        self.cut_anew();
    }

    /// A status came at `now` and opened, under this number. Messages may have been sent since.
    ///
    /// # Errors
    /// [`UdpBreach`] if it cannot be: the lane ends.
    pub fn status(&mut self, now: Timestamp, number: PacketNumber, status: &Status) -> Result<UdpHeard, UdpBreach> {
        if !self.is_news(number) {
            return Ok(UdpHeard::default());
        }
        self.check(status)?;
        let round_trip = self.time_round_trip(now, status);
        let overtaken = self.overtaken(now, status);
        let mut heard = UdpHeard { held: status.held, ended: status.ended, ..UdpHeard::default() };
        let moved = self.absorb(status, overtaken, &mut heard.whole)?;
        self.admit = status.admit.0;
        self.heard = Some(LastStatus {
            number,
            at: now,
            largest: status.largest.map(|largest| largest.number.get()),
            below: status.below.0,
            counts: status.counts,
        });
        if moved.landed > 0 || !heard.whole.is_empty() {
            self.timers.asks = 0;
        }
        if moved.landed > 0 || moved.lost > 0 || !heard.whole.is_empty() {
            self.timers.moved = self.timers.moved.max(now);
        }
        self.times.came_twice(now, status.counts.twice, &self.sizes.counts);
        heard.cut_anew = self.find_size(now, status);
        if status.ended {
            self.stage = SendingStage::Ended;
        }
        heard.sample = Some(UdpSample {
            round_trip,
            arrived_us: status.largest.map(|largest| largest.at_us),
            delay: status.delay,
            counts: status.counts,
            lost: moved.lost,
            sent: self.sizes.counts.sent,
            datagram_bytes: self.sizes.mtu.size(),
            flying_bytes: self.sizes.flying_bytes,
        });
        Ok(heard)
    }

    /// When [`UdpSending::next`] has something even if nothing happens. `None` once the lane is
    /// over.
    pub fn timeout(&self) -> Option<Timestamp> {
        if self.stage == SendingStage::Ended {
            return None;
        }
        let asks = self.oldest().map(|_| self.question_due());
        let ends = (self.stage == SendingStage::Finished).then_some(self.timers.end);
        let all = [self.sizes.mtu.timeout(), self.copies.due(), asks, ends, Some(self.timers.sign)];
        all.into_iter().flatten().min()
    }

    /// Units that were begun and are not whole.
    pub fn open_units(&self) -> usize {
        self.units.iter().flatten().count()
    }

    /// Units that may be begun now.
    pub fn credit(&self) -> u32 {
        self.admit.saturating_sub(self.end())
    }

    /// When a status was heard last.
    pub fn last_heard(&self) -> Option<Timestamp> {
        self.heard.map(|heard| heard.at)
    }

    /// The round trip, smoothed.
    pub fn round_trip(&self) -> Duration {
        self.times.round_trip()
    }

    /// Bytes of the largest datagrams that are sent.
    pub fn datagram_bytes(&self) -> u16 {
        self.sizes.mtu.size()
    }

    /// Counts since the start.
    pub fn counts(&self) -> SendCounts {
        self.sizes.counts
    }

    /// The serial behind the last unit that was begun.
    fn end(&self) -> u32 {
        self.first + self.units.len() as u32
    }

    fn unit(&mut self, serial: u32) -> Option<&mut OpenUnit> {
        let at = serial.checked_sub(self.first)?;
        self.units.get_mut(at as usize)?.as_deref_mut()
    }

    /// Units from this serial on that are not whole.
    fn from(&self, serial: u32) -> impl Iterator<Item = (u32, &OpenUnit)> {
        let skipped = serial.saturating_sub(self.first) as usize;
        let units = self.units.iter().enumerate().skip(skipped);
        units.filter_map(|(at, unit)| Some((self.first + at as u32, unit.as_deref()?)))
    }

    fn oldest(&self) -> Option<(u32, &OpenUnit)> {
        self.from(self.first).next()
    }

    /// Whether all was sent once, and the receiver would take more if there were any.
    fn is_in_tail(&self) -> bool {
        let more = self.stage == SendingStage::Open && self.end() >= self.admit;
        !more && !self.from(self.news_from).any(|(_, unit)| unit.has_news())
    }

    fn repair(&mut self, room: MessageRoom) -> Option<UnitPlan> {
        let found = self.from(self.gaps_from).find(|(_, unit)| unit.has_gaps());
        let plan = found.map(|(serial, unit)| repair_of(Serial(serial), unit, room));
        self.gaps_from = plan.as_ref().map_or(self.end(), |plan| plan.serial.0);
        plan
    }

    fn news(&mut self, room: MessageRoom) -> Option<UnitPlan> {
        let found = self.from(self.news_from).find(|(_, unit)| unit.has_news());
        let plan = found.map(|(serial, unit)| news_of(Serial(serial), unit, room));
        self.news_from = plan.as_ref().map_or(self.end(), |plan| plan.serial.0);
        plan
    }

    /// A repair that is due once more. None is if there is anything new.
    fn copy(&mut self, now: Timestamp, room: MessageRoom) -> Option<UnitPlan> {
        if !self.is_in_tail() {
            self.copies.clear();
        }
        while let Some(repair) = self.copies.front(now).cloned() {
            let plan = self.unit(repair.serial.0).and_then(|unit| copy_of(&repair, unit, room));
            if plan.is_some() {
                return plan;
            }
            self.copies.drop_front();
        }
        None
    }

    /// The description of the oldest unit, if nothing was heard for long.
    fn question(&self, now: Timestamp) -> Option<UnitPlan> {
        let (serial, unit) = self.oldest()?;
        (now >= self.question_due()).then(|| question_of(Serial(serial), unit))
    }

    fn question_due(&self) -> Timestamp {
        self.timers.moved.after(self.times.answer() * (1 << self.timers.asks.min(ASKS_DOUBLED)))
    }

    fn sent_unit(&mut self, now: Timestamp, plan: &UnitPlan, first: u64) {
        self.timers.moved = now;
        if plan.purpose == Purpose::Ask {
            self.timers.asks += 1;
        }
        let sizes = &mut self.sizes;
        let at = plan.serial.0.checked_sub(self.first).map(|at| at as usize);
        let unit = at.and_then(|at| self.units.get_mut(at)).and_then(Option::as_deref_mut);
        let Some(unit) = unit.filter(|unit| unit.cut == plan.cut) else { return };
        for (number, datagram) in (first..).zip(plan.datagrams()) {
            sizes.mtu.sent(now, number, datagram.bytes);
            let OuterBody::Data(place) = datagram.body else {
                unit.said(number);
                continue;
            };
            sizes.counts.sent += 1;
            sizes.counts.resent += u64::from(plan.purpose != Purpose::New || unit.cut.0 > 0);
            sizes.counts.copies += u64::from(plan.purpose == Purpose::Copy);
            if unit.sent(place.piece, number) {
                sizes.flying_bytes += u64::from(unit.piece_bytes.get());
            }
        }
        unit.was_sent |= !unit.has_news() && unit.has_digest;
    }
}
