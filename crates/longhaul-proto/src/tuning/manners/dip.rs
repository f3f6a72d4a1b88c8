//! Dips: moments of less, in which the queue of a session runs empty and the shortest round trip is
//! seen, by others too.
//!
//! In: the queue and the shortest round trip, round by round. Out: the part of the rate that is
//! kept. It knows nothing of losses.

use super::history::BaseRoundTrip;

/// A dip, or the time since the last one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dip {
    /// The part of the rate that is kept in this round.
    pub(super) part: f64,
    rounds: u32,
    age: f64,
}

impl Default for Dip {
    fn default() -> Dip {
        Dip { part: 1.0, rounds: 0, age: 0.0 }
    }
}

impl Dip {
    /// Begins a dip if the queue has long stood, and ends it after a round trip.
    pub(super) fn look(&mut self, base: &BaseRoundTrip, queue: f64, (rtt, seconds): (f64, f64)) {
        self.age += seconds;
        if self.rounds > 0 {
            self.rounds -= 1;
        } else if base.age > DIP_EACH && self.age > DIP_EACH {
            let part = (1.0 - queue / base.shortest - DIP_MORE).max(DIP_LEAST);
            *self = Dip { part, rounds: (rtt / seconds).ceil() as u32, age: 0.0 };
        }
        if self.rounds == 0 {
            self.part = 1.0;
        }
    }
}

/// Seconds between two dips, and how much less than the queue a dip is, and at least.
const DIP_EACH: f64 = 10.0;
const DIP_MORE: f64 = 0.05;
const DIP_LEAST: f64 = 0.5;
