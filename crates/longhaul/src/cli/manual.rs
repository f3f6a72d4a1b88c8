//! The arguments of the commands that write about the program itself: completions and manual pages.
//!
//! The doc comments are the help texts. Knows no values and no defaults.

use std::ffi::OsString;

use clap::Args;
use clap_complete::Shell;

/// The arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// The arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// A directory for the pages of all commands, which must stand [default: the page of the
    /// program goes to standard output]
    #[arg(value_name = "DIR")]
    pub dir: Option<OsString>,
}
