//! Target sets with the layout `spread`: a tree over several directories, from the command line and
//! at a daemon; what is refused; names that stand twice; disks that are away, exchanged, full or
//! read-only.

mod journals;
mod readings;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use rustix::mount::MountFlags;
use rustix::process::Signal;

use crate::fixture::device::{BAD_SECTOR, Fault, Kind, SectorSize, Throttle, Volume};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Daemon, DaemonConfig, Host, LoopDisk, Outcome, Run, files};

const MIB: usize = 1 << 20;

/// A host with a tree `src` of files of all sizes, and empty directories for `count` targets.
struct Scene {
    host: Host,
    dirs: Vec<PathBuf>,
}

impl Scene {
    fn new(count: usize) -> Scene {
        let host = Host::new();
        for n in 0..9 {
            files::make(host.path(format!("src/large/{n}")), n, (2 + n as usize) * MIB + 7);
            files::make(host.path(format!("src/deep/er/small-{n}")), n, 100 + n as usize);
        }
        files::make(host.path("src/nothing"), 1, 0);
        files::make(host.path("src/a\nb"), 1, 10);
        files::link("nothing", host.path("src/link"));
        host.make_dir("src/empty");
        files::set_mode(host.path("src/empty"), 0o750);
        let dirs = (0..count).map(|n| host.make_dir(&format!("d{n}"))).collect();
        Scene { host, dirs }
    }

    /// `copy` to the targets, wherever they lie.
    fn copy(&self, options: &[&str]) -> Run {
        let targets = self.dirs.iter().flat_map(|dir| ["--target".into(), dir.clone().into_os_string()]);
        self.host.run(["copy", "--json", "--allow-same-device"]).args(targets).args(options)
    }

    fn source(&self) -> Tree {
        Tree::of(self.host.path("src")).beneath()
    }

    fn whole(&self, at: &str) -> Tree {
        Tree::union(self.dirs.iter().map(|dir| dir.join(at)).filter(|dir| dir.exists()))
    }

    /// The places of the targets on which a path stands.
    fn on(&self, at: &str) -> Vec<usize> {
        (0..self.dirs.len()).filter(|n| self.dirs[*n].join(at).symlink_metadata().is_ok()).collect()
    }

    /// A daemon that serves them as the root `data`.
    fn daemon(&self, lines: &str) -> Daemon {
        self.daemon_as(lines, |run| run)
    }

    /// The same, started otherwise.
    fn daemon_as(&self, lines: &str, change: impl FnOnce(Run) -> Run) -> Daemon {
        let config = DaemonConfig::default().set("data", &self.dirs, lines);
        let config = config.client("me", self.host.key(), &[("data", "read,create,modify")]);
        let daemon = config.start_as(&self.host, change);
        self.host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        daemon
    }
}

#[test]
fn a_tree_lies_whole_over_its_targets_and_the_same_command_again_has_nothing_to_do() {
    let scene = Scene::new(3);
    scene.copy(&["--verify", "disk", "src/", "in/the/set"]).succeed();
    tree::assert_same(&scene.source(), &scene.whole("in/the/set"), "spread");
    let used: Vec<_> = (0..9).flat_map(|n| scene.on(&format!("in/the/set/large/{n}"))).collect();
    assert_eq!(used.len(), 9);
    assert!((0..3).all(|target| used.contains(&target)), "all targets are used: {used:?}");
    let outcome = scene.copy(&["src/", "in/the/set"]).succeed();
    assert_eq!(outcome.summary()["bytes_committed"], 0, "{outcome}");
    assert_eq!(outcome.summary()["files_skipped"], 21, "{outcome}");
    assert!(scene.dirs.iter().all(|dir| tree::leftovers(dir).iter().all(|name| name.starts_with(".longhaul-set"))));
}

#[test]
fn a_file_that_is_replaced_or_compared_stays_on_its_target() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    let before: Vec<_> = (0..9).map(|n| scene.on(&format!("large/{n}"))).collect();
    for n in 0..9 {
        files::make(scene.host.path(format!("src/large/{n}")), n + 100, (2 + n as usize) * MIB + 7);
    }
    scene.copy(&["--if-exists", "replace", "src/", "."]).succeed();
    assert_eq!((0..9).map(|n| scene.on(&format!("large/{n}"))).collect::<Vec<_>>(), before);
    tree::assert_same(&scene.source(), &scene.whole("."), "replaced");
    let path = scene.host.path("src/large/5");
    let mut bytes = fs::read(&path).unwrap();
    bytes[MIB] ^= 1;
    fs::write(&path, bytes).unwrap();
    let outcome = scene.copy(&["--chunk-size", "1MiB", "--if-exists", "verify", "src/", "."]).succeed();
    assert_eq!(outcome.summary()["bytes_resumed"], 6 * MIB as u64 + 7, "one chunk of eight was sent: {outcome}");
    assert_eq!((0..9).map(|n| scene.on(&format!("large/{n}"))).collect::<Vec<_>>(), before);
    tree::assert_same(&scene.source(), &scene.whole("."), "compared");
}

#[test]
fn a_daemon_serves_a_set_as_one_tree() {
    let scene = Scene::new(3);
    let daemon = scene.daemon("");
    let url = daemon.url("data/in");
    scene.host.run(["push", "--manifest", "list", "src/", &url]).succeed();
    tree::assert_same(&scene.source(), &scene.whole("in"), "pushed");
    let listed = scene.host.run(["ls", &url]).succeed().stdout_text().to_owned();
    assert_eq!(listed, "a\\x0ab\ndeep/\nempty/\nlarge/\nlink\nnothing\n");
    scene.host.run(["pull", &format!("{url}/"), "back"]).succeed();
    tree::assert_same(&scene.source(), &Tree::of(scene.host.path("back")).beneath(), "pulled");
    files::b3sum_check(&scene.host.path("list"), &scene.host.path("back")).unwrap();
    // A name of a list, wherever it lies, and the directories above it.
    files::write(scene.host.path("names"), "deep/er/small-3\nlarge/8\nlarge/1\n");
    scene.host.run(["pull", "--files-from", "names", &url, "some"]).succeed();
    let some = Tree::of(scene.host.path("some")).beneath();
    assert_eq!(some.paths(), ["deep", "deep/er", "deep/er/small-3", "large", "large/1", "large/8"]);
}

#[test]
fn a_name_that_stands_on_two_targets_is_named_and_neither_file_is_sent_nor_touched() {
    let scene = Scene::new(3);
    let daemon = scene.daemon("");
    let url = daemon.url("data");
    scene.host.run(["push", "src/", &url]).succeed();
    let (home, other) = (scene.on("large/4")[0], (scene.on("large/4")[0] + 1) % 3);
    fs::create_dir_all(scene.dirs[other].join("large")).unwrap();
    files::write(scene.dirs[other].join("large/4"), "another");
    fs::remove_file(scene.dirs[scene.on("nothing")[0]].join("nothing")).unwrap();
    files::make(scene.dirs[0].join("nothing/x"), 1, 5);
    files::write(scene.dirs[1].join("nothing"), "no directory");
    let outcome = scene.host.run(["pull", "--json", &format!("{url}/"), "back"]).fail(23);
    for name in ["large/4", "nothing"] {
        assert_eq!(outcome.file(name)["status"], "failed", "{outcome}");
        assert!(!scene.host.path("back").join(name).exists(), "{name}");
    }
    assert!(outcome.stderr.contains("stands on two targets of the set"), "{outcome}");
    assert_eq!(outcome.summary()["files_failed"], 2, "{outcome}");
    scene.host.run(["push", "--if-exists", "replace", "src/large", &url]).fail(23);
    assert_eq!(fs::read(scene.dirs[other].join("large/4")).unwrap(), b"another");
    assert_eq!(fs::metadata(scene.dirs[home].join("large/4")).unwrap().len(), 6 * MIB as u64 + 7);
    let checked = scene.host.run(["set", "check", "--json"]).arg(&scene.dirs[0]).fail(23);
    assert_eq!(checked.summary()["findings"], 2, "{checked}");
    let files = checked.summary()["files"].as_u64();
    assert_eq!(files, Some(19), "of 21 two are findings: {checked}");
}

#[test]
fn a_set_is_made_once_and_wrong_targets_are_refused_before_a_byte_is_written() {
    let scene = Scene::new(3);
    let dirs = || scene.dirs.iter();
    scene.host.run(["set", "init"]).args(dirs()).fail(7);
    assert!(dirs().all(|dir| tree::leftovers(dir).is_empty()));
    scene.host.run(["set", "check"]).arg(&scene.dirs[0]).fail(7);
    scene.host.run(["set", "init", "--allow-same-device"]).args(dirs()).succeed();
    let outcome = scene.host.run(["set", "ls", "--json"]).arg(&scene.dirs[2]).succeed();
    assert_eq!((outcome.events_of("set_target").len(), outcome.summary()["files"].as_u64()), (3, Some(0)));
    // The same set, whoever uses it: exchanged, in part, or with a directory of another one.
    for wrong in [&[1, 0, 2][..], &[0, 1]] {
        let targets = wrong.iter().flat_map(|n| ["--target".into(), scene.dirs[*n].clone().into_os_string()]);
        let run = scene.host.run(["copy", "--allow-same-device"]).args(targets).args(["src", "."]);
        run.fail(7);
    }
    assert!(scene.on("src").is_empty());
    let other = Scene::new(3);
    other.host.run(["set", "init", "--allow-same-device"]).args(&other.dirs).succeed();
    let mixed = [&scene.dirs[0], &other.dirs[1], &scene.dirs[2]];
    let config = DaemonConfig::default().set("data", &mixed.map(Clone::clone), "").write(&scene.host);
    let outcome = scene.host.run(["serve", "--check-config", "--config"]).arg(config).fail(7);
    assert!(outcome.stderr.contains("belongs to another set"), "{outcome}");
}

#[test]
fn who_pushes_hears_how_the_targets_of_the_other_side_do_and_not_where_they_are() {
    let scene = Scene::new(3);
    let daemon = scene.daemon("");
    let outcome = scene.host.run(["push", "--json", "--rate", "30MB/s", "src/", &daemon.url("data/")]).succeed();
    let told = outcome.events_of("targets");
    let first = told.first().unwrap_or_else(|| panic!("no figures: {outcome}"));
    let targets = first["targets"].as_array().unwrap();
    let of = |name: &str| targets.iter().map(|target| target[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("target"), [0, 1, 2], "{outcome}");
    assert_eq!(of("path"), [""; 3], "{outcome}");
    assert_eq!(of("state"), ["ok"; 3], "{outcome}");
    assert!(targets.iter().any(|target| target["bytes_per_s"].as_u64() > Some(0)), "{outcome}");
}

#[test]
fn what_makes_no_sense_is_misuse() {
    let scene = Scene::new(2);
    let (d0, d1) = (scene.dirs[0].to_str().unwrap(), scene.dirs[1].to_str().unwrap());
    let set = ["--target", d0, "--target", d1];
    for args in [
        &["copy", "--target", d0, "src", "."][..],
        &["copy", "--layout", "spread", "src", "out"],
        &[&["copy"], &set[..], &["--layout", "braid", "src", "."]].concat(),
        &[&["copy", "--allow-same-device"], &set[..], &["src", "/abs"]].concat(),
        &[&["copy", "--allow-same-device"], &set[..], &["src", "../up"]].concat(),
        &[&["push"], &set[..], &["src", "lh://localhost/data"]].concat(),
        &["set", "init", d0],
        &["set", "ls"],
    ] {
        scene.host.run(args).fail(2);
    }
    assert!(tree::leftovers(d0).is_empty() && tree::leftovers(d1).is_empty());
    // A dry run makes no set.
    scene.copy(&["-n", "src", "."]).succeed();
    assert!(tree::leftovers(d0).is_empty());
}

#[test]
fn a_set_without_one_of_its_targets_takes_no_new_name_unless_told_so() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    let away = scene.host.path("away");
    fs::rename(&scene.dirs[1], &away).unwrap();
    fs::create_dir(&scene.dirs[1]).unwrap();
    let lost = (0..9).filter(|n| away.join(format!("large/{n}")).exists()).count();
    assert!(lost > 0);
    let outcome = scene.copy(&["src/large", "."]).fail(23);
    assert_eq!(outcome.summary()["files_failed"].as_u64(), Some(lost as u64), "{outcome}");
    assert!(tree::leftovers(&scene.dirs[1]).is_empty(), "nothing is written where a disk should be");
    scene.copy(&["--on-missing", "refuse", "src/large", "."]).fail(7);
    {
        let daemon = scene.daemon("");
        let outcome = scene.host.run(["pull", "--json", &daemon.url("data/"), "back"]).fail(23);
        assert!(outcome.stderr.contains("target 1 of the set is missing"), "{outcome}");
        assert!(outcome.summary()["files_committed"].as_u64() < Some(21), "{outcome}");
        let listed = scene.host.run(["ls", &daemon.url("data/")]).finish();
        assert!(listed.code != 0 && listed.stderr.contains("target 1 of the set is missing"), "{listed}");
    }
    let checked = scene.host.run(["set", "check", "--json"]).arg(&scene.dirs[0]).fail(23);
    assert_eq!(checked.summary()["missing"], 1, "{checked}");
    files::make(scene.host.path("src/new"), 1, 5);
    scene.copy(&["--on-missing", "continue", "src/new", "."]).succeed();
    // It comes back with all that it had.
    fs::remove_dir(&scene.dirs[1]).unwrap();
    fs::rename(&away, &scene.dirs[1]).unwrap();
    scene.copy(&["src/", "."]).succeed();
    tree::assert_same(&scene.source(), &scene.whole("."), "whole again");
}

/// Kills a slow copy again and again, and runs it again, until it is through: each time what was
/// durable is not sent again.
#[test]
fn a_copy_to_a_set_that_is_killed_goes_on_where_it_was_on_every_target() {
    let scene = Scene::new(3);
    for n in 0..6 {
        files::make(scene.host.path(format!("src/huge/{n}")), n, 12 * MIB);
    }
    let slowly = ["--rate", "8MB/s", "--sync-interval", "50ms", "--chunk-size", "1MiB", "src/", "."];
    for _ in 0..4 {
        let run = scene.copy(&slowly).start();
        // Of files that are not whole yet: else nothing may be left to go on with.
        run.wait_event(|event| {
            let (durable, committed) = (event["bytes_durable"].as_u64()?, event["bytes_committed"].as_u64()?);
            (durable > committed + MIB as u64).then_some(())
        });
        run.signal(Signal::KILL);
        run.finish();
    }
    let held: usize = scene.dirs.iter().map(|dir| tree::leftovers(dir).len()).sum();
    assert!(held > scene.dirs.len() * 3, "temporaries are left on targets, besides marks");
    let outcome = scene.copy(&["--chunk-size", "1MiB", "src/", "."]).succeed();
    assert!(outcome.summary()["bytes_resumed"].as_u64() > Some(0), "{outcome}");
    tree::assert_same(&scene.source(), &scene.whole("."), "after four kills");
    for dir in &scene.dirs {
        assert!(tree::orphans(dir).iter().all(|name| name == ".longhaul-set"), "{:?}", tree::orphans(dir));
    }
}

/// A scene whose targets are disks.
fn on_disks(sizes: &[u64]) -> (Scene, Vec<LoopDisk>) {
    let scene = Scene::new(0);
    let disks: Vec<_> =
        sizes.iter().zip(0..).map(|(size, n)| LoopDisk::new(&scene.host, &format!("d{n}"), *size)).collect();
    let dirs = disks.iter().map(|disk| disk.path().to_owned()).collect();
    (Scene { dirs, ..scene }, disks)
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn disks_that_are_exchanged_or_not_mounted_are_noticed_and_those_that_come_back_are_whole() {
    let (scene, disks) = on_disks(&[128 << 20; 3]);
    let copy = |options: &[&str]| {
        let targets = disks.iter().flat_map(|disk| ["--target", disk.text()]);
        scene.host.run(["copy", "--json"]).args(targets).args(options)
    };
    copy(&["src/", "."]).succeed();
    tree::assert_same(&scene.source(), &scene.whole("."), "on disks");
    disks[1].unmount();
    disks[2].unmount();
    let outcome = copy(&["src/", "."]).fail(23);
    assert!(tree::leftovers(disks[1].path()).is_empty(), "{outcome}");
    disks[1].mount_at(disks[2].path(), MountFlags::empty());
    disks[2].mount_at(disks[1].path(), MountFlags::empty());
    let outcome = copy(&["src/", "."]).fail(7);
    assert!(outcome.stderr.contains("mounted in each other's place"), "{outcome}");
    disks.iter().skip(1).for_each(LoopDisk::unmount);
    disks[1].mount();
    disks[2].mount_read_only();
    let outcome = copy(&["src/", "."]).fail(7);
    assert!(outcome.stderr.contains("not writable"), "{outcome}");
    disks[2].unmount();
    disks[2].mount();
    let outcome = copy(&["src/", "."]).succeed();
    assert_eq!(outcome.summary()["bytes_moved"], 0, "{outcome}");
    // Two directories of one disk.
    let (inner, other) = (disks[0].path().join("one"), disks[0].path().join("two"));
    [&inner, &other].iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let outcome = scene.host.run(["set", "init"]).args([&inner, &other]).fail(7);
    assert!(outcome.stderr.contains("same file system"), "{outcome}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_full_disk_among_free_ones_gets_no_more_and_a_replacement_without_room_says_so() {
    let (scene, _disks) = on_disks(&[24 << 20, 128 << 20]);
    scene.host.run(["set", "init"]).args(&scene.dirs).succeed();
    // While the large disk has the least room, a file goes to the other one.
    let filler = scene.dirs[1].join("filler");
    files::make(&filler, 1, 100 * MIB);
    scene.copy(&["src/large/0", "large/"]).succeed();
    fs::remove_file(filler).unwrap();
    assert_eq!(scene.on("large/0"), [0]);
    let outcome = scene.copy(&["src/", "."]).succeed();
    tree::assert_same(&scene.source(), &scene.whole("."), &outcome);
    let of_first = (0..9).filter(|n| scene.on(&format!("large/{n}")) == [0]).count();
    assert!((1..7).contains(&of_first), "as many as fit: {of_first}");
    let small = (0..9).find(|n| scene.on(&format!("large/{n}")) == [0]).unwrap();
    let path = scene.host.path(format!("src/large/{small}"));
    files::make(&path, 77, 30 * MIB);
    let before = fs::metadata(scene.dirs[0].join(format!("large/{small}"))).unwrap().len();
    let outcome = scene.copy(&["--if-exists", "replace", path.to_str().unwrap(), "large/"]).fail(7);
    assert_eq!(outcome.events_of("fault")[0]["code"], "no-space", "{outcome}");
    assert_eq!(fs::metadata(scene.dirs[0].join(format!("large/{small}"))).unwrap().len(), before);
    assert_eq!(scene.on(&format!("large/{small}")), [0]);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_slow_disk_gets_what_it_can_carry_and_is_named_with_its_evidence() {
    let (scene, disks) = on_disks(&[256 << 20; 3]);
    for n in 0..48 {
        files::make(scene.host.path(format!("many/{n}")), n, 2 * MIB + 1);
    }
    let throttle = Throttle::writes(disks[1].path(), 2_000_000);
    let targets = disks.iter().flat_map(|disk| ["--target", disk.text()]);
    let run = scene.host.run(["copy", "--json", "--memory", "16MiB"]).args(targets).args(["many", "."]);
    let outcome = run.beneath(throttle.words()).succeed();
    let of = |target| (0..48).filter(|n| scene.on(&format!("many/{n}")) == [target]).count();
    // Of its two siblings one may be far faster than the other, while a busy host caches for both.
    assert!(of(1) * 4 < of(0) + of(2), "{} {} {}\n{outcome}", of(0), of(1), of(2));
    assert!(outcome.stderr.contains("limited by target 1"), "{outcome}");
    let states = |event: &serde_json::Value| {
        let targets = event["targets"].as_array().into_iter().flatten();
        targets.map(|target| target["state"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert!(outcome.events_of("targets").iter().any(|event| states(event)[1] == "slow"), "{outcome}");
    let named = format!("target 1 ({}) was slow for ", disks[1].text());
    assert!(outcome.stderr.contains(&named), "{outcome}");
    assert_slow_in_summary(&outcome, disks[1].text());
    tree::assert_same(&Tree::of(scene.host.path("many")).beneath(), &scene.whole("many"), "beside a slow disk");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn who_pushes_is_told_which_disk_of_the_other_side_is_slow() {
    let (scene, disks) = on_disks(&[256 << 20; 3]);
    for n in 0..48 {
        files::make(scene.host.path(format!("many/{n}")), n, 2 * MIB + 1);
    }
    let throttle = Throttle::writes(disks[1].path(), 2_000_000);
    let daemon = scene.daemon_as("", |run| run.beneath(throttle.words()));
    let outcome = scene.host.run(["push", "--json", "many", &daemon.url("data/")]).succeed();
    assert!(outcome.stderr.contains("limited by target 1: "), "{outcome}");
    assert!(outcome.stderr.contains("target 1 was slow for "), "{outcome}");
    // The daemon tells the number of a target, and not where it lies.
    assert_slow_in_summary(&outcome, "");
}

/// Fails unless the summary names target 1 as slow, with its directory and the evidence.
#[track_caller]
fn assert_slow_in_summary(outcome: &Outcome, dir: &str) {
    let summary = outcome.summary();
    let mut troubled = summary["troubled_targets"].as_array().into_iter().flatten();
    let Some(slow) = troubled.find(|troubled| troubled["target"] == 1) else { panic!("target 1 was slow: {outcome}") };
    assert_eq!(slow["path"], dir, "{outcome}");
    let number = |field: &str| slow[field].as_f64().unwrap_or(-1.0);
    assert!(number("slow_s") > 0.0 && number("full_s") == 0.0 && number("failed_s") == 0.0, "{outcome}");
    let (own, slowest) = (number("busy_bytes_per_s"), number("slowest_sibling_bytes_per_s"));
    assert!(own < 8e6 && own * 2.0 < slowest && slowest <= number("fastest_sibling_bytes_per_s"), "{outcome}");
    assert!(number("p99_ms") > 0.0 && (0.0..=1.0).contains(&number("share")), "{outcome}");
}

/// A scene of which most files begin with a sector that a bad disk does not take, and one of whose
/// three targets is such a disk.
fn with_bad_disk(place: usize) -> (Scene, Volume) {
    let (scene, volume) = with_disk_to_spoil(place);
    volume.disk().spoil(Fault::Lasting, std::time::Duration::ZERO);
    (scene, volume)
}

/// The same, while the disk is still well.
fn with_disk_to_spoil(place: usize) -> (Scene, Volume) {
    let mut scene = Scene::new(2);
    let volume = Volume::new(Kind::Ext4, SectorSize::Page);
    scene.dirs.insert(place, volume.path().to_owned());
    for n in 0..9 {
        // At the start: a loop device does not tell of an error behind what a request wrote.
        for path in [format!("src/large/{n}"), format!("src/deep/er/small-{n}")] {
            let path = scene.host.path(path);
            let mut bytes = fs::read(&path).unwrap();
            bytes[..BAD_SECTOR.len()].copy_from_slice(BAD_SECTOR);
            fs::write(&path, bytes).unwrap();
        }
    }
    (scene, volume)
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_disk_that_fails_is_left_and_its_siblings_take_what_was_to_go_there() {
    for (layout, place) in [("spread", 2), ("stripe", 2), ("spread", 0), ("stripe", 0)] {
        let (scene, volume) = with_bad_disk(place);
        let outcome = scene.copy(&["--layout", layout, "--stripe-from", "4MiB", "src/", "."]).succeed();
        assert!(volume.disk().failed_writes() > 0, "{layout}: {outcome}");
        assert!(outcome.stderr.contains("a target failed"), "{layout}: {outcome}");
        assert!(fs::read_dir(volume.path().join("large")).map_or(0, |names| names.count()) == 0, "{layout}: {outcome}");
        let host = &scene.host;
        host.run(["set", "export", "--set"]).args([&scene.dirs[1]]).args(["large", "deep", "back/"]).succeed();
        for part in ["large", "deep"] {
            let want = Tree::of(host.path("src").join(part));
            tree::assert_same(&want, &Tree::of(host.path("back").join(part)), layout);
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_push_goes_on_when_a_disk_of_the_daemon_fails() {
    let (scene, volume) = with_bad_disk(2);
    let daemon = scene.daemon("");
    let outcome = scene.host.run(["push", "--json", "src/", &daemon.url("data/")]).succeed();
    assert!(volume.disk().failed_writes() > 0, "{outcome}");
    assert!(outcome.stderr.contains("going on in"), "{outcome}");
    for part in ["large", "deep"] {
        tree::assert_same(&Tree::of(scene.host.path("src").join(part)).beneath(), &scene.whole(part), &outcome);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn files_that_a_disk_took_before_it_failed_are_listed_as_at_risk() {
    let (scene, volume) = with_disk_to_spoil(2);
    scene.host.run(["set", "init", "--allow-same-device"]).args(&scene.dirs).succeed();
    for n in 0..40 {
        files::make(scene.host.path(format!("src/a/{n}")), n, 5000);
        // A name that stands keeps its target.
        files::write(volume.path().join(format!("a/{n}")), "before");
    }
    let run = scene.copy(&["--if-exists", "replace", "--rate", "4MB/s", "src/", "."]).start();
    let committed = RefCell::new(BTreeSet::new());
    run.wait_event(|event| {
        let path = event["path"].as_str().filter(|path| event["status"] == "committed" && path.starts_with("a/"));
        committed.borrow_mut().extend(path.map(str::to_owned));
        (committed.borrow().len() == 40).then_some(())
    });
    volume.disk().spoil(Fault::Lasting, std::time::Duration::ZERO);
    let outcome = run.finish();
    assert_eq!(outcome.code, 0, "{outcome}");
    for part in ["large", "deep", "a"] {
        tree::assert_same(&Tree::of(scene.host.path("src").join(part)).beneath(), &scene.whole(part), &outcome);
    }
    let told = outcome.events_of("at_risk");
    let names: Vec<&str> =
        told.iter().flat_map(|event| event["names"].as_array().unwrap()).map(|n| n["path"].as_str().unwrap()).collect();
    assert!(told.iter().all(|event| event["target"] == 2), "{outcome}");
    for n in 0..40 {
        let path = format!("a/{n}");
        assert_eq!(names.contains(&path.as_str()), scene.on(&path) == [2], "{path}: {outcome}");
    }
    assert!(names.len() >= 40 && names.iter().all(|name| scene.on(name) == [2]), "{outcome}");
    assert_eq!(outcome.summary()["files_at_risk"], names.len(), "{outcome}");
    assert!(outcome.stderr.contains("at risk") && outcome.stderr.contains("longhaul check"), "{outcome}");
}
