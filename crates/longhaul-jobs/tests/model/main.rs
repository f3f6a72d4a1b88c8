//! A model of a fleet: the real rules of the queue and the real gates, with a store in memory, from
//! one seed. Movers, daemons and the store die, pause for 90 s and are restored from backups,
//! clocks are set an hour off, and several processes lead.
//!
//! In: seeds. Out: for each the first broken promise, if there is one. The promises are those of
//! `check.rs`; `mutants.rs` plants bugs, one at a time, to see that they are found.

mod bent;
mod check;
mod destination;
mod mover;
mod mutants;
mod world;

use mutants::Mutant;
use world::{Tally, play};

/// Seeds that each run plays.
const SEEDS: u64 = 10_000;
/// Seeds within which a planted bug has to be found.
const MUTANT_SEEDS: u64 = 4000;

#[test]
fn ten_thousand_fleets_keep_their_promises() {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        match play(seed, None) {
            Ok(played) => tally.add(&played),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    println!("{tally:?}");
    let Tally { published, refused, raised, restored, lapsed, stale, held, given_up, compared, retried } = tally;
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
    ] {
        assert!(times >= SEEDS / 100, "{what}: {times} times only");
    }
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
