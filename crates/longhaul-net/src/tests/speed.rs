//! Measures the cost of lanes. Not run by default; on a quiet machine: `cargo test --release -p
//! longhaul-net -- --ignored --nocapture --test-threads 1 speed`

use std::hint::black_box;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use rustls::unbuffered::ConnectionState;
use socket2::{Domain, Socket, Type};

use super::{Port, identity, meanwhile, noise, private_pair};
use crate::LaneStream;
use crate::handshake::{Handshake, HandshakeTurn, Side};
use crate::pair::converse;
use crate::tcp::TcpLane;
use crate::tls::{LANE, PeerCheck, client_config, server_config};
use crate::wire::{Congestion, Wire};

const PIECE: usize = 256 << 10;
const CHUNK: usize = 4 << 20;
const HEADER: usize = 48;

/// Processor time of this thread.
fn cpu() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap())
}

/// Moves `gigabytes` as the engine would, by header and piece, out of one set of chunks into
/// another.
fn carry(kind: &str, gigabytes: usize, (mut a, mut b): (LaneStream, LaneStream)) {
    let pieces = gigabytes * 1_000_000_000 / PIECE;
    let per_gb = move |t: Duration| t.as_secs_f64() * 1e9 / (pieces * PIECE) as f64;
    let started = Instant::now();
    let receiver = meanwhile(move || {
        let mut chunks = vec![0; 4 * CHUNK];
        let before = cpu();
        for at in 0..pieces {
            let at = at * PIECE % chunks.len();
            b.recv_exact(&mut [0; HEADER]).unwrap();
            b.recv_exact(&mut chunks[at..at + PIECE]).unwrap();
        }
        per_gb(cpu() - before)
    });
    let chunks = noise(1, 4 * CHUNK);
    let before = cpu();
    for at in 0..pieces {
        let at = at * PIECE % chunks.len();
        a.send(&[&[7; HEADER], &chunks[at..at + PIECE]]).unwrap();
    }
    let sender = per_gb(cpu() - before);
    let receiver = receiver();
    let rate = 1e-6 * (pieces * PIECE) as f64 / started.elapsed().as_secs_f64();
    println!("{kind:24} {rate:6.0} MB/s, s/GB: sender {sender:.3} receiver {receiver:.3}");
}

fn loopback_pair() -> (LaneStream, LaneStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    let end = |socket: TcpStream| {
        let peer = socket.peer_addr().unwrap();
        LaneStream::over(TcpLane::safe(Wire::tcp(socket.into(), peer, &Congestion::Auto).unwrap()))
    };
    (end(a), end(b))
}

fn unix_pair(buffer: usize) -> (LaneStream, LaneStream) {
    let (a, b) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
    for socket in [&a, &b] {
        socket.set_send_buffer_size(buffer).unwrap();
    }
    (LaneStream::over(TcpLane::safe(Wire::local(a))), LaneStream::over(TcpLane::safe(Wire::local(b))))
}

/// With the processors as busy as a transfer keeps them: four lanes, and a pass over each piece on
/// both sides.
fn carry_busily(kind: &str, gigabytes: usize, pairs: Vec<(LaneStream, LaneStream)>) {
    let pieces = gigabytes * 1_000_000_000 / PIECE / pairs.len();
    let bytes = pieces * PIECE * pairs.len();
    let (started, mut threads) = (Instant::now(), Vec::new());
    for (mut a, mut b) in pairs {
        threads.push(thread::spawn(move || {
            let chunks = noise(1, 2 * CHUNK);
            for at in (0..pieces).map(|n| n * PIECE % chunks.len()) {
                pass_over(&chunks[at..at + PIECE]);
                a.send(&[&[7; HEADER], &chunks[at..at + PIECE]]).unwrap();
            }
            cpu()
        }));
        threads.push(thread::spawn(move || {
            let mut chunks = vec![0; 2 * CHUNK];
            for at in (0..pieces).map(|n| n * PIECE % (2 * CHUNK)) {
                b.recv_exact(&mut [0; HEADER]).unwrap();
                b.recv_exact(&mut chunks[at..at + PIECE]).unwrap();
                pass_over(&chunks[at..at + PIECE]);
            }
            cpu()
        }));
    }
    let cpu: Duration = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let (rate, per_gb) =
        (1e-6 * bytes as f64 / started.elapsed().as_secs_f64(), cpu.as_secs_f64() * 1e9 / bytes as f64);
    println!("{kind:24} {rate:6.0} MB/s, s/GB: {per_gb:.3} both sides together");
}

/// About as much work per byte as a digest.
fn pass_over(piece: &[u8]) {
    for turn in 0..6_u64 {
        black_box(piece.chunks_exact(8).fold(turn, |sum, word| {
            sum.rotate_left(5)
                ^ u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]])
        }));
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_sockets_within_the_process() {
    for _ in 0..3 {
        carry("loopback TCP", 8, loopback_pair());
        carry_busily("loopback TCP, busy", 8, (0..4).map(|_| loopback_pair()).collect());
        for buffer in [104 << 10, 256 << 10, 512 << 10] {
            carry(&format!("unix, {} KiB", buffer >> 10), 8, unix_pair(buffer));
            let pairs = (0..4).map(|_| unix_pair(buffer)).collect();
            carry_busily(&format!("unix, {} KiB, busy", buffer >> 10), 8, pairs);
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_lanes() {
    let port = Port::open();
    for _ in 0..3 {
        carry("safe over TCP", 8, port.safe_lane());
        carry("private over TCP", 8, port.private_lane());
        carry("safe in process", 8, LaneStream::pair().unwrap());
        carry("private in process", 8, private_pair());
    }
}

/// Ours against rustls's unbuffered record layer, both in memory, in pieces of 256 KiB, with the
/// copies that each needs.
#[test]
#[ignore = "a measurement"]
fn speed_of_records() {
    for _ in 0..2 {
        records_of_rustls(4000);
        records_of_ours(4000);
    }
}

fn report(kind: &str, pieces: usize, seal: Duration, open: Duration) {
    let per_gb = |t: Duration| t.as_secs_f64() * 1e9 / (pieces * PIECE) as f64;
    println!("{kind:24} s/GB: seal {:.3} open {:.3}", per_gb(seal), per_gb(open));
}

fn records_of_ours(pieces: usize) {
    use crate::records::{FRAGMENT_BYTES_MAX, HEADER_BYTES};
    let (mut a, mut b) = private_pair();
    let (a, b) = (a.private_mut().unwrap().records(), b.private_mut().unwrap().records());
    let (payload, mut sealed, mut opened) = (noise(2, 4 * CHUNK), vec![0; 2 * PIECE], vec![0; 4 * CHUNK + 1]);
    let (mut sealing, mut opening) = (Duration::ZERO, Duration::ZERO);
    for at in (0..pieces).map(|n| n * PIECE % payload.len()) {
        let (mut end, before) = (0, cpu());
        for fragment in payload[at..at + PIECE].chunks(FRAGMENT_BYTES_MAX) {
            end += a.seal(fragment, &mut sealed[end..]).unwrap();
        }
        let between = cpu();
        let (mut from, mut to) = (0, at);
        while from < end {
            let header: [u8; HEADER_BYTES] = sealed[from..from + HEADER_BYTES].try_into().unwrap();
            let body =
                from + HEADER_BYTES..from + HEADER_BYTES + usize::from(u16::from_be_bytes([header[3], header[4]]));
            from = body.end;
            to += b.open_into(header, &sealed[body], &mut opened[to..]).unwrap().len;
        }
        opening += cpu() - between;
        sealing += between - before;
    }
    assert!(opened[..PIECE] == payload[..PIECE]);
    report("ours", pieces, sealing, opening);
}

fn records_of_rustls(pieces: usize) {
    let config = client_config(&identity(), PeerCheck::Observe, LANE).unwrap();
    let mut client = Handshake::client(config, "").unwrap();
    let config = server_config(&identity(), PeerCheck::Observe, LANE).unwrap();
    let mut server = Handshake::server(config, Vec::new(), "").unwrap();
    while converse(&mut client, &mut server).unwrap() == HandshakeTurn::Peer {}
    let (Side::Client(mut client), Side::Server(mut server)) = (client.into_side(), server.into_side()) else {
        panic!("a client and a server");
    };
    let (payload, mut sealed, mut opened) = (noise(2, 4 * CHUNK), vec![0; 2 * PIECE], vec![0; 4 * CHUNK]);
    let (mut sealing, mut opening) = (Duration::ZERO, Duration::ZERO);
    for at in (0..pieces).map(|n| n * PIECE % payload.len()) {
        let before = cpu();
        let end = match client.process_tls_records(&mut []).state.unwrap() {
            ConnectionState::WriteTraffic(mut write) => write.encrypt(&payload[at..at + PIECE], &mut sealed).unwrap(),
            other => panic!("{other:?}"),
        };
        let between = cpu();
        let (mut from, mut to) = (0, at);
        while from < end {
            let status = server.process_tls_records(&mut sealed[from..end]);
            from += status.discard;
            if let ConnectionState::ReadTraffic(mut traffic) = status.state.unwrap() {
                while let Some(record) = traffic.next_record() {
                    let record = record.unwrap();
                    opened[to..to + record.payload.len()].copy_from_slice(record.payload);
                    to += record.payload.len();
                }
            }
        }
        opening += cpu() - between;
        sealing += between - before;
    }
    report("rustls, unbuffered", pieces, sealing, opening);
}
