//! The end of a link: last words, and how long they are waited for.
//!
//! In: the fault that a session ends with, if any. Out: a control channel that is closed in order
//! where that is possible, and no thread or task that is left. Decides nothing.

use std::time::Duration;

use longhaul_core::{Fault, Role};
use longhaul_proto::Message;
use longhaul_proto::wire::message::Tally;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{ControlLink, Inbound, SessionEvent};

impl ControlLink {
    /// Says `fault` to the other side, unless it said so itself, and closes the lanes at once.
    pub(crate) fn refuse(&mut self, fault: &Fault, told_by_peer: bool) {
        if !told_by_peer {
            self.say(Message::Refuse(fault.clone()));
            self.refused = true;
        }
        self.ending = true;
        self.lanes.close_all();
        // A sender is told what is held, and hears that until it ends.
        if told_by_peer || self.role == Role::Receiver {
            self.inbox.close();
        }
    }

    /// Ends the link: what was said is written, threads and tasks are over when this returns. Gives
    /// the receiver's last counters, where it said some after it was refused.
    pub(crate) async fn end(mut self) -> Option<Tally> {
        self.ending = true;
        self.outbox = None;
        let farewell = if self.deserted { Duration::ZERO } else { FAREWELL_MAX };
        let mut tally = None;
        // One that was silent already has no last words.
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
        // A connection that is closed with words unread is reset, and our last ones are lost with
        // it: hear the other side out.
        if self.refused && is_there && !hears {
            let _ = tokio::time::timeout(HEARING_OUT_MAX, &mut self.reader).await;
        }
        self.reader.abort();
        let lanes = self.lanes;
        let _ = tokio::task::spawn_blocking(move || lanes.join()).await;
        tally
    }
}

/// Takes in what the other side says until it ends, and keeps its latest counters.
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

/// Last words are given so long to leave.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// A side that was refused ends within a round trip or two; one that does not is left.
const HEARING_OUT_MAX: Duration = Duration::from_secs(2);
/// A receiver that is refused makes durable what has come, for 4 s at most, and says then what it
/// holds.
const HOLDING_MAX: Duration = Duration::from_millis(4500);
