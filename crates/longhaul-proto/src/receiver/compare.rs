//! Comparing with the standing file: a file of the same length under the final name is a base, and
//! only chunks that differ from it are sent.
//!
//! In: digests of the standing file, from the engine that reads it; chunks and small files that the
//! sender found equal. Out: orders to read it, digests for the sender, orders to copy equal chunks
//! into the temporary that replaces it. There is a temporary only from the first difference on.
//! Without one, the file is settled when its root is the declared one and the standing file was not
//! touched. Knows nothing of how a file is read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::{Attempt, Blame, ChunkIndex, EntryKind, Fault, FaultCode, FileId, Unit, hint};

use super::chunks::ChunkState;
use super::flow::ask_for;
use super::large::{LargeStage, LargeTarget, Want, WantedChunk};
use super::order::{Base, Ticket};
use super::{EntryRef, EntryState, Receiver, ReceiverAction};
use crate::journal::HeldChunks;
use crate::steps;
use crate::time::Timestamp;
use crate::wire::message::{CheckFiles, Finding, Message, Outcome, Verdict};

/// How far a file in chunks is compared with the standing file.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Chunks that are wanted and were not asked of the sender yet, in order.
    queue: VecDeque<ChunkIndex>,
    /// The digest of each of these chunks in the standing file; `None` if it could not be read and
    /// the sender shall send the chunk.
    found: BTreeMap<ChunkIndex, Option<Hash32>>,
    /// Chunks that were found equal before there was a temporary. They are copied once there is.
    equal: HeldChunks,
    /// The first of these chunks that is not being copied yet.
    next_copy: ChunkIndex,
    /// Number of these chunks that are being copied.
    copying: usize,
    /// The first chunks that differed, whose payload waits for the temporary.
    waiting: Vec<(ChunkIndex, Ticket)>,
}

impl Comparison {
    /// Whether nothing waits to be copied.
    pub(super) fn is_copied(&self) -> bool {
        self.equal.iter_from(self.next_copy).next().is_none()
    }

    /// Notes that a chunk is copied, or that it failed.
    pub(super) fn copied(&mut self) {
        self.copying = self.copying.saturating_sub(1);
    }
}

impl LargeTarget {
    /// The digest that the standing file has in a chunk's place, if the sender was told it.
    pub(super) fn stands(&self, index: ChunkIndex) -> Option<Hash32> {
        self.chunks.get(&index)?.standing_digest
    }

    /// Whether there is a temporary that takes chunks.
    fn takes_chunks(&self) -> bool {
        matches!(self.stage, LargeStage::Open | LargeStage::Syncing)
    }

    /// Takes note of a chunk that is equal while there is no temporary.
    fn note_equal(&mut self, index: ChunkIndex, digest: Digest) -> Result<(), Fault> {
        self.chunks.remove(&index);
        self.wanted -= 1;
        if let Some(comparison) = &mut self.comparison {
            comparison.equal.insert(index, *digest.bytes());
        }
        self.merge(index, digest)
    }

    /// The next chunk that was equal before there was a temporary.
    fn next_copy(&mut self) -> Option<(ChunkIndex, Digest)> {
        let kind = self.map.kind();
        let comparison = self.comparison.as_mut().filter(|comparison| comparison.copying < COPIES_AT_ONCE)?;
        let (index, hash) = comparison.equal.iter_from(comparison.next_copy).next()?;
        let digest = super::partial::of_kind(kind, *hash);
        comparison.next_copy = ChunkIndex(index.0 + 1);
        comparison.copying += 1;
        let chunk = WantedChunk {
            digest: Some(digest),
            standing_digest: Some(*hash),
            judged: true,
            is_resumed: true,
            ..WantedChunk::new(ChunkState::Verified)
        };
        self.chunks.insert(index, chunk);
        self.writing += 1;
        self.wanted += 1;
        Some((index, digest))
    }

    /// Declared root and computed root, once everything was compared and no temporary was needed.
    pub(super) fn roots_when_equal(&self) -> Option<(Hash32, Hash32)> {
        if self.stage != LargeStage::Comparing || self.failed.is_some() {
            return None;
        }
        self.declared_root.zip(self.merger.root())
    }

    /// The next run of chunks that the sender can be asked for.
    fn next_ask(&mut self) -> Option<Want> {
        let comparison = self.comparison.as_mut()?;
        let start = *comparison.queue.front()?;
        let compare = comparison.found.get(&start)?.is_some();
        let (mut count, mut digests) = (0, Vec::new());
        while let Some(&index) = comparison.queue.front()
            && index.0 == start.0 + count
            && comparison.found.get(&index).is_some_and(|found| found.is_some() == compare)
        {
            digests.extend(comparison.found.remove(&index).flatten());
            comparison.queue.pop_front();
            count += 1;
        }
        for (index, hash) in (start.0..).map(ChunkIndex).zip(&digests) {
            // Chunks of an earlier session are in the temporary already.
            if self.known(index).is_none()
                && let Some(chunk) = self.chunks.get_mut(&index)
            {
                chunk.standing_digest = Some(*hash);
            }
        }
        Some(Want { start, count, digests: compare.then_some(digests), is_last_of_stream: false })
    }
}

impl Receiver {
    /// Orders the roots of standing small files that have the offered length to be read.
    pub(super) fn compare_small(&mut self, files: Vec<Arc<EntryRef>>) {
        let mut files = files.into_iter().peekable();
        while files.peek().is_some() {
            self.actions.push(ReceiverAction::ReadStanding(files.by_ref().take(READ_FILES_AT_ONCE).collect()));
        }
    }

    /// The roots of standing small files: all files of one order.
    pub fn handle_read_standing(&mut self, now: Timestamp, results: Vec<(FileId, Result<Hash32, Fault>)>) {
        if self.is_over() || self.is_draining() {
            return;
        }
        let mut files = Vec::with_capacity(results.len());
        for (id, result) in results {
            let Some(slot) = self.manifest.get_mut(id).filter(|slot| matches!(slot.state, EntryState::Comparing))
            else {
                continue;
            };
            match result {
                Ok(root) => steps::step(&mut slot.state, EntryState::Compared(root)),
                Err(_) if self.config.policy.may_modify => steps::step(&mut slot.state, EntryState::Wanted),
                Err(fault) => {
                    self.fail_file(id, fault);
                    continue;
                }
            }
            files.push((id, result.ok()));
        }
        for files in files.chunks(CHECKS_AT_ONCE) {
            self.actions.push(ReceiverAction::Send(Message::CheckFiles(CheckFiles { files: files.to_vec() })));
        }
        self.settle_down(now);
    }

    /// Orders the standing chunks to be read whose place is wanted. Chunks of an earlier session
    /// are known without that.
    pub(super) fn compare(&mut self, id: FileId, want: Want) {
        let Some(slot) = self.manifest.get_mut(id) else { return };
        let EntryState::Large(large) = &mut slot.state else { return };
        let map = large.map;
        let Some(comparison) = &mut large.comparison else { return };
        let chunks: Vec<_> = (want.start.0..want.start.0 + want.count).map(ChunkIndex).collect();
        comparison.queue.extend(&chunks);
        if let Some(digests) = want.digests {
            comparison.found.extend(chunks.into_iter().zip(digests.into_iter().map(Some)));
            return self.ask_found(id);
        }
        for chunks in chunks.chunks(READ_CHUNKS_AT_ONCE) {
            let base = Base { entry: slot.entry.clone(), map };
            self.actions.push(ReceiverAction::ReadStandingChunks { base, chunks: chunks.to_vec() });
        }
    }

    /// The digests of standing chunks: all chunks of one order.
    pub fn handle_read_standing_chunks(
        &mut self,
        now: Timestamp,
        id: FileId,
        results: Vec<(ChunkIndex, Result<Digest, Fault>)>,
    ) {
        if self.is_over() || self.is_draining() {
            return;
        }
        let may_modify = self.config.policy.may_modify;
        let Some(large) = self.large(id).filter(|large| large.failed.is_none()) else { return };
        let Some(comparison) = &mut large.comparison else { return };
        let mut unread = None;
        for (index, result) in results {
            let found = result.map_err(|fault| unread.get_or_insert(fault).clone());
            comparison.found.insert(index, found.ok().map(|digest| *digest.bytes()));
        }
        match unread.filter(|_| !may_modify) {
            Some(fault) => self.fail_file(id, fault),
            None => self.ask_found(id),
        }
        self.settle_down(now);
    }

    /// Asks the sender, in order, for the chunks whose standing digest is known.
    fn ask_found(&mut self, id: FileId) {
        while let Some(want) = self.large(id).and_then(LargeTarget::next_ask) {
            // The verdicts that make room for these chunks must be heard before them, or the sender
            // counts too many.
            self.actions.flush();
            self.actions.push(ReceiverAction::Send(ask_for(id, want)));
        }
    }

    /// Takes a chunk that is equal in the source and the standing file: it is copied, or only noted
    /// if there is no temporary.
    pub(super) fn accept_equal(
        &mut self,
        id: FileId,
        index: ChunkIndex,
        attempt: Attempt,
        digest: Digest,
    ) -> Result<(), Fault> {
        let read_back = self.config.read_back;
        let Some(slot) = self.manifest.get_mut(id) else { return Ok(()) };
        let EntryState::Large(large) = &mut slot.state else { return Ok(()) };
        let verdict = Verdict { unit: Unit::Chunk { file: id, index }, attempt, finding: Finding::Good(digest) };
        if !large.takes_chunks() {
            large.note_equal(index, digest)?;
            self.window.give_back(id, 1);
            self.actions.verdict(verdict);
            self.proceed(id);
            return Ok(());
        }
        large.accept(index, digest)?;
        large.resumes(index);
        self.tally.resumed += large.map.len_of(index).unwrap_or(0);
        let base = Base { entry: slot.entry.clone(), map: large.map };
        self.actions.push(ReceiverAction::Copy { base, index, digest });
        if !read_back {
            self.actions.verdict(verdict);
        }
        Ok(())
    }

    /// Takes a chunk that differs before there is a temporary, and orders the temporary if it is
    /// the first.
    pub(super) fn begin_replacing(&mut self, id: FileId, index: ChunkIndex, ticket: Ticket) {
        let Some(slot) = self.manifest.get_mut(id) else { return };
        let EntryState::Large(large) = &mut slot.state else { return };
        let Some(comparison) = &mut large.comparison else { return };
        comparison.waiting.push((index, ticket));
        if large.stage == LargeStage::Comparing {
            steps::step(&mut large.stage, LargeStage::Creating);
            self.window.begin_creating();
            self.actions.push(ReceiverAction::Create(slot.entry.clone(), None, large.map.size()));
        }
    }

    /// Goes on with a temporary: chunks that differed first are written, and equal chunks can be
    /// copied.
    pub(super) fn go_on_replacing(&mut self, id: FileId) {
        let Some(comparison) = self.large(id).and_then(|large| large.comparison.as_mut()) else { return };
        let waiting = std::mem::take(&mut comparison.waiting);
        for (index, ticket) in waiting {
            self.actions.push(ReceiverAction::Write { file: id, index, ticket });
        }
        self.window.copy_chunks_of(id);
    }

    /// Drops the payload that waits for a temporary that cannot be made.
    pub(super) fn stop_replacing(&mut self, id: FileId) {
        let Some(EntryState::Large(large)) = self.manifest.get_mut(id).map(|slot| &mut slot.state) else { return };
        let waiting = large.comparison.as_mut().map(|comparison| std::mem::take(&mut comparison.waiting));
        for (index, ticket) in waiting.unwrap_or_default() {
            large.chunks.remove(&index);
            large.writing -= 1;
            self.actions.push(ReceiverAction::DropPayload(ticket));
        }
    }

    /// Copies chunks that were equal before there was a temporary, as the window and the disk
    /// allow.
    pub(super) fn copy_equal(&mut self, undurable_max: u64) {
        for id in self.window.files_to_copy() {
            while self.window.has_room() && self.unsynced.undurable() < undurable_max {
                let Some(slot) = self.manifest.get_mut(id) else { break };
                let EntryState::Large(large) = &mut slot.state else { break };
                if large.failed.is_some() || large.comparison.as_ref().is_none_or(Comparison::is_copied) {
                    self.window.copy_no_more_of(id);
                    break;
                }
                let Some((index, digest)) = large.next_copy() else { break };
                self.window.take(id, 1);
                self.tally.resumed += large.map.len_of(index).unwrap_or(0);
                let base = Base { entry: slot.entry.clone(), map: large.map };
                self.actions.push(ReceiverAction::Copy { base, index, digest });
            }
        }
    }

    /// Orders the last check of files that stand as the source has them, and their metadata.
    pub(super) fn retouch(&mut self, files: Vec<Arc<EntryRef>>) {
        if !files.is_empty() {
            let metadata = self.config.policy.may_modify;
            self.actions.push(ReceiverAction::Retouch { files, metadata });
        }
    }

    /// The compared files are unchanged, and their metadata is set as far as allowed. Or that
    /// failed.
    pub fn handle_retouch(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        if self.is_over() {
            return;
        }
        for (id, result) in results {
            let root = match self.manifest.get_mut(id).map(|slot| &mut slot.state) {
                Some(EntryState::Retouching(root)) => Some(*root),
                Some(EntryState::Large(large)) if large.stage == LargeStage::Retouching => {
                    steps::step(&mut large.stage, LargeStage::Comparing);
                    large.declared_root
                }
                _ => None,
            };
            match (root, result) {
                (Some(root), Ok(())) => self.finish(id, Outcome::Equal(root)),
                (Some(_), Err(fault)) => self.fail_file(id, fault),
                (None, _) => {}
            }
        }
        self.settle_down(now);
    }
}

/// Whether an entry is a file that goes in chunks.
pub(super) fn goes_in_chunks(kind: &EntryKind, bundled_max: u64) -> bool {
    matches!(kind, EntryKind::File { len, .. } if *len > bundled_max)
}

/// The fault of a standing file that differs and may not be replaced.
pub(super) fn differs() -> Fault {
    Fault::new(FaultCode::Denied, Blame::Local, "what stands there differs and this key may not replace it")
        .hint(hint::Daemon::AskForModify)
}

/// Standing small files that are read by one order. Files that are read together are packed
/// together, too.
const READ_FILES_AT_ONCE: usize = 128;
/// Chunks of one order: few, so that files of some chunks are read by several readers.
const READ_CHUNKS_AT_ONCE: usize = 4;
/// Small files in one message: at some 40 bytes each they stay far below its bound.
const CHECKS_AT_ONCE: usize = 1024;
/// Chunks of one file that are copied at once, of the chunks that were equal before there was a
/// temporary. More chunks than readers have buffers would only take room in the window.
const COPIES_AT_ONCE: usize = 16;
