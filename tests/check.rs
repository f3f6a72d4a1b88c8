//! `check`: a tree against the manifest of its transfer: what is the same, changed, missing,
//! unread, and what the manifest does not have.

use std::fs;
use std::os::unix::fs::symlink;

use crate::fixture::{DaemonConfig, Host, Outcome, Site, Trip, files};

/// Statuses of the `check` events by path, in order of the paths.
fn statuses(outcome: &Outcome) -> Vec<(String, String)> {
    let text = |event: &serde_json::Value, field: &str| event[field].as_str().unwrap_or("?").to_owned();
    let events = outcome.events_of("check");
    let mut found: Vec<_> = events.iter().map(|event| (text(event, "path"), text(event, "status"))).collect();
    found.sort();
    found
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, status)| ((*path).to_owned(), (*status).to_owned())).collect()
}

#[test]
fn what_a_transfer_wrote_down_is_found_again_and_whatever_changed_is_named() {
    let trip = Trip::each_way().next().expect("a way");
    files::make(trip.source().join("d/small"), 1, 100);
    files::make(trip.source().join("d/empty"), 1, 0);
    files::make(trip.source().join("d/sub/large"), 2, (9 << 20) + 1);
    files::make(trip.source().join("d/a\nb"), 3, 10);
    trip.send(&["--manifest", "list"], &["d/"], "new/");
    let (host, dest) = (trip.host(), trip.dest().join("new"));
    let check = |options: &[&str]| {
        let list = host.path("list");
        let mut line = vec!["check", "--json"];
        line.extend(options);
        host.run([&line[..], &[list.to_str().expect("text"), dest.to_str().expect("text")]].concat())
    };
    let outcome = check(&[]).succeed();
    let all = [("a\nb", "ok"), ("empty", "ok"), ("small", "ok"), ("sub/large", "ok")];
    assert_eq!(statuses(&outcome), pairs(&all), "{outcome}");
    assert_eq!(outcome.summary()["bytes_read"], 100 + (9 << 20) + 1 + 10, "{outcome}");
    // One bit of a large file, with the time that it had: only its content tells.
    let large = dest.join("sub/large");
    let time = fs::metadata(&large).expect("there").modified().expect("a time");
    let mut bytes = fs::read(&large).expect("there");
    bytes[5 << 20] ^= 1;
    fs::write(&large, &bytes).expect("written");
    fs::File::options().write(true).open(&large).expect("there").set_modified(time).expect("set");
    let outcome = check(&["--io", "buffered"]).fail(6);
    assert!(statuses(&outcome).contains(&("sub/large".to_owned(), "changed".to_owned())), "{outcome}");
    fs::remove_file(&large).expect("there");
    fs::remove_file(dest.join("empty")).expect("there");
    symlink("small", dest.join("empty")).expect("made");
    files::make(dest.join("sub/more"), 1, 5);
    let outcome = check(&[]).fail(6);
    let found =
        [("a\nb", "ok"), ("empty", "changed"), ("small", "ok"), ("sub/large", "missing"), ("sub/more", "extra")];
    assert_eq!(statuses(&outcome), pairs(&found), "{outcome}");
    fs::remove_file(dest.join("empty")).expect("there");
    fs::write(dest.join("empty"), "").expect("made");
    let outcome = check(&[]).fail(23);
    let summary = outcome.summary();
    assert_eq!(
        (&summary["files_missing"], &summary["files_extra"], &summary["files_ok"]),
        (&1.into(), &1.into(), &3.into())
    );
}

#[test]
fn a_list_of_b3sum_is_taken_in_the_directory_where_it_was_made() {
    let host = Host::new();
    files::make(host.path("d/f"), 1, 100);
    files::make(host.path("other"), 2, 100);
    let line = format!("{}  d/f\n", files::b3sum(host.path("d/f")));
    fs::write(host.path("list"), &line).expect("written");
    // Without a directory other files are none of its business.
    let outcome = host.run(["check", "list"]).succeed();
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("1 file as the manifest says"), "{outcome}");
    let outcome = host.run(["check", "-v", "list"]).succeed();
    assert!(outcome.stdout == b"ok: d/f\n", "{outcome}");
    let outcome = host.run(["check", "list", "."]).fail(23);
    assert_eq!(outcome.stdout, b"extra: other\n", "{outcome}");
    files::make(host.path("d/f"), 3, 100);
    let outcome = host.run(["check", "list"]).fail(6);
    assert_eq!(outcome.stdout, b"changed: d/f\n", "{outcome}");
}

#[test]
fn an_empty_list_is_found_whole_and_everything_beside_it_is_extra() {
    let host = Host::new();
    files::make(host.path("d/f"), 1, 10);
    fs::write(host.path("list"), "").expect("written");
    host.run(["check", "list"]).succeed();
    let outcome = host.run(["check", "--json", "list", "d"]).fail(23);
    assert_eq!(statuses(&outcome), pairs(&[("f", "extra")]), "{outcome}");
}

#[test]
fn what_is_no_manifest_and_no_directory_is_refused_before_anything_is_read() {
    let host = Host::new();
    files::make(host.path("f"), 1, 100);
    let digest = files::b3sum(host.path("f"));
    for (text, said) in [
        ("nonsense\n".to_owned(), "list:1: it does not begin with 64 hexadecimal digits"),
        (format!("{digest}  f\n{digest}  ../f\n"), "list:2: the name '../f' cannot lie beneath a directory"),
        (format!("{digest}  f\n{}  f\n", "0".repeat(64)), "list:2: the name 'f' has another digest"),
    ] {
        fs::write(host.path("list"), text).expect("written");
        let outcome = host.run(["check", "list"]).fail(2);
        assert!(outcome.stderr.contains(said), "{outcome}");
    }
    fs::write(host.path("list"), format!("{digest}  f\n")).expect("written");
    host.run(["check", "list", "nowhere"]).fail(3);
    let outcome = host.run(["check", "list", "f"]).fail(2);
    assert!(outcome.stderr.contains("DIR is none"), "{outcome}");
    host.run(["check", "nolist"]).fail(2);
    for (location, said) in
        [("lh://node.example/", "root"), ("node.example:d", "run it on the host that has the files")]
    {
        let outcome = host.run(["check", "list", location]).fail(2);
        assert!(outcome.stderr.contains(said), "{outcome}");
    }
}

#[test]
fn what_is_no_file_any_more_is_changed_and_what_cannot_be_looked_through_is_no_success() {
    let host = Host::new();
    let mut list = String::new();
    for name in ["dir", "fifo", "beneath/f", "odd\u{fffd}"] {
        files::make(host.path("d").join(name), 1, 10);
        list.push_str(&format!("{}  {name}\n", files::b3sum(host.path("d").join(name))));
    }
    fs::write(host.path("list"), list).expect("written");
    host.run(["check", "list", "d"]).succeed();
    fs::remove_dir_all(host.path("d")).expect("there");
    files::make(host.path("d/dir/inside"), 1, 10);
    let made = std::process::Command::new("mkfifo").arg(host.path("d/fifo")).status().expect("runs");
    assert!(made.success());
    files::make(host.path("d/beneath"), 1, 10);
    let outcome = host.run(["check", "--json", "list", "d"]).fail(6);
    let found = [
        ("beneath", "extra"),
        ("beneath/f", "missing"),
        ("dir", "changed"),
        ("dir/inside", "extra"),
        ("fifo", "changed"),
        ("odd\u{fffd}", "unread"),
    ];
    assert_eq!(statuses(&outcome), pairs(&found), "{outcome}");
}

#[test]
fn files_at_a_daemon_are_told_as_those_of_this_host_and_only_digests_travel() {
    let site = Site::with(DaemonConfig::default().watch("audit = 'audit.jsonl'"));
    let (host, dest) = (&site.client, site.root().join("new"));
    let made =
        [("small", 100), ("empty", 0), ("sub/large", (9 << 20) + 1), ("a\nb", 10), ("sub/dir", 7), ("locked", 3)];
    for (number, (name, len)) in (0..).zip(made) {
        files::make(host.path("d").join(name), number, len);
    }
    host.run(["push", "--manifest", "list", "d/", &site.url("new")]).succeed();
    let check = |code: i32| {
        let far = host.run(["check", "--json", "list", &site.url("new")]).start();
        let near = host.run(["check", "--json", "list", dest.to_str().expect("text")]).start();
        let (far, near) = (far.finish(), near.finish());
        assert_eq!((statuses(&far), far.code, near.code), (statuses(&near), code, code), "{far}\n{near}");
        let figures = |outcome: &Outcome| {
            let names = ["files_ok", "files_changed", "files_missing", "files_unread", "files_extra", "bytes_read"];
            names.map(|name| outcome.summary()[name].clone())
        };
        assert_eq!(figures(&far), figures(&near), "{far}\n{near}");
        far
    };
    check(0);
    site.daemon.wait_log("ended: reading in data/new: complete");
    let audit = fs::read_to_string(site.server.path("audit.jsonl")).expect("there");
    assert!(audit.contains("\"opened\"") && audit.contains("reading in data/new"), "{audit}");
    // One bit of a large file, with the time that it had.
    let large = dest.join("sub/large");
    let time = fs::metadata(&large).expect("there").modified().expect("a time");
    let mut bytes = fs::read(&large).expect("there");
    bytes[5 << 20] ^= 1;
    fs::write(&large, &bytes).expect("written");
    fs::File::options().write(true).open(&large).expect("there").set_modified(time).expect("set");
    assert!(statuses(&check(6)).contains(&("sub/large".to_owned(), "changed".to_owned())));
    fs::remove_file(dest.join("empty")).expect("there");
    symlink("small", dest.join("empty")).expect("made");
    fs::remove_file(dest.join("sub/dir")).expect("there");
    files::make(dest.join("sub/dir/inside"), 1, 5);
    fs::remove_file(dest.join("a\nb")).expect("there");
    check(6);
    fs::remove_dir_all(&dest).expect("there");
    host.run(["check", "list", &site.url("new")]).fail(3);
    files::make(&dest, 1, 5);
    let outcome = host.run(["check", "list", &site.url("new")]).fail(2);
    assert!(outcome.stderr.contains("DIR is none"), "{outcome}");
}

#[test]
fn long_lists_are_asked_about_in_parts_and_a_key_without_the_right_hears_nothing() {
    let site = Site::new();
    let host = &site.client;
    files::make(site.root().join("d/4999"), 1, 10);
    let digest = files::b3sum(site.root().join("d/4999"));
    let list: String = (0..5000).map(|number| format!("{digest}  {number:04}\n")).collect();
    fs::write(host.path("list"), list).expect("written");
    let outcome = host.run(["check", "--json", "list", &site.url("d")]).fail(23);
    let summary = outcome.summary();
    assert_eq!((&summary["files_missing"], &summary["files_ok"]), (&4999.into(), &1.into()), "{summary}");
    let blind = Site::granting(DaemonConfig::default(), "create", "read,create");
    fs::write(blind.client.path("list"), "").expect("written");
    blind.client.run(["check", "list", &blind.url("")]).fail(4);
}
