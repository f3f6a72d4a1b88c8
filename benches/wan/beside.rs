//! Owns the measurement of manners: what one TCP connection under cubic has alone, and what it and
//! a session have beside each other, for each share that a session may take.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_wan::Rate;
use serde::Serialize;
use serde_json::Value;

use crate::case::Case;
use crate::far::Far;
use crate::flow::{Carried, Flow};
use crate::kit::{Bench, Longhaul, run, table};

/// A path, a share, and what came of it.
#[derive(Serialize)]
struct Beside {
    #[serde(flatten)]
    case: Case,
    queue_bdp: f64,
    share: &'static str,
    transport: &'static str,
    /// The flow with nothing beside it, on the same path.
    flow_alone: Carried,
    flow_beside: Carried,
    ours_bits_per_s: f64,
    lanes: u64,
    /// The share of all packets for which the queue had no room.
    queue_share: f64,
}

/// Runs and prints each path with each share, over `transport`.
pub(crate) fn measure(bench: &Bench, longhaul: &Longhaul, transport: &'static str) -> Result<()> {
    let target = bench.scratch.subdir("target")?;
    let seconds = bench.options.amount(SECONDS, SECONDS_QUICK);
    let mut rows = Vec::new();
    for queue_bdp in QUEUES {
        for rtt in RTTS {
            let case = Case { rate: Rate::mbit(RATE_MBIT), rtt, loss: 0.0, mtu: 9000 };
            let flow_alone = alone(longhaul, &case, queue_bdp, &target)?;
            for share in SHARES {
                let row = beside(longhaul, (&case, queue_bdp, share, transport), flow_alone, (&target, seconds))?;
                bench.recorder.record(&row)?;
                rows.push(row);
            }
        }
    }
    fs::remove_dir_all(&target)?;
    print(&rows);
    Ok(())
}

fn alone(longhaul: &Longhaul, case: &Case, queue_bdp: f64, target: &Path) -> Result<Carried> {
    let far = Far::with_queue(longhaul, case, queue_bdp, target)?;
    let flow = Flow::start(&far)?;
    thread::sleep(SETTLES);
    let from = Instant::now();
    thread::sleep(SETTLES);
    flow.end(from, Instant::now())
}

fn beside(
    longhaul: &Longhaul,
    (case, queue_bdp, share, transport): (&Case, f64, &'static str, &'static str),
    flow_alone: Carried,
    (target, seconds): (&Path, u64),
) -> Result<Beside> {
    let far = Far::with_queue(longhaul, case, queue_bdp, target)?;
    let flow = Flow::start(&far)?;
    thread::sleep(SETTLES);
    let from = Instant::now() + MEETS;
    let mut measuring = far.measure(longhaul, seconds);
    let ran = run(measuring.args(["--share", share, "--transport", transport]))?;
    let flow_beside = flow.end(from, Instant::now() - LEAVES)?;
    let events = ran.out.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let event = events.iter().find(|event| event["type"] == "bench_net").context("nothing was measured")?;
    let forward = far.forward()?;
    let row = Beside {
        case: *case,
        queue_bdp,
        share,
        transport,
        flow_alone,
        flow_beside,
        ours_bits_per_s: event["bytes_per_s"].as_f64().context("no rate")? * 8.0,
        lanes: event["lanes"].as_u64().unwrap_or(0),
        queue_share: forward.dropped_queue as f64 / forward.packets.max(1) as f64,
    };
    eprintln!("  {}", row.cells().join(", "));
    Ok(row)
}

impl Beside {
    fn cells(&self) -> Vec<String> {
        let mbit = |bits: f64| format!("{:.0}", bits / 1e6);
        vec![
            format!("{} ms", self.case.rtt.as_millis()),
            format!("{} BDP", self.queue_bdp),
            self.share.to_owned(),
            mbit(self.flow_alone.goodput_bits_per_s),
            mbit(self.flow_beside.goodput_bits_per_s),
            mbit(self.ours_bits_per_s),
            self.lanes.to_string(),
            format!("{:.2} %", self.queue_share * 100.0),
        ]
    }
}

fn print(rows: &[Beside]) {
    let head = ["round trip", "queue", "--share", "TCP alone", "TCP beside", "ours", "lanes", "queue full"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(Beside::cells));
    println!("a session beside one TCP connection under cubic at {RATE_MBIT} Mbit/s, all in Mbit/s");
    print!("{}", table(&lines));
    println!("`queue full`: the packets of both that it had no room for");
}

const RATE_MBIT: u64 = 1000;
const RTTS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];
/// Queues in round trips at the rate.
const QUEUES: [f64; 2] = [0.25, 1.0];
const SHARES: [&str; 3] = ["fair", "polite", "all"];
/// The seconds for which the session runs.
const SECONDS: u64 = 40;
const SECONDS_QUICK: u64 = 10;
/// The time until the flow has settled: slow start is over, and its losses are repaired.
const SETTLES: Duration = Duration::from_secs(10);
/// The time until both have met, which is not counted, and what is not counted at the end.
const MEETS: Duration = Duration::from_secs(3);
const LEAVES: Duration = Duration::from_millis(500);
