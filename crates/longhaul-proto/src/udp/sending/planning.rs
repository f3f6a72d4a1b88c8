//! Messages of one unit: what is missing, what is new, what is sent once more.
//!
//! In: a unit, and the room of a message. Out: a plan that fits it and that one system call can
//! send. Knows no other unit and no number of a packet.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::unit::{OpenUnit, Said};
use crate::time::Timestamp;
use crate::udp::packet::{DATA_OVERHEAD_BYTES, Serial, UNIT_DATAGRAM_BYTES};
use crate::udp::plan::{Description, MessageRoom, Purpose, UnitPlan, piece_at};

/// Time between a repair of the tail and its copies: longer than most bursts of loss.
const COPY_AFTER: Duration = Duration::from_micros(5_000);
/// Copies of each.
const COPIES_EACH: u8 = 2;
/// Repairs that wait for their copies at most: further ones have none.
const COPIES_WAITING: usize = 256;

/// The missing pieces of a unit, as far as they fit.
pub(super) fn repair_of(serial: Serial, unit: &OpenUnit, room: MessageRoom) -> UnitPlan {
    let describes = unit.description == Said::Missing;
    let most = datagrams(unit, room);
    let pieces = first_of(unit.gaps(), most - usize::from(describes && most > 1));
    let description = if describes { placed(unit, &pieces, room) } else { Description::None };
    plan(serial, unit, pieces, description, Purpose::Repair)
}

/// The pieces of a unit that were never sent, as far as they fit. Its description goes with the
/// first pieces, and with the digest behind the last ones.
pub(super) fn news_of(serial: Serial, unit: &OpenUnit, room: MessageRoom) -> UnitPlan {
    let unsent = unit.unsent();
    let without = match unit.description {
        Said::Not { without_digest } => !without_digest && unsent.start == 0,
        _ => false,
    };
    let may = without || (unit.has_digest && matches!(unit.description, Said::Not { .. }));
    let most = datagrams(unit, room);
    let pieces = first_of([unsent.clone()].into_iter(), most - usize::from(without && most > 1));
    let ends = pieces.last().map_or(unsent.start, |run| run.end) == unsent.end;
    let description = if without || (may && ends) { placed(unit, &pieces, room) } else { Description::None };
    plan(serial, unit, pieces, description, Purpose::New)
}

/// A repair once more, as far as it is still on its way.
pub(super) fn copy_of(repair: &UnitPlan, unit: &OpenUnit, room: MessageRoom) -> Option<UnitPlan> {
    if unit.cut != repair.cut {
        return None;
    }
    let flying = repair.pieces.iter().flat_map(|run| unit.flying_in(run.clone()));
    let pieces = first_of(flying, datagrams(unit, room));
    let describes = repair.description != Description::None && matches!(unit.description, Said::Flying(_));
    let description = if describes { placed(unit, &pieces, room) } else { Description::None };
    let copy = plan(repair.serial, unit, pieces, description, Purpose::Copy);
    (!copy.pieces.is_empty() || copy.description != Description::None).then_some(copy)
}

/// The description of a unit alone.
pub(super) fn question_of(serial: Serial, unit: &OpenUnit) -> UnitPlan {
    plan(serial, unit, Vec::new(), Description::Last, Purpose::Ask)
}

fn plan(
    serial: Serial,
    unit: &OpenUnit,
    pieces: Vec<Range<u16>>,
    description: Description,
    purpose: Purpose,
) -> UnitPlan {
    let (cut, piece_bytes, payload) = (unit.cut, unit.piece_bytes, unit.payload);
    UnitPlan { serial, cut, piece_bytes, payload, pieces, description, purpose }
}

/// Where a description fits: only the last datagram of a message may be shorter than the others.
fn placed(unit: &OpenUnit, pieces: &[Range<u16>], room: MessageRoom) -> Description {
    let count: usize = pieces.iter().map(ExactSizeIterator::len).sum();
    let Some(last) = pieces.last().map(|run| run.end - 1) else { return Description::Last };
    let at = piece_at(last, unit.piece_bytes, unit.payload);
    let last_bytes = (at.end - at.start) as usize + usize::from(DATA_OVERHEAD_BYTES);
    let bytes = (count - 1) * usize::from(unit.piece_bytes.datagram()) + last_bytes + usize::from(UNIT_DATAGRAM_BYTES);
    let is_short = last_bytes < usize::from(unit.piece_bytes.datagram());
    if count + 1 > room.datagrams || bytes > room.bytes || (is_short && count > 1) {
        Description::None
    } else if last_bytes < usize::from(UNIT_DATAGRAM_BYTES) {
        Description::First
    } else {
        Description::Last
    }
}

/// Pieces that fit a message: one at least.
fn datagrams(unit: &OpenUnit, room: MessageRoom) -> usize {
    room.datagrams.min(room.bytes / usize::from(unit.piece_bytes.datagram())).max(1)
}

/// The first so many pieces.
fn first_of(runs: impl Iterator<Item = Range<u16>>, most: usize) -> Vec<Range<u16>> {
    let (mut taken, mut room) = (Vec::new(), most);
    for run in runs {
        let len = run.len().min(room);
        if len == 0 {
            break;
        }
        room -= len;
        // It is no longer than the run, which is one of u16.
        taken.push(run.start..run.start + len as u16);
    }
    taken
}

/// Repairs of the tail that are to be sent once more, in the order of their times.
#[derive(Debug, Default)]
pub(super) struct Copies {
    waiting: VecDeque<(Timestamp, u8, UnitPlan)>,
}

impl Copies {
    /// A repair was sent.
    pub(super) fn repaired(&mut self, now: Timestamp, plan: &UnitPlan) {
        if self.waiting.len() < COPIES_WAITING {
            self.waiting.push_back((now.after(COPY_AFTER), COPIES_EACH, plan.clone()));
        }
    }

    /// A copy of the first was sent.
    pub(super) fn copied(&mut self, now: Timestamp) {
        if let Some((_, left, plan)) = self.waiting.pop_front()
            && left > 1
        {
            self.waiting.push_back((now.after(COPY_AFTER), left - 1, plan));
        }
    }

    /// The first, if it is due.
    pub(super) fn front(&self, now: Timestamp) -> Option<&UnitPlan> {
        self.waiting.front().filter(|(due, ..)| now >= *due).map(|(_, _, plan)| plan)
    }

    /// When the first is due.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.waiting.front().map(|(due, ..)| *due)
    }

    /// The first is of no more use.
    pub(super) fn drop_front(&mut self) {
        self.waiting.pop_front();
    }

    /// None is of use any more.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}
