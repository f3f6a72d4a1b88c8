//! Owns the signs of life of a lane: whether it moves, has something in hand, or waits for this
//! side's own buffers.
//!
//! In: a beat of the lane's thread with every piece. Out: readings for the session loop. On a
//! `safe` lane an attacker on the path can make a header promise more than was ever sent, or take
//! bytes out; without these signs the lane and the session would wait for them for ever. It knows
//! no streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::Attempt;

use super::PIECE_BYTES;
use super::pacer::Pacer;

/// The counters of one lane, on which its thread beats. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<Beats>);

#[derive(Debug)]
struct Beats {
    made: Instant,
    /// Microseconds in which the lane had nothing in hand, and since when it has nothing: so many
    /// after it was made, plus one. 0 while it has something.
    idle: AtomicU64,
    idle_since: AtomicU64,
    pieces: AtomicU64,
    units: AtomicU64,
    /// Payload bytes moved so far of units that are under way.
    in_hand: AtomicU64,
    /// Units that are under way on a lane that has several.
    open: AtomicU32,
    /// The length of the unit that is being sent, bytes; of several, the sum of those that are sent
    /// for the first time and not reported. 0 if there is none.
    unit: AtomicU64,
    /// Whether that unit was sent before.
    is_again: AtomicBool,
    payload: PayloadBeats,
    doing: AtomicU8,
    closed: AtomicBool,
}

/// When the first payload of all moved, and when a unit was last through: so many microseconds
/// after the counters were made, plus one. 0 if that never was.
#[derive(Debug, Default)]
struct PayloadBeats {
    first: AtomicU64,
    last: AtomicU64,
}

impl Default for Beats {
    fn default() -> Beats {
        Beats {
            made: Instant::now(),
            idle: AtomicU64::new(0),
            idle_since: AtomicU64::new(1),
            pieces: AtomicU64::new(0),
            units: AtomicU64::new(0),
            in_hand: AtomicU64::new(0),
            open: AtomicU32::new(0),
            unit: AtomicU64::new(0),
            is_again: AtomicBool::new(false),
            payload: PayloadBeats::default(),
            doing: AtomicU8::new(NOTHING),
            closed: AtomicBool::new(false),
        }
    }
}

impl Beats {
    fn micros(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_micros()).unwrap_or(u64::MAX - 1)
    }

    /// A unit was sent, or came.
    fn is_through(&self) {
        self.payload.last.store(self.micros() + 1, Ordering::Relaxed);
    }
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It has nothing in hand.
    Nothing,
    /// A unit is under way.
    Moving,
    /// A unit waits for a free buffer: meanwhile this side is the slow one.
    Waiting,
    /// A unit waits because there is a rate to keep.
    Paced,
    /// A unit waits so that others on the path have their part of it.
    Held,
}

/// When the payload of lanes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PayloadTimes {
    /// When the first of it left, or came. `None` if none did.
    pub(crate) first: Option<Instant>,
    /// When the last unit had left, or come. `None` if none did.
    pub(crate) last: Option<Instant>,
}

impl PayloadTimes {
    /// Adds those of other lanes.
    pub(crate) fn add(&mut self, other: PayloadTimes) {
        self.first = self.first.into_iter().chain(other.first).min();
        self.last = self.last.max(other.last);
    }
}

/// A lane's counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PulseReading {
    /// Pieces that were sent, received or hashed so far, plus completed units.
    pub(crate) pieces: u64,
    /// Completed units.
    pub(crate) units: u64,
    /// Payload bytes moved so far of the units that are under way.
    pub(crate) in_hand: u64,
    /// The length of the unit that is being sent, bytes. 0 if there is none.
    pub(crate) unit: u64,
    /// Whether that unit was sent before.
    pub(crate) is_again: bool,
    /// The lane's state.
    pub(crate) doing: Doing,
}

impl Pulse {
    /// Counts a piece that was sent, received or hashed.
    pub(crate) fn beat(&self) {
        self.0.pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts payload bytes that moved of the unit that is under way.
    pub(crate) fn carried(&self, bytes: usize) {
        self.0.in_hand.fetch_add(bytes as u64, Ordering::Relaxed);
        // The clock is read once: a lane may count a million pieces a second.
        if self.0.payload.first.load(Ordering::Relaxed) == 0 {
            self.0.payload.first.store(self.0.micros() + 1, Ordering::Relaxed);
        }
    }

    /// Begins a unit.
    pub(crate) fn begin(&self) {
        self.0.in_hand.store(0, Ordering::Relaxed);
        self.0.doing.store(MOVING, Ordering::Relaxed);
        let since = self.0.idle_since.swap(0, Ordering::Relaxed);
        if since > 0 {
            self.0.idle.fetch_add((self.0.micros() + 1).saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// Begins an attempt to send a unit of `len` bytes.
    pub(crate) fn begin_sending(&self, len: u64, attempt: Attempt) {
        self.0.is_again.store(attempt > Attempt::FIRST, Ordering::Relaxed);
        self.0.unit.store(len, Ordering::Relaxed);
        self.begin();
    }

    /// Ends a unit. That is progress even of a unit without bytes, as in a hole.
    pub(crate) fn done(&self) {
        self.beat();
        self.0.units.fetch_add(1, Ordering::Relaxed);
        // In this order: who looks in between sees a unit that was moved, none that was not.
        self.0.unit.store(0, Ordering::Release);
        self.0.in_hand.store(0, Ordering::Release);
        self.0.doing.store(NOTHING, Ordering::Relaxed);
        self.0.idle_since.store(self.0.micros() + 1, Ordering::Relaxed);
        self.0.is_through();
    }

    /// When its payload moved.
    pub(crate) fn payload_times(&self) -> PayloadTimes {
        let at = |micros: &AtomicU64| match micros.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(self.0.made + Duration::from_micros(micros - 1)),
        };
        PayloadTimes { first: at(&self.0.payload.first), last: at(&self.0.payload.last) }
    }

    /// The time so far in which the lane had nothing in hand.
    pub(crate) fn idle(&self) -> Duration {
        let since = self.0.idle_since.load(Ordering::Relaxed);
        let now = if since > 0 { (self.0.micros() + 1).saturating_sub(since) } else { 0 };
        Duration::from_micros(self.0.idle.load(Ordering::Relaxed) + now)
    }

    /// Begins one of several units.
    pub(crate) fn begin_another(&self) {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.doing.store(MOVING, Ordering::Relaxed);
    }

    /// Begins to send one of several units. `fresh`: its bytes, 0 if it was sent before.
    pub(crate) fn begin_sending_another(&self, fresh: u64) {
        self.0.unit.fetch_add(fresh, Ordering::Relaxed);
        self.begin_another();
    }

    /// One of several units was begun with `fresh`, was sent, and is reported: the session counts
    /// its bytes from now on, of which so many were counted here.
    pub(crate) fn reported(&self, fresh: u64, carried: u64) {
        self.0.is_through();
        // In this order, as in `done`.
        subtract(&self.0.unit, fresh);
        subtract(&self.0.in_hand, carried);
    }

    /// Ends a unit that was whole at once, and never under way.
    pub(crate) fn done_at_once(&self) {
        self.beat();
        self.0.is_through();
        self.0.units.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends one of several units, of which so many bytes were counted.
    pub(crate) fn done_with_one(&self, bytes: u64) {
        self.beat();
        // Of a unit that this side sent, no bytes are counted any more: it was through before.
        if bytes > 0 {
            self.0.is_through();
        }
        self.0.units.fetch_add(1, Ordering::Relaxed);
        subtract(&self.0.in_hand, bytes);
        let before = self.0.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
        if before == Ok(1) {
            // Bytes that came twice, as their unit was cut anew, are counted no longer.
            self.0.in_hand.store(0, Ordering::Release);
        }
        self.resume();
    }

    /// Notes that the other end waits for this side's buffers.
    pub(crate) fn hold(&self) {
        self.0.doing.store(WAITING, Ordering::Relaxed);
    }

    /// Notes that it does so no more.
    pub(crate) fn release(&self) {
        if self.0.doing.load(Ordering::Relaxed) == WAITING {
            // The lane waited for this side, not for the other.
            self.beat();
            self.resume();
        }
    }

    /// Says what a lane with several units does.
    fn resume(&self) {
        let doing = if self.0.open.load(Ordering::Relaxed) > 0 { MOVING } else { NOTHING };
        self.0.doing.store(doing, Ordering::Relaxed);
    }

    /// Runs `wait`, which waits for a free buffer.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.0.doing.store(WAITING, Ordering::Relaxed);
        let waited = wait();
        // The lane waited for this side, not for the other.
        self.beat();
        self.0.doing.store(MOVING, Ordering::Relaxed);
        waited
    }

    /// Closes the lane: it waits for no rate any more, once the pacer is woken.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }

    /// Waits until `pacer` lets some of `bytes` through, or the lane is closed. Returns how many.
    pub(crate) fn paced(&self, pacer: &Pacer, bytes: usize) -> usize {
        if pacer.rate().is_none() {
            return bytes.min(PIECE_BYTES);
        }
        // A lane that sends as fast as its path carries is at work, and what is left to others is
        // the network's limit.
        let doing = match () {
            () if pacer.is_by_path() => MOVING,
            () if pacer.is_asked() => PACED,
            () => HELD,
        };
        self.0.doing.store(doing, Ordering::Relaxed);
        let admitted = pacer.admit(bytes, || self.0.closed.load(Ordering::Relaxed));
        self.0.doing.store(MOVING, Ordering::Relaxed);
        admitted
    }

    /// As [`Pulse::paced`], of a lane with several units, which does `meanwhile` each 50 ms. An
    /// error of that ends the wait. Without a rate all of `bytes` may go.
    pub(crate) fn paced_while<E>(
        &self,
        pacer: &Pacer,
        bytes: usize,
        meanwhile: impl FnMut() -> Result<(), E>,
    ) -> Result<usize, E> {
        if pacer.rate().is_none() {
            return Ok(bytes);
        }
        if pacer.is_by_path() {
            self.resume();
        } else {
            self.0.doing.store(PACED, Ordering::Relaxed);
        }
        let admitted = pacer.admit_while(bytes, || self.0.closed.load(Ordering::Relaxed), meanwhile);
        self.resume();
        admitted
    }

    /// The counters now.
    pub(crate) fn read(&self) -> PulseReading {
        let in_hand = self.0.in_hand.load(Ordering::Acquire);
        PulseReading {
            pieces: self.0.pieces.load(Ordering::Relaxed),
            units: self.0.units.load(Ordering::Relaxed),
            in_hand,
            unit: self.0.unit.load(Ordering::Acquire),
            is_again: self.0.is_again.load(Ordering::Relaxed),
            doing: match self.0.doing.load(Ordering::Relaxed) {
                WAITING => Doing::Waiting,
                PACED => Doing::Paced,
                HELD => Doing::Held,
                MOVING => Doing::Moving,
                _ => Doing::Nothing,
            },
        }
    }
}

fn subtract(from: &AtomicU64, bytes: u64) {
    let left = |before: u64| Some(before.saturating_sub(bytes));
    let _ = from.fetch_update(Ordering::Release, Ordering::Relaxed, left);
}

const NOTHING: u8 = 0;
const MOVING: u8 = 1;
const WAITING: u8 = 2;
const PACED: u8 = 3;
const HELD: u8 = 4;

impl PulseReading {
    /// The length of the unit that is being sent, if it was not sent before.
    pub(crate) fn fresh_unit(&self) -> u64 {
        if self.is_again { 0 } else { self.unit }
    }
}

/// Watches all receiving lanes of a session together for arrivals that are overdue.
#[derive(Debug)]
pub(crate) struct ArrivalDeadline {
    pieces: u64,
    since: Instant,
}

impl ArrivalDeadline {
    /// Begins to watch.
    pub(crate) fn new() -> ArrivalDeadline {
        ArrivalDeadline { pieces: 0, since: Instant::now() }
    }

    /// Whether something is `owed`, nothing keeps this side from taking it, and no lane has brought
    /// a piece for longer than [`OVERDUE`]. `pieces`: those of all lanes so far, lost lanes too.
    pub(crate) fn is_overdue(&mut self, owed: bool, pieces: u64, held_up: bool) -> bool {
        if !owed || held_up || pieces != self.pieces {
            (self.pieces, self.since) = (pieces, Instant::now());
        }
        self.since.elapsed() >= OVERDUE
    }
}

/// How long a peer may bring nothing. A piece of 256 KiB takes less on any lane of more than 9
/// KB/s.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_moves_from_the_first_piece_to_the_last_unit_that_is_through() {
        let pulse = Pulse::default();
        assert_eq!(pulse.payload_times(), PayloadTimes::default());
        pulse.begin();
        pulse.carried(1);
        let first = pulse.payload_times();
        assert!(first.first.is_some() && first.last.is_none(), "{first:?}");
        pulse.carried(1);
        pulse.done();
        let done = pulse.payload_times();
        assert!(done.first == first.first && done.last >= done.first, "{done:?}");
        // A unit that was reported before is whole at the other end.
        pulse.done_with_one(0);
        assert_eq!(pulse.payload_times(), done);
        let mut both = PayloadTimes { last: None, ..first };
        both.add(done);
        assert_eq!(both, done);
    }

    #[test]
    fn the_time_without_a_unit_adds_up() {
        let pulse = Pulse::default();
        let until = |least: Duration| {
            while pulse.idle() < least {
                std::thread::yield_now();
            }
        };
        until(Duration::from_millis(2));
        pulse.begin();
        let before = pulse.idle();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        assert_eq!(pulse.idle(), before, "it has a unit in hand");
        pulse.done();
        until(before + Duration::from_millis(2));
    }
}
