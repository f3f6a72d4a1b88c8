//! `bench`: measurements with data made up for them, one module each. `ground` has the directory of
//! their files.

mod ground;
mod matrix;
mod net;

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
    }
}
