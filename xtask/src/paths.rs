//! `cargo xtask paths`: what sessions meet on a path for which the gate has no time: outages
//! shorter than that of the gate and longer than a lane lives without a word, and others on the
//! path, with lanes of each kind.
//!
//! Runs the tests; must not know their asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs the tests. They need root.
pub(crate) fn run() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--test", "main", "--locked"]);
    cargo.args(["--", "--ignored", "--test-threads=1", "wan::harm::outages", "wan::meetings"]);
    let status = cargo.env("PATHS_LONG", "1").status().context("cannot run cargo")?;
    ensure!(status.success(), "a session broke a promise, as printed above");
    Ok(())
}
