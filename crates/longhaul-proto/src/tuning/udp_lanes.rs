//! The number of lanes over UDP: one more where one of the ends has no processor time left for
//! those that stand, or the receiver's system drops their datagrams, and the control of their path
//! would give more.
//!
//! In: once a second, what the lanes' threads worked, and what the control of the path would give.
//! Out: whether to add a lane, and why. The bytes that lanes deliver decide nothing: one lane
//! repairs what it loses without standing still, so that more of them carry more only where a
//! thread or a socket is full. Sans-I/O; it knows no sockets and no threads.

use std::time::Duration;

use super::Why;
use crate::udp::control::UdpSpare;

/// The last second of lanes over UDP that are alone.
#[derive(Clone, Copy, Debug)]
pub struct UdpLanesSecond {
    /// Its length.
    pub elapsed: Duration,
    /// The lanes that go on.
    pub lanes: u32,
    /// Bytes that the other end took.
    pub delivered: u64,
    /// Processor time of their threads at this end.
    pub worked: Duration,
    /// Whether the processors, or the lanes' threads, of one of the ends are what limits.
    pub is_by_work: bool,
    /// Whether this process has used up all processors of this host: another thread would have
    /// none.
    pub is_pressed: bool,
    /// The rate that the control of the path would give beyond what the lanes carry.
    pub spare: UdpSpare,
    /// Bytes that no lane has taken yet. `None` if that is unknown.
    pub remaining: Option<u64>,
}

/// The search: see the module.
#[derive(Clone, Debug)]
pub struct UdpLaneGrowth {
    most: u32,
    /// The lanes that stood in the last second, and the time since their number changed.
    lanes: u32,
    settled: Duration,
    /// The time after a change, or after a lane was asked for, before which none is asked for.
    wait: Duration,
    /// How long, without a break, the threads had no time left, and the receiver's system dropped
    /// datagrams of lanes that carry much each.
    busy: Duration,
    dropped: Duration,
}

impl UdpLaneGrowth {
    /// Adds lanes up to this number.
    pub fn new(most: u32) -> UdpLaneGrowth {
        UdpLaneGrowth {
            most: most.min(UDP_LANES_MOST),
            lanes: 0,
            settled: Duration::ZERO,
            wait: SETTLE,
            busy: Duration::ZERO,
            dropped: Duration::ZERO,
        }
    }

    /// Takes a second. Gives why one lane more is wanted, if it is.
    pub fn second(&mut self, second: &UdpLanesSecond) -> Option<Why> {
        if second.lanes != self.lanes {
            (self.lanes, self.settled, self.wait) = (second.lanes, Duration::ZERO, SETTLE);
            self.forget();
            return None;
        }
        self.settled += second.elapsed;
        let seconds = second.elapsed.as_secs_f64().max(1e-3);
        let rate = (second.delivered as f64 / seconds) as u64;
        let is_near_end = second.remaining.is_some_and(|left| left < rate.saturating_mul(WORTH_SECONDS));
        if self.lanes == 0 || self.lanes >= self.most || second.is_pressed || is_near_end {
            self.forget();
            return None;
        }
        // A lane was asked for that does not come: the other end may have no room for it.
        if self.settled < self.wait {
            return None;
        }
        let share = second.worked.as_secs_f64() / (seconds * f64::from(self.lanes));
        let (is_busy, has_room) = (share >= BUSY, second.spare != UdpSpare::Nothing);
        let is_full = second.spare == UdpSpare::Dropped && rate > LANE_RATE.saturating_mul(self.lanes.into());
        self.busy =
            if (is_busy || second.is_by_work) && has_room { self.busy + second.elapsed } else { Duration::ZERO };
        self.dropped = if is_full { self.dropped + second.elapsed } else { Duration::ZERO };
        let why = match () {
            () if self.busy >= FOR && is_busy => Why::LanesBusy { thousandths: (share.min(1.0) * 1000.0) as u16 },
            () if self.busy >= FOR => Why::ProcessorsBusy,
            () if self.dropped >= FOR => Why::ReceiverDrops { rate },
            () => return None,
        };
        (self.settled, self.wait) = (Duration::ZERO, (self.wait * 2).clamp(ASK_AGAIN, ASK_AGAIN_MOST));
        self.forget();
        Some(why)
    }

    fn forget(&mut self) {
        (self.busy, self.dropped) = (Duration::ZERO, Duration::ZERO);
    }
}

/// The most lanes over UDP, unless they were asked for: eight have the work of a network card of
/// 100 Gbit/s, on processors of which one carries 15 to 25 Gbit/s.
pub const UDP_LANES_MOST: u32 = 8;
/// The part of the time from which on threads are busy, and how long that must be so.
const BUSY: f64 = 0.7;
const FOR: Duration = Duration::from_secs(3);
/// Bytes/s of a lane at whose socket datagrams are dropped, from which on another one is of use: a
/// buffer as kernels give it without being asked holds a millisecond of 2 Gbit/s.
const LANE_RATE: u64 = 250_000_000;
/// Lanes find their speed in this time.
const SETTLE: Duration = Duration::from_secs(2);
/// The time after which a lane is asked for again that did not come, doubled each time, up to this.
const ASK_AGAIN: Duration = Duration::from_secs(10);
const ASK_AGAIN_MOST: Duration = Duration::from_secs(160);
/// No lane is added for fewer bytes than those that stand move in this many seconds.
const WORTH_SECONDS: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: UdpLanesSecond = UdpLanesSecond {
        elapsed: Duration::from_secs(1),
        lanes: 1,
        delivered: 100_000_000,
        worked: Duration::from_millis(720),
        is_by_work: false,
        is_pressed: false,
        spare: UdpSpare::Unused,
        remaining: None,
    };

    /// The seconds in which a lane was added, where each that was asked for stands at once.
    fn added(most: u32, seconds: u64, look: impl Fn(u64, u32) -> UdpLanesSecond) -> Vec<(u64, Why)> {
        let (mut growth, mut lanes, mut added) = (UdpLaneGrowth::new(most), 1, Vec::new());
        for n in 1..=seconds {
            if let Some(why) = growth.second(&UdpLanesSecond { lanes, ..look(n, lanes) }) {
                lanes += 1;
                added.push((n, why));
            }
        }
        added
    }

    fn times(added: &[(u64, Why)]) -> Vec<u64> {
        added.iter().map(|(second, _)| *second).collect()
    }

    #[test]
    fn a_lane_is_added_where_threads_are_busy_for_some_seconds_and_the_path_has_room() {
        // Each thread is busy while there are less than three.
        let work = |lanes: u32| Duration::from_millis(if lanes < 3 { 720 } else { 690 }) * lanes;
        let grown = added(8, 40, |_, lanes| UdpLanesSecond { worked: work(lanes), ..SECOND });
        assert_eq!(grown, [(5, Why::LanesBusy { thousandths: 720 }), (10, Why::LanesBusy { thousandths: 720 })]);
        // Two threads of which one is idle.
        let grown = added(8, 40, |_, _| SECOND);
        assert_eq!(times(&grown), [5]);
        // It was so for two seconds at a time.
        let at_times = |n: u64| Duration::from_millis(if n.is_multiple_of(3) { 600 } else { 1000 });
        assert_eq!(added(8, 40, |n, _| UdpLanesSecond { worked: at_times(n), ..SECOND }), []);
    }

    #[test]
    fn no_lane_is_added_while_the_path_holds_the_rate_or_no_processor_is_left_or_the_end_is_near() {
        let holds = UdpLanesSecond { spare: UdpSpare::Nothing, is_by_work: true, ..SECOND };
        let pressed = UdpLanesSecond { is_pressed: true, ..SECOND };
        let ends = UdpLanesSecond { remaining: Some(599_000_000), ..SECOND };
        for second in [holds, pressed, ends] {
            assert_eq!(added(8, 40, |_, _| second), [], "{second:?}");
        }
        let goes_on = UdpLanesSecond { remaining: Some(601_000_000), ..SECOND };
        assert_eq!(times(&added(2, 40, |_, _| goes_on)), [5]);
    }

    #[test]
    fn lanes_that_deliver_little_are_no_reason_for_more() {
        let idle = UdpLanesSecond { worked: Duration::from_millis(300), delivered: 1000, ..SECOND };
        assert_eq!(added(8, 60, |_, _| idle), []);
    }

    #[test]
    fn an_end_whose_processors_are_what_limits_gets_more_lanes() {
        let there = UdpLanesSecond { worked: Duration::from_millis(300), is_by_work: true, ..SECOND };
        let grown = added(3, 40, |_, _| there);
        assert_eq!(grown, [(5, Why::ProcessorsBusy), (10, Why::ProcessorsBusy)], "up to the most");
    }

    #[test]
    fn a_receiver_that_drops_gets_a_lane_for_each_two_gbit_per_second() {
        let drops = |rate, spare| UdpLanesSecond { worked: Duration::ZERO, delivered: rate, spare, ..SECOND };
        assert_eq!(added(8, 60, |_, _| drops(249_000_000, UdpSpare::Dropped)), []);
        let grown = added(8, 60, |_, _| drops(700_000_000, UdpSpare::Dropped));
        let why = Why::ReceiverDrops { rate: 700_000_000 };
        assert_eq!(grown, [(5, why), (10, why)], "three lanes have less each");
        assert_eq!(added(8, 60, |_, _| drops(700_000_000, UdpSpare::Unused)), [], "nothing was dropped");
    }

    #[test]
    fn a_lane_that_does_not_come_is_asked_for_less_and_less_often() {
        let mut growth = UdpLaneGrowth::new(8);
        let asked: Vec<_> = (1..=400_u64).filter(|_| growth.second(&SECOND).is_some()).collect();
        assert_eq!(asked, [5, 17, 39, 81, 163, 325]);
    }

    #[test]
    fn there_is_a_bound_however_many_are_allowed() {
        let busy = |lanes| UdpLanesSecond { worked: Duration::from_secs(1) * lanes, ..SECOND };
        assert_eq!(added(32, 400, |_, lanes| busy(lanes)).len() as u32, UDP_LANES_MOST - 1);
    }
}
