//! The program: a command line becomes a network, a command on each host, an exit code and a file
//! of counters. Takes words, gives the command's exit code. Must not know how links work.

mod args;

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::Parser;
use longhaul_wan::{Error, LinkCounters, Wan};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use crate::args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("longhaul-wan: {error}");
            ExitCode::from(CANNOT)
        }
    }
}

fn run(args: &Args) -> Result<u8, Error> {
    let config = args.config()?;
    if !rustix::process::geteuid().is_root() {
        longhaul_wan::become_able()?;
    }
    let wan = Wan::new(&config)?;
    let far = args.far.as_deref().map(|line| far(&wan, line)).transpose()?;
    let ended = near(&wan, &args.command);
    if let Some(far) = far {
        end(far);
    }
    if let Some(file) = &args.counters {
        write_counters(&wan, config.seed, file)?;
    }
    ended.map(code)
}

/// Starts the line for the far host, in a group of processes of its own, to be ended as one.
fn far(wan: &Wan, line: &str) -> Result<Child, Error> {
    let mut shell = Command::new("sh");
    wan.far().adopt_on_leash(shell.args(["-c", line]).envs(wan.environment()).process_group(0));
    shell.spawn().map_err(|source| Error::System { doing: "start", name: line.to_owned(), source })
}

/// Runs the command on the near host.
fn near(wan: &Wan, words: &[String]) -> Result<ExitStatus, Error> {
    let [program, args @ ..] = words else { return Ok(ExitStatus::default()) };
    let mut command = Command::new(program);
    wan.near().adopt_on_leash(command.args(args).envs(wan.environment()));
    command.status().map_err(|source| Error::System { doing: "run", name: program.clone(), source })
}

/// Asks the far processes to end, and ends them if they do not.
fn end(mut far: Child) {
    let Some(group) = Pid::from_raw(far.id().cast_signed()) else { return };
    let asked = Instant::now();
    // A group that is gone needs nothing more.
    let _ = kill_process_group(group, Signal::TERM);
    while asked.elapsed() < PATIENCE && !matches!(far.try_wait(), Ok(Some(_)) | Err(_)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = far.wait();
}

/// The content of the counters file.
#[derive(Serialize)]
struct Said {
    v: u32,
    seed: u64,
    seconds: f64,
    links: Vec<LinkCounters>,
}

fn write_counters(wan: &Wan, seed: u64, file: &Path) -> Result<(), Error> {
    let said = Said { v: 1, seed, seconds: wan.age().as_secs_f64(), links: wan.counters()? };
    let wrong = |source| Error::System { doing: "write", name: file.display().to_string(), source };
    let said = serde_json::to_string(&said).map_err(|error| wrong(error.into()))?;
    if file == Path::new("-") {
        return writeln!(std::io::stderr(), "{said}").map_err(wrong);
    }
    #[expect(clippy::disallowed_methods, reason = "a file that the user named for this")]
    std::fs::write(file, format!("{said}\n")).map_err(wrong)
}

/// The command's own exit code; if a signal ended it, the code that a shell gives.
fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(CANNOT)
}

/// The exit code if there is no network, or no command: the same as for a wrong command line.
const CANNOT: u8 = 2;
/// The time that the far processes have to end.
const PATIENCE: Duration = Duration::from_secs(2);
