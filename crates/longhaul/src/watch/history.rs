//! Keeps the last hour of a daemon: what it received and sent, and the sessions that ran.
//!
//! In: the daemon's sums, each ten seconds. Out: samples, the oldest first. It is bounded, and
//! starts empty with the daemon.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::ServiceHandle;

use super::Watched;

/// The samples of the last hour.
#[derive(Default)]
pub(super) struct History(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    /// The sums at the last sample: received, sent.
    before: Option<(Instant, u64, u64)>,
    kept: VecDeque<HourSample>,
}

/// One sample: means over its ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HourSample {
    /// Payload bytes per second that came.
    pub(super) received_per_s: f64,
    /// Payload bytes per second that were sent.
    pub(super) sent_per_s: f64,
    /// Sessions that ran at its end.
    pub(super) sessions: u64,
}

impl History {
    /// The samples, the oldest first.
    pub(super) fn samples(&self) -> Vec<HourSample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).kept.iter().copied().collect()
    }

    fn take(&self, now: Instant, (received, sent): (u64, u64), sessions: u64) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = samples.before.replace((now, received, sent));
        let Some((at, received_before, sent_before)) = before else { return };
        let seconds = now.saturating_duration_since(at).as_secs_f64().max(0.001);
        let per_s = |bytes: u64, before: u64| bytes.saturating_sub(before) as f64 / seconds;
        if samples.kept.len() == SAMPLES_MAX {
            samples.kept.pop_front();
        }
        let (received_per_s, sent_per_s) = (per_s(received, received_before), per_s(sent, sent_before));
        samples.kept.push_back(HourSample { received_per_s, sent_per_s, sessions });
    }
}

/// Samples for as long as the daemon runs.
pub(super) async fn sample_now_and_then(watched: Watched, service: ServiceHandle) {
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sums = service.watch().sums;
        let moved = sums.moved.values().fold((0_u64, 0_u64), |(received, sent), one| {
            (received.saturating_add(one.received_bytes), sent.saturating_add(one.sent_bytes))
        });
        watched.0.history.take(Instant::now(), moved, service.status().sessions as u64);
    }
}

/// The time of one sample.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// An hour of them.
pub(super) const SAMPLES_MAX: usize = 360;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more_and_sums_become_rates() {
        let (history, start) = (History::default(), Instant::now());
        for number in 0..=SAMPLES_MAX as u64 + 40 {
            history.take(start + SAMPLE_EVERY * number as u32, (number * 1000, number * 50), number);
        }
        let samples = history.samples();
        assert_eq!(samples.len(), SAMPLES_MAX);
        let last = samples[SAMPLES_MAX - 1];
        assert_eq!((last.received_per_s, last.sent_per_s, last.sessions), (100.0, 5.0, SAMPLES_MAX as u64 + 40));
        history.take(start + SAMPLE_EVERY * 402, (0, 0), 0);
        assert_eq!(history.samples()[SAMPLES_MAX - 1].received_per_s, 0.0, "no sum falls, and no rate is below zero");
    }
}
