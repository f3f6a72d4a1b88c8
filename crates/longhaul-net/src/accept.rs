//! The listening port: finds out what each connection is, within a deadline and a budget.
//!
//! Owns the first bytes of every accepted connection. Takes sockets from the kernel; gives `engine`
//! a [`Greeted`]: a control connection or a private lane whose peer has proved its key, or a safe
//! lane that has proved nothing. Must not know which keys are welcome.
//!
//! Connections wait in two kinds of seats, so that the cheap ones cannot push out the dear ones.
//! One that has not said yet what it is, or was not answered yet, costs a descriptor: there is room
//! for thousands, and an honest client says at once what it is. One whose hello was answered has
//! cost a key exchange, and needs a round trip. When either kind of seat runs out, the source with
//! the most seats loses one ([`crate::Seats`]), and hellos are answered in turn ([`turns`]).

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::server::{Accepted, Acceptor};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::{sleep, timeout_at};
use tokio_rustls::{StartHandshake, TlsStream};

use crate::control::Control;
use crate::crowd::Source;
use crate::error::NetError;
use crate::handshake::{Handshake, HandshakeTurn, Secured};
use crate::incoming::Incoming;
use crate::lane::LaneStream;
use crate::private::Private;
use crate::public_key::PublicKey;
use crate::seats::Seats;
use crate::secrets::HeardSecrets;
use crate::seldom::Seldom;
use crate::tcp::SAFE_MAGIC;
use crate::tls::{CONTROL, LANE, ServerTls};
use crate::turns::{self, Stage};
use crate::wire::canonical;

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    addr: SocketAddr,
    shortages: Mutex<Seldom>,
}

impl Listener {
    /// Listens at `addr`; port 0 takes any free one. `[::]` serves IPv4 too, and serves IPv4 alone
    /// where the host has no IPv6.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the address is taken or is not this host's.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn bind(addr: SocketAddr) -> Result<Listener, NetError> {
        let failed = |source| NetError::Socket { addr: addr.to_string(), doing: "listen", source };
        listening(addr).and_then(Listener::over).map_err(failed)
    }

    /// Accepts at a socket that listens already.
    pub(crate) fn adopt(socket: Socket) -> Result<Listener, NetError> {
        let failed =
            |source| NetError::Socket { addr: "a socket that was passed on".to_owned(), doing: "listen", source };
        socket.set_nonblocking(true).and_then(|()| Listener::over(socket)).map_err(failed)
    }

    fn over(socket: Socket) -> io::Result<Listener> {
        let listener = TcpListener::from_std(socket.into())?;
        let addr = listener.local_addr()?;
        Ok(Listener { listener, addr, shortages: Mutex::new(Seldom::new(SHORTAGES_TOLD_EVERY)) })
    }

    /// The address where it listens, with the port that the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The next connection; hand it to [`greet`] in a task of its own. While the process has no
    /// descriptor or memory to spare, it tries again every tenth of a second, and says so once a
    /// minute.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the listening socket itself is of no more use.
    pub async fn accept(&self) -> Result<(TcpStream, SocketAddr), NetError> {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => return Ok(accepted),
                Err(e) if is_of_one_connection(&e) => tracing::debug!(error = %e, "a connection died in the queue"),
                Err(e) if is_shortage(&e) => {
                    self.tell_shortage(&e);
                    sleep(SHORTAGE_PAUSE).await;
                }
                Err(source) => {
                    return Err(NetError::Socket { addr: self.addr.to_string(), doing: "accept connections", source });
                }
            }
        }
    }

    fn tell_shortage(&self, error: &io::Error) {
        let mut shortages = self.shortages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(untold) = shortages.once_more(Instant::now()) {
            let addr = self.addr;
            tracing::warn!(%addr, %error, untold, "cannot accept connections for now: the next are taken when there is room");
        }
    }
}

/// The kind of a connection, as its first bytes and its handshake show it.
#[derive(Debug)]
pub enum Greeted {
    /// A control connection; whether its key is welcome is for the caller to decide.
    Control(Control),
    /// An encrypted lane, and the key that its dialler proved; it must be its session's.
    PrivateLane(LaneStream, PublicKey),
    /// A lane without encryption, from anyone at all, and the first
    /// [`crate::GreetLimits::opening_bytes`] that it says: they are still to be received.
    SafeLane(LaneStream, Vec<u8>),
}

/// Finds out what an accepted connection is. A lane comes back blocking and without deadline: set
/// one for the proof that is still to come.
///
/// # Errors
/// [`NetError::NotLonghaul`], [`NetError::Tls`], [`NetError::Truncated`], [`NetError::Lost`];
/// [`NetError::TimedOut`] at the deadline of [`crate::GreetLimits`]; [`NetError::Crowded`] if too
/// many newer connections came meanwhile.
pub async fn greet(stream: TcpStream, tls: &ServerTls) -> Result<Greeted, NetError> {
    let addr = stream
        .peer_addr()
        .map(canonical)
        .map_err(|source| NetError::Lost { peer: "a connection just accepted".to_owned(), source })?;
    greet_from(stream, addr, tls).await
}

/// Like [`greet`], of a connection that came through a tunnel from the host at `addr`.
///
/// # Errors
/// As [`greet`].
pub async fn greet_tunnelled(stream: UnixStream, addr: SocketAddr, tls: &ServerTls) -> Result<Greeted, NetError> {
    greet_from(stream, addr, tls).await
}

async fn greet_from(mut stream: impl Incoming, addr: SocketAddr, tls: &ServerTls) -> Result<Greeted, NetError> {
    let greeting = Greeting { addr, source: Source::of(addr.ip()), deadline: Instant::now() + tls.deadline };
    let first = match greeting.at(&tls.silent, first_words(&mut stream, tls, greeting.source, &addr.to_string())).await
    {
        Ok(first) => first,
        Err(e) => {
            if matches!(e, NetError::TimedOut { .. } | NetError::Crowded { .. }) {
                // Nothing is owed to it: the kernel, too, may forget it at once.
                stream.forget();
            }
            return Err(e);
        }
    };
    match first {
        First::SafeLane { opening } => Ok(Greeted::SafeLane(LaneStream::over(stream.into_lane(addr, None)?), opening)),
        // A box, so that those who say nothing do not need room for a handshake.
        First::Hello(hello, turn) => {
            greeting.at(&tls.handshakes, Box::pin(greeting.welcome(stream, *hello, turn, tls))).await
        }
    }
}

/// One greeting: the peer and its deadline.
#[derive(Clone, Copy)]
struct Greeting {
    addr: SocketAddr,
    source: Source,
    deadline: Instant,
}

/// The beginning of a connection, by its first bytes.
enum First {
    SafeLane {
        opening: Vec<u8>,
    },
    /// A hello, with leave to answer it.
    Hello(Box<(Accepted, Vec<u8>)>, turns::Turn),
}

impl Greeting {
    /// Does one step in one of `seats`, until its deadline and as long as the seat is not lost.
    async fn at<T>(self, seats: &Seats, step: impl Future<Output = Result<T, NetError>>) -> Result<T, NetError> {
        let (_seat, loss) = seats.enter(self.source);
        let peer = || self.addr.to_string();
        tokio::select! {
            done = timeout_at(self.deadline.into(), step) => {
                done.unwrap_or_else(|_| Err(NetError::TimedOut { peer: peer(), doing: "saying who it is" }))
            }
            () = loss.happens() => Err(NetError::Crowded { peer: peer() }),
        }
    }

    /// Shakes hands with someone whose whole hello has come.
    async fn welcome(
        self,
        mut stream: impl Incoming,
        (hello, heard): (Accepted, Vec<u8>),
        turn: turns::Turn,
        tls: &ServerTls,
    ) -> Result<Greeted, NetError> {
        let peer = self.addr.to_string();
        stream.tune().map_err(|source| NetError::Lost { peer: peer.clone(), source })?;
        let offered =
            |protocol: &[u8]| hello.client_hello().alpn().is_some_and(|mut all| all.any(|one| one == protocol));
        if offered(LANE) {
            let secured = self.shake_hands(&mut stream, tls, heard, turn).await?;
            let peer_key = secured.peer_key;
            let lane = stream.into_lane(self.addr, Some(Private::new(secured)))?;
            return Ok(Greeted::PrivateLane(LaneStream::over(lane), peer_key));
        }
        if !offered(CONTROL) && hello.client_hello().alpn().is_none() {
            return Err(NetError::NotLonghaul { peer, saw: "TLS without a protocol name".to_owned() });
        }
        // Foreign names go this way, too: rustls refuses them with the right alert.
        let accepting = StartHandshake::from_parts(hello, stream).into_stream(tls.control.clone());
        let accepted = tls.turns.during(self.source, turn, accepting).await;
        let accepted = TlsStream::Server(accepted.map_err(|e| NetError::io(&peer, e))?);
        Incoming::into_control(accepted, self.addr).map(Greeted::Control)
    }

    /// Drives the handshake of a private lane.
    async fn shake_hands(
        self,
        stream: &mut impl Incoming,
        tls: &ServerTls,
        received: Vec<u8>,
        first: turns::Turn,
    ) -> Result<Secured, NetError> {
        let peer = self.addr.to_string();
        let mut handshake = if tls.hands_over {
            let (config, heard) = HeardSecrets::of(&tls.lane);
            Handshake::server(config, received, &peer)?.heard_by(heard)
        } else {
            Handshake::server(tls.lane.clone(), received, &peer)?
        };
        let mut say = Vec::new();
        let mut more = vec![0; HEARD_BYTES];
        let mut leave = first;
        loop {
            let turn = handshake.advance(&mut say);
            drop(leave);
            stream.write_all(&say).await.map_err(|e| NetError::io(&peer, e))?;
            say.clear();
            if turn.map_err(|e| NetError::tls(&peer, e))? == HandshakeTurn::Done {
                return handshake.finish().map_err(|e| NetError::tls(&peer, e));
            }
            match stream.read(&mut more).await.map_err(|e| NetError::io(&peer, e))? {
                0 => return Err(NetError::Truncated { peer }),
                n => handshake.hear(&more[..n]),
            }
            leave = tls.turns.take(self.source, Stage::Begun).await;
        }
    }
}

/// Reads the kind of a connection, and waits for leave to spend something on it: a connection that
/// goes away before has cost next to nothing.
async fn first_words(
    stream: &mut impl Incoming,
    tls: &ServerTls,
    source: Source,
    peer: &str,
) -> Result<First, NetError> {
    let first = first_bytes(stream, peer).await?;
    if first == SAFE_MAGIC {
        stream.tune().map_err(|source| NetError::Lost { peer: peer.to_owned(), source })?;
        let opening = opening(stream, tls.opening_bytes, peer).await?;
        return Ok(First::SafeLane { opening });
    }
    let hello = client_hello(stream, first, peer).await?;
    Ok(First::Hello(Box::new(hello), tls.turns.take(source, Stage::New).await))
}

/// Waits until `len` bytes have come, and looks at them; they stay to be received.
async fn opening(stream: &impl Incoming, len: usize, peer: &str) -> Result<Vec<u8>, NetError> {
    let mut opening = vec![0; len];
    if len == 0 {
        return Ok(opening);
    }
    loop {
        let is_closed = stream.readable().await.map_err(|e| NetError::io(peer, e))?;
        match stream.look_at(&mut opening) {
            Ok(()) => return Ok(opening),
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(NetError::io(peer, e)),
            Err(_) if is_closed => return Err(NetError::Truncated { peer: peer.to_owned() }),
            Err(_) => {}
        }
    }
}

/// Reads until it is clear that TLS begins or that a safe lane does.
async fn first_bytes(stream: &mut impl Incoming, peer: &str) -> Result<Vec<u8>, NetError> {
    let mut first = Vec::with_capacity(SAFE_MAGIC.len());
    while first.len() < SAFE_MAGIC.len() && !first.starts_with(&[TLS_HANDSHAKE]) {
        let mut limited = (&mut *stream).take((SAFE_MAGIC.len() - first.len()) as u64);
        let n = limited.read_buf(&mut first).await.map_err(|e| NetError::io(peer, e))?;
        if n == 0 || !(SAFE_MAGIC.starts_with(&first) || first.starts_with(&[TLS_HANDSHAKE])) {
            let saw = if first.is_empty() { "nothing".to_owned() } else { first.escape_ascii().to_string() };
            return Err(NetError::NotLonghaul { peer: peer.to_owned(), saw });
        }
    }
    Ok(first)
}

/// Reads the whole ClientHello. Returns it understood, and as bytes.
async fn client_hello(stream: &mut impl Incoming, first: Vec<u8>, peer: &str) -> Result<(Accepted, Vec<u8>), NetError> {
    let mut acceptor = Acceptor::default();
    let mut heard = first;
    let mut fed = 0;
    loop {
        fed += feed(&mut acceptor, &heard[fed..]).map_err(|e| NetError::io(peer, e))?;
        match acceptor.accept() {
            Ok(Some(hello)) => return Ok((hello, heard)),
            Ok(None) if heard.len() >= HELLO_BYTES_MAX => {
                return Err(NetError::NotLonghaul { peer: peer.to_owned(), saw: "an endless ClientHello".to_owned() });
            }
            Ok(None) => {}
            Err((error, mut alert)) => {
                let mut words = Vec::new();
                let _ = alert.write_all(&mut words);
                let _ = stream.write_all(&words).await;
                return Err(NetError::tls(peer, error));
            }
        }
        if stream.read_buf(&mut heard).await.map_err(|e| NetError::io(peer, e))? == 0 {
            return Err(NetError::Truncated { peer: peer.to_owned() });
        }
    }
}

fn feed(acceptor: &mut Acceptor, mut bytes: &[u8]) -> io::Result<usize> {
    let len = bytes.len();
    while !bytes.is_empty() {
        if acceptor.read_tls(&mut bytes)? == 0 {
            break;
        }
    }
    Ok(len - bytes.len())
}

/// A socket that listens at `addr`, as [`Listener::bind`] says.
pub(crate) fn listening(addr: SocketAddr) -> io::Result<Socket> {
    match listening_socket(addr) {
        Err(e) if has_no_ipv6(&e) && addr.ip().is_unspecified() => {
            listening_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port())))
        }
        other => other,
    }
}

fn listening_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    if addr.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // A daemon that restarts must not wait for its old connections to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn has_no_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    shortages.iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

/// The first byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// The largest hello that is read. Our own has about 1.5 KiB.
const HELLO_BYTES_MAX: usize = 16 << 10;
/// Bytes read at a time. A whole flight of the handshake is smaller.
const HEARD_BYTES: usize = 16 << 10;
/// Connections that the kernel keeps until they are accepted; it cuts this to its own limit.
const BACKLOG: i32 = 4096;
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);
const SHORTAGES_TOLD_EVERY: Duration = Duration::from_secs(60);
