//! The client that follows an order: it is told what happens, and may stop the order or leave it.
//!
//! In: events of the sessions of an order, and the client's words. Out: messages to the client, in
//! batches; and the stop of an order whose client stopped it, was lost without a word, or takes in
//! nothing. A slow one is not told of each name. It knows no sessions and no files.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{OrderEnd, OrderEvent, OrderLeft, OrderOutcome, OrderTaken};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::order_ends::EndHearing;
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
    needs: FollowerNeeds,
    /// Bytes of events that may wait.
    room: usize,
    queue: Mutex<FollowerQueue>,
    news: Notify,
    trigger: StopTrigger,
}

#[derive(Default)]
struct FollowerQueue {
    waiting: VecDeque<(OrderEvent, usize)>,
    /// The cost of all that wait.
    bytes: usize,
    /// Names that did well and of which it is not told.
    unheard: u64,
    /// Whether it was too slow for what it must be told: no more is.
    is_full: bool,
    state: FollowState,
}

/// The names of which a client must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowerNeeds {
    /// It is told each one: for a list of all digests, or of what would be done.
    Each,
    /// It is told each one that failed. Where it is slow, it learns the number of the others.
    Failures,
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
    /// Tells the client that its order was taken, and follows it from now on. So many bytes of
    /// events may wait for it.
    pub(super) fn begin(
        (reader, writer): (ReadHalf, WriteHalf),
        id: [u8; 16],
        (needs, room): (FollowerNeeds, usize),
    ) -> Follower {
        let (trigger, stop) = Stop::new();
        let told = Arc::new(FollowerEvents { id, needs, room, queue: Mutex::default(), news: Notify::new(), trigger });
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

    /// Stops the order, as its client does that came back.
    pub(super) fn trigger(&self) -> StopTrigger {
        self.told.trigger.clone()
    }

    /// Whether the client has left, so that the log alone tells how the order ends.
    pub(super) fn has_left(&self) -> bool {
        matches!(self.told.lock().state, FollowState::Left | FollowState::Gone)
    }

    /// Whether the client is there to hear how the order ends.
    pub(super) fn hearing(&self) -> EndHearing {
        if self.has_left() { EndHearing::Absent } else { EndHearing::Present }
    }

    /// The fault of an order that was stopped as its client was too slow.
    pub(super) fn too_slow(&self) -> Option<Fault> {
        let why = "the client took in too slowly what it must be told of the files, so the copy was stopped";
        let fault = || Fault::new(FaultCode::TimedOut, Blame::Path, why).hint(hint::Again::WhereItEnded);
        self.told.lock().is_full.then(fault)
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
        let patience = if self.told.needs == FollowerNeeds::Each { ALL_TAKEN_IN_WITHIN } else { TAKEN_IN_WITHIN };
        if timeout(patience, &mut self.writing).await.is_err() {
            self.told.lock().shorten();
            if timeout(TAKEN_IN_WITHIN, &mut self.writing).await.is_err() {
                self.writing.abort();
            }
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
        if queue.waiting.is_empty() && queue.unheard > 0 && matches!(queue.state, FollowState::Ended(_)) {
            batch.push(OrderEvent::Unheard(std::mem::take(&mut queue.unheard)));
        }
        (batch, queue.state.clone())
    }
}

impl Observer for FollowerEvents {
    fn event(&self, event: Event) {
        let Some(event) = third_party::said(&event) else { return };
        let mut queue = self.lock();
        if queue.state != FollowState::On || queue.is_full {
            return;
        }
        let cost = cost(&event);
        let is_counter = matches!(event, OrderEvent::Moved(_));
        let may_go = is_counter || (self.needs == FollowerNeeds::Failures && did_well(&event));
        // The others have half of the room for themselves.
        let room = if may_go { self.room / 2 } else { self.room };
        if queue.bytes + cost > room {
            if may_go {
                queue.unheard += u64::from(!is_counter);
                return;
            }
            queue.is_full = true;
            (queue.waiting, queue.bytes) = Default::default();
            drop(queue);
            tracing::info!(target: "longhaul::session", "the client that follows an order takes in too slowly what it is told");
            return self.trigger.stop(FaultCode::TimedOut);
        }
        queue.bytes += cost;
        queue.waiting.push_back((event, cost));
        drop(queue);
        self.news.notify_one();
    }
}

impl FollowerQueue {
    /// Leaves out the names that did well.
    fn shorten(&mut self) {
        let before = self.waiting.len();
        self.waiting.retain(|(event, _)| !did_well(event));
        self.unheard += (before - self.waiting.len()) as u64;
        self.bytes = self.waiting.iter().map(|(_, cost)| cost).sum();
    }
}

/// Whether it is a name that did not fail.
fn did_well(event: &OrderEvent) -> bool {
    matches!(event, OrderEvent::Settled(file) if !matches!(file.outcome, OrderOutcome::Failed(_)))
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

/// Bytes of events that a client may have still to take in: the files of some seconds. More would
/// be memory that nobody bounds.
pub(super) const FOLLOWER_BYTES: usize = 4 << 20;
/// Bytes of events in one message, far below what any may have.
const BATCH_BYTES: usize = 48 << 10;
/// Bytes of an event without names and texts.
pub(super) const EVENT_BYTES: usize = 192;
/// Bytes of the texts of a fault.
const FAULT_BYTES: usize = 3 << 10;
/// The client hears something at least so often.
const SAYS_SOMETHING: Duration = Duration::from_secs(5);
/// A client that takes in nothing for so long is gone.
const TAKEN_IN_WITHIN: Duration = Duration::from_secs(30);
/// A client that must be told of each name takes in the last of it within this time.
const ALL_TAKEN_IN_WITHIN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use longhaul_core::{RelPath, Sums};
    use longhaul_proto::wire::message::OrderVerdict;
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::api::{FileEvent, FileStatus, OwnFacts};

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
        following(takes, FollowerNeeds::Failures)
    }

    fn following(takes: usize, needs: FollowerNeeds) -> (Follower, ReadHalf, WriteHalf) {
        let ((near, far), (hears, says)) = (tokio::io::duplex(takes), tokio::io::duplex(4096));
        (Follower::begin((Box::new(hears), Box::new(near)), ID, (needs, FOLLOWER_BYTES)), Box::new(far), Box::new(says))
    }

    fn settled(name: u64, status: FileStatus) -> Event {
        let path = RelPath::new(name.to_string()).expect("a path");
        Event::File(FileEvent {
            placed: path.clone(),
            path,
            status,
            bytes: 1,
            b3: None,
            regular: true,
            renamed: false,
            own: OwnFacts::default(),
            sums: Sums::default(),
        })
    }

    /// The names, the failures among them, and the number of those unheard, of which a client is
    /// told before the end, if it reads a message after each pause.
    async fn heard(mut reader: ReadHalf, pause: Duration) -> (u64, u64, u64) {
        let (mut names, mut failed, mut unheard) = (0, 0, 0);
        loop {
            tokio::time::sleep(pause).await;
            match read_message(&mut reader).await.expect("messages") {
                Some(Message::OrderEvents(events)) => events.iter().for_each(|event| match event {
                    OrderEvent::Settled(_) => {
                        names += 1;
                        failed += u64::from(!did_well(event));
                    }
                    OrderEvent::Unheard(count) => unheard += count,
                    _ => {}
                }),
                Some(Message::OrderTaken(_)) => {}
                Some(Message::OrderEnded(_)) => return (names, failed, unheard),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_told_of_each_failure_and_how_many_other_names_there_were() {
        let (follower, reader, _writer) = followed(4096);
        let fault = Fault::new(FaultCode::Io, Blame::Local, "x");
        for name in 0..40_000 {
            let status = if name % 100 == 99 { FileStatus::Failed(fault.clone()) } else { FileStatus::Committed };
            follower.told().event(settled(name, status));
        }
        assert!(follower.too_slow().is_none());
        let ((names, failed, unheard), ()) = tokio::join!(heard(reader, Duration::ZERO), follower.end(end()));
        assert_eq!((names + unheard, failed), (40_000, 400));
        assert!(unheard > 10_000, "{unheard}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_must_hear_each_name_and_cannot_is_told_the_end_and_why() {
        let (follower, reader, _writer) = following(4096, FollowerNeeds::Each);
        (0..40_000).for_each(|name| follower.told().event(settled(name, FileStatus::Committed)));
        assert_eq!(timeout(TAKEN_IN_WITHIN, follower.stop().stopped()).await, Ok(FaultCode::TimedOut));
        assert_eq!(follower.too_slow().map(|fault| fault.code), Some(FaultCode::TimedOut));
        assert!(!follower.has_left());
        let ((_, _, unheard), ()) = tokio::join!(heard(reader, Duration::ZERO), follower.end(end()));
        assert_eq!(unheard, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_wait_at_the_end_of_an_order_do_not_keep_its_end_from_a_slow_client() {
        let (follower, reader, _writer) = followed(4096);
        (0..2000).for_each(|name| follower.told().event(settled(name, FileStatus::Committed)));
        let slowly = TAKEN_IN_WITHIN / 4;
        let ((names, _, unheard), ()) = tokio::join!(heard(reader, slowly), follower.end(end()));
        assert_eq!(names + unheard, 2000);
        assert!(unheard > 500, "{unheard}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_in_nothing_is_let_go_at_the_end_of_its_order() {
        let (follower, mut reader, _writer) = followed(8);
        timeout(TAKEN_IN_WITHIN * 3, follower.end(end())).await.expect("it is not waited for");
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
