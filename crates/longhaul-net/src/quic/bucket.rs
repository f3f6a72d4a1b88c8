//! A rate that one connection keeps below QUIC: the token bucket of its socket.
//!
//! Takes the time, sizes of datagrams and a rate; says whether they may leave, or when. Opens
//! nothing. (A generic cell rate algorithm, ITU-T I.371, as the engine's account of a whole session
//! is: the account runs ahead of the clock by the bytes that were let through.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The token bucket of one connection: see the module.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// Bytes/s of UDP payload; 0 lets everything through.
    rate: AtomicU64,
    /// The time at which all bytes that were let through are paid for.
    paid: Mutex<Option<Instant>>,
}

impl Bucket {
    /// Sets the rate in bytes/s from now on; `None` lets everything through.
    pub(crate) fn set_rate(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(0), Ordering::Relaxed);
    }

    /// Lets `bytes` through.
    ///
    /// # Errors
    /// The time at which they may leave, if that is not now.
    pub(crate) fn take(&self, now: Instant, bytes: usize) -> Result<(), Instant> {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return Ok(());
        }
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = paid.map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now)).min(AHEAD_MAX);
        // A datagram that is not worth a wake-up leaves at once, as acknowledgements do, and is
        // charged all the same.
        if ahead > BURST && bytes > SMALL {
            return Err(now + (ahead - BURST) + GATHER);
        }
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        *paid = Some(now + ahead + cost);
        Ok(())
    }

    /// Takes back bytes that the socket would not take: they leave later, and are charged then.
    pub(crate) fn give_back(&self, bytes: usize) {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate > 0 {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            *paid = paid.and_then(|paid| paid.checked_sub(Duration::from_secs_f64(bytes as f64 / rate as f64)));
        }
    }
}

/// The account may run ahead of the clock by this much: timers are a millisecond coarse, and a
/// thread that is woken late must catch up.
const BURST: Duration = Duration::from_millis(8);
/// A connection that is refused waits this much longer than it must: it then sends several batches
/// at a time, and wakes up less often.
const GATHER: Duration = Duration::from_millis(4);
/// After the rate rises, the bytes that were let through at a lower one delay the next by at most
/// this.
const AHEAD_MAX: Duration = Duration::from_millis(500);
/// Datagrams up to this size carry acknowledgements and signs of life.
const SMALL: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds that `count` transmissions of `bytes` take when each is tried again at the time it
    /// is told.
    fn seconds(bucket: &Bucket, late: Duration, count: usize, bytes: usize) -> f64 {
        let start = Instant::now();
        let mut now = start;
        for _ in 0..count {
            while let Err(until) = bucket.take(now, bytes) {
                now = until + late;
            }
        }
        (now - start).as_secs_f64()
    }

    #[test]
    fn the_rate_is_kept_though_every_wake_up_is_late() {
        for late in [0, 1, 3] {
            let bucket = Bucket::default();
            bucket.set_rate(Some(100_000_000));
            let took = seconds(&bucket, Duration::from_millis(late), 2000, 60_000);
            assert!((took - 1.2).abs() < 0.03, "{late} ms late: {took} s, not 1.2");
        }
    }

    #[test]
    fn without_a_rate_nothing_waits_and_small_datagrams_never_do() {
        let bucket = Bucket::default();
        assert_eq!(seconds(&bucket, Duration::ZERO, 1000, 60_000), 0.0);
        bucket.set_rate(Some(1000));
        let now = Instant::now();
        assert!(bucket.take(now, 60_000).is_ok(), "the first may go");
        assert!(bucket.take(now, 60_000).is_err());
        assert!(bucket.take(now, 40).is_ok());
    }

    #[test]
    fn what_the_socket_would_not_take_is_not_charged() {
        let bucket = Bucket::default();
        bucket.set_rate(Some(1_000_000));
        let now = Instant::now();
        for _ in 0..1000 {
            assert!(bucket.take(now, 60_000).is_ok());
            bucket.give_back(60_000);
        }
        assert!(bucket.take(now, 60_000).is_ok());
        assert!(bucket.take(now, 60_000).is_err(), "this one left");
    }
}
