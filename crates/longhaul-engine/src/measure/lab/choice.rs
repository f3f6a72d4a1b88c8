//! Which depth and chunk size a sweep speaks for, and which regions of a scan are slow. Pure.
//!
//! In: measured rates. Out: a [`SweepChoice`], or the numbers of slow regions. It measures nothing.

use longhaul_core::limits::{CHUNK_BYTES_USER_MAX, CHUNK_BYTES_USER_MIN};

/// The rate of one setting of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepPoint {
    /// Bytes of a request.
    pub chunk_bytes: u64,
    /// Requests in flight on each target.
    pub depth: usize,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

/// The setting that a sweep speaks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepChoice {
    /// The setting to use.
    pub chosen: SweepPoint,
    /// The fastest setting.
    pub best: SweepPoint,
}

impl SweepPoint {
    fn bytes_in_flight(&self) -> u64 {
        self.chunk_bytes.saturating_mul(self.depth as u64)
    }

    /// Whether a transfer may have chunks of this size.
    fn is_for_transfers(&self) -> bool {
        (CHUNK_BYTES_USER_MIN..=CHUNK_BYTES_USER_MAX).contains(&self.chunk_bytes)
    }
}

/// The setting with the fewest bytes in flight among those that reach [`CLOSE_ENOUGH`] of the best
/// rate; of equals the one with the smaller depth. More in flight costs memory, and delays every
/// request behind it. Only chunk sizes that a transfer may have count. `None` without any.
pub fn choose(points: &[SweepPoint]) -> Option<SweepChoice> {
    let usable = || points.iter().copied().filter(SweepPoint::is_for_transfers);
    let best = usable().max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))?;
    let close = usable().filter(|point| point.bytes_per_s >= best.bytes_per_s * CLOSE_ENOUGH);
    let chosen = close.min_by_key(|point| (point.bytes_in_flight(), point.depth)).unwrap_or(best);
    Some(SweepChoice { chosen, best })
}

/// The regions that were read at less than [`SLOW_BELOW`] of the median rate, or not at all
/// (`None`), in order.
pub fn slow_regions(bytes_per_s: &[Option<f64>]) -> Vec<usize> {
    let median = median_rate(bytes_per_s);
    let is_slow = |rate: Option<f64>| rate.is_none_or(|rate| rate < median * SLOW_BELOW);
    (0..bytes_per_s.len()).filter(|at| is_slow(bytes_per_s[*at])).collect()
}

/// The median rate of the regions that could be read, in bytes per second; of an even number the
/// lower one of the two in the middle. 0 if none could be read.
pub fn median_rate(bytes_per_s: &[Option<f64>]) -> f64 {
    let mut rates: Vec<f64> = bytes_per_s.iter().copied().flatten().collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// The share of the best rate that is enough: below 3 % two runs of one setting differ as much.
pub const CLOSE_ENOUGH: f64 = 0.97;
/// The share of the median rate below which a region is slow. A rotating disk is half as fast at
/// its inner end as at its outer one, which is no fault: its median is 3/4 of the fastest.
pub const SLOW_BELOW: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn point(chunk: u64, depth: usize, rate: f64) -> SweepPoint {
        SweepPoint { chunk_bytes: chunk, depth, bytes_per_s: rate }
    }

    #[test]
    fn the_fewest_bytes_in_flight_within_3_percent_of_the_best_are_chosen() {
        let table = [
            ("best alone", vec![point(MIB, 1, 50.0), point(MIB, 2, 100.0)], (MIB, 2)),
            ("3 % off", vec![point(4 * MIB, 4, 97.0), point(4 * MIB, 16, 100.0)], (4 * MIB, 4)),
            ("more than 3 % off", vec![point(4 * MIB, 4, 96.9), point(4 * MIB, 16, 100.0)], (4 * MIB, 16)),
            ("smaller chunks", vec![point(4 * MIB, 4, 100.0), point(MIB, 8, 98.0)], (MIB, 8)),
            ("equal bytes", vec![point(MIB, 16, 100.0), point(4 * MIB, 4, 100.0)], (4 * MIB, 4)),
            ("chunks that no transfer has", vec![point(MIB / 2, 64, 900.0), point(MIB, 4, 100.0)], (MIB, 4)),
        ];
        for (case, points, (chunk, depth)) in table {
            let choice = choose(&points).unwrap();
            assert_eq!((choice.chosen.chunk_bytes, choice.chosen.depth), (chunk, depth), "{case}");
            assert!(choice.best.bytes_per_s >= choice.chosen.bytes_per_s, "{case}");
        }
        assert_eq!(choose(&[point(MIB / 2, 1, 9.0)]), None);
    }

    #[test]
    fn regions_below_half_of_the_median_and_unread_ones_are_slow() {
        let rates = [Some(100.0), Some(49.9), Some(100.0), None, Some(50.0), Some(140.0), Some(100.0)];
        assert_eq!(slow_regions(&rates), [1, 3]);
        assert_eq!(slow_regions(&[Some(1.0)]), [0; 0]);
        assert_eq!(slow_regions(&[None, None]), [0, 1]);
        assert_eq!(slow_regions(&[]), [0; 0]);
    }
}
