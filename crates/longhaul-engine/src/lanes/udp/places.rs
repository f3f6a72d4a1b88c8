//! Owns the slots of a lane that receives, and the units that come into them: how far each is there
//! and hashed.
//!
//! In: slots, and what the machine says has landed. Out: places for pieces, and the digest of a
//! unit that is whole. It knows no socket and no packet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::digest::{ChunkHasher, Digest};
use longhaul_core::{FileOffset, Unit};
use longhaul_net::ReceivedPiece;
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::packet::UnitCut;
use longhaul_proto::wire::data::Piece;
use longhaul_sys::{Slab, Slot};

use super::window::{PromiseWindow, WINDOW_FIRST};
use crate::cpu::{Stage, StageTimes};
use crate::lanes::worker::PIECE_BYTES;
use crate::lanes::worker::pieces::ReceivedPieces;
use crate::lanes::worker::pulse::Pulse;

/// The slots of a lane: claimed, and given to units.
pub(super) struct Slots {
    /// Slots that no unit has.
    pub(super) claimed: Vec<Slot>,
    /// Units that were admitted in all, ...
    pub(super) promised: u32,
    /// ... those of them that have or had a slot or need none, ...
    settled: u32,
    /// ... and those that are whole.
    pub(super) whole: u32,
    /// Units from serial `first` on; `None` for one that has no slot, or is whole.
    units: VecDeque<Option<UnitPlace>>,
    first: u32,
    /// Units that may be promised beyond those that are whole.
    window: PromiseWindow,
    /// Units that there are in all. `None` before the sender has said so.
    ends: Option<u32>,
}

impl Slots {
    /// Slots that the join has promised, over a path of this round trip.
    pub(super) fn promised(now: Timestamp, claimed: Vec<Slot>, round_trip: Duration) -> Slots {
        let promised = claimed.len() as u32;
        Slots {
            claimed,
            promised,
            settled: 0,
            whole: 0,
            units: VecDeque::new(),
            first: 0,
            window: PromiseWindow::new(now, promised, round_trip),
            ends: None,
        }
    }

    /// Promises a slot to so many more units, for which there is one.
    pub(super) fn promise(&mut self, now: Timestamp, units: u32) {
        self.promised += units;
        if units > 0 {
            self.window.note_promised(now, self.promised);
        }
    }

    /// Promises at most so many units at a time from now on. What was promised stays so.
    pub(super) fn bound(&mut self, most: u32) {
        self.window.bound(most);
    }

    /// There are so many units in all: further slots are of no use.
    pub(super) fn end_at(&mut self, units: u32) {
        self.ends = Some(units);
        self.claimed.truncate(units.saturating_sub(self.settled) as usize);
    }

    /// Gives back the slots that no unit has, though they were promised: the sender makes no use of
    /// them.
    pub(super) fn take_back(&mut self) {
        self.claimed.clear();
    }

    /// Units that were promised a slot, have none yet, and would find none.
    pub(super) fn owed(&self) -> u32 {
        let promised = self.ends.map_or(self.promised, |ends| self.promised.min(ends));
        promised.saturating_sub(self.settled).saturating_sub(self.claimed.len() as u32)
    }

    /// Whether a unit has a slot, or there is one for it.
    pub(super) fn has_room(&self, serial: u32) -> bool {
        let place = serial.checked_sub(self.first).and_then(|at| self.units.get(at as usize));
        !self.claimed.is_empty() || matches!(place, Some(Some(_)))
    }

    /// Slots that no unit was promised.
    pub(super) fn spare(&self) -> u32 {
        (self.claimed.len() as u32).saturating_sub(self.promised - self.settled)
    }

    /// Whether the sender may begin a unit, or has begun one that is not whole.
    pub(super) fn has_open(&self) -> bool {
        self.promised > self.whole
    }

    /// Whether more may be claimed.
    pub(super) fn is_short(&self) -> bool {
        self.ends.is_none() && self.promised - self.whole + self.spare() < self.window.units()
    }

    /// One more unit has or had a slot or needs none. A sender that uses its credit gets more.
    fn settle_one(&mut self, now: Timestamp) {
        self.settled += 1;
        self.window.note_begun(now, self.settled, self.promised - self.settled);
    }

    /// The place of a unit, which gets a slot now if it has none.
    pub(super) fn place(&mut self, now: Timestamp, serial: u32, pulse: &Pulse) -> Option<&mut UnitPlace> {
        let at = serial.checked_sub(self.first)? as usize;
        if at >= self.units.len() {
            self.units.resize_with(at + 1, || None);
        }
        let place = &mut self.units[at];
        if place.is_none() {
            *place = Some(UnitPlace::new(self.claimed.pop()?));
            self.settle_one(now);
            pulse.begin_another();
        }
        self.units[at].as_mut()
    }

    /// Takes the place of a unit that is whole. `None` if it needed none.
    pub(super) fn take(&mut self, now: Timestamp, serial: u32) -> Option<UnitPlace> {
        let at = serial.checked_sub(self.first)? as usize;
        let place = self.units.get_mut(at).and_then(Option::take);
        self.whole += 1;
        if place.is_none() {
            self.settle_one(now);
        }
        place
    }

    /// Forgets units that are whole and the first.
    pub(super) fn forget_below(&mut self, below: u32) {
        while self.first < below {
            self.units.pop_front();
            self.first += 1;
        }
    }
}

/// The place of a unit that comes, and how far it is there and hashed.
pub(super) struct UnitPlace {
    /// Its slot.
    pub(super) slot: Slot,
    cut: UnitCut,
    /// The pieces of this cut that have landed. `None` if it came too scattered to be followed.
    pieces: Option<ReceivedPieces>,
    /// `None` before the description came.
    hasher: Option<ChunkHasher>,
    hashed: usize,
}

impl UnitPlace {
    /// A place in which nothing is.
    pub(super) fn new(slot: Slot) -> UnitPlace {
        let pieces = Some(ReceivedPieces::new(slot.len()));
        UnitPlace { slot, cut: UnitCut(0), pieces, hasher: None, hashed: 0 }
    }

    /// A piece of this cut has landed.
    pub(super) fn land(&mut self, cut: UnitCut, piece: ReceivedPiece, times: &StageTimes) {
        self.follow(cut);
        if self.pieces.as_mut().is_some_and(|pieces| pieces.add(piece).is_err()) {
            self.pieces = None;
        }
        let there = self.pieces.as_ref().map_or(0, ReceivedPieces::contiguous);
        if there >= self.hashed + PIECE_BYTES {
            self.hash_to(there - there % PIECE_BYTES, times);
        }
    }

    /// Forgets what came of an earlier cut: nobody says that it is the same.
    fn follow(&mut self, cut: UnitCut) {
        if cut != self.cut {
            let pieces = Some(ReceivedPieces::new(self.slot.len()));
            (self.cut, self.pieces, self.hasher, self.hashed) = (cut, pieces, None, 0);
        }
    }

    /// The description of the unit has come.
    pub(super) fn describe(&mut self, cut: UnitCut, header: &Piece) {
        self.follow(cut);
        if self.hasher.is_none() {
            let start = match header.unit {
                Unit::Chunk { index, .. } => index.start(header.chunk),
                Unit::Bundle(_) => FileOffset(0),
            };
            self.hasher = Some(ChunkHasher::new(header.digest, start));
        }
    }

    fn hash_to(&mut self, end: usize, times: &StageTimes) {
        let Some(hasher) = &mut self.hasher else { return };
        for part in self.slot[self.hashed..end].chunks(PIECE_BYTES) {
            times.count(Stage::Hash, || hasher.update(part));
        }
        self.hashed = end;
    }

    /// The digest of all `len` bytes, which are there.
    pub(super) fn finish(mut self, header: &Piece, times: &StageTimes) -> (Slot, Option<Digest>) {
        self.describe(self.cut, header);
        self.hash_to(header.unit_len as usize, times);
        (self.slot, self.hasher.map(ChunkHasher::finish))
    }
}

/// The slots of a session that a lane promises as it joins: no more than an eighth of those that
/// were given, as lanes over TCP may stand beside it, but one.
pub(crate) fn first_slots(slab: &Arc<Slab>) -> Vec<Slot> {
    let most = (slab.given() / 8).clamp(1, WINDOW_FIRST as usize);
    (0..most).map_while(|_| slab.try_claim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slab() -> Arc<Slab> {
        Slab::new(4096, 16).expect("memory")
    }

    const NOW: Timestamp = Timestamp(0);

    fn promised(claimed: Vec<Slot>) -> Slots {
        Slots::promised(NOW, claimed, Duration::from_millis(100))
    }

    #[test]
    fn promised_slots_that_are_taken_back_are_owed_again_and_until_then_no_unit_finds_one() {
        let slab = slab();
        let mut slots = promised((0..4).map_while(|_| slab.try_claim()).collect());
        let pulse = Pulse::default();
        assert!(slots.place(NOW, 0, &pulse).is_some());
        slots.take_back();
        assert_eq!((slots.owed(), slab.free()), (3, 15), "the unit that has begun keeps its own");
        assert!(slots.has_room(0) && !slots.has_room(1));
        assert!(slots.place(NOW, 1, &pulse).is_none());
        slots.claimed.extend(slab.try_claim());
        assert!(slots.has_room(1) && slots.owed() == 2);
    }

    #[test]
    fn slots_beyond_the_last_unit_go_back_as_soon_as_the_sender_names_it() {
        let slab = slab();
        let mut slots = promised((0..4).map_while(|_| slab.try_claim()).collect());
        assert!(slots.place(NOW, 0, &Pulse::default()).is_some());
        slots.end_at(2);
        assert_eq!((slab.free(), slots.owed(), slots.is_short()), (14, 0, false), "one begun, one to come");
    }

    #[test]
    fn a_lane_promises_at_first_a_small_part_of_a_small_memory() {
        for (count, want) in [(1, 1), (4, 1), (16, 2), (64, 4), (256, 4)] {
            assert_eq!(first_slots(&Slab::new(4096, count).expect("memory")).len(), want, "of {count}");
        }
    }

    #[test]
    fn a_lane_that_joins_leaves_most_of_the_slots_that_were_given_to_others() {
        let slab = Slab::new(4096, 64).expect("memory");
        slab.grow_from(4, Box::new(|_| false));
        let promised = first_slots(&slab);
        assert_eq!((promised.len(), slab.try_claim().is_some()), (1, true));
    }

    #[test]
    fn a_sender_that_waits_for_promises_is_promised_more() {
        for (took_ms, want) in [(100, 8), (1000, 4)] {
            let slab = slab();
            let mut slots = promised((0..4).map_while(|_| slab.try_claim()).collect());
            // Each unit that begins is followed by another promise. The first four begin late, and
            // the next four so long after theirs.
            for serial in 0..8 {
                let at = Timestamp(10_000_000 + if serial < 4 { 0 } else { took_ms * 1000 });
                assert!(slots.place(at, serial, &Pulse::default()).is_some());
                slots.claimed.extend(slab.try_claim());
                slots.promise(at, 1);
            }
            assert_eq!(slots.window.units(), want, "{took_ms} ms");
        }
    }

    #[test]
    fn a_part_of_one_slot_grows_again_when_there_are_more() {
        let slab = slab();
        let (mut slots, pulse) = (promised(slab.try_claim().into_iter().collect()), Pulse::default());
        slots.bound(1);
        assert!(!slots.is_short());
        slots.bound(8);
        assert!(slots.place(NOW, 0, &pulse).is_some());
        assert!(slots.is_short(), "its only slot is in use, and others are free");
    }
}
