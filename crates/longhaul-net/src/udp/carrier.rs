//! The socket under a UDP lane: the lane's own, or one that another process of this host has, which
//! passes the lane's datagrams on.
//!
//! In: runs of datagrams. Out: the same, at or from the other host. It must not know what they say,
//! nor which process it is.

use std::io;
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
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
        /// The class that is still to be ordered: the pair had no room for the order.
        class: AtomicU16,
    },
}

impl LaneSocket {
    /// The end of a pair whose other end is at the process that has the socket.
    pub(crate) fn passed(pair: OwnedFd, local: SocketAddr, peer: SocketAddr) -> LaneSocket {
        LaneSocket::Passed { pair, local, peer, class: AtomicU16::new(NO_CLASS) }
    }

    /// Sends a run: see [`udp::send_run`].
    pub(crate) fn send_run(&self, run: &[u8], datagram_bytes: u16) -> io::Result<Sent> {
        match self {
            LaneSocket::Own(socket) => udp::send_run(socket, run, datagram_bytes),
            LaneSocket::Passed { pair, class, .. } => {
                // What was asked for before it is ordered before it.
                if order_class(pair, class)? == Sent::Full {
                    return Ok(Sent::Full);
                }
                udp::pass_on(pair, PassedHead::cut(datagram_bytes.max(1)), run)
            }
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
            LaneSocket::Passed { pair, class: pending, .. } => {
                pending.store(class.into(), Ordering::Release);
                order_class(pair, pending).map(drop)
            }
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

/// Orders the class that is still to be ordered, if one is. [`Sent::Full`]: there was no room for
/// the order, and it is given before the next run.
fn order_class(pair: &OwnedFd, pending: &AtomicU16) -> io::Result<Sent> {
    let asked = pending.swap(NO_CLASS, Ordering::AcqRel);
    let Ok(class) = u8::try_from(asked) else { return Ok(Sent::Taken) };
    let sent = udp::pass_on(pair, PassedHead::Class(class), &[])?;
    if sent == Sent::Full {
        // One that was asked for meanwhile stands.
        let _ = pending.compare_exchange(NO_CLASS, asked, Ordering::AcqRel, Ordering::Relaxed);
    }
    Ok(sent)
}

impl AsFd for LaneSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            LaneSocket::Own(socket) => socket.as_fd(),
            LaneSocket::Passed { pair, .. } => pair.as_fd(),
        }
    }
}

/// No class of a packet: there is none to be ordered.
const NO_CLASS: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_for_whose_order_there_was_no_room_is_ordered_before_the_next_run() {
        let (pair, other) = longhaul_sys::passing::pair().expect("a pair");
        let addr = "127.0.0.1:9".parse().expect("an address");
        let (socket, mut inbox) = (LaneSocket::passed(pair, addr, addr), Inbox::new(1));
        while socket.send_run(&[1; 1000], 1000).expect("open") == Sent::Taken {}
        socket.set_class(6).expect("open");
        assert_eq!(socket.send_run(b"late", 4).expect("open"), Sent::Full);
        let mut orders = Vec::new();
        while inbox.receive_passed(&other, |order| orders.push(order)).expect("open") > 0 {}
        assert_eq!(orders, []);
        assert_eq!(socket.send_run(b"late", 4).expect("open"), Sent::Taken);
        assert_eq!(inbox.receive_passed(&other, |order| orders.push(order)).expect("open"), 0);
        assert_eq!(orders, [PassedHead::Class(6)]);
        assert_eq!(inbox.receive_passed(&other, |order| orders.push(order)).expect("open"), 1);
        assert_eq!(orders.len(), 1, "it is ordered once");
    }
}
