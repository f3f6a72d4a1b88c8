//! Keeps the checksums of a received file in an extended attribute of it, else in the catalogue of
//! this side.
//!
//! In: the checksums that this side computed, and the open file, which has its length and times and
//! may be written to by its owner. Out: the attribute; an entry of the catalogue, once the file has
//! its name; or a loss that is counted. A file system without attributes fails no file, and neither
//! do a catalogue that cannot be written to and checksums that nobody computed.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::checksum::FileSums;
use longhaul_core::kept_sums::{KEPT_SUMS_BYTES_MAX, KEPT_SUMS_NAME, KeptSums};
use longhaul_core::{LossKind, LossReason, Mtime, RelPath};
use rustix::fs;
use rustix::io::Errno;

use super::super::staged::Staged;
use super::{ExtrasKeeper, HeldInode, loss_of};
use crate::catalogue::{Durable, EntryFate, FileMark, SumsCatalogue};
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
    /// The mark of a file that stood, and gets further names here: each changes it. `None`: it has
    /// been ours alone.
    named: Option<Arc<Mutex<FileMark>>>,
}

/// Checksums that the catalogue has of a file, and the mark by which it has them.
#[derive(Clone, Debug)]
pub(crate) struct CataloguedSums {
    file: FileSums,
    mark: FileMark,
}

/// Checksums by the inodes of their files.
pub(crate) type SumsByInode = HashMap<(u64, u64), SumsToCatalogue>;

impl CataloguedSums {
    /// Whether nobody wrote to the file since, as far as its length and time show it.
    pub(crate) fn are_of(&self, file: impl AsFd) -> bool {
        let is = fs::fstat(file).map(|stat| identity_of(&stat));
        is.is_ok_and(|is| (is.len, is.mtime) == (self.mark.len, self.mark.mtime))
    }
}

impl SumsToCatalogue {
    /// Whether a file is that one, as it was.
    fn is_of(&self, mark: &FileMark) -> bool {
        ((mark.dev, mark.ino), mark.len, mark.mtime) == (self.inode, self.file.len, self.mtime)
    }

    /// Whether nothing but what was done here changed the file, which has this mark.
    fn hold_for(&self, mark: &FileMark) -> bool {
        let is_expected = |named: &Arc<Mutex<FileMark>>| *lock(named) == *mark;
        self.is_of(mark) && self.named.as_ref().is_none_or(is_expected)
    }

    /// Changes the names of the file, whose mark they are known by follows, if it was right.
    pub(crate) fn following<T>(&self, is: impl Fn() -> Option<FileMark>, change: impl FnOnce() -> T) -> T {
        let Some(named) = &self.named else { return change() };
        let mut mark = lock(named);
        let was_right = is() == Some(*mark);
        let changed = change();
        if was_right && let Some(now) = is().filter(|now| self.is_of(now)) {
            *mark = now;
        }
        changed
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
        let sums =
            SumsToCatalogue { file: file.clone(), inode: (is.dev, is.ino), mtime: is.mtime, reason, named: None };
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
                Ok(mark) if sums.hold_for(&mark) => {
                    files.push((mark, &sums.file));
                    paths.push(one.path());
                }
                Ok(_) | Err(Errno::NOENT) => self.lose(LossKind::Checksums, LossReason::Changed, one.path()),
                Err(_) => self.lose(LossKind::Checksums, LossReason::Failed, one.path()),
            }
        }
        for (path, fate) in paths.iter().zip(catalogue.keep(&files, Durable::Now)) {
            self.lose_by(path, fate);
        }
    }

    /// Counts what an entry cost. Another file's is counted under the name of the file that has
    /// its place, as nobody knows its own.
    fn lose_by(&self, path: &RelPath, fate: EntryFate) {
        match fate {
            EntryFate::Kept => {}
            EntryFate::Displaced => self.lose(LossKind::Checksums, LossReason::TooMany, path),
            EntryFate::Failed => self.lose(LossKind::Checksums, LossReason::Failed, path),
        }
    }

    /// The checksums that the catalogue has of an open file, whose metadata is to be changed.
    pub(crate) fn catalogued(&self, file: impl AsFd) -> Option<CataloguedSums> {
        let catalogue = self.catalogue.as_ref().filter(|catalogue| catalogue.stands())?;
        let mark = FileMark::of(&file).ok()?;
        catalogue.find_of(file, &mark).map(|kept| CataloguedSums { file: kept.file, mark })
    }

    /// Has an entry of the catalogue follow what was changed of its file here. The time of its
    /// content must be the one of before, or one that was `set` here: else somebody writes to it.
    pub(crate) fn follow(
        &self,
        (file, path): (impl AsFd, &RelPath),
        catalogued: &CataloguedSums,
        set: impl Fn(Mtime) -> bool,
    ) {
        let (Some(catalogue), before) = (&self.catalogue, &catalogued.mark) else { return };
        // Without the new entry the old one is out of date, and no checksum is believed.
        match FileMark::of(file) {
            Ok(mark) if mark == *before => {}
            Ok(mark) if mark.len == before.len && (mark.mtime == before.mtime || set(mark.mtime)) => {
                let fates = catalogue.keep(&[(mark, &catalogued.file)], Durable::Later);
                fates.iter().for_each(|fate| self.lose_by(path, *fate));
            }
            Ok(_) => self.lose(LossKind::Checksums, LossReason::Changed, path),
            Err(_) => self.lose(LossKind::Checksums, LossReason::Failed, path),
        }
    }

    /// Makes another name, which will be `path`, of the file under this one: that changes it.
    /// Returns its checksums, which are to be catalogued again, if the catalogue has some.
    pub(crate) fn linking<T>(
        &self,
        (dir, name): (impl AsFd, &[u8]),
        path: &RelPath,
        link: impl FnOnce() -> T,
    ) -> (T, Option<SumsToCatalogue>) {
        let is = || FileMark::at(&dir, name).ok();
        let Some(sums) = self.to_catalogue_again(&dir, is(), path) else { return (link(), None) };
        let linked = sums.following(is, link);
        (linked, Some(sums))
    }

    /// The checksums that the catalogue has of the file with this mark. If it is getting a name
    /// already, they are those that it had before.
    fn to_catalogue_again(&self, dir: impl AsFd, mark: Option<FileMark>, path: &RelPath) -> Option<SumsToCatalogue> {
        let catalogue = self.catalogue.as_ref().filter(|catalogue| catalogue.stands())?;
        let mark = mark?;
        let inode = (mark.dev, mark.ino);
        let mut named = lock(&self.named);
        if let Some(sums) = named.get(&inode).filter(|sums| sums.hold_for(&mark)) {
            return Some(sums.clone());
        }
        let Some(KeptSums { file, mtime }) = catalogue.find_of(dir, &mark) else {
            if named.remove(&inode).is_some() {
                self.lose(LossKind::Checksums, LossReason::Changed, path);
            }
            return None;
        };
        let (reason, mark) = (LossReason::Unsupported, Arc::new(Mutex::new(mark)));
        let sums = SumsToCatalogue { file, inode, mtime, reason, named: Some(mark) };
        if named.len() == NAMED_MAX {
            named.clear();
        }
        named.insert(inode, sums.clone());
        Some(sums)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests;
