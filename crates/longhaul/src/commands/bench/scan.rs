//! `bench scan`: a file or device is read region by region.
//!
//! In: parsed arguments. Out: a table or a line for each row on standard output, and a plot if one
//! is wanted. It measures nothing itself.

use longhaul_engine::Stop;
use longhaul_engine::lab::SpotScan;

use super::{Ended, lab};
use crate::cli::BenchScanArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::ScanTelling;
use crate::settings::{self, ScanBench};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &BenchScanArgs, context: Context) -> Result<Exit, Error> {
    let merge = |layers: &settings::Layers| {
        let bench = settings::scan_bench(args, layers)?;
        let lab = bench.lab.clone();
        Ok((bench, lab))
    };
    lab::run((&args.talk, context), merge, |talk, _| ScanTelling::new(talk), measure)
}

fn measure(bench: ScanBench, telling: &mut ScanTelling, stop: &Stop) -> Result<(), Ended> {
    let scan = SpotScan::open(&bench.run)?;
    telling.begin(scan.bytes(), scan.regions(), scan.mode());
    for region in 0..scan.regions() {
        telling.tell(scan.measure(region, stop)?)?;
    }
    telling.sum_up()?;
    telling.unreadable().map_or(Ok(()), |fault| Err(fault.into()))
}
