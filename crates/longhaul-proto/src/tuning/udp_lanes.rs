//! The number of lanes over UDP: one more where one of the ends has no processor time left for
//! those that stand, or the receiver's system drops their datagrams, and the control of their path
//! would give more.
//!
//! In: once a second, what the lanes' threads worked, and what the control of the path would give.
//! Out: whether to add a lane, and why. That more bytes are delivered is not waited for: one lane
//! repairs what it loses without standing still, so that more of them carry more only where a
//! thread or a socket is full. But where clearly less is delivered with a lane more, it ends, and
//! one that does not come is waited for no longer. Sans-I/O; it knows no sockets and no threads.

use std::time::Duration;

use super::Why;

/// The rate that a control would give lanes beyond what they carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdpSpare {
    /// None: the path holds the rate, or a rate that was asked for, or nobody knows yet, or
    /// something else than the lanes limits, as a source does; or the session is polite, which asks
    /// for no more lanes.
    #[default]
    Nothing,
    /// Lanes that always had something to send left a part of the rate unused, and no queue stood.
    Unused,
    /// The receiver's system drops datagrams, and takes less than the path would carry.
    Dropped,
}

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

/// A change of the lanes over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpLanesChange {
    /// Add one.
    Add(Why),
    /// End the one that was added last.
    End(Why),
    /// Wait no longer for one that was to be added.
    GiveUp(Why),
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
    /// The number of lanes that there are to be, while one of them does not stand.
    asked: Option<u32>,
    /// The lanes that stood before the last one that was asked for, and the time that was to be
    /// waited for it.
    risen: Option<(u32, Duration)>,
    delivered: MeanRate,
    /// The rate before the last one was asked for, and whether it stands and is not judged yet.
    before: u64,
    is_trial: bool,
    /// The time for which no more are asked for, as the last one did harm.
    rest: Duration,
}

/// The mean of the rates of the last seconds.
#[derive(Clone, Copy, Debug, Default)]
struct MeanRate {
    rate: f64,
    seconds: f64,
}

impl MeanRate {
    fn add(&mut self, rate: u64) {
        self.seconds = (self.seconds + 1.0).min(MEAN_SECONDS);
        self.rate += (rate as f64 - self.rate) / self.seconds;
    }
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
            asked: None,
            risen: None,
            delivered: MeanRate::default(),
            before: 0,
            is_trial: false,
            rest: Duration::ZERO,
        }
    }

    /// Takes a second. Gives the change that is wanted, if one is.
    pub fn second(&mut self, second: &UdpLanesSecond) -> Option<UdpLanesChange> {
        self.rest = self.rest.saturating_sub(second.elapsed);
        if second.lanes != self.lanes {
            self.count(second.lanes);
            return None;
        }
        self.settled += second.elapsed;
        let seconds = second.elapsed.as_secs_f64().max(1e-3);
        let rate = (second.delivered as f64 / seconds) as u64;
        if self.settled >= SETTLE {
            self.delivered.add(rate);
        }
        // The other end may have no room for it.
        let waited = self.wait;
        let is_in_vain = self.settled >= waited && self.asked.take().is_some();
        let given_up = is_in_vain.then_some(UdpLanesChange::GiveUp(Why::NoMoreUdp { waited }));
        let is_near_end = second.remaining.is_some_and(|left| left < rate.saturating_mul(WORTH_SECONDS));
        if self.lanes == 0 || is_near_end {
            self.is_trial = false;
            self.forget();
            return given_up;
        }
        self.judge().or_else(|| self.look_for_more(second, rate)).or(given_up)
    }

    /// Notes another number of lanes.
    fn count(&mut self, lanes: u32) {
        let before = std::mem::replace(&mut self.lanes, lanes);
        match (self.asked, self.risen) {
            _ if lanes == 0 => (self.asked, self.risen, self.is_trial, self.wait) = (None, None, false, SETTLE),
            (Some(asked), _) if lanes >= asked => {
                self.risen = Some((before, self.wait));
                (self.asked, self.is_trial, self.wait) = (None, true, SETTLE);
            }
            // It stood, and is gone: it is waited for as before.
            (None, Some((from, wait))) if lanes <= from => {
                (self.asked, self.risen, self.is_trial, self.wait) = (Some(before), None, false, wait);
            }
            (Some(_), _) => {}
            (None, _) => (self.is_trial, self.wait) = (false, SETTLE),
        }
        (self.settled, self.delivered) = (Duration::ZERO, MeanRate::default());
        self.forget();
    }

    /// Ends the lane that was added last, if clearly less is delivered with it.
    fn judge(&mut self) -> Option<UdpLanesChange> {
        if !self.is_trial || self.settled < SETTLE + JUDGED {
            return None;
        }
        self.is_trial = false;
        let (before, after) = (self.before, self.delivered.rate as u64);
        if before == 0 || after > before - before / LESS {
            return None;
        }
        (self.risen, self.rest) = (None, REST);
        self.forget();
        Some(UdpLanesChange::End(Why::UdpDidNotPay { before, after }))
    }

    fn look_for_more(&mut self, second: &UdpLanesSecond, rate: u64) -> Option<UdpLanesChange> {
        if self.lanes >= self.most || second.is_pressed || !self.rest.is_zero() {
            self.forget();
            return None;
        }
        // A lane was asked for that does not come.
        if self.settled < self.wait {
            return None;
        }
        let seconds = second.elapsed.as_secs_f64().max(1e-3);
        let share = second.worked.as_secs_f64() / (seconds * f64::from(self.lanes));
        let is_busy = share >= BUSY;
        // Another thread at a receiver that is short of processors is no help where it drops.
        let has_room = match second.spare {
            UdpSpare::Nothing => false,
            UdpSpare::Dropped => is_busy,
            UdpSpare::Unused => is_busy || second.is_by_work,
        };
        let is_full = second.spare == UdpSpare::Dropped && rate > LANE_RATE.saturating_mul(self.lanes.into());
        self.busy = if has_room { self.busy + second.elapsed } else { Duration::ZERO };
        self.dropped = if is_full { self.dropped + second.elapsed } else { Duration::ZERO };
        let why = match () {
            () if self.busy >= FOR && is_busy => Why::LanesBusy { thousandths: (share.min(1.0) * 1000.0) as u16 },
            () if self.busy >= FOR => Why::ProcessorsBusy,
            () if self.dropped >= FOR => Why::ReceiverDrops { rate },
            () => return None,
        };
        (self.settled, self.wait) = (Duration::ZERO, (self.wait * 2).clamp(ASK_AGAIN, ASK_AGAIN_MOST));
        (self.asked, self.before) = (Some(self.lanes + 1), self.delivered.rate as u64);
        self.forget();
        Some(UdpLanesChange::Add(why))
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
/// The time after which a lane that was added is judged, once it has found its speed; the part,
/// a tenth (1/10), by which less is clearly less; and how long no more are asked for then.
const JUDGED: Duration = Duration::from_secs(2);
const LESS: u64 = 10;
const REST: Duration = Duration::from_secs(10 * 60);
/// Seconds over which the rate is a mean.
const MEAN_SECONDS: f64 = 3.0;
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
            if let Some(UdpLanesChange::Add(why)) = growth.second(&UdpLanesSecond { lanes, ..look(n, lanes) }) {
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
        let (mut asked, mut given_up) = (Vec::new(), Vec::new());
        for n in 1..=400_u64 {
            match growth.second(&SECOND) {
                Some(UdpLanesChange::Add(_)) => asked.push(n),
                Some(UdpLanesChange::GiveUp(_)) => given_up.push(n),
                other => assert_eq!(other, None),
            }
        }
        assert_eq!(asked, [5, 17, 39, 81, 163, 325]);
        assert_eq!(given_up, [15, 37, 79, 161, 323], "it is waited for no longer");
    }

    #[test]
    fn a_lane_that_is_closed_as_soon_as_it_stands_is_one_that_does_not_come() {
        let (mut growth, mut asked, mut given_up) = (UdpLaneGrowth::new(8), Vec::new(), Vec::new());
        for n in 1..=200_u64 {
            let stands = asked.last().is_some_and(|at| n == at + 1);
            match growth.second(&UdpLanesSecond { lanes: if stands { 2 } else { 1 }, ..SECOND }) {
                Some(UdpLanesChange::Add(_)) => asked.push(n),
                Some(UdpLanesChange::GiveUp(_)) => given_up.push(n),
                other => assert_eq!(other, None),
            }
        }
        assert_eq!((asked, given_up), (vec![5, 19, 43, 87, 171], vec![17, 41, 85, 169]));
    }

    #[test]
    fn a_lane_with_which_clearly_less_is_delivered_ends_and_none_is_added_for_long() {
        let (mut growth, mut lanes, mut log) = (UdpLaneGrowth::new(8), 1, Vec::new());
        for n in 1..=620_u64 {
            let delivered = if lanes == 1 { 100_000_000 } else { 89_000_000 };
            let worked = SECOND.worked * lanes;
            match growth.second(&UdpLanesSecond { lanes, delivered, worked, ..SECOND }) {
                Some(UdpLanesChange::Add(_)) => {
                    lanes += 1;
                    log.push((n, lanes));
                }
                Some(UdpLanesChange::End(why)) => {
                    assert_eq!(why, Why::UdpDidNotPay { before: 100_000_000, after: 89_000_000 });
                    lanes -= 1;
                    log.push((n, lanes));
                }
                other => assert_eq!(other, None),
            }
        }
        assert_eq!(log, [(5, 2), (10, 1), (612, 2), (617, 1)]);
    }

    #[test]
    fn a_receiver_short_of_processors_that_drops_gets_no_more_lanes() {
        let second = UdpLanesSecond { worked: Duration::ZERO, is_by_work: true, spare: UdpSpare::Dropped, ..SECOND };
        assert_eq!(added(8, 60, |_, _| second), []);
    }

    #[test]
    fn there_is_a_bound_however_many_are_allowed() {
        let busy = |lanes| UdpLanesSecond { worked: Duration::from_secs(1) * lanes, ..SECOND };
        assert_eq!(added(32, 400, |_, lanes| busy(lanes)).len() as u32, UDP_LANES_MOST - 1);
    }
}
