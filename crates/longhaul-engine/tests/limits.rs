//! The part that limits a copy within one process is named. Each part that can be made slow here is
//! slow once.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::{ByteCount, ChunkSize, Meta, Preserve, RelPath, TempName};
use longhaul_disk::{
    Back, DiskError, Identity, Journalled, Made, Reopened, Replace, ScanRequest, Scanned, SmallFile, SourceFile,
    SourceRef, Staged, Standing, SyncCounts, SyncMethod, TargetFile,
};
use longhaul_engine::{
    EngineKind, Event, Limit, Observer, Protection, Report, Settings, SourceTree, Stop, TargetTree, VoidSource,
    VoidTarget, run_between,
};

/// Files that exist nowhere, and take their time to open.
struct SlowSource(VoidSource, Duration);

impl SourceTree for SlowSource {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        self.0.scan(what, sink);
    }
    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        std::thread::sleep(self.1);
        self.0.open(at, expect)
    }
    fn open_small<'a>(&'a self, at: &'a SourceRef, expect: &'a Identity) -> Result<SmallFile<'a>, DiskError> {
        std::thread::sleep(self.1);
        self.0.open_small(at, expect)
    }
}

/// Keeps nothing, and takes its time for each small file.
struct SlowTarget(VoidTarget, Duration);

impl TargetTree for SlowTarget {
    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, keep: Preserve) -> Result<Staged, DiskError> {
        std::thread::sleep(self.1);
        self.0.write_small(path, bytes, meta, keep)
    }
    fn examine(&self, path: &RelPath) -> Result<Option<Standing>, DiskError> {
        self.0.examine(path)
    }
    fn make_dir(&self, path: &RelPath) -> Result<Made, DiskError> {
        self.0.make_dir(path)
    }
    fn create(&self, path: &RelPath, len: u64, sparse: bool, temp: &TempName) -> Result<Arc<TargetFile>, DiskError> {
        self.0.create(path, len, sparse, temp)
    }
    fn reopen(
        &self,
        path: &RelPath,
        len: u64,
        sparse: bool,
        temp: &TempName,
        journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError> {
        self.0.reopen(path, len, sparse, temp, journalled)
    }
    fn remove_temp(&self, path: &RelPath, temp: &TempName) -> Result<(), DiskError> {
        self.0.remove_temp(path, temp)
    }
    fn sweep(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError> {
        self.0.sweep(path, orphan)
    }
    fn sync_names(&self, dirs: &[RelPath]) -> Result<(), DiskError> {
        self.0.sync_names(dirs)
    }
    fn make_hole(&self, file: &TargetFile, range: Range<u64>) -> Result<(), DiskError> {
        self.0.make_hole(file, range)
    }
    fn make_link(&self, path: &RelPath, to: &[u8], meta: &Meta, keep: Preserve) -> Result<Staged, DiskError> {
        self.0.make_link(path, to, meta, keep)
    }
    fn sync_data(&self, file: &TargetFile) -> Result<(), DiskError> {
        self.0.sync_data(file)
    }
    fn read_back(&self, file: &TargetFile, offset: u64, len: usize, slot: &mut [u8]) -> Result<Back, DiskError> {
        self.0.read_back(file, offset, len, slot)
    }
    fn read_staged(&self, staged: &Staged, len: usize, slot: &mut [u8]) -> Result<Back, DiskError> {
        self.0.read_staged(staged, len, slot)
    }
    fn read_standing(
        &self,
        path: &RelPath,
        offset: u64,
        len: usize,
        slot: &mut [u8],
    ) -> Result<(Back, Identity), DiskError> {
        self.0.read_standing(path, offset, len, slot)
    }
    fn retouch(&self, path: &RelPath, is: &Identity, meta: Option<&Meta>, keep: Preserve) -> Result<(), DiskError> {
        self.0.retouch(path, is, meta, keep)
    }
    fn seal(&self, file: Arc<TargetFile>, meta: &Meta, keep: Preserve) -> Result<Staged, DiskError> {
        self.0.seal(file, meta, keep)
    }
    fn barrier(&self, staged: &[&Staged]) -> Result<(), DiskError> {
        self.0.barrier(staged)
    }
    fn publish(&self, staged: &Staged, replace: Replace) -> Result<(), DiskError> {
        self.0.publish(staged, replace)
    }
    fn sync_dirs(&self, staged: &[Staged]) -> Result<(), DiskError> {
        self.0.sync_dirs(staged)
    }
    fn finish_dir(&self, path: &RelPath, meta: &Meta, keep: Preserve) -> Result<(), DiskError> {
        self.0.finish_dir(path, meta, keep)
    }
    fn believe(&self, staged: &Staged) {
        self.0.believe(staged);
    }
    fn sync_counts(&self) -> SyncCounts {
        self.0.sync_counts()
    }
    fn sync_method(&self) -> Option<SyncMethod> {
        self.0.sync_method()
    }
}

/// The limit that was reported each second.
#[derive(Default)]
struct Told(Mutex<Vec<Limit>>);

impl Observer for Told {
    fn event(&self, event: Event) {
        if let Event::Progress(progress) = event {
            self.0.lock().expect("no panic while told").extend(progress.limited_by.map(|limited| limited.by));
        }
    }
}

fn settings() -> Settings {
    Settings {
        lanes: Some(2),
        protect: Some(Protection::Safe),
        chunk: ChunkSize::from_bytes(1 << 20).expect("a power of two"),
        memory: ByteCount(32 << 20),
        engine: EngineKind::Void,
        ..Settings::default()
    }
}

const SMALL: u64 = 200_000;
const PAUSE: Duration = Duration::from_millis(10);

/// The part reported to have limited most of a copy of `files` of `len` bytes, and the reports of
/// each second.
async fn limit(
    (files, len): (u64, u64),
    (source, target): (Duration, Duration),
    settings: Settings,
) -> (Limit, Report) {
    let source = SlowSource(VoidSource { len, files }, source);
    let (told, target) = (Arc::new(Told::default()), SlowTarget(VoidTarget, target));
    let (_trigger, stop) = Stop::new();
    let report = run_between(Arc::new(source), Arc::new(target), settings, told.clone(), stop).await;
    assert_eq!((&report.fault, report.files_committed), (&None, files));
    let first = *report.limits.first().expect("it took long enough to be seen");
    let told = told.0.lock().expect("no panic while told").clone();
    assert!(told.contains(&first.by), "{first:?}, and {told:?}");
    let sum: f64 = report.limits.iter().map(|limited| limited.share).sum();
    assert!((sum - 1.0).abs() < 1e-6 && report.limits.is_sorted_by(|a, b| a.share >= b.share), "{:?}", report.limits);
    (first.by, report)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_takes_its_time_is_named() {
    for files in [(600, SMALL), (150, 1 << 20)] {
        let (by, report) = limit(files, (PAUSE, Duration::ZERO), settings()).await;
        assert_eq!(by, Limit::Source, "{files:?} {:?}", report.limits);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_takes_its_time_is_named() {
    let (by, report) = limit((600, SMALL), (Duration::ZERO, PAUSE), settings()).await;
    assert_eq!(by, Limit::Target, "{:?}", report.limits);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_named_when_the_target_could_do_more_at_a_time() {
    let settings = Settings { memory: ByteCount(4 << 20), depth: Some(64), lanes: Some(1), ..settings() };
    let (by, report) = limit((150, SMALL), (Duration::ZERO, PAUSE), settings).await;
    assert_eq!(by, Limit::Memory, "{:?}", report.limits);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_was_asked_for_is_named() {
    let settings = Settings { rate: Some(20_000_000), ..settings() };
    let (by, report) = limit((3, 10 << 20), (Duration::ZERO, Duration::ZERO), settings).await;
    assert_eq!(by, Limit::NetworkRate, "{:?}", report.limits);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_processors_are_named_when_nothing_else_is_slow() {
    let (by, report) = limit((1, 2 << 30), (Duration::ZERO, Duration::ZERO), settings()).await;
    let spent = |name| report.stages.iter().find(|(stage, _)| *stage == name).map_or(0.0, |(_, seconds)| *seconds);
    // The two halves are judged separately, second by second: the sums tell which one it is where
    // one is far ahead.
    let wanted: &[Limit] = match spent("hash") / spent("net") {
        ratio if ratio > 2.0 => &[Limit::Hash],
        ratio if ratio < 0.5 => &[Limit::Cpu],
        _ => &[Limit::Hash, Limit::Cpu],
    };
    assert!(wanted.contains(&by), "{by:?}: {:?} {:?}", report.limits, report.stages);
}
