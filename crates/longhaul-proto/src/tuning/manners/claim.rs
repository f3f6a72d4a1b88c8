//! The part of a path that a session claims beside others: what it was seen to carry before it was
//! full, and the window of one cubic flow.
//!
//! In: rates and round trips of rounds, and when more was lost than the path loses by itself. Out:
//! the rate that one flow would have. It judges no losses, and sets no rate.

use super::PathRound;

/// The time before the path was full.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPhase {
    /// The delivered rate when it last grew by a quarter, and the rounds since.
    pub(super) grown: (f64, u32),
    /// The rate when the path was found to be full, and the first round trip.
    pub(super) first: (f64, f64),
    /// The bytes on their way and the round trip of the first round and of the last.
    begun: (f64, f64),
    ended: (f64, f64),
    /// The rate that was delivered when much was lost for the first time. 0 if that never was.
    met: f64,
}

/// The window of one cubic flow (RFC 9438).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    /// The rate to which it grows back after it was last cut, and the one at which that was.
    pub(super) cut_at: f64,
    cut_from: f64,
    /// The time since.
    pub(super) age: f64,
    /// The time for which it has been the higher rule while a queue stood.
    pub(super) bold: f64,
    /// It is known that others were there first.
    pub(super) is_late: bool,
}

impl Default for OpenPhase {
    fn default() -> OpenPhase {
        OpenPhase { grown: (0.0, 0), first: (0.0, f64::INFINITY), begun: (0.0, 0.0), ended: (0.0, 0.0), met: 0.0 }
    }
}

impl OpenPhase {
    /// Takes a round, at the end of which `rate` was delivered.
    pub(super) fn look(&mut self, rate: f64, round: &PathRound) {
        let rtt = round.rtt.as_secs_f64();
        self.ended = (rate * rtt, rtt);
        if self.begun.1 == 0.0 || rtt < self.begun.1 {
            self.begun = self.ended;
        }
        if self.first.1.is_infinite() {
            // Before the lanes sent anything there was no queue of theirs.
            self.first.1 = if round.rtt_first.is_zero() { rtt } else { rtt.min(round.rtt_first.as_secs_f64()) };
        }
    }

    /// Looks whether much was lost in a round.
    pub(super) fn meet(&mut self, round: &PathRound) {
        if self.met == 0.0 && round.lost as f64 > LOST_MUCH * (round.delivered + round.lost) as f64 {
            self.met = round.delivered as f64 / round.elapsed.as_secs_f64();
        }
    }

    /// The rate of a path whose queue stood all the while: what was added to it, for the time by
    /// which it became longer.
    fn whole(&self) -> f64 {
        let ((begun, short), (ended, long)) = (self.begun, self.ended);
        let longer = long - short;
        if longer < LONGER * short { 0.0 } else { ((ended - begun) / longer).min(WHOLE_MOST * self.first.0) }
    }

    /// The rate that is claimed beside others, if the path carries `capacity` as far as is known,
    /// and its shortest round trip is `base`: half of it. Who came to a queue that stood already,
    /// which is known when the round trip becomes shorter than it ever was, had seen but a part of
    /// it, and claims most of that, or half of what the queue says.
    pub(super) fn claim(&self, capacity: f64, base: f64) -> f64 {
        let half = HALF * capacity;
        if self.came_to_a_queue(base) {
            half.max(FIRST_KEPT * self.first.0).max((HALF * self.whole()).min(capacity))
        } else {
            half
        }
    }

    /// Whether others were there first: the queue that stood has become shorter, or it overflowed
    /// though this session had but a part of what the path carries.
    pub(super) fn came_late(&self, base: f64, capacity: f64) -> bool {
        self.came_to_a_queue(base) || self.met > 0.0 && self.met < MET * capacity
    }

    fn came_to_a_queue(&self, base: f64) -> bool {
        base < self.first.1 * CAME_LATE - CAME_LATE_LEAST
    }
}

impl Floor {
    /// A window that begins at `claim`, bytes/s.
    pub(super) fn at(claim: f64) -> Floor {
        Floor { cut_at: claim, cut_from: claim, ..Floor::default() }
    }

    /// The same window, cut at `rate`.
    pub(super) fn cut(self, rate: f64) -> Floor {
        Floor { is_late: self.is_late, ..Floor::at(rate) }
    }

    /// The same window, cut by a loss at `rate`: one that lost before it was back grows less, and
    /// leaves room to who came (fast convergence).
    pub(super) fn lose(self, rate: f64) -> Floor {
        let cut_at = if rate < self.cut_at { rate * FAST_CONVERGENCE } else { rate };
        Floor { cut_at, ..self.cut(rate) }
    }

    /// Its rate on a path with this round trip and these packets: `claim` at most, and more only as
    /// it becomes bold.
    pub(super) fn rate(&self, (base, packet): (f64, f64), claim: f64) -> f64 {
        let (window, back) = (self.window(base, packet), self.back(base, packet));
        let cubic = CUBIC_SCALE * (self.age - back).powi(3) + window;
        let reno = window * CUBIC_CUT + RENO * self.age / base.max(BASE_LEAST);
        let rate = cubic.max(reno) * packet / base.max(BASE_LEAST);
        rate.max(self.cut_from * CUBIC_CUT).min(claim * (1.0 + self.bold / BOLD_AFTER))
    }

    /// The seconds until it is again as large as before its cut.
    pub(super) fn back(&self, base: f64, packet: f64) -> f64 {
        (self.window(base, packet) * (1.0 - CUBIC_CUT) / CUBIC_SCALE).cbrt()
    }

    /// Packets on their way when it was cut.
    fn window(&self, base: f64, packet: f64) -> f64 {
        self.cut_at * base.max(BASE_LEAST) / packet.max(1.0)
    }
}

/// RFC 9438: the constants of a cubic window, and the slope of the Reno window beside it.
const CUBIC_SCALE: f64 = 0.4;
const CUBIC_CUT: f64 = 0.7;
const RENO: f64 = 0.53;
const FAST_CONVERGENCE: f64 = (1.0 + CUBIC_CUT) / 2.0;
/// The part of the path that is claimed beside others.
pub(super) const HALF: f64 = 0.5;
/// The part that is claimed of what lanes had when they met others: doubling their rate each round
/// trip, they push into a long queue further than they can stay.
const FIRST_KEPT: f64 = 0.8;
/// A shortest round trip of less than this part of the first one shows that a queue stood then.
const CAME_LATE: f64 = 0.95;
/// ... and seconds shorter, as threads that wake late make round trips longer too.
const CAME_LATE_LEAST: f64 = 0.001;
/// The part of all packets that is much, ...
const LOST_MUCH: f64 = 0.05;
/// ... and the part of what the path carries at which that shows that others are there: a queue of
/// one's own overflows when all of it is carried.
const MET: f64 = 0.75;
/// A round trip that is longer by this part shows how a queue grew, ...
const LONGER: f64 = 0.1;
/// ... and the path to be so many times as fast as what was carried, at most.
const WHOLE_MOST: f64 = 4.0;
/// Seconds after which twice the claim may be had, if no loss tells of others.
pub(super) const BOLD_AFTER: f64 = 10.0;
/// The shortest round trip that is reckoned with.
const BASE_LEAST: f64 = 1e-4;
