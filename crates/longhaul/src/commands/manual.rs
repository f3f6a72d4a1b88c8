//! `completions` and `man`: what the command line says of itself, for shells and for `man`.
//!
//! In: the definition of the command line. Out: scripts and pages. They say what this program can
//! do, and nothing of this host.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::output;

/// Writes the completions of a shell to standard output.
pub(super) fn completions(args: &CompletionsArgs) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    told(&script)
}

/// Writes the page of the program to standard output, or all pages to a directory.
///
/// # Errors
/// [`Error::File`] if a page cannot be written.
pub(super) fn man(args: &ManArgs) -> Result<Exit, Error> {
    let Some(dir) = args.dir.as_deref().map(Path::new) else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Error::file("write", "the page"))?;
        return Ok(told(&page));
    };
    let written = clap_mangen::generate_to(Cli::command(), dir);
    written.map_err(Error::file("write pages to", dir))?;
    Ok(Exit::Complete)
}

fn told(bytes: &[u8]) -> Exit {
    let mut out = io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Exit::Complete,
        Err(error) => output::stdout_failed(error),
    }
}

const NAME: &str = "longhaul";
