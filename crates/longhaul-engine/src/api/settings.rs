//! What a program says to the engine and hears from it: jobs, settings, events, reports.
//!
//! In: from the command line or a library user. Out: to `transfer` and `service`. Plain data: no threads, no sockets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::filter::Filter;
use longhaul_core::limits::LANE_STALL_SECONDS;
use longhaul_core::{ByteCount, ChunkSize, Fault, FaultCode, IfExists, PathList, Preserve, RelPath, Word};
use longhaul_disk::{DirectMode, EngineKind, EngineReport};
use longhaul_net::{Congestion, Identity, NetPath, Protection, PublicKey};
use longhaul_proto::receiver::SyncGroup;
use longhaul_proto::wire::message::{self, Limit};
use tokio::sync::watch;

use crate::budget::MEMORY_DEFAULT;

/// A transfer to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where the bytes come from.
    pub from: From,
    /// Where they go.
    pub to: To,
}

/// The sources of a job: all on one host.
#[derive(Clone, Debug)]
pub enum From {
    /// Directories and files of this host.
    Local(Vec<LocalSource>),
    /// Paths that one daemon serves.
    Remote(Remote, Vec<RemotePath>),
}

/// The destination of a job.
#[derive(Clone, Debug)]
pub enum To {
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
    /// Host name or address, without brackets.
    pub host: String,
    /// Its port (7214 by default).
    pub port: u16,
    /// Who we are.
    pub identity: Arc<Identity>,
    /// Decides on the key that the daemon showed, before anything is asked of it. An error ends the run.
    pub trust: Arc<dyn Trust>,
}

/// Judges a daemon's key.
pub trait Trust: Send + Sync {
    /// Accepts `key` for `host:port`, or says why not and what to do next.
    ///
    /// # Errors
    /// A [`Fault`] of code [`FaultCode::Denied`].
    fn judge(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), Fault>;
}

impl Remote {
    /// A path that it serves, as it is written on the command line, escaped.
    pub fn location(&self, path: &RemotePath) -> String {
        let (host, port) = (&self.host, self.port);
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let below = if path.path.is_root() { String::new() } else { format!("/{}", path.path.escaped()) };
        format!("lh://{host}:{port}/{}{below}", path.root)
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How to run a transfer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Data connections; none begins with a few and finds out while data flows how many carry most.
    pub lanes: Option<u32>,
    /// Protection of the lanes; none is `private` over a network and `safe` between two local directories.
    pub protect: Option<Protection>,
    /// What lanes run over.
    pub transport: Transport,
    /// Congestion control of the lanes.
    pub congestion: Congestion,
    /// Chunk size of the files sent.
    pub chunk: ChunkSize,
    /// Buffers of this side (both halves when both sides are local).
    pub memory: ByteCount,
    /// Requests in flight per disk; none chooses.
    pub depth: Option<usize>,
    /// Direct or buffered I/O.
    pub io: DirectMode,
    /// I/O engine.
    pub engine: EngineKind,
    /// How far the receiver verifies.
    pub verify: Verify,
    /// What to do with names that stand at the destination.
    pub if_exists: IfExists,
    /// Which metadata to carry over.
    pub preserve: Preserve,
    /// What to send.
    pub filter: Filter,
    /// Only these names, relative to the one source.
    pub files_from: Option<Arc<PathList>>,
    /// Files that are skipped are read at the destination, for their roots: with [`FileEvent::b3`] of what was sent that is a list
    /// of all that stands there. A daemon that receives does it only for a key with the right to read.
    pub digests: bool,
    /// Show the mapping, move nothing.
    pub dry_run: bool,
    /// For how long after the last progress a lost session is dialled again; zero never. Not between two local directories.
    pub retry_for: Duration,
    /// A lane that moves nothing for so long, while others do, is given up and replaced.
    pub stall_after: Duration,
    /// The pairs of addresses that lanes run over; none: the route's. For transfers with a daemon.
    pub paths: Vec<NetPath>,
    /// The sender keeps all lanes together below this, bytes/s of payload; none: as fast as it goes. At least [`RATE_MIN`].
    pub rate: Option<u64>,
    /// How much may be written and not durable where this side receives: what a crash may cost.
    pub sync: SyncGroup,
}

/// What the lanes of a transfer with a daemon run over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP at first; QUIC, if it turns out to carry more.
    #[default]
    Auto,
    /// TCP.
    Tcp,
    /// QUIC, which is always encrypted.
    Quic,
}

impl Default for Settings {
    /// What a transfer is run with when nothing is asked for.
    fn default() -> Settings {
        Settings {
            lanes: None,
            protect: None,
            transport: Transport::Auto,
            congestion: Congestion::Auto,
            chunk: ChunkSize::DEFAULT,
            memory: MEMORY_DEFAULT,
            depth: None,
            io: DirectMode::Auto,
            engine: EngineKind::Auto,
            verify: Verify::Wire,
            if_exists: IfExists::SkipSame,
            preserve: Preserve::default(),
            filter: Filter::default(),
            files_from: None,
            digests: false,
            dry_run: false,
            retry_for: RETRY_FOR_DEFAULT,
            stall_after: Duration::from_secs(LANE_STALL_SECONDS),
            paths: Vec::new(),
            rate: None,
            sync: SyncGroup::default(),
        }
    }
}

impl Transport {
    /// Its name, for people and scripts.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Tcp => "tcp",
            Transport::Quic => "quic",
        }
    }
}

/// The lowest rate that a transfer may be given, bytes/s: below it a piece would take longer than a peer may be silent.
pub const RATE_MIN: u64 = 64 << 10;
/// A router restarts, a daemon is upgraded.
const RETRY_FOR_DEFAULT: Duration = Duration::from_secs(600);

/// How far the receiver verifies what it commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// What arrived, against the sender's digests.
    #[default]
    Wire,
    /// Also what was written: it is read back from the medium after the sync, and compared again. Costs a read of
    /// everything at the receiver, and two more chunks of its memory.
    Disk,
}

/// What the engine says while it works. Called from its session loop: must return quickly.
pub trait Observer: Send + Sync {
    /// Hears one event.
    fn event(&self, event: Event);
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first session stands, and the first of its lanes has joined, or none was needed.
    Start(Start),
    /// About once a second.
    Progress(Progress),
    /// A name of the transfer is settled.
    File(FileEvent),
    /// Something in a source tree that is never sent (a fifo, a socket, a device, a reserved name); no failure.
    Skipped {
        /// Where it lies in the transfer: bytes, as a reserved name is no path that could travel.
        path: Vec<u8>,
        /// Where it would go.
        placed: Vec<u8>,
        /// What it is.
        reason: String,
        /// All of that for people.
        message: String,
    },
    /// The session is lost; another will be dialled.
    Redial(Redial),
    /// Another session stands in its place: its id, hex.
    Redialled(String),
    /// About once a second, where there are several paths: what each has carried.
    Paths(Vec<PathFigures>),
    /// This side sends, and has changed its lanes, or decided not to; or it dials, and found that large packets do not pass.
    Lanes(LanesTuned),
    /// Something went wrong; the run may go on (a file) or end (its report then carries the same fault).
    Fault(Fault),
}

/// Facts of a session that stands.
#[derive(Clone, Debug)]
pub struct Start {
    /// The session's id, hex.
    pub session: String,
    /// `push`, `pull` or `copy`.
    pub direction: &'static str,
    /// Kind of lane at first: `tcp`, `quic`, or `pair` between two local directories.
    pub transport: &'static str,
    /// Protection of the lanes.
    pub protect: Protection,
    /// Lanes that it begins with: joined, or being dialled.
    pub lanes: u32,
    /// Chunk size.
    pub chunk: ChunkSize,
    /// What the kernel reports as the lanes' congestion control (`-` where there is none, or no lane was needed).
    pub congestion: String,
    /// How the receiving side makes small files and names durable: `syncfs` or `fsync` (of each); none where nothing is kept.
    pub sync: Option<&'static str>,
    /// Facts that a person should know and would not guess: fewer lanes than asked, no encryption, buffered I/O.
    pub notes: Vec<String>,
}

/// What a path has carried so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFigures {
    /// Its addresses, as they were given.
    pub path: String,
    /// Lanes that run over it now.
    pub lanes: u32,
    /// Bytes that its lanes sent and had acknowledged, or received, encryption included.
    pub bytes: u64,
    /// It did not answer when a lane was last dialled over it; it is tried again and again.
    pub is_down: bool,
}

/// What was done about the lanes, and why.
#[derive(Clone, Debug)]
pub struct LanesTuned {
    /// Seconds since the session stood.
    pub seconds: f64,
    /// Lanes that stand now: those that are being added or ended are not yet counted, or still are.
    pub lanes: u32,
    /// `+4`, `-4`, `2 to bbr`, `to segments of 1440 bytes`, or `=`.
    pub change: String,
    /// Why, for people.
    pub reason: String,
}

/// A lost session that is to be dialled again.
#[derive(Clone, Debug)]
pub struct Redial {
    /// What it was lost by.
    pub fault: Fault,
    /// The wait before the next dial.
    pub wait: Duration,
}

/// The counters of a transfer, never mixed. Zero where this side cannot know.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Seconds in which a session stood.
    pub seconds: f64,
    /// When the receiver counted what has arrived, or the sender heard of it; on the same clock.
    pub counted_s: f64,
    /// Files and links known so far; final once `scanned`.
    pub files_total: u64,
    /// Their bytes.
    pub bytes_total: u64,
    /// Whether the scan has ended.
    pub scanned: bool,
    /// Settled as committed.
    pub files_committed: u64,
    /// Payload handed to lanes, pieces of units that are under way among it.
    pub bytes_sent: u64,
    /// Payload that arrived over lanes, pieces of units that are under way among it.
    pub bytes_received: u64,
    /// Bytes of the files that are at the receiver: what earlier runs brought, what arrived in this one, and holes. At least
    /// `bytes_durable`.
    pub bytes_arrived: u64,
    /// Of these, bytes that were not sent in this run: earlier ones brought them, or they stood at the destination.
    pub bytes_resumed: u64,
    /// Verified and synced, those of earlier runs with them.
    pub bytes_durable: u64,
    /// Under their final names.
    pub bytes_committed: u64,
    /// Bytes of files that were skipped or failed: they will not come.
    pub bytes_done_without: u64,
    /// Files and links that were skipped or failed.
    pub files_done_without: u64,
    /// What limited the last second, as far as known.
    pub limited_by: Option<Limited>,
    /// Seconds since the other side was last heard of.
    pub silent_s: f64,
    /// Bytes of skipped files that were read at the destination for their roots ([`Settings::digests`]).
    pub bytes_digested: u64,
}

/// A part of the path from disk to disk that limited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limited {
    /// `source`, `hash`, `cpu`, `network:loss`, `network:window`, `network:rate`, `receiver`, `target` or `memory`.
    pub by: &'static str,
    /// For how much of the time, 0 to 1.
    pub share: f64,
}

impl std::convert::From<message::Limited> for Limited {
    fn from(limited: message::Limited) -> Limited {
        Limited { by: limited.by.name(), share: limited.share() }
    }
}

impl std::convert::From<(Limit, f64)> for Limited {
    fn from((limit, share): (Limit, f64)) -> Limited {
        Limited { by: limit.name(), share }
    }
}

/// A settled name.
#[derive(Clone, Debug)]
pub struct FileEvent {
    /// Its path beneath the destination as the sender named it.
    pub path: RelPath,
    /// Where it stands at the destination (the mapping applied).
    pub placed: RelPath,
    /// What became of it.
    pub status: FileStatus,
    /// Its length.
    pub bytes: u64,
    /// Its BLAKE3, when it was sent.
    pub b3: Option<[u8; 32]>,
    /// Whether it is a regular file (else a symlink, a directory, a special file).
    pub regular: bool,
    /// Whether the one source took the destination's name: `placed` then begins in the directory that holds the destination, not
    /// in the destination.
    pub renamed: bool,
}

/// What became of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileStatus {
    /// Under its final name, durable.
    Committed,
    /// The destination has it already.
    Skipped,
    /// Would be sent (`--dry-run`).
    Planned,
    /// Not sent, and why.
    Failed(Fault),
}

/// The end of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What ended the session early, if anything did.
    pub fault: Option<Fault>,
    /// Files that failed one by one, by code, in the order they failed (the first 1000).
    pub failures: Vec<FaultCode>,
    /// Regular files and links committed.
    pub files_committed: u64,
    /// Skipped, as the destination has them.
    pub files_skipped: u64,
    /// Failed.
    pub files_failed: u64,
    /// Of those, failed only because the source changed or vanished.
    pub files_changed: u64,
    /// Of those, failed by mismatch.
    pub files_mismatched: u64,
    /// Regular files and links that the scan found.
    pub files_total: u64,
    /// Bytes under their final names.
    pub bytes_committed: u64,
    /// Payload that arrived in this run.
    pub bytes_moved: u64,
    /// Bytes of holes that came in this run: nothing of them was sent.
    pub bytes_holes: u64,
    /// Bytes of all files that the scan found, but for those that are there already.
    pub bytes_wanted: u64,
    /// Whether the scan came to its end: else there are more files than were found.
    pub scanned: bool,
    /// Bytes sent again: after a mismatch, over another lane, or in another session.
    pub bytes_resent: u64,
    /// Bytes of files that were received and that were not sent: earlier sessions had brought them, or they stood at the
    /// destination and were copied.
    pub bytes_resumed: u64,
    /// Bytes that lie durable at the destination in files that have not come to their end: the same command goes on with them.
    /// 0 where nothing was left unfinished, or where the destination said nothing of it.
    pub bytes_held: u64,
    /// Bytes that the receiver read back from the medium and compared.
    pub bytes_read_back: u64,
    /// Of these, bytes of chunks and files that were not what had been written.
    pub bytes_misread: u64,
    /// Bytes of skipped files that were read at the destination for their roots ([`Settings::digests`]).
    pub bytes_digested: u64,
    /// Seconds from the first dial to the last commit.
    pub seconds: f64,
    /// CPU seconds of the sending process, where known.
    pub sender_cpu: Option<f64>,
    /// CPU seconds of the receiving process, where known.
    pub receiver_cpu: Option<f64>,
    /// What limited the transfer, with shares of the time in which that is known: the largest first.
    pub limits: Vec<Limited>,
    /// CPU seconds by stage on this side.
    pub stages: Vec<(&'static str, f64)>,
    /// The I/O engine of this side, and what it really did.
    pub io: Option<EngineReport>,
    /// What each of several paths carried; none where there was one.
    pub paths: Vec<PathFigures>,
}

/// Stops a run from outside. Clones watch the same trigger.
#[derive(Clone, Debug)]
pub struct Stop {
    code: watch::Receiver<Option<FaultCode>>,
    also: Option<watch::Receiver<Option<FaultCode>>>,
}

/// Pulls the trigger of a [`Stop`].
#[derive(Clone, Debug)]
pub struct StopTrigger {
    code: Arc<watch::Sender<Option<FaultCode>>>,
}

impl Stop {
    /// A trigger and what it stops.
    pub fn new() -> (StopTrigger, Stop) {
        let (tx, rx) = watch::channel(None);
        (StopTrigger { code: Arc::new(tx) }, Stop { code: rx, also: None })
    }

    /// Stops when either of two plain ones does.
    pub(crate) fn or(self, other: Stop) -> Stop {
        Stop { code: self.code, also: Some(other.code) }
    }

    /// Waits until the run must stop, and says with which code. Never, if the trigger is gone.
    pub(crate) async fn stopped(&mut self) -> FaultCode {
        match &mut self.also {
            None => pulled(&mut self.code).await,
            Some(also) => tokio::select! {
                biased;
                code = pulled(&mut self.code) => code,
                code = pulled(also) => code,
            },
        }
    }
}

async fn pulled(code: &mut watch::Receiver<Option<FaultCode>>) -> FaultCode {
    match code.wait_for(Option::is_some).await.map(|code| *code) {
        Ok(Some(code)) => code,
        _ => std::future::pending().await,
    }
}

impl StopTrigger {
    /// Ends the run with `code`: [`FaultCode::Interrupted`] or [`FaultCode::Terminated`]. The first call counts.
    pub fn stop(&self, code: FaultCode) {
        self.code.send_if_modified(|now| {
            let first = now.is_none();
            if first {
                *now = Some(code);
            }
            first
        });
    }
}
