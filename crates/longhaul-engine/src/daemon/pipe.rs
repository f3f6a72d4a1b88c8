//! Owns the daemon that ssh starts at the far host: it serves the one client behind its pipe, and
//! ends with it.
//!
//! In: the two ends of the pipe, and what sshd tells of the connection. Out: conversations to
//! `serve`, lanes to the registry; the client's paths are an `account`'s. Both keys are made for
//! this one time and pass through the pipe, so that nobody else gets in at the port where lanes may
//! join, and nobody else is dialled than the host from which the session came. It ends no process.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, PathShare};
use longhaul_net::{Greeted, Identity, NetError, PublicKey, ServerTls, TunnelDoor, first_free, greet_tunnelled};
use longhaul_proto::wire::ssh::{ADDRESSES_MAX, ClientHello, FarHello, SIGNAL_BYTES, SshSignal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::account::PipeAccount;
use super::current::Current;
use super::door::{self, Listening};
use super::liveness::Liveness;
use super::{Bounds, ClientConfig, Daemon, RootConfig, Roots, ServeConfig, serve};
use crate::api::Stop;
use crate::ssh::{AheadOfPipe, ConnectionKind, read_hello};

/// The settings of a daemon that serves one pipe.
#[derive(Clone, Debug)]
pub struct PipeConfig {
    /// The root that the client is confined to. `None`: everything that the account may do.
    pub confined: Option<RootConfig>,
    /// The addresses of the ssh connection: the client's, and this host's. `None` where there are
    /// none: lanes over ssh are the only ones then.
    pub between: Option<(IpAddr, IpAddr)>,
    /// The word behind [`SshHost::ahead`](crate::SshHost::ahead), if there was one.
    pub ahead: Option<String>,
    /// Everything else: memory, I/O and limits. Its listeners, roots and clients are not looked at.
    pub serve: ServeConfig,
    /// The version of this program, for messages.
    pub version: String,
}

/// Serves the client behind a pipe until it is done, has gone away, or `stop` says so.
///
/// # Errors
/// A [`Fault`] of a pipe on which something else is said, or of a root that cannot be opened.
pub async fn serve_pipe<R, W>(config: PipeConfig, reader: R, mut writer: W, stop: Stop) -> Result<(), Fault>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let PipeConfig { confined, between, ahead, serve, version } = config;
    let mut reader = AheadOfPipe::new(ahead.as_deref(), reader);
    let heard = timeout(HELLO, read_hello(&mut reader, ClientHello::decode)).await;
    let silent = |_| Fault::new(FaultCode::TimedOut, Blame::Peer, "nothing was said through the pipe for 60 s");
    let Some(hello) = heard.map_err(silent)?? else {
        return Err(Fault::new(FaultCode::Lost, Blame::Peer, "the pipe ended before anything was said"));
    };
    let identity = Identity::generate()?;
    let (places, catalogue) = ((serve.io, serve.unfinished), serve.state.catalogue.clone());
    let key = PublicKey::from_bytes(hello.key);
    let account =
        tokio::task::spawn_blocking(move || PipeAccount::open(confined, hello.places, places, catalogue)).await;
    let account = account.map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, e))??;
    let serve = ServeConfig { clients: vec![client(key, &account)], roots: Vec::new(), ..serve };
    let descriptors = longhaul_sys::raise_nofile_limit().unwrap_or_else(|_| longhaul_sys::nofile_limit());
    let tls = Arc::new(ServerTls::new(&identity, door::limits(&serve, descriptors))?);
    let at = between.map(|(_, here)| here);
    // Ports below 1024 are the administrator's to give.
    let ports = hello.ports.map(|(low, high)| low.max(1024)..=high);
    let listening = listen(addresses(at, &hello.at), ports, &tls);
    let port = listening.first().map(|(tcp, _)| tcp.local_addr().port());
    let roots = Roots { account: Some(Arc::new(account)), ..Roots::default() };
    let affinity = super::reload::affinity(&serve)?;
    let daemon = Daemon::new(serve, roots, affinity, stop);
    let answer = FarHello { version, key: *identity.public().as_bytes(), port, at };
    let lost = |e: io::Error| Fault::new(FaultCode::Lost, Blame::Peer, format_args!("the pipe: {e}"));
    writer.write_all(&answer.encode().map_err(Fault::protocol)?).await.map_err(lost)?;
    writer.flush().await.map_err(lost)?;
    let current = Arc::new(Current::new(daemon));
    let client = between.map(|(client, _)| client);
    let dials = Arc::new(Semaphore::new(DIALS_BACK));
    let pipe = Pipe { current, tls, client, dials, begun: Arc::default(), over: Arc::default() };
    pipe.serve(TunnelDoor::accepting(reader, writer), listening).await;
    Ok(())
}

/// The one client: whoever holds the other end of the pipe.
fn client(key: PublicKey, account: &PipeAccount) -> ClientConfig {
    let roots = account.rights().collect();
    let (rate, sessions, memory, user) = (None, None, None, None);
    let bounds = Bounds::default();
    // Whoever has an account here may run any program that takes all of a path.
    let (name, share) = ("ssh".to_owned(), PathShare::All);
    ClientConfig { name, key, roots, rate, sessions, memory, bounds, weight: 1, bench: false, share, user }
}

/// The addresses to listen at: the one that ssh uses, and those that the client's user named.
fn addresses(of_ssh: Option<IpAddr>, named: &[IpAddr]) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = of_ssh.into_iter().collect();
    for at in named.iter().take(ADDRESSES_MAX) {
        if !all.contains(at) {
            all.push(*at);
        }
    }
    all
}

/// Listens at these addresses, on one port of the range. An address at which it cannot is left out;
/// where none is left, lanes over ssh are.
fn listen(at: Vec<IpAddr>, ports: Option<RangeInclusive<u16>>, tls: &ServerTls) -> Vec<Listening> {
    let mut listening: Vec<Listening> = Vec::new();
    for at in at {
        let ports = match listening.first() {
            Some((tcp, _)) => Some(tcp.local_addr().port()..=tcp.local_addr().port()),
            None => ports.clone(),
        };
        let listened = first_free(ports, |port| {
            door::listen_twice(SocketAddr::new(at, port), tls).map_err(|error| match error {
                NetError::Socket { source, .. } => source,
                error => io::Error::other(error),
            })
        });
        match listened {
            Ok(door) => listening.push(door),
            Err(error) => tracing::info!(target: "longhaul::serve", %at, %error, "no port for lanes at this address"),
        }
    }
    listening
}

/// A pipe that is served. See the module.
struct Pipe {
    /// The daemon, which stays what it is.
    current: Arc<Current>,
    tls: Arc<ServerTls>,
    /// The host from which the session came.
    client: Option<IpAddr>,
    /// The dials to that host that may be under way.
    dials: Arc<Semaphore>,
    /// Says that a conversation has begun, and that it is over.
    begun: Arc<Notify>,
    over: Arc<Notify>,
}

impl Pipe {
    async fn serve(self, mut door: TunnelDoor, listening: Vec<Listening>) {
        let daemon = self.current.now();
        let mut stop = daemon.stop.clone();
        // Nobody asks whether it lives: it lasts as long as its client.
        let liveness = Liveness::of(daemon.runs.rounds().clone());
        let accepting = door::open(&self.current, listening, &self.tls, &liveness);
        let (begun, over) = (self.begun.clone(), self.over.clone());
        let unbegun = async {
            if timeout(HELLO, begun.notified()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        let pipe = Arc::new(self);
        let entering = async {
            while let Some(stream) = door.accept().await {
                tokio::spawn(pipe.clone().receive(stream));
            }
        };
        tokio::pin!(entering);
        let ended = tokio::select! {
            () = &mut entering => true,
            () = over.notified() => false,
            _ = stop.stopped() => false,
            // A client that has gone without a word is of no use.
            () = unbegun => true,
        };
        accepting.iter().for_each(tokio::task::JoinHandle::abort);
        // A session whose control connection ended journals what came, and ends.
        let _ = timeout(super::DRAIN_MAX, daemon.sessions.all_given_back()).await;
        if !ended {
            // The last words pass before the process ends; the client hangs up when it has them.
            let _ = timeout(LAST_WORDS, entering).await;
        }
    }

    /// Finds out what a connection of the tunnel is.
    async fn receive(self: Arc<Self>, mut stream: UnixStream) {
        let mut kind = [0];
        if stream.read_exact(&mut kind).await.is_err() {
            return;
        }
        match ConnectionKind::of(kind[0]) {
            Some(ConnectionKind::Greeted) => self.greet(stream).await,
            Some(ConnectionKind::Signals) => self.hear_signals(stream).await,
            None => tracing::debug!(target: "longhaul::serve", kind = kind[0], "a connection of an unknown kind"),
        }
    }

    async fn greet(&self, stream: UnixStream) {
        let daemon = self.current.now();
        let from = SocketAddr::new(self.client.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), 0);
        match greet_tunnelled(stream, from, &self.tls).await {
            Ok(Greeted::Control(control)) => {
                self.begun.notify_one();
                Box::pin(serve::serve(self.current.clone(), control)).await;
                self.over.notify_one();
            }
            Ok(Greeted::PrivateLane(stream, key)) => door::bring_private(&daemon, stream, key).await,
            Ok(Greeted::SafeLane(stream, opening)) => daemon.registry.bring_safe(stream, &opening, from.ip()).await,
            Err(error) => tracing::debug!(target: "longhaul::serve", %error, "a connection came to nothing"),
        }
    }

    async fn hear_signals(&self, mut stream: UnixStream) {
        let mut bytes = [0; SIGNAL_BYTES];
        while stream.read_exact(&mut bytes).await.is_ok() {
            match SshSignal::decode(bytes) {
                Some(SshSignal::WayFound(transport)) => self.current.now().registry.way_found(transport),
                Some(SshSignal::DialBack { port }) => {
                    if let Some(client) = self.client {
                        self.dial_back(SocketAddr::new(client, port));
                    }
                }
                None => tracing::debug!(target: "longhaul::serve", "a signal that this build does not know"),
            }
        }
    }

    /// Dials the client's host. It goes on like a connection that came from there.
    fn dial_back(&self, addr: SocketAddr) {
        let (current, tls) = (self.current.clone(), self.tls.clone());
        let Ok(permit) = self.dials.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let dialled = timeout(DIAL_BACK, TcpStream::connect(addr)).await;
            drop(permit);
            match dialled {
                Ok(Ok(stream)) => door::receive(current, stream, addr, tls).await,
                Ok(Err(error)) => tracing::debug!(target: "longhaul::serve", %addr, %error, "cannot dial back"),
                Err(_) => tracing::debug!(target: "longhaul::serve", %addr, "no answer to dialling back"),
            }
        });
    }
}

/// The client speaks first, and at once.
const HELLO: Duration = Duration::from_secs(60);
/// A dial to the client's host that takes longer is of no use: it has other ways.
const DIAL_BACK: Duration = Duration::from_secs(8);
/// Dials to the client's host at a time.
const DIALS_BACK: usize = 8;
/// How long the process stays for the client to hang up.
const LAST_WORDS: Duration = Duration::from_secs(5);
