//! The arithmetic of a rolling verification: how much there is to be read in a cycle, and whether a
//! budget suffices for it.
//!
//! In: bytes, a cycle and a budget. Out: rates and times, rounded to the side that promises less.
//! Must not know rows.

use std::time::Duration;

/// The pace of a rolling verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The rate at which all is read once in the cycle, bytes/s.
    pub needed: u64,
    /// The time that one reading of all takes at the budget. `None`: there is no budget.
    pub takes: Option<Duration>,
    /// Whether that is within the cycle.
    pub suffices: bool,
}

/// The pace at which so many bytes are read once in a cycle, and what a budget in bytes/s makes of
/// it. `None` as budget: as fast as it goes, which suffices as far as anybody can say.
pub fn pace(bytes: u64, cycle: Duration, budget: Option<u64>) -> Pace {
    let micros = cycle.as_micros().max(1);
    let needed = (u128::from(bytes) * SECOND).div_ceil(micros);
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    let takes = budget.map(|budget| time_of(bytes, budget));
    Pace { needed, takes, suffices: takes.is_none_or(|takes| takes <= cycle) }
}

/// The time that so many bytes take at a rate, rounded up.
pub fn time_of(bytes: u64, rate: u64) -> Duration {
    let micros = (u128::from(bytes) * SECOND).div_ceil(u128::from(rate.max(1)));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Microseconds.
const SECOND: u128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn a_budget_suffices_to_the_byte() {
        let cycle = Duration::from_secs(90 * DAY);
        for (bytes, suffices) in [(0, true), (200 * 90 * DAY, true), (200 * 90 * DAY + 1, false), (u64::MAX, false)] {
            assert_eq!(pace(bytes, cycle, Some(200)).suffices, suffices, "{bytes}");
        }
        assert!(pace(u64::MAX, cycle, None).suffices);
    }

    #[test]
    fn the_rate_that_is_needed_is_one_that_suffices() {
        for bytes in [0, 1, 7_300_000_000_000_000, u64::MAX / 3] {
            for days in [1, 30, 90, 365] {
                let cycle = Duration::from_secs(days * DAY);
                let needed = pace(bytes, cycle, None).needed;
                assert!(pace(bytes, cycle, Some(needed)).suffices, "{bytes} in {days} d");
                assert!(needed < 2 || !pace(bytes, cycle, Some(needed - 1)).suffices, "{bytes} in {days} d");
            }
        }
    }

    #[test]
    fn no_cycle_and_no_rate_are_no_panic() {
        assert_eq!(pace(5, Duration::ZERO, Some(0)).takes, Some(Duration::from_secs(5)));
        assert_eq!(pace(u64::MAX, Duration::ZERO, Some(0)).needed, u64::MAX);
    }
}
