//! The figures of the road that the control of UDP lanes gives, against those of the model of a
//! line, and what it says holds its rate down.

use longhaul_proto::udp::control::UdpRateLimit;

use super::line::{Case, Line, LineEvent};

/// The line after so many seconds.
fn played(case: Case, seconds: f64) -> Line {
    let mut line = Line::new(case);
    line.play(seconds);
    line
}

#[test]
fn alone_the_figures_are_those_of_the_line() {
    for loss in [0.0, 1e-2] {
        let case = Case { loss, from: 0.1, to: 40.0, ..Case::ALONE };
        let line = played(case, 40.0);
        let (road, figures) = (*line.control(0).road(), line.figures());
        let queue = road.queue().expect("it was seen").as_secs_f64();
        assert!((queue - figures.queue).abs() < 0.5 * figures.queue + 0.002, "{loss}: {queue} {figures:?}");
        let bdp = road.queue_bdp().expect("it was seen");
        assert!((0.5..2.0).contains(&(bdp / (queue / case.rtt))), "{loss}: {bdp} of a round trip, {queue} s");
        let (own, beyond) = (road.own_loss().expect("packets"), road.loss_beyond().expect("packets"));
        assert!((own - loss).abs() < 0.005 && beyond < 0.005, "{loss}: {own} and {beyond}");
        assert_eq!(road.share_beside(), None, "{loss}: nobody else is there");
        assert!(!line.control(0).is_held_by_loss() && line.control(0).limit() == UdpRateLimit::Path, "{loss}");
    }
}

#[test]
fn beside_a_cubic_flow_the_share_is_what_the_session_has_of_the_line() {
    let case = Case { cubics: 1, cubic_begin: 10.0, from: 20.0, to: 60.0, ..Case::ALONE };
    let line = played(case, 60.0);
    let (road, figures) = (*line.control(0).road(), line.figures());
    let share = road.share_beside().expect("others are there");
    // The mean of all 40 s, in some of which the session had not found the other yet.
    assert!(share > 0.25 && share < figures.ours[0] / 1000.0 + 0.1, "{share}: {figures:?}");
    assert!((15.0..51.0).contains(&road.beside().as_secs_f64()), "{road:?}");
    assert_eq!(line.control(0).limit(), UdpRateLimit::Shared);
}

#[test]
fn what_drops_packets_without_a_queue_holds_the_rate_down_by_loss() {
    let event = Some((0.0, f64::INFINITY, LineEvent::Policed(50e6)));
    let mut line = Line::new(Case { event, ..Case::ALONE });
    let held = (1..=60).filter(|second| {
        line.play(f64::from(*second));
        line.control(0).is_held_by_loss()
    });
    assert!(held.count() > 40, "two thirds of the time at least");
}
