//! Owns the question whether sessions may begin.
//!
//! In: the wish to drain the daemon, or to end that. Out: a refusal for each session that would
//! begin meanwhile. It knows no sessions: what ends those that run is in `handle`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, hint};

/// Whether the daemon drains. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Drain(Arc<Mutex<Draining>>);

#[derive(Default)]
struct Draining {
    /// Whether no session may begin.
    is_on: bool,
    /// When those that run are ended. `None`: they run to their end.
    deadline: Option<Instant>,
    /// The number of this wish: a deadline of an earlier one has no effect.
    wish: u64,
}

/// A wish to drain, by which its deadline knows whether it still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DrainWish(u64);

impl Drain {
    /// Lets no session begin from now on.
    pub(super) fn start(&self, deadline: Option<Duration>) -> DrainWish {
        self.change(Draining { is_on: true, deadline: deadline.map(|time| Instant::now() + time), wish: 0 })
    }

    /// Lets sessions begin again.
    pub(super) fn cancel(&self) {
        self.change(Draining::default());
    }

    fn change(&self, to: Draining) -> DrainWish {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Draining { wish: now.wish + 1, ..to };
        DrainWish(now.wish)
    }

    /// Whether no session may begin by this wish.
    pub(super) fn holds(&self, wish: DrainWish) -> bool {
        let now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.is_on && now.wish == wish.0
    }

    /// Refuses a session while the daemon drains.
    ///
    /// # Errors
    /// [`FaultCode::Busy`]: another daemon, or this one later, may do it.
    pub(super) fn admit(&self) -> Result<(), Fault> {
        if !self.is_on() {
            return Ok(());
        }
        let why = "the daemon is being drained by its administrator and takes no new sessions";
        Err(Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Again::Later))
    }

    /// Whether no session may begin.
    pub(super) fn is_on(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_on
    }

    /// The time until the sessions that run are ended. `None` if they are not.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.deadline.filter(|_| now.is_on).map(|at| at.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_counts_only_for_the_latest_wish() {
        let drain = Drain::default();
        assert!(drain.admit().is_ok() && drain.deadline().is_none());
        let first = drain.start(Some(Duration::from_secs(60)));
        assert_eq!(drain.admit().map_err(|fault| fault.code), Err(FaultCode::Busy));
        assert!(drain.holds(first) && drain.deadline().is_some());
        let second = drain.start(None);
        assert!(!drain.holds(first) && drain.holds(second) && drain.deadline().is_none());
        drain.cancel();
        assert!(drain.admit().is_ok() && !drain.holds(second));
    }
}
