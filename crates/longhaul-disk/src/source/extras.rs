//! Reads the extras of entries while they are scanned: attributes of what is open, owners from what
//! the scan knows already.
//!
//! In: an entry's place in the open directory that listed it. Out: its [`Extras`], if the scan is
//! asked for any, and the losses where something cannot be read or may not travel. A file is opened
//! for this by its name in its directory, never through a link, and must be the one that the scan
//! saw.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::kept_sums::KEPT_SUMS_NAME;
use longhaul_core::limits::{EXTRAS_COST_MAX, XATTRS_BYTES_MAX};
use longhaul_core::{AccessList, EntryKind, Extras, LossKind, LossReason, Losses, Preserve, RelPath, Xattr, XattrName};
use rustix::fs::{Mode, OFlags, Stat, fgetxattr, flistxattr, fstat, openat};
use rustix::io::Errno;

use crate::access_list;
use crate::accounts::AccountNames;
use crate::kernel::XATTR_BYTES_MAX;
use crate::stat::place_of;

/// The losses of all scans of a source.
#[derive(Debug, Default)]
pub(crate) struct SourceLosses(Mutex<Losses>);

impl SourceLosses {
    /// The losses so far.
    pub(crate) fn so_far(&self) -> Losses {
        self.lock().clone()
    }

    /// Counts an entry.
    pub(crate) fn add(&self, kind: LossKind, reason: LossReason, path: &RelPath) {
        self.lock().add(kind, reason, path);
    }

    fn lock(&self) -> MutexGuard<'_, Losses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads extras for one scan.
pub(crate) struct ExtrasReader<'s> {
    wanted: Preserve,
    losses: &'s SourceLosses,
    /// Room for a list of names and for a value; none if no attributes are wanted.
    names: Vec<u8>,
    value: Vec<u8>,
    accounts: AccountNames,
}

/// The place where an entry is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spot<'d> {
    /// Under its name in an open directory.
    In(BorrowedFd<'d>),
    /// An open directory itself.
    Open(BorrowedFd<'d>),
    /// It cannot be opened.
    Nowhere,
}

impl<'s> ExtrasReader<'s> {
    /// A reader of what `wanted` names.
    pub(crate) fn new(wanted: Preserve, losses: &'s SourceLosses) -> ExtrasReader<'s> {
        let room = if wanted.xattrs || wanted.acls { XATTR_BYTES_MAX } else { 0 };
        let (names, value) = (vec![0; room], vec![0; room]);
        ExtrasReader { wanted, losses, names, value, accounts: AccountNames::default() }
    }

    /// Whether any extras are wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.has_extras()
    }

    /// The extras of an entry of this kind. `None` if it has none. A directory has them at its end.
    pub(crate) fn read(
        &mut self,
        spot: Spot<'_>,
        path: &RelPath,
        kind: &EntryKind,
        stat: &Stat,
    ) -> Option<Arc<Extras>> {
        if !self.is_wanted() {
            return None;
        }
        let mut extras = Extras::default();
        match kind {
            EntryKind::File { .. } | EntryKind::DirEnd if self.wanted.xattrs || self.wanted.acls => {
                self.read_attributes(spot, path, stat, &mut extras);
            }
            // No system gives a link attributes of users, or an access list.
            EntryKind::File { .. } | EntryKind::DirEnd | EntryKind::Symlink { .. } => {}
            _ => return None,
        }
        extras.owner = self.wanted.owner.then(|| self.accounts.owner(stat));
        (!extras.is_empty()).then(|| Arc::new(extras))
    }

    fn read_attributes(&mut self, spot: Spot<'_>, path: &RelPath, stat: &Stat, extras: &mut Extras) {
        let read = self.open(spot, path, stat).and_then(|fd| match &fd {
            Opened::Here(fd) => self.read_open(fd.as_fd(), path, extras),
            Opened::Before(fd) => self.read_open(*fd, path, extras),
        });
        if let Err(reason) = read {
            extras.incomplete = true;
            self.lose_all(reason, path);
        }
    }

    fn open<'d>(&self, spot: Spot<'d>, path: &RelPath, stat: &Stat) -> Result<Opened<'d>, LossReason> {
        let dir = match spot {
            Spot::Open(fd) => return Ok(Opened::Before(fd)),
            Spot::Nowhere => return Err(LossReason::Denied),
            Spot::In(dir) => dir,
        };
        // A fifo put in the file's place must not block the opening.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = path.name().unwrap_or(b".");
        let fd = openat(dir, name, flags, Mode::empty()).map_err(reason)?;
        let is = fstat(&fd).map_err(reason)?;
        if place_of(&is) == place_of(stat) { Ok(Opened::Here(fd)) } else { Err(LossReason::Changed) }
    }

    fn read_open(&mut self, fd: BorrowedFd<'_>, path: &RelPath, extras: &mut Extras) -> Result<(), LossReason> {
        let mut names = std::mem::take(&mut self.names);
        let listed = match flistxattr(fd, &mut names[..]) {
            Ok(len) => self.read_listed(fd, path, extras, &names[..len]),
            // A file system without attributes has none to lose.
            Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(reason(error)),
        };
        self.names = names;
        listed
    }

    fn read_listed(
        &mut self,
        fd: BorrowedFd<'_>,
        path: &RelPath,
        extras: &mut Extras,
        names: &[u8],
    ) -> Result<(), LossReason> {
        let (mut bytes, mut lost) = (0, None);
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            if name.starts_with(access_list::NAMES) {
                self.read_access_list(fd, name, path, extras)?;
                continue;
            }
            // What was computed of the file there is computed of its copy anew, or not at all.
            if !self.wanted.xattrs || name == KEPT_SUMS_NAME.as_bytes() {
                continue;
            }
            let Ok(known) = XattrName::try_from(name.to_vec()) else {
                lost.get_or_insert(LossReason::System);
                continue;
            };
            let value = match fgetxattr(fd, name, &mut self.value[..]) {
                Ok(len) => self.value[..len].to_vec(),
                // Removed since it was listed.
                Err(Errno::NODATA) => continue,
                Err(error) => return Err(reason(error)),
            };
            let xattr = Xattr { name: known, value };
            bytes += xattr.name.as_bytes().len() + xattr.value.len();
            if bytes > XATTRS_BYTES_MAX || extras.cost() + xattr.cost() > EXTRAS_COST_MAX {
                extras.incomplete = true;
                lost = Some(LossReason::TooLong);
                break;
            }
            extras.xattrs.push(xattr);
        }
        if let Some(reason) = lost {
            self.lose(LossKind::Xattrs, reason, path);
        }
        Ok(())
    }

    fn read_access_list(
        &mut self,
        fd: BorrowedFd<'_>,
        name: &[u8],
        path: &RelPath,
        extras: &mut Extras,
    ) -> Result<(), LossReason> {
        if !self.wanted.acls {
            return Ok(());
        }
        let len = match fgetxattr(fd, name, &mut self.value[..]) {
            Err(Errno::NODATA) => return Ok(()),
            got => got.map_err(reason)?,
        };
        let (value, accounts) = (&self.value[..len], &mut self.accounts);
        let list = access_list::parse(value, |grantee| accounts.grantee(grantee));
        let fits = |list: &AccessList| {
            let grown = Extras { access: Some(list.clone()), ..Extras::default() };
            extras.cost() + grown.cost() <= EXTRAS_COST_MAX
        };
        match list {
            None => self.lose(LossKind::Acls, LossReason::Unsupported, path),
            Some(list) if !fits(&list) => {
                extras.incomplete = true;
                self.lose(LossKind::Acls, LossReason::TooLong, path);
            }
            Some(list) if name == access_list::ACCESS => extras.access = Some(list),
            Some(list) => extras.default = Some(list),
        }
        Ok(())
    }

    /// Counts an entry of which nothing that is wanted could be read.
    fn lose_all(&self, reason: LossReason, path: &RelPath) {
        for (kind, is_wanted) in [(LossKind::Xattrs, self.wanted.xattrs), (LossKind::Acls, self.wanted.acls)] {
            if is_wanted {
                self.lose(kind, reason, path);
            }
        }
    }

    fn lose(&self, kind: LossKind, reason: LossReason, path: &RelPath) {
        self.losses.lock().add(kind, reason, path);
    }
}

/// A descriptor to read attributes through.
enum Opened<'d> {
    Here(OwnedFd),
    Before(BorrowedFd<'d>),
}

fn reason(error: Errno) -> LossReason {
    match error {
        Errno::RANGE | Errno::TOOBIG => LossReason::TooLong,
        Errno::NOENT | Errno::LOOP | Errno::NXIO => LossReason::Changed,
        _ => LossReason::Denied,
    }
}
