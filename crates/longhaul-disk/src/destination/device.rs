//! One file system in use by a target: the way it is synced, and the failures of its syncs.
//!
//! In: a directory on it, before anything is written there. Out: syncs of the whole file system,
//! and [`Mark`]s, which tell whether all syncs went well since something was begun. Knows nothing
//! of batches and names.
//!
//! The rule behind it: the system reports a failed write-back *once* to each descriptor, no matter
//! which process wrote the data. A failed sync therefore concerns all data that was written before
//! it and is not published yet, in any batch, and a later sync that succeeds proves nothing of that
//! data. Each failure raises the file system's *generation*; a file or name that was begun in an
//! earlier generation is not believed any more. A file that was synced through its own descriptor,
//! open since before its first write, is proven by that: its own errors are reported there even if
//! other descriptors got them too.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::kernel::Kernel;
use crate::walk::Dir;

/// The way in which small files and names on a file system are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyncMethod {
    /// Synced by `syncfs`, or one by one, whichever is less work: `syncfs` there was seen to wait
    /// for all data and to report failures.
    FileSystem,
    /// Synced by `fsync` of each file and directory: `syncfs` there was seen to do nothing, or was
    /// never tried.
    Each,
}

/// A file system in use: see the module.
#[derive(Debug)]
pub(crate) struct Device {
    kernel: Kernel,
    method: SyncMethod,
    counts_blocks: bool,
    /// A descriptor open since before the first write: it reports every error from then on.
    fd: OwnedFd,
    /// Failures of syncs so far.
    generation: AtomicU64,
    /// Held by the one `syncfs` that is under way, until its failure is counted: the proof of
    /// another one is judged after that.
    turn: Mutex<()>,
    /// The second in which the first file was made there, by the file system's own clock, which may
    /// be another host's. [`NOTHING_YET`] before.
    began: AtomicI64,
}

/// A moment from which on no sync of a file system may have failed. Something that was begun at it
/// is believed as long as that holds.
#[derive(Debug)]
pub(crate) struct Mark {
    device: Arc<Device>,
    generation: AtomicU64,
    /// The generation in which the medium was last asked for its content; [`SPOILT`] before that.
    asked: AtomicU64,
}

impl Device {
    /// Watches the file system of `dir`, which must be readable.
    pub(crate) fn watch(dir: &Dir) -> Result<Device, Errno> {
        let (kernel, fd) = (dir.kernel().clone(), dir.readable()?);
        kernel.watch(&fd)?;
        let number = kernel.file_system_type(&fd)?;
        let method = method_of(number);
        tracing::info!(
            target: "longhaul::disk",
            file_system = format_args!("{number:#x}"),
            sync = method.name(),
            "how small files and names are made durable"
        );
        let counts_blocks = matches!(number, EXT4 | XFS | TMPFS);
        let (generation, began) = (AtomicU64::new(0), AtomicI64::new(NOTHING_YET));
        Ok(Device { kernel, method, counts_blocks, fd, generation, turn: Mutex::default(), began })
    }

    /// Notes the time at which `name` in `dir` (or `dir` itself, if `name` is empty) was just made,
    /// unless something was made before.
    pub(crate) fn made(&self, dir: impl AsFd, name: &[u8]) {
        if self.began().is_some() {
            return;
        }
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        // If it cannot be examined now, the next one is taken.
        if let Ok(stat) = statx(dir, name, flags, StatxFlags::CTIME) {
            // The earliest of those that were made at the same time.
            self.began.fetch_min(stat.stx_ctime.tv_sec, Ordering::AcqRel);
        }
    }

    /// The second of its clock in which the first file was made there. `None` if none was.
    pub(crate) fn began(&self) -> Option<i64> {
        Some(self.began.load(Ordering::Acquire)).filter(|&began| began != NOTHING_YET)
    }

    /// The same device with [`SyncMethod::Each`], as if its kind were unknown.
    #[cfg(test)]
    pub(crate) fn syncing_each(self) -> Device {
        Device { method: SyncMethod::Each, ..self }
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub(crate) fn method(&self) -> SyncMethod {
        self.method
    }

    /// Whether a file without holes has as many blocks there as its bytes need. False where it may
    /// be compressed.
    pub(crate) fn counts_blocks(&self) -> bool {
        self.counts_blocks
    }

    /// Notes that a sync on it failed: nothing that was begun before is believed without a proof of
    /// its own.
    pub(crate) fn fail(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes note of a sync's outcome.
    pub(crate) fn noting<T>(&self, outcome: Result<T, Errno>) -> Result<T, Errno> {
        outcome.inspect_err(|_| self.fail())
    }

    /// Makes durable all that was written to it before.
    ///
    /// # Errors
    /// The system's error; `ROFS` if the file system takes no more changes, which some kernels do
    /// not report here.
    pub(crate) fn sync_all(&self) -> Result<(), Errno> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.confirmed(self.kernel.syncfs(&self.fd))
    }

    /// Takes note of the outcome of a sync. One that is called good counts only if the file system
    /// still takes changes behind it: a journal that was aborted before is never taken up again, so
    /// that one which works now has written everything down that the sync was for.
    pub(crate) fn confirmed(&self, outcome: Result<(), Errno>) -> Result<(), Errno> {
        self.noting(outcome.and_then(|()| self.takes_changes()))
    }

    /// Fails if the file system takes no more changes, and takes no note of it.
    pub(crate) fn takes_changes(&self) -> Result<(), Errno> {
        self.kernel.takes_changes(&self.fd)
    }
}

impl Mark {
    /// A mark at the present moment.
    pub(crate) fn now(device: &Arc<Device>) -> Mark {
        let generation = AtomicU64::new(device.generation.load(Ordering::Acquire));
        Mark { device: Arc::clone(device), generation, asked: AtomicU64::new(SPOILT) }
    }

    /// Moves the mark to `now`, which was before a sync of the file's own that went well. If an own
    /// sync failed before, this proves nothing and the mark stays.
    pub(crate) fn synced(&self, now: &Mark) {
        if self.generation.load(Ordering::Acquire) != SPOILT {
            self.generation.store(now.generation.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// Notes that the file's own sync failed: the system tells of that once, and calls the next one
    /// good.
    pub(crate) fn spoil(&self) {
        self.generation.store(SPOILT, Ordering::Release);
    }

    /// Notes that the medium is about to be read. Its bytes are no answer to a failure from now on.
    pub(crate) fn ask(&self) {
        self.asked.store(self.device.generation.load(Ordering::Acquire), Ordering::Release);
    }

    /// Moves the mark to the moment in which the medium was asked, or to now if it was not: then
    /// its content is proven otherwise.
    pub(crate) fn begin_anew(&self) {
        let asked = match self.asked.swap(SPOILT, Ordering::AcqRel) {
            SPOILT => self.device.generation.load(Ordering::Acquire),
            asked => asked,
        };
        self.generation.store(asked, Ordering::Release);
    }

    /// Whether no sync of the file system has failed since the mark.
    pub(crate) fn holds(&self) -> bool {
        self.generation.load(Ordering::Acquire) == self.device.generation.load(Ordering::Acquire)
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl SyncMethod {
    /// The method at the directory `path` or, if that does not exist, at the nearest one above it
    /// that does. `None` if it cannot be told.
    pub fn at(path: &Path) -> Option<SyncMethod> {
        let standing = path.ancestors().map(|at| if at.as_os_str().is_empty() { Path::new(".") } else { at });
        let dir = standing.filter_map(|at| Dir::open_named(at).ok()).next()?;
        dir.kernel().file_system_type(&dir).ok().map(method_of)
    }

    /// The name of the method in the log and in events.
    pub const fn name(self) -> &'static str {
        match self {
            SyncMethod::FileSystem => "syncfs",
            SyncMethod::Each => "fsync",
        }
    }
}

/// The generation of a file whose own sync failed: no file system reaches it.
const SPOILT: u64 = u64::MAX;

/// The sync method of a file system by its `f_type` (`linux/magic.h`). [`SyncMethod::FileSystem`]
/// is for those on which bad sectors and power cuts were simulated (`tests/`) and `syncfs` kept its
/// word. On overlayfs it never reports the errors of the file system beneath, and FUSE does not
/// pass it on.
fn method_of(file_system_type: u64) -> SyncMethod {
    match file_system_type {
        EXT4 | XFS | BTRFS | TMPFS => SyncMethod::FileSystem,
        _ => SyncMethod::Each,
    }
}

/// Whether a file system takes as much space for data as the data has bytes. Some compress: data
/// longer than the free space may fit there, and none of them says in `statfs` whether it does.
pub(crate) fn stores_all(file_system_type: u64) -> bool {
    !matches!(file_system_type, ZFS | BTRFS | BCACHEFS)
}

const ZFS: u64 = 0x2FC1_2FC1;
const BCACHEFS: u64 = 0xCA45_1A4E;
const EXT4: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683E;
/// A tmpfs, which keeps nothing over a crash anyway.
const TMPFS: u64 = 0x0102_1994;
/// The value of `began` before a first file: no clock shows this second.
const NOTHING_YET: i64 = i64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_were_tried_are_synced_as_a_whole() {
        for (number, method) in [
            (0xEF53, SyncMethod::FileSystem),
            (0x794c_7630, SyncMethod::Each),
            (0x6573_5546, SyncMethod::Each),
            (0x6969, SyncMethod::Each),
            (0, SyncMethod::Each),
        ] {
            assert_eq!(method_of(number), method, "{number:#x}");
        }
    }

    #[test]
    fn file_systems_that_may_compress_are_told_from_those_that_take_what_they_are_given() {
        let compress = [0x2FC1_2FC1, 0x9123_683E, 0xCA45_1A4E];
        assert!(compress.into_iter().all(|number| !stores_all(number)));
        assert!([EXT4, XFS, TMPFS].into_iter().all(stores_all));
    }

    #[test]
    fn the_method_of_a_directory_that_is_still_to_be_made_is_that_of_the_one_above_it() {
        let scratch = tempfile::tempdir().expect("scratch");
        let method = SyncMethod::at(scratch.path());
        assert!(method.is_some());
        assert_eq!(SyncMethod::at(&scratch.path().join("to/come")), method);
        assert!(SyncMethod::at(Path::new("relative/and/to/come")).is_some());
    }

    #[test]
    fn a_failed_sync_ends_the_belief_in_what_was_begun_before_and_in_nothing_later() {
        let scratch = tempfile::tempdir().expect("scratch");
        let device = Arc::new(Device::watch(&Dir::open_named(scratch.path()).expect("opened")).expect("watched"));
        let before = Mark::now(&device);
        assert!(before.holds());
        device.fail();
        let after = Mark::now(&device);
        assert!(!before.holds() && after.holds());
        before.synced(&after);
        assert!(before.holds(), "its own sync went well");
        before.spoil();
        before.synced(&Mark::now(&device));
        assert!(!before.holds(), "a good sync behind a failed one proves nothing");
        before.begin_anew();
        assert!(before.holds());
        device.fail();
        before.ask();
        device.fail();
        before.begin_anew();
        assert!(!before.holds(), "the second failure came after the medium was read");
        before.begin_anew();
        assert!(before.holds());
    }
}
