//! Whether a fault passes by itself, and how long a verifier waits for that.
//!
//! In: faults of shards. Out: pauses. Must not know the queue, nor how a file is read.

use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode};
use tokio::time::Instant;

use super::VerifyUntil;
use super::doubt::LossWatch;

/// The course of a verifier over its shards.
#[derive(Debug, Default)]
pub(super) struct VerifyTrials {
    /// When the time of its orders is over. `None`: never.
    pub(super) deadline: Option<Instant>,
    /// The last names that it looked at.
    pub(super) watch: LossWatch,
    /// Shards in a row that it could not read.
    pub(super) failed_in_a_row: u32,
    /// Times in a row that the daemon with the files was not there.
    lost_in_a_row: u32,
}

impl VerifyTrials {
    /// Nothing was tried yet. The time of the verifier is over at `deadline`, if it ever is.
    pub(super) fn until(deadline: Option<Instant>) -> VerifyTrials {
        VerifyTrials { deadline, ..VerifyTrials::default() }
    }

    /// Files were read: whatever was is over.
    pub(super) fn goes_on(&mut self) {
        self.lost_in_a_row = 0;
    }

    /// Whether a fault is of a daemon that may come back: it starts anew, or still holds the
    /// places of a conversation that was lost. That says nothing of the shard. A verifier that ends
    /// by itself waits for it a few times.
    pub(super) fn may_pass(&mut self, fault: &Fault, until: VerifyUntil) -> bool {
        let is_away = fault.blame != Blame::Local
            && matches!(fault.code, FaultCode::Unreachable | FaultCode::Busy | FaultCode::Lost | FaultCode::TimedOut);
        let has_patience = until == VerifyUntil::Never || self.lost_in_a_row < LOST_AT_MOST;
        if is_away && has_patience {
            self.lost_in_a_row = self.lost_in_a_row.saturating_add(1);
        }
        is_away && has_patience
    }

    /// The pause behind such a fault: each is twice as long as the one before, up to a bound.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.lost_in_a_row.saturating_sub(1).min(5)).min(LOST_PAUSE_MAX)
    }
}

/// Times in a row that a verifier which ends by itself waits for a daemon: 15 s in all.
const LOST_AT_MOST: u32 = 4;
const LOST_PAUSE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_is_away_is_waited_for_and_other_faults_are_of_the_shard() {
        let fault = |code, blame| Fault::new(code, blame, "away");
        let away = fault(FaultCode::Unreachable, Blame::Path);
        let mut trials = VerifyTrials::default();
        let pauses = [1, 2, 4, 8, 16, 30, 30].map(|_: u64| {
            assert!(trials.may_pass(&away, VerifyUntil::Never));
            trials.pause().as_secs()
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert!(!trials.may_pass(&away, VerifyUntil::NothingDue), "it has waited often enough");
        trials.goes_on();
        assert!(trials.may_pass(&away, VerifyUntil::NothingDue));
        assert!(!trials.may_pass(&fault(FaultCode::TimedOut, Blame::Local), VerifyUntil::Never));
        assert!(!trials.may_pass(&fault(FaultCode::Denied, Blame::Peer), VerifyUntil::Never));
    }
}
