//! The receiver's vocabulary: what it is told of arrivals and entries, and what it orders to be
//! done.
//!
//! Plain data between the machine and whoever has disks and lanes. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Entry, EntryKind, Fault, FileId, LaneId, Preserve, RelPath};

use super::journal::JournalEntry;
use super::partial::Partial;
use super::policy::{Landing, Policy, Seen};
use crate::wire::data::Piece;
use crate::wire::message::{Ending, Message, Outcome};

/// An arrival: the n-th unit of a lane. Whoever holds the payload finds it by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The lane.
    pub lane: LaneId,
    /// Its number on that lane, from 0.
    pub seq: u64,
}

/// A unit that arrived whole, described.
#[derive(Clone, Debug)]
pub struct Landed {
    /// Which arrival.
    pub ticket: Ticket,
    /// What its header says of it (a hint on a `safe` lane).
    pub piece: Piece,
    /// What was computed of its bytes.
    pub computed: Digest,
    /// The digest that came behind it, on lanes that authenticate. Never one that came on a `safe`
    /// lane.
    pub declared: Option<Digest>,
    /// The files of a bundle, if it parsed.
    pub rows: Vec<LandedRow>,
}

/// One file of a bundle that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LandedRow {
    /// The file.
    pub file: FileId,
    /// Its bytes in the bundle.
    pub len: u64,
    /// Its root as the sender declared it in the table.
    pub declared: Hash32,
    /// Its root as computed; as declared, if it is `same`.
    pub computed: Hash32,
    /// It came without bytes: the sender says that this side has it.
    pub same: bool,
}

/// An entry as the machine holds it and as actions name it.
#[derive(Debug, PartialEq, Eq)]
pub struct EntryRef {
    /// Its id.
    pub id: FileId,
    /// The entry.
    pub entry: Entry,
    /// Where it goes beneath the destination.
    pub placed: RelPath,
}

impl EntryRef {
    /// What holding it costs in bytes that a sender chooses: the path as sent, as placed and as
    /// reserved, and the link or text.
    pub(super) fn name_bytes(&self) -> usize {
        let text = match &self.entry.kind {
            EntryKind::Symlink { target } => target.len(),
            EntryKind::Unsent { why, .. } => why.len(),
            _ => 0,
        };
        self.entry.path.as_bytes().len() + 2 * self.placed.as_bytes().len() + text
    }
}

/// What a survey finds at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// What stands there.
    pub found: Seen,
    /// What an earlier session left of the file that goes there.
    pub partial: Option<Arc<Partial>>,
    /// An earlier session that did not come to its end committed this very version there.
    pub committed: bool,
    /// A sync that failed left this name or its content in doubt: the system may show what the
    /// medium does not have. It is neither skipped nor compared, but sent anew.
    pub doubtful: bool,
}

impl From<Seen> for Surveyed {
    fn from(seen: Seen) -> Surveyed {
        Surveyed { found: seen, partial: None, committed: false, doubtful: false }
    }
}

/// A file of chunks that stands under its final name and is compared with what would be sent.
#[derive(Clone, Debug)]
pub struct Base {
    /// The entry.
    pub entry: Arc<EntryRef>,
    /// The geometry in which it is read: that of the file that would replace it.
    pub map: ChunkMap,
}

/// What a temporary file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// New and empty, also where a partial was to be continued that turned out to be gone.
    Fresh,
    /// The one of the partial: what of it is really held. That is all of it, or less where it was
    /// not believed and read back.
    Continued(Arc<Partial>),
}

/// What small files are read back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBackReason {
    /// It was asked for: where the page cache cannot be passed by, what it holds must do.
    Verify,
    /// A sync failed: what did not come from the medium itself proves nothing, and is an error.
    Doubt,
}

/// What is to be done next. Actions of one file are given in order; the doer reports each by its
/// `handle_*`, once. A doer that fails to create or stage something leaves nothing of it behind.
#[derive(Clone, Debug)]
pub enum ReceiverAction {
    /// Say this to the sender.
    Send(Message),
    /// Look at what stands under these names, making directories on the way:
    /// [`Receiver::handle_survey`]. Surveys are done in the order given.
    ///
    /// [`Receiver::handle_survey`]: super::Receiver::handle_survey
    Survey(Vec<Arc<EntryRef>>),
    /// Measure the room on the file system on which this file would lie:
    /// [`Receiver::handle_measure_room`](super::Receiver::handle_measure_room). One is under way at
    /// a time.
    MeasureRoom {
        /// The file.
        entry: Arc<EntryRef>,
        /// Only when all that was to be discarded before is.
        behind_discards: bool,
    },
    /// Make the temporary file, or open the one of the partial:
    /// [`Receiver::handle_create`](super::Receiver::handle_create). It is in the journal before it
    /// exists; where the source has changed, what was journalled of it is no longer.
    Create(Arc<EntryRef>, Option<Arc<Partial>>),
    /// Stage the symbolic link under a temporary name:
    /// [`Receiver::handle_stage`](super::Receiver::handle_stage).
    MakeLink(Arc<EntryRef>),
    /// Write this verified chunk: [`Receiver::handle_write`](super::Receiver::handle_write). A hole
    /// has no payload and needs no write, but a report.
    Write {
        /// The file.
        file: FileId,
        /// The chunk.
        index: ChunkIndex,
        /// Where its payload is.
        ticket: Ticket,
    },
    /// Write these verified files of a bundle under temporary names, with their metadata:
    /// [`Receiver::handle_stage`](super::Receiver::handle_stage).
    WriteBundle {
        /// Where the payload is.
        ticket: Ticket,
        /// The files of it that are good, in the bundle's order.
        files: Vec<Arc<EntryRef>>,
    },
    /// Read what stands under the names of these small files:
    /// [`Receiver::handle_read_standing`](super::Receiver::handle_read_standing) with its roots.
    /// Whatever stands there is no more of one version than [`ReceiverAction::Retouch`] finds.
    ReadStanding(Vec<Arc<EntryRef>>),
    /// Read these files, which are skipped, whole, however large they are:
    /// [`Receiver::handle_digest_skipped`](super::Receiver::handle_digest_skipped) with their
    /// roots, and meanwhile
    /// [`Receiver::handle_digest_progress`](super::Receiver::handle_digest_progress).
    DigestSkipped(Vec<Arc<EntryRef>>),
    /// Read what stands in the place of these chunks:
    /// [`Receiver::handle_read_standing_chunks`](super::Receiver::handle_read_standing_chunks) with
    /// its digests.
    ReadStandingChunks {
        /// The file.
        base: Base,
        /// The chunks.
        chunks: Vec<ChunkIndex>,
    },
    /// Read what stands in the place of this chunk once more and write it to the temporary, if it
    /// still has this digest: [`Receiver::handle_write`](super::Receiver::handle_write).
    Copy {
        /// The file.
        base: Base,
        /// The chunk.
        index: ChunkIndex,
        /// What it must have.
        digest: Digest,
    },
    /// These files stand as they would be sent: see to it that each is one file that nobody wrote
    /// to since it was read first, and set its mode and times where that is wanted and possible:
    /// [`Receiver::handle_retouch`](super::Receiver::handle_retouch).
    Retouch {
        /// The files.
        files: Vec<Arc<EntryRef>>,
        /// Whether metadata may be set.
        metadata: bool,
    },
    /// Read and drop: no one wants this payload.
    DropPayload(Ticket),
    /// Make everything written to this file so far durable:
    /// [`Receiver::handle_sync_data`](super::Receiver::handle_sync_data).
    SyncData(FileId),
    /// Read these synced chunks back from the medium, not from memory:
    /// [`Receiver::handle_read_back`](super::Receiver::handle_read_back) with what they are now.
    ReadBack {
        /// The file.
        file: FileId,
        /// The chunks.
        chunks: Vec<ChunkIndex>,
    },
    /// Append these records; where chunks are among them, make all that was appended durable:
    /// [`Receiver::handle_journal`](super::Receiver::handle_journal). One is under way at a time.
    Journal(Vec<JournalEntry>),
    /// Cut the file to its length and set its metadata, times last:
    /// [`Receiver::handle_stage`](super::Receiver::handle_stage).
    Seal(Arc<EntryRef>),
    /// Make all of these staged files durable under their temporary names:
    /// [`Receiver::handle_barrier`](super::Receiver::handle_barrier).
    Barrier(Vec<FileId>),
    /// The barrier failed, and what is left of the batch was read back since: make it durable
    /// again, through a sync that begins now:
    /// [`Receiver::handle_barrier`](super::Receiver::handle_barrier).
    BarrierAgain(Vec<FileId>),
    /// Read these small files of the batch back from the medium, whole, under the names that they
    /// have: [`Receiver::handle_read_staged`](super::Receiver::handle_read_staged).
    ReadStaged {
        /// The files.
        files: Vec<FileId>,
        /// What it is for.
        why: ReadBackReason,
    },
    /// Rename these to their final names; the flag allows replacing:
    /// [`Receiver::handle_publish`](super::Receiver::handle_publish).
    Publish(Vec<(FileId, Replace)>),
    /// Make the renames of these durable:
    /// [`Receiver::handle_sync_dirs`](super::Receiver::handle_sync_dirs).
    SyncDirs(Vec<FileId>),
    /// That failed, and what could be read back of them was: make their renames durable through a
    /// sync that begins now: [`Receiver::handle_sync_dirs`](super::Receiver::handle_sync_dirs).
    SyncDirsAgain(Vec<FileId>),
    /// Set mode and times of these directories, whose content is settled, and make that durable:
    /// [`Receiver::handle_finish_dirs`](super::Receiver::handle_finish_dirs).
    FinishDirs(Vec<Arc<EntryRef>>),
    /// Remove what was made for this file under a temporary name. Never given for a file that was
    /// renamed.
    Discard(FileId),
    /// Close this file; what is journalled of it stays for another session.
    Release(FileId),
    /// Close this side's end of this lane:
    /// [`Receiver::handle_lane_ended`](super::Receiver::handle_lane_ended).
    CloseLane(LaneId),
    /// Every entry is settled: make durable the names that were found standing, and put away what
    /// was written down for another session, as far as nothing is left to be continued:
    /// [`Receiver::handle_tidy`](super::Receiver::handle_tidy).
    Tidy,
    /// An entry came to its end; nothing of it is held any more.
    Settled(Arc<EntryRef>, Outcome),
    /// Every entry is settled and the sender knows: the session is over.
    Finished(Ending),
    /// The session cannot go on. Always the last action; the doer removes what is neither published
    /// nor journalled.
    Abort(Fault),
}

/// Whether a rename may replace what stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It may.
    Allowed,
    /// It must fail instead.
    Never,
}

/// What was agreed for the session.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// The chunk size of files that are not continued.
    pub chunk: ChunkSize,
    /// The largest chunk that buffers hold: a partial of larger ones is not continued.
    pub chunk_max: ChunkSize,
    /// Files up to this length come in bundles, as far as [`crate::wire::bundle::bundled_max`]
    /// allows.
    pub bundled_max: u64,
    /// What may happen to names that stand.
    pub policy: Policy,
    /// Where entries go.
    pub landing: Landing,
    /// Which metadata is carried over.
    pub preserve: Preserve,
    /// Touch nothing.
    pub dry_run: bool,
    /// When written chunks are synced.
    pub group: SyncGroup,
    /// Read everything back from the medium and compare it before it is journalled, acknowledged or
    /// renamed.
    pub read_back: bool,
    /// Whether files that are skipped are read for their roots.
    pub digests: SkippedDigests,
}

/// Who wants the roots of files that are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SkippedDigests {
    /// Nobody: they are not read.
    #[default]
    Unwanted,
    /// This side: the sender does not learn them.
    Kept,
    /// The sender.
    Told,
}

/// How much may be written and not synced: what a crash may cost. Larger costs more re-sending
/// after one. While twice as many bytes are written and not durable, no more chunks are asked for.
#[derive(Clone, Copy, Debug)]
pub struct SyncGroup {
    /// Bytes. Default 1 GiB.
    pub bytes: u64,
    /// Time since the first of them. Default 1 s.
    pub age: Duration,
}

impl Default for SyncGroup {
    fn default() -> Self {
        SyncGroup { bytes: 1 << 30, age: Duration::from_secs(1) }
    }
}
