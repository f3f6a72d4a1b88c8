//! The command line that all benches take.

use std::path::PathBuf;

use clap::Parser;

/// A benchmark of longhaul: prints a table and ratios, judges nothing. See docs/BENCHMARKS.md
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Small amounts and two rounds: shows that the bench works, not how fast anything is
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds; each runs every contender once, every other one in reverse order [default: 5, with
    /// --quick 2]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// A directory on the disk to measure, for test data that is removed at the end [default:
    /// beneath target/]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The flag that cargo gives to a bench.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// The options. `None` when this is no `cargo bench`: `cargo test --all-targets` runs benches
    /// too, and means no measurement.
    pub(crate) fn parse() -> Option<Options> {
        let options = <Options as Parser>::parse();
        options.is_bench().then_some(options)
    }

    /// Whether this is `cargo bench`, for a bench that parses further options besides.
    pub(crate) fn is_bench(&self) -> bool {
        if !self.bench {
            eprintln!("not a measurement: run it with `cargo bench -p longhaul --bench NAME`");
        }
        self.bench
    }

    /// The number of rounds to run.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 2 } else { 5 }).max(1)
    }

    /// One of two amounts.
    pub(crate) fn amount<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
