//! `cargo xtask outages`: outages of lanes over UDP for which the gate has no time: shorter than
//! that of the gate, and longer than a lane lives without a word.
//!
//! Runs the tests; must not know their asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs the tests. They need root.
pub(crate) fn run() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--package", "longhaul", "--test", "main", "--locked"]);
    cargo.args(["--", "--ignored", "--test-threads=1", "wan::harm::outages"]);
    let status = cargo.env("OUTAGES_LONG", "1").status().context("cannot run cargo")?;
    ensure!(status.success(), "a transfer did not survive, as printed above");
    Ok(())
}
