//! Directories of the destination with their modes and times, also those that even their owner may
//! not read.

use std::os::fd::OwnedFd;

use longhaul_core::{Meta, Preserve};
use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::extras::HeldInode;
use super::meta::mode;
use crate::kernel::Kernel;
use crate::stat::times;
use crate::walk::Dir;

/// A directory opened to change its metadata.
pub(crate) struct DirHandle {
    fd: OwnedFd,
    access: Access,
    kernel: Kernel,
}

/// The way in which a directory could be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// It is open for reading: the ordinary case.
    Read,
    /// It is open as a mere place (`O_PATH`), as its mode forbids to read it.
    Place,
}

impl DirHandle {
    /// Opens `name` in `parent`, never following a link.
    ///
    /// # Errors
    /// The system's error; `NOTDIR` for a link.
    pub(crate) fn open(parent: &Dir, name: &[u8]) -> Result<DirHandle, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (fd, access) = match openat(parent, name, flags | OFlags::RDONLY, Mode::empty()) {
            Err(Errno::ACCESS) => (openat(parent, name, flags | OFlags::PATH, Mode::empty())?, Access::Place),
            outcome => (outcome?, Access::Read),
        };
        Ok(DirHandle { fd, access, kernel: parent.kernel().clone() })
    }

    /// Sets the permission bits and then the times.
    pub(crate) fn set_meta(&self, bits: Option<u32>, meta: &Meta, preserve: Preserve) -> Result<(), Errno> {
        self.set_mode(bits)?;
        self.set_times(meta, preserve)
    }

    /// Sets the permission bits, keeping a set-group-id or sticky bit that the directory has from
    /// its parent or its administrator.
    pub(crate) fn set_mode(&self, bits: Option<u32>) -> Result<(), Errno> {
        bits.map_or(Ok(()), |bits| self.chmod(bits | self.stat()?.st_mode & 0o7000))
    }

    /// It, to be given extras.
    pub(crate) fn inode(&self) -> HeldInode<'_> {
        match self.access {
            Access::Read => HeldInode::open(&self.fd),
            Access::Place => HeldInode::place(&self.fd),
        }
    }

    /// Sets the times.
    pub(crate) fn set_times(&self, meta: &Meta, preserve: Preserve) -> Result<(), Errno> {
        match self.access {
            _ if !preserve.times => Ok(()),
            Access::Read => self.kernel.futimens(&self.fd, &times(meta)),
            Access::Place => self.kernel.set_times_of_place(&self.fd, &times(meta)),
        }
    }

    /// Lets the owner into a directory of ours whose mode shuts even the owner out (a read-only
    /// tree that is sent again). Returns the permission bits that it had, if they were changed.
    pub(crate) fn let_owner_in(&self) -> Result<Option<u32>, Errno> {
        let stat = self.stat()?;
        let (bits, user) = (stat.st_mode & 0o777, geteuid());
        if bits & OWNER_ALL == OWNER_ALL || user.is_root() || stat.st_uid != user.as_raw() {
            return Ok(None);
        }
        self.chmod(stat.st_mode & 0o7777 | OWNER_ALL)?;
        Ok(Some(bits))
    }

    /// The directory, if it is open to be read.
    pub(crate) fn readable(&self) -> Option<&OwnedFd> {
        (self.access == Access::Read).then_some(&self.fd)
    }

    fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.fd)
    }

    fn chmod(&self, bits: u32) -> Result<(), Errno> {
        match self.access {
            Access::Read => self.kernel.fchmod(&self.fd, mode(bits)),
            Access::Place => self.kernel.chmod_place(&self.fd, mode(bits)),
        }
    }
}

/// The bits that the owner needs to work in a directory.
const OWNER_ALL: u32 = 0o700;
