//! Counts the units of payload that arrive in a run, and the time that they take.
//!
//! In: requests and arrivals. Out: a number of units from the first request to the last of them.
//! It knows no bytes.

use std::time::{Duration, Instant};

/// Units of payload that move. See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct MovingUnits {
    moving: Option<Moving>,
    /// Units count within this time after the first request. `None`: all count.
    window: Option<Duration>,
}

/// The payload's time and number of units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    /// When payload was first asked for.
    first: Instant,
    /// When the last counted unit was known to be there.
    last: Instant,
    /// The number of counted units.
    pub(crate) units: u64,
}

impl Moving {
    /// When payload was first asked for.
    pub(crate) fn begun(&self) -> Instant {
        self.first
    }

    /// The time from the first request to the last unit.
    pub(crate) fn time(&self) -> Duration {
        self.last - self.first
    }
}

impl MovingUnits {
    /// Counts units only within `window` after the first request. `None`: all count.
    pub(crate) fn count_within(&mut self, window: Option<Duration>) {
        self.window = window;
    }

    /// Records that payload is asked for, for the first time or again.
    pub(crate) fn begin(&mut self) {
        let now = Instant::now();
        self.moving.get_or_insert(Moving { first: now, last: now, units: 0 });
    }

    /// Counts units that arrived.
    pub(crate) fn arrived(&mut self, units: usize) {
        self.arrived_at(Instant::now(), units);
    }

    fn arrived_at(&mut self, now: Instant, units: usize) {
        let within = |moving: &&mut Moving| self.window.is_none_or(|window| now - moving.first <= window);
        if let Some(moving) = self.moving.as_mut().filter(within) {
            moving.last = now;
            moving.units += units as u64;
        }
    }

    /// The payload's time and units. `None` if none was asked for.
    pub(crate) fn get(&self) -> Option<Moving> {
        self.moving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_the_time_does_not_count() {
        let second = Duration::from_secs(1);
        let counted = |window| {
            let mut units = MovingUnits::default();
            units.count_within(window);
            units.arrived(1);
            units.begin();
            let first = units.get().expect("begun").first;
            [(1, 2), (3, 4), (5, 8)]
                .into_iter()
                .for_each(|(after, more)| units.arrived_at(first + after * second, more));
            units.get().map(|moving| (moving.units, moving.time()))
        };
        assert_eq!(counted(None), Some((14, 5 * second)));
        assert_eq!(counted(Some(4 * second)), Some((6, 3 * second)));
        assert_eq!(counted(Some(second / 2)), Some((0, Duration::ZERO)));
    }
}
