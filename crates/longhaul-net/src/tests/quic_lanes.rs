//! Tests of lanes over QUIC alone: keys, deadlines, windows, an address that changes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::{PATIENCE, identity, meanwhile, noise};
use crate::{
    Congestion, GreetLimits, Identity, LaneOptions, LaneStream, NetError, NetErrorKind, PublicKey, QuicListener,
    ServerTls,
};

/// A UDP port that greets all connections. It lives as long as its lanes: a runtime that is dropped
/// takes them with it.
pub(super) struct QuicPort {
    runtime: Runtime,
    listener: QuicListener,
    key: PublicKey,
}

impl QuicPort {
    pub(super) fn open() -> &'static mut QuicPort {
        QuicPort::with(GreetLimits { deadline: PATIENCE, ..GreetLimits::default() })
    }

    fn with(limits: GreetLimits) -> &'static mut QuicPort {
        let identity = identity();
        let tls = ServerTls::new(&identity, limits).unwrap();
        let listener = QuicListener::bind("127.0.0.1:0".parse().unwrap(), &tls).unwrap();
        Box::leak(Box::new(QuicPort { runtime: Runtime::new().unwrap(), listener, key: identity.public() }))
    }

    fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    fn dial(&self, identity: &Identity, options: &LaneOptions) -> Result<LaneStream, NetError> {
        LaneStream::dial_quic(self.addr(), identity, self.key, options)
    }

    /// The next lane that dials in.
    fn next(&mut self) -> (LaneStream, PublicKey) {
        let next = async { tokio::time::timeout(PATIENCE, self.listener.accept()).await };
        self.runtime.block_on(next).expect("somebody dials in").expect("the port lives")
    }

    pub(super) fn lane(&mut self) -> (LaneStream, LaneStream) {
        let dialled = self.dial(&identity(), &LaneOptions::default()).unwrap();
        joined(dialled, self.next().0)
    }

    /// A lane through a relay that treats datagrams as `treat` says.
    fn relayed(&mut self, treat: impl FnMut(Way, &[u8]) -> Treated + Send + 'static) -> (LaneStream, LaneStream) {
        let relay = relay(self.addr(), treat);
        let dialled = LaneStream::dial_quic(relay, &identity(), self.key, &LaneOptions::default()).unwrap();
        joined(dialled, self.next().0)
    }
}

fn joined(mut dialled: LaneStream, mut accepted: LaneStream) -> (LaneStream, LaneStream) {
    for end in [&mut dialled, &mut accepted] {
        end.set_deadline(None).unwrap();
    }
    (dialled, accepted)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forward,
    Back,
}

enum Treated {
    Pass,
    /// Passes, and from now on the dialler's datagrams leave from another port, as when a NAT
    /// forgets.
    Rebind,
}

/// Forwards datagrams between one dialler and `to`.
fn relay(to: SocketAddr, mut treat: impl FnMut(Way, &[u8]) -> Treated + Send + 'static) -> SocketAddr {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = near.local_addr().unwrap();
    let outside = move || {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(to).unwrap();
        far.set_nonblocking(true).unwrap();
        far
    };
    near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    thread::spawn(move || {
        let (mut far, mut dialler, mut buf) = (outside(), None, vec![0; 65_536]);
        let last = Instant::now() + 4 * PATIENCE;
        while Instant::now() < last {
            while let Ok((n, from)) = near.recv_from(&mut buf) {
                dialler = Some(from);
                match treat(Way::Forward, &buf[..n]) {
                    Treated::Pass => drop(far.send(&buf[..n])),
                    Treated::Rebind => {
                        far = outside();
                        let _ = far.send(&buf[..n]);
                    }
                }
                answers(&near, &far, dialler, &mut treat);
            }
            answers(&near, &far, dialler, &mut treat);
        }
    });
    addr
}

fn answers(
    near: &UdpSocket,
    far: &UdpSocket,
    dialler: Option<SocketAddr>,
    treat: &mut impl FnMut(Way, &[u8]) -> Treated,
) {
    let mut buf = [0; 65_536];
    while let (Ok(n), Some(dialler)) = (far.recv(&mut buf), dialler) {
        if matches!(treat(Way::Back, &buf[..n]), Treated::Pass) {
            let _ = near.send_to(&buf[..n], dialler);
        }
    }
}

/// Sends `bytes` from one end to the other, and compares.
fn carry((mut from, mut to): (LaneStream, LaneStream), bytes: Vec<u8>) {
    let expected = bytes.clone();
    let received = meanwhile(move || {
        let mut got = vec![0; expected.len()];
        to.recv_exact(&mut got).unwrap();
        assert!(got == expected, "bytes differ");
        assert!(!to.recv_or_end(&mut [0]).unwrap(), "nothing follows");
    });
    from.send(&[&bytes]).unwrap();
    from.finish();
    received();
}

#[test]
fn each_end_learns_the_key_that_the_other_has_proved() {
    let port = QuicPort::open();
    let me = identity();
    let _lane = port.dial(&me, &LaneOptions::default()).unwrap();
    assert_eq!(port.next().1, me.public());
    let stranger = identity().public();
    let error = LaneStream::dial_quic(port.addr(), &me, stranger, &LaneOptions::default()).unwrap_err();
    assert_eq!(error.kind(), NetErrorKind::PeerKeyMismatch { expected: stranger, got: port.key });
}

#[test]
fn an_address_that_may_be_anybodys_has_to_answer_where_many_are_greeted_and_gets_in() {
    for (handshakes, is_asked) in [(0, true), (1, false)] {
        let port = QuicPort::with(GreetLimits { handshakes, deadline: PATIENCE, ..GreetLimits::default() });
        let first = Arc::new(AtomicUsize::new(0));
        let seen = first.clone();
        let (mut dialled, mut accepted) = port.relayed(move |way, datagram| {
            if way == Way::Back {
                let _ = seen.compare_exchange(0, usize::from(datagram[0]), Ordering::SeqCst, Ordering::SeqCst);
            }
            Treated::Pass
        });
        // RFC 9000, section 17.2.5: a long header of type 3.
        assert_eq!(first.load(Ordering::SeqCst) & 0xf0 == 0xf0, is_asked, "the first answer is a Retry or not");
        dialled.send(&[b"x"]).unwrap();
        accepted.recv_exact(&mut [0]).unwrap();
    }
}

#[test]
fn where_nobody_answers_a_dial_ends_at_its_deadline() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = LaneOptions { deadline: Duration::from_millis(200), ..LaneOptions::default() };
    let key = identity().public();
    let error = LaneStream::dial_quic(silent.local_addr().unwrap(), &identity(), key, &options).unwrap_err();
    assert_eq!(error.kind(), NetErrorKind::TimedOut, "{error}");
}

#[test]
fn congestion_controls_are_chosen_by_name_and_changed_in_flight() {
    let port = QuicPort::open();
    let named = |name: &str| Congestion::Named(name.to_owned());
    for name in ["rate", "bbr", "cubic"] {
        let lane = port.dial(&identity(), &LaneOptions { congestion: named(name), ..LaneOptions::default() }).unwrap();
        let other = port.next().0;
        assert_eq!(lane.congestion(), name);
        assert!(lane.handle().set_congestion("bbr") && !lane.handle().set_congestion("vegas"));
        carry(joined(lane, other), noise(3, 3 << 20));
    }
    let options = LaneOptions { congestion: named("vegas"), ..LaneOptions::default() };
    assert!(matches!(port.dial(&identity(), &options), Err(NetError::NoSuchControl { .. })));
}

#[test]
fn whoever_has_not_joined_is_let_send_next_to_nothing() {
    let port = QuicPort::open();
    let mut dialled = port.dial(&identity(), &LaneOptions::default()).unwrap();
    let _accepted = port.next().0;
    dialled.set_deadline(Some(PATIENCE)).unwrap();
    dialled.send(&[&[7; 60_000]]).unwrap();
    dialled.set_deadline(Some(Duration::from_millis(500))).unwrap();
    let error = dialled.send(&[&vec![7; 16 << 20]]).unwrap_err();
    assert_eq!(error.kind(), NetErrorKind::TimedOut, "{error}");
    let taken = dialled.handle().counters().unwrap().acked;
    assert!(taken < 200_000, "{taken} bytes were taken from a stranger");
}

#[test]
fn a_receiver_that_takes_nothing_stops_the_sender_and_loses_nothing() {
    let port = QuicPort::open();
    let (mut from, mut to) = port.lane();
    let bytes = noise(4, 24 << 20);
    let (sent, expected) = (Arc::new(AtomicUsize::new(0)), bytes.clone());
    let counter = sent.clone();
    let sending = meanwhile(move || {
        for piece in bytes.chunks(64 << 10) {
            from.send(&[piece]).unwrap();
            counter.fetch_add(piece.len(), Ordering::Relaxed);
        }
        from.finish();
        from
    });
    // It comes to stand: the number of bytes taken from the sender stays the same for as long as
    // several round trips take.
    let (mut last, mut same) = (0, 0);
    let begun = Instant::now();
    while same < 200 && begun.elapsed() < PATIENCE {
        thread::park_timeout(Duration::from_millis(1));
        let now = sent.load(Ordering::Relaxed);
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
    }
    assert!(last < expected.len(), "all of it was taken in though nobody reads");
    let mut got = vec![0; expected.len()];
    to.recv_exact(&mut got).unwrap();
    assert!(got == expected, "bytes differ");
    let _from = sending();
}

#[test]
fn a_lane_goes_on_when_the_diallers_address_changes() {
    let port = QuicPort::open();
    let (mut n, mut rebound) = (0, false);
    let lane = port.relayed(move |way, _| {
        n += usize::from(way == Way::Forward);
        if n > 500 && !rebound {
            rebound = true;
            return Treated::Rebind;
        }
        Treated::Pass
    });
    carry(lane, noise(6, 8 << 20));
}

#[test]
fn a_lane_that_is_closed_from_elsewhere_lets_both_ends_know() {
    let port = QuicPort::open();
    let (mut near, mut far) = port.lane();
    let handle = near.handle();
    let blocked = meanwhile(move || near.recv_exact(&mut [0]).unwrap_err());
    handle.close();
    assert_eq!(blocked().kind(), NetErrorKind::Closed);
    assert_eq!(far.recv_exact(&mut [0]).unwrap_err().kind(), NetErrorKind::Lost);
}

#[test]
fn a_pace_is_kept_from_the_next_acknowledgement_on() {
    let port = QuicPort::open();
    let (mut from, mut to) = port.lane();
    from.handle().set_pace(Some(4_000_000));
    let received = meanwhile(move || {
        let mut got = vec![0; 2_000_000];
        to.recv_exact(&mut got).unwrap();
        Instant::now()
    });
    let begun = Instant::now();
    from.send(&[&noise(7, 2_000_000)]).unwrap();
    assert!(received() - begun > Duration::from_millis(250), "half a second's worth came at once");
}
