//! The lanes of one side of a session: their threads, how they are closed, which are to be given up, what replaces them.
//!
//! In: joined streams, and the ends of threads. Out: lanes to give up, ids to grant, a fault when there has been none for too
//! long. What a lost lane carried is the machines' business. Knows no messages and no machines.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use longhaul_core::limits::LANE_JOIN_SECONDS_MAX;
use longhaul_core::{Blame, Fault, FaultCode, LaneId, Role};
use longhaul_net::LaneHandle;
use longhaul_proto::sender::Unfinished;
use longhaul_proto::wire::message::Transport;
use tokio::sync::mpsc::UnboundedSender;

use super::regrow::Regrow;
use super::stall::Stalls;
use super::tuning::{Change, Look, Tuning, TuningRules, What};
use super::unanswered::Unanswered;
use super::{Event, JoinedLane};
use crate::faults::system_fault;
use crate::lane::pacer::{Pacer, Rates};
use crate::lane::pulse::{Doing, Pulse};

/// How a side treats its lanes.
#[derive(Debug)]
pub(crate) struct LaneRules {
    /// Which side it is.
    pub(crate) role: Role,
    /// Lanes that there should be.
    pub(crate) target: u32,
    /// Lanes that there may come to be.
    pub(crate) lanes_max: u32,
    /// How a sending side finds their number, unless it was given.
    pub(crate) tuning: Option<TuningRules>,
    /// What all of them together keep to.
    pub(crate) rates: Rates,
    /// What they run over at first.
    pub(crate) transport: Transport,
    /// Bytes that lanes over QUIC may keep in this process, all together.
    pub(crate) windows: u64,
    /// A lane that stands still for so long, while others move, is given up.
    pub(crate) stall_after: Duration,
    /// How lost ones are replaced.
    pub(crate) regrow: Regrow,
}

/// The end of a lane's thread, and of this side's end of the lane.
#[derive(Debug)]
pub(crate) struct LaneEnd {
    /// Which.
    pub(crate) id: LaneId,
    /// Why, unless the sender ended it in order.
    pub(crate) fault: Option<Fault>,
    /// What a sending lane had in hand.
    pub(crate) unfinished: Option<Unfinished>,
    /// Units that a receiving lane delivered.
    pub(crate) landed: u64,
}

/// What a lane's thread is given besides its stream.
#[derive(Debug)]
pub(crate) struct Reins {
    /// It beats here.
    pub(crate) pulse: Pulse,
    /// Says that the lane shall end in order; ends when it is given up: for a thread that waits for something else than its
    /// stream.
    pub(crate) quit: Receiver<()>,
    /// Lets a lane send, or take in.
    pub(crate) pacer: Pacer,
}

/// The lanes. See the module.
#[derive(Debug)]
pub(crate) struct Lanes {
    running: BTreeMap<LaneId, Running>,
    /// Threads of lanes that were given up or have ended.
    leaving: Vec<(LaneHandle, JoinHandle<()>)>,
    stalls: Stalls,
    unanswered: Unanswered,
    regrow: Regrow,
    target: u32,
    lanes_max: u32,
    transport: Transport,
    windows: u64,
    tuning_rules: Option<TuningRules>,
    tuning: Option<Tuning>,
    /// Bytes of a chunk.
    unit: u64,
    role: Role,
    rates: Rates,
    pacer: Pacer,
    /// Whether the kernel was told to pace.
    paced: bool,
    next_look: Instant,
    next_sample: Instant,
    tuned: Instant,
    /// Since when there is no lane, and what the last one died of.
    none_since: Option<Instant>,
    last_fault: Option<Fault>,
    /// Pieces and units of lanes that are gone.
    gone: (u64, u64),
}

#[derive(Debug)]
struct Running {
    handle: LaneHandle,
    thread: JoinHandle<()>,
    pulse: Pulse,
    /// Told when the lane shall end in order, dropped when it is given up.
    quit: Sender<()>,
    /// It was told to end.
    retiring: bool,
    /// How often it was looked at in this second, and how often it had nothing in hand.
    looked: (u32, u32),
    /// Since when data on it is not acknowledged by the other host at all.
    silent: Option<Instant>,
    /// Since when it has been in the middle of one unit without a piece of it, and how many pieces it had brought.
    starved: Option<(Instant, u64)>,
}

impl Lanes {
    pub(crate) fn new(rules: LaneRules) -> Lanes {
        let now = Instant::now();
        Lanes {
            running: BTreeMap::new(),
            leaving: Vec::new(),
            stalls: Stalls::new(rules.role, rules.stall_after),
            unanswered: Unanswered::default(),
            regrow: rules.regrow,
            target: rules.target,
            lanes_max: rules.lanes_max.max(rules.target),
            transport: rules.transport,
            windows: rules.windows,
            unit: rules.tuning.as_ref().map_or(0, |tuning| tuning.unit),
            tuning_rules: rules.tuning,
            tuning: None,
            role: rules.role,
            rates: rules.rates,
            pacer: Pacer::new(pace(rules.role, rules.rates)),
            paced: false,
            next_look: now + LOOK_EVERY,
            next_sample: now + SAMPLE_EVERY,
            tuned: now,
            none_since: Some(now),
            last_fault: None,
            gone: (0, 0),
        }
    }

    /// Starts a lane's thread.
    pub(crate) fn start(
        &mut self,
        lane: JoinedLane,
        sink: UnboundedSender<Event>,
        run: impl FnOnce(JoinedLane, Reins) -> LaneEnd + Send + 'static,
    ) -> Result<(), Fault> {
        let (id, handle, pulse) = (lane.id, lane.stream.handle(), Pulse::default());
        let is_quic = handle.is_quic();
        let (tell_to_quit, quit) = bounded(1);
        let reins = Reins { pulse: pulse.clone(), quit, pacer: self.pacer.clone() };
        if let Some(rules) = self.tuning_rules.take() {
            self.tuning = Tuning::begin(&rules, &handle);
        }
        if let Some(tuning) = &mut self.tuning {
            tuning.joined(id, &handle);
        }
        let thread = std::thread::Builder::new()
            .name(format!("lane-{}", id.0))
            .spawn(move || drop(sink.send(Event::LaneEnded(run(lane, reins)))))
            .map_err(|e| system_fault("a lane's thread", &e))?;
        let running = Running {
            handle,
            thread,
            pulse,
            quit: tell_to_quit,
            retiring: false,
            looked: (0, 0),
            silent: None,
            starved: None,
        };
        self.running.insert(id, running);
        self.regrow.joined(id);
        self.none_since = None;
        self.share_rate();
        self.share_windows();
        // It was asked for in a trial that is over.
        if is_quic && self.transport == Transport::Tcp && self.role == Role::Sender {
            self.retire(id);
        }
        Ok(())
    }

    /// What lanes over QUIC keep here is this side's memory.
    fn share_windows(&self) {
        let quic = || self.running.values().filter(|lane| lane.handle.is_quic());
        let expected = if self.transport == Transport::Quic && quic().count() == self.running.len() {
            self.target as usize
        } else {
            0
        };
        let share = self.windows / quic().count().max(expected).max(1) as u64;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        quic().for_each(|lane| lane.handle.set_window(share));
    }

    /// What lanes that are added run over.
    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether any lane runs over QUIC.
    pub(crate) fn any_quic(&self) -> bool {
        self.running.values().any(|lane| lane.handle.is_quic())
    }

    /// A lane's thread is over. The fault that ends the session, if this does.
    pub(crate) fn ended(&mut self, end: &LaneEnd) -> Option<Fault> {
        self.close(end.id);
        // The sender has no more use for it, and has said so over control, or does in this moment.
        let fault = end.fault.clone()?;
        // What the way did to a lane is made good by another; what the peer or this host did is not.
        if !fault.retry() {
            return Some(fault);
        }
        if self.running.is_empty() && matches!(self.regrow, Regrow::Never) {
            return Some(fault);
        }
        tracing::debug!(target: "longhaul::session", lane = end.id.0, %fault, "a lane is lost");
        self.last_fault = Some(fault);
        None
    }

    /// Closes this side's end of a lane; its thread ends soon.
    pub(crate) fn close(&mut self, id: LaneId) {
        let Some(lane) = self.running.remove(&id) else { return };
        lane.handle.close();
        lane.pulse.close();
        self.pacer.wake();
        let reading = lane.pulse.read();
        self.gone = (self.gone.0 + reading.pieces, self.gone.1 + reading.units);
        self.leaving.push((lane.handle, lane.thread));
        self.leaving.retain(|(_, thread)| !thread.is_finished());
        if self.running.is_empty() {
            self.none_since.get_or_insert(Instant::now());
        }
        if self.running.len() < self.target as usize {
            let wait = if self.running.is_empty() { Duration::ZERO } else { SECOND_THOUGHTS };
            self.regrow.lost(Instant::now() + wait);
        }
        self.share_rate();
        self.share_windows();
    }

    /// So many lanes are of use to the sender: this side shall see to them, if it is the one that accepts.
    pub(crate) fn set_target(&mut self, count: u32, transport: Transport) {
        self.transport = transport;
        self.target = count.clamp(1, self.lanes_max);
        self.regrow.lost(Instant::now());
    }

    /// Lanes that there should be.
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// Ends a lane in order: it finishes what it has in hand.
    fn retire(&mut self, id: LaneId) {
        if let Some(lane) = self.running.get_mut(&id) {
            lane.retiring = true;
            // It is told once; a thread that is over hears nothing.
            let _ = lane.quit.try_send(());
        }
    }

    /// Keeps other rates from now on.
    pub(crate) fn set_rates(&mut self, change: impl FnOnce(&mut Rates)) {
        change(&mut self.rates);
        self.pacer.set_rate(pace(self.role, self.rates));
        self.share_rate();
    }

    /// Has the kernel pace each connection that sends, besides the account that all of them share.
    fn share_rate(&mut self) {
        let share = self.pacer.share(self.running.len()).filter(|_| self.role == Role::Sender);
        if share.is_some() || self.paced {
            self.running.values().for_each(|lane| lane.handle.set_pace(share));
            self.paced = share.is_some();
        }
    }

    /// Whether this side grants lanes.
    pub(crate) fn grants(&self) -> bool {
        matches!(self.regrow, Regrow::Grant(_))
    }

    /// Looks what the lanes are at; called often, tells it several times a second.
    pub(crate) fn sample(&mut self) -> Option<Vec<Doing>> {
        let now = Instant::now();
        if now < self.next_sample {
            return None;
        }
        self.next_sample = now + SAMPLE_EVERY;
        let look = |lane: &mut Running| {
            let doing = lane.pulse.read().doing;
            lane.looked.0 += 1;
            lane.looked.1 += u32::from(doing == Doing::Nothing);
            doing
        };
        Some(self.running.values_mut().map(look).collect())
    }

    /// When [`Lanes::sample`] wants to be called.
    pub(crate) fn sample_at(&self) -> Instant {
        self.next_sample
    }

    /// The lanes that stand.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (LaneId, &LaneHandle)> {
        self.running.iter().map(|(id, lane)| (*id, &lane.handle))
    }

    /// What the search for the number of lanes decides, once a second. `remaining` are bytes that lanes have not sent. Lanes that
    /// are to end are told already.
    pub(crate) fn tune(&mut self, remaining: Option<u64>, hindered: bool) -> Vec<Change> {
        let now = Instant::now();
        let Some(tuning) = self.tuning.as_mut().filter(|_| now - self.tuned >= LOOK_EVERY) else { return Vec::new() };
        self.tuned = now;
        let look = |(id, lane): (&LaneId, &mut Running)| {
            (*id, lane.handle.clone(), std::mem::take(&mut lane.looked), lane.pulse.read().doing, lane.retiring)
        };
        let lanes: Vec<_> = self.running.iter_mut().map(look).collect();
        let looks: Vec<_> = lanes
            .iter()
            .map(|(lane, handle, (looked, idle), doing, retiring)| {
                let idle = (idle * 1000).checked_div(*looked).unwrap_or(0) as u16;
                let in_hand = if *doing == Doing::Nothing { 0 } else { self.unit / 2 };
                Look { lane: *lane, handle, state: handle.state(), idle, in_hand, retiring: *retiring }
            })
            .collect();
        // What a lane has in hand counts as sent when all of it is in its socket: at the end that is all there is.
        let in_hand = self.unit * lanes.iter().filter(|(.., doing, _)| *doing != Doing::Nothing).count() as u64;
        let to_give = remaining.map(|bytes| bytes.saturating_sub(in_hand));
        let changes = tuning.second(now, &looks, self.pacer.rate(), to_give, hindered);
        for change in &changes {
            match &change.what {
                What::Add(count) => self.set_target(self.standing(&[]).saturating_add(*count), self.transport),
                // Lanes that were to be added and never joined are not waited for any more.
                What::Retire(lanes) => {
                    lanes.iter().for_each(|lane| self.retire(*lane));
                    self.set_target(self.standing(&[]), self.transport);
                }
                // Nothing shall take the place of what is lost at the end.
                What::Lose(lanes) => self.set_target(self.standing(lanes), self.transport),
                What::AddQuic(count) => {
                    self.set_target(self.standing(&[]).saturating_add(*count), Transport::Quic);
                }
                What::Settle(transport, lanes) => {
                    lanes.iter().for_each(|lane| self.retire(*lane));
                    self.set_target(self.standing(&[]), *transport);
                }
                What::Nothing => {}
            }
        }
        changes
    }

    /// Lanes that go on: neither to end nor among `lost`.
    fn standing(&self, lost: &[LaneId]) -> u32 {
        let goes_on = |(id, lane): &(&LaneId, &Running)| !lane.retiring && !lost.contains(id);
        self.running.iter().filter(goes_on).count() as u32
    }

    /// Lanes that stand.
    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// The lanes to give up now, looked for once a second. `owing` names those that owe something they have not begun;
    /// `peer_stalls`: the other side said of late that its disk does; `heard`: when it last said anything.
    pub(crate) fn find_stalled(
        &mut self,
        owing: impl FnOnce() -> BTreeSet<LaneId>,
        peer_stalls: bool,
        heard: Instant,
    ) -> Vec<LaneId> {
        let now = Instant::now();
        if now < self.next_look {
            return Vec::new();
        }
        self.next_look = now + LOOK_EVERY;
        let readings: Vec<_> = self.running.iter().map(|(id, lane)| (*id, lane.pulse.read())).collect();
        let mut found = self.stalls.find(now, &readings, &owing(), peer_stalls);
        // A slow lane may take longer for a piece: the kernel knows whether bytes still come.
        if self.role == Role::Receiver {
            found.retain(|id| self.running[id].handle.quiet().is_none_or(|quiet| quiet >= self.stalls.after()));
        }
        for (id, lane) in &mut self.running {
            let silent = lane.is_silent(now) | lane.is_starved(now, self.stalls.starving_after());
            if silent && !found.contains(id) {
                found.push(*id);
            }
        }
        let states = self.running.iter().filter_map(|(id, lane)| Some((*id, lane.handle.state()?)));
        for id in self.unanswered.find(now, states, heard) {
            tracing::info!(target: "longhaul::session", lane = id.0, "large segments get no answer, control does");
            if !found.contains(&id) {
                found.push(id);
            }
        }
        found
    }

    /// Whether a sign of life of the other side, if the last was `heard` then, would tell of what a lane waits for.
    pub(crate) fn ask_for_sign(&self, heard: Instant) -> bool {
        self.unanswered.asks(heard)
    }

    /// Pieces that went or came so far, and whether a lane waits for this side's buffers.
    pub(crate) fn pieces(&self) -> (u64, bool) {
        let readings = || self.running.values().map(|lane| lane.pulse.read());
        let held_up = readings().any(|reading| match reading.doing {
            Doing::Waiting => true,
            Doing::Paced => self.role == Role::Receiver,
            Doing::Nothing | Doing::Moving => false,
        });
        (self.gone.0 + readings().map(|reading| reading.pieces).sum::<u64>(), held_up)
    }

    /// Ids to grant in place of lanes that are lost.
    pub(crate) fn grant(&mut self) -> Vec<LaneId> {
        let units = self.gone.1 + self.running.values().map(|lane| lane.pulse.read().units).sum::<u64>();
        self.regrow.grant(Instant::now(), self.running.len(), self.target, units)
    }

    /// When [`Lanes::grant`] wants to be called.
    pub(crate) fn grant_at(&self) -> Option<Instant> {
        self.regrow.grant_at()
    }

    /// Dials lanes that were granted; true if this side dials.
    pub(crate) fn dial(
        &mut self,
        ids: impl Iterator<Item = LaneId>,
        transport: Transport,
        sink: &UnboundedSender<Event>,
    ) -> bool {
        let room = (self.lanes_max as usize).saturating_sub(self.running.len());
        self.regrow.dial(ids, transport, room, sink)
    }

    /// Why the session must end, when it has been without a lane for too long.
    pub(crate) fn without_any(&self) -> Option<Fault> {
        let since = self.none_since.filter(|since| since.elapsed() >= LANELESS_MAX)?;
        let seconds = since.elapsed().as_secs();
        Some(self.last_fault.clone().unwrap_or_else(|| {
            Fault::new(FaultCode::Lost, Blame::Path, format_args!("no lane joined the session in {seconds} s"))
                .hint("check that a firewall lets several connections to the port through")
        }))
    }

    /// Closes all at once.
    pub(crate) fn close_all(&self) {
        self.pacer.close();
        self.running.values().for_each(|lane| lane.handle.close());
    }

    /// Waits until all threads are over: those at work may finish what they are at.
    pub(crate) fn join(self) {
        self.pacer.close();
        let running = self.running.into_values().map(|lane| (lane.handle, lane.thread, lane.quit));
        let threads: Vec<_> = running.map(|(handle, thread, quit)| (handle, thread, Some(quit))).collect();
        let leaving = self.leaving.into_iter().map(|(handle, thread)| (handle, thread, None));
        for (handle, thread, _quit) in threads.into_iter().chain(leaving) {
            if !thread.is_finished() {
                handle.close();
            }
            let _ = thread.join();
        }
    }
}

impl Running {
    /// Whether data that was on its way at every look was not acknowledged in all that time.
    fn is_silent(&mut self, now: Instant) -> bool {
        let silent = self.handle.unacknowledged().is_some_and(|silence| silence >= LOOK_EVERY);
        self.silent = if silent { self.silent.or(Some(now)) } else { None };
        self.silent.is_some_and(|since| now - since >= SILENT_MAX)
    }

    /// Whether the rest of a unit that was begun stays away, though its sender had all of it: something on the way took it in and
    /// keeps it. A slow lane may take longer for a piece: the kernel knows whether bytes still come.
    fn is_starved(&mut self, now: Instant, after: Duration) -> bool {
        let reading = self.pulse.read();
        self.starved = match self.starved {
            _ if reading.doing != Doing::Moving => None,
            Some((since, pieces)) if pieces == reading.pieces => Some((since, pieces)),
            _ => Some((now, reading.pieces)),
        };
        let still = self.starved.is_some_and(|(since, _)| now - since >= after);
        still && self.handle.quiet().is_some_and(|quiet| quiet >= after)
    }
}

/// The rate of the account: a receiver only sees to it that its own is kept, and gives a sender that keeps it some room.
fn pace(role: Role, rates: Rates) -> Option<u64> {
    match role {
        Role::Sender => rates.lowest(),
        Role::Receiver => rates.own.map(|rate| rate.saturating_add(rate / 10)),
    }
}

/// A lane may end since its sender wants fewer: that is said over control, which may take longer than the lane.
const SECOND_THOUGHTS: Duration = Duration::from_millis(500);
/// What lanes are at is looked at so often, ...
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// ... and whether they move, and how many there should be, so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A lane whose data the other host does not acknowledge for so long does not reach it: four or five retransmissions.
const SILENT_MAX: Duration = Duration::from_secs(20);
/// A session without any lane is given up: ids are good for 10 s, a handshake under way may take as long again.
const LANELESS_MAX: Duration = Duration::from_secs(2 * LANE_JOIN_SECONDS_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_net::LaneStream;
    use tokio::sync::mpsc::unbounded_channel;

    fn lanes(role: Role, rate: Option<u64>) -> Lanes {
        let rates = Rates { own: rate, asked: None };
        let stall_after = Duration::from_secs(20);
        Lanes::new(LaneRules {
            role,
            target: 1,
            lanes_max: 1,
            transport: Transport::Tcp,
            windows: 0,
            tuning: None,
            rates,
            stall_after,
            regrow: Regrow::Never,
        })
    }

    #[test]
    fn a_lane_that_is_closed_while_it_waits_for_its_rate_ends_at_once() {
        for role in [Role::Sender, Role::Receiver] {
            let (stream, _other) = LaneStream::pair().expect("a pair");
            let (mut lanes, (sink, mut events)) = (lanes(role, Some(1)), unbounded_channel());
            let (waits, hear) = bounded(1);
            let id = LaneId(7);
            let run = move |lane: JoinedLane, Reins { pulse, pacer, .. }: Reins| {
                pulse.paced(&pacer, 1 << 30);
                waits.send(pulse.clone()).expect("somebody listens");
                // For thirty years.
                pulse.paced(&pacer, 1);
                LaneEnd { id: lane.id, fault: None, unfinished: None, landed: 0 }
            };
            lanes.start(JoinedLane { id, stream, taken: true }, sink, run).expect("a thread");
            let pulse = hear.recv().expect("it runs");
            while pulse.read().doing != Doing::Paced {
                std::thread::yield_now();
            }
            lanes.close(id);
            assert!(matches!(events.blocking_recv(), Some(Event::LaneEnded(end)) if end.id == id), "{role:?}");
            lanes.join();
        }
    }
}
