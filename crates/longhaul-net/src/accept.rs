//! The listening port: finds out what each connection is, within a deadline and a budget.
//!
//! Owns the first bytes of every accepted connection. Takes sockets from the kernel; gives `engine` a [`Greeted`]: a control
//! connection or a private lane whose peer has proved its key, or a safe lane that has proved nothing. Must not know which keys
//! are welcome.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::server::{Accepted, Acceptor};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_rustls::{StartHandshake, TlsStream};

use crate::control::Control;
use crate::error::NetError;
use crate::handshake::{Handshake, Secured, Turn};
use crate::keys::PublicKey;
use crate::lane::{LaneStream, SAFE_MAGIC};
use crate::private::Private;
use crate::tls::{CONTROL, LANE, ServerTls};
use crate::wire::{Congestion, Wire, canonical, tune};

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Listener {
    /// Listens at `addr`; port 0 takes any free one. `[::]` serves IPv4 too, and only that where the host has no IPv6.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the address is taken or is not this host's.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn bind(addr: SocketAddr) -> Result<Listener, NetError> {
        let failed = |source| NetError::Socket { addr: addr.to_string(), doing: "listen", source };
        let socket = match listening_socket(addr) {
            Err(e) if has_no_ipv6(&e) && addr.ip().is_unspecified() => {
                listening_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port())))
            }
            other => other,
        };
        let listener = socket.and_then(|socket| TcpListener::from_std(socket.into())).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        Ok(Listener { listener, addr })
    }

    /// Where it listens, with the port that the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The next connection; hand it to [`greet`] in a task of its own. While the process has no descriptor or memory to spare,
    /// it tries again every tenth of a second.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the listening socket itself is of no more use.
    pub async fn accept(&self) -> Result<(TcpStream, SocketAddr), NetError> {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => return Ok(accepted),
                Err(e) if is_of_one_connection(&e) => tracing::debug!(error = %e, "a connection died in the queue"),
                Err(e) if is_shortage(&e) => {
                    tracing::warn!(addr = %self.addr, error = %e, "cannot accept connections for now");
                    sleep(SHORTAGE_PAUSE).await;
                }
                Err(source) => {
                    return Err(NetError::Socket { addr: self.addr.to_string(), doing: "accept connections", source });
                }
            }
        }
    }
}

/// What a connection turned out to be.
#[derive(Debug)]
pub enum Greeted {
    /// A control connection; whether its key is welcome is for the caller to decide.
    Control(Control),
    /// An encrypted lane, and the key that its dialler proved; it must be its session's.
    PrivateLane(LaneStream, PublicKey),
    /// A lane without encryption, from anyone at all.
    SafeLane(LaneStream),
}

/// Finds out what an accepted connection is. A lane comes back blocking and without deadline: set one for what it still has
/// to prove.
///
/// # Errors
/// [`NetError::NotLonghaul`], [`NetError::Tls`], [`NetError::Truncated`], [`NetError::Lost`]; [`NetError::TimedOut`] at the
/// deadline of [`crate::GreetLimits`]; [`NetError::Crowded`] if too many newer connections came meanwhile. Oldest out first:
/// an honest peer needs two round trips, so an attacker would have to open the whole budget anew within that time to keep it
/// out, whereas refusing the newest would let a few hundred silent connections close the port for seconds.
pub async fn greet(stream: TcpStream, tls: &ServerTls) -> Result<Greeted, NetError> {
    let addr = stream
        .peer_addr()
        .map(canonical)
        .map_err(|source| NetError::Lost { peer: "a connection just accepted".to_owned(), source })?;
    let peer = addr.to_string();
    let (_slot, evicted) = tls.slots.enter();
    tokio::select! {
        greeted = timeout(tls.deadline, welcome(stream, addr, tls)) => {
            greeted.unwrap_or_else(|_| Err(NetError::TimedOut { peer, doing: "saying who it is" }))
        }
        _ = evicted => Err(NetError::Crowded { peer }),
    }
}

async fn welcome(mut stream: TcpStream, addr: SocketAddr, tls: &ServerTls) -> Result<Greeted, NetError> {
    let peer = addr.to_string();
    tune(SockRef::from(&stream)).map_err(|source| NetError::Lost { peer: peer.clone(), source })?;
    let first = first_bytes(&mut stream, &peer).await?;
    if first == SAFE_MAGIC {
        return Ok(Greeted::SafeLane(LaneStream::safe(into_wire(stream, addr)?)));
    }
    let (hello, heard) = client_hello(&mut stream, first, &peer).await?;
    let offered = |protocol: &[u8]| hello.client_hello().alpn().is_some_and(|mut all| all.any(|one| one == protocol));
    if offered(LANE) {
        let secured = shake_hands(&mut stream, tls, heard, &peer).await?;
        let peer_key = secured.peer_key;
        let lane = LaneStream::private(into_wire(stream, addr)?, Private::new(secured));
        return Ok(Greeted::PrivateLane(lane, peer_key));
    }
    if !offered(CONTROL) && hello.client_hello().alpn().is_none() {
        return Err(NetError::NotLonghaul { peer, saw: "TLS without a protocol name".to_owned() });
    }
    // Foreign names go this way, too: rustls refuses them with the right alert.
    let accepted = StartHandshake::from_parts(hello, stream).into_stream(tls.control.clone()).await;
    Control::new(TlsStream::Server(accepted.map_err(|e| NetError::io(&peer, e))?)).map(Greeted::Control)
}

/// Reads until it is clear that TLS begins or that a safe lane does.
async fn first_bytes(stream: &mut TcpStream, peer: &str) -> Result<Vec<u8>, NetError> {
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
async fn client_hello(stream: &mut TcpStream, first: Vec<u8>, peer: &str) -> Result<(Accepted, Vec<u8>), NetError> {
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

/// Drives the handshake of a private lane.
async fn shake_hands(stream: &mut TcpStream, tls: &ServerTls, heard: Vec<u8>, peer: &str) -> Result<Secured, NetError> {
    let mut handshake = Handshake::server(tls.lane.clone(), heard, peer)?;
    let mut say = Vec::new();
    let mut more = vec![0; HEARD_BYTES];
    loop {
        let turn = handshake.advance(&mut say);
        stream.write_all(&say).await.map_err(|e| NetError::io(peer, e))?;
        say.clear();
        if turn.map_err(|e| NetError::tls(peer, e))? == Turn::Done {
            return handshake.finish().map_err(|e| NetError::tls(peer, e));
        }
        match stream.read(&mut more).await.map_err(|e| NetError::io(peer, e))? {
            0 => return Err(NetError::Truncated { peer: peer.to_owned() }),
            n => handshake.hear(&more[..n]),
        }
    }
}

/// From the runtime to a thread of its own.
fn into_wire(stream: TcpStream, addr: SocketAddr) -> Result<Wire, NetError> {
    let failed = |source| NetError::Socket { addr: addr.to_string(), doing: "make the connection blocking", source };
    let stream = stream.into_std().map_err(failed)?;
    stream.set_nonblocking(false).map_err(failed)?;
    Wire::tcp(Socket::from(stream), addr, &Congestion::Auto)
}

/// The connections being greeted, oldest first.
#[derive(Debug)]
pub(crate) struct Slots {
    at_once: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    queue: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A place among them; dropping it leaves.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    number: u64,
}

impl Slots {
    pub(crate) fn new(at_once: usize) -> Slots {
        Slots { at_once: at_once.max(1), inside: Mutex::default() }
    }

    /// Whether half of all places are taken.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock().queue.len() >= self.at_once / 2
    }

    /// Takes a place, from the oldest if none is free. The receiver resolves when this one is taken in turn.
    pub(crate) fn enter(self: &Arc<Slots>) -> (Slot, oneshot::Receiver<()>) {
        let (evict, evicted) = oneshot::channel();
        let mut inside = self.lock();
        let number = inside.next;
        inside.next += 1;
        if inside.queue.len() >= self.at_once {
            // Dropping its sender is what tells it.
            inside.queue.pop_front();
        }
        inside.queue.push_back((number, evict));
        (Slot { slots: self.clone(), number }, evicted)
    }

    /// No code that holds the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().queue.retain(|(number, _)| *number != self.number);
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
/// Ours has about 1.5 KiB.
const HELLO_BYTES_MAX: usize = 16 << 10;
/// A whole flight of the handshake is smaller.
const HEARD_BYTES: usize = 16 << 10;
/// Connections that the kernel keeps until they are accepted; it cuts this to its own limit.
const BACKLOG: i32 = 1024;
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);
