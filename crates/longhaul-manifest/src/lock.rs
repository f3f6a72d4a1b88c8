//! The lock of a directory in which a manifest is written.
//!
//! In: the directory. Out: [`Lock`], which one process has at a time. It is a file that is open for
//! writing, as network file systems lock no others. Knows no content of the directory.

#![allow(clippy::disallowed_methods, reason = "a manifest is a file of its user, beside the data and no part of it")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::ManifestError;

/// A lock that is held. Its file goes with it, unless the process is killed.
pub(crate) struct Lock {
    path: PathBuf,
    /// The system unlocks it when it is closed.
    _file: File,
}

impl Lock {
    /// Takes the lock of a directory.
    ///
    /// # Errors
    /// [`ManifestError::Busy`] if another process has it.
    pub(crate) fn take(dir: &Path) -> Result<Lock, ManifestError> {
        let path = dir.join(LOCK_NAME);
        for _ in 0..TRIES {
            let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(ManifestError::file("write the lock", &path))?;
            // A file system without locks: whoever starts two at once has to know.
            if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                break;
            }
            // Whoever had it may have removed the file before it was locked here.
            if is_at(&file, &path) {
                return Ok(Lock { path, _file: file });
            }
        }
        Err(ManifestError::Busy { path: dir.to_owned() })
    }

    /// Removes the lock file of a process that was killed, if there is one and nobody has it.
    pub(crate) fn clear(dir: &Path) {
        if fs::symlink_metadata(dir.join(LOCK_NAME)).is_ok() {
            drop(Lock::take(dir));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is locked still. A file that stays is taken by the next one.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(one), Ok(other)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The name of the record of an unfinished manifest.
pub(crate) const PROGRESS_NAME: &str = "progress.lhp";
/// The name of the lock's file.
const LOCK_NAME: &str = "lock.lhp";
/// Times that a lock file may be gone as soon as it is locked.
const TRIES: usize = 16;
