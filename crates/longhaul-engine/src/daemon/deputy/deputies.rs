//! Owns the deputies that run, as the daemon knows them, and what is said to each.
//!
//! In: clients and lanes of a user. Out: messages to the deputy of that user, which is started when
//! there is none, and ends a while after its last conversation. A deputy that is gone, or that does
//! not listen, takes its conversations with it and nobody else's. It knows no bytes of a client.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::limits::LANES_MAX;
use longhaul_core::{Blame, Fault, FaultCode, LaneId, hint};
use longhaul_net::{LaneStream, NetError, PublicKey, UdpSeat};
use longhaul_sys::passing::Passing;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, mpsc};
use tokio::time::{interval, timeout};

use super::super::live::SessionName;
use super::broker::Broker;
use super::channel::Channel;
use super::conversation::Conversation;
use super::message::{TalkId, ToDaemon, ToDeputy};
use crate::lanes::udp::desk::UdpSessionsElsewhere;
use crate::lanes::udp::join::UdpTerms;

/// The deputies of a daemon. Clones share them.
#[derive(Clone, Default)]
pub(in super::super) struct Deputies(Option<Arc<Running>>);

struct Running {
    broker: Arc<Broker>,
    /// Held while one is started: there is one for each user.
    starting: AsyncMutex<()>,
    book: Mutex<DeputyBook>,
    /// Places for lanes over UDP that are passed on, of all sessions.
    relays: Arc<Semaphore>,
}

#[derive(Default)]
struct DeputyBook {
    by_user: HashMap<u32, Arc<Deputy>>,
    by_session: HashMap<SessionName, TalkEntry>,
    next: TalkId,
}

/// A session that runs in a deputy, or a conversation that may come to one.
#[derive(Clone)]
struct TalkEntry {
    deputy: Arc<Deputy>,
    conversation: Arc<Conversation>,
    /// The secrets of its lanes over UDP.
    udp: UdpTerms,
}

/// A deputy that runs.
pub(super) struct Deputy {
    uid: u32,
    says: mpsc::Sender<(ToDeputy, Option<OwnedFd>)>,
    talks: Mutex<Talks>,
}

/// The conversations of a deputy.
struct Talks {
    open: HashMap<TalkId, Arc<Conversation>>,
    /// It takes no other one.
    closed: bool,
    idle_since: Instant,
}

impl Deputies {
    /// Deputies that this broker starts.
    pub(in super::super) fn of(broker: Option<Broker>) -> Deputies {
        let running = |broker| Running {
            broker: Arc::new(broker),
            starting: AsyncMutex::default(),
            book: Mutex::default(),
            relays: Arc::new(Semaphore::new(RELAYS_MAX)),
        };
        Deputies(broker.map(running).map(Arc::new))
    }

    /// The broker. `None`: the daemon was started without one.
    pub(in super::super) fn broker(&self) -> Option<&Arc<Broker>> {
        self.0.as_ref().map(|running| &running.broker)
    }

    /// Enters a conversation with the deputy of a user.
    pub(super) async fn enter(
        &self,
        uid: u32,
        terms: UdpTerms,
        conversation: impl Fn(TalkId, &Arc<Deputy>) -> Conversation,
    ) -> Result<(Arc<Deputy>, Arc<Conversation>), Fault> {
        let running = self.running()?;
        // One that ends at this moment is followed by another one.
        for _ in 0..STARTS_MAX {
            let deputy = running.deputy(uid).await?;
            let mut book = running.book();
            let mut talks = deputy.talks();
            if talks.closed {
                continue;
            }
            let talk = book.next;
            book.next += 1;
            let conversation = Arc::new(conversation(talk, &deputy));
            talks.open.insert(talk, conversation.clone());
            let entry = TalkEntry { deputy: deputy.clone(), conversation: conversation.clone(), udp: terms.clone() };
            book.by_session.insert(terms.session, entry);
            drop(talks);
            return Ok((deputy, conversation));
        }
        Err(gone())
    }

    /// Takes a conversation out.
    pub(super) fn leave(&self, deputy: &Deputy, talk: TalkId, session: &SessionName) {
        if let Some(running) = &self.0 {
            running.book().by_session.remove(session);
        }
        deputy.close(talk);
    }

    /// Hands a private lane over to the deputy of its client's user. It may come before its
    /// session, and even before the deputy.
    pub(in super::super) async fn bring_private(&self, uid: u32, stream: LaneStream, key: PublicKey) {
        let deputy = match self.running() {
            Ok(running) => running.deputy(uid).await,
            Err(fault) => Err(fault),
        };
        match deputy {
            Ok(deputy) => deputy.bring(stream, Some(key), &[]),
            Err(fault) => tracing::debug!(target: "longhaul::serve", uid, %fault, "a lane has no process to go to"),
        }
    }

    /// Hands a safe lane over to the deputy in which its session runs. Gives it back if there is
    /// none.
    pub(in super::super) fn bring_safe(
        &self,
        stream: LaneStream,
        session: &SessionName,
        opening: &[u8],
    ) -> Option<LaneStream> {
        let deputy = self.0.as_ref().and_then(|running| running.deputy_of(session));
        let Some(deputy) = deputy else { return Some(stream) };
        deputy.bring(stream, None, opening);
        None
    }

    /// Passes a lane over UDP on to the deputy in which its session runs, if there is room for it.
    fn bring_udp(&self, session: &SessionName, lane: LaneId, seat: UdpSeat, join: Vec<u8>) -> Result<(), NetError> {
        let Some((running, TalkEntry { deputy, conversation, .. })) = self.entry_of(session) else { return Ok(()) };
        let Ok(place) = running.relays.clone().try_acquire_owned() else {
            tracing::debug!(target: "longhaul::serve", lane = lane.0, "{RELAYS_MAX} lanes over UDP are passed on already");
            return Ok(());
        };
        if !conversation.takes_udp(lane) {
            tracing::debug!(target: "longhaul::serve", lane = lane.0, "there is no room to pass a UDP lane on");
            return Ok(());
        }
        let (pair, seat, relay) = seat.pass_on(Box::new(place)).inspect_err(|_| conversation.gives_udp_back(lane))?;
        conversation.passes_udp(relay);
        // One that does not listen is given up, and its conversations with it.
        let _ = deputy.say(ToDeputy::UdpLane { join, seat }, Some(pair));
        Ok(())
    }

    fn entry_of(&self, session: &SessionName) -> Option<(&Arc<Running>, TalkEntry)> {
        let running = self.0.as_ref()?;
        let entry = running.book().by_session.get(session).cloned()?;
        Some((running, entry))
    }

    fn running(&self) -> Result<&Arc<Running>, Fault> {
        let why = "this daemon was started without clients that have a user";
        self.0.as_ref().ok_or_else(|| Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Daemon::SeeItsLog))
    }
}

impl UdpSessionsElsewhere for Deputies {
    fn terms(&self, session: &SessionName, lane: LaneId) -> Option<UdpTerms> {
        let (_, TalkEntry { conversation, udp, .. }) = self.entry_of(session)?;
        conversation.expects_udp(lane).then_some(udp)
    }

    fn pass_on(&self, session: &SessionName, lane: LaneId, seat: UdpSeat, join: Vec<u8>) -> Result<(), NetError> {
        self.bring_udp(session, lane, seat, join)
    }
}

impl Running {
    fn deputy_of(&self, session: &SessionName) -> Option<Arc<Deputy>> {
        self.book().by_session.get(session).map(|entry| entry.deputy.clone())
    }

    fn book(&self) -> MutexGuard<'_, DeputyBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The deputy of a user, started if there is none.
    async fn deputy(self: &Arc<Self>, uid: u32) -> Result<Arc<Deputy>, Fault> {
        let listens = |deputy: &&Arc<Deputy>| !deputy.says.is_closed() && !deputy.talks().closed;
        let known = || self.book().by_user.get(&uid).filter(listens).cloned();
        if let Some(deputy) = known() {
            return Ok(deputy);
        }
        let _alone = self.starting.lock().await;
        if let Some(deputy) = known() {
            return Ok(deputy);
        }
        let broker = self.broker.clone();
        let started = tokio::task::spawn_blocking(move || broker.start(uid)).await;
        let socket = started.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))??;
        let channel = Channel::over(socket).map_err(|error| Fault::new(FaultCode::Io, Blame::Local, error))?;
        let (says, said) = mpsc::channel(SAID_MAX);
        let talks = Talks { open: HashMap::new(), closed: false, idle_since: Instant::now() };
        let deputy = Arc::new(Deputy { uid, says, talks: Mutex::new(talks) });
        self.book().by_user.insert(uid, deputy.clone());
        tracing::info!(target: "longhaul::serve", uid, "a process for a user of this host has begun");
        tokio::spawn(say(channel.clone(), said));
        tokio::spawn(self.clone().hear(deputy.clone(), channel));
        Ok(deputy)
    }

    /// Hears a deputy until it ends, or nobody has needed it for a while.
    async fn hear(self: Arc<Self>, deputy: Arc<Deputy>, channel: Channel) {
        let mut looks = interval(LOOK_EVERY);
        let why = loop {
            tokio::select! {
                heard = channel.hear::<ToDaemon>(Passing::Refused) => match heard {
                    Ok(Some((message, _))) => deputy.hear(message),
                    Ok(None) => break "it ended".to_owned(),
                    Err(error) => break error.to_string(),
                },
                _ = looks.tick() => if deputy.says.is_closed() {
                    break "it does not listen".to_owned();
                } else if deputy.close_if_idle() {
                    break "nobody needs it any more".to_owned();
                },
            }
        };
        tracing::info!(target: "longhaul::serve", uid = deputy.uid, why, "a process for a user of this host is over");
        let mut book = self.book();
        book.by_user.retain(|_, known| !Arc::ptr_eq(known, &deputy));
        book.by_session.retain(|_, entry| !Arc::ptr_eq(&entry.deputy, &deputy));
        drop(book);
        channel.close();
        deputy.close_all();
    }
}

impl Deputy {
    /// Says a message. One that does not listen is given up.
    pub(super) fn say(&self, message: ToDeputy, descriptor: Option<OwnedFd>) -> Result<(), Fault> {
        self.says.try_send((message, descriptor)).map_err(|_| {
            self.close_all();
            gone()
        })
    }

    /// Hands a lane over. One that cannot be is closed: its peer sees that at once.
    fn bring(&self, stream: LaneStream, key: Option<PublicKey>, opening: &[u8]) {
        let from: Option<IpAddr> = stream.peer_addr().map(|peer| peer.ip());
        let (Some((socket, parts)), Some(from)) = (stream.take_apart(), from) else {
            tracing::debug!(target: "longhaul::serve", uid = self.uid, "a lane that cannot be handed over, as over QUIC");
            return;
        };
        let (key, opening) = (key.map(|key| *key.as_bytes()), opening.to_vec());
        let _ = self.say(ToDeputy::Lane { key, opening, from, parts }, Some(socket));
    }

    fn hear(self: &Arc<Self>, message: ToDaemon) {
        let talk = match &message {
            ToDaemon::Begin(talk, _) | ToDaemon::Memory(talk, _) | ToDaemon::Figures(talk, _) => *talk,
            ToDaemon::Ended(talk) | ToDaemon::Outcome(talk, _) | ToDaemon::Over(talk) => *talk,
            ToDaemon::Deed(talk, _) => *talk,
        };
        // It may be over here, and the deputy has not heard of it yet.
        let Some(conversation) = self.talks().open.get(&talk).cloned() else { return };
        match message {
            ToDaemon::Begin(_, wish) => conversation.begin(wish),
            ToDaemon::Memory(_, bytes) => conversation.grow(bytes),
            ToDaemon::Figures(_, counts) => conversation.count(counts),
            ToDaemon::Ended(_) => conversation.end(),
            ToDaemon::Outcome(_, outcome) => conversation.has_outcome(outcome),
            ToDaemon::Deed(_, deed) => conversation.did(deed),
            ToDaemon::Over(_) => conversation.is_over(),
        }
    }

    /// One that nobody hears.
    #[cfg(test)]
    pub(super) fn unheard() -> Arc<Deputy> {
        let talks = Talks { open: HashMap::new(), closed: false, idle_since: Instant::now() };
        Arc::new(Deputy { uid: 1, says: mpsc::channel(SAID_MAX).0, talks: Mutex::new(talks) })
    }

    fn talks(&self) -> MutexGuard<'_, Talks> {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, talk: TalkId) {
        let mut talks = self.talks();
        let closed = talks.open.remove(&talk);
        talks.idle_since = Instant::now();
        drop(talks);
        closed.iter().for_each(|conversation| conversation.close());
    }

    /// Takes no other conversation, if there has been none for a while.
    fn close_if_idle(&self) -> bool {
        let mut talks = self.talks();
        talks.closed |= talks.open.is_empty() && talks.idle_since.elapsed() >= KEPT_IDLE;
        talks.closed
    }

    fn close_all(&self) {
        let mut talks = self.talks();
        talks.closed = true;
        let open = std::mem::take(&mut talks.open);
        drop(talks);
        open.values().for_each(|conversation| conversation.close());
    }
}

/// Says what is to be said, in order, to a deputy that listens.
async fn say(channel: Channel, mut said: mpsc::Receiver<(ToDeputy, Option<OwnedFd>)>) {
    while let Some((message, descriptor)) = said.recv().await {
        let saying = timeout(LISTENS_WITHIN, channel.say(&message, descriptor)).await;
        if let Err(error) = saying.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            tracing::warn!(target: "longhaul::serve", %error, "a process for a user of this host does not listen");
            return;
        }
    }
}

/// The fault of a client whose deputy has gone.
pub(super) fn gone() -> Fault {
    let why = "the process that serves this client has ended";
    Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Again::Now)
}

/// A deputy ends after its last conversation was over for so long: a client that dials again finds
/// it still there.
const KEPT_IDLE: Duration = Duration::from_secs(60);
/// How often it is looked for those.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long a deputy may take to hear one message: its loop does nothing that waits.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// Messages that wait for one deputy at most: lanes and control connections of its clients.
const SAID_MAX: usize = 1024;
/// Deputies that are started for one client that comes, as each ends at that moment.
const STARTS_MAX: usize = 3;
/// Lanes over UDP that are passed on at a time, of all sessions: each takes two threads and two
/// descriptors of the daemon. As many as eight sessions may have, or a thousand with one each.
const RELAYS_MAX: usize = 8 * LANES_MAX as usize;
