//! The figures of the road of a path whose rate the manners keep.
//!
//! In: rounds that were judged. Out: their sums. It decides nothing.

use super::{PathControl, PathRound};
use crate::tuning::road::{RoadRound, RoadSums};

impl PathControl {
    /// The sums of all rounds of this path.
    pub fn road(&self) -> &RoadSums {
        &self.rounds.road
    }

    /// Adds a round that is over and judged.
    pub(super) fn note_road(&mut self, round: &PathRound) {
        let (seconds, base) = (round.elapsed.as_secs_f64(), self.base.shortest);
        let size = f64::from(round.packet_bytes.max(1));
        let (own_loss, carries, is_shared) = (self.losses.own, self.capacity(), self.is_shared());
        self.rounds.road.add(&RoadRound {
            seconds,
            base,
            queue: Some(round.rtt.as_secs_f64() - base),
            packets: (round.delivered + round.lost) as f64 / size,
            lost: round.lost as f64 / size,
            own_loss,
            delivered: round.delivered as f64,
            carries,
            is_shared,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::PathShare;

    use super::*;

    fn look(rtt: u64, lost: u64) -> PathRound {
        let ms = Duration::from_millis;
        PathRound {
            elapsed: ms(200),
            delivered: 900_000,
            lost,
            rtt: ms(rtt),
            packet_bytes: 1000,
            lanes: 1,
            ..PathRound::default()
        }
    }

    #[test]
    fn each_round_counts_with_its_queue_and_its_packets() {
        let mut control = PathControl::new(PathShare::Fair);
        control.look(&look(100, 0));
        (0..3).for_each(|_| control.look(&look(110, 0)));
        let road = control.road();
        assert_eq!(
            (road.queue(), road.round_trip()),
            (Some(Duration::from_micros(7500)), Some(Duration::from_millis(100)))
        );
        assert_eq!((road.loss_beyond(), road.share_beside()), (Some(0.0), None));
        control.look(&look(110, 100_000));
        let (own, beyond) = (control.road().own_loss(), control.road().loss_beyond());
        let all = own.zip(beyond).map(|(own, beyond)| own + beyond);
        assert!(all.is_some_and(|all| (all - 100.0 / 4600.0).abs() < 1e-6), "{own:?} {beyond:?}");
    }

    #[test]
    fn who_takes_all_keeps_no_account() {
        let mut control = PathControl::new(PathShare::All);
        control.look(&look(100, 0));
        assert_eq!(control.road(), &RoadSums::default());
    }
}
