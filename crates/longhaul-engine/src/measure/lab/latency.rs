//! How long requests took: a histogram of fixed size, and its percentiles.
//!
//! In: one duration for each request. Out: [`LatencyFigures`]. It knows no requests and no clock.

use std::time::Duration;

/// Percentiles of the time from a request's submission to its end, in microseconds. Each is at most
/// 1.6 % too high. All are 0 where there was no request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyFigures {
    /// Half of the requests took at most this.
    pub p50_us: f64,
    /// Nine of ten requests took at most this.
    pub p90_us: f64,
    /// 99 of 100 requests took at most this.
    pub p99_us: f64,
    /// The longest request.
    pub max_us: f64,
}

/// A histogram of durations. Buckets are 1/64 of a power of two wide, so that millions of requests
/// take 30 KiB.
#[derive(Clone, Debug)]
pub(super) struct LatencyHistogram {
    buckets: Vec<u64>,
    count: u64,
    max_nanos: u64,
}

impl LatencyHistogram {
    /// A histogram without requests.
    pub(super) fn new() -> LatencyHistogram {
        LatencyHistogram { buckets: vec![0; BUCKETS], count: 0, max_nanos: 0 }
    }

    /// Adds a request.
    pub(super) fn add(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)] += 1;
        self.count += 1;
        self.max_nanos = self.max_nanos.max(nanos);
    }

    /// Adds all requests of another histogram.
    pub(super) fn merge(&mut self, other: &LatencyHistogram) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, more)| *sum += more);
        self.count += other.count;
        self.max_nanos = self.max_nanos.max(other.max_nanos);
    }

    /// The number of requests.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The percentiles.
    pub(super) fn figures(&self) -> LatencyFigures {
        LatencyFigures {
            p50_us: self.percentile(50),
            p90_us: self.percentile(90),
            p99_us: self.percentile(99),
            max_us: self.max_nanos as f64 / 1e3,
        }
    }

    /// The end of the bucket in which the request lies that `percent` of all do not exceed, in
    /// microseconds.
    fn percentile(&self, percent: u64) -> f64 {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return end_of(at).min(self.max_nanos) as f64 / 1e3;
            }
        }
        0.0
    }
}

/// The bucket of a duration: the power of two that it reaches, and six bits below it.
fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.max(STEPS);
    let power = nanos.ilog2();
    let step = (nanos >> (power - STEPS.ilog2())) - STEPS;
    let power = u64::from(power - STEPS.ilog2());
    ((power * STEPS + step) as usize).min(BUCKETS - 1)
}

/// The last nanosecond of a bucket.
fn end_of(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    ((STEPS + step + 1) << power) - 1
}

/// Buckets within a power of two.
const STEPS: u64 = 64;
/// Up to 2^46 ns, which is 19 hours: what takes longer counts as that.
const BUCKETS: usize = 40 * STEPS as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_series_are_exact_to_a_64th() {
        let mut histogram = LatencyHistogram::new();
        (1..=1000).for_each(|micros| histogram.add(Duration::from_micros(micros)));
        let figures = histogram.figures();
        for (got, want) in [(figures.p50_us, 500.0), (figures.p90_us, 900.0), (figures.p99_us, 990.0)] {
            assert!((want..want * 1.017).contains(&got), "{got} for {want}");
        }
        assert_eq!((figures.max_us, histogram.count()), (1000.0, 1000));
    }

    #[test]
    fn every_duration_lies_in_its_bucket_and_the_longest_in_the_last() {
        for nanos in [0, 1, 63, 64, 65, 127, 128, 1_000, 999_999, 1 << 30, (1 << 40) + 1] {
            let bucket = bucket_of(nanos);
            assert!(end_of(bucket) >= nanos && (bucket == 0 || end_of(bucket - 1) < nanos), "{nanos}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn merging_two_histograms_is_adding_all_their_requests() {
        let (mut both, mut one, mut other) =
            (LatencyHistogram::new(), LatencyHistogram::new(), LatencyHistogram::new());
        for micros in [3, 50, 700, 9_000] {
            both.add(Duration::from_micros(micros));
            (if micros < 100 { &mut one } else { &mut other }).add(Duration::from_micros(micros));
        }
        one.merge(&other);
        assert_eq!((one.figures(), one.count()), (both.figures(), 4));
    }

    #[test]
    fn without_requests_all_figures_are_0() {
        assert_eq!(LatencyHistogram::new().figures(), LatencyFigures::default());
    }
}
