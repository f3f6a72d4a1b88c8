//! `fleet`: the queue of campaigns. Ten movers that share one in PostgreSQL, against the same
//! pushes without it; a campaign of very many files that only a scan could have listed; the time of
//! a claim among many movers; and the queue in a file, against a plain push.
//!
//! See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

#[path = "fleet/claims.rs"]
mod claims;
mod kit;
#[path = "fleet/moved.rs"]
mod moved;
#[path = "fleet/planned.rs"]
mod planned;
#[allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "the tests use the rest of it")]
#[path = "../tests/fixture/postgres.rs"]
mod postgres;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use kit::{Bench, Options};

/// The options of this bench.
#[derive(Debug, Parser)]
struct FleetOptions {
    #[command(flatten)]
    all: Options,
    /// Only these cells [default: all]
    #[arg(long, value_name = "CELL", value_delimiter = ',')]
    cells: Vec<Cell>,
    /// Files that are moved, over both daemons [default: 1000000, with --quick 20000]
    #[arg(long, value_name = "N")]
    files: Option<u64>,
}

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cell {
    /// A campaign of very many files is planned.
    Plan,
    /// Many movers claim.
    Claims,
    /// Ten movers share a queue in PostgreSQL.
    Fleet,
    /// One mover has a queue in a file.
    Alone,
}

fn main() -> Result<()> {
    let FleetOptions { all: options, cells, files } = <FleetOptions as Parser>::parse();
    if !options.is_bench() {
        return Ok(());
    }
    let bench = Bench::start("fleet", env!("CARGO_TARGET_TMPDIR"), options)?;
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    let is_wanted = |cell| cells.is_empty() || cells.contains(&cell);
    // The one whose memory is looked at is first.
    if is_wanted(Cell::Plan) {
        planned::run(&bench, &longhaul)?;
    }
    if is_wanted(Cell::Claims) {
        claims::run(&bench)?;
    }
    if is_wanted(Cell::Fleet) || is_wanted(Cell::Alone) {
        let ground = moved::Ground::new(&bench, &longhaul, files)?;
        if is_wanted(Cell::Fleet) {
            ground.fleet()?;
        }
        if is_wanted(Cell::Alone) {
            ground.alone()?;
        }
    }
    bench.finish();
    Ok(())
}
