//! The circuit breaker of UDP lanes on the model of a line.

use std::time::Duration;

use longhaul_core::PathShare;
use longhaul_proto::Timestamp;
use longhaul_proto::udp::breaker::{BreakerOrder, UdpBreaker};

use super::line::session::ControlMutant;
use super::line::{Case, LINE, Line, LineEvent, at};

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
        breaker.handle_idle(at(f64::from(second)));
        assert_eq!(breaker.poll_order(at(f64::from(second) + 0.1)), BreakerOrder::Go(0));
    }
}
