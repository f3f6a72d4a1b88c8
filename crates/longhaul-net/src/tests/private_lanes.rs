//! Promises of private lanes alone: damage, truncation and forgery are noticed, keys are renewed,
//! and the records are TLS's.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::{Port, identity, meanwhile, noise, private_pair};
use crate::tls::{LANE, client_config, nominal_name, server_config};
use crate::{Greeted, LaneOptions, LaneStream, NetError, NetErrorKind, PeerCheck};

/// Passes bytes on. Bytes from the dialler go through `meddle`, which gets each byte with its
/// number in the stream and returns its replacement; `None` ends the stream there.
fn proxy(port: &Port, meddle: impl Fn(usize, u8) -> Option<u8> + Send + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, far) = (listener.local_addr().unwrap(), port.addr);
    std::thread::spawn(move || {
        let (mut client, mut server) = (listener.accept().unwrap().0, TcpStream::connect(far).unwrap());
        let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(Shutdown::Both);
        });
        let (mut seen, mut buf) = (0, [0; 8192]);
        while let Ok(n @ 1..) = client.read(&mut buf) {
            let passed: Vec<u8> = (seen..).zip(&buf[..n]).map_while(|(at, &byte)| meddle(at, byte)).collect();
            seen += n;
            if server.write_all(&passed).is_err() || passed.len() < n {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Write);
        let _ = std::io::copy(&mut client, &mut std::io::sink());
    });
    near
}

/// Sends four mebibytes through a meddling proxy; returns the receiver's result.
fn received_through(meddle: impl Fn(usize, u8) -> Option<u8> + Send + 'static) -> Result<(), NetError> {
    let port = Port::open();
    let near = proxy(&port, meddle);
    let mut a = LaneStream::dial_private(near, &identity(), port.key, &LaneOptions::default()).unwrap();
    let Greeted::PrivateLane(mut b, _) = port.next().unwrap() else { panic!("a private lane") };
    let sender = meanwhile(move || {
        let bytes = noise(5, 4 << 20);
        let _ = a.send(&[&bytes]);
        a.finish();
        // Keeps the socket until the other side is through, so that a reset cannot overtake the
        // bytes.
        let _ = a.recv_or_end(&mut [0; 1]);
    });
    let mut buf = vec![0; 4 << 20];
    let received = b.recv_exact(&mut buf).map(|()| assert!(buf == noise(5, 4 << 20)));
    let received = received.and_then(|()| b.recv_or_end(&mut [0]).map(|more| assert!(!more)));
    if received.is_err() {
        assert!(b.recv_exact(&mut [0]).is_err(), "a broken lane stays broken");
    }
    drop(b);
    sender();
    received
}

#[test]
fn an_honest_proxy_changes_nothing() {
    received_through(|_, byte| Some(byte)).unwrap();
}

#[test]
fn a_flipped_bit_anywhere_is_an_error() {
    // In the middle of a record, in its header's length, in its kind, near the end.
    for at in [2_000_003, 3_000_000, 4_190_000] {
        let error = received_through(move |n, byte| Some(if n == at { byte ^ 4 } else { byte })).unwrap_err();
        assert!(matches!(error.kind(), NetErrorKind::Tls | NetErrorKind::Lost), "{at}: {error:?}");
    }
}

#[test]
fn every_bit_of_a_record_counts() {
    let (mut a, _b) = private_pair();
    let mut record = vec![0; 64];
    let n = a.private_mut().unwrap().records().seal(b"some payload", &mut record).unwrap();
    for bit in 0..n * 8 {
        let (mut a, mut b) = private_pair();
        let mut record = vec![0; 64];
        let n = a.private_mut().unwrap().records().seal(b"some payload", &mut record).unwrap();
        record[bit / 8] ^= 1 << (bit % 8);
        raw_send(&a, &record[..n]);
        a.handle().close();
        assert!(b.recv_exact(&mut [0; 12]).is_err(), "bit {bit}");
    }
}

#[test]
fn an_end_that_tls_did_not_say_is_an_error() {
    // Cut within a record; at a record's end (each has 16384 + 22 bytes, the handshake less than
    // 3000); without the last one.
    for cut in [2_000_000, 3_000_000, 4_194_304 + 256 * 22] {
        let error = received_through(move |n, byte| (n < cut).then_some(byte)).unwrap_err();
        assert!(matches!(error, NetError::Truncated { .. } | NetError::Lost { .. }), "{cut}: {error:?}");
    }
    let (mut a, mut b) = private_pair();
    a.send(&[b"12345"]).unwrap();
    drop(a);
    b.recv_exact(&mut [0; 5]).unwrap();
    assert!(matches!(b.recv_or_end(&mut [0; 5]), Err(NetError::Truncated { .. })));
}

#[test]
fn a_record_that_is_replayed_or_left_out_is_an_error() {
    let (mut a, mut b) = private_pair();
    let mut record = vec![0; 64];
    let n = a.private_mut().unwrap().records().seal(b"once", &mut record).unwrap();
    raw_send(&a, &record[..n]);
    raw_send(&a, &record[..n]);
    b.recv_exact(&mut [0; 4]).unwrap();
    assert_eq!(b.recv_exact(&mut [0; 4]).unwrap_err().kind(), NetErrorKind::Tls);

    let (mut a, mut b) = private_pair();
    a.private_mut().unwrap().records().seal(b"lost", &mut record).unwrap();
    a.send(&[b"next"]).unwrap();
    assert_eq!(b.recv_exact(&mut [0; 4]).unwrap_err().kind(), NetErrorKind::Tls);
    // The sender is told.
    assert_eq!(a.recv_exact(&mut [0; 4]).unwrap_err().kind(), NetErrorKind::Tls);
}

#[test]
fn nonsense_instead_of_records_is_an_error() {
    let nonsense: [&[u8]; 6] = [
        b"\x17\x03\x03\xff\xff",
        b"\x17\x03\x03\x00\x00",
        b"\x17\x03\x03\x00\x10aaaaaaaaaaaaaaaa",
        b"\x16\x03\x03\x00\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"\x14\x03\x03\x00\x01\x01",
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for words in nonsense {
        let (a, mut b) = private_pair();
        raw_send(&a, words);
        let error = b.recv_exact(&mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), NetErrorKind::Tls, "{:?}", words.escape_ascii().to_string());
    }
}

#[test]
fn endless_empty_records_are_an_error() {
    let (mut a, mut b) = private_pair();
    let mut records = Vec::new();
    for _ in 0..40 {
        let mut record = [0; 64];
        let n = a.private_mut().unwrap().records().seal(b"", &mut record).unwrap();
        records.extend_from_slice(&record[..n]);
    }
    raw_send(&a, &records);
    assert_eq!(b.recv_exact(&mut [0; 4]).unwrap_err().kind(), NetErrorKind::Tls);
}

#[test]
fn keys_are_renewed_under_way_in_both_directions() {
    let (mut a, mut b) = private_pair();
    for lane in [&mut a, &mut b] {
        lane.private_mut().unwrap().records().set_limit(5);
    }
    let bytes = noise(9, 3 << 20);
    let expected = bytes.clone();
    let far = meanwhile(move || {
        let mut buf = vec![0; 3 << 20];
        for _ in 0..3 {
            b.recv_exact(&mut buf).unwrap();
            assert!(buf == expected);
            b.send(&[&buf]).unwrap();
        }
        b
    });
    let mut buf = vec![0; 3 << 20];
    for _ in 0..3 {
        a.send(&[&bytes]).unwrap();
        a.recv_exact(&mut buf).unwrap();
        assert!(buf == bytes);
    }
    let mut b = far();
    for lane in [&mut a, &mut b] {
        assert!(lane.private_mut().unwrap().records().sealed() < 5, "600 records went out under keys for 5 each");
    }
}

/// rustls's own stream at one end, ours at the other.
fn ours_with_rustls_server(
    work: impl FnOnce(StreamOwned<ServerConnection, TcpStream>) + Send + 'static,
) -> (LaneStream, impl FnOnce()) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = identity();
    let config = server_config(&server, PeerCheck::Observe, LANE).unwrap();
    let far = meanwhile(move || {
        let stream = listener.accept().unwrap().0;
        work(StreamOwned::new(ServerConnection::new(config).unwrap(), stream));
    });
    let mut lane = LaneStream::dial_private(addr, &identity(), server.public(), &LaneOptions::default()).unwrap();
    lane.set_deadline(None).unwrap();
    (lane, far)
}

#[test]
fn rustls_understands_our_records_and_we_understand_its() {
    let (mut lane, far) = ours_with_rustls_server(|mut tls| {
        let mut buf = vec![0; 3_000_001];
        tls.read_exact(&mut buf).unwrap();
        assert!(buf == noise(11, buf.len()));
        tls.write_all(&noise(12, 2_000_003)).unwrap();
        tls.conn.send_close_notify();
        tls.flush().unwrap();
        assert_eq!(tls.read(&mut buf).unwrap(), 0, "a clean end");
    });
    lane.send(&[&noise(11, 3_000_001)]).unwrap();
    let mut buf = vec![0; 2_000_003];
    lane.recv_exact(&mut buf).unwrap();
    assert!(buf == noise(12, buf.len()));
    assert!(!lane.recv_or_end(&mut buf).unwrap());
    lane.finish();
    far();
}

#[test]
fn rustls_and_we_follow_each_others_key_updates() {
    let (mut lane, far) = ours_with_rustls_server(|mut tls| {
        let mut buf = [0; 100_000];
        for _ in 0..20 {
            tls.read_exact(&mut buf).unwrap();
            // rustls's update asks for ours as well.
            tls.conn.refresh_traffic_keys().unwrap();
            tls.write_all(&buf).unwrap();
            tls.flush().unwrap();
        }
    });
    lane.private_mut().unwrap().records().set_limit(3);
    let bytes = noise(13, 100_000);
    let mut buf = vec![0; 100_000];
    for _ in 0..20 {
        lane.send(&[&bytes]).unwrap();
        lane.recv_exact(&mut buf).unwrap();
        assert!(buf == bytes);
    }
    far();
}

#[test]
fn an_accepted_lane_understands_a_rustls_client_that_speaks_at_once() {
    let port = Port::open();
    let config = client_config(&identity(), PeerCheck::Pinned(port.key), LANE).unwrap();
    let mut tls = StreamOwned::new(
        ClientConnection::new(config, nominal_name().unwrap()).unwrap(),
        TcpStream::connect(port.addr).unwrap(),
    );
    // Queued before the handshake is over, so it arrives right behind the client's last flight.
    tls.conn.writer().write_all(&noise(14, 40_000)).unwrap();
    tls.flush().unwrap();
    let Greeted::PrivateLane(mut lane, _) = port.next().unwrap() else { panic!("a private lane") };
    let mut buf = vec![0; 40_000];
    lane.recv_exact(&mut buf).unwrap();
    assert!(buf == noise(14, 40_000));
    lane.send(&[b"and back"]).unwrap();
    let mut back = [0; 8];
    tls.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"and back");
}

#[test]
fn a_server_that_refuses_this_sides_key_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = identity();
    let config = server_config(&server, PeerCheck::Pinned(identity().public()), LANE).unwrap();
    let far = meanwhile(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut conn = ServerConnection::new(config).unwrap();
        while conn.complete_io(&mut stream).is_ok() {}
        stream
    });
    let mut lane = LaneStream::dial_private(addr, &identity(), server.public(), &LaneOptions::default()).unwrap();
    assert_eq!(lane.recv_exact(&mut [0]).unwrap_err().kind(), NetErrorKind::KeyRefused);
    far();
}

/// Bytes past the protection, as an attacker on the way would put them.
pub(super) fn raw_send(lane: &LaneStream, bytes: &[u8]) {
    lane.tcp().wire().send(&[bytes], crate::wire::More::No).unwrap();
}
