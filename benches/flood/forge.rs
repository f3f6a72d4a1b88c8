//! Attacks on lanes over UDP by somebody who sees every datagram of theirs and may send in
//! anybody's name: forged packets, copies of honest ones, and joins whose proof is wrong.
//!
//! In: a daemon's address, over loopback, and root. Out: a [`Forgery`] that goes on until it is
//! dropped, and its counts. The bench `flood` and a test play it; it judges nothing.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};

use super::sniff::{Over, Seen, Sniffer};

/// The parts of a forgery, each in datagrams a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForgedWaves {
    /// Packets of a lane with changed bits or another number, in the name of either end.
    pub(crate) forged: u64,
    /// Packets of a lane once more, in the name of their sender and in that of strangers.
    pub(crate) replayed: u64,
    /// Joins of strangers: that of a lane once more, with another proof, and of other sessions.
    pub(crate) joins: u64,
    /// The same as `forged`, but so many bits a second: what a line of that rate carries.
    pub(crate) line: u64,
}

/// A forgery, until it is dropped.
pub(crate) struct Forgery {
    over: Arc<AtomicBool>,
    counts: Arc<ForgedCounts>,
    threads: Vec<JoinHandle<()>>,
}

/// The figures of a forgery so far.
#[derive(Debug, Default)]
pub(crate) struct ForgedCounts {
    /// Forged packets that were sent.
    pub(crate) forged: AtomicU64,
    /// Packets that were sent once more.
    pub(crate) replayed: AtomicU64,
    /// Joins that were sent.
    pub(crate) joins: AtomicU64,
    /// Bytes that strangers were answered.
    pub(crate) heard: AtomicU64,
}

/// The datagrams of a lane that were overheard.
#[derive(Debug, Default)]
struct Overheard {
    join: Option<Vec<u8>>,
    /// Sender, receiver and bytes of sealed packets, of those to the daemon and of those from it.
    there: Vec<(SocketAddrV4, SocketAddrV4, Vec<u8>)>,
    back: Vec<(SocketAddrV4, SocketAddrV4, Vec<u8>)>,
}

impl Overheard {
    /// Whether all that is kept is there.
    fn is_complete(&self) -> bool {
        self.join.is_some() && self.there.len() >= KEPT_THERE && self.back.len() >= KEPT_BACK
    }
}

impl Forgery {
    /// Begins to listen, and attacks the first lane once it has overheard enough of it.
    ///
    /// # Errors
    /// The system's, where this process may not do so.
    pub(crate) fn start(daemon: SocketAddr, waves: ForgedWaves) -> io::Result<Forgery> {
        let SocketAddr::V4(daemon) = daemon else { return Err(io::ErrorKind::Unsupported.into()) };
        let (over, counts) = (Arc::<AtomicBool>::default(), Arc::<ForgedCounts>::default());
        let (sniffer, heard) = (Sniffer::open(Seen::Coming)?, Arc::<Mutex<Overheard>>::default());
        let raw = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW))?;
        let strangers = (2..2 + STRANGERS).map(stranger).collect::<io::Result<Vec<_>>>()?;
        let (until, into) = (over.clone(), heard.clone());
        let listens = thread::spawn(move || listen(sniffer, daemon, &into, &until));
        let (until, counted) = (over.clone(), counts.clone());
        let attacker = Attacker { daemon, raw, strangers, heard, counts: counted };
        let attacks = thread::spawn(move || attacker.attack(waves, &until));
        Ok(Forgery { over, counts, threads: vec![listens, attacks] })
    }

    pub(crate) fn counts(&self) -> &ForgedCounts {
        &self.counts
    }
}

impl Drop for Forgery {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn stranger(n: u8) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, n), 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Keeps the join of the first lane, and some of its packets in either direction. Nothing is forged
/// before it has all of them: what was forged is not to be overheard.
fn listen(mut sniffer: Sniffer, daemon: SocketAddrV4, heard: &Mutex<Overheard>, over: &AtomicBool) {
    let mut client = None;
    while !over.load(Ordering::Relaxed) {
        let Ok(Some(packet)) = sniffer.next(Duration::from_millis(50)) else { continue };
        let is_lanes = packet.over == Over::Udp && (packet.from == daemon || packet.to == daemon);
        let Some(first) = packet.payload.first().filter(|_| is_lanes) else { continue };
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        match *first {
            // A stranger's is a copy, or forged.
            JOIN if client.is_none() && packet.from != daemon => {
                client = Some(packet.from);
                heard.join = Some(packet.payload);
            }
            SEALED_FIRST..=SEALED_LAST if client == Some(packet.from) || client == Some(packet.to) => {
                let is_there = packet.to == daemon;
                let kept = if is_there { &mut heard.there } else { &mut heard.back };
                for datagram in datagrams(&packet.payload) {
                    kept.push((packet.from, packet.to, datagram.to_vec()));
                }
            }
            _ => {}
        }
        if heard.is_complete() {
            return;
        }
    }
}

/// The datagrams of a run, which on this host is one packet until somebody cuts it: all of them but
/// the last are as long as the first, whose header says how much it holds.
pub(crate) fn datagrams(run: &[u8]) -> impl Iterator<Item = &[u8]> {
    let piece = (run[0] == SEALED_FIRST).then(|| run.get(22..24)).flatten();
    let datagram = piece.map_or(run.len(), |piece| 40 + usize::from(u16::from_le_bytes([piece[0], piece[1]])));
    run.chunks(datagram)
}

/// Sends what was overheard, and what was made of it.
struct Attacker {
    daemon: SocketAddrV4,
    raw: OwnedFd,
    strangers: Vec<UdpSocket>,
    heard: Arc<Mutex<Overheard>>,
    counts: Arc<ForgedCounts>,
}

impl Attacker {
    fn attack(&self, waves: ForgedWaves, over: &AtomicBool) {
        let is_complete = || self.heard.lock().unwrap_or_else(PoisonError::into_inner).is_complete();
        while !is_complete() {
            if over.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let begun = Instant::now();
        let (mut sent, mut on_line) = ([0u64; 3], 0u64);
        let mut answer = [0; 2048];
        while !over.load(Ordering::Relaxed) {
            let micros = begun.elapsed().as_micros() as u64;
            let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            for (at, per_s) in [waves.forged, waves.replayed, waves.joins].into_iter().enumerate() {
                let due = micros * per_s / 1_000_000;
                // What could not be sent in time is left out.
                sent[at] = sent[at].max(due.saturating_sub(per_s / 50));
                for n in sent[at]..due {
                    match at {
                        0 => drop(self.forge(&heard, n)),
                        1 => self.replay(&heard, n),
                        _ => self.join(&heard, n),
                    }
                }
                sent[at] = due;
            }
            let due = micros * (waves.line / 8) / 1_000_000;
            on_line = on_line.max(due.saturating_sub(waves.line / 400));
            while on_line < due {
                on_line += HEADERS + self.forge(&heard, on_line);
            }
            drop(heard);
            for stranger in &self.strangers {
                while let Ok(len) = stranger.recv(&mut answer) {
                    self.counts.heard.fetch_add(len as u64, Ordering::Relaxed);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A packet of the lane with a change that nobody but its ends could hide. Gives its bytes.
    fn forge(&self, heard: &Overheard, n: u64) -> u64 {
        let Some((from, to, packet)) = pick(heard, n) else { return 0 };
        let mut forged = packet.clone();
        let last = forged.len() - 1;
        match n % 3 {
            0 => forged[last] ^= 1,
            // A number far ahead, which would move windows and keys.
            1 => forged[8..16].copy_from_slice(&(scattered(n) >> 17).to_be_bytes()),
            _ => forged[16 + scattered(n) as usize % (last - 15)] ^= 0x80,
        }
        self.say_as(*from, *to, &forged, &self.counts.forged);
        forged.len() as u64
    }

    fn replay(&self, heard: &Overheard, n: u64) {
        let Some((from, to, packet)) = pick(heard, n) else { return };
        match n % 2 {
            0 => self.say_as(*from, *to, packet, &self.counts.replayed),
            _ => self.say(n, packet, &self.counts.replayed),
        }
    }

    fn join(&self, heard: &Overheard, n: u64) {
        let Some(mut join) = heard.join.clone() else { return };
        let last = join.len() - 1;
        match n % 3 {
            // The one that was good.
            0 => {}
            1 => join[last] ^= 1 + (scattered(n) as u8 & 0x7f),
            // Another session's, and another lane's.
            _ => join[8..24].copy_from_slice(&[scattered(n).to_be_bytes(), scattered(!n).to_be_bytes()].concat()),
        }
        self.say(n, &join, &self.counts.joins);
    }

    /// Sends in the name of a stranger.
    fn say(&self, n: u64, datagram: &[u8], count: &AtomicU64) {
        if self.strangers[(n / 6) as usize % self.strangers.len()].send_to(datagram, self.daemon).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends in the name of another.
    fn say_as(&self, from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8], count: &AtomicU64) {
        let packet = in_the_name_of(from, to, datagram);
        if sendto(&self.raw, &packet, SendFlags::DONTWAIT, &to).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The packet with this datagram as a raw socket sends it, from whomever it is said to be.
pub(crate) fn in_the_name_of(from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) -> Vec<u8> {
    let bytes = (28 + datagram.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(bytes.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]); // the kernel fills in the checksum
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend([from.port(), to.port(), bytes - 20, 0].iter().flat_map(|field| field.to_be_bytes()));
    packet.extend(datagram);
    packet
}

fn pick(heard: &Overheard, n: u64) -> Option<&(SocketAddrV4, SocketAddrV4, Vec<u8>)> {
    // One of three is of the daemon's, whose packets are statuses.
    let kept = if scattered(n) >> 32 & 0xff < 85 { &heard.back } else { &heard.there };
    kept.get(scattered(n) as usize % kept.len().max(1)).filter(|(_, _, packet)| packet.len() > 32)
}

/// Another number, which looks like any (splitmix64).
pub(crate) fn scattered(n: u64) -> u64 {
    let mut mixed = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 27;
    mixed.wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// First bytes of datagrams: docs/WIRE.md, section 10.
const JOIN: u8 = 0x21;
const SEALED_FIRST: u8 = 0x23;
const SEALED_LAST: u8 = 0x28;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;
/// Packets of a lane that are kept, of those to the daemon and of those from it.
const KEPT_THERE: usize = 64;
const KEPT_BACK: usize = 8;
/// Addresses of strangers, in the network of the honest client.
const STRANGERS: u8 = 10;
