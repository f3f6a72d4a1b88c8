//! A model of a fleet: the real rules of the queue and the real gates, with a store in memory, from
//! one seed. Movers, daemons and the store die and pause for 90 s, the store is restored from
//! backups and loses what it had committed, clocks are set an hour off, and several processes lead.
//!
//! In: seeds. Out: for each the first broken promise, if there is one. The promises are those of
//! `check.rs`, and of `order.rs` for worlds in which nothing goes wrong and many campaigns wait for
//! their turn; `mutants.rs` plants bugs, one at a time, to see that they are found.

mod bent;
mod check;
mod destination;
mod hours;
mod mover;
mod mutants;
mod order;
mod setup;
mod world;

use std::collections::BTreeSet;

use mutants::Mutant;
use order::{OrderTally, play_order};
use world::{Tally, play};

/// Seeds that each run plays, unless `SIM_SEEDS` says how many.
const SEEDS: u64 = 10_000;
/// Seeds within which a planted bug has to be found.
const MUTANT_SEEDS: u64 = 4000;
/// Seeds for each of which one world of order is played: those have hundreds of shards.
const ORDER_EVERY: u64 = 25;
/// Worlds of order within which a planted bug has to be found.
const ORDER_MUTANT_SEEDS: u64 = 200;

fn seeds() -> u64 {
    std::env::var("SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn ten_thousand_fleets_keep_their_promises() {
    let mut tally = Tally::default();
    let seeds = seeds();
    for seed in 0..seeds {
        match play(seed, None) {
            Ok(played) => tally.add(&played),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    println!("{tally:?}");
    let Tally { published, refused, raised, restored, lapsed, stale, held, given_up, compared, retried, .. } = tally;
    let (shown_again, changed, slept, lost) = (tally.shown_again, tally.changed, tally.slept, tally.lost);
    let (committed, closed, rated) = (tally.committed, tally.closed, tally.rated);
    let steps = tally.steps;
    for (what, times) in [
        ("files published", published),
        ("claims refused", refused),
        ("fences raised", raised),
        ("stores restored", restored),
        ("leases lapsed", lapsed),
        ("turns of an old leader", stale),
        ("shards held", held),
        ("files given up", given_up),
        ("files tried again", retried),
        ("files compared and not sent", compared),
        ("claims shown again", shown_again),
        ("files changed at the source", changed),
        ("daemons that paused in sessions", slept),
        ("turns whose commits were lost", lost),
        ("datasets that appeared", committed),
        ("claims in closed hours", closed),
        ("claims with a rate", rated),
    ] {
        assert!(times >= seeds / 100, "{what}: {times} times only");
    }
    let taken: BTreeSet<_> = steps.into_iter().map(|(from, to)| (format!("{from:?}"), format!("{to:?}"))).collect();
    let table = table();
    assert_eq!(taken.difference(&table).collect::<Vec<_>>(), NO_STEPS, "in no row");
    let untaken = table.difference(&taken).filter(|(from, to)| (from.as_str(), to.as_str()) != RARE);
    assert_eq!(untaken.collect::<Vec<_>>(), NO_STEPS, "never taken");
}

const NO_STEPS: [&(String, String); 0] = [];

/// A step that no world takes: no fence comes so far.
const RARE: (&str, &str) = ("Ready", "Held");

/// The steps in the table of a shard's states.
fn table() -> BTreeSet<(String, String)> {
    let text = include_str!("../../src/rows.rs");
    let table = text.split("/// How far a shard is, and who may say so").nth(1);
    let table = table.and_then(|text| text.split("```").nth(1)).expect("the table stands there");
    let rows = table.lines().filter_map(|row| {
        let words: Vec<&str> = row.trim_start_matches("///").split_whitespace().collect();
        Some((words.first()?.to_string(), words.last()?.to_string())).filter(|_| words.len() > 2)
    });
    rows.filter(|(from, _)| from != "(new)").collect()
}

#[test]
fn a_planted_bug_is_found() {
    for mutant in Mutant::ALL {
        let found = (0..MUTANT_SEEDS).find_map(|seed| play(seed, Some(mutant)).err().map(|broken| (seed, broken)));
        match found {
            Some((seed, broken)) => println!("{mutant:?}: seed {seed}: {broken}"),
            None => panic!("{mutant:?} was not found in {MUTANT_SEEDS} seeds"),
        }
    }
}

#[test]
fn campaigns_are_served_by_their_hours_deadlines_priorities_and_weights() {
    let (mut tally, worlds) = (OrderTally::default(), seeds().div_ceil(ORDER_EVERY));
    for seed in 0..worlds {
        match play_order(seed, None) {
            Ok(played) => tally.add(&played),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    println!("{tally:?}");
    let OrderTally { readied, claimed, closed, urgent, preferred, shared, joined } = tally;
    for (what, times) in [
        ("shards that became ready", readied),
        ("shards that were claimed", claimed),
        ("turns of a leader in closed hours", closed),
        ("shards of a deadline at risk", urgent),
        ("shards of a higher priority", preferred),
        ("turns with campaigns that shared a link", shared),
        ("campaigns that joined or were released", joined),
    ] {
        assert!(times >= worlds / 10, "{what}: {times} times only");
    }
}

#[test]
fn a_bug_of_the_order_is_found() {
    for mutant in Mutant::OF_ORDER {
        let found =
            (0..ORDER_MUTANT_SEEDS).find_map(|seed| play_order(seed, Some(mutant)).err().map(|why| (seed, why)));
        let (seed, why) = found.unwrap_or_else(|| panic!("{mutant:?} was not found in {ORDER_MUTANT_SEEDS} worlds"));
        println!("{mutant:?}: seed {seed}: {why}");
    }
}
