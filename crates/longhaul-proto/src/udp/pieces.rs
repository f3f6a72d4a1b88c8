//! A set of the pieces of one unit: a bit for each.
//!
//! In: numbers of pieces. Out: which are there and which are not. Knows no packet and no time.

use std::ops::Range;

/// A set of pieces. It grows as pieces are added: a bit for each up to the largest.
#[derive(Clone, Debug, Default)]
pub(super) struct PieceSet {
    words: Vec<u64>,
    count: u32,
}

impl PieceSet {
    /// How many pieces it has.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Whether it has the piece.
    pub(super) fn contains(&self, piece: u16) -> bool {
        self.words.get(usize::from(piece / 64)).is_some_and(|word| word >> (piece % 64) & 1 == 1)
    }

    /// Adds pieces; returns how many of them it did not have.
    pub(super) fn insert(&mut self, pieces: Range<u16>) -> u32 {
        let words = usize::from(pieces.end).div_ceil(64);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        let mut added = 0;
        for (at, mask) in masks(pieces) {
            added += (mask & !self.words[at]).count_ones();
            self.words[at] |= mask;
        }
        self.count += added;
        added
    }

    /// Takes pieces out; returns how many of them it had.
    pub(super) fn remove(&mut self, pieces: Range<u16>) -> u32 {
        let mut removed = 0;
        for (at, mask) in masks(pieces) {
            let Some(word) = self.words.get_mut(at) else { break };
            removed += (mask & *word).count_ones();
            *word &= !mask;
        }
        self.count -= removed;
        removed
    }

    /// The pieces of these that it has, as runs one behind the other.
    pub(super) fn runs_in(&self, pieces: Range<u16>) -> impl Iterator<Item = Range<u16>> {
        Runs { set: self, at: pieces.start, end: pieces.end, wanted: 1 }
    }

    /// The pieces of these that it has not, as runs one behind the other.
    pub(super) fn gaps_in(&self, pieces: Range<u16>) -> impl Iterator<Item = Range<u16>> {
        Runs { set: self, at: pieces.start, end: pieces.end, wanted: 0 }
    }
}

/// Runs of bits that are `wanted`.
struct Runs<'a> {
    set: &'a PieceSet,
    at: u16,
    end: u16,
    wanted: u64,
}

impl Runs<'_> {
    /// The first piece from `at` on, and before the end, whose bit is `bit`; the end if there is
    /// none.
    fn first(&self, at: u16, bit: u64) -> u16 {
        let mut at = at;
        while at < self.end {
            let word = self.set.words.get(usize::from(at / 64)).copied().unwrap_or_default();
            let rest = (if bit == 1 { word } else { !word }) >> (at % 64);
            if rest != 0 {
                return u16::try_from(u32::from(at) + rest.trailing_zeros()).unwrap_or(self.end).min(self.end);
            }
            at = (at / 64 + 1).saturating_mul(64).max(at.saturating_add(1));
        }
        self.end
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<u16>;

    fn next(&mut self) -> Option<Range<u16>> {
        let start = self.first(self.at, self.wanted);
        if start >= self.end {
            return None;
        }
        self.at = self.first(start, 1 - self.wanted);
        Some(start..self.at)
    }
}

/// The words that hold these pieces, and the bits of them in each.
fn masks(pieces: Range<u16>) -> impl Iterator<Item = (usize, u64)> {
    let (start, end) = (usize::from(pieces.start), usize::from(pieces.end).max(usize::from(pieces.start)));
    (start / 64..end.div_ceil(64)).filter(move |_| start < end).map(move |at| {
        let low = start.saturating_sub(at * 64);
        let high = (end - at * 64).min(64);
        (at, (u64::MAX << low) & (u64::MAX >> (64 - high)))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_is_one_of_numbers(steps in vec((any::<bool>(), 0_u16..400, 0_u16..200), 0..40), from in 0_u16..700, len in 0_u16..700) {
            let (mut set, mut model) = (PieceSet::default(), BTreeSet::new());
            for (adds, start, count) in steps {
                let range = start..start + count;
                let had = model.range(range.clone()).count() as u32;
                if adds {
                    prop_assert_eq!(set.insert(range.clone()), u32::from(count) - had);
                    model.extend(range);
                } else {
                    prop_assert_eq!(set.remove(range.clone()), had);
                    model.retain(|piece| !range.contains(piece));
                }
                prop_assert_eq!(set.count() as usize, model.len());
            }
            let range = from..from + len;
            let (mut there, mut lacking) = (Vec::new(), Vec::new());
            set.runs_in(range.clone()).for_each(|run| there.extend(run));
            set.gaps_in(range.clone()).for_each(|run| lacking.extend(run));
            prop_assert!(there.iter().all(|piece| set.contains(*piece)));
            prop_assert_eq!(there, model.range(range.clone()).copied().collect::<Vec<_>>());
            prop_assert_eq!(lacking, range.filter(|piece| !model.contains(piece)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_largest_pieces_have_their_bits() {
        let mut set = PieceSet::default();
        assert_eq!(set.insert(65_470..u16::MAX), 65);
        assert_eq!(set.runs_in(0..u16::MAX).next(), Some(65_470..u16::MAX));
        assert_eq!(set.gaps_in(65_000..u16::MAX).next(), Some(65_000..65_470));
        assert_eq!((set.remove(65_471..u16::MAX), set.count()), (64, 1));
    }
}
