//! Owns a session's end of the control connection: its two tasks, the messages that wait on either
//! way, and the bounds of both.
//!
//! In: messages to send, the room of messages that were read, and once a second a look at what the
//! other side takes in. Out: how much waits, and the fault of a side that does not read. It knows
//! no machine, and not the meaning of messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Fault, Role};
use longhaul_proto::Message;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::SILENCE_MAX;
use crate::session::SessionEvent;
use crate::session::channel::{ReadHalf, WriteHalf, start_writer};
use crate::session::inbox::{Inbox, read_all};
use crate::session::outbox::{Gauge, Outbox, Queue, Uptake, too_far_behind};
use crate::session::overhead::Overhead;

/// The control connection of a session. See the module.
pub(super) struct Connection {
    /// Messages for the other side. `None` once the last was said.
    outbox: Option<Outbox>,
    /// Watches whether the other side takes in its messages.
    uptake: Uptake,
    /// The memory of those messages, and of entries.
    overhead: Overhead,
    inbox: Inbox,
    /// The room of messages that are being dealt with.
    inbox_room: Option<OwnedSemaphorePermit>,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
}

impl Connection {
    /// Starts the two tasks. What is read goes to `sink`.
    pub(super) fn start(
        (reader, writer): (ReadHalf, WriteHalf),
        role: Role,
        sink: UnboundedSender<SessionEvent>,
        now: Instant,
    ) -> Connection {
        let (outbox, writer) = start_writer(writer);
        let inbox = Inbox::new();
        // A sender reads while messages wait, so the sides cannot wait for each other.
        let queue = (role == Role::Receiver).then(|| outbox.queue.clone());
        let reader = tokio::spawn(read_all(reader, inbox.clone(), queue, sink));
        Connection {
            outbox: Some(outbox),
            uptake: Uptake::new(now, SILENCE_MAX),
            overhead: Overhead::default(),
            inbox,
            inbox_room: None,
            writer,
            reader,
        }
    }

    /// Has the session's memory besides its buffers counted.
    pub(super) fn set_overhead(&mut self, overhead: Overhead) {
        self.overhead = overhead;
    }

    /// Sends a message to the other side, if the last was not said yet.
    pub(super) fn send(&self, message: Message) {
        if let Some(outbox) = &self.outbox {
            outbox.send(message);
        }
    }

    /// The bytes that wait for the other side.
    pub(super) fn gauge(&self) -> Gauge {
        self.outbox.as_ref().map(Outbox::gauge).unwrap_or_default()
    }

    /// The fault of a side that takes in too little of what it is told. Asked once a second.
    pub(super) fn find_deaf(&mut self, now: Instant) -> Option<Fault> {
        let gauge = self.gauge();
        let not_taken_in = self.uptake.look(now, gauge);
        not_taken_in.or_else(|| gauge.is_over().then(|| too_far_behind(gauge)))
    }

    /// Whether there is no memory for the messages that wait and for the entries held, which take
    /// `entries_bytes`. What is remembered besides, in so many bytes, is forgotten before that: it
    /// is let go behind entries that do not come as long as there is no memory.
    pub(super) fn is_cramped(&mut self, entries_bytes: usize, besides: (usize, impl FnOnce())) -> bool {
        let (needed, (remembered, forget)) = (self.gauge().waiting + entries_bytes, besides);
        let mut is_cramped = !self.overhead.holds(needed + remembered);
        if is_cramped && remembered > 0 {
            forget();
            is_cramped = !self.overhead.holds(needed);
        }
        if let Some(outbox) = &self.outbox {
            outbox.set_cramped(is_cramped);
        }
        is_cramped
    }

    /// Keeps the room of a message until [`Connection::free_room`], as it is being dealt with.
    pub(super) fn keep_room(&mut self, room: OwnedSemaphorePermit) {
        match &mut self.inbox_room {
            Some(held) => held.merge(room),
            None => self.inbox_room = Some(room),
        }
    }

    /// Gives back the room of messages that were dealt with.
    pub(super) fn free_room(&mut self) {
        self.inbox_room = None;
    }

    /// Drops what the other side says from now on. It is read all the same.
    pub(super) fn stop_listening(&self) {
        self.inbox.close();
    }

    /// Ends the messages to the other side: the writer ends when those that wait are written.
    pub(super) fn stop_speaking(&mut self) {
        self.outbox = None;
    }

    /// Waits until everything was written, for at most `patience`, and ends the writer.
    pub(super) async fn finish_writing(&mut self, patience: Duration) {
        let _ = tokio::time::timeout(patience, &mut self.writer).await;
        self.writer.abort();
    }

    /// Waits until the other side has closed the connection. To be waited for once.
    pub(super) async fn read_to_end(&mut self) {
        let _ = (&mut self.reader).await;
    }

    /// Ends the reader at once.
    pub(super) fn stop_reading(&self) {
        self.reader.abort();
    }

    /// The queue to the writer. `None` once the last message was said.
    pub(super) fn queue(&self) -> Option<Arc<Queue>> {
        self.outbox.as_ref().map(|outbox| outbox.queue.clone())
    }
}
