//! Names that are staged without content: symbolic links, and further names of files (hard links).
//!
//! In: a name, and the target of a link or the place of a file's first name. Out: a staged name, or
//! the count of a name that a file could not get. A first name is looked up on the confined walk
//! and never followed; the link is looked at once more and must be of the file that was let have
//! another name. It decides nothing about which file that is.

use longhaul_core::{Clock, LossKind, LossReason, Meta, Preserve, RelPath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::super::device::Mark;
use super::super::staged::Content;
use super::super::temp::Temp;
use super::super::{Staged, TargetFile};
use super::FsTarget;
use crate::error::{DiskError, ErrorKind};
use crate::stat::{Identity, identity_of, place_of, type_of};
use crate::walk::Dir;

/// The result of the wish for another name of a file.
#[derive(Debug)]
pub enum NameMade {
    /// It stands under a temporary name.
    Staged(Box<Staged>),
    /// The name is one of that file already.
    Stood,
    /// The file does not get it. That is counted among the losses of the tree, unless there is no
    /// room for another file either: its copy says so.
    Refused,
}

/// A name that could not be made for an error is refused.
impl From<DiskError> for NameMade {
    fn from(_: DiskError) -> NameMade {
        NameMade::Refused
    }
}

/// Decides whether a file, as it stands under its first name on a file system with this clock, may
/// get another name; or whether it is what the name shall have, if the name is one of it already.
/// The error says why not.
pub type NameProof<'p> = dyn Fn(&Identity, Clock, NameBefore) -> Result<NamedBytes, LossReason> + 'p;

/// The bytes of a file that gets another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBytes {
    /// They are durable.
    Durable,
    /// They stood there, and may still be in memory alone.
    Standing,
}

/// The name that a file is to get, as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameBefore {
    /// It is no name of the file.
    Other,
    /// It is one already.
    Same,
}

impl FsTarget {
    /// Stages a symbolic link.
    pub(super) fn stage_link(
        &self,
        path: &RelPath,
        target: &[u8],
        meta: &Meta,
        preserve: Preserve,
    ) -> Result<Staged, DiskError> {
        self.check_link(path, target)?;
        let (dir, device) = self.parent(path)?;
        let mark = Mark::now(&device);
        let (temp, ()) = Temp::make(&dir, self.tag, |name| self.kernel().symlinkat(target, &dir, name))
            .map_err(|error| DiskError::call("make a link for", path, error))?;
        device.made(&dir, temp.name());
        self.set_link_meta((&dir, temp.name()), path, (meta, preserve))?;
        Ok(Staged::small(path, temp, Content::Link, (mark, self.load.begin(0))))
    }

    /// Stages another name of the file at `first`, or counts that it cannot be.
    pub(crate) fn stage_name(&self, path: &RelPath, first: &RelPath, proof: &NameProof<'_>) -> NameMade {
        match self.try_name(path, first, proof) {
            Ok(Some(staged)) => NameMade::Staged(Box::new(staged)),
            Ok(None) => NameMade::Stood,
            Err(reason) => self.refuse_name(path, reason),
        }
    }

    /// Counts a name that cannot be made.
    pub(crate) fn refuse_name(&self, path: &RelPath, reason: LossReason) -> NameMade {
        self.rules.extras.lose(LossKind::Hardlinks, reason, path);
        NameMade::Refused
    }

    /// The staged name; `None` if it stands already.
    fn try_name(&self, path: &RelPath, first: &RelPath, proof: &NameProof<'_>) -> Result<Option<Staged>, LossReason> {
        let (from, from_name) = self.walk.parent(first).map_err(|error| of_walk(&error))?;
        let stat = statat(&from, from_name, AtFlags::SYMLINK_NOFOLLOW).map_err(of_lookup)?;
        if type_of(&stat) != FileType::RegularFile {
            return Err(LossReason::Changed);
        }
        // A striped file has one name: by that its bodies are known.
        if let Some(stripes) = from.stripes()
            && !matches!(stripes.header_of(&from, from_name, &stat), Ok(None))
        {
            return Err(LossReason::Striped);
        }
        let (dir, device) = self.parent(path).map_err(|error| of_walk(&error))?;
        let name = path.name().ok_or(LossReason::Failed)?;
        let stands = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|is| place_of(&is) == place_of(&stat));
        let bytes =
            proof(&identity_of(&stat), from.clock(), if stands { NameBefore::Same } else { NameBefore::Other })?;
        if bytes == NamedBytes::Standing {
            self.sync_standing(&from, from_name, &stat)?;
        }
        if stands {
            // A session that was killed may have made it a moment ago.
            self.changed_in(&dir, path).map_err(|_| LossReason::Failed)?;
            return Ok(None);
        }
        let mark = Mark::now(&device);
        let link = |temp: &[u8]| self.kernel().link_between((&from, from_name), (&dir, temp));
        let make = || Temp::make(&dir, self.tag, link);
        let (made, sums) = self.rules.extras.linking((&from, from_name), path, make);
        let (temp, ()) = made.map_err(|error| of_link(error, &stat))?;
        // Another file may have taken the first name since it was looked at.
        let made = statat(&dir, temp.name(), AtFlags::SYMLINK_NOFOLLOW).map_err(of_lookup)?;
        if place_of(&made) != place_of(&stat) {
            return Err(LossReason::Changed);
        }
        Ok(Some(Staged::small(path, temp, Content::Name, (mark, self.load.begin(0))).known_as(None, sums)))
    }
}

impl FsTarget {
    /// Makes the bytes of a file that stands durable.
    fn sync_standing(&self, dir: &Dir, name: &[u8], stat: &Stat) -> Result<(), LossReason> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Whoever may not read a file cannot sync it.
        let fd = openat(dir, name, flags, Mode::empty())
            .map_err(|error| if error == Errno::ACCESS { LossReason::Denied } else { of_lookup(error) })?;
        if fstat(&fd).map_err(of_lookup).map(|is| place_of(&is))? != place_of(stat) {
            return Err(LossReason::Changed);
        }
        self.syncer.standing(dir.kernel(), &fd).map_err(|_| LossReason::Failed)
    }
}

/// The identity of a file that is complete but for its name, if further names of it may come.
pub(super) fn identity_for_names(meta: &Meta, fd: impl std::os::fd::AsFd) -> Option<Identity> {
    meta.names.as_ref().and_then(|_| fstat(fd).ok()).map(|stat| identity_of(&stat))
}

/// The identity of a large file that lies whole on one target.
pub(super) fn identity_of_large(file: &TargetFile, meta: &Meta) -> Option<Identity> {
    file.on_disk().next().and_then(|body| identity_for_names(meta, body))
}

fn of_walk(error: &DiskError) -> LossReason {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::Escape => LossReason::Changed,
        _ => LossReason::Failed,
    }
}

fn of_lookup(error: Errno) -> LossReason {
    if error == Errno::NOENT { LossReason::Changed } else { LossReason::Failed }
}

/// The reason for which a link was refused to a file of ours, or of another user.
fn of_link(error: Errno, file: &Stat) -> LossReason {
    match error {
        Errno::XDEV => LossReason::Elsewhere,
        Errno::MLINK => LossReason::TooMany,
        // Systems let users link what is theirs, where there are links at all.
        Errno::PERM if file.st_uid == geteuid().as_raw() => LossReason::Unsupported,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => LossReason::Unsupported,
        Errno::PERM | Errno::ACCESS => LossReason::Denied,
        Errno::NOENT => LossReason::Changed,
        _ => LossReason::Failed,
    }
}

#[cfg(test)]
mod tests;
