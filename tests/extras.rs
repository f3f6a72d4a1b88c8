//! Metadata beyond modes and times: what `--preserve` carries over when it is asked to, what it
//! counts where it cannot, and what it leaves alone.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use serde_json::{Value, json};

use crate::fixture::{DaemonConfig, Host, Outcome, Site, Trip, files};
use crate::hostile::{Direction, End};
use crate::resume::scene::{Death, LEN, Scene, resumed};

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
fn a_file_that_goes_on_after_a_death_has_the_attributes_of_the_source() {
    for direction in Direction::BOTH {
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        set(scene.source(), "user.of", "f");
        scene.die(scene.run("f", "f").args(["--preserve", "+xattrs"]), Death::ClientKilled);
        let outcome = scene.run("f", "f").args(["--preserve", "+xattrs"]).succeed();
        assert!(resumed(&outcome) > 0, "{direction:?}: {outcome}");
        let came = get(scene.wired.end(direction, End::To), "user.of");
        assert_eq!(came.as_deref(), Some(&b"f"[..]), "{direction:?}: {outcome}");
    }
}

#[test]
fn attributes_of_many_files_that_fill_no_page_alone_flow_with_their_pages() {
    const FILES: usize = 1500;
    for trip in Trip::each_way() {
        let top = trip.source().join("d");
        for n in 0..FILES {
            files::make(top.join(format!("f{n}")), n as u64, 10);
            set(top.join(format!("f{n}")), "user.a", vec![n as u8; 2500]);
        }
        let outcome = trip.send(&["--preserve", "+xattrs"], &["d"], "");
        assert_eq!((outcome.counts(), not_kept(&outcome)), ((FILES as u64, 0, 0), vec![]), "{trip}: {outcome}");
        for n in [0, 1, 17, 18, FILES / 2, FILES - 1] {
            let came = get(trip.dest().join(format!("d/f{n}")), "user.a");
            assert_eq!(came, Some(vec![n as u8; 2500]), "{trip}: {n}");
        }
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
    ["a", "b"].iter().for_each(|target| drop(host.make_dir(target)));
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

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// An access list: entries of a tag, permissions and a number.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, may, id): &(u16, u16, u32)| {
        let (tag, may, id) = (tag.to_le_bytes(), may.to_le_bytes(), id.to_le_bytes());
        [&tag[..], &may[..], &id[..]].concat()
    };
    [2_u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// A list by which user 54321 may read, write and execute, and others `others`.
fn for_a_user(others: u16) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    list(&[(1, 6, NONE), (2, 7, 54_321), (4, 4, NONE), (8, 5, 54_322), (0x10, 7, NONE), (0x20, others, NONE)])
}

#[test]
fn access_lists_arrive_and_those_that_a_directory_gives_its_new_entries_do_not_stay() {
    for trip in Trip::each_way() {
        let (from, to) = (trip.source().join("d"), trip.dest().join("d"));
        make_tree(&from);
        for name in ["small", "large", "in"] {
            set(from.join(name), ACCESS, for_a_user(0));
        }
        set(from.join("in"), DEFAULT, for_a_user(4));
        fs::create_dir_all(to.join("in")).unwrap();
        set(&to, DEFAULT, for_a_user(0));
        set(to.join("in"), DEFAULT, for_a_user(0));
        let outcome = trip.send(&["--preserve", "+acls"], &["d"], "");
        assert_eq!((outcome.counts(), not_kept(&outcome)), ((5, 0, 0), vec![]), "{trip}: {outcome}");
        for name in ["small", "large", "in"] {
            assert_eq!(get(to.join(name), ACCESS), Some(for_a_user(0)), "{trip}: {name}");
        }
        for name in ["empty", "in/bare"] {
            assert_eq!(get(to.join(name), ACCESS), None, "{trip}: {name}");
            let modes = [&from, &to].map(|dir| fs::metadata(dir.join(name)).unwrap().mode());
            assert_eq!(modes[0], modes[1], "{trip}: {name}");
        }
        assert_eq!((get(&to, DEFAULT), get(to.join("in"), DEFAULT)), (None, Some(for_a_user(4))), "{trip}");
        // What stands the same gets the list that the source has now.
        set(from.join("small"), ACCESS, for_a_user(4));
        removexattr(from.join("large"), ACCESS).unwrap();
        let outcome = trip.send(&["--preserve", "+acls"], &["d"], "");
        assert_eq!(outcome.counts(), (0, 5, 0), "{trip}: {outcome}");
        assert_eq!(get(to.join("small"), ACCESS), Some(for_a_user(4)), "{trip}");
        assert_eq!(get(to.join("large"), ACCESS), None, "{trip}");
    }
}

#[test]
fn an_access_list_grants_no_more_than_the_mask_of_the_root_leaves() {
    let site = Site::with(DaemonConfig::default().root_line("mode_mask = '0640'").root_line("preserve = ['acls']"));
    files::make(site.client.path("f"), 1, 10);
    set(site.client.path("f"), ACCESS, for_a_user(7));
    let outcome = site.client.run(["push", "--json", "--preserve", "+acls", "f", &site.url("")]).succeed();
    const NONE: u32 = u32::MAX;
    let want = list(&[(1, 6, NONE), (2, 7, 54_321), (4, 4, NONE), (8, 5, 54_322), (0x10, 4, NONE), (0x20, 0, NONE)]);
    assert_eq!(get(site.root().join("f"), ACCESS), Some(want), "{outcome}");
    assert_eq!(fs::metadata(site.root().join("f")).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn a_root_takes_owners_set_id_bits_and_access_lists_only_if_it_says_so() {
    let site = Site::new();
    make_tree(&site.client.path("d"));
    files::set_mode(site.client.path("d/small"), 0o6755);
    set(site.client.path("d/large"), ACCESS, for_a_user(0));
    let push = ["push", "--json", "--preserve", "+owner,+acls", "--if-exists", "replace"];
    let row = |kind, entries| [json!(kind), json!("destination"), json!("policy"), json!(entries)];
    // Both sides run as one user, whose files they are.
    let outcome = site.client.run(push).args(["d", &site.url("")]).succeed();
    assert_eq!(not_kept(&outcome), [row("set-id", 1), row("acls", 1)], "{outcome}");
    let outcome = site.client.run(push).args(["--map-user", "*:54321", "d", &site.url("")]).succeed();
    assert_eq!(not_kept(&outcome), [row("owner", 7), row("set-id", 1), row("acls", 1)], "{outcome}");
    assert_eq!(fs::metadata(site.root().join("d/small")).unwrap().mode() & 0o7000, 0, "{outcome}");
    assert_eq!(get(site.root().join("d/large"), ACCESS), None, "{outcome}");
}

#[test]
fn accounts_are_not_mapped_where_none_are_carried() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let outcome = host.run(["copy", "--map-user", "1:2", "f", "g"]).fail(2);
    assert!(outcome.stderr.contains("only where owners or access lists are carried over"), "{outcome}");
    let outcome = host.run(["copy", "--preserve", "+owner", "--map-user", "1:", "f", "g"]).fail(2);
    assert!(outcome.stderr.contains("FROM:TO"), "{outcome}");
}

/// The owner, the group and the mode of an entry itself.
fn whose(path: impl AsRef<Path>) -> (u32, u32, u32) {
    let stat = fs::symlink_metadata(path).unwrap();
    (stat.uid(), stat.gid(), stat.mode() & 0o7777)
}

/// A tree of which every entry is another's.
fn make_foreign(top: &Path) {
    make_tree(top);
    for (n, name) in ["", "empty", "small", "large", "in", "in/bare", "link"].into_iter().enumerate() {
        std::os::unix::fs::lchown(top.join(name), Some(54_321 + n as u32), Some(64_321)).unwrap();
    }
    files::set_mode(top.join("small"), 0o4750);
    files::set_mode(top.join("large"), 0o2755);
    files::set_mode(top.join("in"), 0o2775);
}

/// Only root may give files away.
#[test]
#[ignore = "needs root"]
fn owners_arrive_with_set_id_bits_and_are_fitted_where_something_stands() {
    for trip in Trip::each_way() {
        let (from, to) = (trip.source().join("d"), trip.dest().join("d"));
        make_foreign(&from);
        let outcome = trip.send(&["--preserve", "+owner"], &["d"], "");
        assert!(not_kept(&outcome).is_empty(), "{trip}: {outcome}");
        for name in ["", "empty", "small", "large", "in", "in/bare", "link"] {
            assert_eq!(whose(to.join(name)), whose(from.join(name)), "{trip}: {name}");
            let times = [&from, &to].map(|dir| fs::symlink_metadata(dir.join(name)).unwrap().mtime());
            assert_eq!(times[0], times[1], "{trip}: {name}");
        }
        let without = trip.send(&[], &["d"], "without");
        assert_eq!(whose(trip.dest().join("without/d/small")).2, 0o750, "{trip}: {without}");
        std::os::unix::fs::lchown(to.join("small"), Some(0), Some(0)).unwrap();
        let outcome = trip.send(&["--preserve", "+owner"], &["d"], "");
        assert_eq!(outcome.counts(), (0, 5, 0), "{trip}: {outcome}");
        assert_eq!(whose(to.join("small")), whose(from.join("small")), "{trip}");
    }
}

#[test]
#[ignore = "needs root"]
fn accounts_are_mapped_by_the_side_of_the_user_who_says_how() {
    for trip in Trip::each_way() {
        let (from, to) = (trip.source().join("d"), trip.dest().join("d"));
        make_foreign(&from);
        set(from.join("large"), ACCESS, for_a_user(0));
        files::write(trip.host().path("rules"), "# all groups become one\n*:7\n");
        let map = ["--map-user", "54321:11,54323:root,54324:no-such-user", "--map-group", "rules", "--numeric-ids"];
        let outcome = trip.send(&[&["--preserve", "+owner,+acls"], &map[..]].concat(), &["d"], "");
        for (name, user) in [("", 11), ("empty", 54_322), ("small", 0), ("in", 54_325)] {
            assert_eq!((whose(to.join(name)).0, whose(to.join(name)).1), (user, 7), "{trip}: {name}: {outcome}");
        }
        let row = [json!("owner"), json!("destination"), json!("unknown-account"), json!(1)];
        assert!(not_kept(&outcome).contains(&row), "{trip}: {outcome}");
        const NONE: u32 = u32::MAX;
        let mapped = list(&[(1, 6, NONE), (2, 7, 11), (4, 4, NONE), (8, 5, 7), (0x10, 7, NONE), (0x20, 0, NONE)]);
        assert_eq!(get(to.join("large"), ACCESS), Some(mapped), "{trip}");
    }
}

#[test]
#[ignore = "needs root"]
fn who_may_not_give_files_away_is_told_once_how_many_kept_their_own_owner() {
    let host = Host::new();
    make_foreign(&host.path("d"));
    let bare = ["setpriv", "--bounding-set", "-chown", "--inh-caps", "-chown", "--"];
    let outcome = host.run(["copy", "--json", "--preserve", "+owner", "d", "to/"]).beneath(bare).succeed();
    let row = |kind, entries| [json!(kind), json!("destination"), json!("denied"), json!(entries)];
    assert_eq!(not_kept(&outcome), [row("owner", 7), row("set-id", 3)], "{outcome}");
    assert_eq!(outcome.stderr.matches("owner or group of 7 entries not kept").count(), 1, "{outcome}");
    assert_eq!(whose(host.path("to/d/small")), (0, 0, 0o750), "{outcome}");
}

#[test]
#[ignore = "needs root"]
fn a_striped_file_stays_with_its_set_and_is_counted() {
    let host = Host::new();
    make_foreign(&host.path("d"));
    ["a", "b"].iter().for_each(|target| drop(host.make_dir(target)));
    let copy = ["copy", "--json", "--allow-same-device", "--layout", "stripe", "--stripe-from", "1MiB"];
    let rest = ["--chunk-size", "1MiB", "--preserve", "+owner", "--target", "a", "--target", "b", "d", "./"];
    let outcome = host.run(copy).args(rest).succeed();
    let row = |kind, entries| [json!(kind), json!("destination"), json!("striped"), json!(entries)];
    assert_eq!(not_kept(&outcome), [row("owner", 1)], "{outcome}");
    let of = |name: &str| ["a", "b"].map(|target| host.path(target).join(name)).into_iter().find(|path| path.exists());
    assert_eq!(whose(of("d/small").expect("it stands")), (54_323, 64_321, 0o4750), "{outcome}");
    assert_eq!(whose(of("d/large").expect("it stands")).0, 0, "{outcome}");
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
