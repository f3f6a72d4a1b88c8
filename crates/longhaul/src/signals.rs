//! Ctrl-C, SIGTERM and SIGHUP: the first asks the run to stop, the second ends the process.
//!
//! In: signals. Out: one call of what `commands` want done, then the process's end. Knows no runs.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::FaultCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whether the user is being asked something: then nothing runs that could stop in order, and the first signal ends all.
#[derive(Clone, Debug, Default)]
pub struct Asking(Arc<AtomicBool>);

/// The time of one question; ends when dropped.
pub struct Question<'a>(&'a Asking);

impl Asking {
    /// A question begins.
    pub fn start(&self) -> Question<'_> {
        self.0.store(true, Ordering::Relaxed);
        Question(self)
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// The meaning of SIGHUP. Where it was ignored when the process began (`nohup`), it stays ignored.
pub enum Hangup {
    /// The terminal is gone: as SIGTERM, with its exit code. Whoever waits for a command without a terminal is a script or a
    /// supervisor, to which 143 says already that the run can be continued.
    Stops,
    /// It asks a daemon to read its configuration again: this is called, and everything goes on.
    Asks(fn()),
}

/// Calls `stop` at the first signal, with [`FaultCode::Interrupted`] or [`FaultCode::Terminated`]; ends the process with that
/// code's exit at the second. Needs to be called within the runtime.
///
/// # Errors
/// What the system says to a signal handler.
pub fn watch(asking: Asking, hangup: Hangup, stop: impl FnOnce(FaultCode) + Send + 'static) -> io::Result<()> {
    // One that is ignored stays so only if it is never listened to.
    let hup = if longhaul_engine::ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    let mut signals =
        Signals { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())?, hup, hangup };
    tokio::spawn(async move {
        let first = signals.next().await;
        if asking.0.load(Ordering::Relaxed) {
            process::exit(first.exit().into());
        }
        stop(first);
        process::exit(signals.next().await.exit().into());
    });
    Ok(())
}

struct Signals {
    int: Signal,
    term: Signal,
    /// `None` where it stays ignored.
    hup: Option<Signal>,
    hangup: Hangup,
}

impl Signals {
    async fn next(&mut self) -> FaultCode {
        loop {
            tokio::select! {
                _ = self.int.recv() => return FaultCode::Interrupted,
                _ = self.term.recv() => return FaultCode::Terminated,
                () = received(self.hup.as_mut()) => match self.hangup {
                    Hangup::Stops => return FaultCode::Terminated,
                    Hangup::Asks(asked) => asked(),
                },
            }
        }
    }
}

async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
