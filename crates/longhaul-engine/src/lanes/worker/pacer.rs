//! Keeps all sending lanes of a session together below a rate.
//!
//! In: the rate, and requests of lanes to send a grain. Out: when each may go on. There is one
//! account for all lanes, so a fast lane takes what a slow one leaves. The kernel paces each TCP
//! connection besides ([`Pacer::share`]), so that a grain does not leave as a burst. (A generic
//! cell rate algorithm, ITU-T I.371: the account runs ahead of the clock by the bytes that were let
//! through.) It knows no streams.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::PIECE_BYTES;

/// The rates that a session's lanes keep together, bytes/s. `None` for no rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneRates {
    /// This side's own rate.
    pub(crate) own_rate: Option<u64>,
    /// The rate that the other side asked for.
    pub(crate) asked_rate: Option<u64>,
}

impl LaneRates {
    /// This side's own rate, and the one that the other side asked for on the wire.
    pub(crate) fn of(own_rate: Option<u64>, asked: u64) -> LaneRates {
        LaneRates { own_rate, asked_rate: LaneRates::from_wire(asked) }
    }

    /// The lower of both.
    pub(crate) fn lowest(self) -> Option<u64> {
        self.own_rate.into_iter().chain(self.asked_rate).min()
    }

    /// Decodes a rate of the wire: 0 is `None`.
    pub(crate) fn from_wire(rate: u64) -> Option<u64> {
        Some(rate).filter(|rate| *rate > 0)
    }
}

/// The account of the rate. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer(Arc<PacerState>);

#[derive(Debug, Default)]
struct PacerState {
    account: Mutex<Account>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Account {
    /// Bytes/s. `None` lets everything through.
    rate: Option<u64>,
    /// When everything that was let through is paid for.
    paid: Option<Instant>,
    closed: bool,
}

impl Pacer {
    /// Keeps `rate`, bytes/s. `None`: no rate.
    pub(crate) fn new(rate: Option<u64>) -> Pacer {
        let pacer = Pacer::default();
        pacer.set_rate(rate);
        pacer
    }

    /// Changes the rate from now on. Lanes that wait are woken.
    pub(crate) fn set_rate(&self, rate: Option<u64>) {
        let mut account = self.lock();
        account.change(Instant::now(), rate.map(|rate| rate.max(1)));
        self.0.changed.notify_all();
    }

    /// The rate, bytes/s. `None` for no rate.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.lock().rate
    }

    /// Lets everything through from now on, because the session ends.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.0.changed.notify_all();
    }

    /// Bytes that a lane may send at a time: a hundredth of a second's worth.
    pub(crate) fn grain(&self) -> usize {
        let moment = |rate: u64| usize::try_from(rate / GRAINS_PER_S).unwrap_or(usize::MAX);
        self.rate().map_or(PIECE_BYTES, |rate| moment(rate).clamp(GRAIN_MIN, PIECE_BYTES))
    }

    /// Has lanes that wait check whether they were closed.
    pub(crate) fn wake(&self) {
        // The lock is taken so that no lane is between its check and its wait.
        let _account = self.lock();
        self.0.changed.notify_all();
    }

    /// Waits until `bytes` may be sent, or the lane that asks is closed.
    pub(crate) fn admit(&self, bytes: usize, is_closed: impl Fn() -> bool) {
        let mut account = self.lock();
        loop {
            // Bytes that are not sent are not owed.
            if is_closed() {
                return;
            }
            let now = Instant::now();
            let Some(wait) = account.wait(now) else { return account.let_through(now, bytes) };
            account = self.0.changed.wait_timeout(account, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The rate that the kernel may give each of `lanes` connections, bytes/s: twice its share, as
    /// some lanes carry less than theirs. The account keeps the whole. `None` for no rate.
    pub(crate) fn share(&self, lanes: usize) -> Option<u64> {
        let rate = self.rate()?;
        Some(if lanes <= 1 { rate } else { (rate / lanes as u64).saturating_mul(2) }.max(1))
    }

    fn lock(&self) -> MutexGuard<'_, Account> {
        self.0.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Changes the rate. Bytes that were let through and are not paid for stay owed at the new
    /// rate, so a peer that changes it often gains nothing.
    fn change(&mut self, now: Instant, rate: Option<u64>) {
        if let (Some(old), Some(new), Some(paid)) = (self.rate, rate, self.paid) {
            let owed = paid.saturating_duration_since(now).as_secs_f64() * old as f64 / new as f64;
            self.paid = Some(now + Duration::from_secs_f64(owed.min(OWED_MAX.as_secs_f64())));
        }
        self.rate = rate;
    }

    /// How long the next grain has to wait. `None` if it need not.
    fn wait(&self, now: Instant) -> Option<Duration> {
        if self.closed || self.rate.is_none() {
            return None;
        }
        let ahead = self.paid?.saturating_duration_since(now);
        (ahead > BURST).then(|| ahead - BURST)
    }

    fn let_through(&mut self, now: Instant, bytes: usize) {
        if let Some(rate) = self.rate {
            let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
            // Time in which nothing was sent is lost: this is a rate, not an allowance.
            self.paid = Some(self.paid.map_or(now, |paid| paid.max(now)) + cost);
        }
    }
}

/// How far the account may run ahead of the clock: a thread that is woken late has this much to
/// make good.
const BURST: Duration = Duration::from_millis(20);
/// A lower rate holds up bytes that were let through at a higher one for no longer than this.
const OWED_MAX: Duration = Duration::from_secs(5);
/// A grain is a hundredth of a second's worth, ...
const GRAINS_PER_S: u64 = 100;
/// ... but not so little that system calls cost more than bytes.
const GRAIN_MIN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds that `bytes` of grains take from `start`, without waiting for them.
    fn seconds(account: &mut Account, start: Instant, bytes: usize, grain: usize) -> f64 {
        let mut now = start;
        for _ in 0..bytes / grain {
            while let Some(wait) = account.wait(now) {
                now += wait;
            }
            account.let_through(now, grain);
        }
        (now - start).as_secs_f64()
    }

    #[test]
    fn what_is_let_through_keeps_the_rate_whatever_the_grain() {
        for grain in [4096, 65_536, PIECE_BYTES] {
            let mut account = Account { rate: Some(10_000_000), ..Account::default() };
            let took = seconds(&mut account, Instant::now(), 100 * PIECE_BYTES, grain);
            let want = (100 * PIECE_BYTES) as f64 / 1e7;
            assert!((took - want).abs() < want * 0.02 + 0.03, "{grain}: {took} s, not {want}");
        }
    }

    #[test]
    fn a_pause_is_no_credit() {
        let mut account = Account { rate: Some(1_000_000), ..Account::default() };
        let start = Instant::now();
        seconds(&mut account, start, 100_000, 10_000);
        let took = seconds(&mut account, start + Duration::from_secs(60), 1_000_000, 10_000);
        assert!(took > 0.95, "{took}");
    }

    #[test]
    fn a_rate_that_is_changed_again_and_again_is_kept_all_the_same() {
        let mut account = Account { rate: Some(1_000_000), ..Account::default() };
        let start = Instant::now();
        let mut now = start;
        for n in 0..100 {
            account.change(now, Some(1_000_000 - n % 2));
            while let Some(wait) = account.wait(now) {
                now += wait;
            }
            account.let_through(now, 10_000);
        }
        assert!(now - start > Duration::from_millis(950), "{:?}", now - start);
    }

    #[test]
    fn a_new_rate_and_the_end_wake_a_lane_that_waits() {
        for end in [false, true] {
            let pacer = Pacer::new(Some(1));
            pacer.admit(1 << 20, || false);
            let waiting = pacer.clone();
            let lane = std::thread::spawn(move || waiting.admit(1, || false));
            if end {
                pacer.close()
            } else {
                pacer.set_rate(None)
            }
            lane.join().expect("it is let through");
        }
    }

    #[test]
    fn grains_are_small_where_the_rate_is_and_shares_add_up_to_twice_the_rate() {
        assert_eq!(Pacer::new(Some(100_000)).grain(), GRAIN_MIN);
        assert_eq!(Pacer::new(Some(1_000_000)).grain(), 10_000);
        assert_eq!(Pacer::new(Some(1 << 40)).grain(), PIECE_BYTES);
        assert_eq!(Pacer::new(None).grain(), PIECE_BYTES);
        assert_eq!(Pacer::new(Some(800)).share(4), Some(400));
        assert_eq!(Pacer::new(Some(800)).share(1), Some(800));
        assert_eq!(Pacer::new(None).share(1), None);
    }
}
