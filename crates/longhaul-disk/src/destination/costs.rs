//! The cost of syncs on this target, which decides between syncing one by one and a whole file
//! system at once.
//!
//! In: how long syncs took. Out: the choice. Knows nothing of the files that are synced.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Smoothed durations of syncs here, in nanoseconds, which decide between one by one and all at
/// once.
#[derive(Debug)]
pub(crate) struct Costs {
    file: AtomicU64,
    dir: AtomicU64,
    file_system: AtomicU64,
}

impl Costs {
    /// Whether `n` small files should be synced one by one.
    pub(crate) fn files_one_by_one(&self, n: usize) -> bool {
        self.one_by_one(&self.file, n)
    }

    /// Whether `n` directories should be synced one by one.
    pub(crate) fn dirs_one_by_one(&self, n: usize) -> bool {
        self.one_by_one(&self.dir, n)
    }

    /// Notes that `n` files were synced one by one since `begun`.
    pub(crate) fn took_files(&self, begun: Instant, n: usize) {
        Costs::took(&self.file, begun, n);
    }

    /// Notes that `n` directories were synced one by one since `begun`.
    pub(crate) fn took_dirs(&self, begun: Instant, n: usize) {
        Costs::took(&self.dir, begun, n);
    }

    /// Notes that the whole file system was synced since `begun`.
    pub(crate) fn took_file_system(&self, begun: Instant) {
        Costs::took(&self.file_system, begun, 1);
    }

    /// Whether `n` of a kind should be synced one by one. A single one always is: that is no more
    /// work than syncing everything.
    ///
    /// The cost of the way not taken is lowered a little each time, so that one bad time (a file
    /// system full of other users' dirty data) is not remembered for ever.
    fn one_by_one(&self, each: &AtomicU64, n: usize) -> bool {
        let (each_ns, all_ns) = (each.load(Ordering::Relaxed), self.file_system.load(Ordering::Relaxed));
        let chosen = n <= 1 || (n as u64).saturating_mul(each_ns) <= all_ns;
        let other = if chosen { &self.file_system } else { each };
        if n > 1 {
            other.store(if chosen { all_ns } else { each_ns } / 16 * 15, Ordering::Relaxed);
        }
        chosen
    }

    fn took(cost: &AtomicU64, begun: Instant, n: usize) {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX) / (n as u64).max(1);
        let smoothed = cost.load(Ordering::Relaxed) / 4 * 3 + ns / 4;
        cost.store(smoothed.max(1), Ordering::Relaxed);
    }
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            file: AtomicU64::new(SYNC_NS_EXPECTED),
            dir: AtomicU64::new(SYNC_NS_EXPECTED),
            file_system: AtomicU64::new(FILE_SYSTEM_SYNC_NS_EXPECTED),
        }
    }
}

/// The choice starts with up to 4 one by one. Measured on ext4 (virtio disk, others working),
/// medians in ms, one by one / all at once: files of 16 KiB, 4: 0.6 / 1.9, 8: 2.4 / 0.6, 16: 8.7 /
/// 3.2, 128: 32 / 2.8 (4 threads: 12); with 64 MiB of other data dirty, 4: 44 / 27, 128: 394 / 30.
/// Directories, 1: 3.8 / 3.8, 8: 20 / 3.8, 64: 208 / 3.5.
const SYNC_NS_EXPECTED: u64 = 1_000_000;
/// See [`SYNC_NS_EXPECTED`].
const FILE_SYSTEM_SYNC_NS_EXPECTED: u64 = 4 * SYNC_NS_EXPECTED;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheaper_way_is_taken_and_the_other_is_not_forgotten() {
        let costs = Costs::default();
        assert!(costs.files_one_by_one(4));
        assert!(!costs.files_one_by_one(5));
        costs.file_system.store(1_000_000_000, Ordering::Relaxed);
        let tries = (0..100).take_while(|_| costs.files_one_by_one(64)).count();
        assert!((1..100).contains(&tries), "a slow file system is tried again after {tries}");
        costs.file.store(u64::MAX, Ordering::Relaxed);
        assert!(costs.files_one_by_one(1));
    }
}
