//! The daemon: one listening port for control connections and lanes, roots to serve, clients to
//! know.
//!
//! In: a configuration. Out: sessions, each in its own task, and a log line when one opens and when
//! one ends. `access` says who may do what, `admission` who has what of the daemon, `side` opens
//! what a transfer reads or writes; `door` listens and hands connections on; `serve` runs one
//! conversation; `lobby` bounds who waits to be heard; `strangers` sends those away whose key is no
//! client's; `notices` tells the log of them; `listing` answers those who look; `runs` lets a
//! client take over from itself; `shares` says how much of the daemon's sessions, memory and
//! listings each client may have, `buffers` how the memory of one session grows; `memory` says who
//! may measure and how much; `rates` says how fast each session may be; `collect` says when
//! abandoned partials go.

mod access;
mod admission;
mod buffers;
mod collect;
mod door;
mod listing;
mod lobby;
mod memory;
mod notices;
mod rates;
mod request;
mod runs;
mod serve;
mod shares;
mod side;
mod strangers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{ByteCount, ChunkSize, Fault, FaultCode, Rights};
use longhaul_disk::{DirectMode, EngineKind, Tree, TreePolicy};
use longhaul_net::{Identity, Protection, PublicKey, ServerTls};
use longhaul_proto::receiver::SyncGroup;

use crate::api::{Stop, StopTrigger};
use crate::budget;
use crate::journals::RootJournals;
use crate::lanes::registry::Registry;
use door::Listening;
use lobby::Lobby;
use notices::Notices;
use rates::RateLimits;
use runs::Runs;
use shares::ClientShares;

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
    /// The file that it was read from, named in the log where an administrator has to edit it;
    /// none: the command line alone.
    pub file: Option<PathBuf>,
    /// Addresses to listen on, `host:port`; port 0 = any free one.
    pub listen: Vec<String>,
    /// Sessions at a time (default 64); at one more, the newcomer is told to come back.
    pub sessions: usize,
    /// Buffers of all sessions together (default 4 GiB), and what long listings take beyond 2 MiB
    /// each. A session begins with four of its chunks (16 MiB), so that 64 fit into 1 GiB, and
    /// claims more as its lanes carry data, up to 256 MiB. Too little leaves sessions with few
    /// buffers, which is slow over long paths; what is more than they use costs nothing.
    pub memory: ByteCount,
    /// A session in which nothing moved for so long, while no disk of this daemon was at work,
    /// ends; its client goes on where it ended (default 10 min); none: never. Too short ends
    /// sessions whose clients wait for a tape; too long leaves places to clients that are stuck,
    /// though one that is idle for half a minute makes room for a client that has none.
    pub idle: Option<Duration>,
    /// Partials that nobody has gone on with for so long are removed, at start and each hour
    /// (default 14 days); none: never. Too short throws away what an interrupted transfer would
    /// still use; too long lets it fill the disk.
    pub partials: Option<Duration>,
    /// Transfers that one client has left unfinished in a root and that are kept (default 1024); at
    /// one more it begins no other one there, and may go on with those. Too few keeps out clients
    /// whose links break for days; too many fills the root with what nobody comes back for.
    pub unfinished: usize,
    /// How much a session that receives may have written and not durable: what a crash may cost
    /// (default 1 s or 1 GiB).
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
    /// What one measurement of a client moves at most (default 64 GiB). Too little ends it before
    /// its time on a fast link.
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
    roots: BTreeMap<String, (RootConfig, Arc<Tree>, Arc<RootJournals>)>,
    registry: Registry,
    lobby: Lobby,
    notices: Notices,
    runs: Runs,
    rates: RateLimits,
    /// Bytes of buffers.
    memory: ClientShares,
    sessions: ClientShares,
    listings: ClientShares,
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
            let store = RootJournals::keeping(tree.shelf(), config.unfinished);
            roots.insert(root.name.clone(), (root.clone(), tree, store));
        }
        // As many as the system allows; what it says if it does not is in the numbers.
        let descriptors = longhaul_sys::raise_nofile_limit().unwrap_or_else(|_| longhaul_sys::nofile_limit());
        let tls = ServerTls::new(&identity, door::limits(&config, descriptors))?;
        let listeners = door::listen(&config.listen, &tls)?;
        let listening = listeners.iter().map(|(l, _)| (l.local_addr(), identity.public())).collect();
        let (trigger, stop) = Stop::new();
        let daemon = Arc::new(Daemon {
            memory: ClientShares::growing("memory", config.memory.get(), budget::memory_for(ChunkSize::DEFAULT).get()),
            sessions: ClientShares::new("sessions", config.sessions as u64, u64::MAX),
            listings: ClientShares::new("listings", listing::LISTINGS_MAX, listing::LISTINGS_OF_CLIENT_MAX),
            registry: Registry::default(),
            lobby: Lobby::default(),
            notices: Notices::new(config.file.as_deref()),
            runs: Runs::default(),
            rates: RateLimits::new(config.rate),
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

/// Accepts until stopped, then waits for what was accepted.
async fn run(daemon: Arc<Daemon>, listeners: Vec<Listening>, tls: Arc<ServerTls>) {
    let accepting = door::open(&daemon, listeners, &tls);
    let collecting = tokio::spawn(collect::collect(daemon.clone()));
    daemon.stop.clone().stopped().await;
    collecting.abort();
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    // Sessions hear the same stop.
    let _ = tokio::time::timeout(DRAIN_MAX, daemon.sessions.all_given_back()).await;
}

/// Sessions are given so long to end when the daemon stops.
const DRAIN_MAX: Duration = Duration::from_secs(10);
