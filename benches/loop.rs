//! `loop`: one big file, cold, disk to disk through a daemon on this machine, against what the disk
//! can do without us.
//!
//! Limits: our own engine's reading and writing overlapped, without network and digest, and `dd`
//! with direct I/O both ways; the final sync is part of each. See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

mod kit;
#[path = "loop/pipeline.rs"]
mod pipeline;

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use kit::{Bench, Contender, Daemon, FileData, Longhaul, Options, Scale, Sides, Summary, compete, median, run};

fn main() -> Result<()> {
    let Some(options) = Options::parse() else { return Ok(()) };
    let bench = Bench::start("loop", env!("CARGO_TARGET_TMPDIR"), options)?;
    let (source, target, course) = bench.big_file("source")?;
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    let daemon = longhaul.serve(&target)?;
    let mut contenders = [
        Contender { name: "pipeline", warm_up: None, go: Box::new(|dir| pipeline::copy(&source.path, dir)) },
        Contender { name: "dd", warm_up: Some(dd(&[])), go: Box::new(|dir| dd_copy(&source.path, dir)) },
        push(&longhaul, &daemon, "safe", &source),
        push(&longhaul, &daemon, "private", &source),
    ];
    let runs = compete(&bench.recorder, bench.options.rounds(), &course, &mut contenders)?;
    kit::print_runs(&runs, Scale::Bytes);
    let seconds = |name| median(&runs.iter().filter(|run| run.what == name).map(|run| run.seconds).collect::<Vec<_>>());
    let limit = if seconds("pipeline") < seconds("dd") { "pipeline" } else { "dd" };
    println!("the limit is the faster: {limit}");
    kit::print_ratio(&runs, "safe", limit, Some(0.90));
    kit::print_ratio(&runs, "private", limit, Some(0.80));
    bench.finish();
    Ok(())
}

fn push<'a>(longhaul: &'a Longhaul, daemon: &'a Daemon, protect: &'static str, source: &'a FileData) -> Contender<'a> {
    let go = move |_: &Path| {
        let (ran, receiver) =
            daemon.spends(|| run(longhaul.push(daemon, protect, &source.path, "run").arg("--json")))?;
        let stages = Summary::of(&ran, Some(&source.b3))?.stages();
        Ok(Sides { sender_cpu_s: Some(ran.cpu_s), receiver_cpu_s: Some(receiver), stages_cpu_s: stages })
    };
    Contender { name: protect, warm_up: longhaul.warm_up(), go: Box::new(go) }
}

fn dd(args: &[String]) -> Command {
    let mut command = Command::new("dd");
    command.args(args);
    if args.is_empty() {
        command.arg("--version");
    }
    command
}

fn dd_copy(source: &Path, dir: &Path) -> Result<Sides> {
    let (from, to) = (format!("if={}", source.display()), format!("of={}", dir.join("source").display()));
    let how = ["bs=4M", "iflag=direct", "oflag=direct", "conv=fsync", "status=none"].map(str::to_owned);
    run(&mut dd(&[&[from, to][..], &how].concat()))?;
    Ok(Sides::default())
}
