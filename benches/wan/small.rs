//! Owns the small files: the same tree over a long path and over none, in turns.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use longhaul_wan::Rate;
use serde::Serialize;

use crate::case::Case;
use crate::far::{Far, PAYLOAD_FROM_BYTES};
use crate::kit::{Bench, Longhaul, Running, TreeData, make_cold, median, run, table};

/// One push of the tree.
#[derive(Serialize)]
struct Push {
    #[serde(flatten)]
    case: Case,
    files: u64,
    round: usize,
    /// Seconds from the start of the client to its end.
    seconds: f64,
    /// Seconds to the first payload.
    handshake_s: f64,
    client_bytes: u64,
    daemon_bytes: u64,
}

/// Runs and prints all rounds.
pub(crate) fn measure(bench: &Bench, longhaul: &Longhaul) -> Result<()> {
    let (files, dirs) = bench.options.amount((20_000, 200), (2_000, 20));
    let tree = bench.scratch.tree("tree", files, dirs, 4096)?;
    let mut pushes = Vec::new();
    for round in 0..bench.options.rounds() {
        for rtt in RTT {
            let case = Case { rate: Rate::mbit(1000), rtt, loss: 0.0, mtu: 9000 };
            // It stays until the end, as docs/BENCHMARKS.md says of `small`.
            let target = bench.scratch.subdir(&format!("tree-{round}-{}", rtt.as_millis()))?;
            let push = push(longhaul, case, &tree, &target, round)?;
            eprintln!("  {files} files, {}: {:.3} s", case.name(), push.seconds);
            bench.recorder.record(&push)?;
            pushes.push(push);
        }
    }
    print(&pushes);
    Ok(())
}

fn push(longhaul: &Longhaul, case: Case, tree: &TreeData, target: &Path, round: usize) -> Result<Push> {
    make_cold(&tree.path)?;
    run(&mut longhaul.warm_up().context("a program")?)?;
    let far = Far::new(longhaul, &case, target)?;
    let begun = Instant::now();
    let client = Running::start(far.push(longhaul, &tree.path.join("")).arg("-q"))?;
    let (mut first, mut client_bytes) = (None, 0);
    client.look_until(Duration::from_secs(300), |client| {
        client_bytes = client_bytes.max(client.peak_rss().unwrap_or(0));
        if first.is_none() && far.forward()?.bytes >= PAYLOAD_FROM_BYTES {
            first = Some(begun.elapsed().as_secs_f64());
        }
        client.ended()
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    client.wait()?.good()?;
    let arrived = count(target)?;
    ensure!(arrived == tree.files, "{arrived} files arrived, not {}", tree.files);
    let (handshake_s, daemon_bytes) = (first.unwrap_or(seconds), far.daemon.peak_rss()?);
    Ok(Push { case, files: tree.files, round, seconds, handshake_s, client_bytes, daemon_bytes })
}

fn print(pushes: &[Push]) {
    let [none, long] = RTT.map(|rtt| pushes.iter().filter(|push| push.case.rtt == rtt).collect::<Vec<_>>());
    let mut rows =
        vec![["", "seconds", "handshake s", "all s", "client MiB", "daemon MiB"].map(str::to_owned).to_vec()];
    let of =
        |pushes: &[&Push], what: fn(&Push) -> f64| median(&pushes.iter().map(|push| what(push)).collect::<Vec<_>>());
    for pushes in [&none, &long] {
        let all: Vec<String> = pushes.iter().map(|push| format!("{:.2}", push.seconds)).collect();
        let mib = |what: fn(&Push) -> f64| format!("{:.0}", of(pushes, what) / f64::from(1 << 20));
        let name = pushes.first().map_or(String::new(), |push| format!("{} files, {}", push.files, push.case.name()));
        let [seconds, handshake] =
            [of(pushes, |p| p.seconds), of(pushes, |p| p.handshake_s)].map(|s| format!("{s:.2}"));
        rows.push(vec![
            name,
            seconds,
            handshake,
            all.join(" "),
            mib(|push| push.client_bytes as f64),
            mib(|push| push.daemon_bytes as f64),
        ]);
    }
    print!("\n{}", table(&rows));
    let ratio = |what: fn(&Push) -> f64| of(&long, what) / of(&none, what);
    println!(
        "times as long over the long path: {:.2} in all, {:.2} from the first payload on; target 1.50",
        ratio(|push| push.seconds),
        ratio(|push| push.seconds - push.handshake_s)
    );
}

fn count(dir: &Path) -> Result<u64> {
    let mut files = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Ok(files)
}

const RTT: [Duration; 2] = [Duration::ZERO, Duration::from_millis(100)];
