//! Keeps account of the pieces of one unit, which a lane may bring in any order.
//!
//! In: the place of each piece, as the lane's transport reports it. Out: how far the unit is there
//! without a gap, which is how far it can be hashed, and whether it is whole. A piece that was
//! there already, or that lies outside of the unit, is a breach. It knows no bytes and no streams.

use std::collections::BTreeMap;

use longhaul_net::ReceivedPiece;

/// The pieces of one unit that were received. Where they come in order it allocates nothing.
#[derive(Debug)]
pub(crate) struct ReceivedPieces {
    /// Bytes of the unit.
    len: usize,
    /// Bytes that were received.
    received: usize,
    /// Bytes from the start of the unit that are there without a gap.
    contiguous: usize,
    /// The ranges behind gaps, by their start: where each ends. No two of them touch.
    beyond: BTreeMap<usize, usize>,
}

/// Why a piece is none that an honest sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceBreach {
    /// It has no bytes.
    Empty,
    /// It reaches beyond the unit.
    Outside,
    /// Some of it was received before.
    Repeated,
    /// It leaves more gaps than [`GAPS_MAX`].
    Scattered,
}

impl PieceBreach {
    /// The breach, for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            PieceBreach::Empty => "has an empty piece",
            PieceBreach::Outside => "has a piece beyond its end",
            PieceBreach::Repeated => "has a piece that came twice",
            PieceBreach::Scattered => "came in too many scattered pieces",
        }
    }
}

impl ReceivedPieces {
    /// A unit of `len` bytes, none of which was received.
    pub(crate) fn new(len: usize) -> ReceivedPieces {
        ReceivedPieces { len, received: 0, contiguous: 0, beyond: BTreeMap::new() }
    }

    /// Bytes that were received.
    pub(crate) fn received(&self) -> usize {
        self.received
    }

    /// Bytes from the start of the unit that are there without a gap.
    pub(crate) fn contiguous(&self) -> usize {
        self.contiguous
    }

    /// Whether all bytes are there.
    pub(crate) fn is_whole(&self) -> bool {
        self.received == self.len
    }

    /// Records a piece.
    pub(crate) fn add(&mut self, piece: ReceivedPiece) -> Result<(), PieceBreach> {
        let (start, len) = (piece.offset, piece.len);
        let end = start.checked_add(len).filter(|end| *end <= self.len).ok_or(PieceBreach::Outside)?;
        if len == 0 {
            return Err(PieceBreach::Empty);
        }
        let before = self.beyond.range(..=start).next_back().map(|(start, end)| (*start, *end));
        let after = self.beyond.range(start..).next().map(|(start, end)| (*start, *end));
        if start < self.contiguous || before.is_some_and(|b| b.1 > start) || after.is_some_and(|a| a.0 < end) {
            return Err(PieceBreach::Repeated);
        }
        // What it touches becomes one with it.
        let (before, after) = (before.filter(|b| b.1 == start), after.filter(|a| a.0 == end));
        let end = after.map_or(end, |after| after.1);
        if let Some((next, _)) = after {
            self.beyond.remove(&next);
        }
        if start == self.contiguous {
            self.contiguous = end;
        } else {
            self.beyond.insert(before.map_or(start, |before| before.0), end);
        }
        self.received += len;
        if self.beyond.len() > GAPS_MAX { Err(PieceBreach::Scattered) } else { Ok(()) }
    }
}

/// Gaps that a unit may have at a time: 6 MB of which every second packet of 1,500 bytes is lost,
/// and at most 200 kB of memory for each lane. A guess on the safe side, as no transport has any
/// yet.
const GAPS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// The contiguous and the received bytes of a unit of 10 after each of its pieces.
    fn received(pieces: &[(usize, usize)]) -> Result<Vec<(usize, usize)>, PieceBreach> {
        let mut unit = ReceivedPieces::new(10);
        pieces
            .iter()
            .map(|&(offset, len)| {
                unit.add(ReceivedPiece { offset, len })?;
                assert_eq!(unit.is_whole(), unit.contiguous() == 10 && unit.received() == 10);
                Ok((unit.contiguous(), unit.received()))
            })
            .collect()
    }

    #[test]
    fn a_unit_is_there_as_far_as_it_has_no_gap_in_whatever_order_its_pieces_come() {
        for (pieces, want) in [
            (&[(0, 4), (4, 6)][..], &[(4, 4), (10, 10)][..]),
            (&[(4, 6), (0, 4)], &[(0, 6), (10, 10)]),
            (&[(8, 2), (4, 2), (6, 2), (0, 4)], &[(0, 2), (0, 4), (0, 6), (10, 10)]),
            (&[(2, 2), (4, 2), (8, 2), (0, 2), (6, 2)], &[(0, 2), (0, 4), (0, 6), (6, 8), (10, 10)]),
            (&[(0, 10)], &[(10, 10)]),
        ] {
            assert_eq!(received(pieces).as_deref(), Ok(want), "{pieces:?}");
        }
    }

    #[test]
    fn a_piece_that_was_there_or_lies_outside_is_a_breach() {
        for (pieces, want) in [
            (&[(0, 4), (0, 4)][..], PieceBreach::Repeated),
            (&[(0, 4), (3, 1)], PieceBreach::Repeated),
            (&[(4, 2), (4, 2)], PieceBreach::Repeated),
            (&[(4, 2), (5, 3)], PieceBreach::Repeated),
            (&[(4, 2), (3, 2)], PieceBreach::Repeated),
            (&[(4, 2), (0, 10)], PieceBreach::Repeated),
            (&[(2, 2), (6, 2), (3, 4)], PieceBreach::Repeated),
            (&[(0, 10), (0, 1)], PieceBreach::Repeated),
            (&[(8, 3)], PieceBreach::Outside),
            (&[(usize::MAX, 2)], PieceBreach::Outside),
            (&[(11, 0)], PieceBreach::Outside),
            (&[(3, 0)], PieceBreach::Empty),
        ] {
            assert_eq!(received(pieces), Err(want), "{pieces:?}");
        }
    }

    #[test]
    fn a_unit_may_have_so_many_gaps_and_no_more() {
        let mut unit = ReceivedPieces::new(4 * GAPS_MAX);
        let every_second = |n: usize| ReceivedPiece { offset: 2 * n + 1, len: 1 };
        assert!((0..GAPS_MAX).all(|n| unit.add(every_second(n)).is_ok()));
        assert_eq!(unit.add(every_second(GAPS_MAX)), Err(PieceBreach::Scattered));
    }
}
