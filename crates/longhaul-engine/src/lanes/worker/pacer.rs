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

/// Turns are places in a row of bytes, not times, so that a changed rate moves those of lanes that
/// wait, too.
#[derive(Debug, Default)]
struct Account {
    /// Bytes/s: the lower of the next two. `None` lets everything through.
    rate: Option<u64>,
    /// The rate that somebody asked for.
    asked: Option<u64>,
    /// The rate that the path was found to carry, where this side finds that out.
    path: Option<u64>,
    /// When this rate began, and the place in the row that was due then. `None` before the first.
    began: Option<(Instant, u64)>,
    /// The place in the row behind everything that was let through or has its turn.
    end: u64,
    /// Bytes that have their turn and are not let through. They are the last of the row.
    waiting: u64,
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
        account.asked = rate;
        account.adjust(Instant::now());
        self.0.changed.notify_all();
    }

    /// Changes the rate that the path carries from now on, bytes/s.
    pub(crate) fn set_path_rate(&self, rate: u64) {
        let mut account = self.lock();
        if account.path != Some(rate) {
            account.path = Some(rate);
            account.adjust(Instant::now());
            self.0.changed.notify_all();
        }
    }

    /// The rate that somebody asked for, bytes/s. `None` if nobody did.
    pub(crate) fn asked(&self) -> Option<u64> {
        self.lock().asked
    }

    /// Whether the path allows less than what was asked for.
    pub(crate) fn is_by_path(&self) -> bool {
        self.lock().is_by_path()
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

    /// Waits until `bytes` may be sent, or the lane that asks is closed. The lane takes the next
    /// turn as it asks, and is woken for no other: when all lanes waited for the same moment, all
    /// but one woke in vain.
    pub(crate) fn admit(&self, bytes: usize, is_closed: impl Fn() -> bool) {
        let admitted = self.admit_while(bytes, is_closed, || Ok::<_, std::convert::Infallible>(()));
        admitted.unwrap_or_else(|never| match never {});
    }

    /// As [`Pacer::admit`], and does `meanwhile` each second of the wait. An error of that ends the
    /// wait, and gives the turn back.
    pub(crate) fn admit_while<E>(
        &self,
        bytes: usize,
        is_closed: impl Fn() -> bool,
        mut meanwhile: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut account = self.lock();
        if is_closed() {
            return Ok(());
        }
        let mut looked = Instant::now();
        let Some(turn) = account.reserve(looked, bytes) else { return Ok(()) };
        while let Some(wait) = account.wait(Instant::now(), turn) {
            let slice = wait.min(MEANWHILE_EACH.saturating_sub(looked.elapsed()));
            account = self.0.changed.wait_timeout(account, slice).unwrap_or_else(PoisonError::into_inner).0;
            if is_closed() {
                account.give_back(bytes);
                return Ok(());
            }
            if looked.elapsed() >= MEANWHILE_EACH {
                // Nobody waits for what is done there.
                drop(account);
                let done = meanwhile();
                (account, looked) = (self.lock(), Instant::now());
                if done.is_err() {
                    account.give_back(bytes);
                    return done;
                }
            }
        }
        account.pass(bytes);
        Ok(())
    }

    /// Counts bytes that came and were not asked for one by one.
    pub(crate) fn charge(&self, bytes: u64) {
        let mut account = self.lock();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if account.reserve(Instant::now(), bytes).is_some() {
            account.pass(bytes);
        }
    }

    /// Whether more was counted than the rate allows until now.
    pub(crate) fn is_ahead(&self) -> bool {
        let account = self.lock();
        account.rate.is_some() && account.wait(Instant::now(), account.end).is_some()
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
    /// Keeps the lower of both rates from now on.
    fn adjust(&mut self, now: Instant) {
        self.change(now, self.asked.into_iter().chain(self.path).min());
    }

    fn is_by_path(&self) -> bool {
        self.path.is_some_and(|path| self.asked.is_none_or(|asked| path < asked))
    }

    /// Changes the rate. Bytes that were let through and are not paid for stay owed at the new
    /// rate, so a peer that changes it often gains nothing.
    fn change(&mut self, now: Instant, rate: Option<u64>) {
        let rate = rate.map(|rate| rate.clamp(1, RATE_MAX));
        // Turns that wait are not let through: none of them comes the sooner for it.
        let through = self.end.saturating_sub(self.waiting);
        let due = if self.rate.is_some() { self.due(now) } else { self.end };
        let owed_max = rate.map_or(0, |rate| rate.saturating_mul(OWED_MAX.as_secs()));
        self.began = Some((now, due.max(through.saturating_sub(owed_max))));
        self.rate = rate;
    }

    /// The place in the row that is due now.
    fn due(&self, now: Instant) -> u64 {
        let (Some((began, place)), Some(rate)) = (self.began, self.rate) else { return self.end };
        let carried = now.saturating_duration_since(began).as_nanos() * u128::from(rate) / NANOS_PER_S;
        place.saturating_add(u64::try_from(carried).unwrap_or(u64::MAX))
    }

    /// Takes the next turn for `bytes`: a place in the row. `None`: they need none.
    fn reserve(&mut self, now: Instant, bytes: usize) -> Option<u64> {
        if self.closed || self.rate.is_none() {
            return None;
        }
        // Time in which nothing was sent is lost: this is a rate, not an allowance.
        let turn = self.end.max(self.due(now));
        self.end = turn.saturating_add(bytes as u64);
        self.waiting = self.waiting.saturating_add(bytes as u64);
        Some(turn)
    }

    /// How long that turn is away. `None` if it has come.
    fn wait(&self, now: Instant, turn: u64) -> Option<Duration> {
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
    fn pass(&mut self, bytes: usize) {
        self.waiting = self.waiting.saturating_sub(bytes as u64);
    }

    /// Bytes that have a turn and are not sent are not owed.
    fn give_back(&mut self, bytes: usize) {
        self.pass(bytes);
        self.end = self.end.saturating_sub(bytes as u64);
    }
}

/// How far the account may run ahead of the clock: a thread that is woken late has this much to
/// make good.
const BURST: Duration = Duration::from_millis(20);
/// The same for a rate that the path was found to carry: all of it stands in a queue there.
const BURST_BY_PATH: Duration = Duration::from_millis(4);
/// The time between two looks at something else of a lane that waits for its turn.
const MEANWHILE_EACH: Duration = Duration::from_secs(1);
/// A lower rate holds up bytes that were let through at a higher one for no longer than this.
const OWED_MAX: Duration = Duration::from_secs(5);
/// No rate is higher, bytes/s: the row lasts for half a year.
const RATE_MAX: u64 = 1 << 40;
const NANOS_PER_S: u128 = 1_000_000_000;
/// A grain is a hundredth of a second's worth, ...
const GRAINS_PER_S: u64 = 100;
/// ... but not so little that system calls cost more than bytes.
const GRAIN_MIN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn account(rate: u64, now: Instant) -> Account {
        let mut account = Account::default();
        account.change(now, Some(rate));
        account
    }

    /// Seconds that `bytes` of grains take from `start`, without waiting for them.
    fn seconds(account: &mut Account, start: Instant, bytes: usize, grain: usize) -> f64 {
        let mut now = start;
        for _ in 0..bytes / grain {
            let turn = account.reserve(now, grain).expect("a turn");
            while let Some(wait) = account.wait(now, turn) {
                now += wait;
            }
            account.pass(grain);
        }
        (now - start).as_secs_f64()
    }

    #[test]
    fn what_is_let_through_keeps_the_rate_whatever_the_grain() {
        for grain in [4096, 65_536, PIECE_BYTES] {
            let now = Instant::now();
            let took = seconds(&mut account(10_000_000, now), now, 100 * PIECE_BYTES, grain);
            let want = (100 * PIECE_BYTES) as f64 / 1e7;
            assert!((took - want).abs() < want * 0.02 + 0.03, "{grain}: {took} s, not {want}");
        }
    }

    #[test]
    fn a_pause_is_no_credit() {
        let start = Instant::now();
        let mut account = account(1_000_000, start);
        seconds(&mut account, start, 100_000, 10_000);
        let took = seconds(&mut account, start + Duration::from_secs(60), 1_000_000, 10_000);
        assert!(took > 0.95, "{took}");
    }

    #[test]
    fn a_rate_that_is_changed_again_and_again_is_kept_all_the_same() {
        let start = Instant::now();
        let mut account = account(1_000_000, start);
        let mut now = start;
        for n in 0..100 {
            account.change(now, Some(1_000_000 - n % 2));
            let turn = account.reserve(now, 10_000).expect("a turn");
            while let Some(wait) = account.wait(now, turn) {
                now += wait;
            }
            account.pass(10_000);
        }
        assert!(now - start > Duration::from_millis(950), "{:?}", now - start);
    }

    #[test]
    fn each_lane_that_waits_has_a_turn_of_its_own_and_a_new_rate_moves_it() {
        let now = Instant::now();
        let mut account = account(1_000_000, now);
        // The account may run ahead by as much as a thread may be late.
        account.reserve(now, 20_000).expect("a turn");
        account.pass(20_000);
        let turns = [0; 4].map(|_| account.reserve(now, 10_000).expect("a turn"));
        let waits = |account: &Account| turns.map(|turn| account.wait(now, turn).map_or(0, |wait| wait.as_millis()));
        let near = |is: [u128; 4], want: [u128; 4]| is.iter().zip(want).all(|(is, want)| is.abs_diff(want) <= 1);
        assert!(near(waits(&account), [0, 10, 20, 30]), "{:?}", waits(&account));
        account.change(now, Some(500_000));
        assert!(near(waits(&account), [20, 40, 60, 80]), "{:?}", waits(&account));
        account.give_back(10_000);
        let next = account.reserve(now, 10_000);
        assert_eq!(next, Some(turns[3]), "the turn of a lane that was closed is the next lane's");
    }

    #[test]
    fn a_turn_that_waits_does_not_come_sooner_for_a_low_rate_in_between() {
        let now = Instant::now();
        let mut account = account(1_000_000, now);
        let turns = [0; 4].map(|_| account.reserve(now, 250_000).expect("a turn"));
        let waits = |account: &Account| turns.map(|turn| account.wait(now, turn));
        let before = waits(&account);
        account.change(now, Some(1));
        account.change(now, Some(1_000_000));
        assert_eq!(waits(&account), before);
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
