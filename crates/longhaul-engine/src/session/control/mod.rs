//! Owns the part of a session that both roles share: events in, messages out, signs of life, the
//! way to an end.
//!
//! Each of its parts is a type with private fields in a file of its own: `connection` has the
//! control connection's tasks and queues, `signs` the signs of life, `movement` finds a session
//! that moves nothing, `lanes` are the lanes as the session sees them, `limits` is the bottleneck
//! search, `clock` tells the time, and `ending` ends it all. This file gives each event to the part
//! that it is for. It handles messages about lanes and rates itself, and gives all others to the
//! session loop. It decides only when a session cannot go on, and knows no machine.

mod clock;
mod connection;
mod ending;
mod far_targets;
pub(crate) mod holdup;
mod lanes;
mod limits;
mod movement;
mod signs;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Fault, FaultCode, LaneId, Role};
use longhaul_proto::tuning::limit::Spent;
use longhaul_proto::wire::message::{Heartbeat, Limited, Limiting, Rate};
use longhaul_proto::{Message, Timestamp};
use tokio::sync::mpsc;

use self::clock::SessionClock;
use self::connection::Connection;
use self::ending::SessionEnd;
use self::lanes::SessionLanes;
use self::limits::SessionLimits;
use self::movement::Movement;
use self::signs::{LifeSigns, closed_by_peer, silent};
use super::SessionEvent;
use super::channel::{ReadHalf, WriteHalf};
use super::idle::Idle;
use super::inbox::Inbound;
use super::outbox::Gauge;
use super::overhead::Overhead;
use super::totals::TargetTroubles;
use crate::api::{Event, Observer, Stop, TargetFigures};
use crate::cpu::StageTimes;
use crate::journals::presence::Presence;
use crate::lanes::JoinedLane;
use crate::lanes::bottleneck::WaitsFor;
use crate::lanes::event::LaneEnd;
use crate::lanes::rules::{LaneControls, LaneRules};

/// The parts of a session once the handshake is over.
pub(crate) struct ControlLinkParts {
    /// The control channel.
    pub(crate) reader: ReadHalf,
    /// Its other direction.
    pub(crate) writer: WriteHalf,
    /// The observer of the session's events.
    pub(crate) observer: Arc<dyn Observer>,
    /// Stops the session from outside.
    pub(crate) stop: Stop,
    /// Shows others whether the session lives.
    pub(crate) presence: Arc<Presence>,
    /// The queue of the session's events, into which lanes that join later come too.
    pub(crate) events: (mpsc::UnboundedSender<SessionEvent>, mpsc::UnboundedReceiver<SessionEvent>),
    /// The rules for its lanes.
    pub(crate) rules: LaneRules,
}

/// The running control link. See the module.
pub(crate) struct ControlLink {
    role: Role,
    observer: Arc<dyn Observer>,
    clock: SessionClock,
    /// When the next look at heartbeats, silence and lanes is due.
    next_tick: Instant,
    events: mpsc::UnboundedReceiver<SessionEvent>,
    sink: mpsc::UnboundedSender<SessionEvent>,
    connection: Connection,
    signs: LifeSigns,
    movement: Movement,
    lanes: SessionLanes,
    limits: SessionLimits,
    end: SessionEnd,
}

/// Why a session loop woke. [`ControlLink::absorb`] has not taken it in yet.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most wakes are events, and a box would cost each an allocation")]
pub(crate) enum Wake {
    /// The next event of the session's queue.
    Event(SessionEvent),
    /// A second has passed, or the link has something to do earlier than that.
    Tick,
    /// The machine's timeout, or the time of the next look at the lanes.
    Time,
    /// The session is told from outside to end, with this code.
    Stop(FaultCode),
}

/// The events that the link leaves to the session loop.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message of the other side that is for the machine.
    Message(Message),
    /// A report of a lane, of the source side or of the destination side.
    Event(SessionEvent),
    /// The session must end.
    Stop(Fault),
}

/// The state of a session loop at the end of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundState {
    /// The reason for which a lane of this side has nothing to do now.
    pub(crate) waits_for: WaitsFor,
    /// Whether this side's disk has something to do.
    pub(crate) at_work: bool,
    /// Bytes that lanes have not sent, including units in hand. `None` if this side does not know.
    pub(crate) remaining: Option<u64>,
}

impl ControlLink {
    /// Starts the control tasks.
    pub(crate) fn start(parts: ControlLinkParts) -> ControlLink {
        ControlLink::start_at(parts, Instant::now())
    }

    /// Starts the control tasks of a session that begins at `now`.
    fn start_at(parts: ControlLinkParts, now: Instant) -> ControlLink {
        let ControlLinkParts { reader, writer, observer, stop, presence, events: (sink, events), rules } = parts;
        let (role, clock) = (rules.role, SessionClock::start(now));
        ControlLink {
            role,
            clock,
            next_tick: now + TICK,
            events,
            connection: Connection::start((reader, writer), role, sink.clone(), now),
            signs: LifeSigns::new(presence.clone(), now),
            movement: Movement::new(now),
            lanes: SessionLanes::new(rules, observer.clone(), clock, sink.clone()),
            limits: SessionLimits::new(role),
            end: SessionEnd::new(stop, presence),
            observer,
            sink,
        }
    }

    /// Ends the session when nothing moves in it, as `idle` says.
    pub(crate) fn set_idle(&mut self, idle: Idle) {
        self.movement.set_idle(idle);
    }

    /// Has the session's memory besides its buffers counted.
    pub(crate) fn set_overhead(&mut self, overhead: Overhead) {
        self.connection.set_overhead(overhead);
    }

    /// Takes lanes with windows only if `room` returns that there is memory for them.
    pub(crate) fn set_window_room(&mut self, room: Box<dyn FnMut() -> bool + Send>) {
        self.lanes.set_window_room(room);
    }

    /// The observer of the session's events.
    pub(crate) fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    /// The processor time of the session, by stage.
    pub(crate) fn times(&self) -> &StageTimes {
        self.limits.times()
    }

    /// The queue to which threads of this session report.
    pub(crate) fn sink(&self) -> mpsc::UnboundedSender<SessionEvent> {
        self.sink.clone()
    }

    /// The time on the machine's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Seconds since the session began.
    pub(crate) fn seconds(&self) -> f64 {
        self.clock.seconds()
    }

    /// CPU microseconds of this process since the session began.
    pub(crate) fn cpu_us(&self) -> u64 {
        self.clock.cpu_us()
    }

    /// Waits for the next event, until `timeout` at most. It changes nothing: cancelled, it loses
    /// nothing.
    pub(crate) async fn wait(&mut self, timeout: Option<Timestamp>) -> Wake {
        let now = Instant::now();
        // However many events come, signs of life are due, silence is noticed, and a broken lane is
        // not waited for longer.
        let grant_at = self.lanes.grant_at().filter(|_| !self.end.is_begun());
        let due = [Some(self.next_tick), self.end.lane_fault_at(), grant_at];
        let due = due.into_iter().flatten().min().unwrap_or(now);
        if now >= due {
            return Wake::Tick;
        }
        if let Some(wake) = self.try_next() {
            return wake;
        }
        let ticks = self.lanes.sample_at().min(due).saturating_duration_since(now);
        let until = timeout.map_or(ticks, |t| Duration::from_micros(t.0.saturating_sub(self.now().0)).min(ticks));
        tokio::select! {
            biased;
            code = self.end.told() => Wake::Stop(code),
            Some(event) = self.events.recv() => Wake::Event(event),
            () = tokio::time::sleep(until) => Wake::Time,
        }
    }

    /// The next event, if there is one already. Does not wait, and changes nothing.
    pub(crate) fn try_next(&mut self) -> Option<Wake> {
        self.events.try_recv().ok().map(Wake::Event)
    }

    /// Takes in why the loop woke. Returns messages for the machine, reports of lanes and disks,
    /// and the fault by which the session must end.
    pub(crate) fn absorb(&mut self, wake: Wake) -> Option<Incoming> {
        match wake {
            Wake::Event(event) => self.hear(event),
            Wake::Tick => {
                self.next_tick = Instant::now() + TICK;
                self.tick()
            }
            Wake::Time => None,
            Wake::Stop(code) => Some(Incoming::Stop(self.end.stop(code))),
        }
    }

    /// Ends a round of the loop: gives back the room of the messages that were dealt with, keeps
    /// the loop's state, and looks at the lanes, if it is time to.
    pub(crate) fn settle(&mut self, state: RoundState) {
        self.connection.free_room();
        self.limits.set_state(state.waits_for);
        self.movement.settle(&state);
        self.lanes.set_remaining(state.remaining);
        if let Some(doing) = self.lanes.sample() {
            self.limits.look(&doing);
            self.tune_at_end();
        }
    }

    fn hear(&mut self, event: SessionEvent) -> Option<Incoming> {
        self.movement.count(&event);
        match event {
            SessionEvent::Inbound(Inbound { message, room }) => {
                self.connection.keep_room(room);
                self.signs.hear();
                self.hear_message(message).map(Incoming::Message)
            }
            SessionEvent::ControlEnded(fault) if !self.end.is_begun() => {
                Some(Incoming::Stop(fault.unwrap_or_else(closed_by_peer)))
            }
            // A sender ends its lanes when the session is over, not before.
            SessionEvent::LaneEnded(end) if !self.end.is_begun() => {
                if let Some(fault) = self.lanes.ended(&end) {
                    self.end.expect_lane_fault(fault);
                }
                Some(Incoming::Event(SessionEvent::LaneEnded(end)))
            }
            SessionEvent::Undialled(fault) => {
                // Lanes that were granted later may stand meanwhile.
                if !self.end.is_begun() && (!fault.retry() || self.lanes.count() == 0) {
                    self.end.expect_lane_fault(fault);
                    // Whether the other side answers at all tells a firewall from an outage.
                    self.say(Message::Heartbeat(Heartbeat { stalled: self.stalls(), answer: true }));
                }
                None
            }
            SessionEvent::WayFound(transport) => {
                if let Some(target) = self.lanes.way_found(transport).filter(|_| !self.end.is_begun()) {
                    self.say(Message::LaneTarget(target));
                }
                None
            }
            SessionEvent::OwnRate(rate) => {
                self.lanes.set_own_rate(rate);
                if self.role == Role::Receiver {
                    self.say(Message::Rate(Rate { bytes_per_s: rate.unwrap_or(0) }));
                }
                None
            }
            SessionEvent::Lane(lane) => self.lanes.with_room(lane).map(Incoming::Event),
            event => Some(Incoming::Event(event)),
        }
    }

    /// Handles a message about lanes or rates. Returns any other.
    fn hear_message(&mut self, message: Message) -> Option<Message> {
        match message {
            Message::Heartbeat(heartbeat) => {
                if self.signs.hear_heartbeat(&heartbeat) {
                    self.say(Message::Heartbeat(Heartbeat { stalled: self.stalls(), answer: false }));
                }
                Some(Message::Heartbeat(heartbeat))
            }
            Message::Lanes(granted) if self.lanes.dial(&granted) => None,
            Message::LaneTarget(target) if self.lanes.hear_target(&target) => None,
            Message::Rate(rate) if self.role == Role::Sender => {
                self.lanes.set_asked_rate(rate.bytes_per_s);
                None
            }
            Message::Targets(reports) if self.role == Role::Sender => {
                let seconds = self.seconds();
                if let Some(figures) = self.limits.hear_targets(Instant::now(), seconds, &reports) {
                    self.observer.event(Event::Targets(figures));
                }
                None
            }
            Message::Limiting(limiting) => {
                self.limits.hear(self.signs.last_heard(), limiting.by);
                None
            }
            message => Some(message),
        }
    }

    /// Does everything that is due once a second. Returns the fault by which the session must end.
    fn tick(&mut self) -> Option<Incoming> {
        if let Some(fault) = self.end.take_lane_fault() {
            return Some(Incoming::Stop(fault));
        }
        if self.was_held_up() || self.gauge().stops_reading() && self.role == Role::Receiver {
            // The other side is not silent: nobody listens to it.
            self.signs.excuse_silence();
        }
        let gone = self.connection.find_deaf(Instant::now()).or_else(|| self.signs.is_silent().then(silent));
        if let Some(fault) = gone {
            let is_over = self.end.is_begun();
            return Some(if is_over {
                Incoming::Event(SessionEvent::ControlEnded(None))
            } else {
                Incoming::Stop(fault)
            });
        }
        if !self.end.is_begun() {
            let pieces = self.lanes.pieces().0;
            let idle = self.lanes.without_any().or_else(|| self.movement.find_idle(pieces, &self.signs));
            if let Some(fault) = idle {
                return Some(Incoming::Stop(fault));
            }
            self.tune();
        }
        let answer = self.signs.take_question() || self.lanes.ask_for_sign(&self.signs);
        if answer || self.signs.is_heartbeat_due() {
            self.say(Message::Heartbeat(Heartbeat { stalled: self.stalls(), answer }));
        }
        None
    }

    /// Fits the number of lanes, and grants new ones in place of those that were lost.
    fn tune(&mut self) {
        let by = self.limits.limited().map(|limited| limited.by);
        if let Some(target) = self.lanes.tune(by, self.limits.moving()) {
            self.say(Message::LaneTarget(target));
        }
        for granted in self.lanes.grant() {
            self.say(Message::Lanes(granted));
        }
    }

    /// Whether to report to the other side that this side's disk is the slow part: a lane finds no
    /// buffer, or nothing has moved for a while and the disk is at work.
    fn stalls(&self) -> bool {
        self.lanes.pieces().1 || self.movement.is_stalled()
    }

    /// Closes a second (or half of one, or the session): names the part that limited it, and tells
    /// the other side.
    pub(crate) fn judge(&mut self) {
        let Some(by) = self.limits.second(self.lanes.handles(), self.lanes.path()) else { return };
        // This is no sign of life: a stalled disk is reported by heartbeats, and only silence
        // brings those about.
        if !self.end.is_begun() {
            self.connection.send(Message::Limiting(Limiting { by: self.lanes.worded(by) }));
        }
    }

    /// Tells the other side how the targets of this one do. This is no sign of life either.
    pub(crate) fn tell_targets(&mut self, figures: &[TargetFigures]) {
        if !self.end.is_begun() {
            self.connection.send(Message::Targets(far_targets::reports(figures)));
        }
    }

    /// Takes the troubles of the targets of the other side, at the end of the session.
    pub(crate) fn take_troubles(&mut self) -> TargetTroubles {
        self.limits.take_troubles()
    }

    /// The time since the limit was named last.
    pub(crate) fn judged_for(&self) -> Duration {
        self.limits.judged_for()
    }

    /// The part that limited the last second. `None` if it is not known.
    pub(crate) fn limited(&self) -> Option<Limited> {
        self.limits.limited()
    }

    /// How long each part limited the session.
    pub(crate) fn limits(&self) -> &Spent {
        self.limits.spent()
    }

    fn gauge(&self) -> Gauge {
        self.connection.gauge()
    }

    /// Whether more messages wait for the other side than an honest one would leave: nothing new is
    /// begun for it.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.gauge().is_backlogged()
    }

    /// Whether no more entries are taken in, for want of memory: see [`Connection::is_cramped`].
    pub(crate) fn is_cramped(&mut self, entries_bytes: usize, besides: (usize, impl FnOnce())) -> bool {
        self.connection.is_cramped(entries_bytes, besides)
    }

    /// Sends a message to the other side.
    pub(crate) fn say(&mut self, message: Message) {
        self.signs.speak();
        self.connection.send(message);
    }

    /// Sends the machine's last message: lanes may end from now on, and the other side be silent.
    pub(crate) fn say_last(&mut self, message: Message) {
        self.end.begin();
        self.say(message);
    }

    /// Starts a lane's thread.
    pub(crate) fn start_lane(
        &mut self,
        lane: JoinedLane,
        run: impl FnOnce(JoinedLane, LaneControls) -> LaneEnd + Send + 'static,
    ) -> Result<(), Fault> {
        self.lanes.start(lane, run)
    }

    /// The number of lanes that stand.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes.count()
    }

    /// Whether any lane keeps payload in this process besides the buffers that it claims.
    pub(crate) fn any_windows(&self) -> bool {
        self.lanes.any_windows()
    }

    /// Closes this side's end of a lane, if it stands here.
    pub(crate) fn close_lane(&mut self, id: LaneId) {
        self.lanes.close(id);
    }

    /// The lanes to give up now: those that the search for their number gave up, and those that the
    /// watch of their health found. `owing` names those that owe a unit which they have not begun.
    pub(crate) fn lanes_to_give_up(&mut self, owing: impl FnOnce() -> BTreeSet<LaneId>) -> Vec<LaneId> {
        let mut lanes = self.lanes.take_to_lose();
        // If control is silent as well, the lanes are not the cause.
        if !self.end.is_begun() && self.signs.is_heard_of_late() {
            lanes.extend(self.lanes.find_unhealthy(owing, &self.signs));
        }
        lanes
    }

    /// Pieces that all lanes moved so far, and whether a lane waits for this side's buffers.
    pub(crate) fn pieces(&self) -> (u64, bool) {
        self.lanes.pieces()
    }

    /// Payload bytes moved so far of units that are under way.
    pub(crate) fn in_hand(&self) -> u64 {
        self.lanes.in_hand()
    }

    /// How long the other side has been silent, over control and lanes. `arrived`: payload bytes
    /// that have arrived, as far as this side knows.
    pub(crate) fn silent_for(&mut self, arrived: u64) -> Duration {
        self.signs.last_heard().max(self.movement.last_arrival(arrived)).elapsed()
    }
}

/// Time between two reports of progress, and between two checks of heartbeats and silence.
const TICK: Duration = Duration::from_secs(1);
/// A side that is silent for this long is taken for dead (six heartbeats).
const SILENCE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
