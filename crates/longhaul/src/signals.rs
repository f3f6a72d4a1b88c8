//! Ctrl-C, SIGTERM and SIGHUP: the first asks the run to stop, the second ends the process.
//!
//! In: signals. Out: one call of the function that `commands` gave, then the process's end. Knows
//! no runs.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::exit::Exit;
use longhaul_core::FaultCode;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::output;

/// Whether nothing runs that could stop in order, as the user is being asked a question or the run
/// is over: then the first signal ends the process.
#[derive(Clone, Debug, Default)]
pub struct Asking(Arc<AtomicBool>);

/// The time of one question. It ends when this is dropped.
pub struct Question<'a>(&'a Asking);

impl Asking {
    /// Notes that a question begins.
    pub fn start(&self) -> Question<'_> {
        self.0.store(true, Ordering::Relaxed);
        Question(self)
    }

    /// Notes that the run is over: nothing is left that could stop in order.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// The meaning of SIGHUP. If it was ignored when the process began (`nohup`), it stays ignored.
pub enum Hangup {
    /// The terminal is gone: it acts as SIGTERM, with its exit code. A command without a terminal
    /// is waited for by a script or a supervisor, to which 143 says already that the run can be
    /// continued.
    Stops,
    /// It asks a daemon to read its configuration again: this is notified, and everything goes on.
    /// Several signals that come while nobody waits are one notice.
    Asks(Arc<Notify>),
}

/// Calls `stop` at the first signal, with [`FaultCode::Interrupted`] or [`FaultCode::Terminated`];
/// ends the process with that code's exit at the second. Both hold until the process ends, whatever
/// runtimes come and go: a signal that was listened to once has lost its default meaning for good.
///
/// # Errors
/// The system's error for a signal handler or for the thread that waits for it.
pub fn watch(asking: Asking, hangup: Hangup, stop: impl FnOnce(FaultCode) + Send + 'static) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _within = runtime.enter();
        // A signal that is ignored stays ignored only if it is never listened to.
        let hup = if longhaul_engine::ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        Signals { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())?, hup, hangup }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let first = signals.next().await;
            if !asking.0.load(Ordering::Relaxed) {
                stop(first);
                let second = signals.next().await;
                leave(second);
            }
            leave(first);
        });
    })?;
    Ok(())
}

/// Ends the process at once, after removing the bar, which would stay on the terminal. A stopped
/// terminal does not delay it for long.
fn leave(code: FaultCode) -> ! {
    output::leave_screen(SCREEN_MAX);
    process::exit(Exit::from(code).code().into())
}

/// The longest wait for the terminal: one takes a line in no time. One that has not is stopped
/// (`Ctrl-S`), or is behind a slow link.
const SCREEN_MAX: Duration = Duration::from_millis(200);

struct Signals {
    int: Signal,
    term: Signal,
    /// The SIGHUP listener. `None` if it stays ignored.
    hup: Option<Signal>,
    hangup: Hangup,
}

impl Signals {
    async fn next(&mut self) -> FaultCode {
        loop {
            tokio::select! {
                _ = self.int.recv() => return FaultCode::Interrupted,
                _ = self.term.recv() => return FaultCode::Terminated,
                () = received(self.hup.as_mut()) => match &self.hangup {
                    Hangup::Stops => return FaultCode::Terminated,
                    Hangup::Asks(asked) => asked.notify_one(),
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
