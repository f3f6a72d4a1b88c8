//! One file that comes in chunks: the state of the file and of each of its chunks.
//!
//! Takes events from the machine and answers with the steps that may follow. Sends nothing and
//! orders nothing: `flow` does, for all files together. Every counter of a session has its part
//! here, so that a file that ends takes exactly its part away.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::digest::{Digest, Hash32, RootMerger, TreePart};
use longhaul_core::limits::ATTEMPTS_MAX;
use longhaul_core::{Attempt, Blame, ChunkIndex, ChunkMap, Fault, FaultCode};

use super::chunks::{ChunkEvent, ChunkState};
use super::compare::Comparison;
use super::lost::LostChunks;
use super::partial::{Partial, PartialStretch, Source};
use super::readback::Checks;
use super::room::Reserved;
use crate::steps;
use crate::time::Timestamp;

/// A chunk that is asked for or on its way to being durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedChunk {
    pub(super) state: ChunkState,
    pub(super) attempt: Attempt,
    /// The attempt from which damaged ones are counted: the first, or the one that was asked for
    /// when its bytes were given up.
    pub(super) counted_from: Attempt,
    /// Its digest, once it is verified.
    pub(super) digest: Option<Digest>,
    /// The digest that the standing file has in its place, once the sender was asked to compare it.
    /// `None` for a chunk that is not compared.
    pub(super) standing_digest: Option<Hash32>,
    /// Whether its verdict is said and its digest is in the file's tree already: it was found equal
    /// before there was a temporary to copy it to.
    pub(super) judged: bool,
    /// Whether its bytes count as resumed: they were not sent.
    pub(super) is_resumed: bool,
    /// The digest that it had when its bytes were given up, which is in the file's tree: it must
    /// come again with this one. `None` if its digest is not in the tree, or it has come again.
    pub(super) before: Option<Digest>,
    /// Whether its bytes were given up before its write was reported.
    pub(super) is_given_up: bool,
}

impl WantedChunk {
    /// A chunk in this state, of which nothing is known.
    pub(super) const fn new(state: ChunkState) -> WantedChunk {
        WantedChunk {
            state,
            attempt: Attempt::FIRST,
            counted_from: Attempt::FIRST,
            digest: None,
            standing_digest: None,
            judged: false,
            is_resumed: false,
            before: None,
            is_given_up: false,
        }
    }

    /// Whether it may be asked for once more if `attempt` of it is damaged.
    pub(super) fn may_come_again(&self, attempt: Attempt) -> bool {
        attempt.since(self.counted_from) < ATTEMPTS_MAX
    }
}

/// Chunks to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) start: ChunkIndex,
    pub(super) count: u64,
    /// The digests that the sender shall compare. `None` if it shall send the chunks.
    pub(super) digests: Option<Vec<Hash32>>,
    /// Whether it is the last chunk of a stream, which is shorter than the others.
    pub(super) is_last_of_stream: bool,
}

/// How far the chunks of a file were wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WantProgress {
    /// Chunks before this one were wanted at least once.
    pub(super) next: ChunkIndex,
    /// Whether it is a stream.
    pub(super) stream: StreamStage,
}

/// Whether a file is a stream, and how far that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamStage {
    /// It is a file, whose length was known from the start.
    #[default]
    NoStream,
    /// It is a stream whose end is not known.
    Unended,
    /// It is a stream whose length is known.
    Ended,
}

/// The fate of the temporary of a file that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leftover {
    /// It stays: a later session may continue its journalled chunks.
    Keep,
    /// It is removed.
    Discard,
}

/// The stage of a file that comes in chunks.
///
/// ```text
/// stage       event                                             next stage
/// Waiting     descriptor and room; file is to be compared       Comparing
/// Waiting     descriptor and room; any other file               Creating
/// Waiting     it fails before it is opened                      (settled)
/// Comparing   first chunk that differs arrives                  Creating
/// Comparing   all chunks equal, root is the declared one        Retouching
/// Comparing   it fails                                          (settled)
/// Retouching  standing file unchanged, metadata set, or not     Comparing (settled)
/// Creating    temporary made, or the one of the partial opened  Open
/// Creating    that failed                                       Waiting (fails)
/// Open        enough bytes or time for a group sync             Syncing
/// Open        all chunks written (and read), root as declared   Sealing
/// Open        it fails, and the disk has no work on it          (settled)
/// Syncing     sync over, well or not                            Open
/// Sealing     length and metadata set                           Staged
/// Sealing     that failed                                       Open (fails)
/// Staged      batch over                                        (settled)
/// ```
///
/// A file that fails in any stage is settled once the disk has no work on it. If its temporary is
/// kept, its written chunks are synced and journalled before ([`LargeTarget::is_to_be_saved`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LargeStage {
    /// It waits for a descriptor.
    Waiting,
    /// It has no temporary: it is compared with the standing file, and no difference was found yet.
    Comparing,
    /// No difference was found: the standing file is checked once more and its metadata set.
    Retouching,
    /// Its temporary is being made.
    Creating,
    /// It takes chunks.
    Open,
    /// It takes chunks, and the chunks written before are being synced.
    Syncing,
    /// All chunks are written: length and metadata are being set.
    Sealing,
    /// It waits for its batch or is in it.
    Staged,
}

/// A file that comes in chunks.
#[derive(Debug)]
pub(super) struct LargeTarget {
    pub(super) map: ChunkMap,
    pub(super) stage: LargeStage,
    /// The partial that it continues. `None` for a file that begins anew.
    pub(super) partial: Option<Arc<Partial>>,
    pub(super) merger: RootMerger,
    pub(super) declared_root: Option<Hash32>,
    /// How far its chunks were wanted.
    pub(super) wants: WantProgress,
    /// Chunks that are wanted and not yet durable.
    pub(super) chunks: BTreeMap<ChunkIndex, WantedChunk>,
    /// Its part of the session's window of wanted chunks: chunks that are wanted or being written;
    /// or, if chunks are read back, chunks without a verdict. A file that fails keeps its part
    /// until it is settled, as the sender counts it until then.
    pub(super) wanted: usize,
    /// Chunks being written.
    pub(super) writing: usize,
    /// Bytes written that no sync covers yet, the first of them at `since`.
    pub(super) written: u64,
    pub(super) since: Option<Timestamp>,
    /// Bytes that the sync under way covers.
    pub(super) syncing: u64,
    /// Bytes synced whose records are not durable.
    pub(super) synced: u64,
    /// Its chunks whose bytes were given up.
    pub(super) lost: LostChunks,
    /// Bytes counted as durable: resumed, or journalled in this session.
    pub(super) durable: u64,
    /// Room that it will still take on the file system of the destination. `None` if no room is
    /// kept for it.
    pub(super) room: Option<Reserved>,
    /// Its chunks that are being read back.
    pub(super) checks: Checks,
    /// How far it is compared with the standing file. `None` if it is not compared.
    pub(super) comparison: Option<Comparison>,
    /// Why it will not be committed, and the fate of its temporary. It is settled once the disk has
    /// no work on it. `None` while it has not failed.
    pub(super) failed: Option<(Fault, Leftover)>,
    /// Whether no sync can cover the bytes written since the last one: a sync failed, or the file
    /// is not open any more.
    pub(super) unsavable: bool,
}

impl LargeTarget {
    pub(super) fn new(map: ChunkMap) -> LargeTarget {
        LargeTarget {
            map,
            stage: LargeStage::Waiting,
            partial: None,
            merger: RootMerger::new(map),
            declared_root: None,
            wants: WantProgress::default(),
            chunks: BTreeMap::new(),
            wanted: 0,
            writing: 0,
            written: 0,
            since: None,
            syncing: 0,
            synced: 0,
            lost: LostChunks::default(),
            durable: 0,
            room: None,
            checks: Checks::default(),
            comparison: None,
            failed: None,
            unsavable: false,
        }
    }

    /// A file that continues `partial`, if that still stands.
    pub(super) fn continued(partial: Arc<Partial>) -> LargeTarget {
        let map = partial.map();
        let target = if map.is_unended() { LargeTarget::unended(map.size()) } else { LargeTarget::new(map) };
        LargeTarget { partial: Some(partial), ..target }
    }

    /// Begins without the partial, which was gone, or in chunks of another size.
    pub(super) fn begin_anew(&mut self, map: ChunkMap) {
        let failed = self.failed.take();
        let checks = std::mem::take(&mut self.checks);
        let comparison = self.comparison.take();
        let target = if map.is_unended() { LargeTarget::unended(map.size()) } else { LargeTarget::new(map) };
        *self = LargeTarget { stage: self.stage, room: self.room, failed, checks, comparison, ..target };
    }

    /// Continues the partial. Gives the parts of the digest tree that the sender needs; a partial
    /// of another version of the source gives no parts, as its chunks are all compared.
    pub(super) fn resume(&mut self) -> Result<Vec<TreePart>, Fault> {
        let Some(partial) = self.partial.clone().filter(|partial| partial.source() == Source::Same) else {
            return Ok(Vec::new());
        };
        for (index, digest) in partial.iter() {
            self.merger.insert(index, digest).map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, e))?;
        }
        self.skip_held();
        Ok(self.merger.parts())
    }

    /// Bytes that the partial holds and the sender does not send. 0 if it is of another version.
    pub(super) fn resumed(&self) -> u64 {
        let same = self.partial.as_ref().filter(|partial| partial.source() == Source::Same);
        same.map_or(0, |partial| partial.bytes())
    }

    /// The digest that an earlier session journalled for a chunk, if the chunk is to be compared.
    pub(super) fn known(&self, index: ChunkIndex) -> Option<Hash32> {
        self.partial.as_ref().filter(|partial| partial.source() == Source::Changed)?.get(index)
    }

    /// Moves past chunks that are held.
    fn skip_held(&mut self) {
        let Some(partial) = self.partial.as_ref().filter(|partial| partial.source() == Source::Same) else { return };
        while let PartialStretch::Held { end } = partial.stretch(self.wants.next) {
            self.wants.next = end;
        }
    }

    pub(super) fn end(&mut self, root: Hash32) -> Result<(), Fault> {
        if self.declared_root.replace(root).is_some() {
            return Err(Fault::protocol("a file that ends twice"));
        }
        Ok(())
    }

    /// Bytes written and not durable.
    pub(super) fn undurable(&self) -> u64 {
        self.written + self.syncing + self.synced
    }

    /// Whether any chunk of it was received, be it written or not.
    pub(super) fn has_received(&self) -> bool {
        self.writing > 0 || self.undurable() > 0 || self.durable > 0
    }

    /// Whether it occupies one of the session's descriptors. A file that is compared does: it may
    /// need the descriptor at any time.
    pub(super) fn is_open(&self) -> bool {
        self.stage != LargeStage::Waiting
    }

    /// Whether it has a temporary.
    pub(super) fn has_temporary(&self) -> bool {
        !matches!(self.stage, LargeStage::Waiting | LargeStage::Comparing | LargeStage::Retouching)
    }

    /// Whether its temporary is complete, about to be, or not needed: no message of the sender can
    /// undo that.
    pub(super) fn is_sealed(&self) -> bool {
        matches!(self.stage, LargeStage::Sealing | LargeStage::Staged | LargeStage::Retouching)
    }

    /// Whether the disk has work on it, so that it cannot end now.
    pub(super) fn is_at_disk(&self) -> bool {
        self.writing > 0
            || self.checks.are_under_way()
            || matches!(
                self.stage,
                LargeStage::Creating | LargeStage::Syncing | LargeStage::Sealing | LargeStage::Retouching
            )
    }

    pub(super) fn has_chunks_to_want(&self) -> bool {
        self.failed.is_none() && (self.wants.next.0 < self.map.chunks() || self.lost.has_unasked())
    }

    /// The declared and the computed root, once no chunk is to come and the disk has no work on it.
    pub(super) fn roots_when_whole(&self) -> Option<(Hash32, Hash32)> {
        if self.stage != LargeStage::Open || self.writing > 0 || !self.checks.are_over() || self.failed.is_some() {
            return None;
        }
        if self.comparison.as_ref().is_some_and(|comparison| !comparison.is_copied()) {
            return None;
        }
        if self.lost.has_awaited() {
            return None;
        }
        self.declared_root.zip(self.merger.root())
    }

    /// The next chunks to ask for, at most `room`. `None` if there are none.
    pub(super) fn want(&mut self, room: u64) -> Option<Want> {
        self.skip_held();
        let start = self.wants.next;
        let stretch = self.partial.as_ref().map(|partial| partial.stretch(start));
        let (end, compare) = match stretch {
            None => (ChunkIndex(self.map.chunks()), false),
            Some(PartialStretch::Missing { end }) => (end, false),
            Some(PartialStretch::Held { end }) => (end, true),
        };
        let is_last_of_stream = self.is_last_of_stream(start);
        let end = end.0.min(if is_last_of_stream { self.map.chunks() } else { self.want_end() });
        let count = room.min(end.saturating_sub(start.0)).min(WANT_COUNT_MAX);
        if count == 0 {
            return None;
        }
        self.wants.next = ChunkIndex(start.0 + count);
        for index in start.0..self.wants.next.0 {
            self.chunks.insert(ChunkIndex(index), WantedChunk::new(ChunkState::Wanted));
        }
        self.wanted += count as usize;
        self.skip_held();
        let digests = self.partial.as_ref().filter(|_| compare).map(|partial| partial.digests(start, count));
        Some(Want { start, count, digests, is_last_of_stream })
    }

    /// Takes a verified chunk: it is to be written, and its digest joins the file's tree, unless it
    /// is to be read back first.
    pub(super) fn accept(&mut self, index: ChunkIndex, digest: Digest) -> Result<(), Fault> {
        self.step(index, ChunkEvent::Accept);
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.digest = Some(digest);
        }
        self.writing += 1;
        if self.checks.are_on() { Ok(()) } else { self.enter_tree(index, digest) }
    }

    /// Takes the digest of a chunk into the file's tree, unless it is there since the chunk came
    /// before.
    pub(super) fn enter_tree(&mut self, index: ChunkIndex, digest: Digest) -> Result<(), Fault> {
        if self.chunks.get_mut(&index).and_then(|chunk| chunk.before.take()).is_some() {
            self.lost.has_come();
            return Ok(());
        }
        self.merge(index, digest)
    }

    pub(super) fn merge(&mut self, index: ChunkIndex, digest: Digest) -> Result<(), Fault> {
        self.merger.insert(index, digest).map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, e))
    }

    /// Wants a damaged chunk again.
    pub(super) fn reject(&mut self, index: ChunkIndex) {
        self.step(index, ChunkEvent::Reject);
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.attempt = chunk.attempt.next();
        }
    }

    /// Whether the chunk is being written.
    pub(super) fn is_writing(&self, index: ChunkIndex) -> bool {
        self.chunks.get(&index).is_some_and(|chunk| chunk.state == ChunkState::Verified)
    }

    /// Notes that a chunk was written. Gives its bytes.
    pub(super) fn wrote(&mut self, now: Timestamp, index: ChunkIndex) -> u64 {
        self.step(index, ChunkEvent::Written);
        self.writing -= 1;
        if self.chunks.get(&index).is_some_and(|chunk| chunk.judged)
            && let Some(comparison) = &mut self.comparison
        {
            comparison.copied();
        }
        if !self.checks.are_on() {
            self.wanted -= 1;
        }
        let bytes = self.map.len_of(index).unwrap_or(0);
        self.written += bytes;
        self.since.get_or_insert(now);
        bytes
    }

    /// Forgets a chunk whose write failed: its bytes in the temporary are unknown.
    pub(super) fn not_written(&mut self, index: ChunkIndex) {
        self.chunks.remove(&index);
        self.writing -= 1;
        if !self.checks.are_on() {
            self.wanted -= 1;
        }
    }

    /// Whether it has failed, and another session may continue it.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.failed, Some((_, Leftover::Keep)))
    }

    /// Whether it has failed, and a sync would add to the chunks that may be continued.
    pub(super) fn is_to_be_saved(&self) -> bool {
        self.is_kept() && self.stage == LargeStage::Open && self.written > 0 && !self.unsavable
    }

    pub(super) fn begin_sync(&mut self) {
        steps::step(&mut self.stage, LargeStage::Syncing);
        self.step_all(ChunkState::Written, ChunkEvent::SyncBegun);
        self.syncing = std::mem::take(&mut self.written);
        self.since = None;
    }

    /// Notes that the sync succeeded. Gives the chunks that it covers.
    pub(super) fn synced(&mut self) -> Vec<(ChunkIndex, Digest)> {
        let syncing = self.chunks.iter().filter(|(_, chunk)| chunk.state == ChunkState::Syncing);
        let chunks: Vec<_> = syncing.filter_map(|(index, chunk)| Some((*index, chunk.digest?))).collect();
        chunks.iter().for_each(|(index, _)| self.step(*index, ChunkEvent::Synced));
        self.synced += std::mem::take(&mut self.syncing);
        chunks
    }

    /// Notes that the records of `chunks` are durable. Gives the bytes that are durable by them.
    pub(super) fn journalled(&mut self, chunks: &[(ChunkIndex, Digest)]) -> u64 {
        let mut bytes = 0;
        for (index, _) in chunks {
            self.step(*index, ChunkEvent::Journalled);
            if self.chunks.remove(index).is_some() {
                bytes += self.map.len_of(*index).unwrap_or(0);
            }
        }
        self.synced -= bytes;
        self.durable += bytes;
        bytes
    }

    /// Fails the file: no chunk of it is wanted any more. The first reason stays.
    pub(super) fn fail(&mut self, fault: Fault, leftover: Leftover) {
        self.failed.get_or_insert((fault, leftover));
        self.chunks.retain(|_, chunk| !matches!(chunk.state, ChunkState::Wanted | ChunkState::Lost));
        self.lost.forget_unasked();
    }

    fn step_all(&mut self, from: ChunkState, event: ChunkEvent) {
        let indices: Vec<_> = self.chunks.iter().filter(|(_, chunk)| chunk.state == from).map(|(i, _)| *i).collect();
        indices.into_iter().for_each(|index| self.step(index, event));
    }

    /// Moves one chunk to its next state. A transition that cannot happen is a bug of ours and is
    /// ignored.
    pub(super) fn step(&mut self, index: ChunkIndex, event: ChunkEvent) {
        if let Some(chunk) = self.chunks.get_mut(&index) {
            let next = chunk.state.on(event);
            debug_assert!(next.is_some(), "{event:?} in {:?}", chunk.state);
            if let Some(next) = next {
                steps::step(&mut chunk.state, next);
            }
        }
    }
}

/// Chunks asked for in one message. If they are to be compared, their digests fill a quarter of its
/// bound.
const WANT_COUNT_MAX: u64 = 1024;
const _: () = assert!(WANT_COUNT_MAX as usize * 32 * 2 <= longhaul_core::limits::MESSAGE_BYTES_MAX);
