//! Movers of one queue in PostgreSQL, as several hosts have it, and ten of one in a file.
//!
//! Takes the datasets of `jobs`, and a server of its own; gives tests. Must not know the rules of
//! the queue.

mod kills;
mod passwords;
mod queue;
mod restore;
mod signed;

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::{counts, plant};
use crate::fixture::postgres::{ADMIN, Postgres};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Outcome, Run, Site};

/// A user whose queue is in a database, or in a file that is told.
struct Fleet<'a> {
    host: &'a Host,
    queue: String,
}

impl Fleet<'_> {
    fn run<const N: usize>(&self, args: [&str; N]) -> Run {
        self.host.run(args).env("LONGHAUL_QUEUE", &self.queue)
    }

    /// The figures of a campaign, which must add up.
    fn left(&self, name: &str) -> Value {
        let left = self.run(["job", "left", "--json", name]).succeed().events_of("job_left").remove(0);
        for what in ["files", "bytes"] {
            let of = |part: &str| left[part][what].as_u64().unwrap();
            assert_eq!(of("total"), of("done") + of("failed") + of("cancelled") + of("left"), "{left}");
        }
        left
    }
}

/// Minutes that pass for all leases.
const LAPSE: &str = "UPDATE shard SET lease_until = 0 WHERE state = 2; UPDATE permit SET until = 0;
    UPDATE leader SET until = 0";

/// Lets minutes pass for all leases, as they do while a server is away.
fn lapse(server: &Postgres) {
    server.sql("postgres", &format!("SET search_path TO longhaul; {LAPSE}"));
}

/// The words of a mover about shards. The last line of one that was killed may be cut off.
fn told(outcome: &Outcome) -> Vec<Value> {
    let events = outcome.stdout_text().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["type"] == "job_shard").collect()
}

/// The shards that a mover settled.
fn settled(outcome: &Outcome) -> Vec<u64> {
    let ends = outcome.events_of("job_shard").into_iter().filter(|shard| shard["state"] == "done");
    ends.map(|shard| shard["shard"].as_u64().unwrap()).collect()
}

#[test]
fn a_campaign_in_a_database_is_moved_by_two_movers_and_its_figures_are_right() {
    let server = Postgres::start();
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    let manifests = host.path("shared");
    let fleet = Fleet { host, queue: format!("{}?manifests={}", server.url("postgres"), manifests.display()) };
    fleet.run(["job", "ls"]).fail(3);
    let to = site.url("in");
    fleet.run(["job", "add", "--name", "all", "--rate", "128KiB/s", "--shard-files", "9", "ds", &to]).succeed();
    fleet.run(["job", "plan", "all"]).succeed();
    assert!(manifests.is_dir() && !host.path(".local/state/longhaul").exists(), "all of it is where the URL says");
    assert_eq!(counts(&fleet.left("all")), [0, 0, 101]);
    let movers = [(); 2].map(|()| fleet.run(["job", "run", "all", "--drain", "--json"]).start());
    let outcomes = movers.map(|mover| mover.finish());
    let by_mover = outcomes.each_ref().map(settled);
    assert!(by_mover.iter().all(|shards| !shards.is_empty()), "one mover did it all: {by_mover:?}");
    let (count, shards) = (by_mover.concat().len(), by_mover.concat().into_iter().collect::<BTreeSet<_>>());
    assert_eq!((count, shards.len()), (12, 12), "each shard is settled once: {by_mover:?}");
    assert_eq!(outcomes.each_ref().map(|outcome| outcome.code), [0, 0], "{}", outcomes[0]);
    assert_eq!(counts(&fleet.left("all")), [101, 0, 0]);
    fleet.run(["job", "report", "all"]).succeed();
    fleet.run(["job", "wait", "all"]).succeed();
    tree::assert_same(&Tree::of(host.path("ds")), &Tree::of(site.root().join("in/ds")), "what was moved");
    let listed = fleet.run(["job", "ls"]).succeed();
    assert!(listed.stderr.contains("the queue is postgres://") && !listed.stderr.contains(ADMIN), "{listed}");
}

#[test]
fn a_mover_goes_on_when_the_server_of_its_queue_is_killed_and_started_again() {
    let mut server = Postgres::with(&[]);
    let host = &Host::new();
    plant(&host.path("ds"));
    let fleet = Fleet { host, queue: server.url("postgres") };
    fleet.run(["job", "add", "--name", "all", "--rate", "128KiB/s", "--shard-files", "9", "ds", "to"]).succeed();
    fleet.run(["job", "plan", "all"]).succeed();
    let mover = fleet.run(["job", "run", "all", "--drain", "--json"]).start();
    mover.wait_event(|event| (event["type"] == "job_shard" && event["state"] == "done").then_some(()));
    server.kill();
    let away = fleet.run(["job", "left", "all"]).fail(5);
    assert!(away.stderr.contains("cannot be reached"), "{away}");
    server.restart();
    let outcome = mover.finish();
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(counts(&fleet.left("all")), [101, 0, 0]);
    // The destination keeps claims at its top.
    for dir in ["0", "3", "6"] {
        let (from, to) = (host.path("ds").join(dir), host.path("to/ds").join(dir));
        tree::assert_same(&Tree::of(from), &Tree::of(to), "what was moved");
    }
}

#[test]
fn databases_that_are_no_queue_or_let_nobody_in_are_refused_and_said_so() {
    let server = Postgres::start();
    server.sql("postgres", "CREATE SCHEMA theirs CREATE TABLE site (id bigint)");
    server.sql("postgres", "CREATE SCHEMA newer; CREATE ROLE guest LOGIN");
    let host = &Host::new();
    fs::create_dir(host.path("ds")).unwrap();
    let refused = |queue: String, code: i32, words: &str| {
        let refused = Fleet { host, queue }.run(["job", "add", "ds", "to"]).fail(code);
        assert!(refused.stderr.contains(words), "{refused}");
    };
    let url = server.url("postgres");
    Fleet { host, queue: format!("{url}?schema=newer") }.run(["job", "add", "ds", "to"]).succeed();
    server.sql("postgres", "UPDATE newer.queue_version SET version = 99");
    refused(format!("{url}?schema=newer"), 2, "version 99");
    refused(format!("{url}?schema=theirs"), 2, "another program");
    refused(format!("{url}?sslmode=verify-ca"), 2, "verify-ca");
    refused(server.url("absent"), 3, "absent");
    refused(url.replace(ADMIN, "guest"), 4, "permission denied");
    refused("postgres://me@127.0.0.1:1/q".to_owned(), 5, "cannot be reached");
}
