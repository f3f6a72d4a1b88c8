//! Owns the slots of a lane that receives, and the units that come into them: how far each is there
//! and hashed.
//!
//! In: slots, and what the machine says has landed. Out: places for pieces, and the digest of a
//! unit that is whole. It knows no socket and no packet.

use std::collections::VecDeque;

use longhaul_core::digest::{ChunkHasher, Digest};
use longhaul_core::{FileOffset, Unit};
use longhaul_net::ReceivedPiece;
use longhaul_proto::udp::packet::UnitCut;
use longhaul_proto::wire::data::Piece;
use longhaul_sys::Slot;

use crate::cpu::{Stage, StageTimes};
use crate::lanes::worker::PIECE_BYTES;
use crate::lanes::worker::pieces::ReceivedPieces;
use crate::lanes::worker::pulse::Pulse;

/// The slots of a lane: claimed, and given to units.
#[derive(Default)]
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
    /// Units that may be promised beyond those that are whole, now and at most: a lane that stands
    /// idle takes no more memory than it has use for.
    window: u32,
    most: u32,
}

impl Slots {
    /// Slots that the join has promised, and at most so many units at a time.
    pub(super) fn promised(claimed: Vec<Slot>, most: u32) -> Slots {
        let promised = claimed.len() as u32;
        Slots { promised, claimed, window: WINDOW_FIRST.max(promised).min(most), most, ..Slots::default() }
    }

    /// Slots that no unit was promised.
    pub(super) fn spare(&self) -> u32 {
        (self.claimed.len() as u32).saturating_sub(self.promised - self.settled)
    }

    /// Whether more may be claimed.
    pub(super) fn is_short(&self) -> bool {
        self.promised - self.whole + self.spare() < self.window
    }

    /// One more unit has or had a slot or needs none. A sender that uses its credit gets more.
    fn settle_one(&mut self) {
        self.settled += 1;
        if self.promised - self.settled < self.window / 2 {
            self.window = self.window.saturating_mul(2).min(self.most);
        }
    }

    /// The place of a unit, which gets a slot now if it has none.
    pub(super) fn place(&mut self, serial: u32, pulse: &Pulse) -> Option<&mut UnitPlace> {
        let at = serial.checked_sub(self.first)? as usize;
        if at >= self.units.len() {
            self.units.resize_with(at + 1, || None);
        }
        let place = &mut self.units[at];
        if place.is_none() {
            *place = Some(UnitPlace::new(self.claimed.pop()?));
            self.settle_one();
            pulse.begin_another();
        }
        self.units[at].as_mut()
    }

    /// Takes the place of a unit that is whole. `None` if it needed none.
    pub(super) fn take(&mut self, serial: u32) -> Option<UnitPlace> {
        let at = serial.checked_sub(self.first)? as usize;
        let place = self.units.get_mut(at).and_then(Option::take);
        self.whole += 1;
        if place.is_none() {
            self.settle_one();
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

/// Units that are promised at first: as many as a session of a daemon has buffers when it begins.
const WINDOW_FIRST: u32 = 4;
