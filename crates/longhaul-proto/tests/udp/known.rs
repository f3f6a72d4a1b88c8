//! Paths that an earlier session left, on the model of a line: true, too high, and of a line that
//! is slower, longer or shared by now. A first visit to the same line is what each is held against.

use longhaul_core::PathShare;
use longhaul_proto::udp::control::KnownRate;

use super::line::session::ControlMutant;
use super::line::{Case, LINE, Line, LineEvent, LineFigures, LineTwist, PACKET, play};

const ALWAYS: f64 = f64::INFINITY;
/// A session with a path that is known as it is.
const KNOWN: Case = Case { known: Some(LINE as u64), ..Case::ALONE };
const ROUND_TRIPS: [f64; 3] = [0.02, 0.1, 0.3];
const QUEUES: [f64; 2] = [0.25, 1.0];
const SEEDS: [u64; 3] = [1, 2, 3];

/// Bytes of the longest train.
const TRAIN_MOST: f64 = 2097152.0;

/// The figures of the first twelve round trips.
fn early(case: Case) -> LineFigures {
    play(Case { from: case.begin, to: case.begin + 12.0 * case.rtt, ..case })
}

/// The figures of a quarter of a minute, once a first visit has found its rate.
fn later(case: Case) -> LineFigures {
    let from = case.begin + 30.0 * case.rtt + 1.0;
    play(Case { from, to: from + 15.0, ..case })
}

fn first_visit(case: Case) -> Case {
    Case { known: None, ..case }
}

/// The promises to the path: hardly more is lost in the beginning than on a first visit and a
/// train, and the queue is hardly longer.
fn check_harm(case: Case) -> Result<(), String> {
    let (known, first) = (early(case), early(first_visit(case)));
    let train = (case.known.unwrap_or_default() as f64 / 2.0 * case.rtt / 8.0).min(TRAIN_MOST) / PACKET;
    let lost = known.packets_lost <= 1.6 * first.packets_lost + train + 100.0;
    let queue = known.longest <= (1.1 * first.longest).max(0.25 * case.rtt);
    if lost && queue { Ok(()) } else { Err(format!("{case:?}: {known:?}, on a first visit {first:?}")) }
}

/// All lines, whatever their round trip, queue and seed.
fn lines() -> impl Iterator<Item = Case> {
    let pairs = ROUND_TRIPS.into_iter().flat_map(|rtt| QUEUES.map(|queue| (rtt, queue)));
    pairs.flat_map(|(rtt, queue)| SEEDS.map(|seed| Case { rtt, queue, seed, ..KNOWN }))
}

#[test]
fn a_known_path_is_full_after_four_round_trips() {
    for line in lines() {
        for loss in [0.0, 1e-2] {
            let case = Case { loss, ..line };
            let (known, first) = (early(case), early(first_visit(case)));
            assert!(known.full_after <= 4.0 && first.full_after >= 8.0, "{case:?}: {known:?} {first:?}");
            assert!(known.ours[0] > 1.4 * first.ours[0], "{case:?}: {known:?} {first:?}");
            check_harm(case).expect("the promises to the path");
            // One of eight takes its own losses for those of others, for ten seconds, where a path
            // loses by itself and has a short queue.
            let later = later(case);
            let least = if loss > 0.0 && case.queue < 0.5 { 650.0 } else { 970.0 * (1.0 - loss) };
            assert!(later.ours[0] > least, "{case:?}: {later:?}");
        }
    }
}

#[test]
fn a_rate_that_is_up_to_a_hundred_times_too_high_harms_neither_the_path_nor_the_later_rate() {
    for line in lines() {
        for times in [2, 3, 4, 6, 10, 100] {
            let case = Case { known: Some(times * LINE as u64), ..line };
            check_harm(case).expect("the promises to the path");
            let later = later(case);
            let is_short = case.rtt > 0.2 || later.queue < 0.3 * case.rtt;
            assert!(later.ours[0] > 960.0 && is_short, "{times} times, {case:?}: {later:?}");
        }
    }
}

#[test]
fn a_rate_that_is_sent_before_a_train_has_shown_it_breaks_the_promises_to_the_path() {
    for line in lines() {
        let known = Some(10 * LINE as u64);
        let case = Case { known, mutant: Some(ControlMutant::TrustsKnown), ..line };
        assert!(check_harm(case).is_err(), "the planted bug is not found: {case:?}");
    }
}

#[test]
fn a_line_that_is_slower_by_now_is_found_out() {
    for line in lines() {
        for rate in [50e6, 12.5e6, 2.5e6] {
            let event = Some((0.0, ALWAYS, LineEvent::Slower(rate)));
            let case = Case { event, queue: line.queue * rate / LINE, ..line };
            check_harm(case).expect("the promises to the path");
            let (known, first) = (later(case), later(first_visit(case)));
            assert!(known.ours[0] > 0.85 * first.ours[0], "{rate}, {case:?}: {known:?} {first:?}");
        }
    }
}

#[test]
fn a_policer_below_the_known_rate_is_found_out() {
    for line in lines().filter(|line| line.queue > 0.5) {
        let case = Case { event: Some((0.0, ALWAYS, LineEvent::Policed(12.5e6))), ..line };
        let (known, first) = (early(case), early(first_visit(case)));
        assert!(known.packets_lost < 2.0 * first.packets_lost + 500.0, "{case:?}: {known:?} {first:?}");
        let later = later(case);
        assert!(later.ours[0] > 85.0, "{case:?}: {later:?}");
    }
}

#[test]
fn a_path_with_another_round_trip_is_a_first_visit() {
    for line in lines() {
        for rtt in [0.5 * line.rtt, 0.7 * line.rtt, 1.3 * line.rtt, 2.0 * line.rtt] {
            let case = Case { event: Some((0.0, ALWAYS, LineEvent::Reroute(rtt))), ..line };
            let (known, first) = (early(case), early(first_visit(case)));
            let figures = |of: &LineFigures| (of.ours[0], of.packets_lost, of.longest);
            assert_eq!(figures(&known), figures(&first), "{rtt} s, {case:?}");
        }
    }
}

#[test]
fn who_shares_a_known_path_by_now_keeps_a_fair_part() {
    for line in lines().filter(|line| line.rtt < 0.2) {
        let case = Case { cubics: 1, begin: 10.0, ..line };
        let (known, first) = (early(case), early(first_visit(case)));
        assert!(known.packets_lost <= 2.0 * first.packets_lost + 500.0, "{case:?}: {known:?} {first:?}");
        let figures = play(Case { from: 15.0, to: 60.0, ..case });
        let (ours, theirs) = (figures.ours[0], figures.cubic);
        assert!(ours >= 300.0 && (260.0..=700.0).contains(&theirs), "{case:?}: {figures:?}");
    }
}

#[test]
fn a_source_that_has_little_says_nothing_of_a_known_rate() {
    for (rtt, times) in [(0.02, 1), (0.02, 10), (0.1, 1), (0.1, 10)] {
        let source = Some((0.0, 3.0, 2e6));
        let mut line = Line::new(Case { rtt, source, known: Some(times * LINE as u64), ..KNOWN });
        line.play(2.9);
        let control = line.control(0);
        assert_eq!((control.known_rate(), control.finding()), (KnownRate::Unused, None), "{times} times, {rtt} s");
        assert_eq!(line.figures().packets_lost, 0.0, "{rtt} s");
    }
}

#[test]
fn a_receiver_whose_system_drops_a_train_says_nothing_of_a_known_rate() {
    for rtt in [0.02, 0.1] {
        let twist = Some(LineTwist::Drops(0.0, 3.0, 20e6));
        let mut line = Line::new(Case { rtt, twist, ..KNOWN });
        line.play(2.9);
        let known = line.control(0).known_rate();
        assert!(!matches!(known, KnownRate::Wrong(_)), "{rtt} s: {known:?}");
        assert_eq!(line.control(0).finding(), None, "{rtt} s");
        line.play(60.0);
        let found = line.control(0).finding().map_or(0.0, |found| found.rate as f64);
        assert!(found > 0.97 * LINE, "{rtt} s: {found}");
    }
}

#[test]
fn a_lane_that_has_nothing_to_send_beside_another_one_excuses_no_known_rate() {
    for rtt in [0.02, 0.1] {
        let case = Case { rtt, known: Some(10 * LINE as u64), twist: Some(LineTwist::IdleLane), ..KNOWN };
        let mut line = Line::new(case);
        line.play(2.9);
        let known = line.control(0).known_rate();
        assert!(matches!(known, KnownRate::Wrong(_)), "{rtt} s: {known:?}");
    }
}

/// The rate that a session leaves to the next one, in Mbit/s. 0 if none.
fn left(case: Case, seconds: f64) -> f64 {
    let mut line = Line::new(case);
    line.play(seconds);
    line.control(0).finding().map_or(0.0, |found| {
        assert!(found.round_trip.as_secs_f64() < 1.1 * case.rtt, "{case:?}: {found:?}");
        found.rate as f64 * 8e-6
    })
}

#[test]
fn a_session_leaves_what_the_path_carried_and_no_less_than_was_known_unless_that_was_wrong() {
    let slow = Some((0.0, ALWAYS, LineEvent::Slower(25e6)));
    let idle = Case { source: Some((0.0, ALWAYS, 2e6)), ..Case::ALONE };
    for rtt in [0.02, 0.1] {
        let rates = [
            (Case::ALONE, 980.0..1010.0),
            (KNOWN, 980.0..1010.0),
            (Case { event: slow, ..Case::ALONE }, 190.0..205.0),
            (Case { event: slow, ..KNOWN }, 190.0..205.0),
            // A first visit leaves whatever it has; another one only more than that.
            (idle, 10.0..40.0),
            (Case { known: Some(1_000_000), ..idle }, 10.0..40.0),
            (Case { known: Some(6_000_000), ..idle }, 0.0..0.1),
            (Case { share: PathShare::Polite, cubics: 1, ..KNOWN }, 0.0..0.1),
            (Case { ceiling: Some(25_000_000), ..KNOWN }, 0.0..0.1),
            // A rate that was asked for says what was asked for.
            (Case { ceiling: Some(25_000_000), ..Case::ALONE }, 0.0..0.1),
            (Case { ceiling: Some(25_000_000), share: PathShare::All, ..KNOWN }, 0.0..0.1),
            (Case { ceiling: Some(250_000_000), ..Case::ALONE }, 980.0..1010.0),
            // Who gives way to others takes back nothing that is known.
            (Case { share: PathShare::Polite, event: slow, ..KNOWN }, 0.0..0.1),
        ];
        for (case, expected) in rates {
            let rate = left(Case { rtt, ..case }, 20.0);
            assert!(expected.contains(&rate), "{rtt} s, {case:?}: {rate}");
        }
    }
}

#[test]
fn a_known_rate_is_tried_under_a_ceiling_and_by_a_polite_session_too() {
    for rtt in [0.02, 0.1] {
        let polite = Case { rtt, share: PathShare::Polite, ..KNOWN };
        assert!(early(polite).ours[0] > 2.0 * early(first_visit(polite)).ours[0], "{rtt} s");
        check_harm(Case { known: Some(10 * LINE as u64), ..polite }).expect("the promises to the path");
        let capped = early(Case { rtt, ceiling: Some(25_000_000), ..KNOWN });
        assert!(capped.ours[0] > 140.0 && capped.packets_lost == 0.0, "{rtt} s: {capped:?}");
    }
}

#[test]
fn bunches_and_lost_statuses_do_not_make_a_known_rate_wrong() {
    for (rtt, each) in [(0.02, 0.001), (0.1, 0.005)] {
        let case = Case { rtt, twist: Some(LineTwist::Rough(each, 0.1)), ..KNOWN };
        let (known, first) = (early(case), early(first_visit(case)));
        assert!(known.ours[0] > 1.3 * first.ours[0], "{rtt} s: {known:?} {first:?}");
    }
}

#[test]
fn what_was_carried_last_time_is_carried_again_without_a_long_queue() {
    for line in lines().filter(|line| line.queue == 1.0) {
        for (known, least, longest) in [(LINE, 820.0, 0.45), (LINE / 2.0, 740.0, 0.45), (LINE / 10.0, 500.0, 1.1)] {
            let case = Case { from: 0.0, to: 20.0 * line.rtt, known: Some(known as u64), ..line };
            let (known, first) = (play(case), play(first_visit(case)));
            let is_short = known.longest < longest * line.rtt && first.longest > 0.8 * line.rtt;
            assert!(
                is_short && (known.packets_lost == 0.0 || longest > 1.0),
                "{case:?}: {known:?}, on a first visit {first:?}"
            );
            assert!(known.ours[0] > least, "{case:?}: {known:?}");
        }
    }
}
