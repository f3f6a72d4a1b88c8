//! The figures of the road: what a run did to the path that it took, and how long it took to begin
//! and to end.
//!
//! In: sums of the controls of paths, round trips of lanes, and times of their payload. Out: to
//! observers and reports. Plain data. It must not know which transport it was.

use std::time::Duration;

use longhaul_proto::tuning::road::RoadSums;
use serde::{Deserialize, Serialize};

/// The effect of a session on its path. Each figure is `None` where it is not known: only the
/// sending side knows any, and only where one control keeps the rate of all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoadFigures {
    /// The mean time by which the queue of the path made round trips longer.
    pub queue: Option<Duration>,
    /// The same as a part of the shortest round trip: the queue in bandwidth-delay products.
    pub queue_bdp: Option<f64>,
    /// The part of all packets that the path loses by itself, 0 to 1.
    pub own_loss: Option<f64>,
    /// The part of all packets that was lost beyond that, 0 to 1.
    pub loss_beyond: Option<f64>,
    /// The part that the session had of what the path was seen to carry while others were there.
    pub share_beside: Option<f64>,
    /// The time in which others were there.
    pub beside: Option<Duration>,
}

/// The figures of the road of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoadReport {
    /// The shortest round trip of any lane, at this end.
    pub round_trip: Duration,
    /// The effect of its sessions on the path.
    pub figures: RoadFigures,
    /// From the start of the run until the first payload left this side or came. `None` if none
    /// did.
    pub first_byte: Option<Duration>,
    /// From when the last payload had left this side or come until the run was over. `None` if none
    /// did.
    pub last_byte: Option<Duration>,
    /// Payload bytes that lanes over UDP sent again, as the path had lost them or was taken to
    /// have. `None` where none ran over UDP.
    pub udp_bytes_resent: Option<u64>,
}

impl RoadFigures {
    /// The figures that these sums come to. `None` if nothing is known.
    pub(crate) fn of(sums: &RoadSums) -> Option<RoadFigures> {
        let beside = Some(sums.beside()).filter(|beside| !beside.is_zero());
        let figures = RoadFigures {
            queue: sums.queue(),
            queue_bdp: sums.queue_bdp(),
            own_loss: sums.own_loss(),
            loss_beyond: sums.loss_beyond(),
            share_beside: sums.share_beside(),
            beside,
        };
        (figures != RoadFigures::default()).then_some(figures)
    }
}

impl RoadReport {
    /// A time as a number of round trips. `None` if it is not known.
    pub fn in_round_trips(&self, time: Option<Duration>) -> Option<f64> {
        time.filter(|_| !self.round_trip.is_zero()).map(|time| time.div_duration_f64(self.round_trip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_round_trips_where_one_is_known() {
        let ms = Duration::from_millis;
        let road = RoadReport { round_trip: ms(100), first_byte: Some(ms(250)), ..RoadReport::default() };
        assert_eq!((road.in_round_trips(road.first_byte), road.in_round_trips(road.last_byte)), (Some(2.5), None));
        assert_eq!(RoadReport::default().in_round_trips(Some(ms(1))), None);
    }

    #[test]
    fn sums_of_nothing_are_no_figures() {
        assert_eq!(RoadFigures::of(&RoadSums::default()), None);
    }
}
