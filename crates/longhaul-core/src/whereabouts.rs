//! [`Whereabouts`]: where directories lie on their host, so that two of them can be told apart.
//!
//! In: marks of directories, made by whoever has them open. Out: whether one lies in the other.
//! Knows no file system and no path.

use serde::{Deserialize, Serialize};

/// The mark of a directory of a host: a digest of its device and inode, and of the boot of the
/// host. The same directory has one mark, whatever name, root or daemon leads to it.
pub type DirMark = [u8; 16];

/// Where a directory lies: it may be several, on the targets of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// The mark of the host since it was booted. Zeros: it is not known.
    pub host: DirMark,
    /// The marks of the directories themselves.
    pub at: Vec<DirMark>,
    /// The marks of all directories above them.
    pub above: Vec<DirMark>,
    /// Whether none above them is missing in that list.
    pub whole: bool,
}

/// How two directories lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Siting {
    /// Neither is in the other, as far as names lead from the top of a host.
    Apart,
    /// They are the same, or one is in the other.
    Nested,
    /// They may be on the same host, and not all is known of what lies above them.
    Unknown,
}

impl Whereabouts {
    /// How this lies to another.
    pub fn siting(&self, other: &Whereabouts) -> Siting {
        let is_in = |inner: &Whereabouts, outer: &Whereabouts| {
            outer.at.iter().any(|mark| inner.at.contains(mark) || inner.above.contains(mark))
        };
        if is_in(self, other) || is_in(other, self) {
            return Siting::Nested;
        }
        let may_be_one_host = self.host == other.host || [self.host, other.host].contains(&DirMark::default());
        let is_known = self.whole && other.whole && !self.at.is_empty() && !other.at.is_empty();
        if may_be_one_host && !is_known { Siting::Unknown } else { Siting::Apart }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8, at: &[u8], above: &[u8]) -> Whereabouts {
        let marks = |marks: &[u8]| marks.iter().map(|mark| [*mark; 16]).collect();
        Whereabouts { host: [host; 16], at: marks(at), above: marks(above), whole: true }
    }

    #[test]
    fn one_in_the_other_is_seen_from_either_side_and_what_is_not_known_is_no_distance() {
        let (top, low, beside) = (at(1, &[2], &[1]), at(1, &[4], &[3, 2, 1]), at(1, &[5], &[1]));
        for (one, two, siting) in [
            (&top, &low, Siting::Nested),
            (&top, &top, Siting::Nested),
            (&top, &beside, Siting::Apart),
            (&low, &beside, Siting::Apart),
            (&at(1, &[7, 4], &[1]), &low, Siting::Nested),
            (&top, &Whereabouts { whole: false, ..beside.clone() }, Siting::Unknown),
            (&top, &Whereabouts { whole: false, host: [2; 16], ..beside.clone() }, Siting::Apart),
            (&top, &Whereabouts { whole: false, host: [0; 16], ..beside.clone() }, Siting::Unknown),
            (&top, &Whereabouts { host: [1; 16], whole: true, ..Whereabouts::default() }, Siting::Unknown),
        ] {
            assert_eq!((one.siting(two), two.siting(one)), (siting, siting), "{one:?}, {two:?}");
        }
    }
}
