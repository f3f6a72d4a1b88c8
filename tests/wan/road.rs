//! The figures of the road, and the part of the network that the control of UDP lanes names: over
//! each transport, alone and beside somebody else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

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
        // Only of lanes over UDP it is known.
        assert_eq!(road["udp_bytes_resent"].is_u64(), transport == "udp", "{transport}: {road}");
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
fn lanes_over_udp_send_again_what_the_path_lost_and_hardly_more() {
    let far = Far::new("rate=200Mbit/s,rtt=40ms,loss=1e-2");
    let outcome = pushed(&far, "udp", 60);
    let (again, wire) = (outcome.summary()["road"]["udp_bytes_resent"].as_f64().expect("bytes"), far.forward());
    // Headers of IP and UDP, the header of a piece and its tag.
    let lost = wire.bytes - wire.delivered_bytes - wire.dropped() * (20 + 8 + 24 + 16);
    let part = again / lost as f64;
    // One in twenty may be a description of a unit, or a message of the control connection.
    assert!((0.9..1.1).contains(&part), "{part:.3} of {lost} lost bytes were sent again: {wire:?}\n{outcome}");
}

/// Round trips from when the last payload of a push was at the other host until the program had
/// exited, as the path saw it, and its own account of them.
fn from_last_byte(far: &Far, transport: &str) -> (f64, Outcome) {
    // Lanes that are dialled later would say more behind the last payload than that is.
    let lanes = if transport == "tcp" { &["--lanes", "4"][..] } else { &[] };
    let push = far.run("push").args(["--transport", transport]).args(lanes).arg("f").arg(far.daemon.url("data/f"));
    let over = AtomicBool::new(false);
    let wan = &far.wan;
    let arrived = || wan.counters().unwrap()[0].forward.delivered_bytes;
    let (outcome, ended, seen) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut seen = vec![(Instant::now(), arrived())];
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
                seen.push((Instant::now(), arrived()));
            }
            seen
        });
        let outcome = push.finish();
        let ended = Instant::now();
        over.store(true, Ordering::Relaxed);
        (outcome, ended, watch.join().unwrap())
    });
    assert_eq!(outcome.code, 0, "{transport}: {outcome}\n{}", far.daemon.log());
    let all = seen[seen.len() - 1].1;
    let last = seen.iter().find(|(_, bytes)| bytes + FAREWELL >= all).expect("the last look");
    ((ended - last.0).div_duration_f64(ROUND_TRIP), outcome)
}

/// From the last byte's arrival: data and names are made durable, and the word of that takes half a
/// round trip; to a pull the daemon's last word takes a whole one. An added round trip is too much,
/// however slow the host: it has most of one for itself.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn from_the_last_byte_to_the_exit_it_takes_half_a_round_trip_and_the_commit_over_each_transport() {
    let run = |transport: &str| {
        let far = Far::new(&format!("rate=1Gbit/s,rtt={}ms", ROUND_TRIP.as_millis()));
        // Too much for the first page.
        files::make(far.client.path("f"), 1, 120_000);
        let (seen, push) = from_last_byte(&far, transport);
        let pull = far.run("pull").args(["--transport", transport]).arg(far.daemon.url("data/f")).arg("g").succeed();
        (seen, push, pull)
    };
    let took = thread::scope(|scope| {
        let threads = TRANSPORTS.map(|transport| scope.spawn(move || run(transport)));
        threads.map(|thread| thread.join().unwrap())
    });
    for (transport, (seen, push, pull)) in TRANSPORTS.into_iter().zip(took) {
        let [own, of_pull] = [&push, &pull].map(|outcome| outcome.summary()["road"]["last_byte_rtts"].clone());
        eprintln!("{transport}: {seen:.2} as the path saw it, {own} by its own account, a pull {of_pull}");
        assert!((0.2..1.4).contains(&seen), "{transport}: {seen:.2} round trips as the path saw it: {push}");
        // What other transports still hold back has left their lanes.
        let most = if transport == "udp" { 1.9 } else { 60.0 };
        assert!(lies(&own, 0.9, most), "{transport}: {own} round trips by its own account: {push}");
        assert!(lies(&of_pull, 0.9, 1.9), "{transport}: {of_pull} round trips: {pull}");
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
    let told = outcome.events_of("lanes");
    let is_told = told.iter().any(|event| event["reason"].as_str().unwrap().starts_with("others use the path too"));
    assert!(is_told, "{outcome}");
    let road = &summary["road"];
    assert!(lies(&road["share_beside"], 0.05, 1.0) && lies(&road["beside_s"], 1.0, 600.0), "{road}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn what_of_the_network_limits_lanes_over_tcp_beside_somebody_else_is_shared() {
    let far = Far::new("rate=100Mbit/s,rtt=20ms,queue=1bdp");
    let shared = |outcome: &Outcome| outcome.summary()["limits"]["network:shared"].as_f64().unwrap_or(0.0);
    let alone = pushed(&far, "tcp", 40);
    assert!(shared(&alone) < 0.05, "{alone}");
    let rival = Rival::start(&far);
    let outcome = pushed(&far, "tcp", 80);
    rival.end();
    assert!(shared(&outcome) > 0.1, "{outcome}");
}

const TRANSPORTS: [&str; 3] = ["tcp", "udp", "quic"];
/// Long against all that a busy host may take for its part.
const ROUND_TRIP: Duration = Duration::from_millis(800);
/// Bytes that follow the last payload: ends of lanes, and the goodbye.
const FAREWELL: u64 = 4_000;
