//! Streams at the sender: chunks are read as the input brings them, its end is said once it is
//! known, and what is durable at the receiver is let go.
//!
//! In: how far the input is, from the session; durable chunks and the want of the last chunk, from
//! the receiver. Out: orders to read, to release, and [`StreamEnd`]. A chunk that the receiver
//! wants before the input has brought it waits. Knows nothing of the input itself.

use longhaul_core::{Attempt, ChunkIndex, ChunkMap, Fault, FileId};

use super::files::{LargeSource, SentChunk};
use super::{OfferState, Sender, SenderAction};
use crate::wire::message::{DurableChunks, Message, Resume, StreamEnd};

/// How far the input of a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamInput {
    /// Bytes that were read so far.
    pub bytes: u64,
    /// The length of the stream. `None` before its end was read.
    pub len: Option<u64>,
}

impl LargeSource {
    /// Whether it is a stream, be its end known or not.
    pub(super) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the input has brought a chunk. All of a file can be read.
    pub(super) fn can_be_read(&self, index: ChunkIndex) -> bool {
        let Some(input) = self.stream else { return true };
        // The end of the input is acted upon later than it is known: until then only whole chunks
        // are read.
        index.0 < input.bytes >> self.map.size().log2() || !self.map.is_unended()
    }

    /// The part of a want that is about whole chunks of a stream that has ended. `None` if nothing
    /// is left: the want and the end have crossed.
    pub(super) fn clip(&self, start: ChunkIndex, count: u64) -> Option<(ChunkIndex, u64)> {
        if !self.is_stream() || self.map.is_unended() {
            return Some((start, count));
        }
        let left = self.map.whole_chunks().saturating_sub(start.0);
        (left > 0).then_some((start, count.min(left)))
    }

    /// Whether the receiver has said which chunks it holds, or wanted others.
    fn is_open(&self) -> bool {
        self.resumed || self.next.0 > 0
    }
}

impl Sender {
    /// The input of a stream has come so far. It may be said at any time and as often as one likes:
    /// it counts for a stream that is wanted.
    pub fn handle_stream_input(&mut self, file: FileId, input: StreamInput) {
        if self.is_over {
            return;
        }
        let Some(large) = self.large(file) else { return };
        let Some(before) = large.stream.filter(|before| *before != input) else { return };
        large.stream = Some(input);
        let map = large.map;
        let (from, to) = (before.bytes >> map.size().log2(), input.bytes >> map.size().log2());
        let ready: Vec<ChunkIndex> =
            large.chunks.range(ChunkIndex(from)..ChunkIndex(to.max(from))).map(|(index, _)| *index).collect();
        for index in ready {
            self.read_stream_chunk(file, index, map);
        }
        if let Err(fault) = self.end_stream(file) {
            self.abort(fault);
        }
    }

    fn read_stream_chunk(&mut self, file: FileId, index: ChunkIndex, map: ChunkMap) {
        let attempt = Attempt::FIRST;
        self.actions.push_back(SenderAction::ReadChunk { file, index, attempt, map, expect: None });
    }

    /// Says the end of a stream, once it is known and the receiver has opened the stream. Before
    /// that it might still say which chunks it holds.
    pub(super) fn end_stream(&mut self, file: FileId) -> Result<(), Fault> {
        let Some(large) = self.large(file).filter(|large| large.map.is_unended() && large.is_open()) else {
            return Ok(());
        };
        let Some(len) = large.stream.and_then(|input| input.len) else { return Ok(()) };
        let map = ChunkMap::new(len, large.map.size());
        let behind = || Fault::protocol("the receiver holds chunks that lie behind the end of a stream");
        large.merger = large.merger.ended(map).map_err(|_| behind())?;
        large.map = map;
        let whole = ChunkIndex(map.whole_chunks());
        large.next = large.next.min(whole);
        let dropped = large.chunks.split_off(&whole).len();
        (0..dropped).for_each(|_| self.outstanding.end_chunk());
        self.actions.push_back(SenderAction::Send(Message::StreamEnd(StreamEnd { file, len })));
        self.check_source_if_read(file);
        Ok(())
    }

    /// The receiver wants the last chunk of a stream, which is shorter than the others.
    pub(super) fn on_want_last(&mut self, file: FileId) -> Result<(), Fault> {
        let unknown = || Fault::protocol(format_args!("the last chunk of entry {} is wanted, which has none", file.0));
        let large = match self.entries.get_mut(&file) {
            Some(OfferState::Large(large)) if large.is_stream() && !large.map.is_unended() => large,
            Some(OfferState::Idle) => return Ok(()),
            None if self.manifest.was_sent(file) => return Ok(()),
            _ => return Err(unknown()),
        };
        let (map, last) = (large.map, ChunkIndex(large.map.whole_chunks()));
        if last.0 >= map.chunks() || large.merger.contains(last) || large.chunks.contains_key(&last) {
            return Err(unknown());
        }
        large.chunks.insert(last, SentChunk::wanted(Attempt::FIRST, None));
        self.outstanding.want(1);
        self.read_stream_chunk(file, last, map);
        Ok(())
    }

    /// Chunks of a stream are durable at the receiver.
    pub(super) fn on_durable_chunks(&mut self, durable: &DurableChunks) -> Result<(), Fault> {
        let DurableChunks { file, start, count } = *durable;
        let large = match self.entries.get(&file) {
            Some(OfferState::Large(large)) if large.is_stream() => large,
            Some(OfferState::Idle) => return Ok(()),
            None if self.manifest.was_sent(file) => return Ok(()),
            _ => {
                return Err(Fault::protocol(format_args!(
                    "chunks of entry {} are durable, which is no stream",
                    file.0
                )));
            }
        };
        let end = start.0.checked_add(count).filter(|end| *end <= large.next.0);
        if end.is_none() || count == 0 {
            return Err(Fault::protocol(format_args!("chunks of entry {} are durable that were not wanted", file.0)));
        }
        let size = large.map.size();
        self.actions.push_back(SenderAction::Release { file, start, count, size });
        Ok(())
    }

    /// Lets go of the parts of a stream that the receiver holds.
    pub(super) fn release_parts(&mut self, resume: &Resume) {
        for part in &resume.parts {
            let (file, start, count, size) = (resume.file, part.start, part.chunks, resume.chunk);
            self.actions.push_back(SenderAction::Release { file, start, count, size });
        }
    }
}
