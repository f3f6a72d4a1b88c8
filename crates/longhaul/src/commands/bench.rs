//! `bench`: measurements with data made up for them, one module each; `ground` is where their files
//! lie.

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
/// What is wrong before it is known how to say so.
pub(super) fn run(verb: BenchVerb, context: Context) -> Result<Exit, Error> {
    match verb {
        BenchVerb::Net(args) => net::run(&args, context),
        BenchVerb::Matrix(args) => matrix::run(&args, context),
    }
}
