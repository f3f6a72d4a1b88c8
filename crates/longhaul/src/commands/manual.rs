//! `completions` and `man`: what the command line says of itself, for shells and for `man`.
//!
//! In: the definition of the command line. Out: scripts and pages, which are the same on every
//! host. `page` gives a page its form. They say what this program can do, and nothing of this host.

mod page;

use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::output;

/// Writes the completions of a shell to standard output.
pub(super) fn completions(args: &CompletionsArgs) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut without_hidden(Cli::command()), NAME, &mut script);
    told(&script)
}

/// Writes the page of the program to standard output, or all pages to a directory.
///
/// # Errors
/// [`Error::File`] if a page cannot be written.
#[expect(clippy::disallowed_methods, reason = "it writes files that the user named, outside of any root")]
pub(super) fn man(args: &ManArgs) -> Result<Exit, Error> {
    let program = page::readable(Cli::command());
    let pages = page::all(&program).map_err(Error::file("write", "the pages"))?;
    let Some(dir) = args.dir.as_deref().map(Path::new) else {
        return Ok(pages.first().map_or(Exit::Complete, |page| told(&page.text)));
    };
    for page in &pages {
        let path = dir.join(&page.name);
        std::fs::write(&path, &page.text).map_err(Error::file("write", &path))?;
    }
    Ok(Exit::Complete)
}

/// The command without the options that no help shows: options of other tools, which are there to
/// be refused with advice.
fn without_hidden(command: Command) -> Command {
    let mut shown =
        Command::new(command.get_name().to_owned()).args(command.get_arguments().filter(|arg| !arg.is_hide_set()));
    shown = shown
        .subcommands(command.get_subcommands().filter(|beneath| !beneath.is_hide_set()).cloned().map(without_hidden));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    // Each command takes `--version`; nobody reads which it is here.
    shown.version(env!("CARGO_PKG_VERSION")).propagate_version(true)
}

fn told(bytes: &[u8]) -> Exit {
    let mut out = io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Exit::Complete,
        Err(error) => output::stdout_failed(error),
    }
}

const NAME: &str = "longhaul";
