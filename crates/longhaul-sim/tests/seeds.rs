//! Many worlds: whatever goes wrong, the promises hold and the transfer ends.

use longhaul_sim::{Options, play_many};

/// Seeds played by an ordinary test run; `SIM_SEEDS` asks for another number.
const SEEDS: u64 = 10_000;

#[test]
fn every_seed_keeps_every_promise() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    match play_many(0, seeds, threads, Options::default()) {
        Ok(tallies) => println!("{seeds} seeds: {tallies:?}"),
        Err(failure) => panic!("{failure}"),
    }
}
