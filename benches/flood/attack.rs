//! Floods of whoever is no client: connections that say nothing, connections that say rubbish, and
//! first packets of QUIC that are forged.
//!
//! In: a daemon's address, over loopback. Out: an [`Attack`] that goes on until it is dropped, and
//! its counts. The bench `flood` and the test of the same name play it; it judges nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_net::{Identity, LaneOptions, LaneStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval};

/// The parts of an attack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waves {
    /// Connections over TCP that say nothing, at a time.
    pub(crate) silent: u64,
    /// Connections over TCP a second that say rubbish.
    pub(crate) rubbish: u64,
    /// First packets of QUIC connections a second.
    pub(crate) initials: u64,
}

/// An attack, until it is dropped.
pub(crate) struct Attack {
    over: Arc<AtomicBool>,
    counts: Arc<Counts>,
    forgers: Vec<JoinHandle<()>>,
    /// `Some` until it is dropped.
    runtime: Option<Runtime>,
}

/// The figures of an attack so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Silent connections that were made.
    pub(crate) silent: AtomicU64,
    /// Connections that said rubbish.
    pub(crate) rubbish: AtomicU64,
    /// First packets that were sent.
    pub(crate) initials: AtomicU64,
    /// Their bytes.
    pub(crate) said: AtomicU64,
    /// Bytes that the daemon answered to them.
    pub(crate) heard: AtomicU64,
}

impl Attack {
    /// Begins. Of the forged packets every other one is of `captured`: packets of an honest
    /// dialler, which are protected as they must be and hold half of a hello.
    pub(crate) fn start(daemon: SocketAddr, waves: Waves, captured: &Arc<Vec<Vec<u8>>>) -> Attack {
        let (over, counts) = (Arc::<AtomicBool>::default(), Arc::<Counts>::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        for n in 0..waves.silent {
            // Half of them come from one address.
            let from = if n % 2 == 0 { LARGEST } else { 2 + (n / 2 % ADDRESSES) as u8 };
            runtime.spawn(say_nothing(daemon, from, counts.clone()));
        }
        if waves.rubbish > 0 {
            runtime.spawn(say_rubbish(daemon, waves.rubbish, counts.clone()));
        }
        let mut forgers = Vec::new();
        if waves.initials > 0 {
            let (over, counts, captured) = (over.clone(), counts.clone(), captured.clone());
            forgers.push(thread::spawn(move || forge(daemon, waves.initials, &captured, &over, &counts)));
        }
        Attack { over, counts, forgers, runtime: Some(runtime) }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Waits until so many silent connections were made. Returns whether they were, in time.
    pub(crate) fn has_made(&self, silent: u64, within: Duration) -> bool {
        let begun = Instant::now();
        while self.counts.silent.load(Ordering::Relaxed) < silent {
            if begun.elapsed() > within {
                return false;
            }
            thread::sleep(TICK);
        }
        true
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for forger in self.forgers.drain(..) {
            let _ = forger.join();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// Keeps one connection that says nothing. Where it is hung up on, another takes its place.
async fn say_nothing(daemon: SocketAddr, from: u8, counts: Arc<Counts>) {
    loop {
        if let Some(mut stream) = connect(daemon, from).await {
            counts.silent.fetch_add(1, Ordering::Relaxed);
            while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn say_rubbish(daemon: SocketAddr, per_s: u64, counts: Arc<Counts>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (begun, mut made) = (Instant::now(), 0);
    loop {
        ticks.tick().await;
        let due = begun.elapsed().as_millis() as u64 * per_s / 1000;
        // What could not be made in time is left out.
        let count = (due.saturating_sub(made)).min(per_s / 10);
        made = due;
        for n in 0..count {
            let counts = counts.clone();
            tokio::spawn(async move {
                let Some(mut stream) = connect(daemon, 2 + (n % ADDRESSES) as u8).await else { return };
                counts.rubbish.fetch_add(1, Ordering::Relaxed);
                let words: &[u8] = if n % 2 == 0 { b"GET / HTTP/1.1\r\n\r\n" } else { &[0x16, 3, 1, 2, 0, 9, 9, 9] };
                let _ = stream.write_all(words).await;
                while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {}
            });
        }
    }
}

async fn connect(daemon: SocketAddr, from: u8) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind(SocketAddr::new(local(from), 0)).ok()?;
    socket.connect(daemon).await.ok()
}

/// Sends first packets at this rate, and counts what comes back.
fn forge(daemon: SocketAddr, per_s: u64, captured: &[Vec<u8>], over: &AtomicBool, counts: &Counts) {
    let socket = |from: u8| {
        let socket = UdpSocket::bind(SocketAddr::new(local(from), 0)).expect("a socket");
        socket.set_nonblocking(true).expect("a flag");
        socket
    };
    let sockets: Vec<UdpSocket> = (2..2 + ADDRESSES as u8).map(socket).collect();
    let (begun, mut sent, mut forged) = (Instant::now(), 0u64, forged_initial());
    while !over.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_micros() as u64 * per_s / 1_000_000;
        // What could not be sent in time is left out.
        sent = sent.max(due.saturating_sub(per_s / 20));
        for n in sent..due {
            let socket = &sockets[(n / 2 % ADDRESSES) as usize];
            let packet = match captured.get((n / 2) as usize % captured.len().max(1)) {
                Some(packet) if n % 2 == 0 => packet,
                _ => {
                    forged[6..14].copy_from_slice(&scattered(n).to_be_bytes());
                    &forged
                }
            };
            if socket.send_to(packet, daemon).is_ok() {
                counts.initials.fetch_add(1, Ordering::Relaxed);
                counts.said.fetch_add(packet.len() as u64, Ordering::Relaxed);
            }
        }
        sent = due;
        let mut answer = [0; 2048];
        for socket in &sockets {
            while let Ok(len) = socket.recv(&mut answer) {
                counts.heard.fetch_add(len as u64, Ordering::Relaxed);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A datagram as long as a first one must be, with the header of a first packet of version 1.
/// Nobody can open what is in it.
fn forged_initial() -> Vec<u8> {
    let mut packet = vec![0xc3, 0, 0, 0, 1, 8];
    packet.extend([0; 8]); // where it goes
    packet.push(8);
    packet.extend([7; 8]); // where it comes from
    packet.push(0); // no token
    let rest = DATAGRAM_BYTES - packet.len() - 2;
    packet.extend((0x4000 | rest as u16).to_be_bytes());
    packet.extend((0..rest as u64).map(|n| scattered(n) as u8));
    packet
}

/// Another number, which looks like any (splitmix64).
fn scattered(n: u64) -> u64 {
    let mut mixed = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 27;
    mixed.wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// The first packets of so many honest dials.
pub(crate) fn captured_initials(count: usize) -> Arc<Vec<Vec<u8>>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let addr = socket.local_addr().expect("an address");
    let mut packets: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..DIALLERS {
            scope.spawn(move || {
                let (Ok(identity), Ok(nobody)) = (Identity::generate(), Identity::generate()) else { return };
                let options = LaneOptions { deadline: Duration::from_millis(50), ..LaneOptions::default() };
                for _ in 0..count.div_ceil(DIALLERS) {
                    let _ = LaneStream::dial_quic(addr, &identity, nobody.public(), &options);
                }
            });
        }
        let mut packet = [0; 2048];
        while packets.len() < count {
            let Ok((len, from)) = socket.recv_from(&mut packet) else { return };
            if packets.iter().all(|(other, _)| *other != from) {
                packets.push((from, packet[..len].to_vec()));
            }
        }
    });
    Arc::new(packets.into_iter().map(|(_, packet)| packet).collect())
}

/// An address of this host.
fn local(n: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, n).into()
}

/// Addresses of a flood, beside the largest, in the network of the honest client.
const ADDRESSES: u64 = 10;
/// The last part of the address from which half of the silent connections come.
const LARGEST: u8 = 99;
/// Threads that dial to have their packets captured.
const DIALLERS: usize = 8;
const DATAGRAM_BYTES: usize = 1200;
const TICK: Duration = Duration::from_millis(10);
/// The time after which a silent connection that was hung up on is made again.
const AGAIN: Duration = Duration::from_secs(10);
