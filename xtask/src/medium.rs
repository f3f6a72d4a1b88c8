//! `cargo xtask medium`: the engine's worlds on a medium that loses, tears and fails, as many as
//! one likes.
//!
//! Runs the test; must not know its asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

/// What `medium` takes.
#[derive(Args)]
pub(crate) struct MediumArgs {
    /// Worlds to play
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub(crate) worlds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) from: u64,
    /// Play one world of this seed and print its steps
    #[arg(long, value_name = "SEED", conflicts_with_all = ["worlds", "from"])]
    pub(crate) seed: Option<u64>,
}

/// Runs the test.
pub(crate) fn run(args: &MediumArgs) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--test", "medium", "--locked", "worlds", "--", "--nocapture"]);
    match args.seed {
        Some(seed) => cargo.env("MEDIUM_SEED", seed.to_string()),
        None => cargo.env("MEDIUM_WORLDS", args.worlds.to_string()).env("MEDIUM_FROM", args.from.to_string()),
    };
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "a promise was broken: the seed is printed above");
    Ok(())
}
