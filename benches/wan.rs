//! `wan`: one large file, disk to disk through a daemon at the far end of an emulated path, against
//! the path's rate; and a tree of small files over a long path against the same tree over none; and
//! QUIC at a rate, beside a TCP connection; the round trips of short transfers, and what a known
//! path is worth; and sessions beside TCP connections and each other, with each of their shares.
//!
//! See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

#[path = "wan/beside.rs"]
mod beside;
#[path = "wan/case.rs"]
mod case;
#[path = "wan/cells.rs"]
mod cells;
#[path = "wan/far.rs"]
mod far;
#[path = "wan/flow.rs"]
mod flow;
mod kit;
#[path = "wan/large.rs"]
mod large;
#[path = "wan/meetings.rs"]
mod meetings;
#[path = "wan/quic.rs"]
mod quic;
#[path = "wan/said.rs"]
mod said;
#[path = "wan/short.rs"]
mod short;
#[path = "wan/small.rs"]
mod small;
#[path = "wan/tables.rs"]
mod tables;

use std::fs;

use anyhow::Result;
use case::{Case, Plan};
use cells::{Cells, Lists, path_cell};
use clap::Parser;
use kit::{Bench, Longhaul, table};
use large::{Job, Moved};

fn main() -> Result<()> {
    let plan = Plan::parse();
    if !plan.common.is_bench() {
        return Ok(());
    }
    let lists = if plan.list { Lists::Names } else { Lists::Nothing };
    let chosen = Cells::of(&plan.only, lists);
    let (cases, small, quic, with) = (plan.cases(), plan.has_small_files(), plan.quic_losses(), plan.with.clone());
    let (beside, transport) = (plan.beside(), plan.transport.first().cloned());
    let (bytes, short, is_table) = (plan.bytes, plan.has_short_transfers(), plan.table);
    let bench = Bench::start("wan", env!("CARGO_TARGET_TMPDIR"), plan.common)?;
    if is_table {
        return tables::print(bench.recorder.path());
    }
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    let cases: Vec<Case> = cases.into_iter().filter(|case| chosen.has(&path_cell("large", case))).collect();
    let moved = large_files(&bench, &longhaul, &cases, (&with, bytes))?;
    if !moved.is_empty() {
        print(&moved);
    }
    if small && chosen.has("small") {
        small::measure(&bench, &longhaul)?;
    }
    if short {
        short::measure(&bench, &longhaul, transport.as_deref(), &chosen)?;
    }
    if !quic.is_empty() {
        quic::measure(&bench, &longhaul, (&quic, &chosen), &with)?;
    }
    if let Some(choice) = &beside {
        beside::measure(&bench, &longhaul, choice, &chosen)?;
        if lists == Lists::Nothing {
            tables::print_kind(bench.recorder.path(), "beside")?;
        }
    }
    bench.finish();
    Ok(())
}

/// Runs each case once, with these options and a file of so many bytes; those of one rate share a
/// source.
fn large_files(
    bench: &Bench,
    longhaul: &Longhaul,
    cases: &[case::Case],
    (with, bytes): (&[String], Option<u64>),
) -> Result<Vec<Moved>> {
    let mut moved = Vec::new();
    for group in cases.chunk_by(|one, next| one.rate == next.rate) {
        let seconds = bench.options.amount(SECONDS, SECONDS_QUICK);
        let source = bench.scratch.file("source", bytes.unwrap_or(group[0].rate.as_bits() / 8 * seconds))?;
        for case in group {
            let run = large::push(bench, longhaul, &Job { case: *case, with, source: &source })?;
            eprintln!("  {}: {:.3} of the rate in {:.2} s", run.name(), run.ratio, run.seconds);
            bench.recorder.record_cell(&path_cell("large", case), &run)?;
            moved.push(run);
        }
        fs::remove_file(&source.path)?;
    }
    Ok(moved)
}

fn print(moved: &[Moved]) {
    let head = [
        "path",
        "goodput Mbit/s",
        "ratio",
        "whole run",
        "sent again",
        "target",
        "handshake s",
        "seconds",
        "client MiB",
        "daemon MiB",
        "CPU",
        "s/GB",
    ];
    print_rows(&head, moved, |run| {
        let target = run.target.map_or("-".to_owned(), |target| format!("{target:.2}"));
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
        vec![
            format!("{:.0}", run.goodput_bits_per_s / 1e6),
            format!("{:.3}", run.ratio),
            format!("{:.3}", run.whole_ratio),
            format!("{:.1} %", run.resent_share() * 100.0),
            target,
            format!("{:.2}", run.handshake_s),
            format!("{:.2}", run.seconds),
            mib(run.client_bytes),
            mib(run.daemon_bytes),
            format!("{:.0} %", run.machine_cpu_share * 100.0),
            run.cpu_s_per_gb().map(|seconds| format!("{seconds:.2}")).join(", "),
        ]
    });
    println!(
        "\nwhere the seconds went: what the payload takes at the rate, what else was on the wire, and when the wire was idle"
    );
    let head = [
        "path",
        "payload",
        "headers, resent",
        "idle: start",
        "between",
        "end",
        "tail",
        "to exit",
        "round trips",
        "resent / lost",
        "late us max",
        "not true",
    ];
    print_rows(&head, moved, |run| {
        let account = &run.account;
        let times =
            [account.payload_s, account.overhead_s, account.idle_start_s, account.idle_between_s, account.idle_end_s];
        let mut row: Vec<String> = times.iter().map(|seconds| format!("{seconds:.2}")).collect();
        row.push(format!("{:.2}", account.tail_s));
        row.push(format!("{:.2}", run.to_exit_s));
        row.push(run.to_exit_rtts.map_or("-".to_owned(), |rtts| format!("{rtts:.2}")));
        row.push(run.resent_of_lost.map_or("-".to_owned(), |part| format!("{part:.3}")));
        row.push(format!("{}", run.forward.late_us_max));
        row.push(format!("{}", run.forward.dropped_emulator + run.forward.dropped_device));
        row
    });
    println!("\nwhat limited it by its own account, and what it decided");
    for run in moved {
        println!("{}: {}; {}", run.name(), run.said.limits(), run.said.decisions());
    }
    println!(
        "memory bound: 320 MiB per process; `s/GB`: CPU of client and daemon; `not true`: packets that the emulator lost, not \
         the path"
    );
}

fn print_rows(head: &[&str], moved: &[Moved], cells: impl Fn(&Moved) -> Vec<String>) {
    let mut rows = vec![head.iter().map(|&cell| cell.to_owned()).collect()];
    rows.extend(moved.iter().map(|run| {
        let mut row = vec![run.name()];
        row.extend(cells(run));
        row
    }));
    print!("{}", table(&rows));
}

/// Seconds of data at the path's rate.
const SECONDS: u64 = 30;
const SECONDS_QUICK: u64 = 3;
