//! The sight that a QUIC connection has of its path, as a control of that needs it.
//!
//! Takes what quinn tells its controller; gives [`PathSeen`]. Must not know what is decided by it.

use std::time::Duration;

use super::config::packets_per_ack;
use crate::shared_path::PathSeen;

/// The sight that the connection has of its path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    /// All that is told of it.
    pub(super) seen: PathSeen,
    /// The smoothed round trip at the last look.
    pub(super) smoothed: Duration,
    /// Packets that were acknowledged when the last acknowledgement was over.
    before: u64,
    /// Whether the last acknowledgement waited for a timer at the other end.
    is_late: bool,
}

impl Sight {
    /// Notes that so many bytes were sent.
    pub(super) fn sent(&mut self, bytes: u64, mtu: u16) {
        self.seen.sent += bytes.div_ceil(u64::from(mtu).max(1));
        self.seen.flying += bytes;
    }

    /// The time in which an acknowledgement comes if the path works.
    pub(super) fn answers_within(&self) -> Duration {
        let round_trip = if self.smoothed.is_zero() { ROUND_TRIP_UNKNOWN } else { self.smoothed };
        round_trip * 2 + ANSWER_SLACK
    }

    /// Notes that a packet was acknowledged. `smoothed` and `least`: the round trip as quinn has
    /// it.
    pub(super) fn acked(&mut self, bytes: u64, (smoothed, least): (Duration, Duration)) {
        self.seen.packets += 1;
        self.seen.bytes += bytes;
        // Quinn tells the smoothed round trip alone, which goes an eighth of the way to each new
        // one (RFC 9002, section 5.3). A new one is heard of at the next acknowledgement.
        let (before, after) = (self.smoothed, smoothed);
        if before.is_zero() {
            self.smoothed = after;
        } else if before != after {
            let newest = (after * 8).saturating_sub(before * 7);
            let newest = if self.is_late { newest.saturating_sub(TIMER_LATE) } else { newest };
            (self.smoothed, self.seen.round_trip) = (after, Some(newest.max(least)));
        }
    }

    /// Notes that an acknowledgement is over, with so many bytes on their way.
    pub(super) fn end_acks(&mut self, flying: u64, mtu: u16) {
        let packets = self.seen.packets.saturating_sub(self.before);
        // Quinn takes off what the other end says that it waited, but no more than was asked for.
        // With too few packets for an acknowledgement it waits for a timer, which is later.
        self.is_late = packets < u64::from(packets_per_ack(mtu));
        self.before = self.seen.packets;
        self.seen.flying = flying;
    }

    /// Notes that so many bytes were lost; none: a mark of congestion.
    pub(super) fn lost(&mut self, bytes: u64, mtu: u16) {
        if bytes == 0 {
            self.seen.marked = self.seen.marked.saturating_add(1);
        }
        self.seen.flying = self.seen.flying.saturating_sub(bytes);
        let packets = bytes.div_ceil(u64::from(mtu).max(1));
        self.seen.lost = self.seen.lost.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
    }

    /// All that was seen. The news are taken.
    pub(super) fn take(&mut self, mtu: u16) -> PathSeen {
        let seen = PathSeen { packet_bytes: mtu, ..self.seen };
        self.seen = PathSeen { round_trip: None, lost: 0, is_starved: false, ..seen };
        seen
    }
}

/// The time beyond two round trips in which an acknowledgement comes, and the round trip before one
/// was measured (RFC 9002, section 6.2.2).
const ANSWER_SLACK: Duration = Duration::from_millis(50);
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(333);
/// A timer at the other end fires so much late at most: timers are a millisecond coarse, and a
/// thread wakes some hundreds of microseconds later.
const TIMER_LATE: Duration = Duration::from_micros(1500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acknowledgements_say_is_told_once_and_a_new_round_trip_is_found_in_the_smoothed_one() {
        let mut sight = Sight::default();
        sight.sent(4000, 1200);
        let (least, later) = (Duration::from_millis(100), Duration::from_millis(132));
        for smoothed in [least, least, (least * 7 + later) / 8] {
            sight.acked(1200, (smoothed, least));
        }
        sight.lost(1300, 1200);
        let seen = sight.take(1200);
        assert_eq!((seen.packets, seen.bytes, seen.sent, seen.lost, seen.flying), (3, 3600, 4, 2, 2700));
        assert!(seen.round_trip.is_some_and(|rtt| rtt.abs_diff(Duration::from_millis(132)) < Duration::from_micros(1)));
        let next = sight.take(1200);
        assert_eq!((next.round_trip, next.lost, next.packets), (None, 0, 3));
    }

    #[test]
    fn the_lateness_of_a_timer_at_the_other_end_is_no_queue() {
        let (least, late) = (Duration::from_millis(20), Duration::from_micros(21_200));
        for (packets, want) in [(3, least), (100, late)] {
            let mut sight = Sight::default();
            for smoothed in [least, (least * 7 + late) / 8] {
                (0..packets).for_each(|_| sight.acked(1472, (smoothed, least)));
                sight.end_acks(0, 1472);
            }
            let found = sight.take(1472).round_trip.expect("one was measured");
            assert!(found.abs_diff(want) < Duration::from_micros(1), "{packets} packets: {found:?}");
        }
    }
}
