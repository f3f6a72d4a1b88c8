//! Changes of target sets: targets that are added, moved, emptied, replaced and removed, at sets
//! that a daemon serves or not, and commands that are killed.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{DaemonConfig, Host, LoopDisk, Run, files};

const MIB: usize = 1 << 20;

/// A host with a tree `src`, and a set of three directories that holds it.
struct Scene {
    host: Host,
    dirs: Vec<PathBuf>,
}

impl Scene {
    fn new(layout: &str) -> Scene {
        let host = Host::new();
        for n in 0..6 {
            files::make(host.path(format!("src/large/{n}")), n, (1 + n as usize) * MIB + 7);
            files::make(host.path(format!("src/deep/er/small-{n}")), n, 100 + n as usize);
        }
        // Files of a size that any target above its share can give away, wherever they were placed.
        for n in 10..22 {
            files::make(host.path(format!("src/even/{n}")), n, MIB);
        }
        files::make(host.path("src/huge"), 9, 16 * MIB + 5);
        files::link("nothing", host.path("src/link"));
        host.make_dir("src/empty");
        files::set_mode(host.path("src/large/3"), 0o640);
        let dirs = (0..3).map(|n| host.make_dir(&format!("d{n}"))).collect();
        let scene = Scene { host, dirs };
        let layout = ["--layout", layout, "--stripe-from", "8MiB", "--chunk-size", "1MiB"];
        let targets = scene.dirs.iter().flat_map(|dir| ["--target".into(), dir.clone().into_os_string()]);
        let copy = scene.host.run(["copy", "--allow-same-device"]).args(layout).args(targets);
        copy.args(["src/", "."]).succeed();
        scene
    }

    fn set(&self, words: &[&str]) -> Run {
        self.host.run(["set"]).args(words)
    }

    fn dir(&self, n: usize) -> &str {
        self.dirs[n].to_str().unwrap()
    }

    /// Checks that the set holds what was copied to it, and nothing is wrong with it.
    fn need_whole(&self, from: usize, after: &str) {
        self.need_whole_as(from, after, |tree| tree);
    }

    /// The same, for what `of` takes of a tree.
    fn need_whole_as(&self, from: usize, after: &str, of: impl Fn(Tree) -> Tree) {
        let back = self.host.path("back");
        let _ = fs::remove_dir_all(&back);
        self.set(&["export", "--set", self.dir(from), ".", "back"]).succeed();
        let source = Tree::of(self.host.path("src")).beneath();
        tree::assert_same(&of(source), &of(Tree::of(back).beneath()), after);
        self.set(&["check", self.dir(from)]).succeed();
        self.set(&["verify", self.dir(from)]).succeed();
    }

    /// The names at the top of a target.
    fn top(&self, n: usize) -> Vec<String> {
        fs::read_dir(&self.dirs[n]).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[test]
fn a_target_is_added_takes_its_share_and_leaves_again() {
    for layout in ["spread", "stripe"] {
        let mut scene = Scene::new(layout);
        scene.dirs.push(scene.host.make_dir("d3"));
        let added = scene.set(&["add", "--set", scene.dir(1), scene.dir(3)]).fail(7);
        assert!(added.stderr.contains("same file system"), "{added}");
        let add = ["add", "--json", "--allow-same-device", "--set", scene.dir(1), scene.dir(3)];
        let added = scene.set(&add).succeed();
        assert_eq!(added.events_of("set_target").len(), 4, "{added}");
        scene.set(&add).succeed();
        scene.need_whole(0, "added");
        let plan = scene.set(&["rebalance", "--json", "--plan", scene.dir(0)]).succeed();
        assert!(plan.events_of("set_move").iter().all(|event| event["state"] == "planned"), "{plan}");
        assert_eq!(scene.top(3), [".longhaul-set"]);
        let moved = scene.set(&["rebalance", "--json", "--apply", scene.dir(0)]).succeed();
        assert_eq!(moved.events_of("set_move").len(), plan.events_of("set_move").len(), "{moved}");
        assert!(moved.events_of("set_move").iter().any(|event| event["to"] == 3), "{moved}");
        scene.need_whole(3, "balanced");
        let refused = scene.set(&["rm", scene.dir(0)]).fail(7);
        assert!(refused.stderr.contains("only the last target"), "{refused}");
        scene.set(&["rm", scene.dir(3)]).fail(7);
        scene.set(&["rebalance", "--drain", scene.dir(3), "--apply", scene.dir(0)]).succeed();
        assert_eq!(scene.top(3), [".longhaul-set"]);
        scene.set(&["rm", scene.dir(3)]).succeed();
        assert!(scene.top(3).is_empty());
        scene.need_whole(2, "as before");
    }
}

#[test]
fn a_target_that_is_mounted_elsewhere_is_written_down() {
    let mut scene = Scene::new("stripe");
    let olds = [scene.dirs[0].clone(), scene.dirs[2].clone()];
    for n in [0, 2] {
        let new = scene.host.path(format!("moved-{n}"));
        fs::rename(&scene.dirs[n], &new).unwrap();
        scene.dirs[n] = new;
    }
    let [old0, old2] = [olds[0].to_str().unwrap(), olds[1].to_str().unwrap()];
    scene.set(&["check", scene.dir(1)]).fail(23);
    let one = scene.set(&["mv", old0, scene.dir(0)]).fail(7);
    assert!(one.stderr.contains("is missing"), "{one}");
    scene.set(&["mv", old0]).fail(2);
    scene.set(&["mv", old0, scene.dir(0), old2]).fail(2);
    let wrong = scene.set(&["mv", old0, scene.dir(2), old2, scene.dir(0)]).fail(7);
    assert!(wrong.stderr.contains("is the target of this set that stood at"), "{wrong}");
    let both = ["mv", old0, scene.dir(0), old2, scene.dir(2)];
    scene.set(&both).succeed();
    scene.set(&both).succeed();
    scene.need_whole(1, "moved");
}

#[test]
fn a_set_that_a_daemon_serves_is_not_changed() {
    let scene = Scene::new("spread");
    let config = DaemonConfig::default().set("data", &scene.dirs, "");
    let path = config.clone().write(&scene.host);
    let new = scene.host.make_dir("d3");
    {
        let daemon = config.client("me", scene.host.key(), &[("data", "read")]).start(&scene.host);
        for words in [
            &["add", "--allow-same-device", "--set", scene.dir(0), new.to_str().unwrap()][..],
            &["rebalance", "--apply", scene.dir(0)],
            &["rm", scene.dir(2)],
        ] {
            let refused = scene.set(words).fail(7);
            assert!(refused.stderr.contains("is in use"), "{refused}");
        }
        scene.set(&["rebalance", "--plan", scene.dir(0)]).succeed();
        drop(daemon);
    }
    let config = path.to_str().unwrap();
    let add = ["add", "--allow-same-device", "--root", "data", "--config", config, new.to_str().unwrap()];
    scene.set(&add).succeed();
    let refused = scene.host.run(["serve", "--check-config", "--config", config]).fail(7);
    assert!(refused.stderr.contains("has 4 targets, and 3 are named"), "{refused}");
}

/// Kills a slow drain again and again: each time every name is there once, and the last run
/// finishes.
#[test]
fn a_drain_that_is_killed_loses_nothing_and_the_same_command_goes_on() {
    for layout in ["spread", "stripe"] {
        let scene = Scene::new(layout);
        let drain = ["rebalance", "--json", "--drain", scene.dir(1), "--apply", scene.dir(0)];
        for round in 0..4 {
            let run = scene.set(&drain).args(["--rate", "2MB/s"]).start();
            // Later rounds are killed wherever they are by now.
            if round == 0 {
                run.wait_type("set_move");
            }
            run.signal(Signal::KILL);
            run.finish();
            scene.set(&["rebalance", "--plan", scene.dir(0)]).succeed();
        }
        scene.set(&drain).succeed();
        // A kill between a rename and the time of its directory leaves the time of the rename.
        scene.need_whole_as(2, layout, Tree::without_dir_times);
        assert_eq!(scene.top(1), [".longhaul-set"], "{layout}");
    }
}

#[test]
fn a_target_is_replaced_by_a_directory_that_has_all_of_it_though_the_command_is_killed() {
    for layout in ["spread", "stripe"] {
        let mut scene = Scene::new(layout);
        scene.dirs.push(scene.host.make_dir("new"));
        let words = |deed| ["replace", "--json", "--allow-same-device", deed, scene.dir(1), scene.dir(3)];
        let plan = scene.set(&words("--plan")).succeed();
        assert!(plan.events_of("set_copy").iter().all(|event| event["state"] == "planned"), "{plan}");
        assert!(scene.top(3).is_empty());
        for _ in 0..2 {
            let run = scene.set(&words("--apply")).args(["--rate", "4MB/s"]).start();
            run.wait_type("set_copy");
            run.signal(Signal::KILL);
            run.finish();
            // It is the set that it was, and may be used.
            scene.set(&["check", scene.dir(0)]).succeed();
        }
        let done = scene.set(&words("--apply")).succeed();
        assert_eq!(done.events_of("set_copy").len(), plan.events_of("set_copy").len(), "{done}");
        let targets = done.events_of("set_target");
        assert_eq!(targets[1]["path"], scene.dir(3), "{done}");
        scene.set(&["check", scene.dir(1)]).fail(7);
        scene.set(&words("--apply")).succeed();
        scene.dirs.swap_remove(1);
        scene.need_whole(1, layout);
        let targets = scene.dirs.iter().flat_map(|dir| ["--target".into(), dir.clone().into_os_string()]);
        scene.host.run(["copy", "--allow-same-device"]).args(targets).args(["src/", "."]).succeed();
    }
}

#[test]
fn a_target_that_is_lost_is_replaced_and_what_is_known_to_be_lost_is_told() {
    let mut scene = Scene::new("stripe");
    scene.dirs.push(scene.host.make_dir("new"));
    let bodies = |n: &usize| fs::read_dir(scene.dirs[*n].join(".longhaul-set/bodies")).unwrap().count() - 1;
    let lost = (0..3).find(|n| bodies(n) > 0).unwrap();
    let home = (lost + 1) % 3;
    // Its stripe file is read wherever it lies.
    if scene.dirs[lost].join("huge").exists() {
        fs::rename(scene.dirs[lost].join("huge"), scene.dirs[home].join("huge")).unwrap();
    }
    fs::remove_dir_all(&scene.dirs[lost]).unwrap();
    let (old, new) = (scene.dir(lost), scene.dir(3));
    let common = ["replace", "--json", "--allow-same-device", "--lost", old, new];
    scene.set(&common).arg("--apply").fail(2);
    let words = [&common[..], &["--set", scene.dir(home)]].concat();
    let wrong = ["replace", "--lost", "--apply", "--set", scene.dir(home), scene.dir(home), new];
    let refused = scene.set(&wrong).fail(7);
    assert!(refused.stderr.contains("is missing"), "{refused}");
    for deed in ["--plan", "--apply"] {
        let told = scene.set(&words).arg(deed).fail(23);
        let message = &told.events_of("fault")[0]["message"];
        assert!(message.as_str().is_some_and(|text| text.contains("'huge'")), "{told}");
        assert!(told.stderr.contains("whole files that lay on the lost target"), "{told}");
    }
    scene.dirs.swap(lost, 3);
    let checked = scene.set(&["check", scene.dir(home)]).fail(23);
    assert!(checked.stderr.contains("huge"), "{checked}");
    let listed = scene.set(&["ls", "--json", scene.dir(home)]).succeed();
    assert_eq!(listed.summary()["missing"], 0, "{listed}");
}

#[test]
fn a_set_whose_making_was_interrupted_is_made_by_the_same_command() {
    for marked in 0..3 {
        let host = Host::new();
        let dirs: Vec<_> = (0..3).map(|n| host.make_dir(&format!("d{n}"))).collect();
        let init = || host.run(["set", "init", "--allow-same-device", "--layout", "stripe"]).args(&dirs);
        init().succeed();
        // As it is before the marks of the last ones.
        for dir in &dirs[marked..] {
            fs::rename(dir.join(".longhaul-set/mark"), dir.join(".longhaul-set/mark.coming")).unwrap();
        }
        if marked > 0 {
            let listed = host.run(["set", "ls", "--json"]).arg(&dirs[0]).succeed();
            assert_eq!(listed.summary()["missing"], 0, "{listed}");
        }
        init().succeed();
        assert!(dirs.iter().all(|dir| dir.join(".longhaul-set/mark").exists()), "{marked}");
        assert!(!dirs.iter().any(|dir| dir.join(".longhaul-set/mark.coming").exists()), "{marked}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_disk_that_became_read_only_is_replaced_by_another_one() {
    let host = Host::new();
    let disks: Vec<_> = (0..4).map(|n| LoopDisk::new(&host, &format!("d{n}"), 128 << 20)).collect();
    for n in 0..6 {
        files::make(host.path(format!("src/{n}")), n, (1 + n as usize) * MIB + 7);
    }
    files::make(host.path("src/huge"), 9, 16 * MIB + 5);
    let targets = disks[..3].iter().flat_map(|disk| ["--target", disk.text()]);
    let layout = ["--layout", "stripe", "--stripe-from", "8MiB", "--chunk-size", "1MiB"];
    host.run(["copy"]).args(layout).args(targets).args(["src/", "."]).succeed();
    disks[1].unmount();
    disks[1].mount_read_only();
    let same = host.run(["set", "replace", "--apply", disks[1].text()]).arg(disks[0].path().join("in")).finish();
    assert!(same.code != 0, "{same}");
    host.run(["set", "replace", "--apply", disks[1].text(), disks[3].text()]).succeed();
    host.run(["set", "verify", disks[3].text()]).succeed();
    host.run(["set", "export", "--set", disks[3].text(), ".", "back"]).succeed();
    tree::assert_same(&Tree::of(host.path("src")).beneath(), &Tree::of(host.path("back")).beneath(), "replaced");
    let old = disks[..3].iter().flat_map(|disk| ["--target", disk.text()]);
    let refused = host.run(["copy"]).args(old).args(["src/", "."]).fail(7);
    assert!(refused.stderr.contains("say different things of their set"), "{refused}");
}
