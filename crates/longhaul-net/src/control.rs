//! Control connections: asynchronous TLS streams to a proved peer.
//!
//! Owns dialling them. Takes an address, an [`Identity`] and a [`PeerCheck`]; gives a [`Control`] to `engine`. Must not know
//! what is said over them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use longhaul_core::limits::{HANDSHAKE_SECONDS_MAX, SEGMENT_BYTES_SAFE};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::error::NetError;
use crate::keys::{Identity, PublicKey};
use crate::path::NetPath;
use crate::tls::{CONTROL, PeerCheck, client_config, nominal_name, proved_key};
use crate::wire::{canonical, connect_error, tune, tune_control};

/// One authenticated control connection, either end.
pub struct Control {
    /// What the peer says. It ends in order only if the peer shut its writer down; else with `UnexpectedEof`.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What is said to the peer. Flush it; shut it down to end in order.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The key that the peer proved to hold.
    pub peer_key: PublicKey,
    /// A secret that both ends know and nobody else, different for each connection: the key of lane joins.
    pub exporter: [u8; 32],
    /// The other end.
    pub peer_addr: SocketAddr,
    /// This end.
    pub local_addr: SocketAddr,
    /// The round trip that the handshake took, smoothed by the kernel; zero where it does not say.
    pub rtt: Duration,
}

impl Control {
    /// Takes a TLS stream after its handshake.
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> Result<Control, NetError> {
        let (tcp, tls) = stream.get_ref();
        let (peer_addr, local_addr) = tcp
            .peer_addr()
            .and_then(|peer| {
                tune_control(SockRef::from(tcp))?;
                Ok((canonical(peer), canonical(tcp.local_addr()?)))
            })
            .map_err(|source| NetError::Lost { peer: "a new connection".to_owned(), source })?;
        let rtt = longhaul_sys::tcp::state(tcp).map_or(Duration::ZERO, |state| state.rtt);
        let peer = peer_addr.to_string();
        let peer_key = proved_key(tls, CONTROL).map_err(|e| NetError::tls(&peer, e))?;
        let exporter = match &stream {
            TlsStream::Client(s) => s.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None),
            TlsStream::Server(s) => s.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None),
        };
        let exporter = exporter.map_err(|e| NetError::tls(&peer, e))?;
        let (reader, writer) = tokio::io::split(stream);
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Ok(Control { reader, writer, peer_key, exporter, peer_addr, local_addr, rtt })
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Control { peer_key, peer_addr, local_addr, .. } = self;
        f.debug_struct("Control")
            .field("peer_key", peer_key)
            .field("peer_addr", peer_addr)
            .field("local_addr", local_addr)
            .finish_non_exhaustive()
    }
}

/// Dials `addr` (`host:port`, an IPv6 address in brackets): all addresses that the name stands for, a quarter of a second
/// apart, the first to answer wins. Everything together has 10 s.
///
/// # Errors
/// [`NetError::BadAddress`], [`NetError::Resolve`], [`NetError::Unreachable`] (of the last address that failed),
/// [`NetError::TimedOut`], [`NetError::PeerKeyMismatch`], [`NetError::NotLonghaul`], [`NetError::KeyRefused`],
/// [`NetError::Tls`], [`NetError::Lost`], [`NetError::Truncated`].
pub async fn dial_control(addr: &str, identity: &Identity, check: PeerCheck) -> Result<Control, NetError> {
    dial_control_over(addr, &[], identity, check).await
}

/// As [`dial_control`], over one of these paths: the first that answers, in their order; over the route if there are none.
///
/// # Errors
/// As [`dial_control`].
pub async fn dial_control_over(
    addr: &str,
    paths: &[NetPath],
    identity: &Identity,
    check: PeerCheck,
) -> Result<Control, NetError> {
    let deadline = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
    within(addr, deadline, dial(addr, paths, identity, check)).await
}

/// As [`dial_control`], with another deadline.
#[cfg(test)]
pub(crate) async fn dial_control_within(
    addr: &str,
    identity: &Identity,
    check: PeerCheck,
    deadline: Duration,
) -> Result<Control, NetError> {
    within(addr, deadline, dial(addr, &[], identity, check)).await
}

async fn within<T>(
    addr: &str,
    deadline: Duration,
    dialling: impl Future<Output = Result<T, NetError>>,
) -> Result<T, NetError> {
    let timed_out = |_| NetError::TimedOut { peer: addr.to_owned(), doing: "opening a session" };
    timeout(deadline, dialling).await.map_err(timed_out)?
}

async fn dial(addr: &str, paths: &[NetPath], identity: &Identity, check: PeerCheck) -> Result<Control, NetError> {
    let config = client_config(identity, check, CONTROL)?;
    let tcp = connect_any(addr, candidates(paths, &resolve(addr).await?)).await?;
    tune(SockRef::from(&tcp)).map_err(|source| NetError::Socket {
        addr: addr.to_owned(),
        doing: "set the options of the socket",
        source,
    })?;
    let tls = TlsConnector::from(config).connect(nominal_name()?, tcp).await.map_err(|e| NetError::io(addr, e))?;
    Control::new(TlsStream::Client(tls))
}

async fn resolve(addr: &str) -> Result<Vec<SocketAddr>, NetError> {
    let port = addr.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return Err(NetError::BadAddress { addr: addr.to_owned() });
    }
    let resolved = lookup_host(addr).await.map(Vec::from_iter);
    let failed = |source| NetError::Resolve { addr: addr.to_owned(), source };
    match resolved.map_err(failed)? {
        none if none.is_empty() => Err(failed(io::ErrorKind::NotFound.into())),
        some => Ok(some),
    }
}

/// Where to connect from and to, in the order of the paths. A path to the route's own address takes those of its family.
fn candidates(paths: &[NetPath], resolved: &[SocketAddr]) -> Vec<Candidate> {
    let port = resolved.first().map_or(0, SocketAddr::port);
    let of_path = |path: &NetPath| -> Vec<Candidate> {
        let fits = |addr: &&SocketAddr| path.local.is_none_or(|local| local.is_ipv4() == addr.is_ipv4());
        match path.remote {
            Some(remote) => vec![(path.local, SocketAddr::new(remote, port))],
            None => resolved.iter().filter(fits).map(|addr| (path.local, *addr)).collect(),
        }
    };
    match paths {
        [] => resolved.iter().map(|addr| (None, *addr)).collect(),
        paths => paths.iter().flat_map(of_path).collect(),
    }
}

/// A local address, if one was named, and the other end's.
pub(crate) type Candidate = (Option<IpAddr>, SocketAddr);

/// A control connection says so little that it can do with segments that pass everywhere: it must never be lost to a path that
/// swallows larger ones. What the dialler announces holds for both ends.
async fn connect((local, addr): Candidate) -> Result<TcpStream, NetError> {
    let failed = |doing| move |source| NetError::Socket { addr: addr.to_string(), doing, source };
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(failed("make a socket"))?;
    let limit = SockRef::from(&socket).set_tcp_mss(SEGMENT_BYTES_SAFE);
    limit.map_err(failed("set the options of the socket"))?;
    if let Some(local) = local {
        let failed = |source| NetError::Socket { addr: local.to_string(), doing: "use the local address", source };
        socket.bind(SocketAddr::new(local, 0)).map_err(failed)?;
    }
    socket.connect(addr).await.map_err(|e| connect_error(addr, e))
}

/// Connects to whichever answers first; each next address is tried when one has failed or [`STAGGER`] has passed, so that a
/// dead IPv6 route does not cost the whole deadline.
pub(crate) async fn connect_any(addr: &str, candidates: Vec<Candidate>) -> Result<TcpStream, NetError> {
    let mut waiting = candidates.into_iter();
    let mut under_way = JoinSet::new();
    let mut last = NetError::Resolve { addr: addr.to_owned(), source: io::ErrorKind::NotFound.into() };
    loop {
        let patience = match waiting.next() {
            Some(candidate) => {
                under_way.spawn(connect(candidate));
                STAGGER
            }
            None => Duration::MAX,
        };
        match timeout(patience, under_way.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) => last = error,
            Ok(Some(Err(panicked))) => {
                last = NetError::Unreachable { peer: addr.to_owned(), source: io::Error::other(panicked) };
            }
            Ok(None) => return Err(last),
            Err(_elapsed) => {}
        }
    }
}

/// RFC 8305 recommends a quarter of a second.
const STAGGER: Duration = Duration::from_millis(250);
const EXPORTER_LABEL: &[u8] = b"longhaul lane join";
