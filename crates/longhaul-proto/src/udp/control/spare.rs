//! Whether the control would give the lanes more than they carry.
//!
//! In: each round, and the rate that lanes were let in it. Out: a [`UdpSpare`]. It sets no rate and
//! knows no number of lanes.

use longhaul_core::PathShare;

use super::rounds::UdpRound;
use super::{USED, UdpControl, UdpPhase};
use crate::tuning::udp_lanes::UdpSpare;

/// The share of the last second in which a part of the rate was unused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpareRate {
    unused: f64,
}

impl UdpControl {
    /// The rate that it would give the lanes beyond what they carry now.
    pub fn spare(&self) -> UdpSpare {
        match () {
            () if self.share == PathShare::Polite => UdpSpare::Nothing,
            () if self.pace.limited.is_some() || self.phase == UdpPhase::Equal => UdpSpare::Nothing,
            // A receiver that drops from the beginning keeps the rate of the path from being found.
            () if self.pace.receiver.is_on() => UdpSpare::Dropped,
            () if self.phase == UdpPhase::Steady && self.pace.spare.unused > UNUSED => UdpSpare::Unused,
            () => UdpSpare::Nothing,
        }
    }

    /// Notes a round with this queue, in which lanes were let send `asked` bytes/s.
    pub(super) fn note_spare(&mut self, round: &UdpRound, queue: f64, asked: f64) {
        let is_carried = round.rate >= USED * (1.0 - self.losses.own) * asked;
        // What a queue holds back, or others, the lanes did not.
        let is_held = queue > self.target() || self.phase != UdpPhase::Steady;
        let is_unused = round.limited.is_none() && !is_carried && !is_held;
        let part = (round.seconds / MEAN_SECONDS).min(1.0);
        self.pace.spare.unused += (f64::from(u8::from(is_unused)) - self.pace.spare.unused) * part;
    }
}

/// Seconds over which the share is a mean, and the share from which on the rate is unused.
const MEAN_SECONDS: f64 = 1.0;
const UNUSED: f64 = 0.5;
