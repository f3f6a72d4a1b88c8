//! `--if-exists verify`: standing files are compared by their digests, different chunks are sent
//! into a new file, equal files stay.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{DaemonConfig, Site, Trip, files};
use crate::hostile::{Direction, End, some_at_once};
use crate::resume::scene::{Death, LEN, Scene, last, resumed};

const MIB: u64 = 1 << 20;
const VERIFY: [&str; 2] = ["--if-exists", "verify"];

/// Changes a byte in a file that stands, and keeps its time.
fn change(path: impl AsRef<Path>, offset: u64) {
    let path = path.as_ref();
    let stat = fs::metadata(path).unwrap();
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    drop(file);
    files::set_mtime(path, stat.mtime(), stat.mtime_nsec());
}

/// Files of chunks, of one chunk and small ones, beneath `d`.
fn make_tree(trip: &Trip) -> u64 {
    let sizes = [0, 1, 5000, 256 << 10, 300_000, 1 << 20, (3 << 20) + 7];
    for (n, len) in sizes.into_iter().enumerate() {
        files::make(trip.source().join(format!("d/f{n}")), n as u64, len);
    }
    files::link("f1", trip.source().join("d/link"));
    files::make_sparse(trip.source().join("d/holes"), 5 * MIB, &[(2 * MIB, 5000)]);
    sizes.iter().map(|len| *len as u64).sum::<u64>() + 5 * MIB
}

#[test]
fn what_is_the_same_is_skipped_with_its_digest_and_gets_the_mode_and_time_of_the_source() {
    for trip in Trip::all() {
        make_tree(&trip);
        trip.send(&[], &["d"], "");
        let stands = trip.dest().join("d");
        let inodes = |of: &Path| fs::read_dir(of).unwrap().map(|e| e.unwrap().metadata().unwrap().ino()).max();
        let before = inodes(&stands);
        files::set_mtime(stands.join("f6"), 1_500_000_000, 5);
        files::set_mtime(stands.join("f2"), 1_500_000_000, 5);
        files::set_mode(stands.join("f2"), 0o600);
        let outcome = trip.send(&VERIFY, &["d"], "");
        assert_eq!(outcome.counts(), (0, 9, 0), "{trip}: {outcome}");
        assert_eq!(last(&outcome, "bytes_received"), 0, "{trip}: {outcome}");
        assert_eq!(resumed(&outcome), 0, "{trip}: {outcome}");
        for name in ["f0", "f2", "f6", "holes"] {
            let digest = files::b3sum(trip.source().join("d").join(name));
            assert_eq!(outcome.file(&format!("d/{name}"))["b3"], digest, "{trip}: {name}: {outcome}");
        }
        tree::assert_same(&Tree::of(trip.source().join("d")), &Tree::of(&stands), &trip);
        assert_eq!(tree::leftovers(trip.dest()), [""; 0], "{trip}");
        assert_eq!(before, inodes(&stands), "{trip}: something was made anew");
    }
}

#[test]
fn of_a_long_file_the_chunks_that_differ_are_sent_and_the_old_file_is_not_touched() {
    for trip in Trip::all() {
        let len = (40 << 20) + 5;
        files::make(trip.source().join("f"), 1, len);
        trip.send(&[], &["f"], "");
        let stands = trip.dest().join("f");
        change(&stands, 17 * MIB + 3);
        fs::hard_link(&stands, trip.dest().join("old")).unwrap();
        let old = fs::read(&stands).unwrap();
        let outcome = trip.send(&VERIFY, &["f"], "");
        assert_eq!(outcome.counts(), (1, 0, 0), "{trip}: {outcome}");
        assert_eq!(last(&outcome, "bytes_received"), MIB, "{trip}: {outcome}");
        assert_eq!(resumed(&outcome), len as u64 - MIB, "{trip}: {outcome}");
        assert_eq!(outcome.file("f")["b3"], files::b3sum(trip.source().join("f")), "{trip}: {outcome}");
        assert!(fs::read(&stands).unwrap() == fs::read(trip.source().join("f")).unwrap(), "{trip}");
        assert!(fs::read(trip.dest().join("old")).unwrap() == old, "{trip}: patched in place");
        assert_eq!(tree::leftovers(trip.dest()), [""; 0], "{trip}");
    }
}

#[test]
fn what_differs_in_a_tree_is_replaced_also_where_everything_is_read_back() {
    for options in [&VERIFY[..], &["--if-exists", "verify", "--verify", "disk"]] {
        for trip in Trip::each_way() {
            let bytes = make_tree(&trip);
            trip.send(&[], &["d"], "");
            let stands = trip.dest().join("d");
            for (name, offset) in [("f1", 0), ("f3", 100), ("f4", 5), ("f6", 3 * MIB), ("holes", 4 * MIB)] {
                change(stands.join(name), offset);
            }
            files::make(stands.join("f5"), 9, (1 << 20) + 1);
            fs::remove_file(stands.join("link")).unwrap();
            files::link("f2", stands.join("link"));
            let outcome = trip.send(options, &["d"], "");
            assert_eq!(outcome.counts(), (7, 2, 0), "{trip}: {outcome}");
            // The whole of the small ones, of the one-chunk file and of what has another length;
            // two chunks, one of them a hole that is not sent.
            let sent = 1 + (256 << 10) + 300_000 + MIB + 7;
            assert_eq!(last(&outcome, "bytes_received"), sent, "{trip}: of {bytes}: {outcome}");
            tree::assert_same(&Tree::of(trip.source().join("d")), &Tree::of(&stands), &trip);
            assert_eq!(tree::leftovers(trip.dest()), [""; 0], "{trip}");
        }
    }
}

#[test]
fn many_small_files_are_compared_in_bundles() {
    for trip in Trip::each_way() {
        for n in 0..3000 {
            files::make(trip.source().join(format!("d/{}/f{n}", n % 7)), n, 100 + n as usize % 50);
        }
        trip.send(&[], &["d"], "");
        for n in [5, 70, 2999] {
            change(trip.dest().join(format!("d/{}/f{n}", n % 7)), 7);
        }
        let outcome = trip.send(&VERIFY, &["d"], "");
        assert_eq!(outcome.counts(), (3, 2997, 0), "{trip}: {outcome}");
        assert_eq!(last(&outcome, "bytes_received"), 105 + 120 + 149, "{trip}: {outcome}");
        tree::assert_same(&Tree::of(trip.source().join("d")), &Tree::of(trip.dest().join("d")), &trip);
    }
}

#[test]
fn a_manifest_takes_the_digests_of_what_was_the_same_from_the_comparison() {
    let site = Site::new();
    for n in 0..5 {
        files::make(site.client.path(format!("d/f{n}")), n, 300_000 * n as usize);
    }
    site.client.run(["push", "d", &site.url("")]).succeed();
    // A daemon's files cannot be read from here.
    let outcome = site.client.run(["push", "--json", "--manifest", "list"]).args(VERIFY).args(["d", &site.url("")]);
    assert_eq!(outcome.succeed().counts(), (0, 5, 0));
    let list = site.client.path("list");
    assert_eq!(fs::read_to_string(&list).unwrap().lines().count(), 5);
    files::b3sum_check(&list, &site.root()).unwrap();
}

#[test]
fn a_dry_run_reads_nothing_and_says_what_would_be_looked_at() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 5000);
        files::make(trip.dest().join("f"), 2, 5000);
        let outcome = trip.send(&["--if-exists", "verify", "--dry-run"], &["f"], "");
        assert_eq!(fs::read(trip.dest().join("f")).unwrap(), files::bytes(2, 5000), "{trip}: {outcome}");
    }
}

#[test]
fn a_comparison_that_is_cut_off_goes_on_and_the_old_file_stands_until_the_end() {
    let deaths = [Death::ClientKilled, Death::DaemonKilled, Death::ClientInterrupted];
    let cases: Vec<_> =
        Direction::BOTH.into_iter().flat_map(|direction| deaths.map(|death| (direction, death))).collect();
    some_at_once(cases, |(direction, death)| {
        let context = format!("{direction:?}, {death:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let stands = scene.wired.end(direction, End::To);
        files::make(&stands, 1, LEN);
        // What differs is more than the lanes let through; every third chunk is the same.
        let differ: Vec<u64> = (0..LEN as u64 / MIB).filter(|chunk| chunk % 3 > 0).collect();
        differ.iter().for_each(|chunk| change(&stands, chunk * MIB + 9));
        let old = fs::read(&stands).unwrap();
        let run = |scene: &Scene| scene.run("f", "f").args(VERIFY);
        let durable = scene.die(run(&scene), death);
        assert!(fs::read(&stands).unwrap() == old, "{context}: a mix stands there");
        let outcome = run(&scene).finish();
        scene.assert_continued(&outcome, LEN as u64, durable, &context);
        assert!(scene.moved(&outcome) < differ.len() as u64 * MIB, "{context}: nothing went on: {outcome}");
        files::set_mtime(scene.source(), 1_000_000_000, 0);
        let again = run(&scene).finish();
        assert_eq!(again.counts(), (0, 1, 0), "{context}: {again}");
        scene.assert_same("f", "f", &context);
    });
}

#[test]
fn a_key_that_may_not_modify_hears_what_differs_and_one_that_may_not_read_hears_nothing() {
    let site = Site::granting(DaemonConfig::default(), "read,create", "read,create,modify");
    for name in ["same", "other", "large-same", "large-other"] {
        let len = if name.starts_with("large") { (3 << 20) + 1 } else { 4000 };
        files::make(site.client.path(format!("d/{name}")), 1, len);
    }
    site.client.run(["push", "d", &site.url("")]).succeed();
    let root = site.root().join("d");
    change(root.join("other"), 3);
    change(root.join("large-other"), 2 * MIB);
    files::set_mtime(root.join("same"), 1_000_000_000, 0);
    let before = Tree::of(&root);
    let outcome = site.client.run(["push", "--json"]).args(VERIFY).args(["d", &site.url("")]).fail(23);
    assert_eq!(outcome.counts(), (0, 2, 2), "{outcome}");
    let codes: Vec<_> = outcome.events_of("fault").into_iter().map(|fault| fault["code"].clone()).collect();
    assert_eq!(codes, ["denied", "denied"], "{outcome}");
    tree::assert_same(&before, &Tree::of(&root), "what may not be modified is as it was");
    assert_eq!(tree::leftovers(site.root()), [""; 0]);

    let blind = Site::granting(DaemonConfig::default(), "create,modify", "read,create,modify");
    files::make(blind.client.path("f"), 1, 4000);
    files::make(blind.root().join("f"), 1, 4000);
    let outcome = blind.client.run(["push", "--json"]).args(VERIFY).args(["f", &blind.url("")]).fail(4);
    assert!(outcome.stderr.contains("read"), "{outcome}");
}
