//! Several names of one file (`--preserve hardlinks`): they arrive as names of one file and its
//! bytes go once; they are copies, and counted, where that cannot be; and no sender gets a link to
//! what it did not send.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{DaemonConfig, Host, Outcome, Site, Trip, files};

const LARGE: usize = (3 << 20) + 5;
/// The bytes of a tree of [`make_tree`], each file once.
const ONCE: usize = 100 + LARGE + 50;

/// A tree in which files have several names, in directories before and behind their own; one has a
/// name outside of it. Names are listed in no order.
fn make_tree(top: &Path) {
    for (name, len) in [("empty", 0), ("small", 100), ("large", LARGE), ("alone", 50)] {
        files::make(top.join("m").join(name), len as u64, len);
    }
    ["a", "z/deep"].iter().for_each(|dir| fs::create_dir_all(top.join(dir)).unwrap());
    for (name, more) in [("empty", "a/empty"), ("small", "z/deep/small"), ("small", "a/small"), ("large", "z/large")] {
        fs::hard_link(top.join("m").join(name), top.join(more)).unwrap();
    }
    fs::hard_link(top.join("m/large"), top.join("a/large")).unwrap();
    fs::hard_link(top.join("m/alone"), top.with_extension("outside")).unwrap();
}

/// The names of regular files beneath a directory, by the file that they are names of.
fn groups(top: &Path) -> Vec<Vec<String>> {
    let mut found = BTreeMap::<(u64, u64), Vec<String>>::new();
    let mut dirs = vec![top.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let stat = entry.path().symlink_metadata().unwrap();
            if stat.is_dir() {
                dirs.push(entry.path());
            } else if stat.is_file() && !entry.file_name().as_encoded_bytes().starts_with(b".longhaul") {
                let name = entry.path().strip_prefix(top).unwrap().display().to_string();
                found.entry((stat.dev(), stat.ino())).or_default().push(name);
            }
        }
    }
    let mut groups: Vec<_> = found.into_values().collect();
    groups.iter_mut().for_each(|names| names.sort());
    groups.sort();
    groups
}

/// The tree's groups: of each file all its names.
fn whole() -> Vec<Vec<String>> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    vec![
        names(&["a/empty", "m/empty"]),
        names(&["a/large", "m/large", "z/large"]),
        names(&["a/small", "m/small", "z/deep/small"]),
        names(&["m/alone"]),
    ]
}

fn assert_same_content(from: &Path, to: &Path, what: &str) {
    for name in whole().iter().flatten() {
        let [source, came] = [from, to].map(|top| fs::read(top.join(name)).unwrap());
        assert!(source == came, "{what}: {name}");
    }
}

/// Names that were not made links: reason and number.
fn not_linked(outcome: &Outcome) -> Vec<(String, u64)> {
    let rows = outcome.events_of("not_kept").into_iter().filter(|row| row["kind"] == "hardlinks");
    rows.map(|row| (row["reason"].as_str().unwrap().to_owned(), row["entries"].as_u64().unwrap())).collect()
}

fn moved(outcome: &Outcome) -> usize {
    outcome.summary()["bytes_moved"].as_u64().unwrap() as usize
}

#[test]
fn names_of_one_file_arrive_as_such_and_its_bytes_go_once() {
    for trip in Trip::each_way() {
        let (from, to) = (trip.source().join("d"), trip.dest().join("d"));
        make_tree(&from);
        let outcome = trip.send(&["--preserve", "+hardlinks"], &["d"], "");
        assert_eq!((outcome.counts(), not_linked(&outcome)), ((9, 0, 0), vec![]), "{trip}: {outcome}");
        assert_eq!((groups(&to), moved(&outcome)), (whole(), ONCE), "{trip}: {outcome}");
        assert_same_content(&from, &to, &trip.to_string());
        let linked = outcome.events_of("file").into_iter().filter(|file| file["status"] == "linked");
        assert!(linked.clone().all(|file| file["b3"] != Value::Null), "{trip}: {outcome}");
        assert_eq!(linked.count(), 5, "{trip}: {outcome}");
        // Nothing is sent, or made, again.
        let outcome = trip.send(&["--preserve", "+hardlinks"], &["d"], "");
        assert_eq!((outcome.counts(), not_linked(&outcome), moved(&outcome)), ((0, 9, 0), vec![], 0), "{trip}");
        assert_eq!(groups(&to), whole(), "{trip}");
        // Without the word each name has a file of its own.
        let outcome = trip.send(&[], &["d"], "apart");
        assert_eq!(groups(&trip.dest().join("apart/d")).len(), 9, "{trip}: {outcome}");
    }
}

#[test]
fn a_name_that_is_missing_becomes_one_of_the_file_that_stands() {
    for (trip, how) in Trip::each_way().zip(["skip-same", "verify", "skip-same"]) {
        let (from, to) = (trip.source().join("d"), trip.dest().join("d"));
        make_tree(&from);
        let options = ["--preserve", "+hardlinks", "--if-exists", how];
        let outcome = trip.send(&options, &["d"], "");
        // Any but the first, which is the one that the scan comes to first.
        let linked = outcome.events_of("file").into_iter().filter(|file| file["status"] == "linked");
        for file in linked.take(3) {
            fs::remove_file(trip.dest().join(file["path"].as_str().unwrap())).unwrap();
        }
        let outcome = trip.send(&options, &["d"], "");
        assert_eq!((groups(&to), moved(&outcome)), (whole(), 0), "{trip}: {outcome}");
        assert_eq!((outcome.counts(), not_linked(&outcome)), ((3, 6, 0), vec![]), "{trip}: {outcome}");
    }
}

#[test]
fn copies_that_stand_are_joined_whatever_the_rule_for_names_that_stand() {
    for how in ["skip-same", "verify", "replace"] {
        let host = Host::new();
        make_tree(&host.path("d"));
        host.run(["copy", "d", "to/"]).succeed();
        assert_eq!(groups(&host.path("to/d")).len(), 9);
        let outcome =
            host.run(["copy", "--json", "--preserve", "+hardlinks", "--if-exists", how, "d", "to/"]).succeed();
        assert_eq!((groups(&host.path("to/d")), not_linked(&outcome)), (whole(), vec![]), "{how}: {outcome}");
        assert_same_content(&host.path("d"), &host.path("to/d"), how);
        let bytes = if how == "replace" { ONCE } else { 0 };
        assert_eq!(moved(&outcome), bytes, "{how}: {outcome}");
    }
    let host = Host::new();
    make_tree(&host.path("d"));
    host.run(["copy", "--preserve", "+hardlinks", "--if-exists", "fail", "d", "to/"]).succeed();
    assert_eq!(groups(&host.path("to/d")), whole());
    let again = host.run(["copy", "--preserve", "+hardlinks", "--if-exists", "fail", "d", "to/"]).finish();
    assert_ne!(again.code, 0, "{again}");
    assert_eq!(groups(&host.path("to/d")), whole());
}

#[test]
fn a_dry_run_links_nothing() {
    let host = Host::new();
    make_tree(&host.path("d"));
    let outcome = host.run(["copy", "--json", "-n", "--preserve", "+hardlinks", "d", "to/"]).succeed();
    assert!(!host.path("to").exists(), "{outcome}");
    let bytes: u64 = outcome.events_of("file").iter().map(|file| file["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes as usize, ONCE, "{outcome}");
}

#[test]
fn a_run_that_is_killed_is_gone_on_with_and_links_all_the_same() {
    let site = Site::new();
    make_tree(&site.client.path("d"));
    // Names whose first one is committed long before the run is killed, and such that are not.
    files::make(site.client.path("d/y/slow"), 5, 6 << 20);
    for n in 0..40 {
        fs::hard_link(site.client.path("d/y/slow"), site.client.path(format!("d/y/slow-{n}"))).unwrap();
        fs::hard_link(site.client.path("d/m/small"), site.client.path(format!("d/y/small-{n}"))).unwrap();
    }
    let push = |rate: &str| {
        let options = ["push", "--json", "--chunk-size", "1MiB", "--preserve", "+hardlinks", "--rate", rate];
        site.client.run(options).args(["d".to_owned(), site.url("")])
    };
    let running = push("16Mbit/s").start();
    running.wait_event(|event| (event["type"] == "file").then_some(()));
    running.signal(Signal::KILL);
    drop(running.finish());
    let outcome = push("1Gbit/s").succeed();
    let (from, to) = (site.client.path("d"), site.root().join("d"));
    assert_eq!((groups(&to), not_linked(&outcome)), (groups(&from), vec![]), "{outcome}");
    assert!(moved(&outcome) <= ONCE + (6 << 20), "{outcome}");
    assert_same_content(&from, &to, "after a death");
}

#[test]
fn who_may_only_create_gets_links_to_what_it_sent_and_to_nothing_else() {
    let site = Site::granting(DaemonConfig::default(), "create", "read,create,modify");
    // Another's file stands, as long and as old as the one that is sent.
    files::make(site.root().join("d/first"), 9, 300);
    files::make(site.client.path("d/first"), 1, 300);
    for path in [site.root().join("d/first"), site.client.path("d/first")] {
        files::set_mtime(path, 1_700_000_000, 0);
    }
    fs::hard_link(site.client.path("d/first"), site.client.path("d/second")).unwrap();
    files::make(site.client.path("d/own"), 2, 400);
    fs::hard_link(site.client.path("d/own"), site.client.path("d/own-too")).unwrap();
    // The name that is listed first is the one that stands.
    let names = b"first\nown\nown-too\nsecond\n";
    fs::write(site.client.path("names"), names).unwrap();
    let push = ["push", "--json", "--preserve", "+hardlinks", "--files-from", "names"];
    let outcome = site.client.run(push).args(["d/".to_owned(), site.url("d/")]).succeed();
    let to = site.root().join("d");
    let ino = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    assert_eq!(ino("own"), ino("own-too"), "{outcome}");
    assert_ne!(ino("first"), ino("second"), "{outcome}");
    assert_eq!(fs::metadata(to.join("first")).unwrap().nlink(), 1, "{outcome}");
    assert_eq!(fs::read(to.join("first")).unwrap(), files::bytes(9, 300), "{outcome}");
    assert_eq!(fs::read(to.join("second")).unwrap(), files::bytes(1, 300), "{outcome}");
    assert_eq!(not_linked(&outcome), [("unproven".to_owned(), 1)], "{outcome}");
}

#[test]
fn a_file_that_only_looks_like_the_source_gets_no_other_name_where_looks_do_not_count() {
    for how in ["fail", "verify"] {
        let host = Host::new();
        files::make(host.path("d/first"), 1, 300);
        files::make(host.path("to/d/first"), 9, 300);
        for path in ["d/first", "to/d/first"] {
            files::set_mtime(host.path(path), 1_700_000_000, 0);
        }
        fs::hard_link(host.path("d/first"), host.path("d/second")).unwrap();
        let outcome = host.run(["copy", "--preserve", "+hardlinks", "--if-exists", how, "d", "to/"]).finish();
        assert_eq!(fs::read(host.path("to/d/second")).unwrap(), files::bytes(1, 300), "{how}: {outcome}");
    }
}

#[test]
fn a_mode_that_is_not_set_as_the_file_has_other_names_is_said() {
    let host = Host::new();
    files::make(host.path("d/first"), 1, 300);
    fs::hard_link(host.path("d/first"), host.path("d/second")).unwrap();
    let copy = || host.run(["copy", "--json", "--preserve", "+hardlinks", "d", "to/"]).succeed();
    copy();
    files::set_mode(host.path("d/first"), 0o600);
    let outcome = copy();
    let lost = outcome.events_of("not_kept");
    let of_modes: Vec<_> = lost.iter().filter(|lost| lost["kind"] == "mode").collect();
    assert_eq!(of_modes.len(), 1, "{outcome}");
    assert_eq!((of_modes[0]["reason"].as_str(), of_modes[0]["entries"].as_u64()), (Some("several-names"), Some(2)));
}

#[test]
fn on_a_target_set_the_names_of_a_file_lie_on_its_target_or_are_copies() {
    let host = Host::new();
    make_tree(&host.path("d"));
    let targets: Vec<PathBuf> = ["w", "x", "y", "z"].iter().map(|name| host.make_dir(name)).collect();
    let copy = |targets: [&str; 2], options: &[&str]| {
        let copy = ["copy", "--json", "--allow-same-device", "--preserve", "+hardlinks"];
        let targets = targets.into_iter().flat_map(|target| ["--target", target]);
        host.run(copy).args(options).args(targets).args(["d", "./"]).succeed()
    };
    let outcome = copy(["w", "x"], &[]);
    let mut came: Vec<_> = targets[..2].iter().flat_map(|target| groups(&target.join("d"))).collect();
    came.sort();
    assert_eq!((came, not_linked(&outcome)), (whole(), vec![]), "{outcome}");
    // Striped files have one name.
    let outcome = copy(["y", "z"], &["--layout", "stripe", "--stripe-from", "1MiB", "--chunk-size", "1MiB"]);
    assert_eq!(not_linked(&outcome), [("striped".to_owned(), 2)], "{outcome}");
}
