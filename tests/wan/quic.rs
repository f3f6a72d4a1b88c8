//! Lanes over QUIC on long paths: the failures that they survive, the rate that they keep, and when
//! the program goes over to them by itself.

use super::*;

const QUIC: [&str; 2] = ["--transport", "quic"];

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_tree_arrives_right_over_quic_with_and_without_loss() {
    for loss in ["0", "1e-2"] {
        for direction in [Direction::Push, Direction::Pull] {
            let path = format!("rate=400Mbit/s,rtt=60ms,loss={loss}");
            let (wire, _) = moves_a_tree(&path, direction, &QUIC, 20 * MIB + 5);
            assert_eq!(wire.dropped_loss > 0, loss != "0", "{wire:?}");
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_hole_for_large_packets_is_found_and_gone_around_by_quic() {
    for direction in [Direction::Push, Direction::Pull] {
        let (wire, _) = moves_a_tree("rate=200Mbit/s,rtt=20ms,hole=1500", direction, &QUIC, 20 * MIB + 5);
        assert!(wire.dropped_hole > 0, "larger ones were tried: {wire:?}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_hole_that_opens_under_a_standing_connection_is_gone_around_by_quic() {
    let far = Far::new("rate=200Mbit/s,rtt=20ms");
    files::make(far.client.path("f"), 1, 100 * MIB);
    let running = far.run("push").args(QUIC).arg("f").arg(far.daemon.url("data/f")).start();
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 30 << 20));
    far.change("hole=1500");
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    assert!(far.forward().dropped_hole > 0, "{outcome}");
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn more_packets_may_be_missing_at_a_time_than_a_stream_may_have_gaps() {
    // 500 Mbit/s x 200 ms hold 8,600 packets of 1500 bytes: when a third is lost, near 2,900 are
    // missing behind each other before the first can be repaired.
    let mut link = Link { mtu: 1500, ..Link::even(Path::default()) };
    link.apply(&"rate=500Mbit/s,rtt=200ms".parse::<Change>().unwrap());
    let far = Far::over(Wan::new(&Config { links: vec![link], ..Config::default() }).unwrap(), "");
    const LEN: usize = 200 * MIB;
    files::make(far.client.path("f"), 1, LEN);
    let options = ["--transport", "quic", "--lanes", "1", "--rate", "400Mbit/s", "f"];
    let running = far.run("push").args(options).arg(far.daemon.url("data/f")).start();
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 60 << 20));
    let lost = far.forward().dropped_loss;
    far.change("loss=0.33");
    let begun = Instant::now();
    while far.forward().dropped_loss < lost + 4000 && begun.elapsed() < Duration::from_secs(30) {
        std::thread::yield_now();
    }
    far.change("loss=0");
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    // A lane that died of it would have been replaced: the lanes are the first ones.
    assert!(!far.daemon.log().contains("too many gaps"), "{}", far.daemon.log());
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_rate_is_kept_on_the_wire_by_quic_on_a_path_that_loses() {
    for lanes in ["1", "auto"] {
        let far = Far::new("rate=1Gbit/s,rtt=40ms,loss=1e-2");
        files::make(far.client.path("f"), 1, 150 * MIB);
        let run = far.run("push").args(QUIC).args(["--rate", "160Mbit/s", "--lanes", lanes, "f"]);
        let running = run.arg(far.daemon.url("data/f")).start();
        running.wait_event(|event| event["bytes_sent"].as_u64().filter(|sent| *sent > 30 << 20));
        let rate = far.wire_rate(&running, 60 << 20);
        // Of payload: headers, encryption and repairs come on top, for which there is a twentieth,
        // and then those of IP. How near a busy machine comes from below is the bench's to tell.
        assert!((20e6 * 0.5..20e6 * 1.07).contains(&rate), "{lanes} lanes: {rate:.0} bytes/s on the wire");
        let outcome = running.finish();
        let shortest = outcome.summary()["road"]["rtt_us"].as_f64();
        assert!(outcome.code == 0 && shortest >= Some(39_900.0), "no round trip is shorter than the path's: {outcome}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_udp_does_not_pass_quic_says_so_and_auto_does_without() {
    let far = Far::new("rate=200Mbit/s,rtt=20ms,block=udp");
    files::make(far.client.path("f"), 1, 10 * MIB);
    let push = |options: &[&str]| far.run("push").args(options).arg("f").arg(far.daemon.url("data/f")).finish();
    let outcome = push(&["--transport", "quic", "--retry-for", "0"]);
    assert_eq!(outcome.code, 5, "{outcome}");
    assert!(outcome.events_of("fault").iter().any(|fault| fault.to_string().contains("UDP")), "{outcome}");
    assert_eq!(push(&[]).code, 0, "{}", far.daemon.log());
}

/// Options for few lanes, so that trying more lanes over TCP does not take long. Only who may have
/// all of the path goes over to QUIC, and only where lanes over UDP cannot be had.
const FEW_LANES: [&str; 4] = ["--memory", "96MiB", "--share", "all"];

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_tcp_is_held_back_the_program_goes_over_to_quic_by_itself_in_either_direction() {
    for direction in [Direction::Push, Direction::Pull] {
        let far = narrow_hosts("rate=400Mbit/s,rtt=100ms,block=strange-udp");
        let (run, [near, there]) = moving(&far, direction, 500, &FEW_LANES);
        let running = run.start();
        if direction == Direction::Push {
            decision(&running, &["+4 over quic"]);
            // What they carry by the time they are judged depends on the machine: four times what
            // TCP does, or more.
            decision(&running, &["quic", "tcp and quic"]);
        }
        let outcome = running.finish();
        assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
        tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
        // TCP alone would take minutes.
        if direction == Direction::Pull {
            assert!(far.daemon.log().contains("over quic"), "{}", far.daemon.log());
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_trial_of_quic_behind_a_firewall_leaves_the_transfer_as_it_was() {
    let far = narrow_hosts("rate=400Mbit/s,rtt=100ms,block=udp");
    // A trial is made only where enough is left for it to pay.
    files::make(far.client.path("f"), 1, 240 * MIB);
    let running = far.run("push").args(FEW_LANES).arg("f").arg(far.daemon.url("data/f")).start();
    decision(&running, &["+4 over quic"]);
    decision(&running, &["tcp"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
}

/// Has the path of a transfer of 300 MiB over QUIC, with these options, lose half once 30 MiB have
/// gone, until its sender is back at TCP.
fn goes_back_to_tcp(path: &str, direction: Direction, options: &[&str]) {
    let far = Far::new(path);
    let options: Vec<&str> = QUIC.iter().chain(options).copied().collect();
    let (run, [near, there]) = moving(&far, direction, 300, &options);
    let running = run.start();
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 30 << 20));
    far.change("loss=0.5");
    match direction {
        Direction::Push => decision(&running, &["tcp"]),
        Direction::Pull => drop(far.daemon.wait_log("the path loses too much of what lanes over QUIC send")),
    }
    far.change("loss=0");
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_session_over_quic_on_a_path_that_breaks_goes_on_over_tcp_and_says_so() {
    for direction in [Direction::Push, Direction::Pull] {
        goes_back_to_tcp("rate=200Mbit/s,rtt=20ms", direction, &[]);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_session_over_quic_goes_there_again_once_its_breaker_was_open_for_its_time() {
    // That is half a minute each time: the gate has it once.
    for direction in if is_long() { &[Direction::Push, Direction::Pull][..] } else { &[Direction::Push] } {
        let far = Far::new("rate=30Mbit/s,rtt=20ms");
        let (run, [near, there]) = moving(&far, *direction, 300, &QUIC);
        let running = run.start();
        running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 8 << 20));
        far.change("loss=0.5");
        sender_says(&far, &running, *direction, "the path loses too much of what lanes over QUIC send");
        far.change("loss=0");
        sender_says(&far, &running, *direction, "the time is over for which the path lost too much");
        let sent = running.last_so_far("bytes_received").unwrap_or(0);
        running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > sent + (8 << 20)));
        far.change("rate=1Gbit/s");
        let outcome = running.finish();
        assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
        tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
        if *direction == Direction::Push {
            let changes: Vec<_> = outcome.events_of("lanes").iter().map(|event| event["change"].clone()).collect();
            assert!(changes.iter().any(|change| change == "quic"), "they joined: {changes:?}");
        }
    }
}

/// Waits until the side that sends gives this reason for a change of its lanes.
fn sender_says(far: &Far, running: &Running, direction: Direction, reason: &str) {
    match direction {
        Direction::Push => running.wait_event(|event| {
            let is_it = event["type"] == "lanes" && event["reason"].as_str().is_some_and(|why| why.contains(reason));
            is_it.then_some(())
        }),
        Direction::Pull => drop(far.daemon.wait_log(reason)),
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn lanes_over_quic_that_keep_to_themselves_leave_a_path_that_breaks_too() {
    goes_back_to_tcp("rate=200Mbit/s,rtt=2ms", Direction::Push, &[]);
    goes_back_to_tcp("rate=200Mbit/s,rtt=20ms", Direction::Push, &["--share", "all"]);
    // A control that only QUIC has does not keep the session from going back.
    goes_back_to_tcp("rate=200Mbit/s,rtt=20ms", Direction::Pull, &["--congestion", "rate"]);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_push_over_quic_leaves_the_rate_that_it_found_and_a_rate_that_lies_stops_nothing() {
    let far = Far::new("rate=400Mbit/s,rtt=40ms");
    files::make(far.client.path("f"), 1, 100 * MIB);
    let push = |name: &str, told: Option<&str>| {
        let outcome = far.run("push").args(QUIC).arg("f").arg(far.daemon.url(&format!("data/{name}"))).finish();
        assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
        let lanes = outcome.events_of("lanes");
        let says = |words: &str| lanes.iter().any(|event| event["reason"].as_str().unwrap().contains(words));
        assert_eq!(says("of which half is tried"), told.is_some(), "{name}: {outcome}");
        assert!(told.is_none_or(says), "{name}: {outcome}");
        let text = std::fs::read_to_string(far.client.path(PATHS)).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let rate = |left: &serde_json::Value| left["paths"][0]["rate"]["is"]["bytes_per_second"].as_u64().unwrap();
    let line = 20_000_000..60_000_000;
    let mut left = push("first", None);
    assert!(line.contains(&rate(&left)), "{left}");
    left = push("known", Some("MB/s that an earlier session left"));
    assert!(line.contains(&rate(&left)), "{left}");
    left["paths"][0]["rate"]["is"]["bytes_per_second"] = 1_000_000_000_u64.into();
    std::fs::write(far.client.path(PATHS), left.to_string()).unwrap();
    left = push("lied-to", Some("1000.0 MB/s that an earlier session left"));
    assert!(line.contains(&rate(&left)), "another rate took its place: {left}");
}
