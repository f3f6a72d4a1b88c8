//! When a session goes over from TCP to lanes over UDP by itself, and back.

use serde_json::Value;

use super::*;
use crate::fixture::tool_output;

/// Few lanes, so that trying more lanes over TCP does not take long.
const FEW_LANES: [&str; 2] = ["--memory", "96MiB"];

/// Hosts that have no other congestion control than cubic towards each other.
fn cubic_hosts(path: &str) -> Far {
    let far = Far::new(path);
    let (near, there) = (far.wan.near(), far.wan.far());
    for (host, other) in [(near, there), (there, near)] {
        let [nsenter, net, end] = &host.prefix();
        let ip = |words: &[&str]| tool_output(nsenter, &[&[net, end, "ip"], words].concat());
        let routes = ip(&["route", "show"]);
        let device = routes.split_whitespace().skip_while(|word| *word != "dev").nth(1).expect("a route");
        let to = format!("{}/32", other.address(0));
        ip(&["route", "add", &to, "dev", device, "congctl", "lock", "cubic"]);
    }
    far
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn hosts_that_have_only_cubic_go_over_to_udp_where_losses_hold_it_back_and_carry_more() {
    let far = cubic_hosts("rate=400Mbit/s,rtt=100ms,loss=1e-2");
    files::make(far.client.path("f"), 1, 1000 * MIB);
    let run = far.run("push").args(FEW_LANES).arg("f").arg(far.daemon.url("data/f"));
    // A file that outlasts the trial takes a minute, and more on a busy machine.
    let outcome = run.within(Duration::from_secs(240)).finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
    let told = outcome.events_of("lanes").into_iter().find(|lanes| lanes["change"] == "udp");
    let reason = told.as_ref().and_then(|lanes| lanes["reason"].as_str()).unwrap_or_default();
    assert!(reason.starts_with("a lane over UDP carries more"), "{outcome}");
    assert!(!was_told(&outcome, "tcp"), "{outcome}");
    let at = |change: &str| outcome.events_of("lanes").into_iter().find(|lanes| lanes["change"] == change);
    let seconds = |event: &Value| event["t_s"].as_f64().unwrap();
    let (tried, over) = (seconds(&at("+1 over udp").unwrap()), seconds(&at("udp").unwrap()));
    // The most that arrived in one of the seconds before the trial, and after it.
    let progress = outcome.events_of("progress");
    let most = |from: f64, to: f64| {
        let pairs = progress.windows(2).filter(|pair| seconds(&pair[0]) >= from && seconds(&pair[1]) <= to);
        let arrived = |event: &Value| event["bytes_received"].as_u64().unwrap();
        pairs.map(|pair| arrived(&pair[1]) - arrived(&pair[0])).max().unwrap_or(0)
    };
    assert!(most(over, f64::INFINITY) > most(0.0, tried), "{outcome}");
}

/// Whether lanes were ever told of as that.
fn was_told(outcome: &Outcome, change: &str) -> bool {
    outcome.events_of("lanes").iter().any(|lanes| lanes["change"] == change)
}

/// Moves a file with this share over a path on which TCP is held back, and sees lanes over UDP take
/// it over.
pub(super) fn goes_over_to_udp(share: &str, direction: Direction) {
    let far = narrow_hosts("rate=400Mbit/s,rtt=100ms,loss=1e-3");
    let (run, [near, there]) = moving(&far, direction, 400, &[&FEW_LANES[..], &["--share", share]].concat());
    let running = run.start();
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

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_tcp_is_held_back_a_session_goes_over_to_udp_by_itself_in_either_direction() {
    goes_over_to_udp("fair", Direction::Push);
    goes_over_to_udp("fair", Direction::Pull);
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
    let told = |change: &str| running.wait_event(|event| (event["change"] == change).then(|| event.clone()));
    // It finds its speed and proves itself for 3 s: later nothing else takes it back.
    let proved = told("udp")["t_s"].as_f64().expect("seconds") + 9.0;
    running.wait_event(|event| (event["type"] == "progress" && event["t_s"].as_f64()? > proved).then_some(()));
    far.change("block=udp");
    let back = told("tcp");
    assert_eq!(back["reason"], "the last lane over UDP was lost", "{back}");
    let before = running.last_so_far("bytes_received").unwrap_or(0);
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|now| *now > before + (8 << 20)));
    assert!(!running.stderr_so_far().contains("dialling again"), "{}", running.stderr_so_far());
    running.signal(Signal::INT);
    running.finish();
}
