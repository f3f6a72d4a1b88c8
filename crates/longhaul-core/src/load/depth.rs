//! The number of requests that a device is given at a time, found while it works: as deep as it
//! still pays.
//!
//! In: each request that the device served, with its bytes, how long the device had it, and the
//! time. Out: the depth to use from now on. Knows no device, no queue and no clock.
//!
//! A depth is judged by the bytes per second of a *stretch*: some hundred milliseconds and some
//! dozens of requests in which the device always had about as many requests as it may have.
//! (Requests in flight are rate times latency: a depth that adds no rate adds only latency.)
//! Another depth, twice or half as deep, is tried for a stretch between two stretches at the
//! present one, and judged against the better of these: a deeper one has to bring [`GAIN_MIN`]
//! more, a shallower one may cost [`LOSS_MAX`] of the best rate of the search. As both cannot hold
//! for the same two depths, a search goes up or down and ends. Then the depth rests, until the rate
//! changes much or a time is over that doubles with each search.

use std::time::Duration;

/// The search for the depth of one device.
#[derive(Clone, Debug)]
pub struct DepthSearch {
    most: usize,
    /// The depth that was found best so far.
    found: usize,
    phase: Phase,
    /// The ways that are still to be tried in this search.
    untried: Vec<Way>,
    /// The best rate at a depth that was taken in this search, bytes per second.
    best_rate: f64,
    stretch: Stretch,
    /// The time from the end of this search to the next one.
    rest: Duration,
}

/// The requests that a device was given in a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// As many as it may have, or nearly.
    Full,
    /// Fewer.
    Short,
}

/// The direction of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Deeper,
    Shallower,
}

/// The step of the search that the stretch is measured for.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The present depth is measured.
    Before,
    /// Another depth is measured, after the present one gave `before` bytes per second. `missed`:
    /// stretches in which there was not enough to do for that depth.
    Trial { way: Way, depth: usize, before: f64, missed: u32 },
    /// The present depth is measured again, after the other one gave `tried` bytes per second.
    After { way: Way, depth: usize, before: f64, tried: f64 },
    /// The search is over. `rate`: bytes per second when it ended, or once it is known; `odd`:
    /// stretches in a row in which the rate was another one.
    Rest { since: Duration, rate: Option<f64>, odd: u32 },
}

/// The requests of a time at one depth.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    /// Requests that still end before it begins: they were given to the device at another depth.
    early: usize,
    /// When it began: at the end of a request.
    began: Option<Duration>,
    requests: usize,
    bytes: u64,
    /// The sum of the times that the device had its requests.
    took: Duration,
}

impl DepthSearch {
    /// A search that begins with `start` requests at a time, and never gives more than `most`.
    pub fn new(start: usize, most: usize) -> DepthSearch {
        let most = most.max(1);
        let found = start.clamp(1, most);
        DepthSearch {
            most,
            found,
            phase: Phase::Before,
            untried: Self::ways(),
            best_rate: 0.0,
            stretch: Stretch { early: found, ..Stretch::default() },
            rest: REST_FIRST,
        }
    }

    /// The depth to use now. It differs from [`DepthSearch::found`] while another one is tried.
    pub fn depth(&self) -> usize {
        match self.phase {
            Phase::Trial { depth, .. } => depth,
            Phase::Before | Phase::After { .. } | Phase::Rest { .. } => self.found,
        }
    }

    /// The depth that was found best so far.
    pub fn found(&self) -> usize {
        self.found
    }

    /// Notes that the device served a request of so many bytes at `now`, which it had for `took`.
    /// The time counts from any moment that the caller chose. Gives the depth to use from now on.
    pub fn serve(&mut self, now: Duration, bytes: u64, took: Duration) -> usize {
        let depth = self.depth();
        if let Some((rate, is_busy)) = self.stretch.serve(depth, now, bytes, took) {
            self.stretch = Stretch { early: 0, began: Some(now), ..Stretch::default() };
            self.judge(now, rate, if is_busy { Demand::Full } else { Demand::Short });
            if self.depth() != depth {
                self.stretch = Stretch { early: depth.max(self.depth()), ..Stretch::default() };
            }
        }
        self.depth()
    }

    /// Goes on after a stretch. A stretch in which the device had less to do than it may have says
    /// nothing of the device.
    fn judge(&mut self, now: Duration, rate: f64, demand: Demand) {
        match self.phase {
            Phase::Before if demand == Demand::Full => {
                self.best_rate = self.best_rate.max(rate);
                self.begin_trial(now, rate);
            }
            Phase::Trial { way, depth, before, .. } if demand == Demand::Full => {
                self.phase = Phase::After { way, depth, before, tried: rate };
            }
            Phase::Trial { way, depth, before, missed } if missed < MISSED_MAX => {
                self.phase = Phase::Trial { way, depth, before, missed: missed + 1 };
            }
            // Whoever gives the requests has not so many.
            Phase::Trial { .. } => self.begin_trial(now, self.best_rate),
            Phase::After { way, depth, before, tried } if demand == Demand::Full => {
                let present = before.max(rate);
                let pays = match way {
                    Way::Deeper => tried >= present * (1.0 + GAIN_MIN),
                    Way::Shallower => tried >= present.max(self.best_rate) * (1.0 - LOSS_MAX),
                };
                if pays {
                    self.found = depth;
                    self.best_rate = self.best_rate.max(tried);
                    // What lies behind was just found worse.
                    self.untried = vec![way];
                    self.phase = Phase::Before;
                } else {
                    self.begin_trial(now, rate);
                }
            }
            Phase::Rest { since, rate: Some(usual), odd } if demand == Demand::Full => {
                let is_odd = rate < usual * (1.0 - CHANGE) || rate > usual * (1.0 + CHANGE);
                let odd = if is_odd { odd + 1 } else { 0 };
                let rested = now.saturating_sub(since);
                if odd >= ODD_MAX && rested >= REST_MIN {
                    self.rest = REST_FIRST;
                    self.begin();
                } else if rested >= self.rest {
                    self.rest = (self.rest * 2).min(REST_MAX);
                    self.begin();
                } else {
                    let usual = if is_odd { usual } else { usual + (rate - usual) * FOLLOW };
                    self.phase = Phase::Rest { since, rate: Some(usual), odd };
                }
            }
            Phase::Rest { since, rate: None, odd } if demand == Demand::Full => {
                self.phase = Phase::Rest { since, rate: Some(rate), odd };
            }
            Phase::Before | Phase::After { .. } | Phase::Rest { .. } => {}
        }
    }

    /// Begins a search from the depth that was found last.
    fn begin(&mut self) {
        self.phase = Phase::Before;
        self.untried = Self::ways();
        self.best_rate = 0.0;
    }

    /// Tries the next depth, after the present one gave `rate`, or rests if there is none.
    fn begin_trial(&mut self, now: Duration, rate: f64) {
        while let Some(way) = self.untried.pop() {
            let depth = match way {
                Way::Deeper => (self.found * 2).min(self.most),
                Way::Shallower => (self.found / 2).max(1),
            };
            if depth != self.found {
                self.phase = Phase::Trial { way, depth, before: rate, missed: 0 };
                return;
            }
        }
        self.phase = Phase::Rest { since: now, rate: None, odd: 0 };
    }

    /// Both ways, the one that is tried first at the end.
    fn ways() -> Vec<Way> {
        vec![Way::Shallower, Way::Deeper]
    }
}

impl Stretch {
    /// Counts a request. Once there are enough of them: bytes per second, and whether the device
    /// had enough to do.
    fn serve(&mut self, depth: usize, now: Duration, bytes: u64, took: Duration) -> Option<(f64, bool)> {
        let Some(began) = self.began else {
            self.early = self.early.saturating_sub(1);
            self.began = (self.early == 0).then_some(now);
            return None;
        };
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.took = self.took.saturating_add(took);
        let passed = now.saturating_sub(began);
        // Requests may end in bunches, as many at once as there are in flight: a stretch of whole
        // bunches is measured well.
        let is_over = self.requests >= REQUESTS_MIN.max(ROUNDS_MIN * depth)
            && self.requests.is_multiple_of(depth)
            && passed >= STRETCH_MIN;
        if !is_over {
            return None;
        }
        let in_flight = self.took.as_secs_f64() / passed.as_secs_f64();
        Some((self.bytes as f64 / passed.as_secs_f64(), in_flight >= depth as f64 * BUSY_SHARE))
    }
}

/// The part by which a deeper queue has to be faster than the present one. Guessed: rates of one
/// disk differ by a few per cent from second to second.
const GAIN_MIN: f64 = 0.06;
/// The part of the best rate that a shallower queue may cost.
const LOSS_MAX: f64 = 0.02;
/// The requests of a stretch at least.
const REQUESTS_MIN: usize = 32;
/// The requests of a stretch at least, for each one in flight.
const ROUNDS_MIN: usize = 4;
/// The time of a stretch at least.
const STRETCH_MIN: Duration = Duration::from_millis(300);
/// The part of the depth that has to be in flight, as a mean, for a stretch to count.
const BUSY_SHARE: f64 = 0.75;
/// The stretches with too little to do after which a trial is given up.
const MISSED_MAX: u32 = 3;
/// The part by which a rate differs from the usual one when the device is another than before.
const CHANGE: f64 = 0.3;
/// The stretches of another rate after which the search begins anew.
const ODD_MAX: u32 = 2;
/// The part of a difference that the usual rate follows with each stretch.
const FOLLOW: f64 = 0.1;
/// The least time between two searches.
const REST_MIN: Duration = Duration::from_secs(5);
/// The time between the first two searches, and the longest.
const REST_FIRST: Duration = Duration::from_secs(30);
const REST_MAX: Duration = Duration::from_secs(480);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A device that always has as many requests as it may have, and serves them at a rate that
    /// depends on their number.
    struct Device<R: Fn(usize) -> f64> {
        /// Bytes per second at a depth.
        rate: R,
        bytes: u64,
        /// By how much a request's time differs from the mean, 0 to 1, in no order.
        noise: f64,
        now: f64,
        seed: u64,
    }

    impl<R: Fn(usize) -> f64> Device<R> {
        fn new(bytes: u64, rate: R) -> Device<R> {
            Device { rate, bytes, noise: 0.0, now: 0.0, seed: 7 }
        }

        fn noisy(self, noise: f64) -> Device<R> {
            Device { noise, ..self }
        }

        /// Serves requests for so many seconds. Gives each depth that was found, in order.
        fn serve(&mut self, search: &mut DepthSearch, seconds: f64) -> Vec<usize> {
            let (end, mut found) = (self.now + seconds, vec![search.found()]);
            while self.now < end {
                let depth = search.depth();
                let rate = (self.rate)(depth);
                self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let off = ((self.seed >> 40) as f64 / (1u64 << 24) as f64 - 0.5) * 2.0 * self.noise;
                self.now += self.bytes as f64 / rate * (1.0 + off);
                let took = depth as f64 * self.bytes as f64 / rate;
                search.serve(Duration::from_secs_f64(self.now), self.bytes, Duration::from_secs_f64(took));
                if found.last() != Some(&search.found()) {
                    found.push(search.found());
                }
            }
            found
        }
    }

    /// Rates in MB/s at 1, 2, 4, 8, 16, 32, 64, 128 and 256 in flight; between them as at the next
    /// smaller one.
    fn table(rates: [f64; 9]) -> impl Fn(usize) -> f64 + Copy {
        move |depth| rates[(depth.ilog2() as usize).min(8)] * 1e6
    }

    /// A flash drive, random reads of 4 KiB: 80 µs each, and 400,000 a second at most.
    fn flash(depth: usize) -> f64 {
        (depth as f64 * 4096.0 / 80e-6).min(400_000.0 * 4096.0)
    }

    /// A rotating disk, sequential: once it has the next request at hand, more do not help.
    const ROTATING: [f64; 9] = [120.0, 150.0, 165.0, 166.0, 165.0, 164.0, 163.0, 163.0, 163.0];

    #[test]
    fn a_flash_drive_is_given_as_many_requests_as_raise_its_rate() {
        for start in [1, 8, 64, 256] {
            let mut search = DepthSearch::new(start, 256);
            Device::new(4096, flash).noisy(0.3).serve(&mut search, 20.0);
            assert_eq!(search.found(), 32, "from {start}");
        }
    }

    #[test]
    fn a_rotating_disk_is_given_no_more_than_suffice() {
        for start in [1, 8, 64] {
            let mut search = DepthSearch::new(start, 256);
            let found = Device::new(4 * MIB, table(ROTATING)).noisy(0.2).serve(&mut search, 200.0);
            assert_eq!(search.found(), 4, "from {start}: {found:?}");
        }
    }

    #[test]
    fn a_throttled_disk_to_which_depth_only_adds_latency_gets_one_request_at_a_time() {
        let mut search = DepthSearch::new(8, 32);
        let found = Device::new(4 * MIB, |_| 100e6).serve(&mut search, 60.0);
        assert_eq!(found, [8, 4, 2, 1]);
    }

    #[test]
    fn small_losses_do_not_add_up_to_a_large_one() {
        // Each halving costs 1.5 %, which alone would be allowed.
        let slope = [92.7, 94.1, 95.5, 97.0, 98.5, 100.0, 100.0, 100.0, 100.0];
        let mut search = DepthSearch::new(32, 256);
        let found = Device::new(4 * MIB, table(slope)).serve(&mut search, 100.0);
        assert_eq!(found, [32, 16]);
    }

    #[test]
    fn a_device_that_changes_is_searched_again() {
        let mut search = DepthSearch::new(8, 256);
        let mut device = Device::new(MIB, table([500.0; 9]));
        assert_eq!(device.serve(&mut search, 20.0).last(), Some(&1));
        // It becomes one that needs many, and is slow with one.
        let mut device = Device { now: device.now, ..Device::new(MIB, |depth| 50e6 * depth.min(16) as f64) };
        assert_eq!(device.serve(&mut search, 20.0), [1, 2, 4, 8, 16]);
        // Its rate with what it has now stays; another depth would be better by now.
        let mut device = Device { now: device.now, ..Device::new(MIB, |depth| 50e6 * depth.min(64) as f64) };
        assert_eq!(device.serve(&mut search, 60.0), [16, 32, 64]);
    }

    #[test]
    fn a_depth_that_was_found_stays_though_rates_are_noisy() {
        for (rates, noise) in [(ROTATING, 0.5), ([100.0; 9], 0.8), (ROTATING, 0.9)] {
            let mut search = DepthSearch::new(8, 64);
            let mut device = Device::new(MIB, table(rates)).noisy(noise);
            device.serve(&mut search, 30.0);
            // An hour: the searches become rare.
            let found = device.serve(&mut search, 3600.0);
            assert!(found.len() <= 6, "{found:?}");
            assert!(search.found() <= 16, "{found:?}");
        }
    }

    #[test]
    fn nothing_is_decided_by_few_requests() {
        let mut search = DepthSearch::new(8, 64);
        for n in 0..(8 + REQUESTS_MIN - 1) {
            let (now, took) = (Duration::from_secs(n as u64), Duration::from_secs(8));
            assert_eq!(search.serve(now, MIB, took), 8);
        }
        // Nor in a short time.
        let mut search = DepthSearch::new(8, 64);
        for n in 0..100_000 {
            let (now, took) = (Duration::from_nanos(n * 2_000), Duration::from_micros(16));
            assert_eq!(search.serve(now, 4096, took), 8);
        }
    }

    #[test]
    fn a_device_with_little_to_do_keeps_its_depth() {
        let mut search = DepthSearch::new(8, 64);
        for n in 0..100_000 {
            // One or two are in flight.
            let (now, took) = (Duration::from_millis(n * 2), Duration::from_millis(3));
            assert_eq!(search.serve(now, MIB, took), 8);
        }
    }

    #[test]
    fn a_trial_that_the_giver_cannot_fill_is_given_up() {
        let mut search = DepthSearch::new(8, 64);
        let (mut now, mut deepest) = (0.0, 8);
        for _ in 0..10_000 {
            // There are only ten buffers.
            let in_flight = search.depth().min(10) as f64;
            now += MIB as f64 / (in_flight * 50e6);
            let took = Duration::from_secs_f64(MIB as f64 / 50e6);
            deepest = deepest.max(search.serve(Duration::from_secs_f64(now), MIB, took));
        }
        assert_eq!((search.found(), deepest), (8, 16));
    }

    #[test]
    fn the_bounds_are_kept() {
        let all = |most: usize, rate: fn(usize) -> f64| {
            let mut search = DepthSearch::new(8, most);
            let mut device = Device::new(MIB, move |depth| {
                assert!((1..=most.max(1)).contains(&depth), "{depth}");
                rate(depth)
            });
            device.serve(&mut search, 60.0);
            search.found()
        };
        assert_eq!(all(20, |depth| 10e6 * depth as f64), 20);
        assert_eq!(all(5, |depth| 10e6 * depth as f64), 5);
        assert_eq!(all(1, |_| 10e6), 1);
        assert_eq!(all(0, |_| 10e6), 1);
        assert_eq!(all(64, |depth| 1e9 / depth as f64), 1);
    }
}
