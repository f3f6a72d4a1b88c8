//! The UDP socket under QUIC: how many segments a transmission may have, and whose it is.
//!
//! Owns the socket, and the figures of the connections that send through it, by the address they
//! send to. Takes datagrams from quinn, and gives them to the driver that is polled. Must not know
//! QUIC.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};

use super::batch::BATCH_BYTES_MAX;
use super::driver::Outgoing;
use super::figures::Figures;
pub(crate) use crate::udp::socket::{PAYLOAD_MAX, adopted, dialling, listening, route_payload};
use crate::udp::{Door, Knocks};

/// A UDP socket that knows its connections: see the module.
#[derive(Debug)]
pub(crate) struct PacedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    lanes: RwLock<HashMap<SocketAddr, Arc<Figures>>>,
    /// The largest datagram that was sent so far, up to which datagrams may be batched.
    largest: AtomicUsize,
    /// Where datagrams go that are none of QUIC's. `None` at a socket that dials.
    door: Option<Door>,
}

thread_local! {
    /// Whether the socket has just taken no more. Quinn's driver asks the poller on the same thread
    /// at once, and before each transmission besides: only then is there anything to wait for.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

impl PacedSocket {
    /// Wraps a bound socket; within a Tokio runtime.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<PacedSocket> {
        let inner = TokioRuntime.wrap_udp_socket(socket)?;
        Ok(PacedSocket { inner, lanes: RwLock::default(), largest: AtomicUsize::new(0), door: None })
    }

    /// Like [`PacedSocket::new`], of a socket at a port that native lanes use, too.
    pub(crate) fn shared(socket: UdpSocket) -> io::Result<(PacedSocket, Knocks)> {
        let (door, knocks) = Door::new(&socket)?;
        let socket = PacedSocket::new(socket)?;
        Ok((PacedSocket { door: Some(door), ..socket }, knocks))
    }

    /// Has whoever sends to `addr` have turns from now on, as these figures say.
    pub(crate) fn pace(&self, addr: SocketAddr, lane: Arc<Figures>) {
        self.lanes.write().unwrap_or_else(PoisonError::into_inner).insert(addr, lane);
    }

    /// Forgets a lane, wherever it was.
    pub(crate) fn forget(&self, lane: &Arc<Figures>) {
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|_, other| !Arc::ptr_eq(lane, other));
    }

    fn lane_of(&self, addr: SocketAddr) -> Option<Arc<Figures>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(&addr).cloned()
    }
}

impl AsyncUdpSocket for PacedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(PacedPoller { inner: self.inner.clone().create_io_poller(), is_blocked: false })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let len = transmit.contents.len();
        self.largest.fetch_max(transmit.segment_size.unwrap_or(len), Ordering::Relaxed);
        let sent = Outgoing::send(&self.inner, transmit, || self.lane_of(transmit.destination));
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            REFUSED.set(true);
        }
        sent
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Outgoing::note_receiving();
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
    /// is sent alone before datagrams of its size come in batches. Nor is it longer than the turn
    /// of its connection: seven packets of 9000 bytes are half of a short queue.
    fn max_transmit_segments(&self) -> usize {
        let largest = self.largest.load(Ordering::Relaxed).max(1);
        let in_turn = Outgoing::turn_left().unwrap_or(BATCH_BYTES_MAX).div_ceil(largest);
        let fits = (BATCH_BYTES_MAX / largest).min(in_turn);
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

/// Waits for the socket, once that has taken no more.
struct PacedPoller {
    inner: Pin<Box<dyn UdpPoller>>,
    is_blocked: bool,
}

impl UdpPoller for PacedPoller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_blocked |= REFUSED.take();
        if !self.is_blocked {
            return Poll::Ready(Ok(()));
        }
        let polled = self.inner.as_mut().poll_writable(cx);
        self.is_blocked = polled.is_pending();
        polled
    }
}

impl fmt::Debug for PacedPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedPoller").finish_non_exhaustive()
    }
}
