//! One conversation with a client whose sessions run in a deputy, on the daemon's side: all that a
//! session has of the daemon is claimed here, from the same accounts as that of any other.
//!
//! In: the wishes of the deputy. Out: its place among the sessions, its places on roots, its
//! memory and its rate, which end with the session here, whatever the deputy does; and the entry in
//! the list of sessions, through which an administrator ends it. A wish is judged by the daemon's
//! own configuration. It knows no bytes of the client.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_net::{PublicKey, Seat};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::super::Daemon;
use super::super::admission::session_place;
use super::super::current::Current;
use super::super::live::{Counts, Live, LiveSeat, SessionCounter, SessionName};
use super::super::rates::{Entered, RateClaim};
use super::super::root_places::RootPlace;
use super::super::serve::end_if_unwanted;
use super::super::shares::Share;
use super::deputies::{Deputy, gone};
use super::message::{Granted, SessionWish, TalkId, ToDeputy};
use crate::api::Stop;
use crate::lanes::worker::pacer::LaneRates;
use crate::session::SessionEvent;

/// A conversation. See the module.
pub(super) struct Conversation {
    /// Its number.
    pub(super) talk: TalkId,
    /// The name of its session, if it comes to one.
    pub(super) session: SessionName,
    key: PublicKey,
    uid: u32,
    peer: SocketAddr,
    current: Arc<Current>,
    deputy: Arc<Deputy>,
    /// Notified when the deputy has said its last word, or is gone.
    pub(super) over: Notify,
    held: Mutex<Holds>,
}

/// The holdings of a conversation.
struct Holds {
    /// Its place among those that have not begun a session.
    seat: Option<Seat>,
    memory: Option<Share>,
    session: Option<Held>,
    /// A session was asked for. There is one in a conversation.
    is_asked: bool,
    /// Nothing is held any more, whatever comes.
    closed: bool,
}

/// The holdings of its session. They are given back in this order.
struct Held {
    _list: LiveSeat,
    _rate: Entered,
    _roots: Vec<RootPlace>,
    _place: Share,
    counter: Arc<SessionCounter>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The client of a conversation.
#[derive(Clone, Copy)]
pub(super) struct Talker {
    /// Its key.
    pub(super) key: PublicKey,
    /// The number of its user.
    pub(super) uid: u32,
    /// The address that it came from.
    pub(super) peer: SocketAddr,
}

impl Conversation {
    /// One that has not begun a session.
    pub(super) fn new(
        (talk, session): (TalkId, SessionName),
        client: Talker,
        current: Arc<Current>,
        deputy: Arc<Deputy>,
    ) -> Conversation {
        let Talker { key, uid, peer } = client;
        let held = Mutex::new(Holds { seat: None, memory: None, session: None, is_asked: false, closed: false });
        Conversation { talk, session, key, uid, peer, current, deputy, over: Notify::new(), held }
    }

    /// Gives it its seat among those that have not begun a session.
    pub(super) fn sit(&self, seat: Seat) {
        self.lock().seat = Some(seat);
    }

    /// Lets the session of the conversation begin, or not.
    pub(super) fn begin(self: &Arc<Self>, wish: SessionWish) {
        if std::mem::replace(&mut self.lock().is_asked, true) {
            return;
        }
        let conversation = self.clone();
        tokio::spawn(async move {
            let granted = conversation.granted(wish).await;
            let _ = conversation.deputy.say(ToDeputy::Granted(conversation.talk, granted), None);
        });
    }

    async fn granted(self: &Arc<Self>, wish: SessionWish) -> Result<Granted, Fault> {
        let daemon = self.current.now();
        daemon.live.drain.admit()?;
        let place = session_place(&daemon, self.key).await?;
        let (held, rate) = self.held(&daemon, place, wish)?;
        end_if_unwanted(&self.current, &held._list);
        let mut now = self.lock();
        if now.closed {
            return Err(gone());
        }
        (now.session, now.seat) = (Some(held), None);
        Ok(Granted { rate })
    }

    /// Takes everything that a session has of the daemon.
    fn held(
        self: &Arc<Self>,
        daemon: &Arc<Daemon>,
        place: Share,
        wish: SessionWish,
    ) -> Result<(Held, Option<u64>), Fault> {
        let SessionWish { what, protection, needs, own_rate } = wish;
        let needs = needs.of_user(Some(self.uid));
        let client = daemon.client(&self.key)?;
        if !daemon.allows(&self.key, &needs) {
            return Err(Fault::new(FaultCode::Denied, Blame::Local, "the daemon's configuration does not allow it"));
        }
        let roots = needs.roots().map(|root| Ok(daemon.root(client, root)?.0)).collect::<Result<Vec<_>, Fault>>()?;
        let places = roots.iter().map(|root| daemon.live.places.take(root)).collect::<Result<Vec<_>, Fault>>()?;
        let (sink, rates) = mpsc::unbounded_channel();
        let own_rate = own_rate.and_then(LaneRates::from_wire);
        let (entered, rate) = daemon.live.rates.enter(RateClaim::new(client, &roots, own_rate), sink);
        let (trigger, stop) = Stop::new();
        let counter = Arc::new(SessionCounter::default());
        let list = daemon.live.enter(
            self.session,
            Live {
                key: self.key,
                client: client.name.clone(),
                peer: self.peer,
                what: what.cut().to_string(),
                protection,
                begun: Instant::now(),
                needs,
                counter: counter.clone(),
                trigger,
            },
        );
        let tasks = [
            tokio::spawn(pass_rates(self.deputy.clone(), self.talk, rates)),
            tokio::spawn(pass_stop(self.deputy.clone(), self.talk, stop.or(daemon.stop.clone()))),
        ];
        Ok((Held { _list: list, _rate: entered, _roots: places, _place: place, counter, tasks }, rate))
    }

    /// Gives it more memory, as much as there is for it, and says how much it has.
    pub(super) fn grow(&self, bytes: u64) {
        let mut held = self.lock();
        let daemon = self.current.now();
        let bytes = bytes.min(GROWS_BY_MAX);
        if !held.closed {
            match &mut held.memory {
                // What there is not is asked for again.
                Some(share) => drop(share.grow(bytes)),
                None => held.memory = daemon.memory.claim(self.key, bytes).ok(),
            }
        }
        let has = held.memory.as_ref().map_or(0, Share::amount);
        drop(held);
        let _ = self.deputy.say(ToDeputy::Memory(self.talk, has), None);
    }

    /// Shows the figures of its session.
    pub(super) fn count(&self, counts: Counts) {
        if let Some(held) = &self.lock().session {
            held.counter.set(counts);
        }
    }

    /// Takes back what its session had.
    pub(super) fn end(&self) {
        let ended = self.lock().session.take();
        drop(ended);
    }

    /// Notes that the deputy has said its last word.
    pub(super) fn is_over(&self) {
        self.over.notify_one();
    }

    /// Takes everything back, for good.
    pub(super) fn close(&self) {
        let mut held = self.lock();
        held.closed = true;
        let all = (held.session.take(), held.memory.take(), held.seat.take());
        drop(held);
        drop(all);
        self.over.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Holds> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes the rates of a session on.
async fn pass_rates(deputy: Arc<Deputy>, talk: TalkId, mut rates: mpsc::UnboundedReceiver<SessionEvent>) {
    while let Some(event) = rates.recv().await {
        if let SessionEvent::OwnRate(rate) = event {
            let _ = deputy.say(ToDeputy::Rate(talk, rate), None);
        }
    }
}

/// Passes on that a session is to end.
async fn pass_stop(deputy: Arc<Deputy>, talk: TalkId, mut stop: Stop) {
    let code = stop.stopped().await;
    let _ = deputy.say(ToDeputy::End(talk, code), None);
}

/// Bytes that a conversation is given at once at most: the list of names of the longest request.
const GROWS_BY_MAX: u64 = 2 << 30;
