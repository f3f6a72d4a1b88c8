//! Metadata beyond modes and times: what `--preserve` carries over when it is asked to, what it
//! counts where it cannot, and what it leaves alone.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use serde_json::{Value, json};

use crate::fixture::{DaemonConfig, Host, Outcome, Site, Trip, files};

/// Sets an attribute.
fn set(path: impl AsRef<Path>, name: &str, value: impl AsRef<[u8]>) {
    setxattr(path.as_ref(), name, value.as_ref(), XattrFlags::empty()).unwrap();
}

/// The value of an attribute. `None` if there is none.
fn get(path: impl AsRef<Path>, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 64 << 10];
    let len = getxattr(path.as_ref(), name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// The names of the attributes of users.
fn names(path: impl AsRef<Path>) -> Vec<String> {
    let mut names = vec![0; 64 << 10];
    let len = listxattr(path.as_ref(), &mut names[..]).unwrap();
    let names = names[..len].split(|byte| *byte == 0).map(|name| String::from_utf8(name.to_vec()).unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("user.")).collect();
    names.sort();
    names
}

/// The events about what was not kept: kind, side, reason, entries.
fn not_kept(outcome: &Outcome) -> Vec<[Value; 4]> {
    let rows = outcome.events_of("not_kept");
    rows.iter().map(|row| ["kind", "side", "reason", "entries"].map(|field| row[field].clone())).collect()
}

/// A small file, a file of chunks, one without bytes, a link and directories, with attributes.
fn make_tree(top: &Path) {
    for (name, len) in [("empty", 0), ("small", 100), ("large", (3 << 20) + 5), ("in/bare", 7)] {
        files::make(top.join(name), len as u64, len);
    }
    files::link("small", top.join("link"));
    for name in ["empty", "small", "large", "in"] {
        set(top.join(name), "user.of", name);
        set(top.join(name), "user.bytes", [0, 0xff, b'\n']);
        set(top.join(name), "user.nothing", "");
    }
}

#[test]
fn attributes_of_users_arrive_if_they_are_asked_for_and_only_then() {
    for trip in Trip::each_way() {
        make_tree(&trip.source().join("d"));
        let outcome = trip.send(&["--preserve", "+xattrs"], &["d"], "");
        assert_eq!((outcome.counts(), not_kept(&outcome)), ((5, 0, 0), vec![]), "{trip}: {outcome}");
        let came = trip.dest().join("d");
        for name in ["empty", "small", "large", "in"] {
            assert_eq!(names(came.join(name)), ["user.bytes", "user.nothing", "user.of"], "{trip}: {name}");
            assert_eq!(get(came.join(name), "user.of").unwrap(), name.as_bytes(), "{trip}");
            assert_eq!(get(came.join(name), "user.bytes").unwrap(), [0, 0xff, b'\n'], "{trip}: {name}");
            let times =
                [trip.source().join("d"), came.clone()].map(|dir| fs::metadata(dir.join(name)).unwrap().mtime());
            assert_eq!(times[0], times[1], "{trip}: {name}: attributes come before the times");
        }
        assert_eq!(names(came.join("in/bare")), [""; 0], "{trip}");
        trip.send(&["--preserve", "mode,times,links"], &["d"], "without");
        assert_eq!(names(trip.dest().join("without/d/small")), [""; 0], "{trip}");
    }
}

#[test]
fn what_stands_the_same_gets_the_attributes_of_the_source_and_is_left_alone_afterwards() {
    for (trip, how) in Trip::each_way().zip([&["--if-exists", "verify"][..], &[], &[]]) {
        let (from, to) = (trip.source().join("d"), trip.dest().join("d"));
        make_tree(&from);
        let options = [&["--preserve", "+xattrs"], how].concat();
        trip.send(&options, &["d"], "");
        for name in ["small", "large", "in"] {
            set(from.join(name), "user.of", "another");
            removexattr(from.join(name), "user.nothing").unwrap();
            set(to.join(name), "user.stale", "x");
        }
        let outcome = trip.send(&options, &["d"], "");
        assert_eq!(outcome.counts(), (0, 5, 0), "{trip}: {outcome}");
        let changed = |name| fs::metadata(to.join(name)).map(|stat| (stat.ctime(), stat.ctime_nsec())).unwrap();
        for name in ["small", "large", "in"] {
            assert_eq!(names(to.join(name)), ["user.bytes", "user.of"], "{trip}: {name}");
            assert_eq!(get(to.join(name), "user.of").unwrap(), b"another", "{trip}: {name}");
        }
        let before = ["small", "large"].map(changed);
        trip.send(&options, &["d"], "");
        assert_eq!(["small", "large"].map(changed), before, "{trip}: something was written that was the same");
    }
}

#[test]
fn a_file_with_several_names_that_stands_keeps_its_attributes_and_is_counted() {
    let trip = Trip::each_way().next().unwrap();
    make_tree(&trip.source().join("d"));
    trip.send(&[], &["d"], "");
    fs::hard_link(trip.dest().join("d/small"), trip.dest().join("snapshot")).unwrap();
    let outcome = trip.send(&["--preserve", "+xattrs"], &["d"], "");
    assert_eq!(names(trip.dest().join("snapshot")), [""; 0], "{outcome}");
    let row = [json!("xattrs"), json!("destination"), json!("several-names"), json!(1)];
    assert_eq!(not_kept(&outcome), [row], "{outcome}");
}

#[test]
fn a_root_that_takes_no_attributes_takes_the_files_and_the_client_counts_what_was_left() {
    let site = Site::with(DaemonConfig::default().root_line("preserve = []"));
    make_tree(&site.client.path("d"));
    let push = ["push", "--json", "--chunk-size", "1MiB", "--preserve", "+xattrs", "d", &site.url("")];
    let outcome = site.client.run(push).succeed();
    assert_eq!(names(site.root().join("d/small")), [""; 0], "{outcome}");
    assert_eq!(not_kept(&outcome), [[json!("xattrs"), json!("destination"), json!("policy"), json!(4)]], "{outcome}");
    let said =
        "extended attributes of 4 entries not kept at the destination: the root of the daemon does not take them";
    assert_eq!(outcome.stderr.matches(said).count(), 1, "{outcome}");
}

#[test]
fn a_client_that_may_only_create_changes_no_attributes_of_directories_that_stand() {
    let site = Site::granting(DaemonConfig::default(), "read,create", "read,create,modify");
    make_tree(&site.client.path("d"));
    fs::create_dir_all(site.root().join("d/in")).unwrap();
    set(site.root().join("d/in"), "user.mine", "1");
    let push = ["push", "--json", "--preserve", "+xattrs", "d", &site.url("")];
    let outcome = site.client.run(push).succeed();
    assert_eq!(names(site.root().join("d/in")), ["user.mine"], "{outcome}");
    assert_eq!(names(site.root().join("d/small")), ["user.bytes", "user.nothing", "user.of"], "{outcome}");
}

#[test]
fn a_stream_takes_no_attributes() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let outcome = host.run(["copy", "--preserve", "+xattrs", "f", "-"]).fail(2);
    assert!(outcome.stderr.contains("a stream has no place for xattrs"), "{outcome}");
    let outcome = host.run(["copy", "--preserve", "+xattrs", "-", "g"]).input("x").fail(2);
    assert!(outcome.stderr.contains("a stream has no place for xattrs"), "{outcome}");
}

#[test]
fn files_and_directories_of_a_set_have_their_attributes_where_they_lie() {
    let host = Host::new();
    make_tree(&host.path("d"));
    ["a", "b"].map(|target| host.make_dir(target));
    let copy = ["copy", "--json", "--allow-same-device", "--layout", "stripe", "--stripe-from", "1MiB"];
    let rest = ["--chunk-size", "1MiB", "--preserve", "+xattrs", "--target", "a", "--target", "b", "d", "./"];
    host.run(copy).args(rest).succeed();
    let of = |name: &str| ["a", "b"].map(|target| host.path(target).join(name)).into_iter().find(|path| path.exists());
    for name in ["d/empty", "d/small", "d/large", "d/in"] {
        assert_eq!(names(of(name).expect("it stands")), ["user.bytes", "user.nothing", "user.of"], "{name}");
    }
    let daemon = DaemonConfig::default().set("data", &["a", "b"].map(|target| host.path(target)), "layout = 'stripe'");
    let daemon = daemon.client("me", host.key(), &[("data", "read")]).start(&host);
    host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    host.run(["pull", "--preserve", "+xattrs", &daemon.url("data/d"), "back/"]).succeed();
    let mut byte = [0];
    fs::File::open(host.path("back/d/large")).unwrap().read_exact_at(&mut byte, 1 << 20).unwrap();
    for name in ["empty", "small", "large", "in"] {
        assert_eq!(names(host.path("back/d").join(name)), ["user.bytes", "user.nothing", "user.of"], "{name}");
    }
}

/// Only root may set attributes of the system.
#[test]
#[ignore = "needs root"]
fn attributes_of_the_system_stay_behind_and_are_counted_once() {
    for trip in Trip::each_way() {
        make_tree(&trip.source().join("d"));
        set(trip.source().join("d/small"), "trusted.a", "1");
        set(trip.source().join("d/small"), "trusted.b", "2");
        set(trip.source().join("d/in"), "trusted.a", "1");
        let outcome = trip.send(&["--preserve", "+xattrs"], &["d"], "");
        assert_eq!(get(trip.dest().join("d/small"), "trusted.a"), None, "{trip}");
        let row = [json!("xattrs"), json!("source"), json!("system"), json!(2)];
        assert_eq!(not_kept(&outcome), [row], "{trip}: {outcome}");
        assert_eq!(names(trip.dest().join("d/small")).len(), 3, "{trip}");
    }
}
