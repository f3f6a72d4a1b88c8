//! A rate that lanes keep below QUIC, in turns.
//!
//! Takes the time, bytes that were sent and a rate; gives turns, and when each begins. Opens
//! nothing. (A generic cell rate algorithm, ITU-T I.371, as the engine's account of a whole session
//! is: the account runs ahead of the clock by the turns that were given.)
//!
//! A lane reserves its next turn and sleeps until just that. If lanes waited for the account
//! itself, all of them would wake for each turn, and all but one in vain.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An account of a rate: see the module.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The length of a turn.
    each: Duration,
    /// Bytes/s of UDP payload; 0 lets everything through.
    rate: AtomicU64,
    /// Turns that were given and are not over.
    given: AtomicUsize,
    /// The time at which all turns that were given are paid for.
    paid: Mutex<Option<Instant>>,
}

/// A turn to send. What was not used of it, or was sent beyond it, is settled when it is dropped.
#[derive(Debug)]
pub(crate) struct SendTurn {
    bucket: Arc<Bucket>,
    at: Instant,
    rate: u64,
    /// Bytes that may still be sent; less than none if more were.
    left: i64,
}

impl Bucket {
    /// An account of one lane, without a rate.
    pub(crate) fn of_lane() -> Arc<Bucket> {
        Bucket::new(LANE_TURN)
    }

    /// An account of all lanes of a path, without a rate.
    pub(crate) fn of_path() -> Arc<Bucket> {
        Bucket::new(PATH_TURN)
    }

    fn new(each: Duration) -> Arc<Bucket> {
        Arc::new(Bucket { each, rate: AtomicU64::default(), given: AtomicUsize::new(0), paid: Mutex::default() })
    }

    /// Sets the rate in bytes/s from now on; `None` lets everything through.
    pub(crate) fn set_rate(&self, now: Instant, rate: Option<u64>) {
        let rate = rate.unwrap_or(0);
        let before = self.rate.swap(rate, Ordering::Relaxed);
        if before == rate || before == 0 || rate == 0 {
            return;
        }
        // What was let through at another rate is paid for at this one.
        let mut paid = self.paid();
        let ahead = paid.map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now));
        if !ahead.is_zero() {
            *paid = Some(now + self.ahead_at(ahead, before, rate));
        }
    }

    /// Gives the next turn. `None` if there is no rate.
    pub(crate) fn turn(self: &Arc<Bucket>, now: Instant) -> Option<SendTurn> {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        let bytes = self.bytes(rate);
        let mut paid = self.paid();
        let earliest = now.checked_sub(LATE).unwrap_or(now);
        let at = paid.map_or(now, |paid| paid.max(earliest));
        *paid = Some(at + cost(bytes, rate));
        self.given.fetch_add(1, Ordering::Relaxed);
        Some(SendTurn { bucket: self.clone(), at, rate, left: bytes as i64 })
    }

    /// The bytes of a turn at this rate.
    fn bytes(&self, rate: u64) -> u64 {
        ((rate as f64 * self.each.as_secs_f64()) as u64).clamp(TURN_BYTES.0, TURN_BYTES.1)
    }

    /// The time at `rate` of what took so long at `before`. The debt of a higher rate is limited to
    /// [`AHEAD_MAX`], beyond the turns that were given and as much again: packets do not end where
    /// turns do.
    fn ahead_at(&self, ahead: Duration, before: u64, rate: u64) -> Duration {
        let grows = (before as f64 / rate.max(1) as f64).min(AHEAD_GROWS);
        let turns = self.bytes(rate).saturating_mul(2 * self.given.load(Ordering::Relaxed) as u64);
        ahead.mul_f64(grows).min(AHEAD_MAX + cost(turns, rate))
    }

    fn paid(&self) -> MutexGuard<'_, Option<Instant>> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendTurn {
    /// When it begins.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Follows the rate of now, if the turn was given at another: it keeps its place among the
    /// turns of the others, which follow too, and is no longer than one that is given now.
    ///
    /// A turn that was given back and taken anew would come after all others. If all lanes did so,
    /// all of them would begin at the same time.
    pub(crate) fn follow(&mut self, now: Instant) {
        let rate = self.bucket.rate.load(Ordering::Relaxed);
        if rate == 0 || rate == self.rate {
            return;
        }
        let ahead = self.at.saturating_duration_since(now);
        if !ahead.is_zero() {
            self.at = now + self.bucket.ahead_at(ahead, self.rate, rate);
        }
        self.rate = rate;
        let left = self.left.min(i64::try_from(self.bucket.bytes(rate)).unwrap_or(i64::MAX));
        let back = self.left - left;
        if back > 0 {
            self.left = left;
            let mut paid = self.bucket.paid();
            *paid = paid.and_then(|paid| paid.checked_sub(cost(back.unsigned_abs(), rate)));
        }
    }

    /// Bytes that may still be sent in it.
    pub(crate) fn left(&self) -> i64 {
        self.left
    }

    /// Notes that only so many more may be sent; less than none if too many were.
    pub(crate) fn leave(&mut self, left: i64) {
        self.left = left;
    }
}

impl Drop for SendTurn {
    fn drop(&mut self) {
        self.bucket.given.fetch_sub(1, Ordering::Relaxed);
        let rate = Some(self.bucket.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0).unwrap_or(self.rate);
        let mut paid = self.bucket.paid();
        let change = cost(self.left.unsigned_abs(), rate);
        *paid = paid.and_then(|paid| if self.left < 0 { Some(paid + change) } else { paid.checked_sub(change) });
    }
}

fn cost(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

/// The length of a turn: timers are a millisecond coarse, and each turn is a wake-up. A burst that
/// is longer needs more room in a path's queue. Lanes that share a path have their turns one after
/// the other; those that do not may have them all at once, as they are on a short path, or have all
/// of it.
const PATH_TURN: Duration = Duration::from_millis(2);
const LANE_TURN: Duration = Duration::from_millis(4);
/// The least bytes of a turn, two packets of an Ethernet, and the most.
const TURN_BYTES: (u64, u64) = (3000, 512 << 10);
/// A thread that is woken late catches up by this much.
const LATE: Duration = Duration::from_millis(8);
/// After the rate falls, what was sent delays the next turn by at most this, and by so many times
/// as long.
const AHEAD_MAX: Duration = Duration::from_millis(500);
const AHEAD_GROWS: f64 = 1e3;

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(now: Instant, rate: u64) -> Arc<Bucket> {
        let bucket = Bucket::of_path();
        bucket.set_rate(now, Some(rate));
        bucket
    }

    /// Seconds that a lane takes to send `bytes` in datagrams of 60,000, if it begins each turn so
    /// late.
    fn seconds(bucket: &Arc<Bucket>, start: Instant, late: Duration, bytes: u64) -> f64 {
        let (mut now, mut sent) = (start, 0);
        while sent < bytes {
            let mut turn = bucket.turn(now).expect("a rate");
            if turn.at() > now {
                now = turn.at() + late;
            }
            while turn.left() > 0 {
                turn.leave(turn.left() - 60_000);
                sent += 60_000;
            }
        }
        (now - start).as_secs_f64()
    }

    #[test]
    fn the_rate_is_kept_though_every_turn_begins_late_and_ends_in_the_midst_of_a_batch() {
        for late in [0, 1, 3] {
            let now = Instant::now();
            let took = seconds(&bucket(now, 100_000_000), now, Duration::from_millis(late), 120_000_000);
            assert!((took - 1.2).abs() < 0.03, "{late} ms late: {took} s, not 1.2");
        }
    }

    #[test]
    fn each_lane_has_a_turn_of_its_own_and_what_it_does_not_use_is_for_the_next() {
        let now = Instant::now();
        let bucket = bucket(now, 1_000_000_000);
        let at = |turn: &SendTurn| turn.at().saturating_duration_since(now).as_micros();
        let turns = [(); 3].map(|()| bucket.turn(now).expect("a rate"));
        // A turn has 512 KiB.
        assert_eq!(turns.each_ref().map(at), [0, 524, 1048]);
        drop(turns);
        assert_eq!(at(&bucket.turn(now).expect("a rate")), 0);
    }

    #[test]
    fn without_a_rate_there_are_no_turns_and_a_pause_is_no_credit() {
        let now = Instant::now();
        assert!(Bucket::of_lane().turn(now).is_none());
        let bucket = bucket(now, 1_000_000);
        bucket.turn(now).expect("a rate").leave(-100_000);
        let later = now + Duration::from_secs(60);
        let took = seconds(&bucket, later, Duration::ZERO, 960_000);
        assert!((0.85..1.0).contains(&took), "{took}");
    }

    #[test]
    fn what_was_sent_is_paid_for_at_the_rate_of_now() {
        let now = Instant::now();
        let bucket = bucket(now, 1_000_000);
        bucket.turn(now).expect("a rate").leave(-100_000);
        let ahead = || bucket.turn(now).expect("a rate").at().saturating_duration_since(now).as_millis();
        assert!((100..105).contains(&ahead()));
        bucket.set_rate(now, Some(2_000_000));
        assert!((50..53).contains(&ahead()));
        bucket.set_rate(now, Some(1));
        assert_eq!(ahead(), AHEAD_MAX.as_millis());
    }

    /// Bytes/s that so many lanes send in ten seconds, in packets of 1400 bytes. The rate changes
    /// by so many bytes/s back and forth.
    fn sum_of_lanes(lanes: usize, rate: u64, change: u64) -> f64 {
        let start = Instant::now();
        let (bucket, end) = (bucket(start, rate), start + Duration::from_secs(10));
        let mut waiting: Vec<_> = (0..lanes).map(|_| bucket.turn(start).expect("a rate")).collect();
        let (mut now, mut sent, mut is_high) = (start, 0, false);
        for _ in 0..100_000 {
            is_high = !is_high;
            bucket.set_rate(now, Some(rate + u64::from(is_high) * change));
            waiting.iter_mut().for_each(|turn| turn.follow(now));
            waiting.sort_by_key(|turn| std::cmp::Reverse(turn.at()));
            let mut turn = waiting.pop().expect("a lane");
            now = now.max(turn.at());
            if now >= end {
                return sent as f64 / 10.0;
            }
            while turn.left() > 0 {
                turn.leave(turn.left() - 1400);
                sent += 1400;
            }
            drop(turn);
            waiting.push(bucket.turn(now).expect("a rate"));
        }
        panic!("ten seconds do not end");
    }

    #[test]
    fn many_lanes_together_keep_a_low_rate() {
        for change in [0, 1000] {
            let rate = sum_of_lanes(32, 64 << 10, change) / f64::from(64 << 10);
            assert!((0.95..1.1).contains(&rate), "{rate} times the rate, which changes by {change}");
        }
    }

    #[test]
    fn a_turn_keeps_its_place_when_the_rate_changes_and_is_as_long_as_one_of_now() {
        let now = Instant::now();
        let bucket = bucket(now, 64_000);
        let mut turns = [(); 32].map(|()| bucket.turn(now).expect("a rate"));
        let millis = |turn: &SendTurn| turn.at().saturating_duration_since(now).as_millis();
        assert_eq!(millis(&turns[16]), 750);
        bucket.set_rate(now, Some(640_000));
        turns.iter_mut().for_each(|turn| turn.follow(now));
        assert_eq!([8, 16, 24].map(|turn: usize| millis(&turns[turn])), [37, 75, 112]);
        drop(turns);
        assert_eq!(millis(&bucket.turn(now).expect("a rate")), 0, "all of it was given back");
        bucket.set_rate(now, Some(100_000_000));
        let mut turn = bucket.turn(now).expect("a rate");
        bucket.set_rate(now, Some(1_000_000));
        turn.follow(now);
        assert_eq!(turn.left(), 3000);
    }
}
