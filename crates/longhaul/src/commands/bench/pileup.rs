//! `bench pileup`: many threads that read at random from many files.
//!
//! In: parsed arguments. Out: a table or a line for each row on standard output, and a plot if one
//! is wanted. It measures nothing itself.

use longhaul_engine::Stop;
use longhaul_engine::lab::Pileup;

use super::{Ended, lab};
use crate::cli::BenchPileupArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::PileupTelling;
use crate::settings::{self, PileupBench};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &BenchPileupArgs, context: Context) -> Result<Exit, Error> {
    let merge = |layers: &settings::Layers| {
        let bench = settings::pileup_bench(args, layers)?;
        let lab = bench.lab.clone();
        Ok((bench, lab))
    };
    lab::run((&args.talk, context), merge, |talk, bench: &PileupBench| PileupTelling::new(talk, &bench.run), measure)
}

fn measure(bench: PileupBench, telling: &mut PileupTelling, stop: &Stop) -> Result<(), Ended> {
    let pileup = Pileup::prepare(bench.run, stop)?;
    telling.begin(pileup.mode());
    for threads in bench.threads {
        telling.tell(&pileup.measure(threads, stop)?)?;
    }
    Ok(())
}
