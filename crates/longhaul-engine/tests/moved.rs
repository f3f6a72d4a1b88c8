//! A destination that is moved away in the middle of a run: files that were called committed are no
//! longer in the place to which they were sent, so the run fails.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::{ByteCount, ChunkSize, FaultCode};
use longhaul_disk::{Call, DirectMode, FsSource, FsTarget, InodeId, Interposer, Passage, SourceSpec};
use longhaul_engine::{Event, FileStatus, Observer, Report, Settings, Stop, run_between};
use rustix::io::Errno;

/// Moves a directory away as the first file is about to get its name, and perhaps makes another in
/// its place.
#[derive(Debug)]
struct Mover {
    at: PathBuf,
    away: PathBuf,
    anew: bool,
    done: AtomicBool,
}

impl Interposer for Mover {
    fn begin(&self, call: &Call<'_>) -> Passage {
        if matches!(call, Call::Rename { .. }) && !self.done.swap(true, Ordering::Relaxed) {
            std::fs::rename(&self.at, &self.away).expect("moved");
            if self.anew {
                std::fs::create_dir(&self.at).expect("made anew");
            }
        }
        Passage::Made(0)
    }
    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}
    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }
    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

/// The directories that failed.
#[derive(Default)]
struct Failed(Mutex<Vec<(String, String)>>);

impl Observer for Failed {
    fn event(&self, event: Event) {
        if let Event::File(file) = event
            && let FileStatus::Failed(fault) = file.status
        {
            self.0.lock().expect("no panic").push((file.path.escaped().to_string(), fault.message.to_string()));
        }
    }
}

async fn copy(scratch: &Path, moved: &str, anew: bool) -> (Report, Vec<(String, String)>) {
    let (from, to) = (scratch.join("from"), scratch.join("to"));
    std::fs::create_dir_all(from.join("a/d")).expect("dirs");
    std::fs::create_dir_all(&to).expect("dirs");
    for n in 0..20 {
        std::fs::write(from.join(format!("a/d/f{n}")), vec![n; 300]).expect("written");
    }
    let at = if moved.is_empty() { to.clone() } else { to.join(moved) };
    let mover = Mover { at, away: scratch.join("away"), anew, done: AtomicBool::new(false) };
    let source = FsSource::open(vec![SourceSpec { path: from.join("a"), contents: false }], DirectMode::Auto);
    let target = FsTarget::open_behind(&to, DirectMode::Buffered, Arc::new(mover)).expect("a target");
    let settings = Settings {
        lanes: Some(1),
        chunk: ChunkSize::from_bytes(1 << 20),
        memory: ByteCount(32 << 20),
        ..Settings::default()
    };
    let failed = Arc::new(Failed::default());
    let (_trigger, stop) = Stop::new();
    let report = run_between(Arc::new(source), Arc::new(target), settings, failed.clone(), stop).await;
    let failed = std::mem::take(&mut *failed.0.lock().expect("no panic"));
    (report, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_moved_away_in_mid_run_fails_at_its_end() {
    for (moved, anew) in [("a", false), ("a", true), ("a/d", false), ("a/d", true)] {
        let scratch = tempfile::tempdir().expect("scratch");
        let (report, failed) = copy(scratch.path(), moved, anew).await;
        assert!(report.files_failed > 0, "{moved} {anew}: {failed:?}");
        let said =
            failed.iter().find(|(path, _)| path == moved).unwrap_or_else(|| panic!("{moved} {anew}: {failed:?}"));
        assert!(said.1.contains("moved away, replaced or mounted over"), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_is_moved_away_in_mid_run_ends_the_run() {
    for anew in [false, true] {
        let scratch = tempfile::tempdir().expect("scratch");
        let (report, failed) = copy(scratch.path(), "", anew).await;
        let fault = report.fault.unwrap_or_else(|| panic!("success, {failed:?}"));
        assert_eq!(fault.code, FaultCode::InTheWay, "{fault}");
        assert!(fault.message.contains(&*scratch.path().join("to").to_string_lossy()), "{fault}");
    }
}
