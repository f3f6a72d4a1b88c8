//! Families of campaigns: one `job add` for several destinations, or for sources at several hosts,
//! and each command for all of them by one name.
//!
//! Takes the datasets and figures of `jobs`, and daemons of its own; gives tests. Must not know the
//! rules of the queue.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::Signal;
use serde_json::Value;

use super::verify::{damage, let_cycle_pass};
use super::{counts, left, plant, plant_too_deep, queue};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Site, files};

/// A host with a dataset, and two daemons that it may send to.
struct Scene {
    client: Host,
    hosts: [Host; 2],
    daemons: [Daemon; 2],
}

impl Scene {
    fn new() -> Scene {
        let client = Host::new();
        plant(&client.path("ds"));
        let hosts = [Host::new(), Host::new()];
        let daemons = hosts.each_ref().map(|host| {
            let config = DaemonConfig::default().root("data", &host.make_dir("data"), ALL_RIGHTS);
            let daemon = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]).start(host);
            client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
            daemon
        });
        Scene { client, hosts, daemons }
    }

    /// A family of `ds` at both daemons, planned.
    fn planned(&self, options: &[&str]) -> Outcome {
        let [to, also] = self.daemons.each_ref().map(|daemon| daemon.url("data/in"));
        let add = self.client.run(["job", "add", "--name", "atlas", "ds", &to, "--also", &also]).args(options);
        assert_eq!(add.succeed().stdout_text(), "atlas/1\natlas/2\n");
        self.client.run(["job", "plan", "atlas"]).succeed()
    }

    fn assert_landed(&self, number: usize) {
        let (there, here) = (self.hosts[number].path("data/in/ds"), self.client.path("ds"));
        tree::assert_same(&Tree::of(here), &Tree::of(there), format!("destination {number}"));
    }
}

/// Names of campaigns in the events of this kind.
fn names(outcome: &Outcome, kind: &str) -> Vec<String> {
    outcome.events_of(kind).iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect()
}

/// The states of all campaigns of a host's queue, in order.
fn states(host: &Host) -> Vec<(String, String)> {
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    let listed = host.run(["job", "ls", "--json"]).succeed().events_of("job_campaign");
    listed.iter().map(|event| (text(event, "name"), text(event, "state"))).collect()
}

/// The names that each list of a campaign's first source has: one that two campaigns share has two.
fn lists(host: &Host) -> Vec<u64> {
    let of_campaigns = fs::read_dir(host.path(".local/state/longhaul/queue.db.manifests")).unwrap();
    of_campaigns.map(|dir| fs::metadata(dir.unwrap().path().join("0/head.lhm")).unwrap().nlink()).collect()
}

/// The last line about what is left of a family: the sum.
fn sum(host: &Host, name: &str) -> String {
    let told = host.run(["job", "left", name]).succeed();
    let last = told.stdout_text().lines().last().unwrap().to_owned();
    assert!(last.starts_with("all        "), "{told}");
    last
}

#[test]
fn each_file_comes_once_to_each_destination_from_one_list_and_the_sum_is_exact() {
    let scene = Scene::new();
    let host = &scene.client;
    let planned = scene.planned(&["--shard-files", "40"]);
    for line in ["atlas/1: 101 files, ", "atlas/2: 101 files, "] {
        assert!(planned.stdout_text().contains(line), "{planned}");
    }
    assert_eq!(lists(host), [2, 2], "the source was listed once, and both have the list");

    let told = host.run(["job", "left", "--json", "atlas"]).succeed();
    assert_eq!(names(&told, "job_left"), ["atlas/1", "atlas/2"]);
    let line = sum(host, "atlas");
    assert!(line.contains("2 campaigns, 202 files") && line.contains("left 202 files"), "{line}");
    let ran = host.run(["job", "run", "atlas", "--drain", "--json"]).succeed();
    let done = ran.events_of("job_shard").into_iter().filter(|shard| shard["state"] == "done");
    let moved: u64 = done.map(|shard| shard["files"].as_u64().unwrap()).sum();
    assert_eq!(moved, 202, "each file once for each destination: {ran}");
    (0..2).for_each(|number| scene.assert_landed(number));
    let line = sum(host, "atlas");
    assert!(line.contains("done 202 files") && line.contains("left 0 files"), "{line}");
    assert_eq!(names(&host.run(["job", "wait", "--json", "atlas"]).succeed(), "job_left"), ["atlas/1", "atlas/2"]);
    assert_eq!(names(&host.run(["job", "watch", "--json", "atlas"]).succeed(), "job_left"), ["atlas/1", "atlas/2"]);
    assert_eq!(names(&host.run(["job", "show", "--json", "atlas"]).succeed(), "job_campaign"), ["atlas/1", "atlas/2"]);
    host.run(["job", "report", "atlas"]).succeed();
    assert_eq!(counts(&left(host, "atlas/2")), [101, 0, 0]);
    host.run(["job", "plan", "atlas"]).fail(2);
}

#[test]
fn a_destination_that_is_away_holds_the_other_one_not_up() {
    let scene = Scene::new();
    let host = &scene.client;
    scene.planned(&["--retry-for", "0"]);
    scene.daemons[1].kill();
    let mover = host.run(["job", "run", "atlas", "--movers", "2", "--json"]).start();
    mover.wait_event(|event| (event["name"] == "atlas/1" && event["state"] == "done").then_some(()));
    host.run(["job", "wait", "atlas/1", "--max-time", "1m"]).succeed();
    host.run(["job", "wait", "atlas", "--max-time", "0"]).fail(5);
    mover.signal(Signal::TERM);
    mover.fail(143);
    scene.assert_landed(0);
    assert_eq!((counts(&left(host, "atlas/1")), counts(&left(host, "atlas/2"))), ([101, 0, 0], [0, 0, 101]));
    let line = sum(host, "atlas");
    assert!(line.contains("done 101 files") && line.contains("given up 0 files"), "{line}");
    assert!(line.contains("left 101 files"), "{line}");
}

#[test]
fn a_family_is_held_released_and_cancelled_together_and_what_is_over_is_passed_over() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "two", "ds", "one", "--also", "other"]).succeed();
    // Neither of them is planned.
    let refused = host.run(["job", "hold", "two"]).fail(2);
    assert!(refused.stderr.contains("two/1: ") && refused.stderr.contains("two/2: "), "{refused}");
    host.run(["job", "plan", "two/1"]).succeed();
    host.run(["job", "plan", "two"]).succeed();
    assert_eq!(names(&host.run(["job", "hold", "--json", "two"]).succeed(), "job_campaign"), ["two/1", "two/2"]);
    host.run(["job", "run", "--drain"]).succeed();
    assert_eq!((counts(&left(&host, "two/1")), host.path("one").exists()), ([0, 0, 101], false));
    host.run(["job", "release", "two"]).succeed();
    host.run(["job", "cancel", "two/1"]).succeed();
    let passed = host.run(["job", "retry", "two"]).succeed();
    assert!(passed.stderr.contains("two/1 is cancelled, and"), "{passed}");
    let passed = host.run(["job", "hold", "two"]).succeed();
    assert!(passed.stderr.contains("two/1 is cancelled already"), "{passed}");
    host.run(["job", "release", "two"]).succeed();
    host.run(["job", "run", "two", "--drain"]).fail(23);
    assert_eq!((counts(&left(&host, "two/2")), host.path("one").exists()), ([101, 0, 0], false));
    host.run(["job", "wait", "two/2"]).succeed();
    host.run(["job", "wait", "two"]).fail(23);
    host.run(["job", "report", "two"]).fail(23);
    let line = sum(&host, "two");
    assert!(line.contains("done 101 files") && line.contains("cancelled 101 files"), "{line}");
    // Both are over, so that each says what it says alone.
    let over = host.run(["job", "cancel", "two"]).fail(2);
    assert!(over.stderr.contains("two/2: "), "{over}");
    assert_eq!(host.run(["job", "retry", "two/2"]).succeed().stdout_text(), "0 files tried again\n");
}

#[test]
fn a_name_is_that_of_one_campaign_or_of_one_family() {
    let host = Host::new();
    plant(&host.path("ds"));
    let add = |name: &str, dests: &[&str]| {
        let also = dests[1..].iter().flat_map(|dest| ["--also", dest]);
        host.run(["job", "add", "--name", name, "ds", dests[0]]).args(also)
    };
    add("a", &["to", "also"]).succeed();
    for again in [add("a", &["to", "also"]), add("a", &["to"])] {
        let refused = again.fail(2);
        assert!(refused.stderr.contains("a family of campaigns named 'a' already"), "{refused}");
    }
    add("b", &["to"]).succeed();
    let refused = add("b", &["to", "also"]).fail(2);
    assert!(refused.stderr.contains("a campaign named 'b' already"), "{refused}");
    let refused = add("a/3", &["to"]).fail(2);
    assert!(refused.stderr.contains("in the family 'a'"), "{refused}");
    let refused = add("2026", &["to", "also"]).fail(2);
    assert!(refused.stderr.contains("reads as the number"), "{refused}");
    // Numbers at the end of names that are alike make no family.
    add("c/1", &["to"]).succeed();
    add("c/2", &["to"]).succeed();
    host.run(["job", "cancel", "c"]).fail(3);
    let want = ["a/1", "a/2", "b", "c/1", "c/2"].map(|name| (name.to_owned(), "planning".to_owned()));
    assert_eq!(states(&host), want);
    let shown = host.run(["job", "show", "--json", "b"]).succeed().events_of("job_campaign");
    let number = shown[0]["campaign"].to_string();
    assert_eq!(names(&host.run(["job", "show", "--json", &number]).succeed(), "job_campaign"), ["b"]);
    // A queue of an older program may have such names.
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    rows.execute("UPDATE campaign SET name = 'a' WHERE name = 'b'", []).unwrap();
    for verb in ["cancel", "show"] {
        let refused = host.run(["job", verb, "a"]).fail(2);
        assert!(refused.stderr.contains("and of a family of campaigns up to 'a/2'"), "{refused}");
    }
    assert_eq!(names(&host.run(["job", "show", "--json", &number]).succeed(), "job_campaign"), ["a"]);
    assert_eq!(
        states(&host),
        [("a/1", "planning"), ("a/2", "planning"), ("a", "planning"), ("c/1", "planning"), ("c/2", "planning")]
            .map(|(name, state)| (name.to_owned(), state.to_owned())),
        "nothing was cancelled"
    );
}

#[test]
fn one_destination_that_cannot_be_adds_nothing_and_is_named() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.make_dir("two/run-7");
    let add = |options: &[&str]| host.run(["job", "add", "--name", "x", "ds", "one"]).args(options);
    for (options, exit, said) in [
        (&["--also", "two", "--as-dataset", "run-7"][..], 23, "/two: "),
        (&["--also", "host:two"], 2, "over ssh"),
        (&["--also", "lh://other.example/data/two", "--dialler", "source"], 2, "/one: "),
        (&["--also", "two", "--also", "./two"], 2, "named twice"),
        (&["--also", "one/"], 2, "named twice"),
        (
            &["--also", "lh://a.example/d", "--also", "lh://b.example/d", "--peer-key", host.key()],
            2,
            "several are named",
        ),
    ] {
        let refused = add(options).fail(exit);
        assert!(refused.stderr.contains(said), "{options:?}: {refused}");
    }
    host.run(["job", "ls"]).fail(3);
    add(&["--also", "two", "--as-dataset", "run-8"]).succeed();
    host.run(["job", "plan", "x"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    for dest in ["one", "two"] {
        tree::assert_same(&Tree::of(host.path("ds")), &Tree::of(host.path(dest).join("run-8/ds")), dest);
    }
}

#[test]
fn what_the_queue_refuses_for_one_destination_adds_nothing() {
    let host = Host::new();
    plant(&host.path("ds"));
    // The tenth member's name is longer by a byte, and so too long.
    let name = "x".repeat(253);
    let add = |count: usize| {
        let also: Vec<_> = (1..count).flat_map(|number| ["--also".to_owned(), format!("d{number}")]).collect();
        host.run(["job", "add", "--name", &name, "ds", "d0"]).args(also)
    };
    add(10).fail(2);
    assert!(states(&host).is_empty(), "none of the nine before it");
    add(9).succeed();
    assert_eq!(states(&host).len(), 9);
}

#[test]
fn a_member_that_is_not_what_its_owner_signed_keeps_no_other_from_being_planned() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "x", "ds", "one", "--also", "two", "--also", "three"]).succeed();
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    rows.execute("UPDATE campaign SET hooks = 'mail:fault' WHERE name = 'x/1'", []).unwrap();
    let refused = host.run(["job", "plan", "x", "--json"]).fail(4);
    assert!(refused.to_string().contains("x/1: "), "{refused}");
    assert_eq!(names(&refused, "job_planned"), ["x/2", "x/3"], "{refused}");
}

#[test]
fn a_file_that_fits_the_time_of_a_run_fails_in_no_member_as_others_used_it() {
    let host = Host::new();
    files::make(host.path("ds/f"), 1, 640 << 10);
    host.run(["job", "add", "--name", "two", "ds", "one", "--also", "other"]).succeed();
    host.run(["job", "plan", "two"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    // Each file takes 2.5 s of these 4 s.
    let slowly = ["job", "verify", "two", "--once", "--json", "--budget", "256KiB/s", "--max-time", "4s"];
    let told = host.run(slowly).succeed();
    assert_eq!(names(&told, "job_verify"), ["two/1", "two/2"], "{told}");
}

#[test]
fn sources_at_this_host_and_at_a_daemon_are_a_campaign_each_and_one_family() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("here"));
    plant(&site.root().join("there"));
    let add = |more: &[&str]| host.run(["job", "add", "--name", "mix", "here", &site.url("there"), "to"]).args(more);
    let clash = host.run(["job", "add", "--name", "mix", "here", &site.url("here"), "to"]).fail(2);
    assert!(clash.stderr.contains("the same names"), "{clash}");
    let refused = add(&["--as-dataset", "run-7"]).fail(2);
    assert!(refused.stderr.contains("sources at several hosts"), "{refused}");
    let added = add(&["--json"]).succeed();
    assert_eq!(names(&added, "job_campaign"), ["mix/1", "mix/2"]);
    let from: Vec<_> = added.events_of("job_campaign").iter().map(|event| event["from"].clone()).collect();
    assert!(from[0].to_string().contains("/here\"") && from[1].to_string().contains("/there\""), "{from:?}");
    host.run(["job", "plan", "mix"]).succeed();
    host.run(["job", "run", "mix", "--drain"]).succeed();
    // The claims of a campaign lie at its destination, beside what came.
    for (from, to) in [(host.path("here"), "to/here"), (site.root().join("there"), "to/there")] {
        for name in fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().file_name()) {
            let came = host.path(to).join(&name);
            tree::assert_same(&Tree::of(from.join(&name)), &Tree::of(came), format_args!("{to}/{}", name.display()));
        }
    }
    host.run(["job", "wait", "mix"]).succeed();
}

#[test]
fn names_that_could_not_be_read_are_told_of_each_campaign_that_takes_the_list() {
    let host = Host::new();
    plant(&host.path("ds"));
    plant_too_deep(&host.path("ds"));
    host.run(["job", "add", "--name", "deep", "ds", "one", "--also", "two"]).succeed();
    let planned = host.run(["job", "plan", "--json", "deep"]).fail(23);
    let omitted: Vec<_> = planned.events_of("job_planned").iter().map(|event| event["omitted"].clone()).collect();
    assert_eq!(omitted, [1, 1], "{planned}");
    for name in ["deep/1", "deep/2"] {
        let report = host.run(["job", "report", "--json", name]).fail(23).events_of("job_omitted");
        assert!(report.len() == 1 && report[0]["object"].as_str().unwrap().contains("ddd"), "{name}: {report:?}");
    }
}

#[test]
fn a_list_is_taken_of_what_the_same_owner_signed_alone_and_also_by_a_later_planner() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "x", "ds", "one", "--also", "two", "--also", "three"]).succeed();
    host.run(["job", "plan", "x/1"]).succeed();
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    rows.execute("UPDATE campaign SET hooks = 'mail:fault' WHERE name = 'x/1'", []).unwrap();
    host.run(["job", "plan", "x/2"]).succeed();
    assert_eq!(lists(&host), [1, 1], "the first one is not what its owner signed");
    fs::remove_dir_all(host.path("ds")).unwrap();
    let taken = host.run(["job", "plan", "x"]).succeed();
    assert!(taken.stderr.contains("x/3 takes the list of") && taken.stderr.contains("from x/2"), "{taken}");
    assert_eq!(counts(&left(&host, "x/3")), [0, 0, 101]);
    let mut names = lists(&host);
    names.sort_unstable();
    assert_eq!(names, [1, 2, 2]);
}

#[test]
fn the_campaigns_of_a_family_are_verified_one_after_the_other_and_the_worst_decides() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "two", "ds", "one", "--also", "other"]).succeed();
    host.run(["job", "plan", "two"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    host.run(["job", "verify", "two"]).fail(2);
    host.run(["job", "verify", "two", "--once", "--at", "one"]).fail(2);
    let well = host.run(["job", "verify", "two", "--once", "--json"]).succeed();
    assert_eq!(names(&well, "job_verify"), ["two/1", "two/2"]);
    fs::remove_file(host.path("one/ds/0/07")).unwrap();
    damage(&host, "other/ds/0/07");
    let_cycle_pass(&host);
    let bad = host.run(["job", "verify", "two", "--once", "--json"]).fail(6);
    assert_eq!(names(&bad, "job_verify"), ["two/1", "two/2"], "{bad}");
    // What is known is told of each, also if there is no time to read.
    let_cycle_pass(&host);
    let known = host.run(["job", "verify", "two", "--once", "--json", "--max-time", "0"]).fail(6);
    assert_eq!(names(&known, "job_verify"), ["two/1", "two/2"], "{known}");
    let mut kinds: Vec<_> = bad.events_of("job_bad_file").iter().map(|event| event["kind"].to_string()).collect();
    kinds.sort();
    assert_eq!(kinds, ["\"damaged\"", "\"lost\""], "{bad}");
}
