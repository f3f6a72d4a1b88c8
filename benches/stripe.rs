//! `stripe`: a tree of files, and one long file, pushed to a daemon whose root is a target set on
//! disks of a known speed, and pulled back, against the sum of the disks' limits; and the file
//! pushed while one of the disks becomes slow or hangs.
//!
//! It makes the disks itself, and needs root for that. See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

#[path = "stripe/disks.rs"]
mod disks;
mod kit;
#[path = "stripe/midway.rs"]
mod midway;

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use disks::SlowDisks;
use kit::{Bench, Daemon, FileData, Longhaul, Options, TreeData, make_cold, run, table};
use serde::Serialize;

/// Target sets on disks of a known speed. See docs/BENCHMARKS.md
#[derive(Debug, Parser)]
struct Plan {
    #[command(flatten)]
    common: Options,
    /// Only the disks that become slow or hang in mid-transfer
    #[arg(long)]
    midway: bool,
}

/// One transfer, as it is recorded.
#[derive(Serialize)]
struct Timed {
    layout: &'static str,
    what: &'static str,
    way: &'static str,
    round: usize,
    bytes: u64,
    seconds: f64,
    /// The sum of the disks' limits, bytes per second.
    limit: u64,
    ratio: f64,
}

fn main() -> Result<()> {
    let Plan { common, midway: is_midway_only } = Plan::parse();
    if !common.is_bench() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        anyhow::bail!("this bench makes disks of its own, and needs root for that");
    }
    let bench = Bench::start("stripe", env!("CARGO_TARGET_TMPDIR"), common)?;
    let long = bench.options.amount(4 << 30, 512 << 20);
    bench.scratch.subdir("long")?;
    let file = bench.scratch.file("long/file", long)?;
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    if !is_midway_only {
        steady(&bench, &longhaul, &file)?;
    }
    println!("one file of {} MiB pushed, layout stripe, while a disk changes", long >> 20);
    midway::measure(&bench, &longhaul, &file)?;
    bench.finish();
    Ok(())
}

/// Pushes and pulls over disks that stay as they are.
fn steady(bench: &Bench, longhaul: &Longhaul, file: &FileData) -> Result<()> {
    let (files, len) = bench.options.amount((200, 32 << 20), (40, 4 << 20));
    let many = bench.scratch.tree("source", files, 4, len)?;
    let one = TreeData { path: bench.scratch.path().join("long"), files: 1, bytes: file.bytes };
    println!("spread: {files} files of {} MiB each way, against the sum of the disks' limits", len >> 20);
    println!("stripe: one file of {} MiB each way", file.bytes >> 20);
    let mut rows = Vec::new();
    for ((layout, source), (what, limits)) in
        [("stripe", &one), ("spread", &many)].into_iter().flat_map(|way| CASES.map(|case| (way, case)))
    {
        for round in 0..bench.options.rounds() {
            for timed in case(bench, longhaul, (layout, source), (what, limits, round))? {
                eprintln!("  {layout} {what} {} round {}: {:.3} of the limit", timed.way, round + 1, timed.ratio);
                bench.recorder.record(&timed)?;
                rows.push(timed);
            }
        }
    }
    print_ratios(&rows);
    Ok(())
}

/// Pushes the tree to a new set, and pulls it back.
fn case(
    bench: &Bench,
    longhaul: &Longhaul,
    (layout, source): (&'static str, &TreeData),
    (what, limits, round): (&'static str, &[u64], usize),
) -> Result<Vec<Timed>> {
    let dir = bench.scratch.subdir("disks")?;
    let limits: Vec<u64> = limits.iter().map(|limit| limit * 1_000_000).collect();
    // Slow disks leave the others more than their share.
    let disks = SlowDisks::new(&dir, &limits, (source.bytes * 2 / limits.len() as u64 + (1 << 30)).max(1 << 30))?;
    let daemon = longhaul.serve_set((disks.mounts(), layout), |pid| disks.limit(pid))?;
    let limit: u64 = limits.iter().sum();
    let timed = |way, seconds: f64| {
        let ratio = source.bytes as f64 / seconds / limit as f64;
        Timed { layout, what, way, round, bytes: source.bytes, seconds, limit, ratio }
    };
    make_cold(&source.path)?;
    let begun = Instant::now();
    run(&mut longhaul.push(&daemon, "safe", &source.path.join(""), "run"))?;
    let pushed = timed("push", begun.elapsed().as_secs_f64());
    disks.mounts().iter().try_for_each(|mount| make_cold(mount))?;
    let back = bench.scratch.subdir("back")?;
    let pulled = timed("pull", pull(longhaul, &daemon, &back)?);
    std::fs::remove_dir_all(&back)?;
    drop(daemon);
    drop(disks);
    std::fs::remove_dir_all(&dir)?;
    Ok(vec![pushed, pulled])
}

fn pull(longhaul: &Longhaul, daemon: &Daemon, back: &Path) -> Result<f64> {
    let mut command = longhaul.pull(daemon, "safe", "run/", back);
    let begun = Instant::now();
    run(&mut command)?;
    Ok(begun.elapsed().as_secs_f64())
}

fn print_ratios(rows: &[Timed]) {
    let mut lines = vec![["layout", "disks", "way", "of the limit", "rounds"].map(str::to_owned).to_vec()];
    for (layout, (what, _)) in ["stripe", "spread"].into_iter().flat_map(|layout| CASES.map(|case| (layout, case))) {
        for way in ["push", "pull"] {
            let is_it = |row: &&Timed| (row.layout, row.what, row.way) == (layout, what, way);
            let ratios: Vec<f64> = rows.iter().filter(is_it).map(|row| row.ratio).collect();
            let (least, most) = ratios.iter().fold((f64::MAX, 0.0_f64), |(a, b), r| (a.min(*r), b.max(*r)));
            lines.push(vec![
                layout.to_owned(),
                what.to_owned(),
                way.to_owned(),
                format!("{:.3}", kit::median(&ratios)),
                format!("{least:.3} to {most:.3}"),
            ]);
        }
    }
    print!("{}", table(&lines));
}

/// The disks of each case: their limits in MB/s.
const CASES: [(&str, &[u64]); 3] = [
    ("4 x 100 MB/s", &[100, 100, 100, 100]),
    ("8 x 50 MB/s", &[50, 50, 50, 50, 50, 50, 50, 50]),
    ("3 x 100, 1 x 20 MB/s", &[100, 20, 100, 100]),
];
