//! `mem`: all but the disks. The whole engine between trees that exist nowhere, against a bare loop
//! of hashing, sending, receiving and hashing over as many lanes, in the same pieces, out of and
//! into the same kind of buffers.
//!
//! See docs/BENCHMARKS.md.

#[path = "mem/bare.rs"]
mod bare;
mod kit;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use kit::{Arrived, Bench, Contender, Course, Options, Run, Scale, Sides, compete, median, own_cpu_s};
use longhaul_core::{Algorithm, Algorithms, ByteCount, Preserve};
use longhaul_engine::{
    EngineKind, Event, LANES_DEFAULT, MEMORY_DEFAULT, Observer, Protection, Settings, Stop, VoidSource, VoidTarget,
    run_between,
};
use tokio::runtime::Runtime;

fn main() -> Result<()> {
    let Some(options) = Options::parse() else { return Ok(()) };
    let bench = Bench::start("mem", env!("CARGO_TARGET_TMPDIR"), options)?;
    let bytes = bench.options.amount(16 << 30, 2 << 30);
    println!("{} of 4 MiB chunks over {LANES_DEFAULT} lanes in this process", ByteCount(bytes));
    // As many threads for all that is no payload as the program has.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (safe, private) = (Protection::Safe, Protection::Private);
    let mut contenders = [
        contender("bare safe", move |_| bare::carry(safe, bytes)),
        contender("engine safe", |_| engine(&runtime, settings(safe), bytes)),
        contender("engine safe adler32", |_| engine(&runtime, summing(settings(safe)), bytes)),
        contender("bare private", move |_| bare::carry(private, bytes)),
        contender("engine private", |_| engine(&runtime, settings(private), bytes)),
    ];
    let course = Course { bytes, files: 1, source: None, target: None, arrived: Arrived::Removed, final_sync: false };
    let runs = compete(&bench.recorder, bench.options.rounds(), &course, &mut contenders)?;
    kit::print_runs(&runs, Scale::Bytes);
    kit::print_ratio(&runs, "engine safe", "bare safe", Some(0.80));
    kit::print_ratio(&runs, "engine private", "bare private", Some(0.75));
    kit::print_ratio(&runs, "engine safe adler32", "engine safe", Some(0.97));
    print_cost(&runs, "engine safe", 0.50);
    print_cost(&runs, "engine private", 0.70);
    bench.finish();
    Ok(())
}

fn contender<'a>(name: &'static str, go: impl FnMut(&Path) -> Result<Sides> + 'a) -> Contender<'a> {
    Contender { name, warm_up: None, go: Box::new(go) }
}

/// The more expensive side of a transfer.
fn print_cost(runs: &[Run], what: &str, target: f64) {
    let per_gb = |run: &Run| {
        let (sender, receiver) = (run.sides.sender_cpu_s?, run.sides.receiver_cpu_s?);
        Some(sender.max(receiver) / (run.bytes as f64 / 1e9))
    };
    let each: Vec<f64> = runs.iter().filter(|run| run.what == what).filter_map(per_gb).collect();
    println!("{what}, CPU s/GB of the dearer side: {:.3}, target at most {target:.2}", median(&each));
}

/// A session between two halves of this process. CPU time that no stage counts (session loops,
/// scheduling, reading from nowhere) is shared out evenly, as it cannot be told which half spent
/// it.
fn engine(runtime: &Runtime, settings: Settings, bytes: u64) -> Result<Sides> {
    let before = own_cpu_s();
    let (source, target) = (VoidSource { len: bytes, files: 1 }, VoidTarget);
    let (_trigger, stop) = Stop::new();
    let run = run_between(Arc::new(source), Arc::new(target), settings, Arc::new(Nobody), stop);
    let report = runtime.block_on(run);
    if let Some(fault) = report.fault {
        bail!("{fault}");
    }
    ensure!(report.bytes_committed == bytes, "{} of {bytes} bytes were committed", report.bytes_committed);
    let whole = own_cpu_s() - before;
    let (sender, receiver) = (report.sender_cpu.unwrap_or(0.0), report.receiver_cpu.unwrap_or(0.0));
    let rest = (whole - sender - receiver).max(0.0);
    let mut stages: Vec<(String, f64)> = report.stages.iter().map(|(stage, s)| (stage.to_string(), *s)).collect();
    stages.push(("rest".to_owned(), rest));
    Ok(Sides {
        sender_cpu_s: Some(sender + rest / 2.0),
        receiver_cpu_s: Some(receiver + rest / 2.0),
        stages_cpu_s: stages,
    })
}

/// The settings that each of two processes would have by default: both halves share one `memory`.
fn settings(protection: Protection) -> Settings {
    Settings {
        lanes: Some(LANES_DEFAULT),
        protect: Some(protection),
        memory: ByteCount(2 * MEMORY_DEFAULT.get()),
        engine: EngineKind::Void,
        ..Settings::default()
    }
}

/// The same with Adler-32 beside BLAKE3.
fn summing(settings: Settings) -> Settings {
    let sums = Algorithms::NONE.with(Algorithm::Adler32);
    let preserve = Preserve { sums, ..settings.metadata.preserve };
    Settings { metadata: preserve.into(), ..settings }
}

struct Nobody;

impl Observer for Nobody {
    fn event(&self, _event: Event) {}
}
