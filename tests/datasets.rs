//! `--as-dataset`: all files of a transfer appear together, with their sealed manifest, or none.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::FileType;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, LoopDisk, Outcome, Site, Trip, files};
use crate::hostile::proxy::{Gate, Kind, Meddler};
use crate::hostile::{Direction, Wired, some_at_once};
use crate::resume::scene::{Death, LEN, Scene};

const AS_RUN_7: [&str; 2] = ["--as-dataset", "run-7"];

/// A source of a few names, whose directories have times and modes of their own.
fn plant(top: &Path) {
    files::make(top.join("a/large"), 1, (3 << 20) + 5);
    files::make(top.join("a/small"), 2, 100);
    files::make(top.join("empty"), 3, 0);
    files::link("a/small", top.join("link"));
    fs::create_dir_all(top.join("hollow")).unwrap();
    files::set_mode(top.join("a"), 0o750);
    files::set_mtime(top.join("a"), 1_000_000_000, 7);
    files::set_mtime(top.join("hollow"), 1_000_000_001, 0);
    files::set_mtime(top, 1_000_000_002, 0);
}

/// The names in a directory, in order.
fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Fails unless a dataset is the same as its source, and nothing lies beside it but `others`.
#[track_caller]
fn assert_whole(source: &Path, dest: &Path, others: &[String], context: &str) {
    let (mut left, mut right) = (Tree::of(source), Tree::of(dest.join("run-7")));
    left.0.retain(|path, _| !path.is_empty());
    right.0.retain(|path, _| !path.is_empty() && !path.starts_with(b".longhaul-manifest"));
    tree::assert_same(&left, &right, context);
    assert!(dest.join("run-7/.longhaul-manifest/head.lhm").exists(), "{context}");
    let mut beside = names(dest);
    beside.retain(|name| name != "run-7" && !others.contains(name));
    assert_eq!(beside, [""; 0], "{context}");
}

/// The code of the last fault of a run that failed with this exit code.
#[track_caller]
fn fault(outcome: &Outcome, exit: i32) -> String {
    assert_eq!(outcome.code, exit, "{outcome}");
    let faults = outcome.events_of("fault");
    faults.last().unwrap_or_else(|| panic!("no fault: {outcome}"))["code"].as_str().unwrap().to_owned()
}

#[test]
fn a_dataset_appears_as_its_source_is_with_the_manifest_that_the_source_has_and_once() {
    for trip in Trip::each_way() {
        plant(&trip.source().join("ds"));
        let outcome = trip.send(&AS_RUN_7, &["ds/"], "");
        assert_eq!(outcome.counts(), (4, 0, 0), "{trip}: {outcome}");
        let told = outcome.events_of("file");
        assert!(told.len() == 4 && told.iter().all(|file| file["status"] == "staged"), "{trip}: {outcome}");
        assert_whole(&trip.source().join("ds"), &trip.dest(), &[], &trip.to_string());
        let host = Host::new();
        let made = host.run(["manifest", "make"]).arg(trip.source().join("ds")).args(["-o", "m", "--checksum", "b3"]);
        let digest = made.succeed().stdout_text().trim_end().to_owned();
        let head = trip.dest().join("run-7/.longhaul-manifest/head.lhm");
        assert_eq!(files::b3sum(head), digest, "{trip}: one dataset has one digest");
        let again = trip.run(&AS_RUN_7, &["ds/"], "").finish();
        assert_eq!(fault(&again, 23), "exists", "{trip}: {again}");
        assert_eq!(again.summary()["bytes_committed"], 0, "{trip}: {again}");
        assert_whole(&trip.source().join("ds"), &trip.dest(), &[], &trip.to_string());
    }
}

#[test]
fn sources_keep_their_names_in_a_dataset_and_one_of_nothing_is_empty() {
    for trip in Trip::each_way() {
        plant(&trip.source().join("ds"));
        files::make(trip.source().join("f"), 9, 77);
        fs::create_dir(trip.source().join("hollow")).unwrap();
        trip.send(&AS_RUN_7, &["ds", "f"], "new/");
        assert_eq!(names(trip.dest().join("new/run-7")), [".longhaul-manifest", "ds", "f"], "{trip}");
        trip.send(&AS_RUN_7, &["f"], "one");
        assert_eq!(names(trip.dest().join("one/run-7")), [".longhaul-manifest", "f"], "{trip}");
        trip.send(&AS_RUN_7, &["hollow/"], "none");
        assert_eq!(names(trip.dest().join("none")), ["run-7"], "{trip}");
        assert_eq!(names(trip.dest().join("none/run-7")), [".longhaul-manifest"], "{trip}");
        let plan = trip.send(&["--as-dataset", "other", "-n"], &["f"], "one");
        assert_eq!(names(trip.dest().join("one")), ["run-7"], "{trip}: {plan}");
    }
}

#[test]
fn nothing_appears_without_a_name_that_cannot_be_sent_and_nothing_is_sent_twice() {
    for trip in Trip::each_way() {
        let source = trip.source().join("ds");
        plant(&source);
        files::make_special(source.join("pipe"), FileType::Fifo);
        let outcome = trip.run(&AS_RUN_7, &["ds/"], "").finish();
        assert_eq!(fault(&outcome, 23), "incomplete", "{trip}: {outcome}");
        assert!(outcome.stderr.contains("'pipe'"), "{trip}: {outcome}");
        let summary = outcome.summary();
        assert_eq!((&summary["files_committed"], &summary["bytes_committed"]), (&0.into(), &0.into()), "{trip}");
        let mut staged = names(trip.dest());
        // A daemon's root has a note of it.
        staged.retain(|name| name != ".longhaul");
        assert!(staged.len() == 1 && staged[0].starts_with(".longhaul-dataset-"), "{trip}: {staged:?}");
        fs::remove_file(source.join("pipe")).unwrap();
        files::set_mtime(&source, 1_000_000_002, 0);
        let outcome = trip.send(&AS_RUN_7, &["ds/"], "");
        assert_eq!(outcome.counts(), (0, 4, 0), "{trip}: {outcome}");
        assert_whole(&source, &trip.dest(), &[], &trip.to_string());
    }
}

#[test]
fn a_dataset_that_is_replaced_is_kept_whole_under_another_name() {
    for trip in Trip::each_way() {
        plant(&trip.source().join("ds"));
        trip.send(&AS_RUN_7, &["ds/"], "");
        let old = Tree::of(trip.dest().join("run-7"));
        files::make(trip.source().join("ds/a/small"), 5, 101);
        let options = [&AS_RUN_7[..], &["--if-exists", "replace"]].concat();
        trip.send(&options, &["ds/"], "");
        let kept: Vec<String> = names(trip.dest()).into_iter().filter(|name| name != "run-7").collect();
        assert!(kept.len() == 1 && kept[0].starts_with("run-7.") && kept[0].ends_with('~'), "{trip}: {kept:?}");
        tree::assert_same(&old, &Tree::of(trip.dest().join(&kept[0])), &trip);
        assert_whole(&trip.source().join("ds"), &trip.dest(), &kept, &trip.to_string());
    }
}

/// The receiving end's directory of a scene.
fn receiving(scene: &Scene) -> PathBuf {
    let site = &scene.wired.site;
    if scene.direction == Direction::Push { site.root() } else { site.client.dir().to_owned() }
}

/// The sending end's.
fn sending(scene: &Scene) -> PathBuf {
    let site = &scene.wired.site;
    if scene.direction == Direction::Push { site.client.dir().to_owned() } else { site.root() }
}

#[test]
fn a_dataset_goes_on_after_the_death_of_either_end_and_nobody_sees_it_before() {
    let ways: Vec<_> =
        Direction::BOTH.into_iter().flat_map(|direction| Death::ALL.map(|death| (direction, death))).collect();
    some_at_once(ways, |(direction, death)| {
        let context = format!("{direction:?}, {death:?}");
        let mut scene = Scene::new(direction);
        let source = sending(&scene).join("ds");
        files::make(source.join("f"), 1, LEN);
        files::make(source.join("small"), 2, 1000);
        let command = |scene: &Scene| scene.run("ds/", "in/").args(AS_RUN_7);
        // The small file is whole by then, and bytes of the other one are durable too.
        let (running, durable) = scene.start(command(&scene), 1000);
        scene.end(running, death);
        let dest = receiving(&scene).join("in");
        assert!(names(&dest).iter().all(|name| name.starts_with(".longhaul")), "{context}: {:?}", names(&dest));
        let outcome = command(&scene).finish();
        assert_eq!(outcome.code, 0, "{context}: {outcome}");
        assert!(crate::resume::scene::resumed(&outcome) >= durable - 1000, "{context}: {outcome}");
        assert_whole(&source, &dest, &[], &context);
    });
}

#[test]
fn what_was_staged_of_other_sources_is_not_in_a_dataset() {
    some_at_once(Direction::BOTH, |direction| {
        let context = format!("{direction:?}");
        let mut scene = Scene::new(direction);
        let source = sending(&scene).join("ds");
        files::make(source.join("f"), 1, LEN);
        files::make(source.join("sub/small"), 2, 1000);
        scene.die(scene.run("ds/", "in/").args(AS_RUN_7), Death::ClientKilled);
        fs::remove_dir_all(source.join("sub")).unwrap();
        fs::remove_file(source.join("f")).unwrap();
        files::make(source.join("g"), 3, 2000);
        let outcome = scene.run("ds/", "in/").args(AS_RUN_7).finish();
        assert_eq!(outcome.code, 0, "{context}: {outcome}");
        let mut found = names(receiving(&scene).join("in/run-7"));
        found.retain(|name| name != ".longhaul-manifest");
        assert_eq!(found, ["g"], "{context}: {outcome}");
    });
}

#[test]
fn what_was_staged_as_something_else_gives_way_to_the_newest_source() {
    for trip in Trip::each_way() {
        let source = trip.source().join("ds");
        files::make(source.join("a/deep/f"), 1, 1000);
        files::make(source.join("b"), 2, 1000);
        files::make(source.join("c/f"), 3, 1000);
        files::set_mode(source.join("a/deep"), 0o555);
        files::make_special(source.join("pipe"), FileType::Fifo);
        trip.run(&AS_RUN_7, &["ds/"], "").fail(23);
        fs::remove_dir_all(source.join("a")).unwrap();
        fs::remove_file(source.join("b")).unwrap();
        fs::remove_dir_all(source.join("c")).unwrap();
        fs::remove_file(source.join("pipe")).unwrap();
        files::make(source.join("a"), 4, 1000);
        files::make(source.join("b/deep/f"), 5, 1000);
        files::link("b", source.join("c"));
        let outcome = trip.send(&AS_RUN_7, &["ds/"], "");
        assert_whole(&source, &trip.dest(), &[], &format!("{trip}: {outcome}"));
    }
}

#[test]
fn a_run_that_loses_its_connection_right_behind_the_rename_ends_well_and_replaces_once() {
    let ways = Direction::BOTH.into_iter().flat_map(|direction| [(direction, false), (direction, true)]);
    some_at_once(ways, |(direction, replaces)| {
        let context = format!("{direction:?}, replaces: {replaces}");
        // All words of the receiver are held once the dataset is there: its last is among them.
        let (gate, appears) = (Gate::default(), Arc::<OnceLock<PathBuf>>::default());
        let (holding, watched) = (gate.clone(), appears.clone());
        let wired = Wired::new(move |kind, way| {
            let (gate, appears) = (holding.clone(), watched.clone());
            let hold = move |_: &mut Vec<u8>| {
                if appears.get().is_some_and(|path| path.exists()) {
                    gate.pass();
                }
            };
            (kind == Kind::Control && way != direction.way()).then(|| Box::new(hold) as Box<dyn Meddler>)
        });
        let (site, far) = (&wired.site, format!("lh://{}/data", wired.proxy.addr()));
        let (source, dest, ends) = match direction {
            Direction::Push => (site.client.path("ds"), site.root().join("in"), ["push", "ds/", "/in/"]),
            Direction::Pull => (site.root().join("ds"), site.client.path("in"), ["pull", "/ds/", "in/"]),
        };
        let ends = ends.map(|end| if end.starts_with('/') { format!("{far}{end}") } else { end.to_owned() });
        files::make(source.join("new"), 1, 3000);
        if replaces {
            files::make(dest.join("run-7/old"), 2, 1000);
        }
        appears.set(dest.join("run-7/new")).unwrap();
        let run = site.client.run(ends).args(["--json", "--retry-for", "1m", "--peer-key", site.daemon.key()]);
        let running = run.args(AS_RUN_7).args(["--if-exists", if replaces { "replace" } else { "fail" }]).start();
        gate.wait_reached();
        wired.proxy.cut(Kind::Control);
        gate.open();
        let outcome = running.finish();
        assert_eq!(outcome.code, 0, "{context}: {outcome}\n{}", site.daemon.log());
        assert_eq!(outcome.summary()["files_committed"], 1, "{context}: {outcome}");
        let kept: Vec<String> = names(&dest).into_iter().filter(|name| name.ends_with('~')).collect();
        assert_eq!(kept.len(), usize::from(replaces), "{context}: {kept:?}");
        assert_whole(&source, &dest, &kept, &context);
    });
}

#[test]
fn two_transfers_do_not_stage_one_dataset_at_a_time() {
    let scene = Scene::new(Direction::Push);
    let site = &scene.wired.site;
    files::make(site.client.path("ds/f"), 1, LEN);
    files::make(site.client.path("other/f"), 2, 1000);
    let (first, _) = scene.start(scene.run("ds/", "in/").args(AS_RUN_7), 0);
    let beside = |name: &str| {
        let run = site.client.run(["push", "other/", &site.url("in/"), "--json", "--retry-for", "0"]);
        run.args(["--as-dataset", name]).finish()
    };
    assert_eq!(fault(&beside("run-7"), 5), "busy");
    assert_eq!(beside("run-8").code, 0);
    scene.gate.open();
    let outcome = first.finish();
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_whole(&site.client.path("ds"), &site.root().join("in"), &["run-8".to_owned()], "the first one");
}

#[test]
fn a_key_without_the_right_to_modify_adds_datasets_and_replaces_none() {
    let site = Site::granting(DaemonConfig::default(), "create", ALL_RIGHTS);
    files::make(site.client.path("ds/f"), 1, 1000);
    let push = || site.client.run(["push", "ds/", &site.url(""), "--json"]).args(AS_RUN_7);
    push().succeed();
    assert_eq!(fault(&push().args(["--if-exists", "replace"]).finish(), 4), "denied");
    assert_eq!(names(site.root()), ["run-7"]);
}

#[test]
fn a_target_set_a_stream_and_names_that_are_none_are_refused_before_anything_is_made() {
    let host = Host::new();
    files::make(host.path("ds/f"), 1, 1000);
    for name in ["", ".", "..", "a/b", ".longhaul-x"] {
        let outcome = host.run(["copy", "ds/", "to/", "--as-dataset", name]).fail(2);
        assert!(outcome.stderr.contains("--as-dataset"), "{outcome}");
    }
    host.run(["copy", "ds/f", "-"]).args(AS_RUN_7).fail(2);
    let set = ["--target", "t1", "--target", "t2", "--allow-same-device"];
    for target in ["t1", "t2"] {
        host.make_dir(target);
    }
    let outcome = host.run(["copy", "ds/", "to/"]).args(set).args(AS_RUN_7).fail(2);
    assert!(outcome.stderr.contains("target set"), "{outcome}");
    assert!(!host.path("to").exists());
}

#[test]
fn a_run_that_dials_again_names_everything_again_and_has_the_whole_dataset_appear() {
    some_at_once(Direction::BOTH, |direction| {
        let context = format!("{direction:?}");
        let mut scene = Scene::new(direction);
        let source = sending(&scene).join("ds");
        files::make(source.join("sub/small"), 2, 1000);
        files::make(source.join("f"), 1, LEN);
        let (site, far) = (&scene.wired.site, format!("lh://{}/data", scene.wired.proxy.addr()));
        let ends = match direction {
            Direction::Push => ["push".to_owned(), "ds/".to_owned(), format!("{far}/in/")],
            Direction::Pull => ["pull".to_owned(), format!("{far}/ds/"), "in/".to_owned()],
        };
        let run = site.client.run(ends).args(["--json", "--retry-for", "1m", "--peer-key", site.daemon.key()]);
        let run = run.args(["--lanes", "2", "--chunk-size", "1MiB", "--memory", "16MiB"]).args(AS_RUN_7);
        let (running, _) = scene.start(run, 1000);
        // It is told before the first session ends, so that the next one only finds it.
        let is_small = |file: &serde_json::Value| {
            file["type"] == "file" && file["path"].as_str().is_some_and(|path| path.ends_with("sub/small"))
        };
        let small = running.wait_event(|event| is_small(event).then(|| event.clone()));
        assert_eq!(small["status"], "staged", "{context}: {small}");
        scene.restart(|| ());
        scene.gate.open();
        let outcome = running.finish();
        assert_eq!(outcome.code, 0, "{context}: {outcome}");
        assert_whole(&source, &receiving(&scene).join("in"), &[], &context);
        let summary = outcome.summary();
        assert_eq!(summary["files_failed"], 0, "{context}: {outcome}");
        let told = outcome.events_of("file");
        let paths: BTreeSet<String> = told.iter().map(|file| file["path"].to_string()).collect();
        assert_eq!((told.len(), paths.len()), (2, 2), "{context}: each is told once: {told:?}");
    });
}

#[test]
fn a_claim_that_is_not_kept_has_no_dataset_appear() {
    let claim = |fence: u64| format!("{}:300:{fence}:{}", "ab".repeat(16), format!("{fence:02x}").repeat(16));
    for trip in Trip::each_way() {
        plant(&trip.source().join("ds"));
        let (newer, older) = (claim(5), claim(4));
        trip.send(&[&AS_RUN_7[..], &["--claim", &newer]].concat(), &["ds/"], "");
        let refused = trip.run(&["--as-dataset", "run-8", "--claim", &older], &["ds/"], "").finish();
        assert_eq!(fault(&refused, 4), "superseded", "{trip}: {refused}");
        assert!(!trip.dest().join("run-8").exists(), "{trip}");
        assert_whole(&trip.source().join("ds"), &trip.dest(), &[".longhaul".to_owned()], &trip.to_string());
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_mount_point_is_not_replaced_and_that_is_said_before_a_byte_moves() {
    let host = Host::new();
    files::make(host.path("ds/f"), 1, 1000);
    let disk = LoopDisk::new(&host, "to/run-7", 16 << 20);
    let outcome = host.run(["copy", "ds/", "to/", "--if-exists", "replace"]).args(AS_RUN_7).fail(2);
    assert!(outcome.stderr.contains("a file system is mounted there"), "{outcome}");
    assert_eq!(names(host.path("to")), ["run-7", "run-7.img"], "{outcome}");
    drop(disk);
}
