//! Sessions in which anything may happen.

use std::collections::BTreeMap;

use crate::plan::Plan;
use crate::session::{Session, play_session};

/// Seeds played by an ordinary test run; `SIM_SEEDS` asks for another number.
const SEEDS: u64 = 600;

#[test]
fn whatever_happens_in_whatever_order_every_entry_comes_to_its_outcome() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut counts = BTreeMap::<&str, u64>::new();
    for seed in 0..seeds {
        play_session(seed).into_iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
    }
    // The worlds are only worth something if all of this happens in them.
    for name in [
        "committed",
        "skipped",
        "planned",
        "mismatch",
        "changed",
        "vanished",
        "exists",
        "denied",
        "in-the-way",
        "unsent",
        "equal",
    ] {
        assert!(counts.get(name).is_some_and(|count| *count >= 10), "{name} hardly ever happened: {counts:?}");
    }
}

/// The loop of the engine takes in all events that are there, up to 64, before it has an order
/// carried out.
#[test]
fn a_machine_whose_orders_wait_for_more_events_comes_to_the_same_end() {
    let (mut waited, mut most, mut pressed) = (0, 0, 0);
    for seed in 0..200 {
        let mut plan = Plan::varied(seed);
        plan.scene.hesitates = 900;
        let session = Session::new(plan, seed).run_well();
        let events = session.receiver().seen.rounds.events_at_once;
        waited += usize::from(events > 1);
        most = most.max(events);
        pressed += session.receiver().seen.rounds.pressed;
    }
    assert!(waited > 180 && most > 32, "in {waited} worlds orders waited, for {most} events at most");
    assert!(pressed > 200, "a machine was pressed {pressed} times");
}
