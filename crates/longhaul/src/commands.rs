//! The commands: one module each, from parsed arguments to an exit code.
//!
//! In: `cli`'s structs and the [`Context`]. Out: [`Exit`]. Joins settings, keys, the engine and
//! output. Each module knows only its own command.

mod admin;
mod bench;
mod broker;
mod check;
mod deputy;
mod job;
mod key;
mod ls;
mod manifest;
mod manual;
mod mover;
mod pipe;
mod serve;
mod set;
mod sync;
mod transfer;

use std::ffi::OsString;
use std::future::Future;

use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Verb};
use crate::config::{ClientFile, Places};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, ClientLog, JsonLog, LogLines};
use crate::settings::{Layers, Talk};
use crate::values::{Environment, variable};

/// The environment of a command.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The whole command line, the program's name first.
    pub line: &'a [OsString],
    /// The environment variables.
    pub environment: Environment<'a>,
}

/// The form of a daemon's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogForm {
    /// Lines for people.
    Text,
    /// An object a line.
    Json,
}

impl<'a> Context<'a> {
    fn places(&self) -> Places {
        Places::of(self.environment)
    }

    /// The variable of an option that has no layers: the options of the daemon and of keys that
    /// name files. `None` if it is unset or empty.
    fn variable(&self, name: &str) -> Option<OsString> {
        (self.environment)(&variable(name)).filter(|text| !text.is_empty())
    }

    /// The layers below the command line, with the client's config file.
    fn layers(&self) -> Result<Layers<'a>, Error> {
        let path = self.places().client_config();
        Ok(Layers::new(self.environment, ClientFile::load(path.as_deref())?))
    }

    /// Makes all messages from now on follow `talk`, also the log lines of a client.
    fn talk(&self, talk: Talk) {
        output::set_color(talk.color, self.environment);
        let log = tracing_subscriber::fmt().with_env_filter(self.log_filter(client_level(talk)));
        // A subscriber that exists already was set by the program that embeds this library.
        let _ = log.with_ansi(false).event_format(ClientLog).with_writer(ClientLog).try_init();
    }

    fn log_filter(&self, level: &str) -> EnvFilter {
        let variable = (self.environment)("LONGHAUL_LOG").and_then(|text| text.into_string().ok());
        variable.and_then(|text| EnvFilter::try_new(text).ok()).unwrap_or_else(|| EnvFilter::new(level))
    }

    /// Starts log lines on standard error, from the level `level` on or as `LONGHAUL_LOG` says.
    fn log(&self, level: &str, form: LogForm) {
        let filter = self.log_filter(level);
        let lines = || LogLines::new(std::io::stderr());
        // A subscriber that exists already was set by the program that embeds this library.
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines).with_ansi(false);
        let _ = match form {
            LogForm::Text => log.try_init(),
            LogForm::Json => log.event_format(JsonLog).try_init(),
        };
    }
}

/// Runs the process as a part of a daemon, if it was started under the name of one. `None`: it is a
/// command.
pub fn run_part(context: Context) -> Option<Result<Exit, Error>> {
    let name = context.line.first();
    if broker::is_name(name, broker::NAME) {
        return Some(broker::run(context.line, context));
    }
    if broker::is_name(name, mover::NAME) {
        return Some(mover::run(context.line, context));
    }
    broker::is_name(name, deputy::NAME).then(|| deputy::run(context.line, context))
}

/// Runs the command that was asked for.
///
/// # Errors
/// An error that kept the command from beginning. The command reports later errors itself.
pub fn run(cli: Cli, context: Context) -> Result<Exit, Error> {
    match cli.command {
        Verb::Push(args) => transfer::run(transfer::Direction::Push, &args, context),
        Verb::Pull(args) => transfer::run(transfer::Direction::Pull, &args, context),
        Verb::Copy(args) => transfer::run(transfer::Direction::Copy, &args, context),
        Verb::Sync(args) => sync::run(args, context),
        Verb::Ls(args) => ls::run(&args, context),
        Verb::Check(args) => check::run(&args, context),
        Verb::Manifest(verb) => manifest::run(&verb, context),
        Verb::Job(verb) => job::run(&verb, context),
        Verb::Serve(args) => serve::run(&args, context),
        Verb::Admin(verb) => admin::run(&verb, context),
        Verb::Set(verb) => set::run(&verb, context),
        Verb::Key(verb) => key::run(verb, context),
        Verb::Bench(verb) => bench::run(verb, context),
        Verb::Completions(args) => Ok(manual::completions(&args)),
        Verb::Man(args) => manual::man(&args),
    }
}

/// Runs a future to its end on the threads that control work needs; disks and lanes have their own.
fn block_on<F: Future>(future: F) -> Result<F::Output, Error> {
    block_on_many(1, future)
}

/// The same for so many runs at a time.
fn block_on_many<F: Future>(runs: usize, future: F) -> Result<F::Output, Error> {
    let runtime = runtime_for(runs)?;
    let output = runtime.block_on(future);
    // A blocked system call must not keep a finished program alive.
    runtime.shutdown_background();
    Ok(output)
}

/// The threads that control work needs.
fn runtime() -> Result<Runtime, Error> {
    runtime_for(1)
}

fn runtime_for(runs: usize) -> Result<Runtime, Error> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(CONTROL_THREADS * runs.max(1)).thread_stack_size(STACK_BYTES);
    let runtime = builder.enable_all().build();
    runtime.map_err(Error::file("start the runtime of", "this process"))
}

/// The log level of a client. Libraries are shown at the third `-v` only, and changes of lanes
/// never: they are told as events.
fn client_level(talk: Talk) -> &'static str {
    match talk.verbose {
        _ if talk.quiet => "off,longhaul=error",
        0 => "off,longhaul=warn",
        1 => "off,longhaul=info,longhaul::lanes=off",
        2 => "off,longhaul=debug,longhaul::lanes=off",
        _ => "debug,longhaul=trace,longhaul::lanes=off",
    }
}

/// Threads for control work: one reads control messages while the other is busy with a page of a
/// manifest.
const CONTROL_THREADS: usize = 2;
/// Bytes of stack of these threads, of which only those that are used take memory: a build without
/// optimisation uses several times as many as another one.
const STACK_BYTES: usize = 4 << 20;
