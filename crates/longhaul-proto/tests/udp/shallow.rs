//! Queues that overflow before they can be seen, for the control of UDP lanes on the model of a
//! line: a policer, and a queue of a twentieth of a round trip.

use super::line::{Case, LineEvent, LineFigures, PACKET, play};

/// A session that comes to a cubic flow.
const BESIDE: Case = Case { cubics: 1, begin: 10.0, from: 13.0, to: 48.0, queue: 0.05, ..Case::ALONE };
const JUMBO: f64 = 8972.0;
const POLICER: LineEvent = LineEvent::Policed(50e6);

/// A way to lose without a queue: packets of so many bytes, a round trip, a policer or none; and
/// what a cubic flow keeps in the mean of some runs, Mbit/s, and a session loses of its packets.
struct Shallow {
    packet: f64,
    rtt: f64,
    policer: Option<LineEvent>,
    theirs: f64,
    lost: f64,
}

/// A cubic flow had 3 to 21 of 1000 in queues, and 3 to 16 of a policer's 400. It still has but a
/// part of what it has alone, which is 543 to 876 in queues, and 25 to 143 of a policer's 400: that
/// is not solved.
#[test]
fn a_cubic_flow_keeps_a_part_where_a_queue_overflows_before_it_is_seen() {
    for shallow in [
        Shallow { packet: PACKET, rtt: 0.02, policer: None, theirs: 120.0, lost: 0.001 },
        Shallow { packet: PACKET, rtt: 0.1, policer: None, theirs: 65.0, lost: 0.002 },
        Shallow { packet: PACKET, rtt: 0.02, policer: Some(POLICER), theirs: 50.0, lost: 0.001 },
        Shallow { packet: PACKET, rtt: 0.1, policer: Some(POLICER), theirs: 7.0, lost: 0.002 },
        Shallow { packet: JUMBO, rtt: 0.02, policer: None, theirs: 70.0, lost: 0.0035 },
        Shallow { packet: JUMBO, rtt: 0.1, policer: None, theirs: 50.0, lost: 0.002 },
        Shallow { packet: JUMBO, rtt: 0.02, policer: Some(POLICER), theirs: 24.0, lost: 0.009 },
        Shallow { packet: JUMBO, rtt: 0.1, policer: Some(POLICER), theirs: 9.0, lost: 0.003 },
    ] {
        let Shallow { packet, rtt, policer, .. } = shallow;
        let event = policer.map(|event| (0.0, f64::INFINITY, event));
        let case = Case { packet, others: packet, rtt, event, ..BESIDE };
        let figures: Vec<LineFigures> = (1..=4).map(|seed| play(Case { seed, ..case })).collect();
        let theirs = figures.iter().map(|one| one.cubic).sum::<f64>() / 4.0;
        let is_kept = theirs > shallow.theirs && figures.iter().all(|one| one.lost < shallow.lost);
        assert!(is_kept, "packets of {packet}, {rtt} s, {policer:?}: {theirs} of {figures:?}");
        let alone = play(Case { cubics: 0, ..case });
        let most = if policer.is_some() { 400.0 } else { 1000.0 };
        let is_full = alone.ours[0] > 0.94 * most && alone.lost < 0.005;
        assert!(is_full, "packets of {packet}, {rtt} s, {policer:?}, alone: {alone:?}");
    }
}

/// Rare losses of the path itself are no overflow.
#[test]
fn a_path_that_loses_rarely_by_itself_is_filled() {
    for packet in [PACKET, JUMBO] {
        for rtt in [0.02, 0.1] {
            for loss in [1e-5, 1e-4, 3e-4, 1e-3, 3e-3] {
                let figures = play(Case { packet, others: packet, rtt, loss, ..Case::ALONE });
                assert!(figures.ours[0] > 960.0, "packets of {packet}, {rtt} s, {loss}: {figures:?}");
            }
        }
    }
}

/// Once the cubic flow is gone, the session has the line again within as many seconds as such a
/// flow takes to grow.
#[test]
fn when_a_cubic_flow_leaves_a_short_queue_its_part_is_had_again() {
    for (rtt, packet) in [(0.02, PACKET), (0.02, JUMBO), (0.1, PACKET), (0.1, JUMBO)] {
        let case = Case { packet, others: packet, rtt, cubic_end: 30.0, from: 40.0, to: 50.0, ..BESIDE };
        let figures = play(case);
        assert!(figures.ours[0] > 900.0, "packets of {packet}, {rtt} s: {figures:?}");
    }
}
