//! `copies`: what a copy between two daemons takes, against a push between the same disks; and one
//! reading for three destinations, where the source's disk is the limit, and where the lines are.
//!
//! It makes the disk and the lines itself, and needs root for that. See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

#[path = "copies/delivered.rs"]
mod delivered;
#[path = "stripe/disks.rs"]
mod disks;
mod kit;

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use kit::{Bench, Contender, Daemon, Longhaul, Options, Scale, Sides, compete, run};

/// The options of this bench.
#[derive(Debug, Parser)]
struct CopiesOptions {
    #[command(flatten)]
    all: Options,
    /// Only these cells [default: all]
    #[arg(long, value_name = "CELL", value_delimiter = ',')]
    cells: Vec<CopyCell>,
}

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CopyCell {
    /// A copy from one daemon to another, and a push between their disks.
    ThirdParty,
    /// Three destinations of a source on a slow disk.
    Disk,
    /// Three destinations, each behind a line of its own.
    Lines,
}

fn main() -> Result<()> {
    let CopiesOptions { all: options, cells } = <CopiesOptions as Parser>::parse();
    if !options.is_bench() {
        return Ok(());
    }
    let bench = Bench::start("copies", env!("CARGO_TARGET_TMPDIR"), options)?;
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    let is_wanted = |cell| cells.is_empty() || cells.contains(&cell);
    if is_wanted(CopyCell::ThirdParty) {
        third_party(&bench, &longhaul)?;
    }
    if is_wanted(CopyCell::Disk) {
        delivered::from_a_slow_disk(&bench, &longhaul)?;
    }
    if is_wanted(CopyCell::Lines) {
        delivered::over_lines(&bench, &longhaul)?;
    }
    bench.finish();
    Ok(())
}

/// One file from the disk of a daemon to that of another one: ordered by a client that has none of
/// it, and pushed by a client on the host of the first.
fn third_party(bench: &Bench, longhaul: &Longhaul) -> Result<()> {
    let from_dir = bench.scratch.subdir("from")?;
    let (source, target, course) = bench.big_file("from/source")?;
    let from = longhaul.serve(&from_dir)?;
    let fetching = longhaul.another_host(bench.scratch.subdir("other")?, &from)?;
    let to = fetching.serve(&target)?;
    longhaul.trust(&from)?;
    longhaul.trust(&to)?;
    let ways = ["safe", "private"];
    let names = [["push safe", "push private"], ["third party safe", "third party private"]];
    let push = |protect| {
        let mut command = longhaul.transfer("push", protect);
        command.arg(&source.path);
        command
    };
    let copy = |protect| {
        let mut command = longhaul.transfer("copy", protect);
        command.arg(from.url("source"));
        command
    };
    let mut contenders = Vec::new();
    for (at, protect) in ways.into_iter().enumerate() {
        contenders.push(contender(longhaul, names[0][at], (None, &to), move || push(protect)));
        contenders.push(contender(longhaul, names[1][at], (Some(&from), &to), move || copy(protect)));
    }
    let runs = compete(&bench.recorder, bench.options.rounds(), &course, &mut contenders)?;
    kit::print_runs(&runs, Scale::Bytes);
    for (push, copy) in names[0].into_iter().zip(names[1]) {
        kit::print_ratio(&runs, copy, push, Some(0.95));
    }
    Ok(())
}

/// A transfer to `to`. Its sender is the daemon that is named, or else the command.
fn contender<'a>(
    longhaul: &'a Longhaul,
    name: &'static str,
    (from, to): (Option<&'a Daemon>, &'a Daemon),
    command: impl Fn() -> Command + 'a,
) -> Contender<'a> {
    let go = move |_: &Path| {
        let moved = || to.spends(|| run(command().arg(to.url("run/"))));
        let (sender, receiver) = match from {
            Some(from) => {
                let ((_, receiver), sender) = from.spends(moved)?;
                (sender, receiver)
            }
            None => {
                let (ran, receiver) = moved()?;
                (ran.cpu_s, receiver)
            }
        };
        Ok(Sides { sender_cpu_s: Some(sender), receiver_cpu_s: Some(receiver), ..Sides::default() })
    };
    Contender { name, warm_up: longhaul.warm_up(), go: Box::new(go) }
}
