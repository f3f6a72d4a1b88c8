//! Continues a temporary that an earlier session left: opens it if it is one that we may trust, and
//! makes holes in it again.
//!
//! Everything here is about files that hold bytes already; fresh ones are made by
//! [`Temp`](super::temp::Temp).

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_core::limits::STREAM_BYTES_MAX;
use longhaul_core::{FileNode, TempName};
use longhaul_sys::lock;
use rustix::fs::{FileType, Mode, OFlags, Stat, Statx, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::TargetFile;
use crate::direct::Handle;
use crate::error::DiskError;
use crate::stat::{node_of_statx, type_of};
use crate::walk::Dir;

/// The facts that a journal holds of a temporary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journalled {
    /// The file's identity. `None` if the journal does not say.
    pub node: Option<FileNode>,
    /// The number of its bytes that are durable.
    pub bytes: u64,
}

/// A temporary that an earlier session left, open again.
#[derive(Debug)]
pub struct Reopened {
    /// The file.
    pub file: Arc<TargetFile>,
    /// The reason why it may not hold the bytes that its journal says. `None`: it is the file that
    /// was written, as long as it was, with as many blocks as its durable bytes need.
    pub differs: Option<&'static str>,
}

/// The result of opening a temporary by its name.
pub(crate) enum Attempt {
    /// A file of ours, open, locked, and readable for no other user.
    Usable(OwnedFd),
    /// No file, or none that can be continued.
    Unusable,
    /// It is open for writing elsewhere.
    InUse,
}

/// Opens a temporary for writing, never following a link: a regular file, ours, under this one
/// name.
pub(crate) fn reopen(dir: &Dir, name: &TempName) -> Result<Attempt, Errno> {
    let Some(fd) = open(dir, name)? else { return Ok(Attempt::Unusable) };
    if !claim(&fd) {
        return Ok(Attempt::InUse);
    }
    let stat = fstat(&fd)?;
    if !is_usable(&stat) {
        return Ok(Attempt::Unusable);
    }
    // It may have been sealed already, with its final mode.
    if stat.st_mode & 0o7777 != PRIVATE.as_raw_mode() {
        dir.kernel().fchmod(&fd, PRIVATE)?;
    }
    Ok(Attempt::Usable(fd))
}

/// The reason why a file under a temporary's name may not hold the journalled bytes, as far as can
/// be told without reading it. `None` if there is none. `sparse`: it may have fewer blocks than
/// bytes.
pub(crate) fn difference(stat: &Statx, len: u64, sparse: bool, journalled: &Journalled) -> Option<&'static str> {
    let Some(node) = journalled.node else { return Some("its journal does not say which file it is") };
    let longest = len.saturating_add(PADDING_BYTES_MAX);
    if node_of_statx(stat) != node {
        Some("another file has its name")
    } else if len != STREAM_BYTES_MAX && (stat.stx_size < len || stat.stx_size > longest) {
        Some("it is not as long as it was")
    } else if !sparse && stat.stx_blocks.saturating_mul(512) < journalled.bytes {
        Some("it has fewer blocks than what was written needs")
    } else {
        None
    }
}

/// Locks a temporary that is being received, so that no other process writes to it or sweeps it
/// away. True also where the file system has no locks; the journal's lock is the one that decides.
pub(crate) fn claim(fd: &OwnedFd) -> bool {
    lock::try_lock(fd).unwrap_or(true)
}

fn open(dir: &Dir, name: &TempName) -> Result<Option<OwnedFd>, Errno> {
    let name = name.file_name();
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let outcome = match openat(dir, name.as_slice(), flags, Mode::empty()) {
        Err(Errno::ACCESS) if let_us_in(dir, &name)? => openat(dir, name.as_slice(), flags, Mode::empty()),
        outcome => outcome,
    };
    match outcome {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file to its owner again that was sealed with a mode that keeps its owner from writing to
/// it. Returns false if it is not such a file.
fn let_us_in(dir: &Dir, name: &[u8]) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty())?;
    if !is_usable(&fstat(&fd)?) {
        return Ok(false);
    }
    dir.kernel().chmod_place(&fd, PRIVATE)?;
    Ok(true)
}

fn is_usable(stat: &Stat) -> bool {
    type_of(stat) == FileType::RegularFile && stat.st_uid == geteuid().as_raw() && stat.st_nlink == 1
}

/// Makes a range of a file read as zeros, as a hole where the file system can.
pub(crate) fn zero(handle: &Handle, range: Range<u64>) -> Result<(), DiskError> {
    let kernel = handle.kernel();
    loop {
        match kernel.punch_hole(handle, range.start, range.end.saturating_sub(range.start)) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => break,
            Err(error) => return Err(handle.error("make a hole in", error)),
        }
    }
    handle.fall_back("holes are written as zeros")?;
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(ZEROS.len() as u64);
        match kernel.pwrite(handle, &ZEROS[..len as usize], at) {
            Ok(0) => return Err(handle.error("write", Errno::NOSPC)),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(handle.error("write", error)),
        }
    }
    Ok(())
}

/// The mode of a file that is not whole yet: for its owner alone.
pub(crate) const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
/// A temporary is longer than its file will be by less than this: the largest alignment of direct
/// I/O that we ask for.
const PADDING_BYTES_MAX: u64 = 1 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

#[cfg(test)]
mod tests;
