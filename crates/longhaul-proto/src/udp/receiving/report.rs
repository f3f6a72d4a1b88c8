//! Statuses: when one is due, and what it says.
//!
//! In: the units of a receiver's end, arrivals, time. Out: statuses, each of which fits a datagram.
//! Knows no payload.
//!
//! One is due 2 ms after the last packet, and while packets come each quarter of a round trip (2 to
//! 25 ms); after that each half of a round trip while something of what was begun lacks; at once
//! for a PROBE or an END, or for credit that the sender waits for, and for that again after half a
//! round trip and then each time after twice as long; and each 5 s as a sign of life.

use std::time::Duration;

use super::{UdpReceiving, UnitIn, UnitParts};
use crate::time::Timestamp;
use crate::udp::packet::{SendTime, Serial, SizeSearch};
use crate::udp::status::{
    GAP_BYTES, GAPS_MOST, Gap, LargestArrived, PART_BYTES, PartUnit, RUN_BYTES, RUN_MOST, STATUS_BYTES_MIN, Standing,
    Status, UnitStanding,
};

/// Shortest and longest time between two statuses while packets come.
const EACH_SHORTEST: Duration = Duration::from_millis(2);
const EACH_LONGEST: Duration = Duration::from_millis(25);
/// Time without a status after which one is sent as a sign of life.
const SIGN_AFTER: Duration = Duration::from_secs(5);
/// Most doublings of the time after which credit is said again: 5 s are reached before, unless the
/// round trip is very short.
const REPEATS_DOUBLED: u32 = 12;
/// Most packets of one report: with 1,100 bytes each they hold some 8,000 gaps, which is a tenth of
/// what 10 Gbit/s have on the way at 100 ms. More gaps are reported when the first are closed.
const PACKETS_EACH: usize = 32;

/// The time between two statuses while packets come, on a path of this round trip.
pub(in crate::udp) fn report_interval(round_trip: Duration) -> Duration {
    (round_trip / 4).clamp(EACH_SHORTEST, EACH_LONGEST)
}

/// When statuses are due, and what came since the last one.
#[derive(Debug)]
pub(super) struct Reports {
    round_trip: Duration,
    last: Timestamp,
    /// When the last packet came, if one did since the last status.
    packet: Option<Timestamp>,
    /// When a status is due whatever comes.
    due: Timestamp,
    delay: Option<u16>,
    /// The largest probe of the latest search.
    probe: (SizeSearch, u16),
    /// How often credit was said again since anything came or it grew.
    repeats: u32,
    /// Whether the disk keeps this end from admitting more.
    pub(super) held: bool,
}

/// The news that a sender may wait for without a packet of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owes {
    /// Something that it began lacks.
    Gaps,
    /// It has used up all credit of which it is known to have heard.
    Credit,
    Nothing,
}

impl Reports {
    /// None is due but the sign of life.
    pub(super) fn new(now: Timestamp, round_trip: Duration) -> Reports {
        Reports {
            round_trip,
            last: now,
            packet: None,
            due: now.after(SIGN_AFTER),
            delay: None,
            probe: (SizeSearch(0), 0),
            repeats: 0,
            held: false,
        }
    }

    /// A packet brought something.
    pub(super) fn came(&mut self, now: Timestamp) {
        (self.packet, self.repeats) = (Some(now), 0);
    }

    /// A packet opened that did not come before.
    pub(super) fn arrived(&mut self, now: Timestamp, sent: SendTime) {
        let delay = ((now.0 / 100) as u16).wrapping_sub(sent.0);
        // The two clocks have nothing to do with each other, so only a difference of delays counts.
        let is_smaller = self.delay.is_none_or(|smallest| (delay.wrapping_sub(smallest) as i16) < 0);
        if is_smaller {
            self.delay = Some(delay);
        }
        self.came(now);
    }

    /// A probe came.
    pub(super) fn probe(&mut self, search: SizeSearch, datagram: u16) {
        self.probe = self.probe.max((search, datagram));
    }

    /// A status is due at once.
    pub(super) fn at_once(&mut self, now: Timestamp) {
        self.due = self.due.min(now);
    }

    /// There is more credit, and the sender can go on without it for some time.
    pub(super) fn credit(&mut self, now: Timestamp) {
        self.repeats = 0;
        self.due = self.due.min(now.after(report_interval(self.round_trip)));
    }

    /// There is more credit, for which the sender may be waiting.
    pub(super) fn urgent_credit(&mut self, now: Timestamp) {
        self.repeats = 0;
        self.due = self.due.min(self.last.after(EACH_SHORTEST).max(now));
    }

    /// The time until the next status, if nothing comes until then.
    fn quiet_wait(&mut self, owes: Owes) -> Duration {
        let half = EACH_SHORTEST.max(self.round_trip / 2);
        match owes {
            Owes::Gaps => half,
            Owes::Credit => {
                let wait = half.saturating_mul(1 << self.repeats.min(REPEATS_DOUBLED));
                self.repeats += 1;
                wait.min(SIGN_AFTER)
            }
            Owes::Nothing => SIGN_AFTER,
        }
    }

    fn timeout(&self) -> Timestamp {
        let Some(packet) = self.packet else { return self.due };
        let soon = self.last.after(report_interval(self.round_trip)).min(packet.after(EACH_SHORTEST));
        self.due.min(soon.max(self.last.after(EACH_SHORTEST)))
    }
}

impl UdpReceiving {
    /// The round trip is this, as far as is known. It only says how often statuses are sent.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.reports.round_trip = round_trip;
    }

    /// The disk keeps this end from admitting more: statuses say so, until [`Self::set_free`].
    pub fn set_held(&mut self) {
        self.reports.held = true;
    }

    /// The disk keeps this end from nothing.
    pub fn set_free(&mut self) {
        self.reports.held = false;
    }

    /// When a status is due.
    pub fn timeout(&self) -> Timestamp {
        self.reports.timeout()
    }

    /// The statuses that are due, each with a plain text of at most so many bytes: none, one, or up
    /// to eight if there are more gaps than fit one. They are to be sent in this order.
    pub fn report(&mut self, now: Timestamp, plain_bytes: usize) -> Vec<Status> {
        if now < self.reports.timeout() {
            return Vec::new();
        }
        let standings = Stretches::of(self, plain_bytes.saturating_sub(STATUS_BYTES_MIN));
        let largest = self.largest.map(|(number, at)| LargestArrived {
            number,
            waited_us: u32::try_from(now.since(at).as_micros()).unwrap_or(u32::MAX),
            at_us: at.0 as u32,
        });
        let reports = &mut self.reports;
        let status = Status {
            largest,
            delay: reports.delay.take(),
            search: reports.probe.0,
            probe: reports.probe.1,
            counts: self.counts,
            below: Serial(self.below),
            admit: Serial(self.admit),
            ended: self.end == Some(self.below),
            held: reports.held,
            standing: Standing::default(),
        };
        (reports.last, reports.packet) = (now, None);
        let owes = self.owes();
        self.reports.due = now.after(self.reports.quiet_wait(owes));
        standings.into_iter().map(|standing| Status { standing, ..status.clone() }).collect()
    }

    fn owes(&self) -> Owes {
        if !self.units.is_empty() || self.end.is_some_and(|end| end > self.below) {
            Owes::Gaps
        } else if self.end.is_none() && self.begun() >= self.first_admit && self.begun() < self.admit {
            Owes::Credit
        } else {
            Owes::Nothing
        }
    }
}

/// The units of a receiver's end, in stretches that fit a datagram each.
struct Stretches {
    done: Vec<Standing>,
    open: Standing,
    /// Bytes that the open stretch has left.
    room: usize,
    most: usize,
}

impl Stretches {
    fn of(receiving: &UdpReceiving, most: usize) -> Vec<Standing> {
        let most = most.max(PART_BYTES + GAP_BYTES);
        let open = Standing { from: Serial(receiving.below), ..Standing::default() };
        let mut stretches = Stretches { done: Vec::new(), open, room: most, most };
        for (serial, unit) in (receiving.below..).zip(&receiving.units) {
            let is_told = match unit {
                UnitIn::Absent => stretches.run(serial, UnitStanding::Absent(1)),
                UnitIn::Whole => stretches.run(serial, UnitStanding::Whole(1)),
                UnitIn::Part(parts) => stretches.part(serial, parts),
            };
            if is_told.is_none() {
                return stretches.done;
            }
        }
        stretches.open.complete = true;
        stretches.done.push(stretches.open);
        stretches.done
    }

    /// One unit more that is as those before it, or not. `None` if no packet has room for it.
    fn run(&mut self, serial: u32, unit: UnitStanding) -> Option<()> {
        match (self.open.units.last_mut(), unit) {
            (Some(UnitStanding::Absent(count)), UnitStanding::Absent(_))
            | (Some(UnitStanding::Whole(count)), UnitStanding::Whole(_))
                if *count < RUN_MOST =>
            {
                *count += 1;
            }
            _ => {
                if self.room < RUN_BYTES {
                    self.next(serial)?;
                }
                self.room -= RUN_BYTES;
                self.open.units.push(unit);
            }
        }
        Some(())
    }

    /// A unit of which a part came: in several packets, if its gaps do not fit one.
    fn part(&mut self, serial: u32, parts: &UnitParts) -> Option<()> {
        if self.room < PART_BYTES + GAP_BYTES {
            self.next(serial)?;
        }
        let start = PartUnit {
            cut: parts.cut,
            first: 0,
            reach: parts.reach,
            goes_on: false,
            lacks_unit: parts.lacks_unit(),
            gaps: 0,
        };
        let mut part = start;
        self.room -= PART_BYTES;
        for gap in parts.landed.gaps_in(0..parts.reach) {
            if self.room < GAP_BYTES || part.gaps == GAPS_MOST {
                self.open.units.push(UnitStanding::Part(PartUnit { reach: gap.start, goes_on: true, ..part }));
                self.next(serial)?;
                part = PartUnit { first: gap.start, ..start };
                self.room -= PART_BYTES;
            }
            self.open.gaps.push(Gap { first: gap.start, pieces: gap.end - gap.start });
            part.gaps += 1;
            self.room -= GAP_BYTES;
        }
        self.open.units.push(UnitStanding::Part(part));
        Some(())
    }

    /// Begins the next packet, with this unit. `None` if there are enough.
    fn next(&mut self, serial: u32) -> Option<()> {
        let next = Standing { from: Serial(serial), ..Standing::default() };
        self.done.push(std::mem::replace(&mut self.open, next));
        self.room = self.most;
        (self.done.len() < PACKETS_EACH).then_some(())
    }
}
