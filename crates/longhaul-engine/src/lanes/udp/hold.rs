//! Holds data of a lane back while the path of the session has enough on its way, or is silent.
//!
//! In: the leave of the path. Out: whether the lane may send data. It knows no socket and no unit.

use std::time::Duration;

use longhaul_proto::time::Timestamp;

use super::path::PathLeave;

/// See the module.
#[derive(Debug)]
pub(super) struct FlightHold {
    /// Since when data is held back. `None` while it is not.
    since: Option<Timestamp>,
    /// When the next sign of life is due, where nothing but signs may be sent.
    sign: Timestamp,
}

/// Whether a lane may send data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataLeave {
    /// It may.
    Given,
    /// It may not now.
    Held,
    /// It may not, as nothing is heard, and gives a sign of life if one is due.
    Silent {
        /// Whether one is.
        sign: bool,
    },
    /// The lane is of no use any more, and this is why.
    Over(&'static str),
}

impl FlightHold {
    /// Nothing is held back.
    pub(super) fn new(now: Timestamp) -> FlightHold {
        FlightHold { since: None, sign: now }
    }

    /// Whether data is held back.
    pub(super) fn is_held(&self) -> bool {
        self.since.is_some()
    }

    /// Judges what the path allows now.
    pub(super) fn judge(&mut self, now: Timestamp, leave: PathLeave, round_trip: Duration) -> DataLeave {
        match leave {
            PathLeave::Data => {
                self.since = None;
                DataLeave::Given
            }
            PathLeave::Over(why) => DataLeave::Over(why),
            PathLeave::Signs => {
                self.since.get_or_insert(now);
                let sign = now >= self.sign;
                if sign {
                    self.sign = now.after(SIGNS_EACH);
                }
                DataLeave::Silent { sign }
            }
            PathLeave::Full => {
                // All that is on its way may be lost, and nobody says so before something comes.
                let since = *self.since.get_or_insert(now);
                if now.since(since) < HELD_MOST.max(2 * round_trip) {
                    return DataLeave::Held;
                }
                self.since = Some(now);
                DataLeave::Given
            }
        }
    }
}

/// The time for which nothing is sent because enough is on its way, at least: then something is, so
/// that the other end says what came.
const HELD_MOST: Duration = Duration::from_millis(100);
/// The time between two signs of life where nothing else may be sent.
const SIGNS_EACH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_may_send_nothing_does_not_wait_for_ever_for_a_word() {
        let (at, round_trip) = (|ms: u64| Timestamp(ms * 1000), Duration::from_millis(80));
        let mut hold = FlightHold::new(at(0));
        assert_eq!(hold.judge(at(0), PathLeave::Data, round_trip), DataLeave::Given);
        for (ms, want) in
            [(0, DataLeave::Held), (159, DataLeave::Held), (160, DataLeave::Given), (319, DataLeave::Held)]
        {
            assert_eq!(hold.judge(at(ms), PathLeave::Full, round_trip), want, "{ms}");
            assert!(hold.is_held());
        }
        for (ms, sign) in [(320, true), (1319, false), (1320, true)] {
            assert_eq!(hold.judge(at(ms), PathLeave::Signs, round_trip), DataLeave::Silent { sign }, "{ms}");
        }
        assert_eq!(hold.judge(at(1400), PathLeave::Data, round_trip), DataLeave::Given);
        assert!(!hold.is_held());
        assert_eq!(hold.judge(at(1400), PathLeave::Over("why"), round_trip), DataLeave::Over("why"));
    }
}
