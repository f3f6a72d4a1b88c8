//! The listening port of native UDP lanes, which is that of QUIC: datagrams that are none of QUIC's
//! are told apart, and each lane gets a connected socket of its own at the same address.
//!
//! Owns the door between both, and the sockets that share the port's address. In: what came to the
//! port. Out: [`Knock`]s, and connected sockets. It answers nobody, and keeps nothing of a stranger
//! but a place in a short queue. It must not know what makes a knock good.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use longhaul_sys::udp;
use quinn::udp::RecvMeta;
use tokio::sync::mpsc;

use super::socket::{PortAddr, connected_payload};
use crate::error::NetError;
use crate::wire::canonical;

/// A datagram that came to the port and is none of QUIC's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knock {
    /// Its bytes, at most 2,048.
    pub datagram: Vec<u8>,
    /// Its sender, as it says.
    pub from: SocketAddr,
    /// The address of this host that it was sent to, as far as the kernel tells.
    to: Option<IpAddr>,
    /// As the port's socket writes addresses.
    from_raw: SocketAddr,
}

/// The side of QUIC: sorts what comes to its socket.
#[derive(Debug)]
pub(crate) struct Door(mpsc::Sender<Knock>);

impl Door {
    /// A door, and the knocks at it.
    pub(crate) fn new(socket: &UdpSocket) -> io::Result<(Door, Knocks)> {
        let (sender, knocks) = mpsc::channel(KNOCKS_WAITING);
        let port = PortAddr::of(socket)?;
        let shares = share(socket, &port);
        if let Err(error) = &shares {
            tracing::warn!(addr = %port.addr, %error, "native UDP lanes cannot have sockets at this port: clients take others");
        }
        Ok((Door(sender), Knocks { knocks, port, shares: shares.is_ok() }))
    }

    /// Takes out all that is none of QUIC's.
    pub(crate) fn sort(&self, buffers: &[IoSliceMut<'_>], metas: &mut [RecvMeta]) {
        for (bytes, meta) in buffers.iter().zip(metas) {
            let run = &bytes[..meta.len.min(bytes.len())];
            // The kernel joins datagrams of one sender and one length; only it is in one hand.
            if !run.first().is_some_and(|first| is_foreign(*first)) {
                continue;
            }
            for datagram in run.chunks(meta.stride.max(1)) {
                self.knock(datagram, meta);
            }
            meta.len = 0;
        }
    }

    fn knock(&self, datagram: &[u8], meta: &RecvMeta) {
        if datagram.len() > KNOCK_BYTES_MAX {
            return;
        }
        // When the queue is full the datagram is lost, as it may be on the way.
        if let Ok(place) = self.0.try_reserve() {
            let (from, from_raw) = (canonical(meta.addr), meta.addr);
            place.send(Knock { datagram: datagram.to_vec(), from, to: meta.dst_ip, from_raw });
        }
    }
}

/// The side of lanes.
#[derive(Debug)]
pub struct Knocks {
    knocks: mpsc::Receiver<Knock>,
    port: PortAddr,
    /// Whether sockets beside the port's own can be had.
    shares: bool,
}

impl Knocks {
    /// The next one. `None` when the port is closed.
    pub async fn next(&mut self) -> Option<Knock> {
        self.knocks.recv().await
    }

    /// A socket at the port's address that hears whoever knocked, and nobody else, and that answers
    /// from the address that was knocked at. The caller has checked that the knock is good: it
    /// costs a descriptor.
    ///
    /// # Errors
    /// [`NetError::Socket`].
    pub fn seat(&self, knock: &Knock) -> Result<UdpSeat, NetError> {
        let failed =
            |source| NetError::Socket { addr: knock.from.to_string(), doing: "make a UDP lane's socket", source };
        if !self.shares {
            return Err(failed(io::ErrorKind::AddrInUse.into()));
        }
        let connected = |ip| {
            let socket = self.port.beside(ip)?;
            socket.connect(knock.from_raw)?;
            Ok(socket)
        };
        let seat = connected(self.port.addr.ip()).map_err(failed)?;
        let at = seat.local_addr().map_err(failed)?.ip();
        let socket = match knock.to {
            // This host has several addresses, and would answer from another.
            Some(to) if to.to_canonical() != at.to_canonical() => connected(to).map_err(failed)?,
            _ => seat,
        };
        let route_bytes = connected_payload(&socket, knock.from);
        Ok(UdpSeat { socket, peer: knock.from, route_bytes })
    }
}

/// A socket apart for one lane at the port.
#[derive(Debug)]
pub struct UdpSeat {
    /// The socket, which is connected.
    pub(crate) socket: UdpSocket,
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// The largest UDP payload that the route takes at this host, bytes.
    pub route_bytes: u16,
}

/// Lets sockets of lanes share the port's address, and keeps strangers' datagrams at the port.
fn share(socket: &UdpSocket, port: &PortAddr) -> io::Result<()> {
    // It is said after the port was bound: nobody else can have been there before, and another
    // daemon that wants the port is told that it is taken.
    udp::share_address(socket)?;
    // The program needs a group, and a group two sockets. It stays when this one is closed.
    udp::keep_first(&port.beside(port.addr.ip())?)
}

/// Whether a datagram with this first byte is none of QUIC's, whose fixed bit is set (RFC 9000,
/// 17.2). Neither end of ours greases it (RFC 9287).
fn is_foreign(first: u8) -> bool {
    first & 0x40 == 0
}

/// Knocks that wait to be looked at. Each is looked at in microseconds.
const KNOCKS_WAITING: usize = 64;
/// A longer datagram asks for no lane.
const KNOCK_BYTES_MAX: usize = 2048;
