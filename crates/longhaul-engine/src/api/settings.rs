//! How a transfer is run: its settings with their defaults.
//!
//! In: from the command line or a library user. Out: to `client` and `session`. Plain data.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::filter::Filter;
use longhaul_core::limits::LANE_STALL_SECONDS;
use longhaul_core::{AccountMap, ByteCount, ChunkSize, IfExists, PathList, PathShare, Preserve};
use longhaul_disk::{DirectMode, EngineKind, Pin};
use longhaul_net::{Congestion, NetPath, Protection};
use longhaul_proto::receiver::SyncGroup;
use serde::{Deserialize, Serialize};

use crate::budget::MEMORY_DEFAULT;

/// How to run a transfer. Settings are added now and then: take the rest from the default, as
/// reading does for those that were written down without them.
///
/// ```
/// use longhaul_engine::{Settings, Verify};
///
/// let settings = Settings { verify: Verify::Disk, ..Settings::default() };
/// # let _ = settings;
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Data connections; none begins with a few and finds out while data flows how many carry most.
    pub lanes: Option<u32>,
    /// Protection of the lanes; none is `private` over a network and `safe` between two local
    /// directories.
    pub protect: Option<Protection>,
    /// The transport of the lanes.
    pub transport: Transport,
    /// Congestion control of the lanes.
    pub congestion: Congestion,
    /// Chunk size of the files sent; none is the default, and less where the path is long, so that
    /// all lanes begin and end with something to carry.
    pub chunk: Option<ChunkSize>,
    /// Buffers of this side (both halves when both sides are local).
    pub memory: ByteCount,
    /// Requests in flight per disk; none: each disk gets as many as still pay.
    pub depth: Option<usize>,
    /// Direct or buffered I/O.
    pub io: DirectMode,
    /// I/O engine.
    pub engine: EngineKind,
    /// How far the receiver verifies.
    pub verify: Verify,
    /// The rule for names that stand at the destination.
    pub if_exists: IfExists,
    /// Which metadata to carry over, and how.
    #[serde(flatten)]
    pub metadata: Metadata,
    /// The rules that choose what is sent.
    pub filter: Filter,
    /// Only these names, relative to the one source.
    pub files_from: Option<Arc<PathList>>,
    /// Files that are skipped are read at the destination, for their roots: with
    /// [`FileEvent::b3`](super::FileEvent::b3) of what was sent that is a list of all that stands
    /// there. A daemon that receives does it only for a key with the right to read.
    pub digests: bool,
    /// Show the mapping, move nothing.
    pub dry_run: bool,
    /// For how long after the last progress a lost session is dialled again; zero never. Not
    /// between two local directories.
    pub retry_for: Duration,
    /// A lane that moves nothing for so long, while others do, is given up and replaced.
    pub stall_after: Duration,
    /// The pairs of addresses that lanes run over; none: the route's. For transfers with a daemon.
    pub paths: Vec<NetPath>,
    /// The sender keeps all lanes together below this, bytes/s of payload; none: as fast as it
    /// goes. At least [`RATE_MIN`].
    pub rate: Option<u64>,
    /// The share of the path that the sender takes when others use it too.
    pub share: PathShare,
    /// How much may be written and not durable where this side receives: what a crash may cost.
    pub sync: SyncGroup,
    /// The CPUs that I/O threads and lanes of this side run on.
    pub pin: Pin,
}

impl Settings {
    /// The size of the largest chunk of a file that is begun.
    pub(crate) fn chunk_size(&self) -> ChunkSize {
        self.chunk.unwrap_or(ChunkSize::DEFAULT)
    }
}

/// The metadata that a transfer carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Its kinds.
    pub preserve: Preserve,
    /// The accounts that owners and access lists name at the destination instead of those of the
    /// source.
    pub accounts: AccountMap,
}

impl From<Preserve> for Metadata {
    /// These kinds, with accounts as they are.
    fn from(preserve: Preserve) -> Metadata {
        Metadata { preserve, accounts: AccountMap::default() }
    }
}

/// The transport of the lanes of a transfer with a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// TCP at first; QUIC, if it turns out to carry more.
    #[default]
    Auto,
    /// TCP.
    Tcp,
    /// QUIC, which is always encrypted.
    Quic,
    /// Datagrams of this program's own making, which are always encrypted.
    Udp,
}

impl Default for Settings {
    /// The settings of a transfer for which nothing is asked.
    fn default() -> Settings {
        Settings {
            lanes: None,
            protect: None,
            transport: Transport::Auto,
            congestion: Congestion::Auto,
            chunk: None,
            memory: MEMORY_DEFAULT,
            depth: None,
            io: DirectMode::Auto,
            engine: EngineKind::Auto,
            verify: Verify::Wire,
            if_exists: IfExists::SkipSame,
            metadata: Metadata::default(),
            filter: Filter::default(),
            files_from: None,
            digests: false,
            dry_run: false,
            retry_for: RETRY_FOR_DEFAULT,
            stall_after: Duration::from_secs(LANE_STALL_SECONDS),
            paths: Vec::new(),
            rate: None,
            share: PathShare::Fair,
            sync: SyncGroup::default(),
            pin: Pin::Auto,
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
            Transport::Udp => "udp",
        }
    }
}

/// The lowest rate that a transfer may be given, bytes/s: below it a piece would take longer than a
/// peer may be silent.
pub const RATE_MIN: u64 = 64 << 10;
/// A router restarts, a daemon is upgraded.
const RETRY_FOR_DEFAULT: Duration = Duration::from_secs(600);

/// How far the receiver verifies what it commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verify {
    /// The bytes that arrived, against the sender's digests.
    #[default]
    Wire,
    /// Also what was written: it is read back from the medium after the sync, and compared again.
    /// Costs a read of everything at the receiver, and two more chunks of its memory.
    Disk,
}
