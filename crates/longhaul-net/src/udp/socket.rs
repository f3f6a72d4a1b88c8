//! UDP sockets as lanes want them, QUIC's and native ones.
//!
//! Owns how they are made: buffers, families, how large a datagram the route takes. In: addresses.
//! Out: sockets. It must not know what they carry.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use longhaul_sys::udp;
use rustix::net::sockopt;
use socket2::{Domain, SockRef, Socket, Type};

/// A socket to dial from: at `local`, or at the address that the route to `peer` takes.
pub(crate) fn dialling(peer: SocketAddr, local: Option<IpAddr>) -> io::Result<UdpSocket> {
    let any = match peer {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    bound(SocketAddr::new(local.unwrap_or(any), 0), Families::One)
}

/// A socket to listen at.
pub(crate) fn listening(addr: SocketAddr) -> io::Result<UdpSocket> {
    bound(addr, Families::All)
}

/// The families that a socket of IPv6 serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Families {
    /// Its own, as the host's settings say.
    One,
    /// IPv4 as well.
    All,
}

fn bound(addr: SocketAddr, families: Families) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, None)?;
    if addr.is_ipv6() && families == Families::All {
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

/// The address of a port, and which families its socket serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortAddr {
    /// The address.
    pub(crate) addr: SocketAddr,
    only_v6: bool,
}

impl PortAddr {
    /// Where this socket is bound.
    pub(crate) fn of(port: &UdpSocket) -> io::Result<PortAddr> {
        let addr = port.local_addr()?;
        let only_v6 = addr.is_ipv6() && SockRef::from(port).only_v6()?;
        Ok(PortAddr { addr, only_v6 })
    }

    /// Another socket at the port, at this address of the host, ready for a lane.
    pub(crate) fn beside(&self, ip: IpAddr) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(self.addr), Type::DGRAM, None)?;
        if self.addr.is_ipv6() {
            socket.set_only_v6(self.only_v6)?;
        }
        enlarge(&socket);
        udp::share_address(&socket)?;
        udp::prepare(&socket)?;
        let ip = match (self.addr, ip) {
            (SocketAddr::V6(_), IpAddr::V4(v4)) => IpAddr::V6(v4.to_ipv6_mapped()),
            (_, ip) => ip,
        };
        socket.bind(&SocketAddr::new(ip, self.addr.port()).into())?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    }
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
    let asked = || {
        let socket = dialling(peer, local)?;
        socket.connect(peer)?;
        Ok::<_, io::Error>(socket)
    };
    payload_of(peer, asked().and_then(|socket| mtu_of(&socket)))
}

/// The same of the route of a connected socket.
pub(crate) fn connected_payload(socket: &UdpSocket, peer: SocketAddr) -> u16 {
    payload_of(peer, mtu_of(socket))
}

fn mtu_of(socket: &UdpSocket) -> io::Result<u32> {
    Ok(if socket.local_addr()?.is_ipv4() { sockopt::ip_mtu(socket)? } else { sockopt::ipv6_mtu(socket)? })
}

fn payload_of(peer: SocketAddr, mtu: io::Result<u32>) -> u16 {
    let headers = if peer.ip().to_canonical().is_ipv4() { 28 } else { 48 };
    u16::try_from(mtu.unwrap_or(1500).saturating_sub(headers))
        .unwrap_or(u16::MAX)
        .clamp(PAYLOAD_MIN, PAYLOAD_MAX - (headers as u16 - 28))
}

/// UDP payload of an IPv4 packet of 9000 bytes.
pub(crate) const PAYLOAD_MAX: u16 = 8972;
/// The UDP payload that every path carries (RFC 9000, section 14).
pub(crate) const PAYLOAD_MIN: u16 = 1200;
/// The receive buffer holds some 30 ms of a gigabit.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
const SEND_BUFFER_BYTES: usize = 1 << 20;
