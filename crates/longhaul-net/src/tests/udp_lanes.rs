//! Native UDP lanes over the sockets of this host: their port, their keys, their datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_sys::udp::Sent;
use tokio::time::timeout;

use super::{PATIENCE, Port, identity, meanwhile};
use crate::{
    Asking, AskingHandle, GreetLimits, Identity, Knock, Knocks, LaneOptions, LaneStream, NetError, PeerCheck,
    QuicListener, SEAL_BYTES, ServerTls, UdpDial, UdpFigure, UdpLane, UdpReceiveHalf, UdpSecret,
};

const QUESTION: &[u8] = &question();
const ANSWER: &[u8] = b"\x22 an answer";
const CONTEXT: &[u8] = b"a lane";

/// A datagram that may be a JOIN, as far as the port looks at it.
const fn question() -> [u8; 1232] {
    let mut question = [b'?'; 1232];
    (question[0], question[1]) = (0x21, 1);
    question
}

/// A port of lanes.
struct UdpPort {
    listener: QuicListener,
    knocks: Knocks,
    identity: Identity,
    runtime: tokio::runtime::Runtime,
    /// Addresses that have a lane: a question that was asked twice before its answer may wait here.
    seated: Vec<SocketAddr>,
}

impl UdpPort {
    fn open(addr: &str) -> UdpPort {
        let identity = identity();
        let tls = ServerTls::new(&identity, GreetLimits::default()).unwrap();
        let mut listener = QuicListener::bind(addr.parse().unwrap(), &tls).unwrap();
        let knocks = listener.take_knocks().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        UdpPort { listener, knocks, identity, runtime, seated: Vec::new() }
    }

    fn at(&self, ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), self.listener.local_addr().port())
    }

    fn next(&mut self) -> Knock {
        let (knocks, seated) = (&mut self.knocks, &self.seated);
        let unheard = async {
            loop {
                let knock = knocks.next().await.unwrap();
                if !seated.contains(&knock.from) {
                    return knock;
                }
            }
        };
        self.runtime.block_on(async { timeout(PATIENCE, unheard).await }).expect("a knock")
    }
}

fn patient() -> Asking {
    Asking { every: Duration::from_millis(50), at_most: PATIENCE, handle: None }
}

fn is_answer(datagram: &[u8]) -> Option<()> {
    (datagram == ANSWER).then_some(())
}

/// Both ends' secret of one control connection.
fn secrets() -> (UdpSecret, UdpSecret) {
    let port = Port::open();
    let (dialled, accepted) = port.control();
    (dialled.udp, accepted.udp)
}

/// Both ends of a lane through a port.
fn lane(port: &mut UdpPort, ip: &str) -> (UdpLane, UdpLane) {
    let to = port.at(ip);
    let dialling = meanwhile(move || {
        let dial = UdpDial::new(to, None).unwrap();
        dial.ask(QUESTION, &patient(), is_answer).unwrap();
        dial
    });
    let knock = port.next();
    assert_eq!(knock.datagram, QUESTION);
    port.seated.push(knock.from);
    let (near, far) = secrets();
    let accepted = UdpLane::accepted(port.knocks.seat(&knock).unwrap(), &far, CONTEXT).unwrap();
    assert_eq!(accepted.send.send_plain(ANSWER).unwrap(), Sent::Taken);
    let dialled = UdpLane::dialled(dialling(), &near, CONTEXT).unwrap();
    assert_eq!((dialled.peer_addr(), accepted.local_addr()), (to, Some(to)));
    assert_eq!(Some(accepted.peer_addr().port()), dialled.local_addr().map(|addr| addr.port()));
    (dialled, accepted)
}

/// A header of eight bytes that says the number of the packet.
fn header(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Sends a packet for each, in runs.
fn say(lane: &mut UdpLane, packets: &[Vec<u8>]) {
    for plain in packets {
        if !lane.send.has_room(8 + plain.len() + SEAL_BYTES) {
            assert_eq!(lane.send.flush().unwrap(), Sent::Taken);
        }
        let number = lane.send.number().unwrap();
        lane.send.push(&header(number), plain).unwrap();
    }
    assert_eq!(lane.send.flush().unwrap(), Sent::Taken);
}

/// The next packets, opened; what is no packet is passed over.
fn hear(receive: &mut UdpReceiveHalf, count: usize) -> Vec<Vec<u8>> {
    let mut heard = Vec::new();
    while heard.len() < count {
        receive.receive(PATIENCE).unwrap();
        let (runs, opener) = receive.parts();
        for datagram in runs.flat_map(|run| run.datagrams()) {
            let Some((header, sealed)) = datagram.split_first_chunk::<8>() else { continue };
            let mut plain = vec![0; sealed.len().saturating_sub(SEAL_BYTES)];
            if opener.open(u64::from_le_bytes(*header), header, sealed, &mut plain).is_ok() {
                heard.push(plain);
            }
        }
    }
    heard
}

#[test]
fn lanes_and_quic_share_a_port_and_each_hears_its_own() {
    for (bound, ip) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
        let mut port = UdpPort::open(bound);
        let (mut near, mut far) = lane(&mut port, ip);
        let (to, key) = (port.at(ip), port.identity.public());
        let quic = meanwhile(move || LaneStream::dial_quic(to, &identity(), key, &LaneOptions::default()).is_ok());
        let packets: Vec<_> = (0..200_u16).map(|n| vec![n as u8; 1000]).collect();
        say(&mut near, &packets);
        assert_eq!(hear(&mut far.receive, 200), packets);
        say(&mut far, &packets[..3]);
        assert_eq!(hear(&mut near.receive, 3), packets[..3]);
        assert!(quic(), "{bound}: a QUIC lane beside it");
        // A second lane, and the first one goes on.
        let (mut second, mut of_second) = lane(&mut port, ip);
        say(&mut second, &packets[..50]);
        say(&mut near, &packets[50..60]);
        assert_eq!(hear(&mut of_second.receive, 50), packets[..50]);
        assert_eq!(hear(&mut far.receive, 10), packets[50..60]);
    }
}

#[test]
fn a_host_of_several_addresses_answers_from_the_one_that_was_knocked_at() {
    let mut port = UdpPort::open("0.0.0.0:0");
    // `lane` compares the addresses.
    let (mut near, mut far) = lane(&mut port, "127.0.0.2");
    say(&mut far, &[vec![1; 10]]);
    assert_eq!(hear(&mut near.receive, 1), [vec![1; 10]]);
}

#[test]
fn nobody_is_answered_by_the_port_itself() {
    let port = UdpPort::open("127.0.0.1:0");
    let stranger = UdpDial::new(port.at("127.0.0.1"), None).unwrap();
    let asking = Asking { every: Duration::from_millis(20), at_most: Duration::from_millis(200), handle: None };
    // Kinds that lanes have, others, and more than any of them; whatever came would be an answer.
    for question in [QUESTION, ANSWER, b"\x23", b"\0", &[0x21; 1232], &[0x21; 9000]] {
        let said = stranger.ask(question, &asking, |answer| Some(answer.to_vec()));
        assert!(matches!(said, Err(NetError::NoAnswer { .. })), "{said:?}");
    }
}

#[test]
fn what_is_too_long_or_too_much_is_not_kept() {
    let mut port = UdpPort::open("127.0.0.1:0");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(port.at("127.0.0.1")).unwrap();
    stranger.send(&[0x21; 3000]).unwrap();
    for _ in 0..2000 {
        stranger.send(QUESTION).unwrap();
    }
    // QUIC still takes its datagrams while nobody looks at these.
    let (to, key) = (port.at("127.0.0.1"), port.identity.public());
    let quic = meanwhile(move || LaneStream::dial_quic(to, &identity(), key, &LaneOptions::default()).is_ok());
    assert!(quic());
    let mut kept = 0;
    while let Ok(knock) = port.runtime.block_on(async { timeout(Duration::ZERO, port.knocks.next()).await }) {
        assert_eq!(knock.unwrap().datagram, QUESTION);
        kept += 1;
    }
    assert!((1..=32).contains(&kept), "{kept}");
}

#[test]
fn who_asks_is_held_up_by_no_flood() {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dial = UdpDial::new(peer.local_addr().unwrap(), None).unwrap();
    let asking = Asking { every: Duration::from_millis(20), at_most: Duration::from_millis(100), handle: None };
    peer.connect(dial.socket.local_addr().unwrap()).unwrap();
    peer.send(b"no answer").unwrap();
    let begun = Instant::now();
    let said = dial.ask(QUESTION, &asking, |_| {
        // The next one is there before this one was looked at.
        if begun.elapsed() < Duration::from_secs(5) {
            peer.send(b"no answer").unwrap();
        }
        None::<()>
    });
    assert!(matches!(said, Err(NetError::NoAnswer { .. })) && begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_question_is_said_at_once_when_it_is_urged_and_ends_when_it_is_ended() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    nobody.set_read_timeout(Some(PATIENCE)).unwrap();
    let dial = UdpDial::new(nobody.local_addr().unwrap(), None).unwrap();
    let handle = AskingHandle::default();
    // Neither is due by itself while this test runs.
    let hour = Duration::from_secs(3600);
    let asking = Asking { handle: Some(handle.clone()), every: hour, at_most: 2 * hour };
    let asked = meanwhile(move || dial.ask(QUESTION, &asking, is_answer).unwrap_err());
    let mut said = [0; 100];
    nobody.recv(&mut said).unwrap();
    handle.urge();
    said.fill(0);
    nobody.recv(&mut said).unwrap();
    assert_eq!(said, QUESTION[..said.len()]);
    handle.end();
    let ended = asked();
    assert!(matches!(ended, NetError::Closed { .. }), "{ended:?}");
}

#[test]
fn an_answer_that_is_there_is_taken_though_the_question_was_ended_or_is_over() {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (ends, at_most) in [(true, Duration::MAX), (false, Duration::ZERO)] {
        let dial = UdpDial::new(peer.local_addr().unwrap(), None).unwrap();
        peer.send_to(ANSWER, dial.socket.local_addr().unwrap()).unwrap();
        let handle = AskingHandle::default();
        if ends {
            handle.end();
        }
        dial.ask(QUESTION, &Asking { every: PATIENCE, at_most, handle: Some(handle) }, is_answer).unwrap();
    }
}

#[test]
fn a_question_about_a_lane_whose_session_is_yet_to_stand_does_not_end_by_itself() {
    let asking = Asking::early(Duration::from_millis(200), AskingHandle::default());
    assert_eq!((asking.every, asking.at_most), (Duration::from_millis(600), Duration::MAX));
}

#[test]
fn a_repeated_question_comes_to_the_socket_apart_and_not_to_the_port() {
    let mut port = UdpPort::open("127.0.0.1:0");
    let dial = UdpDial::new(port.at("127.0.0.1"), None).unwrap();
    let once = Asking { every: PATIENCE, at_most: Duration::from_millis(1), handle: None };
    dial.ask(QUESTION, &once, is_answer).unwrap_err();
    let knock = port.next();
    let (_, far) = secrets();
    let mut accepted = UdpLane::accepted(port.knocks.seat(&knock).unwrap(), &far, CONTEXT).unwrap();
    let asking = meanwhile(move || dial.ask(QUESTION, &patient(), is_answer).is_ok());
    accepted.receive.receive(PATIENCE).unwrap();
    let (mut runs, _) = accepted.receive.parts();
    assert_eq!(runs.next().map(|run| run.bytes), Some(QUESTION));
    drop(runs);
    // What is given once more is what came.
    accepted.receive.give_again();
    assert!(accepted.receive.receive(Duration::ZERO).unwrap() >= 1);
    assert_eq!(accepted.receive.parts().0.next().map(|run| run.datagrams().next()), Some(Some(QUESTION)));
    accepted.send.send_plain(ANSWER).unwrap();
    assert!(asking());
    assert_eq!(accepted.handle.get(UdpFigure::Sent), ANSWER.len() as u64);
}

#[test]
fn a_strangers_packets_open_nothing_and_a_second_daemon_finds_the_port_taken() {
    let mut port = UdpPort::open("127.0.0.1:0");
    let (mut near, mut far) = lane(&mut port, "127.0.0.1");
    // Of the same lane between other ends.
    let (other, _) = secrets();
    let dial = UdpDial::new(port.at("127.0.0.1"), None).unwrap();
    let mut stranger = UdpLane::dialled(dial, &other, CONTEXT).unwrap();
    say(&mut stranger, &[vec![6; 100]]);
    near.send.send_plain(b"\x23 damaged on the way, or made up").unwrap();
    say(&mut near, &[vec![7; 100]]);
    assert_eq!(hear(&mut far.receive, 1), [vec![7; 100]]);
    let (_, opener) = far.receive.parts();
    assert_eq!(opener.forged(), 1, "the stranger's never came to this socket");
    let tls = ServerTls::new(&identity(), GreetLimits::default()).unwrap();
    assert!(matches!(QuicListener::bind(port.at("127.0.0.1"), &tls), Err(NetError::Socket { .. })));
}

#[test]
fn closing_a_lane_wakes_whoever_waits_on_it() {
    let mut port = UdpPort::open("127.0.0.1:0");
    let (near, mut far) = lane(&mut port, "127.0.0.1");
    let handle = far.handle.clone();
    assert!(handle.is_within_host());
    let waiting = thread::spawn(move || {
        loop {
            match far.receive.receive(PATIENCE) {
                Ok(_) => {}
                other => return other,
            }
        }
    });
    handle.close();
    assert!(matches!(waiting.join().unwrap(), Err(NetError::Closed { .. })));
    assert!(handle.is_closed() && !near.handle.is_closed());
    let mut near = near;
    near.handle.close();
    assert!(matches!(near.send.send_alone(&header(0), b""), Err(NetError::Closed { .. })));
}

#[test]
fn a_run_takes_datagrams_of_one_length_and_a_shorter_last() {
    let mut port = UdpPort::open("127.0.0.1:0");
    let (mut near, mut far) = lane(&mut port, "127.0.0.1");
    assert!(near.send.is_empty() && near.send.has_room(65_000));
    let mut push = |len: usize| {
        let number = near.send.number().unwrap();
        near.send.push(&header(number), &vec![1; len]).unwrap();
        (near.send.has_room(8 + len + SEAL_BYTES), near.send.has_room(8 + len + SEAL_BYTES + 1), near.send.has_room(1))
    };
    assert_eq!(push(1000), (true, false, true));
    assert_eq!(push(1000), (true, false, true));
    assert_eq!(push(500), (false, false, false));
    near.send.flush().unwrap();
    assert_eq!(hear(&mut far.receive, 3).iter().map(Vec::len).collect::<Vec<_>>(), [1000, 1000, 500]);
    assert_eq!((UdpReceiveHalf::is_full(&far.receive), near.send.cuts()), (false, true));
}

#[test]
fn a_client_of_another_key_has_another_secret() {
    let port = Port::open();
    let (one, _) = port.control();
    let other = port.dial(&identity(), PeerCheck::Pinned(port.key)).unwrap();
    let mut sealed = [one.udp, other.udp].map(|secret| {
        let (mut sealer, _) = secret.keys(CONTEXT, crate::LaneEnd::Dialer).unwrap();
        let mut out = [0; 64];
        sealer.seal(b"", b"the same", &mut out).unwrap();
        out
    });
    assert_ne!(sealed[0], sealed[1]);
    sealed[0].fill(0);
}
