//! A queue that is restored from a backup of minutes before, while shards were settled since: it
//! hands out fences that destinations have seen, and work that was done.
//!
//! Takes the datasets of `jobs`, and a server that is backed up; gives tests. Must not know the
//! rules of the queue.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::{Fleet, lapse, plant, told};
use crate::fixture::postgres::Postgres;
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Running, Site, files};
use crate::jobs::{counts, wait_for_more_than};

/// How the queue is backed up, and what becomes of the movers meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackupKind {
    /// By a copy of the cluster. The movers are at work all the while.
    Cluster,
    /// By a dump. The movers are killed with the server, and others take their places.
    Dump,
}

/// Shards that are settled, by the server.
fn settled(server: &Postgres) -> BTreeSet<u64> {
    let listed = server.sql("postgres", "SELECT id FROM longhaul.shard WHERE state IN (3, 4)");
    listed.lines().map(|line| line.parse().unwrap()).collect()
}

fn wait_until_settled(count: usize, server: &Postgres) -> BTreeSet<u64> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let shards = settled(server);
        if shards.len() >= count {
            return shards;
        }
        assert!(Instant::now() < until, "only {shards:?} are settled");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the server, and starts it with the queue as it was when it was backed up.
fn restore(server: &mut Postgres, dump: Option<&str>) {
    server.kill();
    if dump.is_none() {
        server.restore();
    }
    server.restart();
    if let Some(dump) = dump {
        server.sql("postgres", "DROP SCHEMA longhaul CASCADE");
        server.load("postgres", dump);
    }
    lapse(server);
}

/// Each shard that was settled behind the backup is settled again by a higher claim, and nothing of
/// it is sent.
fn check_shards(since: &BTreeSet<u64>, ends: &[Value], server: &Postgres) {
    for shard in since {
        let again: Vec<_> =
            ends.iter().filter(|end| end["shard"] == *shard && end["fence"].as_u64().unwrap() > 1).collect();
        assert!(again.iter().all(|end| end["bytes_moved"] == 0), "{shard}: {again:?}");
        // On a busy machine a claim may lapse once more: it is gone then, and settles nothing.
        let settled: Vec<_> = again.iter().map(|end| &end["state"]).filter(|state| **state != "gone").collect();
        assert!(matches!(settled[..], [state] if state == "done" || state == "partial"), "{shard}: {again:?}");
    }
    for end in ends {
        let row = format!("SELECT fence FROM longhaul.shard WHERE id = {}", end["shard"]);
        let fence: u64 = server.sql("postgres", &row).parse().unwrap();
        assert!(end["fence"].as_u64().unwrap() <= fence, "the fence fell to {fence}: {end}");
    }
}

fn go_on_from(kind: BackupKind) {
    let mut server = Postgres::with(&[]);
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    files::make(host.path("ds/gone/gone"), 1, 1000);
    let fleet = Fleet { host, queue: server.url("postgres") };
    let to = site.url("in");
    fleet.run(["job", "add", "--name", "all", "--rate", "128KiB/s", "--shard-files", "5", "ds", &to]).succeed();
    fleet.run(["job", "plan", "all"]).succeed();
    fs::remove_file(host.path("ds/gone/gone")).unwrap();
    let start = || -> [Running; 2] { [(); 2].map(|()| fleet.run(["job", "run", "all", "--drain", "--json"]).start()) };
    let count: usize = server.sql("postgres", "SELECT count(*) FROM longhaul.shard").parse().unwrap();
    let mut movers = Vec::from(start());

    wait_until_settled(3, &server);
    // However long the backup takes, nothing is settled meanwhile.
    movers.iter().for_each(|mover| mover.signal(Signal::STOP));
    let dump = (kind == BackupKind::Dump).then(|| server.dump("postgres", "longhaul"));
    if kind == BackupKind::Cluster {
        server.back_up();
    }
    // Movers at work settle shards again as soon as the queue is put back.
    let known = settled(&server);
    movers.iter().for_each(|mover| mover.signal(Signal::CONT));
    let later = wait_until_settled(known.len() + 4, &server);
    let mut outcomes = Vec::new();
    if kind == BackupKind::Dump {
        movers.iter().for_each(|mover| mover.signal(Signal::KILL));
        outcomes.extend(std::mem::take(&mut movers).into_iter().map(Running::finish));
    }
    let top = site.root().join("in/ds");
    let stood: Vec<(PathBuf, u64)> = wait_for_more_than(0, &top);
    restore(&mut server, dump.as_deref());
    let since: BTreeSet<u64> = later.difference(&known).copied().collect();
    assert!(known.len() >= 3 && since.len() >= 3 && later.len() < count, "{known:?} {since:?}");
    if kind == BackupKind::Dump {
        movers.extend(start());
    }
    for outcome in movers.into_iter().map(Running::finish) {
        assert_eq!(outcome.code, 23, "a file was gone: {outcome}");
        outcomes.push(outcome);
    }

    assert_eq!(counts(&fleet.left("all")), [101, 1, 0]);
    let ends: Vec<_> = outcomes.iter().flat_map(told).filter(|shard| shard["state"] != "claimed").collect();
    check_shards(&since, &ends, &server);
    for (path, inode) in stood {
        let now = std::os::unix::fs::MetadataExt::ino(&fs::symlink_metadata(&path).unwrap());
        assert_eq!(now, inode, "{} was published again", path.display());
    }
    let (from, to) = (Tree::of(host.path("ds")), Tree::of(top));
    tree::assert_same(&from.without_dir_times(), &to.without_dir_times(), "what was moved");
    let moved: u64 = ends.iter().map(|end| end["bytes_moved"].as_u64().unwrap()).sum();
    assert!(moved <= fleet.left("all")["done"]["bytes"].as_u64().unwrap(), "{moved} bytes were sent");
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM longhaul.permit"), "0", "permits are left");
}

#[test]
fn movers_at_work_go_on_with_a_queue_that_is_put_back_and_send_nothing_again() {
    go_on_from(BackupKind::Cluster);
}

#[test]
fn movers_that_begin_behind_a_restored_dump_compare_what_was_done_since_and_send_nothing_again() {
    go_on_from(BackupKind::Dump);
}
