//! A port to which the other side dials back, where it cannot be dialled.
//!
//! Owns the listening socket: it is open for as long as the value lives. In: an address, a range of
//! ports, and the key that the other side has to show. Out: lanes of which this side is the dialler
//! in all but the direction of the connection. It must not know how the other side is asked to
//! dial.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use socket2::{SockRef, Socket};

use crate::error::NetError;
use crate::facts::Protection;
use crate::keys::Identity;
use crate::lane::LaneStream;
use crate::public_key::PublicKey;
use crate::tunnel::begin;
use crate::wire::{Congestion, Wire, canonical};

/// A port to which the other side dials back.
#[derive(Debug)]
pub struct ReverseListener {
    listener: TcpListener,
    addr: SocketAddr,
}

impl ReverseListener {
    /// Listens at `ip`, on the first free port of `ports`, or on any if that is `None`.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the address is not this host's, or no port is free.
    pub fn bind(ip: IpAddr, ports: Option<RangeInclusive<u16>>) -> Result<ReverseListener, NetError> {
        let listener = first_free(ports, |port| TcpListener::bind((ip, port)));
        let failed = |source| NetError::Socket { addr: ip.to_string(), doing: "listen", source };
        let listener = listener.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        Ok(ReverseListener { listener, addr })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Waits for the other side to dial, and begins a lane to the holder of `pinned`. On a private
    /// lane connections of others are closed; on a safe one nobody has shown anything before it
    /// joins. Blocks for as long as `time`, which also holds until
    /// [`LaneStream::set_deadline`] is called.
    ///
    /// # Errors
    /// [`NetError::TimedOut`] if nobody dials in time; [`NetError::Socket`].
    pub fn lane(
        &self,
        (protection, congestion): (Protection, &Congestion),
        identity: &Identity,
        pinned: PublicKey,
        time: Duration,
    ) -> Result<LaneStream, NetError> {
        let failed = |doing| move |source| NetError::Socket { addr: self.addr.to_string(), doing, source };
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NetError::TimedOut { peer: "the other host".to_owned(), doing: "dialling back" });
            }
            let patience = left.max(Duration::from_millis(1));
            SockRef::from(&self.listener).set_read_timeout(Some(patience)).map_err(failed("set a timeout"))?;
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(failed("accept connections")(e)),
            };
            let mut wire = Wire::tcp(Socket::from(stream), canonical(peer), congestion)?;
            wire.set_deadline(Some(left.min(GREETING)))?;
            match begin(wire, protection, identity, pinned) {
                Ok(lane) => return Ok(LaneStream::over(lane)),
                Err(error) => tracing::debug!(%peer, %error, "somebody else dialled the port for the other side"),
            }
        }
    }
}

/// The first port of `ports` at which `listen` succeeds; any port, as port 0, if that is `None`.
///
/// # Errors
/// The error at the last port, or at the first that is not for want of a free one.
pub fn first_free<T>(
    ports: Option<RangeInclusive<u16>>,
    mut listen: impl FnMut(u16) -> io::Result<T>,
) -> io::Result<T> {
    let Some(ports) = ports else { return listen(0) };
    let mut last = io::Error::new(io::ErrorKind::AddrInUse, "no port of the range is free");
    for port in ports {
        match listen(port) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => last = e,
            other => return other,
        }
    }
    Err(last)
}

/// A connection that does not prove whose it is in this time gives way to the next one.
const GREETING: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    #[test]
    fn a_stranger_at_the_port_is_no_lane_and_keeps_it_only_for_its_own_time() {
        let port = ReverseListener::bind(Ipv4Addr::LOCALHOST.into(), None).expect("a port");
        let identity = Identity::generate().expect("a key");
        let stranger = TcpStream::connect(port.addr).expect("connected");
        drop(stranger);
        let lane = port.lane(
            (Protection::Private, &Congestion::Auto),
            &identity,
            identity.public(),
            Duration::from_millis(300),
        );
        assert!(matches!(lane, Err(NetError::TimedOut { .. })), "{lane:?}");
    }

    #[test]
    fn of_a_range_the_first_free_port_is_taken_and_a_full_range_says_so() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = taken.local_addr().expect("its address").port();
        let full = ReverseListener::bind(Ipv4Addr::LOCALHOST.into(), Some(port..=port));
        assert!(full.is_err());
        drop(taken);
        let free = ReverseListener::bind(Ipv4Addr::LOCALHOST.into(), Some(port..=port)).expect("it is free");
        assert_eq!(free.port(), port);
    }
}
