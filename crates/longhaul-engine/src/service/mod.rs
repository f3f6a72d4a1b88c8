//! The daemon: one listening port for control connections and lanes, roots to serve, clients to know.
//!
//! In: a configuration. Out: sessions, each in its own task, and a log line when one opens and when one ends. `access`
//! decides who may do what; `serve` runs one conversation; `lobby` bounds who waits to be heard; `listing` answers those who
//! look; `lanes` brings lanes to their sessions; `runs` lets a client take over from itself;
//! `shares` says how much of the daemon's sessions, memory and listings each client may have, `buffers` how the memory of
//! one session grows; `memory` says who may measure and how much; `rates` says how fast each session may be; `collect` says when abandoned partials go.

mod access;
mod buffers;
mod collect;
mod lanes;
mod listing;
mod lobby;
mod memory;
mod rates;
mod runs;
mod serve;
mod shares;

pub(crate) use listing::{NAMES_BYTES, page as list_page};

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, ByteCount, Escaped, Fault, FaultCode, Rights};
use longhaul_disk::{DirectMode, EngineKind, Tree, TreePolicy};
use longhaul_net::{
    GreetLimits, Greeted, Identity, Listener, NetError, Protection, PublicKey, QuicListener, ServerTls, greet,
};
use longhaul_proto::receiver::SyncGroup;

use crate::api::{Stop, StopTrigger};
use crate::faults::net_fault;
use crate::partials::Store;
use lanes::Registry;
use lobby::Lobby;
use rates::Rates;
use runs::Runs;
use shares::Shares;

/// A directory tree offered under a name.
#[derive(Clone, Debug)]
pub struct RootConfig {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub dir: PathBuf,
    /// What anyone may do with it at most.
    pub allow: Rights,
    /// The protections that it allows.
    pub protect: Vec<Protection>,
    /// What all sessions on it carry together at most, bytes/s; none: as fast as they go.
    pub rate: Option<u64>,
    /// Which modes and links are taken from clients.
    pub policy: TreePolicy,
}

/// A key that may come in.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// A name for the log.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// Rights by root.
    pub roots: BTreeMap<String, Rights>,
    /// What all of its sessions carry together at most, bytes/s; none: as fast as they go.
    pub rate: Option<u64>,
    /// Its part of a rate that it shares with others, against theirs: 1 to 1000 (default 1).
    pub weight: u32,
    /// Whether it may measure: move what no disk holds, to nowhere.
    pub bench: bool,
}

/// A daemon's configuration.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Addresses to listen on, `host:port`; port 0 = any free one.
    pub listen: Vec<String>,
    /// Sessions at a time (default 64); at one more, the newcomer is told to come back.
    pub sessions: usize,
    /// Buffers and listings of all sessions together (default 4 GiB). A session begins with four of its chunks (16 MiB), so that
    /// 64 fit into 1 GiB, and claims more as its lanes carry data, up to 256 MiB. Too little leaves sessions with few buffers,
    /// which is slow over long paths; what is more than they use costs nothing.
    pub memory: ByteCount,
    /// A session in which nothing moved for so long, while no disk of this daemon was at work, ends; its client goes on where it
    /// ended (default 10 min); none: never. Too short ends sessions whose clients wait for a tape; too long leaves places to
    /// clients that are stuck, though one that is idle for half a minute makes room for a client that has none.
    pub idle: Option<Duration>,
    /// Partials that nobody has gone on with for so long are removed, at start and each hour (default 14 days); none: never.
    /// Too short throws away what an interrupted transfer would still use; too long lets it fill the disk.
    pub partials: Option<Duration>,
    /// Transfers that one client has left unfinished in a root and that are kept (default 1024); at one more it begins no other one
    /// there, and may go on with those. Too few keeps out clients whose links break for days; too many fills the root with what
    /// nobody comes back for.
    pub unfinished: usize,
    /// How much a session that receives may have written and not durable: what a crash may cost (default 1 s or 1 GiB).
    pub sync: SyncGroup,
    /// The roots.
    pub roots: Vec<RootConfig>,
    /// The clients.
    pub clients: Vec<ClientConfig>,
    /// Direct or buffered I/O.
    pub io: DirectMode,
    /// I/O engine.
    pub engine: EngineKind,
    /// Requests in flight per disk; none chooses.
    pub depth: Option<usize>,
    /// What all sessions carry together at most, bytes/s; none: as fast as they go.
    pub rate: Option<u64>,
    /// What one measurement of a client moves at most (default 64 GiB). Too little ends it before its time on a fast link.
    pub bench_bytes: ByteCount,
}

/// A running daemon.
pub struct Service {
    listening: Vec<(SocketAddr, PublicKey)>,
    trigger: StopTrigger,
    task: tokio::task::JoinHandle<()>,
}

/// What all connections of a daemon share.
struct Daemon {
    config: ServeConfig,
    roots: BTreeMap<String, (RootConfig, Arc<Tree>, Arc<Store>)>,
    registry: Registry,
    lobby: Lobby,
    runs: Runs,
    rates: Rates,
    /// Bytes of buffers.
    memory: Shares,
    sessions: Shares,
    listings: Shares,
    stop: Stop,
}

impl Service {
    /// Opens roots, listens, and serves until [`Service::shutdown`].
    ///
    /// # Errors
    /// A [`Fault`] that names the root or address that cannot be had.
    pub async fn start(config: ServeConfig, identity: Arc<Identity>) -> Result<Service, Fault> {
        let mut roots = BTreeMap::new();
        for root in &config.roots {
            let tree = Tree::open(&root.dir).map_err(|e| e.fault().about(&root.name))?;
            let store = Store::keeping(tree.shelf(), config.unfinished);
            roots.insert(root.name.clone(), (root.clone(), tree, store));
        }
        let tls = ServerTls::new(&identity, GreetLimits::default()).map_err(|e| net_fault(&e))?;
        let listeners = listen(&config.listen, &tls)?;
        let listening = listeners.iter().map(|(l, _)| (l.local_addr(), identity.public())).collect();
        let (trigger, stop) = Stop::new();
        let daemon = Arc::new(Daemon {
            memory: Shares::new("memory", config.memory.get(), u64::MAX),
            sessions: Shares::new("sessions", config.sessions as u64, u64::MAX),
            listings: Shares::new("listings", listing::LISTINGS_MAX, listing::LISTINGS_OF_CLIENT_MAX),
            registry: Registry::default(),
            lobby: Lobby::default(),
            runs: Runs::default(),
            rates: Rates::new(config.rate),
            roots,
            config,
            stop,
        });
        let task = tokio::spawn(run(daemon, listeners, Arc::new(tls)));
        Ok(Service { listening, trigger, task })
    }

    /// The addresses it accepts on, and its key.
    pub fn listening(&self) -> &[(SocketAddr, PublicKey)] {
        &self.listening
    }

    /// Stops accepting and ends every session in order.
    pub fn shutdown(&self) {
        self.trigger.stop(FaultCode::Busy);
    }

    /// Waits until it is over; sessions have let go of their files then.
    pub async fn wait(self) {
        let _ = self.task.await;
    }
}

/// Listens over TCP, and over UDP at the port of the same number.
fn listen(addresses: &[String], tls: &ServerTls) -> Result<Vec<(Listener, QuicListener)>, Fault> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bad = |e: &dyn std::fmt::Display| {
            Fault::new(
                FaultCode::Usage,
                Blame::Local,
                format_args!("cannot listen on {}: {e}", Escaped(address.as_bytes())),
            )
            .hint("listen takes HOST:PORT, as \"[::]:7214\"; port 0 takes any free one")
        };
        for addr in address.to_socket_addrs().map_err(|e| bad(&e))? {
            listeners.push(listen_twice(addr, tls).map_err(|e| bad(&e))?);
        }
    }
    Ok(listeners)
}

/// Where any port will do, one that is free for both is looked for.
fn listen_twice(addr: SocketAddr, tls: &ServerTls) -> Result<(Listener, QuicListener), NetError> {
    let mut tries = if addr.port() == 0 { PORTS_TRIED } else { 1 };
    loop {
        tries -= 1;
        let listener = Listener::bind(addr)?;
        match QuicListener::bind(listener.local_addr(), tls) {
            Ok(quic) => return Ok((listener, quic)),
            Err(error) if tries == 0 => return Err(error),
            Err(_) => {}
        }
    }
}

/// Accepts until stopped, then waits for what was accepted.
async fn run(daemon: Arc<Daemon>, listeners: Vec<(Listener, QuicListener)>, tls: Arc<ServerTls>) {
    let mut accepting = Vec::new();
    for (tcp, quic) in listeners {
        accepting.push(tokio::spawn(accept(daemon.clone(), tcp, tls.clone())));
        accepting.push(tokio::spawn(accept_quic(daemon.clone(), quic)));
    }
    let collecting = tokio::spawn(collect::collect(daemon.clone()));
    daemon.stop.clone().stopped().await;
    collecting.abort();
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    // Sessions hear the same stop.
    let _ = tokio::time::timeout(DRAIN_MAX, daemon.sessions.all_given_back()).await;
}

async fn accept(daemon: Arc<Daemon>, listener: Listener, tls: Arc<ServerTls>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                tokio::spawn(receive(daemon.clone(), stream, peer, tls.clone()));
            }
            Err(e) => {
                tracing::warn!(target: "longhaul::serve", error = %e, "cannot accept connections");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// QUIC carries lanes alone.
async fn accept_quic(daemon: Arc<Daemon>, mut listener: QuicListener) {
    while let Some((stream, key)) = listener.accept().await {
        let daemon = daemon.clone();
        tokio::spawn(async move { daemon.registry.bring(stream, Some(key)).await });
    }
}

/// Greets a connection and hands it to whom it is for.
async fn receive(daemon: Arc<Daemon>, stream: tokio::net::TcpStream, peer: SocketAddr, tls: Arc<ServerTls>) {
    match greet(stream, &tls).await {
        Ok(Greeted::Control(control)) => serve::serve(daemon, control).await,
        Ok(Greeted::PrivateLane(stream, key)) => daemon.registry.bring(stream, Some(key)).await,
        Ok(Greeted::SafeLane(stream)) => daemon.registry.bring(stream, None).await,
        Err(e) => tracing::debug!(target: "longhaul::serve", %peer, error = %e, "a connection came to nothing"),
    }
}

/// Sessions are given so long to end when the daemon stops.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Free ports for TCP of which the UDP port of the same number may be taken.
const PORTS_TRIED: u32 = 16;
/// A listener that fails (out of descriptors, most likely) is tried again after this.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
