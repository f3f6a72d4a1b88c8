//! When a session goes over from TCP to lanes over UDP by itself, and back.

use super::*;

/// Few lanes, so that trying more lanes over TCP does not take long.
const FEW_LANES: [&str; 2] = ["--memory", "96MiB"];

/// Whether lanes were ever told of as that.
fn was_told(outcome: &Outcome, change: &str) -> bool {
    outcome.events_of("lanes").iter().any(|lanes| lanes["change"] == change)
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_tcp_is_held_back_a_fair_and_a_polite_session_go_over_to_udp_by_themselves_in_either_direction() {
    for (share, direction) in [("fair", Direction::Push), ("polite", Direction::Push), ("fair", Direction::Pull)] {
        let far = narrow_hosts("rate=400Mbit/s,rtt=100ms,loss=1e-3");
        let (near, there) = (far.client.path("f"), far.root.join("f"));
        let url = far.daemon.url("data/f");
        let (verb, source, ends) = match direction {
            Direction::Push => ("push", &near, ["f", url.as_str()]),
            Direction::Pull => ("pull", &there, [url.as_str(), "f"]),
        };
        files::make(source, 1, 400 * MIB);
        let running = far.run(verb).args(FEW_LANES).args(["--share", share]).args(ends).start();
        if direction == Direction::Push {
            decision(&running, &["+1 over udp"]);
            // It carries more by a multiple, beside TCP and alone.
            decision(&running, &["udp"]);
        }
        let outcome = running.finish();
        assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
        tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
        assert!(!was_told(&outcome, "tcp"), "{outcome}");
        if direction == Direction::Pull {
            assert!(far.daemon.log().contains("over udp"), "{}", far.daemon.log());
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_trial_of_udp_behind_a_firewall_leaves_the_transfer_as_it_was() {
    let far = narrow_hosts("rate=400Mbit/s,rtt=100ms,block=udp");
    files::make(far.client.path("f"), 1, 240 * MIB);
    let running = far.run("push").args(FEW_LANES).arg("f").arg(far.daemon.url("data/f")).start();
    decision(&running, &["+1 over udp"]);
    let before = running.last_so_far("bytes_sent").unwrap_or(0);
    decision(&running, &["tcp"]);
    assert!(running.last_so_far("bytes_sent") > Some(before), "TCP goes on meanwhile");
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    assert!(outcome.events_of("fault").is_empty() && !was_told(&outcome, "udp"), "{outcome}");
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_path_that_tcp_fills_stays_with_tcp() {
    let far = Far::new("rate=200Mbit/s,rtt=40ms");
    files::make(far.client.path("f"), 1, 250 * MIB);
    let outcome = far.run("push").arg("f").arg(far.daemon.url("data/f")).finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    assert!(!was_told(&outcome, "+1 over udp"), "{outcome}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_session_whose_lane_over_udp_is_lost_goes_on_over_tcp_and_says_so() {
    let far = narrow_hosts("rate=400Mbit/s,rtt=100ms");
    files::make(far.client.path("f"), 1, 1000 * MIB);
    let running = far.run("push").args(FEW_LANES).arg("f").arg(far.daemon.url("data/f")).start();
    decision(&running, &["udp"]);
    far.change("block=udp");
    decision(&running, &["tcp"]);
    let before = running.last_so_far("bytes_received").unwrap_or(0);
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|now| *now > before + (8 << 20)));
    assert!(!running.stderr_so_far().contains("dialling again"), "{}", running.stderr_so_far());
    running.signal(Signal::INT);
    running.finish();
}
