//! Where bytes of a file lie at the destination: on which of its targets, and at which offset
//! there.
//!
//! The engine computes a [`Place`] for each chunk; the disk writes and reads by it. No journal
//! records it: a file that may be continued lies on target 0 alone. Knows nothing of directories
//! and devices.

/// The number of a target among those that a destination spreads a file over, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TargetId(pub u32);

/// The place of some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// The target.
    pub target: TargetId,
    /// The offset in the file's body on that target, in bytes.
    pub offset: u64,
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
