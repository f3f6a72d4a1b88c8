//! The window of one cubic flow (RFC 9438), for a path that others fill.
//!
//! In: round trips, packets, when more was lost than the path loses by itself. Out: bytes on their
//! way. It judges no losses.

/// The window, in packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EqualWindow {
    /// The largest before the last cut, and the window that Reno would have.
    highest: f64,
    reno: f64,
    /// Seconds since the cut.
    age: f64,
    /// The window.
    pub(super) packets: f64,
}

impl EqualWindow {
    /// A window of so many packets, as if it had been cut to that.
    pub(super) fn at(packets: f64) -> EqualWindow {
        let packets = packets.max(PACKETS_LEAST);
        EqualWindow { highest: packets, reno: packets, age: 0.0, packets }.settled()
    }

    /// At its plateau: neither cut nor growing fast.
    fn settled(self) -> EqualWindow {
        EqualWindow { age: self.back(), ..self }
    }

    /// More was lost than the path loses by itself; so much that a window of no more than `most`
    /// packets is carried, or that is infinite.
    pub(super) fn cut(&mut self, most: f64) {
        self.highest = if self.packets < self.highest { self.packets * (1.0 + CUT) / 2.0 } else { self.packets };
        self.packets = (self.packets * CUT).min(most).max(PACKETS_LEAST);
        (self.reno, self.age) = (self.packets, 0.0);
    }

    /// A round of so many seconds with this round trip is over, without such a loss.
    pub(super) fn grow(&mut self, seconds: f64, round_trip: f64) {
        self.age += seconds;
        self.reno += RENO * seconds / round_trip;
        let cubic = SCALE * (self.age + round_trip - self.back()).powi(3) + self.highest;
        let wanted = cubic.max(self.reno).max(self.packets);
        let most = self.packets * (1.0 + 0.5 * (seconds / round_trip).min(1.0));
        self.packets = wanted.min(most);
    }

    /// The seconds from a cut until it is again as large as before.
    pub(super) fn back(&self) -> f64 {
        (self.highest * (1.0 - CUT) / SCALE).cbrt()
    }
}

const SCALE: f64 = 0.4;
const CUT: f64 = 0.7;
const RENO: f64 = 0.53;
/// The smallest window.
const PACKETS_LEAST: f64 = 2.0;
