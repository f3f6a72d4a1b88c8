//! The rate that the control of UDP lanes would give beyond what they carry: where their threads,
//! or the receiver, are what limits, and on lines that hold it.

use std::time::Duration;

use longhaul_core::PathShare;
use longhaul_proto::tuning::udp_lanes::{UdpLaneGrowth, UdpLanesSecond};
use longhaul_proto::udp::control::UdpSpare;

use super::line::{Case, Line, LineEvent, LineTwist};

const ALWAYS: f64 = f64::INFINITY;

/// The spare rates of a session, from its 10th to its 40th second.
fn left(case: Case) -> Vec<UdpSpare> {
    let mut line = Line::new(case);
    let seconds = (10..40).map(|second| {
        line.play(f64::from(second));
        line.control(0).spare()
    });
    seconds.collect()
}

/// The most seconds in a row in which it was this.
fn longest(left: &[UdpSpare], spare: UdpSpare) -> usize {
    left.split(|one| *one != spare).map(<[_]>::len).max().unwrap_or(0)
}

#[test]
fn lanes_whose_threads_are_busy_leave_a_part_of_the_rate_of_a_path_unused() {
    for rtt in [0.005, 0.02, 0.1] {
        for (loss, lanes) in [(0.0, 1), (0.0, 16), (0.02, 2)] {
            let case = Case { rtt, loss, lanes, twist: Some(LineTwist::Busy(62.5e6)), ..Case::ALONE };
            let left = left(case);
            assert!(longest(&left, UdpSpare::Unused) >= 5, "{rtt} s, {loss}, {lanes}: {left:?}");
        }
    }
}

#[test]
fn a_path_that_holds_the_rate_leaves_none_unused() {
    let alone = Case::ALONE;
    let cases = [
        alone,
        Case { lanes: 16, ..alone },
        Case { loss: 0.01, ..alone },
        Case { loss: 0.03, ..alone },
        Case { queue: 0.1, ..alone },
        Case { share: PathShare::Polite, ..alone },
        Case { cubics: 1, cubic_begin: 5.0, ..alone },
        Case { sessions: 2, ..alone },
        Case { event: Some((0.0, ALWAYS, LineEvent::Policed(62.5e6))), ..alone },
        Case { source: Some((0.0, ALWAYS, 30e6)), ..alone },
        Case { ceiling: Some(50_000_000), ..alone },
        Case { ceiling: Some(50_000_000), share: PathShare::All, ..alone },
    ];
    for case in cases {
        for rtt in [0.02, 0.1] {
            let left = left(Case { rtt, ..case });
            assert!(longest(&left, UdpSpare::Unused) < 3, "{rtt} s: {left:?} {case:?}");
            assert_eq!(longest(&left, UdpSpare::Dropped), 0, "{rtt} s: {left:?} {case:?}");
        }
    }
}

#[test]
fn a_receiver_whose_system_drops_takes_less_than_the_path_would_carry() {
    for (rtt, from) in [(0.02, 0.0), (0.02, 5.0), (0.1, 0.0), (0.1, 5.0)] {
        let left = left(Case { rtt, twist: Some(LineTwist::Drops(from, ALWAYS, 62.5e6)), ..Case::ALONE });
        assert!(longest(&left, UdpSpare::Dropped) >= 5, "{rtt} s, from {from} s on: {left:?}");
    }
}

/// Whether so many lanes whose threads can send 40 MB/s each, and have no rest, get one more.
fn grows(lanes: usize, rtt: f64) -> bool {
    let case = Case { rtt, lanes, twist: Some(LineTwist::Busy(40e6 * lanes as f64)), ..Case::ALONE };
    let (mut line, mut growth) = (Line::new(case), UdpLaneGrowth::new(8));
    (1..40).any(|second| {
        line.play(f64::from(second));
        let why = growth.second(&UdpLanesSecond {
            elapsed: Duration::from_secs(1),
            lanes: lanes as u32,
            delivered: 40_000_000,
            worked: Duration::from_secs(lanes as u64),
            is_by_work: true,
            is_pressed: false,
            spare: line.control(0).spare(),
            remaining: None,
        });
        why.is_some()
    })
}

#[test]
fn lanes_are_added_until_the_path_holds_the_rate_and_no_further_however_busy_their_threads_are() {
    for rtt in [0.02, 0.1] {
        // The line carries 125 MB/s.
        let grown: Vec<_> = (1..=5).map(|lanes| grows(lanes, rtt)).collect();
        assert_eq!(grown, [true, true, true, false, false], "{rtt} s");
    }
}
