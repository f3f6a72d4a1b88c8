//! Counts processor time: by stage, and for the process. It is cheap enough to be always on.
//!
//! In: work to run and count. Out: CPU seconds for reports and for the bottleneck search. It knows
//! nothing of the work.

use std::cell::Cell;
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
    /// Runs `work` on this thread and counts its CPU time for `stage`, but for what of it is
    /// counted for a stage within it.
    pub(crate) fn count<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let (before, around) = (thread_nanos(), WITHIN.replace(0));
        let result = work();
        let all = thread_nanos().saturating_sub(before);
        let within = WITHIN.replace(around + all);
        if let Some(nanos) = self.cell(stage) {
            nanos.fetch_add(all.saturating_sub(within), Ordering::Relaxed);
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

thread_local! {
    /// CPU time of this thread that was counted within the work that is counted now, nanoseconds.
    static WITHIN: Cell<u64> = const { Cell::new(0) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_counted_for_a_stage_within_another_counts_once() {
        let times = StageTimes::default();
        let spin = |ms: u64| {
            let until = thread_nanos() + ms * 1_000_000;
            while thread_nanos() < until {}
        };
        let before = thread_nanos();
        times.count(Stage::Net, || {
            spin(2);
            times.count(Stage::Hash, || spin(20));
            times.count(Stage::Hash, || spin(20));
        });
        times.count(Stage::Net, || spin(2));
        let all = (thread_nanos() - before) as f64 / 1e9;
        let (hash, net) = (times.of(Stage::Hash), times.of(Stage::Net));
        assert!(hash >= 0.04 && net >= 0.004 && hash + net <= all, "{hash} and {net} of {all}");
    }
}
