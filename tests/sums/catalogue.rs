//! Checksums of files on a file system without attributes of users: whoever receives keeps them in
//! a catalogue. Needs root, for a ramfs, which has none.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

use super::kept;
use crate::fixture::{DaemonConfig, Host, Outcome, files};

const SUMMED: [&str; 2] = ["--extra-checksum", "md5,adler32"];
/// The catalogue of a user, beneath the home.
const CATALOGUE: &str = ".local/state/longhaul/checksums";

/// A directory on which no file has attributes; unmounted when dropped.
struct Bare(PathBuf);

impl Bare {
    fn mounted(at: PathBuf) -> Bare {
        mount("none", &at, "ramfs", MountFlags::empty(), None).unwrap();
        fs::write(at.join("try"), "").unwrap();
        let tried = rustix::fs::setxattr(at.join("try"), "user.a", b"", rustix::fs::XattrFlags::empty());
        assert_eq!(tried, Err(rustix::io::Errno::OPNOTSUPP), "a ramfs has attributes here: nothing is tested");
        fs::remove_file(at.join("try")).unwrap();
        Bare(at)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A dataset of files that come in bundles and in chunks.
fn plant(top: &Path) {
    for (name, len) in [("a/small", 100), ("a/large", (3 << 20) + 7), ("empty", 0), ("b", 5000)] {
        files::make(top.join(name), len as u64 + 1, len);
    }
}

/// The MD5 sums that a manifest has without a file being read, by path.
fn listed(host: &Host, tree: &Path, out: &str, options: &[&str]) -> BTreeMap<String, Value> {
    let make = host.run(["manifest", "make", "-o", out, "--kept-checksums"]).args(options).arg(tree).succeed();
    assert!(!make.stderr.contains("catalogue"), "{make}");
    let items = host.run(["manifest", "show", "--json", "-l", out]).succeed().events_of("item");
    let path = |item: &Value| item["path"].as_str().unwrap().to_owned();
    let sum = |item: &Value| Some((path(item), item["checksums"].get("md5")?.clone()));
    items.iter().filter_map(sum).collect()
}

/// The sums that a transfer told.
fn told(outcome: &Outcome, names: &[&str]) -> BTreeMap<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), outcome.file(name)["md5"].clone())).collect()
}

const ALL: [&str; 4] = ["a/large", "a/small", "b", "empty"];

#[test]
#[ignore = "needs root: run by .ci/run"]
fn files_without_attributes_have_their_checksums_in_the_catalogue_until_they_change() {
    let host = Host::new();
    let bare = Bare::mounted(host.make_dir("there"));
    plant(&host.path("ds"));
    let copied = host.run(["copy", "--json"]).args(SUMMED).args(["ds/", "there/in"]).succeed();
    assert_eq!((copied.counts().0, copied.events_of("not_kept")), (4, vec![]), "{copied}");
    let (all, at) = (told(&copied, &ALL), bare.path("in"));
    assert_eq!(kept(&at.join("b")), None);
    assert_eq!(listed(&host, &at, "one", &[]), all);
    // A second run finds all there, and touches only the time of one.
    let later = SystemTime::UNIX_EPOCH + Duration::from_secs(1_100_000_000);
    let source = File::options().write(true).open(host.path("ds/b")).unwrap();
    source.set_times(FileTimes::new().set_modified(later)).unwrap();
    let again = host.run(["copy", "--json", "--if-exists", "verify", "ds/", "there/in"]).succeed();
    assert_eq!(again.counts(), (0, 4, 0), "{again}");
    assert_eq!(fs::metadata(at.join("b")).unwrap().mtime(), 1_100_000_000, "{again}");
    assert_eq!(listed(&host, &at, "two", &[]), all);
    // Another content of the same length, with the time set back.
    let file = File::options().write(true).open(at.join("b")).unwrap();
    file.write_all_at(b"other", 0).unwrap();
    file.set_times(FileTimes::new().set_modified(later)).unwrap();
    fs::write(at.join("empty"), "").unwrap();
    assert_eq!(listed(&host, &at, "three", &[]), told(&copied, &["a/large", "a/small"]));
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn datasets_and_further_names_have_them_too_and_two_runs_at_once_lose_none() {
    let host = Host::new();
    let bare = Bare::mounted(host.make_dir("there"));
    plant(&host.path("ds"));
    let names = ["b", "c", "d", "a/e"];
    names[1..].iter().for_each(|name| fs::hard_link(host.path("ds/b"), host.path("ds").join(name)).unwrap());
    let copied = host.run(["copy", "--json", "--preserve", "+hardlinks"]).args(SUMMED);
    let copied = copied.args(["ds/", "there", "--as-dataset", "run-7"]).succeed();
    assert_eq!(copied.events_of("not_kept"), Vec::<Value>::new(), "{copied}");
    // Only the one that the scan came to first was sent.
    let mut all = told(&copied, &["a/large", "a/small", "empty"]);
    let sums: Vec<_> = told(&copied, &names).into_values().filter(|sum| !sum.is_null()).collect();
    assert_eq!(sums.len(), 1, "{copied}");
    names.iter().for_each(|name| drop(all.insert((*name).to_owned(), sums[0].clone())));
    assert_eq!(listed(&host, &bare.path("run-7"), "one", &[]), all);

    for n in 0..300 {
        files::make(host.path(format!("many/{n}")), n, 10 + n as usize);
    }
    let both =
        ["x", "y"].map(|to| host.run(["copy", "--json"]).args(SUMMED).args(["many/", &format!("there/{to}")]).start());
    for (running, to) in both.into_iter().zip(["x", "y"]) {
        let outcome = running.finish();
        assert_eq!((outcome.counts().0, outcome.events_of("not_kept")), (300, vec![]), "{outcome}");
        assert_eq!(listed(&host, &bare.path(to), to, &[]).len(), 300, "{to}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_daemon_keeps_them_in_its_state_and_one_without_says_that_it_does_not() {
    for (line, is_kept) in [("state = 'STATE'", true), ("", false)] {
        let (client, server) = (Host::new(), Host::new());
        let bare = Bare::mounted(server.make_dir("data"));
        let line = line.replace("STATE", server.path("state").to_str().unwrap());
        let config = DaemonConfig::default().line(&line).root("data", &bare.0, "read,create,modify");
        let daemon = config.client("tester", client.key(), &[("data", "read,create,modify")]).start(&server);
        client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        plant(&client.path("ds"));
        let push = client.run(["push", "--json"]).args(SUMMED).args(["ds/", &daemon.url("data/in")]).succeed();
        assert_eq!(push.counts().0, 4, "{push}");
        assert!(!client.path(CATALOGUE).exists(), "{push}");
        let lost: Vec<_> = push.events_of("not_kept").iter().map(|row| row["reason"].clone()).collect();
        if is_kept {
            assert_eq!(lost, Vec::<Value>::new(), "{push}");
            let state = server.path("state");
            let options = ["--kept-in", state.to_str().unwrap()];
            assert_eq!(listed(&server, &bare.path("in"), "one", &options), told(&push, &ALL));
        } else {
            assert_eq!(lost, [json!("unsupported")], "{push}");
        }
        assert_eq!(listed(&server, &bare.path("in"), "two", &[]).len(), 0, "this user's has none of them");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_catalogue_that_is_of_no_use_fails_no_transfer_and_is_told() {
    let host = Host::new();
    let bare = Bare::mounted(host.make_dir("there"));
    plant(&host.path("ds"));
    files::write(host.path(CATALOGUE), "something else");
    let copied = host.run(["copy", "--json"]).args(SUMMED).args(["ds/", "there/in"]).succeed();
    let rows: Vec<_> =
        copied.events_of("not_kept").iter().map(|row| (row["kind"].clone(), row["reason"].clone())).collect();
    assert_eq!((copied.counts().0, rows), (4, vec![(json!("checksums"), json!("failed"))]), "{copied}");
    assert_eq!(copied.stderr.matches("the catalogue of checksums").count(), 1, "{copied}");
    assert!(copied.stderr.contains(CATALOGUE), "{copied}");
    assert_eq!(fs::read_to_string(host.path(CATALOGUE)).unwrap(), "something else");
    // The manifest is made all the same, and says so.
    let make = host.run(["manifest", "make", "-o", "one", "--kept-checksums"]).arg(bare.path("in")).succeed();
    assert!(make.stderr.contains("the catalogue of checksums"), "{make}");
    fs::remove_file(host.path(CATALOGUE)).unwrap();
    let copied = host.run(["copy", "--json"]).args(SUMMED).args(["ds/", "there/new"]).succeed();
    assert_eq!(listed(&host, &bare.path("new"), "two", &[]), told(&copied, &ALL));
}
