//! Finds the lanes to give up: those that stand still, those that the other host does not hear, and
//! those that swallow large segments.
//!
//! In: the lanes, once a second. Out: ids. It does not know what the lanes carry: the machines
//! decide what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use longhaul_core::{LaneId, Role};

use super::stall::Stalls;
use super::unanswered::Unanswered;
use crate::lanes::lane::StandingLane;

/// The watch over the lanes of one side. See the module.
#[derive(Debug)]
pub(crate) struct LaneHealth {
    role: Role,
    stalls: Stalls,
    unanswered: Unanswered,
    next: Instant,
}

impl LaneHealth {
    /// A lane that stands still for `stall_after` while others move is given up.
    pub(crate) fn new(role: Role, stall_after: Duration) -> LaneHealth {
        let stalls = Stalls::new(role, stall_after);
        LaneHealth { role, stalls, unanswered: Unanswered::default(), next: Instant::now() + EVERY }
    }

    /// The lanes to give up now, looked for once a second. `owing` names the lanes that owe a unit
    /// they have not begun. `peer_stalls`: the other side lately reported that its disk stalls.
    /// `heard`: when it was last heard at all.
    pub(crate) fn find(
        &mut self,
        lanes: &mut BTreeMap<LaneId, StandingLane>,
        owing: impl FnOnce() -> BTreeSet<LaneId>,
        peer_stalls: bool,
        heard: Instant,
    ) -> BTreeSet<LaneId> {
        let now = Instant::now();
        if now < self.next {
            return BTreeSet::new();
        }
        self.next = now + EVERY;
        let readings: Vec<_> = lanes.iter().map(|(id, lane)| (*id, lane.reading())).collect();
        let stalled = self.stalls.find(now, &readings, &owing(), peer_stalls);
        // A slow lane may take longer for a piece; the kernel knows whether bytes still come.
        let is_quiet = |id: &LaneId| lanes[id].handle.quiet().is_none_or(|quiet| quiet >= self.stalls.after());
        let mut found: BTreeSet<_> =
            stalled.into_iter().filter(|id| self.role == Role::Sender || is_quiet(id)).collect();
        let starving_after = self.stalls.starving_after();
        found.extend(lanes.iter_mut().filter_map(|(id, lane)| lane.is_dead(now, EVERY, starving_after).then_some(*id)));
        let counters = lanes.iter().filter_map(|(id, lane)| Some((*id, lane.handle.counters()?)));
        for id in self.unanswered.find(now, counters, heard) {
            tracing::info!(target: "longhaul::session", lane = id.0, "large segments get no answer, control does");
            found.insert(id);
        }
        found
    }

    /// Whether another sign of life of the other side would help to decide about a lane, if the
    /// last was heard at `heard`.
    pub(crate) fn asks(&self, heard: Instant) -> bool {
        self.unanswered.asks(heard)
    }
}

/// Time between two looks at whether lanes move.
const EVERY: Duration = Duration::from_secs(1);
