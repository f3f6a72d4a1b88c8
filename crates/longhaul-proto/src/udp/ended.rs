//! The last lanes that ended: a last status of theirs may still be on its way, whose totals were
//! counted already.
//!
//! In: lanes that end. Out: whether one that is heard of had ended. It knows nothing else of them.

use std::collections::VecDeque;

use longhaul_core::LaneId;

/// The last lanes that ended, the newest last.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedLanes(VecDeque<LaneId>);

impl EndedLanes {
    /// A lane is over.
    pub(super) fn push(&mut self, lane: LaneId) {
        self.0.push_back(lane);
        if self.0.len() > ENDED_KEPT {
            self.0.pop_front();
        }
    }

    /// Whether a lane had ended that is heard of, or begins, once more. It has not any longer.
    pub(super) fn take(&mut self, lane: LaneId) -> bool {
        let before = self.0.len();
        self.0.retain(|ended| *ended != lane);
        self.0.len() < before
    }
}

/// Lanes that are remembered.
const ENDED_KEPT: usize = 64;
