//! longhaul, the program: its command line, settings, keys, daemon, output and exit codes.
//!
//! In: the process's arguments, environment and config files. Out: jobs to `longhaul-engine`, lines
//! to people and scripts, an exit code. Only this crate knows clap, JSON output and the
//! environment; it touches no payload, and no socket but those of an administrator and of
//! whoever watches.

pub mod admin;
pub mod audit;
pub mod cli;
pub mod commands;
pub mod config;
pub mod confine;
pub mod destination;
pub mod error;
pub mod exit;
pub mod jobs;
pub mod keys;
pub mod location;
pub mod manifest;
pub mod naming;
pub mod notify;
pub mod output;
pub mod path_memory;
#[cfg(test)]
mod reference;
pub mod removal;
pub mod settings;
pub mod signals;
pub mod values;
pub mod watch;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::Cli;
use crate::commands::Context;
use crate::exit::Exit;
use crate::output::{JsonLines, VersionBody};
use crate::values::ColorWhen;

/// Runs the process's own command line.
pub fn main() -> ExitCode {
    longhaul_engine::prepare_process();
    let line: Vec<OsString> = env::args_os().collect();
    let context = Context { line: &line, environment: &|name| env::var_os(name) };
    ExitCode::from(run(context).code())
}

/// Runs a command line.
pub fn run(context: Context) -> Exit {
    if let Some(done) = commands::run_part(context) {
        return done.unwrap_or_else(|error| output::refuse(false, error));
    }
    output::set_color(color_asked_for(context), context.environment);
    let done = match Cli::try_parse_from(context.line) {
        Ok(cli) => commands::run(cli, context),
        Err(error) => return unparsed(&error, context),
    };
    done.unwrap_or_else(|error| output::refuse(asks_for_json(context), error))
}

/// Handles a command line that does not parse. Help and version are answers; the rest is a usage
/// error, told like every other error.
fn unparsed(error: &clap::Error, context: Context) -> Exit {
    let kind = error.kind();
    if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // The help goes to standard error; if that is gone, it has no reader.
        let _ = error.print();
        return Exit::Usage;
    }
    if kind == ErrorKind::DisplayVersion {
        return version(context).map_or_else(output::stdout_failed, |()| Exit::Complete);
    }
    if !error.use_stderr() {
        return error.print().map_or_else(output::stdout_failed, |()| Exit::Complete);
    }
    output::refuse(asks_for_json(context), cli::explain(error, command_of(context.line).as_deref()))
}

/// Tells the version: a command's is the program's.
fn version(context: Context) -> io::Result<()> {
    let version = VersionBody::new();
    if asks_for_json(context) {
        JsonLines::new(io::stdout()).version(&version)
    } else {
        writeln!(io::stdout(), "{}", version.line())
    }
}

/// The command that a line names; it may be of two words.
fn command_of(line: &[OsString]) -> Option<String> {
    let words: Vec<&str> = line.iter().skip(1).map_while(|word| word.to_str()).take(2).collect();
    match words.as_slice() {
        ["key" | "bench" | "admin" | "manifest" | "job", second] if !second.starts_with('-') => Some(words.join(" ")),
        [first, ..] if !first.starts_with('-') => Some((*first).to_owned()),
        _ => None,
    }
}

/// The value of `--color` or its variable, for a command line that perhaps does not parse. The
/// config file is asked later.
fn color_asked_for(context: Context) -> ColorWhen {
    let mut flags = context.line.iter().skip(1).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let mut asked = None;
    while let Some(flag) = flags.next() {
        let text = if flag == "--color" { flags.next() } else { flag.strip_prefix("--color=") };
        asked = text.map(str::to_owned).or(asked);
    }
    let variable = || (context.environment)(&values::variable("color")).and_then(|text| text.into_string().ok());
    asked.or_else(variable).and_then(|text| values::color(&text).ok()).unwrap_or_default()
}

/// Whether events were asked for, by a command line that perhaps does not parse.
fn asks_for_json(context: Context) -> bool {
    let flags = context.line.iter().skip(1).take_while(|word| *word != "--");
    let variable = || (context.environment)(&values::variable("json")).and_then(|text| text.into_string().ok());
    flags.into_iter().any(|word| word == "--json") || variable().is_some_and(|text| values::switch(&text) == Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_line(line: &[&str]) -> Exit {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        run(Context { line: &line, environment: &|_| None })
    }

    #[test]
    fn what_is_written_wrongly_exits_with_2() {
        for line in [
            &["longhaul", "frobnicate"][..],
            &["longhaul", "copy"],
            &["longhaul", "copy", "a"],
            &["longhaul", "copy", "--no-such-option", "a", "b"],
            &["longhaul", "copy", "-a", "a", "b"],
            &["longhaul", "push", "a", "host::b"],
            &["longhaul", "serve", "--root", "x"],
            &["longhaul"],
        ] {
            assert_eq!(run_line(line), Exit::Usage, "{line:?}");
        }
    }

    #[test]
    fn help_and_version_are_answers() {
        for line in [&["longhaul", "--help"][..], &["longhaul", "--version"], &["longhaul", "copy", "--help"]] {
            assert_eq!(run_line(line), Exit::Complete, "{line:?}");
        }
    }

    #[test]
    fn the_command_of_a_line_may_have_two_words() {
        for (line, want) in [
            (&["longhaul", "push", "-z"][..], Some("push")),
            (&["longhaul", "bench", "net", "-z"], Some("bench net")),
            (&["longhaul", "key", "-z"], Some("key")),
            (&["longhaul", "-z"], None),
            (&["longhaul"], None),
        ] {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert_eq!(command_of(&line).as_deref(), want);
        }
    }

    #[test]
    fn events_are_asked_for_even_on_a_line_that_does_not_parse() {
        let asks = |line: &[&str], variable: Option<&str>| {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            let environment = |name: &str| variable.filter(|_| name == "LONGHAUL_JSON").map(OsString::from);
            asks_for_json(Context { line: &line, environment: &environment })
        };
        assert!(asks(&["longhaul", "copy", "--nonsense", "--json"], None));
        assert!(asks(&["longhaul", "copy"], Some("1")));
        assert!(!asks(&["longhaul", "copy", "--", "--json"], None));
        assert!(!asks(&["longhaul", "copy"], Some("0")));
    }
}
