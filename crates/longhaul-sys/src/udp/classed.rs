//! Datagrams that say their class themselves, over a socket that is not connected and whose other
//! datagrams have another class.
//!
//! In: bytes, the host that they go to, and their class. Out: what the kernel did with them. It
//! must not know what a datagram means.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::message::{self, Orders};
use super::{AsFd, Sent, outcome, outcome_of_cut, past_notes};

/// Datagrams of one length to one host.
#[derive(Clone, Copy, Debug)]
pub struct ClassedRun<'a> {
    /// Their bytes, one datagram behind the other.
    pub bytes: &'a [u8],
    /// Bytes of each. The last may be shorter.
    pub datagram_bytes: u16,
    /// The host and port that they go to.
    pub to: SocketAddr,
    /// The address of this host that they leave from. `None`: the one that the route takes.
    pub from: Option<IpAddr>,
    /// The eight bits of IPv4's TOS and IPv6's traffic class: DSCP in the upper six, the congestion
    /// mark in the lower two.
    pub class: u8,
}

impl ClassedRun<'_> {
    fn is_one(&self) -> bool {
        self.bytes.len() <= usize::from(self.datagram_bytes)
    }
}

/// Sends a run with one system call, as [`send_run`](super::send_run) does: it does not wait.
///
/// # Errors
/// The error of `sendmsg` that none of [`Sent`] is.
pub fn send_classed(socket: impl AsFd, run: &ClassedRun<'_>) -> io::Result<Sent> {
    let (is_one, orders) = (run.is_one(), orders(run));
    let sent = past_notes(|| message::send(socket.as_fd(), Some(run.to), run.bytes, &orders));
    if is_one { outcome(sent) } else { outcome_of_cut(sent) }
}

fn orders(run: &ClassedRun<'_>) -> Orders {
    let orders = if run.is_one() { Orders::none() } else { Orders::cutting(run.datagram_bytes) };
    let class = libc::c_int::from(run.class).to_ne_bytes();
    // A socket of IPv6 that talks to IPv4 sends IPv4's packets.
    let orders = match run.to.ip().to_canonical() {
        IpAddr::V4(_) => orders.and(libc::IPPROTO_IP, libc::IP_TOS, &class),
        IpAddr::V6(_) => orders.and(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class),
    };
    match run.from {
        None => orders,
        // in_pktinfo: no interface, the address, and no other one.
        Some(IpAddr::V4(from)) => {
            let info = [[0; 4], from.octets(), [0; 4]].concat();
            orders.and(libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
        }
        // in6_pktinfo: the address, and no interface.
        Some(IpAddr::V6(from)) => {
            let info = [&from.octets()[..], &[0; 4]].concat();
            orders.and(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
        }
    }
}
