//! What is said before a session stands: hello, welcome, lanes.
//!
//! Plain data; who says it when is written at [`Message`](super::Message).

use serde::{Deserialize, Serialize};

use longhaul_core::filter::Rule;
use longhaul_core::{ChunkSize, IfExists, LaneId, Preserve, RelPath, Role, Word};

/// The first message of a session, from its initiator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest version spoken.
    pub version_min: u16,
    /// Newest version spoken.
    pub version_max: u16,
    /// Capability bits; none is defined in version 1.
    pub caps: u64,
    /// What is asked for.
    pub request: Request,
}

/// Bit of [`Welcome::caps`]: this receiver makes small files and names durable with their whole
/// file system.
pub const CAP_SYNCS_FILE_SYSTEM: u64 = 1;
/// Bit of [`Welcome::caps`]: it syncs each of them by itself.
pub const CAP_SYNCS_EACH: u64 = 2;
/// Bit of [`Welcome::caps`]: the one source of this sender is a directory, which keeps its name
/// beneath the destination.
pub const CAP_SOURCE_DIRECTORY: u64 = 4;

/// What an initiator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// To transfer files.
    Transfer(Box<Transfer>),
    /// To list the roots that this key may see.
    Roots,
    /// To list what stands at a path.
    List {
        /// Name of the root.
        root: Word,
        /// Path beneath it.
        path: RelPath,
    },
    /// To list what is left of this key's unfinished files, at a path and anywhere beneath it.
    Partials {
        /// Name of the root.
        root: Word,
        /// Path beneath it.
        path: RelPath,
    },
}

/// A transfer as its initiator wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The role of the side that says this, stated apart from who dialled.
    pub role: Role,
    /// Whether the side that says this began the session.
    pub initiator: bool,
    /// Protection of the lanes; the other side agrees or refuses.
    pub protect: Protect,
    /// Chunk size for files that have no partial yet.
    pub chunk: ChunkSize,
    /// The largest chunk that may come, as partials keep their chunk size: what this side's buffers
    /// can hold if it sends, what its partials need if it receives. Never smaller than `chunk`.
    pub chunk_max: ChunkSize,
    /// Lanes wanted; fewer may be granted.
    pub lanes: u32,
    /// Which metadata is carried over.
    pub preserve: Preserve,
    /// Show what would be done, touch nothing.
    pub dry_run: bool,
    /// Reserved: the dataset that commits as a whole. 0 = each file commits alone; nothing else is
    /// understood yet.
    pub set: u64,
    /// The far end of the transfer.
    pub far: Far,
    /// Drawn at random for each run of a command, the same each time it dials: who shows it may
    /// take over from the run's own earlier session. Zeros: it never will.
    pub run: [u8; 16],
    /// The receiver reads everything back from its disks and compares it before it commits.
    pub read_back: bool,
    /// How the data may flow.
    pub flow: Flow,
    /// The receiver reads the files that it skips and says their roots.
    pub digests: bool,
}

/// How the data of a transfer may flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Lanes that the sender may come to use at a time, if it finds that more carry more; as many
    /// as at first, or fewer: it does not look.
    pub lanes_max: u32,
    /// The congestion control that a sending acceptor shall use, by its name in the kernel, at most
    /// 15 bytes; empty: it chooses.
    pub congestion: Word,
    /// The sender keeps all lanes together below this, bytes/s; 0: there is no such rate.
    pub rate: u64,
    /// What lanes run over at first.
    pub transport: Transport,
    /// Whether the sender may have them run over another later, if it finds that this carries more.
    pub choose: bool,
}

/// What a lane runs over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// TCP, with or without TLS inside.
    #[default]
    Tcp,
    /// QUIC, at the UDP port of the same number.
    Quic,
}

/// The part of a transfer that lies at the acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Far {
    /// The acceptor receives.
    Destination {
        /// Name of its root.
        root: Word,
        /// Path beneath it.
        path: RelPath,
        /// How sources are placed there.
        placing: Placing,
        /// What to do with names that stand there.
        if_exists: IfExists,
    },
    /// The acceptor sends.
    Sources {
        /// What to send.
        sources: Vec<FarSource>,
        /// Which of it, in order; the first match decides.
        rules: Vec<Rule>,
        /// What of the request follows the hello.
        follows: Follows,
    },
    /// The acceptor has no disk in it: it makes up one file to send, or keeps nothing of the one
    /// that it receives.
    Memory {
        /// The file's length at most.
        bytes: u64,
        /// The sender reads nothing more of it after so long, and says then that it cannot be sent;
        /// 0: it is sent whole.
        millis: u32,
    },
}

/// What of a pull's request does not stand in its hello and follows it, in [`RequestPart`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Follows {
    /// Nothing.
    #[default]
    Nothing,
    /// Further sources.
    Sources,
    /// The names that are wanted beneath the one source, and no others.
    Names,
}

/// A part of a request that is too long for one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestPart {
    /// Further sources, at most [`SOURCES_MAX`](longhaul_core::limits::SOURCES_MAX).
    pub sources: Vec<FarSource>,
    /// Names beneath the one source, as a [`PathList`](longhaul_core::PathList) has them: each
    /// followed by a NUL, in order; at most
    /// [`PAGE_BYTES_MAX`](longhaul_core::limits::PAGE_BYTES_MAX).
    pub names: Vec<u8>,
    /// Whether no part follows.
    pub last: bool,
}

/// A source at the acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarSource {
    /// Name of its root.
    pub root: Word,
    /// Path beneath it.
    pub path: RelPath,
    /// What lies in the directory, not the directory itself.
    pub contents: bool,
}

/// How the sources of a transfer are placed at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placing {
    /// Beneath the destination, which is made if it is missing.
    Beneath,
    /// Beneath it if it is a directory; else the one source, which is a file or a link, takes its
    /// name.
    BeneathIfDir,
    /// The one source takes its name, whatever stands there: what an earlier session of the same
    /// run has made of [`Placing::BeneathIfDir`].
    Named,
}

/// Protection of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protect {
    /// Encrypted.
    Private,
    /// Not encrypted; verified.
    Safe,
}

/// The acceptor's agreement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that both speak from here on.
    pub version: u16,
    /// Bits that say what the acceptor does and has: [`CAP_SYNCS_FILE_SYSTEM`], [`CAP_SYNCS_EACH`],
    /// [`CAP_SOURCE_DIRECTORY`]; unknown ones mean nothing.
    pub caps: u64,
    /// The session's id.
    pub session: [u8; 16],
    /// The chunk size agreed.
    pub chunk: ChunkSize,
    /// The size of a buffer: no chunk of the session is larger, not even of a file that is
    /// continued.
    pub chunk_max: ChunkSize,
    /// Files up to this length travel in bundles, in bytes.
    pub bundled_max: u64,
    /// Lanes that there may come to be at a time.
    pub lanes_max: u32,
    /// The sender keeps all lanes together below this, bytes/s; 0: there is no such rate.
    pub rate: u64,
    /// The length of the one file of a [`Far::Memory`]; 0 for any other transfer.
    pub memory_bytes: u64,
}

/// How many lanes the sender has use for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneTarget {
    /// So many at a time, from now on.
    pub count: u32,
    /// What those that are added run over.
    pub transport: Transport,
}

/// A rate for the sender to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// All lanes together, bytes/s; 0: none any more.
    pub bytes_per_s: u64,
}

/// A lane that is of no more use to the side that says this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneLost {
    /// The lane.
    pub lane: LaneId,
}

/// The receiver's end of a lane is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneClosed {
    /// The lane.
    pub lane: LaneId,
    /// So many of its units arrived whole and were taken in: those numbered below. No other of it
    /// ever will be.
    pub landed: u64,
}

/// Lane ids that may join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedLanes {
    /// The first id.
    pub first: LaneId,
    /// How many, counting up.
    pub count: u32,
    /// What to dial them over.
    pub transport: Transport,
}
