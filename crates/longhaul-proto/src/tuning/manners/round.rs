//! The measurements of a path, look by look, and their sums, round by round.
//!
//! In: the counts of all lanes since the last look. Out: a round, as soon as the looks are worth
//! one. It decides nothing about rates.
//!
//! A round lasts for a round trip at least, and something arrived in it: within less, a count shows
//! how acknowledgements come in bunches, and not what the path carries. So what was lost while
//! nothing arrived, and that time, belong to the round that ends with the next arrival.

use std::time::Duration;

/// The measurements since the last look, over all lanes of a path together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathRound {
    /// The time since then.
    pub elapsed: Duration,
    /// Bytes that the other host was found to have.
    pub delivered: u64,
    /// Bytes that were found lost.
    pub lost: u64,
    /// The smoothed round trip at its end. 0 if nothing arrived.
    pub rtt: Duration,
    /// The shortest round trip that any of the lanes ever saw, the handshake's too. 0 if that is
    /// not known.
    pub rtt_first: Duration,
    /// Payload of one packet, in bytes.
    pub packet_bytes: u32,
    /// The part of the time, from 0 to 1, in which the lanes had nothing to send, or the other host
    /// took no more.
    pub idle: f64,
    /// The lanes.
    pub lanes: u32,
}

/// The looks of a round that is not over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenRound {
    sum: PathRound,
    /// Whether nothing arrived between the last two looks.
    is_silent: bool,
}

impl OpenRound {
    /// Takes a look. Returns the round that is over by that.
    pub(super) fn add(&mut self, look: &PathRound) -> Option<PathRound> {
        let sum = self.sum;
        let (before, now) = (sum.elapsed.as_secs_f64(), look.elapsed.as_secs_f64());
        self.is_silent = look.delivered == 0;
        self.sum = PathRound {
            elapsed: sum.elapsed + look.elapsed,
            delivered: sum.delivered + look.delivered,
            lost: sum.lost + look.lost,
            rtt: if look.rtt.is_zero() { sum.rtt } else { look.rtt },
            idle: (sum.idle * before + look.idle * now) / (before + now).max(1e-9),
            ..*look
        };
        let is_over = self.sum.delivered > 0 && !self.sum.rtt.is_zero() && self.left() <= LOOK_AGAIN;
        if !is_over {
            return None;
        }
        let mut round = self.sum;
        // The path was down, or this process did not run: nothing is known of what could be had.
        if round.elapsed > (round.rtt * OUTAGE_ROUNDS).max(OUTAGE) {
            round.idle = 1.0;
        }
        self.sum = PathRound { rtt: round.rtt, ..PathRound::default() };
        Some(round)
    }

    /// The time until the next look.
    pub(super) fn next_look(&self) -> Duration {
        let least = match (self.is_silent, self.sum.elapsed.is_zero()) {
            (true, _) => LOOK_LEAST_SILENT,
            (false, true) => LOOK_LEAST,
            // The round trip has become longer since the last look.
            (false, false) => LOOK_AGAIN,
        };
        self.left().clamp(least, LOOK_MOST)
    }

    fn left(&self) -> Duration {
        self.sum.rtt.saturating_sub(self.sum.elapsed)
    }
}

/// The time between two looks: threads that wake late are what is measured within less, ...
const LOOK_LEAST: Duration = Duration::from_millis(20);
/// ... but a rest of a round may be short; less than that is none; ...
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// ... where nothing arrives there is less to see, ...
const LOOK_LEAST_SILENT: Duration = Duration::from_millis(50);
/// ... and at most.
const LOOK_MOST: Duration = Duration::from_secs(1);
/// A round that lasts for so many round trips, and so long, was no measurement of the path.
const OUTAGE_ROUNDS: u32 = 4;
const OUTAGE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn look(millis: u64, delivered: u64, rtt: u64) -> PathRound {
        let ms = Duration::from_millis;
        PathRound { elapsed: ms(millis), delivered, lost: 1, rtt: ms(rtt), ..PathRound::default() }
    }

    #[test]
    fn a_round_lasts_for_a_round_trip_and_until_something_arrives() {
        let mut open = OpenRound::default();
        assert_eq!(open.add(&look(100, 5, 250)), None);
        assert_eq!(open.next_look(), Duration::from_millis(150));
        assert_eq!(open.add(&look(150, 0, 0)).map(|round| (round.delivered, round.lost)), Some((5, 2)));
        assert_eq!(open.add(&look(250, 0, 0)), None, "nothing arrived");
        assert_eq!(open.next_look(), LOOK_LEAST_SILENT);
        let round = open.add(&look(50, 7, 250)).expect("a round");
        assert_eq!((round.elapsed.as_millis(), round.delivered, round.lost), (300, 7, 2));
    }

    #[test]
    fn a_look_comes_once_a_second_however_long_the_round() {
        let mut open = OpenRound::default();
        assert_eq!(open.add(&look(20, 5, 2500)), None);
        assert_eq!(open.next_look(), LOOK_MOST);
        assert_eq!((open.add(&look(1000, 5, 2500)), open.add(&look(1000, 5, 2500))), (None, None));
        assert_eq!(open.next_look(), Duration::from_millis(480));
        assert_eq!(open.add(&look(480, 5, 2500)).map(|round| round.delivered), Some(20));
    }

    #[test]
    fn of_an_outage_nothing_is_concluded() {
        let mut open = OpenRound::default();
        assert_eq!(open.add(&look(20, 5, 20)).map(|round| round.idle), Some(0.0));
        (0..30).for_each(|_| assert_eq!(open.add(&look(50, 0, 0)), None));
        assert_eq!(open.add(&look(20, 5, 20)).map(|round| round.idle), Some(1.0));
    }
}
