//! Streams at the receiver: files whose length the sender says only at their end.
//!
//! In: the entry of a stream, and [`StreamEnd`]. Out: chunks that are durable, so that the sender
//! lets go of them. Before its end only whole chunks of a stream are wanted, however many there may
//! be. Its end drops those that will not come, and makes a file of it; then its last chunk is
//! wanted by a message of its own, as a want of that chunk may have crossed the end.

use std::sync::Arc;

use longhaul_core::digest::{Digest, RootMerger};
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Entry, EntryKind, Fault, FileId};

use super::chunks::ChunkState;
use super::journal::JournalEntry;
use super::large::{LargeStage, LargeTarget, StreamStage};
use super::order::SyncGroup;
use super::partial::{Partial, Source};
use super::{EntryRef, EntryState, Receiver, WantOrder};
use crate::wire::message::{DurableChunks, Message, StreamEnd};

/// The geometry of what comes in chunks of this size. `None` for an entry without content.
pub(super) fn map_of(kind: &EntryKind, chunk: ChunkSize) -> Option<ChunkMap> {
    match kind {
        EntryKind::File { len, .. } => Some(ChunkMap::new(*len, chunk)),
        EntryKind::Stream { .. } => Some(ChunkMap::unended(chunk)),
        _ => None,
    }
}

impl LargeTarget {
    /// A stream of which nothing is held.
    pub(super) fn unended(chunk: ChunkSize) -> LargeTarget {
        let mut target = LargeTarget::new(ChunkMap::unended(chunk));
        target.merger = RootMerger::unended(chunk);
        target.wants.stream = StreamStage::Unended;
        target
    }

    /// A stream, of which an earlier session of its run may hold part.
    pub(super) fn of_stream(chunk: ChunkSize, partial: Option<Arc<Partial>>) -> LargeTarget {
        let is_of_it = |partial: &Arc<Partial>| {
            partial.source() == Source::Same && partial.map().is_unended() && partial.map().size() == chunk
        };
        match partial.filter(is_of_it) {
            Some(partial) => LargeTarget::continued(partial),
            None => LargeTarget::unended(chunk),
        }
    }

    /// Whether it is a stream, be its end known or not.
    pub(super) fn is_stream(&self) -> bool {
        self.wants.stream != StreamStage::NoStream
    }

    /// The end of the chunks that are wanted as others are.
    pub(super) fn want_end(&self) -> u64 {
        if self.is_stream() { self.map.whole_chunks() } else { self.map.chunks() }
    }

    /// Whether this chunk of a stream that has ended is shorter than the others.
    pub(super) fn is_last_of_stream(&self, index: ChunkIndex) -> bool {
        self.wants.stream == StreamStage::Ended && index.0 >= self.map.whole_chunks()
    }

    /// Takes the length of a stream. Gives how many chunks are wanted no more.
    fn end_stream(&mut self, len: u64) -> Result<usize, Fault> {
        let map = ChunkMap::new(len, self.map.size());
        let whole = ChunkIndex(map.whole_chunks());
        let behind = || Fault::protocol("a stream that ends before chunks that came");
        if len <= map.size().bytes() || map.is_unended() {
            return Err(Fault::protocol("a stream that ends where none does"));
        }
        if self.chunks.range(whole..).any(|(_, chunk)| chunk.state != ChunkState::Wanted) {
            return Err(behind());
        }
        self.merger = self.merger.ended(map).map_err(|_| behind())?;
        let dropped = self.chunks.split_off(&whole).len();
        self.wanted -= dropped;
        self.map = map;
        self.wants.next = self.wants.next.min(whole);
        self.wants.stream = StreamStage::Ended;
        Ok(dropped)
    }
}

impl Receiver {
    /// A stream is offered, of which its sender keeps so many bytes: they are made durable before
    /// it has to wait for that.
    pub(super) fn expect_stream(&mut self, kept_bytes: u64) -> Result<(), Fault> {
        if matches!(self.config.order, WantOrder::Sequence { .. }) {
            return Err(Fault::protocol("a stream where only files were asked for"));
        }
        let bytes = self.config.group.bytes.min((kept_bytes / KEPT_PARTS).max(self.config.chunk.bytes()));
        self.config.group = SyncGroup { bytes, ..self.config.group };
        Ok(())
    }

    /// The sender knows the length of a stream.
    pub(super) fn on_stream_end(&mut self, end: &StreamEnd) -> Result<(), Fault> {
        let Some(slot) = self.manifest.get_mut(end.file) else {
            return match self.manifest.was_offered(end.file) {
                true => Ok(()),
                false => Err(Fault::protocol("the end of a stream that was not offered")),
            };
        };
        let EntryRef { id, entry, placed } = &*slot.entry;
        let (EntryState::Large(large), EntryKind::Stream { inode, .. }) = (&mut slot.state, &entry.kind) else {
            return Err(Fault::protocol("the end of what is no stream, or ended before"));
        };
        if large.failed.is_some() {
            return Ok(());
        }
        // A sender knows that the file is open by the first want.
        if !large.is_open() || large.stage == LargeStage::Creating || !large.map.is_unended() {
            return Err(Fault::protocol("the end of a stream that was not begun"));
        }
        let dropped = large.end_stream(end.len)?;
        let kind = EntryKind::File { len: end.len, sparse: false, inode: *inode };
        let entry = Entry { path: entry.path.clone(), kind, meta: entry.meta.clone() };
        slot.entry = Arc::new(EntryRef { id: *id, entry, placed: placed.clone() });
        self.window.give_back(end.file, dropped);
        self.window.want_chunks_of(end.file);
        self.proceed(end.file);
        Ok(())
    }

    /// Adds synced chunks to those that are journalled. The last chunk of a stream is not: a later
    /// session, which does not know where the stream ends, would take it for a whole one.
    pub(super) fn journal_chunks(&mut self, file: FileId, mut chunks: Vec<(ChunkIndex, Digest)>) {
        if let Some(large) = self.large(file) {
            chunks.retain(|(index, _)| !large.is_last_of_stream(*index));
        }
        if !chunks.is_empty() {
            self.journal.add(JournalEntry::Chunks { file, chunks });
        }
    }

    /// Tells the sender which chunks of a stream are durable: a message for each row of them.
    pub(super) fn tell_durable(&mut self, file: FileId, chunks: &[(ChunkIndex, Digest)]) {
        // Their verdicts come first.
        self.actions.flush();
        for row in chunks.chunk_by(|a, b| a.0.0 + 1 == b.0.0) {
            let (start, count) = (row[0].0, row.len() as u64);
            self.actions.say(Message::DurableChunks(DurableChunks { file, start, count }));
        }
    }
}

/// A group sync is due after this part of what the sender keeps: while one is under way, and its
/// records are on their way, others can still be sent.
const KEPT_PARTS: u64 = 4;
