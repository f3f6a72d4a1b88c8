//! What sender and receiver say to each other while files move.
//!
//! Plain data; who says it when, and under whose credit, is written at [`Message`](super::Message).

use serde::{Deserialize, Serialize};

use longhaul_core::digest::{Digest, Hash32, TreePart};
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, Entry, Fault, FaultCode, FileId, LaneId, PlainText, Unit};

/// What a receiver holds when a session begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Manifest pages that may be sent unanswered at first.
    pub pages: u64,
    /// The one source takes this name instead of its own (mapping, for display and dry runs).
    pub renamed: Option<Vec<u8>>,
    /// Where the destination stands, for people.
    pub base: PlainText,
}

/// How many pages the sender may have sent since the session's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCredit {
    /// Counted from the start.
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
    /// One bit an entry, from the lowest bit of the first byte: a file whose content is wanted.
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

/// A file that the receiver holds part of: it keeps its chunk size, and chunks that are held are
/// not wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The file.
    pub file: FileId,
    /// Its chunk size, which may be another than the session's.
    pub chunk: ChunkSize,
    /// What is held, and its digests: verified against the same version of the source in an earlier
    /// session.
    pub parts: Vec<TreePart>,
    /// Whether more of it follows in another message.
    pub more: bool,
}

/// Chunks that the receiver has of another version of the file, held from an earlier session or
/// under the final name, in order: those that still have these digests are declared without
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

/// Small files that stand at the receiver in the length that is offered: those that still have
/// these roots are named in their bundle without payload, the others are sent in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFiles {
    /// The files, and the root of what stands; none: it cannot be read, and the file is wanted.
    pub files: Vec<(FileId, Option<Hash32>)>,
}

/// The digest of a unit that was sent on a `safe` lane. It is the announcement too: lane and
/// sequence say which arrival it speaks of, so that the (unauthenticated) header on the lane
/// decides nothing.
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

/// The root of a file, after its last chunk was read and its identity found unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEnd {
    /// The file.
    pub file: FileId,
    /// BLAKE3 of the whole.
    pub root: Hash32,
}

/// Why a sender cannot send a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFault {
    /// The file.
    pub file: FileId,
    /// The reason.
    pub code: FaultCode,
    /// In words.
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
    /// Not what was declared: wanted again, with the next attempt number.
    Again,
    /// Not what was declared, once too often: its files fail.
    GivenUp,
}

/// What became of an entry.
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
    /// Under its final name, durable; the root for a file.
    Committed(Option<Hash32>),
    /// The destination has it.
    Skipped,
    /// It would be sent (dry run).
    Planned,
    /// It failed.
    Failed(Fault),
    /// It is nothing that is sent, and that is no failure.
    Unsent,
    /// What stands there has this root, as the source has: nothing was sent.
    Equal(Hash32),
    /// The destination has it, and what stands there has this root; whether the source has it too
    /// was not looked at.
    Stands(Hash32),
}

/// The receiver's counters, since the session's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Payload bytes that arrived and were verified.
    pub received: u64,
    /// Bytes synced and journalled, those of earlier sessions with them; without those of files
    /// that failed and of which nothing is kept.
    pub durable: u64,
    /// Bytes under their final names.
    pub committed: u64,
    /// Files under their final names.
    pub files: u64,
    /// Bytes of files that were received and that were not sent: earlier sessions had brought them,
    /// or they stood under the final name and were copied.
    pub resumed: u64,
    /// Bytes read back from the medium.
    pub read_back: u64,
    /// Of these, bytes of chunks and small files that were not what had been written.
    pub misread: u64,
    /// Bytes of holes that came: they passed over no lane.
    pub holes: u64,
    /// Payload bytes here of units that are not whole yet. The machine does not know them: its
    /// session fills them in.
    pub arriving: u64,
    /// Bytes read of files that are skipped, for their roots.
    pub standing: u64,
}

impl Tally {
    /// Bytes that are durable in files without their final names: a later session goes on with
    /// them.
    pub fn held(&self) -> u64 {
        self.durable.saturating_sub(self.committed)
    }
}

/// A side's last words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// CPU time that this side's process used since the session's start, in microseconds.
    pub cpu_us: u64,
    /// The receiver's counters at the end (zero from a sender).
    pub tally: Tally,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Whether the side is stalled by its own disk: alive all the same.
    pub stalled: bool,
    /// Whether the other side shall answer at once: somebody asks whether it lives.
    pub answer: bool,
}
