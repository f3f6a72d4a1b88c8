//! Directories of the destination as things with modes and times, also those that even their owner may not read.

use std::os::fd::{AsRawFd, OwnedFd};

use longhaul_core::{Meta, Preserve};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, chmodat, fchmod, fstat, futimens, openat, utimensat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::target::meta::{mode, times};
use crate::walk::Dir;

/// A directory opened to change its metadata.
pub(crate) enum DirHandle {
    /// The ordinary case.
    Open(OwnedFd),
    /// It may not be read: changed by way of the kernel's link to the descriptor, which leads nowhere else.
    Path(OwnedFd),
}

impl DirHandle {
    /// Opens `name` in `parent`, never following a link.
    ///
    /// # Errors
    /// What the system says; `NOTDIR` for a link.
    pub(crate) fn open(parent: &Dir, name: &[u8]) -> Result<DirHandle, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(parent, name, flags | OFlags::RDONLY, Mode::empty()) {
            Err(Errno::ACCESS) => openat(parent, name, flags | OFlags::PATH, Mode::empty()).map(DirHandle::Path),
            outcome => outcome.map(DirHandle::Open),
        }
    }

    /// Sets the permission bits, keeping a set-group-id or sticky bit that the directory has from its parent or its
    /// administrator; then the times.
    pub(crate) fn set_meta(&self, bits: Option<u32>, meta: &Meta, preserve: Preserve) -> Result<(), Errno> {
        if let Some(bits) = bits {
            self.chmod(bits | self.stat()?.st_mode & 0o7000)?;
        }
        match self {
            _ if !preserve.times => Ok(()),
            DirHandle::Open(fd) => futimens(fd, &times(meta)),
            DirHandle::Path(fd) => utimensat(CWD, by_number(fd), &times(meta), AtFlags::empty()),
        }
    }

    /// Lets its owner into a directory of ours that shuts even us out (a read-only tree that is sent again). Gives the
    /// permission bits it had, if they were changed.
    pub(crate) fn let_owner_in(&self) -> Result<Option<u32>, Errno> {
        let stat = self.stat()?;
        let (bits, user) = (stat.st_mode & 0o777, geteuid());
        if bits & OWNER_ALL == OWNER_ALL || user.is_root() || stat.st_uid != user.as_raw() {
            return Ok(None);
        }
        self.chmod(stat.st_mode & 0o7777 | OWNER_ALL)?;
        Ok(Some(bits))
    }

    fn stat(&self) -> Result<Stat, Errno> {
        match self {
            DirHandle::Open(fd) | DirHandle::Path(fd) => fstat(fd),
        }
    }

    fn chmod(&self, bits: u32) -> Result<(), Errno> {
        match self {
            DirHandle::Open(fd) => fchmod(fd, mode(bits)),
            DirHandle::Path(fd) => chmodat(CWD, by_number(fd), mode(bits), AtFlags::empty()),
        }
    }
}

fn by_number(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// What the owner needs to work in a directory.
const OWNER_ALL: u32 = 0o700;
