//! The client that follows an order: it is told what happens, and may stop the order or leave it.
//!
//! In: events of the sessions of an order, and the client's words. Out: messages to the client, in
//! batches; and the stop of an order whose client stopped it, was lost without a word, or does not
//! take in what it is told. It knows no sessions and no files.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::FaultCode;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{OrderEnd, OrderEvent, OrderLeft, OrderOutcome, OrderTaken};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::api::{Event, Observer, Stop, StopTrigger};
use crate::session::channel::{ReadHalf, WriteHalf, read_message, write_message};
use crate::third_party;

/// The client of an order. See the module.
pub(super) struct Follower {
    told: Arc<FollowerEvents>,
    stop: Stop,
    writing: JoinHandle<()>,
    listening: JoinHandle<()>,
}

/// The events that the client has not been told yet, and how it goes on.
pub(super) struct FollowerEvents {
    id: [u8; 16],
    queue: Mutex<FollowerQueue>,
    news: Notify,
    trigger: StopTrigger,
}

#[derive(Default)]
struct FollowerQueue {
    waiting: VecDeque<(OrderEvent, usize)>,
    /// The cost of all that wait.
    bytes: usize,
    state: FollowState,
}

/// Whether the client follows.
#[derive(Clone, Debug, Default, PartialEq)]
enum FollowState {
    /// It does.
    #[default]
    On,
    /// It has said that it leaves.
    Left,
    /// There is nobody any more.
    Gone,
    /// The order has ended, so.
    Ended(Box<OrderEnd>),
}

impl Follower {
    /// Tells the client that its order was taken, and follows it from now on.
    pub(super) fn begin((reader, writer): (ReadHalf, WriteHalf), id: [u8; 16]) -> Follower {
        let (trigger, stop) = Stop::new();
        let told = Arc::new(FollowerEvents { id, queue: Mutex::default(), news: Notify::new(), trigger });
        let writing = tokio::spawn(write(told.clone(), writer));
        let listening = tokio::spawn(listen(told.clone(), reader));
        Follower { told, stop, writing, listening }
    }

    /// Hears events that the client is to be told.
    pub(super) fn told(&self) -> Arc<FollowerEvents> {
        self.told.clone()
    }

    /// Stops the order when the client does.
    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Whether the client has left, so that the log alone tells how the order ends.
    pub(super) fn has_left(&self) -> bool {
        matches!(self.told.lock().state, FollowState::Left | FollowState::Gone)
    }

    /// Tells the client how the order ended, if it is still there.
    pub(super) async fn end(mut self, end: OrderEnd) {
        {
            let mut queue = self.told.lock();
            if queue.state == FollowState::On {
                queue.state = FollowState::Ended(Box::new(end));
            }
        }
        self.told.news.notify_one();
        // One that takes nothing in would keep its connection, and what waits for it, for good.
        if timeout(TAKEN_IN_WITHIN, &mut self.writing).await.is_err() {
            self.writing.abort();
        }
        self.listening.abort();
    }
}

impl FollowerEvents {
    fn lock(&self) -> MutexGuard<'_, FollowerQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client is not there any more: the order ends, unless it was left.
    fn lost(&self, code: FaultCode) {
        let mut queue = self.lock();
        if queue.state == FollowState::On {
            queue.state = FollowState::Gone;
            self.trigger.stop(code);
        }
        (queue.waiting, queue.bytes) = Default::default();
        drop(queue);
        self.news.notify_one();
    }

    /// The next events that fit one message, and whether that is all that there will ever be.
    fn batch(&self) -> (Vec<OrderEvent>, FollowState) {
        let mut queue = self.lock();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while queue.waiting.front().is_some_and(|(_, cost)| bytes == 0 || bytes + *cost <= BATCH_BYTES)
            && let Some((event, cost)) = queue.waiting.pop_front()
        {
            bytes += cost;
            batch.push(event);
        }
        queue.bytes -= bytes;
        (batch, queue.state.clone())
    }
}

impl Observer for FollowerEvents {
    fn event(&self, event: Event) {
        let Some(event) = third_party::said(&event) else { return };
        let mut queue = self.lock();
        if queue.state != FollowState::On {
            return;
        }
        let cost = cost(&event);
        if queue.bytes + cost > FOLLOWER_BYTES {
            drop(queue);
            tracing::info!(target: "longhaul::session", "the client that follows an order does not take in what it is told");
            return self.lost(FaultCode::TimedOut);
        }
        queue.bytes += cost;
        queue.waiting.push_back((event, cost));
        drop(queue);
        self.news.notify_one();
    }
}

/// Bytes that an event takes in a message and in memory, about.
fn cost(event: &OrderEvent) -> usize {
    EVENT_BYTES
        + match event {
            OrderEvent::Settled(file) => {
                let fault = if matches!(file.outcome, OrderOutcome::Failed(_)) { FAULT_BYTES } else { 0 };
                file.path.as_bytes().len() + file.placed.as_bytes().len() + fault
            }
            OrderEvent::Unsent(unsent) => unsent.path.len() + unsent.placed.len() + FAULT_BYTES,
            OrderEvent::Lost(..) => FAULT_BYTES,
            OrderEvent::NotKept { loss, .. } => loss.first.as_bytes().len(),
            _ => 0,
        }
}

async fn write(told: Arc<FollowerEvents>, mut writer: WriteHalf) {
    let taken = Message::OrderTaken(OrderTaken { id: told.id });
    let mut written = write_message(&mut writer, &taken).await;
    while written.is_ok() {
        let (events, state) = told.batch();
        let message = match (events.is_empty(), state) {
            (true, FollowState::On) => {
                // It hears each few seconds that the order goes on.
                let _ = timeout(SAYS_SOMETHING, told.news.notified()).await;
                let (events, state) = told.batch();
                if events.is_empty() && state != FollowState::On {
                    continue;
                }
                Message::OrderEvents(events)
            }
            (false, FollowState::On | FollowState::Ended(_)) => Message::OrderEvents(events),
            (_, FollowState::Gone) => return,
            (_, FollowState::Left) => {
                let _ = write_message(&mut writer, &Message::OrderLeft(OrderLeft { id: told.id })).await;
                let _ = writer.shutdown().await;
                return;
            }
            (true, FollowState::Ended(end)) => {
                let _ = write_message(&mut writer, &Message::OrderEnded(end)).await;
                let _ = writer.shutdown().await;
                return;
            }
        };
        written = match timeout(TAKEN_IN_WITHIN, write_message(&mut writer, &message)).await {
            Ok(written) => written,
            Err(_) => return told.lost(FaultCode::TimedOut),
        };
    }
    told.lost(FaultCode::Lost);
}

async fn listen(told: Arc<FollowerEvents>, mut reader: ReadHalf) {
    match read_message(&mut reader).await {
        Ok(Some(Message::OrderLeft(left))) if left.id == told.id => {
            let mut queue = told.lock();
            if queue.state == FollowState::On {
                queue.state = FollowState::Left;
                (queue.waiting, queue.bytes) = Default::default();
            }
            drop(queue);
            told.news.notify_one();
        }
        // It waits for the end.
        Ok(Some(Message::Refuse(_))) => {
            told.trigger.stop(FaultCode::Interrupted);
            let _ = read_message(&mut reader).await;
            told.lost(FaultCode::Lost);
        }
        Ok(Some(_)) => told.lost(FaultCode::Protocol),
        Ok(None) | Err(_) => told.lost(FaultCode::Lost),
    }
}

/// Bytes of events that a client may have still to take in: the files of some seconds. More is
/// memory that nobody bounds.
pub(super) const FOLLOWER_BYTES: usize = 4 << 20;
/// Bytes of events in one message, far below what any may have.
const BATCH_BYTES: usize = 48 << 10;
/// Bytes of an event without names and texts.
const EVENT_BYTES: usize = 192;
/// Bytes of the texts of a fault.
const FAULT_BYTES: usize = 3 << 10;
/// The client hears something at least so often.
const SAYS_SOMETHING: Duration = Duration::from_secs(5);
/// A client that takes in nothing for so long is gone.
const TAKEN_IN_WITHIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use longhaul_proto::wire::message::OrderVerdict;
    use tokio::io::AsyncReadExt;

    use super::*;

    const ID: [u8; 16] = [9; 16];

    fn end() -> OrderEnd {
        OrderEnd {
            verdict: OrderVerdict::Complete,
            files: Default::default(),
            bytes: Default::default(),
            failures: Vec::new(),
            scanned: true,
            millis: 0,
            limits: Vec::new(),
        }
    }

    /// An order with the two ends of its client.
    fn followed(takes: usize) -> (Follower, ReadHalf, WriteHalf) {
        let ((near, far), (hears, says)) = (tokio::io::duplex(takes), tokio::io::duplex(4096));
        (Follower::begin((Box::new(hears), Box::new(near)), ID), Box::new(far), Box::new(says))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_in_nothing_is_let_go_at_the_end_of_its_order() {
        let (follower, mut reader, _writer) = followed(8);
        timeout(TAKEN_IN_WITHIN * 2, follower.end(end())).await.expect("it is not waited for");
        let mut told = Vec::new();
        timeout(TAKEN_IN_WITHIN, reader.read_to_end(&mut told))
            .await
            .expect("its connection is closed")
            .expect("in memory");
        assert!(told.len() <= 8, "nothing is written any more: {told:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_lost_stops_its_order_and_one_that_leaves_does_not() {
        let (follower, reader, writer) = followed(4096);
        drop((reader, writer));
        assert_eq!(timeout(TAKEN_IN_WITHIN, follower.stop().stopped()).await, Ok(FaultCode::Lost));
        let (follower, mut reader, mut writer) = followed(4096);
        write_message(&mut writer, &Message::OrderLeft(OrderLeft { id: ID })).await.expect("said");
        let taken = Message::OrderTaken(OrderTaken { id: ID });
        assert_eq!(read_message(&mut reader).await, Ok(Some(taken)));
        while read_message(&mut reader).await.expect("messages") != Some(Message::OrderLeft(OrderLeft { id: ID })) {}
        drop((reader, writer));
        assert!(follower.has_left());
        assert!(timeout(TAKEN_IN_WITHIN, follower.stop().stopped()).await.is_err(), "it goes on");
        let (follower, _reader, mut writer) = followed(4096);
        write_message(&mut writer, &Message::OrderLeft(OrderLeft { id: [1; 16] })).await.expect("said");
        assert_eq!(
            timeout(TAKEN_IN_WITHIN, follower.stop().stopped()).await,
            Ok(FaultCode::Protocol),
            "another's name"
        );
    }
}
