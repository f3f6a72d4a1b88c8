//! `bench iops`: small requests at random offsets.
//!
//! In: parsed arguments. Out: a table or a line for each row on standard output, and a plot if one
//! is wanted. It measures nothing itself.

use longhaul_engine::Stop;
use longhaul_engine::lab::RandomGround;

use super::{Ended, lab};
use crate::cli::BenchIopsArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::IopsTelling;
use crate::settings::{self, IopsBench};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &BenchIopsArgs, context: Context) -> Result<Exit, Error> {
    let merge = |layers: &settings::Layers| {
        let bench = settings::iops_bench(args, layers)?;
        let lab = bench.lab.clone();
        Ok((bench, lab))
    };
    lab::run((&args.talk, context), merge, |talk, _| IopsTelling::new(talk), measure)
}

fn measure(bench: IopsBench, telling: &mut IopsTelling, stop: &Stop) -> Result<(), Ended> {
    let reads_percent = bench.run.reads_percent;
    let ground = RandomGround::prepare(bench.run, stop)?;
    telling.begin(ground.request_bytes(), reads_percent, ground.mode());
    for case in bench.cases {
        telling.tell(&ground.measure(case, stop)?)?;
    }
    Ok(())
}
