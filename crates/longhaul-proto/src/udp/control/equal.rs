//! The window of one cubic flow (RFC 9438), for a path that others fill, and the end of that phase.
//!
//! In: rounds, and when more was lost than the path loses by itself. Out: bytes on their way and a
//! rate. It judges no losses.

use super::alone::{AloneFinding, AloneProbe};
use super::losses::LossVerdict;
use super::rounds::ROUND_SHORTEST;
use super::{QueueDip, UdpControl, UdpPhase};
use crate::time::Timestamp;

/// The window, in packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EqualWindow {
    /// The largest before the last cut, and the window that Reno would have.
    highest: f64,
    reno: f64,
    /// Seconds since the cut.
    age: f64,
    /// The window, and bytes of a packet of it.
    packets: f64,
    packet: f64,
    /// Whether others are there at all.
    pub(super) probe: AloneProbe,
}

impl EqualWindow {
    /// A window of so many bytes, in packets of `packet` bytes, as if it had been cut to that.
    pub(super) fn at(bytes: f64, packet: f64) -> EqualWindow {
        let packets = (bytes / packet).max(PACKETS_LEAST);
        EqualWindow { highest: packets, reno: packets, age: 0.0, packets, packet, probe: AloneProbe::default() }
            .settled()
    }

    /// Bytes of the window.
    pub(super) fn bytes(&self) -> f64 {
        self.packets * self.packet
    }

    /// Counts the same window in packets of so many bytes from now on.
    fn count_in(&mut self, packet: f64) {
        let part = self.packet / packet;
        (self.highest, self.reno, self.packets) = (self.highest * part, self.reno * part, self.packets * part);
        self.packet = packet;
    }

    /// At its plateau: neither cut nor growing fast.
    fn settled(self) -> EqualWindow {
        EqualWindow { age: self.back(), ..self }
    }

    /// More was lost than the path loses by itself; so much that a window of no more than `most`
    /// bytes is carried, or that is infinite.
    pub(super) fn cut(&mut self, most: f64) {
        self.highest = if self.packets < self.highest { self.packets * (1.0 + CUT) / 2.0 } else { self.packets };
        self.packets = (self.packets * CUT).min(most / self.packet).max(PACKETS_LEAST);
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

impl UdpControl {
    /// One cubic flow's window.
    pub(super) fn share_equally(&mut self, now: Timestamp, queue: f64, verdict: LossVerdict, seconds: f64) {
        let rtt = self.lanes.round_trip();
        self.equal.count_in(self.lanes.datagram_bytes);
        if verdict == LossVerdict::Excess {
            self.equal.cut(self.losses.deep * rtt);
            self.losses.pardon = (rtt / seconds).ceil() as u32 + 1;
        } else if self.pace.limited.is_none() {
            self.equal.grow(seconds, rtt);
        }
        // The queue is that of a round trip ago: all who follow it at once make it swing.
        let rate = self.equal.bytes() / (self.lanes.base() + queue).max(1e-4);
        let part = match verdict {
            LossVerdict::Excess => 1.0,
            LossVerdict::Own if self.equal.probe.is_on() => 0.0,
            LossVerdict::Own => EQUAL_FOLLOWS,
        };
        self.pace.rate += part * (rate - self.pace.rate);
        self.look_for_others(now, queue, seconds);
        let calm = (CALM * self.equal.back()).max(CALM_LEAST);
        let has_all = self.carried.recent() > ALL * self.carried.highest() && queue < self.target();
        self.others.alone = if has_all && self.rounds > ROUNDS_EQUAL { self.others.alone + 1 } else { 0 };
        if self.others.calm > calm || self.others.alone > ROUNDS_ALL {
            self.others.forget();
            self.enter(UdpPhase::Steady);
        }
    }

    /// Finds out now and then whether others are there at all.
    fn look_for_others(&mut self, now: Timestamp, queue: f64, seconds: f64) {
        let part = self.carried.recent() / self.carried.highest().max(1.0);
        let part = if queue > 2.0 * self.target() { part } else { 0.0 };
        match self.equal.probe.take(queue + self.lanes.base(), seconds, part) {
            Some(AloneFinding::Alone) => {
                self.carried.forget();
                self.others.forget();
                self.enter(UdpPhase::Drain);
            }
            Some(AloneFinding::NoQueue) => {
                self.lanes.renew_base(now);
                self.others.forget();
                self.enter(UdpPhase::Steady);
            }
            _ if self.phase == UdpPhase::Equal && queue > self.target() => {
                let rtt = self.lanes.round_trip();
                if let Some(part) = self.equal.probe.begin(queue, self.lanes.base(), rtt.max(ROUND_SHORTEST)) {
                    self.pace.rate = self.pace.rate.min(self.carried.recent());
                    self.dip = QueueDip { part, rounds: (rtt / seconds).ceil().max(1.0) as u32 + 1, ..self.dip };
                }
            }
            _ => {}
        }
    }
}

const SCALE: f64 = 0.4;
const CUT: f64 = 0.7;
const RENO: f64 = 0.53;
/// The smallest window.
const PACKETS_LEAST: f64 = 2.0;
/// A session that has this part of what the path carried, for so many rounds, has it alone; and
/// rounds among others at least.
const ALL: f64 = 0.9;
const ROUNDS_ALL: u32 = 3;
const ROUNDS_EQUAL: u32 = 10;
/// Others are gone when no queue stood and none overflowed for this part of the time that a cubic
/// flow takes to grow again, and seconds at least.
const CALM: f64 = 0.6;
const CALM_LEAST: f64 = 1.0;
/// The part of a new rate of a window that is taken each round.
const EQUAL_FOLLOWS: f64 = 0.5;
