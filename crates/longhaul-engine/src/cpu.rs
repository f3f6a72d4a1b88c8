//! Counts processor time: by stage, and for the process. It is cheap enough to be always on.
//!
//! In: work to run and count. Out: CPU seconds for reports and for the bottleneck search. It knows
//! nothing of the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// A stage of the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Hashing in a lane.
    Hash,
    /// Sending or receiving in a lane, encryption included.
    Net,
    /// Reading and packing, or writing, staging and committing small files.
    Files,
}

const STAGES: [(Stage, &str); 3] = [(Stage::Hash, "hash"), (Stage::Net, "net"), (Stage::Files, "files")];

/// CPU time by stage of one session side.
#[derive(Clone, Debug, Default)]
pub(crate) struct StageTimes {
    nanos: Arc<[AtomicU64; STAGES.len()]>,
}

impl StageTimes {
    /// Runs `work` on this thread and counts its CPU time for `stage`.
    pub(crate) fn count<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let before = thread_nanos();
        let result = work();
        self.nanos[stage as usize].fetch_add(thread_nanos().saturating_sub(before), Ordering::Relaxed);
        result
    }

    /// CPU seconds of one stage.
    pub(crate) fn of(&self, stage: Stage) -> f64 {
        self.nanos[stage as usize].load(Ordering::Relaxed) as f64 / 1e9
    }

    /// CPU seconds by stage.
    pub(crate) fn seconds(&self) -> Vec<(&'static str, f64)> {
        STAGES.iter().map(|(stage, name)| (*name, self.of(*stage))).collect()
    }
}

/// CPU time of this process so far, in microseconds.
pub(crate) fn process_micros() -> u64 {
    nanos(ClockId::ProcessCPUTime) / 1000
}

fn thread_nanos() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
