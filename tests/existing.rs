//! Names that stand at the destination already: they are skipped, replaced, refused, or in the way.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::fixture::tree::{self, Kind, Tree};
use crate::fixture::{Trip, files};

#[test]
fn same_size_and_time_is_skipped_without_comparing_and_everything_else_replaced() {
    for trip in Trip::all() {
        for (n, name) in ["same", "other-size", "other-time", "large-same", "large-other"].iter().enumerate() {
            let size = if name.starts_with("large") { (2 << 20) + 5 } else { 1000 };
            files::make(trip.source().join("d").join(name), n as u64, size);
            files::set_mtime(trip.source().join("d").join(name), 1_500_000_000, 123_456_789);
        }
        trip.send(&[], &["d"], "");
        let stands = trip.dest().join("d");
        let stand_otherwise = |name: &str, size: usize, secs: i64, nanos: i64| {
            files::make(stands.join(name), 99, size);
            files::set_mtime(stands.join(name), secs, nanos);
        };
        // Other content under the same size and time is not noticed, as documented.
        stand_otherwise("same", 1000, 1_500_000_000, 123_456_789);
        stand_otherwise("other-size", 1001, 1_500_000_000, 123_456_789);
        stand_otherwise("other-time", 1000, 1_500_000_000, 123_456_788);
        stand_otherwise("large-other", (2 << 20) + 5, 1_600_000_000, 0);
        let outcome = trip.send(&[], &["d"], "");
        assert_eq!(outcome.counts(), (3, 2, 0), "{trip}: {outcome}");
        for (name, status) in [("same", "skipped"), ("other-size", "committed"), ("other-time", "committed")] {
            let event = outcome.file(&format!("d/{name}"));
            assert_eq!(event["status"], status, "{trip}: {name}: {outcome}");
            assert_eq!(
                event["b3"].is_null(),
                status == "skipped",
                "{trip}: what was not read has no digest: {outcome}"
            );
        }
        let (sent, arrived) = (Tree::of(trip.source().join("d")), Tree::of(&stands));
        for name in ["other-size", "other-time", "large-same", "large-other"] {
            assert_eq!(sent.node(name), arrived.node(name), "{trip}: {name}");
        }
        assert_eq!(arrived.node("same").kind, Kind::File(files::bytes(99, 1000)), "{trip}");
        assert_eq!(tree::leftovers(trip.dest()), [""; 0], "{trip}");
    }
}

#[test]
fn the_same_command_again_has_nothing_to_do_and_exits_with_0() {
    for trip in Trip::each_way() {
        for n in 0..20 {
            files::make(trip.source().join(format!("d/sub/f{n}")), n, 500 * n as usize);
        }
        files::link("nowhere", trip.source().join("d/link"));
        assert_eq!(trip.send(&[], &["d"], "").counts(), (21, 0, 0), "{trip}");
        let before = Tree::of(trip.dest());
        let again = trip.send(&[], &["d"], "");
        assert_eq!(again.counts(), (0, 21, 0), "{trip}: {again}");
        assert_eq!(again.summary()["bytes_committed"], 0, "{trip}: {again}");
        tree::assert_same(&before, &Tree::of(trip.dest()), &trip);
    }
}

#[test]
fn replace_sends_again_what_looks_the_same() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 3000);
        trip.send(&[], &["f"], "");
        let time = fs::metadata(trip.dest().join("f")).unwrap();
        files::make(trip.dest().join("f"), 2, 3000);
        files::set_mtime(trip.dest().join("f"), time.mtime(), time.mtime_nsec());
        let outcome = trip.send(&["--if-exists", "replace"], &["f"], "");
        assert_eq!(outcome.counts(), (1, 0, 0), "{trip}: {outcome}");
        assert_eq!(fs::read(trip.dest().join("f")).unwrap(), files::bytes(1, 3000), "{trip}");
    }
}

#[test]
fn a_replaced_file_is_a_new_one_and_its_reader_keeps_the_old() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, (1 << 20) + 1);
        files::make(trip.dest().join("f"), 2, 3000);
        files::set_mode(trip.dest().join("f"), 0o400);
        fs::hard_link(trip.dest().join("f"), trip.dest().join("other-name")).unwrap();
        trip.send(&[], &["f"], "");
        assert_eq!(fs::read(trip.dest().join("f")).unwrap(), files::bytes(1, (1 << 20) + 1), "{trip}");
        assert_eq!(
            fs::read(trip.dest().join("other-name")).unwrap(),
            files::bytes(2, 3000),
            "{trip}: patched in place"
        );
    }
}

#[test]
fn fail_leaves_what_stands_and_sends_the_rest() {
    for trip in Trip::each_way() {
        for name in ["taken", "taken-large", "free"] {
            files::make(trip.source().join("d").join(name), 1, if name == "taken-large" { 2 << 20 } else { 100 });
        }
        files::make(trip.dest().join("d/taken"), 2, 50);
        files::make(trip.dest().join("d/taken-large"), 2, 50);
        let outcome = trip.run(&["--if-exists", "fail"], &["d"], "").fail(23);
        assert_eq!(outcome.counts(), (1, 0, 2), "{trip}: {outcome}");
        assert_eq!(outcome.file("d/taken")["status"], "failed", "{trip}: {outcome}");
        let codes: Vec<_> = outcome.events_of("fault").into_iter().map(|fault| fault["code"].clone()).collect();
        assert_eq!(codes, ["exists", "exists"], "{trip}: {outcome}");
        for name in ["taken", "taken-large"] {
            assert_eq!(fs::read(trip.dest().join("d").join(name)).unwrap(), files::bytes(2, 50), "{trip}");
        }
        assert_eq!(fs::read(trip.dest().join("d/free")).unwrap(), files::bytes(1, 100), "{trip}");
    }
}

#[test]
fn a_link_at_the_destination_is_replaced_and_never_written_through() {
    for trip in Trip::each_way() {
        files::make(trip.dest().join("precious"), 9, 70);
        for (name, size) in [("small", 100), ("large", 2 << 20)] {
            files::make(trip.source().join("d").join(name), 1, size);
            files::link("../precious", trip.dest().join("d").join(name));
        }
        trip.send(&[], &["d"], "");
        assert_eq!(fs::read(trip.dest().join("precious")).unwrap(), files::bytes(9, 70), "{trip}");
        tree::assert_same(&Tree::of(trip.source().join("d")), &Tree::of(trip.dest().join("d")), &trip);
    }
}

#[test]
fn a_directory_where_a_file_goes_fails_that_file_and_keeps_the_directory() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/x"), 1, 100);
        files::make(trip.source().join("d/y"), 1, 100);
        files::make(trip.dest().join("d/x/inside"), 2, 50);
        let outcome = trip.run(&["--if-exists", "replace"], &["d"], "").fail(23);
        assert_eq!(outcome.counts(), (1, 0, 1), "{trip}: {outcome}");
        assert!(trip.dest().join("d/x/inside").exists(), "{trip}");
    }
}

#[test]
fn a_file_or_a_link_where_a_directory_goes_fails_what_lies_in_it_and_stays() {
    for trip in Trip::each_way() {
        for name in ["file", "link"] {
            files::make(trip.source().join("d").join(name).join("f"), 1, 100);
        }
        files::make(trip.source().join("d/good"), 1, 100);
        files::make(trip.dest().join("d/file"), 2, 50);
        fs::create_dir(trip.dest().join("elsewhere")).unwrap();
        files::link("../elsewhere", trip.dest().join("d/link"));
        let outcome = trip.run(&[], &["d"], "").fail(23);
        assert_eq!(outcome.file("d/good")["status"], "committed", "{trip}: {outcome}");
        assert_eq!(fs::read(trip.dest().join("d/file")).unwrap(), files::bytes(2, 50), "{trip}");
        assert!(trip.dest().join("d/link").is_symlink(), "{trip}");
        assert_eq!(fs::read_dir(trip.dest().join("elsewhere")).unwrap().count(), 0, "{trip}: written through a link");
    }
}

#[test]
fn what_else_stands_in_the_destination_is_left_alone() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/f"), 1, 100);
        files::make(trip.dest().join("d/old"), 2, 50);
        files::make(trip.dest().join("d/sub/older"), 2, 50);
        let old = Tree::of(trip.dest().join("d/sub"));
        trip.send(&[], &["d"], "");
        tree::assert_same(&old, &Tree::of(trip.dest().join("d/sub")), &trip);
        assert!(trip.dest().join("d/old").exists(), "{trip}");
    }
}
