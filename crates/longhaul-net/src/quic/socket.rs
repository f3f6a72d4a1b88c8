//! The UDP socket under QUIC: how many segments a transmission may have, how large a datagram the
//! route takes, and the rate that each connection keeps.
//!
//! Owns the socket and the buckets of the connections that send through it, by the address they
//! send to. Takes datagrams from quinn, whose controllers know windows and no rates. Must not know
//! QUIC.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use rustix::net::sockopt;
use socket2::{Domain, Socket, Type};
use tokio::time::{Sleep, sleep_until};

use super::bucket::Bucket;

/// A UDP socket that paces its connections: see the module.
#[derive(Debug)]
pub(crate) struct PacedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    buckets: RwLock<HashMap<SocketAddr, Arc<Bucket>>>,
    /// The largest datagram that was sent so far, up to which datagrams may be batched.
    largest: AtomicUsize,
}

thread_local! {
    /// The time at which the connection that was just refused may send. Quinn's driver asks the
    /// poller on the same thread at once. Only the poller knows whom to wake, and only the socket
    /// knows which connection it is.
    static REFUSED: Cell<Option<Instant>> = const { Cell::new(None) };
}

impl PacedSocket {
    /// Wraps a bound socket; within a Tokio runtime.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<PacedSocket> {
        let inner = TokioRuntime.wrap_udp_socket(socket)?;
        Ok(PacedSocket { inner, buckets: RwLock::default(), largest: AtomicUsize::new(0) })
    }

    /// Makes datagrams to `addr` keep the rate of `bucket` from now on.
    pub(crate) fn pace(&self, addr: SocketAddr, bucket: Arc<Bucket>) {
        self.buckets.write().unwrap_or_else(PoisonError::into_inner).insert(addr, bucket);
    }

    /// Forgets a bucket, wherever it was.
    pub(crate) fn forget(&self, bucket: &Arc<Bucket>) {
        let mut buckets = self.buckets.write().unwrap_or_else(PoisonError::into_inner);
        buckets.retain(|_, other| !Arc::ptr_eq(bucket, other));
    }
}

impl AsyncUdpSocket for PacedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(PacedPoller { inner: self.inner.clone().create_io_poller(), until: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let len = transmit.contents.len();
        let bucket = {
            let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
            buckets.get(&transmit.destination).cloned()
        };
        if let Some(Err(until)) = bucket.as_ref().map(|bucket| bucket.take(Instant::now(), len)) {
            REFUSED.set(Some(until));
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.largest.fetch_max(transmit.segment_size.unwrap_or(len), Ordering::Relaxed);
        let sent = self.inner.try_send(transmit);
        if let (Err(_), Some(bucket)) = (&sent, bucket) {
            bucket.give_back(len);
        }
        sent
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Segments in one batch. A batch that is longer than an IP packet may be is lost as a whole,
    /// and quinn, which takes that for a path that lost its MTU, goes on with 1200 bytes. A probe
    /// is sent alone before datagrams of its size come in batches.
    fn max_transmit_segments(&self) -> usize {
        let fits = BATCH_BYTES_MAX / self.largest.load(Ordering::Relaxed).max(1);
        fits.clamp(1, self.inner.max_transmit_segments())
    }

    /// Segments in one receive. Together they are at most one IP packet: quinn makes room for this
    /// many of the largest.
    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments().min(BATCH_BYTES_MAX.div_ceil(usize::from(PAYLOAD_MAX)))
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// Waits for the bucket, and then for the socket.
struct PacedPoller {
    inner: Pin<Box<dyn UdpPoller>>,
    until: Option<Pin<Box<Sleep>>>,
}

impl UdpPoller for PacedPoller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(until) = REFUSED.take() {
            self.until = Some(Box::pin(sleep_until(until.into())));
        }
        if let Some(sleep) = &mut self.until {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.until = None;
        }
        self.inner.as_mut().poll_writable(cx)
    }
}

impl fmt::Debug for PacedPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedPoller").finish_non_exhaustive()
    }
}

/// A socket to dial from: at `local`, or at the address that the route to `peer` takes.
pub(crate) fn dialling(peer: SocketAddr, local: Option<IpAddr>) -> io::Result<UdpSocket> {
    let any = match peer {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    bound(SocketAddr::new(local.unwrap_or(any), 0), false)
}

/// A socket to listen at.
pub(crate) fn listening(addr: SocketAddr) -> io::Result<UdpSocket> {
    bound(addr, true)
}

fn bound(addr: SocketAddr, both_families: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, None)?;
    if addr.is_ipv6() && both_families {
        socket.set_only_v6(false)?;
    }
    enlarge(&socket);
    socket.bind(&addr.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A bound socket that was made elsewhere, with what a socket of our own has.
pub(crate) fn adopted(socket: Socket) -> io::Result<UdpSocket> {
    enlarge(&socket);
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn enlarge(socket: &Socket) {
    // The kernel's default buffer holds two milliseconds of a gigabit: a thread that is late loses
    // packets. Beyond net.core.rmem_max only those with CAP_NET_ADMIN get it.
    let _ = sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER_BYTES));
    let _ = sockopt::set_socket_send_buffer_size_force(socket, SEND_BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES));
}

/// The largest UDP payload that the route to `peer` takes at this host, as far as the kernel knows,
/// up to [`PAYLOAD_MAX`].
pub(crate) fn route_payload(peer: SocketAddr, local: Option<IpAddr>) -> u16 {
    let headers = if peer.ip().to_canonical().is_ipv4() { 28 } else { 48 };
    let asked = || {
        let socket = dialling(peer, local)?;
        socket.connect(peer)?;
        Ok::<_, io::Error>(if peer.is_ipv4() { sockopt::ip_mtu(&socket)? } else { sockopt::ipv6_mtu(&socket)? })
    };
    let mtu = asked().unwrap_or(1500);
    u16::try_from(mtu.saturating_sub(headers))
        .unwrap_or(u16::MAX)
        .clamp(PAYLOAD_MIN, PAYLOAD_MAX - (headers as u16 - 28))
}

/// UDP payload of an IPv4 packet of 9000 bytes.
pub(crate) const PAYLOAD_MAX: u16 = 8972;
/// The UDP payload that every path carries (RFC 9000, section 14).
pub(crate) const PAYLOAD_MIN: u16 = 1200;
/// UDP payload of the largest IPv4 packet.
const BATCH_BYTES_MAX: usize = 65_507;
/// The receive buffer holds some 30 ms of a gigabit.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
const SEND_BUFFER_BYTES: usize = 1 << 20;
