//! Keeps the checksums of a received file in an extended attribute of it, else in the catalogue of
//! this side.
//!
//! In: the checksums that this side computed, and the open file, which has its length and times and
//! may be written to by its owner. Out: the attribute; an entry of the catalogue, once the file has
//! its name; or a loss that is counted. A file system without attributes fails no file, and neither
//! do a catalogue that cannot be written to and checksums that nobody computed.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::PoisonError;

use longhaul_core::checksum::FileSums;
use longhaul_core::kept_sums::{KEPT_SUMS_BYTES_MAX, KEPT_SUMS_NAME, KeptSums};
use longhaul_core::{LossKind, LossReason, Mtime, RelPath};
use rustix::fs;
use rustix::io::Errno;

use super::super::staged::Staged;
use super::{ExtrasKeeper, HeldInode, loss_of};
use crate::catalogue::{Durable, FileMark, SumsCatalogue};
use crate::stat::{Identity, identity_of};

/// Checksums that the file system does not keep with their file, and the file as it was when that
/// was found out. They go to the catalogue when it has its name: a name changes it.
#[derive(Clone, Debug)]
pub(crate) struct SumsToCatalogue {
    file: FileSums,
    inode: (u64, u64),
    mtime: Mtime,
    /// The reason for which they are no attribute.
    reason: LossReason,
}

/// Checksums that the catalogue has of a file, and the mark by which it has them.
#[derive(Clone, Debug)]
pub(crate) struct CataloguedSums {
    file: FileSums,
    mark: FileMark,
}

/// Checksums by the inodes of their files.
pub(crate) type SumsByInode = HashMap<(u64, u64), SumsToCatalogue>;

impl SumsToCatalogue {
    /// Whether a file is that one, as it was.
    fn is_of(&self, mark: &FileMark) -> bool {
        ((mark.dev, mark.ino), mark.len, mark.mtime) == (self.inode, self.file.len, self.mtime)
    }
}

impl ExtrasKeeper {
    /// The same, which keeps what file systems do not keep in a catalogue. `None`: nowhere.
    pub(crate) fn cataloguing(self, catalogue: Option<SumsCatalogue>) -> ExtrasKeeper {
        ExtrasKeeper { catalogue, ..self }
    }

    /// Keeps checksums with an inode, behind its times: only another write of it changes those.
    /// `None`: they were wanted, and are not known. The policy of a tree for attributes of users is
    /// no matter of this one, which is ours. Returns those that are to be catalogued.
    pub(crate) fn keep_sums(
        &self,
        inode: HeldInode<'_>,
        path: &RelPath,
        file: Option<&FileSums>,
    ) -> Result<Option<SumsToCatalogue>, Errno> {
        let Some(file) = file else {
            self.lose(LossKind::Checksums, LossReason::NotComputed, path);
            return Ok(None);
        };
        let is = identity_of(&fs::fstat(inode.fd)?);
        let Err(error) = write_line(inode, file, is.mtime) else { return Ok(None) };
        let reason = loss_of(error).ok_or(error)?;
        let sums = SumsToCatalogue { file: file.clone(), inode: (is.dev, is.ino), mtime: is.mtime, reason };
        if self.catalogue.as_ref().is_some_and(|catalogue| catalogue.knows_again(inode.fd, is.dev)) {
            return Ok(Some(sums));
        }
        self.lose_sums(path, &sums);
        Ok(None)
    }

    /// Counts checksums that are kept nowhere.
    pub(crate) fn lose_sums(&self, path: &RelPath, sums: &SumsToCatalogue) {
        self.lose(LossKind::Checksums, sums.reason, path);
    }

    /// Keeps the checksums of files that have their names in the catalogue, durably. Those that it
    /// does not take are counted.
    pub(crate) fn catalogue(&self, staged: &[&Staged]) {
        let Some(catalogue) = &self.catalogue else { return };
        let (mut files, mut paths) = (Vec::new(), Vec::new());
        for one in staged.iter().filter(|one| one.is_published()) {
            let (Some(sums), Some((dir, name))) = (one.sums_to_catalogue(), one.stands_at()) else { continue };
            match FileMark::at(dir, name) {
                Ok(mark) if sums.is_of(&mark) => {
                    files.push((mark, &sums.file));
                    paths.push(one.path());
                }
                Ok(_) | Err(Errno::NOENT) => self.lose(LossKind::Checksums, LossReason::Changed, one.path()),
                Err(_) => self.lose(LossKind::Checksums, LossReason::Failed, one.path()),
            }
        }
        if !catalogue.keep(&files, Durable::Now) {
            paths.iter().for_each(|path| self.lose(LossKind::Checksums, LossReason::Failed, path));
        }
    }

    /// The checksums that the catalogue has of an open file, whose metadata is to be changed.
    pub(crate) fn catalogued(&self, file: impl AsFd) -> Option<CataloguedSums> {
        let catalogue = self.catalogue.as_ref().filter(|catalogue| catalogue.stands())?;
        let mark = FileMark::of(&file).ok()?;
        catalogue.find_of(file, &mark).map(|kept| CataloguedSums { file: kept.file, mark })
    }

    /// Has an entry of the catalogue follow what was changed of its file here.
    pub(crate) fn follow(&self, file: impl AsFd, catalogued: &CataloguedSums) {
        let (Some(catalogue), Ok(mark)) = (&self.catalogue, FileMark::of(file)) else { return };
        let before = &catalogued.mark;
        if mark != *before && (mark.dev, mark.ino, mark.len) == (before.dev, before.ino, before.len) {
            // Without the new entry the old one is out of date, and no checksum is believed.
            let _ = catalogue.keep(&[(mark, &catalogued.file)], Durable::Later);
        }
    }

    /// The checksums that the catalogue has of a file under this name, which is to get another one:
    /// that changes it. If it is getting one already, they are those that it had before.
    pub(crate) fn to_catalogue_again(&self, dir: impl AsFd, name: &[u8]) -> Option<SumsToCatalogue> {
        let catalogue = self.catalogue.as_ref().filter(|catalogue| catalogue.stands())?;
        let mark = FileMark::at(&dir, name).ok()?;
        let inode = (mark.dev, mark.ino);
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = match catalogue.find_of(dir, &mark) {
            Some(KeptSums { file, mtime }) => SumsToCatalogue { file, inode, mtime, reason: LossReason::Unsupported },
            None => named.get(&inode).filter(|sums| sums.is_of(&mark))?.clone(),
        };
        if named.len() == NAMED_MAX {
            named.clear();
        }
        named.insert(inode, sums.clone());
        Some(sums)
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
    let mtime = identity_of(&fs::fstat(inode.fd)?).mtime;
    write_line(inode, file, mtime).or_else(|error| loss_of(error).map(|_| ()).ok_or(error))
}

/// Sets the line that holds for a file with this time.
fn write_line(inode: HeldInode<'_>, file: &FileSums, mtime: Mtime) -> Result<(), Errno> {
    let line = KeptSums { file: file.clone(), mtime }.to_string();
    inode.set_value(KEPT_SUMS_NAME.as_bytes(), line.as_bytes())
}

/// Files with several names that are remembered while they get them: the names of a file mostly
/// come soon after each other.
const NAMED_MAX: usize = 1024;
