//! Tests of the daemon's side of a conversation.

use longhaul_core::Transport;

use super::super::super::live::Needs;
use super::super::super::live::tests::daemon;
use super::super::super::shares::ClientShares;
use super::super::super::{ClientUser, Rights};
use super::*;

const UID: u32 = 7;
const READ: Rights = Rights { read: true, create: false, modify: false, delete: false };
/// The memory that the deputy asked for.
const OF_DEPUTY: u64 = 1 << 20;

fn wish(protection: Protection) -> SessionWish {
    let (what, needs) = (PlainText::from("push".to_owned()), Needs::default());
    SessionWish { what, protection, transport: Transport::Udp, receives: true, needs, own_rate: None }
}

#[tokio::test]
async fn a_lane_over_udp_is_passed_on_only_while_its_session_runs_and_takes_of_its_memory() {
    let dir = tempfile::tempdir().expect("scratch");
    let mut daemon = daemon(dir.path(), Some(READ), READ);
    let client = &mut daemon.config.clients[0];
    client.user = Some(ClientUser { uid: UID, gid: UID, name: None });
    client.bounds.lanes = Some(3);
    let memory = ClientShares::whole("memory", OF_DEPUTY + 2 * UdpRelay::BYTES);
    daemon.memory = memory.clone();
    let (key, peer) = (daemon.config.clients[0].key, ([127, 0, 0, 1], 1).into());
    let (current, deputy) = (Arc::new(Current::new(daemon)), Deputy::unheard());
    let begin = |talk: TalkId| {
        let talker = Talker { key, uid: UID, peer };
        Arc::new(Conversation::new((talk, [talk as u8; 16]), talker, current.clone(), deputy.clone()))
    };

    let talk = begin(1);
    talk.grow(OF_DEPUTY);
    assert!(!talk.expects_udp(LaneId(0)) && !talk.takes_udp(LaneId(0)), "no session was let begin");
    assert_eq!(memory.taken().0, OF_DEPUTY);
    assert!(talk.granted(wish(Protection::Private)).await.is_ok());
    assert!(talk.expects_udp(LaneId(0)) && talk.takes_udp(LaneId(0)));
    assert_eq!(memory.taken().0, OF_DEPUTY + UdpRelay::BYTES);
    assert_eq!(talk.lock().deputys_bytes(), OF_DEPUTY, "its relay is none of the deputy's memory");
    // One that could not be passed on leaves its memory to the next.
    talk.gives_udp_back(LaneId(0));
    assert!(talk.takes_udp(LaneId(0)) && !talk.takes_udp(LaneId(0)));
    assert_eq!(memory.taken().0, OF_DEPUTY + UdpRelay::BYTES);
    assert!(talk.takes_udp(LaneId(1)));
    assert!(talk.expects_udp(LaneId(2)) && !talk.takes_udp(LaneId(2)), "there is no memory for it");
    talk.end();
    assert!(!talk.expects_udp(LaneId(2)), "the session has ended");
    talk.close();
    assert_eq!(memory.taken().0, 0);

    let safe = begin(2);
    assert!(safe.granted(wish(Protection::Safe)).await.is_ok());
    assert!(!safe.expects_udp(LaneId(0)), "lanes over UDP are encrypted");
}
