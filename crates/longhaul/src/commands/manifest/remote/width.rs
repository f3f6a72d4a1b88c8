//! How many directories of a daemon are listed at a time.
//!
//! In: the answers that it is busy, and the time. Out: the number, which becomes smaller with each
//! such answer and larger again later. Must not know listings.

use std::time::{Duration, Instant};

/// The number of directories that are listed at a time.
pub(super) struct ListingWidth {
    dirs: usize,
    /// The time of the last change, or of the last answer that the daemon is busy.
    since: Instant,
}

impl ListingWidth {
    /// As wide as it ever is.
    pub(super) fn new(now: Instant) -> ListingWidth {
        ListingWidth { dirs: DIRS_AT_A_TIME_MAX, since: now }
    }

    /// Whether there is room for one more beside those that are under way.
    pub(super) fn has_room(&mut self, under_way: usize, now: Instant) -> bool {
        if self.dirs < DIRS_AT_A_TIME_MAX && now.saturating_duration_since(self.since) >= WIDER_AFTER {
            self.dirs += 1;
            self.since = now;
        }
        under_way < self.dirs
    }

    /// Hears that the daemon is busy while so many `others` are under way: there is room for these,
    /// for at least one, and for fewer than before.
    pub(super) fn narrow(&mut self, others: usize, now: Instant) {
        self.dirs = others.min(self.dirs - 1).max(1);
        self.since = now;
    }
}

/// Three at a time: a daemon has four listings for each key, and one is left for 'ls' and for other
/// scans of this user.
const DIRS_AT_A_TIME_MAX: usize = 3;
/// The time without an answer that the daemon is busy, behind which one more is listed at a time.
pub(super) const WIDER_AFTER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_daemon_is_asked_for_less_and_later_for_more_again() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut width = ListingWidth::new(start);
        assert!(width.has_room(2, start) && !width.has_room(3, at(1000)), "it is never wider than at first");
        // Of three at a time two are refused, one behind the other.
        width.narrow(2, at(1000));
        assert!(!width.has_room(2, at(1000)) && width.has_room(1, at(1000)));
        width.narrow(1, at(1010));
        assert!(!width.has_room(1, at(1010)) && width.has_room(0, at(1010)));
        // So is the last one, which stays.
        width.narrow(0, at(1020));
        assert!(!width.has_room(1, at(1049)) && width.has_room(0, at(1049)));
        assert!(width.has_room(1, at(1050)) && !width.has_room(2, at(1079)), "one more, and no two");
        assert!(width.has_room(2, at(1080)));
        // The only one that is under way is refused: a second one would be, too.
        width.narrow(0, at(1090));
        assert!(!width.has_room(1, at(1090)));
    }
}
