//! `flood`: what a client at a rate of 500 Mbit/s keeps of it while strangers flood its daemon:
//! 10,000 silent connections, 1,000 a second that say rubbish, 50,000 forged first packets of QUIC
//! a second, and all of them together; and what it keeps over UDP while somebody who sees its lane
//! forges packets as fast as he can, copies them, and says 100,000 wrong joins a second.
//!
//! Attackers, client and daemon share the processors of this machine; over a network only the
//! daemon would bear the flood. See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

#[path = "flood/attack.rs"]
mod attack;
#[path = "flood/forge.rs"]
mod forge;
mod kit;
#[path = "kit/sniff.rs"]
mod sniff;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use attack::{Attack, Waves, captured_initials};
use clap::Parser;
use forge::{ForgedWaves, Forgery};
use kit::{Bench, Daemon, Longhaul, Options, Running, machine_busy_s, table};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

/// A push beneath a flood.
#[derive(Serialize)]
struct Flooded {
    what: &'static str,
    /// Seconds from the start of the client to its session.
    connected_s: f64,
    seconds: f64,
    bits_per_s: f64,
    daemon_cpu_s: f64,
    machine_cpu_s: f64,
    daemon_peak_bytes: u64,
    descriptors: usize,
    silent: u64,
    rubbish: u64,
    initials: u64,
    forged: u64,
    replayed: u64,
    joins: u64,
    said_bytes: u64,
    heard_bytes: u64,
}

/// Pushes beneath floods.
#[derive(Parser)]
struct Plan {
    /// Attack lanes over UDP alone
    #[arg(long)]
    udp: bool,
    #[command(flatten)]
    common: Options,
}

fn main() -> Result<()> {
    let Plan { udp, common } = Plan::parse();
    if !common.is_bench() {
        return Ok(());
    }
    let bench = Bench::start("flood", env!("CARGO_TARGET_TMPDIR"), common)?;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    let captured = captured_initials(256);
    let file = bench.scratch.file("file", bench.options.amount(SECONDS, 3) * RATE_BITS / 8)?;
    let (silent, rubbish, initials) = (10_000, 1000, 50_000);
    let none = Waves::default();
    let (fast, nobody) = (1_000_000, ForgedWaves::default());
    let floods = [
        ("none", none),
        ("silent connections", Waves { silent, ..none }),
        ("rubbish", Waves { rubbish, ..none }),
        ("first packets", Waves { initials, ..none }),
        ("all", Waves { silent, rubbish, initials }),
    ];
    let mut rows = Vec::new();
    for (what, waves) in floods.into_iter().filter(|_| !udp) {
        let flood = Flood { what, waves, forged: None };
        rows.push(measure(&bench, &longhaul, flood, &captured, &file.path)?);
    }
    let forgeries = [
        ("none, over UDP", nobody),
        ("forged packets", ForgedWaves { forged: fast, ..nobody }),
        ("copied packets", ForgedWaves { replayed: fast, ..nobody }),
        ("wrong joins", ForgedWaves { joins: 100_000, ..nobody }),
        ("all of these", ForgedWaves { forged: fast / 10, replayed: fast / 10, joins: 100_000 }),
    ];
    for (what, forged) in forgeries {
        let flood = Flood { what, waves: none, forged: Some(forged) };
        rows.push(measure(&bench, &longhaul, flood, &captured, &file.path)?);
    }
    print(&rows);
    bench.finish();
    Ok(())
}

/// A flood.
struct Flood {
    what: &'static str,
    waves: Waves,
    /// The forgeries of a lane over UDP. `None` for a push over TCP.
    forged: Option<ForgedWaves>,
}

fn measure(
    bench: &Bench,
    longhaul: &Longhaul,
    flood: Flood,
    captured: &Arc<Vec<Vec<u8>>>,
    source: &Path,
) -> Result<Flooded> {
    let flooded = push(bench, longhaul, flood, captured, source)?;
    bench.recorder.record(&flooded)?;
    eprintln!("  {}: {:.0} Mbit/s", flooded.what, flooded.bits_per_s / 1e6);
    Ok(flooded)
}

/// Pushes to a daemon of its own, beneath a flood that goes on meanwhile.
fn push(
    bench: &Bench,
    longhaul: &Longhaul,
    Flood { what, waves, forged }: Flood,
    captured: &Arc<Vec<Vec<u8>>>,
    source: &Path,
) -> Result<Flooded> {
    let target = bench.scratch.subdir("target")?;
    let daemon = longhaul.serve(&target)?;
    let attack = Attack::start(daemon.addr().parse()?, waves, captured);
    ensure!(attack.has_made(waves.silent, Duration::from_secs(120)), "{what}: {:?}", attack.counts());
    let count = || {
        let counts = attack.counts();
        let all = [&counts.silent, &counts.rubbish, &counts.initials, &counts.said, &counts.heard];
        all.map(|count| count.load(Ordering::Relaxed))
    };
    let forgery = match forged {
        Some(waves) => Some(Forgery::start(daemon.addr().parse()?, waves).context("forging needs root")?),
        None => None,
    };
    let (before, daemon_cpu, machine_cpu) = (count(), daemon.cpu_s()?, machine_busy_s()?);
    let begun = Instant::now();
    let mut command = longhaul.push(&daemon, "private", source, "");
    command.args(["--transport", if forged.is_some() { "udp" } else { "tcp" }]);
    let client = Running::start(command.args(["--rate", RATE, "--json"]))?;
    let mut connected = None;
    client.look_until(Duration::from_secs(600), |client| {
        if connected.is_none() && client.out()?.contains("\"type\":\"start\"") {
            connected = Some(begun.elapsed());
        }
        client.ended()
    })?;
    client.wait()?.good()?;
    let connected = connected.context("a push without a session")?;
    let (over, seconds) = (count(), begun.elapsed().as_secs_f64());
    let [silent, rubbish, initials, said_bytes, heard_bytes] = std::array::from_fn(|n| over[n] - before[n]);
    let [forged, replayed, joins, answered] = forgery.as_ref().map_or([0; 4], |forgery| {
        let counts = forgery.counts();
        [&counts.forged, &counts.replayed, &counts.joins, &counts.heard].map(|count| count.load(Ordering::Relaxed))
    });
    let carried = fs::metadata(source)?.len() as f64 * 8.0 / (seconds - connected.as_secs_f64());
    let flooded = Flooded {
        what,
        connected_s: connected.as_secs_f64(),
        seconds,
        bits_per_s: carried,
        daemon_cpu_s: daemon.cpu_s()? - daemon_cpu,
        machine_cpu_s: machine_busy_s()? - machine_cpu,
        daemon_peak_bytes: daemon.peak_rss()?,
        descriptors: descriptors(&daemon)?,
        silent,
        rubbish,
        initials,
        forged,
        replayed,
        joins,
        said_bytes,
        heard_bytes: heard_bytes + answered,
    };
    drop((attack, forgery, daemon));
    fs::remove_dir_all(&target)?;
    Ok(flooded)
}

fn descriptors(daemon: &Daemon) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", daemon.pid()))?.count())
}

fn print(rows: &[Flooded]) {
    let head = [
        "flood",
        "connected s",
        "Mbit/s",
        "of the rate",
        "daemon CPU",
        "machine CPU",
        "peak MiB",
        "descriptors",
        "silent",
        "rubbish/s",
        "packets/s",
        "forged/s",
        "copied/s",
        "joins/s",
        "answered",
    ];
    let row = |flooded: &Flooded| {
        let per_s = |count: u64| format!("{:.0}", count as f64 / flooded.seconds);
        // Of lanes over UDP strangers hear nothing at all: what they hear is told in bytes.
        let answered = match flooded.said_bytes {
            0 => format!("{} B", flooded.heard_bytes),
            said => format!("{:.2}", flooded.heard_bytes as f64 / said as f64),
        };
        vec![
            flooded.what.to_owned(),
            format!("{:.2}", flooded.connected_s),
            format!("{:.0}", flooded.bits_per_s / 1e6),
            format!("{:.2}", flooded.bits_per_s / RATE_BITS as f64),
            format!("{:.2}", flooded.daemon_cpu_s / flooded.seconds),
            format!("{:.2}", flooded.machine_cpu_s / flooded.seconds),
            format!("{:.0}", flooded.daemon_peak_bytes as f64 / f64::from(1 << 20)),
            flooded.descriptors.to_string(),
            flooded.silent.to_string(),
            per_s(flooded.rubbish),
            per_s(flooded.initials),
            per_s(flooded.forged),
            per_s(flooded.replayed),
            per_s(flooded.joins),
            answered,
        ]
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(rows.iter().map(row)).collect();
    print!("{}", table(&rows));
}

const RATE: &str = "500Mbit/s";
const RATE_BITS: u64 = 500_000_000;
/// The length of a push at that rate.
const SECONDS: u64 = 20;
