//! The first words of a stranger over QUIC, to an endpoint as a daemon has it: any bytes, and
//! packets that are protected as they must be and hold any frames. Nothing panics, and until the
//! address was seen to answer it is told no more than three times what it said.
#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Instant;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use longhaul_net::fuzzing::quic_server;
use quinn_proto::{ConnectionHandle, ConnectionId, DatagramEvent, Endpoint, EndpointConfig, ServerConfig};

static SERVER: LazyLock<(Arc<EndpointConfig>, Arc<ServerConfig>)> = LazyLock::new(|| {
    let (mut endpoint, server) = quic_server().expect("configurations");
    endpoint.rng_seed(Some([7; 32]));
    (Arc::new(endpoint), Arc::new(server))
});

// Datagrams, each behind a byte that says how it is packed and two for its length.
fuzz_target!(|input: &[u8]| {
    let (endpoint, server) = &*SERVER;
    let mut endpoint = Endpoint::new(endpoint.clone(), Some(server.clone()), true, Some([9; 32]));
    let remote: SocketAddr = ([192, 0, 2, 1], 4433).into();
    let (now, mut rest) = (Instant::now(), input);
    let (mut said, mut answered) = (0, 0);
    let mut connections = Vec::new();
    while let [how, low, high, after @ ..] = rest {
        let len = (usize::from(u16::from_le_bytes([*low, *high]))).min(after.len()).min(DATAGRAM_BYTES_MAX);
        let (bytes, left) = after.split_at(len);
        rest = left;
        let datagram = match how % 3 {
            0 => bytes.to_vec(),
            1 => padded(bytes),
            _ => initial(server, u64::from(how / 3), bytes),
        };
        said += datagram.len();
        let mut answer = Vec::new();
        match endpoint.handle(now, remote, None, None, BytesMut::from(&datagram[..]), &mut answer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                match endpoint.accept(incoming, now, &mut answer, None) {
                    Ok(accepted) => connections.push(accepted),
                    Err(error) => answered += error.response.map_or(0, |transmit| transmit.size),
                }
            }
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let known = connections.iter_mut().find(|(known, _): &&mut (ConnectionHandle, _)| *known == handle);
                if let Some((_, connection)) = known {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::Response(transmit)) => answered += transmit.size,
            None => {}
        }
        for (handle, connection) in &mut connections {
            let mut out = Vec::new();
            while let Some(transmit) = connection.poll_transmit(now, 1, &mut out) {
                answered += transmit.size;
                out.clear();
            }
            while connection.poll().is_some() {}
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = endpoint.handle_event(*handle, event) {
                    connection.handle_event(event);
                }
            }
        }
        assert!(answered <= 3 * said, "{said} bytes were answered with {answered}");
    }
});

/// As long as a first datagram must be.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut datagram = bytes.to_vec();
    datagram.resize(DATAGRAM_BYTES.max(bytes.len()), 0);
    datagram
}

/// A first packet of version 1 that holds these frames, protected as a client does it.
fn initial(server: &ServerConfig, number: u64, frames: &[u8]) -> Vec<u8> {
    let to = ConnectionId::new(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let Ok(keys) = server.crypto.initial_keys(1, &to) else { return Vec::new() };
    let mut packet = vec![0xc0, 0, 0, 0, 1, 8];
    packet.extend_from_slice(&to);
    packet.extend([8, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    let at = packet.len() + 2;
    let payload = frames.len().max(DATAGRAM_BYTES - at - 1 - keys.packet.remote.tag_len());
    let len = 1 + payload + keys.packet.remote.tag_len();
    packet.extend((0x4000 | len as u16).to_be_bytes());
    packet.push(number as u8);
    let header = packet.len();
    packet.extend_from_slice(frames);
    packet.resize(at + len, 0);
    keys.packet.remote.encrypt(number & 0xff, &mut packet, header);
    keys.header.remote.encrypt(at, &mut packet);
    packet
}

const DATAGRAM_BYTES: usize = 1200;
const DATAGRAM_BYTES_MAX: usize = 8000;
