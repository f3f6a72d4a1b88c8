//! Time as the machines know it: microseconds since an arbitrary start, always an argument.

use std::time::Duration;

/// Microseconds since the session's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This time and `wait` more.
    pub fn after(self, wait: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this time; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}
