//! The metadata of a destination's files and directories: mode, extras and times, in this order.
//!
//! In: what an entry has at its source, and what the transfer carries. Out: descriptors whose files
//! have it, as far as the tree's rules let it. It reaches nothing by a path that it does not hold.

use std::os::fd::AsFd;

use longhaul_core::{Meta, Preserve, RelPath};
use rustix::io::Errno;

use super::super::body::DiskBody;
use super::super::dirs::DirHandle;
use super::super::extras::sums::SumsToCatalogue;
use super::super::extras::{HeldInode, History};
use super::super::meta::{MetaRules, mode};
use super::super::standing;
use super::FsTarget;
#[cfg(test)]
use super::TreePolicy;
use crate::catalogue::SumsCatalogue;
use crate::error::DiskError;
use crate::stat::times;
use crate::walk::Dir;

impl FsTarget {
    /// Makes a destination of the operator's own obey a policy, for tests.
    #[cfg(test)]
    pub(crate) fn obeying(self, policy: TreePolicy) -> FsTarget {
        FsTarget { rules: MetaRules::under(policy), ..self }
    }

    /// Keeps checksums that its file systems do not keep in a catalogue. `None`: nowhere.
    #[must_use]
    pub fn cataloguing(self, catalogue: Option<SumsCatalogue>) -> FsTarget {
        let MetaRules { modes, extras } = self.rules;
        FsTarget { rules: MetaRules { modes, extras: extras.cataloguing(catalogue) }, ..self }
    }

    /// Gives a body of a large file, which will be `path`, its length, mode, extras and times.
    /// Returns its checksums, if they are to be catalogued.
    pub(super) fn seal_body(
        &self,
        (body, path): (&DiskBody, &RelPath),
        len: u64,
        meta: &Meta,
        preserve: Preserve,
    ) -> Result<Option<SumsToCatalogue>, DiskError> {
        let cut = body.handle().kernel().ftruncate(body, len);
        cut.map_err(|error| body.handle().error("set the length of", error))?;
        let set = self.set_meta((body, path), Some(self.rules.modes.file(meta, preserve)), meta, preserve);
        let sums = set.map_err(|error| body.handle().error("set the metadata of", error))?;
        // One that an earlier session began may be the first of this one.
        body.mark().device().made(body, b"");
        Ok(sums)
    }

    /// Sets mode, extras and times of a file of ours that will be `path`. Checksums come first,
    /// with the times that are kept with them, as the system refuses them to an owner who has given
    /// the file away or may not write to it. Returns them, if they are to be catalogued.
    pub(super) fn set_meta(
        &self,
        (fd, path): (impl AsFd, &RelPath),
        bits: Option<u32>,
        meta: &Meta,
        preserve: Preserve,
    ) -> Result<Option<SumsToCatalogue>, Errno> {
        let mut sums = None;
        if !preserve.sums.is_empty() {
            self.set_times(&fd, meta, preserve)?;
            sums = self.rules.extras.keep_sums(HeldInode::open(&fd), path, meta.sums.as_deref())?;
        }
        if preserve.has_extras() {
            let (extras, inode) = (&self.rules.extras, HeldInode::open(&fd));
            let set_ids = extras.set_owner(inode, path, (meta, preserve))?;
            extras.clear_access(inode, path, (meta, preserve))?;
            self.kernel().fchmod(&fd, mode(self.rules.modes.file(meta, preserve) | set_ids))?;
            extras.set_attributes(inode, path, (meta, preserve), History::New)?;
        } else if let Some(bits) = bits {
            self.kernel().fchmod(&fd, mode(bits))?;
        }
        // None of these calls changes the times that are set already.
        if preserve.sums.is_empty() {
            self.set_times(&fd, meta, preserve)?;
        }
        Ok(sums)
    }

    fn set_times(&self, fd: impl AsFd, meta: &Meta, preserve: Preserve) -> Result<(), Errno> {
        if preserve.times { self.kernel().futimens(fd, &times(meta)) } else { Ok(()) }
    }

    /// Sets owner and times of a symbolic link of ours that will be `path`.
    pub(super) fn set_link_meta(
        &self,
        (dir, name): (&Dir, &[u8]),
        path: &RelPath,
        (meta, preserve): (&Meta, Preserve),
    ) -> Result<(), DiskError> {
        let owned = self.rules.extras.set_owner_of_link((dir, name), path, (meta, preserve));
        owned.map_err(|error| DiskError::call("set the owner of", path, error))?;
        let set = if preserve.times { self.kernel().utimensat(dir, name, &times(meta)) } else { Ok(()) };
        set.map_err(|error| DiskError::call("set the times of", path, error))
    }

    /// Gives a file that stands the mode and the extras of the source, where they differ.
    pub(super) fn fit_standing(
        &self,
        path: &RelPath,
        is: &Meta,
        (wanted, preserve): (&Meta, Preserve),
    ) -> Result<(), DiskError> {
        let bits = self.rules.modes.file(wanted, preserve);
        let bits = (preserve.mode && is.mode & 0o777 != bits).then_some(bits);
        if bits.is_none() && !preserve.has_extras() {
            return Ok(());
        }
        standing::fit(&self.walk, path, is, (bits, wanted), (&self.rules.extras, preserve))
    }

    /// Gives a directory its mode, extras and times.
    pub(super) fn finish(&self, path: &RelPath, (meta, preserve): (&Meta, Preserve)) -> Result<(), DiskError> {
        // In each case it is not remembered any longer.
        let before = self.unfinished().remove(path);
        self.check_dir(path)?;
        if path.is_root() && self.home.is_served_root() {
            return Ok(());
        }
        let preserve = match before {
            None | Some(Some(_)) if self.keeps_standing => {
                Preserve { mode: false, times: false, ..preserve }.without_extras()
            }
            _ => preserve,
        };
        let bits = match before {
            _ if preserve.mode => Some(self.rules.modes.dir(meta, preserve)),
            Some(None) => Some(self.rules.modes.dir(meta, preserve)),
            Some(had) => had,
            None => None,
        };
        if bits.is_some() || preserve.times || preserve.has_extras() {
            let dir = self.open_dir(path)?;
            self.set_dir_meta(&dir, path, bits, (meta, preserve))
                .map_err(|error| DiskError::call("set the metadata of", path, error))?;
            self.finished(path, &dir)?;
        }
        Ok(())
    }

    fn set_dir_meta(
        &self,
        dir: &DirHandle,
        path: &RelPath,
        bits: Option<u32>,
        (meta, preserve): (&Meta, Preserve),
    ) -> Result<(), Errno> {
        if preserve.has_extras() {
            let extras = &self.rules.extras;
            let set_ids = extras.set_owner(dir.inode(), path, (meta, preserve))?;
            extras.clear_access(dir.inode(), path, (meta, preserve))?;
            dir.set_mode(bits.map(|bits| bits | set_ids))?;
            extras.set_attributes(dir.inode(), path, (meta, preserve), History::Stood)?;
        } else {
            dir.set_mode(bits)?;
        }
        dir.set_times(meta, preserve)
    }
}
