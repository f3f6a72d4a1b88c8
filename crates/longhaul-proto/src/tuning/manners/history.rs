//! The memory of a path: its shortest round trip, and the rates that it carried.
//!
//! In: a round trip and a rate for each round. Out: the shortest and the highest of late. It
//! decides nothing.

use std::collections::VecDeque;
use std::time::Duration;

/// The shortest round trip of late.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseRoundTrip {
    /// Infinite before the first.
    pub(super) shortest: f64,
    /// The time since it was seen, and the shortest since then.
    pub(super) age: f64,
    next: f64,
}

/// A round, as far as it shows what the path carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shows {
    /// The session could have all that there was.
    All,
    /// Others, or what is taken for them, hold it down, and a queue stands.
    Part,
    /// It was held down, and no queue stood.
    Less,
    /// It had nothing to send.
    Nothing,
}

/// Some seconds. See [`CarriedRates::remember`].
#[derive(Clone, Copy, Debug)]
struct Slot {
    age: f64,
    /// The rounds that showed all, and those in which there was something to send.
    free: u32,
    sent: u32,
    /// The lowest and the highest rate that was delivered and that was asked for while a queue
    /// stood.
    delivered: (f64, f64),
    asked: (f64, f64),
}

impl Default for Slot {
    fn default() -> Slot {
        let none = (f64::INFINITY, 0.0);
        Slot { age: 0.0, free: 0, sent: 0, delivered: none, asked: none }
    }
}

impl Slot {
    fn add(&mut self, shows: Shows, delivered: f64, asked: f64) {
        self.free += u32::from(shows == Shows::All);
        self.sent += u32::from(shows != Shows::Nothing);
        if shows == Shows::Part {
            let wider = |(least, most): (f64, f64), rate: f64| (least.min(rate), most.max(rate));
            (self.delivered, self.asked) = (wider(self.delivered, delivered), wider(self.asked, asked));
        }
    }

    /// Whether the session could have all in at least half of the rounds in which it had something
    /// to send.
    fn is_free(&self) -> bool {
        self.free > 0 && 2 * self.free >= self.sent
    }

    /// Whether as much was delivered whatever was asked for: then nobody else had a part.
    fn is_steady(&self) -> bool {
        self.asked.1 > ASKED_APART * self.asked.0 && self.delivered.1 < STEADY * self.delivered.0
    }
}

/// The rates that were delivered.
#[derive(Clone, Debug)]
pub(super) struct CarriedRates {
    /// The rates of the last rounds, the newest last.
    rounds: VecDeque<f64>,
    /// The highest in each ten seconds of late, the newest last, and what is known of those.
    highest: VecDeque<f64>,
    slot: Slot,
    /// The rates that were asked for in the last rounds, the newest last.
    asked: VecDeque<f64>,
}

impl Default for BaseRoundTrip {
    fn default() -> BaseRoundTrip {
        BaseRoundTrip { shortest: f64::INFINITY, age: 0.0, next: f64::INFINITY }
    }
}

impl Default for CarriedRates {
    fn default() -> CarriedRates {
        CarriedRates {
            rounds: VecDeque::new(),
            highest: VecDeque::from([0.0]),
            slot: Slot::default(),
            asked: VecDeque::new(),
        }
    }
}

impl BaseRoundTrip {
    /// Takes the round trip of a round.
    pub(super) fn add(&mut self, rtt: f64, seconds: f64) {
        self.age += seconds;
        self.next = self.next.min(rtt);
        if rtt <= self.shortest * SAME_ROUND_TRIP {
            *self = BaseRoundTrip { shortest: self.shortest.min(rtt), age: 0.0, next: f64::INFINITY };
        } else if self.age > BASE_KEPT {
            // The path has become longer.
            *self = BaseRoundTrip { shortest: self.next, age: 0.0, next: f64::INFINITY };
        }
    }
}

impl BaseRoundTrip {
    /// Whether the path is a near one. `first`: the shortest round trip that any lane ever saw. 0
    /// if that is not known.
    pub(super) fn is_near(&self, first: Duration) -> bool {
        let first = if first.is_zero() { f64::INFINITY } else { first.as_secs_f64() };
        self.shortest.min(first) < NEAR_PATH
    }

    /// The path is known to have this round trip now.
    pub(super) fn renew(&mut self, shortest: f64) {
        *self = BaseRoundTrip { shortest, age: 0.0, next: f64::INFINITY };
    }
}

impl CarriedRates {
    /// Lets time pass. The highest rates grow old only in seconds in which the session could have
    /// all that the path carries: if others held it down, it would claim half of its part, and then
    /// half of that.
    pub(super) fn remember(&mut self, shows: Shows, seconds: f64) {
        self.slot.add(shows, self.recent(), self.asked.back().copied().unwrap_or(0.0));
        self.slot.age += seconds;
        if self.slot.age <= HIGHEST_EACH {
            return;
        }
        let slot = std::mem::take(&mut self.slot);
        if slot.is_free() || slot.is_steady() {
            self.highest.push_back(0.0);
        }
        if self.highest.len() > HIGHEST_KEPT {
            self.highest.pop_front();
        }
    }

    /// Takes the rate of a round.
    pub(super) fn add(&mut self, rate: f64) {
        self.rounds.push_back(rate);
        if self.rounds.len() > ROUNDS_KEPT {
            self.rounds.pop_front();
        }
        let now = self.recent();
        if let Some(last) = self.highest.back_mut() {
            *last = last.max(now);
        }
    }

    /// The mean of the last two rounds: one alone may show more than the path carries, as
    /// acknowledgements come in bunches.
    pub(super) fn recent(&self) -> f64 {
        let last = self.rounds.iter().rev().take(2);
        last.clone().sum::<f64>() / last.count().max(1) as f64
    }

    /// Takes the rate that is asked for from now on.
    pub(super) fn ask(&mut self, rate: f64) {
        self.asked.push_back(rate);
        if self.asked.len() > HEARD_AFTER {
            self.asked.pop_front();
        }
    }

    /// Whether what was asked for some rounds ago, less the part `lost`, is delivered `now`.
    pub(super) fn is_used(&self, now: f64, lost: f64) -> bool {
        now > self.asked.front().unwrap_or(&0.0) * (1.0 - lost) * USED
    }

    /// The highest of the last minute in which the session could have all that there was.
    pub(super) fn highest(&self) -> f64 {
        self.highest.iter().copied().fold(0.0, f64::max)
    }

    /// The highest mean of two rounds in a row of late.
    pub(super) fn most(&self) -> f64 {
        let pairs = self.rounds.iter().zip(self.rounds.iter().skip(1));
        pairs.map(|(a, b)| (a + b) / 2.0).fold(self.recent(), f64::max)
    }
}

/// A path with a round trip of fewer seconds is a near one. Its queue is short in time, threads
/// that wake late make its round trips as much longer as that, and the control was tried only from
/// 20 ms on.
const NEAR_PATH: f64 = 0.005;
/// A round trip up to this many times the shortest is as short as that.
const SAME_ROUND_TRIP: f64 = 1.02;
/// Seconds after which a shortest round trip that was not seen again is forgotten.
const BASE_KEPT: f64 = 60.0;
/// Rounds whose rates are remembered.
const ROUNDS_KEPT: usize = 10;
/// The highest rate is remembered for each of so many times ...
const HIGHEST_KEPT: usize = 6;
/// ... of so many seconds.
const HIGHEST_EACH: f64 = 10.0;
/// The path carries what was delivered if that differs by this factor at most while what was asked
/// for differs by that: others would take what a session leaves.
const STEADY: f64 = 1.05;
const ASKED_APART: f64 = 1.3;
/// Lanes that deliver this part of what they were to do so many rounds ago may do more.
const USED: f64 = 0.95;
const HEARD_AFTER: usize = 3;
