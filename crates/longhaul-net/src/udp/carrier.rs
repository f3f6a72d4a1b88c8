//! The socket under a UDP lane: the lane's own, or one that another process of this host has, which
//! passes the lane's datagrams on.
//!
//! In: runs of datagrams. Out: the same, at or from the other host. It must not know what they say,
//! nor which process it is.

use std::io;
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use longhaul_sys::udp::{self, Inbox, PassedHead, Readiness, Sent};
use socket2::SockRef;

use crate::wire::canonical;

/// The socket of a lane. See the module.
#[derive(Debug)]
pub(crate) enum LaneSocket {
    /// Its own, which is connected.
    Own(UdpSocket),
    /// The end of a pair whose other end is at the process that has the socket.
    Passed {
        /// This end.
        pair: OwnedFd,
        /// The address of the socket.
        local: SocketAddr,
        /// The address of the other host.
        peer: SocketAddr,
    },
}

impl LaneSocket {
    /// Sends a run: see [`udp::send_run`].
    pub(crate) fn send_run(&self, run: &[u8], datagram_bytes: u16) -> io::Result<Sent> {
        match self {
            LaneSocket::Own(socket) => udp::send_run(socket, run, datagram_bytes),
            LaneSocket::Passed { pair, .. } => udp::pass_on(pair, PassedHead::cut(datagram_bytes.max(1)), run),
        }
    }

    /// Sends a run where the kernel does not cut: see [`udp::send_each`].
    pub(crate) fn send_each(&self, run: &[u8], datagram_bytes: u16) -> io::Result<(usize, Sent)> {
        match self {
            LaneSocket::Own(socket) => udp::send_each(socket, run, datagram_bytes),
            LaneSocket::Passed { .. } => {
                let sent = self.send_run(run, datagram_bytes)?;
                let all = run.len().div_ceil(usize::from(datagram_bytes.max(1)));
                Ok((if sent == Sent::Taken { all } else { 0 }, sent))
            }
        }
    }

    /// Receives what is there: see [`Inbox::receive`].
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        match self {
            LaneSocket::Own(socket) => inbox.receive(socket),
            // Nobody has orders for this end.
            LaneSocket::Passed { pair, .. } => inbox.receive_passed(pair, drop),
        }
    }

    /// Waits: see [`udp::wait`].
    pub(crate) fn wait(&self, readiness: Readiness, at_most: Duration) -> io::Result<bool> {
        udp::wait(self.as_fd(), readiness, at_most)
    }

    /// Wakes whoever waits for a datagram. The last word may still be sent.
    pub(crate) fn end_receiving(&self) {
        let _ = SockRef::from(&self.as_fd()).shutdown(Shutdown::Read);
    }

    /// Sets class and mark of what is sent from now on: see [`udp::set_class`].
    pub(crate) fn set_class(&self, class: u8) -> io::Result<()> {
        match self {
            LaneSocket::Own(socket) => udp::set_class(socket, class),
            LaneSocket::Passed { pair, .. } => udp::pass_on(pair, PassedHead::Class(class), &[]).map(drop),
        }
    }

    /// The address of this end. `None` if the kernel does not say.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            LaneSocket::Own(socket) => socket.local_addr().ok().map(canonical),
            LaneSocket::Passed { local, .. } => Some(canonical(*local)),
        }
    }

    /// The address of the other end. `None` if the kernel does not say.
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        match self {
            LaneSocket::Own(socket) => socket.peer_addr().ok().map(canonical),
            LaneSocket::Passed { peer, .. } => Some(canonical(*peer)),
        }
    }
}

impl AsFd for LaneSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            LaneSocket::Own(socket) => socket.as_fd(),
            LaneSocket::Passed { pair, .. } => pair.as_fd(),
        }
    }
}
