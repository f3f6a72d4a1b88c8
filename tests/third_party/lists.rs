//! Copies of the names of a list from one daemon to another, whichever of the two dials.

use std::fs;

use crate::fixture::tree::Tree;
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, files};

use super::{BY_SOURCE, MIB, Scene, dials, fault, port, restarted};

/// A scene in which the destination fetches, and one in which the source sends, with the options
/// that say so.
fn each_way() -> [(Scene, &'static [&'static str]); 2] {
    [(Scene::new(), &[]), (Scene::turned(), &BY_SOURCE)]
}

/// Files of which a list may name some.
fn lay_out(scene: &Scene) {
    for (n, name) in
        ["a.txt", "other.dat", "sub/b.dat", "sub/deep/c.txt", "sub/deep/tmp/e.txt", "new\nline"].into_iter().enumerate()
    {
        files::make(scene.source.path("data/t").join(name), n as u64, 100 + n * 7);
    }
}

/// The paths beneath this one at the destination.
fn landed(scene: &Scene, path: &str) -> Vec<String> {
    Tree::of(scene.target.path("landing").join(path)).paths().split_off(1)
}

const LIST: [&str; 2] = ["--files-from", "-"];

#[test]
fn the_names_of_a_list_and_what_lies_in_them_go_and_nothing_else_does() {
    for (scene, way) in each_way() {
        lay_out(&scene);
        let run = scene.copy("t", "new").args(way).args(LIST).args(["--from0"]);
        let copied = run.input("a.txt\0./sub/deep//\0/sub/b.dat\0new\nline\0").succeed();
        let expected = [
            "a.txt",
            "new\nline",
            "sub",
            "sub/b.dat",
            "sub/deep",
            "sub/deep/c.txt",
            "sub/deep/tmp",
            "sub/deep/tmp/e.txt",
        ];
        assert_eq!(landed(&scene, "new"), expected, "{way:?}: {copied}");
        assert_eq!(copied.summary()["files_committed"], 5, "{way:?}: {copied}");
        assert_eq!(copied.events_of("start")[0]["direction"], "third-party");
        let again = scene.copy("t", "new").args(way).args(LIST).input("# these\nsub\n").succeed();
        assert_eq!(again.counts(), (0, 3, 0), "{way:?}: {again}");
        // Filters count beside it.
        let filtered = scene.copy("t", "less").args(way).args(LIST).args(["--exclude", "*.txt"]);
        let filtered = filtered.input("a.txt\nsub\n").succeed();
        assert_eq!(landed(&scene, "less"), ["sub", "sub/b.dat", "sub/deep", "sub/deep/tmp"], "{way:?}: {filtered}");
    }
}

#[test]
fn the_grant_of_a_list_is_for_its_names_alone() {
    let scene = Scene::new();
    lay_out(&scene);
    scene.copy("t", "new").args(LIST).input("a.txt\n").succeed();
    assert!(scene.from.wait_log("ended: pull from data/t by grant").contains("client=tester"));
    scene.to.wait_log("ended: copy from lh://");
}

#[test]
fn a_listed_name_that_is_missing_fails_alone_and_is_named() {
    for (scene, way) in each_way() {
        lay_out(&scene);
        let copied = scene.copy("t", "new").args(way).args(LIST).input("a.txt\nmissing\nsub/gone\n").fail(23);
        assert_eq!(copied.counts(), (1, 0, 2), "{way:?}: {copied}");
        assert!(copied.stderr.contains("missing"), "{way:?}: {copied}");
        let states = ["a.txt", "missing", "sub/gone"].map(|name| copied.file(name)["status"].clone());
        assert_eq!(states, ["committed", "failed", "failed"], "{way:?}: {copied}");
        let pulled = scene.client.run(["pull", "--json", &scene.from.url("data/t"), "here"]).args(LIST);
        let pulled = pulled.input("a.txt\nmissing\nsub/gone\n").finish();
        assert_eq!((copied.code, copied.counts()), (pulled.code, pulled.counts()), "{way:?}: {pulled}");
        assert_eq!(landed(&scene, "new"), Tree::of(scene.client.path("here")).paths()[1..], "{way:?}");
    }
}

#[test]
fn a_list_that_leaves_the_source_is_refused_and_an_empty_one_is_about_nothing() {
    for (scene, way) in each_way() {
        lay_out(&scene);
        for list in ["a.txt\n../secret\n", "sub/../../x\n", ".longhaul/x\n"] {
            scene.copy("t", "new").args(way).args(LIST).input(list).fail(2);
        }
        let two = [scene.from.url("data/t/sub"), scene.from.url("data/t"), scene.to.url("landing/new")];
        scene.client.run(["copy", "--json"]).args(way).args(LIST).args(two).input("a.txt\n").fail(2);
        assert!(!scene.target.path("landing/new").exists(), "{way:?}");
        let nothing = scene.copy("t", "new").args(way).args(LIST).input("").succeed();
        assert_eq!(nothing.counts(), (0, 0, 0), "{way:?}: {nothing}");
        let source = scene.copy("no/such", "new").args(way).args(LIST).input("a.txt\n").finish();
        assert_ne!(source.code, 0, "{way:?}: {source}");
    }
}

#[test]
fn a_list_that_is_longer_than_a_message_goes_with_an_order() {
    /// Names of 200 bytes: 300 KB of them.
    const NAMES: usize = 1500;
    for (scene, way) in each_way() {
        let name = |n: usize| format!("{n:05}{}", "x".repeat(195));
        (0..NAMES).for_each(|n| files::write(scene.source.path("data/t").join(name(n)), ""));
        files::write(scene.source.path("data/t/unlisted"), "");
        // In another order than theirs, and one twice.
        let lines: String = (0..NAMES).rev().chain([7]).map(|n| name(n) + "\n").collect();
        let copied = scene.copy("t", "new").args(way).args(LIST).input(lines).succeed();
        assert_eq!(copied.summary()["files_committed"], NAMES, "{way:?}: {copied}");
        let stands = landed(&scene, "new");
        assert!(stands.len() == NAMES && !stands.iter().any(|path| path == "unlisted"), "{way:?}");
    }
}

#[test]
fn a_list_that_a_daemon_has_no_memory_for_is_refused_with_what_to_do() {
    let scene = Scene::with(("read", ALL_RIGHTS), DaemonConfig::default(), |from| {
        dials(&format!("127.0.0.1:{}", port(from))).line("limits.memory = '32MiB'")
    });
    lay_out(&scene);
    let copy = |names: usize| {
        let lines: String = (0..names).map(|n| format!("{n:06}{}\n", "x".repeat(194))).collect();
        scene.copy("t", "new").args(LIST).args(["--retry-for", "0"]).input(lines + "a.txt\n")
    };
    let (message, hint) = fault(&copy(200_000).fail(5));
    assert!(message.contains("list of what to send needs more memory"), "{message}");
    assert!(hint.contains("[limits]"), "{hint}");
    assert!(!scene.target.path("landing/new").exists());
    // What was claimed for it is free again.
    let copied = copy(100).fail(23);
    assert_eq!(copied.counts(), (1, 0, 100), "{copied}");
}

#[test]
fn a_copy_of_a_list_that_was_left_goes_on_with_its_names_when_the_other_daemon_was_killed() {
    let fetching = |from: &Daemon| dials(&format!("127.0.0.1:{}", port(from))).line("limits.sync_interval = '50ms'");
    let fetching = Scene::with(("read", ALL_RIGHTS), DaemonConfig::default().line("state = 'state'"), fetching);
    let ways: [(Scene, &[&str]); 2] = [(fetching, &[]), (Scene::turned(), &BY_SOURCE)];
    for (mut scene, way) in ways {
        files::make(scene.source.path("data/t/f"), 7, 48 * MIB);
        files::make(scene.source.path("data/t/unlisted"), 8, 100);
        let left = scene.copy("t", "").args(way).args(LIST).args(["--detach", "--rate", "20MB/s"]);
        let left = left.input("f\n").succeed();
        let order = left.events_of("left")[0]["order"].as_str().unwrap().to_owned();
        if way.is_empty() {
            scene.from.kill();
            scene.from = restarted(&scene.source, &scene.from);
        } else {
            scene.to.kill();
            scene.to = restarted(&scene.target, &scene.to);
        }
        // The list is of no use to whoever waits for the end.
        let ended = scene.copy("t", "").args(way).args(LIST).args(["--attach", &order]).succeed();
        assert_eq!(ended.summary()["files_committed"], 1, "{way:?}: {ended}");
        let read = |path| fs::read(path).unwrap();
        assert!(read(scene.target.path("landing/f")) == read(scene.source.path("data/t/f")), "{way:?}");
        assert!(!scene.target.path("landing/unlisted").exists(), "{way:?}");
    }
}
