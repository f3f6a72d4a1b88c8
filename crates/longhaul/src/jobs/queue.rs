//! The queue's file of this user: its place, its opening, and its transactions from async code.
//!
//! In: a path that was named, or none. Out: a store, or an error that says what to do. The file and
//! its directory are this user's alone, as faults name paths. Must not know a rule.

#![allow(clippy::disallowed_methods, reason = "the file is this side's own: no root holds it and no peer names it")]

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::{
    Campaign, CampaignId, CampaignState, JobsError, LinkId, LinkState, Rows, ShardId, ShardKind, Store,
};
use longhaul_jobs_sqlite::SqliteStore;

use super::faults::fault_of_sqlite;
use super::shelf::Shelf;
use crate::config::{Places, check_strictly};
use crate::error::Error;

/// The place of a queue.
#[derive(Clone, Debug)]
pub struct QueueFile(PathBuf);

/// A queue that several tasks use at once.
#[derive(Clone)]
pub struct SharedQueue(Arc<Mutex<SqliteStore>>);

impl QueueFile {
    /// The file that was named, or this user's.
    ///
    /// # Errors
    /// [`Error::NoHome`] if none was named and this user has no place for it;
    /// [`Error::Combination`] for a database that is not built yet.
    pub fn at(named: Option<OsString>, places: &Places) -> Result<QueueFile, Error> {
        let Some(named) = named else {
            return places.queue().map(QueueFile).ok_or(Error::NoHome { what: "queue.db" });
        };
        if ["postgres://", "postgresql://"].iter().any(|scheme| named.as_encoded_bytes().starts_with(scheme.as_bytes()))
        {
            return Err(Error::Combination {
                why: "a queue on PostgreSQL is not built yet",
                hint: "name a file of a local disk with --queue, or leave it out",
            });
        }
        Ok(QueueFile(PathBuf::from(named)))
    }

    /// Opens it, or makes it.
    ///
    /// # Errors
    /// A directory or file that cannot be made, or is open to others, and the errors of the store.
    pub fn open_or_make(&self) -> Result<SqliteStore, Error> {
        if let Some(dir) = self.0.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Error::file("make", dir))?;
        }
        // SQLite gives its other files the mode of this one.
        let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.0);
        made.map_err(Error::file("open the queue", &self.0))?;
        self.open()
    }

    /// Opens it, if it is there.
    ///
    /// # Errors
    /// A fault of code not-found if there is none, and as [`QueueFile::open_or_make`].
    pub fn open(&self) -> Result<SqliteStore, Error> {
        if !self.0.exists() {
            let message = format_args!("there is no queue '{}'", self.0.display());
            let fault = Fault::new(FaultCode::NotFound, Blame::Local, message);
            return Err(fault.hint_in_words("'longhaul job add' makes it; --queue names another file").into());
        }
        check_strictly(&self.0)?;
        SqliteStore::open(&self.0).map_err(|error| fault_of_sqlite(&error).into())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The place of the manifests of its campaigns: beside it.
    pub fn shelf(&self) -> Shelf {
        let mut name = self.0.clone().into_os_string();
        name.push(".manifests");
        Shelf::at(PathBuf::from(name))
    }
}

impl SharedQueue {
    /// A queue over an open store.
    pub fn new(store: SqliteStore) -> SharedQueue {
        SharedQueue(Arc::new(Mutex::new(store)))
    }

    /// Carries out a transaction on a thread that may wait.
    ///
    /// # Errors
    /// The errors of the rule, and of the store.
    pub async fn transact<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError> + Send + 'static,
    ) -> Result<T, JobsError> {
        let store = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || {
            // A transaction that panicked was rolled back: the store is as it was before.
            store.lock().unwrap_or_else(PoisonError::into_inner).transact(work)
        });
        done.await.unwrap_or_else(|error| Err(JobsError::store(error)))
    }
}

/// Whether nothing is left on these links that could be moved without a user, of one campaign or of
/// all: what is planned, held, cancelled, or on a link that is not open waits for one. A campaign
/// whose row makes no sense is passed over.
///
/// # Errors
/// The errors of the store.
pub fn is_drained(rows: &mut dyn Rows, only: Option<CampaignId>, among: &[LinkId]) -> Result<bool, JobsError> {
    let links = rows.links()?;
    for id in rows.campaign_ids()? {
        if only.is_some_and(|only| only != id) {
            continue;
        }
        let campaign = match rows.campaign(id) {
            Err(error) if error.is_of_rows() => continue,
            other => other?,
        };
        let runs = campaign.is_some_and(|campaign| campaign.state == CampaignState::Running);
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

/// The campaign of a name, or of a number if no name is the same.
///
/// # Errors
/// A fault of code not-found if there is none, and those of the store.
pub fn campaign_named(rows: &mut dyn Rows, text: &str) -> Result<Option<Campaign>, JobsError> {
    if let Some(found) = rows.campaigns()?.into_iter().find(|campaign| campaign.name == text) {
        return Ok(Some(found));
    }
    match text.parse() {
        Ok(number) => rows.campaign(CampaignId(number)),
        Err(_) => Ok(None),
    }
}
