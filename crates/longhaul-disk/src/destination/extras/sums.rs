//! Keeps the checksums of a received file in an extended attribute of it.
//!
//! In: the checksums that this side computed, and the open file, which has its length and times.
//! Out: the attribute, or a loss that is counted: a file system without attributes fails no file.

use longhaul_core::checksum::FileSums;
use longhaul_core::kept_sums::{KEPT_SUMS_NAME, KeptSums};
use longhaul_core::{LossKind, Mtime, RelPath};
use rustix::fs;
use rustix::io::Errno;

use super::{ExtrasKeeper, HeldInode};

impl ExtrasKeeper {
    /// Keeps checksums with an inode, behind its times: only another write of it changes those. The
    /// policy of a tree for attributes of users is no matter of this one, which is ours.
    pub(crate) fn keep_sums(&self, inode: HeldInode<'_>, path: &RelPath, file: &FileSums) -> Result<(), Errno> {
        let stat = fs::fstat(inode.fd)?;
        let mtime = Mtime::said(stat.st_mtime as i64, stat.st_mtime_nsec as u32);
        let line = KeptSums { file: file.clone(), mtime }.to_string();
        self.counted(inode.set_value(KEPT_SUMS_NAME.as_bytes(), line.as_bytes()), LossKind::Checksums, path)
    }
}
