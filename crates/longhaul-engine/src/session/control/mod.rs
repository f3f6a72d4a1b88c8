//! Owns the part of a session that both roles share: events in, messages out, signs of life, the
//! way to an end.
//!
//! It owns the control channel's tasks, the [`Lanes`] and the bottleneck search. It handles
//! messages about lanes and rates itself, and gives all others to the session loop. It decides only
//! when a session cannot go on, and knows no machine.

mod ending;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::limits::{LANES_EVER_MAX, LANES_MAX};
use longhaul_core::{Blame, Fault, FaultCode, LaneId, Role};
use longhaul_proto::tuning::limit::Spent;
use longhaul_proto::wire::message::{GrantedLanes as Granted, Heartbeat, LaneTarget, Limit, Limited, Limiting, Rate};
use longhaul_proto::{Message, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::SessionEvent;
use super::channel::{ReadHalf, WriteHalf, start_writer};
use super::idle::{Doings, Idle, moves};
use super::inbox::{Inbound, Inbox, read_all};
use super::outbox::{Gauge, Outbox, Uptake, too_far_behind};
use super::overhead::Overhead;
use crate::api::{self, LanesChange, Observer, Stop};
use crate::cpu::StageTimes;
use crate::journals::presence::Presence;
use crate::lanes::JoinedLane;
use crate::lanes::bottleneck::{Limiter, WaitsFor};
use crate::lanes::event::LaneEnd;
use crate::lanes::event::LaneListener;
use crate::lanes::pool::{LaneControls, LaneRules, Lanes};
use crate::lanes::tune::{LaneTask, TuningStep};
use crate::lanes::worker::pacer::LaneRates;

/// The parts of a session once the handshake is over.
pub(crate) struct ControlLinkParts {
    /// The control channel.
    pub(crate) reader: ReadHalf,
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
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) times: StageTimes,
    events: mpsc::UnboundedReceiver<SessionEvent>,
    sender: mpsc::UnboundedSender<SessionEvent>,
    outbox: Option<Outbox>,
    /// Watches whether the other side takes in its messages.
    uptake: Uptake,
    /// The memory of those messages, and of entries.
    overhead: Overhead,
    inbox: Inbox,
    /// The room of messages that are being dealt with.
    inbox_room: Option<OwnedSemaphorePermit>,
    writer: tokio::task::JoinHandle<()>,
    reader: tokio::task::JoinHandle<()>,
    lanes: Lanes,
    role: Role,
    /// The smallest segment size that lanes turned out to need, as far as it was reported.
    reported_segment: Option<u32>,
    /// Lanes that the search for their number gave up.
    to_lose: Vec<LaneId>,
    limiter: Limiter,
    /// The reason for which a lane of this side has nothing to do now.
    pub(crate) waits_for: WaitsFor,
    /// Bytes that lanes have not sent, including units in hand. `None` if this side does not know.
    pub(crate) remaining: Option<u64>,
    stop: Stop,
    presence: Arc<Presence>,
    start: Instant,
    last_heard: Instant,
    last_spoke: Instant,
    /// Watches whether anything moves. `None` where an idle session goes on.
    idle: Option<Idle>,
    /// Messages, units and other progress besides pieces on lanes, counted for [`Idle`].
    moved: u64,
    /// The count of everything that had moved at the last look, and when it last grew.
    moved_by: (u64, Instant),
    /// The payload that had arrived at the last look, bytes, and when it last grew.
    arrived_by: (u64, Instant),
    /// Whether this side's disk has something to do.
    pub(crate) at_work: bool,
    /// Claims memory for the windows of lanes over QUIC. `None` where it needs no claim.
    quic_room: Option<Box<dyn FnMut() -> bool + Send>>,
    /// When the other side last reported that its disk stalls.
    peer_stalled: Option<Instant>,
    next_tick: Instant,
    cpu_start: u64,
    pub(crate) ending: bool,
    /// Whether the session was told to end: it is not told again.
    stopping: bool,
    /// Whether a refusal was sent, which the other side should hear.
    refused: bool,
    /// Whether the other side has dialled anew, and so listens here no more.
    deserted: bool,
    /// The fault of a lane that ends the session. It is reported after a moment, unless the other
    /// side reports a better reason in that time.
    lane_fault: Option<(Instant, Fault)>,
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

impl ControlLink {
    /// Starts the control tasks.
    pub(crate) fn start(parts: ControlLinkParts) -> ControlLink {
        let (sink, events) = parts.events;
        let (outbox, writer) = start_writer(parts.writer);
        let (inbox, role) = (Inbox::new(), parts.rules.role);
        // A sender reads while messages wait, so the sides cannot wait for each other.
        let queue = (role == Role::Receiver).then(|| outbox.queue.clone());
        let reader = tokio::spawn(read_all(parts.reader, inbox.clone(), queue, sink.clone()));
        let now = Instant::now();
        ControlLink {
            observer: parts.observer,
            times: StageTimes::default(),
            events,
            sender: sink,
            outbox: Some(outbox),
            uptake: Uptake::new(now, SILENCE_MAX),
            overhead: Overhead::default(),
            inbox,
            inbox_room: None,
            writer,
            reader,
            role,
            reported_segment: None,
            limiter: Limiter::new(parts.rules.role),
            waits_for: WaitsFor::Other,
            to_lose: Vec::new(),
            remaining: None,
            lanes: Lanes::new(parts.rules),
            stop: parts.stop,
            presence: parts.presence,
            start: now,
            last_heard: now,
            last_spoke: now,
            idle: None,
            moved: 0,
            moved_by: (0, now),
            arrived_by: (0, now),
            at_work: false,
            quic_room: None,
            peer_stalled: None,
            next_tick: now + TICK,
            cpu_start: crate::cpu::process_micros(),
            ending: false,
            stopping: false,
            refused: false,
            deserted: false,
            lane_fault: None,
        }
    }

    /// Ends the session when nothing moves in it, as `idle` says.
    pub(crate) fn set_idle(&mut self, idle: Idle) {
        self.idle = Some(idle);
    }

    /// The fault by which the session ends if nothing moved in it for too long.
    fn look_idle(&mut self) -> Option<Fault> {
        let (now, moved) = (Instant::now(), self.lanes.pieces().0 + self.moved);
        if moved != self.moved_by.0 {
            self.moved_by = (moved, now);
        }
        let peer_stalls = self.peer_stalled.is_some_and(|at| at.elapsed() < 2 * HEARTBEAT_EVERY);
        let doings = Doings { moved, at_work: self.at_work, peer_stalls };
        self.idle.as_mut()?.look(now, doings)
    }

    /// Whether to report to the other side that this side's disk is the slow part: a lane finds no
    /// buffer, or nothing has moved for a while and the disk is at work.
    fn stalls(&self) -> bool {
        self.lanes.pieces().1 || self.at_work && self.moved_by.1.elapsed() >= STALLED_AFTER
    }

    /// Has the session's memory besides its buffers counted.
    pub(crate) fn set_overhead(&mut self, overhead: Overhead) {
        self.overhead = overhead;
    }

    /// Takes lanes over QUIC only if `room` returns that there is memory for them.
    pub(crate) fn set_quic_room(&mut self, room: Box<dyn FnMut() -> bool + Send>) {
        self.quic_room = Some(room);
    }

    /// Whether there is memory for the windows of a lane that joined.
    fn has_room_for(&mut self, lane: &JoinedLane) -> bool {
        let has = !lane.stream.handle().is_quic() || self.quic_room.as_mut().is_none_or(|room| room());
        if !has {
            tracing::info!(target: "longhaul::session", lane = lane.id.0, "no memory is left for lanes over QUIC");
        }
        has
    }

    /// The queue to which threads of this session report.
    pub(crate) fn sink(&self) -> mpsc::UnboundedSender<SessionEvent> {
        self.sender.clone()
    }

    fn listener(&self) -> Arc<dyn LaneListener> {
        Arc::new(self.sender.clone())
    }

    /// The time on the machine's clock.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Seconds since the session began.
    pub(crate) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// CPU microseconds of this process since the session began.
    pub(crate) fn cpu_us(&self) -> u64 {
        crate::cpu::process_micros().saturating_sub(self.cpu_start)
    }

    /// Waits for the next event, until `timeout` at most. Cancelled, it loses nothing.
    pub(crate) async fn wait(&mut self, timeout: Option<Timestamp>) -> Wake {
        let now = Instant::now();
        // However many events come, signs of life are due, silence is noticed, and a broken lane is
        // not waited for longer.
        let grant_at = self.lanes.grant_at().filter(|_| !self.ending);
        let due = [Some(self.next_tick), self.lane_fault.as_ref().map(|(at, _)| *at), grant_at];
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
            code = self.stop.stopped(), if !self.stopping => Wake::Stop(code),
            () = self.presence.evicted(), if !self.stopping => Wake::Stop(FaultCode::Lost),
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
            Wake::Stop(code) => {
                self.stopping = true;
                self.deserted = code == FaultCode::Lost;
                Some(Incoming::Stop(stopped(code)))
            }
        }
    }

    /// Ends a round of the loop: gives back the room of the messages that were dealt with, and
    /// looks at the lanes, if it is time to.
    pub(crate) fn settle(&mut self) {
        self.inbox_room = None;
        if let Some(doing) = self.lanes.sample() {
            self.limiter.look(&doing, self.waits_for);
        }
    }

    fn hear(&mut self, event: SessionEvent) -> Option<Incoming> {
        self.moved += u64::from(match &event {
            SessionEvent::Inbound(Inbound { message, .. }) => moves(message),
            SessionEvent::Wrote(_) | SessionEvent::Read(_) => true,
            _ => false,
        });
        match event {
            SessionEvent::Inbound(Inbound { message, room }) => {
                match &mut self.inbox_room {
                    Some(held) => held.merge(room),
                    None => self.inbox_room = Some(room),
                }
                self.last_heard = Instant::now();
                self.presence.hear();
                if let Message::Heartbeat(Heartbeat { stalled, answer }) = &message {
                    if *stalled {
                        self.peer_stalled = Some(self.last_heard);
                    }
                    if *answer {
                        self.say(Message::Heartbeat(Heartbeat { stalled: self.stalls(), answer: false }));
                    }
                }
                match message {
                    Message::Lanes(granted) if self.dial(&granted) => None,
                    Message::LaneTarget(target) if self.role == Role::Receiver && self.lanes.grants() => {
                        self.lanes.set_target(target.count, target.transport);
                        None
                    }
                    Message::Rate(rate) if self.role == Role::Sender => {
                        self.lanes.set_rates(|rates| rates.asked_rate = LaneRates::from_wire(rate.bytes_per_s));
                        None
                    }
                    Message::Limiting(limiting) => {
                        self.limiter.hear(self.last_heard, limiting.by);
                        None
                    }
                    message => Some(Incoming::Message(message)),
                }
            }
            SessionEvent::ControlEnded(fault) if !self.ending => Some(Incoming::Stop(fault.unwrap_or_else(|| {
                Fault::new(FaultCode::Lost, Blame::Path, "the other side closed the control connection")
                    .hint("run the same command again")
            }))),
            // A sender ends its lanes when the session is over, not before.
            SessionEvent::LaneEnded(end) if !self.ending => {
                if let Some(fault) = self.lanes.ended(&end) {
                    self.lane_fault.get_or_insert((Instant::now() + BETTER_REASON_WAIT, fault));
                }
                Some(Incoming::Event(SessionEvent::LaneEnded(end)))
            }
            SessionEvent::Undialled(fault) => {
                // Lanes that were granted later may stand meanwhile.
                if !self.ending && (!fault.retry() || self.lanes.count() == 0) {
                    self.lane_fault.get_or_insert((Instant::now() + BETTER_REASON_WAIT, fault));
                    // Whether the other side answers at all tells a firewall from an outage.
                    self.say(Message::Heartbeat(Heartbeat { stalled: self.stalls(), answer: true }));
                }
                None
            }
            SessionEvent::OwnRate(rate) => {
                self.lanes.set_rates(|rates| rates.own_rate = rate);
                if self.role == Role::Receiver {
                    self.say(Message::Rate(Rate { bytes_per_s: rate.unwrap_or(0) }));
                }
                None
            }
            // The lane is dropped and thereby closed: the sender goes on over those that it has.
            SessionEvent::Lane(lane) if !self.has_room_for(&lane) => None,
            event => Some(Incoming::Event(event)),
        }
    }

    /// Carries out what the search for the number of lanes decided, and reports it.
    fn tune(&mut self) {
        let by = self.limiter.limited().map(|limited| limited.by);
        let hindered = matches!(by, Some(Limit::NetworkLoss | Limit::NetworkWindow));
        for TuningStep { task: what, change, reason } in self.lanes.tune(self.remaining, hindered) {
            if let LaneTask::Lose(lanes) = &what {
                self.to_lose.extend(lanes);
            }
            if what != LaneTask::Nothing && !self.lanes.grants() {
                let (count, transport) = (self.lanes.target(), self.lanes.transport());
                self.say(Message::LaneTarget(LaneTarget { count, transport }));
            }
            self.tell_lanes(change, reason);
        }
    }

    fn tell_lanes(&self, change: LanesChange, reason: String) {
        let lanes = self.lanes.count() as u32;
        tracing::info!(target: "longhaul::lanes", lanes, %change, %reason, "lanes");
        self.observer.event(api::Event::Lanes(api::LanesTuned { seconds: self.seconds(), lanes, change, reason }));
    }

    /// Reports that the path swallows large packets, when a lane needed small segments.
    fn tell_segments(&mut self, bytes: Option<u32>) {
        let Some(bytes) = bytes.filter(|bytes| self.reported_segment.is_none_or(|told| *bytes < told)) else { return };
        self.reported_segment = Some(bytes);
        let reason = "larger packets vanish on the way and nobody says so: something there keeps ICMP messages back";
        self.tell_lanes(LanesChange::Segments(bytes), reason.to_owned());
    }

    /// Dials the lanes that were granted. Returns false if this side never dials.
    fn dial(&mut self, granted: &Granted) -> bool {
        let last = granted.first.0.saturating_add(granted.count.min(LANES_MAX)).min(LANES_EVER_MAX);
        self.lanes.dial((granted.first.0..last).map(LaneId), granted.transport, &self.listener())
    }

    fn tick(&mut self) -> Option<Incoming> {
        if let Some((_, fault)) = self.lane_fault.take_if(|(at, _)| *at <= Instant::now()) {
            return Some(Incoming::Stop(fault));
        }
        let gauge = self.gauge();
        if gauge.stops_reading() && self.role == Role::Receiver {
            // The other side is not silent: nobody listens to it.
            self.last_heard = Instant::now();
        }
        let not_taken_in = self.uptake.look(Instant::now(), gauge);
        if let Some(fault) = not_taken_in.or_else(|| gauge.is_over().then(|| too_far_behind(gauge))) {
            let ended =
                if self.ending { Incoming::Event(SessionEvent::ControlEnded(None)) } else { Incoming::Stop(fault) };
            return Some(ended);
        }
        if !self.ending && self.last_heard.elapsed() >= SILENCE_MAX {
            return Some(Incoming::Stop(
                Fault::new(
                    FaultCode::TimedOut,
                    Blame::Path,
                    format_args!("the other side was silent for {} s", SILENCE_MAX.as_secs()),
                )
                .hint("run the same command again"),
            ));
        }
        if self.ending && self.last_heard.elapsed() >= SILENCE_MAX {
            return Some(Incoming::Event(SessionEvent::ControlEnded(None)));
        }
        if !self.ending {
            if let Some(fault) = self.lanes.without_any().or_else(|| self.look_idle()) {
                return Some(Incoming::Stop(fault));
            }
            self.tune();
            for first in self.lanes.grant() {
                let transport = self.lanes.transport();
                self.say(Message::Lanes(Granted { first, count: 1, transport }));
            }
        }
        let answer = self.presence.take_question() || self.lanes.ask_for_sign(self.last_heard);
        if answer || self.last_spoke.elapsed() >= HEARTBEAT_EVERY {
            self.say(Message::Heartbeat(Heartbeat { stalled: self.stalls(), answer }));
        }
        None
    }

    /// Closes a second (or half of one, or the session): names the part that limited it, and tells
    /// the other side.
    pub(crate) fn judge(&mut self) {
        let Some(by) = self.limiter.second(self.lanes.handles(), &self.times) else { return };
        // This is no sign of life: a stalled disk is reported by heartbeats, and only silence
        // brings those about.
        if let Some(outbox) = self.outbox.as_ref().filter(|_| !self.ending) {
            outbox.send(Message::Limiting(Limiting { by }));
        }
    }

    /// The time since the limit was named last.
    pub(crate) fn judged_for(&self) -> Duration {
        self.limiter.since().elapsed()
    }

    /// The part that limited the last second. `None` if it is not known.
    pub(crate) fn limited(&self) -> Option<Limited> {
        self.limiter.limited()
    }

    /// How long each part limited the session.
    pub(crate) fn limits(&self) -> &Spent {
        self.limiter.spent()
    }

    fn gauge(&self) -> Gauge {
        self.outbox.as_ref().map(Outbox::gauge).unwrap_or_default()
    }

    /// Whether more messages wait for the other side than an honest one would leave: nothing new is
    /// begun for it.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.gauge().is_backlogged()
    }

    /// Whether there is no memory for the messages that wait and for the entries held, which take
    /// `entries_bytes`: no more entries are taken in.
    pub(crate) fn is_cramped(&mut self, entries_bytes: usize) -> bool {
        let is_cramped = !self.overhead.holds(self.gauge().waiting + entries_bytes);
        if let Some(outbox) = &self.outbox {
            outbox.set_cramped(is_cramped);
        }
        is_cramped
    }

    /// Sends a message to the other side.
    pub(crate) fn say(&mut self, message: Message) {
        self.last_spoke = Instant::now();
        if let Some(outbox) = &self.outbox {
            outbox.send(message);
        }
    }

    /// Starts a lane's thread.
    pub(crate) fn start_lane(
        &mut self,
        lane: JoinedLane,
        run: impl FnOnce(JoinedLane, LaneControls) -> LaneEnd + Send + 'static,
    ) -> Result<(), Fault> {
        self.tell_segments(lane.stream.segment_max());
        self.lanes.start(lane, self.listener(), run)
    }

    /// The number of lanes that stand.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes.count() as u32
    }

    /// Whether any lane keeps payload in this process besides the buffers that it claims.
    pub(crate) fn any_quic(&self) -> bool {
        self.lanes.any_quic()
    }

    /// Closes this side's end of a lane, if it stands here.
    pub(crate) fn close_lane(&mut self, id: LaneId) {
        self.lanes.close(id);
    }

    /// The lanes that stand still while others move. `owing` names those that owe a unit which they
    /// have not begun.
    pub(crate) fn stalled_lanes(&mut self, owing: impl FnOnce() -> BTreeSet<LaneId>) -> Vec<LaneId> {
        let of_late = |at: Instant| at.elapsed() < 2 * HEARTBEAT_EVERY;
        let mut lanes = std::mem::take(&mut self.to_lose);
        // If control is silent as well, the lanes are not the cause.
        if !self.ending && of_late(self.last_heard) {
            lanes.extend(self.lanes.find_stalled(owing, self.peer_stalled.is_some_and(of_late), self.last_heard));
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
        if arrived != self.arrived_by.0 {
            self.arrived_by = (arrived, Instant::now());
        }
        self.last_heard.max(self.arrived_by.1).elapsed()
    }
}

fn stopped(code: FaultCode) -> Fault {
    let why = match code {
        FaultCode::Terminated => "terminated",
        FaultCode::Busy => "the daemon is shutting down",
        FaultCode::TimedOut => "it took longer than it may",
        FaultCode::Unreachable => {
            return Fault::new(
                FaultCode::Busy,
                Blame::Local,
                "nothing moved, and another key needed the session's place",
            )
            .hint("run the same command again: it goes on where this ended");
        }
        FaultCode::Lost => "the client dialled again and goes on in another session",
        _ => "interrupted",
    };
    Fault::new(code, Blame::Local, why)
}

/// Time between two reports of progress, and between two checks of heartbeats and silence.
const TICK: Duration = Duration::from_secs(1);
/// A side that has sent nothing for this long sends a heartbeat.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// A disk at work for this long while nothing moved stalls, for the other side.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// A side that is silent for this long is taken for dead (six heartbeats).
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The wait before a lane's fault ends the session: when a lane breaks or cannot be dialled, the
/// other side is often about to say why over control.
const BETTER_REASON_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
