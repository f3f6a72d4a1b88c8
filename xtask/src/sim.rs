//! `cargo xtask sim`: plays worlds of the simulator, each from one seed, and prints what happened
//! in one that fails.
//!
//! Must not know the checks.

use anyhow::{Result, bail};
use clap::Args;
use longhaul_sim::{Options, play, play_many};

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
}

/// Plays the worlds.
pub(crate) fn run(args: &SimArgs) -> Result<()> {
    if args.trace {
        return told(args);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    match play_many(args.from, args.seeds, threads, Options::default()) {
        Ok(seen) => println!("{} seeds from {} keep every promise: {seen:?}", args.seeds, args.from),
        Err(failure) => bail!("{failure}"),
    }
    Ok(())
}

/// Plays one world after the other, and prints all that happens.
fn told(args: &SimArgs) -> Result<()> {
    for seed in args.from..args.from.saturating_add(args.seeds) {
        match play(seed, Options { trace: true, ..Options::default() }) {
            Ok(played) => println!("{}\nseed {seed}: {:?}", played.trace.join("\n"), played.seen),
            Err(failure) => bail!("{failure}"),
        }
    }
    Ok(())
}
