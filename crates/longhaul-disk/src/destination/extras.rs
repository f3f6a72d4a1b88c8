//! Sets the extras of what is received, on held descriptors only, and counts those that cannot be
//! kept.
//!
//! In: the extras of an entry, the kinds that the transfer carries, and the policy of the tree.
//! Out: a file, directory or link that has them as far as this system, this user and this policy
//! let it, and the losses. What cannot be kept fails no entry. The order is fixed, as each may undo
//! what comes before: owner, mode (by the caller), access lists, attributes, times (by the caller).

pub(super) mod sums;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::kept_sums::KEPT_SUMS_NAME;
use longhaul_core::{AccessList, Extras, Grantee, LossKind, LossReason, Losses, Meta, Preserve, RelPath, Xattr};
use rustix::fs::{self, AtFlags, FileType, Gid, Uid, XattrFlags};
use rustix::io::Errno;

use super::policy::{ExtrasPolicy, TreePolicy};
use crate::access_list::{self, NoList};
use crate::accounts::AccountNumbers;
use crate::catalogue::SumsCatalogue;
use crate::kernel::XATTR_BYTES_MAX;
use crate::stat::type_of;

/// Keeps extras in one tree. See the module.
#[derive(Debug)]
pub(crate) struct ExtrasKeeper {
    policy: ExtrasPolicy,
    /// The bits that the modes of files and of directories may have, which bound access lists too.
    bits: (u32, u32),
    accounts: AccountNumbers,
    losses: Mutex<Losses>,
    /// The place of checksums that no file system keeps. `None`: there is none.
    catalogue: Option<SumsCatalogue>,
    /// Catalogued checksums of files that get further names.
    named: Mutex<sums::SumsByInode>,
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
    pub(crate) fn under(policy: TreePolicy) -> ExtrasKeeper {
        let bits = (policy.modes.file(0o777), policy.modes.dir(0o777));
        let (accounts, losses) = (AccountNumbers::default(), Mutex::default());
        ExtrasKeeper { policy: policy.extras, bits, accounts, losses, catalogue: None, named: Mutex::default() }
    }

    /// Gives an inode its owner and group, before its mode is set: the system takes set-id bits
    /// away as it does so. Returns the set-id bits that the mode is to have for that.
    pub(crate) fn set_owner(
        &self,
        inode: HeldInode<'_>,
        path: &RelPath,
        (meta, preserve): (&Meta, Preserve),
    ) -> Result<u32, Errno> {
        if !preserve.owner {
            return Ok(0);
        }
        let stat = fs::fstat(inode.fd)?;
        let is_owned = self.own(path, meta, (stat.st_uid, stat.st_gid), |user, group| inode.chown(user, group))?;
        let wanted = if type_of(&stat) == FileType::Directory { SET_GROUP_ID } else { SET_IDS };
        let bits = meta.mode & wanted;
        if bits == 0 || !preserve.mode || (is_owned && self.policy.set_id) {
            return Ok(if preserve.mode { bits } else { 0 });
        }
        let is_taken = self.policy.owner && self.policy.set_id;
        let reason = if is_taken { LossReason::Denied } else { LossReason::Policy };
        self.lose(LossKind::SetId, reason, path);
        Ok(0)
    }

    /// Gives a symbolic link of ours its owner and group.
    pub(crate) fn set_owner_of_link(
        &self,
        (dir, name): (impl AsFd, &[u8]),
        path: &RelPath,
        (meta, preserve): (&Meta, Preserve),
    ) -> Result<(), Errno> {
        if !preserve.owner {
            return Ok(());
        }
        let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let chown = |user, group| fs::chownat(&dir, name, user, group, AtFlags::SYMLINK_NOFOLLOW);
        self.own(path, meta, (stat.st_uid, stat.st_gid), chown).map(|_| ())
    }

    /// Counts a striped file, which keeps its owner: by that it is known as one of its set.
    pub(crate) fn spare_striped(&self, path: &RelPath, preserve: Preserve) {
        if preserve.owner {
            self.lose(LossKind::Owner, LossReason::Striped, path);
        }
    }

    /// Sets an owner where it is not the one that it `is`. Returns whether it is the owner of the
    /// source then.
    fn own(
        &self,
        path: &RelPath,
        meta: &Meta,
        is: (u32, u32),
        chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> Result<bool, Errno> {
        let Some(owner) = meta.extras.as_ref().and_then(|extras| extras.owner.as_ref()) else { return Ok(false) };
        let wanted = (self.accounts.user(&owner.user), self.accounts.group(&owner.group));
        if !self.policy.owner {
            // Nothing is lost where it is the same anyway.
            if wanted != (Some(is.0), Some(is.1)) {
                self.lose(LossKind::Owner, LossReason::Policy, path);
            }
            return Ok(false);
        }
        let user = wanted.0.filter(|user| *user != is.0).map(Uid::from_raw);
        let group = wanted.1.filter(|group| *group != is.1).map(Gid::from_raw);
        // Who may not give a file away may still give it to a group of one's own.
        let set = match (user, group) {
            (None, None) => Ok(()),
            (Some(_), Some(_)) => chown(user, group).or_else(|error| chown(None, group).and(Err(error))),
            _ => chown(user, group),
        };
        if wanted.0.is_none() || wanted.1.is_none() {
            self.lose(LossKind::Owner, LossReason::UnknownAccount, path);
            return set.or_else(|error| loss_of(error).map(|_| ()).ok_or(error)).map(|()| false);
        }
        let is_owned = set.is_ok();
        self.counted(set, LossKind::Owner, path)?;
        Ok(is_owned)
    }

    /// Takes an access list away that a new file got from its directory, or that the source has
    /// not, before the mode is set.
    pub(crate) fn clear_access(
        &self,
        inode: HeldInode<'_>,
        path: &RelPath,
        (meta, preserve): (&Meta, Preserve),
    ) -> Result<(), Errno> {
        let extras = meta.extras.as_deref();
        let has_list = extras.is_some_and(|extras| extras.access.is_some() || extras.incomplete);
        if !preserve.acls || has_list || !self.policy.acls {
            return Ok(());
        }
        let removed = inode.remove(access_list::ACCESS);
        if removed == Err(Errno::OPNOTSUPP) { Ok(()) } else { self.counted(removed, LossKind::Acls, path) }
    }

    /// Gives an inode its access lists, after its mode was set, which they bound.
    fn set_access_lists(
        &self,
        inode: HeldInode<'_>,
        path: &RelPath,
        (meta, preserve): (&Meta, Preserve),
    ) -> Result<(), Errno> {
        let none = Extras::default();
        let extras = meta.extras.as_deref().unwrap_or(&none);
        if !preserve.acls {
            return Ok(());
        }
        if !self.policy.acls {
            if extras.access.is_some() || extras.default.is_some() {
                self.lose(LossKind::Acls, LossReason::Policy, path);
            }
            return Ok(());
        }
        let is_dir = type_of(&fs::fstat(inode.fd)?) == FileType::Directory;
        let most = if is_dir { self.bits.1 } else { self.bits.0 };
        for (name, list) in [(access_list::ACCESS, &extras.access), (access_list::DEFAULT, &extras.default)] {
            match list {
                Some(list) => self.set_access_list(inode, path, (name, list), most)?,
                None if is_dir && name == access_list::DEFAULT && !extras.incomplete => {
                    let removed = inode.remove(name);
                    if removed != Err(Errno::OPNOTSUPP) {
                        self.counted(removed, LossKind::Acls, path)?;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    fn set_access_list(
        &self,
        inode: HeldInode<'_>,
        path: &RelPath,
        (name, list): (&[u8], &AccessList),
        most: u32,
    ) -> Result<(), Errno> {
        let number = |to: &Grantee| match to {
            Grantee::User(user) => self.accounts.user(user),
            Grantee::OtherGroup(group) => self.accounts.group(group),
            _ => None,
        };
        match access_list::write(list, number, most) {
            Ok(bytes) => {
                let mut room = vec![0; bytes.len() + 1];
                let is_there =
                    inode.value(name, &mut room).is_ok_and(|len| len.is_some_and(|len| room[..len] == bytes));
                let set = if is_there { Ok(()) } else { inode.set_value(name, &bytes) };
                self.counted(set, LossKind::Acls, path)
            }
            Err(NoList::UnknownAccount) => {
                self.lose(LossKind::Acls, LossReason::UnknownAccount, path);
                Ok(())
            }
            Err(NoList::Invalid) => {
                self.lose(LossKind::Acls, LossReason::Unsupported, path);
                Ok(())
            }
        }
    }

    /// The losses so far.
    pub(crate) fn losses(&self) -> Losses {
        self.lock().clone()
    }

    /// Gives an inode its access lists and attributes, after its mode was set.
    pub(crate) fn set_attributes(
        &self,
        inode: HeldInode<'_>,
        path: &RelPath,
        (meta, preserve): (&Meta, Preserve),
        history: History,
    ) -> Result<(), Errno> {
        self.set_access_lists(inode, path, (meta, preserve))?;
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
            History::New => carried(extras).try_for_each(|xattr| inode.set(xattr)),
            History::Stood => fit(inode, extras),
        };
        self.counted(set, LossKind::Xattrs, path)
    }

    /// Counts a file that stood and is left as it is, as its other names would change with it.
    /// Whether it would have got another mode or time is said by `others`.
    pub(crate) fn spared(&self, path: &RelPath, (meta, preserve): (&Meta, Preserve), others: &[LossKind]) {
        others.iter().for_each(|kind| self.lose(*kind, LossReason::SeveralNames, path));
        let Some(extras) = meta.extras.as_deref() else { return };
        for (kind, has_some) in [
            (LossKind::Xattrs, preserve.xattrs && !extras.xattrs.is_empty()),
            (LossKind::Owner, preserve.owner),
            (LossKind::Acls, preserve.acls && (extras.access.is_some() || extras.default.is_some())),
        ] {
            if has_some {
                self.lose(kind, LossReason::SeveralNames, path);
            }
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

    /// Counts metadata that is not kept.
    pub(crate) fn lose(&self, kind: LossKind, reason: LossReason, path: &RelPath) {
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

    fn chown(&self, user: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
        match self.access {
            InodeAccess::Open => fs::fchown(self.fd, user, group),
            InodeAccess::Place => fs::chownat(self.fd, c"", user, group, AtFlags::EMPTY_PATH),
        }
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

/// The attributes that a file gets from its source. Not the checksums that are kept with a file:
/// they are what this side found.
fn carried(extras: &Extras) -> impl Iterator<Item = &Xattr> {
    extras.xattrs.iter().filter(|xattr| !is_kept_sums(xattr.name.as_bytes()))
}

fn is_kept_sums(name: &[u8]) -> bool {
    name == KEPT_SUMS_NAME.as_bytes()
}

/// Makes the attributes of users of something that stood those of the source: what is the same
/// already is left alone, so that nothing is written where nothing differs. Kept checksums are no
/// attribute of the source, and stay.
fn fit(inode: HeldInode<'_>, extras: &Extras) -> Result<(), Errno> {
    let mut room = vec![0; XATTR_BYTES_MAX];
    if !extras.incomplete {
        let len = match inode.names(&mut room) {
            Err(Errno::OPNOTSUPP) => 0,
            listed => listed?,
        };
        let wanted = |name: &[u8]| extras.xattrs.iter().any(|xattr| xattr.name.as_bytes() == name);
        let names = room[..len].split(|byte| *byte == 0);
        let names = names.filter(|name| name.starts_with(longhaul_core::extras::XATTR_USER) && !is_kept_sums(name));
        for name in names.filter(|name| !wanted(name)) {
            inode.remove(name)?;
        }
    }
    for xattr in carried(extras) {
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

/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;
/// Set-group-id, which for a directory says whose new entries are.
const SET_GROUP_ID: u32 = 0o2000;

#[cfg(test)]
mod tests;
