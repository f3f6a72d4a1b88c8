//! Links that break and are made good: lanes replaced, sessions dialled again, daemons that come
//! back.
//!
//! A proxy holds the payload, so that "in the middle" is a state and not a moment; then it cuts,
//! and lets go.

use std::path::Path;

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Outcome, PROTECTIONS, Run, Site, files};
use crate::hostile::proxy::{Gate, Kind, hold_after};
use crate::hostile::{Direction, End, Wired};

/// The length of a file: more than the lanes hold on their way, in chunks of 1 MiB.
const LEN: usize = (24 << 20) + 17;

/// Both directions with both protections.
fn ways() -> impl Iterator<Item = (Direction, &'static str)> {
    Direction::BOTH.into_iter().flat_map(|direction| PROTECTIONS.map(|protect| (direction, protect)))
}

fn lane(protect: &str) -> Kind {
    if protect == "safe" { Kind::SafeLane } else { Kind::PrivateLane }
}

/// A site where every lane's payload in `direction` waits at the gate behind its second MiB.
fn held(direction: Direction) -> (Wired, Gate) {
    held_behind(direction, 2 << 20)
}

fn held_behind(direction: Direction, bytes: u64) -> (Wired, Gate) {
    let gate = Gate::default();
    let holding = gate.clone();
    let wired = Wired::new(move |kind, way| {
        (kind != Kind::Control && way == direction.way()).then(|| hold_after(bytes, holding.clone()))
    });
    (wired, gate)
}

/// Moves `f` through the proxy over two lanes, and dials again for a minute.
fn run(wired: &Wired, direction: Direction, protect: &str) -> Run {
    let far = format!("lh://{}/data/", wired.proxy.addr());
    run_to(&wired.site, direction, &far).args(["--protect", protect])
}

fn run_to(site: &Site, direction: Direction, far: &str) -> Run {
    let run = match direction {
        Direction::Push => site.client.run(["push", "f", far]),
        Direction::Pull => site.client.run(["pull".to_owned(), format!("{far}f"), ".".to_owned()]),
    };
    let run = run.args(["--json", "--retry-for", "60s", "--peer-key", site.daemon.key()]);
    run.args(["--lanes", "2", "--chunk-size", "1MiB", "--memory", "16MiB"])
}

/// The number of losses on the way, as events tell them; each is tried again.
fn redials(outcome: &Outcome) -> usize {
    let faults = outcome.events_of("fault");
    assert!(faults.iter().all(|fault| fault["retry"] == true), "{outcome}");
    faults.len()
}

/// Makes a tree with every kind of entry, in which a file of chunks is still under way when others
/// have settled.
fn make_tree(top: &Path) -> u64 {
    for n in 0..30 {
        files::make(top.join(format!("small/{n}")), n, 1000 + n as usize);
    }
    for n in 0..3 {
        files::make(top.join(format!("large-{n}")), 100 + n, 12 << 20);
    }
    files::link("large-0", top.join("link"));
    std::fs::create_dir(top.join("empty")).unwrap();
    files::set_mtime(top.join("small"), 1_000_000_000, 7);
    files::set_mtime(top, 1_000_000_001, 7);
    34
}

/// Checks that the run ended well: the same tree stands at both ends, and every file was told once.
#[track_caller]
fn assert_moved_once(wired: &Wired, direction: Direction, outcome: &Outcome, files: u64) {
    let (from, to) = (wired.end(direction, End::From), wired.end(direction, End::To));
    tree::assert_same(&Tree::of(from), &Tree::of(to), outcome);
    // A link that was made before the connection broke, and whose outcome broke off with it, is
    // found to be there.
    let skipped = outcome.events_of("file").into_iter().filter(|file| file["status"] == "skipped");
    let found: Vec<_> = skipped.map(|file| file["path"].to_string()).collect();
    assert!(found.iter().all(|path| path.ends_with("/link\"")), "{found:?}: {outcome}");
    assert_eq!(outcome.counts(), (files - found.len() as u64, found.len() as u64, 0), "{outcome}");
    let mut told: Vec<_> = outcome.events_of("file").iter().map(|file| file["path"].to_string()).collect();
    told.sort();
    let count = told.len();
    told.dedup();
    assert_eq!((told.len(), count as u64), (count, files), "each file once: {outcome}");
}

#[test]
fn a_lost_lane_is_replaced_and_the_session_goes_on() {
    for (direction, protect) in ways() {
        let (wired, gate) = held(direction);
        wired.source(direction, |path| files::make(path, 1, LEN));
        let running = run(&wired, direction, protect).start();
        gate.wait_reached();
        wired.proxy.cut_first(lane(protect));
        gate.open();
        let outcome = running.fail(0);
        wired.assert_copied(direction, &outcome.to_string());
        assert_eq!((redials(&outcome), wired.proxy.count(Kind::Control)), (0, 1), "{outcome}");
    }
}

#[test]
fn all_lanes_lost_at_once_are_replaced_and_the_session_goes_on() {
    for (direction, protect) in ways() {
        let (wired, gate) = held(direction);
        wired.source(direction, |path| files::make(path, 1, LEN));
        let running = run(&wired, direction, protect).start();
        gate.wait_reached();
        wired.proxy.cut(lane(protect));
        gate.open();
        let outcome = running.fail(0);
        wired.assert_copied(direction, &outcome.to_string());
        assert_eq!((redials(&outcome), wired.proxy.count(Kind::Control)), (0, 1), "{outcome}");
        assert!(wired.proxy.count(lane(protect)) > 2, "{outcome}");
    }
}

#[test]
fn a_lane_that_stands_still_while_others_move_is_given_up() {
    for (direction, protect) in ways() {
        let gate = Gate::default();
        let holding = std::sync::Mutex::new(Some(gate.clone()));
        // The first lane only, for ever.
        let wired = Wired::new(move |kind, way| {
            let mut take = || holding.lock().unwrap().take();
            let hold = (kind != Kind::Control && way == direction.way()).then(&mut take)?;
            hold.map(|gate| hold_after(1 << 20, gate))
        });
        wired.source(direction, |path| files::make(path, 1, 4 * LEN));
        let outcome = run(&wired, direction, protect).args(["--stall-timeout", "1s"]).finish();
        assert_eq!(outcome.code, 0, "{outcome}\n{}", wired.site.daemon.log());
        tree::assert_same(
            &Tree::of(wired.end(direction, End::From)),
            &Tree::of(wired.end(direction, End::To)),
            &outcome,
        );
        assert_eq!((redials(&outcome), wired.proxy.count(Kind::Control)), (0, 1), "{outcome}");
        gate.open();
    }
}

#[test]
fn a_lost_control_connection_is_dialled_again_and_no_file_is_told_twice() {
    for (direction, protect) in ways() {
        // Small files go first: they are through, and told, before the large ones are cut off.
        let (wired, gate) = held_behind(direction, 6 << 20);
        let mut files = 0;
        wired.source(direction, |path| files = make_tree(path));
        let running = run(&wired, direction, protect).start();
        gate.wait_reached();
        running.wait_type("file");
        wired.proxy.cut(Kind::Control);
        running.wait_stderr("dialling again");
        gate.open();
        let outcome = running.fail(0);
        assert_moved_once(&wired, direction, &outcome, files);
        assert!(redials(&outcome) >= 1, "{outcome}");
        assert_eq!(outcome.events_of("start").len(), 1, "{outcome}");
        let summary = outcome.summary();
        assert_eq!(summary["status"], "complete", "{outcome}");
    }
}

#[test]
fn everything_cut_again_and_again_still_arrives() {
    for (direction, protect) in ways() {
        let (wired, gate) = held(direction);
        let mut files = 0;
        wired.source(direction, |path| files = make_tree(path));
        let running = run(&wired, direction, protect).start();
        for times in 1..=3 {
            // Held again each time: the gate opens at the end only.
            wired.proxy.wait_count(Kind::Control, times);
            gate.wait_reached();
            wired.proxy.cut(Kind::Control);
            wired.proxy.cut(lane(protect));
        }
        wired.proxy.wait_count(Kind::Control, 4);
        gate.open();
        let outcome = running.fail(0);
        assert_moved_once(&wired, direction, &outcome, files);
        assert!(redials(&outcome) >= 3, "{outcome}");
    }
}

#[test]
fn a_client_takes_over_from_its_own_session_that_the_daemon_believes_alive() {
    for (direction, protect) in ways() {
        let (wired, gate) = held(direction);
        let mut files = 0;
        wired.source(direction, |path| files = make_tree(path));
        let running = run(&wired, direction, protect).start();
        gate.wait_reached();
        wired.proxy.desert();
        gate.open();
        let outcome = running.fail(0);
        assert_moved_once(&wired, direction, &outcome, files);
        wired.site.daemon.wait_log("the client dialled again");
        wired.assert_clean(&outcome.to_string());
    }
}

#[test]
fn a_way_that_is_silent_for_a_while_costs_nothing_but_time() {
    for (direction, protect) in ways() {
        let gate = Gate::default();
        let holding = gate.clone();
        let wired = Wired::new(move |_, way| {
            let bytes = if way == direction.way() { 2 << 20 } else { 20_000 };
            Some(hold_after(bytes, holding.clone()))
        });
        wired.source(direction, |path| files::make(path, 1, LEN));
        let running = run(&wired, direction, protect).start();
        gate.wait_reached();
        let since = running.wait_type("progress")["t_s"].as_f64().unwrap();
        running.wait_event(|event| (event["t_s"].as_f64()? > since + 3.0).then_some(()));
        gate.open();
        let outcome = running.fail(0);
        wired.assert_copied(direction, &outcome.to_string());
        assert_eq!((redials(&outcome), wired.proxy.count(Kind::Control)), (0, 1), "{outcome}");
    }
}

#[test]
fn a_daemon_that_is_killed_and_started_again_in_mid_transfer_is_survived() {
    for (direction, protect) in ways() {
        for signal in [Signal::KILL, Signal::TERM] {
            let (wired, gate) = held(direction);
            let mut files = 0;
            wired.source(direction, |path| files = make_tree(path));
            let running = run(&wired, direction, protect).start();
            gate.wait_reached();
            wired.site.daemon.signal(signal);
            running.wait_stderr("dialling again");
            gate.open();
            let again = wired.site.restarted();
            let outcome = running.finish();
            assert_eq!(outcome.code, 0, "{outcome}\n{}", again.log());
            let (from, to) = (wired.end(direction, End::From), wired.end(direction, End::To));
            let mut stands = Tree::of(to);
            // This test does not look at the files that a killed daemon leaves behind.
            stands.0.retain(|path, _| !path.split(|b| *b == b'/').any(|name| name.starts_with(b".longhaul")));
            tree::assert_same(&Tree::of(from), &stands, &outcome);
            assert_eq!(outcome.counts(), (files, 0, 0), "{outcome}");
            assert!(redials(&outcome) >= 1, "{outcome}");
        }
    }
}

#[test]
fn patience_ends_with_the_fault_that_is_still_there() {
    for direction in Direction::BOTH {
        let (wired, gate) = held(direction);
        wired.source(direction, |path| files::make(path, 1, LEN));
        let running = run(&wired, direction, "safe").args(["--retry-for", "1s"]).start();
        gate.wait_reached();
        wired.site.daemon.signal(Signal::KILL);
        gate.open();
        let outcome = running.fail(5);
        assert_eq!(outcome.summary()["status"], "temporary", "{outcome}");
        assert!(redials(&outcome) >= 2, "{outcome}");
        assert!(outcome.stderr.contains("run it again"), "{outcome}");
    }
}

#[test]
fn a_signal_ends_the_wait_for_another_dial() {
    let (wired, gate) = held(Direction::Push);
    wired.source(Direction::Push, |path| files::make(path, 1, LEN));
    let running = run(&wired, Direction::Push, "safe").start();
    gate.wait_reached();
    wired.site.daemon.signal(Signal::KILL);
    running.wait_stderr("dialling again");
    running.signal(Signal::INT);
    gate.open();
    let outcome = running.fail(130);
    assert_eq!(outcome.summary()["status"], "interrupted", "{outcome}");
}

#[test]
fn a_daemon_that_was_never_reached_is_not_dialled_again() {
    let host = crate::fixture::Host::new();
    files::make(host.path("f"), 1, 10);
    let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outcome = host.run(["push", "--json", "f", &format!("lh://{addr}/data/")]).fail(5);
    assert!(!outcome.stderr.contains("dialling again"), "{outcome}");
}

#[test]
fn what_a_run_committed_before_its_link_was_lost_is_not_in_its_own_way() {
    for (direction, rule) in [
        (Direction::Push, "fail"),
        (Direction::Push, "replace"),
        (Direction::Pull, "fail"),
        (Direction::Pull, "replace"),
    ] {
        let (wired, gate) = held(direction);
        let mut files = 0;
        wired.source(direction, |path| files = make_tree(path));
        let running = run(&wired, direction, "safe").args(["--if-exists", rule]).start();
        gate.wait_reached();
        // Some of the small files stand, and the client knows.
        running.wait_event(|event| event["files_committed"].as_u64().filter(|committed| *committed > 0));
        wired.proxy.cut(Kind::Control);
        wired.proxy.cut(Kind::SafeLane);
        gate.open();
        let outcome = running.fail(0);
        assert_moved_once(&wired, direction, &outcome, files);
        assert!(redials(&outcome) >= 1, "{outcome}");
    }
}
