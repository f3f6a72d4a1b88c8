//! Lists of any length: names in `--files-from`, sources on the command line; and the reading of a
//! list.

use std::fs;

use crate::fixture::tree::Tree;
use crate::fixture::{DaemonConfig, Host, Site, Trip, files};

#[test]
fn a_list_that_is_longer_than_a_message_is_sent_each_way() {
    /// Names of 200 bytes: 300 KB of them.
    const NAMES: usize = 1500;
    for trip in Trip::each_way() {
        let name = |n: usize| format!("{n:05}{}", "x".repeat(195));
        (0..NAMES).for_each(|n| files::write(trip.source().join("d").join(name(n)), ""));
        files::write(trip.source().join("d/unlisted"), "");
        // In another order than theirs, one twice, and one that is missing.
        let lines: String = (0..NAMES).rev().chain([7]).map(|n| name(n) + "\n").collect();
        let run = trip.run(&["--files-from", "-"], &["d/"], "new").input(lines.clone() + "missing\n");
        let outcome = run.fail(23);
        assert_eq!(outcome.counts(), (NAMES as u64, 0, 1), "{trip}");
        let stands = Tree::of(trip.dest().join("new"));
        assert_eq!(stands.paths().len(), NAMES + 1, "{trip}");
        assert!(!stands.paths().iter().any(|path| path == "unlisted"), "{trip}");
    }
}

#[test]
fn more_sources_than_a_message_or_descriptors_hold_are_sent_each_way() {
    /// More than there are descriptors for, and than go into one message.
    const SOURCES: usize = 1500;
    for trip in Trip::each_way() {
        let named: Vec<String> = (0..SOURCES).map(|n| format!("d/file-{n:05}")).collect();
        named.iter().for_each(|name| files::write(trip.source().join(name), ""));
        let each_in_its_own: Vec<String> = (0..SOURCES).map(|n| format!("dir-{n:05}/")).collect();
        (0..SOURCES).for_each(|n| files::write(trip.source().join(format!("dir-{n:05}/f-{n:05}")), ""));
        for (sources, dest) in [(named, "one/"), (each_in_its_own, "each/")] {
            let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
            let run = trip.run(&[], &sources, dest).beneath(["prlimit", "--nofile=1024:1024"]);
            let outcome = run.succeed();
            assert_eq!(outcome.counts(), (SOURCES as u64, 0, 0), "{trip}");
            assert_eq!(fs::read_dir(trip.dest().join(dest)).unwrap().count(), SOURCES, "{trip}: {dest}");
        }
    }
}

#[test]
fn a_list_that_a_daemon_has_no_memory_for_is_refused_with_what_to_do() {
    let site = Site::with(DaemonConfig::default().line("[limits]\nmemory = '32MiB'"));
    files::write(site.root().join("d/f"), "x");
    let pull = |names: usize| {
        let lines: String = (0..names).map(|n| format!("{n:06}{}\n", "x".repeat(194))).collect();
        let args = ["pull", "--json", "--retry-for", "0", "--files-from", "-", &site.url("d/"), "new/"];
        site.client.run(args).input(lines + "f\n")
    };
    let outcome = pull(60_000).fail(5);
    let fault = &outcome.events_of("fault")[0];
    let (message, hint) = (fault["message"].as_str().unwrap(), fault["hint"].as_str().unwrap());
    assert!(message.contains("list of what to send needs more memory"), "{outcome}");
    assert!(hint.contains("[limits]"), "{outcome}");
    assert!(!site.client.path("new").exists(), "{outcome}");
    // What was claimed for it is free again.
    let outcome = pull(1000).fail(23);
    assert_eq!(outcome.counts(), (1, 0, 1000), "{outcome}");
}

#[test]
fn lines_of_a_list_that_are_comments_or_end_in_cr_lf_are_read_as_they_are_meant() {
    let host = Host::new();
    for name in ["a", "b", "#c"] {
        files::write(host.path("src").join(name), name);
    }
    let copy = |options: &[&str], list: &str| {
        fs::remove_dir_all(host.path("dst")).ok();
        let run = host.run(["copy", "--files-from", "-"]).args(options).args(["src/", "dst/"]);
        run.input(list).succeed()
    };
    let outcome = copy(&[], "# what to take\r\n;and this\r\na\r\n\r\nb\n");
    assert_eq!(Tree::of(host.path("dst")).paths(), ["", "a", "b"], "{outcome}");
    assert!(outcome.stderr.contains("4 lines of standard input ended in CR LF"), "{outcome}");
    let outcome = copy(&["--from0"], "#c\0a\0");
    assert_eq!(Tree::of(host.path("dst")).paths(), ["", "#c", "a"], "{outcome}");
    assert!(!outcome.stderr.contains("CR LF"), "{outcome}");
    let outcome = copy(&[], "./#c\n");
    assert_eq!(Tree::of(host.path("dst")).paths(), ["", "#c"], "{outcome}");
}
