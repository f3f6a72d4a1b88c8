//! UDP lanes on long paths: the failures that they survive, and the rate that they keep.

use super::*;

const UDP: [&str; 2] = ["--transport", "udp"];

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_tree_arrives_right_over_udp_with_and_without_loss() {
    for loss in ["0", "1e-2"] {
        for direction in [Direction::Push, Direction::Pull] {
            let path = format!("rate=400Mbit/s,rtt=60ms,loss={loss}");
            let (wire, _) = moves_a_tree(&path, direction, &UDP, 20 * MIB + 5);
            assert_eq!(wire.dropped_loss > 0, loss != "0", "{wire:?}");
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_hole_for_large_packets_is_found_and_gone_around_by_udp() {
    for direction in [Direction::Push, Direction::Pull] {
        let (wire, _) = moves_a_tree("rate=400Mbit/s,rtt=20ms,hole=1500", direction, &UDP, 20 * MIB + 5);
        assert!(wire.dropped_hole > 0, "larger ones were tried: {wire:?}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_hole_that_opens_under_a_lane_over_udp_is_gone_around_by_it() {
    let far = Far::new("rate=400Mbit/s,rtt=20ms");
    files::make(far.client.path("f"), 1, 100 * MIB);
    let running = far.run("push").args(UDP).arg("f").arg(far.daemon.url("data/f")).start();
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 30 << 20));
    far.change("hole=1500");
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    assert!(far.forward().dropped_hole > 0, "{outcome}");
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_rate_is_kept_on_the_wire_by_udp_on_a_path_that_loses() {
    for lanes in ["1", "3"] {
        let far = Far::new("rate=1Gbit/s,rtt=40ms,loss=1e-2");
        files::make(far.client.path("f"), 1, 150 * MIB);
        let options = ["--transport", "udp", "--rate", "160Mbit/s", "--lanes", lanes, "f"];
        let running = far.run("push").args(options).arg(far.daemon.url("data/f")).start();
        running.wait_event(|event| event["bytes_sent"].as_u64().filter(|sent| *sent > 30 << 20));
        let rate = far.wire_rate(&running, 60 << 20);
        // Of payload and repairs; headers come on top.
        assert!((20e6 * 0.5..20e6 * 1.05).contains(&rate), "{lanes} lanes: {rate:.0} bytes/s on the wire");
        assert_eq!(running.finish().code, 0);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_udp_does_not_pass_a_run_over_it_says_so() {
    let far = Far::new("rate=200Mbit/s,rtt=20ms,block=udp");
    files::make(far.client.path("f"), 1, 10 * MIB);
    let outcome = far.run("push").args(UDP).arg("f").arg(far.daemon.url("data/f")).finish();
    assert_eq!(outcome.code, 5, "{outcome}");
    assert!(outcome.events_of("fault").iter().any(|fault| fault.to_string().contains("UDP")), "{outcome}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_session_over_udp_on_a_path_that_breaks_goes_on_over_tcp_within_five_intervals_and_says_so() {
    let far = Far::new("rate=200Mbit/s,rtt=20ms");
    files::make(far.client.path("f"), 1, 300 * MIB);
    let running = far.run("push").args(UDP).arg("f").arg(far.daemon.url("data/f")).start();
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 30 << 20));
    // Three times what the breaker bears.
    far.change("loss=0.3");
    let before = running.events_so_far();
    decision(&running, &["tcp"]);
    far.change("loss=0");
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
    // An interval of the breaker is a second here, as the time from one progress to the next is;
    // another one was under way, of both.
    let told = outcome.events();
    let left = told.iter().position(|event| event["type"] == "lanes" && event["change"] == "tcp").expect("it left");
    let seconds = told[before..left].iter().filter(|event| event["type"] == "progress").count();
    assert!(seconds <= 7, "{seconds} seconds of bad intervals: {outcome}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_stream_over_udp_on_a_path_that_breaks_goes_on_over_tcp() {
    let far = Far::new("rate=200Mbit/s,rtt=20ms");
    files::make(far.root.join("f"), 1, 150 * MIB);
    let words = ["pull", "--peer-key", far.daemon.key(), "--transport", "udp", "--memory", "32MiB"];
    let run = far.client.run(words).arg(far.daemon.url("data/f")).arg("-").beneath(far.wan.near().prefix());
    let running = run.start();
    far.daemon.wait_log("opened: pull");
    far.change("loss=0.5");
    far.daemon.wait_log("the path loses too much of what lanes over UDP send");
    far.change("loss=0");
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{}\n{}", outcome.stderr, far.daemon.log());
    assert!(outcome.stdout == files::bytes(1, 150 * MIB), "{} bytes came", outcome.stdout.len());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_run_that_dials_again_while_a_breaker_is_open_goes_over_tcp_and_says_why() {
    for transport in ["udp", "quic"] {
        let far = Far::new("rate=200Mbit/s,rtt=20ms");
        files::make(far.client.path("f"), 1, 300 * MIB);
        let running = far.run("push").args(["--transport", transport, "f"]).arg(far.daemon.url("data/f")).start();
        running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 30 << 20));
        far.change("loss=0.5");
        decision(&running, &["tcp"]);
        far.change("loss=0");
        far.daemon.kill();
        let again = far.restarted();
        running.wait_event(|event| {
            let says_why = event["reason"].as_str().is_some_and(|reason| reason.contains("tried again in"));
            (event["type"] == "lanes" && event["change"] == "tcp" && says_why).then_some(())
        });
        let outcome = running.finish();
        assert_eq!(outcome.code, 0, "{outcome}\n{}", again.log());
        assert!(!outcome.events_of("fault").is_empty(), "{transport}: {outcome}");
        tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_pull_with_a_control_of_quics_that_dials_again_while_a_breaker_is_open_goes_over_tcp() {
    let far = Far::new("rate=200Mbit/s,rtt=20ms");
    let options = ["--transport", "quic", "--congestion", "rate"];
    let (run, [near, there]) = moving(&far, Direction::Pull, 300, &options);
    let running = run.start();
    let wait = |mib: u64| running.wait_event(|event| event["bytes_received"].as_u64().filter(|at| *at > mib << 20));
    wait(30);
    far.change("loss=0.5");
    far.daemon.wait_log("the path loses too much of what lanes over QUIC send");
    far.change("loss=0");
    // So much only lanes over TCP carry: this end knows as well.
    wait(180);
    far.daemon.kill();
    let again = far.restarted();
    running.wait_event(|event| {
        let says_why = event["reason"].as_str().is_some_and(|reason| reason.contains("tried again in"));
        (event["type"] == "lanes" && says_why).then_some(())
    });
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", again.log());
    tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
}
