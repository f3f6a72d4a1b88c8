//! Errors at a disk: call, path and reason, with the system's own error kept as the source.
//!
//! Gives [`DiskError`] to the engine, and through [`DiskError::fault`] the form that people and
//! peers get.

mod claims;
mod path;
mod set;

use std::io;

use longhaul_core::{Blame, Fault, FaultCode, Hint, PathError, hint};
use rustix::io::Errno;

pub use claims::ClaimsError;
pub use path::PathText;
pub use set::SetError;

/// A failure at the disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// A system call failed.
    #[error("cannot {call} '{path}'")]
    Call {
        /// The attempted call, as a verb.
        call: &'static str,
        /// The path concerned.
        path: PathText,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The source has changed since it was scanned or opened.
    #[error("'{path}' changed: {how}")]
    Changed {
        /// The source.
        path: PathText,
        /// The respect in which it changed.
        how: &'static str,
    },
    /// The source was scanned but is gone.
    #[error("'{path}' went away")]
    Vanished {
        /// The source.
        path: PathText,
    },
    /// A symbolic link stands where a file or directory must; it is never followed.
    #[error("'{path}' is a symbolic link, which is not followed")]
    Escape {
        /// The link.
        path: PathText,
    },
    /// A symbolic link that the operator of the tree does not let in.
    #[error("'{path}' is not made as a symbolic link to '{target}': {why}")]
    LinkRefused {
        /// The link.
        path: PathText,
        /// Its target.
        target: PathText,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// It is more than the operator of the tree lets be stored.
    #[error("'{path}' is not taken: {why}")]
    OutOfBounds {
        /// The name.
        path: PathText,
        /// The bound that stands in the way.
        why: String,
    },
    /// The name is taken, by something that may not be replaced.
    #[error("'{path}' exists: {what}")]
    Exists {
        /// The name.
        path: PathText,
        /// The kind of thing that stands there.
        what: &'static str,
    },
    /// Nothing stood under the name when it was looked at, and something does now.
    #[error(
        "'{path}' was free and is taken now: something of this name appeared while it was received, or the destination does \
         not tell upper from lower case"
    )]
    Appeared {
        /// The name.
        path: PathText,
    },
    /// The file stands there under another spelling of its name, put there by the same session.
    #[error(
        "'{path}' is spelled otherwise where it stands, which the file system of the destination takes for the same name: it was \
         sent there a moment ago and is not replaced"
    )]
    OtherSpelling {
        /// The name.
        path: PathText,
    },
    /// Another spelling of a name of ours leads to it as well.
    #[error("'{path}' leads to longhaul's own files here: this file system does not keep such names apart")]
    Alias {
        /// The other spelling.
        path: PathText,
    },
    /// The file system can give a name only by replacing what may stand there.
    #[error(
        "cannot publish '{path}' without the risk of replacing something: its file system has neither renames that replace \
         nothing nor hard links"
    )]
    OnlyReplaces {
        /// The name.
        path: PathText,
    },
    /// A directory is not at its path any more, and the files put into it are still in it.
    #[error(
        "'{path}' was moved away, replaced or mounted over while files were put into it: what was written is not under this \
         path"
    )]
    Moved {
        /// The directory.
        path: PathText,
    },
    /// Something that is no directory stands where one must.
    #[error("'{path}' is not a directory")]
    NotADirectory {
        /// The name.
        path: PathText,
    },
    /// The content of a source was asked for, and it is no directory.
    #[error("'{path}' is not a directory")]
    NoContents {
        /// The source.
        path: PathText,
    },
    /// It is not a regular file, where only one will do.
    #[error("'{path}' is not a regular file")]
    NotAFile {
        /// The name.
        path: PathText,
    },
    /// It is another user's, or one may write to it, where only our own files are believed.
    #[error("'{path}' belongs to another user, or other users may write to it")]
    Foreign {
        /// The name.
        path: PathText,
    },
    /// Another process is writing to it.
    #[error("'{path}' is being written by another transfer")]
    InUse {
        /// The name.
        path: PathText,
    },
    /// The journal had a failed write or sync before: nothing more is written to it.
    #[error("'{path}' was abandoned after a failure")]
    Abandoned {
        /// The journal.
        path: PathText,
    },
    /// Another sync failed at the same time as its own, and that failure may be of its data.
    #[error("'{path}' is not believed to be on the disk: the disk failed to write something at the same time")]
    Doubted {
        /// The file.
        path: PathText,
    },
    /// A name that cannot travel.
    #[error("cannot take '{path}'")]
    Name {
        /// The name.
        path: PathText,
        /// The reason.
        #[source]
        source: PathError,
    },
    /// Directories nested deeper than a scan goes.
    #[error("'{path}' lies deeper than {limit} directories")]
    TooDeep {
        /// The directory that was not entered.
        path: PathText,
        /// The number of levels that a scan enters.
        limit: usize,
    },
    /// Direct I/O was required and cannot be had.
    #[error("no direct I/O on '{path}': {why}")]
    NoDirect {
        /// The file.
        path: PathText,
        /// The reason why it cannot be had.
        why: &'static str,
    },
    /// A request beyond the file's length or the slot.
    #[error("no {len} bytes at {offset} of '{path}'")]
    Bounds {
        /// The file.
        path: PathText,
        /// The offset where the request starts, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: usize,
    },
    /// A name stands on two targets of a set, which does not guess which of them is meant.
    #[error("'{path}' stands on two targets of the set, {first} and {second}: {what}")]
    TwoTargets {
        /// The name.
        path: PathText,
        /// The number of one target.
        first: u32,
        /// The number of the other.
        second: u32,
        /// The kind of conflict.
        what: &'static str,
    },
    /// Directories are not the target set that they should be.
    #[error(transparent)]
    Set(#[from] SetError),
    /// Claims on shards cannot be looked at or kept.
    #[error(transparent)]
    Claims(#[from] ClaimsError),
    /// The I/O engine cannot be started.
    #[error("cannot start the {engine} engine")]
    Engine {
        /// The engine's name.
        engine: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The meaning of a [`DiskError`] to the code that decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such name.
    NotFound,
    /// Permissions forbid it.
    Denied,
    /// No space, inodes or quota.
    NoSpace,
    /// Mounted read-only.
    ReadOnly,
    /// The device failed, or nothing more specific is known.
    Io,
    /// The name is taken.
    Exists,
    /// Something else stands where a directory must.
    NotADirectory,
    /// The source changed.
    Changed,
    /// The source went away.
    Vanished,
    /// A symlink stands in the way.
    Escape,
    /// This file system or kernel cannot do it.
    Unsupported,
    /// A name, a path or a file is longer than it may be.
    TooLong,
    /// This process, or the whole host, has as many files open as it may.
    Exhausted,
    /// A request that contradicts the file: a bug above.
    Bounds,
    /// Another transfer is writing to it.
    InUse,
    /// The file system can give a name only by replacing what may stand there.
    OnlyReplaces,
    /// A directory is not at its path any more.
    Moved,
    /// The operator of the tree does not let such a link in.
    LinkRefused,
    /// This file system takes other names for our reserved ones.
    Alias,
    /// A name stands on two targets of a set.
    TwoTargets,
    /// Directories are not the target set that they should be, or a target is missing.
    Set,
    /// Claims on shards cannot be looked at or kept.
    Claims,
}

impl From<DiskError> for Fault {
    fn from(error: DiskError) -> Fault {
        error.fault()
    }
}

/// The path in an error, borrowed as the error is. `None` if there is none.
macro_rules! path_of {
    ($error:expr) => {
        match $error {
            DiskError::Call { path, .. }
            | DiskError::Changed { path, .. }
            | DiskError::Vanished { path }
            | DiskError::Escape { path }
            | DiskError::LinkRefused { path, .. }
            | DiskError::OutOfBounds { path, .. }
            | DiskError::Exists { path, .. }
            | DiskError::Appeared { path }
            | DiskError::OtherSpelling { path }
            | DiskError::Alias { path }
            | DiskError::OnlyReplaces { path }
            | DiskError::Moved { path }
            | DiskError::NotADirectory { path }
            | DiskError::NoContents { path }
            | DiskError::NotAFile { path }
            | DiskError::Name { path, .. }
            | DiskError::TooDeep { path, .. }
            | DiskError::NoDirect { path, .. }
            | DiskError::Foreign { path }
            | DiskError::InUse { path }
            | DiskError::Abandoned { path }
            | DiskError::Doubted { path }
            | DiskError::TwoTargets { path, .. }
            | DiskError::Bounds { path, .. } => Some(path),
            DiskError::Engine { .. } | DiskError::Set(_) | DiskError::Claims(_) => None,
        }
    };
}

impl DiskError {
    /// The error of a failed call on a path.
    pub(crate) fn call(call: &'static str, path: impl Into<PathText>, source: impl Into<io::Error>) -> DiskError {
        DiskError::Call { call, path: path.into(), source: source.into() }
    }

    /// The same at a source, where a stale handle means that the file is gone; not so at a target.
    pub(crate) fn at_source(self) -> DiskError {
        match self {
            DiskError::Call { path, source, .. } if source.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {
                DiskError::Vanished { path }
            }
            DiskError::Call { path, source, .. } if source.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()) => {
                DiskError::NoContents { path }
            }
            DiskError::NotADirectory { path } => DiskError::NoContents { path },
            other => other,
        }
    }

    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            DiskError::Call { source, .. } | DiskError::Engine { source, .. } => kind_of(source),
            DiskError::Changed { .. } => ErrorKind::Changed,
            DiskError::Vanished { .. } => ErrorKind::Vanished,
            DiskError::Escape { .. } => ErrorKind::Escape,
            DiskError::Exists { .. } | DiskError::Appeared { .. } | DiskError::OtherSpelling { .. } => {
                ErrorKind::Exists
            }
            DiskError::Alias { .. } => ErrorKind::Alias,
            DiskError::OutOfBounds { .. } => ErrorKind::NoSpace,
            DiskError::TwoTargets { .. } => ErrorKind::TwoTargets,
            DiskError::Set(_) => ErrorKind::Set,
            DiskError::Claims(_) => ErrorKind::Claims,
            DiskError::OnlyReplaces { .. } => ErrorKind::OnlyReplaces,
            DiskError::Moved { .. } => ErrorKind::Moved,
            DiskError::LinkRefused { .. } => ErrorKind::LinkRefused,
            DiskError::NotADirectory { .. } | DiskError::NoContents { .. } => ErrorKind::NotADirectory,
            DiskError::Name { .. } | DiskError::TooDeep { .. } => ErrorKind::TooLong,
            DiskError::NotAFile { .. } | DiskError::NoDirect { .. } => ErrorKind::Unsupported,
            DiskError::Bounds { .. } => ErrorKind::Bounds,
            DiskError::Foreign { .. } => ErrorKind::Denied,
            DiskError::InUse { .. } => ErrorKind::InUse,
            DiskError::Abandoned { .. } | DiskError::Doubted { .. } => ErrorKind::Io,
        }
    }

    /// The path it concerns, if any.
    pub fn path(&self) -> Option<&PathText> {
        path_of!(self)
    }

    /// The same error with its path beneath `prefix`, as users know it; an empty one adds nothing.
    #[must_use]
    pub(crate) fn beneath(mut self, prefix: &[u8]) -> DiskError {
        if let Some(path) = self.path_mut() {
            *path = path.beneath(prefix);
        }
        self
    }

    fn path_mut(&mut self) -> Option<&mut PathText> {
        path_of!(self)
    }

    /// The form that people and peers get.
    pub fn fault(&self) -> Fault {
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(source) = cause {
            message = format!("{message}: {source}");
            cause = source.source();
        }
        let (code, hint) = self.meaning();
        let blame = if code == FaultCode::Internal { Blame::Bug } else { Blame::Local };
        let call = std::error::Error::source(self).and_then(|source| source.downcast_ref::<io::Error>());
        let fault = Fault::new(code, blame, message).with_os_error(call.and_then(io::Error::raw_os_error));
        let path = match self {
            DiskError::Claims(error) => error.path(),
            _ => self.path(),
        };
        Fault { hint, ..path.map_or(fault.clone(), |path| fault.about(path)) }
    }

    /// The code of this error and the hint what to do about it.
    fn meaning(&self) -> (FaultCode, Option<Hint>) {
        let (code, hint): (_, Hint) = match self {
            DiskError::OtherSpelling { .. } => (FaultCode::Exists, hint::Names::RenameOneOfTwo.into()),
            DiskError::Appeared { .. } => (FaultCode::Exists, hint::Names::SeeWhatStands.into()),
            DiskError::Call { source, .. } | DiskError::Engine { source, .. } if is_full_host(source) => {
                (FaultCode::Exhausted, hint::Storage::RaiseOpenFilesOfHost.into())
            }
            // The limit of the process that writes: of a daemon, or of this command.
            DiskError::Call { source, .. } if is_too_large(source) && longhaul_sys::file_size_limit().is_some() => {
                (FaultCode::Unsupported, hint::Storage::RaiseFileSize.into())
            }
            DiskError::Call { source, .. } if is_too_large(source) => {
                (FaultCode::Unsupported, hint::Storage::TakeLargerFiles.into())
            }
            DiskError::NoContents { .. } => (FaultCode::InTheWay, hint::Names::SendFileItself.into()),
            DiskError::OutOfBounds { .. } => (FaultCode::NoSpace, hint::Storage::AskForRoom.into()),
            DiskError::TwoTargets { .. } => (FaultCode::InTheWay, hint::Names::SeeBothTargets.into()),
            DiskError::Set(error) => return (error.code(), error.hint()),
            DiskError::Claims(error) => (error.code(), error.hint()),
            _ => return (self.kind().code(), self.kind().hint()),
        };
        (code, Some(hint))
    }
}

impl ErrorKind {
    fn code(self) -> FaultCode {
        match self {
            ErrorKind::NotFound => FaultCode::NotFound,
            ErrorKind::Denied | ErrorKind::LinkRefused => FaultCode::Denied,
            ErrorKind::NoSpace => FaultCode::NoSpace,
            ErrorKind::ReadOnly => FaultCode::ReadOnly,
            ErrorKind::Io => FaultCode::Io,
            ErrorKind::Exists => FaultCode::Exists,
            ErrorKind::NotADirectory | ErrorKind::Escape | ErrorKind::Moved | ErrorKind::TwoTargets => {
                FaultCode::InTheWay
            }
            ErrorKind::Changed => FaultCode::Changed,
            ErrorKind::Vanished => FaultCode::Vanished,
            ErrorKind::Unsupported
            | ErrorKind::TooLong
            | ErrorKind::Alias
            | ErrorKind::OnlyReplaces
            | ErrorKind::Claims
            | ErrorKind::Set => FaultCode::Unsupported,
            ErrorKind::Exhausted => FaultCode::Exhausted,
            ErrorKind::Bounds => FaultCode::Internal,
            ErrorKind::InUse => FaultCode::Busy,
        }
    }

    fn hint(self) -> Option<Hint> {
        Some(match self {
            ErrorKind::NotFound
            | ErrorKind::Exists
            | ErrorKind::Vanished
            | ErrorKind::TooLong
            | ErrorKind::TwoTargets
            | ErrorKind::Claims
            | ErrorKind::Set => return None,
            ErrorKind::Denied => hint::Storage::CheckPermissions.into(),
            ErrorKind::NoSpace => hint::Storage::FreeSpace.into(),
            ErrorKind::ReadOnly => hint::Storage::MountForWriting.into(),
            ErrorKind::Io => hint::Storage::SeeKernelLog.into(),
            ErrorKind::NotADirectory => hint::Names::MoveAside.into(),
            ErrorKind::Changed => hint::Again::Undisturbed.into(),
            ErrorKind::Escape => hint::Names::NameRealDirectory.into(),
            ErrorKind::Unsupported => hint::Storage::UseBuffered.into(),
            ErrorKind::Exhausted => hint::Storage::RaiseOpenFiles.into(),
            ErrorKind::Bounds => hint::Program::Report.into(),
            ErrorKind::InUse => hint::Again::AfterThatTransfer.into(),
            ErrorKind::Moved => hint::Names::SeeWhereItWent.into(),
            ErrorKind::Alias => hint::Storage::TellNamesApart.into(),
            ErrorKind::LinkRefused => hint::Names::LeaveLinksOut.into(),
            ErrorKind::OnlyReplaces => hint::Names::AllowReplacing.into(),
        })
    }
}

/// Whether the whole host has too many files open, which no limit of one process mends.
fn is_full_host(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NFILE.raw_os_error())
}

/// Whether a file would be longer than its file system or the process's limit allows.
fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::FBIG.raw_os_error())
}

fn kind_of(error: &io::Error) -> ErrorKind {
    let Some(errno) = error.raw_os_error().map(Errno::from_raw_os_error) else {
        return ErrorKind::Io;
    };
    match errno {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::ACCESS | Errno::PERM => ErrorKind::Denied,
        Errno::NOSPC | Errno::DQUOT => ErrorKind::NoSpace,
        Errno::ROFS => ErrorKind::ReadOnly,
        Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR => ErrorKind::Exists,
        Errno::NOTDIR => ErrorKind::NotADirectory,
        Errno::LOOP => ErrorKind::Escape,
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV => ErrorKind::Unsupported,
        Errno::NAMETOOLONG | Errno::FBIG => ErrorKind::TooLong,
        // Not ENOMEM: some file systems return it for one file each time, and not for the next.
        Errno::MFILE | Errno::NFILE => ErrorKind::Exhausted,
        _ => ErrorKind::Io,
    }
}

#[cfg(test)]
mod tests;
