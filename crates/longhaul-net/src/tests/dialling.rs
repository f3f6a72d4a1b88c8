//! Tests of control connections: which of them come to stand, and what both ends then know.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{PATIENCE, Port, identity, meanwhile};
use crate::control::{connect_any, dial_control_over, dial_control_within};
use crate::tls::{CONTROL, CONTROL_UNASKED, server_config};
use crate::{Congestion, Greeted, NetError, NetErrorKind, NetPath, Over, PeerCheck};

#[test]
fn both_ends_learn_the_keys_and_talk() {
    let port = Port::open();
    let me = identity();
    let mut dialled = port.dial(&me, PeerCheck::Pinned(port.key)).unwrap();
    let Greeted::Control(mut accepted) = port.next().unwrap() else { panic!("a control connection") };
    assert_eq!((dialled.peer_key, accepted.peer_key), (port.key, me.public()));
    assert_eq!((dialled.peer_addr, dialled.local_addr), (accepted.local_addr, accepted.peer_addr));
    port.runtime.block_on(async {
        dialled.writer.write_all(b"ping").await.unwrap();
        dialled.writer.shutdown().await.unwrap();
        let mut said = Vec::new();
        accepted.reader.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"ping");
        accepted.writer.write_all(b"pong").await.unwrap();
        accepted.writer.shutdown().await.unwrap();
        said.clear();
        dialled.reader.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"pong");
    });
}

#[test]
fn a_control_connection_that_breaks_does_not_look_finished() {
    let port = Port::open();
    let (dialled, mut accepted) = port.control();
    drop(dialled);
    let end = port.runtime.block_on(accepted.reader.read_to_end(&mut Vec::new()));
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_daemon_with_another_key_is_refused_and_both_keys_are_named() {
    let port = Port::open();
    let expected = identity().public();
    let error = port.dial(&identity(), PeerCheck::Pinned(expected)).unwrap_err();
    assert_eq!(error.kind(), NetErrorKind::PeerKeyMismatch { expected, got: port.key });
    assert!(error.to_string().contains(&port.addr.to_string()), "{error}");
    assert_eq!(port.next().unwrap_err().kind(), NetErrorKind::KeyRefused);
}

#[test]
fn an_observer_is_given_the_key() {
    let port = Port::open();
    assert_eq!(port.dial(&identity(), PeerCheck::Observe).unwrap().peer_key, port.key);
}

#[test]
fn the_exporter_is_shared_by_both_ends_and_by_no_other_connection() {
    let port = Port::open();
    let (a, b) = port.control();
    let (c, d) = port.control();
    assert_eq!((a.exporter, c.exporter), (b.exporter, d.exporter));
    assert_ne!(a.exporter, c.exporter);
    assert_ne!(a.exporter, [0; 32]);
}

#[test]
fn nobody_there_is_told_from_somebody_else_and_from_silence() {
    let port = Port::open();
    let dial = |addr: String, patience| {
        let me = identity();
        port.runtime.block_on(dial_control_within(&addr, &me, PeerCheck::Observe, patience)).unwrap_err()
    };

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = dial(free.to_string(), PATIENCE);
    assert_eq!(nobody.kind(), NetErrorKind::Unreachable);
    assert!(nobody.is_temporary());

    let talker = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = talker.local_addr().unwrap().to_string();
    let spoke = meanwhile(move || {
        use std::io::{Read, Write};
        let mut stream = talker.accept().unwrap().0;
        stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").unwrap();
        let _ = stream.read(&mut [0; 4096]);
        stream
    });
    assert_eq!(dial(addr, PATIENCE).kind(), NetErrorKind::NotLonghaul);
    spoke();

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let silence = dial(addr, std::time::Duration::from_millis(50));
    assert_eq!(silence.kind(), NetErrorKind::TimedOut);
    assert!(matches!(silence, NetError::Silent { .. }), "{silence}");

    // A queue of connections that is full takes no other, and the kernel then drops what comes, as
    // a firewall does.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let addr = full.local_addr().unwrap().as_socket().unwrap();
    let _queued = TcpStream::connect(addr).unwrap();
    let dropped = dial(addr.to_string(), std::time::Duration::from_millis(50));
    assert!(matches!(dropped, NetError::NoAnswer { over: Over::Tcp, .. }), "{dropped}");
    assert!(dropped.is_temporary());
    let said = dropped.to_string();
    assert!(
        said.starts_with(&format!("no answer from {addr} in ")) && said.contains("a firewall that drops"),
        "{said}"
    );
}

#[test]
fn an_address_that_this_host_does_not_have_is_a_mistake_of_its_user() {
    let port = Port::open();
    let me = identity();
    let dial = |addr: &str, paths: &[NetPath]| {
        port.runtime.block_on(dial_control_over(addr, paths, &me, PeerCheck::Observe, None)).unwrap_err()
    };
    let foreign: NetPath = "192.0.2.77".parse().unwrap();
    let refused = dial("127.0.0.1:9", &[foreign]);
    assert_eq!(refused.kind(), NetErrorKind::Config, "{refused}");
    assert!(refused.to_string().contains("this host has no address 192.0.2.77"), "{refused}");
}

#[test]
fn texts_that_are_no_addresses_are_refused_without_asking_the_resolver() {
    let port = Port::open();
    for bad in ["", "host", ":7214", "host:", "host:0", "host:99999", "host:7214x"] {
        let dialled = port.runtime.block_on(crate::dial_control(bad, &identity(), PeerCheck::Observe));
        assert!(matches!(dialled, Err(NetError::BadAddress { .. })), "{bad:?}");
    }
}

#[test]
fn a_server_of_raw_keys_that_names_no_protocol_is_not_longhaul() {
    let port = Port::open();
    let server = identity();
    let mut config = server_config(&server, PeerCheck::Observe, CONTROL).unwrap();
    Arc::get_mut(&mut config).unwrap().alpn_protocols.clear();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let far = meanwhile(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut tls = rustls::ServerConnection::new(config).unwrap();
        while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
    });
    let me = identity();
    let dialled = port.runtime.block_on(dial_control_within(&addr, &me, PeerCheck::Pinned(server.public()), PATIENCE));
    assert_eq!(dialled.unwrap_err().kind(), NetErrorKind::NotLonghaul);
    far();
}

#[test]
fn whether_a_daemon_takes_files_unasked_shows_in_the_name_of_its_protocol() {
    let port = Port::open();
    for (names, takes) in [(&[CONTROL_UNASKED, CONTROL][..], true), (&[CONTROL], false)] {
        let server = identity();
        let mut config = server_config(&server, PeerCheck::Observe, CONTROL).unwrap();
        Arc::get_mut(&mut config).unwrap().alpn_protocols = names.iter().map(|name| name.to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let far = meanwhile(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut tls = rustls::ServerConnection::new(config).unwrap();
            while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
        });
        let me = identity();
        let check = PeerCheck::Pinned(server.public());
        let dialled = port.runtime.block_on(dial_control_within(&addr, &me, check, PATIENCE)).unwrap();
        assert_eq!(dialled.takes_unasked, takes);
        assert!(dialled.segment_bytes > 0, "the kernel says it");
        far();
    }
}

#[test]
fn the_first_address_that_answers_is_taken() {
    let port = Port::open();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // With a backlog of none and one connection in it, further ones get no answer at all.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let silent = full.local_addr().unwrap().as_socket().unwrap();
    let _first = TcpStream::connect(silent).unwrap();
    let connect = |candidates: Vec<SocketAddr>| {
        port.runtime.block_on(connect_any("name", candidates.into_iter().map(|addr| (None, addr)).collect()))
    };
    for candidates in [vec![port.addr], vec![free, port.addr], vec![silent, port.addr], vec![silent, free, port.addr]] {
        assert_eq!(connect(candidates).unwrap().peer_addr().unwrap(), port.addr);
    }
    assert_eq!(connect(vec![free, free]).unwrap_err().kind(), NetErrorKind::Unreachable);
    assert!(connect(vec![]).is_err());
}

#[test]
fn a_congestion_control_that_another_host_names_is_not_asked_of_the_kernel_unless_users_may_choose_it() {
    let refused = |name: &str| match Congestion::Named(name.to_owned()).try_out_for_peer() {
        Err(NetError::Congestion { source, .. }) => source.kind(),
        other => panic!("{name}: {other:?}"),
    };
    // The kernel itself would say that there is none, after it had looked for a module.
    for name in ["no-such-thing", "", "cubic reno", "../cubic"] {
        assert_eq!(refused(name), std::io::ErrorKind::PermissionDenied, "{name}");
    }
    assert!(Congestion::Auto.try_out_for_peer().is_ok());
    assert!(Congestion::Named("reno".to_owned()).try_out_for_peer().is_ok(), "what every kernel has");
}
