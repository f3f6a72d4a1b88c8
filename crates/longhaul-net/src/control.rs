//! Control connections: asynchronous TLS streams to a proved peer.
//!
//! Owns dialling them. Takes an address, an [`Identity`] and a [`PeerCheck`]; gives a [`Control`]
//! to `engine`. Must not know what is said over them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::limits::{HANDSHAKE_SECONDS_MAX, LONG_PATH_MILLISECONDS, SEGMENT_BYTES_SAFE};
use rustls::ClientConfig;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsConnector, TlsStream};

use crate::error::{NetError, Over};
use crate::interface::interface_to;
use crate::keys::Identity;
use crate::path::NetPath;
use crate::public_key::PublicKey;
use crate::tls::{CONTROL, CONTROL_UNASKED, PeerCheck, client_config, nominal_name, proved_key};
use crate::udp::{UDP_EXPORTER_LABEL, UdpSecret};
use crate::wire::{bind_error, canonical, connect_error, tune, tune_control};

/// One authenticated control connection, either end.
pub struct Control {
    /// Bytes from the peer. They end in order only if the peer shut its writer down; otherwise with
    /// `UnexpectedEof`.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// Bytes to the peer. Flush it; shut it down to end in order.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The key that the peer proved to hold.
    pub peer_key: PublicKey,
    /// A secret that only the two ends know, different for each connection. It is the key of lane
    /// joins.
    pub exporter: [u8; 32],
    /// A further such secret, from which the keys of UDP lanes are made.
    pub udp: UdpSecret,
    /// The address of the other end.
    pub peer_addr: SocketAddr,
    /// The address of this end.
    pub local_addr: SocketAddr,
    /// The round trip time that the handshake measured, smoothed by the kernel. 0 where the kernel
    /// does not say.
    pub rtt: Duration,
    /// The payload of one of its TCP packets, in bytes. 0 where the kernel does not say.
    pub segment_bytes: u32,
    /// Whether the acceptor takes small files that it has not asked for, as it says in the TLS
    /// handshake. `false` at the acceptor.
    pub takes_unasked: bool,
}

impl Control {
    /// Takes a TLS stream over TCP after its handshake.
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> Result<Control, NetError> {
        let (tcp, _) = stream.get_ref();
        let (peer_addr, local_addr) = tcp
            .peer_addr()
            .and_then(|peer| {
                tune_control(SockRef::from(tcp))?;
                Ok((canonical(peer), canonical(tcp.local_addr()?)))
            })
            .map_err(|source| NetError::Lost { peer: "a new connection".to_owned(), source })?;
        let (rtt, segment_bytes) =
            longhaul_sys::tcp::state(tcp).map_or((Duration::ZERO, 0), |state| (state.rtt, state.segment_bytes));
        Control::between(stream, ControlEnds { peer_addr, local_addr, rtt, segment_bytes })
    }

    /// Takes a TLS stream after its handshake, between these ends.
    pub(crate) fn between<S>(stream: TlsStream<S>, ends: ControlEnds) -> Result<Control, NetError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ControlEnds { peer_addr, local_addr, rtt, segment_bytes } = ends;
        let peer = peer_addr.to_string();
        let takes_unasked = match &stream {
            TlsStream::Client(stream) => stream.get_ref().1.alpn_protocol() == Some(CONTROL_UNASKED),
            TlsStream::Server(_) => false,
        };
        let peer_key = proved_key(stream.get_ref().1, CONTROL).map_err(|e| NetError::tls(&peer, e))?;
        let exported = |label| match &stream {
            TlsStream::Client(s) => s.get_ref().1.export_keying_material([0; 32], label, None),
            TlsStream::Server(s) => s.get_ref().1.export_keying_material([0; 32], label, None),
        };
        let exporter = exported(EXPORTER_LABEL).map_err(|e| NetError::tls(&peer, e))?;
        let udp = exported(UDP_EXPORTER_LABEL).map_err(|e| NetError::tls(&peer, e))?;
        let suite = stream.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite());
        let udp = suite.and_then(|suite| UdpSecret::of(suite, udp));
        let udp = udp.ok_or(NetError::Crypto { doing: "make a secret for UDP lanes" })?;
        let (reader, writer) = tokio::io::split(stream);
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Ok(Control {
            reader,
            writer,
            peer_key,
            exporter,
            udp,
            peer_addr,
            local_addr,
            rtt,
            segment_bytes,
            takes_unasked,
        })
    }
}

/// The ends of a control connection, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct ControlEnds {
    /// See [`Control::peer_addr`].
    pub peer_addr: SocketAddr,
    /// See [`Control::local_addr`].
    pub local_addr: SocketAddr,
    /// See [`Control::rtt`].
    pub rtt: Duration,
    /// See [`Control::segment_bytes`].
    pub segment_bytes: u32,
}

impl Control {
    /// The index of the network interface that it runs over. `None` if the kernel does not say.
    pub fn interface(&self) -> Option<u32> {
        interface_to(self.peer_addr.ip(), Some(self.local_addr.ip()))
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

/// Dials `addr` (`host:port`, an IPv6 address in brackets): all addresses that the name stands for,
/// a quarter of a second apart, the first to answer wins. Everything together has 10 s.
///
/// # Errors
/// [`NetError::BadAddress`], [`NetError::UnknownHost`], [`NetError::Resolve`],
/// [`NetError::Unreachable`] (of the last address that failed), [`NetError::NoAnswer`],
/// [`NetError::Silent`], [`NetError::PeerKeyMismatch`], [`NetError::NotLonghaul`],
/// [`NetError::KeyRefused`], [`NetError::Tls`], [`NetError::Lost`], [`NetError::Truncated`].
pub async fn dial_control(addr: &str, identity: &Identity, check: PeerCheck) -> Result<Control, NetError> {
    dial_control_over(addr, &[], identity, check, None).await
}

/// Hears, where the path is long, the address that is dialled first: what else is wanted there can
/// be dialled meanwhile.
pub type WhenLong = Box<dyn FnOnce(SocketAddr) + Send>;

/// Like [`dial_control`], over the first of these paths that answers, tried in their order; over
/// the route if `paths` is empty. `when_long` is called if nothing has answered after 5 ms.
///
/// # Errors
/// As [`dial_control`].
pub async fn dial_control_over(
    addr: &str,
    paths: &[NetPath],
    identity: &Identity,
    check: PeerCheck,
    when_long: Option<WhenLong>,
) -> Result<Control, NetError> {
    dial_within((addr, paths), identity, check, Duration::from_secs(HANDSHAKE_SECONDS_MAX), when_long).await
}

/// Begins a control connection over a stream that leads to the other side already. It has as long
/// as the caller gives it.
///
/// # Errors
/// [`NetError::PeerKeyMismatch`], [`NetError::NotLonghaul`], [`NetError::Tls`],
/// [`NetError::Lost`], [`NetError::Truncated`].
pub async fn control_over<S>(
    stream: S,
    ends: ControlEnds,
    identity: &Identity,
    check: PeerCheck,
) -> Result<Control, NetError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let peer = ends.peer_addr.to_string();
    let config = client_config(identity, check, CONTROL)?;
    let tls = TlsConnector::from(config).connect(nominal_name()?, stream).await.map_err(|e| NetError::io(&peer, e))?;
    Control::between(TlsStream::Client(tls), ends)
}

/// Like [`dial_control`], with another deadline.
#[cfg(test)]
pub(crate) async fn dial_control_within(
    addr: &str,
    identity: &Identity,
    check: PeerCheck,
    deadline: Duration,
) -> Result<Control, NetError> {
    dial_within((addr, &[]), identity, check, deadline, None).await
}

/// Each step has the part of the deadline that earlier steps have left, and a step that takes too
/// long names itself in its error.
async fn dial_within(
    (addr, paths): (&str, &[NetPath]),
    identity: &Identity,
    check: PeerCheck,
    deadline: Duration,
    when_long: Option<WhenLong>,
) -> Result<Control, NetError> {
    let (until, seconds, peer) = (Instant::now() + deadline, deadline.as_secs(), || addr.to_owned());
    let config = client_config(identity, check, CONTROL)?;
    let resolved = timeout_at(until, resolve(addr)).await.map_err(|_| NetError::Resolve {
        host: host_of(addr).to_owned(),
        source: io::Error::new(io::ErrorKind::TimedOut, format!("no DNS server answers in {seconds} s")),
    })??;
    let addresses: Vec<String> = resolved.iter().map(SocketAddr::to_string).collect();
    tracing::debug!(target: "longhaul::session", host = addr, addresses = %addresses.join(" "), "dialling");
    let candidates = candidates(paths, &resolved);
    let first = candidates.first().map(|(_, first)| *first);
    let connecting = telling(connect_any(addr, candidates), first.zip(when_long));
    let tcp = timeout_at(until, connecting).await.map_err(|_| NetError::NoAnswer {
        peer: reached(addr, &resolved),
        seconds,
        over: Over::Tcp,
    })??;
    timeout_at(until, greet(addr, tcp, config)).await.map_err(|_| NetError::Silent { peer: peer(), seconds })?
}

/// Waits for a connection, and tells somebody if it takes so long that the path must be.
async fn telling<T>(connecting: impl Future<Output = T>, when_long: Option<(SocketAddr, WhenLong)>) -> T {
    let mut connecting = std::pin::pin!(connecting);
    let Some((first, when_long)) = when_long else { return connecting.await };
    match timeout(Duration::from_millis(LONG_PATH_MILLISECONDS), &mut connecting).await {
        Ok(done) => done,
        Err(_elapsed) => {
            when_long(first);
            connecting.await
        }
    }
}

async fn greet(addr: &str, tcp: TcpStream, config: Arc<ClientConfig>) -> Result<Control, NetError> {
    tune(SockRef::from(&tcp)).map_err(|source| NetError::Socket {
        addr: addr.to_owned(),
        doing: "set the options of the socket",
        source,
    })?;
    let tls = TlsConnector::from(config).connect(nominal_name()?, tcp).await.map_err(|e| NetError::io(addr, e))?;
    Control::new(TlsStream::Client(tls))
}

/// The addresses of `host:port`, as the system's resolver gives them. It has as long as the caller
/// gives it.
///
/// # Errors
/// [`NetError::BadAddress`], [`NetError::UnknownHost`], [`NetError::Resolve`].
pub async fn resolve(addr: &str) -> Result<Vec<SocketAddr>, NetError> {
    let port = addr.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return Err(NetError::BadAddress { addr: addr.to_owned() });
    }
    let resolved = lookup_host(addr).await.map(Vec::from_iter);
    let host = host_of(addr).to_owned();
    match resolved {
        Ok(none) if none.is_empty() => Err(NetError::UnknownHost {
            host,
            source: io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
        }),
        Ok(some) => Ok(some),
        Err(source) if longhaul_sys::lookup_may_succeed_later(&source) => Err(NetError::Resolve { host, source }),
        Err(source) => Err(NetError::UnknownHost { host, source }),
    }
}

/// The host of `host:port`.
fn host_of(addr: &str) -> &str {
    addr.rsplit_once(':').map_or(addr, |(host, _)| host)
}

/// The peer as it was named, with the addresses that were dialled for it.
fn reached(addr: &str, dialled: &[SocketAddr]) -> String {
    match dialled {
        [only] if only.to_string() == addr => addr.to_owned(),
        _ => {
            let ips: Vec<String> = dialled.iter().map(|one| one.ip().to_string()).collect();
            format!("{addr} ({})", ips.join(", "))
        }
    }
}

/// The pairs of addresses to connect from and to, in the order of the paths. A path to the route's
/// own address takes those of its family.
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

/// Uses small segments that pass everywhere: a control connection carries so little that this costs
/// nothing, and it must never be lost to a path that swallows larger ones. The segment size that
/// the dialler announces holds for both ends.
async fn connect((local, addr): Candidate) -> Result<TcpStream, NetError> {
    let failed = |doing| move |source| NetError::Socket { addr: addr.to_string(), doing, source };
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(failed("make a socket"))?;
    let limit = SockRef::from(&socket).set_tcp_mss(SEGMENT_BYTES_SAFE);
    limit.map_err(failed("set the options of the socket"))?;
    if let Some(local) = local {
        socket.bind(SocketAddr::new(local, 0)).map_err(|e| bind_error(local, e))?;
    }
    socket.connect(addr).await.map_err(|e| connect_error(addr, e))
}

/// Connects to whichever answers first; each next address is tried when one has failed or
/// [`STAGGER`] has passed, so that a dead IPv6 route does not cost the whole deadline.
pub(crate) async fn connect_any(addr: &str, candidates: Vec<Candidate>) -> Result<TcpStream, NetError> {
    let mut waiting = candidates.into_iter();
    let mut under_way = JoinSet::new();
    let mut last = NetError::Unreachable { peer: addr.to_owned(), source: io::ErrorKind::AddrNotAvailable.into() };
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
            Ok(Some(Ok(Err(NetError::Unreachable { peer, source })))) => {
                let peer = peer.parse().map_or(peer, |dialled| reached(addr, &[dialled]));
                last = NetError::Unreachable { peer, source };
            }
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
