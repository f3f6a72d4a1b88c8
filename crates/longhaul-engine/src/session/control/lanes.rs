//! Owns the lanes of a session as its loop sees them: the pool, and what the other side and
//! observers are told of it.
//!
//! In: messages about lanes and rates, signs of life, and once a second the bytes that remain and
//! what limited the session. Out: lanes to give up, messages to say, and events to observers. It
//! knows no connection and no machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::limits::{LANES_EVER_MAX, LANES_MAX};
use longhaul_core::{Fault, LaneId, Role, Transport};
use longhaul_net::{LaneHandle, LaneMemory};
use longhaul_proto::wire::message::{GrantedLanes, LaneTarget, Limit, Limited};
use tokio::sync::mpsc::UnboundedSender;

use super::ControlLink;
use super::clock::SessionClock;
use super::limits::MovingCosts;
use super::signs::LifeSigns;
use crate::api::{self, LanesChange, LanesReason, Observer};
use crate::budget::UDP_LANE_BYTES;
use crate::lanes::JoinedLane;
use crate::lanes::bottleneck::PathView;
use crate::lanes::event::{LaneEnd, LaneListener};
use crate::lanes::pool::Lanes;
use crate::lanes::road::LaneRoad;
use crate::lanes::rules::{LaneControls, LaneRules, TransportChanges};
use crate::lanes::tune::{Demand, LaneTask, PathDemand, TuningStep};
use crate::lanes::worker::pacer::LaneRates;
use crate::lanes::worker::pulse::Doing;
use crate::session::SessionEvent;
use crate::session::overhead::{LendMemory, LentMemory};

/// Claims memory for the windows of one more lane. Returns whether it is there.
pub(super) type ClaimWindows = Box<dyn FnMut() -> bool + Send>;

/// The lanes of a session. See the module.
pub(super) struct SessionLanes {
    pool: Lanes,
    role: Role,
    /// How the other side may change the transport.
    changes: TransportChanges,
    /// Whether the other side knows the limit `network:shared`.
    peer_knows_shared: bool,
    observer: Arc<dyn Observer>,
    clock: SessionClock,
    /// The session's queue, to which lanes report.
    sink: UnboundedSender<SessionEvent>,
    /// The smallest segment size that lanes turned out to need, as far as it was reported.
    reported_segment: Option<u32>,
    /// Lanes that the search for their number gave up.
    to_lose: Vec<LaneId>,
    /// Bytes that lanes have not sent, including units in hand. `None` if this side does not know.
    remaining: Option<u64>,
    memory: LaneClaims,
}

/// The memory of lanes besides buffers. Nobody counts what is `None`.
#[derive(Default)]
struct LaneClaims {
    /// Claims memory for the windows of lanes that have some.
    windows: Option<ClaimWindows>,
    /// Claims memory for a lane over UDP.
    lend: Option<LendMemory>,
    /// Lanes over UDP for which memory was set aside, and that do not stand.
    set_aside: u32,
    /// The memory of those that stand. `None` for one that has some of what was set aside.
    lent: BTreeMap<LaneId, Option<LentMemory>>,
}

impl LaneClaims {
    /// Claims the memory of a lane over UDP, until it ends. Returns whether it is there.
    fn lend_to(&mut self, lane: LaneId) -> bool {
        let Some(lend) = &mut self.lend else { return true };
        let lent = if self.set_aside > 0 { None } else { Some(lend(UDP_LANE_BYTES)) };
        match lent {
            None => {
                self.set_aside -= 1;
                self.lent.insert(lane, None);
            }
            Some(None) => return false,
            Some(lent) => {
                self.lent.insert(lane, lent);
            }
        }
        true
    }

    /// Gives back what a lane had.
    fn give_back(&mut self, lane: LaneId) {
        if let Some(None) = self.lent.remove(&lane) {
            self.set_aside += 1;
        }
    }
}

impl SessionLanes {
    /// The lanes of a session that has none yet.
    pub(super) fn new(
        rules: LaneRules,
        observer: Arc<dyn Observer>,
        clock: SessionClock,
        sink: UnboundedSender<SessionEvent>,
    ) -> SessionLanes {
        SessionLanes {
            role: rules.role,
            changes: rules.changes,
            peer_knows_shared: rules.peer_knows_shared,
            pool: Lanes::new(rules),
            observer,
            clock,
            sink,
            reported_segment: None,
            to_lose: Vec::new(),
            remaining: None,
            memory: LaneClaims::default(),
        }
    }

    /// Takes lanes with windows only if `room` returns that there is memory for them.
    pub(super) fn set_window_room(&mut self, room: ClaimWindows) {
        self.memory.windows = Some(room);
    }

    /// Takes lanes over UDP only if `lend` has memory for them, beyond `set_aside` of them that may
    /// stand at a time.
    pub(super) fn set_lane_memory(&mut self, lend: LendMemory, set_aside: u32) {
        (self.memory.lend, self.memory.set_aside) = (Some(lend), set_aside);
    }

    /// Sets the bytes that lanes have not sent. `None` if this side does not know.
    pub(super) fn set_remaining(&mut self, remaining: Option<u64>) {
        self.remaining = remaining;
    }

    /// Whether the lanes over QUIC have ended for the breaker of their path, and others are to be
    /// asked for.
    pub(super) fn is_leaving_quic(&self) -> bool {
        self.pool.is_leaving_quic()
    }

    /// Whether lanes have all that is left in hand.
    pub(super) fn is_ending(&self) -> bool {
        self.remaining.is_some_and(|left| left <= self.pool.units_in_hand())
    }

    /// Sets the rate that the other side asks this one to keep.
    pub(super) fn set_asked_rate(&mut self, bytes_per_s: u64) {
        self.pool.set_rates(|rates| rates.asked_rate = LaneRates::from_wire(bytes_per_s));
    }

    /// Sets the rate that this side allows, bytes/s. `None` for no rate.
    pub(super) fn set_own_rate(&mut self, bytes_per_s: Option<u64>) {
        self.pool.set_rates(|rates| rates.own_rate = bytes_per_s);
    }

    /// Gives a lane that joined on if there is memory for it, besides its buffers. Else it is
    /// closed, which its other end is told: the sender goes on over those that it has.
    pub(super) fn with_room(&mut self, lane: JoinedLane) -> Option<SessionEvent> {
        if self.has_room_for(&lane) {
            return Some(SessionEvent::Lane(lane));
        }
        lane.refuse();
        None
    }

    fn has_room_for(&mut self, lane: &JoinedLane) -> bool {
        let facts = lane.handle().facts();
        let has = match facts.memory {
            LaneMemory::Kernel => true,
            LaneMemory::Slots => self.memory.lend_to(lane.id()),
            LaneMemory::Window { .. } => self.memory.windows.as_mut().is_none_or(|room| room()),
        };
        if !has {
            let over = facts.transport;
            tracing::info!(target: "longhaul::session", lane = lane.id().0, "no memory is left for lanes over {over}");
        }
        has
    }

    fn listener(&self) -> Arc<dyn LaneListener> {
        Arc::new(self.sink.clone())
    }

    /// Starts a lane's thread.
    pub(super) fn start(
        &mut self,
        lane: JoinedLane,
        run: impl FnOnce(JoinedLane, LaneControls) -> LaneEnd + Send + 'static,
    ) -> Result<(), Fault> {
        self.tell_segments(lane.segment_max());
        self.pool.start(lane, self.listener(), run)
    }

    /// Handles the end of a lane's thread. Returns the fault that ends the session, if this one
    /// does.
    pub(super) fn ended(&mut self, end: &LaneEnd) -> Option<Fault> {
        self.memory.give_back(end.id);
        self.pool.ended(end)
    }

    /// Closes this side's end of a lane, if it stands here.
    pub(super) fn close(&mut self, id: LaneId) {
        self.memory.give_back(id);
        self.pool.close(id);
    }

    /// Closes all lanes at once.
    pub(super) fn close_all(&self) {
        self.pool.close_all();
    }

    /// Waits until all threads have ended. Blocks.
    pub(super) fn join(self) {
        self.pool.join();
    }

    /// Sets the number and transport that the sender can use. Returns false if this side is the
    /// sender or provides no lanes.
    pub(super) fn hear_target(&mut self, target: &LaneTarget) -> bool {
        let provides = self.role == Role::Receiver && self.pool.grants();
        if provides {
            // Unless both sides know them side by side, either all lanes of a session go over UDP
            // or none: the other ends are not there.
            let both = [self.pool.transport(), target.transport];
            let is_other = both.iter().filter(|t| **t == Transport::Udp).count() == 1;
            let is_mixed = is_other && both.contains(&Transport::Tcp) && self.changes.mixes_udp;
            let keeps = !is_mixed && (self.changes.is_kept || is_other);
            let transport = if keeps { self.pool.transport() } else { target.transport };
            self.pool.set_target(target.count, transport);
        }
        provides
    }

    /// Dials the lanes that were granted. Returns false if this side never dials.
    pub(super) fn dial(&mut self, granted: &GrantedLanes) -> bool {
        let last = granted.first.0.saturating_add(granted.count.min(LANES_MAX)).min(LANES_EVER_MAX);
        self.pool.dial((granted.first.0..last).map(LaneId), granted.transport, &self.listener())
    }

    /// The lanes to grant in place of lost ones.
    pub(super) fn grant(&mut self) -> Vec<GrantedLanes> {
        let (ids, transport) = (self.pool.grant(), self.pool.transport());
        ids.into_iter().map(|first| GrantedLanes { first, count: 1, transport }).collect()
    }

    /// When the next call of [`SessionLanes::grant`] is due. `None` if no lane is to be granted.
    pub(super) fn grant_at(&self) -> Option<Instant> {
        self.pool.grant_at()
    }

    /// Carries out what the search for the number of lanes decided, and reports it to observers.
    /// Returns the number to ask the other side for, if it changed and that side provides lanes.
    /// `by`: the part that limited the last second, if it is known; `costs`: the processor time
    /// of this side.
    pub(super) fn tune(&mut self, by: Option<Limit>, costs: MovingCosts) -> Option<LaneTarget> {
        let is_hindered = matches!(by, Some(Limit::NetworkLoss | Limit::NetworkWindow));
        let is_by_network = is_by_transport(by, self.pool.path().limit);
        let is_by_window = by == Some(Limit::NetworkWindow);
        let demand = Demand {
            remaining: self.remaining,
            is_hindered,
            is_by_window,
            is_by_network,
            is_by_processors: costs.is_pressed,
            is_by_work: matches!(by, Some(Limit::Cpu | Limit::Hash)),
            spent: costs.spent,
            worked: costs.worked,
            path: PathDemand::default(),
        };
        let mut target = None;
        for TuningStep { task, change, reason } in self.pool.tune(demand) {
            if let LaneTask::Lose(lanes) | LaneTask::Abandon(lanes) = &task {
                self.to_lose.extend(lanes);
            }
            if task != LaneTask::Nothing && !self.pool.grants() {
                target = Some(LaneTarget { count: self.pool.target(), transport: self.pool.transport() });
            }
            self.tell(change, LanesReason::Search(reason));
        }
        target
    }

    /// Has lanes go straight to the other host from now on, beside those over ssh until the first
    /// of them has joined. Returns the number to ask the other side for, if that side provides
    /// lanes. Where this side receives, the other one decides, which was told.
    pub(super) fn way_found(&mut self, transport: Transport) -> Option<LaneTarget> {
        // A side that grants lanes to the sender hears from it how many it wants.
        let is_told = self.role == Role::Receiver && self.pool.grants();
        if is_told || !self.pool.leave_ssh(transport) {
            return None;
        }
        let target = LaneTarget { count: self.pool.target(), transport: self.pool.transport() };
        self.tell(LanesChange::Straight(target.count), LanesReason::WayFound);
        (self.role == Role::Sender && !self.pool.grants()).then_some(target)
    }

    fn tell(&self, change: LanesChange, reason: LanesReason) {
        let (seconds, lanes) = (self.clock.seconds(), self.count());
        tracing::info!(target: "longhaul::lanes", lanes, %change, %reason, "lanes");
        self.observer.event(api::Event::Lanes(api::LanesTuned { seconds, lanes, change, reason }));
    }

    /// Reports that the path swallows large packets, when a lane needed small segments.
    fn tell_segments(&mut self, bytes: Option<u32>) {
        let Some(bytes) = bytes.filter(|bytes| self.reported_segment.is_none_or(|least| *bytes < least)) else {
            return;
        };
        self.reported_segment = Some(bytes);
        self.tell(LanesChange::Segments(bytes), LanesReason::LargePacketsVanish);
    }

    /// The lanes that the search for their number gave up since the last call.
    pub(super) fn take_to_lose(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.to_lose)
    }

    /// The lanes to give up for their health. See [`Lanes::find_unhealthy`].
    pub(super) fn find_unhealthy(
        &mut self,
        owing: impl FnOnce() -> BTreeSet<LaneId>,
        signs: &LifeSigns,
    ) -> BTreeSet<LaneId> {
        self.pool.find_unhealthy(owing, signs.peer_stalls(), signs.last_heard())
    }

    /// Whether a sign of life of the other side would help to decide about a lane.
    pub(super) fn ask_for_sign(&self, signs: &LifeSigns) -> bool {
        self.pool.ask_for_sign(signs.last_heard())
    }

    /// The fault of a session that has been without a lane for too long.
    pub(super) fn without_any(&self) -> Option<Fault> {
        self.pool.without_any()
    }

    /// Looks at what the lanes do. `None` if the next look is not due.
    pub(super) fn sample(&mut self) -> Option<Vec<Doing>> {
        self.pool.sample()
    }

    /// A limit in words that the other side knows.
    pub(super) fn worded(&self, by: Option<Limited>) -> Option<Limited> {
        if self.peer_knows_shared { by } else { by.map(Limited::without_shared) }
    }

    /// The path, as its control sees it.
    pub(super) fn path(&self) -> PathView {
        self.pool.path()
    }

    /// The road of all lanes so far.
    pub(super) fn road(&self) -> LaneRoad {
        self.pool.road()
    }

    /// When the next call of [`SessionLanes::sample`] is due.
    pub(super) fn sample_at(&self) -> Instant {
        self.pool.sample_at()
    }

    /// The handles of the lanes that stand.
    pub(super) fn handles(&self) -> impl Iterator<Item = (LaneId, &LaneHandle)> {
        self.pool.handles()
    }

    /// The number of lanes that stand.
    pub(super) fn count(&self) -> u32 {
        self.pool.count() as u32
    }

    /// Whether any lane keeps payload in this process besides the buffers that it claims.
    pub(super) fn any_windows(&self) -> bool {
        self.pool.any_windows()
    }

    /// Whether any lane keeps the buffer of a unit until that is whole at the other end.
    pub(super) fn any_holding(&self) -> bool {
        self.pool.any_holding()
    }

    /// Pieces that all lanes moved so far, and whether a lane waits for this side's buffers.
    pub(super) fn pieces(&self) -> (u64, bool) {
        self.pool.pieces()
    }

    /// Payload bytes moved so far of units that are under way.
    pub(super) fn in_hand(&self) -> u64 {
        self.pool.in_hand()
    }
}

impl ControlLink {
    /// Takes lanes over UDP only if `lend` has memory for them, which they give back, beyond
    /// `set_aside` of them that may stand at a time.
    pub(crate) fn set_lane_memory(&mut self, lend: LendMemory, set_aside: u32) {
        self.lanes.set_lane_memory(lend, set_aside);
    }

    /// The road of all lanes so far.
    pub(crate) fn road(&self) -> LaneRoad {
        self.lanes.road()
    }

    /// Whether any lane keeps the buffer of a unit until that is whole at the other end.
    pub(crate) fn any_holding(&self) -> bool {
        self.lanes.any_holding()
    }
}

/// Whether the transport of the lanes limited a second: the network, by whatever; or, where the
/// control of lanes over UDP names a receiver (`named`), whose system drops their datagrams. A
/// receiver that is slow otherwise is so over each transport.
fn is_by_transport(by: Option<Limit>, named: Option<Limit>) -> bool {
    match by {
        Some(Limit::NetworkLoss | Limit::NetworkWindow | Limit::NetworkRate | Limit::NetworkShared) => true,
        Some(Limit::Receiver) => named == Some(Limit::Receiver),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_over_udp_have_what_was_set_aside_again_and_again_and_no_more_without_further_memory() {
        let lend: LendMemory = Box::new(|_| None);
        let mut claims = LaneClaims { lend: Some(lend), set_aside: 2, ..LaneClaims::default() };
        let taken = [0, 1, 2].map(|id| claims.lend_to(LaneId(id)));
        assert_eq!(taken, [true, true, false]);
        claims.give_back(LaneId(1));
        // A lane that ends is closed as well.
        claims.give_back(LaneId(1));
        claims.give_back(LaneId(2));
        let taken = [3, 4].map(|id| claims.lend_to(LaneId(id)));
        assert_eq!(taken, [true, false]);
    }

    #[test]
    fn a_receiver_whose_system_drops_datagrams_is_counted_against_lanes_over_udp_and_a_slow_one_is_not() {
        let receiver = Some(Limit::Receiver);
        assert!(is_by_transport(receiver, receiver));
        assert!(!is_by_transport(receiver, None) && !is_by_transport(Some(Limit::Target), receiver));
        assert!(is_by_transport(Some(Limit::NetworkRate), None) && !is_by_transport(None, receiver));
    }
}
