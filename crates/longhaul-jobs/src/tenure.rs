//! A mover's view of its lease: when it must say that it lives, and when it must stop.
//!
//! In: times of the mover's own monotonic clock, which no one sets. Out: what is due. Must not know
//! the store's clock: two clocks that run apart by an hour agree about 60 s well enough.

use std::time::Duration;

/// A lease lasts so long after its last heartbeat: four beats, so that three may be late.
pub const LEASE: Duration = Duration::from_secs(60);
/// A mover says so often that it lives.
pub const BEAT_EVERY: Duration = Duration::from_secs(15);
/// A mover stops so long before its lease ends, in which it ends its session in order.
const STOP_AHEAD: Duration = Duration::from_secs(10);

/// A lease, as its mover sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    asked: Duration,
}

impl Tenure {
    /// The lease of a claim or heartbeat that was asked for at `asked`: the store can only have
    /// begun it later.
    pub fn new(asked: Duration) -> Tenure {
        Tenure { asked }
    }

    /// When the next heartbeat is due.
    pub fn next_beat(self) -> Duration {
        self.asked.saturating_add(BEAT_EVERY)
    }

    /// When the mover stops, unless a heartbeat was answered before.
    pub fn stop_at(self) -> Duration {
        self.asked.saturating_add(LEASE - STOP_AHEAD)
    }

    /// Whether the mover may still work at a time.
    pub fn holds(self, now: Duration) -> bool {
        now < self.stop_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mover_stops_before_its_lease_ends_and_beats_three_times_before() {
        let tenure = Tenure::new(Duration::from_secs(100));
        assert_eq!(tenure.next_beat().as_secs(), 115);
        assert!(tenure.holds(Duration::from_millis(149_999)));
        assert!(!tenure.holds(Duration::from_secs(150)));
    }
}
