//! The sealed part of STATUS: what the receiver of files has, in absolute terms.
//!
//! In: a [`Status`], or plain text that was opened. Out: the other of the two. A status says how
//! things stand and asks for nothing: whichever is lost, the next one says all of it again. Where
//! one packet does not hold the whole standing, several have a stretch of it each. Knows no clock
//! and no lane: whether a status is true is not known here, only that it does not contradict
//! itself.
//!
//! The plain text, little endian:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8, 4, 4 | `largest`: number, microseconds waited, arrival in microseconds; or zeros |
//! | 16 | 2 | `delay`, or zero |
//! | 18 | 2 | `probe` |
//! | 20 | 8, 8, 4, 4, 4, 4 | [`Counts`] in their order |
//! | 52 | 4, 4, 4 | `below`, `admit`, `from` |
//! | 64 | 2 | flags: 1 `largest`, 2 `delay` are there, 4 `ended`, 8 `held`, 16 `complete` |
//! | 66 | 1, 1 | `search`, zero |
//! | 68 | | the standings of the units from `from` on, one after the other |
//!
//! A standing begins with a u16. Its highest two bits are 2 for units that are whole and 1 for
//! units of which nothing came; the rest is how many, 1 at least. They are 0 for one unit of which
//! a part came: the next bit says that its description lacks, the next one [`PartUnit::goes_on`],
//! the rest is the number of its gaps; cut (u8), zero (u8), `first` (u16) and `reach` (u16) follow,
//! and each gap (first piece u16, pieces u16).

use longhaul_core::limits::UDP_UNITS_OPEN_MAX;

use super::packet::{PacketError, PacketNumber, Serial, SizeSearch, UnitCut, u16_at, u32_at, u64_at};

/// Bytes of a plain text without a standing.
pub const STATUS_BYTES_MIN: usize = 68;

const HAS_LARGEST: u16 = 1;
const HAS_DELAY: u16 = 2;
const ENDED: u16 = 4;
const HELD: u16 = 8;
const COMPLETE: u16 = 16;
const WHOLE: u16 = 2 << 14;
const ABSENT: u16 = 1 << 14;
const LACKS_UNIT: u16 = 1 << 13;
const GOES_ON: u16 = 1 << 12;

/// Most units of a run in one packet.
pub(super) const RUN_MOST: u16 = (1 << 14) - 1;
/// Most gaps of a unit in one packet.
pub(super) const GAPS_MOST: u16 = (1 << 12) - 1;
/// Bytes of a run of units.
pub(super) const RUN_BYTES: usize = 2;
/// Bytes of a unit of which a part came, beside its gaps.
pub(super) const PART_BYTES: usize = 8;
/// Bytes of a gap.
pub(super) const GAP_BYTES: usize = 4;

/// How things stand at the receiver of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The largest number of a packet that came and opened. `None` if none has.
    pub largest: Option<LargestArrived>,
    /// The smallest difference of arrival and send time of all packets since the last status: units
    /// of 100 us, modulo 2^16, of two clocks that have nothing to do with each other. `None` if
    /// none came.
    pub delay: Option<u16>,
    /// The latest search of a PROBE that came.
    pub search: SizeSearch,
    /// Bytes of the largest datagram of a PROBE of that search; 0 if none came.
    pub probe: u16,
    /// The packets that came since the lane's start.
    pub counts: Counts,
    /// All units below this are whole.
    pub below: Serial,
    /// Units below this may be begun: each stands for a slot that is claimed. It never sinks.
    pub admit: Serial,
    /// All units of the lane are whole, and there will be no more.
    pub ended: bool,
    /// The disk keeps the receiver from admitting more.
    pub held: bool,
    /// The units from `below` on, or a stretch of them.
    pub standing: Standing,
}

/// The packet with the largest number that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestArrived {
    /// Its number.
    pub number: PacketNumber,
    /// Microseconds from its arrival to this status.
    pub waited_us: u32,
    /// Its arrival by the receiver's clock, in microseconds modulo 2^32.
    pub at_us: u32,
}

/// Totals since the lane's start. They only grow; those of four bytes wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that opened and brought something new.
    pub packets: u64,
    /// Payload bytes of those.
    pub bytes: u64,
    /// Packets with the mark of congestion (ECN CE).
    pub marked: u32,
    /// Datagrams that the receiver's system dropped as its socket was full.
    pub dropped: u32,
    /// Pieces that came although they had landed.
    pub twice: u32,
    /// Packets that did not open, or had a place that is none.
    pub wrong: u32,
}

/// A stretch of units, each of which stands for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The first unit of the stretch.
    pub from: Serial,
    /// Whether nothing came of any unit behind the stretch. Otherwise nothing is said of them here.
    pub complete: bool,
    /// The units from `from` on, one after the other.
    pub units: Vec<UnitStanding>,
    /// The gaps of all units of which a part came, in their order.
    pub gaps: Vec<Gap>,
}

/// How units stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitStanding {
    /// This many units are whole.
    Whole(u16),
    /// Nothing came of this many units.
    Absent(u16),
    /// A part of one unit came.
    Part(PartUnit),
}

/// How a unit stands of which a part came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartUnit {
    /// The cut by which its pieces are numbered.
    pub cut: UnitCut,
    /// The first piece of which something is said here: 0, or where an earlier packet of the same
    /// standing left off.
    pub first: u16,
    /// From `first` up to this piece all are there but those in gaps.
    pub reach: u16,
    /// Whether nothing is said here of the pieces from `reach` on. Otherwise none of them came.
    pub goes_on: bool,
    /// Whether its description with the digest has not come.
    pub lacks_unit: bool,
    /// How many gaps are its own.
    pub gaps: u16,
}

/// Pieces that lack, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub first: u16,
    /// How many they are: 1 at least.
    pub pieces: u16,
}

impl Gap {
    /// The piece behind them.
    pub fn end(self) -> u32 {
        u32::from(self.first) + u32::from(self.pieces)
    }
}

impl UnitStanding {
    /// The units that it is about.
    pub fn count(self) -> u32 {
        match self {
            UnitStanding::Whole(count) | UnitStanding::Absent(count) => u32::from(count),
            UnitStanding::Part(_) => 1,
        }
    }
}

impl Standing {
    /// The unit behind the stretch. Beyond u32::MAX for one that does not parse.
    pub fn end(&self) -> u64 {
        u64::from(self.from.0) + self.units.iter().map(|unit| u64::from(unit.count())).sum::<u64>()
    }
}

impl Status {
    /// The plain text. A stretch of more than fits a datagram is not written: whoever makes a
    /// status has counted.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        let largest = self.largest.map(|largest| (largest.number.get(), largest.waited_us, largest.at_us));
        let (number, waited, at) = largest.unwrap_or_default();
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&waited.to_le_bytes());
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&self.delay.unwrap_or_default().to_le_bytes());
        out.extend_from_slice(&self.probe.to_le_bytes());
        out.extend_from_slice(&self.counts.packets.to_le_bytes());
        out.extend_from_slice(&self.counts.bytes.to_le_bytes());
        for count in [self.counts.marked, self.counts.dropped, self.counts.twice, self.counts.wrong] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        for serial in [self.below, self.admit, self.standing.from] {
            out.extend_from_slice(&serial.0.to_le_bytes());
        }
        let flags = (u16::from(self.largest.is_some()) * HAS_LARGEST)
            | (u16::from(self.delay.is_some()) * HAS_DELAY)
            | (u16::from(self.ended) * ENDED)
            | (u16::from(self.held) * HELD)
            | (u16::from(self.standing.complete) * COMPLETE);
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&[self.search.0, 0]);
        self.standing.encode(&mut out);
        out
    }

    /// Reads a plain text. An accepted one encodes to the same bytes again.
    ///
    /// # Errors
    /// [`PacketError`] for anything that no receiver writes.
    pub fn decode(plain: &[u8]) -> Result<Status, PacketError> {
        let (fixed, rest) = plain.split_at_checked(STATUS_BYTES_MIN).ok_or(PacketError::Length)?;
        let flags = u16_at(fixed, 64);
        let has = |bit| flags & bit != 0;
        if flags >= COMPLETE << 1 || fixed[67] != 0 {
            return Err(PacketError::Unknown);
        }
        let status = Status {
            largest: largest(fixed, flags)?,
            delay: has(HAS_DELAY).then_some(u16_at(fixed, 16)),
            search: SizeSearch(fixed[66]),
            probe: u16_at(fixed, 18),
            counts: counts(fixed),
            below: Serial(u32_at(fixed, 52)),
            admit: Serial(u32_at(fixed, 56)),
            ended: has(ENDED),
            held: has(HELD),
            standing: Standing { from: Serial(u32_at(fixed, 60)), complete: has(COMPLETE), ..Standing::decode(rest)? },
        };
        status.check(u16_at(fixed, 16))?;
        Ok(status)
    }

    /// The numbers of units do not contradict each other, and what is not there is zero.
    fn check(&self, delay: u16) -> Result<(), PacketError> {
        let (below, admit, from) = (self.below.0, self.admit.0, self.standing.from.0);
        let bounded = admit >= below && admit - below <= UDP_UNITS_OPEN_MAX;
        let within = from >= below && self.standing.end() <= u64::from(admit);
        let goes_on = matches!(self.standing.units.last(), Some(UnitStanding::Part(part)) if part.goes_on);
        if !bounded || !within || (goes_on && self.standing.complete) || (self.delay.is_none() && delay != 0) {
            return Err(PacketError::Bounds);
        }
        Ok(())
    }
}

fn largest(fixed: &[u8], flags: u16) -> Result<Option<LargestArrived>, PacketError> {
    let number = PacketNumber::new(u64_at(fixed, 0)).ok_or(PacketError::Bounds)?;
    let largest = LargestArrived { number, waited_us: u32_at(fixed, 8), at_us: u32_at(fixed, 12) };
    match flags & HAS_LARGEST {
        0 if fixed[..16] != [0; 16] => Err(PacketError::Bounds),
        0 => Ok(None),
        _ => Ok(Some(largest)),
    }
}

fn counts(fixed: &[u8]) -> Counts {
    Counts {
        packets: u64_at(fixed, 20),
        bytes: u64_at(fixed, 28),
        marked: u32_at(fixed, 36),
        dropped: u32_at(fixed, 40),
        twice: u32_at(fixed, 44),
        wrong: u32_at(fixed, 48),
    }
}

impl Standing {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut gaps = self.gaps.iter();
        for unit in &self.units {
            match *unit {
                UnitStanding::Whole(count) => out.extend_from_slice(&(WHOLE | (count & RUN_MOST)).to_le_bytes()),
                UnitStanding::Absent(count) => out.extend_from_slice(&(ABSENT | (count & RUN_MOST)).to_le_bytes()),
                UnitStanding::Part(part) => {
                    let head = (u16::from(part.lacks_unit) * LACKS_UNIT)
                        | (u16::from(part.goes_on) * GOES_ON)
                        | (part.gaps & GAPS_MOST);
                    out.extend_from_slice(&head.to_le_bytes());
                    out.extend_from_slice(&[part.cut.0, 0]);
                    out.extend_from_slice(&part.first.to_le_bytes());
                    out.extend_from_slice(&part.reach.to_le_bytes());
                    for gap in gaps.by_ref().take(usize::from(part.gaps)) {
                        out.extend_from_slice(&gap.first.to_le_bytes());
                        out.extend_from_slice(&gap.pieces.to_le_bytes());
                    }
                }
            }
        }
    }

    fn decode(mut rest: &[u8]) -> Result<Standing, PacketError> {
        let (mut standing, mut is_over) = (Standing::default(), false);
        while !rest.is_empty() {
            if is_over {
                return Err(PacketError::Bounds);
            }
            let head = u16_at(taken(&mut rest, RUN_BYTES)?, 0);
            let count = head & RUN_MOST;
            let unit = match head >> 14 {
                2 if count > 0 => UnitStanding::Whole(count),
                1 if count > 0 => UnitStanding::Absent(count),
                0 => UnitStanding::Part(standing.decode_part(head, &mut rest)?),
                _ => return Err(PacketError::Unknown),
            };
            is_over = matches!(unit, UnitStanding::Part(PartUnit { goes_on: true, .. }));
            standing.units.push(unit);
        }
        Ok(standing)
    }

    /// Reads one unit of which a part came. Only the first one of a stretch may go on where another
    /// packet left off.
    fn decode_part(&mut self, head: u16, rest: &mut &[u8]) -> Result<PartUnit, PacketError> {
        let fixed = taken(rest, PART_BYTES - RUN_BYTES)?;
        let part = PartUnit {
            cut: UnitCut(fixed[0]),
            first: u16_at(fixed, 2),
            reach: u16_at(fixed, 4),
            goes_on: head & GOES_ON != 0,
            lacks_unit: head & LACKS_UNIT != 0,
            gaps: head & GAPS_MOST,
        };
        if fixed[1] != 0 {
            return Err(PacketError::Unknown);
        }
        if part.first > part.reach || (part.first > 0 && !self.units.is_empty()) {
            return Err(PacketError::Bounds);
        }
        let mut end = None;
        for _ in 0..part.gaps {
            let bytes = taken(rest, GAP_BYTES)?;
            let gap = Gap { first: u16_at(bytes, 0), pieces: u16_at(bytes, 2) };
            let apart = end.map_or(gap.first >= part.first, |end| u32::from(gap.first) > end);
            if gap.pieces == 0 || !apart || gap.end() > u32::from(part.reach) {
                return Err(PacketError::Bounds);
            }
            end = Some(gap.end());
            self.gaps.push(gap);
        }
        Ok(part)
    }
}

/// The next bytes of `rest`, which loses them.
fn taken<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], PacketError> {
    let (first, behind) = rest.split_at_checked(bytes).ok_or(PacketError::Length)?;
    *rest = behind;
    Ok(first)
}
