//! Files that are skipped as the same by their time, on file systems that keep times more coarsely
//! than they are given.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::fs::{File, FileTimes};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_core::ByteCount;
use longhaul_disk::{Call, DirectMode, FsSource, FsTarget, InodeId, Interposer, Passage, SourceSpec};
use longhaul_engine::{Event, Observer, Settings, Stop, run_between};
use rustix::io::Errno;

/// A file system of this type.
#[derive(Debug)]
struct Typed(u64);

impl Interposer for Typed {
    fn begin(&self, _: &Call<'_>) -> Passage {
        Passage::Made(0)
    }
    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}
    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }
    fn file_system_type(&self) -> Option<u64> {
        Some(self.0)
    }
}

struct Nobody;

impl Observer for Nobody {
    fn event(&self, _: Event) {}
}

const EXT4: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;
const FAT: u64 = 0x4D44;
const EXFAT: u64 = 0x2011_BAB0;
const FUSE: u64 = 0x6573_5546;

/// Whether a file with this time is skipped where one of the same length stands, with that time.
async fn is_skipped(file_system: u64, source: Duration, stands: Duration) -> bool {
    let scratch = tempfile::tempdir().expect("scratch");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    for (dir, time) in [(&from, source), (&to, stands)] {
        std::fs::create_dir(dir).expect("a directory");
        let file = File::create(dir.join("f")).expect("a file");
        file.set_len(10).expect("its length");
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + time)).expect("its time");
    }
    let source = FsSource::open(vec![SourceSpec { path: from, contents: true }], DirectMode::Auto);
    let target = FsTarget::open_behind(&to, DirectMode::Buffered, Arc::new(Typed(file_system))).expect("a target");
    let settings = Settings { lanes: Some(1), memory: ByteCount(64 << 20), ..Settings::default() };
    let (_trigger, stop) = Stop::new();
    let report = run_between(Arc::new(source), Arc::new(target), settings, Arc::new(Nobody), stop).await;
    assert_eq!((report.fault, report.files_committed + report.files_skipped), (None, 1));
    report.files_skipped == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_is_the_same_as_what_the_destination_keeps_of_it_and_as_no_other() {
    let source = Duration::new(1_000_000_005, 123_456_789);
    for (file_system, secs, nanos, want) in [
        (XFS, 5, 123_456_789, true),
        (XFS, 5, 0, false),
        // Inodes of 128 bytes keep whole seconds.
        (EXT4, 5, 0, true),
        (EXT4, 5, 120_000_000, false),
        (EXT4, 5, 123_456_789, true),
        (FAT, 4, 0, true),
        (FAT, 6, 0, false),
        (EXFAT, 5, 120_000_000, true),
        (EXFAT, 5, 0, false),
        (FUSE, 4, 0, true),
        (FUSE, 5, 0, true),
        (FUSE, 5, 120_000_000, true),
        (FUSE, 5, 123_456_700, true),
        (FUSE, 5, 124_000_000, false),
    ] {
        let stands = Duration::new(1_000_000_000 + secs, nanos);
        assert_eq!(is_skipped(file_system, source, stands).await, want, "{file_system:#x} {stands:?}");
    }
    let (whole, fraction) = (Duration::from_secs(1_000_000_005), Duration::new(1_000_000_005, 500_000_000));
    assert!(!is_skipped(XFS, whole, fraction).await, "the source's own stamps are finer than a second");
}
