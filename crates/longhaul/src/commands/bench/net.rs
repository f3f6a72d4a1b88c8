//! `bench net`: memory to memory, through the lanes of a transfer with a daemon.
//!
//! In: parsed arguments. Out: a line for each run on standard output. The first run that fails ends
//! the command.

use std::ffi::OsStr;

use longhaul_engine::{NetRun, Remote, Stop, bench_net};

use crate::cli::BenchNetArgs;
use crate::commands::{self, Context};
use crate::error::Error;
use crate::exit::Exit;
use crate::keys;
use crate::location::{DaemonPath, Location};
use crate::output::{self, NetTelling, Talker};
use crate::settings::{self, NetBench, Talk};
use crate::signals::{self, Asking, Hangup};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &BenchNetArgs, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.talk, &layers)?;
    context.talk(talk);
    let measured = daemon(&args.daemon)
        .and_then(|daemon| settings::net_bench(args, &layers).map(|bench| (daemon, bench)))
        .and_then(|(daemon, bench)| measure(&daemon, bench, talk, context));
    Ok(measured.unwrap_or_else(|error| output::refuse(talk.json, error)))
}

/// Reads a location that must be a daemon alone: no root is touched.
fn daemon(text: &OsStr) -> Result<DaemonPath, Error> {
    match Location::parse(text)? {
        Location::Daemon(daemon) if daemon.path.is_none() => Ok(daemon),
        _ => {
            let why = "bench net measures the way to a daemon, which has no root and no path";
            Err(Error::Combination { why, hint: "write lh://HOST[:PORT]" })
        }
    }
}

fn measure(daemon: &DaemonPath, bench: NetBench, talk: Talk, context: Context) -> Result<Exit, Error> {
    let (talker, asking) = (Talker::new(talk), Asking::default());
    let remote = keys::remote(daemon, &bench.keys, &context.places(), talker, &asking)?;
    let (trigger, stop) = Stop::new();
    let telling = NetTelling::new(talk, bench.cases.len());
    signals::watch(asking, Hangup::Stops, move |code| trigger.stop(code))
        .map_err(Error::file("watch the signals of", "this process"))?;
    commands::block_on(sweep(remote, bench, telling, stop))
}

/// Makes one run after the other.
async fn sweep(remote: Remote, bench: NetBench, mut telling: NetTelling, stop: Stop) -> Exit {
    for case in &bench.cases {
        let bytes = bench.bytes.map_or(AS_MUCH_AS_ALLOWED, |bytes| bytes.get());
        let run = NetRun { remote: remote.clone(), way: case.way, bytes, time: bench.time };
        telling.begin(case);
        let report = bench_net(run, case.settings(&bench.engine), stop.clone()).await;
        match report.fault.clone() {
            None => {
                if let Err(error) = telling.tell(case, &report, bench.time) {
                    return output::stdout_failed(error);
                }
            }
            Some(fault) => return telling.end(Some(fault)),
        }
    }
    telling.end(None)
}

/// The bytes of a run without a limit of this side: the daemon's limit counts.
const AS_MUCH_AS_ALLOWED: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_daemon_can_be_measured() {
        assert_eq!(daemon("lh://h:9".as_ref()).unwrap().port, 9);
        assert!(daemon("lh://h/".as_ref()).is_ok());
        for other in ["lh://h/root", "/tmp", "h", "h:x", ""] {
            assert_eq!(
                longhaul_core::Fault::from(daemon(other.as_ref()).unwrap_err()).code,
                longhaul_core::FaultCode::Usage,
                "{other}"
            );
        }
    }
}
