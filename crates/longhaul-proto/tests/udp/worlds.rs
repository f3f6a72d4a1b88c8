//! Paths and ends that are not as usual, for the control of UDP lanes and its breaker on the model
//! of a line: slow and narrow paths, policers, uneven losses, bursts, a receiver that drops.

use longhaul_core::PathShare;
use longhaul_proto::udp::control::UdpRateLimit;

use super::line::{Case, LINE, Line, LineEvent, LineFigures, LineTwist};

const ALWAYS: f64 = f64::INFINITY;
/// Mbit/s of a byte/s.
const MBIT: f64 = 8e-6;

/// Plays a case to its end. The breaker may not open in it.
fn play(case: Case) -> LineFigures {
    let mut line = Line::new(case);
    line.play(case.to);
    let broken = line.sessions[0].broken;
    assert!(broken.is_infinite(), "the breaker opened after {broken} s: {case:?}");
    line.figures()
}

#[test]
fn a_policer_of_few_packets_is_kept_too() {
    for rtt in [0.001, 0.005, 0.02, 0.1] {
        for rate in [1.25e6, 5e6, 12.5e6, 50e6] {
            let event = Some((0.0, ALWAYS, LineEvent::Policed(rate)));
            let figures = play(Case { rtt, event, ..Case::ALONE });
            let is_kept = figures.ours[0] > 0.9 * rate * MBIT && figures.lost < 0.09;
            assert!(is_kept, "{rtt} s, {} Mbit/s: {figures:?}", rate * MBIT);
        }
    }
    for rtt in [0.001, 0.005, 0.02, 0.1] {
        let event = Some((0.0, ALWAYS, LineEvent::Policed(0.125e6)));
        // The least rate is near to that of the policer, or above it.
        for lanes in [1, 2] {
            let figures = play(Case { rtt, event, lanes, ..Case::ALONE });
            let most = if rtt == 0.02 { 0.4 } else { 0.2 };
            assert!(figures.ours[0] > 0.7 && figures.lost < most, "{rtt} s, {lanes}, 1 Mbit/s: {figures:?}");
        }
    }
}

#[test]
fn a_slow_line_with_a_queue_of_ten_packets_is_filled() {
    for rtt in [0.005, 0.02, 0.1] {
        for (rate, loss) in
            [(0.25e6, 0.0), (0.25e6, 0.01), (1.25e6, 0.0), (1.25e6, 0.01), (12.5e6, 0.0), (12.5e6, 0.01)]
        {
            let event = Some((0.0, ALWAYS, LineEvent::Slower(rate)));
            let case = Case { rtt, loss, queue: rate / LINE, event, from: 20.0, to: 60.0, ..Case::ALONE };
            let figures = play(case);
            assert!(figures.ours[0] > 0.9 * rate * MBIT, "{rtt} s, {} Mbit/s, {loss}: {figures:?}", rate * MBIT);
        }
    }
}

#[test]
fn a_path_that_becomes_narrower_by_five_keeps_its_lanes_and_soon_a_short_queue() {
    for (rtt, queue) in [(0.02, 0.25), (0.02, 1.0), (0.1, 0.25), (0.1, 1.0)] {
        for rate in [25e6, 50e6, 100e6] {
            let event = Some((15.0, ALWAYS, LineEvent::Slower(rate)));
            let figures = play(Case { rtt, queue, event, from: 60.0, to: 90.0, ..Case::ALONE });
            let is_short = figures.queue < 0.4 * rtt + 0.002 && figures.ours[0] > 0.95 * rate * MBIT;
            assert!(is_short, "{rtt} s, {queue}, {} Mbit/s: {figures:?}", rate * MBIT);
        }
    }
}

#[test]
fn a_path_that_becomes_longer_is_no_queue_for_long() {
    for (rtt, longer) in [(0.02, 0.005), (0.02, 0.03), (0.02, 0.1), (0.1, 0.005), (0.1, 0.03), (0.1, 0.1)] {
        let event = Some((15.0, ALWAYS, LineEvent::Reroute(rtt + longer)));
        let figures = play(Case { rtt, event, from: 25.0, to: 35.0, ..Case::ALONE });
        assert!(figures.ours[0] > 900.0, "{rtt} s and {longer} s more: {figures:?}");
    }
}

/// A polite session has far less where a hundredth is lost in bursts that are shorter than a round.
#[test]
fn uneven_loss_costs_little_more_than_even_loss() {
    for rtt in [0.02, 0.1] {
        for (each, span, loss) in
            [(2.0, 1.0, 0.03), (10.0, 1.0, 0.05), (1.0, 0.1, 0.1), (5.0, 0.05, 0.5), (0.3, 0.03, 0.1)]
        {
            let event = Some((10.0, ALWAYS, LineEvent::LossyAtTimes(each, span, loss)));
            let figures = play(Case { rtt, event, from: 30.0, to: 70.0, ..Case::ALONE });
            assert!(figures.ours[0] > 550.0, "{rtt} s, {loss} for {span} s of each {each}: {figures:?}");
            if each > 1.0 {
                let figures = play(Case { rtt, event, share: PathShare::Polite, from: 30.0, to: 70.0, ..Case::ALONE });
                assert!(figures.ours[0] > 800.0, "polite, {rtt} s, {loss}, {span} s of {each}: {figures:?}");
            }
        }
    }
}

/// At 100 ms, where a burst is no longer than a round trip, a policer that makes the path narrower
/// by ten may still open the breaker.
#[test]
fn bursts_of_a_slow_source_are_judged() {
    let (slower, policed) = (LineEvent::Slower(12.5e6), LineEvent::Policed(12.5e6));
    for (rtt, event, lost) in [(0.02, slower, 0.03), (0.02, policed, 0.07), (0.1, slower, 0.03)] {
        let twist = Some(LineTwist::Bursts(1.5, 8e6));
        let event = Some((20.0, ALWAYS, event));
        let figures = play(Case { rtt, queue: 0.1, twist, event, from: 30.0, to: 80.0, ..Case::ALONE });
        assert!(figures.ours[0] > 35.0 && figures.lost < lost, "{rtt} s, {event:?}: {figures:?}");
    }
}

#[test]
fn a_receiver_that_drops_is_kept_to_what_it_takes_and_a_moment_of_it_costs_seconds() {
    for rtt in [0.02, 0.1] {
        let always =
            Case { rtt, twist: Some(LineTwist::Drops(15.0, ALWAYS, 62.5e6)), from: 20.0, to: 60.0, ..Case::ALONE };
        let mut line = Line::new(always);
        line.play(60.0);
        assert!(line.sessions[0].broken.is_infinite(), "{rtt} s");
        assert_eq!(line.control(0).limit(), UdpRateLimit::Receiver, "{rtt} s");
        assert!(line.control(0).own_loss() < 0.01, "{rtt} s: {}", line.control(0).own_loss());
        let sent = line.figures().ours[0];
        assert!((400.0..560.0).contains(&sent), "{rtt} s: {sent}");
        let moment = Case { rtt, twist: Some(LineTwist::Drops(15.0, 15.3, 10e6)), from: 21.0, to: 25.0, ..Case::ALONE };
        let figures = play(moment);
        assert!(figures.ours[0] > 700.0, "{rtt} s: {figures:?}");
    }
}

#[test]
fn drops_while_the_rate_still_grows_do_not_hold_it_to_what_was_sent_a_second_before() {
    for (rtt, full, least) in [(0.02, 0.14, 900.0), (0.1, 0.85, 600.0)] {
        let twist = Some(LineTwist::Drops(full, full + 2.0 * rtt, 60e6));
        let figures = play(Case { rtt, twist, from: full + 2.0, to: full + 5.0, ..Case::ALONE });
        assert!(figures.ours[0] > least, "{rtt} s: {figures:?}");
    }
}

#[test]
fn the_round_trip_of_the_join_is_forgotten_at_the_first_that_is_measured() {
    for rtt in [0.02, 0.1] {
        for join in [0.05, 0.5, 1.5, 3.0] {
            let twist = Some(LineTwist::Join(join));
            let figures = play(Case { rtt, twist, from: 1.5, to: 11.5, ..Case::ALONE });
            let is_good = figures.ours[0] > 960.0 && figures.queue < 0.3 * rtt && figures.lost < 0.01;
            assert!(is_good, "{rtt} s, {join}: {figures:?}");
        }
    }
}

/// A session that was there first claims half of the path when a cubic flow comes, though its join
/// took longer than the path: that is no queue of others.
#[test]
fn a_join_that_took_long_is_no_sign_of_others_who_were_there_before() {
    for (rtt, queue) in [(0.02, 1.0), (0.1, 1.0)] {
        for join in [1.0, 1.5, 3.0] {
            let twist = Some(LineTwist::Join(join));
            let case = Case { rtt, queue, twist, cubics: 1, cubic_begin: 10.0, ..Case::ALONE };
            let figures = play(Case { from: 15.0, to: 60.0, ..case });
            let (ours, theirs) = (figures.ours[0], figures.cubic);
            assert!(ours >= 300.0 && theirs >= 330.0, "{rtt} s, {queue}, {join}: {figures:?}");
        }
    }
}

#[test]
fn a_lane_that_comes_late_or_is_idle_hides_no_other_flow_and_large_datagrams_take_no_more() {
    for rtt in [0.02, 0.1] {
        for twist in [LineTwist::LateLane(30.0), LineTwist::IdleLane, LineTwist::Large(30.0)] {
            let case = Case { rtt, twist: Some(twist), cubics: 1, begin: 10.0, from: 30.0, to: 60.0, ..Case::ALONE };
            let figures = play(case);
            let (ours, theirs) = (figures.ours[0], figures.cubic);
            assert!(ours >= 300.0 && (300.0..=700.0).contains(&theirs), "{rtt} s, {twist:?}: {figures:?}");
        }
    }
}

#[test]
fn datagrams_of_another_size_do_not_change_a_rate_that_is_a_window() {
    for rtt in [0.02, 0.1] {
        let rates = [None, Some(LineTwist::Large(30.0))].map(|twist| {
            let case = Case { rtt, twist, cubics: 1, cubic_begin: 10.0, to: 30.3, ..Case::ALONE };
            let mut line = Line::new(case);
            let mut most = 0;
            for tenth in 300..303 {
                line.play(f64::from(tenth) / 10.0);
                most = most.max(line.control(0).rate());
            }
            most as f64
        });
        assert!(rates[1] < 1.2 * rates[0], "{rtt} s: {rates:?}");
    }
}

#[test]
fn packets_in_bunches_and_lost_statuses_cost_little() {
    for (rtt, each) in [(0.02, 0.002), (0.02, 0.005), (0.1, 0.005), (0.1, 0.02)] {
        for loss in [0.0, 0.01] {
            let twist = Some(LineTwist::Rough(each, 0.2));
            let figures = play(Case { rtt, loss, twist, ..Case::ALONE });
            assert!(figures.ours[0] > 900.0, "{rtt} s, bunches of {each} s, {loss}: {figures:?}");
            let beside = Case { rtt, twist, cubics: 1, begin: 10.0, from: 15.0, to: 60.0, ..Case::ALONE };
            let figures = play(beside);
            assert!(figures.ours[0] > 250.0 && figures.cubic > 250.0, "{rtt} s, bunches of {each} s: {figures:?}");
        }
    }
}

/// A path carries a 200th for the first ten round trips. The mean is that of the hundred from the
/// fortieth on, and the longest queue that of the growth.
#[test]
fn a_path_that_was_slow_while_it_was_looked_for_is_looked_for_again_but_by_polite_sessions() {
    for (rtt, queue, seed) in lines() {
        let slow = Some((0.0, 10.0 * rtt, LineEvent::Slower(LINE / 200.0)));
        let (from, to) = (40.0 * rtt, 140.0 * rtt);
        let fair = Case { rtt, queue, seed, event: slow, from, to, ..Case::ALONE };
        let (fair, polite) = (play(fair), play(Case { share: PathShare::Polite, ..fair }));
        // By steps of 8 % it is 590 to 645.
        assert!(fair.ours[0] > 700.0, "{rtt} s, {queue}, {seed}: {fair:?}");
        assert!(fair.lost < 0.015 && fair.longest < 0.9 * rtt, "{rtt} s, {queue}, {seed}: {fair:?}");
        assert!(polite.ours[0] < 200.0, "{rtt} s, {queue}, {seed}: {polite:?}");
    }
}

/// Long paths: on a short one a round is over too soon for it to matter.
fn lines() -> impl Iterator<Item = (f64, f64, u64)> {
    let pairs = [0.1, 0.2].into_iter().flat_map(|rtt| [0.1, 0.25, 1.0].map(|queue| (rtt, queue)));
    pairs.flat_map(|(rtt, queue)| [1, 2, 3].map(|seed| (rtt, queue, seed)))
}
