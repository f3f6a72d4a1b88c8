//! Many worlds of roads: what is known of a path helps where it is true and harms nobody where it
//! is not, and planted bugs are found.

use longhaul_sim::{RoadMutant, RoadOptions, play_many_roads};

/// Seeds played by an ordinary test run; `SIM_SEEDS` asks for another number.
const SEEDS: u64 = 200;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn remembered_paths_that_lie_harm_neither_the_path_nor_the_session() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    match play_many_roads(0, seeds, threads(), RoadOptions::default()) {
        Ok(seen) => {
            println!("{seeds} seeds: {seen:?}");
            let is_enough = seen.proven > seeds / 5 && seen.wrong > seeds / 5 && seen.unused > seeds / 5;
            assert!(is_enough, "a simulator in which nothing happens finds nothing: {seen:?}");
        }
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn each_planted_bug_of_a_remembered_path_is_found() {
    for mutant in RoadMutant::ALL {
        match play_many_roads(0, 100, threads(), RoadOptions { mutant: Some(*mutant) }) {
            Err(failure) => println!("{mutant:?}: seed {}: {}", failure.seed, failure.what),
            Ok(_) => panic!("{mutant:?} survives"),
        }
    }
}

/// The train of a line that loses a hundredth lost so much that a right rate was taken for a wrong
/// one.
#[test]
fn a_right_rate_that_seems_wrong_by_chance_costs_less_than_half_of_the_beginning() {
    let played = play_many_roads(1_795_953_364, 1, 1, RoadOptions::default());
    assert!(played.is_ok(), "{:?}", played.err().map(|failure| failure.what));
}
