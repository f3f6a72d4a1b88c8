//! One unit at the sender: which of its pieces were sent, landed or are missing.
//!
//! In: pieces that are sent under numbers, and standings of the receiver. Out: pieces to send, and
//! counts. Knows no time: which numbers are overtaken is said by its caller.

use std::ops::Range;

use crate::udp::UdpBreach;
use crate::udp::packet::{PieceBytes, UnitCut};
use crate::udp::pieces::PieceSet;
use crate::udp::status::{Gap, PartUnit};

/// A unit that was begun and is not whole.
///
/// A piece is unsent, then flying; missing if it is not there and its number was overtaken, then
/// flying again; landed at last.
#[derive(Debug)]
pub(super) struct OpenUnit {
    /// Payload bytes.
    pub(super) payload: u64,
    /// Bytes of each piece but the last.
    pub(super) piece_bytes: PieceBytes,
    /// The cut by which pieces are numbered.
    pub(super) cut: UnitCut,
    /// Its description.
    pub(super) description: Said,
    /// Whether the digest is known.
    pub(super) has_digest: bool,
    /// Whether all of it was sent at least once, in whatever cut.
    pub(super) was_sent: bool,
    /// The lower half of the number under which each piece was sent last.
    numbers: Vec<u32>,
    landed: PieceSet,
    missing: PieceSet,
    /// Pieces from here on were not sent.
    unsent: u16,
    /// All flying pieces with lower numbers are missing: they were looked for. So a receiver that
    /// says the same again and again makes nobody look again.
    searched: u64,
}

/// How far the description of a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Not said, or without the digest.
    Not { without_digest: bool },
    /// Said with the digest under this number.
    Flying(u64),
    /// To be said again.
    Missing,
    /// The receiver has it.
    Landed,
}

/// Pieces that changed their state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// Pieces that landed.
    pub(super) landed: u32,
    /// Pieces that were flying and have landed or are missing.
    pub(super) down: u32,
    /// Packets that are found missing.
    pub(super) lost: u32,
}

impl OpenUnit {
    /// A unit of which nothing was sent.
    pub(super) fn new(payload: u64, piece_bytes: PieceBytes) -> OpenUnit {
        OpenUnit {
            payload,
            piece_bytes,
            cut: UnitCut(0),
            description: Said::Not { without_digest: false },
            has_digest: false,
            was_sent: false,
            numbers: Vec::new(),
            landed: PieceSet::default(),
            missing: PieceSet::default(),
            unsent: 0,
            searched: 0,
        }
    }

    /// Cuts it anew: all of it is unsent. Returns how many pieces were flying until then. What was
    /// cut 255 times stays as it is (`None`), and does not move: its lane is given up.
    pub(super) fn cut_anew(&mut self, piece_bytes: PieceBytes) -> Option<u32> {
        let (cut, flying) = (self.cut.0.checked_add(1).map(UnitCut)?, self.flying());
        let (has_digest, was_sent) = (self.has_digest, self.was_sent);
        *self = OpenUnit { cut, has_digest, was_sent, ..OpenUnit::new(self.payload, piece_bytes) };
        Some(flying)
    }

    /// How many pieces it has.
    pub(super) fn pieces(&self) -> u16 {
        self.piece_bytes.pieces(self.payload)
    }

    /// Pieces that were not sent.
    pub(super) fn unsent(&self) -> Range<u16> {
        self.unsent..self.pieces()
    }

    /// Whether something of it was never sent that can be.
    pub(super) fn has_news(&self) -> bool {
        let describes = match self.description {
            Said::Not { without_digest } => self.has_digest || (!without_digest && self.unsent == 0),
            _ => false,
        };
        self.unsent < self.pieces() || describes
    }

    /// Whether something of it is missing.
    pub(super) fn has_gaps(&self) -> bool {
        self.missing.count() > 0 || self.description == Said::Missing
    }

    /// Pieces that are missing, as runs.
    pub(super) fn gaps(&self) -> impl Iterator<Item = Range<u16>> {
        self.missing.runs_in(0..self.unsent)
    }

    /// The pieces of these that are flying.
    pub(super) fn flying_in(&self, pieces: Range<u16>) -> Vec<Range<u16>> {
        let mut flying = Vec::new();
        for run in self.landed.gaps_in(pieces.start..pieces.end.min(self.unsent)) {
            flying.extend(self.missing.gaps_in(run));
        }
        flying
    }

    /// How many of its pieces are flying.
    pub(super) fn flying(&self) -> u32 {
        u32::from(self.unsent) - self.landed.count() - self.missing.count()
    }

    /// How many of its pieces have not landed.
    pub(super) fn lacks(&self) -> u32 {
        u32::from(self.pieces()) - self.landed.count()
    }

    /// A piece was sent under this number. Returns whether it was not flying before.
    pub(super) fn sent(&mut self, piece: u16, number: u64) -> bool {
        let low = number as u32;
        if piece < self.unsent {
            self.numbers[usize::from(piece)] = low;
            return self.missing.remove(piece..piece + 1) == 1;
        }
        debug_assert_eq!(piece, self.unsent, "pieces are first sent in their order");
        self.numbers.push(low);
        self.unsent += 1;
        true
    }

    /// The description was sent under this number.
    pub(super) fn said(&mut self, number: u64) {
        if self.description == Said::Landed {
            return;
        }
        self.description = if self.has_digest { Said::Flying(number) } else { Said::Not { without_digest: true } };
    }

    /// The receiver has a part of this cut, as far as said. Pieces that it has not, and whose
    /// numbers are below `overtaken`, are missing.
    ///
    /// # Errors
    /// [`UdpBreach::Status`] if it has what was never sent.
    pub(super) fn heard(&mut self, part: &PartUnit, gaps: &[Gap], overtaken: u64) -> Result<Moved, UdpBreach> {
        if part.reach > self.unsent
            || (!part.lacks_unit && !matches!(self.description, Said::Flying(_) | Said::Missing | Said::Landed))
        {
            return Err(UdpBreach::Status);
        }
        let mut moved = Moved::default();
        let mut from = part.first;
        for gap in gaps {
            self.land(from..gap.first, &mut moved);
            // It ends at the reach at most, which is a u16.
            from = gap.first + gap.pieces;
        }
        self.land(from..part.reach, &mut moved);
        if !part.lacks_unit {
            self.description = Said::Landed;
        }
        let end = if part.goes_on { part.reach } else { self.unsent };
        self.find_missing(part.first..end, overtaken, &mut moved);
        Ok(moved)
    }

    /// Nothing of this cut has come.
    pub(super) fn heard_nothing(&mut self, overtaken: u64) -> Moved {
        let mut moved = Moved::default();
        self.find_missing(0..self.unsent, overtaken, &mut moved);
        moved
    }

    fn land(&mut self, pieces: Range<u16>, moved: &mut Moved) {
        if pieces.is_empty() {
            return;
        }
        let landed = self.landed.insert(pieces.clone());
        moved.landed += landed;
        moved.down += landed - self.missing.remove(pieces);
    }

    fn find_missing(&mut self, pieces: Range<u16>, overtaken: u64, moved: &mut Moved) {
        let is_all = pieces == (0..self.unsent);
        let runs = if overtaken > self.searched { self.flying_in(pieces) } else { Vec::new() };
        for piece in runs.into_iter().flatten() {
            if is_before(self.numbers[usize::from(piece)], overtaken) {
                self.missing.insert(piece..piece + 1);
                moved.down += 1;
                moved.lost += 1;
            }
        }
        if is_all {
            self.searched = self.searched.max(overtaken);
        }
        if matches!(self.description, Said::Flying(number) if number < overtaken) {
            self.description = Said::Missing;
            moved.lost += 1;
        }
    }
}

/// Whether a number, of which the lower half is known, is below another one. Both are of packets
/// that were sent within the last 2^31.
fn is_before(low: u32, number: u64) -> bool {
    (number as u32).wrapping_sub(low).wrapping_sub(1) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flying(pieces: u16) -> OpenUnit {
        let mut unit = OpenUnit::new(u64::from(PieceBytes::SAFE.get()) * u64::from(pieces), PieceBytes::SAFE);
        (0..pieces).for_each(|piece| assert!(unit.sent(piece, 10 + u64::from(piece))));
        unit
    }

    #[test]
    fn pieces_that_were_looked_for_are_not_looked_for_again() {
        let mut unit = flying(8);
        assert_eq!(unit.heard_nothing(13).lost, 3);
        assert_eq!(unit.heard_nothing(13).lost, 0);
        // It would be found if anybody looked.
        unit.numbers[7] = 0;
        assert_eq!((unit.heard_nothing(12).lost, unit.heard_nothing(13).lost), (0, 0));
        assert_eq!((unit.heard_nothing(14).lost, unit.heard_nothing(14).lost), (2, 0));
        // One that was sent again has a number above all that are overtaken.
        unit.sent(0, 20);
        assert_eq!((unit.heard_nothing(20).lost, unit.heard_nothing(21).lost), (3, 1));
    }

    #[test]
    fn what_a_part_of_a_status_says_nothing_of_is_still_looked_for() {
        let mut unit = flying(8);
        let part =
            |first, reach, goes_on| PartUnit { cut: UnitCut(0), first, reach, goes_on, lacks_unit: true, gaps: 1 };
        let gap = |first, pieces| [Gap { first, pieces }];
        let mut lost = |part: PartUnit, gaps: &[Gap]| unit.heard(&part, gaps, 99).expect("it was sent").lost;
        assert_eq!(lost(part(0, 3, true), &gap(0, 3)), 3);
        assert_eq!(lost(part(3, 5, false), &gap(3, 2)), 5);
    }

    #[test]
    fn what_was_cut_as_often_as_can_be_said_stays_as_it_is() {
        let mut unit = flying(4);
        assert_eq!((unit.cut_anew(PieceBytes::SAFE), unit.flying()), (Some(4), 0));
        unit.cut = UnitCut(u8::MAX);
        unit.sent(0, 30);
        assert_eq!((unit.cut_anew(PieceBytes::SAFE), unit.flying()), (None, 1));
    }
}
