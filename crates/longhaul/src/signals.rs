//! Ctrl-C and SIGTERM: the first asks the run to stop, the second ends the process.
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

/// Calls `stop` at the first signal, with [`FaultCode::Interrupted`] or [`FaultCode::Terminated`]; ends the process with that
/// code's exit at the second. Needs to be called within the runtime.
///
/// # Errors
/// What the system says to a signal handler.
pub fn watch(asking: Asking, stop: impl FnOnce(FaultCode) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())? };
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
}

impl Signals {
    async fn next(&mut self) -> FaultCode {
        tokio::select! {
            _ = self.int.recv() => FaultCode::Interrupted,
            _ = self.term.recv() => FaultCode::Terminated,
        }
    }
}
