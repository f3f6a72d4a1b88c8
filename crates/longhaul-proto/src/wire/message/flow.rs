//! The messages of sender and receiver while files move.
//!
//! Plain data. The sender of each message, its time and its credit are written at
//! [`Message`](super::Message).

use serde::{Deserialize, Serialize};

use longhaul_core::digest::{Digest, Hash32, TreePart};
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, Entry, Fault, FaultCode, FileId, LaneId, PlainText, Unit};

/// The receiver's first message: its first credit and the place of its destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Manifest pages that may be sent unanswered at first.
    pub pages: u64,
    /// The name that the one source takes instead of its own, for display and dry runs. `None` if
    /// it keeps its own.
    pub renamed: Option<Vec<u8>>,
    /// The path of the destination, for people.
    pub base: PlainText,
}

/// The credit for pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCredit {
    /// The number of pages that may have been sent since the session's start.
    pub upto: u64,
}

/// A part of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The id of its first entry; the others count up from it without gaps.
    pub first: FileId,
    /// Whether no page follows.
    pub last: bool,
    /// The entries, in order.
    pub entries: Vec<Entry>,
}

/// Which entries of a page the receiver wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The page's first entry.
    pub first: FileId,
    /// One bit for each entry, from the lowest bit of the first byte: set for a file whose content
    /// is wanted.
    pub wanted: Vec<u8>,
}

/// Chunks that the receiver wants, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantChunks {
    /// The file.
    pub file: FileId,
    /// The first chunk.
    pub start: ChunkIndex,
    /// How many.
    pub count: u64,
}

/// Chunks of a file that came and were acknowledged, and whose bytes the receiver has lost since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendAgain {
    /// The file.
    pub file: FileId,
    /// The chunks.
    pub chunks: Vec<LostChunk>,
}

/// A chunk whose bytes the receiver has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostChunk {
    /// The chunk.
    pub index: ChunkIndex,
    /// The sending that is wanted, from which on damaged ones are counted.
    pub attempt: Attempt,
    /// The digest that it had and must have again; its kind is that of the file's chunks.
    pub digest: Hash32,
}

/// The parts of a file that the receiver holds. The file keeps its chunk size, and held chunks are
/// not wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The file.
    pub file: FileId,
    /// Its chunk size, which may be another than the session's.
    pub chunk: ChunkSize,
    /// The held parts and their digests, which were verified against the same version of the source
    /// in an earlier session.
    pub parts: Vec<TreePart>,
    /// Whether more of it follows in another message.
    pub more: bool,
}

/// Chunks that the receiver has of another version of the file, held from an earlier session or
/// under the final name, in order. Chunks that still have these digests are declared without
/// payload, the others are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckChunks {
    /// The file.
    pub file: FileId,
    /// The first chunk.
    pub start: ChunkIndex,
    /// The digest of each; their kind is that of the file's chunks.
    pub digests: Vec<Hash32>,
}

/// Small files that stand at the receiver with the offered length. Files that still have these
/// roots are named in their bundle without payload, the others are sent in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFiles {
    /// The files, each with the root of the standing file. `None` if that cannot be read; the file
    /// is wanted then.
    pub files: Vec<(FileId, Option<Hash32>)>,
}

/// The digest of a unit that was sent on a `safe` lane. It also announces the unit: lane and number
/// name the arrival, so that the (unauthenticated) header on the lane decides nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// The lane that carried it.
    pub lane: LaneId,
    /// Its number on that lane, from 0.
    pub seq: u64,
    /// The unit.
    pub unit: Unit,
    /// Which sending.
    pub attempt: Attempt,
    /// Its digest at the sender.
    pub digest: Digest,
}

/// The root of a file, whose last chunk was read and which was found unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEnd {
    /// The file.
    pub file: FileId,
    /// The BLAKE3 digest of the whole file.
    pub root: Hash32,
}

/// The end of a stream. Chunks of it that were wanted and are not whole ones of this length are
/// wanted no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// The stream.
    pub file: FileId,
    /// Its length in bytes: more than a chunk.
    pub len: u64,
}

/// The last chunk of a stream is wanted, which is shorter than the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantLast {
    /// The stream.
    pub file: FileId,
}

/// Chunks of a stream that are durable at the receiver, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableChunks {
    /// The stream.
    pub file: FileId,
    /// The first chunk.
    pub start: ChunkIndex,
    /// How many.
    pub count: u64,
}

/// The reason why a sender cannot send a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFault {
    /// The file.
    pub file: FileId,
    /// The kind of failure.
    pub code: FaultCode,
    /// The reason, in words.
    pub message: PlainText,
}

/// The receiver's judgement of a unit that arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The unit.
    pub unit: Unit,
    /// Which sending.
    pub attempt: Attempt,
    /// The judgement.
    pub finding: Finding,
}

/// A judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// Verified; the receiver computed this digest.
    Good(Digest),
    /// It differs from its declaration: it is wanted again, with the next attempt number.
    Again,
    /// It differs from its declaration after the last attempt: its files fail.
    GivenUp,
}

/// The outcome of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The entry.
    pub file: FileId,
    /// Its outcome.
    pub outcome: Outcome,
}

/// An outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is durable under its final name. With the root of a file; `None` for anything else.
    Committed(Option<Hash32>),
    /// The destination has it already, by its metadata.
    Skipped,
    /// It would be sent (dry run).
    Planned,
    /// It failed.
    Failed(#[serde(with = "super::fault")] Fault),
    /// It is of a kind that is not sent, which is no failure.
    Unsent,
    /// The standing file has this root, and the source has it too: nothing was sent.
    Equal(Hash32),
    /// The destination has it already, by its metadata, and the standing file has this root.
    /// Whether the source has it too was not checked.
    Stands(Hash32),
    /// It is a durable name of the file whose first name came before. With the root of that file,
    /// if this session knows it.
    Linked(Option<Hash32>),
}

/// The receiver's counters, since the session's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Payload bytes that arrived and were verified.
    pub received: u64,
    /// Bytes synced and journalled, including those of earlier sessions, without files that failed
    /// and of which nothing is kept.
    pub durable: u64,
    /// Bytes under their final names.
    pub committed: u64,
    /// Files under their final names.
    pub files: u64,
    /// Bytes of received files that were not sent: earlier sessions received them, or they were
    /// copied from the standing file.
    pub resumed: u64,
    /// Bytes read back from the medium.
    pub read_back: u64,
    /// Bytes of chunks and small files that were read back and differed from the written bytes.
    pub misread: u64,
    /// Bytes of holes that arrived. They pass over no lane.
    pub holes: u64,
    /// Payload bytes of units that have not arrived whole yet. The machine does not know them: its
    /// session fills them in.
    pub arriving: u64,
    /// Bytes of skipped files that were read for their roots.
    pub standing: u64,
}

impl Tally {
    /// Durable bytes of files that are not committed. A later session continues with them.
    pub fn held(&self) -> u64 {
        self.durable.saturating_sub(self.committed)
    }
}

/// The last message of a side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// CPU time that this side's process used since the session's start, in microseconds.
    pub cpu_us: u64,
    /// The receiver's counters at the end (zero from a sender).
    pub tally: Tally,
}

/// A sign of life of a side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Whether the side is stalled by its own disk, though alive.
    pub stalled: bool,
    /// Whether the other side shall answer at once, to show that it is alive.
    pub answer: bool,
}
