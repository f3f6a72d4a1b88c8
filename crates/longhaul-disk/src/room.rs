//! Free space of a file system, as its `statvfs` tells.
//!
//! In: what the system says. Out: bytes and inodes that are free to this user. It asks nothing
//! itself.

use rustix::fs::StatVfs;

/// The user for whom room is counted: file systems keep a reserve for root.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// Root.
    Root,
    /// Anybody else.
    Others,
}

/// Bytes and inodes that are free to this user. `None` where the file system reports no size:
/// ramfs, a tmpfs without a limit and FUSE without `statfs` say that nothing is free, and take all
/// data.
pub(crate) fn room_of(stat: &StatVfs, asker: Asker) -> Option<(u64, Option<u64>)> {
    if stat.f_blocks == 0 {
        return None;
    }
    let (blocks, inodes) = match asker {
        Asker::Root => (stat.f_bfree, stat.f_ffree),
        Asker::Others => (stat.f_bavail, stat.f_favail),
    };
    let inodes = (stat.f_files > 0).then_some(inodes);
    Some((blocks.saturating_mul(stat.f_frsize), inodes))
}
