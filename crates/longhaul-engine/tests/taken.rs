//! Names that turn up after they were looked at: files of a transfer that the destination takes for
//! one another, and file systems that cannot rename without replacing.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_core::{ByteCount, ChunkSize, FaultCode, IfExists};
use longhaul_disk::{Call, DirectMode, FsSource, FsTarget, InodeId, Interposer, Passage, Replace, SourceSpec};
use longhaul_engine::{Event, FileStatus, Observer, Report, Settings, Stop, run_between};
use rustix::io::Errno;

/// A file system that does not tell upper from lower case, or one that can rename only in the old
/// way.
#[derive(Debug, Default)]
struct Odd {
    folds: bool,
    only_replaces: bool,
    given: Mutex<HashSet<(InodeId, Vec<u8>)>>,
}

impl Interposer for Odd {
    fn begin(&self, call: &Call<'_>) -> Passage {
        match call {
            Call::Rename { replace: Replace::Never, .. } if self.only_replaces => Passage::Answered(Err(Errno::INVAL)),
            Call::Link { .. } if self.only_replaces => Passage::Answered(Err(Errno::PERM)),
            Call::Rename { dir, to, replace, .. } if self.folds => {
                let fresh = self.given.lock().expect("no panic").insert((*dir, to.to_ascii_lowercase()));
                if fresh || *replace == Replace::Allowed {
                    Passage::Made(0)
                } else {
                    Passage::Answered(Err(Errno::EXIST))
                }
            }
            _ => Passage::Made(0),
        }
    }
    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}
    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }
    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

#[derive(Default)]
struct Failures(Mutex<Vec<(String, FaultCode, String)>>);

impl Observer for Failures {
    fn event(&self, event: Event) {
        if let Event::File(file) = event
            && let FileStatus::Failed(fault) = file.status
        {
            let failure = (
                file.path.escaped().to_string(),
                fault.code,
                format!("{fault}; {}", fault.hint.as_ref().map(ToString::to_string).unwrap_or_default()),
            );
            self.0.lock().expect("no panic").push(failure);
        }
    }
}

async fn copy(from: &Path, to: &Path, odd: Odd, if_exists: IfExists) -> (Report, Vec<(String, FaultCode, String)>) {
    let source = FsSource::open(vec![SourceSpec { path: from.to_owned(), contents: true }], DirectMode::Auto);
    let target = FsTarget::open_behind(to, DirectMode::Buffered, Arc::new(odd)).expect("a target");
    let settings = Settings {
        lanes: Some(2),
        chunk: ChunkSize::from_bytes(1 << 20),
        memory: ByteCount(32 << 20),
        if_exists,
        ..Settings::default()
    };
    let failures = Arc::new(Failures::default());
    let (_trigger, stop) = Stop::new();
    let report = run_between(Arc::new(source), Arc::new(target), settings, failures.clone(), stop).await;
    let failures = std::mem::take(&mut *failures.0.lock().expect("no panic"));
    (report, failures)
}

fn write(dir: &Path, name: &str, len: usize, byte: u8) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().expect("above")).expect("dirs");
    std::fs::write(path, vec![byte; len]).expect("written");
}

fn names(dir: &Path) -> usize {
    std::fs::read_dir(dir).expect("listed").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_files_that_differ_in_case_alone_a_folding_destination_gets_one_and_the_other_fails() {
    for if_exists in [IfExists::SkipSame, IfExists::Replace, IfExists::Verify] {
        let scratch = tempfile::tempdir().expect("scratch");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        for (name, len) in [("README", 100), ("readme", 101), ("DATA", 3 << 20), ("data", 102)] {
            write(&from, &format!("d/{name}"), len, 7);
        }
        let (report, failures) = copy(&from, &to, Odd { folds: true, ..Odd::default() }, if_exists).await;
        assert_eq!((report.fault, report.files_committed, report.files_failed), (None, 2, 2), "{if_exists:?}");
        for (path, code, said) in failures {
            assert_eq!(code, FaultCode::Exists, "{if_exists:?} {path}: {said}");
            assert!(said.contains(&path) && said.contains("upper from lower case"), "{path}: {said}");
            assert!(said.contains("rename or remove one of the two"), "{path}: {said}");
        }
        assert_eq!(names(&to.join("d")), 2, "{if_exists:?}: of what failed nothing is left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_rename_always_replaces_new_files_still_come_and_are_refused_only_where_nothing_may_be_replaced() {
    for (if_exists, committed) in [(IfExists::SkipSame, 2), (IfExists::Replace, 2), (IfExists::Fail, 0)] {
        let scratch = tempfile::tempdir().expect("scratch");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        write(&from, "small", 100, 1);
        write(&from, "large", 3 << 20, 2);
        let odd = Odd { only_replaces: true, ..Odd::default() };
        let (report, failures) = copy(&from, &to, odd, if_exists).await;
        assert_eq!((report.fault, report.files_committed), (None, committed), "{if_exists:?}");
        assert_eq!(failures.len() as u64, 2 - committed, "{if_exists:?}");
        for (path, code, said) in failures {
            assert_eq!(code, FaultCode::Unsupported, "{path}: {said}");
            assert!(said.contains("hard links") && !said.contains("permissions"), "{path}: {said}");
        }
    }
}
