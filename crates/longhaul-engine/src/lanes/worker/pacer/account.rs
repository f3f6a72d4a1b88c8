//! The row of turns of [`Pacer`](super::Pacer): places in a row of bytes, and the rate that moves
//! it.
//!
//! In: rates, the time, and bytes that ask for a turn. Out: places, and how long they are not due.
//! It wakes nobody.

use std::time::{Duration, Instant};

use super::{PIECE_BYTES, SAME_RATE};

/// Turns are places in a row of bytes, not times, so that a changed rate moves those of lanes that
/// wait, too.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// The rate that was asked for.
    pub(super) asked: Option<u64>,
    /// The one of the manners.
    pub(super) manners: Option<u64>,
    /// The rate that the control of UDP lanes says.
    pub(super) path: Option<u64>,
    /// The lowest of them, bytes/s. `None` lets everything through.
    pub(super) rate: Option<u64>,
    /// The lowest rate since lanes that wait were woken last, bytes/s: none of them sleeps by a
    /// lower one. 0 before the first time.
    pub(super) slowest: u64,
    /// When this rate began, and the place in the row that was due then. `None` before the first.
    pub(super) began: Option<(Instant, u64)>,
    /// The place in the row behind everything that was let through or has its turn.
    pub(super) end: u64,
    /// Bytes that have their turn and are not let through. They are the last of the row.
    pub(super) waiting: u64,
    /// The lanes that have such a turn.
    pub(super) waiters: u64,
    /// The time so far in which lanes asked for less than this rate lets through.
    pub(super) unused: Duration,
    /// How often the turns of lanes that wait were taken back, as the rate fell far.
    pub(super) recuts: u64,
    /// Whether it lets everything through, as its session is over.
    pub(super) closed: bool,
}

impl Account {
    /// Takes the lowest rate.
    pub(super) fn follow(&mut self, now: Instant) {
        self.change(now, self.asked.into_iter().chain(self.manners).chain(self.path).min());
    }

    /// Takes the rate that the control of UDP lanes says. Returns whether lanes that wait are to be
    /// woken: their turns come sooner by more than a fiftieth of their wait, or are smaller. The
    /// control says another rate each round trip, and a lane that sleeps a little too long makes
    /// it good with its next turn.
    pub(super) fn follow_path(&mut self, now: Instant, rate: u64) -> bool {
        let (was_by_path, recuts) = (self.is_by_path(), self.recuts);
        self.path = Some(rate);
        self.follow(now);
        let longest = self.slowest.saturating_add(self.slowest / SAME_RATE);
        let is_sooner = self.rate.is_some_and(|rate| rate > longest);
        is_sooner || self.recuts > recuts || self.is_by_path() != was_by_path
    }

    /// Lanes that wait are woken, and sleep on by the rate of now.
    pub(super) fn wake(&mut self) {
        self.slowest = self.rate.unwrap_or(u64::MAX);
    }

    /// Whether the path of UDP lanes allows less than what was asked for.
    pub(super) fn is_by_path(&self) -> bool {
        self.path.is_some_and(|path| self.asked.is_none_or(|asked| path < asked))
    }

    /// Changes the rate. Bytes that were let through and are not paid for stay owed at the new
    /// rate, so a peer that changes it often gains nothing.
    pub(super) fn change(&mut self, now: Instant, rate: Option<u64>) {
        let rate = rate.map(|rate| rate.clamp(1, RATE_MAX));
        // Turns that wait are not let through: none of them comes the sooner for it.
        let through = self.end.saturating_sub(self.waiting);
        self.unused += self.ahead(now);
        // Time in which nothing was sent is lost, and counted.
        let due = self.due(now).min(self.end);
        let owed_max = rate.map_or(0, |rate| rate.saturating_mul(OWED_MAX.as_secs()));
        self.began = Some((now, due.max(through.saturating_sub(owed_max))));
        self.rate = rate;
        self.slowest = self.slowest.min(rate.unwrap_or(u64::MAX));
        // A turn that was short at the old rate may be long at the new one.
        let longest = rate.map_or(u64::MAX, |rate| rate.saturating_mul(TURN_LONGEST.as_secs()));
        if self.waiting > longest && self.waiting > self.waiters * 2 * self.grain() as u64 {
            (self.end, self.waiting, self.waiters, self.recuts) = (through, 0, 0, self.recuts + 1);
        }
    }

    /// Bytes that a lane may send at a time: a hundredth of a second's worth.
    pub(super) fn grain(&self) -> usize {
        let moment = |rate: u64| usize::try_from(rate / GRAINS_PER_S).unwrap_or(usize::MAX);
        self.rate.map_or(PIECE_BYTES, |rate| moment(rate).clamp(GRAIN_MIN, PIECE_BYTES))
    }

    /// The place in the row that is due now.
    pub(super) fn due(&self, now: Instant) -> u64 {
        let (Some((began, place)), Some(rate)) = (self.began, self.rate) else { return self.end };
        let carried = now.saturating_duration_since(began).as_nanos() * u128::from(rate) / NANOS_PER_S;
        place.saturating_add(u64::try_from(carried).unwrap_or(u64::MAX))
    }

    /// The time by which the place that is due is ahead of the row.
    pub(super) fn ahead(&self, now: Instant) -> Duration {
        let bytes = self.due(now).saturating_sub(self.end);
        self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bytes as f64 / rate as f64))
    }

    /// Takes the next turn for `bytes`: a place in the row. `None`: they need none.
    pub(super) fn reserve(&mut self, now: Instant, bytes: usize) -> Option<u64> {
        if self.closed || self.rate.is_none() {
            return None;
        }
        // Time in which nothing was sent is lost: this is a rate, not an allowance.
        self.unused += self.ahead(now);
        let turn = self.end.max(self.due(now));
        self.end = turn.saturating_add(bytes as u64);
        self.waiting = self.waiting.saturating_add(bytes as u64);
        self.waiters += 1;
        Some(turn)
    }

    /// How long that turn is away. `None` if it has come.
    pub(super) fn wait(&self, now: Instant, turn: u64) -> Option<Duration> {
        let ((began, place), rate) = (self.began?, self.rate.filter(|_| !self.closed)?);
        let after = u128::from(turn.saturating_sub(place)) * NANOS_PER_S / u128::from(rate);
        let due = Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX)).saturating_sub(if self.is_by_path() {
            BURST_BY_PATH
        } else {
            BURST
        });
        let wait = due.saturating_sub(now.saturating_duration_since(began));
        (!wait.is_zero()).then_some(wait)
    }

    /// The bytes of a turn are let through.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.waiting = self.waiting.saturating_sub(bytes as u64);
        self.waiters = self.waiters.saturating_sub(1);
    }

    /// Bytes that have a turn and are not sent are not owed.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.pass(bytes);
        self.end = self.end.saturating_sub(bytes as u64);
    }
}

/// How far the account may run ahead of the clock: a thread that is woken late has this much to
/// make good.
const BURST: Duration = Duration::from_millis(20);
/// The same for a rate that the path was found to carry: all of it stands in a queue there.
const BURST_BY_PATH: Duration = Duration::from_millis(4);
/// A lower rate holds up bytes that were let through at a higher one for no longer than this.
const OWED_MAX: Duration = Duration::from_secs(5);
/// Turns beyond this at a lower rate are taken back, and smaller ones taken. A lane in the middle
/// of a unit would be given up at the other end.
const TURN_LONGEST: Duration = Duration::from_secs(2);
/// No rate is higher, bytes/s: the row lasts for half a year.
const RATE_MAX: u64 = 1 << 40;
const NANOS_PER_S: u128 = 1_000_000_000;
/// A grain is a hundredth of a second's worth, ...
const GRAINS_PER_S: u64 = 100;
/// ... but not so little that system calls cost more than bytes.
pub(super) const GRAIN_MIN: usize = 4096;
