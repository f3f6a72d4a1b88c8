//! A relay between client and daemon that says when the first byte of payload comes by, and holds
//! it there.
//!
//! In: the daemon's address. Out: an address to push to, and the time and number of the first unit
//! on any `safe` lane. Knows of the protocol only how a lane begins.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A running relay. Its threads wait for connections until the process ends.
pub(crate) struct Relay {
    pub(crate) addr: SocketAddr,
    first: Receiver<First>,
}

/// The first unit that has payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// The time when its first byte came.
    pub(crate) at: Instant,
    /// The number of the chunk or, for a bundle, the entry id of its first file.
    pub(crate) number: u64,
}

impl Relay {
    /// Relays to `daemon`.
    pub(crate) fn start(daemon: &str) -> Result<Relay> {
        let daemon: SocketAddr = daemon.parse()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (addr, (tell, first)) = (listener.local_addr()?, channel());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that fails ends; the client says so.
                let _ = relay(client, daemon, tell.clone());
            }
        });
        Ok(Relay { addr, first })
    }

    /// Waits for the first payload.
    pub(crate) fn first(&self) -> Result<First> {
        self.first.recv_timeout(WITHIN).context("no payload came")
    }
}

fn relay(client: TcpStream, daemon: SocketAddr, tell: Sender<First>) -> Result<()> {
    let server = TcpStream::connect(daemon)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || std::io::copy(&mut from, &mut to));
    thread::spawn(move || pass(client, server, &tell));
    Ok(())
}

/// Passes on the client's bytes, except a lane's payload: there it stops, and the lane stands
/// still.
fn pass(mut client: TcpStream, mut daemon: TcpStream, tell: &Sender<First>) -> Result<()> {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let read = client.read(&mut buffer)?;
        if read == 0 {
            return Ok(daemon.shutdown(std::net::Shutdown::Write)?);
        }
        let is_lane = seen.first().unwrap_or(&buffer[0]) != &TLS;
        if is_lane && seen.len() + read > PAYLOAD_AT {
            let at = Instant::now();
            seen.extend_from_slice(&buffer[..read]);
            while seen.len() < PAYLOAD_AT + TABLE_BYTES {
                let more = client.read(&mut buffer)?;
                seen.extend_from_slice(&buffer[..more]);
            }
            return Ok(tell.send(First { at, number: number(&seen) })?);
        }
        if seen.len() < PAYLOAD_AT {
            seen.extend_from_slice(&buffer[..read]);
        }
        daemon.write_all(&buffer[..read])?;
    }
}

/// The number of the unit in the frame at the beginning of a lane.
fn number(lane: &[u8]) -> u64 {
    let is_bundle = lane[JOIN_BYTES + 4] == 2;
    let at = if is_bundle { PAYLOAD_AT + 8 } else { JOIN_BYTES + 16 };
    u64::from_le_bytes(std::array::from_fn(|n| lane[at + n]))
}

/// docs/WIRE.md, sections 1, 2 and 6.
const TLS: u8 = 0x16;
const JOIN_BYTES: usize = 8 + 36 + 32;
const PAYLOAD_AT: usize = JOIN_BYTES + 64;
/// The bytes of a bundle's table that matter here: count, place, and the first entry's id.
const TABLE_BYTES: usize = 16;
/// The longest wait: far more than any target.
const WITHIN: Duration = Duration::from_secs(240);
