//! Counts processor time: by stage, and for the process. It is cheap enough to be always on.
//!
//! In: work to run and count. Out: CPU seconds for reports and for the bottleneck search. It knows
//! nothing of the work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A stage of the data path, to which processor time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Stage {
    /// Hashing in a lane.
    Hash,
    /// Sending or receiving in a lane, encryption included.
    Net,
    /// Reading and packing, or writing, staging and committing small files.
    Files,
    /// The threads of the disk engine that read, where a measurement counts them apart.
    Read,
    /// The threads of the disk engine that write, where a measurement counts them apart.
    Write,
}

/// The stages that a session counts, in the order in which reports name them.
const COUNTED: [Stage; 3] = [Stage::Hash, Stage::Net, Stage::Files];

impl Stage {
    /// Its name, for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Hash => "hash",
            Stage::Net => "net",
            Stage::Files => "files",
            Stage::Read => "read",
            Stage::Write => "write",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// CPU time by stage of one session side.
#[derive(Clone, Debug, Default)]
pub(crate) struct StageTimes {
    nanos: Arc<[AtomicU64; COUNTED.len()]>,
}

impl StageTimes {
    /// Runs `work` on this thread and counts its CPU time for `stage`.
    pub(crate) fn count<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let before = thread_nanos();
        let result = work();
        if let Some(nanos) = self.cell(stage) {
            nanos.fetch_add(thread_nanos().saturating_sub(before), Ordering::Relaxed);
        }
        result
    }

    /// CPU seconds of one stage.
    pub(crate) fn of(&self, stage: Stage) -> f64 {
        self.cell(stage).map_or(0, |nanos| nanos.load(Ordering::Relaxed)) as f64 / 1e9
    }

    /// Where the time of a stage is summed up. `None` for one that a session does not count.
    fn cell(&self, stage: Stage) -> Option<&AtomicU64> {
        let at = COUNTED.iter().position(|counted| *counted == stage)?;
        self.nanos.get(at)
    }

    /// CPU seconds by stage.
    pub(crate) fn seconds(&self) -> Vec<(Stage, f64)> {
        COUNTED.iter().map(|stage| (*stage, self.of(*stage))).collect()
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
