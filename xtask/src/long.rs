//! `cargo xtask long`: every check that is played from seeds, for as long as a night allows and
//! with seeds that were not played before, every fuzz target, many runs over ssh, and long
//! outages and others on paths.
//!
//! Runs the other chores one after the other; must not know their asserts.

use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::cuts::{self, CutsArgs};
use crate::fleet::{self, FleetArgs, QueuePlace};
use crate::kills::{self, KillsArgs};
use crate::medium::{self, MediumArgs};
use crate::paths;
use crate::sim::{self, SimArgs};
use crate::ssh::{self, SshArgs};
use crate::swaps::{self, SwapsArgs};

/// What `long` takes.
#[derive(Args)]
pub(crate) struct LongArgs {
    /// The first seed of each check [default: the seconds since 1970]
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// Seconds for each fuzz target, of which as many run at a time as there are processors
    #[arg(long, value_name = "SECONDS", default_value_t = FUZZ_SECONDS)]
    fuzz: u64,
    /// Play one part in N of each check's seeds, kills, cuts and runs
    #[arg(long, value_name = "N", default_value_t = NonZeroU64::MIN)]
    one_of: NonZeroU64,
}

/// Runs every check to its end, and then says which failed.
pub(crate) fn run(args: &LongArgs) -> Result<()> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let from = args.from.unwrap_or_else(now);
    println!("seeds begin with {from}");
    let part = |whole: u64| whole.div_ceil(args.one_of.get());
    let fleet = |queue| FleetArgs { queue, files: part(FLEET_FILES), kills: part(FLEET_KILLS), seed: Some(from) };
    let checks = [
        ("medium", medium::run(&MediumArgs { worlds: part(WORLDS), from, seed: None })),
        ("sim", sim::run(&SimArgs { seeds: part(SEEDS), from, trace: false, sets: false, roads: false })),
        ("sets", sim::run(&SimArgs { seeds: part(SET_SEEDS), from, trace: false, sets: true, roads: false })),
        ("roads", sim::run(&SimArgs { seeds: part(ROAD_SEEDS), from, trace: false, sets: false, roads: true })),
        ("cuts", cuts::run(&CutsArgs { cuts: part(CUTS), seed: Some(from) })),
        ("kills", kills::run(&KillsArgs { kills: part(KILLS), seed: Some(from) })),
        ("fleet", fleet::run(&fleet(QueuePlace::Postgres))),
        ("fleet of a file", fleet::run(&fleet(QueuePlace::File))),
        ("fuzz", fuzz(args.fuzz)),
        ("swaps", swaps::run(&SwapsArgs { seconds: SWAP_SECONDS })),
        ("ssh", ssh::run(&SshArgs { runs: part(ssh::RUNS) })),
        ("paths", paths::run()),
        ("slurm", slurm()),
    ];
    let failed: Vec<String> =
        checks.into_iter().filter_map(|(name, result)| Some(format!("{name}: {:#}", result.err()?))).collect();
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

/// Runs all fuzz targets, the slow ones to build too.
fn fuzz(seconds: u64) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/run.sh");
    let status = Command::new(&script).args([&seconds.to_string(), "all"]).status()?;
    ensure!(status.success(), "{}: {status}", script.display());
    Ok(())
}

/// Runs the batch files for Slurm. It needs the packages `slurm-wlm` and `munge`.
fn slurm() -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/slurm/test");
    let status = Command::new(&script).status()?;
    ensure!(status.success(), "{}: {status}", script.display());
    Ok(())
}

/// Seconds of each fuzz target: 20 minutes.
const FUZZ_SECONDS: u64 = 1200;
/// Worlds of `medium`: two minutes on 2 cores.
const WORLDS: u64 = 5_000;
/// Seeds of `sim`: an hour on 2 cores in a debug build, a quarter of that with `--release`.
const SEEDS: u64 = 200_000;
/// Seeds of `sim --sets`: minutes on 2 cores.
const SET_SEEDS: u64 = 1_000_000;
/// Seeds of `sim --roads`: minutes on 2 cores.
const ROAD_SEEDS: u64 = 2_000;
const KILLS: u64 = 100;
/// Files of each `fleet`, and kills of its movers: some ten minutes each on 2 cores.
const FLEET_FILES: u64 = 100_000;
const FLEET_KILLS: u64 = 50;
/// Seconds of each case of `swaps`.
const SWAP_SECONDS: u64 = 15;
/// Cuts on each file system. They need root.
const CUTS: u64 = 400;
