//! `bench fill`: a file system is filled up to a share.
//!
//! In: parsed arguments. Out: a table or a line for each row on standard output, and a plot if one
//! is wanted. It measures nothing itself.

use std::ops::ControlFlow;

use longhaul_engine::Stop;
use longhaul_engine::lab::bench_fill;

use super::{Ended, lab};
use crate::cli::BenchFillArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::FillTelling;
use crate::settings::{self, FillBench};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &BenchFillArgs, context: Context) -> Result<Exit, Error> {
    let merge = |layers: &settings::Layers| {
        let bench = settings::fill_bench(args, layers)?;
        let lab = bench.lab.clone();
        Ok((bench, lab))
    };
    lab::run((&args.talk, context), merge, |talk, _| FillTelling::new(talk), measure)
}

fn measure(bench: FillBench, telling: &mut FillTelling, stop: &Stop) -> Result<(), Ended> {
    let mut told = Ok(());
    let report = bench_fill(&bench.run, stop, &mut |sample| {
        told = telling.tell(sample);
        if told.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    told?;
    Ok(telling.sum_up(&report?)?)
}
