//! One unit at the receiver: which of its pieces landed, and what is known of it.
//!
//! In: places of pieces, descriptions. Out: where a piece may go, and whether the unit is whole.
//! Knows no packet number, no time and no slot.

use std::ops::Range;

use super::Look;
use crate::udp::UdpBreach;
use crate::udp::packet::{DataPlace, PieceBytes, UnitBody, UnitCut};
use crate::udp::pieces::PieceSet;

/// A unit that was admitted.
#[derive(Debug)]
pub(super) enum UnitIn {
    /// Nothing of it came.
    Absent,
    /// A part of it came.
    Part(Box<UnitParts>),
    /// All of it came.
    Whole,
}

/// The part of a unit that came, all in one cut.
#[derive(Debug)]
pub(super) struct UnitParts {
    /// The cut.
    pub(super) cut: UnitCut,
    piece_bytes: PieceBytes,
    /// The pieces that landed.
    pub(super) landed: PieceSet,
    /// The piece behind the last that landed.
    pub(super) reach: u16,
    /// Where the payload ends: known from a description, or from a short piece. It is the same in
    /// every cut.
    payload: Option<u64>,
    /// The description of this cut.
    body: Option<UnitBody>,
    /// The last description of an earlier cut: header and digest are the same in every cut, as what
    /// was said of the unit was handed on.
    before: Option<UnitBody>,
}

impl UnitIn {
    /// Whether all of it came.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, UnitIn::Whole)
    }

    /// Whether a part of it came.
    pub(super) fn is_part(&self) -> bool {
        matches!(self, UnitIn::Part(_))
    }

    /// Whether a part of this cut came, with pieces of another size.
    pub(super) fn contradicts(&self, cut: UnitCut, piece_bytes: PieceBytes) -> bool {
        matches!(self, UnitIn::Part(parts) if parts.cut == cut && parts.piece_bytes != piece_bytes)
    }

    /// The parts of this cut, with pieces of this size; the pieces that are there of an earlier cut
    /// are forgotten. `None` if the unit is whole, has a later cut, or pieces of another size.
    pub(super) fn parts(&mut self, cut: UnitCut, piece_bytes: PieceBytes) -> Option<&mut UnitParts> {
        let known = match self {
            UnitIn::Absent => Some((None, None)),
            UnitIn::Part(parts) if parts.cut < cut => Some((parts.payload, parts.known())),
            UnitIn::Part(_) => None,
            UnitIn::Whole => return None,
        };
        if let Some((payload, before)) = known {
            let (landed, reach, body) = (PieceSet::default(), 0, None);
            *self = UnitIn::Part(Box::new(UnitParts { cut, piece_bytes, landed, reach, payload, body, before }));
        }
        match self {
            UnitIn::Part(parts) if parts.cut == cut && parts.piece_bytes == piece_bytes => Some(parts),
            _ => None,
        }
    }
}

impl UnitParts {
    /// Where a piece with these bytes of the unit may go.
    pub(super) fn look(&self, place: &DataPlace, at: Range<u64>) -> Look {
        if place.cut < self.cut {
            return Look::Seen;
        }
        let is_first = place.cut > self.cut;
        let is_full = at.end - at.start == u64::from(place.piece_bytes.get());
        let fits = match self.payload {
            Some(payload) => at.end == payload || (is_full && at.end < payload),
            // A short piece is the last one.
            None => is_full || is_first || place.piece >= self.reach,
        };
        if !fits {
            Look::Wrong
        } else if is_first {
            Look::First
        } else if place.piece_bytes != self.piece_bytes {
            Look::Wrong
        } else if self.landed.contains(place.piece) {
            Look::Seen
        } else {
            Look::Land(at)
        }
    }

    /// A piece has landed in these bytes.
    pub(super) fn land(&mut self, piece: u16, at: Range<u64>) {
        self.landed.insert(piece..piece + 1);
        self.reach = self.reach.max(piece + 1);
        if at.end - at.start < u64::from(self.piece_bytes.get()) {
            self.payload = Some(at.end);
        }
    }

    /// A description came. Returns whether it is the first of this cut.
    pub(super) fn describe(&mut self, body: &UnitBody) -> Result<bool, UdpBreach> {
        let payload = body.payload();
        let fits = match self.payload {
            Some(end) => end == payload,
            None => u64::from(self.reach) * u64::from(self.piece_bytes.get()) <= payload,
        };
        let agrees = |known: &UnitBody| {
            known.header == body.header
                && (known.digest.is_none() || body.digest.is_none() || known.digest == body.digest)
        };
        if !fits || !self.body.iter().chain(&self.before).all(agrees) {
            return Err(UdpBreach::Unit);
        }
        let first = self.body.is_none();
        if self.body.is_none_or(|known| known.digest.is_none()) {
            self.body = Some(*body);
        }
        self.payload = Some(payload);
        Ok(first)
    }

    /// The most that was said of the unit, in whatever cut.
    fn known(&self) -> Option<UnitBody> {
        [self.before, self.body].into_iter().flatten().max_by_key(|body| body.digest.is_some())
    }

    /// Whether the description with the digest has not come.
    pub(super) fn lacks_unit(&self) -> bool {
        self.body.is_none_or(|body| body.digest.is_none())
    }

    /// Its description, if all of it is there.
    pub(super) fn whole(&self) -> Option<UnitBody> {
        let body = self.body.filter(|body| body.digest.is_some())?;
        (self.landed.count() == u32::from(self.piece_bytes.pieces(body.payload()))).then_some(body)
    }
}
