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
use kit::{Bench, Daemon, Longhaul, Options, Running, machine_busy_s, own_cpu_s, table};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde::Serialize;

/// A push beneath a flood.
#[derive(Serialize)]
struct Flooded {
    what: &'static str,
    /// The transport of the push.
    over: &'static str,
    /// Seconds from the start of the client to its session.
    connected_s: f64,
    seconds: f64,
    bits_per_s: f64,
    /// Whether the push came to its end in time. Otherwise it was stopped, and its figures are of
    /// what had arrived by then.
    has_ended: bool,
    daemon_cpu_s: f64,
    /// CPU seconds of this process, which floods.
    attacker_cpu_s: f64,
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
    /// Only floods of these names, as in --only='wrong joins'; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    #[command(flatten)]
    common: Options,
}

fn main() -> Result<()> {
    let Plan { udp, only, common } = Plan::parse();
    let is_chosen = |what: &str| only.is_empty() || only.iter().any(|name| name == what);
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
    for (what, waves) in floods.into_iter().filter(|(what, _)| !udp && is_chosen(what)) {
        let flood = Flood { what, waves, forged: None };
        rows.push(measure(&bench, &longhaul, flood, &captured, &file.path)?);
    }
    let forgeries = [
        ("none, over UDP", nobody),
        ("forged packets at 1 Gbit/s", ForgedWaves { line: LINE_BITS, ..nobody }),
        ("forged packets", ForgedWaves { forged: fast, ..nobody }),
        ("copied packets", ForgedWaves { replayed: fast, ..nobody }),
        ("wrong joins", ForgedWaves { joins: 100_000, ..nobody }),
        ("all of these", ForgedWaves { forged: fast / 10, replayed: fast / 10, joins: 100_000, line: 0 }),
    ];
    for (what, forged) in forgeries.into_iter().filter(|(what, _)| is_chosen(what)) {
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
    let attacker_cpu = own_cpu_s();
    let begun = Instant::now();
    let mut command = longhaul.push(&daemon, "private", source, "");
    let transport = if forged.is_some() { "udp" } else { "tcp" };
    command.args(["--transport", transport]);
    let client = Running::start(command.args(["--rate", RATE, "--json"]))?;
    let WatchedPush { connected, has_ended, arrived } = see(client, begun, fs::metadata(source)?.len())?;
    let connected = connected.context("a push without a session")?;
    let (over, seconds) = (count(), begun.elapsed().as_secs_f64());
    let [silent, rubbish, initials, said_bytes, heard_bytes] = std::array::from_fn(|n| over[n] - before[n]);
    let [forged, replayed, joins, answered] = forgery.as_ref().map_or([0; 4], |forgery| {
        let counts = forgery.counts();
        [&counts.forged, &counts.replayed, &counts.joins, &counts.heard].map(|count| count.load(Ordering::Relaxed))
    });
    let carried = arrived as f64 * 8.0 / (seconds - connected.as_secs_f64());
    let flooded = Flooded {
        what,
        over: transport,
        connected_s: connected.as_secs_f64(),
        seconds,
        bits_per_s: carried,
        has_ended,
        attacker_cpu_s: own_cpu_s() - attacker_cpu,
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

/// A push as it was seen.
struct WatchedPush {
    /// The time until its session stood.
    connected: Option<Duration>,
    has_ended: bool,
    /// Bytes that arrived.
    arrived: u64,
}

/// Sees a push of so many bytes to its end, or stops it when that does not come in time.
fn see(client: Running, begun: Instant, bytes: u64) -> Result<WatchedPush> {
    let mut seen = WatchedPush { connected: None, has_ended: false, arrived: bytes };
    client.look_until(ENDS_WITHIN * 2, |client| {
        if seen.connected.is_none() && client.out()?.contains("\"type\":\"start\"") {
            seen.connected = Some(begun.elapsed());
        }
        seen.has_ended = client.ended()?;
        Ok(seen.has_ended || begun.elapsed() > ENDS_WITHIN)
    })?;
    if seen.has_ended {
        client.wait()?.good()?;
        return Ok(seen);
    }
    seen.arrived = arrived(&client.out()?);
    client.signal(Signal::KILL)?;
    client.wait()?;
    Ok(seen)
}

/// The bytes that a push has said so far to have arrived.
fn arrived(events: &str) -> u64 {
    let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["bytes_received"].as_u64();
    events.lines().rev().find_map(of).unwrap_or(0)
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
        "of none",
        "daemon CPU",
        "attacker CPU",
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
    // The push over the same transport with no flood beside it.
    let of_none = |flooded: &Flooded| {
        let none = rows.iter().find(|row| row.what.starts_with("none") && row.over == flooded.over);
        none.map_or("-".to_owned(), |none| format!("{:.2}", flooded.bits_per_s / none.bits_per_s))
    };
    let row = |flooded: &Flooded| {
        let per_s = |count: u64| format!("{:.0}", count as f64 / flooded.seconds);
        // Of lanes over UDP strangers hear nothing at all: what they hear is told in bytes.
        let answered = match flooded.said_bytes {
            0 => format!("{} B", flooded.heard_bytes),
            said => format!("{:.2}", flooded.heard_bytes as f64 / said as f64),
        };
        vec![
            format!("{}{}", flooded.what, if flooded.has_ended { "" } else { " (did not end)" }),
            format!("{:.2}", flooded.connected_s),
            format!("{:.0}", flooded.bits_per_s / 1e6),
            format!("{:.2}", flooded.bits_per_s / RATE_BITS as f64),
            of_none(flooded),
            format!("{:.2}", flooded.daemon_cpu_s / flooded.seconds),
            format!("{:.2}", flooded.attacker_cpu_s / flooded.seconds),
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
/// The rate of a line that is full of forged packets.
const LINE_BITS: u64 = 1_000_000_000;
/// A push that has not ended after this is stopped.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// The length of a push at that rate.
const SECONDS: u64 = 20;
