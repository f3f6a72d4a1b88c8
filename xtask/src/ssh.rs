//! `cargo xtask ssh`: the end-to-end tests that run longhaul over ssh again and again, and see that
//! no process and no file is left behind, for as many runs as one likes.
//!
//! Runs the tests; must not know their asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

/// The arguments of `ssh`.
#[derive(Args)]
pub(crate) struct SshArgs {
    /// Runs over a script in ssh's place, and as many over a real sshd, of which every other one is
    /// killed
    #[arg(long, value_name = "N", default_value_t = RUNS)]
    pub(crate) runs: u64,
}

/// Runs the tests.
pub(crate) fn run(args: &SshArgs) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--test", "main", "--locked"]);
    // The real sshd is in namespaces, which take root.
    cargo.args(["--", "--include-ignored", "--nocapture", "--test-threads=1"]);
    cargo.args(["ssh::many_runs_leave", "ssh::real::runs_over_sshd_leave"]);
    let status = cargo.env("SSH_RUNS", args.runs.to_string()).status().context("cannot run cargo")?;
    ensure!(status.success(), "something was left behind, as printed above");
    Ok(())
}

/// Runs of each kind: minutes on 2 cores.
pub(crate) const RUNS: u64 = 100;
