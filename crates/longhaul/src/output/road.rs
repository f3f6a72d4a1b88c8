//! The figures of the road in one line, for people.
//!
//! In: figures of the engine. Out: a line, or nothing where there is nothing to say. It knows no
//! events.

use longhaul_engine::{RoadFigures, RoadReport};

/// The road of a run in one line, with what is known of it.
pub(super) fn line(road: &RoadReport) -> String {
    let ms = |time: std::time::Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let mut parts = vec![format!("round trip {}", ms(road.round_trip))];
    let RoadFigures { queue, queue_bdp, own_loss, loss_beyond, share_beside, beside } = road.figures;
    if let (Some(queue), Some(bdp)) = (queue, queue_bdp) {
        parts.push(format!("queue kept {} ({bdp:.2} BDP)", ms(queue)));
    }
    if let (Some(own), Some(beyond)) = (own_loss, loss_beyond) {
        parts.push(format!("{:.3} % lost beyond the path's own {:.3} %", beyond * 100.0, own * 100.0));
    }
    if let (Some(share), Some(beside)) = (share_beside, beside) {
        parts.push(format!("{share:.2} of what it carries while others were there for {:.1} s", beside.as_secs_f64()));
    }
    for (time, what) in [(road.first_byte, "to the first byte"), (road.last_byte, "from the last one to the end")] {
        if let (Some(time), Some(trips)) = (time, road.in_round_trips(time)) {
            parts.push(format!("{trips:.1} round trips ({:.2} s) {what}", time.as_secs_f64()));
        }
    }
    format!("path: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_says_what_is_known_and_nothing_else() {
        let ms = Duration::from_millis;
        let bare = RoadReport { round_trip: ms(100), ..RoadReport::default() };
        assert_eq!(line(&bare), "path: round trip 100.0 ms");
        let figures = RoadFigures {
            queue: Some(ms(9)),
            queue_bdp: Some(0.09),
            own_loss: Some(0.01),
            loss_beyond: Some(0.0005),
            share_beside: Some(0.48),
            beside: Some(ms(12_340)),
        };
        let road = RoadReport { figures, first_byte: Some(ms(310)), last_byte: Some(ms(120)), ..bare };
        assert_eq!(
            line(&road),
            "path: round trip 100.0 ms, queue kept 9.0 ms (0.09 BDP), 0.050 % lost beyond the path's own 1.000 %, \
             0.48 of what it carries while others were there for 12.3 s, 3.1 round trips (0.31 s) to the first byte, \
             1.2 round trips (0.12 s) from the last one to the end"
        );
    }
}
