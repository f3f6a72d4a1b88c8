//! Datagrams in bulk: many to the same host with one system call, many from it with another, and
//! the options of the sockets that carry them.
//!
//! Owns the control messages of UDP sockets. In: bound or connected sockets, and bytes that are cut
//! into datagrams of one length. Out: what the kernel did with them ([`Sent`]), and datagrams that
//! came ([`Inbox`]), or that another process passed on. It must not know what a datagram means.

mod classed;
mod inbox;
mod message;
mod passed;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

pub use classed::{ClassedRun, send_classed};
pub use inbox::{Arrived, Inbox};
use message::{Gather, Orders};
pub use passed::{PassedHead, pass_on};

/// The outcome of sending datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has taken them.
    Taken,
    /// The socket's buffer is full: [`wait`] until it can be written to. None of them was taken.
    Full,
    /// The host has dropped them, as the network may: no memory for now, or no route for now. A
    /// note (ICMP) that the other host or a router sent drops nothing: whoever forges one must not
    /// end or change anything.
    Dropped,
    /// A datagram is longer than the way out of this host takes. It is this host that says so, and
    /// not a note.
    TooLong,
    /// This socket, or the network card that it sends through, does not cut bytes into datagrams:
    /// send them with [`send_each`].
    NotCut,
}

/// The congestion mark of a datagram (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// The sender does not take part.
    #[default]
    Deaf,
    /// The sender takes part, and nothing on the way had a queue.
    Capable,
    /// A queue on the way was long.
    Congested,
}

/// The event that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Something came.
    Incoming,
    /// There is room to send.
    Outgoing,
}

/// Makes a socket ready for [`Inbox`]: it joins datagrams that came in a row (GRO), tells their
/// marks and when they came, counts what its buffer had no room for, never lets a datagram be cut
/// into fragments, and believes no note of a smaller MTU.
///
/// # Errors
/// The error of `setsockopt`, for an option without which lanes cannot be: a kernel that cannot
/// join datagrams hands them over one by one.
pub fn prepare(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    let _ = set(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    let _ = set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    if is_ipv6(socket)? {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
    }
    Ok(())
}

/// Sets the class and the mark of all datagrams that a socket sends: the eight bits of IPv4's TOS
/// and IPv6's traffic class. 2 says that the sender takes part in congestion marks; DSCP LE of RFC
/// 8622 is 4.
///
/// # Errors
/// The error of `setsockopt`.
pub fn set_class(socket: impl AsFd, class: u8) -> io::Result<()> {
    let socket = socket.as_fd();
    // A socket of IPv6 needs both: it may talk to IPv4.
    set(socket, libc::IPPROTO_IP, libc::IP_TOS, class.into())?;
    if is_ipv6(socket)? {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class.into())?;
    }
    Ok(())
}

/// Lets other sockets of this user bind the address that this one is or will be bound to. Each
/// socket at the address needs it.
///
/// # Errors
/// The error of `setsockopt`.
pub fn share_address(socket: impl AsFd) -> io::Result<()> {
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// Has the first socket at a shared address receive all that no connected one does, whichever of
/// them this is. Otherwise the kernel spreads what strangers send over all of them, also over one
/// that is bound and not yet connected. It needs no privilege.
///
/// # Errors
/// The error of `setsockopt`: `InvalidInput` as long as nothing shares the address.
pub fn keep_first(socket: impl AsFd) -> io::Result<()> {
    // The program "return 0": the index of the first socket.
    let mut program = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    message::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Sends `run` over a connected socket as datagrams of `datagram_bytes`, of which the last may be
/// shorter, with one system call. At most [`RUN_BYTES_MAX`] and [`RUN_DATAGRAMS_MAX`]. It does not
/// wait.
///
/// # Errors
/// The error of `sendmsg` that none of [`Sent`] is.
pub fn send_run(socket: impl AsFd, run: &[u8], datagram_bytes: u16) -> io::Result<Sent> {
    let is_one = run.len() <= usize::from(datagram_bytes);
    let orders = if is_one { Orders::none() } else { Orders::cutting(datagram_bytes) };
    let sent = past_notes(|| message::send(socket.as_fd(), None, run, &orders));
    if is_one { outcome(sent) } else { outcome_of_cut(sent) }
}

/// Like [`send_run`], where the kernel or the card does not cut: the datagrams are handed over one
/// by one, in as few system calls as there can be. Also returns how many of them were dealt with
/// before the outcome.
///
/// # Errors
/// As [`send_run`].
pub fn send_each(socket: impl AsFd, run: &[u8], datagram_bytes: u16) -> io::Result<(usize, Sent)> {
    let mut sent = 0;
    for several in run.chunks(usize::from(datagram_bytes.max(1)) * Gather::DATAGRAMS) {
        let mut gather = Gather::of(several, datagram_bytes);
        while !gather.is_empty() {
            let taken = past_notes(|| gather.send(socket.as_fd()));
            sent += *taken.as_ref().unwrap_or(&0);
            match outcome(taken.map(drop))? {
                Sent::Taken => {}
                other => return Ok((sent, other)),
            }
        }
    }
    Ok((sent, Sent::Taken))
}

/// Waits until the socket is ready or the time is over; also ends at a signal. Gives whether it is
/// ready.
///
/// # Errors
/// The error of `ppoll`.
pub fn wait(socket: impl AsFd, readiness: Readiness, at_most: Duration) -> io::Result<bool> {
    let flags = match readiness {
        Readiness::Incoming => PollFlags::IN,
        Readiness::Outgoing => PollFlags::OUT,
    };
    let at_most = Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), flags)], Some(&at_most)) {
        Err(rustix::io::Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// Calls until an error is that of the call itself. An error that a note has left at the socket is
/// given to whichever call comes next, in place of what it would have done, and is forgotten then.
fn past_notes<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..NOTES_PASSED {
        match call() {
            Err(e) if e.raw_os_error().is_some_and(is_note_of_others) => {}
            done => return done,
        }
    }
    call()
}

/// The outcome of sending bytes that the kernel was to cut into datagrams.
fn outcome_of_cut(sent: io::Result<()>) -> io::Result<Sent> {
    match sent {
        Err(e) if [Some(libc::EIO), Some(libc::EINVAL)].contains(&e.raw_os_error()) => Ok(Sent::NotCut),
        sent => outcome(sent),
    }
}

fn outcome(sent: io::Result<()>) -> io::Result<Sent> {
    let Err(error) = sent else { return Ok(Sent::Taken) };
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(Sent::Full),
        Some(libc::EMSGSIZE) => Ok(Sent::TooLong),
        Some(libc::ENOBUFS | libc::ENOMEM | libc::EPERM) => Ok(Sent::Dropped),
        Some(code) if is_note_of_others(code) => Ok(Sent::Dropped),
        _ => Err(error),
    }
}

/// Whether an error of a connected socket comes from a note (ICMP) that anybody may have sent, or
/// from a route that may come back.
fn is_note_of_others(code: i32) -> bool {
    [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::ENETDOWN,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::EMSGSIZE,
    ]
    .contains(&code)
}

fn is_ipv6(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::socket_domain(socket)? == rustix::net::AddressFamily::INET6)
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    message::set_option(socket, level, name, &value)
}

/// Notes that a call gets past: the probes of one round may draw several, one behind the other.
const NOTES_PASSED: usize = 3;

/// The most bytes of a run: one packet of IPv4 and its headers hold no more.
pub const RUN_BYTES_MAX: usize = 65_507;
/// The most datagrams of a run (UDP_MAX_SEGMENTS of kernels before 6.9; later ones take 128).
pub const RUN_DATAGRAMS_MAX: usize = 64;

#[cfg(test)]
mod tests;
