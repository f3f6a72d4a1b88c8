//! Free space of a file system, as its `statvfs` tells.
//!
//! In: what the system says. Out: bytes and inodes that are free to this user. It asks nothing
//! itself.

use rustix::fs::StatVfs;

/// Bytes and inodes that are free to this user. `None` where the file system reports no size:
/// ramfs, a tmpfs without a limit and FUSE without `statfs` say that nothing is free, and take all
/// data.
pub(super) fn room_of(stat: &StatVfs, is_root: bool) -> Option<(u64, Option<u64>)> {
    if stat.f_blocks == 0 {
        return None;
    }
    // Root may take the space that is reserved for it.
    let blocks = if is_root { stat.f_bfree } else { stat.f_bavail };
    let inodes = (stat.f_files > 0).then_some(if is_root { stat.f_ffree } else { stat.f_favail });
    Some((blocks.saturating_mul(stat.f_frsize), inodes))
}
