//! Where bytes of a file lie at the destination: on which of its targets, and at which offset
//! there.
//!
//! In: a chunk of a file. Out: its [`Place`], by the rule of the destination's [`Layout`]. The
//! engine writes and reads by it, a journal of a destination with several targets records it, and
//! replay believes no other place. Knows nothing of directories and devices.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::chunkmap::ChunkMap;
use crate::units::ChunkIndex;

/// The number of a target among those that a destination spreads a file over, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct TargetId(pub u32);

/// The place of some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// The target.
    pub target: TargetId,
    /// The offset in the file's body on that target, in bytes.
    pub offset: u64,
}

/// The rule by which a destination lays the chunks of a file over its targets: they take turns,
/// and in each body the chunks lie one after the other. With one target a file lies there whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    targets: NonZeroU32,
}

impl TargetId {
    /// The first target, and the only one of a file that is not spread.
    pub const FIRST: TargetId = TargetId(0);
}

impl Place {
    /// The place of the bytes at `offset` of a file that lies whole on one target.
    pub fn whole(offset: u64) -> Place {
        Place { target: TargetId::FIRST, offset }
    }
}

impl Layout {
    /// The layout of a destination with one target.
    pub const WHOLE: Layout = Layout { targets: NonZeroU32::MIN };

    /// The layout of a destination with so many targets.
    pub const fn over(targets: NonZeroU32) -> Layout {
        Layout { targets }
    }

    /// Whether each file lies whole on one target.
    pub const fn is_whole(self) -> bool {
        self.targets.get() == 1
    }

    /// The targets, in order.
    pub fn targets(self) -> impl Iterator<Item = TargetId> {
        (0..self.targets.get()).map(TargetId)
    }

    /// The place of a chunk.
    pub const fn place_of(self, map: ChunkMap, index: ChunkIndex) -> Place {
        let targets = self.targets.get() as u64;
        // Chunks of a file never reach beyond what an offset can hold.
        let before = ChunkIndex(index.0 / targets);
        Place { target: TargetId((index.0 % targets) as u32), offset: map.start_of(before).0 }
    }

    /// The length of a file's body on a target, in bytes: the chunks that lie there, one after the
    /// other.
    pub fn len_on(self, map: ChunkMap, target: TargetId) -> u64 {
        let (targets, first) = (u64::from(self.targets.get()), u64::from(target.0));
        let Some(rounds) = map.chunks().checked_sub(first + 1) else { return 0 };
        let last = ChunkIndex(rounds / targets * targets + first);
        self.place_of(map, last).offset + map.len_of(last).unwrap_or(0)
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ChunkSize;

    #[test]
    fn one_target_holds_a_file_whole_and_several_take_turns() {
        let map = ChunkMap::new(7 * 1024 - 1, ChunkSize::from_log2(10).expect("a size"));
        let places = |targets: u32| {
            let layout = Layout::over(NonZeroU32::new(targets).expect("some"));
            let place = |at| layout.place_of(map, ChunkIndex(at));
            (0..7).map(place).map(|place| (place.target.0, place.offset / 1024)).collect::<Vec<_>>()
        };
        assert_eq!(places(1), [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6)]);
        assert_eq!(places(3), [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)]);
    }

    #[test]
    fn a_body_is_as_long_as_the_chunks_that_lie_in_it() {
        let size = ChunkSize::from_log2(10).expect("a size");
        let lens = |targets: u32, len: u64| {
            let layout = Layout::over(NonZeroU32::new(targets).expect("some"));
            layout.targets().map(|target| layout.len_on(ChunkMap::new(len, size), target)).collect::<Vec<_>>()
        };
        assert_eq!(lens(1, 7 * 1024 - 1), [7 * 1024 - 1]);
        assert_eq!(lens(3, 7 * 1024 - 1), [3 * 1024 - 1, 2 * 1024, 2 * 1024]);
        assert_eq!(lens(3, 8 * 1024 - 1), [3 * 1024, 3 * 1024 - 1, 2 * 1024]);
        assert_eq!(lens(3, 1025), [1024, 1, 0]);
        for len in 0..9000 {
            assert_eq!(lens(4, len).iter().sum::<u64>(), len, "{len} bytes");
        }
    }
}
