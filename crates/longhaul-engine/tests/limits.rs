//! The part that limits a copy within one process is named. Each part that can be made slow here is
//! slow once.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::{ByteCount, ChunkSize, Meta, Preserve, RelPath};
use longhaul_disk::{DiskError, Identity, ScanRequest, Scanned, SmallFile, SourceFile, SourceRef, Staged};
use longhaul_engine::{
    EngineKind, Event, Limit, Observer, Protection, Report, Settings, SourceTree, Stage, Stop, TargetTree, VoidSource,
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
    fn beneath(&self) -> Option<&dyn TargetTree> {
        Some(&self.0)
    }
    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, keep: Preserve) -> Result<Staged, DiskError> {
        std::thread::sleep(self.1);
        self.0.write_small(path, bytes, meta, keep)
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
        chunk: ChunkSize::from_bytes(1 << 20),
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
    let wanted: &[Limit] = match spent(Stage::Hash) / spent(Stage::Net) {
        ratio if ratio > 2.0 => &[Limit::Hash],
        ratio if ratio < 0.5 => &[Limit::Cpu],
        _ => &[Limit::Hash, Limit::Cpu],
    };
    assert!(wanted.contains(&by), "{by:?}: {:?} {:?}", report.limits, report.stages);
}
