//! A transfer to run: its sources, its destination, and the daemon at the far end.
//!
//! In: from the command line or a library user. Out: to `client`. Plain data, but for [`Trust`],
//! which its maker answers.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::{Fault, RelPath, Word};
use longhaul_net::{Identity, PublicKey};

/// A transfer to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where the bytes come from.
    pub from: JobSource,
    /// Where they go.
    pub to: JobDestination,
}

/// The sources of a job: all on one host.
#[derive(Clone, Debug)]
pub enum JobSource {
    /// Directories and files of this host.
    Local(Vec<LocalSource>),
    /// Paths that one daemon serves.
    Remote(Remote, Vec<RemotePath>),
}

/// The destination of a job.
#[derive(Clone, Debug)]
pub enum JobDestination {
    /// A path of this host.
    Local(LocalDest),
    /// A path that a daemon serves.
    Remote(Remote, RemotePath),
}

/// A source on this host.
#[derive(Clone, Debug)]
pub struct LocalSource {
    /// As given, without trailing slashes.
    pub path: PathBuf,
    /// Given with a trailing slash: what lies in the directory, not the directory itself.
    pub contents: bool,
}

/// A destination on this host.
#[derive(Clone, Debug)]
pub struct LocalDest {
    /// As given, without trailing slashes.
    pub path: PathBuf,
    /// Given with a trailing slash: a directory that receives the sources under it.
    pub slash: bool,
}

/// A path beneath a daemon's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePath {
    /// The name of the root.
    pub root: Word,
    /// The path beneath it.
    pub path: RelPath,
    /// Given with a trailing slash.
    pub slash: bool,
}

/// A daemon and how to trust it.
#[derive(Clone)]
pub struct Remote {
    /// How its control connection is made.
    pub reach: Reach,
    /// This side's key.
    pub identity: Arc<Identity>,
    /// Decides on the key that the daemon showed, before anything is asked of it. An error ends the
    /// run.
    pub trust: Arc<dyn Trust>,
}

/// How a daemon's control connection is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// Over TCP, to a port of a host.
    Address {
        /// Host name or address, without brackets.
        host: String,
        /// Its port (7214 by default).
        port: u16,
    },
}

/// Judges a daemon's key.
pub trait Trust: Send + Sync {
    /// Accepts `key` for `host:port`, or says why not and what to do next.
    ///
    /// # Errors
    /// A [`Fault`] of code [`FaultCode::Denied`](longhaul_core::FaultCode::Denied).
    fn judge(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), Fault>;
}

impl Remote {
    /// A path that it serves, as it is written on the command line, escaped.
    pub fn location(&self, path: &RemotePath) -> String {
        let below = if path.path.is_root() { String::new() } else { format!("/{}", path.path.escaped()) };
        format!("lh://{}/{}{below}", self.reach, path.root)
    }
}

/// As a location has it: `host:port`, an IPv6 address in brackets.
impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reach::Address { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Reach::Address { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.reach, f)
    }
}
