//! Disks that change in mid-transfer: one of four becomes slow, or hangs for a while.
//!
//! Takes the disks and the program; gives rows: how much the disks took from the change on, against
//! the sum of their limits, and the memory of both processes. What arrived is read back and must be
//! whole. Judges nothing.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::disks::SlowDisks;
use crate::kit::{self, Bench, FileData, Longhaul, Running, make_cold, run, table};

/// A change of one of the disks.
#[derive(Clone, Copy)]
enum Change {
    /// It takes so many bytes per second from now on.
    Slower(u64),
    /// It does nothing for so long.
    Hang(Duration),
}

/// One transfer, as it is recorded.
#[derive(Serialize)]
struct Changed {
    what: &'static str,
    round: usize,
    bytes: u64,
    /// Seconds of the whole push.
    seconds: f64,
    /// The seconds that are looked at: from the change on to the end of the hang, or of the push.
    window_s: f64,
    /// Bytes that the disks took in the window: those that did not hang, or all of them.
    window_bytes: u64,
    /// The sum of these disks' limits, bytes per second.
    limit: u64,
    ratio: f64,
    /// The most memory that the client and the daemon held, in bytes.
    client_bytes: u64,
    daemon_bytes: u64,
}

/// Pushes the file once for each round and change, and prints the ratios.
pub(crate) fn measure(bench: &Bench, longhaul: &Longhaul, source: &FileData) -> Result<()> {
    let hang = Duration::from_secs(bench.options.amount(10, 1));
    let cases = [
        ("one of 4 x 100 falls to 20 MB/s", Change::Slower(20_000_000)),
        ("one of 4 x 100 MB/s hangs", Change::Hang(hang)),
    ];
    let mut rows = Vec::new();
    for (what, change) in cases {
        for round in 0..bench.options.rounds() {
            let row = case(bench, longhaul, source, (what, change, round))?;
            eprintln!("  {what}, round {}: {:.3} of the limit from then on", round + 1, row.ratio);
            bench.recorder.record(&row)?;
            rows.push(row);
        }
    }
    print(&rows, &cases.map(|(what, _)| what));
    Ok(())
}

fn case(
    bench: &Bench,
    longhaul: &Longhaul,
    source: &FileData,
    (what, change, round): (&'static str, Change, usize),
) -> Result<Changed> {
    let dir = bench.scratch.subdir("disks")?;
    let disks = SlowDisks::new(&dir, &[LIMIT; DISKS], source.bytes * 2 / DISKS as u64 + (1 << 30))?;
    let daemon = longhaul.serve_set((disks.mounts(), "stripe"), |pid| disks.limit(pid))?;
    make_cold(&source.path)?;
    let before = disks.written()?.iter().sum::<u64>();
    let begun = Instant::now();
    let client = Running::start(&mut longhaul.push(&daemon, "safe", &source.path, "run"))?;
    let mut client_bytes = 0;
    let mut look = |client: &Running, until: &dyn Fn() -> Result<bool>| {
        client.look_until(PATIENCE, |client| {
            client_bytes = client_bytes.max(client.peak_rss().unwrap_or(0));
            Ok(until()? || client.ended()?)
        })
    };
    let has_begun = || Ok(disks.written()?.iter().sum::<u64>() - before >= source.bytes / CHANGE_AFTER);
    look(&client, &has_begun)?;
    let (at, then) = (Instant::now(), disks.written()?);
    let end = match change {
        Change::Slower(limit) => {
            disks.set_limit(CHANGED, limit)?;
            look(&client, &|| Ok(false))?;
            Window { limit: LIMIT * (DISKS as u64 - 1) + limit, written: disks.written()?, at: Instant::now() }
        }
        Change::Hang(hang) => {
            disks.hang(CHANGED)?;
            look(&client, &|| Ok(at.elapsed() >= hang))?;
            let mut written = disks.written()?;
            // Not counted: what was under way when it began to hang.
            written[CHANGED] = then[CHANGED];
            let window = Window { limit: LIMIT * (DISKS as u64 - 1), written, at: Instant::now() };
            disks.go_on(CHANGED)?;
            look(&client, &|| Ok(false))?;
            window
        }
    };
    client.wait()?.good()?;
    let seconds = begun.elapsed().as_secs_f64();
    let daemon_bytes = daemon.peak_rss()?;
    let (window_s, window_bytes) = ((end.at - at).as_secs_f64(), sum(&end.written) - sum(&then));
    ensure!(window_bytes > 0, "the push was over before a disk changed");
    let back = bench.scratch.subdir("back")?;
    run(&mut longhaul.pull(&daemon, "safe", "run/", &back))?;
    let name = source.path.file_name().context("a file with a name")?;
    let b3 = blake3::Hasher::new().update_reader(File::open(back.join(name))?)?.finalize();
    ensure!(b3.to_hex().as_str() == source.b3, "what was read back is not what was sent");
    std::fs::remove_dir_all(&back)?;
    drop(daemon);
    drop(disks);
    // The loop devices let go of their images a moment after they were unmounted.
    thread::sleep(Duration::from_millis(200));
    std::fs::remove_dir_all(&dir)?;
    let ratio = window_bytes as f64 / window_s / end.limit as f64;
    let (bytes, limit) = (source.bytes, end.limit);
    Ok(Changed { what, round, bytes, seconds, window_s, window_bytes, limit, ratio, client_bytes, daemon_bytes })
}

/// The end of the time that is looked at.
struct Window {
    at: Instant,
    /// Bytes written to each disk.
    written: Vec<u64>,
    /// The sum of the limits of those that count.
    limit: u64,
}

fn sum(written: &[u64]) -> u64 {
    written.iter().sum()
}

fn print(rows: &[Changed], whats: &[&str]) {
    let head = ["change", "of the limit from then on", "rounds", "seconds of the push", "client MiB", "daemon MiB"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for what in whats {
        let same: Vec<&Changed> = rows.iter().filter(|row| row.what == *what).collect();
        let of = |figure: fn(&Changed) -> f64| same.iter().map(|row| figure(row)).collect::<Vec<f64>>();
        let ratios = of(|row| row.ratio);
        let most = |figure: fn(&Changed) -> f64| of(figure).into_iter().fold(0.0, f64::max);
        lines.push(vec![
            (*what).to_owned(),
            format!("{:.3}", kit::median(&ratios)),
            ratios.iter().map(|ratio| format!("{ratio:.3}")).collect::<Vec<_>>().join(" "),
            format!("{:.1}", kit::median(&of(|row| row.seconds))),
            format!("{:.0}", most(|row| row.client_bytes as f64 / MIB)),
            format!("{:.0}", most(|row| row.daemon_bytes as f64 / MIB)),
        ]);
    }
    print!("{}", table(&lines));
}

const DISKS: usize = 4;
/// The limit of each disk, bytes per second.
const LIMIT: u64 = 100_000_000;
/// The disk that changes.
const CHANGED: usize = 1;
/// The disk changes once this part of the file was written: what follows fills the time of a hang.
const CHANGE_AFTER: u64 = 8;
/// How long a push may take.
const PATIENCE: Duration = Duration::from_secs(300);
const MIB: f64 = (1 << 20) as f64;
