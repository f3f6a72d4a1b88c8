//! The rate of arriving bytes, and the time that the rest will take.
//!
//! In: the engine's counters, about once a second. Out: [`Pace`] to the progress line and event.
//! Looks at no clock: the counters carry their time.

use std::collections::VecDeque;

use longhaul_engine::Progress;

/// A window of recent counters.
#[derive(Debug, Default)]
pub(super) struct Meter {
    recent: VecDeque<Sample>,
}

/// Counters, and the time in seconds when they were taken.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: f64,
    received: u64,
    arrived: u64,
    durable: u64,
}

/// The speed and the time left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// Payload bytes per second that arrived of late. Resumed bytes and holes do not count, as they
    /// never moved.
    pub(super) bytes_per_s: f64,
    /// Seconds to go. `None` before the total is known and bytes have come for a while, when no
    /// byte comes, and when all bytes have come and files are still to be settled.
    pub(super) eta_s: Option<f64>,
    /// Bytes that the receiver is to have in the end, as far as known.
    pub(super) bytes_wanted: u64,
}

impl Meter {
    /// Takes the newest counters.
    pub(super) fn absorb(&mut self, now: &Progress) -> Pace {
        // A sender hears its receiver's counters once a second. When the receiver is silent they
        // grow old, except for a moment.
        let at = now.counted_s.max(now.seconds - COUNTERS_LATE_SECONDS).min(now.seconds);
        let sample =
            Sample { at, received: now.bytes_received, arrived: now.bytes_arrived, durable: now.bytes_durable };
        if self.recent.back().is_none_or(|last| sample.at > last.at) {
            self.recent.push_back(sample);
        }
        // The bytes of an earlier run are there all at once: the measured stretch begins behind
        // them.
        while self.recent.len() > 1 && (at - self.recent[1].at > ETA_SECONDS || self.recent[0].arrived == 0) {
            self.recent.pop_front();
        }
        let bytes_wanted = now.bytes_total.saturating_sub(now.bytes_done_without);
        Pace { bytes_per_s: self.rate(sample), eta_s: self.eta(now, sample, bytes_wanted), bytes_wanted }
    }

    fn rate(&self, now: Sample) -> f64 {
        let since = self.recent.iter().rev().take_while(|sample| now.at - sample.at <= RATE_SECONDS).last();
        let since = match since {
            Some(first) if first.at < now.at => *first,
            // It was long ago, or is the first: the window has nothing else.
            _ => self.recent.iter().rev().find(|sample| sample.at < now.at).copied().unwrap_or_default(),
        };
        per_second(now.received.saturating_sub(since.received), now.at - since.at)
    }

    fn eta(&self, now: &Progress, sample: Sample, wanted: u64) -> Option<f64> {
        let left = wanted.saturating_sub(sample.durable);
        if !now.scanned || left == 0 {
            // When all bytes have come there may be names to settle and skipped files to read,
            // which take an unknown time.
            return (now.scanned && settled(now) >= now.files_total).then_some(0.0);
        }
        let since = self.recent.front()?;
        let elapsed = sample.at - since.at;
        if elapsed < ETA_AFTER_SECONDS {
            return None;
        }
        let moved = match sample.arrived >= wanted {
            true => sample.durable.saturating_sub(since.durable),
            false => sample.arrived.saturating_sub(since.arrived),
        };
        Some(left as f64 / per_second(moved, elapsed)).filter(|seconds| *seconds < ETA_MAX_SECONDS)
    }
}

/// Files and links that are settled.
pub(super) fn settled(now: &Progress) -> u64 {
    // The receiver's count of committed files runs ahead of the count of found ones.
    now.files_committed.saturating_add(now.files_done_without).min(now.files_total)
}

fn per_second(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
}

/// The window of the present rate in seconds: counters come once a second, and the rate of a single
/// second depends too much on when they came.
const RATE_SECONDS: f64 = 4.0;
/// The window by which the time left is measured, in seconds: long enough to be steady, short
/// enough to show a change.
const ETA_SECONDS: f64 = 20.0;
/// The time before the first estimate, in seconds: connections are still finding their speed until
/// then.
const ETA_AFTER_SECONDS: f64 = 3.0;
/// The longest estimate: a hundred days. A longer one would be no promise.
const ETA_MAX_SECONDS: f64 = 100.0 * 86_400.0;
/// Counters come each second; those that are late by no more than this are still on their way.
const COUNTERS_LATE_SECONDS: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn at(seconds: f64, received: u64, durable: u64) -> Progress {
        Progress {
            seconds,
            counted_s: seconds,
            bytes_received: received,
            bytes_arrived: received,
            bytes_durable: durable,
            scanned: true,
            bytes_total: 12_000 * MB,
            bytes_done_without: 2_000 * MB,
            ..Progress::default()
        }
    }

    /// The last pace of counters that come each second.
    fn last(all: impl IntoIterator<Item = Progress>) -> Pace {
        let mut meter = Meter::default();
        all.into_iter().map(|now| meter.absorb(&now)).last().expect("some")
    }

    #[test]
    fn the_rate_follows_the_last_seconds() {
        let slow = (1..=30).map(|s| at(f64::from(s), u64::from(s as u32) * MB, 0));
        let fast = (31..=36).map(|s| at(f64::from(s), 30 * MB + (s - 30) as u64 * 10 * MB, 0));
        assert_eq!(last(slow.clone()).bytes_per_s, 1e6);
        assert_eq!(last(slow.chain(fast)).bytes_per_s, 10e6);
        assert_eq!(last([at(0.5, MB, 0)]).bytes_per_s, 2e6);
        assert_eq!(last([at(0.0, 0, 0)]).bytes_per_s, 0.0);
    }

    #[test]
    fn counters_that_come_early_or_late_change_no_rate() {
        // 5 MB/s, of which the sender hears at these moments; it tells its counters each second.
        let heard = [0.9, 1.9, 2.95, 4.0, 4.9, 5.9, 6.9, 7.95];
        let mut meter = Meter::default();
        for second in 1..=8 {
            let now = f64::from(second);
            let counted = heard.into_iter().rfind(|at| *at <= now).unwrap_or(0.0);
            let pace = meter.absorb(&Progress { counted_s: counted, ..at(now, (counted * 5e6) as u64, 0) });
            assert!((pace.bytes_per_s - 5e6).abs() < 1.0, "{second}: {pace:?}");
        }
    }

    #[test]
    fn when_nothing_comes_any_more_the_rate_falls_to_nothing() {
        let moving = (1..=5).map(|s| at(f64::from(s), u64::from(s as u32) * MB, 0));
        let still = (6..=14).map(|s| Progress { counted_s: 5.0, ..at(f64::from(s), 5 * MB, 0) });
        let pace = last(moving.chain(still));
        assert_eq!(pace.bytes_per_s, 0.0);
    }

    #[test]
    fn no_time_is_promised_before_it_can_be_known() {
        let steps = |upto: u32| (1..=upto).map(|s| at(f64::from(s), u64::from(s) * 100 * MB, 1000));
        assert_eq!(last(steps(3)).eta_s, None, "a few small files are safe already");
        let eta = last(steps(5)).eta_s.expect("known");
        assert!((eta - 100.0).abs() < 1.0, "{eta}");
        let unscanned = steps(9).map(|progress| Progress { scanned: false, ..progress });
        assert_eq!(last(unscanned).eta_s, None);
        assert_eq!(last([at(9.0, 0, 0)]).eta_s, None);
        assert_eq!(last([at(3.0, 1, 10_000 * MB)]).eta_s, Some(0.0));
        let unsettled =
            Progress { files_total: 3, files_committed: 1, files_done_without: 1, ..at(3.0, 1, 10_000 * MB) };
        assert_eq!(last([unsettled]).eta_s, None, "a skipped file is read, perhaps");
        let settled = Progress { files_done_without: 2, ..unsettled };
        assert_eq!(last([settled]).eta_s, Some(0.0));
        let crawling = (1..=9).map(|s| at(f64::from(s), u64::from(s as u32), 0));
        assert_eq!(last(crawling).eta_s, None, "centuries are no promise");
    }

    #[test]
    fn what_was_resumed_did_not_move() {
        let resumed = (1..=9).map(|s| Progress {
            bytes_arrived: 9_000 * MB + u64::from(s as u32) * 10 * MB,
            ..at(f64::from(s), u64::from(s as u32) * 10 * MB, 9_000 * MB)
        });
        let pace = last(resumed);
        assert_eq!((pace.bytes_per_s, pace.bytes_wanted), (10e6, 10_000 * MB));
        assert!((pace.eta_s.expect("known") - 100.0).abs() < 1.0, "{pace:?}");
    }

    #[test]
    fn when_all_has_arrived_the_rest_is_what_the_disk_still_has_to_do() {
        let arrived = (1..=9).map(|s| at(f64::from(s), 10_000 * MB, u64::from(s as u32) * 1000 * MB));
        let eta = last(arrived).eta_s.expect("known");
        assert!((eta - 1.0).abs() < 0.01, "{eta}");
    }
}
