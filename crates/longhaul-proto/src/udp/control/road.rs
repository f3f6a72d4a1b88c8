//! The figures of the road of UDP lanes, and whether it is the losses of the path that hold their
//! rate down.
//!
//! In: rounds that were judged. Out: their sums, and a judgement of the last forty. It sets no
//! rate.

use super::losses::LossVerdict;
use super::rounds::UdpRound;
use super::{UdpControl, UdpPhase};
use crate::tuning::road::{RoadRound, RoadSums};

/// The road so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UdpRoad {
    sums: RoadSums,
    /// The share of recent rounds in which too much was lost without a queue.
    lossy: f64,
}

impl UdpControl {
    /// The sums of all rounds of this path.
    pub fn road(&self) -> &RoadSums {
        &self.lanes.road.sums
    }

    /// Whether the path holds the rate down by what it loses, and not by a queue that is full: it
    /// loses unevenly, or something there drops what is above a rate.
    pub fn is_held_by_loss(&self) -> bool {
        self.lanes.road.lossy > LOSSY || self.is_held_by_overflow()
    }

    /// Adds a round that is over and judged.
    pub(super) fn note_road(&mut self, round: &UdpRound, queue: f64, verdict: LossVerdict) {
        let is_lossy = verdict == LossVerdict::Excess && queue < self.target();
        self.lanes.road.lossy += (f64::from(u8::from(is_lossy)) - self.lanes.road.lossy) / MEAN_ROUNDS;
        let is_shared = self.phase == UdpPhase::Equal || self.others.pressed > super::PRESSED;
        let base = self.lanes.base();
        self.lanes.road.sums.add(&RoadRound {
            seconds: round.seconds,
            base,
            queue: round.queue,
            packets: round.packets + round.lost,
            lost: round.lost,
            own_loss: self.losses.own,
            delivered: round.rate * round.seconds,
            carries: self.carried.highest(),
            is_shared,
        });
    }
}

/// Rounds over which that share is a mean.
const MEAN_ROUNDS: f64 = 40.0;
/// From this share on it is the losses: three of forty rounds within a short time. In the model, a
/// policer's drops come once in twelve rounds, as a rate that was cut is had again after these.
const LOSSY: f64 = 0.06;
