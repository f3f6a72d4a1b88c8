//! Ends a control link: decides when and why, sends the last messages and bounds the wait for those
//! of the other side.
//!
//! In: the stop from outside, faults of lanes, and the fault that a session ends with, if any. Out:
//! a control channel that is closed in order where that is possible, with all threads and tasks
//! ended. It knows no machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Fault, FaultCode, Role};
use longhaul_proto::Message;
use longhaul_proto::wire::message::Tally;
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::stopped::stopped;
use super::{ControlLink, Inbound, SessionEvent};
use crate::api::Stop;
use crate::journals::presence::Presence;

/// How far a session is on the way to its end.
pub(super) struct SessionEnd {
    /// Stops the session from outside.
    stop: Stop,
    /// Tells the session that another one takes its place.
    presence: Arc<Presence>,
    /// Whether the session was told to end: it is not told again.
    stopping: bool,
    /// Whether the machine has said its last: lanes that end and silence are no faults any more.
    ending: bool,
    /// Whether a refusal was sent, which the other side should hear.
    refused: bool,
    /// Whether the other side has dialled anew, and so listens here no more.
    deserted: bool,
    /// The fault of a lane that ends the session, and when it does: after a moment, unless the
    /// other side reports a better reason in that time.
    lane_fault: Option<(Instant, Fault)>,
}

impl SessionEnd {
    /// A session that goes on.
    pub(super) fn new(stop: Stop, presence: Arc<Presence>) -> SessionEnd {
        SessionEnd { stop, presence, stopping: false, ending: false, refused: false, deserted: false, lane_fault: None }
    }

    /// Waits until the session is told from outside to end, and returns the code. Waits for ever
    /// once it was told. Cancelled, it loses nothing.
    pub(super) async fn told(&mut self) -> FaultCode {
        if self.stopping {
            return std::future::pending().await;
        }
        tokio::select! {
            biased;
            code = self.stop.stopped() => code,
            () = self.presence.evicted() => match self.presence.superseded() {
                Some(_) => FaultCode::Superseded,
                None => FaultCode::Lost,
            },
        }
    }

    /// Records that the session is told to end. Returns the fault by which it does.
    pub(super) fn stop(&mut self, code: FaultCode) -> Fault {
        self.stopping = true;
        self.deserted = code == FaultCode::Lost;
        let superseded = self.presence.superseded().filter(|_| code == FaultCode::Superseded);
        superseded.cloned().unwrap_or_else(|| stopped(code))
    }

    /// Records that the machine says its last.
    pub(super) fn begin(&mut self) {
        self.ending = true;
    }

    /// Whether the machine has said its last.
    pub(super) fn is_begun(&self) -> bool {
        self.ending
    }

    /// Ends the session by a lane's fault in a moment, if no earlier one does already.
    pub(super) fn expect_lane_fault(&mut self, fault: Fault) {
        self.lane_fault.get_or_insert((Instant::now() + BETTER_REASON_WAIT, fault));
    }

    /// When a lane's fault ends the session. `None` if there is none.
    pub(super) fn lane_fault_at(&self) -> Option<Instant> {
        self.lane_fault.as_ref().map(|(at, _)| *at)
    }

    /// The lane's fault that ends the session now.
    pub(super) fn take_lane_fault(&mut self) -> Option<Fault> {
        self.lane_fault.take_if(|(at, _)| *at <= Instant::now()).map(|(_, fault)| fault)
    }
}

impl ControlLink {
    /// Sends `fault` to the other side, unless that sent it, and closes the lanes at once.
    pub(crate) fn refuse(&mut self, fault: &Fault, told_by_peer: bool) {
        if !told_by_peer {
            self.say(Message::Refuse(fault.clone()));
            self.end.refused = true;
        }
        self.end.begin();
        self.lanes.close_all();
        // A sender goes on listening, as the receiver reports which bytes it holds.
        if told_by_peer || self.role == Role::Receiver {
            self.connection.stop_listening();
        }
    }

    /// Fits the lanes at once while others wait for those that are behind, or nothing goes over
    /// QUIC any more.
    pub(super) fn tune_at_end(&mut self) {
        if (self.lanes.is_ending() || self.lanes.is_leaving_quic()) && !self.end.is_begun() {
            self.tune();
        }
    }

    /// Ends the link: messages are written, and threads and tasks have ended when it returns.
    /// Returns the receiver's last counters, where it sent some after it was refused.
    pub(crate) async fn end(mut self) -> Option<Tally> {
        self.end.begin();
        self.connection.stop_speaking();
        let farewell = if self.end.deserted { Duration::ZERO } else { FAREWELL_MAX };
        let mut tally = None;
        // A side that was silent already has no last words.
        let is_there = !self.end.deserted && self.signs.last_heard().elapsed() < HOLDING_MAX;
        let hears = self.end.refused && self.role == Role::Sender && is_there;
        if hears {
            let said = async {
                tokio::select! {
                    () = hear_out(&mut self.events, &mut tally) => {}
                    // The connection has ended, perhaps long ago.
                    () = self.connection.read_to_end() => {}
                }
            };
            let _ = tokio::time::timeout(HOLDING_MAX, said).await;
            while let Ok(event) = self.events.try_recv() {
                keep_counters(event, &mut tally);
            }
        }
        self.connection.stop_listening();
        self.connection.finish_writing(farewell).await;
        // A connection that is closed with messages unread is reset, and our last ones are lost
        // with it. So the other side is heard out.
        if self.end.refused && is_there && !hears {
            let _ = tokio::time::timeout(HEARING_OUT_MAX, self.connection.read_to_end()).await;
        }
        self.connection.stop_reading();
        let lanes = self.lanes;
        let _ = tokio::task::spawn_blocking(move || lanes.join()).await;
        tally
    }
}

/// Takes in the other side's messages until it ends, and keeps its latest counters.
async fn hear_out(events: &mut UnboundedReceiver<SessionEvent>, tally: &mut Option<Tally>) {
    while let Some(event) = events.recv().await {
        if matches!(event, SessionEvent::ControlEnded(_)) {
            return;
        }
        keep_counters(event, tally);
    }
}

fn keep_counters(event: SessionEvent, tally: &mut Option<Tally>) {
    if let SessionEvent::Inbound(Inbound { message: Message::Tally(said), .. }) = event {
        *tally = Some(said);
    }
}

/// The wait before a lane's fault ends the session: when a lane breaks or cannot be dialled, the
/// other side is often about to say why over control.
const BETTER_REASON_WAIT: Duration = Duration::from_secs(1);
/// How long the last messages may take to leave.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// How long a side that was refused is heard out: it ends within a round trip or two.
const HEARING_OUT_MAX: Duration = Duration::from_secs(2);
/// How long the counters of a refused receiver are waited for: it makes durable what has come, for
/// 4 s at most, and then reports which bytes it holds.
const HOLDING_MAX: Duration = Duration::from_millis(4500);
