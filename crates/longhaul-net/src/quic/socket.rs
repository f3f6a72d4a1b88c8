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
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use tokio::time::{Sleep, sleep_until};

use super::bucket::Bucket;
pub(crate) use crate::udp::socket::{PAYLOAD_MAX, adopted, dialling, listening, route_payload};
use crate::udp::{Door, Knocks};

/// A UDP socket that paces its connections: see the module.
#[derive(Debug)]
pub(crate) struct PacedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    buckets: RwLock<HashMap<SocketAddr, Arc<Bucket>>>,
    /// The largest datagram that was sent so far, up to which datagrams may be batched.
    largest: AtomicUsize,
    /// Where datagrams go that are none of QUIC's. `None` at a socket that dials.
    door: Option<Door>,
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
        Ok(PacedSocket { inner, buckets: RwLock::default(), largest: AtomicUsize::new(0), door: None })
    }

    /// Like [`PacedSocket::new`], of a socket at a port that native lanes use, too.
    pub(crate) fn shared(socket: UdpSocket) -> io::Result<(PacedSocket, Knocks)> {
        let (door, knocks) = Door::new(&socket)?;
        let socket = PacedSocket::new(socket)?;
        Ok((PacedSocket { door: Some(door), ..socket }, knocks))
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
        let received = self.inner.poll_recv(cx, bufs, meta);
        if let (Some(door), Poll::Ready(Ok(count))) = (&self.door, &received) {
            door.sort(bufs, &mut meta[..*count]);
        }
        received
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

/// UDP payload of the largest IPv4 packet.
const BATCH_BYTES_MAX: usize = 65_507;
