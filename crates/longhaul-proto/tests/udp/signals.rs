//! The signals of the control of UDP lanes, one at a time: samples by hand instead of a line.

use std::time::Duration;

use longhaul_core::{LaneId, PathShare};
use longhaul_proto::Timestamp;
use longhaul_proto::udp::control::{KnownPath, UdpControl, UdpControlConfig, UdpLaneLimit, UdpPhase, UdpRateLimit};
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::udp::status::Counts;

/// Bytes of a packet, and packets of a sample: 100 MB/s with a sample each 10 ms.
const PACKET: u64 = 1000;
const PACKETS: u64 = 1000;
const ROUND_TRIP: Duration = Duration::from_millis(20);

/// A lane's samples, one each 10 ms.
struct Samples {
    control: UdpControl,
    now: u64,
    next: UdpSample,
}

impl Samples {
    fn new(config: UdpControlConfig) -> Samples {
        let next = UdpSample {
            round_trip: Some(config.round_trip),
            arrived_us: Some(0),
            delay: Some(60_000),
            counts: Counts::default(),
            lost: 0,
            sent: 0,
            datagram_bytes: PACKET as u16,
            flying_bytes: 0,
        };
        Samples { control: UdpControl::new(Timestamp(0), config), now: 0, next }
    }

    /// Gives so many samples of a path that is full at 100 MB/s, each changed by `change`.
    fn give(&mut self, samples: usize, change: impl Fn(&mut UdpSample)) {
        for _ in 0..samples {
            self.now += 10_000;
            self.next.sent += PACKETS;
            self.next.counts.packets += PACKETS;
            self.next.counts.bytes += PACKETS * PACKET;
            self.next.arrived_us = Some(self.now as u32);
            (self.next.lost, self.next.delay) = (0, Some(60_000));
            change(&mut self.next);
            self.control.observe(Timestamp(self.now), LaneId(0), &self.next, UdpLaneLimit::Path);
        }
    }
}

fn config() -> UdpControlConfig {
    UdpControlConfig { share: PathShare::Fair, ceiling: None, known: None, round_trip: ROUND_TRIP }
}

/// A control that has found 100 MB/s: they arrive, and a queue of 10 ms stood.
fn steady() -> Samples {
    let mut samples = Samples::new(config());
    samples.give(20, |_| {});
    samples.give(4, |sample| sample.delay = Some(60_100));
    samples.give(20, |_| {});
    assert_eq!(samples.control.phase(), UdpPhase::Steady);
    samples
}

#[test]
fn the_receivers_clock_counts_and_not_that_of_statuses_in_a_bunch() {
    let mut samples = steady();
    let before = samples.control.capacity();
    // Statuses of 100 ms come within 10: the packets arrived 10 ms apart all the same.
    let at = samples.now;
    for late in 0..10 {
        samples.now = at + 100_000 + late * 1000 - 10_000;
        samples.give(1, |sample| sample.arrived_us = Some((at + 10_000 * (late + 1)) as u32));
    }
    assert!(samples.control.capacity() < before + before / 10, "{} after {before}", samples.control.capacity());
}

/// Sixteen lanes that draw on one account take turns, each of ten datagrams of 9 kB: at the least
/// rate of a path of 20 ms one is heard each 50 ms.
#[test]
fn lanes_that_take_turns_use_the_whole_rate_though_few_are_heard_in_a_round() {
    let mut control = UdpControl::new(Timestamp(0), config());
    let mut lanes = [UdpSample { datagram_bytes: 9000, flying_bytes: 0, ..Samples::new(config()).next }; 16];
    let mut now = 0;
    for turn in 0..3000 {
        let lane = turn % lanes.len();
        now += 90_000 * 1_000_000 / control.rate().min(LINE);
        let sample = &mut lanes[lane];
        sample.sent += 10;
        sample.counts.packets += 10;
        sample.counts.bytes += 90_000;
        sample.arrived_us = Some(now as u32);
        // A queue stands once, of somebody else.
        sample.delay = Some(if (1000..1040).contains(&turn) { 60_100 } else { 60_000 });
        control.observe(Timestamp(now), LaneId(lane as u32), sample, UdpLaneLimit::Path);
    }
    assert!(control.rate() > LINE * 9 / 10, "{} {:?}", control.rate(), control.phase());
}

/// Bytes/s that such lanes carry at most.
const LINE: u64 = 20_000_000;

#[test]
fn more_than_was_sent_does_not_arrive() {
    let mut samples = steady();
    samples.give(10, |sample| sample.counts.bytes += 50 * PACKETS * PACKET);
    assert!(samples.control.capacity() < 150_000_000, "{}", samples.control.capacity());
}

#[test]
fn what_the_receivers_system_drops_is_no_loss_of_the_path_and_caps_the_rate_for_a_while() {
    let mut samples = steady();
    samples.give(2, |sample| sample.counts.dropped += 100);
    // They are found lost a status later.
    samples.give(4, |sample| sample.lost = 50);
    assert_eq!(samples.control.limit(), UdpRateLimit::Receiver);
    let rate = samples.control.rate();
    assert!((85_000_000..92_000_000).contains(&rate), "{rate}");
    assert_eq!((samples.control.own_loss(), samples.control.phase()), (0.0, UdpPhase::Steady));
    samples.give(1100, |_| {});
    assert_ne!(samples.control.limit(), UdpRateLimit::Receiver);
    assert!(samples.control.rate() > 97_000_000, "{}", samples.control.rate());
}

#[test]
fn somebody_who_fills_the_receivers_socket_with_forged_packets_does_not_slow_the_sender_down() {
    for (forged, is_held) in [(0, true), (PACKETS as u32, false)] {
        let mut samples = steady();
        samples.give(200, |sample| {
            sample.counts.dropped = sample.counts.dropped.wrapping_add(1000);
            sample.counts.wrong += forged;
            sample.lost = 50;
        });
        let (limit, rate) = (samples.control.limit(), samples.control.rate());
        assert_eq!((limit == UdpRateLimit::Receiver, rate < 50_000_000), (is_held, is_held), "{limit:?}, {rate}");
    }
}

#[test]
fn on_a_short_path_as_much_may_be_on_its_way_as_threads_that_wake_late_need() {
    let round_trip = Duration::from_micros(200);
    let mut samples = Samples::new(UdpControlConfig { round_trip, ..config() });
    samples.give(40, |_| {});
    for (control, least, most) in [(&samples.control, 0.004, 0.012), (&steady().control, 0.02, 0.05)] {
        let seconds = control.flight_limit() as f64 / control.rate() as f64;
        assert!((least..most).contains(&seconds), "{seconds} s of {} bytes/s", control.rate());
    }
}

#[test]
fn a_mark_of_congestion_is_a_sign_as_a_loss_is() {
    let mut samples = steady();
    let before = samples.control.rate();
    samples.give(4, |sample| sample.counts.marked += 100);
    assert!(samples.control.rate() < before * 9 / 10, "{} after {before}", samples.control.rate());
}

#[test]
fn marks_that_are_counted_anew_are_no_sign() {
    let mut samples = steady();
    samples.give(1, |sample| sample.counts.marked = 1);
    samples.give(100, |_| {});
    let before = samples.control.rate();
    samples.give(4, |sample| sample.counts.marked = 0);
    assert!(samples.control.rate() > before * 9 / 10, "{} after {before}", samples.control.rate());
}

#[test]
fn a_sample_that_says_nothing_new_ends_no_round() {
    let mut samples = steady();
    let before = samples.control.clone();
    let silent = UdpSample { delay: None, round_trip: None, ..samples.next };
    for late in 1..100 {
        let now = Timestamp(samples.now + late * 10_000);
        samples.control.observe(now, LaneId(0), &silent, UdpLaneLimit::Path);
    }
    let after = &samples.control;
    assert_eq!((after.rate(), after.phase(), after.capacity()), (before.rate(), before.phase(), before.capacity()));
}

#[test]
fn a_known_path_counts_only_with_its_round_trip() {
    let first_rate = |then_ms| {
        let known = Some(KnownPath { rate: 100_000_000, round_trip: Duration::from_millis(then_ms) });
        UdpControl::new(Timestamp(0), UdpControlConfig { known, ..config() }).rate()
    };
    assert_eq!((first_rate(20), first_rate(26)), (50_000_000, 50_000_000));
    assert!(first_rate(27) < 3_000_000 && first_rate(15) < 3_000_000);
}

#[test]
fn a_ceiling_is_never_passed_and_may_change() {
    let ceiling = Some(1_000_000);
    let mut samples = Samples::new(UdpControlConfig { ceiling, ..config() });
    samples.give(50, |_| {});
    assert_eq!((samples.control.rate(), samples.control.limit()), (1_000_000, UdpRateLimit::Ceiling));
    samples.control.set_ceiling(Some(500_000));
    assert_eq!(samples.control.rate(), 500_000);
    samples.control.set_ceiling(None);
    samples.give(50, |_| {});
    assert!(samples.control.rate() > 500_000);
}

#[test]
fn a_receiver_that_lies_sets_no_rate() {
    // What it says came in total sinks, wraps, and leaps.
    for lie in [[u64::MAX, 0, u64::MAX], [1, u64::MAX, 1], [0, u64::MAX / 1000, u64::MAX]] {
        let mut samples = steady();
        for said in lie {
            (samples.next.counts, samples.next.sent) = (Counts::default(), 0);
            samples.give(1, |sample| {
                (sample.counts.packets, sample.counts.bytes) = (said, said);
                (sample.counts.marked, sample.counts.dropped) = (said as u32, said as u32);
                (sample.lost, sample.sent, sample.flying_bytes) = (u32::MAX, u64::MAX / 1000, u64::MAX);
            });
        }
        assert!(samples.control.rate() <= 12_500_000_000 && samples.control.capacity() <= 12_500_000_000);
    }
    // It holds back what came, and says so at once.
    let mut samples = steady();
    let before = samples.control.capacity();
    let said = samples.next.counts;
    samples.give(500, |sample| (sample.counts, sample.flying_bytes) = (said, 2_000_000));
    let all = Counts { packets: said.packets + 500 * PACKETS, bytes: said.bytes + 500 * PACKETS * PACKET, ..said };
    samples.next.counts = all;
    samples.give(3, |_| {});
    assert!(samples.control.capacity() < before * 5 / 2, "{} after {before}", samples.control.capacity());
    // It says that all arrives, in half of the time, and that no queue stands: there is a highest
    // rate.
    let mut samples = steady();
    for _ in 0..3000 {
        let (rate, now) = (samples.control.rate(), samples.now);
        samples.give(1, |sample| {
            sample.sent += rate / 100 / PACKET;
            sample.counts.bytes += rate / 100;
            sample.arrived_us = Some((now / 2) as u32);
        });
    }
    assert!(samples.control.rate() <= 12_500_000_000, "{}", samples.control.rate());
    assert!(samples.control.capacity() <= 12_500_000_000 && samples.control.flight_limit() < 1 << 34);
}

#[test]
fn a_sample_of_a_lane_that_ended_counts_nothing_twice() {
    let mut samples = steady();
    samples.give(300, |_| {});
    let before = samples.control.capacity();
    samples.control.remove_lane(LaneId(0));
    samples.give(10, |_| {});
    assert!(samples.control.capacity() < before + before / 10, "{} after {before}", samples.control.capacity());
}
