//! The kinds of connection that may be greeted: one that the port accepted, and one that came
//! through a tunnel.
//!
//! Owns what differs between them. In: connections of the runtime. Out: looks at their first bytes
//! to `accept`, and the lane or the control connection that they turn out to be. Must not know what
//! those bytes mean.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::RecvFlags;
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

use crate::control::{Control, ControlEnds};
use crate::error::NetError;
use crate::private::Private;
use crate::tcp::TcpLane;
use crate::tunnel::blocking_end;
use crate::wire::{Congestion, Wire, tune};

/// A connection that has not said yet what it is.
pub(crate) trait Incoming: AsyncRead + AsyncWrite + Unpin + Send + Sized + 'static {
    /// Sets the options that every connection of its kind has.
    fn tune(&self) -> io::Result<()>;

    /// Makes the kernel forget it at once when it is closed: nothing is owed to it.
    fn forget(&self) {}

    /// Waits until bytes have come. Returns whether the other side has ended.
    fn readable(&self) -> impl Future<Output = io::Result<bool>> + Send;

    /// Fills `into` with bytes that stay to be received. `WouldBlock` if there are fewer.
    fn look_at(&self, into: &mut [u8]) -> io::Result<()>;

    /// The lane that it is, sealed by `private` if there is that.
    fn into_lane(self, addr: SocketAddr, private: Option<Private>) -> Result<TcpLane, NetError>;

    /// The control connection that it is.
    fn into_control(stream: TlsStream<Self>, addr: SocketAddr) -> Result<Control, NetError>;
}

impl Incoming for TcpStream {
    fn tune(&self) -> io::Result<()> {
        tune(SockRef::from(self))
    }

    fn forget(&self) {
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }

    async fn readable(&self) -> io::Result<bool> {
        Ok(self.ready(Interest::READABLE).await?.is_read_closed())
    }

    fn look_at(&self, into: &mut [u8]) -> io::Result<()> {
        self.try_io(Interest::READABLE, || look(self, into))
    }

    fn into_lane(self, addr: SocketAddr, private: Option<Private>) -> Result<TcpLane, NetError> {
        let failed =
            |source| NetError::Socket { addr: addr.to_string(), doing: "make the connection blocking", source };
        let stream = self.into_std().map_err(failed)?;
        stream.set_nonblocking(false).map_err(failed)?;
        Ok(lane_over(Wire::tcp(Socket::from(stream), addr, &Congestion::Auto)?, private))
    }

    fn into_control(stream: TlsStream<TcpStream>, _: SocketAddr) -> Result<Control, NetError> {
        Control::new(stream)
    }
}

impl Incoming for UnixStream {
    fn tune(&self) -> io::Result<()> {
        Ok(())
    }

    async fn readable(&self) -> io::Result<bool> {
        Ok(self.ready(Interest::READABLE).await?.is_read_closed())
    }

    fn look_at(&self, into: &mut [u8]) -> io::Result<()> {
        self.try_io(Interest::READABLE, || look(self, into))
    }

    fn into_lane(self, addr: SocketAddr, private: Option<Private>) -> Result<TcpLane, NetError> {
        let peer = format!("{} over ssh", addr.ip());
        Ok(lane_over(Wire::tunnelled(blocking_end(self, &peer)?, peer), private).tunnelled())
    }

    fn into_control(stream: TlsStream<UnixStream>, addr: SocketAddr) -> Result<Control, NetError> {
        Control::between(
            stream,
            ControlEnds { peer_addr: addr, local_addr: addr, rtt: Duration::ZERO, segment_bytes: 0 },
        )
    }
}

fn lane_over(wire: Wire, private: Option<Private>) -> TcpLane {
    match private {
        None => TcpLane::safe(wire),
        Some(private) => TcpLane::private(wire, private),
    }
}

fn look(socket: impl std::os::fd::AsFd, into: &mut [u8]) -> io::Result<()> {
    let wanted = into.len();
    let (seen, _) = rustix::net::recv(socket, into, RecvFlags::PEEK)?;
    // What is missing makes the socket ready again when it comes.
    if seen < wanted { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
}
