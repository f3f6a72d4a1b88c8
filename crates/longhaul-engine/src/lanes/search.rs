//! When a sending side looks for the number of its lanes, and what it looks at.
//!
//! In: lanes that join, and the lanes that stand once a second. Out: the changes that `tune` found
//! good. It changes no lane itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use longhaul_core::LaneId;
use longhaul_net::LaneHandle;
use longhaul_proto::udp::control::UdpSpare;

use super::growth::UdpGrowth;
use super::lane::StandingLane;
use super::tune::{Demand, PathDemand, Tuning, TuningRules, TuningStep};
use super::worker::pulse::PulseReading;

/// See the module. It does nothing on a side that does not choose the number.
#[derive(Debug)]
pub(super) struct LaneSearch {
    /// Taken when the first lane joins, over which the search begins.
    rules: Option<TuningRules>,
    tuning: Option<Tuning>,
    /// The number of lanes over UDP. `None` where there is nothing to look for.
    growth: Option<UdpGrowth>,
    last: Instant,
}

impl LaneSearch {
    /// A search that has not begun. `None`: the number was given.
    pub(super) fn new(rules: Option<TuningRules>) -> LaneSearch {
        let growth = rules.as_ref().map(|rules| UdpGrowth::new(rules.lanes_max));
        LaneSearch { rules, tuning: None, growth, last: Instant::now() }
    }

    /// A search that waits while lanes over UDP carry alone, in place of so many over TCP.
    #[cfg(test)]
    pub(super) fn parked(lanes: u32) -> LaneSearch {
        LaneSearch { rules: None, tuning: Some(Tuning::parked(lanes)), growth: None, last: Instant::now() }
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

    /// Lanes over UDP are of no use any more. Gives how many there were over TCP before, 0 if those
    /// still stand.
    pub(super) fn leave_udp(&mut self) -> u32 {
        self.tuning.as_mut().map_or(0, Tuning::leave_udp)
    }

    /// Lanes over QUIC are of no use any more: no other transport than TCP is tried.
    pub(super) fn end_choice(&mut self) {
        if let Some(tuning) = &mut self.tuning {
            tuning.leave_udp();
        }
    }

    /// Whether lanes over UDP carry alone, and the search among those over TCP waits.
    pub(super) fn is_parked(&self) -> bool {
        self.tuning.as_ref().is_some_and(Tuning::is_parked)
    }

    /// Looks at the lanes that stand if a second has passed, or a quarter of one while lanes that
    /// are done wait for others. `rate` is the bound of all of them, in bytes/s.
    pub(super) fn look(
        &mut self,
        running: &mut BTreeMap<LaneId, StandingLane>,
        rate: Option<u64>,
        demand: Demand,
    ) -> Vec<TuningStep> {
        let now = Instant::now();
        // A unit in hand counts as sent when all of it is in its socket. At the end nothing else
        // remains. One that is sent again is not among the bytes that remain.
        let readings: Vec<_> = running.values().map(StandingLane::reading).collect();
        let fresh = readings.iter().map(PulseReading::fresh_unit).sum();
        let remaining = demand.remaining.map(|bytes| bytes.saturating_sub(fresh));
        let every = if remaining == Some(0) { LOOK_AT_END_EVERY } else { LOOK_EVERY };
        let nothing = self.tuning.is_none() && self.growth.is_none();
        if nothing || now - self.last < every {
            return Vec::new();
        }
        let elapsed = now - std::mem::replace(&mut self.last, now);
        let looks: Vec<_> = running.iter_mut().map(|(id, lane)| lane.look(*id)).collect();
        let demand = Demand { remaining, ..demand };
        let mut steps = Vec::new();
        if let Some(tuning) = &mut self.tuning {
            tuning.carry_units(readings.iter().map(|reading| reading.unit).max().unwrap_or(0));
            steps = tuning.second(now, &looks, rate, demand);
        }
        let is_trial = self.tuning.as_ref().is_some_and(Tuning::tries_transport);
        if let Some(growth) = &mut self.growth {
            // One change at a time.
            let spare = if steps.is_empty() && !is_trial { demand.path.spare } else { UdpSpare::Nothing };
            let path = PathDemand { spare, ..demand.path };
            steps.extend(growth.second(elapsed, &looks, Demand { path, ..demand }));
        }
        steps
    }
}

/// Time between two decisions on the number of lanes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same at the end, when each is a wait of the whole transfer.
const LOOK_AT_END_EVERY: Duration = Duration::from_millis(250);
