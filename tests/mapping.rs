//! The places of sources: the rules of slashes, existing directories and several sources, the same
//! each way and in a dry run.

use std::collections::BTreeSet;
use std::fs;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Outcome, Trip, files};

#[test]
fn sources_land_where_the_rules_say_and_where_a_dry_run_said() {
    for trip in Trip::each_way() {
        lay_out(&trip);
        let before = Tree::of(trip.dest());
        for (sources, dest, landed) in RULES {
            let context = format!("{trip}: {sources:?} to {dest:?}");
            let planned = trip.send(&["--dry-run"], sources, dest);
            tree::assert_same(&before, &Tree::of(trip.dest()), format!("{context}: a dry run wrote: {planned}"));
            let outcome = trip.send(&[], sources, dest);
            let stands = Tree::of(trip.dest()).paths();
            let new: Vec<&str> = stands
                .iter()
                .map(String::as_str)
                .filter(|path| !before.paths().contains(&(*path).to_owned()))
                .collect();
            assert_eq!(new, *landed, "{context}: {outcome}");
            assert_eq!(mapping(&planned, "planned"), mapping(&outcome, "committed"), "{context}: {planned}\n{outcome}");
            clear(&trip);
        }
    }
}

#[test]
fn the_same_command_means_the_same_when_it_is_run_again() {
    for trip in Trip::each_way() {
        lay_out(&trip);
        for (sources, dest, landed) in RULES {
            let context = format!("{trip}: {sources:?} to {dest:?}");
            trip.send(&[], sources, dest);
            let first = Tree::of(trip.dest());
            let (_, skipped, _) = trip.send(&[], sources, dest).counts();
            tree::assert_same(&first, &Tree::of(trip.dest()), &context);
            assert_eq!(
                skipped as usize,
                landed.iter().filter(|path| trip.dest().join(path).is_file()).count(),
                "{context}"
            );
            clear(&trip);
        }
    }
}

#[test]
fn a_directory_is_not_put_in_place_of_a_file() {
    for trip in Trip::each_way() {
        lay_out(&trip);
        files::make(trip.dest().join("file"), 5, 50);
        let before = Tree::of(trip.dest());
        let refused = trip.run(&[], &["d"], "file").fail(23);
        assert_eq!(refused.events_of("fault").len(), 1, "{trip}: {refused}");
        assert_eq!(refused.events_of("file").len(), 0, "{trip}: {refused}");
        assert!(refused.stderr.contains("dst/file"), "{trip}: {refused}");
        tree::assert_same(&before, &Tree::of(trip.dest()), &refused);
    }
}

#[test]
fn names_of_a_list_land_directly_in_the_destination_whether_its_source_ends_in_a_slash_or_not() {
    for trip in Trip::each_way() {
        for source in ["d", "d/"] {
            lay_out(&trip);
            for _ in 0..2 {
                let outcome = trip.run(&["--files-from", "-"], &[source], "new").input("sub/h\n").succeed();
                let stands = Tree::of(trip.dest().join("new")).paths();
                assert_eq!(stands, ["", "sub", "sub/h"], "{trip}: {source}: {outcome}");
                assert_eq!(outcome.file("sub/h")["target"], "sub/h", "{trip}: {source}: {outcome}");
            }
        }
    }
}

#[test]
fn where_no_source_exists_no_destination_is_made_and_no_daemon_is_asked() {
    for trip in Trip::each_way() {
        for sources in [&["missing"][..], &["missing", "deep/missing-too"], &["missing/"]] {
            let outcome = trip.run(&[], sources, "new/deep").fail(3);
            assert!(!trip.dest().join("new").exists(), "{trip}: {outcome}");
            assert_eq!(outcome.counts(), (0, 0, sources.len() as u64), "{trip}: {outcome}");
            let whole = |name: &&str| outcome.stderr.contains(&format!("src/{}", name.trim_end_matches('/')));
            assert!(sources.iter().all(whole), "{trip}: {outcome}");
        }
        let quoted = trip.run(&[], &["*.dat"], "new").fail(3);
        assert!(quoted.stderr.contains("the shell expands it"), "{trip}: {quoted}");
    }
    let host = Host::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    host.run(["push", "missing", &format!("lh://{nobody}/data/x")]).fail(3);
}

#[test]
fn two_sources_of_one_name_are_refused_before_anything_is_made() {
    for trip in Trip::each_way() {
        for file in ["a/x", "b/x", "b/y", "c/z"] {
            files::make(trip.source().join(file), 1, 100);
        }
        for (sources, named) in [
            (&["a/x", "b/x"][..], ["a/x", "b/x"]),
            (&["c/z", "a/x", "b/"], ["a/x", "b/"]),
            (&["a/", "c/", "b/"], ["a/", "b/"]),
        ] {
            let refused = trip.run(&[], sources, "new/").fail(2);
            let fault = &refused.events_of("fault")[0];
            let message = fault["message"].as_str().unwrap();
            let whole = |path: &str| message.split(' ').any(|word| word.trim_end_matches(',').ends_with(path));
            assert!(message.contains("'x'") && named.into_iter().all(whole), "{trip}: {refused}");
            assert!(!trip.dest().join("new").exists(), "{trip}: {refused}");
        }
        trip.send(&[], &["a/x", "b/y", "c/"], "new/");
        trip.send(&["--exclude", "/x"], &["a/", "b/"], "new/");
    }
}

#[test]
fn a_dry_run_prints_the_mapping_and_the_bytes_and_touches_nothing() {
    let host = Host::new();
    files::make(host.path("src/d/small"), 1, 100);
    files::make(host.path("src/d/large"), 1, 3 << 20);
    files::link("nowhere", host.path("src/d/link"));
    let before = Tree::of(host.path("src"));
    let outcome = host.run(["copy", "-n", "--manifest", "list", "src/d", "dst/deep/"]).succeed();
    for line in [
        "d/small -> dst/deep/d/small (100 bytes)",
        "d/large -> dst/deep/d/large (3145728 bytes)",
        "d/link -> dst/deep/d/link (0 bytes)",
        "2 files, 3145828 bytes (3.0 MiB) would be sent",
    ] {
        assert!(outcome.stdout_text().lines().any(|printed| printed == line), "{line}: {outcome}");
    }
    assert!(!host.path("dst").exists() && !host.path("list").exists(), "{outcome}");
    tree::assert_same(&before, &Tree::of(host.path("src")), &outcome);
    let json = host.run(["copy", "-n", "--json", "src/d", "dst/deep/"]).succeed();
    assert_eq!(json.file("d/large")["status"], "planned", "{json}");
    assert_eq!(json.counts(), (0, 0, 0), "{json}");
}

#[test]
fn a_dry_run_tells_what_would_be_skipped_from_what_would_be_sent() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/same"), 1, 100);
        trip.send(&[], &["d"], "");
        files::make(trip.source().join("d/new"), 1, 100);
        let outcome = trip.send(&["-n"], &["d"], "");
        assert_eq!(outcome.file("d/same")["status"], "skipped", "{trip}: {outcome}");
        assert_eq!(outcome.file("d/new")["status"], "planned", "{trip}: {outcome}");
        assert!(!trip.dest().join("d/new").exists(), "{trip}");
    }
}

#[test]
fn a_path_with_a_colon_is_local_behind_a_slash_and_a_leading_dash_behind_two() {
    let host = Host::new();
    files::make(host.path("a:b"), 1, 10);
    host.run(["copy", "./a:b", "./c:d"]).succeed();
    assert_eq!(fs::read(host.path("c:d")).unwrap(), files::bytes(1, 10));
    files::make(host.path("-n"), 2, 10);
    host.run(["copy", "--", "-n", "-m"]).succeed();
    assert_eq!(fs::read(host.path("-m")).unwrap(), files::bytes(2, 10));
    // Without that it is a path of the host a, to which ssh leads.
    let elsewhere = host.run(["copy", "--ssh", "false", "a:b", "e"]).finish();
    assert!(elsewhere.code != 0 && !host.path("e").exists(), "{elsewhere}");
}

/// Sources, destination, and the names that stand there afterwards and did not before.
type Rule = (&'static [&'static str], &'static str, &'static [&'static str]);

const RULES: &[Rule] = &[
    (&["d"], "new", &["new", "new/d", "new/d/g", "new/d/sub", "new/d/sub/h"]),
    (&["d"], "new/", &["new", "new/d", "new/d/g", "new/d/sub", "new/d/sub/h"]),
    (&["d"], "there", &["there/d", "there/d/g", "there/d/sub", "there/d/sub/h"]),
    (&["d"], "there/", &["there/d", "there/d/g", "there/d/sub", "there/d/sub/h"]),
    (&["d"], "", &["d", "d/g", "d/sub", "d/sub/h"]),
    (&["d/"], "new", &["new", "new/g", "new/sub", "new/sub/h"]),
    (&["d/"], "new/", &["new", "new/g", "new/sub", "new/sub/h"]),
    (&["d/"], "there", &["there/g", "there/sub", "there/sub/h"]),
    (&["d/."], "there", &["there/g", "there/sub", "there/sub/h"]),
    (&["d//"], "new", &["new", "new/g", "new/sub", "new/sub/h"]),
    (&["f"], "new", &["new"]),
    (&["f"], "new/", &["new", "new/f"]),
    (&["f"], "there", &["there/f"]),
    (&["f"], "there/", &["there/f"]),
    (&["f"], "", &["f"]),
    (&["d/sub/h"], "new", &["new"]),
    (&["d/sub"], "", &["sub", "sub/h"]),
    (&["f", "d"], "new", &["new", "new/d", "new/d/g", "new/d/sub", "new/d/sub/h", "new/f"]),
    (&["f", "d/"], "new", &["new", "new/f", "new/g", "new/sub", "new/sub/h"]),
    (&["f", "d/sub/h"], "there", &["there/f", "there/h"]),
    (&["f"], "a/b/c", &["a", "a/b", "a/b/c"]),
    (&["f"], "a/b/c/", &["a", "a/b", "a/b/c", "a/b/c/f"]),
    (&["d/sub"], "a/b", &["a", "a/b", "a/b/sub", "a/b/sub/h"]),
    (&["d"], "d", &["d", "d/d", "d/d/g", "d/d/sub", "d/d/sub/h"]),
    (&["f"], "f", &["f"]),
    (&["d"], "a/b/", &["a", "a/b", "a/b/d", "a/b/d/g", "a/b/d/sub", "a/b/d/sub/h"]),
];

fn lay_out(trip: &Trip) {
    files::make(trip.source().join("f"), 1, 10);
    files::make(trip.source().join("d/g"), 2, 20);
    files::make(trip.source().join("d/sub/h"), 3, 30);
    clear(trip);
}

/// Makes the destination as each rule finds it: one directory, with a file in it.
fn clear(trip: &Trip) {
    fs::remove_dir_all(trip.dest()).unwrap();
    files::make(trip.dest().join("there/old"), 4, 40);
    files::set_mtime(trip.dest().join("there/old"), 1_000_000_000, 0);
    files::set_mtime(trip.dest().join("there"), 1_000_000_000, 0);
    files::set_mtime(trip.dest(), 1_000_000_000, 0);
}

/// The pairs of source and destination paths, as the events tell them, for entries of this status.
fn mapping(outcome: &Outcome, status: &str) -> BTreeSet<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let files = outcome.events_of("file").into_iter().filter(|event| event["status"] == status && event["bytes"] != 0);
    files.map(|event| (text(&event["path"]), text(&event["target"]))).collect()
}
