//! The latency of recent requests as quantiles: a histogram of logarithmic steps, in which old
//! requests fade.
//!
//! In: how long each request took, and when it ended. Out: p50, p90 and p99. A step is an eighth of
//! an octave, so that a quantile is exact to 9 %; the memory is fixed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Quantiles of latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the requests took no longer.
    pub p50: Duration,
    /// Nine of ten took no longer.
    pub p90: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
}

/// The latency of recent requests.
#[derive(Clone, Debug)]
pub struct LatencyLog {
    /// Requests by step, each with its weight.
    steps: Box<[f32; STEPS]>,
    /// When the weights were halved last.
    faded: Duration,
}

impl LatencyLog {
    /// Notes a request that took so long and ended now.
    pub fn add(&mut self, now: Duration, took: Duration) {
        while now.saturating_sub(self.faded) >= FADING {
            if now.saturating_sub(self.faded) >= FADING * FORGOTTEN_AFTER {
                self.steps.fill(0.0);
                self.faded = now;
                break;
            }
            self.steps.iter_mut().for_each(|weight| *weight *= 0.5);
            self.faded += FADING;
        }
        self.steps[step_of(took)] += 1.0;
    }

    /// The quantiles. `None` if nothing was noted.
    pub fn quantiles(&self) -> Option<Latency> {
        let sum: f32 = self.steps.iter().sum();
        if sum <= 0.0 {
            return None;
        }
        let at = |share: f32| {
            let mut seen = 0.0;
            let step = self.steps.iter().position(|weight| {
                seen += weight;
                *weight > 0.0 && seen >= sum * share
            });
            end_of(step.unwrap_or(STEPS - 1))
        };
        Some(Latency { p50: at(0.5), p90: at(0.9), p99: at(0.99) })
    }
}

impl Default for LatencyLog {
    fn default() -> LatencyLog {
        LatencyLog { steps: Box::new([0.0; STEPS]), faded: Duration::ZERO }
    }
}

/// The step of a latency.
fn step_of(took: Duration) -> usize {
    let octaves = (took.as_secs_f64() / FIRST.as_secs_f64()).max(1.0).log2();
    ((octaves * STEPS_AN_OCTAVE as f64) as usize).min(STEPS - 1)
}

/// The longest latency of a step.
fn end_of(step: usize) -> Duration {
    FIRST.mul_f64(((step + 1) as f64 / STEPS_AN_OCTAVE as f64).exp2())
}

/// The weight of a request halves in this time.
const FADING: Duration = Duration::from_secs(5);
/// After so many halvings nothing is left.
const FORGOTTEN_AFTER: u32 = 24;
/// The shortest latency that is told from none.
const FIRST: Duration = Duration::from_micros(8);
const STEPS_AN_OCTAVE: usize = 8;
/// From 8 µs to more than a minute.
const STEPS: usize = 184;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_requests_to_a_tenth() {
        let mut log = LatencyLog::default();
        assert_eq!(log.quantiles(), None);
        for ms in 1..=100 {
            log.add(Duration::ZERO, Duration::from_millis(ms));
        }
        let Latency { p50, p90, p99 } = log.quantiles().expect("some");
        for (found, ms) in [(p50, 50.0), (p90, 90.0), (p99, 99.0)] {
            let ratio = found.as_secs_f64() * 1000.0 / ms;
            assert!((0.99..1.1).contains(&ratio), "{found:?} for {ms} ms");
        }
    }

    #[test]
    fn old_requests_fade_and_extremes_have_a_step() {
        let mut log = LatencyLog::default();
        for _ in 0..1000 {
            log.add(Duration::ZERO, Duration::from_millis(1));
        }
        for n in 0..100 {
            log.add(Duration::from_secs(60 + n / 50), Duration::from_millis(100));
        }
        let p50 = log.quantiles().expect("some").p50;
        assert!(p50 > Duration::from_millis(90), "{p50:?}");
        log.add(Duration::from_secs(3600), Duration::ZERO);
        log.add(Duration::from_secs(3600), Duration::from_secs(86_400));
        let Latency { p50, p99, .. } = log.quantiles().expect("some");
        assert!(p50 < Duration::from_micros(10) && p99 > Duration::from_secs(60), "{p50:?} {p99:?}");
    }
}
