//! Making things durable: by file, by directory, or a whole file system at once, whichever is less work; and counting it.
//!
//! Told by the target what was made and changed; keeps the list of directories whose entries are not durable yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::RelPath;

use crate::error::{DiskError, ErrorKind};
use crate::kernel::Kernel;
use crate::target::Staged;
use crate::target::staged::Content;
use crate::walk::{Dir, Walk};

/// How many syncs there were, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    /// Whole files.
    pub fsync: u64,
    /// Whole file systems.
    pub syncfs: u64,
    /// The data of files.
    pub fdatasync: u64,
    /// Directories.
    pub dirsync: u64,
}

/// The syncs of one target.
#[derive(Debug, Default)]
pub(crate) struct Syncer {
    kernel: Kernel,
    /// A descriptor on each file system in use, opened before the first write there: from then on it reports every error.
    points: Mutex<HashMap<u64, Arc<OwnedFd>>>,
    unsynced: Mutex<Unsynced>,
    counts: Counts,
    costs: Costs,
}

/// Directories whose entries or metadata changed.
#[derive(Debug, Default)]
struct Unsynced {
    /// With the change that was last: a sync covers those that it began after.
    dirs: HashMap<RelPath, u64>,
    /// The last change that found no room in `dirs`; 0 for none.
    overflow: u64,
    changes: u64,
}

#[derive(Debug, Default)]
struct Counts {
    fsync: AtomicU64,
    syncfs: AtomicU64,
    fdatasync: AtomicU64,
    dirsync: AtomicU64,
}

/// What syncs took here, in nanoseconds, smoothed: decides between one by one and all at once.
#[derive(Debug)]
struct Costs {
    file: AtomicU64,
    dir: AtomicU64,
    file_system: AtomicU64,
}

impl Syncer {
    /// Syncs through `kernel`.
    pub(crate) fn new(kernel: Kernel) -> Syncer {
        Syncer { kernel, ..Syncer::default() }
    }

    /// Holds a descriptor on the file system of `dir`, before anything is written there.
    pub(crate) fn watch(&self, dir: &Dir, path: &RelPath) -> Result<(), DiskError> {
        if let Entry::Vacant(point) = lock(&self.points).entry(dir.dev()) {
            let fd = dir.readable().map_err(|error| DiskError::call("open", path, error))?;
            self.kernel.watch(&fd).map_err(|error| DiskError::call("watch", path, error))?;
            point.insert(Arc::new(fd));
        }
        Ok(())
    }

    /// Takes note that entries in (or the metadata of) the directory at `path` changed.
    pub(crate) fn changed(&self, path: &RelPath) {
        let mut unsynced = lock(&self.unsynced);
        unsynced.changes += 1;
        let change = unsynced.changes;
        if unsynced.dirs.len() < DIRS_NOTED_MAX || unsynced.dirs.contains_key(path) {
            unsynced.dirs.insert(path.clone(), change);
        } else {
            unsynced.overflow = change;
        }
    }

    /// Syncs the data of one file.
    pub(crate) fn data(&self, fd: impl AsFd, path: &RelPath) -> Result<(), DiskError> {
        count(&self.counts.fdatasync);
        self.kernel.fdatasync(fd).map_err(|error| DiskError::call("sync", path, error))
    }

    /// Syncs the content and metadata of all of `staged`.
    pub(crate) fn files(&self, staged: &[Staged]) -> Result<(), DiskError> {
        let mut by_dev: HashMap<u64, Vec<&Staged>> = HashMap::new();
        for one in staged {
            if let (Some(dir), Some(content)) = (one.dir(), one.content())
                && !matches!(content, Content::Link)
            {
                by_dev.entry(dir.dev()).or_default().push(one);
            }
        }
        for (dev, group) in by_dev {
            let open = group.iter().all(|one| !matches!(one.content(), Some(Content::Closed)));
            if open && self.costs.one_by_one(&self.costs.file, group.len()) {
                self.each(&group)?;
            } else {
                self.file_system(dev, group[0].path())?;
            }
        }
        Ok(())
    }

    fn each(&self, group: &[&Staged]) -> Result<(), DiskError> {
        let begun = Instant::now();
        for one in group {
            if let Some(fd) = one.content().and_then(Content::fd) {
                count(&self.counts.fsync);
                self.kernel.fsync(fd).map_err(|error| DiskError::call("sync", one.path(), error))?;
            }
        }
        Costs::took(&self.costs.file, begun, group.len());
        Ok(())
    }

    /// Syncs the directories of `staged` and all that were noted as changed.
    pub(crate) fn dirs(&self, walk: &Walk, staged: &[Staged]) -> Result<(), DiskError> {
        let (noted, overflow) = {
            let unsynced = lock(&self.unsynced);
            (unsynced.dirs.clone(), unsynced.overflow)
        };
        let mut dirs: HashMap<RelPath, Option<Arc<Dir>>> = noted.keys().map(|path| (path.clone(), None)).collect();
        for one in staged {
            if let (Some(parent), Some(dir)) = (one.path().parent(), one.dir()) {
                dirs.insert(parent, Some(Arc::clone(dir)));
            }
        }
        if overflow == 0 && self.costs.one_by_one(&self.costs.dir, dirs.len()) {
            self.each_dir(walk, &dirs)?;
        } else {
            self.all_file_systems()?;
        }
        self.synced(&noted, overflow);
        Ok(())
    }

    fn each_dir(&self, walk: &Walk, dirs: &HashMap<RelPath, Option<Arc<Dir>>>) -> Result<(), DiskError> {
        let begun = Instant::now();
        for (path, dir) in dirs {
            match self.dir(walk, path, dir.as_ref()) {
                // Its mode forbids to open it, even to us who set that mode.
                Err(error) if error.kind() == ErrorKind::Denied => return self.all_file_systems(),
                outcome => outcome?,
            }
        }
        Costs::took(&self.costs.dir, begun, dirs.len());
        Ok(())
    }

    fn dir(&self, walk: &Walk, path: &RelPath, dir: Option<&Arc<Dir>>) -> Result<(), DiskError> {
        let dir = match dir.map_or_else(|| walk.dir(path), |dir| Ok(Arc::clone(dir))) {
            Ok(dir) => dir,
            // Somebody removed it since: nothing of it is left to be made durable.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        count(&self.counts.dirsync);
        dir.sync().map_err(|error| DiskError::call("sync", path, error))
    }

    /// Makes durable the names by which a file in `dir` is found: its own, and those above it that were noted.
    pub(crate) fn names(&self, walk: &Walk, path: &RelPath, dir: &Arc<Dir>) -> Result<(), DiskError> {
        let above: Vec<RelPath> = std::iter::successors(path.parent(), RelPath::parent).collect();
        let (noted, overflow) = {
            let unsynced = lock(&self.unsynced);
            let noted = above.iter().filter_map(|path| Some((path.clone(), *unsynced.dirs.get(path)?)));
            (noted.collect::<HashMap<RelPath, u64>>(), unsynced.overflow)
        };
        if overflow == 0 {
            let mut dirs: HashMap<RelPath, Option<Arc<Dir>>> = noted.keys().map(|path| (path.clone(), None)).collect();
            dirs.extend(above.into_iter().next().map(|parent| (parent, Some(Arc::clone(dir)))));
            self.each_dir(walk, &dirs)?;
        } else {
            self.all_file_systems()?;
        }
        self.synced(&noted, overflow);
        Ok(())
    }

    /// Forgets the changes that a sync covered. One that came meanwhile stays for the next.
    fn synced(&self, noted: &HashMap<RelPath, u64>, overflow: u64) {
        let mut unsynced = lock(&self.unsynced);
        unsynced.dirs.retain(|path, change| noted.get(path) != Some(change));
        if unsynced.overflow == overflow {
            unsynced.overflow = 0;
        }
    }

    fn all_file_systems(&self) -> Result<(), DiskError> {
        let devs: Vec<u64> = lock(&self.points).keys().copied().collect();
        devs.into_iter().try_for_each(|dev| self.file_system(dev, &RelPath::root()))
    }

    fn file_system(&self, dev: u64, path: &RelPath) -> Result<(), DiskError> {
        let point = lock(&self.points).get(&dev).map(Arc::clone);
        let Some(point) = point else {
            return Err(DiskError::call("sync", path, rustix::io::Errno::BADF));
        };
        let begun = Instant::now();
        count(&self.counts.syncfs);
        self.kernel.syncfs(&*point).map_err(|error| DiskError::call("sync the file system of", path, error))?;
        Costs::took(&self.costs.file_system, begun, 1);
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

impl Costs {
    /// Whether `n` of a kind should be synced one by one. One always is: that is no more work than syncing everything.
    ///
    /// Whatever is not done becomes a little cheaper in our eyes, so that one bad time (a file system full of other
    /// people's dirty data) is not remembered for ever.
    fn one_by_one(&self, each: &AtomicU64, n: usize) -> bool {
        let (each_ns, all_ns) = (each.load(Ordering::Relaxed), self.file_system.load(Ordering::Relaxed));
        let chosen = n <= 1 || (n as u64).saturating_mul(each_ns) <= all_ns;
        let other = if chosen { &self.file_system } else { each };
        if n > 1 {
            other.store(if chosen { all_ns } else { each_ns } / 16 * 15, Ordering::Relaxed);
        }
        chosen
    }

    fn took(cost: &AtomicU64, begun: Instant, n: usize) {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX) / (n as u64).max(1);
        let smoothed = cost.load(Ordering::Relaxed) / 4 * 3 + ns / 4;
        cost.store(smoothed.max(1), Ordering::Relaxed);
    }
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            file: AtomicU64::new(SYNC_NS_EXPECTED),
            dir: AtomicU64::new(SYNC_NS_EXPECTED),
            file_system: AtomicU64::new(FILE_SYSTEM_SYNC_NS_EXPECTED),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Small files that are kept open to be synced one by one; a batch with more is synced with its file system.
pub(crate) const OPEN_STAGED_MAX: usize = 64;
/// Where the choice starts: up to 4 one by one. Measured on ext4 (virtio disk, others working), medians in ms, one by one /
/// all at once: files of 16 KiB, 4: 0.6 / 1.9, 8: 2.4 / 0.6, 16: 8.7 / 3.2, 128: 32 / 2.8 (4 threads: 12); with 64 MiB of
/// other data dirty, 4: 44 / 27, 128: 394 / 30. Directories, 1: 3.8 / 3.8, 8: 20 / 3.8, 64: 208 / 3.5.
const SYNC_NS_EXPECTED: u64 = 1_000_000;
/// See above.
const FILE_SYSTEM_SYNC_NS_EXPECTED: u64 = 4 * SYNC_NS_EXPECTED;
/// Changed directories that are remembered by name.
const DIRS_NOTED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheaper_way_is_taken_and_the_other_is_not_forgotten() {
        let costs = Costs::default();
        assert!(costs.one_by_one(&costs.file, 4));
        assert!(!costs.one_by_one(&costs.file, 5));
        costs.file_system.store(1_000_000_000, Ordering::Relaxed);
        let tries = (0..100).take_while(|_| costs.one_by_one(&costs.file, 64)).count();
        assert!((1..100).contains(&tries), "a slow file system is tried again after {tries}");
        costs.file.store(u64::MAX, Ordering::Relaxed);
        assert!(costs.one_by_one(&costs.file, 1));
    }
}
