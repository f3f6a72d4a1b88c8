//! `job`: a campaign is added, planned, moved and settled; it survives a mover that is killed, says
//! exactly what is left, and gives up single files without stopping for them.

mod aside;
mod beside;
mod between;
mod dataset;
mod family;
mod fleet;
mod hooks;
mod leaders;
mod links;
mod mend;
mod page;
mod rules;
mod sent;
mod sites;
mod verify;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Running, Site, files};

/// A dataset of a hundred files, with names that only bytes can carry.
fn plant(top: &Path) {
    for number in 0..98 {
        files::make(top.join(format!("{}/{number:02}", number % 7)), number, 2000 + number as usize * 100);
    }
    files::make(top.join("line\nbreak"), 98, 10);
    files::make(top.join(OsStr::from_bytes(b"not-utf8-\xff")), 99, 0);
    files::link("0/00", top.join("link"));
}

/// The queue's file of a host's user.
fn queue(host: &Host) -> PathBuf {
    host.path(".local/state/longhaul/queue.db")
}

/// Lets a minute pass for the leases of movers that are gone, without waiting for it.
fn lapse(host: &Host) {
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    let changes = "UPDATE shard SET lease_until = 0 WHERE lease_until > 0; UPDATE permit SET until = 0; \
                   UPDATE leader SET until = 0";
    rows.execute_batch(changes).unwrap();
}

/// Shards that a mover had when it was last heard of.
fn leased(host: &Host) -> i64 {
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    rows.query_row("SELECT count(*) FROM shard WHERE lease_until > 0", [], |row| row.get(0)).unwrap()
}

/// Waits until more than `count` files stand beneath `top`, and gives their places and inodes.
fn wait_for_more_than(count: usize, top: &Path) -> Vec<(PathBuf, u64)> {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut stand = Vec::new();
        for dir in fs::read_dir(top).into_iter().flatten().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
            let files = fs::read_dir(dir.path()).unwrap().filter_map(Result::ok);
            let named = files.filter(|file| !file.file_name().as_bytes().starts_with(b".longhaul"));
            stand.extend(named.filter_map(|file| Some((file.path(), fs::symlink_metadata(file.path()).ok()?.ino()))));
        }
        if stand.len() > count {
            return stand;
        }
        assert!(Instant::now() < until, "only {} files stand", stand.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The longest that files may take to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The figures of a campaign, which must add up.
fn left(host: &Host, name: &str) -> Value {
    let left = host.run(["job", "left", "--json", name]).succeed().events_of("job_left").remove(0);
    for what in ["files", "bytes"] {
        let of = |part: &str| left[part][what].as_u64().unwrap();
        assert_eq!(of("total"), of("done") + of("failed") + of("cancelled") + of("left"), "{left}");
    }
    left
}

fn counts(left: &Value) -> [u64; 3] {
    ["done", "failed", "left"].map(|part| left[part]["files"].as_u64().unwrap())
}

#[test]
fn a_campaign_over_a_daemon_goes_on_behind_a_mover_that_was_killed_and_each_file_stands() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    // It is still under way when the other files of its shard stand.
    files::make(host.path("ds/z/large"), 7, 3 << 20);
    let to = site.url("in");
    let add = ["job", "add", "--name", "all", "--rate", "256KiB/s", "--shard-files", "50", "ds", &to];
    assert_eq!(host.run(add).succeed().stdout_text(), "all\n");
    host.run(add).fail(2);
    host.run(["job", "plan", "all"]).succeed();
    assert_eq!(counts(&left(host, "all")), [0, 0, 102]);

    let running = host.run(["job", "run", "--json", "--drain"]).start();
    running.wait_event(|event| (event["type"] == "job_shard" && event["state"] == "done").then_some(()));
    // The first shard is settled with its fifty files. Some of the second stand, and not all.
    let stood = wait_for_more_than(50, &site.root().join("in/ds"));
    running.signal(Signal::KILL);
    running.finish();
    assert_eq!(leased(host), 1, "the mover had claimed the shard in whose middle it was killed");
    let [done, failed, rest] = counts(&left(host, "all"));
    assert!(done >= 50 && failed == 0 && rest > 0, "{done} {failed} {rest}");
    assert!(!site.root().join("in/ds/z/large").exists(), "the mover was killed in the middle of a shard");

    lapse(host);
    host.run(["job", "run", "all", "--drain"]).succeed();
    assert_eq!(counts(&left(host, "all")), [102, 0, 0]);
    for (path, inode) in stood {
        assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), inode, "{} was sent again", path.display());
    }
    tree::assert_same(&Tree::of(host.path("ds")), &Tree::of(site.root().join("in/ds")), "what was moved");
    host.run(["job", "wait", "all"]).succeed();
    host.run(["job", "report", "all"]).succeed();
    let shown = host.run(["job", "show", "--json", "all"]).succeed().events_of("job_campaign");
    assert_eq!((&shown[0]["state"], &shown[0]["done"]["files"]), (&"done".into(), &102.into()));
    host.run(["job", "plan", "all"]).fail(2);
}

#[test]
fn a_campaign_from_a_daemon_lists_what_the_daemon_has() {
    let site = Site::new();
    plant(&site.root().join("ds"));
    let host = &site.client;
    let from = site.url("ds/");
    let add = ["job", "add", "--name", "in", &from, "here", "--exclude", "3/", "--retry-rules", "changed=1"];
    host.run(add).succeed();
    host.run(["job", "plan", "in"]).succeed();
    fs::write(site.root().join("ds/late"), "planned before it was there").unwrap();
    files::make(site.root().join("ds/0/00"), 7, 17);
    files::set_mtime(site.root().join("ds/0/07"), 1_000_000_000, 0);
    host.run(["job", "run", "--drain"]).fail(23);
    let faults = host.run(["job", "report", "--json", "in"]).fail(23).events_of("job_fault");
    let faults: Vec<_> = faults.iter().map(|fault| (fault["path"].as_str(), fault["code"].as_str())).collect();
    assert_eq!(faults, [(Some("0/00"), Some("changed")), (Some("0/07"), Some("changed"))]);
    for changed in ["here/0/00", "here/0/07"] {
        assert!(!host.path(changed).exists(), "what was not planned is refused before it is written");
    }
    assert!(host.path("here/line\nbreak").exists() && !host.path("here/3").exists());
    assert!(!host.path("here/late").exists(), "only what was planned is moved");
}

#[test]
fn files_that_cannot_be_moved_are_given_up_beside_the_others_and_tried_again_when_asked_for() {
    let host = Host::new();
    plant(&host.path("ds"));
    let add = ["job", "add", "--name", "some", "--retry-rules", "changed=1", "ds/", "to"];
    host.run(add).succeed();
    host.run(["job", "plan", "some"]).succeed();
    fs::remove_file(host.path("ds/1/01")).unwrap();
    fs::write(host.path("ds/2/02"), "other content than was planned").unwrap();
    host.make_dir("to/4/04/in-the-way");
    host.run(["job", "run", "--drain"]).fail(23);
    assert_eq!(counts(&left(&host, "some")), [98, 3, 0]);
    let faults = host.run(["job", "report", "--json", "some"]).fail(23).events_of("job_fault");
    let mut faults: Vec<_> =
        faults.iter().map(|fault| (fault["path"].as_str().unwrap(), fault["given_up"].as_bool().unwrap())).collect();
    faults.sort_by_key(|(path, _)| *path);
    assert_eq!(faults, [("1/01", true), ("2/02", true), ("4/04", true)]);
    assert!(!host.path("to/2/02").exists(), "content that was not planned is not moved");
    host.run(["job", "wait", "some"]).fail(23);

    files::make(host.path("ds/1/01"), 1, 2100);
    assert_eq!(
        host.run(["job", "retry", "some", "--code", "mismatch"]).succeed().stdout_text(),
        "0 files tried again\n"
    );
    fs::remove_dir_all(host.path("to/4/04")).unwrap();
    assert_eq!(
        host.run(["job", "retry", "some", "--code", "in-the-way"]).succeed().stdout_text(),
        "1 file tried again\n"
    );
    host.run(["job", "run", "--drain"]).fail(23);
    assert_eq!(counts(&left(&host, "some")), [99, 2, 0]);
}

#[test]
fn a_campaign_stands_still_while_it_is_held_and_ends_when_it_is_cancelled() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "one", "--shard-files", "30", "ds", "to"]).succeed();
    host.run(["job", "hold", "one"]).fail(2);
    host.run(["job", "plan", "one"]).succeed();
    host.run(["job", "hold", "one"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    assert_eq!(counts(&left(&host, "one")), [0, 0, 101]);
    host.run(["job", "wait", "one"]).fail(23);
    host.run(["job", "release", "one"]).succeed();
    host.run(["job", "wait", "one", "--max-time", "0"]).fail(5);
    rusqlite::Connection::open(queue(&host)).unwrap().execute("UPDATE link SET state = 2", []).unwrap();
    host.run(["job", "wait", "one"]).fail(23);
    host.run(["job", "run", "--drain"]).fail(23);
    host.run(["job", "cancel", "one"]).succeed();
    let left = left(&host, "one");
    assert_eq!((counts(&left), &left["cancelled"]["files"]), ([0, 0, 0], &101.into()));
    host.run(["job", "wait", "one"]).fail(23);
    let listed = host.run(["job", "ls"]).succeed();
    assert!(listed.stdout_text().lines().nth(1).unwrap().starts_with("one       cancelled"), "{listed}");
    host.run(["job", "show", "none"]).fail(3);
}

#[test]
fn a_shard_whose_files_all_fail_alike_is_held_and_none_of_them_is_given_up() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "gone", "ds", "to"]).succeed();
    host.run(["job", "plan", "gone"]).succeed();
    fs::rename(host.path("ds"), host.path("away")).unwrap();
    let outcome = host.run(["job", "run", "--drain"]).fail(23);
    assert!(outcome.stderr.contains("job release"), "{outcome}");
    let figures = left(&host, "gone");
    assert_eq!((counts(&figures), &figures["held"]["files"]), ([0, 0, 101], &101.into()));
    let held = host.run(["job", "show", "--json", "gone"]).succeed().events_of("job_held");
    assert!(held[0]["reason"].as_str().unwrap().contains("not-found"), "{held:?}");
    host.run(["job", "wait", "gone"]).fail(23);
    fs::rename(host.path("away"), host.path("ds")).unwrap();
    host.run(["job", "release", "gone"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    assert_eq!(counts(&left(&host, "gone")), [101, 0, 0]);
}

#[test]
fn a_mover_that_is_stopped_hands_its_shard_back_at_once() {
    let host = Host::new();
    files::make(host.path("ds/large"), 1, 8 << 20);
    host.run(["job", "add", "--name", "slow", "--rate", "1MiB/s", "ds", "to"]).succeed();
    host.run(["job", "plan", "slow"]).succeed();
    let running = host.run(["job", "run", "--json"]).start();
    running.wait_event(|event| (event["state"] == "claimed").then_some(()));
    running.signal(Signal::TERM);
    let outcome = running.fail(143);
    let shards = outcome.events_of("job_shard");
    assert_eq!(shards.last().unwrap()["state"], "planned", "{outcome}");
    assert_eq!(outcome.summary()["status"], "terminated");
}

#[test]
fn a_queue_of_a_newer_program_or_at_another_place_is_refused_clearly() {
    let host = Host::new();
    files::make(host.path("ds/file"), 1, 10);
    host.run(["job", "ls"]).fail(3);
    host.run(["job", "add", "--name", "a", "ds", "to"]).succeed();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(queue(&host)).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let refused = host.run(["job", "ls", "--queue", "postgres://host/db"]).fail(2);
    assert!(refused.stderr.contains("names no user"), "{refused}");
    for (option, value) in [("--weight", "0"), ("--priority", "10"), ("--calendar", "nights"), ("--deadline", "soon")] {
        let refused = host.run(["job", "add", option, value, "ds", "to"]).fail(2);
        assert!(refused.stderr.contains(option), "{refused}");
    }
    host.run(["job", "add", "nothing", "to"]).fail(3);
    rusqlite::Connection::open(queue(&host)).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = host.run(["job", "ls"]).fail(2);
    assert!(refused.stderr.contains("version 99") && refused.stderr.contains("newer program"), "{refused}");
}

#[test]
fn lists_for_movers_without_a_queue_have_each_file_once() {
    let host = Host::new();
    plant(&host.path("ds"));
    let parts = host.run(["job", "plan", "--shards", "7", "--out", "parts", "ds", "--json"]).succeed();
    assert_eq!(parts.events_of("job_part").len(), 7, "{parts}");
    for number in 1..=7 {
        let part = format!("parts/part-{number}");
        host.run(["copy", "--files-from", &part, "--from0", "ds/", "to"]).succeed();
    }
    tree::assert_same(&Tree::of(host.path("ds")), &Tree::of(host.path("to")), "what was copied");
    let names = |part: u32| fs::read(host.path(format!("parts/part-{part}"))).unwrap();
    let all: usize = (1..=7).map(|part| names(part).iter().filter(|byte| **byte == 0).count()).sum();
    assert_eq!(all, 101);
    let again = host.run(["job", "plan", "--shards", "2", "--out", "parts", "to"]).fail(2);
    assert!(again.stderr.contains("is not empty"), "{again}");
}

/// Puts a file beneath so many directories that its path is longer than one may be, and gives the
/// first of them.
pub(crate) fn plant_too_deep(top: &Path) -> PathBuf {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let name = "d".repeat(220);
    let mut at = openat(CWD, top, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..20 {
        mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
        at = openat(&at, name.as_str(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    top.join(name)
}

#[test]
fn a_campaign_keeps_the_keys_that_it_was_added_with_and_refuses_what_no_campaign_has() {
    let site = Site::new();
    let host = &site.client;
    files::make(host.path("ds/f"), 1, 10);
    let key = host.config("identity");
    fs::rename(&key, host.path("elsewhere")).unwrap();
    for refused in [&["--claim", "x"][..], &["--ssh", "ssh -p 22"]] {
        host.run(["job", "add", "ds", &site.url("in")]).args(refused).fail(2);
    }
    let add = ["job", "add", "--name", "a", "--identity", "elsewhere", "ds", &site.url("in")];
    host.run(add).succeed();
    host.run(["job", "plan", "a"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    assert!(site.root().join("in/ds/f").exists());
    assert!(!key.exists(), "no other key was made");
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    let spec: Vec<u8> = rows.query_row("SELECT spec FROM campaign", [], |row| row.get(0)).unwrap();
    assert!(String::from_utf8(spec).unwrap().contains(host.path("elsewhere").to_str().unwrap()));
    let add = ["job", "add", "--name", "b", "--identity", "elsewhere", "ds", &site.url("in")];
    host.run(add).succeed();
    host.run(["job", "plan", "b"]).succeed();
    fs::remove_file(host.path("elsewhere")).unwrap();
    let missing = host.run(add).fail(2);
    assert!(missing.stderr.contains("elsewhere"), "{missing}");
    let missing = host.run(["job", "run", "--drain"]).fail(3);
    assert!(missing.stderr.contains("elsewhere") && !host.path("elsewhere").exists(), "{missing}");
}

#[test]
fn names_that_cannot_be_read_while_planning_are_kept_and_the_campaign_is_incomplete() {
    let host = Host::new();
    plant(&host.path("ds"));
    plant_too_deep(&host.path("ds"));
    host.run(["job", "add", "--name", "deep", "ds", "to"]).succeed();
    let planned = host.run(["job", "plan", "--json", "deep"]).fail(23);
    assert_eq!(planned.events_of("job_planned")[0]["omitted"], 1, "{planned}");
    host.run(["job", "run", "--drain"]).fail(23);
    let left = left(&host, "deep");
    assert_eq!((counts(&left), &left["omitted"], &left["state"]), ([101, 0, 0], &1.into(), &"done".into()));
    host.run(["job", "wait", "deep"]).fail(23);
    let report = host.run(["job", "report", "--json", "deep"]).fail(23);
    let names = report.events_of("job_omitted");
    assert!(names.len() == 1 && names[0]["object"].as_str().unwrap().contains("ddd"), "{report}");
    let shown = host.run(["job", "show", "deep"]).succeed();
    assert!(shown.stdout_text().contains("1 name that could not be read"), "{shown}");
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A copy of a host's queue with its manifests, as a restored backup or a second state directory
/// has it.
fn copied_queue(host: &Host) -> PathBuf {
    let copy = host.path("copy.db");
    fs::copy(queue(host), &copy).unwrap();
    copy_dir(&host.path(".local/state/longhaul/queue.db.manifests"), &host.path("copy.db.manifests"));
    fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    copy
}

#[test]
fn two_queues_with_one_campaign_publish_each_file_once_and_the_mover_that_was_overtaken_fails_none() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    // The shard is still under way when its other files stand.
    files::make(host.path("ds/z/large"), 7, 1 << 20);
    host.run(["job", "add", "--name", "all", "--rate", "256KiB/s", "ds", &site.url("in")]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    let copy = copied_queue(host);
    let mover = |queue: &Path| host.run(["job", "run", "--json", "--drain", "--queue"]).arg(queue);

    let first = mover(&queue(host)).start();
    first.wait_event(|event| (event["state"] == "claimed").then_some(()));
    let stood = wait_for_more_than(20, &site.root().join("in/ds"));
    let second = mover(&copy).start();
    let first = first.fail(23);
    let ends = first.events_of("job_shard");
    let end = ends.last().unwrap();
    assert_eq!((&end["state"], &end["files_failed"], &end["fence"]), (&"held".into(), &0.into(), &1.into()), "{first}");
    assert_eq!(first.events_of("fault").last().unwrap()["code"], "superseded", "{first}");
    let second = second.finish();
    assert_eq!(second.code, 0, "{second}");
    let end = second.events_of("job_shard").pop().unwrap();
    assert_eq!(
        (&end["state"], &end["fence"], &end["unclaimed"]),
        (&"done".into(), &2.into(), &false.into()),
        "{second}"
    );
    tree::assert_same(&Tree::of(host.path("ds")), &Tree::of(site.root().join("in/ds")), "what was moved");
    let large = fs::symlink_metadata(site.root().join("in/ds/z/large")).unwrap().ino();

    let held = host.run(["job", "show", "--json", "all"]).succeed().events_of("job_held");
    assert!(held[0]["reason"].as_str().unwrap().contains("another queue") && held[0]["fence"] == 1, "{held:?}");
    host.run(["job", "release", "all"]).succeed();
    let again = mover(&queue(host)).succeed();
    assert_eq!(again.events_of("job_shard").pop().unwrap()["fence"], 3, "{again}");
    assert_eq!(counts(&left(host, "all")), [102, 0, 0]);
    for (path, inode) in stood.into_iter().chain([(site.root().join("in/ds/z/large"), large)]) {
        assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), inode, "{} was published again", path.display());
    }
}

/// Stops a mover for a while, at a moment at which it does not hold the queue's file.
fn put_to_sleep(mover: &Running, host: &Host) {
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    rows.busy_timeout(Duration::ZERO).unwrap();
    let is_asleep = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", mover.pid().as_raw_nonzero())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    loop {
        mover.signal(Signal::STOP);
        while !is_asleep() {
            std::thread::yield_now();
        }
        if rows.execute_batch("BEGIN IMMEDIATE; COMMIT").is_ok() {
            return;
        }
        mover.signal(Signal::CONT);
    }
}

#[test]
fn a_mover_that_slept_while_its_shard_was_given_to_another_one_publishes_nothing_more_of_it() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    files::make(host.path("ds/z/large"), 7, 1 << 20);
    host.run(["job", "add", "--name", "all", "--rate", "256KiB/s", "ds", &site.url("in")]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    let mover = || host.run(["job", "run", "--json", "--drain"]);
    let asleep = mover().start();
    wait_for_more_than(20, &site.root().join("in/ds"));
    put_to_sleep(&asleep, host);
    lapse(host);
    let other = mover().succeed();
    let end = other.events_of("job_shard").pop().unwrap();
    assert_eq!((&end["state"], &end["fence"]), (&"done".into(), &2.into()), "{other}");
    let stood = Tree::of(site.root().join("in/ds"));
    asleep.signal(Signal::CONT);
    let woken = asleep.finish();
    let end = woken.events_of("job_shard").pop().unwrap();
    assert_eq!((&end["state"], &end["files_failed"]), (&"gone".into(), &0.into()), "{woken}");
    assert!(woken.events_of("fault").iter().any(|fault| fault["code"] == "superseded"), "{woken}");
    assert_eq!((woken.code, counts(&left(host, "all"))), (0, [102, 0, 0]), "{woken}");
    tree::assert_same(&stood, &Tree::of(site.root().join("in/ds")), "what stood when the mover woke");
}

#[test]
fn a_host_that_has_lost_what_it_needs_holds_no_shard_and_leaves_the_others_to_hosts_that_are_well() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "all", "--shard-files", "10", "ds", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    fs::rename(host.path(".local/state/longhaul/queue.db.manifests"), host.path("away")).unwrap();
    let ill = host.run(["job", "run", "--json", "--drain", "--max-time", "4s"]).fail(5);
    assert_eq!(ill.events_of("fault").len(), 1, "it pauses for longer than it runs: {ill}");
    assert_eq!(ill.events_of("job_shard").pop().unwrap()["state"], "planned", "{ill}");
    let figures = left(&host, "all");
    assert_eq!((counts(&figures), &figures["held"]["files"]), ([0, 0, 101], &0.into()), "{figures}");
}

#[test]
fn a_destination_that_keeps_no_claims_is_served_without_one_and_that_is_told() {
    let host = Host::new();
    plant(&host.path("ds"));
    let dirs = ["one", "two"].map(|name| host.make_dir(name));
    let config = DaemonConfig::default().set("data", &dirs, "");
    let daemon = config.client("me", host.key(), &[("data", ALL_RIGHTS)]).start(&host);
    host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    host.run(["job", "add", "--name", "set", "--shard-files", "60", "ds", &daemon.url("data/in")]).succeed();
    host.run(["job", "plan", "set"]).succeed();
    let run = host.run(["job", "run", "--json", "--drain"]).succeed();
    let ends: Vec<_> = run.events_of("job_shard").into_iter().filter(|shard| shard["state"] == "done").collect();
    assert!(ends.len() == 2 && ends.iter().all(|end| end["unclaimed"] == true), "{run}");
    assert_eq!(left(&host, "set")["unclaimed"], 2);
    let shown = host.run(["job", "show", "set"]).succeed();
    assert!(shown.stdout_text().contains("2 shards: the destination keeps no claims"), "{shown}");
}
