//! UDP lanes on paths that do more to packets than to lose one now and then.

use super::*;

const UDP: [&str; 2] = ["--transport", "udp"];

/// A path, and the counter that shows what it does.
struct Harm {
    path: &'static str,
    seen: fn(&Counters) -> u64,
    /// The part of all packets that is lost or cannot be opened.
    lost: f64,
}

const HARMS: [Harm; 7] = [
    Harm { path: "rate=200Mbit/s,rtt=40ms,loss=3e-2", seen: |wire| wire.dropped_loss, lost: 0.03 },
    Harm { path: "rate=200Mbit/s,rtt=40ms,loss=1e-2@20", seen: |wire| wire.dropped_loss, lost: 0.05 },
    // Held back for a tenth of a round trip.
    Harm {
        path: "rate=200Mbit/s,rtt=40ms,duplicate=1e-2,reorder=1e-2@4ms",
        seen: |wire| wire.duplicated.min(wire.reordered),
        lost: 0.0,
    },
    Harm { path: "rate=200Mbit/s,rtt=40ms,corrupt-silently=1e-3", seen: |wire| wire.corrupted_silently, lost: 0.02 },
    Harm { path: "rate=100Mbit/s,rtt=40ms,loss=8e-2", seen: |wire| wire.dropped_loss, lost: 0.08 },
    Harm { path: "rate=100Mbit/s,rtt=40ms,loss=1e-1", seen: |wire| wire.dropped_loss, lost: 0.1 },
    // A way that takes five milliseconds longer for half of all packets.
    Harm { path: "rate=200Mbit/s,rtt=60ms,reorder=0.5@5ms", seen: |wire| wire.reordered, lost: 0.0 },
];

/// Runs of a path of which one at least keeps its control connection.
const TRIES: usize = 5;

/// All of it is repaired within the lane: packets that were lost go again, and those that were
/// changed do not open, so that no chunk has a wrong digest.
fn assert_repaired(what: &str, lost: f64, wire: &Counters, outcome: &Outcome) {
    let summary = outcome.summary();
    assert_eq!(summary["bytes_resent"], 0, "{what}: chunks went again: {outcome}");
    // At which rate it is paced may be told of, and why.
    let told = outcome.events_of("lanes");
    let has_gone = told.iter().any(|lanes| !lanes["change"].as_str().unwrap_or_default().starts_with("paced at "));
    assert!(!has_gone, "{what}: a lane did not stay: {outcome}");
    let payload = summary["bytes_committed"].as_u64().unwrap() as f64;
    // What a queue drops while the rate is found goes again too, more of it on a busy machine.
    let most = payload * 1.3 / (1.0 - lost);
    assert!((wire.bytes as f64) < most, "{what}: {} bytes on the wire, for {payload}: {wire:?}", wire.bytes);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn losses_bursts_copies_late_packets_and_changed_bits_are_borne_within_a_lane_over_udp() {
    for (harm, direction) in HARMS.iter().zip([Direction::Push, Direction::Pull].into_iter().cycle()) {
        // Bits that change on the control connection, over TCP, end that, and with it the session,
        // which goes on over TCP: that tells nothing of lanes.
        let broke = |outcome: &Outcome| outcome.stderr.contains("the control connection broke");
        let mut moved = (0..TRIES).map(|_| moves_a_tree(harm.path, direction, &UDP, 20 * MIB + 5));
        let (wire, outcome) = moved.find(|(_, outcome)| !broke(outcome)).expect("one whose control held");
        assert!((harm.seen)(&wire) > 0, "{}: {wire:?}", harm.path);
        assert_repaired(harm.path, harm.lost, &wire, &outcome);
    }
}

/// A push of a file of so many MiB over UDP, and the counters of the way there.
fn pushed(far: &Far, mib: usize) -> (Counters, Outcome) {
    let (run, [near, there]) = moving(far, Direction::Push, mib, &UDP);
    let outcome = run.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
    (far.forward(), outcome)
}

/// A link of jumbo packets with these settings.
fn link(path: &str) -> Link {
    let mut link = Link { mtu: 9000, ..Link::even(Path::default()) };
    link.apply(&path.parse::<Change>().unwrap());
    link
}

fn far_over(link: Link) -> Far {
    Far::over(Wan::new(&Config { links: vec![link], ..Config::default() }).unwrap(), "")
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_way_back_of_a_hundredth_of_the_rate_has_room_for_all_statuses() {
    let mut link = link("rate=400Mbit/s,rtt=40ms");
    "rate=4Mbit/s,queue=20KiB".parse::<Change>().unwrap().apply(&mut link.backward);
    let far = far_over(link);
    let (wire, outcome) = pushed(&far, 40);
    assert_repaired("a narrow way back", 0.0, &wire, &outcome);
    let back = far.wan.counters().unwrap()[0].backward;
    assert!(back.dropped_queue == 0 && back.bytes * 500 < wire.bytes, "{back:?} {outcome}");
}

/// A kernel cuts runs of datagrams only for devices that compute checksums.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn hosts_that_cannot_cut_runs_of_datagrams_send_them_one_by_one() {
    let path = "rate=200Mbit/s,rtt=20ms";
    let [cut, uncut] = [true, false].map(|offloads| {
        let far = far_over(Link { offloads, ..link(path) });
        let (wire, outcome) = pushed(&far, 20);
        assert_repaired(path, 0.0, &wire, &outcome);
        wire
    });
    assert!(cut.frames * 2 < cut.packets, "{cut:?}");
    assert_eq!(uncut.frames, uncut.packets, "{uncut:?}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn lanes_over_udp_whose_statuses_do_not_come_back_fall_silent_and_go_on_when_they_do() {
    const RATE: u64 = 200_000_000 / 8;
    let far = Far::new("rate=200Mbit/s,rtt=40ms");
    let (run, [near, there]) = moving(&far, Direction::Push, 120, &UDP);
    let running = run.start();
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 20 << 20));
    let back = |change: &str| {
        far.wan.change(0, Some(longhaul_wan::Direction::Backward), &change.parse::<Change>().unwrap()).unwrap();
    };
    back("block=udp");
    // After four seconds without one, nothing but signs of life is sent.
    std::thread::sleep(Duration::from_secs(5));
    let before = far.forward().bytes;
    std::thread::sleep(Duration::from_secs(1));
    let sent = far.forward().bytes - before;
    assert!(sent < RATE / 64, "{sent} bytes in a second: {}", far.daemon.log());
    back("block=none");
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
    assert!(far.wan.counters().unwrap()[0].backward.dropped_blocked > 0);
}

/// Outages for which the gate has no time are played by `cargo xtask paths`.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn outages_are_survived_by_udp() {
    // A lane over UDP is given up after 20 s without a word.
    for seconds in if is_long() { &[3, 25][..] } else { &[5] } {
        let far = Far::new("rate=400Mbit/s,rtt=40ms");
        let (run, [near, there]) = moving(&far, Direction::Push, 90, &UDP);
        let running = run.start();
        running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 20 << 20));
        far.change("link=down");
        // The only way to be cut off for a time is to wait for it.
        std::thread::sleep(Duration::from_secs(*seconds));
        far.change("link=up");
        let outcome = running.finish();
        assert_eq!(outcome.code, 0, "{seconds} s: {outcome}\n{}", far.daemon.log());
        tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
    }
}
