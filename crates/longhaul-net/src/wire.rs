//! One connected socket, blocking: gathered sends, whole receives, a deadline, and closing it from
//! another thread.
//!
//! Owns the socket of a lane and its options. Takes addresses and [`LaneOptions`]; gives raw bytes
//! to `lane` and `private`. Must not know TLS.

use std::fs;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use longhaul_core::limits::{
    HANDSHAKE_SECONDS_MAX, KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_PROBES, TRIAL_BYTES_MAX,
    UNACKNOWLEDGED_SECONDS_MAX,
};
use rustix::net::{RecvFlags, SendFlags, recv};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::error::{NetError, Over};
use crate::silence::Silence;

mod room;

pub(crate) use room::UNSENT_MAX;

/// The options of a lane's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// TCP congestion control. Default: [`Congestion::Auto`].
    pub congestion: Congestion,
    /// The local address to dial from, for hosts with several network cards. Default: the route's.
    pub local: Option<IpAddr>,
    /// The time for dialling and the handshake together. Default: 10 s.
    pub deadline: Duration,
    /// The largest segment of either end, as TCP announces it, in bytes without headers. Default
    /// (`None`): the size that the network cards carry.
    pub segment_max: Option<u32>,
}

impl Default for LaneOptions {
    fn default() -> LaneOptions {
        LaneOptions {
            congestion: Congestion::Auto,
            local: None,
            deadline: Duration::from_secs(HANDSHAKE_SECONDS_MAX),
            segment_max: None,
        }
    }
}

/// The TCP congestion control that a socket uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Congestion {
    /// Cubic within this host, where it is offered: BBR paces even there, and halves the speed.
    /// Else the system's default.
    #[default]
    Auto,
    /// The congestion control of this name, as the kernel calls it.
    Named(String),
}

impl Congestion {
    /// Whether the kernel lets this process use it.
    ///
    /// # Errors
    /// [`NetError::Congestion`] if not; [`NetError::Socket`] if there is no socket to try it on.
    pub(crate) fn try_out(&self) -> Result<(), NetError> {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let failed = |source| NetError::Socket { addr: nowhere.to_string(), doing: "make a socket", source };
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(failed)?;
        set_congestion(&socket, nowhere, self)
    }

    /// Whether this congestion control may be used when another host names it. Only those are
    /// allowed that this host's administrator lets ordinary users choose, even where this process
    /// may choose more. The kernel is not asked for any other: it would load a module of that name.
    ///
    /// # Errors
    /// As [`Congestion::try_out`].
    pub(crate) fn try_out_for_peer(&self) -> Result<(), NetError> {
        if let Congestion::Named(name) = self {
            let offered = offered();
            if !offered.split_whitespace().any(|one| one == name) {
                let source = io::Error::from(io::ErrorKind::PermissionDenied);
                return Err(NetError::Congestion { asked: name.clone(), offered, source });
            }
        }
        self.try_out()
    }
}

/// Whether more follows at once: then the kernel may hold a partial segment back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// Another call that sends follows at once.
    Follows,
    /// Nothing follows for now.
    No,
}

/// The wait of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// It waits until there are bytes.
    Some,
    /// It waits until the buffer is full, or the stream ends.
    All,
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Arc<Socket>,
    peer: String,
    peer_addr: Option<SocketAddr>,
    closed: Arc<AtomicBool>,
    /// The bytes carried, which a handle tells when the socket is gone.
    carried: Arc<AtomicU64>,
    /// This side has announced that it sends no more.
    ended: AtomicBool,
    deadline: Option<Instant>,
    segment_max: Option<u32>,
    /// Whether the lane was dialled over a network: while the deadline runs, it is checked whether
    /// segments are swallowed.
    watched: bool,
    passed: u32,
}

impl Wire {
    /// Dials `addr`. The deadline stays set for the calls that follow.
    pub(crate) fn connect(addr: SocketAddr, options: &LaneOptions) -> Result<Wire, NetError> {
        let failed = |doing| move |source| NetError::Socket { addr: addr.to_string(), doing, source };
        let started = Instant::now();
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None).map_err(failed("make a socket"))?;
        if let Some(local) = options.local {
            socket.bind(&SocketAddr::new(local, 0).into()).map_err(|e| bind_error(local, e))?;
        }
        if let Some(bytes) = options.segment_max {
            socket.set_tcp_mss(bytes).map_err(failed("set the options of the socket"))?;
        }
        socket.connect_timeout(&addr.into(), options.deadline).map_err(|e| match connect_error(addr, e) {
            // The deadline's, not the kernel's.
            NetError::NoAnswer { peer, over, .. } => {
                NetError::NoAnswer { peer, over, seconds: options.deadline.as_secs() }
            }
            error => error,
        })?;
        let mut wire = Wire::tcp(socket, addr, &options.congestion)?;
        wire.segment_max = options.segment_max;
        wire.watched = !within_host(&wire.socket, addr);
        wire.set_deadline(options.deadline.checked_sub(started.elapsed()).or(Some(Duration::ZERO)))?;
        Ok(wire)
    }

    /// Takes a connected TCP socket, in blocking mode.
    pub(crate) fn tcp(socket: Socket, peer: SocketAddr, congestion: &Congestion) -> Result<Wire, NetError> {
        let failed = |doing| move |source| NetError::Socket { addr: peer.to_string(), doing, source };
        tune(SockRef::from(&socket)).map_err(failed("set the options of the socket"))?;
        set_congestion(&socket, peer, congestion)?;
        let wire = Wire::new(socket, peer.to_string(), Some(peer));
        if !within_host(&wire.socket, peer) {
            wire.limit_unsent(UNSENT_MAX);
        }
        Ok(wire)
    }

    /// One end of a pair within this process.
    pub(crate) fn local(socket: Socket) -> Wire {
        Wire::new(socket, "the other half of this process".to_owned(), None)
    }

    /// This host's end of a connection through a tunnel to `peer`.
    pub(crate) fn tunnelled(socket: Socket, peer: String) -> Wire {
        Wire::new(socket, peer, None)
    }

    fn new(socket: Socket, peer: String, peer_addr: Option<SocketAddr>) -> Wire {
        Wire {
            socket: Arc::new(socket),
            peer,
            peer_addr,
            closed: Arc::default(),
            carried: Arc::default(),
            ended: AtomicBool::new(false),
            deadline: None,
            segment_max: None,
            watched: false,
            passed: 0,
        }
    }

    /// The name of the other end, for messages.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// The other end's address; `None` for a pair of local sockets.
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer_addr
    }

    /// This end's address; `None` for a pair of local sockets.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        Some(self.socket.local_addr().ok()?.as_socket()?.ip())
    }

    /// The congestion control that the kernel reports; `none` for a pair of local sockets.
    pub(crate) fn congestion(&self) -> String {
        congestion(&self.socket).unwrap_or_else(|| "none".to_owned())
    }

    /// See [`crate::LaneStream::segment_max`].
    pub(crate) fn segment_max(&self) -> Option<u32> {
        self.segment_max
    }

    /// See [`crate::LaneStream::trial_bytes`].
    pub(crate) fn trial_bytes(&self) -> u32 {
        if !self.watched {
            return 0;
        }
        let segment = longhaul_sys::tcp::state(&*self.socket).map_or(0, |state| state.segment_bytes);
        if segment <= self.passed { 0 } else { segment.min(TRIAL_BYTES_MAX) }
    }

    /// Notes that `bytes`, sent at once, have passed both ways.
    pub(crate) fn has_passed(&mut self, bytes: usize) {
        self.passed = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// See [`crate::LaneStream::set_congestion`].
    pub(crate) fn set_congestion(&self, congestion: &Congestion) -> Result<(), NetError> {
        self.peer_addr.map_or(Ok(()), |peer| set_congestion(&self.socket, peer, congestion))
    }

    /// Gives all further calls together the time `left`; `None` takes the limit away.
    pub(crate) fn set_deadline(&mut self, left: Option<Duration>) -> Result<(), NetError> {
        self.deadline = left.map(|left| Instant::now() + left);
        match self.deadline {
            Some(_) => Ok(()),
            // It has joined: its peer is known.
            None => {
                self.make_room();
                self.set_timeouts(None)
            }
        }
    }

    /// The parts of a [`crate::LaneHandle`]: the socket, which it does not keep open, the flag that
    /// the socket is closed, and the count of carried payload bytes.
    pub(crate) fn observed(&self) -> (Weak<Socket>, Arc<AtomicBool>, Arc<AtomicU64>) {
        (Arc::downgrade(&self.socket), self.closed.clone(), self.carried.clone())
    }

    /// Sends all of the parts, with as few system calls as possible.
    pub(crate) fn send(&self, parts: &[&[u8]], more: More) -> Result<(), NetError> {
        let flags = match more {
            More::Follows => SendFlags::NOSIGNAL | SendFlags::MORE,
            More::No => SendFlags::NOSIGNAL,
        };
        parts.chunks(PARTS_AT_ONCE).try_for_each(|group| {
            let mut slices = [IoSlice::new(&[]); PARTS_AT_ONCE];
            slices.iter_mut().zip(group).for_each(|(slice, part)| *slice = IoSlice::new(part));
            self.send_slices(&mut slices[..group.len()], flags)
        })
    }

    /// Sends as much as goes out without waiting; for an alert on a connection that failed.
    pub(crate) fn send_if_it_fits(&self, bytes: &[u8]) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::send(&*self.socket, bytes, flags);
    }

    /// Receives into `buf`; fewer bytes than wanted mean the end of the stream.
    pub(crate) fn recv(&self, buf: &mut [u8], want: Want) -> Result<usize, NetError> {
        let flags = match want {
            Want::Some => RecvFlags::empty(),
            Want::All => RecvFlags::WAITALL,
        };
        let mut filled = 0;
        // The kernel would wait for a byte even then.
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            self.arm()?;
            match recv(&*self.socket, &mut buf[filled..], flags) {
                Ok((_, 0)) if self.closed.load(Ordering::Acquire) => return Err(self.closed_here()),
                Ok((_, 0)) => return Ok(filled),
                Ok((_, n)) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) if self.watched => {
                    self.look()?;
                    continue;
                }
                Err(errno) => return Err(self.broken(errno.into())),
            }
            // A signal or the deadline may cut even a whole receive short.
            if want == Want::Some || filled == buf.len() {
                return Ok(filled);
            }
        }
    }

    /// Announces that nothing more will be sent.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        // It fails only if the connection is gone already.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Gives the connection up, after a fault of the peer.
    pub(crate) fn abandon(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn send_slices(&self, mut slices: &mut [IoSlice<'_>], flags: SendFlags) -> Result<(), NetError> {
        // Drops empty parts at the front: a send of nothing would look like a dead connection.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            self.arm()?;
            match self.socket.send_vectored_with_flags(slices, flags.bits().cast_signed()) {
                Ok(0) => return Err(self.broken(io::ErrorKind::WriteZero.into())),
                Ok(n) => IoSlice::advance_slices(&mut slices, n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.watched => self.look()?,
                Err(e) => return Err(self.broken(e)),
            }
        }
        Ok(())
    }

    /// Sets the socket's timeouts to the rest of the deadline, before each system call of a
    /// handshake, so that a peer cannot stretch it by sending a byte at a time.
    fn arm(&self) -> Result<(), NetError> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(self.timed_out()),
            // The kernel takes zero for "no timeout" and counts in microseconds.
            left => {
                let left = if self.watched { left.min(LOOK_EVERY) } else { left };
                self.set_timeouts(Some(left.max(Duration::from_millis(1))))
            }
        }
    }

    /// Fails if large segments of this side, or of the answer, are lost on the way.
    fn look(&self) -> Result<(), NetError> {
        match Silence::of(&self.socket).filter(Silence::is_of_swallowed_segments) {
            Some(silence) => Err(NetError::Swallowed { peer: self.peer.clone(), segment_bytes: silence.segment_bytes }),
            None => Ok(()),
        }
    }

    fn set_timeouts(&self, left: Option<Duration>) -> Result<(), NetError> {
        self.socket
            .set_read_timeout(left)
            .and_then(|()| self.socket.set_write_timeout(left))
            .map_err(|source| NetError::Socket { addr: self.peer.clone(), doing: "set a timeout", source })
    }

    fn broken(&self, source: io::Error) -> NetError {
        match source.kind() {
            _ if self.closed.load(Ordering::Acquire) => self.closed_here(),
            io::ErrorKind::WouldBlock => self.timed_out(),
            _ => NetError::io(&self.peer, source),
        }
    }

    fn timed_out(&self) -> NetError {
        NetError::TimedOut { peer: self.peer.clone(), doing: "opening a lane" }
    }

    fn closed_here(&self) -> NetError {
        NetError::Closed { peer: self.peer.clone() }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Ok(state) = longhaul_sys::tcp::state(&*self.socket) {
            let in_order = *self.ended.get_mut() && !self.closed.load(Ordering::Acquire);
            let given = state.sent.saturating_sub(state.resent) + u64::from(state.unsent);
            let sent = if in_order { state.acked.max(given) } else { state.acked };
            self.carried.store(sent + state.received, Ordering::Release);
        }
    }
}

/// Sets the options of every TCP connection. Buffers are left to the kernel's autotuning: setting
/// them ends it.
pub(crate) fn tune(socket: SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(KEEPALIVE_IDLE_SECONDS))
        .with_interval(Duration::from_secs(KEEPALIVE_INTERVAL_SECONDS))
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)
}

/// Sets the further options of a control connection. Its reader never stalls, so data that stays
/// unacknowledged means that the other host is not reached. (Lanes cannot have that: the kernel
/// also counts the time in which the other host takes no data, and a disk may stall for longer; see
/// [`crate::LaneHandle::unacknowledged`].)
pub(crate) fn tune_control(socket: SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(Duration::from_secs(UNACKNOWLEDGED_SECONDS_MAX)))
}

/// The address of a peer; an IPv4 peer of a socket that serves both families is written as IPv4.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// Classifies a failed dial.
pub(crate) fn connect_error(addr: SocketAddr, source: io::Error) -> NetError {
    let peer = addr.to_string();
    match source.kind() {
        io::ErrorKind::TimedOut => NetError::NoAnswer { peer, seconds: HANDSHAKE_SECONDS_MAX, over: Over::Tcp },
        _ => NetError::Unreachable { peer, source },
    }
}

/// The error for a socket that cannot be bound to a local address.
pub(crate) fn bind_error(local: IpAddr, source: io::Error) -> NetError {
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => NetError::LocalAddress { addr: local, source },
        _ => NetError::Socket { addr: local.to_string(), doing: "use the local address", source },
    }
}

pub(crate) fn congestion(socket: &Socket) -> Option<String> {
    let name = socket.tcp_congestion().ok()?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

fn set_congestion(socket: &Socket, peer: SocketAddr, congestion: &Congestion) -> Result<(), NetError> {
    match congestion {
        Congestion::Auto => {
            if within_host(socket, peer) {
                // Where the kernel has no cubic, its default is as good as any.
                let _ = socket.set_tcp_congestion(b"cubic");
            }
            Ok(())
        }
        Congestion::Named(name) => socket.set_tcp_congestion(name.as_bytes()).map_err(|source| NetError::Congestion {
            asked: name.clone(),
            offered: usable(),
            source,
        }),
    }
}

/// The congestion controls that are loaded and that this process may choose, separated by spaces:
/// root may choose more than others.
#[expect(clippy::disallowed_methods, reason = "the kernel answers under /proc, no file system is concerned")]
fn usable() -> String {
    let loaded = fs::read_to_string(CONGESTION_LOADED).unwrap_or_default();
    let Ok(trial) = Socket::new(Domain::IPV4, Type::STREAM, None) else { return offered() };
    let takes = |name: &&str| trial.set_tcp_congestion(name.as_bytes()).is_ok();
    loaded.split_whitespace().filter(takes).collect::<Vec<_>>().join(" ")
}

/// The congestion controls that an ordinary user may choose, separated by spaces.
#[expect(clippy::disallowed_methods, reason = "the kernel answers under /proc, no file system is concerned")]
fn offered() -> String {
    fs::read_to_string(CONGESTION_OFFERED).unwrap_or_default().trim().to_owned()
}

pub(crate) fn within_host(socket: &Socket, peer: SocketAddr) -> bool {
    let peer = peer.ip().to_canonical();
    let local = socket.local_addr().ok().and_then(|local| local.as_socket());
    peer.is_loopback() || local.is_some_and(|local| local.ip().to_canonical() == peer)
}

/// The time between two checks of a handshake over a network.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Parts of one system call. A header and a piece are two; more parts take more calls.
const PARTS_AT_ONCE: usize = 16;
/// The kernel's list of loaded congestion controls, and its list of those that an ordinary user may
/// choose.
const CONGESTION_LOADED: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const CONGESTION_OFFERED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
