//! `small`: many small files to a daemon, durable at the end, against rsync (with and without
//! syncing) and against a floor: a program that only creates, writes, syncs and renames, without
//! any network.
//!
//! See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

#[path = "small/floor.rs"]
mod floor;
mod kit;

use std::path::Path;

use anyhow::Result;
use kit::{
    Arrived, Bench, Contender, Course, Daemon, Longhaul, Options, RsyncDaemon, Scale, Sides, Summary, TreeData,
    compete, print_ratio, run,
};

fn main() -> Result<()> {
    let Some(options) = Options::parse() else { return Ok(()) };
    let bench = Bench::start("small", env!("CARGO_TARGET_TMPDIR"), options)?;
    let (files, dirs) = bench.options.amount((20_000, 200), (2_000, 20));
    let source = bench.scratch.tree("source", files, dirs, FILE_BYTES)?;
    println!("{files} files of 4 KiB in {dirs} directories");
    let target = bench.scratch.subdir("target")?;
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    let daemon = longhaul.serve(&target)?;
    let rsync = RsyncDaemon::start(bench.scratch.path(), &target)?;
    let course = Course {
        bytes: source.bytes,
        files: source.files,
        source: Some(source.path.clone()),
        target: Some(target),
        arrived: Arrived::Kept,
        final_sync: false,
    };
    let floor = |dir: &Path| floor::write(dir, files, dirs, FILE_BYTES).map(|()| Sides::default());
    let mut contenders = [
        Contender { name: "floor", warm_up: None, go: Box::new(floor) },
        push(&longhaul, &daemon, "private", &source),
        push(&longhaul, &daemon, "safe", &source),
        rsync_push(&rsync, "rsync -a", &["-a"], &source),
        rsync_push(&rsync, "rsync -a --fsync", &["-a", "--fsync"], &source),
    ];
    let runs = compete(&bench.recorder, bench.options.rounds(), &course, &mut contenders)?;
    kit::print_runs(&runs, Scale::Files);
    for ours in ["private", "safe"] {
        print_ratio(&runs, ours, "rsync -a --fsync", Some(5.0));
        print_ratio(&runs, ours, "rsync -a", Some(1.0));
        print_ratio(&runs, ours, "floor", None);
    }
    print_stages(&longhaul, &daemon, &source)?;
    bench.finish();
    Ok(())
}

fn contents(source: &TreeData) -> std::path::PathBuf {
    source.path.join("")
}

fn push<'a>(longhaul: &'a Longhaul, daemon: &'a Daemon, protect: &'static str, source: &'a TreeData) -> Contender<'a> {
    let go = move |_: &Path| {
        let before = daemon.cpu_s()?;
        let ran = run(longhaul.push(daemon, protect, &contents(source), "run").arg("-q"))?;
        let receiver = daemon.cpu_s()? - before;
        Ok(Sides { sender_cpu_s: Some(ran.cpu_s), receiver_cpu_s: Some(receiver), ..Sides::default() })
    };
    Contender { name: protect, warm_up: longhaul.warm_up(), go: Box::new(go) }
}

fn rsync_push<'a>(
    rsync: &'a RsyncDaemon,
    name: &'static str,
    options: &'static [&'static str],
    source: &'a TreeData,
) -> Contender<'a> {
    let go = move |_: &Path| {
        let ran = run(&mut rsync.push(options, &contents(source), "run"))?;
        // Its daemon does not wait for its children, so that their time is not counted.
        Ok(Sides { sender_cpu_s: Some(ran.cpu_s), ..Sides::default() })
    };
    Contender { name, warm_up: RsyncDaemon::warm_up(), go: Box::new(go) }
}

/// One more push, which is not timed: `--json` says a line per file, and that costs.
fn print_stages(longhaul: &Longhaul, daemon: &Daemon, source: &TreeData) -> Result<()> {
    let ran = run(longhaul.push(daemon, "private", &contents(source), "stages").arg("--json"))?;
    let stages = Summary::of(&ran, None)?.stages();
    let text: Vec<String> =
        stages.iter().map(|(name, s)| format!("{name} {:.3}", s / (source.files as f64 / 1e4))).collect();
    println!("private, CPU s/10k files of the sender by stage: {}", text.join(", "));
    Ok(())
}

const FILE_BYTES: usize = 4096;
