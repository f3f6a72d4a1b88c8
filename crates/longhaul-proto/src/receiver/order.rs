//! The receiver's vocabulary: reports of arrivals and entries, and orders to the doer.
//!
//! Plain data between the machine and the engine, which has disks and lanes. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::limits::EVEN_CHUNKS;
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Entry, EntryKind, Fault, FileId, LaneId, Preserve, RelPath};
use serde::{Deserialize, Serialize};

use super::journal::JournalEntry;
use super::partial::Partial;
use super::policy::{Landing, Policy, Seen};
use crate::wire::data::Piece;
use crate::wire::message::{Ending, Message, Outcome};

/// An arrival: the n-th unit of a lane. The holder of the payload finds it by this.
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
    /// The arrival.
    pub ticket: Ticket,
    /// The header of the unit (on a `safe` lane it is a hint).
    pub piece: Piece,
    /// The digest computed from its bytes.
    pub computed: Digest,
    /// The digest that came behind it. `None` on a `safe` lane, which does not authenticate.
    pub declared: Option<Digest>,
    /// The files of a bundle; empty for a chunk and for a bundle that does not parse.
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
    /// Its root as computed. If `same` is set, the declared root.
    pub computed: Hash32,
    /// Whether it came without bytes: the sender found that the receiver has this content.
    pub same: bool,
}

/// An entry, as the machine holds it and as actions name it.
#[derive(Debug, PartialEq, Eq)]
pub struct EntryRef {
    /// Its id.
    pub id: FileId,
    /// The entry.
    pub entry: Entry,
    /// Its path beneath the destination.
    pub placed: RelPath,
}

impl EntryRef {
    /// Bytes of it that a sender chooses: the path as sent, as placed and as reserved, the link or
    /// text, and the extras.
    pub(super) fn name_bytes(&self) -> usize {
        let text = match &self.entry.kind {
            EntryKind::Symlink { target } => target.len(),
            EntryKind::Unsent { why, .. } => why.len(),
            _ => 0,
        };
        let extras = self.entry.meta.extras.as_ref().map_or(0, |extras| extras.cost());
        // The first name as it is sent, and as it is placed while it is waited for.
        let names = self.entry.meta.names.as_ref().map_or(0, |names| 2 * names.cost());
        self.entry.path.as_bytes().len() + 2 * self.placed.as_bytes().len() + text + extras + names
    }
}

/// The finding of a survey at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// The standing file, if any.
    pub found: Seen,
    /// The partial that an earlier session left of the file that goes there.
    pub partial: Option<Arc<Partial>>,
    /// Whether an earlier session that did not come to its end committed this very version there.
    pub committed: bool,
    /// Whether a failed sync left this name or its content in doubt: the system may show content
    /// that the medium does not have. Such an entry is neither skipped nor compared, but sent anew.
    pub doubtful: bool,
}

impl From<Seen> for Surveyed {
    fn from(seen: Seen) -> Surveyed {
        Surveyed { found: seen, partial: None, committed: false, doubtful: false }
    }
}

/// A file in chunks that stands under its final name and is compared with the source.
#[derive(Clone, Debug)]
pub struct Base {
    /// The entry.
    pub entry: Arc<EntryRef>,
    /// The geometry in which it is read: the one of the file that would replace it.
    pub map: ChunkMap,
}

/// The content of a temporary that was made or opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The temporary is new and empty, also if a partial was to be continued and is gone.
    Fresh,
    /// The temporary is the one of the partial, which holds these chunks: all of them, or fewer if
    /// the partial was not believed and was read back.
    Continued(Arc<Partial>),
}

/// The reason for which small files are read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBackReason {
    /// The user asked for it. If the page cache cannot be bypassed, its content counts.
    Verify,
    /// A sync failed. Bytes that did not come from the medium itself prove nothing and are an
    /// error.
    Doubt,
}

/// An order of the receiver. Actions of one file are given in order; the doer reports each by its
/// `handle_*`, once. A doer that fails to create or stage something leaves nothing of it behind.
#[derive(Clone, Debug)]
pub enum ReceiverAction {
    /// Say this to the sender.
    Send(Message),
    /// Look up these names at the destination, making directories on the way:
    /// [`Receiver::handle_survey`](super::Receiver::handle_survey).
    Survey(Vec<Arc<EntryRef>>),
    /// Measure the room on the file system on which this file would lie:
    /// [`Receiver::handle_measure_room`](super::Receiver::handle_measure_room). One is under way at
    /// a time.
    MeasureRoom {
        /// The file.
        entry: Arc<EntryRef>,
        /// Whether to measure only after every file that was to be discarded is removed.
        behind_discards: bool,
    },
    /// Make the temporary file, in chunks of this size, or open the one of the partial:
    /// [`Receiver::handle_create`](super::Receiver::handle_create). It is in the journal before it
    /// exists. If the source has changed, the chunks that the journal had of it are revised away.
    Create(Arc<EntryRef>, Option<Arc<Partial>>, ChunkSize),
    /// Stage the symbolic link under a temporary name:
    /// [`Receiver::handle_stage`](super::Receiver::handle_stage).
    MakeLink(Arc<EntryRef>),
    /// Make the entry, under a temporary name, another name of the file at a path, which is not
    /// followed if it is a link: [`Receiver::handle_name`](super::Receiver::handle_name). Only a
    /// file that this session committed or found equal may get another name, or one that stands as
    /// the source has it where the rights allow to read and to replace it.
    MakeName {
        /// The entry.
        entry: Arc<EntryRef>,
        /// The place of the file's first name.
        first: RelPath,
    },
    /// Write this verified chunk: [`Receiver::handle_write`](super::Receiver::handle_write). A hole
    /// has no payload and needs no write, but a report.
    Write {
        /// The file.
        file: FileId,
        /// The chunk.
        index: ChunkIndex,
        /// The arrival with its payload.
        ticket: Ticket,
    },
    /// Write these verified files of a bundle under temporary names, with their metadata:
    /// [`Receiver::handle_stage`](super::Receiver::handle_stage).
    WriteBundle {
        /// The arrival with the payload.
        ticket: Ticket,
        /// The good files of it, in the bundle's order.
        files: Vec<Arc<EntryRef>>,
    },
    /// Read the standing files under the names of these small files:
    /// [`Receiver::handle_read_standing`](super::Receiver::handle_read_standing) with their roots.
    /// Whether a file changed meanwhile is found by [`ReceiverAction::Retouch`].
    ReadStanding(Vec<Arc<EntryRef>>),
    /// Read these skipped files whole, however large they are:
    /// [`Receiver::handle_digest_skipped`](super::Receiver::handle_digest_skipped) with their
    /// roots, and meanwhile
    /// [`Receiver::handle_digest_progress`](super::Receiver::handle_digest_progress).
    DigestSkipped(Vec<Arc<EntryRef>>),
    /// Read these chunks of the standing file:
    /// [`Receiver::handle_read_standing_chunks`](super::Receiver::handle_read_standing_chunks) with
    /// their digests.
    ReadStandingChunks {
        /// The file.
        base: Base,
        /// The chunks.
        chunks: Vec<ChunkIndex>,
    },
    /// Read this chunk of the standing file once more and write it to the temporary, if it still
    /// has this digest: [`Receiver::handle_write`](super::Receiver::handle_write).
    Copy {
        /// The file.
        base: Base,
        /// The chunk.
        index: ChunkIndex,
        /// The digest that it must have.
        digest: Digest,
    },
    /// These standing files have the content of their sources. Check that nobody wrote to them
    /// since they were read first, and set their mode and times if that is wanted and possible:
    /// [`Receiver::handle_retouch`](super::Receiver::handle_retouch).
    Retouch {
        /// The files.
        files: Vec<Arc<EntryRef>>,
        /// Whether metadata may be set.
        metadata: bool,
    },
    /// Drop this payload, which is not wanted.
    DropPayload(Ticket),
    /// Make everything written to this file so far durable, or give up the chunks that lie where
    /// nothing answers: [`Receiver::handle_sync_data`](super::Receiver::handle_sync_data).
    SyncData(FileId),
    /// Read these synced chunks back from the medium, not from memory:
    /// [`Receiver::handle_read_back`](super::Receiver::handle_read_back) with their digests.
    ReadBack {
        /// The file.
        file: FileId,
        /// The chunks.
        chunks: Vec<ChunkIndex>,
    },
    /// Read these chunks of a whole file, which follow those of the order before, or are the first,
    /// for checksums that need all bytes in order:
    /// [`Receiver::handle_read_in_order`](super::Receiver::handle_read_in_order) with their
    /// digests.
    ReadInOrder {
        /// The file.
        file: FileId,
        /// The chunks, in their order.
        chunks: Vec<ChunkIndex>,
    },
    /// Append these records; if chunks are among them, make everything appended so far durable:
    /// [`Receiver::handle_journal`](super::Receiver::handle_journal). One order is under way at a
    /// time.
    Journal(Vec<JournalEntry>),
    /// Cut the file to its length and set its metadata, times last:
    /// [`Receiver::handle_stage`](super::Receiver::handle_stage).
    Seal(Arc<EntryRef>),
    /// Make all of these staged files durable under their temporary names, or postpone those that
    /// lie where nothing answers:
    /// [`Receiver::handle_barrier`](super::Receiver::handle_barrier).
    Barrier(Vec<FileId>),
    /// Make these files durable again, through a sync that begins now. The first barrier failed,
    /// and they were read back since. None is postponed:
    /// [`Receiver::handle_barrier`](super::Receiver::handle_barrier).
    BarrierAgain(Vec<FileId>),
    /// Read these small files of the batch back from the medium, whole, under the names that they
    /// have: [`Receiver::handle_read_staged`](super::Receiver::handle_read_staged).
    ReadStaged {
        /// The files.
        files: Vec<FileId>,
        /// The reason.
        why: ReadBackReason,
    },
    /// Rename these files to their final names; each says whether it may replace a standing file:
    /// [`Receiver::handle_publish`](super::Receiver::handle_publish).
    Publish(Vec<(FileId, Replace)>),
    /// Make the renames of these files durable:
    /// [`Receiver::handle_sync_dirs`](super::Receiver::handle_sync_dirs).
    SyncDirs(Vec<FileId>),
    /// Make the renames of these files durable again, through a sync that begins now. The first
    /// sync failed, and they were read back since:
    /// [`Receiver::handle_sync_dirs`](super::Receiver::handle_sync_dirs).
    SyncDirsAgain(Vec<FileId>),
    /// Set mode and times of these directories, whose content is settled, and make that durable:
    /// [`Receiver::handle_finish_dirs`](super::Receiver::handle_finish_dirs).
    FinishDirs(Vec<Arc<EntryRef>>),
    /// Remove the temporary of this file. Never given for a file that was renamed.
    Discard(FileId),
    /// Close this file. Its journalled chunks stay for another session.
    Release(FileId),
    /// Close this side's end of this lane:
    /// [`Receiver::handle_lane_ended`](super::Receiver::handle_lane_ended).
    CloseLane(LaneId),
    /// Every entry is settled: make the names that were found standing durable, and remove journals
    /// that have nothing left to continue: [`Receiver::handle_tidy`](super::Receiver::handle_tidy).
    Tidy,
    /// An entry is settled with this outcome; nothing of it is held any more.
    Settled(Arc<EntryRef>, Outcome),
    /// Every entry is settled and the sender knows: the session is over.
    Finished(Ending),
    /// The session cannot go on. Always the last action; the doer removes temporaries that are
    /// neither published nor journalled.
    Abort(Fault),
}

/// Whether a rename may replace a standing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// The rename may replace a standing file.
    Allowed,
    /// The rename must fail if a file stands there.
    Never,
}

/// The terms that both sides agreed on for the session.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// The chunk size of files that are not continued.
    pub chunk: ChunkSize,
    /// The largest chunk that buffers hold: a partial with larger chunks is not continued.
    pub chunk_max: ChunkSize,
    /// Files up to this length come in bundles, as far as [`crate::wire::bundle::bundled_max`]
    /// allows.
    pub bundled_max: u64,
    /// The rules for names that stand.
    pub policy: Policy,
    /// The places of entries beneath the destination.
    pub landing: Landing,
    /// Which metadata is carried over.
    pub preserve: Preserve,
    /// Whether this is a dry run, which changes nothing.
    pub dry_run: bool,
    /// The group syncs of written chunks.
    pub group: SyncGroup,
    /// Whether everything is read back from the medium and compared before it is journalled,
    /// acknowledged or renamed.
    pub read_back: bool,
    /// Whether files that are skipped are read for their roots.
    pub digests: SkippedDigests,
    /// The order in which chunks are asked for.
    pub order: WantOrder,
    /// Into what files are cut. `None` if none is.
    pub cut: Option<Cut>,
}

/// The cut of files into chunks that are smaller than the session's, for two reasons. On a long
/// path each lane begins with a few packets, so one lane alone takes many round trips for what
/// several carry in few. And in the end all lanes wait for the one that is behind: the less each of
/// them holds then, the shorter is the wait, and the less is sent again if it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The lanes that a file is shared among.
    pub lanes: u32,
    /// The smallest chunk of a file that is cut as it would not give each lane a chunk.
    pub chunk_min: ChunkSize,
    /// The smallest chunk of a file that is cut so that lanes end together.
    pub even_min: ChunkSize,
}

impl Cut {
    /// The chunk size of a file of `len` bytes, which are otherwise `chunk` bytes each, if `files`
    /// files of `all_bytes` together have no outcome.
    ///
    /// A file that is short for its share of the lanes has two chunks for each of them, so that a
    /// lane that is ahead takes one more. A chunk of any file is a small part of what is still to
    /// come, so that the lanes, which may each hold one more than others in the end, end together.
    pub(super) fn chunk_of(self, len: u64, chunk: ChunkSize, (files, all_bytes): (usize, u64)) -> ChunkSize {
        if self.lanes < 2 {
            return chunk;
        }
        let lanes = u64::from(self.lanes) / (files as u64).max(1);
        let is_short = lanes >= 2 && len < chunk.bytes().saturating_mul(lanes);
        let shared = is_short.then(|| len.div_ceil(2 * lanes).max(self.chunk_min.bytes()));
        let even = all_bytes.max(len).div_ceil(EVEN_CHUNKS).max(self.even_min.bytes());
        let least = shared.map_or(even, |shared| shared.min(even));
        least.checked_next_power_of_two().and_then(ChunkSize::from_bytes).map_or(chunk, |cut| cut.min(chunk))
    }
}

/// The order in which a receiver asks for chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantOrder {
    /// Any: as many chunks of as many files as the protocol allows.
    #[default]
    Any,
    /// File after file and chunk after chunk, for a destination that writes bytes only in this
    /// order and keeps what comes early. A file that fails with some of its chunks received ends
    /// the session: the bytes that lie behind it cannot go out any more.
    Sequence {
        /// The most chunks that are wanted and not written, 1 at least. A destination that has a
        /// buffer for each of them, and one for each lane besides, never waits for a chunk that
        /// finds none.
        chunks_max: usize,
    },
    /// A few chunks of each of a few files at a time, for a destination that gives each file to one
    /// of several targets when the file is begun: few are begun ahead of what is known of the
    /// targets, and a target that is slow keeps no chunks from the files of others.
    Spread {
        /// The most files that are begun and not whole, 1 at least.
        files_max: usize,
        /// The most chunks that are wanted and not written, 1 at least: of a destination whose slow
        /// target must not take all buffers, as many as it has buffers.
        chunks_max: usize,
    },
}

/// The readers of the roots of skipped files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SkippedDigests {
    /// Nobody. Skipped files are not read.
    #[default]
    Unwanted,
    /// This side. The sender does not learn them.
    Kept,
    /// The sender.
    Told,
}

/// The bound of bytes that are written and not synced, which a crash may cost. A larger group means
/// more to send again after a crash. While twice as many bytes are written and not durable, no more
/// chunks are asked for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SyncGroup {
    /// Bytes that are not synced. Default 1 GiB.
    pub bytes: u64,
    /// Time since the first of these bytes was written. Default 1 s.
    pub age: Duration,
}

impl Default for SyncGroup {
    fn default() -> Self {
        SyncGroup { bytes: 1 << 30, age: Duration::from_secs(1) }
    }
}
