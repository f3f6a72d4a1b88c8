//! The times of a path: its round trip, and how long a packet may be overtaken before it counts as
//! missing.
//!
//! In: measured round trips, counts of pieces that came twice. Out: durations. Knows no packet.

use std::time::Duration;

use super::SendCounts;
use crate::time::Timestamp;
use crate::udp::receiving::report_interval;

/// A packet is overtaken by this at least, however short the round trip: within it, queues of a
/// network card and threads that take from them change the order. Guessed.
const OVERTAKING_LEAST: Duration = Duration::from_millis(2);
/// Most doublings of the time by which a packet is overtaken: from an eighth to half a round trip.
const DOUBLED_MOST: u32 = 2;
/// Round trips after which a doubled time goes back, as in RFC 8985 (RACK).
const DOUBLED_ROUNDS: u32 = 16;
/// Shortest round trip by which rounds are counted.
const ROUND_SHORTEST: Duration = Duration::from_millis(10);

/// The round trip of a path, and what follows from it.
#[derive(Debug)]
pub(super) struct PathTimes {
    smoothed: Duration,
    variation: Duration,
    doubled: u32,
    doubled_at: Timestamp,
    /// Totals at the last status.
    twice: u32,
    copies: u64,
    /// Copies that were sent on purpose and may come twice.
    expected: u64,
    /// Pieces that had been sent again when the time was doubled last.
    resent: u64,
}

impl PathTimes {
    /// The times of a path with this round trip.
    pub(super) fn new(round_trip: Duration) -> PathTimes {
        PathTimes {
            smoothed: round_trip,
            variation: round_trip / 2,
            doubled: 0,
            doubled_at: Timestamp(0),
            twice: 0,
            copies: 0,
            expected: 0,
            resent: 0,
        }
    }

    /// The round trip, smoothed as in RFC 6298.
    pub(super) fn round_trip(&self) -> Duration {
        self.smoothed
    }

    /// Takes a measured round trip.
    pub(super) fn took(&mut self, round_trip: Duration) {
        let apart = self.smoothed.abs_diff(round_trip);
        self.variation = (self.variation * 3 + apart) / 4;
        self.smoothed = (self.smoothed * 7 + round_trip) / 8;
    }

    /// The longest time to an answer: four variations and what the receiver waits before it reports
    /// beyond a round trip (RFC 9002, section 6.2.1).
    pub(super) fn answer(&self) -> Duration {
        let report = report_interval(self.smoothed) + OVERTAKING_LEAST;
        self.smoothed + self.variation * 4 + report
    }

    /// By how much a packet must be overtaken to be missing.
    pub(super) fn overtaking(&self) -> Duration {
        OVERTAKING_LEAST.max(self.smoothed / 8) * (1 << self.doubled)
    }

    /// This many pieces came twice since the start. If that is more than the copies that were sent
    /// on purpose, repairs were sent too early.
    pub(super) fn came_twice(&mut self, now: Timestamp, twice: u32, counts: &SendCounts) {
        let fresh = u64::from(twice.wrapping_sub(self.twice));
        self.expected += counts.copies - self.copies;
        (self.twice, self.copies) = (twice, counts.copies);
        let early = fresh > self.expected && counts.resent - counts.copies > self.resent;
        self.expected -= fresh.min(self.expected);
        let round = self.smoothed.max(ROUND_SHORTEST);
        if early && (self.doubled == 0 || now.since(self.doubled_at) >= round) {
            self.doubled = (self.doubled + 1).min(DOUBLED_MOST);
            self.doubled_at = now;
            self.resent = counts.resent - counts.copies;
        } else if now.since(self.doubled_at) > round * DOUBLED_ROUNDS {
            self.doubled = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp(millis * 1000)
    }

    #[test]
    fn a_packet_is_overtaken_by_an_eighth_of_a_round_trip_and_by_two_milliseconds_at_least() {
        assert_eq!(PathTimes::new(ms(100)).overtaking(), Duration::from_micros(12_500));
        assert_eq!(PathTimes::new(ms(1)).overtaking(), ms(2));
    }

    #[test]
    fn repairs_that_came_twice_double_the_time_to_half_a_round_trip_for_sixteen_of_them() {
        let mut times = PathTimes::new(ms(80));
        let counts = |resent, copies| SendCounts { resent, copies, ..SendCounts::default() };
        times.came_twice(at(1000), 5, &counts(0, 0));
        assert_eq!(times.overtaking(), ms(10), "the path makes copies, and nothing was sent again");
        times.came_twice(at(1001), 9, &counts(4, 4));
        assert_eq!(times.overtaking(), ms(10), "copies on purpose");
        for (now, twice, resent, want) in [
            (1002, 10, 5, 20),
            (1003, 11, 6, 20),
            (1082, 12, 7, 40),
            (1182, 13, 8, 40),
            (1282, 14, 8, 40),
            (1182 + 1280, 14, 8, 40),
            (1183 + 1280, 14, 8, 10),
        ] {
            times.came_twice(at(now), twice, &counts(resent, 4));
            assert_eq!(times.overtaking(), ms(want), "at {now} ms");
        }
    }

    #[test]
    fn the_round_trip_is_smoothed() {
        let mut times = PathTimes::new(ms(80));
        times.took(ms(160));
        assert_eq!((times.round_trip(), times.answer()), (ms(90), ms(90) + ms(200) + Duration::from_micros(24_500)));
    }
}
