//! How busy a target is, which of several targets will have some bytes soonest, and how many
//! requests a device is given at a time: pure machines, fed with completions and time.
//!
//! In: requests that are queued and served, and the time, which counts from any moment that the
//! owner chose. Out: the rate of a target, the latency of its requests, the choice among targets,
//! and the depth of a device's queue. Knows no disk, no file and no clock.
//!
//! A rate is bytes over the time in which something was queued, and each moment counts half as much
//! as one [`HALF_LIFE`] of such time later: a disk that had nothing to do is not slow for that, and
//! one that became slow is known to be slow within seconds.

mod choice;
mod depth;
mod latency;
mod scheduler;
mod slow;

use std::time::Duration;

pub use choice::{Candidate, soonest};
pub use depth::DepthSearch;
pub use latency::{Latency, LatencyLog};
pub use scheduler::{ChunkScheduler, HANG_MIN, Overdue, WriteEnd, WriteId, WriteResult, patience};
pub use slow::{SLOW_SHARE, slow};

/// The load of one target.
#[derive(Clone, Debug, Default)]
pub struct LoadMeter {
    queued_bytes: u64,
    queued_requests: u64,
    /// When the meter was told something last.
    seen: Duration,
    /// Bytes served, and seconds in which something was queued, each moment with its weight.
    bytes: f64,
    busy_s: f64,
    /// Requests served so far.
    served: u64,
    /// When a request ended last, or the first of those that are queued was.
    answered: Duration,
    latency: LatencyLog,
}

impl LoadMeter {
    /// Notes a request of so many bytes that waits from now on.
    pub fn queue(&mut self, now: Duration, bytes: u64) {
        self.pass(now);
        if self.queued_requests == 0 {
            self.answered = self.answered.max(now);
        }
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
        self.queued_requests += 1;
    }

    /// Notes that a request of so many bytes is over. `took` is how long the system had it; `None`:
    /// it failed, and says nothing of the target's speed.
    pub fn serve(&mut self, now: Duration, bytes: u64, took: Option<Duration>) {
        self.pass(now);
        self.answered = self.answered.max(now);
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        self.queued_requests = self.queued_requests.saturating_sub(1);
        if let Some(took) = took {
            self.bytes += bytes as f64;
            self.served += 1;
            // One that hung says nothing of what others take, beyond that they may take long.
            let took = if took < HANG_MIN { took } else { took.min(patience(self.latency())) };
            self.latency.add(now, took);
        }
    }

    /// The time for which no request has ended although some are queued. `None`: none is.
    pub fn silent_for(&self, now: Duration) -> Option<Duration> {
        (self.queued_requests > 0).then(|| self.since_answer(now))
    }

    /// The time since the last request ended, or the first of those that are queued was.
    pub fn since_answer(&self, now: Duration) -> Duration {
        now.saturating_sub(self.answered)
    }

    /// If the target hangs: the time for which no request has ended although some are queued, once
    /// that is its [`patience`].
    pub fn hangs(&self, now: Duration) -> Option<Duration> {
        let silent = self.silent_for(now).filter(|silent| *silent >= HANG_MIN)?;
        (silent >= patience(self.latency())).then_some(silent)
    }

    /// Bytes that wait or are under way.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Requests that wait or are under way.
    pub fn queued_requests(&self) -> u64 {
        self.queued_requests
    }

    /// Bytes per second while something was queued. `None` before enough was measured
    /// ([`KNOWN_AFTER`], or [`KNOWN_AFTER_REQUESTS`]: a fast target is seldom busy), and once
    /// nothing was queued for [`FORGOTTEN_AFTER`]: one that was slow is tried again.
    pub fn rate(&self, now: Duration) -> Option<f64> {
        if self.queued_requests == 0 && now.saturating_sub(self.seen) >= FORGOTTEN_AFTER {
            return None;
        }
        let mut here = self.clone();
        here.pass(now);
        let known = here.busy_s >= KNOWN_AFTER.as_secs_f64() || here.served >= KNOWN_AFTER_REQUESTS;
        (known && here.busy_s > 0.0).then(|| here.bytes / here.busy_s)
    }

    /// The latency of recent requests. `None` before the first.
    pub fn latency(&self) -> Option<Latency> {
        self.latency.quantiles()
    }

    /// Lets the time since the last call pass: it was busy if something was queued.
    fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.seen);
        self.seen = self.seen.max(now);
        if self.queued_requests > 0 {
            let fading = 0.5_f64.powf(passed.as_secs_f64() / HALF_LIFE.as_secs_f64());
            self.bytes *= fading;
            self.busy_s = self.busy_s * fading + passed.as_secs_f64();
        }
    }
}

/// The busy time in which a measurement loses half of its weight.
pub const HALF_LIFE: Duration = Duration::from_secs(2);
/// The time without any request after which a rate is not known any more.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// The busy time after which a rate is known: some requests of any disk.
pub const KNOWN_AFTER: Duration = Duration::from_millis(100);
/// The requests after which a rate is known, however soon they were served.
pub const KNOWN_AFTER_REQUESTS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Serves one request of 1 MB each `every` ms, `count` times, with one more always queued.
    fn serve(meter: &mut LoadMeter, from: u64, every: u64, count: u64) -> u64 {
        for n in 1..=count {
            meter.queue(ms(from + (n - 1) * every), 1_000_000);
            meter.serve(ms(from + n * every), 1_000_000, Some(ms(every)));
        }
        from + count * every
    }

    #[test]
    fn a_rate_is_that_of_the_time_in_which_there_was_something_to_do() {
        let mut meter = LoadMeter::default();
        assert_eq!(meter.rate(ms(0)), None);
        let end = serve(&mut meter, 0, 10, 100);
        let rate = meter.rate(ms(end)).expect("measured");
        assert!((rate / 100e6 - 1.0).abs() < 0.02, "{rate}");
        let later = meter.rate(ms(end + 20_000)).expect("known still");
        assert!((later / rate - 1.0).abs() < 1e-9, "idleness says nothing: {later}");
        assert_eq!(meter.rate(ms(end + 60_000)), None, "by now it may be another");
    }

    #[test]
    fn a_target_that_became_slow_is_known_to_be_slow_within_seconds() {
        let mut meter = LoadMeter::default();
        let end = serve(&mut meter, 0, 10, 1000);
        let end = serve(&mut meter, end, 50, 60);
        let rate = meter.rate(ms(end)).expect("measured");
        assert!(rate < 60e6, "3 s at 20 MB/s behind 10 s at 100 MB/s: {rate}");
        // Bytes that do not come back count against it, too.
        meter.queue(ms(end), 1_000_000);
        let hung = meter.rate(ms(end + 4000)).expect("known");
        assert!(hung < rate / 3.0, "{hung}");
    }

    #[test]
    fn a_target_that_is_done_at_once_is_known_after_a_few_requests() {
        let mut meter = LoadMeter::default();
        let end = serve(&mut meter, 0, 1, KNOWN_AFTER_REQUESTS - 1);
        assert_eq!(meter.rate(ms(end)), None);
        let end = serve(&mut meter, end, 1, 1);
        let rate = meter.rate(ms(end)).expect("it was busy for 4 ms");
        assert!((rate / 1e9 - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn a_target_hangs_if_it_ends_nothing_of_what_is_queued_for_its_patience() {
        let mut meter = LoadMeter::default();
        let end = serve(&mut meter, 0, 10, 100);
        assert_eq!(meter.hangs(ms(end + 60_000)), None, "there was nothing to do");
        meter.queue(ms(end + 60_000), 1);
        meter.queue(ms(end + 61_000), 1);
        assert_eq!(meter.hangs(ms(end + 61_999)), None);
        assert_eq!(meter.hangs(ms(end + 62_000)), Some(HANG_MIN));
        // What it took then does not make everybody patient for as long.
        meter.serve(ms(end + 160_000), 1, Some(ms(100_000)));
        assert_eq!(meter.hangs(ms(end + 161_000)), None);
        assert!(meter.hangs(ms(end + 170_000)).is_some(), "{:?}", meter.latency());
        meter.serve(ms(end + 170_000), 1, Some(ms(100)));
        assert_eq!(meter.hangs(ms(end + 300_000)), None);
    }

    #[test]
    fn failed_requests_leave_the_queue_and_say_nothing_of_the_speed() {
        let mut meter = LoadMeter::default();
        meter.queue(ms(0), 7);
        meter.queue(ms(0), 8);
        assert_eq!((meter.queued_bytes(), meter.queued_requests()), (15, 2));
        meter.serve(ms(1), 7, None);
        meter.serve(ms(1), 8, None);
        assert_eq!((meter.queued_bytes(), meter.queued_requests(), meter.latency()), (0, 0, None));
    }
}
