//! `cargo xtask sim`: plays worlds of the simulator, each from one seed, and prints what happened
//! in one that fails.
//!
//! Must not know the checks.

use anyhow::{Result, bail};
use clap::Args;
use longhaul_sim::{
    Options, RoadOptions, SetOptions, play, play_many, play_many_roads, play_many_sets, play_road, play_set,
};

/// What `sim` takes.
#[derive(Args)]
pub(crate) struct SimArgs {
    /// Worlds to play
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) from: u64,
    /// Print every event of every world, also of those that end well
    #[arg(long)]
    pub(crate) trace: bool,
    /// Play worlds of target sets: how striped files are written to targets that fail
    #[arg(long)]
    pub(crate) sets: bool,
    /// Play worlds of roads: what is remembered of paths, and lies
    #[arg(long, conflicts_with = "sets")]
    pub(crate) roads: bool,
}

/// Plays the worlds.
pub(crate) fn run(args: &SimArgs) -> Result<()> {
    if args.trace {
        return told(args);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (from, seeds) = (args.from, args.seeds);
    let said = match (args.sets, args.roads) {
        (true, _) => play_many_sets(from, seeds, threads, SetOptions::default()).map(|seen| format!("{seen:?}")),
        (_, true) => play_many_roads(from, seeds, threads, RoadOptions::default()).map(|seen| format!("{seen:?}")),
        _ => play_many(from, seeds, threads, Options::default()).map(|seen| format!("{seen:?}")),
    };
    match said {
        Ok(seen) => println!("{} seeds from {} keep every promise: {seen}", args.seeds, args.from),
        Err(failure) => bail!("{failure}"),
    }
    Ok(())
}

/// Plays one world after the other, and prints all that happens.
fn told(args: &SimArgs) -> Result<()> {
    for seed in args.from..args.from.saturating_add(args.seeds) {
        let said = match (args.sets, args.roads) {
            (true, _) => play_set(seed, SetOptions { trace: true, ..SetOptions::default() })
                .map(|played| (played.trace, format!("{:?}", played.seen))),
            // A world of a road is told by its figures.
            (_, true) => play_road(seed, RoadOptions::default()).map(|seen| (Vec::new(), format!("{seen:?}"))),
            _ => play(seed, Options { trace: true, ..Options::default() })
                .map(|played| (played.trace, format!("{:?}", played.seen))),
        };
        match said {
            Ok((trace, seen)) => println!("{}\nseed {seed}: {seen}", trace.join("\n")),
            Err(failure) => bail!("{failure}"),
        }
    }
    Ok(())
}
