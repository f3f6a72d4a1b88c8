//! Lanes at the sending side: their loss, the closing of this end, and the lanes that take their
//! place.
//!
//! Takes orders of the machine and events of the world; tells the machine when an end is closed or
//! a lane joins. Knows nothing of the content of units.

use longhaul_core::LaneId;
use longhaul_proto::sender::Unfinished;

use super::SendSession;
use crate::env::Env;
use crate::events::Event;
use crate::link::Lane;

impl SendSession {
    /// A lane breaks, or one side gives it up.
    pub(super) fn lose_lane(&mut self, env: &mut Env, id: LaneId) {
        let us = env.rng.below(20_000);
        match env.rng.below(3) {
            0 => {
                env.break_lane(self.no, id);
                env.clock.after(us, Event::NearBreaks(self.no, id));
            }
            1 => self.machine.lose_lane(id),
            _ => env.clock.after(us, Event::FarGivesUp(self.no, id)),
        }
    }

    /// The arrival of a unit over a lane, which may be a slow one.
    pub(super) fn slowed(&self, env: &mut Env, id: LaneId) -> u64 {
        let (now, arrives) = (env.clock.now().0, env.arrival());
        let times = env.plan.rates.lanes.straggler.filter(|(lane, _)| *lane == id).map_or(1, |(_, times)| times);
        now + (arrives - now) * times
    }

    /// Gives up the slow lane once each unit of a world of files in chunks was handed over, as the
    /// search for lanes does when others send sooner what it has.
    pub(super) fn give_up_straggler(&mut self, env: &Env) {
        let Some((straggler, _)) = env.plan.rates.lanes.straggler else { return };
        let is_open = self.lanes.iter().any(|lane| lane.id == straggler && lane.is_open);
        if is_open && self.units.sendings.len() as u64 == env.plan.chunks() {
            self.machine.lose_lane(straggler);
        }
    }

    /// How many units each lane took, by the lanes that are closed.
    #[cfg(test)]
    pub(crate) fn taken_by_closed(&self) -> impl Iterator<Item = (LaneId, u64)> {
        self.lanes.iter().filter(|lane| !lane.is_open).map(|lane| (lane.id, lane.taken()))
    }

    pub(crate) fn finds_broken(&mut self, env: &mut Env, id: LaneId) {
        self.close_lane(env, id, None);
    }

    /// This end of a lane takes nothing more; the units that it took are reported before it is
    /// closed.
    pub(super) fn close_lane(&mut self, env: &mut Env, id: LaneId, unfinished: Option<Unfinished>) {
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id == id && lane.is_open) else { return };
        lane.is_open = false;
        let at = env.clock.now().0 + env.rng.below(1000);
        env.clock.at(lane.report(at), Event::NearEnds(self.no, id, unfinished));
    }

    /// This end of a lane takes nothing more. Units on their way still arrive, and then the
    /// receiver's end is over too.
    pub(super) fn retire_lane(&mut self, env: &mut Env, id: LaneId) {
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id == id && lane.is_open) else { return };
        lane.is_open = false;
        let now = env.clock.now().0;
        let (here, there) = (lane.report(now + env.rng.below(1000)), lane.emptied(now));
        env.clock.at(here, Event::NearRetires(self.no, id));
        env.clock.at(there, Event::FarEnds(self.no, id));
    }

    /// This end of a lane is closed in order.
    pub(crate) fn lane_retired(&mut self, env: &mut Env, id: LaneId) {
        self.machine.handle_lane_retired(id);
        env.lane_end_is_gone(self.no, id);
        self.act(env);
    }

    /// This end of a lane is closed.
    pub(crate) fn lane_ended(&mut self, env: &mut Env, id: LaneId, unfinished: Option<Unfinished>) {
        self.machine.handle_lane_ended(id, unfinished);
        // Units on their way may still arrive, or not.
        if env.rng.permille(500) {
            env.break_lane(self.no, id);
        }
        env.lane_end_is_gone(self.no, id);
        self.act(env);
    }

    /// Another lane joins, of which nothing arrives before `from`.
    pub(crate) fn lane_joins(&mut self, env: &mut Env, id: LaneId, from: u64) {
        self.lanes.push(Lane::new(id, from, &env.plan));
        self.machine.handle_lane_joined(id);
        for ready in std::mem::take(&mut self.waiting) {
            self.hand_over(env, &ready);
        }
        self.act(env);
    }
}
