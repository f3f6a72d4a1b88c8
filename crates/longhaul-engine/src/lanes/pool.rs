//! Owns the lanes of one side of a session: how many there should be, how they begin and end, and
//! what replaces lost ones.
//!
//! In: joined streams, and the ends of threads. Out: lanes to give up, ids to grant, and a fault
//! when there has been no lane for too long. `lane` is one of them, `shares` what they divide among
//! themselves, `health` finds those to give up. The machines decide what becomes of a lost lane's
//! unit. It knows no messages and no machines.

mod quic;
mod udp;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Fault, LaneId, Role};
use longhaul_net::{LaneHandle, LaneMemory};
use longhaul_proto::wire::message::{Limit, Transport};

use self::wanted::WantedLanes;
use super::JoinedLane;
use super::bottleneck::{PathUse, PathView};
use super::event::{LaneEnd, LaneEvent, LaneListener};
use super::health::watch::LaneHealth;
use super::lane::{EndingLane, RetiredLanes, StandingLane};
use super::manners::LaneManners;
use super::replace::Replacement;
use super::road::LaneRoad;
use super::rules::{LaneControls, LaneRules};
use super::search::LaneSearch;
use super::shares::LaneShares;
use super::tune::{Demand, LaneTask, TuningStep};
use super::vacancy::Vacancy;
use super::worker::pacer::LaneRates;
use super::worker::pulse::{Doing, Pulse};
use crate::budget::LANES_FAR;
use crate::faults::system_fault;

/// The lanes of one side. See the module.
#[derive(Debug)]
pub(crate) struct Lanes {
    role: Role,
    running: BTreeMap<LaneId, StandingLane>,
    /// Lanes that were given up or have ended.
    leaving: Vec<EndingLane>,
    wanted: WantedLanes,
    shares: LaneShares,
    health: LaneHealth,
    replacement: Replacement,
    search: LaneSearch,
    manners: LaneManners,
    next_sample: Instant,
    vacancy: Vacancy,
    retired: RetiredLanes,
}

impl Lanes {
    pub(crate) fn new(rules: LaneRules) -> Lanes {
        let manners = LaneManners::new(rules.role, rules.path.share(), rules.path.past().clone());
        let manners = manners.within(rules.changes);
        Lanes {
            role: rules.role,
            running: BTreeMap::new(),
            leaving: Vec::new(),
            wanted: WantedLanes::of(&rules),
            shares: LaneShares::new(rules.role, rules.rates, rules.windows, rules.path),
            health: LaneHealth::new(rules.role, rules.stall_after),
            replacement: rules.replacement,
            search: LaneSearch::new(rules.tuning),
            manners,
            next_sample: Instant::now() + SAMPLE_EVERY,
            vacancy: Vacancy::begin(),
            retired: RetiredLanes::default(),
        }
    }

    /// Starts a lane's thread.
    pub(crate) fn start(
        &mut self,
        lane: JoinedLane,
        listener: Arc<dyn LaneListener>,
        run: impl FnOnce(JoinedLane, LaneControls) -> LaneEnd + Send + 'static,
    ) -> Result<(), Fault> {
        let (id, handle, pulse) = (lane.id(), lane.handle(), Pulse::default());
        match &lane {
            JoinedLane::Stream(lane) => self.manners.joined(id, &lane.stream, self.shares.pacer()),
            JoinedLane::Udp(_) => self.manners.joined_udp(&handle),
        }
        self.retired.road.see(&handle);
        let over = handle.facts().transport;
        // Nothing can be found out about lanes over ssh, which are one connection.
        if over != Transport::Ssh {
            self.search.joined(id, &handle);
        }
        let (beat, pacer, slots) = (pulse.clone(), self.shares.pacer_of(over).clone(), self.shares.slots().clone());
        let path = self.shares.path().clone();
        let run = move |quit| {
            listener.hear(LaneEvent::Ended(run(lane, LaneControls { pulse: beat, quit, pacer, slots, path })))
        };
        let running = StandingLane::start(id, handle, pulse, run).map_err(|e| system_fault("a lane's thread", &e))?;
        self.running.insert(id, running);
        self.replacement.joined(id);
        self.vacancy.end();
        self.divide();
        if self.comes_late(over) {
            self.retire(id);
        }
        if over != Transport::Ssh {
            self.retire_ssh();
        }
        Ok(())
    }

    /// Ends lanes over ssh in order: one has joined that goes straight to the other host.
    fn retire_ssh(&mut self) {
        if self.role == Role::Sender {
            self.running.values_mut().filter(|lane| is_over_ssh(lane)).for_each(StandingLane::retire);
        }
    }

    /// Has lanes go over `transport` from now on instead of over ssh: as many as such a session
    /// begins with, or as were asked for. If lanes went over ssh for want of another way, one of
    /// them makes room. Returns false if none goes over ssh.
    pub(crate) fn leave_ssh(&mut self, transport: Transport) -> bool {
        if self.wanted.transport == Transport::Ssh {
            self.wanted.first_transport = transport;
            let count = if self.wanted.is_given { self.wanted.most } else { LANES_FAR };
            self.set_target(count, transport);
            return true;
        }
        let sends = self.role == Role::Sender;
        let over_ssh = self.running.values_mut().find(|lane| is_over_ssh(lane) && !lane.is_retiring());
        if let Some(lane) = over_ssh {
            // The lane that comes in its place goes straight, and the others end by that.
            if sends {
                lane.retire();
            }
            return true;
        }
        false
    }

    /// Gives each lane that stands its share of the rate and of the memory for windows.
    fn divide(&mut self) {
        // If all lanes are alike, those that come to be take as much memory as those that stand.
        let alike = self.running.values().all(|lane| lane.facts().transport == self.wanted.transport);
        let expected = if alike { self.wanted.count as usize } else { 0 };
        let lanes = self.running.values().map(|lane| &lane.handle);
        self.shares.divide_windows(lanes, expected);
        self.shares.divide_rate(self.running.iter().map(|(id, lane)| (self.manners.pace(*id), &lane.handle)));
        self.manners.doubt_paces();
        self.divide_slots();
    }

    /// The transport of lanes that are added from now on.
    pub(crate) fn transport(&self) -> Transport {
        self.wanted.transport
    }

    /// Whether any lane keeps payload in a window of this process.
    pub(crate) fn any_windows(&self) -> bool {
        self.running.values().any(|lane| matches!(lane.facts().memory, LaneMemory::Window { .. }))
    }

    /// Whether any lane keeps the buffer of a unit until that is whole at the other end.
    pub(crate) fn any_holding(&self) -> bool {
        self.running.values().any(|lane| lane.facts().memory == LaneMemory::Slots)
    }

    /// Handles the end of a lane's thread. Returns the fault that ends the session, if this one
    /// does.
    pub(crate) fn ended(&mut self, end: &LaneEnd) -> Option<Fault> {
        self.close(end.id);
        // The sender has no more use for the lane, and says so over control.
        let fault = end.fault.clone()?;
        // Another lane makes good what the path did to this one, but not what the peer or this host
        // did.
        if !fault.retry() {
            return Some(fault);
        }
        if self.running.is_empty() && matches!(self.replacement, Replacement::Never) {
            return Some(fault);
        }
        tracing::debug!(target: "longhaul::session", lane = end.id.0, %fault, "a lane is lost");
        self.vacancy.blame(fault);
        None
    }

    /// Closes this side's end of a lane; its thread ends soon.
    pub(crate) fn close(&mut self, id: LaneId) {
        let Some(lane) = self.running.remove(&id) else { return };
        lane.add_to(&mut self.retired.road);
        let (leaving, reading) = lane.close();
        self.shares.wake();
        self.retired.pieces += reading.pieces;
        self.retired.units += reading.units;
        self.leaving.push(leaving);
        self.leaving.retain(|lane| !lane.is_finished());
        if self.running.is_empty() {
            self.vacancy.resume();
            self.forget_udp();
        }
        if self.running.len() < self.wanted.count as usize {
            let wait = if self.running.is_empty() { Duration::ZERO } else { SECOND_THOUGHTS };
            self.replacement.lost(Instant::now() + wait);
        }
        self.divide();
    }

    /// Sets the number of lanes that the sender can use. This side provides them if it is the
    /// acceptor.
    pub(crate) fn set_target(&mut self, count: u32, transport: Transport) {
        self.wanted.transport = transport;
        self.wanted.count = count.clamp(1, self.wanted.most);
        self.replacement.lost(Instant::now());
    }

    /// The number of lanes that there should be.
    pub(crate) fn target(&self) -> u32 {
        self.wanted.count
    }

    /// Ends a lane in order: it finishes the unit in hand.
    fn retire(&mut self, id: LaneId) {
        if let Some(lane) = self.running.get_mut(&id) {
            lane.retire();
        }
    }

    /// Changes the rates from now on.
    pub(crate) fn set_rates(&mut self, change: impl FnOnce(&mut LaneRates)) {
        self.shares.set_rates(change);
        self.divide();
    }

    /// Whether this side grants lanes.
    pub(crate) fn grants(&self) -> bool {
        matches!(self.replacement, Replacement::Grant(_))
    }

    /// Looks at what the lanes do, several times a second. `None` if the next look is not due.
    pub(crate) fn sample(&mut self) -> Option<Vec<Doing>> {
        let now = Instant::now();
        let account = self.shares.account(self.running.len());
        if self.manners.look(now, self.running.iter().map(|(id, lane)| lane.met(*id)), account) {
            self.shares.pacer().set_manners(self.manners.rate());
        }
        if now < self.next_sample {
            return None;
        }
        self.next_sample = now + SAMPLE_EVERY;
        self.guard_quic(now);
        self.running.values().for_each(|lane| self.retired.road.see(&lane.handle));
        Some(self.running.values_mut().map(StandingLane::doing).collect())
    }

    /// Bytes of the units that lanes have in hand to send for the first time.
    pub(crate) fn units_in_hand(&self) -> u64 {
        self.running.values().map(|lane| lane.reading().fresh_unit()).sum()
    }

    /// When the next call of [`Lanes::sample`] is due.
    pub(crate) fn sample_at(&self) -> Instant {
        self.manners.look_at().map_or(self.next_sample, |at| at.min(self.next_sample))
    }

    /// The path, as its control sees it.
    pub(crate) fn path(&self) -> PathView {
        let limit = self.shares.path().limit();
        let is_shared = self.manners.is_shared() || limit == Some(Limit::NetworkShared);
        PathView { users: if is_shared { PathUse::Shared } else { PathUse::Alone }, limit }
    }

    /// The road of all lanes so far.
    pub(crate) fn road(&self) -> LaneRoad {
        let mut road = self.retired.road;
        self.running.values().for_each(|lane| lane.add_to(&mut road));
        road.sums = self.manners.road();
        road.sums.add_all(&self.shares.path().road());
        road
    }

    /// The handles of the lanes that stand.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (LaneId, &LaneHandle)> {
        self.running.iter().map(|(id, lane)| (*id, &lane.handle))
    }

    /// Asks the search for the number of lanes once a second, tells the lanes that are to end, and
    /// returns the changes.
    pub(crate) fn tune(&mut self, demand: Demand) -> Vec<TuningStep> {
        let (rate, path) = (self.shares.pacer().asked(), self.path_demand());
        let mut changes = self.search.look(&mut self.running, rate, Demand { path, ..demand });
        changes.extend(self.manners.take_steps());
        changes.extend(self.shares.path().take_steps(Instant::now()));
        changes.extend(self.leave_udp(&changes));
        changes.extend(self.leave_quic(&changes));
        changes.extend(self.return_to_quic(Instant::now(), demand.remaining, &changes));
        for change in &changes {
            match &change.task {
                LaneTask::Add(count) => self.add(*count, self.wanted.transport),
                LaneTask::AddOver(transport, count) => self.add(*count, *transport),
                // Lanes that were to be added and never joined are not waited for any more.
                LaneTask::Retire(lanes) => {
                    lanes.iter().for_each(|lane| self.retire(*lane));
                    self.set_target(self.standing(&[]), self.wanted.transport);
                }
                // Lanes that are lost at the end are not replaced.
                LaneTask::Lose(lanes) => self.set_target(self.standing(lanes), self.wanted.transport),
                LaneTask::Settle(transport, lanes) => {
                    lanes.iter().for_each(|lane| self.retire(*lane));
                    self.set_target(self.standing(&[]), *transport);
                }
                LaneTask::Abandon(lanes) => self.set_target(self.standing(lanes), Transport::Tcp),
                LaneTask::Return(count, lanes) => {
                    lanes.iter().for_each(|lane| self.retire(*lane));
                    self.set_target(self.standing(&[]).max(*count), Transport::Tcp);
                }
                LaneTask::Exchange(lanes, transport, count) => {
                    lanes.iter().for_each(|lane| self.retire(*lane));
                    self.add(*count, *transport);
                }
                LaneTask::Nothing => {}
            }
        }
        changes
    }

    /// Wants so many lanes more than go on.
    fn add(&mut self, count: u32, transport: Transport) {
        self.set_target(self.standing(&[]).saturating_add(count), transport);
    }

    /// The number of lanes that go on: those that are neither to end nor among `lost`.
    fn standing(&self, lost: &[LaneId]) -> u32 {
        let goes_on = |(id, lane): &(&LaneId, &StandingLane)| !lane.is_retiring() && !lost.contains(id);
        self.running.iter().filter(goes_on).count() as u32
    }

    /// The number of lanes that stand.
    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// The lanes to give up for their health. See [`LaneHealth::find`].
    pub(crate) fn find_unhealthy(
        &mut self,
        owing: impl FnOnce() -> BTreeSet<LaneId>,
        peer_stalls: bool,
        heard: Instant,
    ) -> BTreeSet<LaneId> {
        self.health.find(&mut self.running, owing, peer_stalls, heard)
    }

    /// Whether a sign of life of the other side would help to decide about a lane, if the last was
    /// heard at `heard`.
    pub(crate) fn ask_for_sign(&self, heard: Instant) -> bool {
        self.health.asks(heard)
    }

    /// Pieces that all lanes moved so far, and whether a lane waits for this side's buffers.
    pub(crate) fn pieces(&self) -> (u64, bool) {
        let readings = || self.running.values().map(StandingLane::reading);
        let held_up = readings().any(|reading| match reading.doing {
            Doing::Waiting => true,
            Doing::Paced => self.role == Role::Receiver,
            Doing::Nothing | Doing::Moving | Doing::Held => false,
        });
        (self.retired.pieces + readings().map(|reading| reading.pieces).sum::<u64>(), held_up)
    }

    /// Payload bytes moved so far of units that are under way.
    pub(crate) fn in_hand(&self) -> u64 {
        self.running.values().map(|lane| lane.reading().in_hand).sum()
    }

    /// The ids to grant in place of lost lanes.
    pub(crate) fn grant(&mut self) -> Vec<LaneId> {
        let units = self.retired.units + self.running.values().map(|lane| lane.reading().units).sum::<u64>();
        self.replacement.grant(Instant::now(), self.running.len(), self.wanted.count, units)
    }

    /// When the next call of [`Lanes::grant`] is due.
    pub(crate) fn grant_at(&self) -> Option<Instant> {
        self.replacement.grant_at()
    }

    /// Dials lanes that were granted. Returns whether this side dials.
    pub(crate) fn dial(
        &mut self,
        ids: impl Iterator<Item = LaneId>,
        transport: Transport,
        listener: &Arc<dyn LaneListener>,
    ) -> bool {
        let room = (self.wanted.most as usize).saturating_sub(self.running.len());
        self.replacement.dial(ids, transport, room, listener)
    }

    /// The fault that ends a session that has been without a lane for too long. `None` as long as
    /// it has not.
    pub(crate) fn without_any(&self) -> Option<Fault> {
        self.vacancy.fault()
    }

    /// Closes all lanes at once.
    pub(crate) fn close_all(&self) {
        self.shares.close();
        self.running.values().for_each(|lane| lane.handle.close());
    }

    /// Waits until all threads have ended. Threads at work may finish.
    pub(crate) fn join(self) {
        self.shares.close();
        self.running.into_values().for_each(StandingLane::join);
        self.leaving.into_iter().for_each(EndingLane::join);
    }
}

/// The wait before a lost lane is replaced. A lane may have ended because its sender wants fewer,
/// and the word of that comes over control, which may be slower than the lane.
const SECOND_THOUGHTS: Duration = Duration::from_millis(500);
/// Time between two looks at what the lanes do.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
fn is_over_ssh(lane: &StandingLane) -> bool {
    lane.facts().transport == Transport::Ssh
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;
    use longhaul_core::PathShare;
    use longhaul_net::LaneStream;
    use tokio::sync::mpsc::unbounded_channel;

    use super::super::StreamLane;
    use super::super::rules::TransportChanges;
    use super::super::udp::path::UdpPath;
    use super::*;

    pub(super) fn lanes(role: Role, rate: Option<u64>) -> Lanes {
        let rates = LaneRates::of(rate, 0);
        let stall_after = Duration::from_secs(20);
        Lanes::new(LaneRules {
            role,
            target: 1,
            lanes_max: 1,
            transport: Transport::Tcp,
            changes: TransportChanges::default(),
            windows: 0,
            tuning: None,
            rates,
            path: UdpPath::new(PathShare::Fair),
            peer_knows_shared: true,
            stall_after,
            replacement: Replacement::Never,
        })
    }

    #[test]
    fn a_lane_that_is_closed_while_it_waits_for_its_rate_ends_at_once() {
        for role in [Role::Sender, Role::Receiver] {
            let (stream, _other) = LaneStream::pair().expect("a pair");
            let (mut lanes, (sink, mut events)) = (lanes(role, Some(1)), unbounded_channel::<LaneEvent>());
            let (waits, hear) = bounded(1);
            let id = LaneId(7);
            let run = move |lane: JoinedLane, LaneControls { pulse, pacer, .. }: LaneControls| {
                pulse.paced(&pacer, 1 << 30);
                waits.send(pulse.clone()).expect("somebody listens");
                // The wait would take thirty years.
                pulse.paced(&pacer, 1);
                LaneEnd { id: lane.id(), fault: None, unfinished: Vec::new(), landed: 0.into() }
            };
            lanes.start(StreamLane { id, stream, taken: true }.into(), Arc::new(sink), run).expect("a thread");
            let pulse = hear.recv().expect("it runs");
            while pulse.read().doing != Doing::Paced {
                std::thread::yield_now();
            }
            lanes.close(id);
            assert!(matches!(events.blocking_recv(), Some(LaneEvent::Ended(end)) if end.id == id), "{role:?}");
            lanes.join();
        }
    }
}
