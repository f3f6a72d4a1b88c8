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

use longhaul_core::{Blame, Fault, FaultCode, LaneId, PlainText};
use longhaul_net::{Protection, PublicKey, Seat, UdpRelay};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::super::Daemon;
use super::super::admission::session_place;
use super::super::audit::{AuditDeed, AuditRecord, AuditWho, SessionAudit};
use super::super::bounds::lanes_max;
use super::super::current::Current;
use super::super::handle::shown;
use super::super::live::{Counts, Live, LiveSeat, SessionCounter, SessionName};
use super::super::rates::{Entered, RateClaim};
use super::super::root_places::RootPlace;
use super::super::serve::{end_if_unwanted, transport_name};
use super::super::shares::Share;
use super::super::tallies::{MovedSums, Tallies};
use super::deeds::Deed;
use super::deputies::{Deputy, gone};
use super::message::{AskedWords, Granted, Outcome, SessionWish, TalkId, ToDeputy};
use super::udp_lanes::SessionUdpLanes;
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
    /// The memory of the deputy's side, and [`Holds::relay_bytes`].
    memory: Option<Share>,
    /// The part of the memory that the relays of lanes over UDP take here.
    relay_bytes: u64,
    session: Option<Held>,
    /// The account of the session, until its outcome is told.
    account: Option<TalkAccount>,
    /// A session was asked for. There is one in a conversation.
    is_asked: bool,
    /// Nothing is held any more, whatever comes.
    closed: bool,
}

/// The holdings of its session. They are given back in this order.
struct Held {
    udp: SessionUdpLanes,
    _list: LiveSeat,
    _rate: Entered,
    roots: Vec<RootPlace>,
    /// Its memory has grown since it began.
    has_grown: bool,
    _place: Share,
    tasks: [JoinHandle<()>; 2],
}

impl Held {
    /// Takes memory of all its roots, or of none.
    fn takes(&mut self, bytes: u64) -> bool {
        let is_first = !std::mem::replace(&mut self.has_grown, true);
        let takes = |root: &mut RootPlace| if is_first { root.begin(bytes).is_ok() } else { root.grow(bytes) };
        let taken = self.roots.iter_mut().map(takes).take_while(|has| *has).count();
        let has_all = taken == self.roots.len();
        if !has_all {
            self.gives_back(taken, bytes);
        }
        has_all
    }

    /// Gives memory back to the first `count` of its roots.
    fn gives_back(&mut self, count: usize, bytes: u64) {
        self.roots.iter_mut().take(count).for_each(|root| root.shrink(bytes));
    }
}

/// The account of a session: its records, and the sums that it counts for.
struct TalkAccount {
    audit: Arc<SessionAudit>,
    tallies: Tallies,
    /// Its root and its client.
    whose: (String, String),
    receives: bool,
    transport: &'static str,
    what: String,
    counter: Arc<SessionCounter>,
}

impl TalkAccount {
    /// Takes in the figures of now.
    fn count(&self, counts: Counts) {
        let before = self.counter.set(counts);
        let bytes = counts.pace.bytes_moved.saturating_sub(before.pace.bytes_moved);
        let (received_bytes, sent_bytes) = if self.receives { (bytes, 0) } else { (0, bytes) };
        let files_committed = counts.files.saturating_sub(before.files);
        let files_failed = counts.failed.saturating_sub(before.failed);
        self.tallies.moved(&self.whose, MovedSums { received_bytes, sent_bytes, files_committed, files_failed });
    }

    /// Tells of its end.
    fn ended(&self, code: Option<FaultCode>) {
        let (counts, what) = (self.counter.counts(), Some(self.what.as_str()));
        self.tallies.ended(self.transport, code);
        let record = AuditRecord { deed: AuditDeed::SessionEnded, what, code, ..AuditRecord::default() };
        let bytes = Some(counts.pace.bytes_committed);
        // One of them: a session moves files, a conversation has names moved away or files read.
        let count = Some(counts.files + counts.moved_away + counts.read);
        self.audit.keep(AuditRecord { bytes, count, ..record });
    }
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
        let held = Mutex::new(Holds {
            seat: None,
            memory: None,
            relay_bytes: 0,
            session: None,
            account: None,
            is_asked: false,
            closed: false,
        });
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
        daemon.live.audit.ready()?;
        daemon.live.drain.admit()?;
        let place = session_place(&daemon, self.key).await?;
        let (mut held, rate, account) = self.held(&daemon, place, wish)?;
        end_if_unwanted(&self.current, &held._list);
        let mut now = self.lock();
        if now.closed {
            return Err(gone());
        }
        let has = now.memory.as_ref().map_or(0, Share::amount);
        held.roots.iter_mut().try_for_each(|root| root.begin(has))?;
        let what = Some(account.what.as_str());
        account.audit.keep(AuditRecord { deed: AuditDeed::SessionBegan, what, ..AuditRecord::default() });
        (now.session, now.account, now.seat) = (Some(held), Some(account), None);
        Ok(Granted { rate })
    }

    /// Takes everything that a session has of the daemon.
    fn held(
        self: &Arc<Self>,
        daemon: &Arc<Daemon>,
        place: Share,
        wish: SessionWish,
    ) -> Result<(Held, Option<u64>, TalkAccount), Fault> {
        let SessionWish { what, protection, transport, receives, needs, own_rate } = wish;
        let transport = transport_name(transport);
        let what = what.cut().to_string();
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
        let audit = daemon.live.audit.session(client, (client.key, self.peer));
        audit.admitted(shown(&self.session), trigger.clone());
        let root = match roots.as_slice() {
            [] => "(memory)",
            [root] => root.name.as_str(),
            _ => "(several)",
        };
        let account = TalkAccount {
            audit,
            tallies: daemon.live.tallies.clone(),
            whose: (root.to_owned(), client.name.clone()),
            receives,
            transport,
            what: what.clone(),
            counter: counter.clone(),
        };
        let list = daemon.live.enter(
            self.session,
            Live {
                key: self.key,
                client: client.name.clone(),
                peer: self.peer,
                what,
                protection,
                transport,
                receives,
                begun: Instant::now(),
                needs,
                counter,
                trigger,
            },
        );
        let tasks = [
            tokio::spawn(pass_rates(self.deputy.clone(), self.talk, rates)),
            tokio::spawn(pass_stop(self.deputy.clone(), self.talk, stop.or(daemon.stop.clone()))),
        ];
        // Lanes over UDP are always encrypted.
        let lanes = if protection == Protection::Private { lanes_max(client, &roots) } else { 0 };
        let udp = SessionUdpLanes::new(lanes);
        let held = Held { udp, _list: list, _rate: entered, roots: places, has_grown: false, _place: place, tasks };
        Ok((held, rate, account))
    }

    /// Gives it more memory, as much as there is for it, and says how much it has.
    pub(super) fn grow(&self, bytes: u64) {
        let mut held = self.lock();
        held.grow(&self.current.now(), self.key, bytes.min(GROWS_BY_MAX));
        let has = held.deputys_bytes();
        drop(held);
        let _ = self.deputy.say(ToDeputy::Memory(self.talk, has), None);
    }

    /// Whether a lane over UDP with this id may be passed on now: only a session that was let begin
    /// has some.
    pub(super) fn expects_udp(&self, lane: LaneId) -> bool {
        self.lock().session.as_ref().is_some_and(|session| session.udp.expects(lane))
    }

    /// Takes the id of a lane over UDP, and the memory of its relay. Gives whether there is both.
    /// [`Conversation::passes_udp`] or [`Conversation::gives_udp_back`] must follow.
    pub(super) fn takes_udp(&self, lane: LaneId) -> bool {
        self.lock().takes_udp(&self.current.now(), self.key, lane)
    }

    /// Takes the id of a lane back that could not be passed on. Its memory is there for the next.
    pub(super) fn gives_udp_back(&self, lane: LaneId) {
        if let Some(session) = &mut self.lock().session {
            session.udp.gives_back(lane);
        }
    }

    /// Notes a lane that is passed on, until the session ends.
    pub(super) fn passes_udp(&self, relay: UdpRelay) {
        match &mut self.lock().session {
            Some(session) => session.udp.passes(relay),
            None => relay.close(),
        }
    }

    /// Shows the figures of its session.
    pub(super) fn count(&self, counts: Counts) {
        if let Some(account) = &self.lock().account {
            account.count(counts);
        }
    }

    /// Records what its session did to a file.
    pub(super) fn did(&self, deed: Deed) {
        if let Some(account) = &self.lock().account {
            deed.keep(&account.audit);
        }
    }

    /// Records the outcome of what the client asked for, and counts it.
    pub(super) fn has_outcome(&self, outcome: Outcome) {
        let account = self.lock().account.take();
        match (outcome, account) {
            (Outcome::Ended(counts, code), Some(account)) => {
                account.count(counts);
                account.ended(code);
            }
            // The daemon let it begin, and the deputy had not all that it takes.
            (Outcome::Refused(_, code), Some(account)) => account.ended(Some(code)),
            (Outcome::Refused(words, code), None) => {
                self.current.now().live.tallies.refused(code);
                self.record(AuditDeed::Refused, &words, Some(code));
            }
            (Outcome::Listed(words, code), _) => {
                self.current.now().live.tallies.listed();
                self.record(AuditDeed::Listed, &words, code);
            }
            (Outcome::Ended(..), None) => {}
        }
    }

    fn record(&self, deed: AuditDeed, words: &AskedWords, code: Option<FaultCode>) {
        let daemon = self.current.now();
        let client = daemon.client(&self.key).ok().map(|client| client.name.as_str());
        let (key, peer) = (self.key.to_string(), self.peer.to_string());
        let who = AuditWho { session: None, client, key: Some(&key), peer: Some(&peer) };
        let AskedWords { root, path, what } = words;
        let (root, path) = (root.as_ref().map(PlainText::as_str), path.as_ref().map(PlainText::as_str));
        let what = Some(what.as_str());
        daemon.live.audit.keep(&AuditRecord { deed, who, root, path, what, code, ..AuditRecord::default() });
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
        let account = held.account.take();
        drop(held);
        drop(all);
        // Its deputy has not said how it ended.
        account.iter().for_each(|account| account.ended(Some(FaultCode::Lost)));
        self.over.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Holds> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holds {
    /// The memory of the deputy's side.
    fn deputys_bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, Share::amount).saturating_sub(self.relay_bytes)
    }

    /// Takes the id of a lane over UDP, and memory for its relay. What was taken for one that has
    /// ended serves the next.
    fn takes_udp(&mut self, daemon: &Daemon, key: PublicKey, lane: LaneId) -> bool {
        let Some(standing) = self.session.as_ref().filter(|s| s.udp.expects(lane)).map(|s| s.udp.standing()) else {
            return false;
        };
        let lacks = ((standing as u64 + 1) * UdpRelay::BYTES).saturating_sub(self.relay_bytes);
        if lacks > 0 && !self.grow(daemon, key, lacks) {
            return false;
        }
        self.relay_bytes += lacks;
        self.session.as_mut().is_some_and(|session| session.udp.take(lane))
    }

    /// Takes more memory. Gives whether there is as much.
    fn grow(&mut self, daemon: &Daemon, key: PublicKey, bytes: u64) -> bool {
        let is_allowed = !self.closed && self.session.as_mut().is_none_or(|session| session.takes(bytes));
        if !is_allowed {
            return false;
        }
        // What there is not is asked for again.
        let has_grown = match &mut self.memory {
            Some(share) => share.grow(bytes).is_ok(),
            None => {
                self.memory = daemon.memory.claim(key, bytes).ok();
                self.memory.is_some()
            }
        };
        if let (false, Some(session)) = (has_grown, &mut self.session) {
            session.gives_back(session.roots.len(), bytes);
        }
        has_grown
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

#[cfg(test)]
mod tests;
