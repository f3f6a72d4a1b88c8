//! Free space of a file system, as its `statvfs` tells.
//!
//! In: what the system says. Out: bytes and inodes that are free to this user. It asks nothing
//! itself.

use rustix::fs::StatVfs;

/// Free space and file entries of a file system, as far as this user may take them: the part
/// reserved for root counts only for root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The file system's device number.
    pub device: u64,
    /// Free bytes.
    pub bytes: u64,
    /// Bytes of the whole file system.
    pub total: u64,
    /// Free inodes. `None` where their number is not fixed.
    pub inodes: Option<u64>,
    /// Whether more than `bytes` certainly cannot fit. False where files may be compressed.
    pub is_firm: bool,
}

/// The user for whom room is counted: file systems keep a reserve for root.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// Root.
    Root,
    /// Anybody else.
    Others,
}

/// Bytes of the whole file system.
pub(crate) fn total_of(stat: &StatVfs) -> u64 {
    stat.f_blocks.saturating_mul(stat.f_frsize)
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
