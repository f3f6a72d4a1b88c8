//! Ctrl-C, SIGTERM and SIGHUP: the first asks the run to stop, the second ends the process.
//!
//! In: signals. Out: one call of the function that `commands` gave, then the process's end. Knows
//! no runs.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::exit::Exit;
use longhaul_core::FaultCode;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::output;

/// Whether nothing runs that could stop in order, as every run is asking the user a question or all
/// are over: then the first signal ends the process.
#[derive(Clone, Debug, Default)]
pub struct Asking(Arc<AskingState>);

#[derive(Debug, Default)]
struct AskingState {
    is_over: AtomicBool,
    /// Questions that are shown or wait for their turn.
    questions: AtomicUsize,
    /// Runs that go on, beyond the first.
    further_runs: AtomicUsize,
    /// Held by the question that is shown.
    turn: Mutex<()>,
}

/// The time of one question. It ends when this is dropped.
pub struct Question<'a> {
    asking: &'a Asking,
    _turn: MutexGuard<'a, ()>,
}

impl Asking {
    /// Waits until no other question is shown, and notes that one begins: an answer must not go to
    /// another question than the user sees.
    pub fn start(&self) -> Question<'_> {
        self.0.questions.fetch_add(1, Ordering::Relaxed);
        Question { asking: self, _turn: self.0.turn.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Notes that so many runs go on. Default: 1.
    pub fn runs(&self, count: usize) {
        self.0.further_runs.store(count.saturating_sub(1), Ordering::Relaxed);
    }

    /// Notes that the run is over: nothing is left that could stop in order.
    pub fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether the next signal ends the process.
    fn is_idle(&self) -> bool {
        let AskingState { is_over, questions, further_runs, .. } = &*self.0;
        is_over.load(Ordering::Relaxed) || questions.load(Ordering::Relaxed) > further_runs.load(Ordering::Relaxed)
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.asking.0.questions.fetch_sub(1, Ordering::Relaxed);
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
            if !asking.is_idle() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_ends_the_process_only_where_nothing_could_stop_in_order() {
        let asking = Asking::default();
        assert!(!asking.is_idle());
        let question = asking.start();
        assert!(asking.is_idle());
        drop(question);
        assert!(!asking.is_idle());
        // One of two asks, and the other one moves data.
        asking.runs(2);
        let question = asking.start();
        assert!(!asking.is_idle());
        asking.runs(1);
        assert!(asking.is_idle());
        // The end stays, whatever question ends after it.
        asking.end();
        drop(question);
        assert!(asking.is_idle());
    }

    #[test]
    fn one_question_is_shown_at_a_time() {
        let asking = Asking::default();
        let shown = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _question = asking.start();
                        assert_eq!(shown.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        shown.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
