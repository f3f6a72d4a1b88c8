//! `bench disk`: sequential reads and writes of disks.
//!
//! In: parsed arguments. Out: a table or a line for each row on standard output, and a plot if one
//! is wanted. It measures nothing itself.

use longhaul_engine::Stop;
use longhaul_engine::lab::Sweep;

use super::{Ended, lab};
use crate::cli::BenchDiskArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::SweepTelling;
use crate::settings::{self, DiskBench};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &BenchDiskArgs, context: Context) -> Result<Exit, Error> {
    let merge = |layers: &settings::Layers| {
        let bench = settings::disk_bench(args, layers)?;
        let lab = bench.lab.clone();
        Ok((bench, lab))
    };
    lab::run((&args.talk, context), merge, |talk, _| SweepTelling::new(talk), measure)
}

fn measure(bench: DiskBench, telling: &mut SweepTelling, stop: &Stop) -> Result<(), Ended> {
    let DiskBench { run, cells, .. } = bench;
    let mut sweep = Sweep::prepare(run, stop)?;
    let asked = cells.len();
    let cells: Vec<_> = cells.into_iter().filter(|cell| sweep.fits(*cell)).collect();
    telling.begin(cells.len(), asked - cells.len(), sweep.mode());
    if let Some((one, other)) = sweep.shared_file_system() {
        telling.shared(&one, &other);
    }
    for cell in cells {
        telling.tell(&sweep.measure(cell, stop)?)?;
    }
    Ok(telling.advise()?)
}
