//! The lock of a set: whoever uses the set holds it shared, whoever changes its targets or moves
//! its files holds it alone.
//!
//! In: the tops of targets. Out: open files, which hold the lock of `.longhaul-set/lock` on each
//! target as long as they are open. Any user may hold it shared; to hold it alone one must be
//! allowed to write to the file, so that no other user keeps a set from being used. Where a file
//! system has no locks, or the file is missing and may not be made, a set is used without one. It
//! is never changed without. Knows nothing of marks.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use longhaul_sys::lock;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::error::{DiskError, PathText, SetError};
use crate::set::mark::{LOCK_NAME, made_own_dir, own_dir};
use crate::shelf::has_no_locks;
use crate::walk::Dir;

/// Whether the file of the lock may be made where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockFile {
    /// It may.
    Made,
    /// It may not.
    Found,
}

/// Holds the lock of the target at `root`, which `dir` names, beside others who use the set.
/// `None`: it has none that this user may hold.
pub(super) fn share(root: &Dir, dir: &PathText, file: LockFile) -> Result<Option<OwnedFd>, DiskError> {
    let failed = |error: Errno| DiskError::call("lock", dir, error);
    let fd = match opened(root, OFlags::RDONLY) {
        Ok(fd) => fd,
        Err(Errno::NOENT) if file == LockFile::Made => match opened(root, OFlags::RDWR | OFlags::CREATE) {
            Ok(fd) => fd,
            Err(_) => return Ok(None),
        },
        Err(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    match patiently(|| lock::try_share(&fd)) {
        Ok(true) => Ok(Some(fd)),
        Ok(false) => Err(SetError::Changing { dir: dir.clone() }.into()),
        Err(error) if has_no_locks(&error) => Ok(None),
        Err(error) => Err(DiskError::call("lock", dir, error)),
    }
}

/// Holds the lock of the target at `root`, which `dir` names, alone.
pub(super) fn hold(root: &Dir, dir: &PathText) -> Result<OwnedFd, DiskError> {
    try_hold(root, dir)?.map_err(|error| DiskError::call("lock", dir, error))
}

/// The same where there may be no locks, which is the inner error.
pub(super) fn try_hold(root: &Dir, dir: &PathText) -> Result<io::Result<OwnedFd>, DiskError> {
    let fd = opened(root, OFlags::RDWR).or_else(|error| match error {
        Errno::NOENT => opened(root, OFlags::RDWR | OFlags::CREATE),
        error => Err(error),
    });
    let fd = fd.map_err(|error| DiskError::call("open the lock of", dir, error))?;
    match patiently(|| lock::try_lock(&fd)) {
        Ok(true) => Ok(Ok(fd)),
        Ok(false) => Err(SetError::InUse { dir: dir.clone() }.into()),
        Err(error) if has_no_locks(&error) => Ok(Err(error)),
        Err(error) => Err(DiskError::call("lock", dir, error)),
    }
}

/// Tries to lock until that succeeds or fails, and some times more while another one holds the
/// lock. Returns whether it is held.
pub(super) fn patiently(mut try_it: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES_MAX {
        if try_it()? {
            return Ok(true);
        }
        thread::sleep(TRY_AGAIN);
    }
    Ok(false)
}

/// Makes the file of the lock of the target at `root`, if it is missing.
pub(super) fn make(root: &Dir) -> Result<(), Errno> {
    made_own_dir(root)?;
    opened(root, OFlags::RDWR | OFlags::CREATE).map(drop)
}

fn opened(root: &Dir, flags: OFlags) -> Result<OwnedFd, Errno> {
    let own = own_dir(root)?.ok_or(Errno::NOENT)?;
    if flags.contains(OFlags::CREATE) {
        let made = root.kernel().create(&own, LOCK_NAME, OFlags::RDWR, Mode::from_raw_mode(0o644));
        if !matches!(made, Err(Errno::EXIST)) {
            return made;
        }
    }
    openat(
        &own,
        LOCK_NAME,
        (flags - OFlags::CREATE) | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// A command that has just ended may still be letting go, and so may a child of this process that
/// has yet to become the program it was started for.
const LOCK_TRIES_MAX: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(25);
