//! Manifests: they have every standing file, go to the named place, and replace no other file.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use rustix::process::Signal;

use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Site, Trip, files};

#[test]
fn a_manifest_of_a_later_run_is_that_of_the_first_with_everything_that_was_skipped() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/small"), 1, 100);
        files::make(trip.source().join("d/empty"), 1, 0);
        // Longer than the buffers through which it is read.
        files::make(trip.source().join("d/large"), 2, (9 << 20) + 1);
        let manifest = |name: &str| {
            let outcome = trip.send(&["--manifest", name], &["d/"], "new/");
            let text = fs::read_to_string(trip.host().path(name)).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            (outcome, lines)
        };
        let (outcome, first) = manifest("first");
        assert_eq!((first.len(), outcome.counts()), (3, (3, 0, 0)), "{trip}: {outcome}");
        assert_eq!(outcome.summary()["bytes_digested"], 0, "{trip}: {outcome}");
        let (outcome, again) = manifest("again");
        assert_eq!((&again, outcome.counts()), (&first, (0, 3, 0)), "{trip}: {outcome}");
        assert_eq!(outcome.summary()["bytes_digested"], 100 + (9 << 20) + 1, "{trip}: {outcome}");
        assert!(outcome.stderr.contains("of skipped files read for the manifest"), "{trip}: {outcome}");
        assert_eq!(outcome.file("small")["b3"], files::b3sum(trip.source().join("d/small")), "{trip}: {outcome}");
        // The standing file is read, not the source: same length and time, other bytes.
        let stands = trip.dest().join("new/small");
        let time = fs::metadata(&stands).unwrap().modified().unwrap();
        files::make(&stands, 9, 100);
        fs::File::options().write(true).open(&stands).unwrap().set_modified(time).unwrap();
        let (outcome, changed) = manifest("changed");
        assert_eq!(outcome.counts(), (0, 3, 0), "{trip}: {outcome}");
        assert!(changed.contains(&format!("{}  small", files::b3sum(&stands))), "{trip}: {changed:?}");
        files::b3sum_check(&trip.host().path("changed"), &trip.dest().join("new")).unwrap();
    }
}

#[test]
fn without_the_right_to_read_a_push_with_a_manifest_is_denied_before_anything_moves() {
    let site = Site::granting(DaemonConfig::default(), "create,modify", ALL_RIGHTS);
    files::make(site.client.path("f"), 1, 100);
    let outcome = site.client.run(["push", "--json", "--manifest", "list", "f", &site.url("")]).fail(4);
    let fault = &outcome.events_of("fault")[0];
    assert!(fault["message"].as_str().unwrap().contains("no right 'read'"), "{outcome}");
    assert!(fault["hint"].as_str().unwrap().contains("--manifest"), "{outcome}");
    assert!(!site.root().join("f").exists() && !site.client.path("list").exists(), "{outcome}");
    site.client.run(["push", "f", &site.url("")]).succeed();
}

#[test]
fn a_manifest_goes_to_standard_output_by_any_of_its_names_but_not_beside_events() {
    let host = Host::new();
    files::make(host.path("f"), 1, 100);
    let line = format!("{}  f\n", files::b3sum(host.path("f")));
    for name in ["-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"] {
        let outcome = host.run(["copy", "--manifest", name, "f", "dst/"]).succeed();
        assert_eq!(outcome.stdout_text(), line, "{name}: {outcome}");
        let outcome = host.run(["copy", "--json", "--manifest", name, "f", "dst/"]).fail(2);
        assert_eq!(outcome.events_of("fault").len(), 1, "{name}: {outcome}");
    }
    assert!(!host.path("-").exists());
    let outcome = host.run(["copy", "--manifest", "./-", "f", "dst/"]).succeed();
    assert!(outcome.stdout.is_empty() && host.path("-").is_file(), "{outcome}");
}

#[test]
fn a_manifest_never_replaces_what_is_no_regular_file() {
    let host = Host::new();
    files::make(host.path("f"), 1, 100);
    let line = format!("{}  f\n", files::b3sum(host.path("f")));
    files::link("list", host.path("link"));
    for _ in 0..2 {
        host.run(["copy", "--manifest", "link", "f", "dst/"]).succeed();
        assert!(fs::symlink_metadata(host.path("link")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(host.path("list")).unwrap(), line);
    }
    let (fifo, kind) = (host.path("fifo"), rustix::fs::FileType::Fifo);
    files::make_special(&fifo, kind);
    let reading = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read_to_string(fifo).unwrap()
    });
    host.run(["copy", "--manifest", "fifo", "f", "dst/"]).succeed();
    assert_eq!(reading.join().unwrap(), line);
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    host.run(["copy", "--manifest", "/dev/null", "f", "dst/"]).succeed();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    host.run(["copy", "--manifest", "/dev/full", "f", "dst/"]).fail(7);
    for (name, code) in [("dst", 2), ("f", 2)] {
        let outcome = host.run(["copy", "--manifest", name, "f", "new/"]).fail(code);
        assert!(!host.path("new").exists(), "{name}: {outcome}");
    }
}

#[test]
fn a_manifest_may_lie_in_the_destination_that_the_run_makes() {
    for trip in Trip::each_way().filter(|trip| trip.dest().starts_with(trip.host().dir())) {
        files::make(trip.source().join("d/f"), 1, 100);
        trip.send(&["--manifest", "dst/new/MANIFEST"], &["d/"], "new/");
        let list = trip.dest().join("new/MANIFEST");
        let text = fs::read_to_string(&list).unwrap();
        assert_eq!(text, format!("{}  f\n", files::b3sum(trip.source().join("d/f"))), "{trip}");
    }
}

#[test]
fn a_run_that_ends_early_leaves_the_manifest_that_stood_there() {
    let trip = Trip::each_way().nth(1).unwrap();
    // A hole is hashed and not sent: long enough to be interrupted.
    files::make_sparse(trip.source().join("f"), 1 << 40, &[]);
    files::write(trip.host().path("list"), "of an earlier run");
    let running = trip.run(&["--manifest", "list"], &["f"], "g").start();
    running.wait_event(|event| (event["type"] == "progress").then_some(()));
    running.signal(Signal::INT);
    let outcome = running.fail(130);
    assert_eq!(fs::read_to_string(trip.host().path("list")).unwrap(), "of an earlier run", "{outcome}");
    assert!(outcome.stderr.contains("the manifest list is not written"), "{outcome}");
}
