//! Remembers the orders of clients: those under way, and how the last ones ended, for a client that
//! left its order and asks again.
//!
//! In: an order as it begins, the start of its first session, and its end. Out: both to whoever of
//! the same key asks, at once or when they are there; who asks may have the order stopped. Ends
//! that a client was there to hear, as a mover is for each of its shards, push out none that nobody
//! heard. It knows no sessions, and all of it is gone with the daemon.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::{Control, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{OrderEnd, OrderEvent, OrderStart, OrderTaken};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api::{Stop, StopTrigger};
use crate::session::channel::{ReadHalf, WriteHalf, read_message, write_message};
use crate::third_party::hex;

/// The orders that are known. Clones share them.
#[derive(Clone, Default)]
pub(in crate::daemon) struct OrderEnds(Arc<Mutex<VecDeque<KnownOrder>>>);

/// An order, by the key of its client and its own name.
type OrderName = (PublicKey, [u8; 16]);

struct KnownOrder {
    name: OrderName,
    news: watch::Receiver<OrderNews>,
}

/// The facts of an order that are told to a client that comes back.
#[derive(Clone, Default)]
struct OrderNews {
    /// Its first session.
    start: Option<OrderStart>,
    /// Stops it, once it is carried out.
    trigger: Option<StopTrigger>,
    end: Option<Arc<OrderEnd>>,
    /// Whether its client was there at its end.
    hearing: EndHearing,
}

/// Whether the client of an order is there to hear how it ends. Orders that have ended are
/// remembered by that, each kind for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EndHearing {
    /// It left the order before, or was lost: it may come back and ask.
    #[default]
    Absent,
    /// It follows the order, and is told.
    Present,
}

/// An order that is under way. One that is dropped without an end is forgotten.
pub(super) struct OrderMark {
    ends: OrderEnds,
    name: OrderName,
    news: watch::Sender<OrderNews>,
}

/// The end of an order, to be waited for.
pub(in crate::daemon) struct AwaitedEnd {
    id: [u8; 16],
    news: watch::Receiver<OrderNews>,
}

impl OrderEnds {
    /// Begins an order of a client. Each grant is good for one.
    ///
    /// # Errors
    /// [`FaultCode::Denied`] if the client has given one of this name before.
    pub(super) fn begin(&self, client: PublicKey, id: [u8; 16]) -> Result<OrderMark, Fault> {
        let name = (client, id);
        let mut known = self.lock();
        if known.iter().any(|order| order.name == name) {
            let why = format_args!(
                "order {} was given to this daemon before, and each order has a grant of its own",
                hex(&id)
            );
            return Err(Fault::new(FaultCode::Denied, Blame::Peer, why).hint(hint::Daemon::SignAnotherGrant));
        }
        let (news, told) = watch::channel(OrderNews::default());
        known.push_back(KnownOrder { name, news: told });
        drop(known);
        Ok(OrderMark { ends: self.clone(), name, news })
    }

    /// The end of an order of this client.
    ///
    /// # Errors
    /// [`FaultCode::NotFound`] if it is not known, or not known any more.
    pub(in crate::daemon) fn find(&self, client: PublicKey, id: [u8; 16]) -> Result<AwaitedEnd, Fault> {
        let known = self.lock();
        let Some(order) = known.iter().find(|order| order.name == (client, id)) else {
            let why = format_args!(
                "no order {} of this key is known here: the daemon was started since, or {ENDED_OF_CLIENT_MAX} others \
                 like it have ended",
                hex(&id)
            );
            return Err(Fault::new(FaultCode::NotFound, Blame::Local, why).hint(hint::Daemon::OrderAnew));
        };
        Ok(AwaitedEnd { id, news: order.news.clone() })
    }

    /// Forgets what has ended longest ago, beyond what is kept of one client and in all, of those
    /// that their clients heard alike.
    fn bound(&self, client: PublicKey, hearing: EndHearing) {
        let mut known = self.lock();
        let is_alike = |order: &KnownOrder| order.news.borrow().hearing == hearing;
        forget_first(&mut known, ENDED_OF_CLIENT_MAX, |order| order.name.0 == client && is_alike(order));
        forget_first(&mut known, ENDED_MAX, is_alike);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<KnownOrder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves `most` of those that have ended and are counted.
fn forget_first(known: &mut VecDeque<KnownOrder>, most: usize, counts: impl Fn(&KnownOrder) -> bool) {
    let has_ended = |order: &KnownOrder| counts(order) && order.news.borrow().end.is_some();
    let mut beyond = known.iter().filter(|order| has_ended(order)).count().saturating_sub(most);
    known.retain(|order| {
        let goes = beyond > 0 && has_ended(order);
        beyond -= usize::from(goes);
        !goes
    });
}

impl OrderMark {
    /// Records that it is carried out, and what stops it.
    pub(super) fn begun(&self, trigger: StopTrigger) {
        self.news.send_modify(|news| news.trigger = Some(trigger));
    }

    /// Records that its first session stands.
    pub(super) fn started(&self, start: OrderStart) {
        self.news.send_modify(|news| news.start = Some(start));
    }

    /// Records how it ended, and whether its client is there to hear it.
    pub(super) fn ended(&self, end: OrderEnd, hearing: EndHearing) {
        self.news.send_modify(|news| (news.end, news.hearing) = (Some(Arc::new(end)), hearing));
        self.ends.bound(self.name.0, hearing);
    }
}

impl Drop for OrderMark {
    fn drop(&mut self) {
        if self.news.borrow().end.is_none() {
            self.ends.lock().retain(|order| order.name != self.name);
        }
    }
}

impl AwaitedEnd {
    /// Tells it over this connection once it is there, unless the client hangs up before. The
    /// client may have the order stopped.
    pub(in crate::daemon) async fn tell(self, control: Control, mut stop: Stop) {
        let (mut reader, mut writer): (ReadHalf, WriteHalf) = (control.reader, control.writer);
        let (id, news) = (self.id, self.news.clone());
        tokio::select! {
            _ = self.told(&mut writer) => {
                let _ = timeout(TAKEN_WITHIN, writer.shutdown()).await;
            }
            () = obey(&mut reader, (id, news)) => {}
            _ = stop.stopped() => {}
        }
    }

    async fn told(mut self, writer: &mut WriteHalf) -> Result<(), Fault> {
        say(writer, Message::OrderTaken(OrderTaken { id: self.id })).await?;
        let mut has_started = false;
        loop {
            let OrderNews { start, end, .. } = self.news.borrow_and_update().clone();
            if let Some(start) = start.filter(|_| !has_started) {
                has_started = true;
                say(writer, Message::OrderEvents(vec![OrderEvent::Started(start)])).await?;
            }
            if let Some(end) = end {
                return say(writer, Message::OrderEnded(Box::new((*end).clone()))).await;
            }
            match timeout(SAYS_SOMETHING, self.news.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => {
                    let why = "the order went without an end that could be told";
                    return say(writer, Message::Refuse(Fault::new(FaultCode::Lost, Blame::Local, why))).await;
                }
                Err(_) => say(writer, Message::OrderEvents(Vec::new())).await?,
            }
        }
    }
}

/// Stops the order if its client says so. Ends once the client hangs up, or says anything else.
async fn obey(reader: &mut ReadHalf, (id, mut news): ([u8; 16], watch::Receiver<OrderNews>)) {
    let is_stopped = matches!(read_message(reader).await, Ok(Some(Message::OrderStop(stop))) if stop.id == id);
    if !is_stopped {
        return;
    }
    // It may have been taken only just now.
    if let Ok(news) = news.wait_for(|news| news.trigger.is_some() || news.end.is_some()).await
        && let (Some(trigger), None) = (&news.trigger, &news.end)
    {
        tracing::info!(target: "longhaul::session", "order {} is stopped by its client", hex(&id));
        trigger.stop(FaultCode::Interrupted);
    }
    // It waits for the end.
    let _ = read_message(reader).await;
}

async fn say(writer: &mut WriteHalf, message: Message) -> Result<(), Fault> {
    let late = || Fault::new(FaultCode::TimedOut, Blame::Peer, "the client takes in nothing");
    timeout(TAKEN_WITHIN, write_message(writer, &message)).await.map_err(|_| late())?
}

/// Orders of one client that have ended and are remembered, at some 5 KiB: of those whose ends it
/// was there to hear, and of the others.
const ENDED_OF_CLIENT_MAX: usize = 16;
/// The same of all clients, of each kind.
const ENDED_MAX: usize = 512;
/// A client that waits hears at least so often that the order goes on.
const SAYS_SOMETHING: Duration = Duration::from_secs(5);
/// A client that takes in nothing for so long is gone.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use longhaul_core::{ChunkSize, Transport, Word};
    use longhaul_proto::wire::message::{OrderBytes, OrderFiles, OrderStop, OrderVerdict, Protect};

    use super::*;

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    fn end(files: u64) -> OrderEnd {
        OrderEnd {
            verdict: OrderVerdict::Complete,
            files: OrderFiles { committed: files, ..OrderFiles::default() },
            bytes: OrderBytes::default(),
            failures: Vec::new(),
            scanned: true,
            millis: 1,
            limits: Vec::new(),
        }
    }

    fn start() -> OrderStart {
        OrderStart {
            session: [5; 16],
            transport: Transport::Tcp,
            protect: Protect::Private,
            lanes: 3,
            chunk: ChunkSize::DEFAULT,
            congestion: Word::default(),
            caps: 0,
        }
    }

    /// The messages that a client is told of an order.
    async fn heard(awaited: AwaitedEnd) -> Vec<Message> {
        let (near, far) = tokio::io::duplex(4096);
        let (mut writer, mut reader): (WriteHalf, ReadHalf) = (Box::new(near), Box::new(far));
        awaited.told(&mut writer).await.expect("told");
        drop(writer);
        let mut messages = Vec::new();
        while let Some(message) = read_message(&mut reader).await.expect("messages") {
            messages.push(message);
        }
        messages
    }

    #[tokio::test]
    async fn a_client_learns_the_end_of_its_own_order_before_and_after_it() {
        let ends = OrderEnds::default();
        let mark = ends.begin(key(1), [7; 16]).expect("a new one");
        let early = ends.find(key(1), [7; 16]).expect("it is under way");
        mark.started(start());
        mark.ended(end(3), EndHearing::Absent);
        drop(mark);
        let late = ends.find(key(1), [7; 16]).expect("it is remembered");
        let started = Message::OrderEvents(vec![OrderEvent::Started(start())]);
        let told =
            vec![Message::OrderTaken(OrderTaken { id: [7; 16] }), started, Message::OrderEnded(Box::new(end(3)))];
        assert_eq!((heard(early).await, heard(late).await), (told.clone(), told));
        for (client, id) in [(key(2), [7; 16]), (key(1), [8; 16])] {
            let refused = ends.find(client, id).err().map(|fault| fault.code);
            assert_eq!(refused, Some(FaultCode::NotFound), "it is another's, or none");
        }
    }

    #[tokio::test]
    async fn one_grant_is_good_for_one_order_of_its_client() {
        let ends = OrderEnds::default();
        let again = |ends: &OrderEnds| ends.begin(key(1), [7; 16]).err().map(|fault| fault.code);
        let mark = ends.begin(key(1), [7; 16]).expect("a new one");
        assert_eq!(again(&ends), Some(FaultCode::Denied), "it is under way");
        assert!(ends.begin(key(2), [7; 16]).is_ok(), "names are those of a client");
        mark.ended(end(0), EndHearing::Present);
        drop(mark);
        assert_eq!(again(&ends), Some(FaultCode::Denied), "it has ended");
        let refused = ends.begin(key(1), [8; 16]).expect("a new one");
        let waiting = ends.find(key(1), [8; 16]).expect("it is under way");
        drop(refused);
        assert!(matches!(heard(waiting).await[..], [Message::OrderTaken(_), Message::Refuse(_)]));
        assert!(ends.begin(key(1), [8; 16]).is_ok(), "one that was not taken is forgotten");
    }

    #[tokio::test]
    async fn an_order_is_stopped_by_its_own_name_alone() {
        let mark = OrderEnds::default().begin(key(1), [7; 16]).expect("a new one");
        let (trigger, stop) = Stop::new();
        mark.begun(trigger);
        for (id, want) in [([8; 16], None), ([7; 16], Some(FaultCode::Interrupted))] {
            let (near, far) = tokio::io::duplex(4096);
            let (mut writer, mut reader): (WriteHalf, ReadHalf) = (Box::new(near), Box::new(far));
            write_message(&mut writer, &Message::OrderStop(OrderStop { id })).await.expect("said");
            drop(writer);
            obey(&mut reader, ([7; 16], mark.news.subscribe())).await;
            assert_eq!(stop.pulled(), want, "{id:?}");
        }
    }

    #[test]
    fn the_oldest_ends_of_a_client_are_forgotten_and_nothing_that_is_under_way() {
        let ends = OrderEnds::default();
        let begun = ends.begin(key(1), [255; 16]).expect("a new one");
        for n in 0..=ENDED_OF_CLIENT_MAX as u8 {
            ends.begin(key(1), [n; 16]).expect("a new one").ended(end(0), EndHearing::Absent);
        }
        assert!(ends.find(key(1), [0; 16]).is_err() && ends.find(key(1), [1; 16]).is_ok());
        assert!(ends.find(key(1), [255; 16]).is_ok());
        for n in 0..ENDED_MAX as u128 {
            let client = PublicKey::from_bytes([n.to_le_bytes(), [9; 16]].concat().try_into().expect("32 bytes"));
            ends.begin(client, [3; 16]).expect("a new one").ended(end(0), EndHearing::Absent);
        }
        assert_eq!(ends.lock().len(), ENDED_MAX + 1);
        drop(begun);
        assert_eq!(ends.lock().len(), ENDED_MAX);
    }

    #[test]
    fn ends_that_a_mover_hears_of_its_shards_push_out_none_of_an_order_that_was_left() {
        let ends = OrderEnds::default();
        let name = |n: u128| n.to_le_bytes();
        ends.begin(key(1), name(0)).expect("a new one").ended(end(7), EndHearing::Absent);
        for n in 1..=2 * ENDED_MAX as u128 {
            ends.begin(key(1), name(n)).expect("a new one").ended(end(0), EndHearing::Present);
        }
        for client in 0..2 * ENDED_MAX as u128 {
            let client = PublicKey::from_bytes([name(client), [9; 16]].concat().try_into().expect("32 bytes"));
            ends.begin(client, name(0)).expect("a new one").ended(end(0), EndHearing::Present);
        }
        let left = ends.find(key(1), name(0)).expect("it is remembered");
        assert_eq!(left.news.borrow().end.as_ref().map(|end| end.files.committed), Some(7));
        assert_eq!(ends.lock().len(), ENDED_MAX + 1, "what is heard is bounded too");
    }
}
