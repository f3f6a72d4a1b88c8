//! Owns the short transfers: the round trips that each takes from the start of the program to its
//! exit, over a path whose round trip is long against everything else.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_wan::Rate;
use serde::Serialize;

use crate::case::Case;
use crate::far::Far;
use crate::kit::{Bench, Longhaul, median, run, table};

/// One run of a command.
#[derive(Serialize)]
struct Short {
    #[serde(flatten)]
    case: Case,
    what: &'static str,
    round: usize,
    round_trips: f64,
}

/// Runs and prints all rounds, with packets of both usual sizes.
pub(crate) fn measure(bench: &Bench, longhaul: &Longhaul) -> Result<()> {
    let small = bench.scratch.file("1-KB", 1000)?;
    let large = bench.scratch.file("1-MB", 1_000_000)?;
    for mtu in [9000, 1500] {
        let case = Case { rate: Rate::mbit(1000), rtt: ROUND_TRIP, loss: 0.0, mtu };
        let mut runs: Vec<Short> = Vec::new();
        for round in 0..bench.options.rounds() {
            let target = bench.scratch.subdir(&format!("short-{mtu}-{round}"))?;
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
                let begun = Instant::now();
                run(&mut command)?.good()?;
                let round_trips = begun.elapsed().div_duration_f64(ROUND_TRIP);
                let one = Short { case, what, round, round_trips };
                bench.recorder.record(&one)?;
                runs.push(one);
            }
        }
        print(&case, &runs);
    }
    Ok(())
}

fn print(case: &Case, runs: &[Short]) {
    let mut rows = vec![["round trips", "median", "target", "all"].map(str::to_owned).to_vec()];
    for (what, target) in WHAT {
        let of: Vec<f64> = runs.iter().filter(|run| run.what == what).map(|run| run.round_trips).collect();
        let all: Vec<String> = of.iter().map(|one| format!("{one:.2}")).collect();
        let target = target.map_or("-".to_owned(), |target| format!("{target:.1}"));
        rows.push(vec![what.to_owned(), format!("{:.2}", median(&of)), target, all.join(" ")]);
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
