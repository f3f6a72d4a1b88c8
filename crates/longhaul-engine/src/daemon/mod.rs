//! Owns the daemon: one listening port for control connections and lanes, the roots that it offers,
//! and the clients that it knows.
//!
//! In: a configuration, and others that take its place while it runs. Out: sessions, each in its
//! own task, and a log line when one begins and when it ends. `current` has what is served now, of
//! which each conversation takes what is there when it begins; `reload` puts another in its place;
//! `handle` is the way in for whoever looks after the daemon; `live` lists the sessions that run,
//! and `drain` says whether others may begin. `door` listens and hands connections on; `lobby`
//! bounds those that wait to be heard; `strangers` refuses those whose key is no client's;
//! `notices` reports them to the log. `serve` runs one conversation: `request` hears the rest of a
//! long request, `access` decides on rights, `admission` on places and memory, `side` opens the
//! source or destination, `listing` answers requests to list, `reading` tells digests of files that
//! stay where they are, and `removal` moves names away.
//! `grants` honours rights that clients lend to others; `orders` are carried out for a client with
//! another daemon, where `dials` allows it; `bearer` is whoever asks, by rights of its own or lent
//! ones. `runs` lets a client take over from itself; `shares` divides the daemon's sessions, memory
//! and listings among clients, `root_places` the sessions of a root and their memory; `buffers` is
//! the memory of one session; `bounds` has a destination seem smaller than its disk, by what
//! `quotas` counts; `memory` grants measurements; `rates` sets the rate of each session; `collect`
//! decides when abandoned partials go. `audit` records what clients do to files, `asked` a request
//! before it is judged, `tallies` counts, `ending` tells the end of a session, and `watch` has
//! figures for whoever watches. A client that has a user of this host is served by a `deputy`, a
//! process of that user. `pipe` is a daemon for one client behind an ssh session, whose paths are
//! an `account`'s; `liveness` shows whether all of it lives. It knows no command line.

mod access;
mod account;
mod admission;
mod asked;
mod audit;
mod bearer;
mod bounds;
mod buffers;
mod collect;
mod current;
mod deputy;
mod dials;
mod door;
mod drain;
mod ending;
mod grants;
mod handle;
mod listing;
mod live;
mod liveness;
mod lobby;
mod memory;
mod notices;
mod orders;
mod pipe;
mod quotas;
mod rates;
mod reading;
mod reload;
mod removal;
mod request;
mod root_places;
mod runs;
mod serve;
mod shares;
mod side;
mod spare;
mod state_file;
mod strangers;
mod tallies;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{ByteCount, ChunkSize, Fault, FaultCode, PathShare, Rights};
use longhaul_disk::{Affinity, DirectMode, EngineKind, Pin, SumsCatalogue, TargetDirs, TargetSet, TreePolicy};
use longhaul_net::{Identity, Protection, PublicKey, ServerTls};
use longhaul_proto::receiver::SyncGroup;
use serde::{Deserialize, Serialize};

use crate::api::{Stop, StopTrigger};
use crate::budget;
use crate::journals::RootJournals;
use crate::lanes::registry::Registry;
use account::PipeAccount;
use audit::Auditor;
use current::Current;
use deputy::Deputies;
use dials::Abroad;
use door::Listening;
use grants::Grants;
use live::LiveSessions;
use lobby::Lobby;
use notices::Notices;
use quotas::Quotas;
use runs::Runs;
use shares::ClientShares;

pub use audit::{AuditDeed, AuditLog, AuditLost, AuditRecord, AuditWho};
pub use bounds::{Bounds, FreeReserve};
pub use deputy::{Broker, BrokerAnswer, BrokerRequest, serve_deputy};
pub use dials::{DialRule, DialRuleError};
pub use door::bind_addresses;
pub use handle::{ClientFigures, RateOf, ServiceFigures, ServiceHandle, SessionFigures, StoredFigures};
pub use live::SessionPace;
pub use liveness::{Liveness, Stuck};
pub use pipe::{PipeConfig, serve_pipe};
pub use quotas::Stored;
pub use reload::{Changes, Reloaded};
pub use state_file::StateFile;
pub use tallies::{MovedSums, RecentFault, ServiceSums};
pub use watch::{RootFigures, RootTarget, WatchFigures};

/// A directory tree offered under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RootConfig {
    /// Its name.
    pub name: String,
    /// Where it is: one directory, or a target set.
    pub targets: TargetDirs,
    /// The rights that any client may have on it at most.
    pub allow: Rights,
    /// The protections that it allows.
    pub protect: Vec<Protection>,
    /// The rate of all sessions on it together, bytes/s. `None`: no limit.
    pub rate: Option<u64>,
    /// Sessions on it at a time. `None`: as many as the daemon has.
    pub sessions: Option<usize>,
    /// Bytes of memory of all sessions on it together. `None`: as much as the daemon has.
    pub memory: Option<ByteCount>,
    /// Bounds on what all clients together leave in it.
    pub bounds: Bounds,
    /// The modes and links that are taken from clients.
    pub policy: TreePolicy,
}

/// A client: a key that may come in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientConfig {
    /// A name for the log.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// Rights by root.
    pub roots: BTreeMap<String, Rights>,
    /// The rate of all of its sessions together, bytes/s. `None`: no limit.
    pub rate: Option<u64>,
    /// Its sessions at a time. `None`: as many as the daemon leaves it.
    pub sessions: Option<usize>,
    /// Bytes of memory of its sessions and listings together. `None`: as much as the daemon leaves
    /// it.
    pub memory: Option<ByteCount>,
    /// Bounds on what it leaves in all roots together.
    pub bounds: Bounds,
    /// The weight of each of its sessions where a rate is shared with others: 1 to 1000 (default
    /// 1).
    pub weight: u32,
    /// Whether it may measure: move bytes that are on no disk, to nowhere.
    pub bench: bool,
    /// The largest share of a path that it may ask for: [`PathShare::All`], or
    /// [`PathShare::Fair`] (the default).
    pub share: PathShare,
    /// The user of this host as which its sessions run. `None`: the daemon's.
    pub user: Option<ClientUser>,
}

/// A user of this host whose process serves a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientUser {
    /// The number of the user. Never 0.
    pub uid: u32,
    /// The number of the primary group.
    pub gid: u32,
    /// The name by which its further groups are found. `None`: it has none.
    pub name: Option<String>,
}

/// The files in which a daemon keeps what outlives it.
#[derive(Clone, Debug, Default)]
pub struct StateFiles {
    /// Where the counts of what is stored outlive the daemon. `None`: they do not. A running daemon
    /// keeps the first.
    pub quotas: Option<Arc<dyn StateFile>>,
    /// The catalogue of checksums that file systems do not keep with their files. `None`: those are
    /// not kept.
    pub catalogue: Option<SumsCatalogue>,
}

/// A daemon's configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServeConfig {
    /// The file from which it was read, named in the log where an administrator has to edit it.
    /// `None`: the command line alone.
    pub file: Option<PathBuf>,
    /// Addresses to listen on, `host:port`. Port 0: any free one.
    pub listen: Vec<String>,
    /// Sessions at a time (default 64). One more is refused, and told to come back.
    pub sessions: usize,
    /// Bytes of the buffers of all sessions together (default 4 GiB), and of the memory of long
    /// listings beyond 2 MiB each. A session begins with four of its chunks (16 MiB), so that 64
    /// fit into 1 GiB, and claims more as its lanes carry data, up to 256 MiB. Too little leaves
    /// sessions with few buffers, which is slow over long paths; more than they use costs nothing.
    pub memory: ByteCount,
    /// A session in which nothing moved for this long, while no disk of this daemon was at work,
    /// ends; its client can continue it (default 10 min). `None`: never. Too short ends sessions
    /// whose clients wait for a tape; too long leaves places to clients that are stuck, though one
    /// that is idle for half a minute makes room for a client that has none.
    pub idle: Option<Duration>,
    /// Partials that nobody has continued for this long are removed, at start and each hour
    /// (default 14 days). `None`: never. Too short removes partials that an interrupted transfer
    /// would still use; too long lets them fill the disk.
    pub partials: Option<Duration>,
    /// Unfinished transfers of one client that are kept in a root (default 1024). A client that has
    /// left so many begins no other one there, but may continue those. Too few keeps out clients
    /// whose links break for days; too many fills the root with partials that nobody comes back
    /// for.
    pub unfinished: usize,
    /// How much a receiving session may have written that is not durable, which a crash may cost
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
    /// Requests in flight per disk. `None`: each disk gets as many as still pay.
    pub depth: Option<usize>,
    /// The CPUs that I/O threads and lanes of all sessions run on.
    pub pin: Pin,
    /// The rate of all sessions together, bytes/s. `None`: no limit.
    pub rate: Option<u64>,
    /// The files of its own state. A process that serves a client as a user of this host has none.
    #[serde(skip)]
    pub state: StateFiles,
    /// Bytes that one measurement of a client moves at most (default 64 GiB). Too little ends it
    /// before its time on a fast link.
    pub bench_bytes: ByteCount,
}

/// A running daemon.
pub struct Service {
    handle: ServiceHandle,
    trigger: StopTrigger,
    task: tokio::task::JoinHandle<()>,
    liveness: Liveness,
}

/// A root, its tree and its partials.
type OpenRoot = (RootConfig, Arc<TargetSet>, Arc<RootJournals>);

/// The roots that a daemon offers.
#[derive(Clone, Default)]
struct Roots {
    named: BTreeMap<String, OpenRoot>,
    /// The places that the one client behind a pipe may name instead.
    account: Option<Arc<PipeAccount>>,
    /// Roots that a deputy could not open.
    failed: BTreeMap<String, Fault>,
}

/// The daemon as a conversation sees it: the configuration and the roots of one moment, and the
/// accounts that all conversations share. It never changes; a reload makes another one, with the
/// same accounts.
#[derive(Clone)]
struct Daemon {
    config: ServeConfig,
    roots: Roots,
    registry: Registry,
    lobby: Lobby,
    notices: Arc<Notices>,
    runs: Runs,
    live: LiveSessions,
    /// Bytes of buffers.
    memory: ClientShares,
    sessions: ClientShares,
    listings: ClientShares,
    /// Where the threads of all sessions work.
    affinity: Affinity,
    stop: Stop,
}

impl ClientConfig {
    /// The number of the user of this host as which its sessions run. `None`: the daemon's.
    fn uid(&self) -> Option<u32> {
        self.user.as_ref().map(|user| user.uid)
    }
}

impl Service {
    /// Opens roots, listens, and serves until [`Service::shutdown`].
    ///
    /// # Errors
    /// A [`Fault`] that names the root or address that cannot be had.
    pub async fn start(config: ServeConfig, identity: Arc<Identity>) -> Result<Service, Fault> {
        Service::start_at(config, identity, Vec::new(), (None, None), (Vec::new(), None)).await
    }

    /// The same at sockets that were passed to this process, in place of the configuration's
    /// addresses, if there are any. Records of what clients do go to `audit`. Clients that have a
    /// user need a broker. For clients that order it to fetch from another daemon it dials where
    /// `dial` allows. The grants that were used up outlive it in `used`.
    ///
    /// # Errors
    /// The same, and a [`Fault`] that names a socket at which it cannot listen.
    pub async fn start_at(
        config: ServeConfig,
        identity: Arc<Identity>,
        passed: Vec<OwnedFd>,
        (audit, broker): (Option<Arc<dyn AuditLog>>, Option<Broker>),
        (dial, used): (Vec<DialRule>, Option<Arc<dyn StateFile>>),
    ) -> Result<Service, Fault> {
        let deputies = Deputies::of(broker);
        reload::need_broker(&deputies, &config)?;
        let affinity = reload::affinity(&config)?;
        let roots = reload::open_roots(&config, &BTreeMap::new())?;
        // As many as the system allows. If it refuses more, the limit that it reports is used.
        let descriptors = longhaul_sys::raise_nofile_limit().unwrap_or_else(|_| longhaul_sys::nofile_limit());
        let tls = ServerTls::new(&identity, door::limits(&config, descriptors))?;
        let tls = if deputies.broker().is_some() { tls.handing_over() } else { tls };
        let sockets = if passed.is_empty() { bind_addresses(&config.listen)? } else { passed };
        let listeners = door::listen(sockets, &tls)?;
        let listening = listeners.iter().map(|(l, _)| (l.local_addr(), identity.public())).collect();
        let (trigger, stop) = Stop::new();
        let quotas = Quotas::open(config.state.quotas.clone())?;
        let grants = Grants::open(used)?;
        let mut daemon = Daemon::new(config, Roots { named: roots, ..Roots::default() }, affinity, stop);
        daemon.live = daemon.live.clone().served_by(deputies);
        daemon.live.audit = Auditor::new(audit);
        daemon.live.quotas = quotas;
        daemon.live.grants = grants;
        daemon.live.abroad = Some(Arc::new(Abroad { identity, dial }));
        reload::set_limits(&daemon);
        let liveness = Liveness::of(daemon.runs.rounds().clone());
        let current = Arc::new(Current::new(daemon));
        let tls = Arc::new(tls);
        let task = tokio::spawn(run(current.clone(), listeners, tls.clone(), liveness.clone()));
        Ok(Service { handle: ServiceHandle::new(current, listening, tls), trigger, task, liveness })
    }

    /// Shows whether it lives.
    pub fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// The addresses on which it accepts, and its key.
    pub fn listening(&self) -> &[(SocketAddr, PublicKey)] {
        self.handle.listening()
    }

    /// The way in for whoever looks after the daemon.
    pub fn handle(&self) -> ServiceHandle {
        self.handle.clone()
    }

    /// Stops accepting and ends every session in order.
    pub fn shutdown(&self) {
        self.trigger.stop(FaultCode::Busy);
    }

    /// Waits until the daemon has ended. Sessions have let go of their files then.
    pub async fn wait(self) {
        let _ = self.task.await;
    }
}

impl Daemon {
    /// A daemon to which nobody has come yet.
    fn new(config: ServeConfig, roots: Roots, affinity: Affinity, stop: Stop) -> Daemon {
        Daemon {
            memory: ClientShares::growing("memory", config.memory.get(), budget::memory_for(ChunkSize::DEFAULT).get()),
            sessions: ClientShares::new("sessions", config.sessions as u64, u64::MAX),
            listings: ClientShares::new("listings", listing::LISTINGS_MAX, listing::LISTINGS_OF_CLIENT_MAX),
            registry: Registry::default(),
            lobby: Lobby::default(),
            notices: Arc::new(Notices::new(config.file.as_deref())),
            runs: Runs::default(),
            live: LiveSessions::new(&config),
            roots,
            config,
            affinity,
            stop,
        }
    }
}

/// Accepts until stopped, then waits for the sessions.
async fn run(current: Arc<Current>, listeners: Vec<Listening>, tls: Arc<ServerTls>, liveness: Liveness) {
    let accepting = door::open(&current, listeners, &tls, &liveness);
    let collecting = tokio::spawn(collect::collect(current.clone()));
    let keeping = tokio::spawn(quotas::keep(current.now().live.quotas.clone()));
    let daemon = current.now();
    daemon.stop.clone().stopped().await;
    collecting.abort();
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    // The sessions hear the same stop.
    let _ = tokio::time::timeout(DRAIN_MAX, daemon.sessions.all_given_back()).await;
    keeping.abort();
    quotas::store(&daemon.live.quotas).await;
}

/// How long sessions may take to end when the daemon stops.
const DRAIN_MAX: Duration = Duration::from_secs(10);
