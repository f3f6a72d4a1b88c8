//! The messages before a session stands: hello, welcome, lanes.
//!
//! Plain data. The sender of each message and its time are written at [`Message`](super::Message).

use serde::{Deserialize, Serialize};

use longhaul_core::filter::Rule;
use longhaul_core::{ChunkSize, IfExists, LaneId, Preserve, RelPath, Role, Word};
pub use longhaul_core::{PathShare, Transport};

/// The first message of a session, from its initiator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest version spoken.
    pub version_min: u16,
    /// Newest version spoken.
    pub version_max: u16,
    /// Bits about the initiator: [`CAP_IN_CHUNKS`], [`CAP_EXACT_CHUNKS`], [`CAP_SHARE_POLITE`],
    /// [`CAP_SHARE_ALL`], [`CAP_KNOWS_SHARED`], [`CAP_UDP_LANES`], [`CAP_UDP_BESIDE_TCP`],
    /// [`CAP_TAKES_UNASKED`](super::CAP_TAKES_UNASKED), [`CAP_CLAIM`], [`CAP_DATASET`],
    /// [`CAP_DATASET_PART`],
    /// [`CAP_LEAVES_QUIC`], [`CAP_REPLACED`], [`CAP_REMOVAL`](super::CAP_REMOVAL),
    /// [`CAP_WHEREABOUTS`](super::CAP_WHEREABOUTS), [`CAP_READING`](super::CAP_READING),
    /// [`CAP_LENDS_CLAIM`](super::CAP_LENDS_CLAIM); unknown ones mean nothing.
    pub caps: u64,
    /// The initiator's request.
    pub request: Request,
}

/// Bit of [`Hello::caps`]: this receiver writes bytes in the order of the files and asks for all of
/// them chunk by chunk. A sender that knows the bit answers with a [`Welcome::bundled_max`] of 0:
/// only files without bytes travel in bundles.
pub const CAP_IN_CHUNKS: u64 = 1;
/// Bit of [`Hello::caps`]: files come in chunks of the agreed size, as its user gave it, and are
/// not cut into smaller ones. A receiver that does not know the bit may cut them.
pub const CAP_EXACT_CHUNKS: u64 = 32;
/// Bit of [`Hello::caps`]: the sender of the session leaves the path to others, as
/// [`PathShare::Polite`].
pub const CAP_SHARE_POLITE: u64 = 64;
/// Bit of [`Hello::caps`]: the sender of the session takes all of the path, as [`PathShare::All`].
/// Without this bit and the one before it takes a fair share.
pub const CAP_SHARE_ALL: u64 = 128;
/// Bit of [`Hello::caps`], where the request names TCP: lanes over UDP are wanted instead. An
/// acceptor that knows the bit has it in its [`Welcome::caps`] and grants such lanes; any other
/// grants lanes over TCP, and the initiator ends the session. So no build is ever asked for a
/// transport that it cannot read.
pub const CAP_UDP_LANES: u64 = 512;

/// Bit of [`Hello::caps`] and of [`Welcome::caps`]: lanes of the session may run over UDP beside
/// others over TCP, and take each other's place. If both sides say so, a [`LaneTarget`] and granted
/// lanes may name UDP where the session began with TCP, and the other way round. So no build is
/// told of a transport that it cannot read.
pub const CAP_UDP_BESIDE_TCP: u64 = 1024;

/// Bit of [`Hello::caps`]: the initiator shows a claim, in a
/// [`ShownClaim`](super::Message::ShownClaim) right behind its hello, and publishes nothing
/// without it. Bit of [`Welcome::caps`]: the acceptor keeps that claim. An older build says no such
/// bit, and the initiator ends the session before it names a file.
pub const CAP_CLAIM: u64 = 4096;

/// Bit of [`Hello::caps`]: all files of the transfer shall appear together, under the name that an
/// [`AsDataset`](super::Message::AsDataset) right behind the hello, and behind the claim if one is
/// shown, says. Bit of [`Welcome::caps`]: the acceptor stages them until then. An older build says
/// no such bit, and the initiator ends the session before it names a file.
pub const CAP_DATASET: u64 = 1 << 18;

/// Bit of [`Hello::caps`], beside [`CAP_CLAIM`] and [`CAP_DATASET`]: the dataset is that of the
/// claim's campaign, of which this session brings the part that a
/// [`DatasetPart`](super::Message::DatasetPart) behind the name says. Bit of [`Welcome::caps`]: the
/// acceptor takes it for that. An older build would have the files of one shard appear as a whole
/// dataset: it says no such bit, and the initiator ends the session before it names a file.
pub const CAP_DATASET_PART: u64 = 1 << 23;

/// Bit of [`Hello::caps`]: in a session over QUIC the initiator dials lanes over TCP, if it is
/// granted such. An initiator without it dials QUIC whatever it is granted, so that a sender that
/// stopped to send over QUIC would end the session.
pub const CAP_LEAVES_QUIC: u64 = 16384;

/// Bit of [`Welcome::caps`], beside [`CAP_UDP_LANES`]: lanes over UDP may have been asked for
/// before this message came, by the name of [`early_session`](crate::udp::join::early_session), and
/// are answered now. From an acceptor without it no answer to that is waited for.
pub const CAP_UDP_EARLY: u64 = 8192;

/// Bit of [`Hello::caps`]: the initiator sends, and hears which names had something under them that
/// was replaced, in [`Replaced`](super::Message::Replaced). Bit of [`Welcome::caps`]: the acceptor
/// receives, and says so. To a build without it nothing is said, and nothing is known.
pub const CAP_REPLACED: u64 = 1 << 24;

/// The bit of a hello that says the share.
pub fn share_said(share: PathShare) -> u64 {
    match share {
        PathShare::Polite => CAP_SHARE_POLITE,
        PathShare::Fair => 0,
        PathShare::All => CAP_SHARE_ALL,
    }
}

/// The share that the bits of a hello say: the smaller one, if they contradict each other.
pub fn share_of_hello(caps: u64) -> PathShare {
    match (caps & CAP_SHARE_POLITE != 0, caps & CAP_SHARE_ALL != 0) {
        (true, _) => PathShare::Polite,
        (false, true) => PathShare::All,
        (false, false) => PathShare::Fair,
    }
}

/// Bit of [`Hello::caps`] and of [`Welcome::caps`]: this side knows the shares of a path. As a
/// sender it keeps the one that was asked for, and it takes
/// [`Limit::NetworkShared`](super::Limit::NetworkShared) for a limit. To one that does not know it
/// a sender says [`Limit::NetworkRate`](super::Limit::NetworkRate) instead.
pub const CAP_KNOWS_SHARED: u64 = 256;
/// Bit of [`Welcome::caps`]: this receiver makes small files and names durable with their whole
/// file system.
pub const CAP_SYNCS_FILE_SYSTEM: u64 = 1;
/// Bit of [`Welcome::caps`]: this receiver syncs each of them by itself.
pub const CAP_SYNCS_EACH: u64 = 2;
/// Bit of [`Welcome::caps`]: the one source of this sender is a directory, which keeps its name
/// beneath the destination.
pub const CAP_SOURCE_DIRECTORY: u64 = 4;
/// Bit of [`Welcome::caps`]: this receiver takes files whose length nobody knows before their end.
pub const CAP_TAKES_STREAMS: u64 = 8;

/// The request of an initiator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// To transfer files.
    Transfer(Box<Transfer>),
    /// To list the roots that this key may see.
    Roots,
    /// To list the files at a path.
    List {
        /// Name of the root.
        root: Word,
        /// Path beneath it.
        path: RelPath,
    },
    /// To list this key's partials, at a path and anywhere beneath it.
    Partials {
        /// Name of the root.
        root: Word,
        /// Path beneath it.
        path: RelPath,
    },
    /// To be told how an order of this key ends, that its client left.
    Order {
        /// The name of the order.
        id: [u8; 16],
    },
}

/// A transfer as its initiator wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The role of the side that sends this. It is independent of the side that dialled.
    pub role: Role,
    /// Whether the side that sends this began the session.
    pub initiator: bool,
    /// Protection of the lanes; the other side agrees or refuses.
    pub protect: Protect,
    /// Chunk size for files that have no partial yet.
    pub chunk: ChunkSize,
    /// The largest chunk that may come, as partials keep their chunk size. A sender gives the size
    /// of its buffers, a receiver the size that its partials need. Never smaller than `chunk`.
    pub chunk_max: ChunkSize,
    /// Lanes wanted; fewer may be granted.
    pub lanes: u32,
    /// Which metadata is carried over. Its extras are no part of this on the wire, but bits of the
    /// hello and of its answer.
    #[serde(with = "super::extras::without_extras")]
    pub preserve: Preserve,
    /// Whether this is a dry run, which changes nothing.
    pub dry_run: bool,
    /// Reserved for a dataset that commits as a whole. 0 means that each file commits alone; no
    /// other value is accepted yet.
    pub set: u64,
    /// The far end of the transfer.
    pub far: Far,
    /// The run secret: 16 random bytes, the same each time that a run dials. A session with the
    /// same secret may take over from an earlier one of its run. Zeros: this run never takes over.
    pub run: [u8; 16],
    /// Whether the receiver reads everything back from its disks and compares it before it commits.
    pub read_back: bool,
    /// How the data may flow.
    pub flow: Flow,
    /// Whether the receiver reads the files that it skips and says their roots.
    pub digests: bool,
}

/// How the data of a transfer may flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// The most lanes that the sender may use at a time, if it finds that more lanes carry more. If
    /// this is not more than the lanes at the start, it does not try.
    pub lanes_max: u32,
    /// The congestion control that a sending acceptor shall use, by its name in the kernel, at most
    /// 15 bytes. If empty, it chooses.
    pub congestion: Word,
    /// The sender keeps all lanes together below this, bytes/s; 0: there is no such rate.
    pub rate: u64,
    /// The transport of the first lanes.
    pub transport: Transport,
    /// Whether the sender may move lanes to another transport later, if it finds that this carries
    /// more.
    pub choose: bool,
    /// The share of the path that the sender takes. It is no part of this on the wire, but bits of
    /// the hello.
    #[serde(skip)]
    pub share: PathShare,
    /// Whether the initiator knows the shares of a path. It is no part of this on the wire, but a
    /// bit of the hello.
    #[serde(skip)]
    pub knows_shared: bool,
    /// Whether files come in chunks of the agreed size and are not cut into smaller ones. It is no
    /// part of this on the wire, but a bit of the hello.
    #[serde(skip)]
    pub exact_chunks: bool,
    /// Whether lanes may run over UDP beside others over TCP. It is no part of this on the wire,
    /// but a bit of the hello.
    #[serde(skip)]
    pub udp_beside_tcp: bool,
    /// Whether the initiator, if it receives, takes small files unasked. It is no part of this on
    /// the wire, but a bit of the hello.
    #[serde(skip)]
    pub takes_unasked: bool,
    /// Whether the initiator has lanes over TCP take the place of those over QUIC, if it is granted
    /// such. It is no part of this on the wire, but a bit of the hello.
    #[serde(skip)]
    pub leaves_quic: bool,
    /// Whether an initiator that sends is told which names were replaced. It is no part of this on
    /// the wire, but a bit of the hello.
    #[serde(skip)]
    pub tells_replaced: bool,
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
        /// The rules for names that stand there.
        if_exists: IfExists,
    },
    /// The acceptor sends.
    Sources {
        /// The sources.
        sources: Vec<FarSource>,
        /// The filter rules, in order. The first match decides.
        rules: Vec<Rule>,
        /// The parts of the request that follow the hello.
        follows: Follows,
    },
    /// A measurement without a disk at the acceptor: it generates one file to send, or discards the
    /// one that it receives.
    Memory {
        /// The file's length at most.
        bytes: u64,
        /// The time in milliseconds after which the sender reads no more of it and says that it
        /// cannot be sent. 0: it is sent whole.
        millis: u32,
    },
}

/// The content of the [`RequestPart`]s that follow a pull's hello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Follows {
    /// Nothing.
    #[default]
    Nothing,
    /// Further sources.
    Sources,
    /// The names beneath the one source that are wanted; no others are.
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
    /// Whether the content of the directory is sent, without the directory itself.
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
    /// The one source takes its name, whatever stands there. An earlier session of the same run has
    /// decided [`Placing::BeneathIfDir`] so.
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
    /// Bits about the acceptor: [`CAP_SYNCS_FILE_SYSTEM`], [`CAP_SYNCS_EACH`],
    /// [`CAP_SOURCE_DIRECTORY`], [`CAP_TAKES_STREAMS`], [`CAP_KNOWS_SHARED`], [`CAP_UDP_LANES`],
    /// [`CAP_UDP_BESIDE_TCP`], [`CAP_CLAIM`], [`CAP_DATASET`], [`CAP_DATASET_PART`],
    /// [`CAP_UDP_EARLY`]; unknown ones mean
    /// nothing.
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
    /// The most lanes that the session may have at a time.
    pub lanes_max: u32,
    /// The sender keeps all lanes together below this, bytes/s; 0: there is no such rate.
    pub rate: u64,
    /// The length of the one file of a [`Far::Memory`]; 0 for any other transfer.
    pub memory_bytes: u64,
}

/// The number of lanes that the sender has use for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneTarget {
    /// The number of lanes from now on.
    pub count: u32,
    /// The transport of lanes that are added.
    pub transport: Transport,
}

/// The rate that the sender shall keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// The rate of all lanes together, in bytes/s. 0: there is no such rate any more.
    pub bytes_per_s: u64,
}

/// A lane that is of no more use to the side that sends this.
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
    /// The number of its units that arrived whole and were taken in: those with lower numbers. No
    /// other unit of it ever will be.
    pub landed: u64,
}

/// The receiver's end of a lane over UDP is closed, whose units arrive in any order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpLaneClosed {
    /// The lane.
    pub lane: LaneId,
    /// Its units that arrived whole and were taken in. No other unit of it ever will be.
    pub landed: LandedUnits,
}

/// The units of a lane that arrived whole and were taken in, by their numbers in the lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandedUnits {
    /// All below this.
    pub below: u64,
    /// How many from there on did not, how many behind those did, and so on in turn. Behind the
    /// last of them none did.
    pub beyond: Vec<u32>,
}

impl LandedUnits {
    /// All units below one, and others beyond it, which ascend.
    pub fn with_beyond(below: u64, others: impl Iterator<Item = u64>) -> LandedUnits {
        let (mut beyond, mut end) = (Vec::new(), below);
        for number in others {
            let lacks = u32::try_from(number.saturating_sub(end)).unwrap_or(u32::MAX);
            match beyond.last_mut() {
                Some(landed) if lacks == 0 => *landed += 1,
                _ => beyond.extend([lacks, 1]),
            }
            end = number.saturating_add(1);
        }
        LandedUnits { below, beyond }
    }

    /// Whether the unit with this number did.
    pub fn has(&self, number: u64) -> bool {
        let Some(mut left) = number.checked_sub(self.below) else { return true };
        for (turn, count) in self.beyond.iter().enumerate() {
            match left.checked_sub(u64::from(*count)) {
                Some(rest) => left = rest,
                None => return turn % 2 == 1,
            }
        }
        false
    }
}

impl From<u64> for LandedUnits {
    fn from(below: u64) -> LandedUnits {
        LandedUnits { below, beyond: Vec::new() }
    }
}

/// Lane ids that may join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedLanes {
    /// The first id.
    pub first: LaneId,
    /// How many, counting up.
    pub count: u32,
    /// The transport to dial.
    pub transport: Transport,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_says_the_share_and_the_smaller_one_of_two() {
        for share in [PathShare::Polite, PathShare::Fair, PathShare::All] {
            assert_eq!(share_of_hello(share_said(share) | CAP_IN_CHUNKS), share);
        }
        assert_eq!(share_of_hello(u64::MAX), PathShare::Polite);
    }
}
