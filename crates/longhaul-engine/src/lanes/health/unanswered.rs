//! Finds lanes whose large segments get no answer any more while the other host is there: their
//! path has begun to swallow them.
//!
//! A lane was tried with a full segment when it joined, but routes change. Such a lane looks like
//! one whose path is down. It is given up only if control, whose messages are small enough to pass,
//! was heard meanwhile, and the lane sent in vain even after that. The lane that takes its place is
//! tried anew, and made with smaller segments if need be. Pure: counters and times in,
//! lanes to give up out. It knows no streams and no machines.

use std::collections::HashMap;
use std::time::Instant;

use longhaul_core::LaneId;
use longhaul_core::limits::SEGMENT_BYTES_SAFE;
use longhaul_net::{LaneCounters, Packets};

/// Watches the lanes of one side, as a sender.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    waiting: HashMap<LaneId, AwaitedAnswer>,
}

/// A lane that waits for an answer.
#[derive(Debug)]
struct AwaitedAnswer {
    since: Instant,
    acked: u64,
    /// Packets delivered. `None` where they are not counted.
    delivered: Option<u32>,
    /// The number of timeouts at that time.
    timeouts: u8,
}

impl Unanswered {
    /// The lanes to give up now. `heard`: when the other side last said something.
    pub(crate) fn find(
        &mut self,
        now: Instant,
        lanes: impl Iterator<Item = (LaneId, LaneCounters)>,
        heard: Instant,
    ) -> Vec<LaneId> {
        let mut before = std::mem::take(&mut self.waiting);
        let mut found = Vec::new();
        for (id, counters) in lanes.filter(|(_, counters)| waits(&counters.packets)) {
            let LaneCounters { acked, packets: Packets { delivered, timeouts, .. }, .. } = counters;
            let same = |waiting: &AwaitedAnswer| (waiting.acked, waiting.delivered) == (acked, delivered);
            let waiting = before.remove(&id).filter(same);
            let waiting = waiting.unwrap_or(AwaitedAnswer { since: now, acked, delivered, timeouts });
            if heard > waiting.since && timeouts > waiting.timeouts && timeouts >= TIMEOUTS {
                found.push(id);
            }
            self.waiting.insert(id, waiting);
        }
        found
    }

    /// Whether another sign of life of the other side would help to decide, if the last was heard
    /// at `heard`.
    pub(crate) fn asks(&self, heard: Instant) -> bool {
        self.waiting.values().any(|waiting| heard <= waiting.since)
    }
}

/// Whether large segments are under way and the time for an answer has run out. (A host that takes
/// no data has nothing under way, and answers the kernel's probes.)
fn waits(packets: &Packets) -> bool {
    packets.unacked > 0 && packets.timeouts > 0 && packets.payload_bytes > SEGMENT_BYTES_SAFE
}

/// Timeouts in a row after which a lane is given up. Its segment was sent four times without an
/// answer: with a loss of 1 % that happens once in 100 million. Where round trips are short it
/// takes 1.4 s.
const TIMEOUTS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn standing(timeouts: u8) -> LaneCounters {
        sending(Packets { unacked: 8, payload_bytes: 8948, timeouts, ..Packets::default() })
    }

    fn sending(packets: Packets) -> LaneCounters {
        LaneCounters { acked: 5, packets, ..LaneCounters::default() }
    }

    /// Whether a lane that was `first`, and is `then` a second later, is given up. Control was
    /// heard `heard_ms` after the first look. `None`: it was not heard.
    fn given_up(first: LaneCounters, then: LaneCounters, heard_ms: Option<u64>) -> bool {
        let (mut unanswered, start) = (Unanswered::default(), Instant::now());
        assert_eq!(unanswered.find(start, [(LaneId(1), first)].into_iter(), start), []);
        let heard = start + Duration::from_millis(heard_ms.unwrap_or(0));
        !unanswered.find(start + Duration::from_secs(1), [(LaneId(1), then)].into_iter(), heard).is_empty()
    }

    #[test]
    fn a_lane_is_given_up_when_it_sends_in_vain_while_control_is_heard() {
        let clamped = |timeouts| sending(Packets { payload_bytes: 1208, ..standing(timeouts).packets });
        let delivers = |timeouts| sending(Packets { delivered: Some(1), ..standing(timeouts).packets });
        let empty = |timeouts| sending(Packets { unacked: 0, ..standing(timeouts).packets });
        for (first, then, heard, want) in [
            (standing(2), standing(3), Some(20), true),
            (standing(2), standing(3), None, false),
            (standing(2), standing(2), Some(20), false),
            (standing(1), standing(2), Some(20), false),
            (standing(3), standing(3), Some(20), false),
            (standing(3), standing(4), Some(20), true),
            (standing(2), LaneCounters { acked: 6, ..standing(3) }, Some(20), false),
            (standing(2), delivers(3), Some(20), false),
            (standing(2), empty(3), Some(20), false),
            (clamped(2), clamped(3), Some(20), false),
        ] {
            assert_eq!(given_up(first, then, heard), want, "{first:?} {then:?} {heard:?}");
        }
    }

    #[test]
    fn a_sign_of_life_is_asked_for_until_there_was_one() {
        let (mut unanswered, start) = (Unanswered::default(), Instant::now());
        assert!(!unanswered.asks(start));
        unanswered.find(start, [(LaneId(1), standing(2))].into_iter(), start);
        assert!(unanswered.asks(start));
        assert!(!unanswered.asks(start + Duration::from_millis(1)));
        unanswered.find(start, [].into_iter(), start);
        assert!(!unanswered.asks(start), "nothing waits any more");
    }
}
