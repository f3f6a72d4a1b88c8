//! Brings lanes that were dialled to the sessions they prove to belong to.
//!
//! A lane id is named over control, good once and for 10 s. A private lane must also show its session's own key.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::limits::{LANE_JOIN_SECONDS_MAX, LANES_EVER_MAX};
use longhaul_core::{Fault, LaneId};
use longhaul_net::{Congestion, LaneHandle, LaneStream, Protection, PublicKey};
use longhaul_proto::join::JoinKey;
use tokio::sync::mpsc::UnboundedSender;

use crate::lane::{JoinedLane, join};
use crate::session::Event;
use crate::session::regrow::Open;

/// Sessions that expect lanes.
#[derive(Clone, Default)]
pub(super) struct Registry {
    sessions: Arc<Mutex<HashMap<[u8; 16], Expecting>>>,
    joining: Arc<Mutex<Joining>>,
}

/// Lanes that are proving where they belong, oldest first: each waits on a thread of its own, and those are few.
#[derive(Default)]
struct Joining {
    next: u64,
    queue: VecDeque<(u64, LaneHandle)>,
}

/// What a session expects.
pub(super) struct Expecting {
    /// The key of its proofs.
    pub(super) key: JoinKey,
    /// The client's key.
    pub(super) peer: PublicKey,
    /// How its lanes are protected.
    pub(super) protection: Protection,
    /// Ids that may join, until when.
    pub(super) open: HashMap<LaneId, Instant>,
    /// The next id that was never named.
    pub(super) next: u32,
    /// Their congestion control: this end may send.
    pub(super) congestion: Congestion,
    /// Where lanes go.
    pub(super) sink: UnboundedSender<Event>,
}

/// Takes a session out of the registry when it ends.
pub(super) struct Registered {
    registry: Registry,
    session: [u8; 16],
}

impl Expecting {
    /// The ids `0..count`, open from now.
    pub(super) fn ids(count: u32) -> HashMap<LaneId, Instant> {
        let until = Instant::now() + GOOD_FOR;
        (0..count).map(|n| (LaneId(n), until)).collect()
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
    /// Expects lanes of `session` until the returned guard is dropped.
    pub(super) fn expect(&self, session: [u8; 16], expecting: Expecting) -> Registered {
        self.lock().insert(session, expecting);
        Registered { registry: self.clone(), session }
    }

    /// Opens another id of a session, from now; none if it has had too many, or is over.
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

    /// Has a lane prove where it belongs, and brings it there. A lane that cannot is closed without a word.
    pub(super) async fn bring(&self, stream: LaneStream, key: Option<PublicKey>) {
        let registry = self.clone();
        let number = self.begin_joining(stream.handle());
        let brought = tokio::task::spawn_blocking(move || registry.bring_blocking(stream, key, number)).await;
        if let Ok(Err(fault)) = brought {
            tracing::debug!(target: "longhaul::serve", %fault, "a lane was turned away");
        }
    }

    fn bring_blocking(&self, mut stream: LaneStream, key: Option<PublicKey>, number: u64) -> Result<(), Fault> {
        let find = |session: &[u8; 16], id: LaneId| {
            self.lock().get(session).filter(|e| e.admits(id, key)).map(|e| e.key.clone())
        };
        let proved = join::accept(&mut stream, find);
        self.joining().queue.retain(|(joining, _)| *joining != number);
        let (session, id) = proved?;
        // Proved. Taken out under the lock: of two that prove the same id, one comes too late.
        let sink = {
            let mut sessions = self.lock();
            sessions.get_mut(&session).and_then(|e| e.open.remove(&id).map(|_| (e.sink.clone(), e.congestion.clone())))
        };
        let Some((sink, congestion)) = sink else {
            return Err(Fault::new(
                longhaul_core::FaultCode::Denied,
                longhaul_core::Blame::Peer,
                "a lane id that was used already",
            ));
        };
        // The accepting end sends as well (pull): its congestion control must not be the host's by accident.
        stream.set_congestion(&congestion).map_err(|e| crate::faults::net_fault(&e))?;
        join::confirm(&mut stream)?;
        let _ = sink.send(Event::Lane(JoinedLane { id, stream, taken: true }));
        Ok(())
    }

    /// Makes room by closing the lane that has been at it for longest: one that means well needs a round trip.
    fn begin_joining(&self, handle: LaneHandle) -> u64 {
        let mut joining = self.joining();
        if joining.queue.len() >= JOINING_MAX
            && let Some((_, oldest)) = joining.queue.pop_front()
        {
            oldest.close();
        }
        let number = joining.next;
        joining.next += 1;
        joining.queue.push_back((number, handle));
        number
    }

    fn joining(&self) -> std::sync::MutexGuard<'_, Joining> {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 16], Expecting>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// Opens further ids of the session, one at each call.
    pub(super) fn opener(&self) -> Open {
        let (registry, session) = (self.registry.clone(), self.session);
        Box::new(move || registry.open_another(&session))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.session);
    }
}

/// A lane id is good for so long.
const GOOD_FOR: Duration = Duration::from_secs(LANE_JOIN_SECONDS_MAX);
/// Lanes that prove at a time; twice as many lanes as one session may have, and half of the threads that the runtime gives.
const JOINING_MAX: usize = 256;
