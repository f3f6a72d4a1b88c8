//! Locks of journals, and the way on where a file system has none.
//!
//! In: an open journal. Out: whether it is ours, and whether a lock keeps others from it. A file
//! system without locks (Lustre without `flock`, some FUSE, NFS without its lock daemon) is named
//! once in the log, and the transfer goes on.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use longhaul_core::Escaped;
use longhaul_sys::lock;
use rustix::fs::fstat;
use rustix::io::Errno;

use super::dir::ShelfDir;
use crate::stat::dev_of;

/// Whether a lock keeps others from a journal of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    /// A lock keeps others from it.
    Yes,
    /// The file system has no locks.
    Unlockable,
}

impl ShelfDir {
    /// Waits until a journal is free, and locks it.
    pub(super) fn lock(&self, fd: &OwnedFd) -> io::Result<Locked> {
        let outcome = self.refused().and_then(|()| lock::lock(fd));
        outcome.map(|()| Locked::Yes).or_else(|error| self.go_on_without(fd, error))
    }

    /// Locks a journal at once. `None` if another session has it.
    pub(super) fn try_lock(&self, fd: &OwnedFd) -> io::Result<Option<Locked>> {
        match self.refused().and_then(|()| lock::try_lock(fd)) {
            Ok(free) => Ok(free.then_some(Locked::Yes)),
            Err(error) => self.go_on_without(fd, error).map(Some),
        }
    }

    fn refused(&self) -> io::Result<()> {
        self.kernel().refuses_locks().map_or(Ok(()), |error| Err(error.into()))
    }

    fn go_on_without(&self, fd: &OwnedFd, error: io::Error) -> io::Result<Locked> {
        if !has_no_locks(&error) {
            return Err(error);
        }
        say_once(fd, &error);
        Ok(Locked::Unlockable)
    }
}

/// Whether a session has a journal locked. Without locks this cannot be seen, and it returns false.
pub(super) fn is_locked(fd: &OwnedFd) -> io::Result<bool> {
    lock::is_locked(fd).or_else(|error| if has_no_locks(&error) { Ok(false) } else { Err(error) })
}

/// Whether an error of a lock call means that the file system has no locks.
pub(crate) fn has_no_locks(error: &io::Error) -> bool {
    let none = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|errno| none.contains(&errno))
}

/// Names the file system, the first time.
fn say_once(fd: &OwnedFd, error: &io::Error) {
    static SAID: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let Ok(dev) = fstat(fd).map(|stat| dev_of(&stat)) else { return };
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.contains(&dev) {
        return;
    }
    said.push(dev);
    let place = mount_of(dev).or_else(|| path_of(fd)).unwrap_or_default();
    tracing::warn!(
        target: "longhaul::journal",
        mount = %Escaped(place.as_os_str().as_encoded_bytes()), %error,
        "this file system has no locks: transfers go on, but do not run two to one destination at a time (an option of the mount may help, such as 'flock')"
    );
}

/// The directory where the file system of this device is mounted.
#[expect(clippy::disallowed_methods, reason = "the kernel's own file, which is no destination's")]
fn mount_of(dev: u64) -> Option<PathBuf> {
    let number = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut of_device = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    of_device.find(|fields| fields.get(2) == Some(&number.as_str()))?.get(4).map(PathBuf::from)
}

/// The path of an open file.
fn path_of(fd: &OwnedFd) -> Option<PathBuf> {
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()), Vec::new()).ok()?;
    Some(PathBuf::from(String::from_utf8_lossy(link.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_named_by_its_device() {
        let root = rustix::fs::stat("/proc").expect("it stands");
        assert_eq!(mount_of(dev_of(&root)), Some(PathBuf::from("/proc")));
    }
}
