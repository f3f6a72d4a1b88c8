//! Failures: each is named by its whole path, at the end where it failed, and told and counted
//! once.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

use crate::fixture::tree::Tree;
use crate::fixture::{Outcome, Trip, Way, files};

/// The lines for users about each fault: without hints, the first line and the last.
fn said(outcome: &Outcome) -> Vec<&str> {
    let lines = outcome.stderr.lines();
    lines.filter(|line| !line.contains("hint: ") && (line.contains("'") || line.contains(": "))).collect()
}

/// Objects of the faults that were told.
fn objects(outcome: &Outcome) -> Vec<String> {
    outcome.events_of("fault").iter().map(|fault| fault["object"].as_str().unwrap().to_owned()).collect()
}

fn failed(outcome: &Outcome) -> Vec<Value> {
    let mut paths: Vec<Value> =
        outcome.events_of("file").into_iter().filter(|file| file["status"] == "failed").collect();
    paths.sort_by_key(|file| file["path"].to_string());
    paths
}

fn ends_in(objects: &[String], ends: &[&str]) -> bool {
    objects.len() == ends.len() && objects.iter().zip(ends).all(|(object, end)| object.ends_with(end))
}

fn fifo(path: std::path::PathBuf) {
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

#[test]
fn a_file_that_fails_is_named_whole_whatever_its_name_is() {
    for trip in Trip::each_way() {
        // Letters and words that any message has.
        let names = ["a", "is", "name", "taken", "the"];
        for name in names {
            files::make(trip.source().join("d").join(name), 1, 10);
            files::make(trip.dest().join("d").join(name), 2, 20);
        }
        let outcome = trip.run(&["--if-exists", "fail"], &["d"], "").fail(23);
        let mut told = objects(&outcome);
        told.sort();
        let far = if trip.way() == Way::Push { "lh://" } else { "dst/" };
        assert!(told.iter().all(|object| object.starts_with(far)), "{trip}: {outcome}");
        assert!(
            ends_in(&told, &names.map(|name| format!("dst/d/{name}")).each_ref().map(|s| s.as_str())),
            "{trip}: {outcome}"
        );
        for name in names {
            let line = |line: &&&str| line.contains(&format!("dst/d/{name}: "));
            assert_eq!(said(&outcome).iter().filter(line).count(), 1, "{trip}: {name}: {outcome}");
        }
    }
}

#[test]
fn a_source_that_is_missing_beside_others_is_named_as_it_was_written() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("deep/there"), 1, 10);
        let outcome = trip.run(&[], &["deep/there", "deep/nope", "no/dir/x"], "new/").fail(23);
        let begins = if trip.way() == Way::Pull { "lh://" } else { "src/" };
        let mut told = objects(&outcome);
        told.sort();
        assert!(told.iter().all(|object| object.starts_with(begins)), "{trip}: {outcome}");
        assert!(ends_in(&told, &["src/deep/nope", "src/no/dir/x"]), "{trip}: {outcome}");
        assert_eq!(outcome.counts(), (1, 0, 2), "{trip}: {outcome}");
    }
}

#[test]
fn a_file_whose_content_is_asked_for_is_no_directory_and_nothing_is_in_its_way() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 10);
        let outcome = trip.run(&[], &["f/"], "new/").fail(23);
        assert!(outcome.stderr.contains("src/f' is not a directory"), "{trip}: {outcome}");
        assert!(!outcome.stderr.contains("out of the way"), "{trip}: {outcome}");
        // For a file that a daemon cannot send, it gives the reason alone.
        assert!(trip.way() == Way::Pull || outcome.stderr.contains("leave the slash"), "{trip}: {outcome}");
    }
}

#[test]
fn of_a_directory_that_cannot_be_made_one_line_is_said_and_each_object_counts_once() {
    for trip in Trip::each_way() {
        for file in ["d/sub/x", "d/sub/y", "d/sub/deeper/z", "d/good"] {
            files::make(trip.source().join(file), 1, 10);
        }
        files::make(trip.dest().join("d/sub"), 2, 20);
        let outcome = trip.run(&[], &["d"], "").fail(23);
        assert!(ends_in(&objects(&outcome), &["dst/d/sub"]), "{trip}: {outcome}");
        let paths: Vec<Value> = failed(&outcome).iter().map(|file| file["path"].clone()).collect();
        assert_eq!(paths, ["d/sub", "d/sub/deeper", "d/sub/deeper/z", "d/sub/x", "d/sub/y"], "{trip}: {outcome}");
        assert_eq!(outcome.counts(), (1, 0, 5), "{trip}: {outcome}");
        let lines: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("dst/d/sub")).collect();
        assert_eq!(lines.len(), 2, "{trip}: {outcome}");
        assert!(lines[1].contains("and 4 files more failed for this reason"), "{trip}: {outcome}");
        let dry = trip.run(&["-n"], &["d"], "").fail(23);
        assert_eq!((objects(&dry).len(), dry.counts().2), (1, 5), "{trip}: {dry}");
    }
}

#[test]
fn no_file_takes_the_place_of_a_fifo() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 10);
        files::make(trip.source().join("d/f"), 1, 10);
        fs::create_dir_all(trip.dest().join("d")).unwrap();
        fifo(trip.dest().join("f"));
        fifo(trip.dest().join("d/f"));
        for (source, dest, options) in
            [("f", "f", &[][..]), ("d", "", &["--if-exists", "replace"]), ("d/", "d", &["-n"])]
        {
            let outcome = trip.run(options, &[source], dest).fail(23);
            assert!(outcome.stderr.contains("a fifo, socket or device stands where it goes"), "{trip}: {outcome}");
        }
        for stands in ["f", "d/f"] {
            assert!(fs::symlink_metadata(trip.dest().join(stands)).unwrap().file_type().is_fifo(), "{trip}");
        }
    }
}

#[test]
fn a_mode_that_changed_alone_is_carried_over_without_the_data() {
    for trip in Trip::each_way() {
        for (name, len) in [("d/small", 10), ("d/large", 3 << 20)] {
            files::make(trip.source().join(name), 1, len);
            files::set_mode(trip.source().join(name), 0o644);
        }
        trip.send(&[], &["d"], "");
        for name in ["d/small", "d/large"] {
            files::set_mode(trip.source().join(name), 0o750);
        }
        let mode = |name: &str| fs::metadata(trip.dest().join(name)).unwrap().permissions().mode() & 0o7777;
        for options in [&["-n"][..], &["--preserve", "-mode"], &["--if-exists", "fail"]] {
            trip.run(options, &["d"], "").finish();
            assert_eq!((mode("d/small"), mode("d/large")), (0o644, 0o644), "{trip}: {options:?}");
        }
        let outcome = trip.send(&[], &["d"], "");
        assert_eq!(outcome.counts(), (0, 2, 0), "{trip}: {outcome}");
        assert_eq!((mode("d/small"), mode("d/large")), (0o750, 0o750), "{trip}: {outcome}");
        assert_eq!(Tree::of(trip.source()).beneath().paths(), Tree::of(trip.dest()).beneath().paths(), "{trip}");
    }
}

#[test]
fn a_pattern_may_begin_with_a_dash() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/-dash"), 1, 10);
        files::make(trip.source().join("d/other"), 1, 10);
        let outcome = trip.send(&["--exclude", "-dash"], &["d/"], "new");
        assert_eq!(Tree::of(trip.dest().join("new")).paths(), ["", "other"], "{trip}: {outcome}");
    }
}
