//! The cutting of a manifest's segment into shards.
//!
//! In: the entries of one segment, in its order: path and size. Out: shards, as ranges of entries
//! with their sums. Must not know manifests, links or campaigns; it holds one shard's sums and
//! nothing of the entries before.

use crate::error::JobsError;
use crate::ids::Amount;

/// Files of a shard: a mover lists, compares and reports so many at a time in a few seconds, and a
/// failed report concerns no more.
const SHARD_FILES_MAX: u64 = 10_000;

/// Bytes of a shard, unless a single file has more.
const SHARD_BYTES_MAX: u64 = 1 << 40;

/// Bytes of a shard on the slowest link: below that, claims would cost more than they spread.
const SHARD_BYTES_MIN: u64 = 64 << 20;

/// The time that a shard takes at the known rate of its link: as much is lost, at worst, when a
/// mover has to leave.
const SHARD_SECONDS: u64 = 600;

/// The bounds of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    most: Amount,
}

/// A shard as it was cut: the entries from `first` on, before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Its first entry, counted from 0 in the segment.
    pub first: u64,
    /// The entry behind its last one.
    pub end: u64,
    /// The sums of its entries.
    pub total: Amount,
}

/// Cuts a segment, one entry after the other.
#[derive(Debug)]
pub struct Planner {
    limits: PlanLimits,
    first: u64,
    total: Amount,
}

impl PlanLimits {
    /// The bounds for a link of a known rate, bytes/s. `None` if nothing is known of it: then the
    /// time of a shard has no bound.
    pub fn of_rate(rate: Option<u64>) -> PlanLimits {
        let timed = rate.map_or(SHARD_BYTES_MAX, |rate| rate.saturating_mul(SHARD_SECONDS));
        PlanLimits { most: Amount { files: SHARD_FILES_MAX, bytes: timed.clamp(SHARD_BYTES_MIN, SHARD_BYTES_MAX) } }
    }

    /// Other bounds, for tests and trials; each is at least 1.
    pub fn of_amount(most: Amount) -> PlanLimits {
        PlanLimits { most: most.max_of_each(Amount { files: 1, bytes: 1 }) }
    }
}

impl Planner {
    /// A planner at the first entry of a segment.
    pub fn new(limits: PlanLimits) -> Planner {
        Planner { limits, first: 0, total: Amount::default() }
    }

    /// Takes the next entry, and gives the shard before it if that is full. A file that is larger
    /// than a shard becomes one of its own, so that nothing waits behind it.
    ///
    /// # Errors
    /// [`JobsError::TooMuch`] if the entries cannot be counted.
    pub fn push(&mut self, size: u64) -> Result<Option<Cut>, JobsError> {
        let file = Amount { files: 1, bytes: size };
        if let Some(total) = self.total.plus(file)
            && total.files <= self.limits.most.files
            && total.bytes <= self.limits.most.bytes
        {
            self.total = total;
            return Ok(None);
        }
        let full = self.cut()?;
        self.total = file;
        Ok(full)
    }

    /// Gives the last shard. `None` if there was no entry since the last cut.
    ///
    /// # Errors
    /// [`JobsError::TooMuch`] if the entries cannot be counted.
    pub fn finish(mut self) -> Result<Option<Cut>, JobsError> {
        self.cut()
    }

    /// Cuts a whole segment: an iterator over its shards. Paths are not looked at: a planner goes
    /// by numbers, so that 10^8 entries need no more memory than one.
    pub fn cuts<P>(
        limits: PlanLimits,
        entries: impl IntoIterator<Item = (P, u64)>,
    ) -> impl Iterator<Item = Result<Cut, JobsError>> {
        let mut entries = entries.into_iter();
        let mut planner = Some(Planner::new(limits));
        std::iter::from_fn(move || {
            for (_, size) in entries.by_ref() {
                match planner.as_mut()?.push(size) {
                    Ok(None) => {}
                    Ok(Some(cut)) => return Some(Ok(cut)),
                    Err(error) => {
                        planner = None;
                        return Some(Err(error));
                    }
                }
            }
            planner.take()?.finish().transpose()
        })
    }

    fn cut(&mut self) -> Result<Option<Cut>, JobsError> {
        if self.total.files == 0 {
            return Ok(None);
        }
        let end = self.first.checked_add(self.total.files).ok_or(JobsError::TooMuch("entries of a segment"))?;
        let cut = Cut { first: self.first, end, total: self.total };
        self.first = end;
        self.total = Amount::default();
        Ok(Some(cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn cuts(limits: PlanLimits, sizes: &[u64]) -> Vec<(u64, u64, u64)> {
        let entries = sizes.iter().map(|size| (b"path", *size));
        Planner::cuts(limits, entries).map(Result::unwrap).map(|cut| (cut.first, cut.end, cut.total.bytes)).collect()
    }

    #[test]
    fn a_shard_has_at_most_ten_thousand_files() {
        for (files, shards) in [(0, 0), (1, 1), (10_000, 1), (10_001, 2), (20_000, 2), (20_001, 3)] {
            assert_eq!(cuts(PlanLimits::of_rate(None), &vec![0; files]).len(), shards, "{files}");
        }
    }

    #[test]
    fn a_shard_has_at_most_a_tebibyte_or_ten_minutes_of_its_link() {
        let full = [1024 * GIB, 1];
        assert_eq!(cuts(PlanLimits::of_rate(None), &full), [(0, 1, 1024 * GIB), (1, 2, 1)]);
        let second = 100_000_000;
        let minutes = vec![60 * second; 25];
        let got = cuts(PlanLimits::of_rate(Some(second)), &minutes);
        assert_eq!(got.iter().map(|cut| cut.1 - cut.0).collect::<Vec<_>>(), [10, 10, 5]);
        let slow = cuts(PlanLimits::of_rate(Some(1)), &[32 << 20, 32 << 20, 1]);
        assert_eq!(slow, [(0, 2, 64 << 20), (2, 3, 1)]);
    }

    #[test]
    fn a_file_larger_than_a_shard_is_one_of_its_own() {
        let limits = PlanLimits::of_amount(Amount { files: 10, bytes: 100 });
        assert_eq!(
            cuts(limits, &[1, 101, 2, 3, u64::MAX, 4]),
            [(0, 1, 1), (1, 2, 101), (2, 4, 5), (4, 5, u64::MAX), (5, 6, 4)]
        );
    }

    #[test]
    fn shards_cover_a_segment_without_gap_or_overlap() {
        let mut seed = 1_u64;
        let sizes: Vec<u64> = (0..5000)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) % 3000
            })
            .collect();
        let got = cuts(PlanLimits::of_amount(Amount { files: 7, bytes: 9000 }), &sizes);
        let mut next = 0;
        for (first, end, bytes) in got {
            assert_eq!(first, next);
            assert_eq!(bytes, sizes[first as usize..end as usize].iter().sum::<u64>());
            assert!(end - first <= 7 && (bytes <= 9000 || end - first == 1));
            next = end;
        }
        assert_eq!(next, 5000);
    }
}
