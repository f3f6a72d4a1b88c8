//! Lanes over TCP, private and safe, over a pair of local sockets, and over a tunnel, whose end
//! here is a local socket too.
//!
//! Owns how such a lane is dialled, what its two protections do with payload, and its counters as
//! the kernel keeps them. Takes a [`Wire`], and from `handshake` what makes it private; gives
//! `lane` a transport. Must not know frames, chunks or how a lane joins a session.

use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use longhaul_core::Transport;
use longhaul_sys::tcp::{self, ConnectionState};
use rustix::net::sockopt;
use rustls::ClientConfig;
use socket2::Socket;

use crate::counters::{LaneCounters, Packets, RoundTrip, SendWaits};
use crate::error::NetError;
use crate::facts::{CongestionControl, LaneMemory, Protection, TransportFacts};
use crate::handle::{LaneHandle, LaneHold};
use crate::handshake::{Handshake, HandshakeTurn, Secured};
use crate::keys::Identity;
use crate::private::Private;
use crate::public_key::PublicKey;
use crate::tls::{LANE, PeerCheck, client_config};
use crate::transport::LaneTransport;
use crate::wire::{Congestion, LaneOptions, More, UNSENT_MAX, Want, Wire, congestion, within_host};

/// One end of a lane over TCP.
pub(crate) struct TcpLane {
    wire: Wire,
    /// Seals and opens payload. `None` on a safe lane.
    private: Option<Private>,
    facts: TransportFacts,
    /// How much may wait unsent. `None` where a round trip is short.
    unsent: Option<Unsent>,
}

impl TcpLane {
    /// A lane whose bytes pass as they are.
    pub(crate) fn safe(wire: Wire) -> TcpLane {
        TcpLane { wire, private: None, facts: FACTS, unsent: None }
    }

    /// An encrypted lane.
    pub(crate) fn private(wire: Wire, private: Private) -> TcpLane {
        TcpLane { wire, private: Some(private), facts: FACTS, unsent: None }
    }

    /// The same lane, whose socket leads into a tunnel.
    pub(crate) fn tunnelled(self) -> TcpLane {
        TcpLane { facts: TUNNEL_FACTS, ..self }
    }

    /// Dials a lane without encryption.
    pub(crate) fn dial_safe(addr: SocketAddr, options: &LaneOptions) -> Result<TcpLane, NetError> {
        TcpLane::safe_over(Wire::connect(addr, options)?)
    }

    /// Begins a lane without encryption over a connection.
    pub(crate) fn safe_over(wire: Wire) -> Result<TcpLane, NetError> {
        wire.send(&[&SAFE_MAGIC], More::No)?;
        Ok(TcpLane::safe(wire))
    }

    /// Dials an encrypted lane to the holder of `pinned`.
    pub(crate) fn dial_private(
        addr: SocketAddr,
        identity: &Identity,
        pinned: PublicKey,
        options: &LaneOptions,
    ) -> Result<TcpLane, NetError> {
        let config = client_config(identity, PeerCheck::Pinned(pinned), LANE)?;
        TcpLane::private_over(Wire::connect(addr, options)?, config)
    }

    /// Dials an encrypted lane to whoever is there. Returns the key that it has proved, too.
    pub(crate) fn dial_private_observing(
        addr: SocketAddr,
        identity: &Identity,
        options: &LaneOptions,
    ) -> Result<(TcpLane, PublicKey), NetError> {
        let config = client_config(identity, PeerCheck::Observe, LANE)?;
        TcpLane::private_and_key(Wire::connect(addr, options)?, config)
    }

    /// Begins an encrypted lane over a connection.
    pub(crate) fn private_over(wire: Wire, config: Arc<ClientConfig>) -> Result<TcpLane, NetError> {
        TcpLane::private_and_key(wire, config).map(|(lane, _)| lane)
    }

    fn private_and_key(mut wire: Wire, config: Arc<ClientConfig>) -> Result<(TcpLane, PublicKey), NetError> {
        let handshake = Handshake::client(config, wire.peer())?;
        let (secured, passed) = shake_hands(&wire, handshake)?;
        wire.has_passed(passed);
        let peer_key = secured.peer_key;
        Ok((TcpLane::private(wire, Private::new(secured)), peer_key))
    }

    /// The socket and what makes it private. `None` for one that leads into a tunnel.
    pub(crate) fn into_parts(self) -> Option<(Wire, Option<Private>)> {
        (self.facts.transport == Transport::Tcp).then_some((self.wire, self.private))
    }

    /// The socket, for tests that put bytes past the protection.
    #[cfg(test)]
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The state of a private lane, for tests that renew keys early.
    #[cfg(test)]
    pub(crate) fn private_mut(&mut self) -> Option<&mut Private> {
        self.private.as_mut()
    }
}

impl LaneTransport for TcpLane {
    fn send(&mut self, parts: &[&[u8]], more: More) -> Result<(), NetError> {
        if let Some(unsent) = &mut self.unsent
            && let Some(limit) = unsent.sent(Instant::now(), parts.iter().map(|part| part.len()).sum())
        {
            self.wire.limit_unsent(limit);
        }
        match &mut self.private {
            None => self.wire.send(parts, more),
            Some(private) => private.send(&self.wire, parts, more),
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, NetError> {
        match &mut self.private {
            None => self.wire.recv(into, Want::All),
            Some(private) => private.recv(&self.wire, into),
        }
    }

    fn finish(&mut self) {
        match &mut self.private {
            None => self.wire.end(),
            Some(private) => private.finish(&self.wire),
        }
    }

    fn handle(&self) -> LaneHandle {
        let (socket, closed, carried) = self.wire.observed();
        LaneHandle::new(TcpHold { socket, closed, carried, facts: self.facts })
    }

    fn peer(&self) -> &str {
        self.wire.peer()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.wire.peer_addr()
    }

    fn local_ip(&self) -> Option<IpAddr> {
        self.wire.local_ip()
    }

    fn protection(&self) -> Protection {
        if self.private.is_some() { Protection::Private } else { Protection::Safe }
    }

    fn congestion(&self) -> String {
        self.wire.congestion()
    }

    fn set_congestion(&self, congestion: &Congestion) -> Result<(), NetError> {
        self.wire.set_congestion(congestion)
    }

    fn set_deadline(&mut self, left: Option<Duration>) -> Result<(), NetError> {
        // It has joined: lanes share the first bytes by what each brings on its way.
        if left.is_none() && self.wire.is_long() {
            self.unsent = Some(Unsent::begin(Instant::now()));
            self.wire.limit_unsent(UNSENT_FIRST);
        }
        self.wire.set_deadline(left)
    }

    fn segment_max(&self) -> Option<u32> {
        self.wire.segment_max()
    }

    fn make_room(&self) {
        self.wire.make_room();
    }

    fn trial_bytes(&self) -> u32 {
        self.wire.trial_bytes()
    }
}

/// How much may wait unsent in the socket of a lane over a long path: as much as it sends in half
/// a second. What waits there is lost to other lanes, and in the end all wait for it.
#[derive(Debug)]
struct Unsent {
    limit: u32,
    /// Bytes that were sent since the last look, and when that was.
    sent: usize,
    since: Instant,
}

impl Unsent {
    /// A lane that has sent nothing.
    fn begin(now: Instant) -> Unsent {
        Unsent { limit: UNSENT_FIRST, sent: 0, since: now }
    }

    /// Counts bytes that are sent. Gives the limit from now on, if it changes.
    fn sent(&mut self, now: Instant, bytes: usize) -> Option<u32> {
        self.sent = self.sent.saturating_add(bytes);
        if self.sent < LOOK_BYTES {
            return None;
        }
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        let half = self.sent as f64 / seconds.max(1e-3) / 2.0;
        let limit = (half as u32).clamp(UNSENT_MIN, UNSENT_MAX);
        (self.sent, self.since) = (0, now);
        // The kernel need not hear of each small change.
        let is_news = limit.abs_diff(self.limit) > self.limit / 4;
        is_news.then(|| std::mem::replace(&mut self.limit, limit)).map(|_| limit)
    }
}

/// A hold on the socket of a lane, which it does not keep open.
#[derive(Debug)]
struct TcpHold {
    socket: Weak<Socket>,
    closed: Arc<AtomicBool>,
    carried: Arc<AtomicU64>,
    facts: TransportFacts,
}

impl LaneHold for TcpHold {
    fn facts(&self) -> TransportFacts {
        self.facts
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(socket) = self.socket.upgrade() {
            // It fails only if the connection is gone already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn quiet(&self) -> Option<Duration> {
        tcp::quiet(&*self.socket.upgrade()?).ok()
    }

    fn counters(&self) -> Option<LaneCounters> {
        tcp::state(&*self.socket.upgrade()?).ok().map(counters)
    }

    fn carried_at_end(&self) -> u64 {
        self.carried.load(Ordering::Acquire)
    }

    fn unacknowledged(&self) -> Option<Duration> {
        tcp::unacknowledged(&*self.socket.upgrade()?).ok()?
    }

    fn is_within_host(&self) -> bool {
        let peer = |socket: &Socket| socket.peer_addr().ok().and_then(|peer| peer.as_socket());
        let within = |socket: Arc<Socket>| peer(&socket).is_none_or(|peer| within_host(&socket, peer));
        self.socket.upgrade().is_some_and(within)
    }

    fn set_pace(&self, bytes_per_s: Option<u64>) {
        if let Some(socket) = self.socket.upgrade() {
            let _ = tcp::set_pace(&*socket, bytes_per_s);
        }
    }

    fn set_scavenger(&self) {
        if let Some(socket) = self.socket.upgrade() {
            // One of both is not for a socket of this family.
            let _ = sockopt::set_ip_tos(&*socket, LOWER_EFFORT);
            let _ = sockopt::set_ipv6_tclass(&*socket, LOWER_EFFORT.into());
        }
    }

    fn congestion(&self) -> Option<String> {
        congestion(&*self.socket.upgrade()?)
    }

    fn set_congestion(&self, name: &str) -> bool {
        self.socket.upgrade().is_some_and(|socket| socket.set_tcp_congestion(name.as_bytes()).is_ok())
    }
}

/// The kernel's counters. It gives zero for those that it does not have.
fn counters(state: ConnectionState) -> LaneCounters {
    let known = |count: u32| (count > 0).then_some(count);
    LaneCounters {
        sent: state.sent,
        resent: state.resent,
        unsent: state.unsent.into(),
        acked: state.acked,
        received: state.received,
        round_trip: RoundTrip { min: state.min_rtt, smoothed: state.rtt, deviation: state.rtt_deviation },
        packets: Packets {
            delivered: known(state.delivered_segments),
            unacked: state.unacked_segments,
            timeouts: state.timeouts,
            payload_bytes: state.segment_bytes,
            path_mtu: known(state.path_mtu),
        },
        waits: SendWaits { busy: state.busy, receiver: state.receiver_limited, buffer: state.buffer_limited },
        ..LaneCounters::default()
    }
}

/// Drives a handshake over a blocking socket. Also returns how many bytes both ends have sent in
/// one flight: the smaller of the two numbers.
fn shake_hands(wire: &Wire, mut handshake: Handshake) -> Result<(Secured, usize), NetError> {
    let (mut say, mut heard) = (Vec::new(), vec![0; HEARD_BYTES]);
    let (mut hello, mut answer) = (0, 0);
    loop {
        let turn = handshake.advance(&mut say);
        wire.send(&[&say], More::No)?;
        hello = hello.max(say.len());
        say.clear();
        if turn.map_err(|e| NetError::tls(wire.peer(), e))? == HandshakeTurn::Done {
            let secured = handshake.finish().map_err(|e| NetError::tls(wire.peer(), e))?;
            return Ok((secured, hello.min(answer)));
        }
        match wire.recv(&mut heard, Want::Some)? {
            0 => return Err(NetError::Truncated { peer: wire.peer().to_owned() }),
            n => {
                // All that it says is one flight.
                answer += n;
                handshake.hear(&heard[..n]);
            }
        }
    }
}

/// The facts of lanes over TCP. Those between two ends in this process share them.
pub(crate) const FACTS: TransportFacts = TransportFacts {
    transport: Transport::Tcp,
    protections: &[Protection::Private, Protection::Safe],
    memory: LaneMemory::Kernel,
    congestion_control: CongestionControl::Kernel,
};

/// The facts of lanes that lead through a tunnel: its own congestion control is that of the one
/// connection below it.
pub(crate) const TUNNEL_FACTS: TransportFacts = TransportFacts {
    transport: Transport::Ssh,
    protections: &[Protection::Private, Protection::Safe],
    memory: LaneMemory::Kernel,
    congestion_control: CongestionControl::Own,
};

/// DSCP LE, 000001, with both bits of ECN behind it, which TCP sets itself.
pub(crate) const LOWER_EFFORT: u8 = 1 << 2;
/// Bytes that may wait unsent in the socket of a lane that has just begun on a long path. With
/// more, the first lanes would keep all of a short file, and send it one window after the other.
const UNSENT_FIRST: u32 = 128 << 10;
/// Bytes that may wait unsent however slow a lane is: four records of a private lane.
const UNSENT_MIN: u32 = 64 << 10;
/// Bytes after which is looked how long they took.
const LOOK_BYTES: usize = 1 << 20;
/// Bytes read at a time. A whole flight of the handshake is smaller.
const HEARD_BYTES: usize = 16 << 10;
/// The first bytes of a safe lane. The first of them begins neither a TLS record (0x16) nor any
/// text.
pub const SAFE_MAGIC: [u8; 8] = *b"\xf5lhlane1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_unsent_on_a_long_path_is_half_a_second() {
        const MIB: usize = 1 << 20;
        let begun = Instant::now();
        // MiB of each look, the milliseconds that they took, and the limit if it changes.
        for (looks, limits) in [
            // 1 MB/s, and 10 % more, which is no news.
            (&[(1, 1049), (1, 950)][..], &[Some(500_000), None][..]),
            // So slow that four records take longer.
            (&[(1, 60_000), (1, 60_000)], &[Some(UNSENT_MIN), None]),
            // So fast that the kernel takes as much as anywhere, and then slow.
            (&[(2, 10), (1, 10), (1, 1049)], &[Some(UNSENT_MAX), None, Some(500_000)]),
        ] {
            let (mut unsent, mut now) = (Unsent::begin(begun), begun);
            let mut look = |(mib, millis): &(usize, u64)| {
                assert_eq!(unsent.sent(now, MIB - 1), None, "before the look is due");
                now += Duration::from_millis(*millis);
                unsent.sent(now, (mib - 1) * MIB + 1)
            };
            for (at, want) in looks.iter().zip(limits) {
                let limit = look(at);
                let near = |(got, want): (u32, u32)| got.abs_diff(want) < want / 50 + 1;
                assert!(limit.zip(*want).map_or(limit == *want, near), "{at:?}: {limit:?}, not {want:?}");
            }
        }
    }
}
