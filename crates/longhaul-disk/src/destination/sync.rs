//! Makes files and names durable: by file, by directory, or a whole file system at once, whichever
//! is less work where the file system allows the choice; and counts the syncs.
//!
//! The target tells it which files and names were made or changed; it keeps the list of directories
//! whose entries are not durable yet. [`Device`] knows what a failed sync means for others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::RelPath;
use rustix::io::Errno;

use super::Staged;
use super::body::DiskBody;
use super::costs::Costs;
use super::device::{Device, Mark, SyncMethod};
use super::staged::{StagedPart, Unsynced};
use crate::error::{DiskError, ErrorKind};
use crate::kernel::Kernel;
use crate::walk::{Dir, Walk};

/// The number of syncs, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    /// Syncs of whole files.
    pub fsync: u64,
    /// Syncs of whole file systems.
    pub syncfs: u64,
    /// Syncs of the data of files.
    pub fdatasync: u64,
    /// Syncs of directories.
    pub dirsync: u64,
}

impl SyncCounts {
    /// The syncs of two targets together.
    pub(crate) fn plus(self, other: SyncCounts) -> SyncCounts {
        SyncCounts {
            fsync: self.fsync + other.fsync,
            syncfs: self.syncfs + other.syncfs,
            fdatasync: self.fdatasync + other.fdatasync,
            dirsync: self.dirsync + other.dirsync,
        }
    }
}

/// The syncs of one target.
#[derive(Debug, Default)]
pub(crate) struct Syncer {
    /// Each file system in use, by its device number, watched since before the first write there.
    devices: Mutex<HashMap<u64, Arc<Device>>>,
    unsynced: Mutex<ChangedDirs>,
    counts: Counts,
    costs: Costs,
}

/// Directories whose entries or metadata changed.
#[derive(Debug, Default)]
struct ChangedDirs {
    dirs: HashMap<RelPath, Change>,
    /// The number of the last change that found no room in `dirs`; 0 if all did.
    overflow: u64,
    changes: u64,
}

/// The last change of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// The number of the change. A sync covers the directory if this is still the same at its end.
    number: u64,
    dev: u64,
}

/// Whether a changed directory will be synced with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Noted {
    /// It will be synced with the others.
    Yes,
    /// It will not: there is no room to remember it, and its file system cannot be synced as a
    /// whole. It must be synced now.
    Full,
}

/// Directories to sync, by file system. `Some` where the descriptor is at hand.
type Dirs = HashMap<u64, HashMap<RelPath, Option<Arc<Dir>>>>;

#[derive(Debug, Default)]
struct Counts {
    fsync: AtomicU64,
    syncfs: AtomicU64,
    fdatasync: AtomicU64,
    dirsync: AtomicU64,
}

impl Syncer {
    /// The file system of `dir`, watched from now on. It must be called before anything is written
    /// there.
    pub(crate) fn watch(&self, dir: &Dir, path: &RelPath) -> Result<Arc<Device>, DiskError> {
        match lock(&self.devices).entry(dir.dev()) {
            Entry::Occupied(device) => Ok(Arc::clone(device.get())),
            Entry::Vacant(place) => {
                let device = Device::watch(dir).map_err(|error| DiskError::call("open", path, error))?;
                Ok(Arc::clone(place.insert(Arc::new(device))))
            }
        }
    }

    /// Notes that entries in (or the metadata of) the directory at `path` changed.
    pub(crate) fn changed(&self, device: &Device, dev: u64, path: &RelPath) -> Noted {
        let mut unsynced = lock(&self.unsynced);
        unsynced.changes += 1;
        let number = unsynced.changes;
        if unsynced.dirs.len() < DIRS_NOTED_MAX || unsynced.dirs.contains_key(path) {
            unsynced.dirs.insert(path.clone(), Change { number, dev });
        } else if device.method() == SyncMethod::FileSystem {
            unsynced.overflow = number;
        } else {
            return Noted::Full;
        }
        Noted::Yes
    }

    /// Syncs the data of a file that stood, and gets another name.
    pub(crate) fn standing(&self, kernel: &Kernel, file: impl AsFd) -> Result<(), Errno> {
        count(&self.counts.fdatasync);
        kernel.fdatasync(file)
    }

    /// Syncs the data that was written to a body of the file at `path`.
    pub(crate) fn data(&self, path: &RelPath, body: &DiskBody) -> Result<(), DiskError> {
        count(&self.counts.fdatasync);
        let mark = body.mark();
        let now = Mark::now(mark.device());
        let synced = mark.device().kernel().fdatasync(body);
        let synced = synced.and_then(|()| mark.device().takes_changes());
        mark_by(mark, &now, synced).map_err(|error| DiskError::call("sync", path, error))
    }

    /// Syncs the content and metadata of a small file, through its own descriptor.
    pub(crate) fn file(&self, fd: impl AsFd, path: &RelPath, mark: &Mark) -> Result<(), DiskError> {
        count(&self.counts.fsync);
        let now = Mark::now(mark.device());
        let synced = mark.device().kernel().fsync(fd);
        mark_by(mark, &now, synced).map_err(|error| DiskError::call("sync", path, error))
    }

    /// Syncs the content and metadata of all of `staged`; an error where another sync failed since
    /// one of them was begun, and its own descriptor does not prove it.
    pub(crate) fn files(&self, staged: &[&Staged]) -> Result<(), DiskError> {
        let mut by_dev: HashMap<u64, Vec<StagedPart<'_>>> = HashMap::new();
        for part in staged.iter().flat_map(|one| one.parts()) {
            if !matches!(part.unsynced, Unsynced::Nothing) {
                by_dev.entry(part.temp.dir().dev()).or_default().push(part);
            }
        }
        for group in by_dev.values() {
            let device = group[0].mark.device();
            let open = group.iter().all(|part| matches!(part.unsynced, Unsynced::Open(_)));
            let each = device.method() == SyncMethod::Each || self.costs.files_one_by_one(group.len());
            if open && each {
                self.each(group)?;
            } else {
                self.file_system(device, group[0].path)?;
                // Another sync's failure may leave a file in doubt; its own descriptor proves it,
                // if it is open.
                let doubtful: Vec<StagedPart<'_>> = group.iter().filter(|part| !part.mark.holds()).copied().collect();
                self.each(&doubtful)?;
            }
        }
        match staged.iter().find(|one| !one.is_believed()) {
            Some(one) => Err(DiskError::Doubted { path: one.path().into() }),
            None => Ok(()),
        }
    }

    /// Syncs files one by one, as far as they are open.
    fn each(&self, group: &[StagedPart<'_>]) -> Result<(), DiskError> {
        let begun = Instant::now();
        for part in group {
            if let Unsynced::Open(fd) = part.unsynced {
                self.file(fd, part.path, part.mark)?;
            }
        }
        let Some(first) = group.first() else { return Ok(()) };
        self.costs.took_files(begun, group.len());
        let confirmed = first.mark.device().confirmed(Ok(()));
        confirmed.map_err(|error| DiskError::call("sync", first.path, error))
    }

    /// Syncs the directories of `staged` and all that were noted as changed.
    pub(crate) fn dirs(&self, walk: &Walk, staged: &[&Staged]) -> Result<(), DiskError> {
        let (noted, overflow) = {
            let unsynced = lock(&self.unsynced);
            (unsynced.dirs.clone(), unsynced.overflow)
        };
        let mut dirs = by_device(&noted);
        for one in staged {
            if let (Some(parent), Some(part)) = (one.path().parent(), one.parts().next()) {
                let dir = part.temp.dir();
                dirs.entry(dir.dev()).or_default().insert(parent, Some(Arc::clone(dir)));
            }
        }
        self.sync_dirs(walk, dirs, overflow)?;
        // The further parts of a spread file lie in directories of other targets.
        for part in staged.iter().flat_map(|one| one.parts().skip(1)) {
            let fd = part.temp.dir().readable().map_err(|error| DiskError::call("open", part.path, error))?;
            self.open_dir(part.mark.device(), fd, part.path)?;
        }
        // Another sync may have failed since these were renamed, and heard of their names.
        if let Some(one) = staged.iter().find(|one| one.is_published() && !one.is_believed()) {
            return Err(DiskError::Doubted { path: one.path().into() });
        }
        self.synced(&noted, overflow);
        Ok(())
    }

    /// Makes durable the names by which a file in `dir` is found: its own, and the noted ones above
    /// it.
    pub(crate) fn names(&self, walk: &Walk, path: &RelPath, dir: &Arc<Dir>) -> Result<(), DiskError> {
        self.watch(dir, path)?;
        let above: Vec<RelPath> = std::iter::successors(path.parent(), RelPath::parent).collect();
        let (noted, overflow) = {
            let unsynced = lock(&self.unsynced);
            let noted = above.iter().filter_map(|path| Some((path.clone(), *unsynced.dirs.get(path)?)));
            (noted.collect::<HashMap<RelPath, Change>>(), unsynced.overflow)
        };
        let mut dirs = by_device(&noted);
        if let Some(parent) = above.into_iter().next() {
            dirs.entry(dir.dev()).or_default().insert(parent, Some(Arc::clone(dir)));
        }
        self.sync_dirs(walk, dirs, overflow)?;
        self.synced(&noted, overflow);
        Ok(())
    }

    /// Makes the names in these directories durable, as far as the directories stand.
    pub(crate) fn listed(&self, walk: &Walk, paths: &[RelPath]) -> Result<(), DiskError> {
        let mut dirs = Dirs::new();
        for path in paths {
            match walk.dir(path) {
                Ok(dir) => {
                    self.watch(&dir, path)?;
                    dirs.entry(dir.dev()).or_default().insert(path.clone(), None);
                }
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        if dirs.is_empty() { Ok(()) } else { self.sync_dirs(walk, dirs, 0) }
    }

    /// Syncs directories, and whole file systems where some were not noted or where that is less
    /// work.
    fn sync_dirs(&self, walk: &Walk, mut dirs: Dirs, overflow: u64) -> Result<(), DiskError> {
        let devices = lock(&self.devices).clone();
        for (dev, device) in devices {
            let dirs = dirs.remove(&dev).unwrap_or_default();
            let whole = device.method() == SyncMethod::FileSystem;
            if whole && (overflow > 0 || !self.costs.dirs_one_by_one(dirs.len())) {
                self.file_system(&device, &RelPath::root())?;
            } else {
                self.each_dir(walk, &device, &dirs)?;
            }
        }
        Ok(())
    }

    fn each_dir(
        &self,
        walk: &Walk,
        device: &Device,
        dirs: &HashMap<RelPath, Option<Arc<Dir>>>,
    ) -> Result<(), DiskError> {
        let begun = Instant::now();
        for (path, dir) in dirs {
            match self.dir(walk, device, path, dir.as_ref()) {
                // Its mode forbids to open it, even to us who set that mode.
                Err(error) if error.kind() == ErrorKind::Denied && device.method() == SyncMethod::FileSystem => {
                    return self.file_system(device, path);
                }
                outcome => outcome?,
            }
        }
        if !dirs.is_empty() {
            self.costs.took_dirs(begun, dirs.len());
        }
        Ok(())
    }

    fn dir(&self, walk: &Walk, device: &Device, path: &RelPath, dir: Option<&Arc<Dir>>) -> Result<(), DiskError> {
        let dir = match dir.map_or_else(|| walk.dir(path), |dir| Ok(Arc::clone(dir))) {
            Ok(dir) => dir,
            // It was removed since: nothing is left to be made durable.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let fd = dir.readable().map_err(|error| DiskError::call("open", path, error))?;
        self.open_dir(device, fd, path)
    }

    /// Syncs a directory that is open to be read.
    pub(crate) fn open_dir(&self, device: &Device, fd: impl AsFd, path: &RelPath) -> Result<(), DiskError> {
        count(&self.counts.dirsync);
        let synced = device.confirmed(device.kernel().fsync(fd));
        synced.map_err(|error| DiskError::call("sync the directory", path, error))
    }

    /// Forgets a directory that was synced by itself: it is not looked up again, as its mode may
    /// forbid that now.
    pub(crate) fn forget(&self, path: &RelPath) {
        lock(&self.unsynced).dirs.remove(path);
    }

    /// Forgets the changes that a sync covered. A change that came meanwhile stays for the next.
    fn synced(&self, noted: &HashMap<RelPath, Change>, overflow: u64) {
        let mut unsynced = lock(&self.unsynced);
        unsynced.dirs.retain(|path, change| noted.get(path) != Some(change));
        if unsynced.overflow == overflow {
            unsynced.overflow = 0;
        }
    }

    fn file_system(&self, device: &Device, path: &RelPath) -> Result<(), DiskError> {
        let begun = Instant::now();
        count(&self.counts.syncfs);
        device.sync_all().map_err(|error| DiskError::call("sync the file system of", path, error))?;
        self.costs.took_file_system(begun);
        Ok(())
    }

    pub(crate) fn counts(&self) -> SyncCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SyncCounts {
            fsync: get(&self.counts.fsync),
            syncfs: get(&self.counts.syncfs),
            fdatasync: get(&self.counts.fdatasync),
            dirsync: get(&self.counts.dirsync),
        }
    }
}

/// Draws the conclusions from the sync of one file, begun at `now`, for that file and for all
/// others.
fn mark_by(mark: &Mark, now: &Mark, outcome: Result<(), Errno>) -> Result<(), Errno> {
    match mark.device().noting(outcome) {
        Ok(()) => mark.synced(now),
        Err(error) => {
            mark.spoil();
            return Err(error);
        }
    }
    Ok(())
}

fn by_device(noted: &HashMap<RelPath, Change>) -> Dirs {
    let mut dirs = Dirs::new();
    for (path, change) in noted {
        dirs.entry(change.dev).or_default().insert(path.clone(), None);
    }
    dirs
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Small files that are kept open to be synced one by one; a batch with more is synced with its
/// file system.
pub(crate) const OPEN_STAGED_MAX: usize = 64;
/// Changed directories that are remembered by name.
const DIRS_NOTED_MAX: usize = 1024;

#[cfg(test)]
mod tests;
