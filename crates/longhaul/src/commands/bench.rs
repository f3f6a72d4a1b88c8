//! `bench`: measurements with data made up for them, one module each. `ground` has the directory of
//! the files of `matrix`, `lab` what the measurements of disks share.

mod disk;
mod fill;
mod ground;
mod iops;
mod lab;
mod matrix;
mod net;
mod pileup;
mod scan;

use std::io;

use longhaul_core::Fault;

use super::Context;
use crate::cli::BenchVerb;
use crate::error::Error;
use crate::exit::Exit;

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(verb: BenchVerb, context: Context) -> Result<Exit, Error> {
    match verb {
        BenchVerb::Net(args) => net::run(&args, context),
        BenchVerb::Matrix(args) => matrix::run(&args, context),
        BenchVerb::Disk(args) => disk::run(&args, context),
        BenchVerb::Iops(args) => iops::run(&args, context),
        BenchVerb::Pileup(args) => pileup::run(&args, context),
        BenchVerb::Fill(args) => fill::run(&args, context),
        BenchVerb::Scan(args) => scan::run(&args, context),
    }
}

/// The reason why a measurement ended early.
enum Ended {
    /// It failed, or was stopped.
    Fault(Fault),
    /// Standard output takes nothing any more.
    Stdout(io::Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Fault(error.into())
    }
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Ended {
        Ended::Fault(fault)
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Stdout(error)
    }
}
