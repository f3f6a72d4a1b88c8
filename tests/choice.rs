//! The choice of sent files and metadata: lists of names, filters, `--preserve`.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::fixture::tree::{Kind, Tree};
use crate::fixture::{Trip, files};

#[test]
fn only_the_names_of_a_list_are_sent_with_the_directories_above_them() {
    for trip in Trip::each_way() {
        lay_out(&trip);
        files::write(trip.host().path("list"), "a.txt\n./sub/deep//\n\n/sub/b.dat\n");
        let outcome = trip.send(&["--files-from", "list"], &["d/"], "new");
        let expected =
            ["a.txt", "sub", "sub/b.dat", "sub/deep", "sub/deep/c.txt", "sub/deep/tmp", "sub/deep/tmp/e.txt"];
        assert_eq!(Tree::of(trip.dest().join("new")).paths()[1..], expected, "{trip}: {outcome}");
    }
}

#[test]
fn a_list_may_come_from_standard_input_with_names_that_end_in_nul() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/new\nline"), 1, 10);
        files::make(trip.source().join("d/other"), 1, 10);
        let run = trip.run(&["--files-from", "-", "--from0"], &["d/"], "new").input("new\nline\0");
        let outcome = run.succeed();
        assert_eq!(Tree::of(trip.dest().join("new")).paths(), ["", "new\nline"], "{trip}: {outcome}");
    }
}

#[test]
fn a_listed_name_that_is_missing_fails_alone() {
    for trip in Trip::each_way() {
        lay_out(&trip);
        let outcome = trip.run(&["--files-from", "-"], &["d/"], "new").input("a.txt\nmissing\n").fail(23);
        assert_eq!(Tree::of(trip.dest().join("new")).paths(), ["", "a.txt"], "{trip}: {outcome}");
        assert!(outcome.stderr.contains("missing"), "{trip}: {outcome}");
    }
}

#[test]
fn a_listed_name_that_leaves_the_source_is_a_usage_error() {
    for trip in Trip::each_way() {
        lay_out(&trip);
        for (list, flaw) in [("a.txt\n../secret\n", "line 2"), ("sub/../../x\n", "line 1"), (".longhaul/x\n", "line 1")]
        {
            let outcome = trip.run(&["--files-from", "-"], &["d/"], "new").input(list).fail(2);
            assert!(
                outcome.stderr.contains(flaw) || outcome.stderr.contains(&flaw[5..]),
                "{trip}: {list:?}: {outcome}"
            );
            assert!(!trip.dest().join("new").exists(), "{trip}");
        }
        trip.run(&["--files-from", "-"], &["d/", "d/sub"], "new").input("x\n").fail(2);
    }
}

#[test]
fn the_first_filter_that_matches_decides() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--exclude", "*.txt"], &["other.dat", "sub", "sub/b.dat", "sub/deep", "sub/deep/tmp"]),
        (
            &["--include", "c.txt", "--exclude", "*.txt"],
            &["other.dat", "sub", "sub/b.dat", "sub/deep", "sub/deep/c.txt", "sub/deep/tmp"],
        ),
        (&["--exclude", "*.txt", "--include", "c.txt"], &["other.dat", "sub", "sub/b.dat", "sub/deep", "sub/deep/tmp"]),
        (&["--exclude", "tmp/"], &["a.txt", "other.dat", "sub", "sub/b.dat", "sub/deep", "sub/deep/c.txt"]),
        (&["--exclude", "/sub/deep"], &["a.txt", "other.dat", "sub", "sub/b.dat"]),
        (&["--exclude", "/deep"], &ALL),
        (&["--exclude", "deep/tmp"], &["a.txt", "other.dat", "sub", "sub/b.dat", "sub/deep", "sub/deep/c.txt"]),
        (&["--exclude", "sub/**"], &["a.txt", "other.dat", "sub"]),
        (
            &["--include", "*/", "--include", "*.txt", "--exclude", "*"],
            &["a.txt", "sub", "sub/deep", "sub/deep/c.txt", "sub/deep/tmp", "sub/deep/tmp/e.txt"],
        ),
        (&["--include", "*.txt", "--exclude", "*"], &["a.txt"]),
        (&[], &ALL),
    ];
    for trip in Trip::each_way() {
        lay_out(&trip);
        for (filters, sent) in cases {
            let outcome = trip.send(filters, &["d/"], "new");
            assert_eq!(Tree::of(trip.dest().join("new")).paths()[1..], **sent, "{trip}: {filters:?}: {outcome}");
            fs::remove_dir_all(trip.dest().join("new")).unwrap();
        }
    }
}

#[test]
fn a_filter_with_a_leading_slash_starts_at_the_top_of_the_transfer() {
    for trip in Trip::each_way() {
        lay_out(&trip);
        trip.send(&["--exclude", "/d/sub"], &["d"], "");
        assert_eq!(Tree::of(trip.dest()).paths(), ["", "d", "d/a.txt", "d/other.dat"], "{trip}");
    }
}

#[test]
fn metadata_is_carried_as_asked() {
    /// Options, then whether mode, times and links arrive.
    const CASES: [(&[&str], bool, bool, bool); 7] = [
        (&[], true, true, true),
        (&["--preserve", "none"], false, false, false),
        (&["--preserve", "times"], false, true, false),
        (&["--preserve", "mode,links"], true, false, true),
        (&["--preserve", "-times"], true, false, true),
        (&["--preserve", "all,-links"], true, true, false),
        (&["--preserve", "none,+times,+links"], false, true, true),
    ];
    const TIME: (i64, i64) = (1_234_567_890, 987_654_321);
    for trip in Trip::each_way() {
        for (name, size) in [("small", 10), ("large", 2 << 20)] {
            files::make(trip.source().join("d").join(name), 1, size);
            files::set_mode(trip.source().join("d").join(name), 0o751);
            files::set_mtime(trip.source().join("d").join(name), TIME.0, TIME.1);
        }
        files::link("small", trip.source().join("d/link"));
        files::set_mtime(trip.source().join("d/link"), TIME.0, TIME.1);
        files::set_mode(trip.source().join("d"), 0o710);
        files::set_mtime(trip.source().join("d"), TIME.0, TIME.1);
        for (options, mode, times, links) in CASES {
            let context = format!("{trip}: {options:?}");
            let outcome = trip.send(options, &["d"], "");
            let stands = Tree::of(trip.dest().join("d"));
            for (name, bits) in [("small", 0o751), ("large", 0o751), ("", 0o710)] {
                assert_eq!(stands.node(name).mode == bits, mode, "{context}: mode of {name:?}: {stands:?}: {outcome}");
                assert_eq!(
                    stands.node(name).mtime == TIME,
                    times,
                    "{context}: time of {name:?}: {stands:?}: {outcome}"
                );
            }
            let link = stands.0.get(&b"link"[..]);
            assert_eq!(
                link.is_some_and(|node| node.kind == Kind::Link(b"small".to_vec())),
                links,
                "{context}: {outcome}"
            );
            assert_eq!(link.is_some_and(|node| node.mtime == TIME), links && times, "{context}: {outcome}");
            assert!(
                links || outcome.stderr.contains("link"),
                "{context}: a link that is left out is not named: {outcome}"
            );
            fs::remove_dir_all(trip.dest().join("d")).unwrap();
        }
    }
}

#[test]
fn set_user_id_and_set_group_id_never_arrive() {
    for trip in Trip::each_way() {
        for (name, size) in [("small", 10), ("large", 2 << 20)] {
            files::make(trip.source().join(name), 1, size);
            files::set_mode(trip.source().join(name), 0o6755);
            trip.send(&[], &[name], "");
            let mode = fs::metadata(trip.dest().join(name)).unwrap().mode() & 0o7777;
            assert_eq!(mode, 0o755, "{trip}: {name}: {mode:o}");
        }
    }
}

/// Everything in the tree that the cases choose from.
const ALL: [&str; 8] =
    ["a.txt", "other.dat", "sub", "sub/b.dat", "sub/deep", "sub/deep/c.txt", "sub/deep/tmp", "sub/deep/tmp/e.txt"];

fn lay_out(trip: &Trip) {
    for (n, path) in ["a.txt", "other.dat", "sub/b.dat", "sub/deep/c.txt", "sub/deep/tmp/e.txt"].iter().enumerate() {
        files::make(trip.source().join("d").join(path), n as u64, 10 + n);
    }
}
