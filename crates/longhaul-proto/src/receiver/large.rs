//! One file that comes in chunks: what became of each chunk, and how far the file is.
//!
//! Takes what the machine saw happen; answers what may follow. Sends nothing and orders nothing: `flow` does, for all
//! files together. Every counter of a session has its part here, so that a file that ends takes exactly its part away.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::digest::{Digest, Hash32, RootMerger};
use longhaul_core::{Attempt, Blame, ChunkIndex, ChunkMap, Fault, FaultCode, FileId};

use super::SyncGroup;
use super::chunks::{ChunkEvent, ChunkState};
use crate::time::Timestamp;

/// A chunk that is asked for or on its way to being durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) state: ChunkState,
    pub(super) attempt: Attempt,
}

/// What the disk is doing with the file as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for a descriptor.
    Waiting,
    /// Its temporary is being made.
    Creating,
    /// It takes chunks.
    Open,
    /// It takes chunks, and what was written before is being synced.
    Syncing,
    /// All is written: length and metadata are being set.
    Sealing,
    /// It waits for its batch or is in it.
    Staged,
}

/// A file that comes in chunks.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) map: ChunkMap,
    pub(super) stage: Stage,
    merger: RootMerger,
    pub(super) declared_root: Option<Hash32>,
    /// Chunks before this one were wanted at least once.
    pub(super) next_want: ChunkIndex,
    /// Chunks that are wanted and not yet durable.
    pub(super) chunks: BTreeMap<ChunkIndex, Chunk>,
    /// Its part of the session's window of wanted chunks: those wanted and those being written. A file that fails keeps
    /// its part until it ends, as the sender counts it until it hears so.
    pub(super) wanted: usize,
    /// Chunks being written.
    pub(super) writing: usize,
    /// Bytes written that no sync under way speaks for, the first of them since `since`.
    pub(super) written: u64,
    pub(super) since: Option<Timestamp>,
    /// Bytes that the sync under way speaks for.
    pub(super) syncing: u64,
    /// Why it will not be committed; it waits for what the disk is doing.
    pub(super) failed: Option<Fault>,
}

impl Large {
    pub(super) fn new(map: ChunkMap) -> Large {
        Large {
            map,
            stage: Stage::Waiting,
            merger: RootMerger::new(map),
            declared_root: None,
            next_want: ChunkIndex(0),
            chunks: BTreeMap::new(),
            wanted: 0,
            writing: 0,
            written: 0,
            since: None,
            syncing: 0,
            failed: None,
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
        self.written + self.syncing
    }

    /// Whether it occupies one of the session's descriptors.
    pub(super) fn is_open(&self) -> bool {
        self.stage != Stage::Waiting
    }

    /// Whether its temporary is complete, or about to be: nothing that the sender says can undo it.
    pub(super) fn is_sealed(&self) -> bool {
        matches!(self.stage, Stage::Sealing | Stage::Staged)
    }

    /// Whether the disk is at work on it, so that it cannot end now.
    pub(super) fn is_at_disk(&self) -> bool {
        self.writing > 0 || matches!(self.stage, Stage::Creating | Stage::Syncing | Stage::Sealing)
    }

    pub(super) fn has_chunks_to_want(&self) -> bool {
        self.failed.is_none() && self.next_want.0 < self.map.chunks()
    }

    /// Declared root and computed root, once nothing more is to come and the disk rests.
    pub(super) fn roots_when_whole(&self) -> Option<(Hash32, Hash32)> {
        if self.stage != Stage::Open || self.writing > 0 || self.failed.is_some() {
            return None;
        }
        self.declared_root.zip(self.merger.root())
    }

    /// Asks for the next `count` chunks; gives the first of them.
    pub(super) fn want(&mut self, count: u64) -> ChunkIndex {
        let start = self.next_want;
        self.next_want = ChunkIndex(start.0 + count);
        for index in start.0..self.next_want.0 {
            self.chunks.insert(ChunkIndex(index), Chunk { state: ChunkState::Wanted, attempt: Attempt::FIRST });
        }
        self.wanted += count as usize;
        start
    }

    /// Takes a verified chunk: its digest goes into the file's tree, its bytes to the disk.
    pub(super) fn accept(&mut self, index: ChunkIndex, digest: Digest) -> Result<(), Fault> {
        self.step(index, ChunkEvent::Accept);
        self.writing += 1;
        self.merger.insert(index, digest).map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, e))
    }

    /// Wants a chunk again that arrived damaged.
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

    /// A write came back; gives the chunk's bytes.
    pub(super) fn wrote(&mut self, now: Timestamp, index: ChunkIndex) -> u64 {
        self.step(index, ChunkEvent::Written);
        self.writing -= 1;
        self.wanted -= 1;
        let bytes = self.map.len_of(index).unwrap_or(0);
        self.written += bytes;
        self.since.get_or_insert(now);
        bytes
    }

    pub(super) fn begin_sync(&mut self) {
        self.stage = Stage::Syncing;
        self.step_all(ChunkState::Written, ChunkEvent::SyncBegun);
        self.syncing = std::mem::take(&mut self.written);
        self.since = None;
    }

    /// A sync came back; gives the bytes that are durable by it.
    pub(super) fn synced(&mut self) -> u64 {
        self.step_all(ChunkState::Syncing, ChunkEvent::Synced);
        self.chunks.retain(|_, chunk| chunk.state != ChunkState::Durable);
        std::mem::take(&mut self.syncing)
    }

    /// Nothing more of it is wanted. The first reason stays.
    pub(super) fn fail(&mut self, fault: Fault) {
        self.failed.get_or_insert(fault);
        self.chunks.retain(|_, chunk| chunk.state != ChunkState::Wanted);
    }

    fn step_all(&mut self, from: ChunkState, event: ChunkEvent) {
        let indices: Vec<_> = self.chunks.iter().filter(|(_, chunk)| chunk.state == from).map(|(i, _)| *i).collect();
        indices.into_iter().for_each(|index| self.step(index, event));
    }

    /// Moves one chunk; a transition that cannot happen is a bug of ours and is left alone.
    fn step(&mut self, index: ChunkIndex, event: ChunkEvent) {
        if let Some(chunk) = self.chunks.get_mut(&index) {
            let next = chunk.state.on(event);
            debug_assert!(next.is_some(), "{event:?} in {:?}", chunk.state);
            chunk.state = next.unwrap_or(chunk.state);
        }
    }
}

/// What all files have written and not synced.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    /// Files whose next sync can begin at any time: open, not failed, with bytes written since the last.
    pub(super) files: BTreeSet<FileId>,
    /// Bytes written of these, the first of them since `since`.
    pub(super) bytes: u64,
    pub(super) since: Option<Timestamp>,
    /// Bytes written and not durable, of all files.
    pub(super) undurable: u64,
}

impl Unsynced {
    pub(super) fn deadline(&self, group: SyncGroup) -> Option<Timestamp> {
        self.since.map(|since| since.after(group.age))
    }

    pub(super) fn is_due(&self, now: Timestamp, group: SyncGroup) -> bool {
        !self.files.is_empty()
            && (self.bytes >= group.bytes || self.deadline(group).is_some_and(|deadline| now >= deadline))
    }

    /// `bytes` of a file wait for its next sync, since `since`.
    pub(super) fn join(&mut self, id: FileId, bytes: u64, since: Option<Timestamp>) {
        self.files.insert(id);
        self.bytes += bytes;
        self.since = [self.since, since].into_iter().flatten().min();
    }

    /// A file will not be synced so: it is sealed, or it failed.
    pub(super) fn leave(&mut self, id: FileId, large: &Large) {
        if self.files.remove(&id) {
            self.bytes -= large.written;
        }
        if self.files.is_empty() {
            self.since = None;
        }
    }
}
