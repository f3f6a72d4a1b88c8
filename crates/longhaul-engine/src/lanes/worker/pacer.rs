//! Keeps all sending lanes of a session together below a rate.
//!
//! In: the rate that was asked for, those that manners and the control of UDP lanes leave, and
//! requests of lanes to send a grain. Out: when each may go on. There is one account for all lanes,
//! so a fast lane takes what a slow one leaves. The kernel paces each TCP connection besides
//! ([`Pacer::share`]), so that a grain does not leave as a burst. (A generic cell rate algorithm,
//! ITU-T I.371: the account runs ahead of the clock by the bytes that were let through.) It knows
//! no streams.

mod account;

use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::account::Account;
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
        account.follow(Instant::now());
        self.wake_waiting(&mut account);
    }

    /// Keeps the lanes below `rate` besides, for the sake of others on the path. It changes each
    /// round trip: lanes are woken only if their turns come sooner, or are smaller.
    pub(crate) fn set_manners(&self, rate: Option<u64>) {
        let mut account = self.lock();
        if let (Some(was), Some(is)) = (account.manners, rate)
            && is.abs_diff(was) < was / SAME_RATE
        {
            return;
        }
        if account.manners == rate {
            return;
        }
        let (before, recuts) = (account.rate, account.recuts);
        account.manners = rate;
        account.follow(Instant::now());
        let is_sooner = before.is_some_and(|before| account.rate.is_none_or(|now| now > before));
        if is_sooner || account.recuts > recuts {
            self.wake_waiting(&mut account);
        }
    }

    /// Changes the rate that the control of UDP lanes says from now on, bytes/s. It is kept as it
    /// is; lanes are woken only if their turns come sooner by much, or are smaller.
    pub(crate) fn set_path_rate(&self, rate: u64) {
        let mut account = self.lock();
        if account.path != Some(rate) && account.follow_path(Instant::now(), rate) {
            self.wake_waiting(&mut account);
        }
    }

    /// Whether the rate that was asked for is what lanes wait for, and not the manners.
    pub(crate) fn is_asked(&self) -> bool {
        let account = self.lock();
        account.asked.is_some_and(|asked| account.manners.is_none_or(|manners| asked <= manners))
    }

    /// The rate that was asked for, bytes/s. `None` for no rate.
    pub(crate) fn asked(&self) -> Option<u64> {
        self.lock().asked
    }

    /// Whether the path of UDP lanes allows less than what was asked for.
    pub(crate) fn is_by_path(&self) -> bool {
        self.lock().is_by_path()
    }

    /// The time so far in which lanes asked for less than the rate lets through. `None`: there is
    /// none.
    pub(crate) fn unused(&self) -> Option<Duration> {
        let account = self.lock();
        account.rate.map(|_| account.unused + account.ahead(Instant::now()))
    }

    /// The rate that is kept, bytes/s. `None` for no rate.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.lock().rate
    }

    /// Lets everything through from now on, because the session ends.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.0.changed.notify_all();
    }

    /// Has lanes that wait check whether they were closed.
    pub(crate) fn wake(&self) {
        // The lock is taken so that no lane is between its check and its wait.
        self.wake_waiting(&mut self.lock());
    }

    fn wake_waiting(&self, account: &mut Account) {
        account.wake();
        self.0.changed.notify_all();
    }

    /// Waits until some of `bytes` may be sent, a hundredth of a second's worth at most, or the
    /// lane that asks is closed. Returns how many. The lane takes the next turn as it asks, and is
    /// woken for no other: when all lanes waited for the same moment, all but one woke in vain.
    pub(crate) fn admit(&self, bytes: usize, is_closed: impl Fn() -> bool) -> usize {
        let admitted = self.admit_each(Duration::MAX, bytes, is_closed, || Ok::<_, Infallible>(()));
        admitted.unwrap_or_else(|never| match never {})
    }

    /// As [`Pacer::admit`], and does `meanwhile` each 50 ms of the wait. An error of that ends the
    /// wait, and gives the turn back.
    pub(crate) fn admit_while<E>(
        &self,
        bytes: usize,
        is_closed: impl Fn() -> bool,
        meanwhile: impl FnMut() -> Result<(), E>,
    ) -> Result<usize, E> {
        self.admit_each(MEANWHILE_EACH, bytes, is_closed, meanwhile)
    }

    fn admit_each<E>(
        &self,
        each: Duration,
        bytes: usize,
        is_closed: impl Fn() -> bool,
        mut meanwhile: impl FnMut() -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut account = self.lock();
        let mut grain = account.grain().min(bytes);
        if is_closed() {
            return Ok(grain);
        }
        let mut looked = Instant::now();
        let (mut turn, mut recuts) = (account.reserve(looked, grain), account.recuts);
        while let Some(wait) = turn.and_then(|turn| account.wait(Instant::now(), turn)) {
            let slice = wait.min(each.saturating_sub(looked.elapsed()));
            account = self.0.changed.wait_timeout(account, slice).unwrap_or_else(PoisonError::into_inner).0;
            let mut done = Ok(());
            if looked.elapsed() >= each {
                // Nobody waits for what is done there.
                drop(account);
                done = meanwhile();
                (account, looked) = (self.lock(), Instant::now());
            }
            let is_standing = account.recuts == recuts;
            if is_closed() || done.is_err() {
                if is_standing {
                    account.give_back(grain);
                }
                return done.map(|()| grain);
            }
            if !is_standing {
                grain = account.grain().min(bytes);
                (turn, recuts) = (account.reserve(Instant::now(), grain), account.recuts);
            }
        }
        if turn.is_some() && account.recuts == recuts {
            account.pass(grain);
        }
        Ok(grain)
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
        let rate = self.asked()?;
        Some(if lanes <= 1 { rate } else { (rate / lanes as u64).saturating_mul(2) }.max(1))
    }

    fn lock(&self) -> MutexGuard<'_, Account> {
        self.0.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time between two looks at something else of a lane that waits for its turn: within it the
/// control of UDP lanes may have found that the turn comes sooner.
const MEANWHILE_EACH: Duration = Duration::from_millis(50);
/// A rate of manners that differs by less than a fiftieth (1/50) is the same, and lanes are not
/// woken for one of their path that is higher by less.
const SAME_RATE: u64 = 50;

#[cfg(test)]
mod tests {
    use super::account::GRAIN_MIN;
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
    fn time_in_which_lanes_ask_for_less_than_the_rate_is_counted_and_no_other() {
        let start = Instant::now();
        let mut account = account(1_000_000, start);
        let at = |millis| start + Duration::from_millis(millis);
        let is_near = |is: Duration, want: u64| is.abs_diff(Duration::from_millis(want)) < Duration::from_millis(1);
        account.reserve(start, 100_000).expect("a turn");
        account.pass(100_000);
        assert_eq!(account.unused + account.ahead(at(90)), Duration::ZERO);
        assert!(is_near(account.unused + account.ahead(at(150)), 50), "{account:?}");
        // Another rate changes nothing about that.
        account.change(at(150), Some(10_000));
        assert!(is_near(account.unused + account.ahead(at(160)), 60), "{account:?}");
        let turn = account.reserve(at(160), 100_000).expect("a turn");
        assert_eq!(account.wait(at(160), turn), None);
        assert!(is_near(account.unused + account.ahead(at(170)), 60), "{account:?}");
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
    fn turns_that_a_far_lower_rate_would_make_long_are_taken_back_and_cut_anew() {
        let now = Instant::now();
        let mut account = account(25_600_000, now);
        let cut =
            |account: &mut Account| (0..16).for_each(|_| assert!(account.reserve(now, account.grain()).is_some()));
        cut(&mut account);
        let far = |account: &Account| account.wait(now, account.end).map_or(0.0, |wait| wait.as_secs_f64());
        account.change(now, Some(12_800_000));
        assert_eq!(account.recuts, 0, "they are still short");
        account.change(now, Some(64 << 10));
        assert_eq!((account.recuts, account.waiting), (1, 0));
        cut(&mut account);
        assert!((0.5..2.0).contains(&far(&account)), "{} s", far(&account));
        account.change(now, Some(16 << 10));
        assert_eq!(account.recuts, 1, "they are as small as they may be");
    }

    #[test]
    fn a_lane_whose_turn_was_taken_back_gets_a_smaller_one() {
        let pacer = Pacer::new(Some(100_000_000));
        let first = pacer.lock().reserve(Instant::now(), 1 << 30);
        assert!(first.is_some());
        let waiting = pacer.clone();
        let lane = std::thread::spawn(move || waiting.admit(PIECE_BYTES, || false));
        while pacer.lock().waiters < 2 {
            std::thread::yield_now();
        }
        // The first turn, of somebody who does not come, is taken back as well.
        pacer.set_manners(Some(64 << 10));
        assert_eq!(lane.join().expect("it is let through"), GRAIN_MIN);
    }

    #[test]
    fn a_lane_that_has_nothing_else_to_do_sleeps_until_its_turn() {
        let (pacer, looks) = (Pacer::new(Some(1_000_000)), std::cell::Cell::new(0));
        let looked = || {
            looks.set(looks.get() + 1);
            false
        };
        pacer.charge(500_000);
        pacer.admit(1, looked);
        assert!(looks.get() < 6, "it woke {} times", looks.get());
        let (pacer, mut done) = (Pacer::new(Some(1_000_000)), 0);
        pacer.charge(500_000);
        let meanwhile = || {
            done += 1;
            Ok::<_, Infallible>(())
        };
        assert!(pacer.admit_while(1, || false, meanwhile).is_ok());
        assert!(done > 0, "one that has is woken for it");
    }

    #[test]
    fn a_rate_of_manners_that_is_about_the_same_changes_nothing() {
        let pacer = Pacer::new(None);
        pacer.set_manners(Some(1_000_000));
        pacer.set_manners(Some(1_010_000));
        assert_eq!(pacer.rate(), Some(1_000_000));
        pacer.set_manners(Some(1_030_000));
        assert_eq!(pacer.rate(), Some(1_030_000));
    }

    #[test]
    fn lanes_that_wait_are_woken_for_a_rate_of_their_path_that_is_much_higher_and_for_no_other() {
        let now = Instant::now();
        let mut account = Account::default();
        let mut wakes = |rates: &[u64]| -> usize {
            let is_woken = |rate: &&u64| {
                let wakes = account.follow_path(now, **rate);
                if wakes {
                    account.wake();
                }
                assert_eq!(account.rate, Some(**rate), "it is kept all the same");
                wakes
            };
            rates.iter().filter(is_woken).count()
        };
        assert_eq!(wakes(&[1_000_000]), 1, "there was none");
        // A control that settles: each status brings another rate.
        assert_eq!(wakes(&[1_004_000, 998_000, 1_009_000, 1_001_000, 1_015_000, 999_000]), 0);
        assert_eq!(wakes(&[990_000, 980_000, 600_000]), 0, "turns come later");
        // Whoever went to sleep at the lowest rate sleeps no longer by more than a fiftieth.
        assert_eq!(wakes(&[606_000, 611_000]), 0);
        assert_eq!(wakes(&[613_000, 620_000, 700_000]), 2);
        assert_eq!(wakes(&[7_000_000]), 1);
    }

    #[test]
    fn a_lane_that_waits_is_not_kept_waiting_once_its_path_carries_far_more() {
        let pacer = Pacer::new(None);
        pacer.set_path_rate(1);
        pacer.admit(1 << 20, || false);
        let waiting = pacer.clone();
        let lane = std::thread::spawn(move || waiting.admit(1, || false));
        while pacer.lock().waiters < 1 {
            std::thread::yield_now();
        }
        pacer.set_path_rate(1 << 40);
        assert_eq!(lane.join().expect("it is let through"), 1);
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
    fn the_lower_of_the_rate_that_was_asked_for_and_the_one_of_manners_is_kept() {
        let pacer = Pacer::new(Some(1_000_000));
        assert!(pacer.is_asked());
        pacer.set_manners(Some(800_000));
        assert_eq!((pacer.rate(), pacer.asked(), pacer.is_asked()), (Some(800_000), Some(1_000_000), false));
        assert_eq!(pacer.share(1), Some(1_000_000));
        pacer.set_manners(Some(2_000_000));
        assert_eq!((pacer.rate(), pacer.is_asked()), (Some(1_000_000), true));
        pacer.set_rate(None);
        assert_eq!((pacer.rate(), pacer.is_asked()), (Some(2_000_000), false));
        pacer.set_manners(None);
        assert_eq!(pacer.rate(), None);
    }

    #[test]
    fn grains_are_small_where_the_rate_is_and_shares_add_up_to_twice_the_rate() {
        let grain = |rate| Pacer::new(rate).lock().grain();
        assert_eq!(grain(Some(100_000)), GRAIN_MIN);
        assert_eq!(grain(Some(1_000_000)), 10_000);
        assert_eq!(grain(Some(1 << 40)), PIECE_BYTES);
        assert_eq!(grain(None), PIECE_BYTES);
        assert_eq!(Pacer::new(Some(800)).share(4), Some(400));
        assert_eq!(Pacer::new(Some(800)).share(1), Some(800));
        assert_eq!(Pacer::new(None).share(1), None);
    }
}
