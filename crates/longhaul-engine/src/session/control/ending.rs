//! Ends a control link: sends the last messages and bounds the wait for those of the other side.
//!
//! In: the fault that a session ends with, if any. Out: a control channel that is closed in order
//! where that is possible, with all threads and tasks ended. It decides nothing and knows no
//! machine.

use std::time::Duration;

use longhaul_core::{Fault, Role};
use longhaul_proto::Message;
use longhaul_proto::wire::message::Tally;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{ControlLink, Inbound, SessionEvent};

impl ControlLink {
    /// Sends `fault` to the other side, unless that sent it, and closes the lanes at once.
    pub(crate) fn refuse(&mut self, fault: &Fault, told_by_peer: bool) {
        if !told_by_peer {
            self.say(Message::Refuse(fault.clone()));
            self.refused = true;
        }
        self.ending = true;
        self.lanes.close_all();
        // A sender goes on listening, as the receiver reports which bytes it holds.
        if told_by_peer || self.role == Role::Receiver {
            self.inbox.close();
        }
    }

    /// Ends the link: messages are written, and threads and tasks have ended when it returns.
    /// Returns the receiver's last counters, where it sent some after it was refused.
    pub(crate) async fn end(mut self) -> Option<Tally> {
        self.ending = true;
        self.outbox = None;
        let farewell = if self.deserted { Duration::ZERO } else { FAREWELL_MAX };
        let mut tally = None;
        // A side that was silent already has no last words.
        let is_there = !self.deserted && self.last_heard.elapsed() < HOLDING_MAX;
        let hears = self.refused && self.role == Role::Sender && is_there;
        if hears {
            let said = async {
                tokio::select! {
                    () = hear_out(&mut self.events, &mut tally) => {}
                    // The connection has ended, perhaps long ago.
                    _ = &mut self.reader => {}
                }
            };
            let _ = tokio::time::timeout(HOLDING_MAX, said).await;
            while let Ok(event) = self.events.try_recv() {
                keep_counters(event, &mut tally);
            }
        }
        self.inbox.close();
        let _ = tokio::time::timeout(farewell, &mut self.writer).await;
        self.writer.abort();
        // A connection that is closed with messages unread is reset, and our last ones are lost
        // with it. So the other side is heard out.
        if self.refused && is_there && !hears {
            let _ = tokio::time::timeout(HEARING_OUT_MAX, &mut self.reader).await;
        }
        self.reader.abort();
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

/// How long the last messages may take to leave.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// How long a side that was refused is heard out: it ends within a round trip or two.
const HEARING_OUT_MAX: Duration = Duration::from_secs(2);
/// How long the counters of a refused receiver are waited for: it makes durable what has come, for
/// 4 s at most, and then reports which bytes it holds.
const HOLDING_MAX: Duration = Duration::from_millis(4500);
