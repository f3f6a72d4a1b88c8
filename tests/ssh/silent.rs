//! A firewall that lets the ports of lanes through nowhere and says nothing about it, one way or
//! both ways, from the start or in mid-transfer: ssh carries meanwhile. Needs root.

use std::time::{Duration, Instant};

use super::real::{Site, wait_for_lanes, wait_until};
use crate::fixture::files;
use crate::fixture::tree::{self, Tree};

/// Longer than this nothing stands still: a lane to which nothing is acknowledged is given up after
/// 20 s.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_packets_vanish_both_ways_ssh_carries_everything_at_once() {
    let site = Site::new();
    site.net.silence("near", true);
    site.net.silence("far", true);
    let begun = Instant::now();
    assert_eq!(site.there_and_back("far"), ["ssh", "ssh"]);
    assert!(begun.elapsed() < STANDSTILL_MAX, "nothing is waited for: {:?}", begun.elapsed());
    wait_until("the far processes end", || site.serving().is_empty());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_packets_vanish_one_way_lanes_go_the_other_way_after_a_moment() {
    for silent in ["far", "near"] {
        let site = Site::new();
        site.net.silence(silent, true);
        let to = site.server.make_dir("d");
        files::make(site.client.path("f"), 1, 80 << 20);
        let running = site.run("push").args(["--rate", "8MB/s", "f", &format!("far:{}/", to.display())]).start();
        let pid = running.pid().as_raw_nonzero().get();
        wait_for_lanes(&site.net.at("near"), pid);
        let outcome = running.fail(0);
        tree::assert_same(&Tree::of(site.client.path("f")), &Tree::of(to.join("f")), &outcome);
        let through = outcome.summary()["ssh"]["bytes"].as_u64().unwrap();
        assert!(through < 72 << 20, "{silent}: {through} bytes went through ssh: {outcome}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_packets_begin_to_vanish_in_mid_transfer_ssh_carries_the_rest() {
    for (verb, ends) in [("push", ["f", "far:TO/"]), ("pull", ["far:TO/f", "got/"])] {
        let site = Site::new();
        let to = site.server.make_dir("d");
        let (here, there) = (site.client.path("f"), to.join("f"));
        files::make(if verb == "push" { &here } else { &there }, 1, 64 << 20);
        let ends = ends.map(|end| end.replace("TO", to.to_str().unwrap()));
        let running = site.run(verb).args(["--rate", "8MB/s", "--chunk-size", "1MiB"]).args(ends).start();
        let pid = running.pid().as_raw_nonzero().get();
        wait_for_lanes(&site.net.at("near"), pid);
        let moved = |event: &serde_json::Value| event["bytes_received"].as_u64().or(event["bytes_sent"].as_u64());
        let before = running.wait_event(|event| moved(event).filter(|bytes| *bytes > 8 << 20));
        site.net.silence("near", true);
        site.net.silence("far", true);
        let silent = Instant::now();
        running.wait_event(|event| moved(event).filter(|bytes| *bytes > before + (12 << 20)));
        assert!(silent.elapsed() < STANDSTILL_MAX, "{verb}: {:?}", silent.elapsed());
        let outcome = running.fail(0);
        let arrived = if verb == "push" { there } else { site.client.path("got/f") };
        let source = if verb == "push" { here } else { to.join("f") };
        tree::assert_same(&Tree::of(&source), &Tree::of(&arrived), &outcome);
        let through = outcome.summary()["ssh"]["bytes"].as_u64().unwrap();
        assert!(through > 8 << 20, "{verb}: {through} bytes went through ssh: {outcome}");
        wait_until("the far processes end", || site.serving().is_empty());
    }
}
