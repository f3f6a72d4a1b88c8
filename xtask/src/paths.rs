//! `cargo xtask paths`: what sessions meet on a path for which the gate has no time: outages
//! shorter than that of the gate and longer than a lane lives without a word, others on the path,
//! with lanes of each kind, and a breaker that was open for its time, in both directions.
//!
//! Runs the tests; must not know their asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs the tests. They need root.
pub(crate) fn run() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--test", "main", "--locked"]);
    cargo.args(["--", "--ignored", "--test-threads=1", "wan::harm::outages", "wan::meetings"]);
    cargo.arg("wan::quic::a_session_over_quic_goes_there_again");
    let status = cargo.env("PATHS_LONG", "1").status().context("cannot run cargo")?;
    ensure!(status.success(), "a session broke a promise, as printed above");
    Ok(())
}
