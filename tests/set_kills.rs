//! Target sets under kills: in each layout either end of a push is killed twenty times, at moments
//! of its own, and the same command goes on each time with what was durable.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Daemon, DaemonConfig, Host, files};

const MIB: usize = 1 << 20;
const KILLS: u64 = 20;
/// Durable bytes that each push adds before it is killed.
const STEP: u64 = MIB as u64;

fn daemon_of(host: &Host, dirs: &[PathBuf], layout: &str) -> Daemon {
    let config = DaemonConfig::default().set("data", dirs, &format!("layout = \"{layout}\"\nstripe_from = \"8MiB\"\n"));
    let daemon = config.client("me", host.key(), &[("data", "read,create,modify")]).start(host);
    host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    daemon
}

/// Pushes a tree to a set of this layout, and kills an end of it again and again.
fn push_through_kills(layout: &str) {
    let host = Host::new();
    for n in 0..6 {
        files::make(host.path(format!("src/large/{n}")), n, 40 * MIB + n as usize);
        files::make(host.path(format!("src/small/{n}")), n, 3000);
    }
    let dirs: Vec<PathBuf> = (0..3).map(|n| host.make_dir(&format!("d{n}"))).collect();
    let mut durable = 0;
    for kill in 0..KILLS {
        let daemon = daemon_of(&host, &dirs, layout);
        let url = daemon.url("data/in");
        let push = ["push", "--json", "--retry-for", "0s", "--rate", "32Mbit/s", "--chunk-size", "1MiB", "src/", &url];
        let push = host.run(push).start();
        durable = push.wait_event(|event| {
            let (durable, resumed) = (event["bytes_durable"].as_u64()?, event["bytes_resumed"].as_u64()?);
            (durable >= resumed + STEP && event["type"] == "progress").then_some(durable)
        });
        if kill % 2 == 0 {
            daemon.kill();
        } else {
            push.signal(Signal::KILL);
        }
        push.finish();
    }
    let daemon = daemon_of(&host, &dirs, layout);
    let outcome = host.run(["push", "--json", "--chunk-size", "1MiB", "src/", &daemon.url("data/in")]).succeed();
    let held = outcome.summary()["bytes_resumed"].as_u64().unwrap() + skipped(&outcome.summary());
    assert!(held >= durable, "{durable} bytes were durable: {outcome}");
    host.run(["pull", &format!("{}/", daemon.url("data/in")), "back"]).succeed();
    let source = Tree::of(host.path("src")).beneath();
    tree::assert_same(&source, &Tree::of(host.path("back")).beneath(), "after all kills");
    drop(daemon);
    let left: Vec<String> = dirs.iter().flat_map(tree::leftovers).collect();
    assert!(left.iter().all(|name| name.starts_with(".longhaul-set")), "{left:?}");
    host.run(["set", "check"]).arg(&dirs[0]).succeed();
    if layout == "stripe" {
        let bodies = |dir: &PathBuf| fs::read_dir(dir.join(".longhaul-set/bodies")).unwrap().count() - 1;
        assert!(dirs.iter().map(bodies).all(|count| count <= 6), "no attempt left a body behind");
    }
}

/// Bytes of files that stood whole before the last push: at most all of them.
fn skipped(summary: &serde_json::Value) -> u64 {
    let total: u64 = (0..6).map(|n| 40 * MIB as u64 + n + 3000).sum();
    total - summary["bytes_committed"].as_u64().unwrap()
}

#[test]
fn a_push_into_a_spread_set_survives_twenty_kills_of_either_end() {
    push_through_kills("spread");
}

#[test]
fn a_push_into_a_striped_set_survives_twenty_kills_of_either_end() {
    push_through_kills("stripe");
}
