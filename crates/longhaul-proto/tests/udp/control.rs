//! The control of UDP lanes on the model of a line: the figures of docs/DECISIONS.md as lower and
//! upper bounds, and planted bugs that they find.

use longhaul_core::PathShare;
use longhaul_proto::udp::control::{UdpPhase, UdpRateLimit};

use super::line::session::ControlMutant;
use super::line::{Case, LINE, Line, LineEvent, LineFigures, play};

/// One cubic flow beside a session, in seconds that are 15 to 60.
const BESIDE: Case = Case { cubics: 1, begin: 10.0, from: 15.0, to: 60.0, ..Case::ALONE };

/// The promises of a session that is alone: goodput, the queue it keeps, the packets it loses in
/// it, and the round trips of its start.
fn check_alone(case: Case, rounds: f64) -> Result<(), String> {
    let case = Case { from: 100.0 * case.rtt, to: 100.0 * case.rtt + 30.0, ..case };
    let figures = play(case);
    let goodput = figures.ours[0] > 980.0 * (1.0 - case.loss);
    let queue = case.rtt > 0.2 || figures.queue < 0.3 * case.rtt;
    let lost = figures.lost < case.loss + 0.002;
    let start = figures.full_after <= rounds;
    if goodput && queue && lost && start { Ok(()) } else { Err(format!("{case:?}: {figures:?}")) }
}

#[test]
fn alone_a_session_fills_a_path_whatever_that_loses_and_keeps_its_queue_short() {
    for (rtt, rounds) in [(0.02, 9.0), (0.1, 9.0), (0.3, 10.0)] {
        for loss in [0.0, 1e-2, 3e-2] {
            check_alone(Case { rtt, loss, ..Case::ALONE }, rounds).expect("the promises of a session alone");
        }
    }
}

#[test]
fn a_queue_too_short_for_what_is_aimed_at_costs_little() {
    for (rtt, queue) in [(0.001, 1.0), (0.02, 0.05), (0.02, 0.1), (0.02, 0.25), (0.1, 0.05), (0.1, 0.1), (0.1, 0.25)] {
        let figures = play(Case { rtt, queue, ..Case::ALONE });
        assert!(figures.ours[0] > 940.0 && figures.lost < 0.01, "{rtt} s, {queue}: {figures:?}");
    }
}

#[test]
fn a_round_trip_of_a_second_and_a_half_is_no_obstacle() {
    for loss in [0.0, 1e-2] {
        let figures = play(Case { rtt: 1.5, loss, from: 60.0, to: 120.0, ..Case::ALONE });
        assert!(figures.ours[0] > 960.0 && figures.queue < 0.45, "{loss}: {figures:?}");
    }
}

/// Whether a session has a fair part beside a cubic flow, which has so much at least.
fn is_fair(figures: &LineFigures, least: f64) -> bool {
    let (ours, theirs) = (figures.ours[0], figures.cubic);
    ours >= 300.0 && (least..=700.0).contains(&theirs) && ours + theirs > 930.0
}

/// A cubic flow has 300 to 700 of 1000 Mbit/s, and so has the session; but one that comes later to
/// a queue of a quarter of 100 ms has 260 at least.
#[test]
fn beside_a_cubic_flow_each_has_a_fair_part_whoever_came_first() {
    for (rtt, queue) in QUEUES.into_iter().chain(DEEP_QUEUES) {
        for seed in SEEDS {
            let later = Case { rtt, queue, seed, ..BESIDE };
            let first = Case { begin: 0.0, cubic_begin: 10.0, ..later };
            for case in [later, first] {
                let figures = play(case);
                let least = if case.begin == 0.0 && rtt > 0.05 && queue < 0.5 { 260.0 } else { 300.0 };
                assert!(
                    is_fair(&figures, least),
                    "{rtt} s, {queue}, seed {seed}, ours begins at {}: {figures:?}",
                    case.begin
                );
            }
        }
    }
}

/// The part of 1000 Mbit/s that a session may have beside a flow under BBR, over a round trip and
/// a queue.
struct MetBbr {
    rtt: f64,
    queue: f64,
    ours: std::ops::Range<f64>,
}

/// The part of a session beside a flow under BBR that was there first, or came later: the first
/// promise that it breaks.
fn check_beside_bbr(met: &MetBbr, case: Case) -> Result<(), String> {
    let figures = play(Case { rtt: met.rtt, queue: met.queue, cubics: 0, bbrs: 1, ..case });
    let (ours, theirs) = (figures.ours[0], figures.bbr);
    let is_within = met.ours.contains(&ours) && ours + theirs > 960.0;
    // Whoever overfills a short queue must not be what both lose by.
    let is_kind = figures.lost < 0.02;
    if is_within && is_kind { Ok(()) } else { Err(format!("{} s, {}, {case:?}: {figures:?}", met.rtt, met.queue)) }
}

/// BBR's first version yields to nobody: in short queues it leaves a cubic flow in the session's
/// place 38 to 180 of 1000. A session that comes later to 100 ms takes its queue for the path's own
/// round trip, and has 33 at least: that is not solved.
#[test]
fn beside_a_flow_under_bbr_a_session_has_a_part_and_leaves_the_rest() {
    for met in MET_BBRS {
        for seed in SEEDS {
            let first = Case { begin: 0.0, cubic_begin: 10.0, seed, ..BESIDE };
            check_beside_bbr(&met, first).expect("a part beside BBR that came later");
            let least = if met.rtt > 0.05 && met.queue >= 1.0 { 15.0 } else { met.ours.start };
            let later = MetBbr { ours: least..met.ours.end, ..met };
            check_beside_bbr(&later, Case { seed, ..BESIDE }).expect("a part beside BBR that was there");
        }
    }
}

#[test]
fn when_a_cubic_flow_ends_a_fair_session_takes_its_place() {
    for (rtt, queue) in [(0.02, 0.25), (0.1, 0.25), (0.02, 1.0), (0.1, 1.0)] {
        let figures = play(Case { rtt, queue, cubic_end: 30.0, from: 40.0, to: 50.0, ..BESIDE });
        assert!(figures.ours[0] > 900.0, "{rtt} s, {queue}: {figures:?}");
    }
}

#[test]
fn a_polite_session_leaves_a_cubic_flow_what_that_has_alone_and_takes_all_when_it_ends() {
    for (rtt, queue) in QUEUES {
        for seed in SEEDS {
            let beside = Case { rtt, queue, seed, share: PathShare::Polite, ..BESIDE };
            let (polite, alone) = (play(beside), play(Case { sessions: 0, ..beside }));
            assert!(polite.cubic > 0.9 * alone.cubic, "{rtt} s, {queue}, seed {seed}: {polite:?} {alone:?}");
            let after = play(Case { cubic_end: 30.0, from: 40.0, to: 50.0, ..beside });
            assert!(after.ours[0] > 950.0, "{rtt} s, {queue}, seed {seed}: {after:?}");
        }
    }
}

/// By the steps of a session that shares the path it had 42 to 380 Mbit/s of these ten seconds,
/// where the round trip is long.
#[test]
fn a_polite_session_that_had_next_to_nothing_has_the_path_ten_seconds_after_the_others_left() {
    for (rtt, queue) in QUEUES {
        for seed in SEEDS {
            let beside = Case { rtt, queue, seed, cubics: 10, share: PathShare::Polite, ..BESIDE };
            let before = play(Case { from: 20.0, to: 30.0, ..beside });
            assert!(before.ours[0] < 50.0, "{rtt} s, {queue}, seed {seed}: {before:?}");
            let after = play(Case { cubic_end: 30.0, from: 40.0, to: 50.0, ..beside });
            assert!(after.ours[0] > 850.0, "{rtt} s, {queue}, seed {seed}: {after:?}");
        }
    }
}

/// Jain's index of two rates.
fn jain(figures: &LineFigures) -> f64 {
    let (sum, squares) = figures.ours.iter().fold((0.0, 0.0), |(sum, squares), one| (sum + one, squares + one * one));
    sum * sum / (squares * figures.ours.len() as f64)
}

/// Jain's index is 0.95 at least; but in a queue of 5 ms it may be 0.75.
#[test]
fn two_sessions_share_a_path() {
    for (rtt, queue) in QUEUES {
        for seed in SEEDS {
            let figures = play(Case { rtt, queue, seed, sessions: 2, from: 15.0, to: 60.0, ..Case::ALONE });
            let sum: f64 = figures.ours.iter().sum();
            let least = if queue * rtt < 0.01 { 0.75 } else { 0.95 };
            let index = jain(&figures);
            assert!(index >= least && sum > 930.0, "{rtt} s, {queue}, seed {seed}: {index} of {figures:?}");
        }
    }
}

/// A session has one control, whatever its lanes are: each of sixteen would take a flow's part.
#[test]
fn sixteen_lanes_take_the_part_of_one() {
    for (rtt, queue) in [(0.02, 1.0), (0.1, 0.25)] {
        let [one, sixteen] = [1, 16].map(|lanes| play(Case { rtt, queue, lanes, ..BESIDE }));
        let is_fair = sixteen.cubic >= 300.0 && sixteen.ours[0] >= 300.0;
        assert!(is_fair && sixteen.ours[0] < 1.3 * one.ours[0], "{rtt} s, {queue}: {one:?} {sixteen:?}");
    }
}

/// It has up to twice its part in a queue of 20 ms, and more in others: that is not solved.
#[test]
fn ten_cubic_flows_leave_a_session_its_part_however_long_it_lasts() {
    for (rtt, queue) in QUEUES {
        for seed in SEEDS {
            let ten = Case { rtt, queue, seed, cubics: 10, begin: 10.0, from: 20.0, to: 60.0, ..Case::ALONE };
            let long = Case { begin: 0.0, cubic_begin: 10.0, from: 160.0, to: 200.0, ..ten };
            // The long one is long to play.
            for case in [ten, long].into_iter().take(if seed == 1 { 2 } else { 1 }) {
                let ours = play(case).ours[0];
                let most = if queue < 1.0 || rtt > 0.05 { TAKEN_MOST } else { 2.0 * FAIR_OF_ELEVEN };
                // For long it is one seed alone, and of five it had 0.6 to 1.2 of its part.
                let least = if case.begin == 0.0 { 0.55 } else { 0.7 };
                assert!((least * FAIR_OF_ELEVEN..most).contains(&ours), "{rtt} s, {queue}, seed {seed}: {ours}");
            }
        }
    }
}

#[test]
fn a_policer_is_found_and_kept_and_is_not_taken_for_loss_of_the_path() {
    for rtt in [0.02, 0.1] {
        let event = Some((0.0, f64::INFINITY, LineEvent::Policed(50e6)));
        let figures = play(Case { rtt, event, ..Case::ALONE });
        assert!(figures.ours[0] > 360.0 && figures.lost < 0.02, "{rtt} s: {figures:?}");
    }
}

#[test]
fn a_source_that_gives_less_for_ten_seconds_does_not_lower_the_rate() {
    for (rtt, share) in [(0.02, PathShare::Fair), (0.1, PathShare::Fair), (0.1, PathShare::Polite)] {
        let case = Case { rtt, share, source: Some((10.0, 20.0, 20e6)), ..Case::ALONE };
        let mut line = Line::new(Case { from: 20.0 + 2.0 * rtt, to: 22.0, ..case });
        line.play(19.0);
        assert_eq!(line.control(0).limit(), UdpRateLimit::Source, "{rtt} s");
        line.play(22.0);
        let figures = line.figures();
        assert!(figures.ours[0] > 900.0, "{rtt} s, {share:?}: {figures:?}");
    }
}

#[test]
fn an_outage_of_three_seconds_is_over_ten_round_trips_later() {
    for rtt in [0.02, 0.1] {
        let event = Some((15.0, 18.0, LineEvent::Outage));
        let from = 18.0 + 10.0 * rtt + 0.3;
        let mut line = Line::new(Case { rtt, event, from, to: from + 5.0, ..Case::ALONE });
        line.play(17.9);
        assert!(line.sessions[0].rate() < LINE / 32.0);
        line.play(from + 5.0);
        let figures = line.figures();
        assert!(figures.ours[0] > 950.0, "{rtt} s: {figures:?}");
    }
}

#[test]
fn a_path_that_becomes_longer_or_slower_is_filled_again() {
    for rtt in [0.02, 0.1] {
        let longer = Some((15.0, f64::INFINITY, LineEvent::Reroute(rtt + 0.03)));
        let figures = play(Case { rtt, event: longer, from: 30.0, to: 40.0, ..Case::ALONE });
        assert!(figures.ours[0] > 900.0, "{rtt} s: {figures:?}");
        let polite = Case { rtt, event: longer, share: PathShare::Polite, from: 45.0, to: 55.0, ..Case::ALONE };
        let figures = play(polite);
        assert!(figures.ours[0] > 900.0, "polite, {rtt} s: {figures:?}");
        let slower = Some((15.0, f64::INFINITY, LineEvent::Slower(50e6)));
        let figures = play(Case { rtt, event: slower, from: 20.0, to: 40.0, ..Case::ALONE });
        assert!(figures.ours[0] > 390.0, "slower, {rtt} s: {figures:?}");
    }
}

#[test]
fn a_rate_that_was_asked_for_is_a_ceiling_and_under_all_it_is_held() {
    for rtt in [0.02, 0.1] {
        let ceiling = Some(50_000_000);
        let mut line = Line::new(Case { rtt, ceiling, ..Case::ALONE });
        line.play(40.0);
        let figures = line.figures();
        assert!((395.0..=401.0).contains(&figures.ours[0]) && figures.lost == 0.0, "{rtt} s: {figures:?}");
        assert_eq!((line.control(0).limit(), line.control(0).phase()), (UdpRateLimit::Ceiling, UdpPhase::Steady));
        let all = Case { rtt, share: PathShare::All, ceiling: Some(110_000_000), loss: 3e-2, ..BESIDE };
        let figures = play(all);
        assert!(figures.ours[0] > 840.0, "all, {rtt} s: {figures:?}");
    }
}

#[test]
fn each_planted_bug_is_found() {
    let found = |mutant, loss| check_alone(Case { mutant: Some(mutant), loss, ..Case::ALONE }, 9.0).is_err();
    assert!(found(ControlMutant::NeverLeavesStart, 0.0));
    assert!(found(ControlMutant::IgnoresOwnLoss, 1e-2));
    let event = Some((0.0, f64::INFINITY, LineEvent::Policed(50e6)));
    let policed = play(Case { mutant: Some(ControlMutant::IgnoresLoss), event, ..Case::ALONE });
    assert!(policed.lost > 0.02, "{policed:?}");
    let never = Case { begin: 0.0, cubic_begin: 10.0, mutant: Some(ControlMutant::NeverLeavesStart), ..BESIDE };
    for (rtt, queue) in DEEP_QUEUES {
        let beside = play(Case { rtt, queue, ..never });
        assert!(!is_fair(&beside, 300.0), "{rtt} s, {queue}: {beside:?}");
    }
    let found = MET_BBRS.iter().filter(|met| check_beside_bbr(met, never).is_err());
    assert_eq!(found.count(), MET_BBRS.len(), "beside BBR");
}

/// Round trips, and queues as a part of them.
const QUEUES: [(f64, f64); 4] = [(0.02, 0.25), (0.1, 0.25), (0.02, 1.0), (0.1, 1.0)];
const DEEP_QUEUES: [(f64, f64); 2] = [(0.02, 4.0), (0.1, 4.0)];
const MET_BBRS: [MetBbr; 6] = [
    MetBbr { rtt: 0.02, queue: 0.25, ours: 40.0..250.0 },
    MetBbr { rtt: 0.1, queue: 0.25, ours: 150.0..400.0 },
    MetBbr { rtt: 0.02, queue: 1.0, ours: 80.0..450.0 },
    MetBbr { rtt: 0.1, queue: 1.0, ours: 150.0..450.0 },
    MetBbr { rtt: 0.02, queue: 4.0, ours: 150.0..750.0 },
    MetBbr { rtt: 0.1, queue: 4.0, ours: 300.0..650.0 },
];
const SEEDS: [u64; 3] = [1, 2, 3];
/// A fair part beside ten others, and what a session has at most, in Mbit/s.
const FAIR_OF_ELEVEN: f64 = 1000.0 / 11.0;
const TAKEN_MOST: f64 = 450.0;
