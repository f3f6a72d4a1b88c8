//! The directory of a measurement's files: a new one on the disk to measure, removed at the end.
//!
//! In: a directory. Out: paths for the engine. Makes and removes files only in its own directory.
//! Knows no runs.

#![allow(
    clippy::disallowed_methods,
    reason = "measurements make and remove files of their own, in a directory of their own"
)]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use longhaul_core::{Blame, ByteCount, Fault, FaultCode};
use rustix::fs::{Advice, fadvise, statvfs, syncfs};
use tempfile::TempDir;

use crate::error::Error;

/// The directory. It is removed with its content when it is dropped.
pub(super) struct Ground {
    dir: TempDir,
}

impl Ground {
    /// Makes it in `dir`, on whose disk twice `bytes` must be free.
    ///
    /// # Errors
    /// [`Error::Fault`] if that much is not free, or there is no such directory.
    pub(super) fn new(dir: &Path, bytes: ByteCount) -> Result<Ground, Error> {
        let failed = |doing| move |source: io::Error| at(dir, doing, source);
        let stat = statvfs(dir).map_err(|e| failed("look at")(e.into()))?;
        let free = ByteCount(stat.f_bavail.saturating_mul(stat.f_frsize));
        let needed = ByteCount(bytes.get().saturating_mul(2).saturating_add(SPARE));
        if free < needed {
            let message = format!("{} has {free} free, and {needed} are needed", dir.display());
            return Err(Fault::new(FaultCode::NoSpace, Blame::Local, message)
                .hint_in_words("measure with fewer --bytes, or another --dir")
                .into());
        }
        let dir = tempfile::Builder::new().prefix("longhaul-bench-").tempdir_in(dir);
        Ok(Ground { dir: dir.map_err(failed("make a directory in"))? })
    }

    /// The path of the file to read.
    pub(super) fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    /// A directory to write to, which does not stand yet.
    pub(super) fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    /// Removes the files that were written there, and waits until the file system is done with it.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn clear(&self) -> Result<(), Error> {
        let target = self.target();
        match fs::remove_dir_all(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&target, "remove", error)),
            _ => {}
        }
        let dir = File::open(self.dir.path()).map_err(|e| at(self.dir.path(), "open", e))?;
        syncfs(&dir).map_err(|e| at(self.dir.path(), "sync", e.into()))
    }

    /// Drops the pages of a file from the cache, as far as the system does so.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn cool(&self, path: &Path) -> Result<(), Error> {
        let failed = |doing| move |error| at(path, doing, error);
        let file = File::open(path).map_err(failed("open"))?;
        file.sync_all().map_err(failed("sync"))?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| failed("take out of the cache")(e.into()))
    }

    /// Removes the directory and all files in it.
    ///
    /// # Errors
    /// The system's error: then some files are left.
    pub(super) fn remove(self) -> Result<(), Error> {
        let path = self.dir.path().to_owned();
        self.dir.close().map_err(|e| at(&path, "remove", e))
    }
}

fn at(path: &Path, doing: &str, source: io::Error) -> Error {
    let code = match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FaultCode::NotFound,
        io::ErrorKind::PermissionDenied => FaultCode::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FaultCode::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => FaultCode::ReadOnly,
        _ => FaultCode::Io,
    };
    Fault::new(code, Blame::Local, format_args!("cannot {doing} {}: {source}", path.display())).into()
}

/// Bytes that must be free besides, for journals, directories and other programs on the disk.
const SPARE: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_or_is_not_there_is_said_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let code = |dir: &Path, bytes| Ground::new(dir, ByteCount(bytes)).map(|_| ()).map_err(|e| Fault::from(e).code);
        assert_eq!(code(dir.path(), 1 << 60), Err(FaultCode::NoSpace));
        assert_eq!(code(&dir.path().join("no"), 1 << 20), Err(FaultCode::NotFound));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_left_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let ground = Ground::new(dir.path(), ByteCount(1 << 20)).unwrap();
        fs::create_dir_all(ground.target().join("a/b")).unwrap();
        fs::write(ground.source(), "x").unwrap();
        ground.cool(&ground.source()).unwrap();
        ground.clear().unwrap();
        assert!(!ground.target().exists() && ground.source().exists());
        ground.clear().unwrap();
        drop(ground);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
