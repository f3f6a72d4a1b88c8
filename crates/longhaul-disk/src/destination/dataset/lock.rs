//! The lock of a holder: one session has it alone, or all those that stage shards of one campaign.
//!
//! In: the directory in which a dataset shall appear, and the name of its holder. Out: the holder,
//! locked, or nothing if another session has it. Must not know what lies in the holder.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_sys::lock;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::DatasetError;
use super::holder::LOCK;
use crate::error::{DiskError, PathText};
use crate::shelf::has_no_locks;
use crate::stat::place_of;
use crate::walk::Dir;

/// How a session has the lock of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HolderLock {
    /// Nobody else has it.
    Alone,
    /// Other sessions of the same campaign may have it too.
    Beside,
}

/// A holder that is locked.
pub(super) struct Taken {
    /// The holder.
    pub(super) dir: Arc<Dir>,
    /// Its lock, which ends with it.
    pub(super) lock: OwnedFd,
    /// How it is held.
    pub(super) hold: HolderLock,
}

/// The holder of this name, made if it is missing, and its lock. `None` if another session has it,
/// or has just removed it.
pub(super) fn lock_in(
    (parent, own): (&Dir, &[u8]),
    shown: &PathText,
    hold: HolderLock,
) -> Result<Option<Taken>, DatasetError> {
    let failed = |call| move |error: Errno| DatasetError::from(DiskError::call(call, shown, error));
    match parent.kernel().mkdirat(parent, own, Mode::RWXU) {
        Ok(()) => parent.sync().map_err(failed("sync the directory of"))?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(failed("stage")(error)),
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = match openat(parent, own, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        outcome => outcome.map_err(failed("open what is staged of"))?,
    };
    let stat = fstat(&fd).map_err(failed("examine what is staged of"))?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(DiskError::Foreign { path: shown.clone() }.into());
    }
    let dir = Dir::of(fd, parent.kernel(), shown)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(&dir, LOCK, flags, Mode::empty()) {
        Err(Errno::NOENT) => dir.kernel().create(&dir, LOCK, OFlags::RDWR, Mode::RUSR | Mode::WUSR),
        opened => opened,
    };
    let file = match opened {
        // Another session has just removed the holder, or made its lock.
        Err(Errno::NOENT | Errno::EXIST) => return Ok(None),
        opened => opened.map_err(failed("lock what is staged of"))?,
    };
    let locked = match hold {
        HolderLock::Alone => lock::try_lock(&file),
        HolderLock::Beside => lock::try_share(&file),
    };
    match locked {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(error) if has_no_locks(&error) => {
            let why = "its file system has no locks, which keep two transfers apart";
            return Err(DatasetError::Unable { path: shown.clone(), why });
        }
        Err(source) => return Err(DiskError::call("lock what is staged of", shown, source).into()),
    }
    // The session before may have removed what it did not need.
    let place = fstat(&file).map(|stat| place_of(&stat)).map_err(failed("examine what is staged of"))?;
    let stands = |of: &Dir, name: &[u8], place| {
        statat(of, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| place_of(&stat) == place)
    };
    if !stands(&dir, LOCK, place) || !stands(parent, own, dir.place()) {
        return Ok(None);
    }
    Ok(Some(Taken { dir: Arc::new(dir), lock: file, hold }))
}
