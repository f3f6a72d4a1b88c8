//! The end of a link: last words, and how long they are waited for.
//!
//! In: the fault that a session ends with, if any. Out: a control channel that is closed in order where that is possible, and no thread or
//! task that is left. Decides nothing.

use std::time::Duration;

use longhaul_core::Fault;
use longhaul_proto::Message;

use super::Link;

impl Link {
    /// Says `fault` to the other side, unless it said so itself, and closes the lanes at once.
    pub(crate) fn refuse(&mut self, fault: &Fault, told_by_peer: bool) {
        if !told_by_peer {
            self.say(Message::Refuse(fault.clone()));
            self.refused = true;
        }
        self.ending = true;
        self.inbox.close();
        self.lanes.close_all();
    }

    /// Ends the link: what was said is written, threads and tasks are over when this returns.
    pub(crate) async fn end(mut self) {
        self.ending = true;
        self.inbox.close();
        self.outbox = None;
        let farewell = if self.deserted { Duration::ZERO } else { FAREWELL_MAX };
        let _ = tokio::time::timeout(farewell, &mut self.writer).await;
        self.writer.abort();
        // A connection that is closed with words unread is reset, and our last ones are lost with it: hear the other side out.
        if self.refused && !self.deserted {
            let _ = tokio::time::timeout(HEARING_OUT_MAX, &mut self.reader).await;
        }
        self.reader.abort();
        let lanes = self.lanes;
        let _ = tokio::task::spawn_blocking(move || lanes.join()).await;
    }
}

/// Last words are given so long to leave.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// A side that was refused ends within a round trip or two; one that does not is left.
const HEARING_OUT_MAX: Duration = Duration::from_secs(2);
