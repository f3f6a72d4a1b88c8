//! Owns the sessions that expect lanes, and brings each accepted lane to the session to which it
//! proves to belong.
//!
//! In: streams of lanes from the door, and sessions that register. Out: a joined lane to the
//! session's listener. A lane id is named over control, good once and for 10 s. A private lane must
//! also show its session's own key. Each lane that proves waits on a thread of its own, and there
//! are few such seats: a private lane gets one if its key is a client's; a safe lane gets one if it
//! names a session and an id that is expected, which nobody knows who does not see that session's
//! traffic. So strangers take no seat, and others only from their own share. It knows no messages
//! and no files.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::limits::{LANE_JOIN_SECONDS_MAX, LANES_EVER_MAX, LANES_MAX, UDP_LANES_EARLY_MAX};
use longhaul_core::{Fault, LaneId, Transport};
use longhaul_net::{Congestion, LaneStream, Loss, Protection, PublicKey, Seat, Seats, Source, Tally, UdpHandle};
use longhaul_proto::join::{JoinKey, OPENING_BYTES, Opening};
use longhaul_proto::udp::join::early_session;
use longhaul_sys::{Slab, Slot};
use tokio::sync::watch;

use super::event::{LaneEvent, LaneListener};
use super::replace::OpenLaneId;
use super::udp::accepted::AcceptedUdp;
use super::udp::desk::UdpSessions;
use super::udp::join::UdpTerms;
use super::udp::places::first_slots;
use super::{JoinedLane, StreamLane, join};

/// The sessions that expect lanes. Clones share them.
#[derive(Clone)]
pub(crate) struct Registry {
    sessions: Arc<Mutex<HashMap<[u8; 16], Expecting>>>,
    /// The sessions that expect lanes over UDP, by their names of before they began.
    early_names: Arc<Mutex<HashMap<[u8; 16], [u8; 16]>>>,
    /// Changes when such a session begins.
    begun: watch::Sender<()>,
    /// Seats of private lanes that prove where they belong, shared out by key.
    private: Seats,
    /// Seats of safe lanes, shared out by address.
    safe: Seats,
    /// Whether a port was found at which lanes over UDP cannot have sockets.
    bars_udp: Arc<AtomicBool>,
}

impl Default for Registry {
    fn default() -> Registry {
        let (sessions, early_names, begun, bars_udp) = Default::default();
        let (private, safe) = (Seats::new(PRIVATE_JOINING_MAX), Seats::new(SAFE_JOINING_MAX));
        Registry { sessions, early_names, begun, private, safe, bars_udp }
    }
}

/// The lanes that a session expects.
pub(crate) struct Expecting {
    /// The key of their proofs.
    pub(crate) key: JoinKey,
    /// The client's key.
    pub(crate) peer: PublicKey,
    /// How its lanes are protected.
    pub(crate) protection: Protection,
    /// Ids that may join, and until when.
    pub(crate) open: HashMap<LaneId, Instant>,
    /// The smallest id that was never named.
    pub(crate) next: u32,
    /// The congestion control of its lanes, as this end may send.
    pub(crate) congestion: Congestion,
    /// Where joined lanes go.
    pub(crate) listener: Arc<dyn LaneListener>,
    /// When it last heard of a way beside the ssh session.
    pub(crate) way_told: Option<Instant>,
    /// The secrets of its lanes over UDP. `None` if none may come.
    pub(crate) udp: Option<UdpTerms>,
    /// The slots of a session that receives, some of which each of these lanes promises as it
    /// joins.
    pub(crate) slab: Option<Arc<Slab>>,
    /// Lanes over UDP whose other end has not shown yet that it heard the answer.
    pub(crate) joining: HashMap<LaneId, UdpHandle>,
}

/// Takes a session out of the registry when it ends.
pub(crate) struct Registered {
    registry: Registry,
    session: [u8; 16],
}

impl Expecting {
    /// The ids `0..count`, open from now.
    pub(crate) fn ids(count: u32) -> HashMap<LaneId, Instant> {
        let until = Instant::now() + GOOD_FOR;
        (0..count).map(|n| (LaneId(n), until)).collect()
    }

    /// The name by which its lanes over UDP may have been asked for before it began. `None` if it
    /// has none of these.
    fn early_name(&self) -> Option<[u8; 16]> {
        self.udp.as_ref().map(|terms| early_session(&terms.key))
    }

    /// Whether a lane with this protection and key may try to join under `id`.
    fn admits(&self, id: LaneId, key: Option<PublicKey>) -> bool {
        let protected = match self.protection {
            Protection::Private => key == Some(self.peer),
            Protection::Safe => key.is_none(),
        };
        protected && self.open.get(&id).is_some_and(|until| Instant::now() < *until)
    }
}

impl Registry {
    /// A registry with so many seats of private lanes.
    #[cfg(test)]
    pub(crate) fn with_private_seats(seats: usize) -> Registry {
        Registry { private: Seats::new(seats), ..Registry::default() }
    }

    /// The names by which sessions may be asked for lanes before they began.
    #[cfg(test)]
    pub(crate) fn early_count(&self) -> usize {
        self.early_names().len()
    }

    /// Expects lanes of `session` until the returned guard is dropped.
    pub(crate) fn expect(&self, session: [u8; 16], expecting: Expecting) -> Registered {
        let early_name = expecting.early_name();
        self.lock().insert(session, expecting);
        if let Some(early_name) = early_name {
            self.early_names().insert(early_name, session);
            self.begun.send_replace(());
        }
        Registered { registry: self.clone(), session }
    }

    /// Changes whenever a session begins that expects lanes over UDP: some may have knocked before.
    pub(crate) fn begun(&self) -> watch::Receiver<()> {
        self.begun.subscribe()
    }

    /// Notes that lanes over UDP cannot have sockets at a port of this daemon.
    pub(crate) fn bar_udp(&self) {
        self.bars_udp.store(true, Ordering::Relaxed);
    }

    /// Whether sessions whose lanes go over UDP are refused.
    pub(crate) fn bars_udp(&self) -> bool {
        self.bars_udp.load(Ordering::Relaxed)
    }

    /// Opens another id of a session, from now. `None` if it has had too many or is over.
    fn open_another(&self, session: &[u8; 16]) -> Option<LaneId> {
        let mut sessions = self.lock();
        let expecting = sessions.get_mut(session).filter(|expecting| expecting.next < LANES_EVER_MAX)?;
        let now = Instant::now();
        expecting.open.retain(|_, until| now < *until);
        let id = LaneId(expecting.next);
        expecting.next += 1;
        expecting.open.insert(id, now + GOOD_FOR);
        Some(id)
    }

    /// Tells every session that lanes over `transport` have a way beside the ssh session. Each
    /// hears it once a second: its client may say it as often as it likes, and what a session is to
    /// hear waits in memory. (A client that lost a way looks for another one for 3 s at least.)
    pub(crate) fn way_found(&self, transport: Transport) {
        let is_due = |told: Option<Instant>| told.is_none_or(|told| told.elapsed() >= WAY_TOLD_EVERY);
        for session in self.lock().values_mut().filter(|session| is_due(session.way_told)) {
            session.way_told = Some(Instant::now());
            session.listener.hear(LaneEvent::WayFound(transport));
        }
    }

    /// Has a safe lane from a host, whose first bytes are `opening`, prove where it belongs, and
    /// brings it there.
    pub(crate) async fn bring_safe(&self, stream: LaneStream, opening: &[u8], from: IpAddr) {
        let Some(opening) = opening.first_chunk::<OPENING_BYTES>().map(Opening::decode) else { return };
        let expected = self.lock().get(&opening.session).is_some_and(|e| e.admits(opening.lane, None));
        match expected {
            true => self.bring(stream, None, self.safe.enter(Source::of(from))).await,
            false => tracing::debug!(target: "longhaul::serve", %from, "a lane that belongs to no session"),
        }
    }

    /// Has a private lane of a client's `key` prove where it belongs, and brings it there. It may
    /// come before its session.
    pub(crate) async fn bring_private(&self, stream: LaneStream, key: PublicKey) {
        self.bring(stream, Some(key), self.private.enter(Source::Key(key))).await;
    }

    /// Has a lane prove where it belongs, and brings it there. A lane that cannot, or that loses
    /// its seat before it has, is closed without a word.
    async fn bring(&self, stream: LaneStream, key: Option<PublicKey>, (seat, loss): (Seat, Loss)) {
        let (registry, handle) = (self.clone(), stream.handle());
        let mut proving = tokio::task::spawn_blocking(move || registry.bring_blocking(stream, key, seat));
        let brought = tokio::select! {
            brought = &mut proving => brought,
            () = loss.happens() => {
                handle.close();
                proving.await
            }
        };
        if let Ok(Err(fault)) = brought {
            tracing::debug!(target: "longhaul::serve", %fault, "a lane was turned away");
        }
    }

    /// Brings a lane over UDP that has proved to belong to a session to it, as soon as its first
    /// sealed packet has come. Waits for that on a thread of its own, as long as the lane has its
    /// seat and the session is expected: there are no more of these than seats.
    pub(crate) async fn bring_udp(&self, mut accepted: AcceptedUdp) {
        let (session, id, handle) = (accepted.session, accepted.id(), accepted.handle());
        let Some(listener) = self.begin_joining(&session, id, &handle) else { return };
        let (_seat, loss) = accepted.take_place().unzip();
        let mut joining = tokio::task::spawn_blocking(move || accepted.first());
        let is_lost = async {
            match loss {
                Some(loss) => loss.happens().await,
                None => std::future::pending().await,
            }
        };
        let joined = tokio::select! {
            joined = &mut joining => joined,
            () = is_lost => {
                handle.close();
                joining.await
            }
        };
        if let Some(expecting) = self.lock().get_mut(&session) {
            expecting.joining.remove(&id);
        }
        match joined {
            Ok(Ok(lane)) => listener.hear(LaneEvent::Joined(JoinedLane::Udp(Box::new(lane)))),
            Ok(Err(unjoined)) => {
                let fault = Fault::from(unjoined);
                tracing::debug!(target: "longhaul::serve", %fault, "a UDP lane came to nothing");
            }
            Err(_) => {}
        }
    }

    /// A lane over UDP waits for its first sealed packet. Gives the listener of its session, `None`
    /// if that is over.
    fn begin_joining(&self, session: &[u8; 16], id: LaneId, handle: &UdpHandle) -> Option<Arc<dyn LaneListener>> {
        let mut sessions = self.lock();
        let expecting = sessions.get_mut(session)?;
        expecting.joining.insert(id, handle.clone());
        Some(expecting.listener.clone())
    }

    /// The lanes that lost their seats since this was last asked.
    pub(crate) fn take_lost(&self) -> Tally {
        let mut lost = self.private.take_lost();
        lost.merge(self.safe.take_lost());
        lost
    }

    fn bring_blocking(&self, mut stream: LaneStream, key: Option<PublicKey>, seat: Seat) -> Result<(), Fault> {
        let find = |session: &[u8; 16], id: LaneId| {
            self.lock().get(session).filter(|e| e.admits(id, key)).map(|e| e.key.clone())
        };
        let proved = join::accept(&mut stream, find);
        drop(seat);
        let (session, id) = proved?;
        // The lane has proved. The id is taken out under the lock: of two lanes that prove the same
        // id, the second is refused.
        let found = {
            let mut sessions = self.lock();
            sessions
                .get_mut(&session)
                .and_then(|e| e.open.remove(&id).map(|_| (e.listener.clone(), e.congestion.clone())))
        };
        let Some((listener, congestion)) = found else {
            return Err(Fault::new(
                longhaul_core::FaultCode::Denied,
                longhaul_core::Blame::Peer,
                "a lane id that was used already",
            ));
        };
        // The accepting end sends as well (pull): its congestion control must not be the host's by
        // accident.
        let transport = stream.handle().facts().transport;
        // A session that left QUIC for TCP was asked for a control of QUIC's.
        let congestion = congestion.try_for_peer(transport).map_or(Congestion::Auto, |()| congestion);
        stream.set_congestion(&congestion)?;
        join::confirm(&mut stream)?;
        listener.hear(LaneEvent::Joined(StreamLane { id, stream, taken: true }.into()));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 16], Expecting>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn early_names(&self) -> MutexGuard<'_, HashMap<[u8; 16], [u8; 16]>> {
        self.early_names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UdpSessions for Registry {
    fn terms(&self, session: &[u8; 16], lane: LaneId) -> Option<UdpTerms> {
        let terms = |session: &[u8; 16]| {
            let sessions = self.lock();
            let expecting = sessions.get(session)?;
            let is_open = expecting.open.get(&lane).is_some_and(|until| Instant::now() < *until);
            expecting.udp.clone().filter(|_| is_open)
        };
        terms(session).or_else(|| {
            let early = self.early_names().get(session).copied().filter(|_| lane.0 < UDP_LANES_EARLY_MAX);
            terms(&early?)
        })
    }

    /// The seats of private lanes, shared out by key.
    fn enter(&self, session: &[u8; 16]) -> Option<(Seat, Loss)> {
        let peer = self.lock().get(session).map(|expecting| expecting.peer)?;
        Some(self.private.enter(Source::Key(peer)))
    }

    fn take(&self, session: &[u8; 16], lane: LaneId) -> Option<Vec<Slot>> {
        let slab = {
            let mut sessions = self.lock();
            let expecting = sessions.get_mut(session)?;
            expecting.open.remove(&lane)?;
            expecting.slab.clone()
        };
        Some(slab.as_ref().map_or_else(Vec::new, first_slots))
    }
}

impl Registered {
    /// Opens further ids of the session, one at each call.
    pub(crate) fn opener(&self) -> OpenLaneId {
        let (registry, session) = (self.registry.clone(), self.session);
        Box::new(move || registry.open_another(&session))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let expecting = self.registry.lock().remove(&self.session);
        if let Some(early_name) = expecting.as_ref().and_then(Expecting::early_name) {
            self.registry.early_names().remove(&early_name);
        }
        // Nobody hears of lanes that are about to stand.
        expecting.iter().flat_map(|expecting| expecting.joining.values()).for_each(UdpHandle::close);
    }
}

/// How long a lane id is good.
const GOOD_FOR: Duration = Duration::from_secs(LANE_JOIN_SECONDS_MAX);
/// Private lanes that prove at a time, and lanes over UDP that wait for their first sealed packet:
/// twice as many as one session may have, and half of the
/// threads that the runtime gives.
const PRIVATE_JOINING_MAX: usize = 256;
/// Safe lanes that prove at a time: as many as one session may have.
const SAFE_JOINING_MAX: usize = LANES_MAX as usize;
/// A session hears of ways no more often.
const WAY_TOLD_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    #[test]
    fn of_the_ways_that_a_client_says_were_found_a_session_hears_the_first() {
        let (registry, (sender, mut heard)) = (Registry::default(), unbounded_channel::<LaneEvent>());
        let expect = |listener: UnboundedSender<LaneEvent>| Expecting {
            key: JoinKey([1; 32]),
            peer: PublicKey::from_bytes([2; 32]),
            protection: Protection::Private,
            open: Expecting::ids(1),
            next: 1,
            congestion: Congestion::Auto,
            listener: Arc::new(listener),
            way_told: None,
            udp: None,
            slab: None,
            joining: HashMap::new(),
        };
        // A session that begins later hears of a way, too.
        let _first = registry.expect([1; 16], expect(sender.clone()));
        (0..1000).for_each(|_| registry.way_found(Transport::Tcp));
        let _second = registry.expect([2; 16], expect(sender));
        (0..1000).for_each(|_| registry.way_found(Transport::Quic));
        let told: Vec<_> = std::iter::from_fn(|| heard.try_recv().ok()).collect();
        let want = [LaneEvent::WayFound(Transport::Tcp), LaneEvent::WayFound(Transport::Quic)];
        assert_eq!(format!("{told:?}"), format!("{want:?}"));
    }
}
