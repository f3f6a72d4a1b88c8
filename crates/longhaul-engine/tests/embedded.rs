//! The engine as a library user drives it: a copy within one process.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_core::{ByteCount, ChunkSize};
use longhaul_engine::{
    EngineKind, Event, FileStatus, Job, JobDestination, JobSource, LocalDest, LocalSource, Observer, Protection,
    Report, Settings, Stop, run,
};

#[derive(Default)]
struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn event(&self, event: Event) {
        self.0.lock().expect("no panic while logging").push(event);
    }
}

fn settings(engine: EngineKind, protect: Option<Protection>) -> Settings {
    Settings {
        lanes: Some(2),
        protect,
        chunk: ChunkSize::from_bytes(1 << 20),
        memory: ByteCount(32 << 20),
        engine,
        ..Settings::default()
    }
}

async fn copy(from: &Path, to: &Path, settings: Settings) -> (Report, Vec<Event>) {
    let log = Arc::new(Log::default());
    let job = Job::between(
        JobSource::Local(vec![LocalSource::contents(from)]),
        JobDestination::Local(LocalDest::directory(to)),
    );
    let (_trigger, stop) = Stop::new();
    let report = run(job, None, settings, log.clone(), stop).await;
    let events = std::mem::take(&mut *log.0.lock().expect("no panic while logging"));
    (report, events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_arrives_whole_on_each_engine_and_protection() {
    let chunk = 1usize << 20;
    for engine in [EngineKind::Threads, EngineKind::Auto] {
        for protect in [Some(Protection::Safe), Some(Protection::Private)] {
            let scratch = tempfile::tempdir().expect("scratch");
            let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
            std::fs::create_dir_all(from.join("a/b")).expect("made");
            let mut wanted = 0;
            for (n, len) in
                [0, 1, 1023, 1024, 1025, 300_000, chunk - 1, chunk, chunk + 1, 5 * chunk + 77].into_iter().enumerate()
            {
                let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + n + (i >> 11)) as u8).collect();
                std::fs::write(from.join(format!("a/b/f{n}")), &bytes).expect("written");
                wanted += 1;
            }
            std::os::unix::fs::symlink("b/f1", from.join("a/link")).expect("linked");
            let (report, events) = copy(&from, &to, settings(engine, protect)).await;
            assert_eq!(report.fault, None);
            assert_eq!((report.files_committed, report.files_failed), (wanted + 1, 0), "{engine:?} {protect:?}");
            for n in 0..wanted {
                let name = format!("a/b/f{n}");
                let (here, there) =
                    (std::fs::read(from.join(&name)).expect("read"), std::fs::read(to.join(&name)).expect("read"));
                assert!(here == there, "{name} differs on {engine:?} {protect:?}");
                let root = events.iter().find_map(|e| match e {
                    Event::File(f) if f.path.as_bytes() == name.as_bytes() && f.status == FileStatus::Committed => f.b3,
                    _ => None,
                });
                assert_eq!(root, Some(*blake3::hash(&here).as_bytes()), "{name}");
            }
            assert_eq!(std::fs::read_link(to.join("a/link")).expect("a link"), Path::new("b/f1"));
            let (again, _) = copy(&from, &to, settings(engine, protect)).await;
            assert_eq!((again.files_committed, again.files_skipped), (0, wanted + 1));
        }
    }
}
