//! The reasons why directories are no target set, or not the one that they should be.
//!
//! Made by the opening of a set; becomes a [`DiskError`](crate::DiskError). Knows no files.

use longhaul_core::{FaultCode, Hint, hint};

use super::PathText;

/// A reason why some directories are not used as a target set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// Two targets are one file system.
    #[error(
        "targets '{first}' and '{second}' lie on the same file system: together they are no faster than one, and fail \
         together"
    )]
    SameDevice {
        /// The first target.
        first: PathText,
        /// The second target.
        second: PathText,
    },
    /// A directory is named twice.
    #[error("target '{dir}' is named twice")]
    NamedTwice {
        /// The directory.
        dir: PathText,
    },
    /// A target cannot be written to.
    #[error("target '{dir}' is not writable: {why}")]
    NotWritable {
        /// The target.
        dir: PathText,
        /// The system's reason.
        why: String,
    },
    /// A mark belongs to another set.
    #[error(
        "target '{dir}' belongs to another set ({theirs}, not {ours}): another disk is mounted there, or the directory was named \
         by mistake"
    )]
    OtherSet {
        /// The target.
        dir: PathText,
        /// The set that its mark names.
        theirs: String,
        /// The set of the other targets.
        ours: String,
    },
    /// A target has another number than its place says.
    #[error(
        "target '{dir}' is target {number} of its set and is named as target {place}: disks are mounted in each other's place, or \
         the targets are named in another order than before"
    )]
    OtherPlace {
        /// The target.
        dir: PathText,
        /// The number in its mark.
        number: u32,
        /// Its place among the directories that were named.
        place: u32,
    },
    /// The set has another number of targets.
    #[error("the set of target '{dir}' has {count} targets, and {named} are named: name all of them, in their order")]
    OtherCount {
        /// A target of it.
        dir: PathText,
        /// The number in its mark.
        count: u32,
        /// The directories that were named.
        named: u32,
    },
    /// Marks of one set differ in what they say of it.
    #[error(
        "targets '{first}' and '{second}' say different things of their set (generations {one} and {other}): a change of its targets was \
         interrupted, or one of them was away while the set was changed"
    )]
    Generations {
        /// A target.
        first: PathText,
        /// Another one.
        second: PathText,
        /// The generation in the first mark.
        one: u64,
        /// The generation in the other mark.
        other: u64,
    },
    /// A target is missing, and the set may not be used without it.
    #[error("target '{dir}' is missing: {why}")]
    Missing {
        /// The target.
        dir: PathText,
        /// The reason.
        why: String,
    },
    /// A target is missing, and the set may not be changed without it.
    #[error("target '{dir}' is missing ({why}), and the set is only changed with all of its targets")]
    Absent {
        /// The target.
        dir: PathText,
        /// The reason.
        why: String,
    },
    /// A name or a part of a tree may lie on a target that is missing.
    #[error("target {number} of the set is missing, and what lies there with it")]
    Away {
        /// The number of the target.
        number: u32,
    },
    /// A target lies in another one.
    #[error("target '{inner}' lies in target '{outer}': its files would stand twice")]
    Nested {
        /// The target that lies in the other.
        inner: PathText,
        /// The other.
        outer: PathText,
    },
    /// Marks cannot be made, as names stand already where only the first target may have some.
    #[error(
        "target '{dir}' has no mark and is not empty ('{name}' stands in it): only the first target of a new set may be a tree that \
         stands already"
    )]
    NotEmpty {
        /// The target.
        dir: PathText,
        /// A name in it.
        name: PathText,
    },
    /// A set cannot be made where the secret of another one lies.
    #[error(
        "target '{dir}' has the secret of a set already: another process is making the set, or its bodies belong to a set whose \
         marks were lost"
    )]
    HasSecret {
        /// The target.
        dir: PathText,
    },
    /// A mark that is none.
    #[error("the mark of target '{dir}' cannot be read: {why}")]
    BadMark {
        /// The target.
        dir: PathText,
        /// The respect in which it is wrong.
        why: &'static str,
    },
    /// No mark stands on any target, and none may be made now.
    #[error("'{dir}' is no target of a set: it has no mark")]
    NoSet {
        /// The directory.
        dir: PathText,
    },
    /// A set has at least two targets and at most 1024.
    #[error("a set has 2 to {max} targets, not {count}")]
    Count {
        /// The number that was named.
        count: usize,
        /// The most.
        max: usize,
    },
    /// A striped file cannot be read as its stripe file says.
    #[error("the striped file '{path}' cannot be read: {why}")]
    Striped {
        /// The file.
        path: PathText,
        /// The reason.
        why: String,
    },
    /// A plain file has the bytes of a stripe file of the set that it would go to.
    #[error("'{path}' is a copy of a stripe file of this very set: it has no content of its own")]
    Copy {
        /// The file.
        path: PathText,
    },
    /// A chunk of a striped file is not what was written.
    #[error("chunk {chunk} of the striped file '{path}' is not what was written: it lies on target {target}")]
    Damaged {
        /// The file.
        path: PathText,
        /// The number of the chunk.
        chunk: u64,
        /// The number of its target.
        target: u32,
    },
    /// The secret of a set is not what it has to be.
    #[error("the secret of target '{dir}', by which striped files are believed, cannot be used: {why}")]
    BadSecret {
        /// The target.
        dir: PathText,
        /// The respect in which it is wrong.
        why: String,
    },
    /// A target failed or is full, and another one can take what was to go there.
    #[error("target {number} of the set takes nothing more ({why}): other targets take what was to go there")]
    Elsewhere {
        /// The number of the target.
        number: u32,
        /// The error that showed it.
        why: String,
    },
    /// Something can only go to a target that failed.
    #[error("it stands on target {number} of the set, which failed ({why})")]
    Down {
        /// The number of the target.
        number: u32,
        /// The error that showed it.
        why: String,
    },
    /// Somebody uses a set that is to be changed.
    #[error("the set of target '{dir}' is in use: a daemon serves it, or another command reads or writes it")]
    InUse {
        /// A target of it.
        dir: PathText,
    },
    /// Somebody changes a set that is to be used.
    #[error("the set of target '{dir}' is being changed by another command")]
    Changing {
        /// A target of it.
        dir: PathText,
    },
    /// Somebody verifies a set.
    #[error("another command is verifying the set of target '{dir}'")]
    Verifying {
        /// The first target of it.
        dir: PathText,
    },
    /// A target that should be lost is there.
    #[error(
        "target '{dir}' is there and can be read: what lies on it is copied when it is replaced as one that is not lost"
    )]
    Present {
        /// The target.
        dir: PathText,
    },
    /// A directory that is to become a target has been one of the same set.
    #[error("'{dir}' has a mark of this very set, of another time: it was a target, or was to be one")]
    Former {
        /// The directory.
        dir: PathText,
    },
    /// A target is not the one that stood at a place.
    #[error("'{dir}' is the target of this set that stood at '{place}', not at '{named}'")]
    OtherTarget {
        /// The directory.
        dir: PathText,
        /// The place in its mark.
        place: PathText,
        /// The place that was named.
        named: PathText,
    },
    /// No target of the set has this place.
    #[error("the set has no target at '{dir}'")]
    NoTarget {
        /// The place.
        dir: PathText,
    },
    /// Only the last target of a set can be taken from it.
    #[error(
        "target '{dir}' is number {number} of {count}: only the last target can be taken from a set, as striped files name the others by their numbers"
    )]
    NotLast {
        /// The target.
        dir: PathText,
        /// Its number.
        number: u32,
        /// The number of targets.
        count: u32,
    },
    /// A file that is to go to another target would not be the same there.
    #[error("'{path}' stays on its target: {why}")]
    Stays {
        /// The file.
        path: PathText,
        /// The reason.
        why: &'static str,
    },
    /// The copy of a file on another target is not what was written.
    #[error("the copy of '{path}' on target {target} is not what was written, and was removed")]
    Differs {
        /// The file.
        path: PathText,
        /// The number of the target.
        target: u32,
    },
    /// A target that is to leave the set still holds something.
    #[error("target '{dir}' is not empty: '{name}' stands in it")]
    Holds {
        /// The target.
        dir: PathText,
        /// A name in it.
        name: PathText,
    },
    /// A new name would go to a set of which a target is missing.
    #[error("no new name is given to the set while its target {number} is missing, which may hold the same name")]
    ReadOnly {
        /// The number of the missing target.
        number: u32,
    },
}

impl SetError {
    /// The code of its fault.
    pub(super) fn code(&self) -> FaultCode {
        match self {
            SetError::Damaged { .. } | SetError::Differs { .. } => FaultCode::Mismatch,
            SetError::Elsewhere { .. } => FaultCode::TargetFailed,
            SetError::Down { .. } => FaultCode::Io,
            _ => FaultCode::Unsupported,
        }
    }

    /// The hint what to do about it.
    pub(super) fn hint(&self) -> Option<Hint> {
        match self {
            SetError::SameDevice { .. } => Some(hint::Storage::NameOtherDisks.into()),
            SetError::Away { .. } | SetError::Absent { .. } => Some(hint::Storage::MountMissing.into()),
            SetError::Missing { .. } => Some(hint::Storage::MountTarget.into()),
            SetError::ReadOnly { .. } => Some(hint::Storage::MountTargetOrTakeNames.into()),
            SetError::Elsewhere { .. } | SetError::Down { .. } => Some(hint::Storage::SeeKernelLog.into()),
            SetError::Generations { .. } => Some(hint::Storage::RepeatChange.into()),
            SetError::InUse { .. } => Some(hint::Storage::StopUsers.into()),
            SetError::Changing { .. } => Some(hint::Storage::WaitForChange.into()),
            SetError::Former { .. } => Some(hint::Storage::RemoveOldMark.into()),
            SetError::NotLast { .. } | SetError::Holds { .. } => Some(hint::Storage::DrainFirst.into()),
            SetError::NoSet { .. } => Some(hint::Storage::MakeSet.into()),
            _ => None,
        }
    }
}
