//! Sets the extras of what is received, on held descriptors only, and counts those that cannot be
//! kept.
//!
//! In: the extras of an entry, the kinds that the transfer carries, and the policy of the tree.
//! Out: a file, directory or link that has them as far as this system, this user and this policy
//! let it, and the losses. What cannot be kept fails no entry. The caller sets the mode before and
//! the times after this; attributes change neither.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::{Extras, LossKind, LossReason, Losses, Meta, Preserve, RelPath, Xattr};
use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

use super::policy::ExtrasPolicy;
use crate::kernel::XATTR_BYTES_MAX;

/// Keeps extras in one tree. See the module.
#[derive(Debug)]
pub(crate) struct ExtrasKeeper {
    policy: ExtrasPolicy,
    losses: Mutex<Losses>,
}

/// A file or directory of the destination that is held open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldInode<'f> {
    fd: BorrowedFd<'f>,
    access: InodeAccess,
}

/// How it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InodeAccess {
    /// Open for reading or writing.
    Open,
    /// Open as a mere place (`O_PATH`): it is reached by the kernel's link to the descriptor, which
    /// leads nowhere else.
    Place,
}

/// The history of what gets extras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    /// We made it, and nobody else has seen it: it has no attributes of users.
    New,
    /// It stood before: it is compared first, and attributes that the source lacks are removed.
    Stood,
}

impl ExtrasKeeper {
    /// A keeper that obeys a policy.
    pub(crate) fn under(policy: ExtrasPolicy) -> ExtrasKeeper {
        ExtrasKeeper { policy, losses: Mutex::default() }
    }

    /// The losses so far.
    pub(crate) fn losses(&self) -> Losses {
        self.lock().clone()
    }

    /// Gives an inode its attributes, after its mode was set.
    pub(crate) fn set_attributes(
        &self,
        inode: HeldInode<'_>,
        path: &RelPath,
        (meta, preserve): (&Meta, Preserve),
        history: History,
    ) -> Result<(), Errno> {
        if !preserve.xattrs {
            return Ok(());
        }
        let none = Extras::default();
        let extras = meta.extras.as_deref().unwrap_or(&none);
        if !self.policy.xattrs {
            if !extras.xattrs.is_empty() {
                self.lose(LossKind::Xattrs, LossReason::Policy, path);
            }
            return Ok(());
        }
        let set = match history {
            History::New => extras.xattrs.iter().try_for_each(|xattr| inode.set(xattr)),
            History::Stood => fit(inode, extras),
        };
        self.counted(set, LossKind::Xattrs, path)
    }

    /// Counts a file that stood and is left as it is, as its other names would change with it.
    pub(crate) fn spared(&self, path: &RelPath, (meta, preserve): (&Meta, Preserve)) {
        let extras = meta.extras.as_deref();
        if preserve.xattrs && extras.is_some_and(|extras| !extras.xattrs.is_empty()) {
            self.lose(LossKind::Xattrs, LossReason::SeveralNames, path);
        }
    }

    /// Counts what cannot be kept. An error of the disk stays one.
    fn counted(&self, set: Result<(), Errno>, kind: LossKind, path: &RelPath) -> Result<(), Errno> {
        match set {
            Ok(()) => Ok(()),
            Err(error) => {
                self.lose(kind, loss_of(error).ok_or(error)?, path);
                Ok(())
            }
        }
    }

    fn lose(&self, kind: LossKind, reason: LossReason, path: &RelPath) {
        self.lock().add(kind, reason, path);
    }

    fn lock(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'f> HeldInode<'f> {
    /// One that is open for reading or writing.
    pub(crate) fn open(fd: &'f impl AsFd) -> HeldInode<'f> {
        HeldInode { fd: fd.as_fd(), access: InodeAccess::Open }
    }

    /// One that is open as a mere place.
    pub(crate) fn place(fd: &'f impl AsFd) -> HeldInode<'f> {
        HeldInode { fd: fd.as_fd(), access: InodeAccess::Place }
    }

    fn by_number(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    fn set(&self, xattr: &Xattr) -> Result<(), Errno> {
        self.set_value(xattr.name.as_bytes(), &xattr.value)
    }

    fn set_value(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self.access {
            InodeAccess::Open => fs::fsetxattr(self.fd, name, value, XattrFlags::empty()),
            InodeAccess::Place => fs::setxattr(self.by_number(), name, value, XattrFlags::empty()),
        }
    }

    fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        let removed = match self.access {
            InodeAccess::Open => fs::fremovexattr(self.fd, name),
            InodeAccess::Place => fs::removexattr(self.by_number(), name),
        };
        if removed == Err(Errno::NODATA) { Ok(()) } else { removed }
    }

    /// The value of an attribute. `None` if there is none of this name.
    fn value(&self, name: &[u8], room: &mut [u8]) -> Result<Option<usize>, Errno> {
        let got = match self.access {
            InodeAccess::Open => fs::fgetxattr(self.fd, name, room),
            InodeAccess::Place => fs::getxattr(self.by_number(), name, room),
        };
        match got {
            Err(Errno::NODATA) => Ok(None),
            got => got.map(Some),
        }
    }

    fn names(&self, room: &mut [u8]) -> Result<usize, Errno> {
        match self.access {
            InodeAccess::Open => fs::flistxattr(self.fd, room),
            InodeAccess::Place => fs::listxattr(self.by_number(), room),
        }
    }
}

/// Makes the attributes of users of something that stood those of the source: what is the same
/// already is left alone, so that nothing is written where nothing differs.
fn fit(inode: HeldInode<'_>, extras: &Extras) -> Result<(), Errno> {
    let mut room = vec![0; XATTR_BYTES_MAX];
    if !extras.incomplete {
        let len = match inode.names(&mut room) {
            Err(Errno::OPNOTSUPP) => 0,
            listed => listed?,
        };
        let wanted = |name: &[u8]| extras.xattrs.iter().any(|xattr| xattr.name.as_bytes() == name);
        let names = room[..len].split(|byte| *byte == 0);
        for name in names.filter(|name| name.starts_with(longhaul_core::extras::XATTR_USER) && !wanted(name)) {
            inode.remove(name)?;
        }
    }
    for xattr in &extras.xattrs {
        let len = inode.value(xattr.name.as_bytes(), &mut room)?;
        if len.and_then(|len| room.get(..len)) != Some(&xattr.value[..]) {
            inode.set(xattr)?;
        }
    }
    Ok(())
}

/// The loss that an error is. `None`: it is no matter of this metadata, but of the disk.
fn loss_of(error: Errno) -> Option<LossReason> {
    match error {
        Errno::OPNOTSUPP | Errno::NOSYS => Some(LossReason::Unsupported),
        Errno::PERM | Errno::ACCESS => Some(LossReason::Denied),
        // A file system has less room for these than for files, and says so in one of these ways.
        Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG | Errno::RANGE | Errno::NAMETOOLONG => Some(LossReason::TooLong),
        Errno::INVAL => Some(LossReason::Unsupported),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
