//! Reads files that stand under a final name, to compare them: through a descriptor of its own each
//! time, never through a link.
//!
//! In: a name and a range. Out: its bytes and the identity of the file and its version, so that a
//! caller that reads in pieces can tell whether they are of one version. Also sets the metadata of
//! a file whose content is the same as the source's. Never writes to a standing file. Knows nothing
//! of digests.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_core::limits::BUNDLED_FILE_BYTES_MAX;
use longhaul_core::{LossKind, Meta, Preserve, RelPath};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::extras::{ExtrasKeeper, HeldInode, History, sums};
use super::meta::{MetaRules, mode};
use crate::direct::{DirectMode, Handle, IoMode};
use crate::error::DiskError;
use crate::fill::{Back, Cached, fill};
use crate::stat::times;
use crate::stat::{Identity, identity_of, identity_of_statx, meta_of, type_of};
use crate::stripe::StripedFile;
use crate::walk::{Dir, Walk};

/// Reads `len` bytes at `offset` of the file at `path` into the start of `slot`. Also returns the
/// file's identity.
pub(crate) fn read(
    walk: &Walk,
    path: &RelPath,
    direct: DirectMode,
    (offset, len): (u64, usize),
    slot: &mut [u8],
) -> Result<(Back, Identity), DiskError> {
    // A small file is fetched by one request in either case, and may be in memory already.
    let small = len as u64 <= BUNDLED_FILE_BYTES_MAX;
    let io = if small || direct == DirectMode::Buffered { DirectMode::Buffered } else { DirectMode::Auto };
    let fd = open(walk, path)?;
    if let Some(striped) = striped(&walk.parent(path)?.0, path, &fd, io)? {
        let stat = fstat(&fd).map_err(|error| DiskError::call("examine", path, error))?;
        let len = striped.fill(slot, len, offset).map(|filled| (filled == len).then_some(len))?;
        let len =
            len.ok_or_else(|| DiskError::Changed { path: path.into(), how: "it ends before the length it had" })?;
        let mode = striped.bodies().map(|(_, body)| body.mode()).next().unwrap_or(IoMode::Buffered);
        return Ok((Back { len, mode }, Identity { len: striped.len(), ..identity_of(&stat) }));
    }
    let (handle, stat) = Handle::adopt(fd, path.into(), io, OFlags::NONBLOCK)?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
        return Err(other(path));
    }
    if len > slot.len() {
        return Err(DiskError::Bounds { path: path.into(), offset, len });
    }
    // Of a file that no process writes, the cache is what other readers see: no page of it is
    // dropped.
    let back = fill(&handle, offset, len, slot, Cached::Kept)?;
    if back.len < len {
        return Err(DiskError::Changed { path: path.into(), how: "it ends before the length it had" });
    }
    Ok((back, identity_of_statx(&stat)))
}

/// The striped file that is open as `fd`, if it is one.
fn striped(dir: &Dir, path: &RelPath, fd: &OwnedFd, direct: DirectMode) -> Result<Option<Arc<StripedFile>>, DiskError> {
    let Some(stripes) = dir.stripes() else { return Ok(None) };
    let failed = |error| DiskError::call("read", path, error);
    let stat = fstat(fd).map_err(failed)?;
    if let Some(file) = stripes.compared(&stat) {
        return Ok(Some(file));
    }
    let Some(header) = stripes.found_in(fd).map_err(failed)? else { return Ok(None) };
    let file = Arc::new(StripedFile::open(stripes, (fd, &path.into()), &header, direct)?);
    stripes.remember(&stat, header.id, &file);
    Ok(Some(file))
}

/// Checks that the file at `path` is still this version, then sets this mode and time, as far as
/// they differ and its owner lets us. A file of several names keeps its own: the other names
/// (snapshots made by `cp -al`) have the same mode and time, and their change was not asked for.
pub(crate) fn retouch(
    walk: &Walk,
    path: &RelPath,
    expect: &Identity,
    meta: Option<(&Meta, &MetaRules)>,
    preserve: Preserve,
) -> Result<(), DiskError> {
    let fd = open(walk, path)?;
    let stat = fstat(&fd).map_err(|error| DiskError::call("examine", path, error))?;
    let shows = match walk.parent(path)?.0.stripes() {
        Some(stripes) => {
            let header = stripes.found_in(&fd).map_err(|error| DiskError::call("read", path, error))?;
            header.map_or(identity_of(&stat), |header| Identity { len: header.map.len(), ..identity_of(&stat) })
        }
        _ => identity_of(&stat),
    };
    if shows != *expect {
        return Err(other(path));
    }
    let Some((meta, MetaRules { modes, extras })) = meta else { return Ok(()) };
    let kernel = walk.root().kernel();
    let (is, wanted) = (meta_of(&stat), modes.file(meta, preserve));
    let set_mode =
        || if preserve.mode && is.mode & 0o777 != wanted { kernel.fchmod(&fd, mode(wanted)) } else { Ok(()) };
    let set_owner = || {
        let inode = HeldInode::open(&fd);
        let set_ids = extras.set_owner(inode, path, (meta, preserve))?;
        extras.clear_access(inode, path, (meta, preserve))?;
        if set_ids != 0 { kernel.fchmod(&fd, mode(wanted | set_ids)) } else { set_mode() }
    };
    let clock = walk.parent(path)?.0.clock();
    let is_late = !clock.shows(meta.mtime, is.mtime);
    let set_times = || if preserve.times && is_late { kernel.futimens(&fd, &times(meta)) } else { Ok(()) };
    let set_extras = || extras.set_attributes(HeldInode::open(&fd), path, (meta, preserve), History::Stood);
    let set = if stat.st_nlink > 1 {
        let is_other_mode = preserve.mode && is.mode & 0o777 != wanted;
        let other_mode = is_other_mode.then_some(LossKind::Mode);
        let other_time = (preserve.times && is_late).then_some(LossKind::Times);
        let others: Vec<LossKind> = other_mode.into_iter().chain(other_time).collect();
        extras.spared(path, (meta, preserve), &others);
        Err(Errno::MLINK)
    } else {
        let (inode, kept) = (HeldInode::open(&fd), sums::kept_sums(HeldInode::open(&fd), expect));
        let catalogued = if kept.is_some() { None } else { extras.catalogued(&fd) };
        let set = set_owner().and_then(|()| set_extras());
        // A new time would hide that somebody wrote to it meanwhile.
        let written = catalogued.as_ref().is_some_and(|catalogued| !catalogued.are_of(&fd));
        let set = set.and_then(|()| set_times());
        let is_set = |time| !written && preserve.times && clock.shows(meta.mtime, time);
        catalogued.iter().for_each(|catalogued| extras.follow((&fd, path), catalogued, is_set));
        let kept = kept.filter(|_| preserve.times && is_late);
        set.and_then(|()| kept.map_or(Ok(()), |kept| sums::follow_time(inode, &kept)))
    };
    kept_by_owner(path, set, "set the metadata of")
}

/// Gives the file at `path` these permissions, if any, and the extras in `wanted`, if it is still
/// the one that was seen there. It need not be readable for that.
pub(crate) fn fit(
    walk: &Walk,
    path: &RelPath,
    seen: &Meta,
    (bits, wanted): (Option<u32>, &Meta),
    (extras, preserve): (&ExtrasKeeper, Preserve),
) -> Result<(), DiskError> {
    let (dir, name) = walk.parent(path)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(&dir, name, flags, Mode::empty()).map_err(|error| DiskError::call("open", path, error))?;
    let stat = fstat(&fd).map_err(|error| DiskError::call("examine", path, error))?;
    if type_of(&stat) != FileType::RegularFile || meta_of(&stat) != *seen {
        return Ok(());
    }
    if stat.st_nlink > 1 {
        let is_other_mode = bits.is_some_and(|bits| bits != stat.st_mode & 0o777);
        let others: &[LossKind] = if is_other_mode { &[LossKind::Mode] } else { &[] };
        extras.spared(path, (wanted, preserve), others);
        return Ok(());
    }
    let inode = HeldInode::place(&fd);
    let set_mode = || {
        let set_ids = extras.set_owner(inode, path, (wanted, preserve))?;
        extras.clear_access(inode, path, (wanted, preserve))?;
        let bits = if set_ids != 0 { Some(bits.unwrap_or(stat.st_mode & 0o777) | set_ids) } else { bits };
        bits.map_or(Ok(()), |bits| dir.kernel().chmod_place(&fd, mode(bits)))
    };
    let set_extras = || extras.set_attributes(inode, path, (wanted, preserve), History::Stood);
    let catalogued = extras.catalogued(&fd);
    let set = set_mode().and_then(|()| set_extras());
    catalogued.iter().for_each(|catalogued| extras.follow((&fd, path), catalogued, |_| false));
    kept_by_owner(path, set, "set the metadata of")
}

/// Accepts a refused change of metadata: another user's file keeps the mode and times that its
/// owner gave it, and its content is right all the same.
fn kept_by_owner(path: &RelPath, set: Result<(), Errno>, call: &'static str) -> Result<(), DiskError> {
    match set {
        Err(error @ (Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::MLINK)) => {
            tracing::debug!(path = %path.escaped(), %error, "a file that was found the same keeps its mode and time");
            Ok(())
        }
        set => set.map_err(|error| DiskError::call(call, path, error)),
    }
}

fn open(walk: &Walk, path: &RelPath) -> Result<OwnedFd, DiskError> {
    let (dir, name) = walk.parent(path)?;
    // A fifo put in the file's place must not block the opening.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(&dir, name, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOENT => other(path),
        error => DiskError::call("open", path, error),
    })
}

fn other(path: &RelPath) -> DiskError {
    DiskError::Changed { path: path.into(), how: "it was written to or replaced" }
}

#[cfg(test)]
mod tests;
