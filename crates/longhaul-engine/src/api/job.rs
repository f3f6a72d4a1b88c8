//! A transfer to run: its sources, its destination, and the daemon at the far end.
//!
//! In: from the command line or a library user. Out: to `client`. Plain data that may be written
//! down, but for [`Credentials`]: the key of this side, and [`Trust`], which its maker answers.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::{DatasetName, DatasetPart, Escaped, Fault, RelPath, ShardClaim, Word};
use longhaul_disk::{StreamShape, StreamSpec, SumsCatalogue, TargetDirs};
use longhaul_net::{Identity, PublicKey};
use serde::{Deserialize, Serialize};

use super::{ExpectedFiles, PathMemory};

/// A transfer to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Where the bytes come from.
    pub from: JobSource,
    /// Where they go.
    pub to: JobDestination,
    /// The claim by which a mover moves a shard: the destination publishes only as long as it keeps
    /// no newer one. `None`: no claim is needed.
    #[serde(default)]
    pub claim: Option<ShardClaim>,
    /// The files that are expected of sources on this host. One that is another file when it is
    /// scanned is not sent. `None`: any may go. A destination on this host has a list of its own.
    /// Between two daemons it goes with the names of the settings, and the one that receives
    /// refuses other files.
    #[serde(default)]
    pub expected: Option<Arc<ExpectedFiles>>,
    /// The name under which all files appear together, in the directory that the destination names;
    /// or none of them does. `None`: each file appears when it is done.
    #[serde(default)]
    pub dataset: Option<DatasetName>,
    /// The part of a campaign's dataset that the job brings; the campaign is that of its claim.
    /// `None`: all of it.
    #[serde(default)]
    pub part: Option<DatasetPart>,
    /// Until when a copy from one daemon to another is followed. Nothing else can be left.
    #[serde(default)]
    pub following: Following,
    /// The daemon that dials the other one in a copy between two.
    #[serde(default)]
    pub dialler: Dialler,
}

/// The daemon that dials the other one in a copy from one to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialler {
    /// The destination's, which fetches.
    #[default]
    Destination,
    /// The sources', which sends.
    Source,
}

/// Until when the initiator of a copy from one daemon to another follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Following {
    /// To its end: if the initiator ends before, so does the copy.
    #[default]
    ToTheEnd,
    /// Until a session of it stands; it then goes on without the initiator.
    UntilItRuns,
    /// No copy is begun. An earlier one of this name, whose initiator left, is waited for.
    Earlier([u8; 16]),
    /// No copy is begun. An earlier one of this name, whose initiator left, is stopped, and its end
    /// waited for.
    Stopping([u8; 16]),
}

impl Following {
    /// Whether it is about a copy that was begun before.
    pub(crate) fn is_of_earlier(self) -> bool {
        self.earlier().is_some()
    }

    /// The name of the copy that was begun before. `None`: one is begun now.
    pub(crate) fn earlier(self) -> Option<[u8; 16]> {
        match self {
            Following::Earlier(id) | Following::Stopping(id) => Some(id),
            Following::ToTheEnd | Following::UntilItRuns => None,
        }
    }
}

impl Job {
    /// Moves bytes from one place to another, without a claim.
    pub fn between(from: JobSource, to: JobDestination) -> Job {
        let (following, dialler) = (Following::default(), Dialler::default());
        Job { from, to, claim: None, expected: None, dataset: None, part: None, following, dialler }
    }

    /// The same job by this claim.
    #[must_use]
    pub fn claimed(self, claim: ShardClaim) -> Job {
        Job { claim: Some(claim), ..self }
    }

    /// The same job, whose files appear together under this name.
    #[must_use]
    pub fn as_dataset(self, name: DatasetName) -> Job {
        Job { dataset: Some(name), ..self }
    }

    /// The same job, which brings a part of a campaign's dataset: files of a shard, which are
    /// staged. The claim that it needs names the campaign.
    #[must_use]
    pub fn in_part(self, part: DatasetPart) -> Job {
        Job { part: Some(part), ..self }
    }

    /// The same job, which keeps checksums of files that come to this host in this catalogue, where
    /// their file systems do not keep them.
    #[must_use]
    pub fn cataloguing(mut self, catalogue: Option<PathBuf>) -> Job {
        if let JobDestination::Local(dest) = &mut self.to {
            dest.catalogue = catalogue;
        }
        self
    }

    /// Sends sources of this host to a path of a daemon.
    pub fn push(sources: Vec<LocalSource>, daemon: Reach, path: RemotePath) -> Job {
        Job::between(JobSource::Local(sources), JobDestination::Remote(daemon, path))
    }

    /// Has one daemon fetch paths of another.
    pub fn third_party(from: Reach, paths: Vec<RemotePath>, to: Reach, path: RemotePath) -> Job {
        Job::between(JobSource::Remote(from, paths), JobDestination::Remote(to, path))
    }

    /// Fetches paths of a daemon to this host.
    pub fn pull(daemon: Reach, paths: Vec<RemotePath>, destination: LocalDest) -> Job {
        Job::between(JobSource::Remote(daemon, paths), JobDestination::Local(destination))
    }

    /// Copies within this host.
    pub fn copy(sources: Vec<LocalSource>, destination: LocalDest) -> Job {
        Job::between(JobSource::Local(sources), JobDestination::Local(destination))
    }
}

/// The sources of a job: all on one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum JobSource {
    /// Directories and files of this host.
    Local(Vec<LocalSource>),
    /// Paths that one daemon serves.
    Remote(Reach, Vec<RemotePath>),
    /// A stream, read once: one file of a length that nobody knows. What was read cannot be read
    /// again, so that only this process can go on with it.
    Stream(StreamSpec),
}

/// The destination of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum JobDestination {
    /// A path of this host.
    Local(LocalDest),
    /// A path that a daemon serves.
    Remote(Reach, RemotePath),
    /// A place of this host that takes bytes once and in order.
    Stream(StreamDest),
}

/// A destination that is one stream of bytes. It begins anew with each run: nothing of it is
/// continued once anything has left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamDest {
    /// Where the bytes go.
    pub place: StreamPlace,
    /// Their content, and the blocks in which they go.
    pub shape: StreamShape,
}

/// The place to which a stream goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamPlace {
    /// The standard output of this process.
    Stdout,
    /// A character device, block device or fifo.
    Device(PathBuf),
}

/// A source on this host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LocalSource {
    /// As given, without trailing slashes.
    pub path: PathBuf,
    /// Given with a trailing slash: what lies in the directory, not the directory itself.
    pub contents: bool,
    /// The set that `path` lies beneath; it is relative then. `None`: a path of this host.
    #[serde(default)]
    pub set: Option<TargetDirs>,
}

impl LocalSource {
    /// A file, or a directory that goes under its own name.
    pub fn named(path: impl Into<PathBuf>) -> LocalSource {
        LocalSource { path: path.into(), contents: false, set: None }
    }

    /// The content of a directory, without the directory itself.
    pub fn contents(path: impl Into<PathBuf>) -> LocalSource {
        LocalSource { path: path.into(), contents: true, set: None }
    }
}

/// A destination on this host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LocalDest {
    /// As given, without trailing slashes.
    pub path: PathBuf,
    /// Given with a trailing slash: a directory that receives the sources under it.
    pub slash: bool,
    /// The targets over which it is spread; `path` then lies beneath all of them, and is relative.
    /// `None`: it is one directory.
    #[serde(default)]
    pub targets: Option<TargetDirs>,
    /// The files that are expected. One that is another file by now is refused before a byte of it
    /// is written. `None`: any may come.
    #[serde(default)]
    pub expected: Option<Arc<ExpectedFiles>>,
    /// The catalogue of checksums that file systems do not keep with their files. `None`: those are
    /// not kept.
    #[serde(default)]
    pub catalogue: Option<PathBuf>,
}

impl LocalDest {
    /// A directory that receives the sources under it; it is made if it does not stand.
    pub fn directory(path: impl Into<PathBuf>) -> LocalDest {
        LocalDest { path: path.into(), slash: true, targets: None, expected: None, catalogue: None }
    }

    /// The same, ready for use.
    pub(crate) fn catalogue(&self) -> Option<SumsCatalogue> {
        self.catalogue.clone().map(SumsCatalogue::at)
    }
}

/// A path beneath a daemon's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemotePath {
    /// The name of the root.
    pub root: Word,
    /// The path beneath it.
    pub path: RelPath,
    /// Given with a trailing slash.
    pub slash: bool,
}

/// The key of this side and its judge of daemons' keys.
#[derive(Clone)]
pub struct Credentials {
    /// This side's key.
    pub identity: Arc<Identity>,
    /// Decides on the key that the daemon showed, before anything is asked of it. An error ends the
    /// run.
    pub trust: Arc<dyn Trust>,
    /// Keeps what this run finds out about paths, and knows what earlier ones did. `None` for a run
    /// that meets each path for the first time.
    pub memory: Option<Arc<dyn PathMemory>>,
}

/// A daemon, and what this side shows it and asks of it.
#[derive(Clone)]
pub struct Remote {
    /// How its control connection is made.
    pub reach: Reach,
    /// This side's key, and its judge of the daemon's.
    pub credentials: Credentials,
}

/// How a daemon's control connection is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reach {
    /// Over TCP, to a port of a host.
    Address {
        /// Host name or address, without brackets.
        host: String,
        /// Its port (7214 by default).
        port: u16,
    },
    /// By ssh, which starts the daemon there for this one time.
    Ssh(SshHost),
}

/// A host that the user's own ssh leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshHost {
    /// `[user@]host`, as ssh takes it.
    pub host: String,
    /// The words that run ssh, its options among them.
    pub command: Vec<String>,
    /// The words that run longhaul there, as a shell of that host takes them.
    pub remote: String,
    /// The arguments with which it serves the one client behind its standard input and output
    /// ([`crate::serve_pipe`]).
    pub arguments: String,
    /// The argument behind which it takes the first bytes of the client, as a word, ahead of those
    /// that come through its standard input (`PipeConfig::ahead`).
    pub ahead: String,
    /// The argument with which it does nothing but show that it runs.
    pub trial: String,
    /// Whether this very program is put there before.
    pub install: bool,
    /// The ports of which one is listened at, at either end, from and to. `None`: any.
    pub ports: Option<(u16, u16)>,
    /// Paths there, as the user wrote them. [`RemotePath::root`] names them by number.
    pub places: Vec<Vec<u8>>,
}

impl SshHost {
    /// The place that a root stands for. `None` if there is none.
    pub fn place(&self, root: &str) -> Option<&[u8]> {
        self.places.get(root.parse::<usize>().ok()?).map(Vec::as_slice)
    }
}

/// Judges a daemon's key.
pub trait Trust: Send + Sync {
    /// Accepts `key` for `host:port`, or says why not and what to do next.
    ///
    /// # Errors
    /// A [`Fault`] of code [`FaultCode::Denied`](longhaul_core::FaultCode::Denied).
    fn judge(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), Fault>;

    /// Hears a line that ssh, or a program that it started at the other host, says to the user. It
    /// may contain anything.
    fn hear_ssh(&self, _line: &[u8]) {}
}

impl Credentials {
    /// A daemon at which they are used.
    pub fn at(self, reach: Reach) -> Remote {
        Remote { reach, credentials: self }
    }
}

impl Remote {
    /// A path that it serves, as it is written on the command line, escaped.
    pub fn location(&self, path: &RemotePath) -> String {
        let below = if path.path.is_root() { String::new() } else { format!("/{}", path.path.escaped()) };
        let Reach::Ssh(ssh) = &self.reach else { return format!("lh://{}/{}{below}", self.reach, path.root) };
        let place = Escaped(ssh.place(&path.root).unwrap_or_default()).to_string();
        match (place.as_str(), below.strip_prefix('/')) {
            ("", Some(below)) => format!("{}:{below}", ssh.host),
            ("/", Some(below)) => format!("{}:/{below}", ssh.host),
            _ => format!("{}:{place}{below}", ssh.host),
        }
    }
}

/// As a location has it: `host:port`, an IPv6 address in brackets; `[user@]host` of ssh.
impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reach::Address { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Reach::Address { host, port } => write!(f, "{host}:{port}"),
            Reach::Ssh(ssh) => f.write_str(&ssh.host),
        }
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.reach, f)
    }
}
