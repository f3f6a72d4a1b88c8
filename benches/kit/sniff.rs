//! Owns a look at the packets that pass at a host, as the kernel shows them to root (packet(7)).
//!
//! In: nothing but the namespace of the calling thread. Out: datagrams and segments over IPv4, each
//! with when it was seen, or packets as they are. It changes nothing and judges nothing.

#![allow(dead_code, reason = "each user takes its part")]

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

/// A socket that sees all packets of its namespace.
pub(crate) struct Sniffer {
    socket: OwnedFd,
    packet: Vec<u8>,
}

/// The protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// A segment, with its flags.
    Tcp(u8),
    /// A datagram.
    Udp,
}

/// A packet that passed.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub(crate) at: Instant,
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) over: Over,
    pub(crate) payload: Vec<u8>,
}

/// The packets that are seen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// All that leave and all that come.
    Both,
    /// All that come: on loopback each one once.
    Coming,
}

impl Sniffer {
    /// Begins to look.
    pub(crate) fn open(seen: Seen) -> io::Result<Sniffer> {
        let kind: u16 = match seen {
            Seen::Both => ETH_P_ALL,
            Seen::Coming => ETH_P_IP,
        };
        let protocol = NonZeroU32::new(u32::from(kind.to_be())).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, protocol)?;
        Ok(Sniffer { socket, packet: vec![0; PACKET_BYTES_MAX] })
    }

    /// The next packet that passes, if one does within this time.
    pub(crate) fn next(&mut self, within: Duration) -> io::Result<Option<Passed>> {
        let until = Instant::now() + within;
        while let Some(len) = self.receive(until)? {
            if let Some(passed) = parse(&self.packet[..len]) {
                return Ok(Some(passed));
            }
        }
        Ok(None)
    }

    /// The bytes of the next packet that passes, if one does within this time: of IPv4, IPv6 and
    /// whatever else there is.
    pub(crate) fn next_packet(&mut self, within: Duration) -> io::Result<Option<&[u8]>> {
        let len = self.receive(Instant::now() + within)?;
        Ok(len.map(|len| &self.packet[..len]))
    }

    /// The length of the next packet that passes until then. `None` if none does.
    fn receive(&mut self, until: Instant) -> io::Result<Option<usize>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            set_socket_timeout(&self.socket, Timeout::Recv, Some(left.max(SHORTEST)))?;
            match recv(&self.socket, &mut self.packet[..], RecvFlags::empty()) {
                Ok((len, _)) => return Ok(Some(len)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A packet of TCP or UDP over IPv4. `None` for any other.
fn parse(packet: &[u8]) -> Option<Passed> {
    if packet.first()? >> 4 != 4 {
        return None;
    }
    let rest = packet.get(usize::from(packet[0] & 15) * 4..)?;
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let port = |at: usize| Some(u16::from_be_bytes(<[u8; 2]>::try_from(rest.get(at..at + 2)?).ok()?));
    let (over, header) = match packet.get(9)? {
        6 => (Over::Tcp(*rest.get(13)?), usize::from(rest.get(12)? >> 4) * 4),
        17 => (Over::Udp, 8),
        _ => return None,
    };
    let (from, to) = (SocketAddrV4::new(address(12)?, port(0)?), SocketAddrV4::new(address(16)?, port(2)?));
    Some(Passed { at: Instant::now(), from, to, over, payload: rest.get(header..)?.to_vec() })
}

const ETH_P_ALL: u16 = 3;
const ETH_P_IP: u16 = 0x0800;
/// Segments that leave together are one packet of up to 64 KiB here.
const PACKET_BYTES_MAX: usize = 128 << 10;
/// A timeout of none is none at all.
const SHORTEST: Duration = Duration::from_millis(1);
