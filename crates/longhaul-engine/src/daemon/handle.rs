//! The way in for whoever looks after a running daemon: figures, another configuration, and the end
//! of sessions.
//!
//! In: calls of the program. Out: figures as plain data, and what was done. It knows no socket, no
//! command line and no file.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::{Blame, ByteCount, Escaped, Fault, FaultCode, Rights, hint};
use longhaul_net::{Protection, PublicKey, ServerTls};
use tokio::sync::Mutex;

use super::current::Current;
use super::drain::DrainWish;
use super::live::{Live, SessionName, SessionPace};
use super::rates::Cap;
use super::reload::{self, Reloaded};
use super::{Bounds, ClientConfig, Daemon, ServeConfig, Stored};
use crate::api::KICKED;
use crate::workers::blocking;

/// A handle of a running daemon. Clones are of the same one.
#[derive(Clone)]
pub struct ServiceHandle(Arc<Upkeep>);

struct Upkeep {
    current: Arc<Current>,
    listening: Vec<(SocketAddr, PublicKey)>,
    tls: Arc<ServerTls>,
    begun: (Instant, SystemTime),
    /// Held while what is served changes: one change follows the other.
    changing: Mutex<()>,
}

/// The daemon as a whole.
#[derive(Clone, Debug)]
pub struct ServiceFigures {
    /// The addresses on which it accepts, and its key.
    pub listening: Vec<(SocketAddr, PublicKey)>,
    /// When it began to serve.
    pub begun: SystemTime,
    /// For how long it has served.
    pub age: Duration,
    /// Whether no new session may begin.
    pub drains: bool,
    /// The time until the sessions that run are ended, while it drains. `None`: they run to their
    /// end.
    pub drain_deadline: Option<Duration>,
    /// Sessions that run.
    pub sessions: usize,
    /// Sessions that may run at a time.
    pub sessions_max: u64,
    /// Bytes of memory that sessions and listings have.
    pub memory_taken: u64,
    /// Bytes of memory that they may have.
    pub memory_max: u64,
    /// The rate of all sessions together, bytes/s. `None`: no limit.
    pub rate: Option<u64>,
    /// The roots, each with its rate in bytes/s, if it has one, and what is stored in it.
    pub roots: Vec<(String, Option<u64>, Option<StoredFigures>)>,
    /// The number of clients.
    pub clients: usize,
}

/// A session that runs.
#[derive(Clone, Debug)]
pub struct SessionFigures {
    /// Its name: 32 hexadecimal digits, which its client is told too.
    pub name: String,
    /// The name of its client.
    pub client: String,
    /// The address that it came from.
    pub peer: SocketAddr,
    /// Its doing, as the log says it.
    pub what: String,
    /// The protection of its lanes.
    pub protection: Protection,
    /// For how long it has run.
    pub age: Duration,
    /// Files and links that it committed.
    pub files: u64,
    /// Files and links that failed.
    pub failed: u64,
    /// How far it is, and how fast.
    pub pace: SessionPace,
    /// Whether the daemon receives.
    pub receives: bool,
    /// The kind of lane that it began with.
    pub transport: &'static str,
}

/// A client that may connect.
#[derive(Clone, Debug)]
pub struct ClientFigures {
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: PublicKey,
    /// Its rights, by root.
    pub roots: Vec<(String, Rights)>,
    /// Whether it may measure.
    pub bench: bool,
    /// The rate of its sessions together, bytes/s. `None`: no limit.
    pub rate: Option<u64>,
    /// Its sessions that run.
    pub sessions: usize,
    /// The count of what it has stored in all roots. `None` where nothing bounds that.
    pub stored: Option<StoredFigures>,
}

/// The count of what is stored, and what may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFigures {
    /// Files that stand, and those that are about to.
    pub has: Stored,
    /// Bytes that there may be. `None`: no limit.
    pub bytes_max: Option<u64>,
    /// Files that there may be. `None`: no limit.
    pub files_max: Option<u64>,
}

impl StoredFigures {
    fn within(bounds: &Bounds, has: Stored) -> Option<StoredFigures> {
        let (bytes_max, files_max) = (bounds.stored.map(ByteCount::get), bounds.files);
        (bytes_max.is_some() || files_max.is_some()).then_some(StoredFigures { has, bytes_max, files_max })
    }
}

/// The sessions whose rate is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateOf {
    /// All sessions.
    All,
    /// Sessions of the client of this name.
    Client(String),
    /// Sessions on the root of this name.
    Root(String),
}

impl ServiceHandle {
    /// A handle of a daemon that has begun to listen there.
    pub(super) fn new(
        current: Arc<Current>,
        listening: Vec<(SocketAddr, PublicKey)>,
        tls: Arc<ServerTls>,
    ) -> ServiceHandle {
        let begun = (Instant::now(), SystemTime::now());
        ServiceHandle(Arc::new(Upkeep { current, listening, tls, begun, changing: Mutex::default() }))
    }

    /// The addresses on which it accepts, and its key.
    pub fn listening(&self) -> &[(SocketAddr, PublicKey)] {
        &self.0.listening
    }

    /// The daemon as it is served now.
    pub(super) fn current(&self) -> Arc<Daemon> {
        self.0.current.now()
    }

    /// The connections that have not shown yet whose they are, and as many as there may be.
    pub(super) fn greeting(&self) -> (usize, usize) {
        self.0.tls.greeting()
    }

    /// The daemon as a whole.
    pub fn status(&self) -> ServiceFigures {
        let daemon = self.0.current.now();
        let (memory_taken, memory_max) = daemon.memory.taken();
        let roots = daemon.config.roots.iter().map(|root| {
            let stored = StoredFigures::within(&root.bounds, daemon.live.quotas.of_root(&root.name));
            (root.name.clone(), daemon.live.rates.cap(&Cap::Root(root.name.clone())), stored)
        });
        ServiceFigures {
            listening: self.0.listening.clone(),
            begun: self.0.begun.1,
            age: self.0.begun.0.elapsed(),
            drains: daemon.live.drain.is_on(),
            drain_deadline: daemon.live.drain.deadline(),
            sessions: daemon.live.count(),
            sessions_max: daemon.sessions.taken().1,
            memory_taken,
            memory_max,
            rate: daemon.live.rates.cap(&Cap::All),
            roots: roots.collect(),
            clients: daemon.config.clients.len(),
        }
    }

    /// The sessions that run, the oldest first.
    pub fn sessions(&self) -> Vec<SessionFigures> {
        self.0.current.now().live.all().into_iter().map(|(name, live)| figures(&name, live)).collect()
    }

    /// The clients that may connect, in the order of the configuration.
    pub fn clients(&self) -> Vec<ClientFigures> {
        let daemon = self.0.current.now();
        let live = daemon.live.all();
        let figures = |client: &ClientConfig| ClientFigures {
            name: client.name.clone(),
            key: client.key,
            roots: client.roots.iter().map(|(root, rights)| (root.clone(), *rights)).collect(),
            bench: client.bench,
            rate: daemon.live.rates.cap(&Cap::Client(client.key)),
            sessions: live.iter().filter(|(_, live)| live.key == client.key).count(),
            stored: StoredFigures::within(&client.bounds, daemon.live.quotas.of_client(&client.key)),
        };
        daemon.config.clients.iter().map(figures).collect()
    }

    /// Serves another configuration from now on: all of it, or nothing. Sessions that run keep what
    /// they were given; those that it denies end in order. Caps on rates hold for all sessions.
    ///
    /// # Errors The reason why everything stays as it was: a root that cannot be opened, or another
    /// `listen`. [`FaultCode::Busy`] while another change is under way.
    pub async fn reload(&self, config: ServeConfig) -> Result<Reloaded, Fault> {
        let _alone = self.0.changing.try_lock().map_err(|_| changing())?;
        let old = self.0.current.now();
        reload::need_same_listen(&old.config, &config)?;
        reload::need_broker(&old.live.deputies, &config)?;
        // A disk that hangs holds nobody up but this change.
        let next = blocking(move || {
            // It takes what it read only once everything else was found right.
            let broker = old.live.deputies.broker().cloned();
            broker.iter().try_for_each(|broker| broker.read())?;
            let next = reload::prepare(&old, config)?;
            broker.iter().try_for_each(|broker| broker.take()).map(|()| next)
        })
        .await?;
        Ok(reload::put(&self.0.current, next))
    }

    /// Knows a client no more, until the next reload, and ends its sessions as denied. Returns
    /// their number.
    ///
    /// # Errors
    /// [`FaultCode::NotFound`] if no client has this name, [`FaultCode::Busy`] while another change
    /// is under way.
    pub fn revoke(&self, client: &str) -> Result<usize, Fault> {
        let _alone = self.0.changing.try_lock().map_err(|_| changing())?;
        let mut next = Daemon::clone(&self.0.current.now());
        let before = next.config.clients.len();
        next.config.clients.retain(|known| known.name != client);
        if next.config.clients.len() == before {
            return Err(no_client(client));
        }
        // Caps that were set by hand stay: this is no reload.
        let next = self.0.current.put(next);
        Ok(reload::end_denied(&next).len())
    }

    /// Lets no session begin from now on. Those that run go on to their end, or until `deadline`:
    /// then they are ended in order, and each can be gone on with. Returns how many run.
    pub fn drain(&self, deadline: Option<Duration>) -> usize {
        let daemon = self.0.current.now();
        let wish = daemon.live.drain.start(deadline);
        if let Some(deadline) = deadline {
            tokio::spawn(end_at(self.0.current.clone(), wish, deadline));
        }
        daemon.live.count()
    }

    /// Lets sessions begin again.
    pub fn end_drain(&self) {
        self.0.current.now().live.drain.cancel();
    }

    /// Sets a cap until the next reload, for sessions that run too, in bytes/s. `None` for no rate.
    ///
    /// # Errors
    /// [`FaultCode::NotFound`] if there is no such client or root.
    pub fn set_rate(&self, of: &RateOf, rate: Option<u64>) -> Result<(), Fault> {
        let daemon = self.0.current.now();
        let cap = match of {
            RateOf::All => Cap::All,
            RateOf::Client(name) => {
                let client = daemon.config.clients.iter().find(|client| client.name == *name);
                Cap::Client(client.ok_or_else(|| no_client(name))?.key)
            }
            RateOf::Root(name) if daemon.config.roots.iter().any(|root| root.name == *name) => Cap::Root(name.clone()),
            RateOf::Root(name) => {
                let why = format_args!("this daemon has no root '{}'", Escaped(name.as_bytes()));
                return Err(Fault::new(FaultCode::NotFound, Blame::Local, why));
            }
        };
        daemon.live.rates.set(cap, rate);
        Ok(())
    }

    /// Ends one session in order: the one whose name begins with these digits. Its client may dial
    /// again. Returns what it was.
    ///
    /// # Errors
    /// [`FaultCode::NotFound`] if there is none, [`FaultCode::Usage`] if there are several.
    pub fn kick(&self, name: &str) -> Result<SessionFigures, Fault> {
        let daemon = self.0.current.now();
        let all = daemon.live.all().into_iter();
        let mut meant: Vec<_> = all.filter(|(full, _)| !name.is_empty() && shown(full).starts_with(name)).collect();
        let (Some((full, live)), true) = (meant.pop(), meant.is_empty()) else {
            let (code, why) = match meant.len() {
                0 => (FaultCode::NotFound, "no session has a name that begins so"),
                _ => (FaultCode::Usage, "several sessions have names that begin so"),
            };
            return Err(Fault::new(code, Blame::Local, why).about(Escaped(name.as_bytes())));
        };
        daemon.live.end(KICKED, |other, _| *other == full);
        Ok(figures(&full, live))
    }
}

/// Ends the sessions that still run at the deadline of a drain.
async fn end_at(current: Arc<Current>, wish: DrainWish, deadline: Duration) {
    tokio::time::sleep(deadline).await;
    let daemon = current.now();
    if daemon.live.drain.holds(wish) {
        daemon.live.end(FaultCode::Busy, |_, _| true);
    }
}

fn figures(name: &SessionName, live: Live) -> SessionFigures {
    let counts = live.counter.counts();
    SessionFigures {
        name: shown(name),
        client: live.client,
        peer: live.peer,
        what: live.what,
        protection: live.protection,
        age: live.begun.elapsed(),
        files: counts.files,
        failed: counts.failed,
        receives: live.receives,
        transport: live.transport,
        pace: counts.pace,
    }
}

/// A session's name for people.
pub(super) fn shown(name: &SessionName) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn changing() -> Fault {
    Fault::new(FaultCode::Busy, Blame::Local, "another change of the daemon is under way").hint(hint::Again::Later)
}

fn no_client(name: &str) -> Fault {
    let why = format_args!("this daemon has no client '{}'", Escaped(name.as_bytes()));
    Fault::new(FaultCode::NotFound, Blame::Local, why)
}
