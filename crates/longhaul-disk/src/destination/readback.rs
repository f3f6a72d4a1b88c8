//! Reads written and synced bytes back from the medium, through a descriptor of its own.
//!
//! In: a temporary and a range. Out: its bytes, and whether the page cache could be passed by.
//! Where it cannot, the cached pages of the range are dropped first, which the system takes as
//! advice only. Knows nothing of digests.

use longhaul_core::RelPath;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::direct::{DirectMode, Handle};
use crate::error::DiskError;
use crate::fill::{Back, Cached, fill};
use crate::walk::Dir;

/// Reads `len` bytes at `offset` of the file under `name` into the start of `slot`, however the
/// file is written.
pub(crate) fn read(
    dir: &Dir,
    name: &[u8],
    path: &RelPath,
    offset: u64,
    len: usize,
    slot: &mut [u8],
) -> Result<Back, DiskError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty()).map_err(|error| DiskError::call("read back", path, error))?;
    let (handle, _) = Handle::adopt(fd, path.into(), DirectMode::Auto, OFlags::NONBLOCK)?;
    if len > slot.len() {
        return Err(DiskError::Bounds { path: path.into(), offset, len });
    }
    let handle = handle.written_by(dir.kernel());
    fill(&handle, offset, len, slot, Cached::Dropped)
}

/// The error of a tree that keeps nothing.
pub(crate) fn impossible(path: &RelPath) -> DiskError {
    DiskError::call("read back", path, Errno::OPNOTSUPP)
}
