//! Claims on shards: two daemons serve one directory, and movers show claims to both.

use std::path::PathBuf;

use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Run, Site, files};
use crate::hostile::Direction;
use crate::resume::scene::{LEN, Scene};

fn claim(fence: u64, id: u8) -> String {
    format!("{}:300:{fence}:{}", "ab".repeat(16), format!("{id:02x}").repeat(16))
}

/// Another daemon, which serves the root of a site.
fn beside(site: &Site) -> (Host, Daemon) {
    let host = Host::new();
    let config = DaemonConfig::default().root("data", &site.root(), ALL_RIGHTS);
    let daemon = config.client("tester", site.client.key(), &[("data", ALL_RIGHTS)]).start(&host);
    (host, daemon)
}

/// Pushes a file under its own name by a claim.
fn push(site: &Site, daemon: &Daemon, name: &str, claim: &str) -> Run {
    let run = site.client.run(["push", name, &daemon.url(&format!("data/{name}"))]);
    run.args(["--json", "--retry-for", "0", "--peer-key", daemon.key(), "--claim", claim])
}

/// Fails unless a run was refused because this fence is kept.
#[track_caller]
fn assert_superseded(outcome: &Outcome, kept: u64) {
    assert_eq!(outcome.code, 4, "{outcome}");
    let faults = outcome.events_of("fault");
    let fault = faults.last().unwrap_or_else(|| panic!("no fault: {outcome}"));
    assert_eq!((&fault["code"], &fault["retry"]), (&"superseded".into(), &false.into()), "{outcome}");
    assert_eq!(fault["object"], format!("{}:300:{kept}", "ab".repeat(16)), "{outcome}");
    assert!(!fault["hint"].as_str().unwrap().is_empty(), "{outcome}");
}

/// The file of claims of the shard.
fn page(root: PathBuf) -> PathBuf {
    root.join(".longhaul").join(format!("{}-{:014x}.claims", "ab".repeat(16), 1))
}

#[test]
fn a_claim_below_the_kept_one_is_refused_by_each_daemon_of_a_root_with_the_kept_fence() {
    let site = Site::new();
    let (_host, other) = beside(&site);
    files::make(site.client.path("f"), 1, 1000);
    files::make(site.client.path("g"), 2, 1000);
    push(&site, &site.daemon, "f", &claim(5, 1)).succeed();
    for daemon in [&site.daemon, &other] {
        for refused in [claim(4, 1), claim(5, 2)] {
            assert_superseded(&push(&site, daemon, "g", &refused).finish(), 5);
        }
    }
    assert!(!site.root().join("g").exists());
    push(&site, &other, "f", &claim(5, 1)).succeed();
    push(&site, &other, "g", &claim(6, 3)).succeed();
    assert_superseded(&push(&site, &site.daemon, "g", &claim(5, 1)).finish(), 6);
    assert_eq!(std::fs::read(site.root().join("g")).unwrap(), files::bytes(2, 1000));
}

#[test]
fn a_session_publishes_nothing_once_another_daemon_has_welcomed_a_newer_claim() {
    let scene = Scene::new(Direction::Push);
    let site = &scene.wired.site;
    let (_host, other) = beside(site);
    files::make(site.client.path("f"), 1, LEN);
    files::make(site.client.path("g"), 2, 1000);
    let (old, _) = scene.start(scene.run("f", "f").args(["--claim", &claim(1, 1)]), 0);
    push(site, &other, "g", &claim(2, 2)).succeed();
    scene.gate.open();
    assert_superseded(&old.finish(), 2);
    assert!(!site.root().join("f").exists() && site.root().join("g").exists());
}

#[test]
fn within_one_daemon_a_newer_claim_ends_the_session_of_the_older_one_first() {
    let scene = Scene::new(Direction::Push);
    let site = &scene.wired.site;
    files::make(site.client.path("f"), 1, LEN);
    files::make(site.client.path("g"), 2, 1000);
    let (old, _) = scene.start(scene.run("f", "f").args(["--claim", &claim(1, 1)]), 0);
    // Nothing opens the gate: the daemon ends the older session by itself.
    push(site, &site.daemon, "g", &claim(2, 2)).succeed();
    scene.gate.open();
    assert_superseded(&old.finish(), 2);
    assert!(!site.root().join("f").exists());
}

#[test]
fn a_daemon_that_was_killed_between_claim_and_batch_holds_nobody_up_and_its_claim_is_kept() {
    let mut scene = Scene::new(Direction::Push);
    files::make(scene.wired.site.client.path("f"), 1, LEN);
    files::make(scene.wired.site.client.path("g"), 2, 1000);
    let (old, _) = scene.start(scene.run("f", "f").args(["--claim", &claim(7, 1)]), 0);
    scene.end(old, crate::resume::scene::Death::DaemonKilled);
    let site = &scene.wired.site;
    let (_host, other) = beside(site);
    assert_superseded(&push(site, &other, "g", &claim(6, 9)).finish(), 7);
    push(site, &other, "g", &claim(8, 2)).succeed();
    let again = scene.run("f", "f").args(["--claim", &claim(7, 1)]).finish();
    assert_superseded(&again, 8);
    assert!(!site.root().join("f").exists());
}

#[test]
fn a_damaged_file_of_claims_is_told_and_never_taken_for_an_empty_one() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 1000);
    files::make(site.client.path("g"), 2, 1000);
    push(&site, &site.daemon, "f", &claim(5, 1)).succeed();
    let good = std::fs::read_to_string(page(site.root())).unwrap();
    for bad in [String::new(), good.replace(" fence 5 ", " fence 3 "), good[..good.len() / 2].to_owned()] {
        assert_ne!(bad, good);
        std::fs::write(page(site.root()), &bad).unwrap();
        let outcome = push(&site, &site.daemon, "g", &claim(9, 1)).fail(6);
        assert!(outcome.stderr.contains("damaged") && outcome.stderr.contains(".claims"), "{outcome}");
        assert_eq!(std::fs::read_to_string(page(site.root())).unwrap(), bad);
        assert!(!site.root().join("g").exists());
    }
    std::fs::write(page(site.root()), good).unwrap();
    push(&site, &site.daemon, "g", &claim(5, 1)).succeed();
}

#[test]
fn a_pull_and_a_copy_keep_claims_at_their_destination_on_this_host() {
    let site = Site::new();
    files::make(site.root().join("f"), 1, 1000);
    files::make(site.client.path("f"), 1, 1000);
    let far = site.url("f");
    for (verb, from, to) in [("pull", far.as_str(), "pulled/"), ("copy", "f", "copied/")] {
        let run = |claim: &str| site.client.run([verb, "--json", from, to, "--claim", claim]);
        run(&claim(5, 1)).succeed();
        assert_superseded(&run(&claim(4, 1)).finish(), 5);
        run(&claim(5, 1)).succeed();
        assert!(page(site.client.path(to)).exists(), "{verb}");
    }
}

#[test]
fn a_claim_is_four_parts_and_nothing_that_writes_nothing_takes_one() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    for bad in ["", "7", "x:1:2:y", &claim(u64::MAX, 1)] {
        let outcome = host.run(["copy", "f", "to/", "--claim", bad]).fail(2);
        assert!(outcome.stderr.contains("CAMPAIGN:SHARD:FENCE:ID"), "{outcome}");
    }
    for more in [&["-n", "f", "to/"][..], &["f", "-"]] {
        let outcome = host.run(["copy", "--claim", &claim(1, 1)]).args(more).fail(2);
        assert!(outcome.stderr.contains("claim"), "{outcome}");
    }
    assert!(!host.path("to").exists());
}
