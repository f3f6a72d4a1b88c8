//! A sync that fails: files that the medium lost fail, files that it has are committed, and no
//! content is trusted unread.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_core::FaultCode;
use longhaul_disk::{Call, FsSource, FsTarget, InodeId, Interposer, Passage, SourceSpec};
use longhaul_engine::{DirectMode, Event, Observer, Report, Settings, Stop, run_between};
use rustix::io::Errno;

/// A file system of which some syncs as a whole fail, and that loses files which begin with
/// [`LOST`].
#[derive(Debug)]
struct Losing {
    failing: Failing,
    unsynced: Mutex<Unsynced>,
    lost: Mutex<HashSet<InodeId>>,
}

/// The syncs that fail.
#[derive(Clone, Copy, Debug)]
enum Failing {
    /// The syncs of content fail this many times, until one succeeds.
    Content(u32),
    /// The syncs of names fail this many times, until one succeeds.
    Names(u32),
}

/// The changes since a sync succeeded, and the number of syncs that failed since.
#[derive(Debug, Default)]
struct Unsynced {
    content: bool,
    names: bool,
    failed: u32,
}

impl Interposer for Losing {
    fn begin(&self, call: &Call<'_>) -> Passage {
        match call {
            Call::SyncFileSystem { .. } => Passage::Answered(self.sync()),
            Call::Write { file, bytes, .. } => {
                self.unsynced.lock().expect("no panic while writing").content = true;
                if bytes.starts_with(LOST) {
                    self.lost.lock().expect("no panic while writing").insert(*file);
                }
                Passage::Made(0)
            }
            Call::Rename { .. } => {
                self.unsynced.lock().expect("no panic while renaming").names = true;
                Passage::Made(0)
            }
            _ => Passage::Made(0),
        }
    }
    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}
    fn read_medium(&self, file: InodeId, offset: u64, into: &mut [u8]) -> Option<usize> {
        let lost = self.lost.lock().expect("no panic while reading").contains(&file);
        // The file holds zeros of the length that it has.
        (lost && offset == 0).then(|| {
            into.fill(0);
            CONTENT_BYTES
        })
    }
    fn file_system_type(&self) -> Option<u64> {
        Some(0xEF53)
    }
}

impl Losing {
    fn sync(&self) -> Result<(), Errno> {
        let mut unsynced = self.unsynced.lock().expect("no panic while syncing");
        let fails = match self.failing {
            // Names follow their content: while there are any, the sync is one of names.
            Failing::Content(times) => unsynced.content && !unsynced.names && unsynced.failed < times,
            Failing::Names(times) => unsynced.names && unsynced.failed < times,
        };
        if fails {
            unsynced.failed += 1;
            return Err(Errno::IO);
        }
        *unsynced = Unsynced::default();
        Ok(())
    }
}

const LOST: &[u8] = b"the medium loses this";
const CONTENT_BYTES: usize = 1000;
/// More files than are kept open, so that they are synced with their file system; few enough to be
/// staged before a batch waits no longer.
const FILES: usize = 80;

struct Nobody;

impl Observer for Nobody {
    fn event(&self, _event: Event) {}
}

fn content(n: usize) -> Vec<u8> {
    let mut bytes = vec![n as u8; CONTENT_BYTES];
    if n == 7 {
        bytes[..LOST.len()].copy_from_slice(LOST);
    }
    bytes
}

/// Copies files in several directories to a file system of which these syncs fail. Returns the
/// report and the number of names that stand.
async fn copy(failing: Failing) -> (Report, usize) {
    let scratch = tempfile::tempdir().expect("scratch");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    for n in 0..FILES {
        let dir = from.join(format!("d{}", n % 10));
        std::fs::create_dir_all(&dir).expect("made");
        std::fs::write(dir.join(n.to_string()), content(n)).expect("written");
    }
    let losing = Losing { failing, unsynced: Mutex::default(), lost: Mutex::default() };
    let target = FsTarget::open_behind(&to, DirectMode::Auto, Arc::new(losing)).expect("opened");
    let source = FsSource::open(vec![SourceSpec { path: from, contents: true }], DirectMode::Auto);
    let (_trigger, stop) = Stop::new();
    let report = run_between(Arc::new(source), Arc::new(target), Settings::default(), Arc::new(Nobody), stop).await;
    (report, standing(&to))
}

fn standing(to: &Path) -> usize {
    let dirs = std::fs::read_dir(to).expect("listed").map(|dir| dir.expect("a directory").path());
    dirs.map(|dir| std::fs::read_dir(dir).expect("listed").count()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_batch_whose_sync_failed_what_the_medium_has_is_committed_and_what_it_lost_fails() {
    let (report, standing) = copy(Failing::Content(1)).await;
    assert_eq!(report.failures, [FaultCode::Io]);
    assert_eq!((report.files_committed as usize, standing), (FILES - 1, FILES - 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_batch_whose_second_sync_fails_too_nothing_is_committed() {
    let (report, standing) = copy(Failing::Content(2)).await;
    assert_eq!((report.files_committed, report.files_failed as usize), (0, FILES));
    assert_eq!(standing, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_whose_sync_failed_are_committed_once_their_content_is_read_back_and_they_are_synced_again() {
    let (report, standing) = copy(Failing::Names(1)).await;
    assert_eq!(report.failures, [FaultCode::Io], "the one that the medium lost");
    assert_eq!((report.files_committed as usize, standing), (FILES - 1, FILES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_whose_syncs_fail_twice_are_not_said_to_be_committed() {
    let (report, standing) = copy(Failing::Names(2)).await;
    assert_eq!((report.files_committed, report.files_failed as usize), (0, FILES));
    assert_eq!(standing, FILES, "what they show is whole");
}
