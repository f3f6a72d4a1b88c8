//! When packets were sent: by message, in a ring.
//!
//! In: each message as it was sent. Out: the time of a packet, and the packets that are older than
//! a time. Knows neither what was in them nor whether they came.

use std::collections::VecDeque;

use crate::time::Timestamp;

/// Messages that are remembered: a third of a second of 25 Gbit/s. What is older is old enough for
/// everything that is asked.
const MESSAGES_KEPT: usize = 16_384;

/// The messages of one direction of a lane.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// First number and time of each, in order.
    messages: VecDeque<(u64, Timestamp)>,
    /// The number behind the last packet.
    next: u64,
    /// Whether a message was forgotten.
    forgets: bool,
}

impl Flight {
    /// The number behind the last packet that was sent.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// A message with so many packets was sent, from this number on. Numbers only grow.
    pub(super) fn sent(&mut self, now: Timestamp, first: u64, packets: u64) {
        assert!(first >= self.next, "packet {first} after {}", self.next);
        if self.messages.len() == MESSAGES_KEPT {
            self.messages.pop_front();
            self.forgets = true;
        }
        self.messages.push_back((first, now));
        self.next = first + packets;
    }

    /// When a packet was sent: no later than this. `None` if nothing was sent.
    pub(super) fn at(&self, number: u64) -> Option<Timestamp> {
        let behind = self.messages.partition_point(|(first, _)| *first <= number);
        self.messages.get(behind.saturating_sub(1)).map(|(_, at)| *at)
    }

    /// All packets below this number were sent at `time` or before.
    pub(super) fn sent_by(&self, time: Timestamp) -> u64 {
        let behind = self.messages.partition_point(|(_, at)| *at <= time);
        match self.messages.get(behind) {
            Some(_) if behind == 0 && self.forgets => 0,
            Some((first, _)) => *first,
            None => self.next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_time_of_their_message() {
        let mut flight = Flight::default();
        assert_eq!((flight.at(0), flight.sent_by(Timestamp(9))), (None, 0));
        flight.sent(Timestamp(10), 0, 4);
        flight.sent(Timestamp(20), 4, 1);
        flight.sent(Timestamp(20), 7, 3);
        for (number, at) in [(0, 10), (3, 10), (4, 20), (6, 20), (9, 20), (99, 20)] {
            assert_eq!(flight.at(number), Some(Timestamp(at)), "{number}");
        }
        for (time, number) in [(9, 0), (10, 4), (19, 4), (20, 10), (99, 10)] {
            assert_eq!(flight.sent_by(Timestamp(time)), number, "{time}");
        }
    }

    #[test]
    fn memory_is_bounded_and_what_was_forgotten_is_old_and_never_young() {
        let mut flight = Flight::default();
        let last = MESSAGES_KEPT as u64 + 9;
        (0..=last).for_each(|at| flight.sent(Timestamp(at), at, 1));
        assert_eq!(flight.messages.len(), MESSAGES_KEPT);
        assert_eq!((flight.at(0), flight.at(9), flight.at(11)), (flight.at(10), flight.at(10), Some(Timestamp(11))));
        assert_eq!((flight.sent_by(Timestamp(9)), flight.sent_by(Timestamp(10))), (0, 11));
    }
}
