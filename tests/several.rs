//! One source for several destinations (`--also`): each gets every byte, the source is read once,
//! and none waits for one that is slow, stands still, dies or is refused.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Run, files};

const MIB: usize = 1 << 20;

/// A client, and daemons that it may send to.
struct Scene {
    client: Host,
    hosts: Vec<Host>,
    daemons: Vec<Daemon>,
}

impl Scene {
    /// A scene whose daemons have these lines about the client.
    fn with(lines: &[&str]) -> Scene {
        let client = Host::new();
        let hosts: Vec<Host> = lines.iter().map(|_| Host::new()).collect();
        let start = |(host, line): (&Host, &&str)| {
            let config = DaemonConfig::default().root("data", &host.make_dir("data"), ALL_RIGHTS);
            let config = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]).client_line(line);
            let daemon = config.start(host);
            client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
            daemon
        };
        let daemons = hosts.iter().zip(lines).map(start).collect();
        Scene { client, hosts, daemons }
    }

    fn new() -> Scene {
        Scene::with(&["", "", ""])
    }

    /// Pushes `t` to all daemons.
    fn push(&self, options: &[&str]) -> Run {
        let dests: Vec<String> = self.daemons.iter().map(|daemon| daemon.url("data/")).collect();
        let also = dests[1..].iter().flat_map(|dest| ["--also", dest]);
        self.client.run(["push", "--json"]).args(options).args(["t", &dests[0]]).args(also)
    }

    fn landed(&self, number: usize) -> Tree {
        Tree::of(self.hosts[number].path("data/t"))
    }

    fn source(&self) -> Tree {
        Tree::of(self.client.path("t"))
    }

    /// A tree with a large file, and many small ones. Gives its bytes.
    fn make_tree(&self) -> u64 {
        let top = self.client.path("t");
        files::make(top.join("large"), 99, 40 * MIB + 7);
        for n in 0..3000 {
            files::make(top.join(format!("d{}/small-{n}", n % 7)), n, 4096);
        }
        files::make(top.join("medium"), 98, MIB / 2);
        files::link("large", top.join("link"));
        (40 * MIB + 7 + 3000 * 4096 + MIB / 2) as u64
    }

    fn dest(&self, number: usize) -> String {
        self.daemons[number].url("data/")
    }
}

/// The summary of a destination.
fn summary(outcome: &Outcome, dest: &str) -> Value {
    let mut of_it = outcome.events_of("summary").into_iter().filter(|event| event["dest"] == dest);
    let found = of_it.next().unwrap_or_else(|| panic!("no summary of {dest}: {outcome}"));
    assert!(of_it.next().is_none(), "two summaries of {dest}: {outcome}");
    found
}

fn deliveries(outcome: &Outcome) -> Value {
    let found = outcome.events_of("deliveries");
    assert_eq!(found.len(), 1, "{outcome}");
    assert_eq!(found[0]["exit"], outcome.code, "{outcome}");
    found[0].clone()
}

/// The bytes that `pread64` calls on files beneath `dir` gave, by the logs of strace in `logs`, of
/// which each thread has one.
fn bytes_read(logs: &Path, dir: &Path) -> u64 {
    let beneath = format!("<{}/", dir.display());
    let of_thread = |log: fs::DirEntry| -> u64 {
        let trace = fs::read_to_string(log.path()).unwrap();
        let reads = trace.lines().filter(|line| line.starts_with("pread64(") && line.contains(&beneath));
        reads.filter_map(|line| line.rsplit_once(" = ")?.1.split(' ').next()?.parse::<u64>().ok()).sum()
    };
    fs::read_dir(logs).unwrap().map(|log| of_thread(log.unwrap())).sum()
}

#[test]
fn the_source_is_read_once_and_each_destination_gets_every_byte() {
    let scene = Scene::new();
    let bytes = scene.make_tree();
    let logs = scene.client.make_dir("traces");
    let log = logs.join("thread");
    let strace = ["strace", "-ff", "-y", "-s", "4", "-e", "trace=pread64", "-o", log.to_str().unwrap()];
    let outcome = scene.push(&["--engine", "threads", "--io", "buffered"]).beneath(strace).succeed();
    for number in 0..3 {
        tree::assert_same(&scene.source(), &scene.landed(number), format!("destination {number}: {outcome}"));
        let summary = summary(&outcome, &scene.dest(number));
        assert_eq!((&summary["exit"], &summary["files_failed"]), (&0.into(), &0.into()), "{outcome}");
    }
    let told = deliveries(&outcome);
    assert_eq!((&told["destinations"], &told["complete"]), (&3.into(), &3.into()), "{outcome}");
    // Small files may be said unasked, and read again if that came too late.
    let taken = told["bytes_taken"].as_u64().unwrap();
    assert!(taken >= 3 * bytes && taken <= 3 * (bytes + MIB as u64), "{taken}: {outcome}");
    let counted = bytes_read(&logs, &scene.client.path("t"));
    // Three readings would be three times as much. A thread that is not run for a moment may read a
    // block again.
    assert!(counted >= bytes && counted <= bytes + bytes / 5, "{counted} of {bytes} bytes were read\n{told}");
    assert_eq!(outcome.events().last().map(|event| event["type"].clone()), Some("summary".into()), "{outcome}");
    let nameless =
        outcome.events().into_iter().filter(|event| event["type"] != "deliveries" && event["dest"].is_null());
    assert_eq!(nameless.count(), 0, "each event names its destination: {outcome}");
}

#[test]
fn one_that_has_it_already_and_one_that_has_a_part_take_no_more_than_they_want() {
    let scene = Scene::new();
    scene.make_tree();
    scene.client.run(["push", "--json", "t", &scene.dest(0)]).succeed();
    scene.client.run(["push", "--json", "--exclude", "d1/", "t", &scene.dest(1)]).succeed();
    let outcome = scene.push(&[]).succeed();
    for number in 0..3 {
        tree::assert_same(&scene.source(), &scene.landed(number), format!("destination {number}: {outcome}"));
    }
    assert_eq!(summary(&outcome, &scene.dest(0))["files_committed"], 0, "{outcome}");
    assert_eq!(summary(&outcome, &scene.dest(1))["files_committed"], 429, "{outcome}");
    assert_eq!(deliveries(&outcome)["complete"], 3, "{outcome}");
}

#[test]
fn a_local_directory_may_be_among_the_destinations() {
    let scene = Scene::with(&[""]);
    scene.make_tree();
    let also = scene.client.make_dir("here");
    let run = scene.client.run(["copy", "--json", "t", &scene.dest(0), "--also"]);
    let outcome = run.arg(&also).succeed();
    tree::assert_same(&scene.source(), &scene.landed(0), &outcome);
    tree::assert_same(&scene.source(), &Tree::of(also.join("t")), &outcome);
}

#[test]
fn one_that_dies_on_the_way_does_not_keep_the_others_and_the_exit_says_so() {
    let scene = Scene::new();
    files::make(scene.client.path("t/large"), 5, 160 * MIB);
    let running = scene.push(&["--retry-for", "0"]).start();
    running.wait_event(|event| {
        let is_on_its_way = event["type"] == "start" && event["dest"] == scene.dest(2);
        is_on_its_way.then_some(())
    });
    scene.daemons[2].kill();
    let outcome = running.fail(5);
    for number in 0..2 {
        tree::assert_same(&scene.source(), &scene.landed(number), format!("destination {number}: {outcome}"));
        assert_eq!(summary(&outcome, &scene.dest(number))["exit"], 0, "{outcome}");
    }
    assert_eq!(summary(&outcome, &scene.dest(2))["exit"], 5, "{outcome}");
    assert_eq!(deliveries(&outcome)["complete"], 2, "{outcome}");
    let failed = format!("[{}] error:", scene.dest(2));
    assert!(outcome.stderr.contains(&failed), "{outcome}");
}

#[test]
fn one_that_stands_still_does_not_keep_the_others_and_goes_on_later() {
    let scene = Scene::new();
    files::make(scene.client.path("t/large"), 5, 120 * MIB);
    let running = scene.push(&["--memory", "96MiB"]).start();
    running.wait_event(|event| (event["type"] == "start" && event["dest"] == scene.dest(2)).then_some(()));
    scene.daemons[2].signal(Signal::STOP);
    for number in 0..2 {
        let is_done = |event: &Value| {
            event["type"] == "file" && event["status"] == "committed" && event["dest"] == scene.dest(number)
        };
        running.wait_event(|event| is_done(event).then_some(()));
    }
    scene.daemons[2].signal(Signal::CONT);
    let outcome = running.fail(0);
    for number in 0..3 {
        tree::assert_same(&scene.source(), &scene.landed(number), format!("destination {number}: {outcome}"));
    }
}

#[test]
fn one_that_is_slow_reads_for_itself_before_long_and_the_others_go_on() {
    let scene = Scene::with(&["", "", "rate = '8MB/s'"]);
    files::make(scene.client.path("t/large"), 5, 120 * MIB);
    // A small place: without an end to waiting, the fast ones would be 16 MiB ahead and no more.
    let outcome = scene.push(&["--memory", "96MiB"]).succeed();
    let seconds = |number| summary(&outcome, &scene.dest(number))["seconds"].as_f64().unwrap();
    for number in 0..3 {
        tree::assert_same(&scene.source(), &scene.landed(number), format!("destination {number}: {outcome}"));
    }
    for number in 0..2 {
        assert!(seconds(number) < 0.75 * seconds(2), "{} s and {} s: {outcome}", seconds(number), seconds(2));
    }
}

#[test]
fn one_that_is_refused_at_the_start_does_not_keep_the_others() {
    let scene = Scene::with(&["", "", ""]);
    scene.make_tree();
    let (good, other) = (scene.dest(0), scene.dest(1));
    let refused = scene.daemons[2].url("no-such-root/");
    let run = scene.client.run(["push", "--json", "t", &refused, "--also", &good, "--also", &other]);
    let outcome = run.finish();
    assert_eq!(summary(&outcome, &refused)["exit"], outcome.code, "{outcome}");
    assert_ne!(outcome.code, 0, "{outcome}");
    for number in 0..2 {
        tree::assert_same(&scene.source(), &scene.landed(number), &outcome);
        assert_eq!(summary(&outcome, &scene.dest(number))["exit"], 0, "{outcome}");
    }
}

#[test]
fn an_interrupt_ends_all() {
    let scene = Scene::with(&["", ""]);
    files::make(scene.client.path("t/large"), 5, 64 * MIB);
    let running = scene.push(&["--rate", "2MB/s"]).start();
    for number in 0..2 {
        running.wait_event(|event| (event["type"] == "progress" && event["dest"] == scene.dest(number)).then_some(()));
    }
    running.signal(Signal::INT);
    let outcome = running.fail(130);
    for number in 0..2 {
        assert_eq!(summary(&outcome, &scene.dest(number))["exit"], 130, "{outcome}");
    }
}

#[test]
fn what_makes_no_sense_with_several_destinations_is_refused_and_nothing_is_moved() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let before = Tree::of(host.dir());
    let cases: &[(&[&str], &str)] = &[
        (&["pull", "lh://h/data/f", "g", "--also", "i"], "pull fetches to one destination"),
        (&["copy", "lh://a/data/f", "lh://b/data/", "--also", "lh://c/data/"], "a source is at another"),
        (&["copy", "lh://a/data/f", "g", "--also", "i"], "a source is at another"),
        (&["push", "-", "lh://h/data/f", "--also", "lh://i/data/f"], "a stream is read once"),
        (&["push", "--from-command", "true", "lh://h/data/f", "--also", "lh://i/data/f"], "a stream is read once"),
        (&["copy", "f", "g", "--also", "-"], "a stream is the only destination"),
        (&["copy", "--manifest", "m", "f", "g", "--also", "i"], "--manifest"),
        (&["copy", "--detach", "f", "lh://h/data/", "--also", "lh://i/data/"], "--detach"),
        (&["copy", "--target", "t1", "f", "g", "--also", "i"], "--target"),
        (&["copy", "f", "lh://h/data/", "--also", "lh://h/data"], "named twice"),
        (&["copy", "--memory", "16MiB", "f", "g", "--also", "i"], "too small for 2 destinations"),
        (&["sync", "f", "g", "--also", "i"], "a sync compares two trees"),
    ];
    for (args, says) in cases {
        let outcome = host.run(*args).fail(2);
        assert!(outcome.stderr.contains(says), "{says}: {outcome}");
        tree::assert_same(&before, &Tree::of(host.dir()), outcome);
    }
}
