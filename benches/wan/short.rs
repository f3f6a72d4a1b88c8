//! Owns the short transfers: the round trips that each takes from the start of the program to its
//! exit, over a path whose round trip is long against everything else; and 0.3 GB over a path that
//! is met for the first time, and once more.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_wan::Rate;
use serde::Serialize;

use crate::case::Case;
use crate::cells::{Cells, path_cell};
use crate::far::Far;
use crate::kit::{Bench, FileData, Longhaul, make_cold, median, run, table};
use crate::said::SaidRoad;

/// One run of a command.
#[derive(Serialize)]
struct Short {
    #[serde(flatten)]
    case: Case,
    what: &'static str,
    round: usize,
    round_trips: f64,
    /// Round trips from the last payload to the exit, by the client's own account. `None` for a
    /// listing.
    last_byte_rtts: Option<f64>,
}

/// One run of a push that is over in a few seconds.
#[derive(Serialize)]
struct Brief {
    #[serde(flatten)]
    case: Case,
    /// Whether the path was met before.
    is_known: bool,
    round: usize,
    /// The part of the rate that payload had, from the start of the program to its exit.
    of_line: f64,
    /// Round trips from the last payload to the exit, by the client's own account.
    last_byte_rtts: Option<f64>,
    /// Payload that lanes over UDP sent again, over that which the path lost.
    resent_of_lost: Option<f64>,
}

/// Runs and prints all rounds, with packets of both usual sizes, over `transport` or whatever the
/// program chooses.
pub(crate) fn measure(bench: &Bench, longhaul: &Longhaul, transport: Option<&str>, cells: &Cells) -> Result<()> {
    let over: Vec<&str> = transport.iter().flat_map(|kind| ["--transport", kind]).collect();
    trips(bench, longhaul, &over, cells)?;
    brief(bench, longhaul, &over, cells)
}

/// The name of a cell: over whatever the program chooses, `auto`.
fn cell(kind: &str, over: &[&str], case: &Case) -> String {
    path_cell(&format!("short {kind} {}", over.last().unwrap_or(&"auto")), case)
}

fn brief(bench: &Bench, longhaul: &Longhaul, over: &[&str], cells: &Cells) -> Result<()> {
    let case = |loss: f64| Case { rate: Rate::mbit(1000), rtt: Duration::from_millis(100), loss, mtu: 9000 };
    let chosen = [0.0, 1e-3, 1e-2].map(case).into_iter().filter(|case| cells.has(&cell("brief", over, case)));
    let chosen: Vec<Case> = chosen.collect();
    if chosen.is_empty() {
        return Ok(());
    }
    let source = bench.scratch.file("brief", bench.options.amount(BYTES, BYTES / 3))?;
    let head = ["of the line", "first visit", "known peer", "to exit RTT", "resent / lost", "all"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for case in chosen {
        let mut runs: Vec<Brief> = Vec::new();
        for round in 0..bench.options.rounds() {
            runs.extend(visits(bench, longhaul, (&case, over), &source, round)?);
        }
        let of = |is_known| -> Vec<f64> {
            runs.iter().filter(|run| run.is_known == is_known).map(|run| run.of_line).collect()
        };
        let all: Vec<String> = runs.iter().map(|run| format!("{:.2}", run.of_line)).collect();
        let [first, known] = [of(false), of(true)].map(|all| format!("{:.2}", median(&all)));
        let [exit, resent] = [of_all(&runs, |run| run.last_byte_rtts, 2), of_all(&runs, |run| run.resent_of_lost, 3)];
        rows.push(vec![case.name(), first, known, exit, resent, all.join(" ")]);
    }
    fs::remove_file(&source.path)?;
    print!("\n{} MB, from the start of the program to its exit\n{}", source.bytes / 1_000_000, table(&rows));
    Ok(())
}

/// The median of a figure that not every run has.
fn of_all<R>(runs: &[R], figure: fn(&R) -> Option<f64>, decimals: usize) -> String {
    let figures: Vec<f64> = runs.iter().filter_map(figure).collect();
    if figures.is_empty() { "-".to_owned() } else { format!("{:.decimals$}", median(&figures)) }
}

/// Pushes a file over a path that nobody met before, and once more.
fn visits(
    bench: &Bench,
    longhaul: &Longhaul,
    (case, over): (&Case, &[&str]),
    source: &FileData,
    round: usize,
) -> Result<[Brief; 2]> {
    let target = bench.scratch.subdir("visits")?;
    let memory = bench.scratch.subdir("memory")?;
    let far = Far::new(longhaul, case, &target)?;
    let visit = |is_known: bool| {
        make_cold(&source.path)?;
        run(&mut longhaul.warm_up().context("a program")?)?;
        let (before, begun) = (far.forward()?, Instant::now());
        let mut push = far.push(longhaul, &source.path);
        let ran = run(push.arg("--json").args(over).env("XDG_STATE_HOME", &memory))?.good()?;
        let bits_per_s = source.bytes as f64 * 8.0 / begun.elapsed().as_secs_f64();
        let (road, of_line) = (SaidRoad::read(&ran.out)?, bits_per_s / case.rate.as_bits() as f64);
        let resent_of_lost = road.resent_of_lost(&before, &far.forward()?);
        remove_files(&target)?;
        let last_byte_rtts = road.last_byte_rtts;
        let brief = Brief { case: *case, is_known, round, of_line, last_byte_rtts, resent_of_lost };
        bench.recorder.record_cell(&cell("brief", over, case), &brief)?;
        Ok::<_, anyhow::Error>(brief)
    };
    let both = [visit(false)?, visit(true)?];
    drop(far);
    fs::remove_dir_all(&target)?;
    fs::remove_dir_all(&memory)?;
    Ok(both)
}

/// Removes what arrived, so that it comes again.
fn remove_files(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn trips(bench: &Bench, longhaul: &Longhaul, over: &[&str], cells: &Cells) -> Result<()> {
    let case = |mtu: u32| Case { rate: Rate::mbit(1000), rtt: ROUND_TRIP, loss: 0.0, mtu };
    let chosen: Vec<Case> =
        [9000, 1500].map(case).into_iter().filter(|case| cells.has(&cell("trips", over, case))).collect();
    let small = bench.scratch.file("1-KB", 1000)?;
    let large = bench.scratch.file("1-MB", 1_000_000)?;
    for case in chosen {
        let mut runs: Vec<Short> = Vec::new();
        for round in 0..bench.options.rounds() {
            let target = bench.scratch.subdir(&format!("short-{}-{round}", case.mtu))?;
            run(&mut longhaul.warm_up().context("a program")?)?;
            let far = Far::new(longhaul, &case, &target)?;
            let pull = longhaul.pull(&far.daemon, "private", "1-KB", &target.join("pulled"));
            let commands: [(&str, Command); 5] = [
                (WHAT[0].0, far.push(longhaul, &small.path)),
                (WHAT[1].0, far.push(longhaul, &large.path)),
                (WHAT[2].0, far.push(longhaul, &small.path)),
                (WHAT[3].0, far.near(longhaul.list(&far.daemon))),
                (WHAT[4].0, far.near(pull)),
            ];
            for (what, mut command) in commands {
                let is_listing = what == WHAT[3].0;
                if !is_listing {
                    command.arg("--json").args(over);
                }
                let begun = Instant::now();
                let ran = run(&mut command)?.good()?;
                let round_trips = begun.elapsed().div_duration_f64(ROUND_TRIP);
                let road = if is_listing { SaidRoad::default() } else { SaidRoad::read(&ran.out)? };
                let one = Short { case, what, round, round_trips, last_byte_rtts: road.last_byte_rtts };
                bench.recorder.record_cell(&cell("trips", over, &case), &one)?;
                runs.push(one);
            }
        }
        print(&case, &runs);
    }
    Ok(())
}

fn print(case: &Case, runs: &[Short]) {
    let mut rows = vec![["round trips", "median", "target", "to exit", "all"].map(str::to_owned).to_vec()];
    for (what, target) in WHAT {
        let alike: Vec<&Short> = runs.iter().filter(|run| run.what == what).collect();
        let of: Vec<f64> = alike.iter().map(|run| run.round_trips).collect();
        let exit = of_all(&alike, |run| run.last_byte_rtts, 2);
        let all: Vec<String> = of.iter().map(|one| format!("{one:.2}")).collect();
        let target = target.map_or("-".to_owned(), |target| format!("{target:.1}"));
        rows.push(vec![what.to_owned(), format!("{:.2}", median(&of)), target, exit, all.join(" ")]);
    }
    print!("\n{}\n{}", case.name(), table(&rows));
}

/// The commands, and the round trips that are aimed at.
const WHAT: [(&str, Option<f64>); 5] = [
    ("push 1 KB", Some(4.5)),
    ("push 1 MB", Some(6.0)),
    ("push what is there", Some(3.5)),
    ("ls", Some(3.0)),
    ("pull 1 KB", None),
];
const ROUND_TRIP: Duration = Duration::from_secs(1);
/// Bytes of the push that is over in a few seconds.
const BYTES: u64 = 300_000_000;
