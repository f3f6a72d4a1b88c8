//! Lines whose packets have 9000 bytes, those of the session and of all others, for the control of
//! UDP lanes on the model of a line. There everybody's window is a sixth of the packets of a usual
//! line, and grows by six times the bytes.

use super::line::{Case, Line, LineFigures, play};

/// A session that comes to others who were there 10 s earlier.
const BESIDE: Case =
    Case { packet: 8972.0, others: 8972.0, cubics: 1, begin: 10.0, from: 13.0, to: 48.0, ..Case::ALONE };
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;

/// The figures of some runs.
fn plays(case: Case) -> Vec<LineFigures> {
    SEEDS.map(|seed| play(Case { seed, ..case })).collect()
}

/// The mean of the first session's rate.
fn mean_of_ours(figures: &[LineFigures]) -> f64 {
    figures.iter().map(|one| one.ours[0]).sum::<f64>() / figures.len() as f64
}

/// A window that was counted in packets of 1472 bytes grew by a sixth of what theirs did: it left
/// a session 227 of 1000 on 100 ms, and 99 in a long queue on 20 ms.
#[test]
fn beside_one_cubic_flow_a_session_has_a_part_like_that_of_its_own_kind() {
    for (rtt, queue, least) in [(0.02, 1.0, 330.0), (0.1, 1.0, 285.0), (0.02, 4.0, 230.0), (0.1, 4.0, 220.0)] {
        let figures = plays(Case { rtt, queue, ..BESIDE });
        assert!(mean_of_ours(&figures) > least, "{rtt} s, {queue}: {figures:?}");
        for one in &figures {
            let is_had = one.ours[0] > 0.6 * least && one.cubic > 470.0;
            assert!(is_had, "{rtt} s, {queue}: {one:?}");
        }
    }
}

/// It had 0.3 of its part in the short queue.
#[test]
fn beside_ten_cubic_flows_a_session_has_seven_tenths_of_its_part() {
    for queue in [0.25, 1.0] {
        let figures = plays(Case { rtt: 0.02, queue, cubics: 10, ..BESIDE });
        let fair = 1000.0 / 11.0;
        assert!(mean_of_ours(&figures) > 0.7 * fair, "{queue}: {figures:?}");
        assert!(figures.iter().all(|one| one.ours[0] > 0.6 * fair), "{queue}: {figures:?}");
    }
}

/// The window is one of bytes: lanes that find larger packets do not leap.
#[test]
fn a_window_grows_by_the_packets_that_are_sent() {
    let rates = [1472.0, 8972.0].map(|packet| {
        let mut line = Line::new(Case { packet, others: packet, rtt: 0.02, queue: 4.0, ..BESIDE });
        line.play(48.0);
        line.figures().ours[0]
    });
    assert!(rates[1] > 0.6 * rates[0], "{rates:?}");
}

/// Jain's index of two rates.
fn jain(figures: &LineFigures) -> f64 {
    let (sum, squares) = figures.ours.iter().fold((0.0, 0.0), |(sum, squares), one| (sum + one, squares + one * one));
    sum * sum / (squares * figures.ours.len() as f64)
}

/// The second one comes 5 s later, and all counts from 3 s after that on. It was 0.88 to 0.98, and
/// is 0.948 at least; 0.95 is wanted.
#[test]
fn two_sessions_on_a_long_path_are_equal_within_forty_seconds() {
    for queue in [0.25, 1.0] {
        for packet in [1472.0, 8972.0] {
            let case =
                Case { packet, others: packet, rtt: 0.1, queue, sessions: 2, from: 8.0, to: 45.0, ..Case::ALONE };
            for figures in plays(case) {
                let (index, sum) = (jain(&figures), figures.ours.iter().sum::<f64>());
                assert!(index > 0.94 && sum > 930.0, "{queue}, {packet}: {index} of {figures:?}");
            }
        }
    }
}
