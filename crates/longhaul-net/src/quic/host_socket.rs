//! The UDP socket under QUIC as the host has it, which may mark what leaves.
//!
//! Owns the descriptor and its place in Tokio's reactor. In: transmissions, each with its
//! importance. Out: what the kernel did with them. It must not know whose they are.
//!
//! Quinn writes the whole field of class and congestion mark of each datagram itself, and knows of
//! no class: what a socket was told counts for none of them. So datagrams of less importance are
//! sent by a call of our own, which says both, one lane beside the other at the port of a daemon.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use longhaul_sys::udp::{self, ClassedRun, Sent};
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;

use crate::tcp::LOWER_EFFORT;

/// The importance of what leaves, beside the traffic of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Importance {
    /// The importance of anybody's.
    Usual,
    /// Less than anybody's: DSCP LE, RFC 8622.
    Less,
}

/// A UDP socket in Tokio's reactor: see the module.
#[derive(Debug)]
pub(crate) struct HostSocket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    /// Whether neither the kernel nor the card cuts a marked run into datagrams.
    cuts_none: AtomicBool,
}

impl HostSocket {
    /// Wraps a bound socket; within a Tokio runtime.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<HostSocket> {
        let state = UdpSocketState::new((&socket).into())?;
        Ok(HostSocket { state, io: tokio::net::UdpSocket::from_std(socket)?, cuts_none: AtomicBool::new(false) })
    }

    /// Sends a transmission.
    ///
    /// # Errors
    /// `WouldBlock` if the socket takes no more; an error of the kernel that is no loss on the way.
    pub(crate) fn send(&self, transmit: &Transmit<'_>, importance: Importance) -> io::Result<()> {
        self.io.try_io(Interest::WRITABLE, || match importance {
            Importance::Usual => self.state.send((&self.io).into(), transmit),
            Importance::Less => self.send_marked(transmit),
        })
    }

    fn send_marked(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let datagram = transmit.segment_size.unwrap_or(transmit.contents.len());
        let run = ClassedRun {
            bytes: transmit.contents,
            datagram_bytes: u16::try_from(datagram).unwrap_or(u16::MAX),
            to: transmit.destination,
            from: transmit.src_ip,
            class: LOWER_EFFORT | transmit.ecn.map_or(0, |mark| mark as u8),
        };
        match udp::send_classed(&self.io, &run)? {
            Sent::Full => Err(ErrorKind::WouldBlock.into()),
            Sent::NotCut => {
                // The kernel also says so of what it does not send at all.
                if self.send_each(&run)? {
                    self.cuts_none.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
            // What does not leave is lost, as on the way.
            Sent::Taken | Sent::Dropped | Sent::TooLong => Ok(()),
        }
    }

    /// Sends the datagrams of a run one by one, once: from then on there are none to be cut. Gives
    /// whether any of them was taken.
    fn send_each(&self, run: &ClassedRun<'_>) -> io::Result<bool> {
        let mut is_taken = false;
        for bytes in run.bytes.chunks(usize::from(run.datagram_bytes.max(1))) {
            match udp::send_classed(&self.io, &ClassedRun { bytes, ..*run })? {
                Sent::Full => break,
                sent => is_taken |= sent == Sent::Taken,
            }
        }
        Ok(is_taken)
    }
}

impl AsyncUdpSocket for HostSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(HostPoller { socket: self, waits: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.send(transmit, Importance::Usual)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            let received = self.io.try_io(Interest::READABLE, || self.state.recv((&self.io).into(), bufs, meta));
            // An error is a note that anybody may have sent.
            if let Ok(count) = received {
                return Poll::Ready(Ok(count));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        if self.cuts_none.load(Ordering::Relaxed) { 1 } else { self.state.max_gso_segments() }
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// A wait for room in the socket.
type Writable = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// Waits for room in the socket, again and again. Each waiter has one of its own.
struct HostPoller {
    socket: Arc<HostSocket>,
    waits: Option<Writable>,
}

impl UdpPoller for HostPoller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let HostPoller { socket, waits } = &mut *self;
        let polled = waits
            .get_or_insert_with(|| {
                let socket = socket.clone();
                Box::pin(async move { socket.io.writable().await })
            })
            .as_mut()
            .poll(cx);
        if polled.is_ready() {
            *waits = None;
        }
        polled
    }
}

impl fmt::Debug for HostPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPoller").finish_non_exhaustive()
    }
}
