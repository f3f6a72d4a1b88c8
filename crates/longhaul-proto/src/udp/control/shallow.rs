//! The rule of a queue that overflows before it can be seen: a policer's, or one of a small part of
//! a round trip.
//!
//! In: overflows of a path that loses nothing by itself, and the rates at which they came. Out: the
//! most to which the rate grows for a while. It judges no losses.
//!
//! Alone, a session would have the rate again within a few rounds. A cubic flow beside it, which
//! loses in the same moment, needs seconds for that, and would never come to it. So the rate grows
//! as a cubic flow's does (RFC 9438) that gives way by [`CUT`], and whose growth is the less for
//! that: in the mean the two are alike. Once it is where it was, nothing holds it any more.

use longhaul_core::PathShare;

use super::UdpControl;

/// The rate at which a short queue overflowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShallowTop {
    rate: f64,
    /// Seconds since. Infinity if nothing holds the rate.
    age: f64,
}

impl ShallowTop {
    /// No queue overflowed.
    pub(super) fn new() -> ShallowTop {
        ShallowTop { rate: 0.0, age: f64::INFINITY }
    }

    /// Takes the seconds of a round that is over.
    pub(super) fn pass(&mut self, seconds: f64) {
        self.age += seconds;
    }

    /// The most bytes/s until the rate is had again, over this round trip and with packets of so
    /// many bytes.
    pub(super) fn most(&self, round_trip: f64, packet: f64) -> f64 {
        let window = self.rate * round_trip / packet;
        let back = (window * (1.0 - CUT) / SCALE).cbrt();
        let reno = window * CUT + RENO * self.age / round_trip;
        if self.age > back || reno > window {
            return f64::INFINITY;
        }
        (window - SCALE * (back - self.age).powi(3)).max(reno) * packet / round_trip
    }
}

impl UdpControl {
    /// Forgets that the path lost nothing for long, where that says nothing: who has far less than
    /// the path carries has given way enough.
    pub(super) fn look_at_share(&mut self) {
        if self.share != PathShare::Fair || self.pace.rate < GAVE_WAY * self.carried.highest() {
            self.losses.clean = 0.0;
        }
    }

    /// Whether the rate grows no faster than a short queue that overflowed lets it.
    pub(super) fn is_held_by_overflow(&self) -> bool {
        self.delay.shallow.most(self.lanes.round_trip(), self.lanes.datagram_bytes).is_finite()
    }

    /// More was lost than the path loses by itself, with this queue.
    pub(super) fn note_overflow(&mut self, queue: f64) {
        let rate = self.pace.rate.min(self.carried.most());
        let is_short = queue < self.target() && self.losses.is_clean() && self.losses.deep.is_infinite();
        let is_same = self.delay.shallow.age < SAME_ROUNDS * self.lanes.round_trip();
        self.delay.shallow = match (is_short, is_same) {
            (true, true) => ShallowTop { rate: rate.max(self.delay.shallow.rate), age: 0.0 },
            (true, false) => ShallowTop { rate, age: 0.0 },
            (false, _) => ShallowTop::new(),
        };
    }
}

/// The part of the rate that is left, the growth of a window in packets a round trip that goes with
/// it, and cubic's own constant.
const CUT: f64 = 0.85;
const RENO: f64 = 0.243;
const SCALE: f64 = 0.4;
/// Round trips within which losses are of the same overflow.
const SAME_ROUNDS: f64 = 4.0;
/// The part of what the path carried below which nothing more is given away.
const GAVE_WAY: f64 = 0.65;
