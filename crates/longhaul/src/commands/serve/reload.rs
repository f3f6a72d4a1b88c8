//! Reads the configuration of a running daemon again, and has the daemon serve it: all of it or
//! nothing.
//!
//! In: SIGHUP, and the wish of an administrator. Out: the engine's reload, and a line in the log
//! that says what has changed, or what is wrong. What cannot change while the daemon runs
//! (`listen`, the identity, the socket of the administrator, `state`, `[watch]`, the user and what
//! it reaches) is an error.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_engine::{Changes, Reloaded, ServiceHandle};
use longhaul_net::{NetError, PublicKey};
use tokio::sync::Notify;

use crate::admin::place;
use crate::audit::AuditFile;
use crate::config::{CommandLineRoot, Confinement, Daemon, MoverConfig, Watching};
use crate::confine::Confined;
use crate::error::Error;
use crate::keys;
use crate::notify;
use crate::output;

/// The origin of a daemon's configuration, and the bounds of its changes.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    /// The config file. `None`: the command line alone.
    pub(super) config: Option<PathBuf>,
    /// The roots of the command line.
    pub(super) roots: Vec<CommandLineRoot>,
    /// The part of it that cannot change.
    pub(super) fixed: Fixed,
    /// The confinement of this process.
    pub(super) confined: Arc<Confined>,
}

/// The part of its configuration that a running daemon keeps.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    /// The file of the identity that the daemon runs with.
    pub(super) identity: PathBuf,
    /// The file of an identity that the config does not name.
    pub(super) identity_default: Option<PathBuf>,
    /// The powers that it gave up.
    pub(super) confinement: Confinement,
    /// The socket that the command line names.
    pub(super) socket_named: Option<PathBuf>,
    /// The socket of the administrator. `None`: there is none.
    pub(super) socket: Option<PathBuf>,
    /// Its `[watch]`.
    pub(super) watching: Watching,
    /// Its `[mover]`.
    pub(super) mover: Option<MoverConfig>,
    /// The directory for data of the whole daemon. `None`: there is none.
    pub(super) state: Option<PathBuf>,
}

/// Reloads a running daemon.
pub(super) struct Reloader {
    sources: Sources,
    key: PublicKey,
    service: ServiceHandle,
    audit: Option<AuditFile>,
}

impl Reloader {
    /// For a daemon that runs with this key.
    pub(super) fn new(
        sources: Sources,
        key: PublicKey,
        service: ServiceHandle,
        audit: Option<AuditFile>,
    ) -> Arc<Reloader> {
        Arc::new(Reloader { sources, key, service, audit })
    }

    /// The running daemon.
    pub(super) fn service(&self) -> &ServiceHandle {
        &self.service
    }

    /// Its config file, if there is one.
    pub(super) fn config(&self) -> Option<&Path> {
        self.sources.config.as_deref()
    }

    /// Reloads whenever SIGHUP asks for it.
    pub(super) async fn reload_when_asked(self: Arc<Self>, asked: Arc<Notify>) {
        loop {
            asked.notified().await;
            notify::reloading();
            // Whatever the configuration says: the old file may have been moved away.
            self.audit.iter().for_each(AuditFile::reopen);
            // The log tells how it went; the manager waits for the end of it either way.
            let _ = self.reload("SIGHUP").await;
            notify::ready("serving");
        }
    }

    /// Reads the configuration, checks all of it, and has the daemon serve it. `why` is the first
    /// word of the line in the log.
    pub(super) async fn reload(&self, why: &'static str) -> Result<Reloaded, Fault> {
        match self.try_reload().await {
            Ok(reloaded) => {
                let changes = changes(&reloaded);
                let changes = if changes.is_empty() { "nothing has changed".to_owned() } else { changes.join("; ") };
                tracing::info!(target: "longhaul::serve", "{why}: the configuration is loaded: {}", output::clean(&changes));
                Ok(reloaded)
            }
            Err(fault) => {
                let hint = fault.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
                let said = format!("{fault}{hint}");
                tracing::error!(
                    target: "longhaul::serve",
                    "{why}: the configuration is not loaded, and everything stays as it was: {}",
                    output::clean(&said)
                );
                Err(fault)
            }
        }
    }

    async fn try_reload(&self) -> Result<Reloaded, Fault> {
        let (sources, key) = (self.sources.clone(), self.key);
        // Files are read there, and a file system may hang.
        let read = tokio::task::spawn_blocking(move || read(&sources, &key)).await;
        let daemon = read.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))??;
        self.service.reload(daemon.config).await
    }
}

/// Reads the configuration and checks what can be checked before roots are opened.
fn read(sources: &Sources, key: &PublicKey) -> Result<Daemon, Fault> {
    let daemon = Daemon::load(sources.config.as_deref(), sources.roots.clone())?;
    let fixed = &sources.fixed;
    let identity = daemon.identity.as_ref().or(fixed.identity_default.as_ref());
    if identity != Some(&fixed.identity) {
        let now = fixed.identity.display();
        return Err(keeps(format_args!("its identity ({now}), and 'identity' is another one")));
    }
    let socket = place(fixed.socket_named.clone(), daemon.admin_socket.as_deref(), daemon.state.as_deref());
    if socket != fixed.socket {
        return Err(keeps(format_args!("its socket, and 'state' or 'admin_socket' is another one")));
    }
    if daemon.confinement != fixed.confinement {
        return Err(keeps(format_args!(
            "its user and its confinement, and 'user', 'confine', 'reload_beneath' or 'dial' is another one"
        )));
    }
    if daemon.watching != fixed.watching {
        return Err(keeps(format_args!("its logs and its HTTP listener, and [watch] says otherwise")));
    }
    if daemon.mover != fixed.mover {
        return Err(keeps(format_args!("its mover, and [mover] says otherwise")));
    }
    if daemon.state != fixed.state {
        return Err(keeps(format_args!("its directory of state, and 'state' is another one")));
    }
    need_same_key(fixed, key)?;
    sources.confined.admit(&daemon.config)?;
    let files: Vec<&Path> = sources.config.as_deref().into_iter().chain([fixed.identity.as_path()]).collect();
    for doubt in daemon.doubts(&files) {
        tracing::warn!(target: "longhaul::serve", "{}", output::clean(&doubt));
    }
    Ok(daemon)
}

/// Refuses another key in the file of the identity. Where the file is root's alone, and the daemon
/// is not root any more, it cannot tell, and keeps its key as ever.
fn need_same_key(fixed: &Fixed, key: &PublicKey) -> Result<(), Fault> {
    let stands = match keys::load(&fixed.identity) {
        Err(Error::Net(NetError::KeyFile { source, .. }))
            if fixed.confinement.user.is_some() && source.kind() == io::ErrorKind::PermissionDenied =>
        {
            return Ok(());
        }
        loaded => loaded?.public(),
    };
    if stands == *key {
        return Ok(());
    }
    Err(keeps(format_args!("its key, and the one in {} is another: {stands}", fixed.identity.display())))
}

/// The fault of a change that needs a start.
fn keeps(what: std::fmt::Arguments<'_>) -> Fault {
    Fault::new(FaultCode::Usage, Blame::Local, format_args!("a running daemon keeps {what}"))
        .hint(hint::Daemon::StartAgain)
}

/// The changes in words, one for each kind.
pub(super) fn changes(reloaded: &Reloaded) -> Vec<String> {
    let mut said = Vec::new();
    for (Changes { added, removed, changed }, of) in [(&reloaded.roots, "roots"), (&reloaded.clients, "clients")] {
        for (names, how) in [(added, "new"), (removed, "removed"), (changed, "changed")] {
            if !names.is_empty() {
                said.push(format!("{how} {of}: {}", listed(names)));
            }
        }
    }
    if !reloaded.ended.is_empty() {
        let count = output::count(reloaded.ended.len() as u64, "session");
        said.push(format!("ended as denied: {count} ({})", listed(&reloaded.ended)));
    }
    said
}

/// The first of some names, and the number of the others.
fn listed(names: &[String]) -> String {
    let first = names[..names.len().min(NAMES_TOLD_MAX)].join(", ");
    let more = names.len().saturating_sub(NAMES_TOLD_MAX);
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// Names of one kind that a line has.
const NAMES_TOLD_MAX: usize = 20;
