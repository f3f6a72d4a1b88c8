//! `cargo xtask swaps`: the end-to-end tests in which a directory is exchanged with a link while a
//! daemon works beneath it, each for as long as one likes.
//!
//! Runs the tests; must not know their asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

/// The arguments of `swaps`.
#[derive(Args)]
pub(crate) struct SwapsArgs {
    /// Seconds of each case
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) seconds: u64,
}

/// Runs the tests.
pub(crate) fn run(args: &SwapsArgs) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--test", "main", "--locked", "swaps::", "--", "--nocapture"]);
    // Each case keeps two cores busy.
    cargo.arg("--test-threads=1").env("SWAPS_SECONDS", args.seconds.to_string());
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "something outside of a root was touched, as printed above");
    Ok(())
}
