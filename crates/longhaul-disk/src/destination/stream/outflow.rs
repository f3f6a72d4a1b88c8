//! Decides when a stream flows and when it waits: buffers fill before the first block leaves, and
//! after an under-run they fill again. A tape that stops has to be wound back.
//!
//! In: how much is ready to go out, and whether more is on its way. Out: whether to write now, and
//! the number of under-runs. It knows no clock: what is late shows by what is not there.

/// The state of a outflow.
#[derive(Debug)]
pub(super) struct Outflow {
    /// Chunks that must be ready before any leaves. 0: each leaves as it comes, and no under-run
    /// is counted.
    prefill_chunks: usize,
    phase: OutflowPhase,
    under_runs: u64,
}

/// The phase of a outflow.
///
/// ```text
/// phase    event                                      next phase
/// Filling  enough is ready, or nothing more can come  Flowing
/// Flowing  nothing is ready                           Starved
/// Starved  something is ready again: an under-run     Filling
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutflowPhase {
    /// It writes nothing until enough is ready.
    Filling,
    /// It writes whatever is ready.
    Flowing,
    /// It wrote all that was ready. That this is an under-run, and not the end, is known only when
    /// more comes.
    Starved,
}

/// Whether more can come before something leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    /// Chunks that were asked for are not here yet.
    Coming,
    /// Everything that was asked for is here: nothing more comes until something went out.
    AllHere,
}

impl Outflow {
    /// A way out that begins to flow once `prefill_chunks` are ready.
    pub(super) fn new(prefill_chunks: usize) -> Outflow {
        Outflow { prefill_chunks, phase: OutflowPhase::Filling, under_runs: 0 }
    }

    /// Whether something shall go out now, of which `ready` chunks and entries are here in order.
    pub(super) fn may_write(&mut self, ready: usize, supply: Supply) -> bool {
        if self.prefill_chunks == 0 {
            return ready > 0;
        }
        match (self.phase, ready) {
            (OutflowPhase::Flowing, 0) => self.phase = OutflowPhase::Starved,
            (OutflowPhase::Starved, 1..) => {
                self.under_runs += 1;
                self.phase = OutflowPhase::Filling;
            }
            _ => {}
        }
        let is_full = ready >= self.prefill_chunks || supply == Supply::AllHere;
        if self.phase == OutflowPhase::Filling && ready > 0 && is_full {
            self.phase = OutflowPhase::Flowing;
        }
        self.phase == OutflowPhase::Flowing
    }

    /// How often it had nothing to write although the stream was not at its end.
    pub(super) fn under_runs(&self) -> u64 {
        self.under_runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_before_the_buffers_are_filled() {
        let mut outflow = Outflow::new(3);
        let waits = [0, 1, 2].map(|ready| outflow.may_write(ready, Supply::Coming));
        assert_eq!(waits, [false; 3]);
        assert!(outflow.may_write(3, Supply::Coming));
        assert!(outflow.may_write(1, Supply::Coming), "once it flows, it takes what is there");
        assert_eq!(outflow.under_runs(), 0);
    }

    #[test]
    fn a_stream_that_is_fed_too_slowly_fills_again_and_counts_each_under_run() {
        let mut outflow = Outflow::new(2);
        for under_runs in 0..3 {
            assert!(!outflow.may_write(1, Supply::Coming));
            assert!(outflow.may_write(2, Supply::Coming));
            assert!(outflow.may_write(1, Supply::Coming));
            assert!(!outflow.may_write(0, Supply::Coming));
            assert_eq!(outflow.under_runs(), under_runs);
        }
        assert!(!outflow.may_write(0, Supply::AllHere), "the end of the stream is no under-run");
        assert_eq!(outflow.under_runs(), 2);
    }

    #[test]
    fn what_is_here_leaves_when_nothing_more_can_come() {
        let mut outflow = Outflow::new(5);
        assert!(!outflow.may_write(2, Supply::Coming));
        assert!(!outflow.may_write(0, Supply::AllHere), "there is nothing to write");
        assert!(outflow.may_write(2, Supply::AllHere));
    }

    #[test]
    fn without_a_prefill_everything_leaves_at_once_and_no_under_run_is_counted() {
        let mut outflow = Outflow::new(0);
        let steps = [(1, true), (0, false), (1, true), (0, false), (4, true)];
        assert!(steps.iter().all(|(ready, writes)| outflow.may_write(*ready, Supply::Coming) == *writes));
        assert_eq!(outflow.under_runs(), 0);
    }
}
