//! The mover that a daemon runs beside itself.
//!
//! Takes the datasets of `jobs`, and daemons; gives tests. Must not know the rules of the queue.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use super::{PATIENCE, plant, wait_for_more_than};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Run, Site, files};

fn queue(host: &Host) -> PathBuf {
    host.path("state/queue.db")
}

/// The configuration of a daemon of this host with a mover. Returns its file.
fn configure(host: &Host, mover: &str) -> PathBuf {
    let state = format!("state = '{}'", host.path("state").display());
    let config = DaemonConfig::default().line(&state).root("mine", &host.make_dir("mine"), ALL_RIGHTS);
    let path = config.client("me", host.key(), &[("mine", "read")]).write(host);
    let known = host.config("known_hosts");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}\n[mover]\nknown_hosts = '{}'\n{mover}\n", known.display())).unwrap();
    path
}

fn start(host: &Host, config: &Path) -> Daemon {
    Daemon::start(host.run(["serve", "--json", "--config"]).arg(config))
}

fn job<const N: usize>(host: &Host, args: [&str; N]) -> Run {
    host.run(["job"]).args(args).env("LONGHAUL_QUEUE", queue(host))
}

/// The figures of the daemon's mover, once this is so.
fn mover(host: &Host, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let status = host.run(["admin", "status", "--json", "--socket"]).arg(host.path("state/admin.sock")).succeed();
        let mover = status.events_of("admin_status").remove(0)["mover"].take();
        if wanted(&mover) {
            return mover;
        }
        assert!(std::time::Instant::now() < until, "{mover}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_daemon_moves_campaigns_to_another_one_and_hands_back_a_shard_in_its_middle_at_sigterm() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    files::make(host.path("ds/z/large"), 7, 3 << 20);
    let config = configure(host, &format!("memory = '16MiB'\nbeneath = ['{}']", host.path("ds").display()));
    let daemon = start(host, &config);
    daemon.wait_log("the mover serves the queue");
    let to = site.url("in");
    job(host, ["add", "--name", "all", "--rate", "256KiB/s", "--shard-files", "50", "ds", &to]).succeed();
    job(host, ["plan", "all"]).succeed();
    mover(host, |mover| mover["shards_ended"] == 1 && mover["shards_moving"] == 1 && mover["fault"].is_null());
    wait_for_more_than(50, &site.root().join("in/ds"));
    assert!(!site.root().join("in/ds/z/large").exists(), "it is in the middle of a shard");
    daemon.signal(Signal::TERM);
    let ended = daemon.finish();
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stderr.contains("has handed back what it was moving"), "{ended}");
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    let held = "SELECT count(*) FILTER (WHERE lease_until > 0), count(*) FILTER (WHERE state IN (0, 1)) FROM shard";
    let held: (i64, i64) = rows.query_row(held, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(held.0, 0, "nothing is leased");
    assert!(held.1 > 0, "something is left");

    let daemon = start(host, &config);
    job(host, ["wait", "all", "--max-time", "60s"]).succeed();
    tree::assert_same(&Tree::of(host.path("ds")), &Tree::of(site.root().join("in/ds")), "what was moved");
    // It serves beside that.
    host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    host.run(["ls", &daemon.url("mine")]).succeed();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.finish().code, 0);
}

#[test]
fn a_daemon_whose_mover_is_told_of_a_family_serves_its_links() {
    let site = Site::new();
    let host = &site.client;
    files::make(host.path("ds/f"), 1, 1000);
    let beneath = host.path("ds");
    let mover = format!("beneath = ['{}']\ncampaigns = ['atlas']", beneath.display());
    let daemon = start(host, &configure(host, &mover));
    daemon.wait_log("the mover serves the queue");
    let [to, also] = ["in", "archive"].map(|name| site.url(name));
    job(host, ["add", "--name", "atlas", "ds", &to, "--also", &also]).succeed();
    job(host, ["plan", "atlas"]).succeed();
    job(host, ["wait", "atlas", "--max-time", "60s"]).succeed();
    for dest in ["in/ds", "archive/ds"] {
        tree::assert_same(&Tree::of(host.path("ds")), &Tree::of(site.root().join(dest)), dest);
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.finish().code, 0);
}

#[test]
fn a_queue_that_cannot_be_opened_ends_no_daemon_and_is_told() {
    let host = Host::new();
    fs::write(host.path("no-queue"), "this is no database, and was never one").unwrap();
    let config = configure(&host, &format!("queue = '{}'", host.path("no-queue").display()));
    let daemon = start(&host, &config);
    mover(&host, |mover| mover["fault"].is_string());
    host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    host.run(["ls", &daemon.url("mine")]).succeed();
    // A running daemon keeps its mover.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}movers = 2\n")).unwrap();
    let refused = host.run(["admin", "reload", "--socket"]).arg(host.path("state/admin.sock")).fail(2);
    assert!(refused.stderr.contains("a running daemon keeps its mover"), "{refused}");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.finish().code, 0);
}

#[test]
fn the_memory_of_a_mover_is_taken_from_that_of_the_daemon() {
    let host = Host::new();
    for (mover, said) in [
        ("memory = '16MiB'\nmovers = 2", "nothing wrong"),
        ("memory = '1MiB'", "memory must be at least"),
        ("memory = '1GiB'\nmovers = 4", "the mover would take"),
        ("movers = 65", "movers must be 1 to 64"),
        ("queue = 'queue.db'", "queue is an absolute path"),
        ("queue = 'ftp://x'", "queue is an absolute path"),
        ("hooks = '/no/such/hooks.toml'", "/no/such/hooks.toml"),
        ("hooks = 'hooks.toml'", "hooks is an absolute path"),
        ("beneath = ['/data', 'data']", "beneath has absolute paths"),
        ("owners = ['lhk1:none']", "is not a longhaul key"),
        ("colour = 1", "unknown key 'colour'"),
    ] {
        let config = configure(&host, mover);
        let checked = host.run(["serve", "--check-config", "--config"]).arg(config).finish();
        assert!(checked.stderr.contains(said), "{mover}: {checked}");
        assert_eq!(checked.code == 0, said == "nothing wrong", "{mover}: {checked}");
    }
}

#[test]
fn a_daemon_moves_campaigns_of_the_owners_that_its_configuration_names() {
    let host = &Host::new();
    files::make(host.path("data/from/f"), 1, 1000);
    let owned_by = |owner: &str| {
        let beneath = host.path("data");
        let daemon =
            start(host, &configure(host, &format!("beneath = ['{}']\nowners = ['{owner}']", beneath.display())));
        daemon.wait_log("the mover serves the queue");
        daemon
    };
    let keys = ["one", "other"].map(|name| host.run(["key", "generate", "--identity", name]).succeed());
    let [owner, other] = keys.map(|key| key.stdout_text().trim().to_owned());
    let daemon = owned_by(&other);
    job(host, ["add", "--name", "one", "--identity", "one", "data/from", "data/to"]).succeed();
    job(host, ["plan", "one"]).succeed();
    let fault = mover(host, |mover| mover["fault"].is_string())["fault"].take();
    let said = fault.as_str().unwrap();
    assert!(said.contains("is not one of this mover's") && said.contains(&owner), "{fault}");
    daemon.signal(Signal::TERM);
    let log = daemon.finish();
    assert_eq!(log.stderr.matches("is not one of this mover's").count(), 1, "it is said once: {log}");
    assert!(!host.path("data/to").exists());
    let daemon = owned_by(&owner);
    job(host, ["wait", "one", "--max-time", "60s"]).succeed();
    daemon.signal(Signal::TERM);
    daemon.finish();
}

#[test]
fn a_daemon_takes_no_place_of_its_host_and_no_trust_from_a_row() {
    let site = Site::new();
    let host = &site.client;
    files::make(host.path("data/from/f"), 1, 1000);
    files::make(host.path("secret/f"), 2, 1000);
    std::os::unix::fs::symlink(host.path("secret"), host.path("data/way")).unwrap();
    let config = configure(host, &format!("beneath = ['{}']", host.path("data").display()));
    let daemon = start(host, &config);
    daemon.wait_log("the mover serves the queue");
    let to = site.url("in");
    job(host, ["add", "--name", "out", "secret", &to]).succeed();
    job(host, ["plan", "out"]).succeed();
    let fault = mover(host, |mover| mover["fault"].is_string())["fault"].take();
    assert!(fault.as_str().unwrap().contains("serves no such place"), "{fault}");
    daemon.signal(Signal::TERM);
    daemon.finish();
    job(host, ["cancel", "out"]).succeed();

    let daemon = start(host, &config);
    job(host, ["add", "--name", "onto", "data/from", &host.path("data/way").display().to_string()]).succeed();
    job(host, ["plan", "onto"]).succeed();
    let fault = mover(host, |mover| mover["fault"].is_string())["fault"].take();
    assert!(fault.as_str().unwrap().contains("serves no such place"), "{fault}");
    assert!(!host.path("secret/from").exists());
    daemon.signal(Signal::TERM);
    daemon.finish();
    job(host, ["cancel", "onto"]).succeed();

    // Nobody here knows the other daemon any more, but for what the row says.
    fs::write(host.config("known_hosts"), "").unwrap();
    let daemon = start(host, &config);
    job(host, ["add", "--name", "trusts", "--trust-on-first-use", "data/from", &to]).succeed();
    job(host, ["plan", "trusts"]).succeed();
    mover(host, |mover| mover["fault"].is_string());
    assert!(!site.root().join("in").exists(), "nothing was sent");
    daemon.signal(Signal::TERM);
    daemon.finish();
}
