//! What both roles share of a session: events in, messages out, lanes, signs of life, the counters of a report.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_core::limits::{LANE_JOIN_SECONDS_MAX, PEER_TEXT_BYTES_MAX};
use longhaul_core::{Blame, Fault, FaultCode, LaneId};
use longhaul_net::{LaneCloser, LaneStream};
use longhaul_proto::wire::message::Heartbeat;
use longhaul_proto::{Message, Timestamp};
use tokio::sync::mpsc;

use super::Event;
use crate::api::{Observer, Stop};
use crate::control::{Outbox, ReadHalf, WriteHalf, read_message, start_writer};
use crate::cpu::StageTimes;
use crate::faults::system_fault;
use crate::presence::Presence;

/// A lane whose proof was accepted.
#[derive(Debug)]
pub(crate) struct JoinedLane {
    /// Its id.
    pub(crate) id: LaneId,
    /// Its stream.
    pub(crate) stream: LaneStream,
}

/// What a session is made of once the handshake is over.
pub(crate) struct LinkParts {
    /// The control channel.
    pub(crate) reader: ReadHalf,
    pub(crate) writer: WriteHalf,
    /// Who listens to events.
    pub(crate) observer: Arc<dyn Observer>,
    /// Stops the session from outside.
    pub(crate) stop: Stop,
    /// By which others see whether it lives.
    pub(crate) presence: Arc<Presence>,
    /// Where lanes that join later come in, and what they are put into.
    pub(crate) events: (mpsc::UnboundedSender<Event>, mpsc::UnboundedReceiver<Event>),
}

/// The running link. See the module.
pub(crate) struct Link {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) times: StageTimes,
    events: mpsc::UnboundedReceiver<Event>,
    sink: mpsc::UnboundedSender<Event>,
    outbox: Option<Outbox>,
    writer: tokio::task::JoinHandle<()>,
    reader: tokio::task::JoinHandle<()>,
    lanes: Vec<(LaneCloser, JoinHandle<()>)>,
    stop: Stop,
    presence: Arc<Presence>,
    start: Instant,
    heard: Instant,
    spoke: Instant,
    next_tick: Instant,
    cpu_start: u64,
    pub(crate) ending: bool,
    /// The session is told to end, and on its way: it is not told again.
    stopping: bool,
    /// A refusal was said, which the other side should hear.
    refused: bool,
    /// A lane broke: the reason is told unless the other side tells a better one within a moment.
    lane_fault: Option<(Instant, Fault)>,
}

/// What wakes a session loop.
#[derive(Debug)]
pub(crate) enum Wake {
    /// Something happened.
    Event(Event),
    /// The machine's timeout, or the second.
    Time,
    /// The session must end.
    Stop(Fault),
}

impl Link {
    /// Starts the control tasks.
    pub(crate) fn start(parts: LinkParts) -> Link {
        let (sink, events) = parts.events;
        let (outbox, writer) = start_writer(parts.writer);
        let reader = tokio::spawn(read_all(parts.reader, sink.clone()));
        let now = Instant::now();
        Link {
            observer: parts.observer,
            times: StageTimes::default(),
            events,
            sink,
            outbox: Some(outbox),
            writer,
            reader,
            lanes: Vec::new(),
            stop: parts.stop,
            presence: parts.presence,
            start: now,
            heard: now,
            spoke: now,
            next_tick: now + TICK,
            cpu_start: crate::cpu::process_micros(),
            ending: false,
            stopping: false,
            refused: false,
            lane_fault: None,
        }
    }

    /// Where threads of this session report.
    pub(crate) fn sink(&self) -> mpsc::UnboundedSender<Event> {
        self.sink.clone()
    }

    /// The machine's clock.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Seconds since the session stood.
    pub(crate) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// CPU microseconds of this process since the session stood.
    pub(crate) fn cpu_us(&self) -> u64 {
        crate::cpu::process_micros().saturating_sub(self.cpu_start)
    }

    /// Waits for the next thing to happen, until `timeout` at most. Cancel-safe; changes nothing but the clock of what
    /// was heard.
    pub(crate) async fn wait(&mut self, timeout: Option<Timestamp>) -> Wake {
        let now = Instant::now();
        // However much happens: signs of life are owed, silence is noticed, and a broken lane is not waited for longer.
        let due = self.lane_fault.as_ref().map_or(self.next_tick, |(at, _)| self.next_tick.min(*at));
        if now >= due {
            self.next_tick = now + TICK;
            return self.tick();
        }
        if let Ok(event) = self.events.try_recv() {
            return self.hear(event);
        }
        let ticks = due - now;
        let until = timeout.map_or(ticks, |t| Duration::from_micros(t.0.saturating_sub(self.now().0)).min(ticks));
        tokio::select! {
            biased;
            code = self.stop.stopped(), if !self.stopping => {
                self.stopping = true;
                Wake::Stop(stopped(code))
            }
            () = self.presence.evicted(), if !self.stopping => {
                self.stopping = true;
                Wake::Stop(Fault::new(FaultCode::Lost, Blame::Path, "another session took the place of this one, which had fallen silent"))
            }
            Some(event) = self.events.recv() => self.hear(event),
            () = tokio::time::sleep(until) => Wake::Time,
        }
    }

    /// An event that is there already, without waiting.
    pub(crate) fn try_next(&mut self) -> Option<Wake> {
        self.events.try_recv().ok().map(|event| self.hear(event))
    }

    fn hear(&mut self, event: Event) -> Wake {
        match event {
            Event::Control(message) => {
                self.heard = Instant::now();
                self.presence.hear();
                if matches!(message, Message::Heartbeat(Heartbeat { answer: true, .. })) {
                    self.say(Message::Heartbeat(Heartbeat { stalled: false, answer: false }));
                }
                Wake::Event(Event::Control(message))
            }
            Event::ControlEnded(fault) if !self.ending => Wake::Stop(fault.unwrap_or_else(|| {
                Fault::new(FaultCode::Lost, Blame::Path, "the other side closed the control connection")
                    .hint("run the same command again")
            })),
            Event::LaneEnded(ended) if !self.ending => {
                // A sender ends its lanes when the session is over, not before.
                let fault = ended
                    .err()
                    .unwrap_or_else(|| Fault::new(FaultCode::Lost, Blame::Path, "a lane ended before its session"));
                self.lane_fault.get_or_insert((Instant::now() + BETTER_REASON_WAIT, fault));
                Wake::Time
            }
            event => Wake::Event(event),
        }
    }

    fn tick(&mut self) -> Wake {
        if let Some((_, fault)) = self.lane_fault.take_if(|(at, _)| *at <= Instant::now()) {
            return Wake::Stop(fault);
        }
        if !self.ending && self.heard.elapsed() >= SILENCE_MAX {
            return Wake::Stop(
                Fault::new(
                    FaultCode::TimedOut,
                    Blame::Path,
                    format_args!("the other side was silent for {} s", SILENCE_MAX.as_secs()),
                )
                .hint("run the same command again"),
            );
        }
        if self.ending && self.heard.elapsed() >= SILENCE_MAX {
            return Wake::Event(Event::ControlEnded(None));
        }
        if !self.ending && self.lanes.is_empty() && self.start.elapsed() >= LANELESS_MAX {
            return Wake::Stop(
                Fault::new(FaultCode::Lost, Blame::Path, "no lane joined the session in time")
                    .hint("check that a firewall lets several connections to the port through"),
            );
        }
        let answer = self.presence.take_question();
        if answer || self.spoke.elapsed() >= HEARTBEAT_EVERY {
            self.say(Message::Heartbeat(Heartbeat { stalled: false, answer }));
        }
        Wake::Time
    }

    /// Says something to the other side.
    pub(crate) fn say(&mut self, message: Message) {
        self.spoke = Instant::now();
        if let Some(outbox) = &self.outbox {
            outbox.send(message);
        }
    }

    /// Starts a lane's thread.
    pub(crate) fn start_lane(
        &mut self,
        lane: JoinedLane,
        run: impl FnOnce(LaneStream, LaneId) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let closer = lane.stream.closer();
        let sink = self.sink.clone();
        let thread = std::thread::Builder::new()
            .name(format!("lane-{}", lane.id.0))
            .spawn(move || drop(sink.send(Event::LaneEnded(run(lane.stream, lane.id)))))
            .map_err(|e| system_fault("a lane's thread", &e))?;
        self.lanes.push((closer, thread));
        Ok(())
    }

    /// Says `fault` to the other side, unless it said so itself, and closes the lanes at once.
    pub(crate) fn refuse(&mut self, fault: &Fault, told_by_peer: bool) {
        if !told_by_peer {
            let mut said = fault.clone();
            for text in [&mut said.message, &mut said.object, &mut said.hint] {
                while text.len() > PEER_TEXT_BYTES_MAX {
                    text.pop();
                }
            }
            self.say(Message::Refuse(said));
            self.refused = true;
        }
        self.ending = true;
        self.lanes.iter().for_each(|(closer, _)| closer.close());
    }

    /// Ends the link: what was said is written, threads and tasks are over when this returns.
    pub(crate) async fn end(mut self) {
        self.ending = true;
        self.outbox = None;
        let _ = tokio::time::timeout(FAREWELL_MAX, &mut self.writer).await;
        self.writer.abort();
        // A connection that is closed with words unread is reset, and our last ones are lost with it: hear the other side out.
        if self.refused {
            let _ = tokio::time::timeout(HEARING_OUT_MAX, &mut self.reader).await;
        }
        self.reader.abort();
        let lanes = std::mem::take(&mut self.lanes);
        let joined = tokio::task::spawn_blocking(move || {
            for (closer, thread) in lanes {
                if !thread.is_finished() {
                    closer.close();
                }
                let _ = thread.join();
            }
        });
        let _ = joined.await;
    }
}

/// Reads the control channel to its end.
async fn read_all(mut reader: ReadHalf, sink: mpsc::UnboundedSender<Event>) {
    loop {
        let event = match read_message(&mut reader).await {
            Ok(Some(message)) => Event::Control(message),
            Ok(None) => Event::ControlEnded(None),
            Err(fault) => Event::ControlEnded(Some(fault)),
        };
        let over = matches!(event, Event::ControlEnded(_));
        if sink.send(event).is_err() || over {
            return;
        }
    }
}

fn stopped(code: FaultCode) -> Fault {
    let why = match code {
        FaultCode::Terminated => "terminated",
        FaultCode::Busy => "the daemon is shutting down",
        _ => "interrupted",
    };
    Fault::new(code, Blame::Local, why)
}

/// Progress is told, heartbeats and silence are looked after so often.
const TICK: Duration = Duration::from_secs(1);
/// A side that says nothing for so long says that it lives.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// A side that is not heard of for so long is taken for dead (six heartbeats).
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A session without any lane is given up: ids are good for 10 s, a handshake under way may take as long again.
const LANELESS_MAX: Duration = Duration::from_secs(2 * LANE_JOIN_SECONDS_MAX);
/// When a lane breaks, the other side is often about to say why over control.
const BETTER_REASON_WAIT: Duration = Duration::from_secs(1);
/// Last words are given so long to leave.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// A side that was refused ends within a round trip or two; one that does not is left.
const HEARING_OUT_MAX: Duration = Duration::from_secs(2);
