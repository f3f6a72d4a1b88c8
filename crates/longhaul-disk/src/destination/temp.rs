//! Temporary names in a directory, and the end of each: small files' names are removed with their
//! owner, large files' names stay for the session that continues them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::{RelPath, SessionTag, TempName};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, statat};
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind};
use crate::walk::{Dir, Walk};

/// A temporary name in the directory of the final one.
#[derive(Debug)]
pub(crate) struct Temp {
    dir: Arc<Dir>,
    name: [u8; longhaul_core::TEMP_NAME_BYTES],
    standing: AtomicBool,
    outlives: bool,
}

impl Temp {
    /// Makes a file or link under a fresh name of this session in `dir`, by `make`; tries again if
    /// the name is taken. Dropping it removes the name, best effort.
    pub(crate) fn make<T>(
        dir: &Arc<Dir>,
        tag: SessionTag,
        mut make: impl FnMut(&[u8]) -> Result<T, Errno>,
    ) -> Result<(Temp, T), Errno> {
        for _ in 0..TRIES_MAX {
            let mut temp = Temp::outliving(dir, &TempName::new(tag, random()?));
            match make(&temp.name) {
                Ok(made) => {
                    temp.outlives = false;
                    return Ok((temp, made));
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXIST)
    }

    /// Creates a file under a fresh name in the same way.
    pub(crate) fn create(dir: &Arc<Dir>, tag: SessionTag, mode: Mode) -> Result<(Temp, OwnedFd), Errno> {
        Temp::make(dir, tag, |name| dir.kernel().create(dir, name, OFlags::WRONLY, mode))
    }

    /// Creates a file under a name that the caller gave it, and that it keeps until it is published
    /// or discarded.
    pub(crate) fn create_named(dir: &Arc<Dir>, name: &TempName, mode: Mode) -> Result<(Temp, OwnedFd), Errno> {
        let fd = dir.kernel().create(dir, &name.file_name(), OFlags::WRONLY, mode)?;
        Ok((Temp::outliving(dir, name), fd))
    }

    /// A name that stands already, and stays when this is dropped.
    pub(crate) fn outliving(dir: &Arc<Dir>, name: &TempName) -> Temp {
        Temp { dir: Arc::clone(dir), name: name.file_name(), standing: AtomicBool::new(true), outlives: true }
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// The name in it.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether the name stands.
    pub(crate) fn stands(&self) -> bool {
        self.standing.load(Ordering::Relaxed)
    }

    /// Notes that the name stands no more (it was renamed).
    pub(crate) fn taken(&self) {
        self.standing.store(false, Ordering::Relaxed);
    }

    /// Removes the name, if it stands. Returns whether it was this call that removed it.
    pub(crate) fn discard(&self) -> bool {
        if !self.standing.swap(false, Ordering::Relaxed) {
            return false;
        }
        let removed = self.dir.kernel().unlinkat(&self.dir, self.name());
        if let Err(error) = &removed {
            tracing::warn!(name = %String::from_utf8_lossy(&self.name), %error, "cannot remove a temporary file");
        }
        removed.is_ok()
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.outlives {
            self.discard();
        }
    }
}

/// Random bytes for a name or a tag.
pub(crate) fn random() -> Result<[u8; 8], Errno> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Errno::AGAIN)?;
    Ok(random)
}

/// The number of names tried. 64 random bits within one session do not collide; a second miss means
/// that something else is wrong.
const TRIES_MAX: usize = 4;

/// The temporary of the file at `path`, as the system describes it. `None` if it does not stand.
pub(super) fn stat_of(walk: &Walk, path: &RelPath, temp: &TempName) -> Result<Option<Stat>, DiskError> {
    let dir = match walk.parent(path) {
        Ok((dir, _)) => dir,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match statat(&*dir, &temp.file_name()[..], AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(DiskError::call("examine", path, error)),
    }
}
