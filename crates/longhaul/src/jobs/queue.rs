//! The queue of this user: its place, its opening, and its transactions from async code.
//!
//! In: a path or a URL that was named, or none. Out: a store, or an error that says what to do. A
//! file and its directory are this user's alone, as faults name paths. Must not know a rule.

#![allow(clippy::disallowed_methods, reason = "the file is this side's own: no root holds it and no peer names it")]

use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::queue::Admission;
use longhaul_jobs::{CampaignId, CampaignState, JobsError, LinkId, LinkState, Rows, ShardId, ShardKind, Store};
use longhaul_jobs_postgres::{Passwords, Place, PostgresError, PostgresStore};
use longhaul_jobs_sqlite::SqliteStore;

use super::faults::{fault_of_postgres, fault_of_sqlite};
use super::shelf::Shelf;
use crate::config::{Places, check_strictly};
use crate::error::Error;

/// The place of a queue.
#[derive(Clone, Debug)]
pub struct QueuePlace(Kind);

#[derive(Clone, Debug)]
enum Kind {
    File(PathBuf),
    Database { place: Box<Place>, passwords: Passwords, manifests: PathBuf },
}

/// A queue that is open.
pub enum QueueStore {
    /// In a file of this host.
    File(SqliteStore),
    /// In a database, for any number of hosts.
    Database(PostgresStore),
}

/// A queue that several tasks use at once.
#[derive(Clone)]
pub struct SharedQueue {
    store: Arc<Mutex<QueueStore>>,
    /// The store of heartbeats, of a database: another connection, so that no transaction of this
    /// process, which may be tried for half a minute, keeps a lease from being renewed.
    beats: Option<Arc<Mutex<BeatStore>>>,
}

/// A connection for heartbeats alone.
struct BeatStore {
    store: PostgresStore,
    /// When it was found that the server does not give it: heartbeats then go over the other one.
    away: Option<Instant>,
}

impl QueuePlace {
    /// The place that was named, or this user's file. Passwords of databases are those of the
    /// places.
    ///
    /// # Errors
    /// [`Error::NoHome`] if this user has no place for a file or for manifests; the fault of a URL
    /// that cannot be used.
    pub fn at(named: Option<OsString>, places: &Places, passwords: Passwords) -> Result<QueuePlace, Error> {
        let Some(named) = named else {
            return places.queue().map(|path| QueuePlace(Kind::File(path))).ok_or(Error::NoHome { what: "queue.db" });
        };
        if !Place::is_meant(named.as_encoded_bytes()) {
            return Ok(QueuePlace(Kind::File(PathBuf::from(named))));
        }
        // A byte that is no text is in no name of a server.
        let place = Place::parse(&named.to_string_lossy()).map_err(|error| fault_of_postgres(&error))?;
        let manifests = match place.manifests() {
            Some(dir) => dir.to_owned(),
            None => {
                let no_home = Error::NoHome { what: "the manifests of the queue" };
                manifests_beside(&places.in_state(&place.file_name()).ok_or(no_home)?)
            }
        };
        Ok(QueuePlace(Kind::Database { place: Box::new(place), passwords, manifests }))
    }

    /// Opens it, or makes it.
    ///
    /// # Errors
    /// A directory or file that cannot be made, or is open to others, and the errors of the store.
    pub fn open_or_make(&self) -> Result<QueueStore, Error> {
        let path = match &self.0 {
            Kind::File(path) => path,
            Kind::Database { place, passwords, .. } => {
                let store = PostgresStore::open_or_make(place, passwords);
                return store.map(QueueStore::Database).map_err(|error| fault_of_postgres(&error).into());
            }
        };
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Error::file("make", dir))?;
        }
        // SQLite gives its other files the mode of this one.
        let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        made.map_err(Error::file("open the queue", path))?;
        self.open()
    }

    /// Opens it, if it is there.
    ///
    /// # Errors
    /// A fault of code not-found if there is none, and as [`QueuePlace::open_or_make`].
    pub fn open(&self) -> Result<QueueStore, Error> {
        match &self.0 {
            Kind::File(path) => open_file(path).map(QueueStore::File),
            Kind::Database { place, passwords, .. } => {
                let store = PostgresStore::open(place, passwords);
                store.map(QueueStore::Database).map_err(|error| fault_of_postgres(&error).into())
            }
        }
    }

    /// Whether it is in a file, which its user alone can write to, and not in a database.
    pub fn is_file(&self) -> bool {
        matches!(self.0, Kind::File(_))
    }

    /// The place of the manifests of its campaigns: beside a file; where a URL says.
    pub fn shelf(&self) -> Shelf {
        match &self.0 {
            Kind::File(path) => Shelf::at(manifests_beside(path)),
            Kind::Database { manifests, .. } => Shelf::at(manifests.clone()),
        }
    }
}

/// The place without user and password.
impl fmt::Display for QueuePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::File(path) => path.display().fmt(f),
            Kind::Database { place, .. } => place.fmt(f),
        }
    }
}

impl Store for QueueStore {
    fn transact<T>(&mut self, work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError>) -> Result<T, JobsError> {
        match self {
            QueueStore::File(store) => store.transact(work),
            QueueStore::Database(store) => store.transact(work),
        }
    }
}

fn open_file(path: &Path) -> Result<SqliteStore, Error> {
    if !path.exists() {
        let message = format_args!("there is no queue '{}'", path.display());
        let fault = Fault::new(FaultCode::NotFound, Blame::Local, message);
        return Err(fault.hint_in_words("'longhaul job add' makes it; --queue names another file").into());
    }
    check_strictly(path)?;
    SqliteStore::open(path).map_err(|error| fault_of_sqlite(&error).into())
}

fn manifests_beside(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".manifests");
    PathBuf::from(name)
}

impl SharedQueue {
    /// A queue over an open store. The connection of heartbeats is dialled at once, before anything
    /// is claimed: it waits for the server.
    pub fn new(store: QueueStore) -> SharedQueue {
        let beside = match &store {
            QueueStore::File(_) => None,
            QueueStore::Database(store) => {
                store.beside().inspect_err(|error| tracing::debug!(%error, "heartbeats wait their turn")).ok()
            }
        };
        let beats = beside.map(|store| {
            let mut beats = BeatStore { store, away: None };
            beats.dial();
            Arc::new(Mutex::new(beats))
        });
        SharedQueue { store: Arc::new(Mutex::new(store)), beats }
    }

    /// The store, for whoever may wait for it.
    pub fn store(&self) -> MutexGuard<'_, QueueStore> {
        locked(&self.store)
    }

    /// Carries out a transaction on a thread that may wait.
    ///
    /// # Errors
    /// The errors of the rule, and of the store.
    pub async fn transact<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError> + Send + 'static,
    ) -> Result<T, JobsError> {
        let store = Arc::clone(&self.store);
        waited_for(move || transact(&store, work)).await
    }

    /// Carries out the transaction of a heartbeat, which does not wait for others of this process
    /// if the queue is in a database: unless its server gives this process no second connection.
    ///
    /// # Errors
    /// The errors of the rule, and of the store.
    pub async fn transact_beat<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError> + Send + 'static,
    ) -> Result<T, JobsError> {
        let (store, beats) = (Arc::clone(&self.store), self.beats.clone());
        let beat = move || {
            let own = beats.and_then(|beats| locked(&beats).transact(&mut work));
            own.unwrap_or_else(|| transact(&store, work))
        };
        waited_for(beat).await
    }
}

impl BeatStore {
    /// Whether the server gives this connection, by one try.
    fn dial(&mut self) -> bool {
        self.away = self.store.dial().err().map(|error| no_beats(&error));
        self.away.is_none()
    }

    /// `None` if the server does not give this connection.
    fn transact<T>(
        &mut self,
        work: &mut impl FnMut(&mut dyn Rows) -> Result<T, JobsError>,
    ) -> Option<Result<T, JobsError>> {
        let is_away = self.away.is_some_and(|since| since.elapsed() < BEATS_AWAY);
        if is_away || self.away.is_some() && !self.dial() {
            return None;
        }
        match self.store.transact(work) {
            Err(error) if is_no_connection(&error) => {
                self.away = Some(no_beats(&error));
                None
            }
            done => Some(done),
        }
    }
}

/// The time at which the connection of heartbeats was found to be away.
fn no_beats(error: &dyn std::fmt::Display) -> Instant {
    tracing::debug!(%error, "heartbeats have no connection of their own for a while");
    Instant::now()
}

/// Whether the server could not be asked at all: it is away, or lets no more connections in. A
/// transaction of which that is said was not made.
fn is_no_connection(error: &JobsError) -> bool {
    let JobsError::Store { source } = error else { return false };
    matches!(source.downcast_ref(), Some(PostgresError::Away { .. } | PostgresError::Denied { .. }))
}

fn transact<T>(
    store: &Mutex<QueueStore>,
    work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError>,
) -> Result<T, JobsError> {
    locked(store).transact(work)
}

/// A transaction that panicked was rolled back: the store is as it was before.
fn locked<T>(store: &Mutex<T>) -> MutexGuard<'_, T> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries something out on a thread that may wait.
async fn waited_for<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JobsError> + Send + 'static,
) -> Result<T, JobsError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(JobsError::store(error)))
}

/// A server that gives no connection for heartbeats is not asked for it again for so long.
const BEATS_AWAY: Duration = Duration::from_secs(60);

/// Whether nothing is left on these links that could be moved without a user, of some campaigns or,
/// if none is named, of all: what is planned, held, cancelled, or on a link that is not open waits
/// for one, and so do campaigns that are not admitted. A campaign whose row makes no sense is
/// passed over.
///
/// # Errors
/// The errors of the store.
pub fn is_drained(
    rows: &mut dyn Rows,
    only: &[CampaignId],
    among: &[LinkId],
    admission: &dyn Admission,
) -> Result<bool, JobsError> {
    let links = rows.links()?;
    for id in rows.campaign_ids()? {
        if !only.is_empty() && !only.contains(&id) {
            continue;
        }
        let campaign = match rows.campaign(id) {
            Err(error) if error.is_of_rows() => continue,
            other => other?,
        };
        let runs = match &campaign {
            Some(campaign) if campaign.state == CampaignState::Running => admission.admits(rows, campaign)?,
            _ => false,
        };
        let is_open = |id| links.iter().any(|link| link.id == id && link.state == LinkState::Open);
        for sum in rows.shard_sums(id)?.into_iter().filter(|sum| among.contains(&sum.link)) {
            let moves = match sum.kind {
                ShardKind::Leased => true,
                ShardKind::Planned | ShardKind::Ready => runs && is_open(sum.link),
                _ => false,
            };
            if moves && !rows.shards(id, sum.kind, ShardId(0), 1)?.is_empty() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
