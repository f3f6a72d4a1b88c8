//! `cargo xtask fleet`: the end-to-end test that kills movers of a queue in PostgreSQL, or in a
//! file, with as many files and kills as one likes.
//!
//! Runs the test; must not know its asserts.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

/// The arguments of `fleet`.
#[derive(Args)]
pub(crate) struct FleetArgs {
    /// Where the queue is
    #[arg(long, value_enum, default_value_t = QueuePlace::Postgres)]
    pub(crate) queue: QueuePlace,
    /// Files of the campaign
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) files: u64,
    /// Kills of movers, of which there are ten at a time
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) kills: u64,
    /// The moments and victims of an earlier run, as it printed them [default: new ones]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
}

/// The place of the queue.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum QueuePlace {
    /// A server that the test starts
    Postgres,
    /// A file on this host
    File,
}

impl QueuePlace {
    /// The test whose movers share such a queue.
    const fn test(self) -> &'static str {
        match self {
            QueuePlace::Postgres => "jobs::fleet::kills::ten_movers_of_a_database",
            QueuePlace::File => "jobs::fleet::kills::ten_movers_of_a_file",
        }
    }
}

/// Runs the test.
pub(crate) fn run(args: &FleetArgs) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--test", "main", "--locked", args.queue.test(), "--"]);
    cargo.arg("--nocapture").env("FLEET_FILES", args.files.to_string()).env("FLEET_KILLS", args.kills.to_string());
    if let Some(seed) = args.seed {
        cargo.env("FLEET_SEED", seed.to_string());
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "a promise was broken: the seed is printed above");
    Ok(())
}
