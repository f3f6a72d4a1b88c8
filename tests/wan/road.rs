//! The figures of the road, and the part of the network that the control of UDP lanes names: over
//! each transport, alone and beside somebody else.

use serde_json::Value;

use super::manners::Rival;
use super::*;

const PATH: &str = "rate=200Mbit/s,rtt=40ms,queue=1bdp";

/// A push of so many MiB over `transport`.
fn pushed(far: &Far, transport: &str, mib: usize) -> Outcome {
    files::make(far.client.path("f"), 1, mib * MIB);
    let push = far.run("push").args(["--transport", transport, "--if-exists", "replace", "f"]);
    let outcome = push.arg(far.daemon.url("data/f")).finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    outcome
}

/// Whether a figure lies between two.
fn lies(figure: &Value, least: f64, most: f64) -> bool {
    figure.as_f64().is_some_and(|figure| (least..most).contains(&figure))
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_run_tells_what_it_did_to_its_path_and_how_long_it_took_to_begin_and_to_end() {
    let far = Far::new(PATH);
    for transport in ["tcp", "udp"] {
        let outcome = pushed(&far, transport, 80);
        let road = &outcome.summary()["road"];
        assert!(lies(&road["rtt_us"], 40_000.0, 80_000.0), "{transport}: {road}");
        // Connecting takes two round trips at least, and the word that all is there half of one.
        assert!(lies(&road["first_byte_rtts"], 2.0, 60.0), "{transport}: {road}");
        assert!(lies(&road["last_byte_rtts"], 0.4, 60.0), "{transport}: {road}");
        assert!(lies(&road["queue_us"], 0.0, 100_000.0) && road["queue_bdp"].is_f64(), "{transport}: {road}");
        assert!(lies(&road["own_loss"], 0.0, 0.2) && lies(&road["loss_beyond_own"], 0.0, 0.5), "{transport}: {road}");
        let told = outcome.events_of("road").into_iter().filter(|event| event["queue_us"].is_u64());
        assert!(told.count() >= 1, "{transport}: {outcome}");
    }
    for transport in ["tcp", "udp"] {
        let pull = far.run("pull").args(["--transport", transport]).arg(far.daemon.url("data/f")).arg(transport);
        let pull = pull.finish();
        let road = &pull.summary()["road"];
        assert!(lies(&road["rtt_us"], 40_000.0, 80_000.0), "{transport}: {pull}");
        assert!(lies(&road["first_byte_rtts"], 2.0, 60.0), "{transport}: {pull}");
        assert!(road["queue_us"].is_null() && road["share_beside"].is_null(), "only a sender knows: {road}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_measurement_tells_what_it_did_to_its_path() {
    let far = Far::new(PATH);
    let words = ["bench", "net", "--seconds", "4", "--direction", "push", "--peer-key", far.daemon.key()];
    let run = |more: &[&str]| far.client.run(words).args(more).arg(far.daemon.url("")).beneath(far.wan.near().prefix());
    let measured = run(&["--json"]).succeed().events_of("bench_net").remove(0);
    assert!(
        lies(&measured["road"]["rtt_us"], 40_000.0, 80_000.0) && measured["road"]["queue_us"].is_u64(),
        "{measured}"
    );
    let said = run(&["--transport", "udp"]).succeed();
    assert!(said.stderr.contains("path: round trip 4") && said.stderr.contains(" BDP)"), "{said}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn what_of_the_network_limits_lanes_over_udp_is_what_their_control_says() {
    for path in ["rate=80Mbit/s,rtt=20ms,loss=0", "rate=80Mbit/s,rtt=20ms,loss=1e-2"] {
        let far = Far::new(path);
        // Losses are borne.
        limited_by("network:rate", path, || pushed(&far, "udp", 60));
    }
    let far = Far::new("rate=100Mbit/s,rtt=20ms,queue=1bdp");
    let rival = Rival::start(&far);
    let outcome = pushed(&far, "udp", 120);
    rival.end();
    let summary = outcome.summary();
    assert!(summary["limits"]["network:shared"].as_f64() > Some(0.2), "{outcome}");
    let road = &summary["road"];
    assert!(lies(&road["share_beside"], 0.05, 1.0) && lies(&road["beside_s"], 1.0, 600.0), "{road}");
}
