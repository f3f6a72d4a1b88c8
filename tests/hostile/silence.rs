//! A lane that falls silent in the middle of a unit while everything else lives: the peer on
//! control, and TCP's acknowledgements.

use std::sync::Mutex;

use super::proxy::{Gate, Kind, hold_after};
use super::{Direction, Wired, at_once};
use crate::fixture::{PROTECTIONS, files};

#[test]
fn a_lone_lane_that_is_held_in_the_middle_of_a_chunk_is_replaced() {
    let cases = PROTECTIONS.into_iter().flat_map(|protect| Direction::BOTH.map(|direction| (protect, direction)));
    at_once(4, cases, |(protect, direction)| {
        let gate = Gate::default();
        let holding = Mutex::new(Some(gate.clone()));
        // The first lane only, for ever: all bytes sent into it are acknowledged and kept.
        let wired = Wired::new(move |kind, way| {
            let mut take = || holding.lock().unwrap().take();
            let held = (kind != Kind::Control && way == direction.way()).then(&mut take)?;
            held.map(|gate| hold_after((2 << 20) - 1000, gate))
        });
        wired.source(direction, |path| files::make(path, 1, (6 << 20) + 17));
        let outcome = wired.run(direction, protect, "threads").args(["--stall-timeout", "5s"]).fail(0);
        wired.assert_copied(direction, &outcome.to_string());
        let lanes = wired.proxy.count(if protect == "safe" { Kind::SafeLane } else { Kind::PrivateLane });
        assert_eq!(lanes, 2, "{outcome}");
        gate.open();
    });
}
