//! Lanes over UDP that are asked for with the request of their session, so that its answer and
//! theirs come together.
//!
//! In: where such lanes are dialled, the secrets of the control connection. Out: the lanes that the
//! session turned out to have, one by one, to `dialling`. An acceptor that does not know how to
//! answer early is not waited for: those lanes are dialled anew. It knows no messages but the
//! answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendError, bounded};
use longhaul_core::LaneId;
use longhaul_core::limits::UDP_LANES_EARLY_MAX;
use longhaul_net::{Asking, AskingHandle, NetError, Over};
use longhaul_proto::wire::message::{CAP_UDP_EARLY, GrantedLanes, Transport, Welcome};

use super::dialling::UdpDoor;
use crate::lanes::join::Unjoined;
use crate::lanes::udp::join::{JoinedUdp, UdpOrder, UdpTerms, dial_early};

/// The lanes of a session that were asked for. See the module.
#[derive(Default)]
pub(super) struct EarlyUdp(Mutex<BTreeMap<LaneId, AskedLane>>);

/// A lane that was asked for. It is asked for no more once this is dropped.
struct AskedLane {
    told: Receiver<Result<JoinedUdp, Unjoined>>,
    handle: AskingHandle,
    peer: String,
    patience: Duration,
}

impl EarlyUdp {
    /// Asks for so many lanes at `door`, and not for more than may be asked for early. `terms` are
    /// those of the control connection, whose session has no name yet.
    pub(super) fn ask(door: &UdpDoor, terms: &UdpTerms, count: u32) -> EarlyUdp {
        let one = |id| {
            let (local, to) = door(None)?;
            // It holds nothing: a lane that nobody takes comes back to the thread that dialled it.
            let ((tell, told), handle, terms) = (bounded(0), AskingHandle::default(), terms.clone());
            let (order, asking) = (UdpOrder { to, local, id, admit: 0 }, handle.clone());
            let patience = Asking::over(terms.round_trip).at_most;
            tokio::task::spawn_blocking(move || {
                let Some(result) = dial_early(&order, &terms, asking) else { return };
                if let Err(SendError(Ok(joined))) = tell.send(result) {
                    // Its other end need not wait for it.
                    joined.refuse();
                }
            });
            Some((id, AskedLane { told, handle, peer: to.to_string(), patience }))
        };
        let ids = (0..count.min(UDP_LANES_EARLY_MAX)).map(LaneId);
        EarlyUdp(Mutex::new(ids.map_while(one).collect()))
    }

    /// Gives up the lanes that the session does not have. The others are asked for once more: what
    /// was said before may have been lost, or have found no place to wait.
    pub(super) fn agreed(self, welcome: &Welcome, granted: &GrantedLanes) -> EarlyUdp {
        let ids = granted.first.0..granted.first.0.saturating_add(granted.count);
        let is_known = welcome.caps & CAP_UDP_EARLY != 0 && granted.transport == Transport::Udp;
        let mut lanes = self.lock();
        lanes.retain(|id, _| is_known && ids.contains(&id.0));
        lanes.values().for_each(|lane| lane.handle.urge());
        drop(lanes);
        self
    }

    /// Waits for a lane as long as for one that is asked for now. `None` if it was not asked for,
    /// or could not be. One that was is never dialled anew: its other end may give it away to the
    /// socket that asked.
    pub(super) fn take(&self, id: LaneId) -> Option<Result<JoinedUdp, Unjoined>> {
        let asked = self.lock().remove(&id)?;
        match asked.told.recv_timeout(asked.patience) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => {
                let (peer, seconds) = (asked.peer.clone(), asked.patience.as_secs());
                Some(Err(NetError::NoAnswer { peer, seconds, over: Over::Udp }.into()))
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<LaneId, AskedLane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AskedLane {
    fn drop(&mut self) {
        self.handle.end();
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use crossbeam_channel::Sender;

    use super::*;
    use crate::lanes::udp::desk::tests::World;
    use crate::session::handshake::tests::welcome;

    /// A lane that was asked for, and where its result is told.
    fn asked_lane(patience: Duration) -> (Sender<Result<JoinedUdp, Unjoined>>, AskedLane) {
        let (tell, told) = bounded(1);
        (tell, AskedLane { told, handle: AskingHandle::default(), peer: "192.0.2.1:7214".to_owned(), patience })
    }

    #[test]
    fn a_lane_that_was_asked_for_early_is_never_dialled_anew() {
        let (joined, _accepted) = World::new().lane(None);
        let hour = Duration::from_secs(3600);
        let [answered, failed, silent] = [hour, hour, Duration::ZERO].map(asked_lane);
        let handle = answered.1.handle.clone();
        answered.0.send(Ok(joined)).expect("room");
        failed.0.send(Err(NetError::Closed { peer: String::new() }.into())).expect("room");
        let lanes = [answered.1, failed.1, silent.1].into_iter().enumerate();
        let early = EarlyUdp(Mutex::new(lanes.map(|(id, lane)| (LaneId(id as u32), lane)).collect()));
        assert!(matches!(early.take(LaneId(0)), Some(Ok(_))));
        assert!(handle.is_ended(), "nobody asks for a lane any more that was taken");
        assert!(matches!(early.take(LaneId(1)), Some(Err(Unjoined::Net(NetError::Closed { .. })))));
        assert!(matches!(early.take(LaneId(2)), Some(Err(Unjoined::Net(NetError::NoAnswer { .. })))));
        for id in [0, 3] {
            assert!(early.take(LaneId(id)).is_none(), "lane {id} is not asked for");
        }
    }

    #[tokio::test]
    async fn lanes_that_the_session_has_are_asked_for_once_more_at_once() {
        let world = tokio::task::spawn_blocking(World::new).await.expect("a world");
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        // Far less than the two seconds after which it is due by itself.
        peer.set_read_timeout(Some(Duration::from_millis(1500))).expect("taken");
        let to = peer.local_addr().expect("an address");
        let door: UdpDoor = Arc::new(move |_| Some((None, to)));
        let terms = UdpTerms { round_trip: Duration::from_secs(10), ..world.dialer.clone() };
        let early = EarlyUdp::ask(&door, &terms, 1);
        let mut said = [[0; 2000]; 2];
        peer.recv(&mut said[0]).expect("it is asked for");
        let granted = GrantedLanes { first: LaneId(0), count: 1, transport: Transport::Udp };
        let early = early.agreed(&welcome(CAP_UDP_EARLY), &granted);
        peer.recv(&mut said[1]).expect("it is asked for once more");
        assert!(said[0] == said[1]);
        drop(early);
        tokio::task::spawn_blocking(move || drop(world)).await.expect("no panic");
    }

    #[tokio::test]
    async fn a_lane_that_had_no_socket_to_be_asked_from_is_dialled_anew() {
        let world = tokio::task::spawn_blocking(World::new).await.expect("a world");
        // An address of documentation (RFC 5737), which no interface has.
        let (local, to) = ("192.0.2.1".parse().ok(), world.addr);
        assert!(local.is_some());
        let door: UdpDoor = Arc::new(move |_| Some((local, to)));
        let early = EarlyUdp::ask(&door, &world.dialer, 1);
        let taken = tokio::task::spawn_blocking(move || early.take(LaneId(0)).is_none());
        assert!(taken.await.expect("no panic"), "nobody heard of it");
        tokio::task::spawn_blocking(move || drop(world)).await.expect("no panic");
    }

    #[tokio::test]
    async fn only_lanes_that_the_session_has_and_that_its_acceptor_answers_early_are_waited_for() {
        let (asked, granted) = (9, GrantedLanes { first: LaneId(0), count: 2, transport: Transport::Udp });
        for (caps, granted, waited) in [
            (CAP_UDP_EARLY, granted.clone(), vec![0, 1]),
            (!CAP_UDP_EARLY, granted.clone(), vec![]),
            (CAP_UDP_EARLY, GrantedLanes { first: LaneId(3), ..granted.clone() }, vec![3]),
            (CAP_UDP_EARLY, GrantedLanes { transport: Transport::Tcp, ..granted }, vec![]),
        ] {
            let (world, nobody) = (tokio::task::spawn_blocking(World::new).await.expect("a world"), None);
            let to = world.addr;
            let door: UdpDoor = Arc::new(move |_| Some((nobody, to)));
            let early = EarlyUdp::ask(&door, &world.dialer, asked).agreed(&welcome(caps), &granted);
            let ids: Vec<u32> = early.lock().keys().map(|id| id.0).collect();
            assert_eq!(ids, waited, "{caps}, {granted:?}");
            drop(early);
            tokio::task::spawn_blocking(move || drop(world)).await.expect("no panic");
        }
    }
}
