//! Sockets that listen already: whoever started the process made them and passed them on, or this
//! process made them before it gave up the right to.
//!
//! In: addresses, or descriptors. Out: to `engine` pairs that it listens at, TCP and UDP at one
//! address. Knows nothing of who passed them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::sockopt;
use socket2::{Domain, Socket, Type};

use crate::accept::{Listener, listening};
use crate::error::NetError;
use crate::quic::{self, QuicListener, adopted};
use crate::tls::ServerTls;

/// Makes the sockets for an address, TCP and UDP, and needs no runtime. For port 0 a port is looked
/// for that is free for both.
///
/// # Errors
/// [`NetError::Socket`] if the address is taken or is not this host's.
pub fn bind_pair(addr: SocketAddr) -> Result<[OwnedFd; 2], NetError> {
    let failed = |doing| move |source| NetError::Socket { addr: addr.to_string(), doing, source };
    let mut tries = if addr.port() == 0 { PORTS_TRIED } else { 1 };
    loop {
        tries -= 1;
        let tcp = listening(addr).map_err(failed("listen"))?;
        let at = tcp.local_addr().map_err(failed("listen"))?.as_socket().unwrap_or(addr);
        match quic::listening(at) {
            Ok(udp) => return Ok([tcp.into(), udp.into()]),
            Err(error) if tries == 0 => return Err(failed("listen over UDP")(error)),
            Err(_) => {}
        }
    }
}

/// Listens at sockets that were passed on. Where TCP has no UDP socket at the same address, one is
/// made.
///
/// # Errors
/// [`NetError::Socket`] for a descriptor that is no listening TCP socket and no UDP socket of IPv4
/// or IPv6, for a UDP socket without TCP at its address, and as for [`QuicListener::bind`].
pub fn listen_passed(passed: Vec<OwnedFd>, tls: &ServerTls) -> Result<Vec<(Listener, QuicListener)>, NetError> {
    let (mut streams, mut datagrams) = (Vec::new(), Vec::new());
    for descriptor in passed {
        let name = format!("descriptor {}", descriptor.as_raw_fd());
        match sorted(Socket::from(descriptor)).map_err(|source| refused(name, source))? {
            Passed::Tcp(socket) => streams.push(Listener::adopt(socket)?),
            Passed::Udp(socket, addr) => datagrams.push((socket, addr)),
        }
    }
    let mut listeners = Vec::new();
    for tcp in streams {
        let addr = tcp.local_addr();
        let udp = datagrams.iter().position(|(_, at)| *at == addr).map(|at| datagrams.swap_remove(at).0);
        let quic = match udp {
            Some(socket) => QuicListener::adopt(socket, addr, tls)?,
            None => QuicListener::bind(addr, tls)?,
        };
        listeners.push((tcp, quic));
    }
    match datagrams.first() {
        Some((_, addr)) => Err(refused(addr.to_string(), invalid("a UDP socket has no TCP socket at its address"))),
        None => Ok(listeners),
    }
}

enum Passed {
    Tcp(Socket),
    Udp(UdpSocket, SocketAddr),
}

fn sorted(socket: Socket) -> io::Result<Passed> {
    let domain = sockopt::socket_domain(&socket).map(|domain| Domain::from(i32::from(domain.as_raw())))?;
    let Some(addr) = socket.local_addr()?.as_socket().filter(|_| [Domain::IPV4, Domain::IPV6].contains(&domain)) else {
        return Err(invalid("it is no socket of IPv4 or IPv6"));
    };
    match socket.r#type()? {
        Type::STREAM if sockopt::socket_acceptconn(&socket)? => Ok(Passed::Tcp(socket)),
        Type::STREAM => Err(invalid("it is a TCP socket that does not listen")),
        Type::DGRAM => Ok(Passed::Udp(adopted(socket)?, addr)),
        _ => Err(invalid("it is neither TCP nor UDP")),
    }
}

fn refused(addr: String, source: io::Error) -> NetError {
    NetError::Socket { addr, doing: "listen at a socket that was passed on", source }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Free TCP ports to try, as the UDP port of the same number may be taken.
const PORTS_TRIED: u32 = 16;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;
    use crate::keys::Identity;
    use crate::tls::GreetLimits;

    fn tls() -> ServerTls {
        ServerTls::new(&Identity::generate().unwrap(), GreetLimits::default()).unwrap()
    }

    #[tokio::test]
    async fn a_passed_socket_accepts_and_has_udp_at_its_address_passed_or_made() {
        for is_passed in [true, false] {
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = tcp.local_addr().unwrap();
            let udp = UdpSocket::bind(addr).unwrap();
            let mut passed = vec![OwnedFd::from(udp), OwnedFd::from(tcp)];
            if !is_passed {
                passed.remove(0);
            }
            let listeners = listen_passed(passed, &tls()).unwrap();
            let [(tcp, quic)] = &listeners[..] else { panic!("{listeners:?}") };
            assert_eq!((tcp.local_addr(), quic.local_addr()), (addr, addr));
            let dialled = std::thread::spawn(move || TcpStream::connect(addr).unwrap().local_addr().unwrap());
            assert_eq!(tcp.accept().await.unwrap().1, dialled.join().unwrap());
        }
    }

    #[tokio::test]
    async fn what_cannot_be_listened_at_is_refused_by_its_descriptor() {
        let connected = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(connected.local_addr().unwrap()).unwrap();
        let lonely = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let file = tempfile::tempfile().unwrap();
        for (passed, said) in [
            (OwnedFd::from(connected), "does not listen"),
            (lonely.into(), "no TCP socket"),
            (local.into(), "IPv4 or IPv6"),
            (file.into(), "descriptor"),
        ] {
            let NetError::Socket { addr, source, .. } = listen_passed(vec![passed], &tls()).unwrap_err() else {
                panic!("another error");
            };
            let error = format!("{addr}: {source}");
            assert!(error.contains(said), "{error}");
        }
    }
}
