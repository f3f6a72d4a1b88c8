//! A program writes jobs, settings, events and reports down, and reads them back.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::filter::{Filter, Rule, RuleKind};
use longhaul_core::hint::Network;
use longhaul_core::{Algorithm, Blame, Fault, FaultCode, PathList, RelPath, Sums, Word};
use longhaul_engine::{
    Event, ExpectedFile, FileEvent, FileStatus, Job, LanesChange, LanesReason, LanesTuned, LocalDest, LocalSource,
    Observer, OwnFacts, Progress, Reach, Redial, RemotePath, Report, Settings, SkipReason, Stage, Stop, TargetDirs,
    Verify, Why,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The value after it was written down and read back, in the words of its `Debug`, which has all of
/// its fields.
fn read_back<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let text = serde_json::to_string(value).expect("plain data");
    // From a reader, which lends nothing to the values that it makes.
    serde_json::from_reader(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn assert_same<T: Serialize + DeserializeOwned + std::fmt::Debug>(value: T) {
    assert_eq!(format!("{:?}", read_back(&value)), format!("{value:?}"));
}

fn path(text: &str) -> RelPath {
    RelPath::new(text).expect("a path")
}

#[test]
fn a_job_is_read_back_as_it_was_written_down() {
    let reach = || Reach::Address { host: "::1".to_owned(), port: 7214 };
    let far = || RemotePath { root: Word::try_from("data").expect("a word"), path: path("a\n/b"), slash: true };
    assert_same(Job::push(vec![LocalSource::named("/a"), LocalSource::contents("b")], reach(), far()));
    assert_same(Job::pull(reach(), vec![far()], LocalDest::directory(PathBuf::from("/to"))));
    assert_same(Job::copy(
        vec![LocalSource::named("a")],
        LocalDest {
            path: "b".into(),
            slash: false,
            targets: Some(TargetDirs::set(vec!["/d1".into(), "/d2".into()])),
            expected: Some(Arc::new(
                [(path("a\n"), ExpectedFile::File { bytes: 3, mtime: None })].into_iter().collect(),
            )),
            catalogue: Some("/state/checksums".into()),
        },
    ));
}

#[test]
fn settings_are_read_back_with_their_rules_and_names() {
    assert_same(Settings::default());
    let rule = |pattern: &str, kind| Rule { kind, pattern: pattern.into() };
    let rules = vec![rule("*.tmp", RuleKind::Exclude), rule("/keep/**", RuleKind::Include)];
    let settings = Settings {
        lanes: Some(7),
        filter: Filter::new(rules).expect("patterns"),
        files_from: Some(Arc::new(PathList::new(&[path("b"), path("a/c")]))),
        verify: Verify::Disk,
        retry_for: Duration::from_millis(1),
        paths: vec!["192.0.2.1=192.0.2.2".parse().expect("a pair of addresses")],
        ..Settings::default()
    };
    assert_same(settings);
}

#[test]
fn settings_that_were_written_down_before_another_was_added_are_read_with_its_default() {
    let read: Settings = serde_json::from_str("{\"lanes\": 3}").expect("the rest is the default");
    assert_eq!(format!("{read:?}"), format!("{:?}", Settings { lanes: Some(3), ..Settings::default() }));
}

#[test]
fn names_that_are_no_list_and_rules_that_are_no_patterns_are_refused() {
    assert!(serde_json::from_str::<PathList>("[98, 0, 97, 0]").is_err(), "not in order");
    assert!(serde_json::from_str::<PathList>("[46, 46, 0]").is_err(), "climbs");
    let rules =
        serde_json::to_string(&vec![Rule { kind: RuleKind::Exclude, pattern: "[".into() }]).expect("plain data");
    assert!(serde_json::from_str::<Filter>(&rules).is_err());
}

#[test]
fn events_are_read_back_as_they_were_written_down() {
    let fault =
        || Fault::new(FaultCode::Lost, Blame::Path, "it ended").hint(Network::CheckRoute).with_os_error(Some(104));
    assert_same(Event::Fault(fault()));
    assert_same(Event::Progress(Progress { bytes_sent: u64::MAX, silent_s: 0.25, ..Progress::default() }));
    assert_same(Event::Redial(Redial { fault: fault(), wait: Duration::from_secs(2) }));
    for reason in [SkipReason::Fifo, SkipReason::Other("of my own".into())] {
        let message = String::from("a fifo is not sent");
        assert_same(Event::Skipped { path: vec![0xff], placed: b"b".to_vec(), reason, message });
    }
    for reason in [LanesReason::LargePacketsVanish, LanesReason::Search(Why::Fell { from: 9, to: 3 })] {
        assert_same(Event::Lanes(LanesTuned { seconds: 1.5, lanes: 4, change: LanesChange::Added(2), reason }));
    }
    for status in [FileStatus::Committed, FileStatus::Failed(fault())] {
        assert_same(Event::File(FileEvent {
            path: path("a"),
            placed: path("b"),
            status,
            bytes: 3,
            b3: Some([7; 32]),
            regular: true,
            renamed: false,
            own: OwnFacts { replaced: true, stood: Some(true), source: Some(b"data/a".to_vec()) },
            sums: Sums::one(Algorithm::Adler32, &[1, 2, 3, 4]).expect("4 bytes"),
        }));
    }
}

struct Keeper(std::sync::Mutex<Vec<String>>);

impl Observer for Keeper {
    fn event(&self, event: Event) {
        let text = serde_json::to_string(&event).expect("plain data");
        let again: Event = serde_json::from_str(&text).expect("the same event");
        assert_eq!(format!("{again:?}"), format!("{event:?}"));
        self.0.lock().expect("nobody panicked").push(text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_read_back_runs_and_its_report_can_be_written_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::create_dir(&from).expect("made");
    std::fs::write(from.join("a"), [1; 5000]).expect("written");
    let job = read_back(&Job::copy(vec![LocalSource::contents(&from)], LocalDest::directory(&to)));
    let settings = read_back(&Settings::default());
    let (_trigger, stop) = Stop::new();
    let keeper = Arc::new(Keeper(Default::default()));
    let report = longhaul_engine::run(job, None, settings, keeper.clone(), stop).await;
    assert_eq!((report.files_committed, report.bytes_committed), (1, 5000), "{report:?}");
    assert_eq!(std::fs::read(to.join("a")).expect("it came"), [1; 5000]);
    assert!(keeper.0.lock().expect("nobody panicked").len() >= 2, "a start and a file at least");
    let again: Report = read_back(&report);
    assert_eq!(format!("{again:?}"), format!("{report:?}"));
    assert!(again.stages.iter().any(|(stage, _)| *stage == Stage::Hash));
}
