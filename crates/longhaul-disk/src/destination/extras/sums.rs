//! Keeps the checksums of a received file in an extended attribute of it.
//!
//! In: the checksums that this side computed, and the open file, which has its length and times and
//! may be written to by its owner. Out: the attribute, or a loss that is counted: a file system
//! without attributes fails no file, and neither do checksums that nobody computed.

use longhaul_core::checksum::FileSums;
use longhaul_core::kept_sums::{KEPT_SUMS_BYTES_MAX, KEPT_SUMS_NAME, KeptSums};
use longhaul_core::{LossKind, LossReason, Mtime, RelPath};
use rustix::fs;
use rustix::io::Errno;

use super::{ExtrasKeeper, HeldInode, loss_of};
use crate::stat::Identity;

impl ExtrasKeeper {
    /// Keeps checksums with an inode, behind its times: only another write of it changes those.
    /// `None`: they were wanted, and are not known. The policy of a tree for attributes of users is
    /// no matter of this one, which is ours.
    pub(crate) fn keep_sums(&self, inode: HeldInode<'_>, path: &RelPath, file: Option<&FileSums>) -> Result<(), Errno> {
        let Some(file) = file else {
            self.lose(LossKind::Checksums, LossReason::NotComputed, path);
            return Ok(());
        };
        self.counted(write_line(inode, file)?, LossKind::Checksums, path)
    }
}

/// The checksums that are kept with a file that stands as `version`. `None` if there are none, or
/// those that are there are of another version.
pub(crate) fn kept_sums(inode: HeldInode<'_>, version: &Identity) -> Option<FileSums> {
    let mut room = [0; KEPT_SUMS_BYTES_MAX];
    let len = inode.value(KEPT_SUMS_NAME.as_bytes(), &mut room).ok()??;
    let kept = KeptSums::parse(room.get(..len)?)?;
    kept.is_of(version.len, version.mtime).then_some(kept.file)
}

/// Has checksums that are kept with a file follow its new time. What cannot be set is out of date
/// then, and says so.
pub(crate) fn follow_time(inode: HeldInode<'_>, file: &FileSums) -> Result<(), Errno> {
    write_line(inode, file)?.or_else(|error| loss_of(error).map(|_| ()).ok_or(error))
}

/// Sets the line that holds for a file as it is. Two outcomes: of looking at it, and of setting.
fn write_line(inode: HeldInode<'_>, file: &FileSums) -> Result<Result<(), Errno>, Errno> {
    let stat = fs::fstat(inode.fd)?;
    let mtime = Mtime::said(stat.st_mtime as i64, stat.st_mtime_nsec as u32);
    let line = KeptSums { file: file.clone(), mtime }.to_string();
    Ok(inode.set_value(KEPT_SUMS_NAME.as_bytes(), line.as_bytes()))
}
