//! `cargo xtask cuts`: the end-to-end tests that cut the power of a disk at random moments, with as
//! many cuts as one likes.
//!
//! Runs the tests, which need root; must not know their asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

/// What `cuts` takes.
#[derive(Args)]
pub(crate) struct CutsArgs {
    /// Cuts on each file system
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub(crate) cuts: u64,
    /// The moments and losses of an earlier run, as it printed them [default: new ones]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
}

/// Runs the tests.
pub(crate) fn run(args: &CutsArgs) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--test", "main", "--locked", "medium::cuts::"]);
    cargo.args(["--", "--ignored", "--nocapture"]);
    cargo.env("CUTS", args.cuts.to_string());
    if let Some(seed) = args.seed {
        cargo.env("CUTS_SEED", seed.to_string());
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "a promise was broken: the seed is printed above");
    Ok(())
}
