//! Removing temporaries that nobody will go on with.

use longhaul_core::TempName;
use longhaul_sys::lock;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::names::each_name;
use crate::stat::type_of;
use crate::walk::Dir;

/// Removes from `dir` what has the name of a temporary, is an orphan as far as `orphan` knows, is a
/// file or link of ours, and is not being written by anybody. Gives how many.
pub(crate) fn sweep(dir: &Dir, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, Errno> {
    let mut found = Vec::new();
    each_name(dir.readable()?, |name| found.extend(TempName::parse(name)))?;
    let mut removed = 0;
    for temp in found.into_iter().filter(|temp| orphan(temp)) {
        if is_idle(dir, &temp)? {
            match dir.kernel().unlinkat(dir, &temp.file_name()) {
                Ok(()) => removed += 1,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}

/// Whether it is ours to remove and nobody writes to it. One that is being received is locked; of
/// others that live only for a moment the tag must say enough.
fn is_idle(dir: &Dir, temp: &TempName) -> Result<bool, Errno> {
    let name = temp.file_name();
    let stat = match statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        outcome => outcome?,
    };
    let kind = type_of(&stat);
    if stat.st_uid != geteuid().as_raw() || !matches!(kind, FileType::RegularFile | FileType::Symlink) {
        return Ok(false);
    }
    if kind == FileType::Symlink {
        return Ok(true);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(dir, name.as_slice(), flags, Mode::empty()) {
        Ok(fd) => Ok(!lock::is_locked(fd).unwrap_or(false)),
        // What cannot be asked stays.
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error),
    }
}
