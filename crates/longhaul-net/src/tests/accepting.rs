//! The listening port under good and bad company.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, ServerConnection, SignatureScheme};
use socket2::{Domain, Socket, Type};

use super::{PATIENCE, Port, identity, meanwhile};
use crate::tls::{client_config, nominal_name, server_config};
use crate::{Congestion, GreetLimits, Greeted, LaneOptions, LaneStream, Listener, NetErrorKind, PeerCheck, Protection};

/// Says something to the port and waits until it hangs up.
fn say(port: &Port, words: &[u8], then: Option<Shutdown>) -> TcpStream {
    let mut stream = TcpStream::connect(port.addr).unwrap();
    stream.write_all(words).unwrap();
    if let Some(how) = then {
        stream.shutdown(how).unwrap();
    }
    stream
}

fn hangs_up(mut stream: TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // An alert may come first; a reset is as good as an end.
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

fn hello(alpn: &[u8]) -> Vec<u8> {
    let config = client_config(&identity(), PeerCheck::Observe, alpn).unwrap();
    let mut bytes = Vec::new();
    ClientConnection::new(config, nominal_name().unwrap()).unwrap().write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn garbage_is_hung_up_on_and_an_honest_client_gets_in() {
    let port = Port::open();
    let hello = hello(crate::tls::CONTROL);
    let mut absurd = hello.clone();
    absurd[9..].fill(0xff);
    let cases: [(&[u8], NetErrorKind); 7] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", NetErrorKind::NotLonghaul),
        (b"SSH-2.0-x\r\n", NetErrorKind::NotLonghaul),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0", NetErrorKind::NotLonghaul),
        (b"\xf5lhlane2", NetErrorKind::NotLonghaul),
        (b"\x16\x03\x01\x00\x05hello", NetErrorKind::NotLonghaul),
        (b"\x16\x16\x16\x16\x16\x16\x16\x16\x16\x16", NetErrorKind::NotLonghaul),
        (&absurd, NetErrorKind::NotLonghaul),
    ];
    for (words, expected) in cases {
        let stream = say(&port, words, None);
        let error = port.next().unwrap_err();
        assert_eq!(error.kind(), expected, "{:?}: {error:?}", words.escape_ascii().to_string());
        hangs_up(stream);
    }
    port.control();
}

#[test]
fn those_who_leave_halfway_are_forgotten_at_once() {
    let port = Port::open();
    let hello = hello(crate::tls::LANE);
    for (words, expected) in [
        (&hello[..0], NetErrorKind::NotLonghaul),
        (&hello[..1], NetErrorKind::Lost),
        (&hello[..hello.len() / 2], NetErrorKind::Lost),
        (&hello[..], NetErrorKind::Lost),
        (&crate::SAFE_MAGIC[..3], NetErrorKind::NotLonghaul),
    ] {
        let stream = say(&port, words, Some(Shutdown::Write));
        assert_eq!(port.next().unwrap_err().kind(), expected, "{} bytes", words.len());
        hangs_up(stream);
    }
    port.control();
}

#[test]
fn silence_half_a_hello_and_trickling_bytes_end_at_the_deadline() {
    let deadline = Duration::from_millis(150);
    let port = Port::with(GreetLimits { deadline, ..GreetLimits::default() });
    let hello = hello(crate::tls::CONTROL);
    for words in [&b""[..], &hello[..1], &hello[..hello.len() - 1], &crate::SAFE_MAGIC[..7]] {
        let stream = say(&port, words, None);
        assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::TimedOut);
        hangs_up(stream);
    }
    let mut slow = TcpStream::connect(port.addr).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let trickle = meanwhile(move || {
        // A byte every 20 ms is progress, and must not stretch the deadline.
        for byte in hello {
            if slow.write_all(&[byte]).is_err() || matches!(slow.read(&mut [0; 64]), Ok(0)) {
                return;
            }
        }
        panic!("somebody waited for all of it");
    });
    assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::TimedOut);
    trickle();
}

#[test]
fn tls_for_another_protocol_is_refused() {
    let port = Port::open();
    let stream = say(&port, &hello(b"h2"), None);
    assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::NotLonghaul);
    hangs_up(stream);

    let mut config = client_config(&identity(), PeerCheck::Observe, b"").unwrap();
    Arc::get_mut(&mut config).unwrap().alpn_protocols.clear();
    let mut bytes = Vec::new();
    ClientConnection::new(config, nominal_name().unwrap()).unwrap().write_tls(&mut bytes).unwrap();
    let stream = say(&port, &bytes, None);
    assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::NotLonghaul);
    hangs_up(stream);
    port.control();
}

#[test]
fn a_hello_that_comes_byte_by_byte_is_understood() {
    let port = Port::open();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, far) = (listener.local_addr().unwrap(), port.addr);
    // A relay that passes single bytes at first.
    let relay = std::thread::spawn(move || {
        let (mut client, mut server) = (listener.accept().unwrap().0, TcpStream::connect(far).unwrap());
        server.set_nodelay(true).unwrap();
        let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        for _ in 0..1000 {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            server.write_all(&byte).unwrap();
        }
        let _ = std::io::copy(&mut client, &mut server);
    });
    let lane = LaneStream::dial_private(near, &identity(), port.key, &LaneOptions::default()).unwrap();
    assert!(matches!(port.next().unwrap(), Greeted::PrivateLane(..)));
    drop(lane);
    relay.join().unwrap();
}

#[test]
fn a_crowd_of_silent_connections_does_not_keep_an_honest_client_out() {
    let port = Port::with(GreetLimits { silent: 8, deadline: PATIENCE, ..GreetLimits::default() });
    let crowd: Vec<_> = (0..24).map(|_| say(&port, b"", None)).collect();
    for _ in 0..16 {
        assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::Busy);
    }
    let dialled = port.dial(&identity(), PeerCheck::Pinned(port.key)).unwrap();
    let mut ends = [port.next(), port.next()];
    ends.sort_by_key(Result::is_ok);
    assert!(matches!(&ends, [Err(e), Ok(Greeted::Control(_))] if e.kind() == NetErrorKind::Busy), "{ends:?}");
    drop((crowd, dialled));
}

/// Connects from an address of this host.
fn connect_from(local: &str, port: &Port) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(local.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&port.addr.into()).unwrap();
    socket.into()
}

#[test]
fn a_flood_from_one_address_leaves_the_silent_of_another_their_place() {
    let port = Port::with(GreetLimits { silent: 8, deadline: PATIENCE, ..GreetLimits::default() });
    let mut honest = connect_from("127.0.0.2", &port);
    let flood: Vec<_> = (0..108).map(|_| say(&port, b"", None)).collect();
    for _ in 0..101 {
        assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::Busy);
    }
    honest.write_all(&crate::SAFE_MAGIC).unwrap();
    let Greeted::SafeLane(lane, _) = port.next().unwrap() else { panic!("the honest one") };
    assert_eq!(lane.peer_addr(), Some(honest.local_addr().unwrap()));
    drop(flood);
}

#[test]
fn a_silent_flood_from_ones_own_address_does_not_break_a_handshake_off() {
    let port = Port::with(GreetLimits { silent: 8, handshakes: 2, deadline: PATIENCE, ..GreetLimits::default() });
    let config = client_config(&identity(), PeerCheck::Pinned(port.key), crate::tls::CONTROL).unwrap();
    let mut client = ClientConnection::new(config, nominal_name().unwrap()).unwrap();
    let mut stream = TcpStream::connect(port.addr).unwrap();
    client.write_tls(&mut stream).unwrap();
    while client.wants_read() && client.is_handshaking() && !client.wants_write() {
        client.read_tls(&mut stream).unwrap();
        client.process_new_packets().unwrap();
    }
    // The daemon has answered, and waits for the rest.
    let flood: Vec<_> = (0..108).map(|_| say(&port, b"", None)).collect();
    for _ in 0..100 {
        assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::Busy);
    }
    while client.wants_write() {
        client.write_tls(&mut stream).unwrap();
    }
    assert!(matches!(port.next().unwrap(), Greeted::Control(_)));
    drop(flood);
}

#[test]
fn a_flood_of_hellos_from_one_address_leaves_a_handshake_of_another_its_place() {
    let port = Port::with(GreetLimits { handshakes: 4, deadline: PATIENCE, ..GreetLimits::default() });
    let hello = hello(crate::tls::LANE);
    let mut honest = connect_from("127.0.0.2", &port);
    honest.write_all(&hello).unwrap();
    honest.read_exact(&mut [0; 100]).unwrap();
    let mut flood = Vec::new();
    for _ in 0..40 {
        let mut stream = say(&port, &hello, None);
        stream.read_exact(&mut [0; 100]).unwrap();
        flood.push(stream);
    }
    for _ in 0..37 {
        assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::Busy);
    }
    // It is heard to the end.
    honest.shutdown(Shutdown::Write).unwrap();
    assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::Lost);
    drop(flood);
}

#[test]
fn a_safe_lane_is_given_when_its_opening_has_come_whole() {
    let limits = GreetLimits { opening_bytes: 4, deadline: PATIENCE, ..GreetLimits::default() };
    let port = Port::with(limits);
    for words in [&b""[..], b"abc"] {
        let stream = say(&port, &[&crate::SAFE_MAGIC, words].concat(), Some(Shutdown::Write));
        assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::Lost, "{words:?}");
        hangs_up(stream);
    }
    let mut stream = say(&port, &crate::SAFE_MAGIC, None);
    for byte in b"abcde" {
        stream.write_all(&[*byte]).unwrap();
    }
    let Greeted::SafeLane(mut lane, opening) = port.next().unwrap() else { panic!("a safe lane") };
    assert_eq!(opening, b"abcd");
    let mut heard = [0; 5];
    lane.recv_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"abcde");
}

#[test]
fn lanes_come_back_as_what_they_are() {
    let port = Port::open();
    let me = identity();
    let private = LaneStream::dial_private(port.addr, &me, port.key, &LaneOptions::default()).unwrap();
    let Greeted::PrivateLane(accepted, key) = port.next().unwrap() else { panic!("a private lane") };
    assert_eq!(key, me.public());
    assert_eq!((private.protection(), accepted.protection()), (Protection::Private, Protection::Private));
    let (safe, accepted) = port.safe_lane();
    assert_eq!((safe.protection(), accepted.protection()), (Protection::Safe, Protection::Safe));
    assert_eq!(safe.peer_addr(), Some(port.addr));
    // On loopback cubic is chosen where the kernel has it, and the same at both ends.
    assert_eq!(safe.congestion(), accepted.congestion());
    assert_ne!(safe.congestion(), "none");
}

#[test]
fn a_lane_to_another_key_is_refused() {
    let port = Port::open();
    let expected = identity().public();
    let error = LaneStream::dial_private(port.addr, &identity(), expected, &LaneOptions::default()).unwrap_err();
    assert_eq!(error.kind(), NetErrorKind::PeerKeyMismatch { expected, got: port.key });
    assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::KeyRefused);
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_refused_with_what_it_offers() {
    let port = Port::open();
    let asked = LaneOptions { congestion: Congestion::Named("teleport".to_owned()), ..LaneOptions::default() };
    let error = LaneStream::dial_safe(port.addr, &asked).unwrap_err();
    assert_eq!(error.kind(), NetErrorKind::Config);
    assert!(error.to_string().contains("reno"), "{error}");
    let reno = LaneOptions { congestion: Congestion::Named("reno".to_owned()), ..LaneOptions::default() };
    assert_eq!(LaneStream::dial_safe(port.addr, &reno).unwrap().congestion(), "reno");
}

#[test]
fn a_lane_dialled_from_a_given_address_comes_from_there() {
    let port = Port::open();
    let local: std::net::IpAddr = "127.0.0.2".parse().unwrap();
    let _lane =
        LaneStream::dial_safe(port.addr, &LaneOptions { local: Some(local), ..LaneOptions::default() }).unwrap();
    let Greeted::SafeLane(accepted, _) = port.next().unwrap() else { panic!("a safe lane") };
    assert_eq!(accepted.peer_addr().unwrap().ip(), local);
}

#[test]
fn one_socket_serves_both_families() {
    let port = Port::open();
    let _inside = port.runtime.enter();
    let listener = Listener::bind("[::]:0".parse().unwrap()).unwrap();
    let number = listener.local_addr().port();
    assert_ne!(number, 0);
    assert_eq!(Listener::bind(listener.local_addr()).unwrap_err().kind(), NetErrorKind::Local);
    let stream = TcpStream::connect(("127.0.0.1", number)).unwrap();
    let (_, from) = port.runtime.block_on(listener.accept()).unwrap();
    assert_eq!(from.port(), stream.local_addr().unwrap().port());
}

/// Understands raw keys and shows none.
#[derive(Debug)]
struct Keyless;

impl ResolvesClientCert for Keyless {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[test]
fn a_peer_without_a_key_is_refused() {
    let server = server_config(&identity(), PeerCheck::Observe, crate::tls::CONTROL).unwrap();
    let mut client = client_config(&identity(), PeerCheck::Observe, crate::tls::CONTROL).unwrap();
    Arc::get_mut(&mut client).unwrap().client_auth_cert_resolver = Arc::new(Keyless);
    let mut client = ClientConnection::new(client, nominal_name().unwrap()).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    let mut failed = false;
    for _ in 0..4 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.read_tls(&mut &bytes[..]).unwrap();
        failed |= server.process_new_packets().is_err();
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        client.read_tls(&mut &bytes[..]).unwrap();
        let _ = client.process_new_packets();
    }
    assert!(failed, "the server goes on only with a client that shows a key");
}
