//! `memory`: the most memory that each of two processes ever held, for one big file, very many
//! small ones, and a sparse file of 8 TiB that is announced and cancelled. The bound is the buffers
//! asked for and 64 MiB.
//!
//! See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

mod kit;

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kit::{Bench, Longhaul, Options, Ran, Running, TreeData, table};
use rustix::process::Signal;
use serde::Serialize;

#[derive(Serialize)]
struct Peak {
    what: &'static str,
    protect: &'static str,
    client_bytes: u64,
    daemon_bytes: u64,
    bound_bytes: u64,
    client_cpu_s: f64,
    seconds: f64,
}

fn main() -> Result<()> {
    let Some(options) = Options::parse() else { return Ok(()) };
    let bench = Bench::start("memory", env!("CARGO_TARGET_TMPDIR"), options)?;
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    let mut peaks = Vec::new();
    let file = bench.scratch.file("file", bench.options.amount(2 << 30, 256 << 20))?;
    for protect in ["safe", "private"] {
        peaks.push(whole(&bench, &longhaul, "one big file", protect, &file.path)?);
    }
    fs::remove_file(&file.path)?;
    let TreeData { path, files, .. } = bench.scratch.tree("tree", bench.options.amount(200_000, 20_000), 200, 512)?;
    peaks.push(whole(&bench, &longhaul, "small files", "private", &path.join(""))?);
    fs::remove_dir_all(&path)?;
    peaks.push(cancelled(&bench, &longhaul, &bench.scratch.hole("sparse", SPARSE_BYTES)?)?);
    println!("small files: {files}; the sparse file has 8 TiB and is cancelled after three seconds of hashing holes");
    print(&peaks);
    bench.finish();
    Ok(())
}

fn print(peaks: &[Peak]) {
    let head = ["", "protect", "client MiB", "daemon MiB", "bound MiB", "share of the bound"];
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let row = |peak: &Peak| {
        let share = peak.client_bytes.max(peak.daemon_bytes) as f64 / peak.bound_bytes as f64;
        let Peak { what, protect, client_bytes, daemon_bytes, bound_bytes, .. } = *peak;
        vec![what.into(), protect.into(), mib(client_bytes), mib(daemon_bytes), mib(bound_bytes), format!("{share:.2}")]
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(peaks.iter().map(row)).collect();
    print!("{}", table(&rows));
}

/// A push to its good end.
fn whole(bench: &Bench, longhaul: &Longhaul, what: &'static str, protect: &'static str, source: &Path) -> Result<Peak> {
    let ended = |client: &Running| client.ended();
    let (peak, ran) = watch(bench, longhaul, what, protect, source, &ended)?;
    ran.good()?;
    Ok(peak)
}

/// A push that is interrupted once the daemon works on the file and the client has counted three
/// seconds.
fn cancelled(bench: &Bench, longhaul: &Longhaul, source: &Path) -> Result<Peak> {
    let interrupted = Cell::new(false);
    let target = bench.scratch.path().join("target");
    let until = |client: &Running| {
        let begun = || {
            Ok::<_, anyhow::Error>(
                client.out()?.matches("\"type\":\"progress\"").count() >= 3 && has_temporary(&target)?,
            )
        };
        if !interrupted.get() && begun()? {
            client.signal(Signal::INT)?;
            interrupted.set(true);
        }
        client.ended()
    };
    let (peak, ran) = watch(bench, longhaul, "sparse 8 TiB, cancelled", "private", source, &until)?;
    ensure!(interrupted.get() && ran.status.code() == Some(130), "not interrupted but {}: {}", ran.status, ran.err);
    Ok(peak)
}

/// Whether the daemon has begun a file.
fn has_temporary(dir: &Path) -> Result<bool> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".longhaul-") && entry.file_type()?.is_file() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Pushes to a daemon of its own, looking at the client's peak until it is over. Its last look may
/// be 10 ms before its end.
fn watch(
    bench: &Bench,
    longhaul: &Longhaul,
    what: &'static str,
    protect: &'static str,
    source: &Path,
    over: &dyn Fn(&Running) -> Result<bool>,
) -> Result<(Peak, Ran)> {
    let target = bench.scratch.subdir("target")?;
    let daemon = longhaul.serve(&target)?;
    let begun = Instant::now();
    let mut push = longhaul.push(&daemon, protect, source, "");
    let client = Running::start(push.args(["--memory", "256MiB", "--json"]))?;
    let client_bytes = Cell::new(0);
    client.look_until(Duration::from_secs(600), |client| {
        // Between its end and its burial it has no memory to speak of.
        client_bytes.set(client_bytes.get().max(client.peak_rss().unwrap_or(0)));
        over(client)
    })?;
    let (ran, seconds) = (client.wait()?, begun.elapsed().as_secs_f64());
    let daemon_bytes = daemon.peak_rss()?;
    drop(daemon);
    fs::remove_dir_all(&target)?;
    let (client_bytes, bound_bytes) = (client_bytes.get(), MEMORY_BYTES + SLACK_BYTES);
    let peak = Peak { what, protect, client_bytes, daemon_bytes, bound_bytes, client_cpu_s: ran.cpu_s, seconds };
    bench.recorder.record(&peak)?;
    eprintln!("  {what}, {protect}: {seconds:.1} s");
    Ok((peak, ran))
}

const MEMORY_BYTES: u64 = 256 << 20;
const SLACK_BYTES: u64 = 64 << 20;
const SPARSE_BYTES: u64 = 8 << 40;
