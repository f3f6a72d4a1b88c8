//! Errors of this crate, and the faults that they are for people and scripts.
//!
//! In: from every module here. Out: [`ManifestError`], and its [`Fault`]. Knows no command line:
//! the program says what to do next.

use std::io;
use std::path::{Path, PathBuf};

use longhaul_core::{Blame, Escaped, Fault, FaultCode, PathError, RelPath};

use longhaul_core::checksum::Algorithm;

/// An error that ended a deed with a manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// A call of the system failed.
    #[error("cannot {doing} '{}'", shown(path))]
    File {
        /// The step that failed.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is no head of a sealed manifest.
    #[error("'{}' is no head of a sealed manifest: {flaw}", shown(path))]
    Head {
        /// The file.
        path: PathBuf,
        /// The flaw in it.
        flaw: HeadFlaw,
    },
    /// A segment is not the one that the head names, or none at all.
    #[error("the segment '{}' is damaged: {flaw}", shown(path))]
    Segment {
        /// Its file.
        path: PathBuf,
        /// The flaw in it.
        flaw: SegmentFlaw,
    },
    /// A list of another program has a line that cannot be used.
    #[error("'{}', line {line}: {flaw}", shown(path))]
    Line {
        /// The list.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The flaw in it.
        flaw: LineFlaw,
    },
    /// Items do not come in the order of their paths.
    #[error("'{}' comes out of its order", path.escaped())]
    Order {
        /// The path that came too late, or twice.
        path: RelPath,
    },
    /// An item is one that no reader would take.
    #[error("'{}' cannot be listed: {why}", path.escaped())]
    Unlistable {
        /// Its path.
        path: RelPath,
        /// The flaw in it.
        why: &'static str,
    },
    /// Two lists say different things of one name.
    #[error("two lists contradict each other on '{}': they have another {of}", path.escaped())]
    Conflict {
        /// The name.
        path: RelPath,
        /// The part that differs.
        of: &'static str,
    },
    /// There is a sealed manifest already, and one is written once.
    #[error("'{}' has a sealed manifest already", shown(path))]
    Stands {
        /// The directory.
        path: PathBuf,
    },
    /// Another process writes a manifest there.
    #[error("another process writes the manifest '{}'", shown(path))]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// An unfinished manifest was begun of another tree, or in another way.
    #[error("'{}' has an unfinished manifest, which was begun with another {of}", shown(path))]
    OtherDraft {
        /// The directory.
        path: PathBuf,
        /// The part that differs.
        of: &'static str,
    },
    /// A directory is one target of a target set, and has only a part of its files.
    #[error("'{}' is one target of a target set and has only a part of its files", shown(path))]
    OneTarget {
        /// The directory.
        path: PathBuf,
    },
    /// The manifest would lie in the very directory that it lists.
    #[error("the manifest of '{}' cannot lie in that directory itself, since it would list its own files", shown(path))]
    OutIsTree {
        /// The directory.
        path: PathBuf,
    },
    /// A manifest would have more segments than a head may name.
    #[error("the list is too long: a manifest has at most {max} segments")]
    TooMany {
        /// The most that there may be.
        max: usize,
    },
    /// A tree has more directories that are still to be listed than are held.
    #[error("there are too many directories: the names of those to come take over {max_mib} MiB")]
    TooManyDirs {
        /// Their most memory, in MiB.
        max_mib: usize,
    },
    /// A thread of the scan ended by a bug.
    #[error("a thread of the scan has ended by a bug, and the manifest was not sealed")]
    Thread,
    /// The caller asked for the end.
    #[error("it was stopped, and the same command goes on")]
    Stopped,
}

/// The flaw in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadFlaw {
    /// It is longer than any head.
    #[error("it is too long")]
    Long,
    /// It does not begin as a head of a version that this program knows.
    #[error("it does not begin with 'longhaul manifest 1'")]
    Version,
    /// A line is not as it is to be.
    #[error("line {0} is not as it is to be")]
    Line(usize),
    /// Its sums are not those of its segments.
    #[error("its sums are not those of its segments")]
    Sums,
}

/// The flaw in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentFlaw {
    /// It does not begin as a segment of a version that this program knows.
    #[error("it does not begin as a segment does")]
    Magic,
    /// It ends too early.
    #[error("it ends too early")]
    Cut,
    /// Something follows its end.
    #[error("something follows its end")]
    Trailing,
    /// A block says lengths beyond every limit.
    #[error("a block is longer than a block may be")]
    Long,
    /// A block does not unpack to its length.
    #[error("a block does not unpack to its length")]
    Packing,
    /// An item's fields are not as they are to be.
    #[error("an item is malformed")]
    Item,
    /// A path cannot be one beneath a directory.
    #[error("an item has a path that cannot be used: {0}")]
    Path(#[from] PathError),
    /// Paths do not ascend.
    #[error("its paths do not ascend")]
    Order,
    /// Its content is not the content by which it is named.
    #[error("its content has another digest than its name")]
    Digest,
    /// Its sums are not those that the head says.
    #[error("its sums are not those that the head says")]
    Sums,
}

/// The flaw in a line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFlaw {
    /// It is longer than any line may be.
    #[error("the line is too long")]
    Long,
    /// There is no checksum at its beginning, or one of another length.
    #[error("the line does not begin with a checksum in hex of the right length")]
    Checksum(Algorithm),
    /// There is no name, or it is escaped wrongly.
    #[error("the line has no name, or one that is escaped wrongly")]
    Name,
    /// The name cannot be one beneath a directory.
    #[error("{0}")]
    Path(#[from] PathError),
    /// It is no JSON object with the fields that are needed.
    #[error("the line is no JSON object with a name and, at most, a scope, a length and checksums")]
    Json,
}

impl ManifestError {
    /// An error of a call on a file.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ManifestError {
        let path = path.to_owned();
        move |source| ManifestError::File { doing, path, source }
    }

    /// The fault for people and scripts.
    pub fn fault(&self) -> Fault {
        let message = match self {
            ManifestError::File { source, .. } => format!("{self}: {}", words(source)),
            _ => self.to_string(),
        };
        let blame = if matches!(self, ManifestError::Thread) { Blame::Bug } else { Blame::Local };
        let fault = Fault::new(self.code(), blame, message);
        match self {
            ManifestError::File { path, source, .. } => fault.about(shown(path)).with_os_error(source.raw_os_error()),
            ManifestError::Head { path, .. }
            | ManifestError::Segment { path, .. }
            | ManifestError::Line { path, .. }
            | ManifestError::Stands { path }
            | ManifestError::Busy { path }
            | ManifestError::OtherDraft { path, .. }
            | ManifestError::OneTarget { path }
            | ManifestError::OutIsTree { path } => fault.about(shown(path)),
            ManifestError::Order { path }
            | ManifestError::Unlistable { path, .. }
            | ManifestError::Conflict { path, .. } => fault.about(path.escaped()),
            ManifestError::TooMany { .. }
            | ManifestError::TooManyDirs { .. }
            | ManifestError::Thread
            | ManifestError::Stopped => fault,
        }
    }

    fn code(&self) -> FaultCode {
        match self {
            ManifestError::File { source, .. } => code_of(source),
            ManifestError::Segment { .. } | ManifestError::Conflict { .. } => FaultCode::Mismatch,
            ManifestError::Busy { .. } => FaultCode::Busy,
            ManifestError::Stopped => FaultCode::Interrupted,
            ManifestError::Unlistable { .. } | ManifestError::TooManyDirs { .. } => FaultCode::Unsupported,
            ManifestError::Thread => FaultCode::Internal,
            ManifestError::Head { .. }
            | ManifestError::Line { .. }
            | ManifestError::Order { .. }
            | ManifestError::Stands { .. }
            | ManifestError::OtherDraft { .. }
            | ManifestError::OneTarget { .. }
            | ManifestError::OutIsTree { .. }
            | ManifestError::TooMany { .. } => FaultCode::Usage,
        }
    }
}

/// The code of a failed call.
pub(crate) fn code_of(error: &io::Error) -> FaultCode {
    match error.kind() {
        io::ErrorKind::NotFound => FaultCode::NotFound,
        io::ErrorKind::PermissionDenied => FaultCode::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FaultCode::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => FaultCode::ReadOnly,
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => FaultCode::InTheWay,
        io::ErrorKind::AlreadyExists => FaultCode::Exists,
        io::ErrorKind::Unsupported => FaultCode::Unsupported,
        _ => FaultCode::Io,
    }
}

/// The words of the system, without its number.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// A path for people.
pub(crate) fn shown(path: &Path) -> Escaped<'_> {
    Escaped(path.as_os_str().as_encoded_bytes())
}
