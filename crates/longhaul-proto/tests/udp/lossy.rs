//! Paths that lose a tenth of all packets by chance, for the control of UDP lanes and its breaker
//! on the model of a line: where few packets go in a round, and after a silence.

use longhaul_core::PathShare;

use super::line::{Case, LINE, Line, LineEvent, LineTwist};

/// Mbit/s of a byte/s.
const MBIT: f64 = 8e-6;

/// The part of what it may have that a session has. The breaker may not open.
fn part_of(rate: f64, case: Case) -> f64 {
    let mut line = Line::new(Case { rtt: 0.04, lanes: 1, share: PathShare::Fair, ..case });
    line.play(case.to);
    let broken = line.sessions[0].broken;
    assert!(broken.is_infinite(), "the breaker opened after {broken} s: {case:?}");
    line.figures().ours[0] / (rate * MBIT)
}

/// At 20 Mbit/s and 40 ms a round has eleven packets of 9 kB: the path's own loss was never
/// learned, and a fifth of the line was left. In seed 1 of 200 Mbit/s chance opened the breaker.
#[test]
fn a_session_that_loses_a_tenth_by_chance_holds_most_of_the_line_whatever_its_packets() {
    for (packet, rate, [least, mean]) in [
        (8972.0, 2.5e6, [0.3, 0.6]),
        (8972.0, 25e6, [0.7, 0.8]),
        (1472.0, 2.5e6, [0.7, 0.8]),
        (1472.0, 25e6, [0.7, 0.8]),
    ] {
        let mut sum = 0.0;
        for seed in 1..=10 {
            let event = Some((0.0, f64::INFINITY, LineEvent::Slower(rate)));
            let case = Case { loss: 0.1, packet, queue: rate / LINE, event, seed, from: 2.0, to: 42.0, ..Case::ALONE };
            let part = part_of(rate, case);
            assert!(part > least, "packets of {packet} bytes, {} Mbit/s, seed {seed}: {part}", rate * MBIT);
            sum += part;
        }
        assert!(sum > 10.0 * mean, "packets of {packet} bytes, {} Mbit/s: {sum} of 10", rate * MBIT);
    }
}

/// A message of 9 kB is on its way for longer, at a rate that was halved six times, than the
/// silence that halves it: the lane crept for good at a packet in seconds.
#[test]
fn a_slow_rate_that_was_halved_in_an_outage_is_had_again_however_seldom_threads_wake() {
    for (nap, least) in [(0.05, 0.6), (1.0, 0.4)] {
        for loss in [0.0, 0.1] {
            for ceiling in [65_536, 1_000_000] {
                for seed in 1..=3 {
                    let (event, twist) = (Some((10.0, 10.6, LineEvent::Outage)), Some(LineTwist::Naps(nap)));
                    let slow = Case { loss, packet: 8972.0, ceiling: Some(ceiling), seed, ..Case::ALONE };
                    let part = part_of(ceiling as f64, Case { event, twist, from: 15.0, to: 45.0, ..slow });
                    assert!(part > least, "each {nap} s, loss {loss}, {ceiling} bytes/s, seed {seed}: {part}");
                }
            }
        }
    }
}
