//! Removes temporaries that no session will continue.

use std::os::fd::AsFd;

use longhaul_core::TempName;
use longhaul_sys::lock;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::kernel::Kernel;
use crate::names::each_name;
use crate::stat::type_of;
use crate::walk::Dir;

/// Removes a temporary of this name, if it is a file or link of ours that no process is writing.
/// Returns whether it did.
pub(crate) fn remove_idle(dir: impl AsFd, kernel: &Kernel, temp: &TempName) -> Result<bool, Errno> {
    if !is_idle(&dir, temp)? {
        return Ok(false);
    }
    match kernel.unlinkat(&dir, &temp.file_name()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes from `dir` each file or link of ours that has the name of a temporary, for which
/// `orphan` returns true, and that no process is writing. Returns those that are gone.
pub(crate) fn sweep(dir: &Dir, orphan: &dyn Fn(&TempName) -> bool) -> Result<Vec<TempName>, Errno> {
    let mut found = Vec::new();
    each_name(dir.readable()?, |name| found.extend(TempName::parse(name)))?;
    let mut removed = Vec::new();
    for temp in found.into_iter().filter(|temp| orphan(temp)) {
        if remove_idle(dir, dir.kernel(), &temp)? {
            removed.push(temp);
        }
    }
    Ok(removed)
}

/// Whether a temporary is ours to remove and no process writes to it. One that is being received is
/// locked; for small files, which live only for a moment, the tag must be enough.
fn is_idle(dir: impl AsFd, temp: &TempName) -> Result<bool, Errno> {
    let name = temp.file_name();
    let stat = match statat(&dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        outcome => outcome?,
    };
    let kind = type_of(&stat);
    // Root may have given it to its owner already.
    let is_ours = geteuid().is_root() || stat.st_uid == geteuid().as_raw();
    if !is_ours || !matches!(kind, FileType::RegularFile | FileType::Symlink) {
        return Ok(false);
    }
    if kind == FileType::Symlink {
        return Ok(true);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(dir, name.as_slice(), flags, Mode::empty()) {
        Ok(fd) => Ok(!lock::is_locked(fd).unwrap_or(false)),
        // A file that cannot be examined stays.
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error),
    }
}
