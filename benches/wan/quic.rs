//! Owns the measurement of QUIC lanes at a rate that was asked for: whether they hold it on the
//! wire, and their effect on a TCP connection beside them, with and without loss.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use longhaul_wan::Rate;
use serde::Serialize;

use crate::case::Case;
use crate::cells::{Cells, path_cell};
use crate::far::Far;
use crate::flow::{Carried, Congestion, Flow};
use crate::kit::{Bench, END_S, Longhaul, START_S, table};
use crate::large::{Job, Moved, push, push_over};

/// The results of a path.
#[derive(Serialize)]
struct Measured {
    asked_bits_per_s: u64,
    /// The push with nothing beside it.
    alone: Moved,
    wire_bits_per_s: Option<f64>,
    /// The push beside the flow.
    beside: Moved,
    /// The flow with nothing beside it, and beside the push.
    flow_alone: Carried,
    flow_beside: Carried,
    /// The share of all packets for which the queue had no room.
    queue_share_alone: f64,
    queue_share_beside: f64,
}

/// Runs and prints a path for each share lost, with further options `with`.
pub(crate) fn measure(
    bench: &Bench,
    longhaul: &Longhaul,
    (losses, cells): (&[f64], &Cells),
    with: &[String],
) -> Result<()> {
    let rate = Rate::mbit(RATE_MBIT);
    let seconds = bench.options.amount(SECONDS, SECONDS_QUICK);
    let source = bench.scratch.file("source", ASKED_MBIT * 1_000_000 / 8 * seconds)?;
    let asked = format!("{ASKED_MBIT}Mbit/s");
    let mut options: Vec<_> = ["--transport", "quic", "--rate", &asked].map(str::to_owned).into();
    options.extend_from_slice(with);
    let mut rows = Vec::new();
    for loss in losses {
        let case = Case { rate, rtt: RTT, loss: *loss, mtu: 9000 };
        let name = path_cell("quic", &case);
        if !cells.has(&name) {
            continue;
        }
        let measured = both(bench, longhaul, &Job { case, with: &options, source: &source })?;
        bench.recorder.record_cell(&name, &measured)?;
        rows.push(measured);
    }
    fs::remove_file(&source.path)?;
    if !rows.is_empty() {
        print(&rows);
    }
    Ok(())
}

/// The push alone, the flow alone, and both together.
fn both(bench: &Bench, longhaul: &Longhaul, job: &Job<'_>) -> Result<Measured> {
    let alone = push(bench, longhaul, job)?;
    eprintln!("  {}: {:.0} Mbit/s", alone.name(), alone.goodput_bits_per_s / 1e6);
    let target = bench.scratch.subdir("target")?;
    let far = Far::new(longhaul, &job.case, &target)?;
    let flow = Flow::start(&far, Congestion::Cubic)?;
    thread::sleep(FLOW_SETTLES);
    let from = Instant::now();
    thread::sleep(Duration::from_secs_f64(job.source.bytes as f64 * 8.0 / (ASKED_MBIT * 1_000_000) as f64));
    let flow_alone = flow.end(from, Instant::now())?;
    drop(far);
    // A path of its own, as its counters go on.
    let far = Far::new(longhaul, &job.case, &target)?;
    let flow = Flow::start(&far, Congestion::Cubic)?;
    thread::sleep(FLOW_SETTLES);
    let beside = push_over(&far, longhaul, job)?;
    let settled = |seconds: f64| beside.first + Duration::from_secs_f64(seconds);
    let start = START_S.min(beside.seconds / 2.0);
    let flow_beside = flow.end(settled(start), settled((beside.seconds - END_S).max(start)))?;
    eprintln!("  the same beside a TCP connection: {:.0} Mbit/s", beside.goodput_bits_per_s / 1e6);
    drop(far);
    fs::remove_dir_all(&target)?;
    let queue_share = |moved: &Moved| moved.forward.dropped_queue as f64 / moved.forward.packets.max(1) as f64;
    Ok(Measured {
        asked_bits_per_s: ASKED_MBIT * 1_000_000,
        wire_bits_per_s: alone.steady_bits_per_s(),
        queue_share_alone: queue_share(&alone),
        queue_share_beside: queue_share(&beside),
        alone,
        beside,
        flow_alone,
        flow_beside,
    })
}

fn print(rows: &[Measured]) {
    let mbit = |bits: f64| format!("{:.0}", bits / 1e6);
    let share = |share: f64| format!("{:.2} %", share * 100.0);
    let head = [
        "path",
        "asked",
        "goodput",
        "wire, steady",
        "of asked",
        "s/GB",
        "beside TCP",
        "TCP alone",
        "TCP beside",
        "resent",
        "beside",
        "queue full",
        "beside",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let asked = row.asked_bits_per_s as f64;
        lines.push(vec![
            row.alone.case.name(),
            mbit(asked),
            mbit(row.alone.goodput_bits_per_s),
            row.wire_bits_per_s.map_or("-".to_owned(), mbit),
            row.wire_bits_per_s.map_or("-".to_owned(), |wire| format!("{:.3}", wire / asked)),
            row.alone.cpu_s_per_gb().map(|seconds| format!("{seconds:.2}")).join(", "),
            mbit(row.beside.goodput_bits_per_s),
            mbit(row.flow_alone.goodput_bits_per_s),
            mbit(row.flow_beside.goodput_bits_per_s),
            share(row.flow_alone.resent_share),
            share(row.flow_beside.resent_share),
            share(row.queue_share_alone),
            share(row.queue_share_beside),
        ]);
    }
    println!("QUIC at a rate, Mbit/s; TCP is one connection under cubic, `resent` what it sent again");
    print!("{}", table(&lines));
    println!(
        "`s/GB`: CPU of client and daemon; `queue full`: packets that it had no room for, of the push alone and of both"
    );
}

const RATE_MBIT: u64 = 1000;
const ASKED_MBIT: u64 = 900;
const RTT: Duration = Duration::from_millis(100);
/// Seconds of data at the rate asked for.
const SECONDS: u64 = 30;
const SECONDS_QUICK: u64 = 10;
/// The time until the flow has settled: slow start is over, and its losses are repaired.
const FLOW_SETTLES: Duration = Duration::from_secs(10);
