//! The UDP socket under QUIC: how many segments a transmission may have.
//!
//! Owns the socket. Takes datagrams from quinn, and gives them to the driver that is polled. Must
//! not know QUIC.
//!
//! Quinn takes the time of a poll before it receives, and the thread may have no processor between
//! the two: an acknowledgement that comes then would say a round trip that is shorter than any, for
//! good. So what is received late in a poll waits for the next one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::batch::BATCH_BYTES_MAX;
use super::driver::Outgoing;
use super::host_socket::HostSocket;
pub(crate) use crate::udp::socket::{PAYLOAD_MAX, adopted, dialling, listening, route_payload};
use crate::udp::{Door, Knocks};

/// A UDP socket of drivers that have turns: see the module.
#[derive(Debug)]
pub(crate) struct PacedSocket {
    inner: Arc<HostSocket>,
    /// The largest datagram that was sent so far, up to which datagrams may be batched.
    largest: AtomicUsize,
    /// Where datagrams go that are none of QUIC's. `None` at a socket that dials.
    door: Option<Door>,
    /// Datagrams that were received too late in a poll, for the next one: of one call at most, as
    /// nothing is received while there are any.
    late: Mutex<VecDeque<(Vec<u8>, RecvMeta)>>,
}

thread_local! {
    /// Whether the socket has just taken no more. Quinn's driver asks the poller on the same thread
    /// at once, and before each transmission besides: only then is there anything to wait for.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

impl PacedSocket {
    /// Wraps a bound socket; within a Tokio runtime.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<PacedSocket> {
        let inner = Arc::new(HostSocket::new(socket)?);
        Ok(PacedSocket { inner, largest: AtomicUsize::new(0), door: None, late: Mutex::default() })
    }

    /// Like [`PacedSocket::new`], of a socket at a port that native lanes use, too.
    pub(crate) fn shared(socket: UdpSocket) -> io::Result<(PacedSocket, Knocks)> {
        let (door, knocks) = Door::new(&socket)?;
        let socket = PacedSocket::new(socket)?;
        Ok((PacedSocket { door: Some(door), ..socket }, knocks))
    }

    /// Gives datagrams that were received too late in a poll. `None` if there are none.
    fn take_late(&self, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> Option<usize> {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for (buf, meta) in bufs.iter_mut().zip(meta) {
            let Some((bytes, of)) = late.pop_front() else { break };
            let len = bytes.len().min(buf.len());
            buf[..len].copy_from_slice(&bytes[..len]);
            (*meta, count) = (of, count + 1);
        }
        (count > 0).then_some(count)
    }

    /// Keeps received datagrams for the next poll.
    fn keep_late(&self, bufs: &[IoSliceMut<'_>], meta: &[RecvMeta]) {
        let datagrams = bufs.iter().zip(meta).map(|(buf, meta)| (buf[..meta.len.min(buf.len())].to_vec(), *meta));
        self.late.lock().unwrap_or_else(PoisonError::into_inner).extend(datagrams);
    }
}

impl AsyncUdpSocket for PacedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(PacedPoller { inner: self.inner.clone().create_io_poller(), is_blocked: false })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let len = transmit.contents.len();
        self.largest.fetch_max(transmit.segment_size.unwrap_or(len), Ordering::Relaxed);
        let sent = Outgoing::send(&self.inner, transmit);
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
        if let Some(count) = self.take_late(bufs, meta) {
            return Poll::Ready(Ok(count));
        }
        let received = self.inner.poll_recv(cx, bufs, meta);
        let Poll::Ready(Ok(count)) = received else { return received };
        if let Some(door) = &self.door {
            door.sort(bufs, &mut meta[..count]);
        }
        if Outgoing::is_late() {
            self.keep_late(bufs, &meta[..count]);
            cx.waker().wake_by_ref();
            return Poll::Pending;
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::{Duration, Instant};

    use quinn::congestion::ControllerFactory;

    use super::super::controller::Factory;
    use super::super::figures::Figures;
    use super::*;

    #[tokio::test]
    async fn connections_that_send_to_one_address_draw_each_on_its_own_turns() {
        let here = UdpSocket::bind("127.0.0.1:0").expect("a port");
        here.set_nonblocking(true).expect("a socket");
        let to = here.local_addr().expect("an address");
        let socket = PacedSocket::new(here).expect("a socket");
        let lanes = [1200, 2400].map(|bytes| (Arc::new(Figures::default()), vec![7; bytes]));
        lanes.iter().for_each(|(lane, _)| lane.begin_poll(100_000));
        for (lane, contents) in &lanes {
            let control = Arc::new(Factory(lane.clone())).build(Instant::now(), 1200);
            Outgoing::within(Instant::now(), || {
                assert!(control.window() > 1200);
                let transmit = Transmit { destination: to, ecn: None, contents, segment_size: None, src_ip: None };
                socket.try_send(&transmit).expect("it is gathered");
            });
        }
        assert_eq!(lanes.map(|(lane, _)| lane.end_poll().0), [98_800, 97_600]);
    }

    /// Polls the socket once, as a driver whose poll began then. Gives the datagram that came.
    async fn poll_once(socket: &PacedSocket, began: Instant) -> Option<Vec<u8>> {
        poll_fn(|cx| {
            let mut bytes = [0; 100];
            let (mut bufs, mut meta) = ([IoSliceMut::new(&mut bytes)], [RecvMeta::default()]);
            let polled = Outgoing::within(began, || socket.poll_recv(cx, &mut bufs, &mut meta));
            let count = matches!(polled, Poll::Ready(Ok(1)));
            Poll::Ready(count.then(|| bytes[..meta[0].len].to_vec()))
        })
        .await
    }

    #[tokio::test]
    async fn what_is_received_long_after_a_poll_began_waits_for_the_next() {
        let bound = || UdpSocket::bind("127.0.0.1:0").expect("a port");
        let (here, there) = (bound(), bound());
        here.set_nonblocking(true).expect("a socket");
        let to = here.local_addr().expect("an address");
        let socket = PacedSocket::new(here).expect("a socket");
        let is_kept = || !socket.late.lock().expect("a lock").is_empty();
        for word in [b"one", b"two"] {
            there.send_to(word, to).expect("sent");
        }
        let before = Instant::now().checked_sub(Duration::from_secs(1)).expect("this host has run for so long");
        while !is_kept() {
            assert_eq!(poll_once(&socket, before).await, None, "it would seem to have come a second ago");
            tokio::task::yield_now().await;
        }
        assert_eq!(poll_once(&socket, Instant::now()).await.as_deref(), Some(b"one".as_slice()), "in order");
        let mut second = None;
        while second.is_none() {
            second = poll_once(&socket, Instant::now()).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(second.as_deref(), Some(b"two".as_slice()));
    }
}
