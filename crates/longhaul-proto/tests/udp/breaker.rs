//! The circuit breaker of UDP lanes on the model of a line.

use std::time::Duration;

use longhaul_core::{LaneId, PathShare};
use longhaul_proto::Timestamp;
use longhaul_proto::udp::breaker::{BreakerOrder, BreakerPast, UdpBreaker};
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::udp::status::Counts;

use super::line::session::ControlMutant;
use super::line::{Case, Dice, LINE, Line, LineEvent, at};

/// Seconds from a step of the loss to 30 % until the breaker opens. Infinite if it does not.
fn opens_after(case: Case) -> f64 {
    let mut line = Line::new(Case { event: Some((20.0, f64::INFINITY, LineEvent::Lossy(0.3))), ..case });
    line.play(50.0);
    line.sessions[0].broken - 20.0
}

#[test]
fn a_loss_of_thirty_percent_ends_the_lanes_within_five_intervals_whatever_the_share() {
    for (rtt, share, ceiling) in [
        (0.02, PathShare::Fair, None),
        (0.1, PathShare::Fair, None),
        (0.1, PathShare::Polite, None),
        (0.1, PathShare::All, Some(100_000_000)),
    ] {
        let case = Case { rtt, share, ceiling, ..Case::ALONE };
        let seconds = opens_after(case);
        assert!((2.0..6.0).contains(&seconds), "{rtt} s, {share:?}: {seconds}");
        let mutant = Some(ControlMutant::NeverOpens);
        assert!(opens_after(Case { mutant, ..case }).is_infinite(), "the planted bug is found");
    }
}

#[test]
fn loss_that_a_path_may_have_and_a_full_queue_open_nothing() {
    for (loss, cubics) in [(0.05, 0), (0.09, 0), (0.0, 10)] {
        let mut line = Line::new(Case { loss, cubics, queue: 0.1, ..Case::ALONE });
        line.play(40.0);
        assert!(line.sessions[0].broken.is_infinite(), "{loss}, {cubics}");
        assert!(line.sessions[0].breaker.allows_all());
    }
}

#[test]
fn without_statuses_the_rate_is_halved_then_data_stops_and_then_the_lanes_are_lost() {
    for rtt in [0.02, 0.1] {
        let event = Some((10.0, f64::INFINITY, LineEvent::NoStatuses));
        let mut line = Line::new(Case { rtt, event, ..Case::ALONE });
        line.play(9.9);
        let before = line.sessions[0].rate();
        assert!(before > 0.9 * LINE);
        // 200 ms at least pass before anything is found to lack.
        line.play(10.2 + 6.0 * rtt + rtt / 2.0);
        let order = line.sessions[0].order;
        assert!(line.sessions[0].rate() < before / 16.0, "{rtt} s: {order:?}");
        line.play(13.9);
        assert!(matches!(line.sessions[0].order, BreakerOrder::Go(6)));
        line.play(14.2);
        assert_eq!(line.sessions[0].order, BreakerOrder::Probe);
        line.play(29.5);
        assert_eq!(line.sessions[0].order, BreakerOrder::Probe);
        line.play(30.3);
        assert_eq!(line.sessions[0].order, BreakerOrder::Lost);
    }
}

#[test]
fn a_breaker_is_open_for_half_a_minute_and_then_twice_as_long_each_time() {
    let mut line = Line::new(Case { event: Some((10.0, f64::INFINITY, LineEvent::Lossy(0.5))), ..Case::ALONE });
    let mut now = 10.0;
    for span in [30.0, 60.0, 120.0] {
        let session = |line: &Line| line.sessions[0].order;
        while !matches!(session(&line), BreakerOrder::Open(_)) {
            now += 0.1;
            line.play(now);
            assert!(now < 400.0, "it does not open for {span} s");
        }
        let begun = now;
        while matches!(session(&line), BreakerOrder::Open(_)) {
            now += 0.1;
            line.play(now);
        }
        assert!((now - begun - span).abs() < 0.3, "{} s, not {span}", now - begun);
    }
    assert!(!line.sessions[0].breaker.allows_all(), "half of what is sent is lost");
}

#[test]
fn who_loses_half_of_what_is_sent_no_longer_takes_all() {
    for (loss, share) in [(0.4, PathShare::All), (0.6, PathShare::Fair)] {
        let ceiling = Some(100_000_000);
        let mut line = Line::new(Case { share: PathShare::All, ceiling, loss, ..Case::ALONE });
        line.play(2.5);
        assert_eq!(line.control(0).share(), share, "{loss}");
    }
}

#[test]
fn a_path_on_which_nothing_is_owed_is_not_silent() {
    let mut breaker = UdpBreaker::new(Timestamp(0), Duration::from_millis(100));
    for second in 1..100 {
        breaker.handle_sent(at(f64::from(second) - 0.9));
        breaker.handle_idle();
        assert_eq!(breaker.poll_order(at(f64::from(second) + 0.1)), BreakerOrder::Go(0));
    }
}

const ROUND_TRIP: Duration = Duration::from_millis(20);

/// A breaker and a lane whose statuses are made by hand.
struct Statuses {
    breaker: UdpBreaker,
    round_trip: Duration,
    counts: Counts,
    now: f64,
}

impl Statuses {
    fn new() -> Statuses {
        Statuses::over(ROUND_TRIP, PathShare::Fair)
    }

    /// The statuses of a session that takes this share of a path with this round trip.
    fn over(round_trip: Duration, share: PathShare) -> Statuses {
        let mut breaker = UdpBreaker::new(at(0.0), round_trip);
        breaker.set_share(share);
        breaker.begin_lane(at(0.0), LaneId(0));
        Statuses { breaker, round_trip, counts: Counts::default(), now: 0.0 }
    }

    /// A status so many seconds later: so many packets came, and so many were found lost.
    fn hear(&mut self, seconds: f64, came: u64, lost: u32) -> BreakerOrder {
        self.now += seconds;
        self.counts.packets = self.counts.packets.saturating_add(came);
        self.counts.bytes = self.counts.bytes.saturating_add(came.saturating_mul(1000));
        let sample = UdpSample {
            round_trip: (came > 0).then_some(self.round_trip),
            arrived_us: Some(0),
            delay: Some(0),
            counts: self.counts,
            lost,
            sent: 0,
            datagram_bytes: 1472,
            flying_bytes: 100_000,
        };
        self.breaker.handle_status(at(self.now), LaneId(0), &sample, self.round_trip);
        self.breaker.handle_sent(at(self.now));
        self.breaker.poll_order(at(self.now))
    }

    /// Hears the same again and again until the order is another, or for so many seconds.
    fn until(&mut self, most: f64, each: f64, came: u64, lost: u32) -> (f64, BreakerOrder) {
        let begun = self.now;
        loop {
            let order = self.hear(each, came, lost);
            if order != BreakerOrder::Go(0) || self.now - begun > most {
                return (self.now - begun, order);
            }
        }
    }
}

#[test]
fn a_breaker_goes_on_where_the_last_one_of_its_path_stopped() {
    let past = BreakerPast { times: 1, open: Duration::from_secs(10) };
    let new = Statuses::new();
    let breaker = new.breaker.clone().after(at(0.0), past);
    let mut statuses = Statuses { breaker, ..new };
    assert_eq!(statuses.breaker.poll_order(at(4.0)), BreakerOrder::Open(Duration::from_secs(6)));
    assert_eq!(statuses.breaker.past(at(4.0)), BreakerPast { times: 1, open: Duration::from_secs(6) });
    statuses.now = 10.1;
    let (after, order) = statuses.until(30.0, 0.1, 100, 100);
    assert_eq!(order, BreakerOrder::Open(Duration::from_secs(60)), "after {after} s");
    assert_eq!(statuses.breaker.past(at(statuses.now)), past.opened_again());
}

#[test]
fn statuses_that_say_nothing_new_while_bytes_fly_are_no_sign_of_life() {
    let mut statuses = Statuses::new();
    assert_eq!(statuses.until(1.0, 0.01, 10, 0).1, BreakerOrder::Go(0));
    let mut seen = Vec::new();
    for _ in 0..2100 {
        let order = statuses.hear(0.01, 0, 0);
        if !seen.contains(&order) {
            seen.push(order);
        }
    }
    assert_eq!(seen.first(), Some(&BreakerOrder::Go(0)));
    assert_eq!(seen[seen.len() - 2..], [BreakerOrder::Probe, BreakerOrder::Lost]);
}

/// 9 kB at 64 kB/s, halved six times, are a packet in 9 s: the time between two of them was taken
/// for a silence of the path, for good.
#[test]
fn a_thread_that_hears_answers_late_and_sends_seldom_has_its_rate_again_after_six_answers() {
    let mut statuses = Statuses::new();
    for _ in 0..50 {
        statuses.hear(0.01, 0, 0);
    }
    assert_eq!(statuses.hear(0.01, 0, 0), BreakerOrder::Go(6));
    for answers in 1..=6 {
        // It is heard when the thread wakes for its next turn.
        let order = statuses.hear(0.5, 1, 0);
        assert!(matches!(order, BreakerOrder::Go(halved) if halved <= 6 - answers), "{answers}: {order:?}");
    }
}

#[test]
fn the_time_between_seldom_packets_and_two_lost_ones_in_a_row_are_no_silence() {
    let mut breaker = UdpBreaker::new(at(0.0), ROUND_TRIP);
    breaker.begin_lane(at(0.0), LaneId(0));
    let mut statuses = Statuses { breaker, ..Statuses::new() };
    for _ in 0..20 {
        assert_eq!(statuses.hear(0.5, 1, 0), BreakerOrder::Go(0));
        for later in [0.3, 0.5] {
            statuses.breaker.handle_sent(at(statuses.now + later - 0.1));
            let order = statuses.breaker.poll_order(at(statuses.now + later));
            assert_eq!(order, BreakerOrder::Go(0), "two messages are owed an answer");
            statuses.breaker.handle_idle();
        }
    }
    statuses.breaker.handle_sent(at(statuses.now));
    for _ in 0..2 {
        statuses.breaker.handle_sent(at(statuses.now + 0.1));
    }
    assert_eq!(statuses.breaker.poll_order(at(statuses.now + 0.19)), BreakerOrder::Go(0));
    assert!(matches!(statuses.breaker.poll_order(at(statuses.now + 0.3)), BreakerOrder::Go(1..=6)));
}

#[test]
fn a_tenth_that_is_lost_by_chance_opens_nothing_and_a_fifth_does_of_60_packets_a_second_too() {
    for (loss, opens) in [(0.1, false), (0.2, true), (0.33, true)] {
        for (seed, packets) in (1..60).zip([60, 300, 3000].into_iter().cycle()) {
            let (mut statuses, mut dice) = (Statuses::over(ROUND_TRIP, PathShare::All), Dice(seed * 0x9E37_79B9));
            let mut is_open = false;
            for _ in 0..60 {
                let lost = (0..packets).filter(|_| dice.roll() < loss).count() as u32;
                is_open |= matches!(statuses.hear(1.0, packets - u64::from(lost), lost), BreakerOrder::Open(_));
            }
            assert_eq!(is_open, opens, "{loss} of {packets}, seed {seed}");
        }
    }
}

#[test]
fn lanes_that_were_lost_are_so_no_longer_when_they_have_ended() {
    let mut statuses = Statuses::new();
    statuses.hear(0.1, 10, 0);
    let breaker = &mut statuses.breaker;
    assert_eq!(breaker.poll_order(at(25.0)), BreakerOrder::Lost);
    breaker.remove_lane(LaneId(0));
    assert_eq!(breaker.poll_order(at(300.0)), BreakerOrder::Go(0));
    // A new one that hears nothing is lost again.
    breaker.begin_lane(at(400.0), LaneId(1));
    assert_eq!(breaker.poll_order(at(400.1)), BreakerOrder::Go(0));
    assert_eq!(breaker.poll_order(at(405.0)), BreakerOrder::Probe);
    assert_eq!(breaker.poll_order(at(421.0)), BreakerOrder::Lost);
}

#[test]
fn a_rate_of_few_packets_is_judged_too() {
    for (came, lost, seconds) in [(3400, 1000, 11.0), (14, 30, 11.0), (2, 2, 70.0)] {
        let (after, order) = Statuses::new().until(600.0, 1.0, came, lost);
        assert!(matches!(order, BreakerOrder::Open(_)) && after < seconds, "{came}, {lost}: {order:?} after {after}");
    }
    // Bad ones that are minutes apart are not in a row.
    let mut statuses = Statuses::new();
    for _ in 0..20 {
        assert_eq!(statuses.hear(1.1, 50, 50), BreakerOrder::Go(0));
        statuses.breaker.handle_idle();
        statuses.now += 120.0;
    }
}

/// The equation of RFC 8083 gives one TCP connection 6.1 packets a round trip at a loss of 0.23 x
/// 0.12: three of them are 770 packets/s.
#[test]
fn a_slow_line_that_loses_a_fifth_harms_nobody_and_one_that_loses_half_is_broken() {
    for (came, lost, opens) in [(34, 10, false), (280, 80, false), (900, 270, true), (34, 34, true)] {
        let (_, order) = Statuses::new().until(100.0, 1.0, came, lost);
        assert_eq!(matches!(order, BreakerOrder::Open(_)), opens, "{came}, {lost}: {order:?}");
    }
}

#[test]
fn neither_a_short_round_trip_nor_who_takes_all_is_taken_for_a_slow_line() {
    let short = Duration::from_micros(100);
    // 1,500 packets/s are more than three TCP connections would send over 10 ms.
    for (came, lost, opens) in [(500, 150, false), (1500, 450, true)] {
        let (_, order) = Statuses::over(short, PathShare::Fair).until(100.0, 1.0, came, lost);
        assert_eq!(matches!(order, BreakerOrder::Open(_)), opens, "{came}, {lost}: {order:?}");
    }
    let (_, order) = Statuses::over(ROUND_TRIP, PathShare::All).until(100.0, 1.0, 280, 80);
    assert!(matches!(order, BreakerOrder::Open(_)), "{order:?}");
}

#[test]
fn what_the_receivers_system_drops_is_not_lost_on_the_path_though_it_is_found_later() {
    for share in [0, 60] {
        let mut statuses = Statuses::new();
        let mut order = BreakerOrder::Go(0);
        for _ in 0..500 {
            statuses.counts.dropped += share;
            statuses.hear(0.01, 100, 0);
            order = statuses.hear(0.01, 100, 60);
        }
        assert_eq!(matches!(order, BreakerOrder::Open(_)), share == 0, "{share}: {order:?}");
    }
}

#[test]
fn totals_that_cannot_be_do_no_harm() {
    let mut statuses = Statuses::new();
    for came in [u64::MAX, 0, u64::MAX, 1] {
        statuses.counts.dropped = came as u32;
        statuses.hear(1.1, came, u32::MAX);
        statuses.counts = Counts::default();
    }
}

#[test]
fn openings_are_forgotten_after_good_minutes() {
    let mut statuses = Statuses::new();
    let mut spans = Vec::new();
    for good in [0.0, 0.0, 1300.0, 0.0] {
        statuses.until(good, 0.1, 100, 0);
        let (_, order) = statuses.until(20.0, 0.1, 50, 50);
        let BreakerOrder::Open(span) = order else { panic!("{order:?}") };
        spans.push(span.as_secs());
        statuses.now += span.as_secs_f64();
    }
    assert_eq!(spans, [30, 60, 30, 60]);
}
