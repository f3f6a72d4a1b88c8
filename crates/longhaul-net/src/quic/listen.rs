//! The UDP side of a listening port: QUIC lanes that dial in, greeted within the same deadline and
//! budget as those over TCP.
//!
//! Owns the endpoint and the threads that drive its connections. Takes TLS from [`ServerTls`];
//! gives `engine` lanes whose dialler has proved its key.

use std::fmt;
use std::future::pending;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;

use quinn::{Endpoint, Incoming, ServerConfig, VarInt};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::GIVEN_UP;
use super::config;
use super::dial::peer_key;
use super::driver::TurnRuntime;
use super::figures::Figures;
use super::socket::{self, PacedSocket};
use super::stream::{QuicStream, Shared, outlive};
use crate::crowd::Source;
use crate::error::NetError;
use crate::public_key::PublicKey;
use crate::tls::ServerTls;
use crate::turns::Stage;
use crate::udp::Knocks;
use crate::wire::canonical;

/// A listening UDP socket.
pub struct QuicListener {
    addr: SocketAddr,
    lanes: mpsc::Receiver<(QuicStream, PublicKey)>,
    /// `None` once it was taken.
    knocks: Option<Knocks>,
    endpoint: Endpoint,
    /// `Some` until it is dropped.
    threads: Option<Runtime>,
}

impl QuicListener {
    /// Listens at `addr`, on the port that it names.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the address is taken or is not this host's; [`NetError::Crypto`].
    pub fn bind(addr: SocketAddr, tls: &ServerTls) -> Result<QuicListener, NetError> {
        let udp = socket::listening(addr);
        let failed = |source| NetError::Socket { addr: addr.to_string(), doing: "listen over UDP", source };
        QuicListener::adopt(udp.map_err(failed)?, addr, tls)
    }

    /// Listens at a socket that is bound to `addr`.
    pub(crate) fn adopt(udp: UdpSocket, addr: SocketAddr, tls: &ServerTls) -> Result<QuicListener, NetError> {
        let failed = |doing| move |source| NetError::Socket { addr: addr.to_string(), doing, source };
        let server = config::server(tls.lane.clone())?;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(DRIVERS_MAX);
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("quic")
            .enable_all()
            .build()
            .map_err(failed("start drivers"))?;
        let (endpoint, knocks) = {
            let _inside = threads.enter();
            let (socket, knocks) = PacedSocket::shared(udp).map_err(failed("set a UDP socket up"))?;
            let (socket, runtime) = (Arc::new(socket), Arc::new(TurnRuntime));
            let server = Some(server.clone());
            let endpoint = Endpoint::new_with_abstract_socket(config::endpoint(), server, socket, runtime);
            (endpoint.map_err(failed("set a UDP socket up"))?, knocks)
        };
        let addr = endpoint.local_addr().map_err(failed("listen over UDP"))?;
        let (sender, lanes) = mpsc::channel(WAITING_MAX);
        threads.spawn(accept_all(endpoint.clone(), Greeter { server, tls: tls.clone(), sender }));
        let knocks = Some(knocks);
        Ok(QuicListener { addr, lanes, knocks, endpoint, threads: Some(threads) })
    }

    /// The address where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The threads that drive its connections.
    pub fn drivers(&self) -> Option<&Handle> {
        self.threads.as_ref().map(Runtime::handle)
    }

    /// Datagrams that ask for native UDP lanes at this port. `None` if they were taken before. As
    /// long as nobody takes them, they are lost.
    pub fn take_knocks(&mut self) -> Option<Knocks> {
        self.knocks.take()
    }

    /// The next stream, with the key that its dialler has proved. `None` when the socket is of no
    /// more use.
    pub(crate) async fn next(&mut self) -> Option<(QuicStream, PublicKey)> {
        self.lanes.recv().await
    }
}

impl Drop for QuicListener {
    fn drop(&mut self) {
        self.endpoint.close(VarInt::from_u32(GIVEN_UP), b"the daemon ends");
        // It may be dropped where nothing may block.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

impl fmt::Debug for QuicListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicListener").field("addr", &self.addr).finish_non_exhaustive()
    }
}

/// The configuration and budget that every greeting shares.
#[derive(Clone)]
struct Greeter {
    server: ServerConfig,
    tls: ServerTls,
    sender: mpsc::Sender<(QuicStream, PublicKey)>,
}

async fn accept_all(endpoint: Endpoint, greeter: Greeter) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(greeter.clone().greet(incoming));
    }
}

impl Greeter {
    /// Greets a connection, from the first packet to a lane. A connection that does not become a
    /// lane is closed silently.
    async fn greet(mut self, incoming: Incoming) {
        let addr = incoming.remote_address();
        let source = Source::of(addr.ip());
        // An address that was not seen to answer may be anybody's: it takes no place from others.
        // Beyond a few it is asked to show that it receives, before anything is spent on it.
        let (unproven, seat) = match incoming.remote_address_validated() {
            true => (None, Some(self.tls.quic.enter(source))),
            false => match self.tls.unproven.clone().try_acquire_owned() {
                Ok(permit) => (Some(permit), None),
                Err(_) => return drop(incoming.retry()),
            },
        };
        let (seat, loss) = seat.unzip();
        let figures = Arc::new(Figures::default());
        let payload_max = socket::route_payload(addr, None);
        self.server.transport_config(Arc::new(config::transport(&figures, payload_max)));
        // Until it has its turn it keeps a place in the endpoint's own queue, which is as bounded
        // as the seats only if who is lost or late leaves both.
        let (turns, server) = (self.tls.turns.clone(), Arc::new(self.server));
        let greeting = async {
            let connecting = {
                let _at_the_processor = turns.take(source, Stage::New).await;
                incoming.accept_with(server)?
            };
            connecting.await
        };
        let lost = async {
            match loss {
                Some(loss) => loss.happens().await,
                None => pending().await,
            }
        };
        let connection = tokio::select! {
            greeted = timeout(self.tls.deadline, greeting) => match greeted {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => return tracing::debug!(%addr, %error, "a QUIC connection came to nothing"),
                Err(_) => return tracing::debug!(%addr, "a QUIC connection took too long"),
            },
            () = lost => return tracing::debug!(%addr, "a QUIC connection gave way to others"),
        };
        drop((unproven, seat));
        let Some(key) = peer_key(&connection) else {
            return connection.close(VarInt::from_u32(GIVEN_UP), b"no key");
        };
        let (lives, lane) = oneshot::channel();
        let shared = Shared::new(connection.clone(), figures, None);
        let stream = QuicStream::new(shared, lives);
        tracing::debug!(peer = %canonical(addr), "a QUIC lane dialled in");
        if self.sender.send((stream, key)).await.is_ok() {
            outlive(connection, lane).await;
        }
    }
}

/// Threads that drive the connections of one port.
const DRIVERS_MAX: usize = 8;
/// Lanes that have shown a key and were not yet taken up.
const WAITING_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::keys::Identity;
    use crate::tls::GreetLimits;
    use crate::wire::LaneOptions;

    #[test]
    fn who_waits_for_its_turn_too_long_goes_and_leaves_the_endpoints_queue() {
        let identity = Identity::generate().unwrap();
        let limits = GreetLimits { deadline: Duration::from_millis(100), ..GreetLimits::default() };
        let tls = ServerTls::new(&identity, limits).unwrap();
        let listener = QuicListener::bind("127.0.0.1:0".parse().unwrap(), &tls).unwrap();
        // Others are at the processor all the time.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _turn = runtime.block_on(tls.turns.take(Source::of("192.0.2.1".parse().unwrap()), Stage::New));
        let options = LaneOptions { deadline: Duration::from_secs(20), ..LaneOptions::default() };
        let began = Instant::now();
        let dialler = Identity::generate().unwrap();
        let error =
            crate::LaneStream::dial_quic(listener.local_addr(), &dialler, identity.public(), &options).unwrap_err();
        // Out of the queue it is refused; in it, it hears nothing.
        assert!(began.elapsed() < Duration::from_secs(10), "{error} after {:?}", began.elapsed());
    }
}
