//! Owns the messages that a session has sent and its control connection has not taken yet, counted
//! in bytes.
//!
//! In: messages from a session loop, which never waits. Out: bytes for the writer, the urgent class
//! first, and a [`Gauge`] for the session. A peer that does not read stops first the work begun for
//! it, then the reading of its messages, and at last ends the session. It knows no streams, and of
//! messages only the kinds of which the latest alone counts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Class, Heartbeat};
use tokio::sync::Notify;

/// The loop's end of the queue to the writer. Dropping it closes the queue: the writer ends when
/// everything is written.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) queue: Arc<Queue>,
}

/// Messages between a loop and its writer.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<OutboxState>,
    /// Notified when there is something to write, or nothing more will come.
    filled: Notify,
    /// Notified when something was written.
    written: Notify,
}

#[derive(Debug, Default)]
struct OutboxState {
    classes: [VecDeque<Word>; 3],
    /// Messages of which only the latest counts, by number. Each has one place in its class.
    latest: BTreeMap<u8, Message>,
    /// Bytes that the words in `classes` occupy.
    queued: usize,
    /// Bytes that the writer has in hand.
    in_hand: usize,
    /// Bytes that the connection took so far.
    taken: u64,
    /// Whether there is no memory for more than an honest peer leaves waiting.
    is_cramped: bool,
    /// Whether no more messages will come.
    closed: bool,
    /// Whether the connection broke: further messages are dropped.
    broken: bool,
}

#[derive(Debug)]
enum Word {
    /// A message as it travels.
    Encoded(Vec<u8>),
    /// The place of the latest message of a number.
    Latest(u8),
}

/// The measures of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauge {
    /// Bytes that the connection has not taken.
    pub(crate) waiting: usize,
    /// Bytes that it took so far.
    pub(crate) taken: u64,
    /// Whether there is no memory for more than an honest peer leaves waiting.
    is_cramped: bool,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox { queue: Arc::default() }
    }

    /// Queues a message in its class. After the channel broke the message is dropped; the reader
    /// reports the fault.
    pub(crate) fn send(&self, message: Message) {
        self.queue.send(message);
    }

    /// The bytes that wait.
    pub(crate) fn gauge(&self) -> Gauge {
        self.queue.gauge()
    }

    /// Sets whether there is no memory for more than an honest peer leaves waiting. If so, a
    /// receiver stops reading earlier.
    pub(crate) fn set_cramped(&self, is_cramped: bool) {
        if std::mem::replace(&mut self.queue.lock().is_cramped, is_cramped) && !is_cramped {
            self.queue.written.notify_one();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.filled.notify_one();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message in its class, unless the channel broke or the queue is closed.
    pub(crate) fn send(&self, message: Message) {
        let mut waiting = self.lock();
        if !waiting.broken && !waiting.closed {
            waiting.push(message);
            self.filled.notify_one();
        }
    }

    /// The bytes that wait.
    pub(crate) fn gauge(&self) -> Gauge {
        let waiting = self.lock();
        Gauge { waiting: waiting.queued + waiting.in_hand, taken: waiting.taken, is_cramped: waiting.is_cramped }
    }

    /// Fills `batch`, which is empty, with the bytes that leave next. Returns false when nothing
    /// more will come.
    pub(crate) async fn fill(&self, batch: &mut Vec<u8>) -> bool {
        loop {
            {
                let mut waiting = self.lock();
                waiting.fill(batch);
                if !batch.is_empty() || waiting.closed {
                    return !batch.is_empty();
                }
            }
            self.filled.notified().await;
        }
    }

    /// Records that the connection took this many bytes of the batch.
    pub(crate) fn took(&self, bytes: usize) {
        let mut waiting = self.lock();
        waiting.in_hand = waiting.in_hand.saturating_sub(bytes);
        waiting.taken += bytes as u64;
        drop(waiting);
        self.written.notify_one();
    }

    /// Records that the connection broke.
    pub(crate) fn break_off(&self) {
        let mut waiting = self.lock();
        *waiting = OutboxState { broken: true, closed: true, taken: waiting.taken, ..OutboxState::default() };
        drop(waiting);
        self.written.notify_one();
    }

    /// Waits until there is room for the answers that may follow from another message of the peer.
    pub(crate) async fn has_room(&self) {
        while self.gauge().stops_reading() {
            self.written.notified().await;
        }
    }
}

impl OutboxState {
    fn push(&mut self, message: Message) {
        let class = match message.class() {
            Class::Verdict => 0,
            Class::Want => 1,
            Class::Page => 2,
        };
        let number = message.number();
        let word = if only_the_latest_counts(&message) {
            let message = match self.latest.remove(&number) {
                Some(earlier) => {
                    self.latest.insert(number, merged(&earlier, message));
                    return;
                }
                None => message,
            };
            self.latest.insert(number, message);
            Word::Latest(number)
        } else {
            let mut bytes = message.encode();
            // The vector grew by doubling.
            bytes.shrink_to_fit();
            Word::Encoded(bytes)
        };
        self.queued += word.bytes();
        self.classes[class].push_back(word);
    }

    fn fill(&mut self, batch: &mut Vec<u8>) {
        while batch.len() < BATCH_BYTES
            && let Some(word) = self.classes.iter_mut().find_map(VecDeque::pop_front)
        {
            self.queued = self.queued.saturating_sub(word.bytes());
            match word {
                Word::Encoded(bytes) => batch.extend_from_slice(&bytes),
                Word::Latest(number) => {
                    batch.extend(self.latest.remove(&number).map(|message| message.encode()).unwrap_or_default());
                }
            }
        }
        self.in_hand += batch.len();
    }
}

impl Word {
    /// The bytes that it occupies in memory.
    fn bytes(&self) -> usize {
        WORD_BYTES + if let Word::Encoded(bytes) = self { bytes.capacity() } else { 0 }
    }
}

/// Whether a message makes earlier ones of its kind meaningless. Messages that are repeated as time
/// passes do not pile up before a peer that does not read.
fn only_the_latest_counts(message: &Message) -> bool {
    matches!(
        message,
        Message::Heartbeat(_)
            | Message::Tally(_)
            | Message::Limiting(_)
            | Message::Rate(_)
            | Message::LaneTarget(_)
            | Message::Targets(_)
    )
}

/// The one message that replaces two. A question stays one.
fn merged(earlier: &Message, later: Message) -> Message {
    match (earlier, later) {
        (Message::Heartbeat(earlier), Message::Heartbeat(later)) => {
            Message::Heartbeat(Heartbeat { answer: earlier.answer || later.answer, ..later })
        }
        (_, later) => later,
    }
}

impl Gauge {
    /// Whether more bytes wait than an honest peer leaves waiting: nothing new is begun for it.
    pub(crate) fn is_backlogged(self) -> bool {
        self.waiting > BACKLOG_BYTES_MAX
    }

    /// Whether more bytes wait than can follow from everything that a peer was allowed: a receiver
    /// reads no more of its messages.
    pub(crate) fn stops_reading(self) -> bool {
        self.waiting > if self.is_cramped { BACKLOG_BYTES_MAX } else { READ_AHEAD_BYTES_MAX }
    }

    /// Whether more bytes wait than can follow from the work that was begun.
    pub(crate) fn is_over(self) -> bool {
        self.waiting > OUTBOX_BYTES_MAX
    }
}

/// Watches whether a peer takes in its messages.
#[derive(Debug)]
pub(crate) struct Uptake {
    since: Instant,
    taken: u64,
    /// How long it may take in nothing.
    patience: Duration,
}

impl Uptake {
    pub(crate) fn new(now: Instant, patience: Duration) -> Uptake {
        Uptake { since: now, taken: 0, patience }
    }

    /// The fault by which the session ends, if the peer has taken in nothing for too long, or next
    /// to nothing where too much waits for it.
    pub(crate) fn look(&mut self, now: Instant, gauge: Gauge) -> Option<Fault> {
        let enough = if gauge.is_backlogged() { UPTAKE_BYTES_MIN } else { 1 };
        if gauge.waiting == 0 || gauge.taken - self.taken >= enough {
            (self.since, self.taken) = (now, gauge.taken);
        }
        (now.saturating_duration_since(self.since) >= self.patience).then(|| not_taken_in(gauge, self.patience))
    }
}

fn not_taken_in(gauge: Gauge, patience: Duration) -> Fault {
    let (seconds, bytes) = (patience.as_secs(), gauge.waiting);
    Fault::new(
        FaultCode::TimedOut,
        Blame::Peer,
        format_args!("the other side did not take in what it was told for {seconds} s: {bytes} bytes wait for it"),
    )
    .hint(hint::Again::LookingAtTheOtherHost)
}

/// The fault of a side for which more bytes wait than an honest one can leave.
pub(crate) fn too_far_behind(gauge: Gauge) -> Fault {
    let bytes = gauge.waiting;
    Fault::new(
        FaultCode::Protocol,
        Blame::Peer,
        format_args!("the other side does not take in what it is told: {bytes} bytes wait for it"),
    )
}

/// Messages that wait together leave in one write of about this size, bytes.
pub(crate) const BATCH_BYTES: usize = 128 << 10;
/// Bytes that a message's place takes besides the message, with the allocator's part.
const WORD_BYTES: usize = 64;
/// While more bytes than this wait, no page is asked for or sent, no chunk wanted and none read. An
/// ordinary session stays below it, so that a path of 300 ms loses nothing. A sender queues at most
/// 8 pages of 72 KiB and, on safe lanes, a declaration of 85 bytes for each of 33,792 units: 3.5
/// MB. A receiver queues 60 bytes of verdict and 60 of outcome for each of 15,000 files a second:
/// 0.6 MB in a round trip, and 4 MB if all 32,768 entries without outcome end at once.
const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// While more bytes than this wait, a receiver reads nothing. It holds the messages that may still
/// follow after it stopped asking: 32,768 entries that all fail with 300 bytes of reasons are 10
/// MB. A sender never stops reading, so two honest sides never wait for each other.
const READ_AHEAD_BYTES_MAX: usize = 16 << 20;
/// With more bytes than this the session ends at once. Three texts of a fault can have 3 KiB, but
/// names of such lengths narrow the window.
const OUTBOX_BYTES_MAX: usize = 64 << 20;
/// Bytes that a peer with a backlog must take in within its patience: 70 kbit/s, for 30 s. A byte
/// now and then keeps no session.
const UPTAKE_BYTES_MIN: u64 = 256 << 10;

#[cfg(test)]
mod tests;
