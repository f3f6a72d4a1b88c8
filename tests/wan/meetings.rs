//! Whom a session meets on a path besides one connection under cubic: many, one under BBR, a
//! session of its own kind, a policer. Bounds are wide: they tell a session that starves others, or
//! is starved, from one that is merely held up. How even the parts are is measured by
//! `wan --beside`.

use super::manners::{LINE, Parts, beside, measuring, part_of_line};
use super::*;

/// The transports of this run: the gate plays lanes over UDP, `cargo xtask paths` all.
fn transports() -> &'static [&'static str] {
    if is_long() { &["udp", "tcp", "quic"] } else { &["udp"] }
}

/// A fair part beside ten connections is an eleventh of the line.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn ten_strangers_keep_most_of_a_path_and_a_session_has_a_part_of_it() {
    for transport in transports() {
        let parts = beside(&["--transport", transport], "cubic", 10);
        assert!(parts.theirs > 0.4 && parts.ours > 0.02, "{transport}: {parts:?}");
    }
}

/// BBR leaves little to those who keep queues short.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_stranger_under_bbr_neither_starves_a_session_nor_is_starved() {
    for transport in transports() {
        let parts = beside(&["--transport", transport], "bbr", 1);
        assert!(parts.theirs > 0.2 && parts.ours > 0.02, "{transport}: {parts:?}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn two_sessions_on_a_path_fill_it_and_neither_starves_the_other() {
    for transport in transports() {
        let far = Far::new("rate=200Mbit/s,rtt=20ms,queue=1bdp");
        let options = ["--transport", transport];
        let running = [(); 2].map(|()| measuring(&far, "14", &options).start());
        let [theirs, ours] = running.map(|one| {
            let outcome = one.finish();
            assert_eq!(outcome.code, 0, "{transport}: {outcome}");
            part_of_line(&outcome.events_of("bench_net").remove(0))
        });
        let parts = Parts { theirs, ours };
        assert!(theirs.min(ours) > 0.1 && theirs + ours > 0.4, "{transport}: {parts:?}");
    }
}

/// A policer drops what is above its rate and keeps no queue that would tell of it.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn behind_a_policer_a_session_stays_below_its_rate_and_loses_little() {
    for transport in transports() {
        let far = Far::new("rate=200Mbit/s,rtt=20ms,queue=bucket:256KiB");
        let outcome = measuring(&far, "10", &["--transport", transport]).finish();
        assert_eq!(outcome.code, 0, "{transport}: {outcome}");
        let (ours, wire) = (part_of_line(&outcome.events_of("bench_net").remove(0)), far.forward());
        assert!(ours > 0.2, "{transport}: {ours} of {LINE}: {wire:?}");
        assert!(wire.dropped_queue * 6 < wire.packets, "{transport}: {wire:?}");
    }
}
