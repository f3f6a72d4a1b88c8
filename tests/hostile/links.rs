//! Transfers that are cut off in the middle and not tried again: control connections that break,
//! ends that die, users who give up. (Transfers that are tried again are in `links` at the top.)
//!
//! The proxy holds the payload, so that "in the middle" is a state and not a moment.

use std::fs;

use rustix::process::Signal;

use super::proxy::{Gate, Kind, hold_after};
use super::{Direction, End, Wired, assert_serves};
use crate::fixture::{PROTECTIONS, engines, files, tree};

/// A file that comes in chunks, and is not through when the gate closes.
const LEN: usize = (6 << 20) + 17;

/// A transfer of `f` in `direction` whose payload waits at the gate behind its second MiB.
fn held(direction: Direction) -> (Wired, Gate) {
    let gate = Gate::default();
    let holding = gate.clone();
    let wired = Wired::new(move |kind, way| {
        (kind != Kind::Control && way == direction.way()).then(|| hold_after(2 << 20, holding.clone()))
    });
    wired.source(direction, |path| files::make(path, 1, LEN));
    (wired, gate)
}

/// The ways in which the tests below run.
fn ways() -> impl Iterator<Item = (Direction, &'static str, &'static str)> {
    // Every pair of directions and protections, the engines in turn.
    let pairs = Direction::BOTH.into_iter().flat_map(|direction| PROTECTIONS.map(|protect| (direction, protect)));
    pairs.zip(engines().iter().cycle()).map(|((direction, protect), engine)| (direction, protect, *engine))
}

/// Fails unless the receiving end, while the gate is closed, has one temporary, and not the final
/// name.
fn assert_under_way(wired: &Wired, direction: Direction) {
    let to = wired.end(direction, End::To);
    let beside = tree::leftovers(to.parent().unwrap());
    let temporaries = beside.iter().filter(|path| path.starts_with(".longhaul-")).count();
    assert_eq!(temporaries, 1, "a temporary stands, or this tests nothing: {beside:?}");
    assert!(!to.exists());
}

#[test]
fn a_broken_control_connection_ends_the_session_as_lost() {
    for (direction, protect, engine) in ways() {
        let (wired, gate) = held(direction);
        let running = wired.run(direction, protect, engine).start();
        gate.wait_reached();
        wired.proxy.cut(Kind::Control);
        let outcome = running.fail(5);
        wired.assert_absent(direction, &outcome.to_string());
        assert_eq!(outcome.events_of("fault")[0]["retry"], true, "{outcome}");
        gate.open();
        assert_serves(&wired.site, &format!("a cut control connection, {direction:?} {protect}"));
    }
}

#[test]
fn a_daemon_killed_in_the_middle_leaves_no_final_name() {
    for (direction, protect, engine) in ways() {
        let (wired, gate) = held(direction);
        let running = wired.run(direction, protect, engine).start();
        gate.wait_reached();
        wired.site.daemon.signal(Signal::KILL);
        let outcome = running.fail(5);
        let to = wired.end(direction, End::To);
        assert!(!to.exists(), "{outcome}");
        if direction == Direction::Pull {
            assert_eq!(tree::orphans(wired.site.client.dir()), [""; 0], "{outcome}");
        }
        gate.open();
    }
}

#[test]
fn a_client_killed_in_the_middle_leaves_nothing_at_a_daemon_that_serves_on() {
    for protect in PROTECTIONS {
        let (wired, gate) = held(Direction::Push);
        let running = wired.run(Direction::Push, protect, "threads").start();
        gate.wait_reached();
        assert_under_way(&wired, Direction::Push);
        running.signal(Signal::KILL);
        running.fail(128 + 9);
        wired.site.daemon.wait_log("ended: ");
        assert_eq!(tree::orphans(wired.site.root()), [""; 0], "{}", wired.site.daemon.log());
        assert!(!wired.site.root().join("f").exists());
        gate.open();
        assert_serves(&wired.site, &format!("a killed client, {protect}"));
    }
}

#[test]
fn a_signal_ends_a_transfer_cleanly_under_its_own_exit_code() {
    for (signal, code, name) in [(Signal::INT, 130, "interrupted"), (Signal::TERM, 143, "terminated")] {
        for (direction, protect, engine) in ways() {
            let (wired, gate) = held(direction);
            let running = wired.run(direction, protect, engine).start();
            gate.wait_reached();
            assert_under_way(&wired, direction);
            running.signal(signal);
            let outcome = running.fail(code);
            wired.assert_absent(direction, &outcome.to_string());
            assert_eq!(outcome.summary()["status"], name, "{outcome}");
            gate.open();
        }
    }
}

#[test]
fn a_name_that_appears_in_mid_transfer_is_not_touched() {
    for (direction, protect, engine) in ways() {
        let (wired, gate) = held(direction);
        let running = wired.run(direction, protect, engine).args(["--if-exists", "fail"]).start();
        gate.wait_reached();
        let to = wired.end(direction, End::To);
        fs::write(&to, "somebody was faster").unwrap();
        gate.open();
        let outcome = running.fail(23);
        assert_eq!(fs::read(&to).unwrap(), b"somebody was faster", "{outcome}");
        assert_eq!(outcome.file("f")["status"], "failed", "{outcome}");
        wired.assert_clean(&outcome.to_string());
    }
}

#[test]
fn what_held_and_went_on_is_whole() {
    for (direction, protect, engine) in ways() {
        let (wired, gate) = held(direction);
        let running = wired.run(direction, protect, engine).start();
        gate.wait_reached();
        gate.open();
        let outcome = running.fail(0);
        wired.assert_copied(direction, &outcome.to_string());
    }
}
