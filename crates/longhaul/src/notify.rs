//! The talk between a daemon and the service manager that started it, which is systemd's protocol:
//! readiness, reloads, the stop, signs of life; and the sockets that the manager listens at.
//!
//! In: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `LISTEN_FDS` of the process's own environment, and
//! whether the daemon lives. Out: datagrams to the manager, and descriptors. Without a manager all
//! of it does nothing. It must not know what the daemon does.

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::time::Duration;

use longhaul_engine::Liveness;
use sd_notify::NotifyState;

use crate::error::Error;
use crate::output;

/// Tells that the daemon accepts connections.
pub fn ready(status: impl Display) {
    tell(&[NotifyState::Ready, NotifyState::Status(&line(status))]);
}

/// Tells that the daemon begins to read its configuration again. Call [`ready`] when it has, also
/// if it goes on with the old one: the manager waits for that.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(target: "longhaul::serve", %error, "the clock cannot be read"),
    }
}

/// Tells in a line what the daemon is doing.
pub fn status(text: impl Display) {
    tell(&[NotifyState::Status(&line(text))]);
}

/// Tells that the daemon ends its sessions and then itself.
pub fn stopping(status: impl Display) {
    tell(&[NotifyState::Stopping, NotifyState::Status(&line(status))]);
}

/// The sockets that the manager listens at for this daemon. Call it before anything is opened for
/// good.
///
/// # Errors
/// [`Error::File`] if the manager passed anything else, or its variables cannot be read.
pub fn sockets() -> Result<Vec<OwnedFd>, Error> {
    let taken = sd_notify::listen_fds().and_then(longhaul_engine::take_sockets);
    taken.map_err(Error::file("take over the sockets of", "LISTEN_FDS"))
}

/// Gives the manager a sign of life each time that the whole daemon shows one, if the manager wants
/// them (`WatchdogSec=`). If a part does not answer, the log names it and the manager hears
/// nothing, so that it ends the daemon and starts it again.
pub async fn feed_watchdog(liveness: Liveness) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else { return };
    let third = limit / SIGNS_IN_LIMIT;
    loop {
        match liveness.check(third).await {
            // A manager that does not read must hold no thread that the sessions need.
            Ok(()) => drop(tokio::task::spawn_blocking(|| tell(&[NotifyState::Watchdog])).await),
            Err(stuck) => tracing::error!(
                target: "longhaul::serve",
                "{stuck} does not answer: the service manager gets no sign of life, and starts this daemon again after {} s \
                 without one", limit.as_secs_f64()
            ),
        }
        tokio::time::sleep(third.max(SIGNS_EVERY_MIN)).await;
    }
}

fn tell(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(target: "longhaul::serve", %error, "the service manager cannot be told");
    }
}

/// A text that the manager takes as one line.
fn line(text: impl Display) -> String {
    output::clean(&text.to_string()).to_string()
}

/// Signs of life within the time that the manager waits for one: the wait for an answer and the
/// pause behind it take a third each.
const SIGNS_IN_LIMIT: u32 = 3;
/// The least time between two signs of life.
const SIGNS_EVERY_MIN: Duration = Duration::from_millis(50);
