//! The figures of the road of a path whose rate the manners keep.
//!
//! In: rounds that were judged. Out: their sums. It decides nothing.

use super::{PathControl, PathRound};
use crate::tuning::road::{RoadRound, RoadSums};

impl PathControl {
    /// The sums of all rounds of this path.
    pub fn road(&self) -> &RoadSums {
        &self.road
    }

    /// Adds a round that is over and judged.
    pub(super) fn note_road(&mut self, round: &PathRound) {
        let (seconds, base) = (round.elapsed.as_secs_f64(), self.base.shortest);
        let size = f64::from(round.packet_bytes.max(1));
        self.road.add(&RoadRound {
            seconds,
            base,
            queue: Some(round.rtt.as_secs_f64() - base),
            packets: (round.delivered + round.lost) as f64 / size,
            lost: round.lost as f64 / size,
            own_loss: self.losses.own,
            delivered: round.delivered as f64,
            carries: self.capacity(),
            is_shared: self.is_shared(),
        });
    }
}
