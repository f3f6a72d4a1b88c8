//! `cargo xtask kills`: the end-to-end test that kills either end at random moments, with as many
//! kills as one likes.
//!
//! Runs the test; must not know its asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

/// What `kills` takes.
#[derive(Args)]
pub(crate) struct KillsArgs {
    /// Kills, half of them in pushes and half in pulls
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) kills: u64,
    /// The moments and victims of an earlier run, as it printed them [default: new ones]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
}

/// Runs the test.
pub(crate) fn run(args: &KillsArgs) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--test", "main", "--locked", "kills::", "--", "--nocapture"]);
    cargo.env("KILLS", args.kills.to_string());
    if let Some(seed) = args.seed {
        cargo.env("KILLS_SEED", seed.to_string());
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "a promise was broken: the seed is printed above");
    Ok(())
}
