//! `check`: a tree against the manifest of its transfer: what is the same, changed, missing,
//! unread, and what the manifest does not have.

use std::fs;
use std::os::unix::fs::symlink;

use crate::fixture::{Host, Outcome, Trip, files};

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
    let outcome = host.run(["check", "list", "lh://node.example/root/"]).fail(2);
    assert!(outcome.stderr.contains("run it on the host that has the files"), "{outcome}");
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
