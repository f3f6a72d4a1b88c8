//! Finds a session loop that does not come to the end of a round.
//!
//! In: the beginning and the end of each round. Out: the time for which the longest one has lasted.
//! A round waits for nothing, so one that lasts for long hangs, and its session with it. It knows
//! no session.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The loops of all sessions of a daemon. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionRounds(Arc<Mutex<Vec<Weak<Round>>>>);

/// The round of one loop. The loop is forgotten when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct RoundMark(Arc<Round>);

/// When the round began. `None` between two rounds.
#[derive(Debug, Default)]
struct Round(Mutex<Option<Instant>>);

impl SessionRounds {
    /// Watches another loop.
    pub(crate) fn enter(&self) -> RoundMark {
        let mark = RoundMark::default();
        let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.retain(|round| round.strong_count() > 0);
        rounds.push(Arc::downgrade(&mark.0));
        mark
    }

    /// How long the longest round has lasted. Zero if all loops wait.
    pub(crate) fn longest(&self) -> Duration {
        let rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = rounds.iter().filter_map(Weak::upgrade).filter_map(|round| *round.lock()).min();
        begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }
}

impl RoundMark {
    /// The loop has something to do.
    pub(crate) fn begin(&self) {
        self.0.lock().get_or_insert_with(Instant::now);
    }

    /// The loop waits again.
    pub(crate) fn end(&self) {
        self.0.lock().take();
    }
}

impl Round {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_from_its_beginning_to_its_end_and_no_longer_than_its_session() {
        let rounds = SessionRounds::default();
        let (one, other) = (rounds.enter(), rounds.enter());
        assert_eq!(rounds.longest(), Duration::ZERO, "both wait");
        let ago = Duration::from_secs(100);
        *one.0.lock() = Some(Instant::now() - ago);
        one.begin();
        other.begin();
        assert!(rounds.longest() >= ago, "more events do not make a round younger");
        one.end();
        assert!(rounds.longest() < ago);
        *one.0.lock() = Some(Instant::now() - ago);
        drop(one);
        assert!(rounds.longest() < ago);
    }
}
