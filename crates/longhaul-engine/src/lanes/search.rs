//! When a sending side looks for the number of its lanes, and what it looks at.
//!
//! In: lanes that join, and the lanes that stand once a second. Out: the changes that `tune` found
//! good. It changes no lane itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use longhaul_core::LaneId;
use longhaul_net::LaneHandle;

use super::lane::StandingLane;
use super::tune::{Demand, Tuning, TuningRules, TuningStep};

/// See the module. It does nothing on a side that does not choose the number.
#[derive(Debug)]
pub(super) struct LaneSearch {
    /// Taken when the first lane joins, over which the search begins.
    rules: Option<TuningRules>,
    tuning: Option<Tuning>,
    /// Bytes of a chunk.
    unit: u64,
    last: Instant,
}

impl LaneSearch {
    /// A search that has not begun. `None`: the number was given.
    pub(super) fn new(rules: Option<TuningRules>) -> LaneSearch {
        let unit = rules.as_ref().map_or(0, |rules| rules.unit);
        LaneSearch { rules, tuning: None, unit, last: Instant::now() }
    }

    /// Takes a lane that joined.
    pub(super) fn joined(&mut self, id: LaneId, handle: &LaneHandle) {
        if let Some(rules) = self.rules.take() {
            self.tuning = Tuning::begin(&rules, handle);
        }
        if let Some(tuning) = &mut self.tuning {
            tuning.joined(id, handle);
        }
    }

    /// Looks at the lanes that stand if a second has passed. `rate` is the bound of all of them, in
    /// bytes/s.
    pub(super) fn look(
        &mut self,
        running: &mut BTreeMap<LaneId, StandingLane>,
        rate: Option<u64>,
        demand: Demand,
    ) -> Vec<TuningStep> {
        let now = Instant::now();
        let Some(tuning) = self.tuning.as_mut().filter(|_| now - self.last >= LOOK_EVERY) else { return Vec::new() };
        self.last = now;
        let looks: Vec<_> = running.iter_mut().map(|(id, lane)| lane.look(*id, self.unit)).collect();
        // A unit in hand counts as sent when all of it is in its socket. At the end nothing else
        // remains.
        let in_hand = self.unit * looks.iter().filter(|look| look.in_hand > 0).count() as u64;
        let remaining = demand.remaining.map(|bytes| bytes.saturating_sub(in_hand));
        tuning.second(now, &looks, rate, Demand { remaining, ..demand })
    }
}

/// Time between two decisions on the number of lanes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
