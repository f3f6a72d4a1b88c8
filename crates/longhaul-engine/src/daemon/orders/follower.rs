//! The client that follows an order: it is told what happens, and may stop the order or leave it.
//!
//! In: events of the sessions of an order, and the client's words. Out: messages to the client, in
//! batches; and the stop of an order whose client stopped it, was lost without a word, or takes in
//! nothing. A slow one is not told of each name that did well, and the work waits while much of
//! what it must be told has not been taken in; `claim` has the memory for that. Of sessions it
//! knows only that one is held up meanwhile, and of files nothing.

mod claim;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{OrderEnd, OrderEvent, OrderLeft, OrderOutcome, OrderTaken, OrderUnsent};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, timeout};

pub(super) use self::claim::FollowerClaim;
use super::ends::EndHearing;
use crate::api::{Event, Observer, Stop, StopTrigger};
use crate::session::channel::{ReadHalf, WriteHalf, read_message, write_message};
use crate::session::control::holdup::Holdup;
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
    /// Bytes of events that may wait by what was claimed before the order began.
    room: usize,
    queue: Mutex<FollowerQueue>,
    /// Its lock is taken within that of the queue.
    claim: Mutex<FollowerClaim>,
    news: Notify,
    trigger: StopTrigger,
}

#[derive(Default)]
struct FollowerQueue {
    waiting: VecDeque<WaitingEvent>,
    /// The cost of all that wait.
    bytes: usize,
    /// The cost of those among them that are owed.
    owed: usize,
    /// The work that goes on once less is owed.
    paused: Option<Waker>,
    /// Messages that the client's connection has taken.
    taken: u64,
    /// The session that waits while the work does.
    session: Option<Holdup>,
    /// Names that did well and of which it is not told.
    unheard: u64,
    /// The reason why it is told no more of what it must be told.
    full: Option<Fault>,
    state: FollowState,
}

/// An event that the client has not been told yet.
struct WaitingEvent {
    event: OrderEvent,
    cost: usize,
    /// Whether it may not be left out.
    is_owed: bool,
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
    /// Tells the client that its order was taken, and follows it from now on. Events may wait for
    /// it in what is claimed for them.
    pub(super) fn begin(
        (reader, writer): (ReadHalf, WriteHalf),
        id: [u8; 16],
        (needs, claim): (FollowerNeeds, FollowerClaim),
    ) -> Follower {
        let (trigger, stop) = Stop::new();
        let (room, claim, queue) = (claim.room(), Mutex::new(claim), Mutex::default());
        let told = Arc::new(FollowerEvents { id, needs, room, queue, claim, news: Notify::new(), trigger });
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

    /// The fault of an order that was stopped as what its client must be told had no room: the
    /// client was too slow, or the daemon had no memory left.
    pub(super) fn too_full(&self) -> Option<Fault> {
        self.told.lock().full.clone()
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
        let (ended, each) = (Instant::now(), self.told.needs == FollowerNeeds::Each);
        let whole = if each { ALL_TAKEN_IN_WITHIN / 2 } else { TAKEN_IN_WITHIN };
        if timeout(whole, &mut self.writing).await.is_err() {
            let mut taken = {
                let mut queue = self.told.lock();
                queue.shorten();
                self.told.give_back(&queue);
                queue.taken
            };
            while timeout(TAKEN_IN_WITHIN, &mut self.writing).await.is_err() {
                let before = std::mem::replace(&mut taken, self.told.lock().taken);
                if taken == before || ended.elapsed() >= ALL_TAKEN_IN_WITHIN {
                    break;
                }
            }
        }
    }
}

impl Drop for Follower {
    /// Nothing is written or heard any more: the connection and the claim are given back.
    fn drop(&mut self) {
        self.writing.abort();
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
        queue.forget();
        self.give_back(&queue);
        drop(queue);
        self.news.notify_one();
    }

    /// Has memory claimed for what waits.
    ///
    /// # Errors
    /// The limit of the daemon's memory that stands in the way.
    fn claim_for(&self, queue: &FollowerQueue) -> Result<(), Fault> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).hold(queue.bytes)
    }

    /// Gives back what is claimed beyond what waits: less than before, so that it cannot fail.
    fn give_back(&self, queue: &FollowerQueue) {
        let _ = self.claim_for(queue);
    }

    /// Has memory claimed for what waits, in short where there is no other way.
    ///
    /// # Errors
    /// [`FaultCode::TimedOut`] for a client that is too slow even so; [`FaultCode::Busy`] if the
    /// daemon has no memory for it.
    fn make_room(&self, queue: &mut FollowerQueue) -> Result<(), Fault> {
        if queue.bytes <= ROOMS_BEYOND * self.room && self.claim_for(queue).is_ok() {
            return Ok(());
        }
        queue.tell_in_short();
        if queue.bytes > ROOMS_BEYOND * self.room {
            let why = "the client took in too slowly what it must be told of the files, so the copy was stopped";
            return Err(Fault::new(FaultCode::TimedOut, Blame::Path, why).hint(hint::Again::WhereItEnded));
        }
        self.claim_for(queue)
    }

    /// Has this session say that it is held up while its work waits.
    pub(super) fn set_session(&self, session: Option<Holdup>) {
        self.lock().session = session;
    }

    /// Carries out this work, but for the time in which the client has much to take in of what it
    /// must be told: the work waits then, unless it is stopped, and its session says so.
    pub(super) async fn paced<W: Future>(&self, mut stop: Stop, work: W) -> W::Output {
        let (mut stopped, mut work) = (pin!(stop.stopped()), pin!(work));
        let (mut is_stopped, mut waits, mut signs) = (false, false, interval(FOLLOWER_HEARS_EVERY));
        poll_fn(|context| {
            is_stopped = is_stopped || stopped.as_mut().poll(context).is_ready();
            let mut queue = self.lock();
            if !is_stopped && queue.owed > self.paused_above() {
                queue.paused = Some(context.waker().clone());
                if !std::mem::replace(&mut waits, true) {
                    signs.reset();
                }
                while signs.poll_tick(context).is_ready() {
                    queue.session.iter().for_each(Holdup::goes_on);
                }
                return Poll::Pending;
            }
            drop(queue);
            waits = false;
            work.as_mut().poll(context)
        })
        .await
    }

    /// Bytes of owed events above which work waits. What its last turn had to tell goes beyond.
    fn paused_above(&self) -> usize {
        self.room / 4
    }

    /// Writes a message to the client, which may be slow to take it in.
    ///
    /// # Errors
    /// [`FaultCode::TimedOut`] if its connection does not take it in time; [`FaultCode::Lost`].
    async fn hand_over(&self, writer: &mut WriteHalf, message: &Message) -> Result<(), Fault> {
        let why = "the client takes in too little of what it is told";
        let deaf = |_| Fault::new(FaultCode::TimedOut, Blame::Path, why);
        timeout(TAKEN_IN_WITHIN, write_message(writer, message)).await.map_err(deaf)??;
        self.lock().taken += 1;
        Ok(())
    }

    /// The next events that fit one message, and whether that is all that there will ever be.
    fn batch(&self) -> (Vec<OrderEvent>, FollowState) {
        let mut queue = self.lock();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while queue.waiting.front().is_some_and(|next| bytes == 0 || bytes + next.cost <= BATCH_BYTES)
            && let Some(WaitingEvent { event, cost, is_owed }) = queue.waiting.pop_front()
        {
            bytes += cost;
            queue.owed -= if is_owed { cost } else { 0 };
            batch.push(event);
        }
        queue.bytes -= bytes;
        self.give_back(&queue);
        if queue.owed <= self.paused_above() {
            queue.resume();
        }
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
        if queue.state != FollowState::On || queue.full.is_some() {
            return;
        }
        let is_counter = matches!(event, OrderEvent::Moved(_));
        let may_go = is_counter || (self.needs == FollowerNeeds::Failures && did_well(&event));
        // The others have half of the room for themselves.
        if may_go && queue.bytes + cost(&event) > self.room / 2 {
            queue.unheard += u64::from(!is_counter);
            return;
        }
        // What goes beyond the room before the work waits is told in short.
        let event = if queue.bytes + cost(&event) > self.room { in_short(event) } else { event };
        let cost = cost(&event);
        queue.bytes += cost;
        queue.owed += if may_go { 0 } else { cost };
        queue.waiting.push_back(WaitingEvent { event, cost, is_owed: !may_go });
        if let Err(full) = self.make_room(&mut queue) {
            tracing::info!(target: "longhaul::session", "what the client of an order must be told has no room: {full}");
            queue.full = Some(full);
            queue.forget();
            self.give_back(&queue);
            drop(queue);
            return self.trigger.stop(FaultCode::TimedOut);
        }
        drop(queue);
        self.news.notify_one();
    }
}

impl FollowerQueue {
    /// Leaves out the names that did well.
    fn shorten(&mut self) {
        let before = self.waiting.len();
        self.waiting.retain(|next| !did_well(&next.event));
        self.unheard += (before - self.waiting.len()) as u64;
        self.count();
    }

    /// Leaves out the texts of all that waits.
    fn tell_in_short(&mut self) {
        for next in &mut self.waiting {
            let event = std::mem::replace(&mut next.event, OrderEvent::Unheard(0));
            next.event = in_short(event);
            next.cost = cost(&next.event);
        }
        self.count();
    }

    /// Counts the cost of what waits anew.
    fn count(&mut self) {
        self.bytes = self.waiting.iter().map(|next| next.cost).sum();
        self.owed = self.waiting.iter().filter(|next| next.is_owed).map(|next| next.cost).sum();
    }

    /// Has nothing wait for the client any more.
    fn forget(&mut self) {
        (self.waiting, self.bytes, self.owed) = Default::default();
        self.resume();
    }

    /// Has work go on that waits.
    fn resume(&mut self) {
        self.paused.take().into_iter().for_each(Waker::wake);
    }
}

/// Whether it is a name that did not fail.
fn did_well(event: &OrderEvent) -> bool {
    matches!(event, OrderEvent::Settled(file) if !matches!(file.outcome, OrderOutcome::Failed(_)))
}

/// The same event without its texts, which take most of its bytes.
fn in_short(event: OrderEvent) -> OrderEvent {
    match event {
        OrderEvent::Settled(mut file) => {
            if let OrderOutcome::Failed(fault) = &mut file.outcome {
                *fault = Fault { author: fault.author, ..Fault::new(fault.code, fault.blame, REASON_LEFT_OUT) };
            }
            OrderEvent::Settled(file)
        }
        OrderEvent::Unsent(unsent) => OrderEvent::Unsent(OrderUnsent { message: REASON_LEFT_OUT.into(), ..unsent }),
        other => other,
    }
}

/// Bytes that an event takes in a message and in memory, about.
fn cost(event: &OrderEvent) -> usize {
    EVENT_BYTES
        + match event {
            OrderEvent::Settled(file) => {
                let fault = if let OrderOutcome::Failed(fault) = &file.outcome { fault_bytes(fault) } else { 0 };
                file.path.as_bytes().len() + file.placed.as_bytes().len() + fault
            }
            OrderEvent::Unsent(unsent) => {
                unsent.path.len() + unsent.placed.len() + unsent.reason.len() + unsent.message.len()
            }
            OrderEvent::Lost(fault, _) => fault_bytes(fault),
            OrderEvent::NotKept { loss, .. } => loss.first.as_bytes().len(),
            _ => 0,
        }
}

/// Bytes of the texts of a fault.
fn fault_bytes(fault: &Fault) -> usize {
    let hint = fault.hint.as_ref().map_or(0, |hint| hint.to_string().len());
    fault.message.len() + fault.object.len() + hint
}

async fn write(told: Arc<FollowerEvents>, mut writer: WriteHalf) {
    let taken = Message::OrderTaken(OrderTaken { id: told.id });
    let mut written = told.hand_over(&mut writer, &taken).await;
    while written.is_ok() {
        let (events, state) = told.batch();
        let message = match (events.is_empty(), state) {
            (true, FollowState::On) => {
                // It hears each few seconds that the order goes on.
                let _ = timeout(FOLLOWER_HEARS_EVERY, told.news.notified()).await;
                let (events, state) = told.batch();
                if events.is_empty() && state != FollowState::On {
                    continue;
                }
                Message::OrderEvents(events)
            }
            (false, FollowState::On | FollowState::Ended(_)) => Message::OrderEvents(events),
            (_, FollowState::Gone) => return,
            (_, FollowState::Left) => {
                let _ = told.hand_over(&mut writer, &Message::OrderLeft(OrderLeft { id: told.id })).await;
                let _ = writer.shutdown().await;
                return;
            }
            (true, FollowState::Ended(end)) => {
                let _ = told.hand_over(&mut writer, &Message::OrderEnded(end)).await;
                let _ = writer.shutdown().await;
                return;
            }
        };
        written = told.hand_over(&mut writer, &message).await;
    }
    told.lost(written.err().map_or(FaultCode::Lost, |fault| fault.code));
}

async fn listen(told: Arc<FollowerEvents>, mut reader: ReadHalf) {
    match read_message(&mut reader).await {
        Ok(Some(Message::OrderLeft(left))) if left.id == told.id => {
            let mut queue = told.lock();
            if queue.state == FollowState::On {
                queue.state = FollowState::Left;
                queue.forget();
                told.give_back(&queue);
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

/// Bytes of events that a client may have still to take in by what an order claims as it begins:
/// the files of some seconds.
pub(in crate::daemon) const FOLLOWER_BYTES: usize = 4 << 20;
/// Bytes of events in one message, far below what any may have.
const BATCH_BYTES: usize = 48 << 10;
/// Bytes of an event without names and texts.
pub(super) const EVENT_BYTES: usize = 192;
/// Rooms that events may take at most: what one turn of the work tells goes beyond the first one,
/// and is claimed as it does.
const ROOMS_BEYOND: usize = 2;
/// The text of a failure whose own was left out.
const REASON_LEFT_OUT: &str = "it failed; the reason was left out, as the client took in too slowly what it was told";
/// The client hears something at least so often.
const FOLLOWER_HEARS_EVERY: Duration = Duration::from_secs(5);
/// A client is gone whose connection does not take a message, of 48 KiB at most, within this time:
/// longer than the 30 s after which a silent session is. The kernel of a busy connection may hold
/// some MiB and wake its writer only once a third of that is free, so that a client may be ended
/// which takes in less than about 25 KB/s (measured: 1.5 MB of 4.3 MB).
const TAKEN_IN_WITHIN: Duration = Duration::from_secs(60);
/// A client that takes in messages still has heard the end of its order within this time of it. One
/// that must be told of each name is told of the last of them for half of it.
const ALL_TAKEN_IN_WITHIN: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
