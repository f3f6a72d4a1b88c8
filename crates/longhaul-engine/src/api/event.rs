//! Events of a run while it goes on, as its observer hears them.
//!
//! In: from the session loops and the client. Out: to an [`Observer`]. Plain data.

use std::fmt;
use std::time::Duration;

use longhaul_core::{ChunkSize, Fault, PlainText, RelPath, Sums};
use longhaul_disk::SyncMethod;
use longhaul_net::Protection;
use longhaul_proto::wire::message::{self, Limit};
use serde::{Deserialize, Serialize};

use super::{FilesAtRisk, LanesTuned, MetadataLoss, RoadFigures, TargetFigures};

/// Hears events while the engine works. It is called from the session loop, and must return
/// quickly.
pub trait Observer: Send + Sync {
    /// Hears one event.
    fn event(&self, event: Event);

    /// Hears about once a second how many lanes run. By default it does not care.
    fn lanes(&self, _count: u32) {}

    /// Hears that a destination keeps the claim by which the transfer publishes, at each session of
    /// it. By default it does not care.
    fn claim_kept(&self) {}
}

/// One thing that happened. Kinds of events may be added.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// The first session stands, and the first of its lanes has joined, or none was needed.
    Start(Start),
    /// About once a second.
    Progress(Progress),
    /// A name of the transfer is settled.
    File(FileEvent),
    /// Something in a source tree that is never sent (a fifo, a socket, a device, a reserved name);
    /// no failure.
    Skipped {
        /// Where it lies in the transfer: bytes, as a reserved name is no path that could travel.
        path: Vec<u8>,
        /// Where it would go.
        placed: Vec<u8>,
        /// Why it is not sent.
        reason: SkipReason,
        /// All of that for people.
        message: String,
    },
    /// The session is lost; another will be dialled.
    Redial(Redial),
    /// Another session stands in its place: its id, hex.
    Redialled(String),
    /// About once a second, where this side sends and knows it: what the session did to its path
    /// since the last time.
    Road(RoadFigures),
    /// About once a second, where there are several paths: what each has carried.
    Paths(Vec<PathFigures>),
    /// About once a second, where this side receives into several targets: how each does.
    Targets(Vec<TargetFigures>),
    /// A target of this side failed on which files were committed.
    AtRisk(FilesAtRisk),
    /// At the end of the run, once for each side, kind and reason: metadata that was to be carried
    /// over and could not be kept.
    NotKept(MetadataLoss),
    /// This side sends, and has changed its lanes, or decided not to; or it dials, and found that
    /// large packets do not pass.
    Lanes(LanesTuned),
    /// The initiator of a third-party copy leaves, and the order of this name, hex, goes on without
    /// it.
    Left(String),
    /// The number of names of a third-party copy that did not fail and have no event, as their
    /// events would have come too slowly. The report counts them.
    Unheard(u64),
    /// Something went wrong; the run may go on (a file) or end (its report then carries the same
    /// fault).
    Fault(Fault),
}

/// The reason why a name of the source is not sent though nothing failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SkipReason {
    /// Longhaul keeps names like it for itself.
    ReservedName,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
    /// A symbolic link, and links are not carried over.
    SymbolicLink,
    /// A kind of thing that this build does not know.
    UnknownKind,
    /// The other side's own words.
    Other(PlainText),
}

impl SkipReason {
    /// The reason that a scan words like this.
    pub(crate) fn of(words: &str) -> SkipReason {
        let kinds = [
            SkipReason::Fifo,
            SkipReason::Socket,
            SkipReason::Device,
            SkipReason::SymbolicLink,
            SkipReason::UnknownKind,
        ];
        kinds.into_iter().find(|kind| kind.name() == words).unwrap_or_else(|| SkipReason::Other(PlainText::from(words)))
    }

    /// Its name, for people and scripts. Empty for words of the other side, which only the display
    /// has.
    pub const fn name(&self) -> &'static str {
        match self {
            SkipReason::ReservedName => "reserved name",
            SkipReason::Fifo => "fifo",
            SkipReason::Socket => "socket",
            SkipReason::Device => "device",
            SkipReason::SymbolicLink => "symbolic link",
            SkipReason::UnknownKind => "unknown",
            SkipReason::Other(_) => "",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SkipReason::Other(words) => words.fmt(f),
            kind => f.write_str(kind.name()),
        }
    }
}

/// Facts of a session that stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The session's id, hex.
    pub session: String,
    /// Which way the data goes.
    pub direction: Direction,
    /// The kind of lane that the session begins with.
    pub transport: LaneKind,
    /// Protection of the lanes.
    pub protect: Protection,
    /// Lanes that it begins with: joined, or being dialled.
    pub lanes: u32,
    /// Chunk size.
    pub chunk: ChunkSize,
    /// The lanes' congestion control as the kernel reports it; `-` where there is none, or no lane
    /// was needed.
    pub congestion: String,
    /// How the receiving side makes small files and names durable. `None`: it keeps nothing, or
    /// does not say.
    pub sync: Option<SyncMethod>,
    /// Facts that a person should know and would not guess.
    pub notes: Vec<StartNote>,
}

/// A fact of a session that a person would not guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartNote {
    /// Fewer lanes than were asked for: more do not fit the memory or the limits of one side.
    FewerLanes {
        /// Lanes that there are.
        lanes: u32,
        /// Lanes that were asked for.
        wanted: u32,
    },
    /// The lanes cross a network and are verified but not encrypted.
    NotEncrypted,
    /// The lanes are not encrypted, and stay within this process.
    WithinProcess,
    /// The source is a stream, which this process alone can go on with.
    ReadOnce,
    /// Data goes through the ssh session until there is a direct way.
    OverSsh,
}

/// The way of a transfer, as its initiator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Direction {
    /// From this host to a daemon.
    Push,
    /// From a daemon to this host.
    Pull,
    /// Between two local directories.
    Copy,
    /// From one daemon to another.
    ThirdParty,
}

impl Direction {
    /// Its name, for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Push => "push",
            Direction::Pull => "pull",
            Direction::Copy => "copy",
            Direction::ThirdParty => "third-party",
        }
    }
}

/// A kind of lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LaneKind {
    /// A TCP connection.
    Tcp,
    /// A QUIC connection.
    Quic,
    /// A pair of sockets within this process.
    Pair,
    /// A connection inside an ssh session.
    Ssh,
    /// Datagrams of this program's own making.
    Udp,
}

impl LaneKind {
    /// Its name, for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            LaneKind::Tcp => "tcp",
            LaneKind::Quic => "quic",
            LaneKind::Pair => "pair",
            LaneKind::Ssh => "ssh",
            LaneKind::Udp => "udp",
        }
    }
}

/// The figures of one path so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The cost of the ssh sessions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SshFigures {
    /// Bytes that went through ssh in both directions: messages, and the data of lanes that had no
    /// way beside it.
    pub bytes: u64,
    /// CPU seconds of its processes on this host. `None` where it is not known. The cost of a
    /// process that several connections share (`ControlMaster`), or of a jump host, is not in it.
    pub cpu_s: Option<f64>,
}

/// A lost session that is to be dialled again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Redial {
    /// The fault by which it was lost.
    pub fault: Fault,
    /// The wait before the next dial.
    pub wait: Duration,
}

/// The counters of a transfer, never mixed. Zero where this side cannot know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
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
    /// Bytes of the files that are at the receiver: what earlier runs brought, what arrived in this
    /// one, and holes. At least `bytes_durable`.
    pub bytes_arrived: u64,
    /// Bytes among `bytes_arrived` that were not sent in this run: earlier runs brought them, or
    /// they stood at the destination.
    pub bytes_resumed: u64,
    /// Verified and synced, those of earlier runs with them.
    pub bytes_durable: u64,
    /// Under their final names.
    pub bytes_committed: u64,
    /// Bytes of files that were skipped or failed: they will not come.
    pub bytes_done_without: u64,
    /// Files and links that were skipped or failed.
    pub files_done_without: u64,
    /// The part that limited the last second, as far as known.
    pub limited_by: Option<Limited>,
    /// Seconds since the other side was last heard of.
    pub silent_s: f64,
    /// Bytes of skipped files that were read at the destination for their roots
    /// ([`Settings::digests`](super::Settings::digests)).
    pub bytes_digested: u64,
}

/// A settled name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileEvent {
    /// Its path beneath the destination as the sender named it.
    pub path: RelPath,
    /// Where it stands at the destination (the mapping applied).
    pub placed: RelPath,
    /// The outcome.
    pub status: FileStatus,
    /// Its length; 0 if it would become another name of a file (`--dry-run`).
    pub bytes: u64,
    /// Its BLAKE3, when it was sent.
    pub b3: Option<[u8; 32]>,
    /// Whether it is a regular file (else a symlink, a directory, a special file).
    pub regular: bool,
    /// Whether the one source took the destination's name: `placed` then begins in the directory
    /// that holds the destination, not in the destination.
    pub renamed: bool,
    /// Facts that only this side knows.
    #[serde(default)]
    pub own: OwnFacts,
    /// The further checksums that were asked for, of the bytes that the receiver wrote. Empty where
    /// the file was not sent, or its outcome was lost with a connection.
    #[serde(default)]
    pub sums: Sums,
}

/// Facts of a settled name that only the side knows which reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnFacts {
    /// This side receives, and something stood under the name when it was committed.
    pub replaced: bool,
    /// Something stood under the name when it was committed. `None`: this side sends, and the other
    /// one does not say.
    #[serde(default)]
    pub stood: Option<bool>,
    /// This side sends, and read it from here: the path as messages show it. At a daemon it begins
    /// with the name of the root.
    pub source: Option<Vec<u8>>,
}

/// The outcome of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileStatus {
    /// Under its final name, durable.
    Committed,
    /// Whole and durable where the files of a dataset are staged: it gets its name when all of them
    /// do, at the end.
    Staged,
    /// The destination has it already.
    Skipped,
    /// Under its final name, durable, or staged, as another name (hard link) of a file that was
    /// sent or stood: it has no bytes of its own.
    Linked,
    /// Would be sent (`--dry-run`).
    Planned,
    /// Not sent, and why.
    Failed(Fault),
}

/// A part of the path from disk to disk that limited.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limited {
    /// The part.
    pub by: Limit,
    /// For how much of the time, 0 to 1.
    pub share: f64,
}

impl From<message::Limited> for Limited {
    fn from(limited: message::Limited) -> Limited {
        Limited { by: limited.by, share: limited.share() }
    }
}

impl From<(Limit, f64)> for Limited {
    fn from((limit, share): (Limit, f64)) -> Limited {
        Limited { by: limit, share }
    }
}
