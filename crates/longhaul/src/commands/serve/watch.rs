//! Has what tells of a running daemon: its audit log, and the HTTP listener of whoever watches.
//!
//! In: `[watch]` of the configuration. Out: both, begun before the daemon starts, as that may take
//! long, and ended after it. It knows no request and no record.

use std::sync::Arc;

use longhaul_engine::{AuditLog, Service};
use tokio::task::JoinHandle;

use crate::admin;
use crate::audit::{self, AuditFile, AuditWriter, Losses};
use crate::config::{HttpPlace, Watching};
use crate::error::Error;
use crate::watch::{HttpListener, Watched, serve};

/// The audit log and the listener of a daemon.
pub(super) struct WatchParts {
    audit: Option<(AuditFile, AuditWriter)>,
    watched: Watched,
    listening: Option<JoinHandle<()>>,
}

impl WatchParts {
    /// Opens the audit log, and begins to answer over HTTP.
    ///
    /// # Errors
    /// The error of either.
    pub(super) async fn begin(watching: &Watching) -> Result<WatchParts, Error> {
        let Watching { audit, audit_required, http, http_hosts, .. } = watching;
        let losses = if *audit_required { Losses::Never } else { Losses::Counted };
        let audit = audit.as_deref().map(|path| AuditFile::open(path, losses)).transpose()?;
        let log = audit.as_ref().map(|(log, _)| log.clone());
        let watched = Watched::starting(log, http_hosts.clone());
        let mut listening = None;
        if let Some(place) = http {
            let listener = HttpListener::bind(place).await?;
            match (listener.address(), place) {
                (Some(address), _) => tracing::info!(target: "longhaul::serve", "watched over HTTP at {address}"),
                (None, HttpPlace::Socket(path)) => {
                    tracing::info!(target: "longhaul::serve", "watched over HTTP at unix:{}", path.display());
                }
                (None, HttpPlace::Address(_)) => {}
            }
            listening = Some(tokio::spawn(serve(listener, watched.clone())));
        }
        Ok(WatchParts { audit, watched, listening })
    }

    /// The audit log.
    pub(super) fn log(&self) -> Option<AuditFile> {
        self.audit.as_ref().map(|(log, _)| log.clone())
    }

    /// The same, as the engine takes it.
    pub(super) fn audit(&self) -> Option<Arc<dyn AuditLog>> {
        self.log().map(|log| Arc::new(log) as Arc<dyn AuditLog>)
    }

    /// The daemon runs.
    pub(super) fn runs(&self, service: &Service) {
        self.watched.runs(service.handle(), service.liveness());
    }

    /// Ends both. The last records are written then, if they can be.
    pub(super) async fn end(self) {
        if let Some(listening) = self.listening {
            listening.abort();
            // Its socket goes with it.
            let _ = listening.await;
        }
        if let Some((_, writer)) = self.audit {
            let _ = tokio::task::spawn_blocking(move || writer.close()).await;
        }
    }
}

impl Watching {
    /// Looks whether all of it could be begun. Makes nothing.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(path) = &self.audit {
            audit::check(path)?;
        }
        match &self.http {
            Some(HttpPlace::Socket(path)) => admin::check(path),
            _ => Ok(()),
        }
    }
}
