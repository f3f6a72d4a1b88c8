//! Files that go in chunks: the chunks of each that are wanted and sent, and the end of the file.
//!
//! Takes wants and verdicts from the receiver, reports of reads from the disk and of sendings from
//! the lanes, in any order. Knows nothing of bundles or of the manifest.

use std::collections::BTreeMap;

use longhaul_core::digest::{Digest, Hash32, RootMerger, TreePart};
use longhaul_core::limits::{CHUNK_BYTES_CUT_MIN, CUT_CHUNKS_MAX};
use longhaul_core::{Attempt, Blame, ChunkIndex, ChunkMap, ChunkSize, DigestKind, Fault, FaultCode, FileId, Unit};

use super::lanes::Carrier;
use super::stream::StreamInput;
use super::{OfferState, Sender, SenderAction, Sent, may_be_said, wrong_digest};
use crate::wire::message::{FileEnd, Finding, Message, Resume};

/// A file that goes in chunks.
#[derive(Debug)]
pub(super) struct LargeSource {
    /// Its geometry. Of a stream: without an end until that is said.
    pub(super) map: ChunkMap,
    /// The digests of the chunks that were read or are held.
    pub(super) merger: RootMerger,
    /// Chunks before this one were wanted: each is wanted for the first time in order.
    pub(super) next: ChunkIndex,
    /// Chunks that are wanted and have no good verdict.
    pub(super) chunks: BTreeMap<ChunkIndex, SentChunk>,
    ended: bool,
    /// Whether the receiver wanted chunks of it, or said which it holds.
    begun: bool,
    /// Whether the receiver said all parts that it holds, ...
    pub(super) resumed: bool,
    /// ... and how many these are.
    parts_held: usize,
    /// Bytes of it that are not to be sent for the first time any more: the lengths of those parts,
    /// and of the chunks that some lane had whole.
    pub(super) bytes_done: u64,
    /// How far its input is. `None` for a file, all of which can be read.
    pub(super) stream: Option<StreamInput>,
}

/// A chunk that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentChunk {
    /// The number of its sending.
    pub(super) attempt: Attempt,
    /// The attempt from which damaged ones are counted: the first, or the one that the receiver
    /// asked for when it had lost the chunk.
    counted_from: Attempt,
    /// The digest it was first sent with.
    first: Option<Digest>,
    /// The digest of this attempt, once its lane has reported it.
    sent: Option<Digest>,
    /// A verdict on this attempt that overtook the lane's report. It takes effect after the report.
    pub(super) overtook: Option<Finding>,
    /// The attempt that the receiver asked for, as it has lost the chunk, after a good verdict that
    /// overtook the lane's report. It is ordered after the report.
    pub(super) again: Option<Attempt>,
    carrier: Carrier,
    /// Whether some lane had it whole, whatever the attempt.
    is_handed: bool,
}

impl SentChunk {
    /// A chunk that is wanted for this attempt, with the digest that it was first sent with.
    pub(super) fn wanted(attempt: Attempt, first: Option<Digest>) -> SentChunk {
        let (sent, overtook, again, carrier) = (None, None, None, Carrier::None);
        let (counted_from, is_handed) = (Attempt::FIRST, false);
        SentChunk { attempt, counted_from, first, sent, overtook, again, carrier, is_handed }
    }

    /// A chunk that the receiver has lost and wants for this attempt.
    pub(super) fn lost(attempt: Attempt, first: Option<Digest>) -> SentChunk {
        SentChunk { counted_from: attempt, is_handed: true, ..SentChunk::wanted(attempt, first) }
    }

    /// The same chunk, wanted for the next attempt as this one was damaged.
    fn damaged(&self) -> SentChunk {
        let SentChunk { attempt, first, counted_from, is_handed, .. } = *self;
        SentChunk { counted_from, is_handed, ..SentChunk::wanted(attempt.next(), first) }
    }
}

impl LargeSource {
    pub(super) fn new(map: ChunkMap) -> LargeSource {
        LargeSource {
            map,
            merger: RootMerger::new(map),
            next: ChunkIndex(0),
            chunks: BTreeMap::new(),
            ended: false,
            begun: false,
            resumed: false,
            parts_held: 0,
            bytes_done: 0,
            stream: None,
        }
    }

    /// A stream in chunks of `size`, of which nothing can be read yet.
    pub(super) fn unended(size: ChunkSize) -> LargeSource {
        let (merger, stream) = (RootMerger::unended(size), Some(StreamInput::default()));
        LargeSource { merger, stream, ..LargeSource::new(ChunkMap::unended(size)) }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.chunks.len()
    }

    /// Takes chunks whose carrier is `down` for lost. Gives them, each with its attempt. Their sent
    /// digests are forgotten, as the source may give other bytes when it is read again. A chunk
    /// that was judged bad did arrive, and is wanted as the next attempt.
    pub(super) fn lose(&mut self, down: impl Fn(&Carrier) -> bool) -> Vec<(ChunkIndex, Attempt)> {
        let lost = self.chunks.iter_mut().filter(|(_, chunk)| down(&chunk.carrier));
        let lose = |(index, chunk): (&ChunkIndex, &mut SentChunk)| {
            if chunk.overtook == Some(Finding::Again) {
                *chunk = chunk.damaged();
            } else {
                (chunk.carrier, chunk.sent) = (Carrier::Lost, None);
            }
            (*index, chunk.attempt)
        };
        lost.map(lose).collect()
    }

    /// The carrier of a chunk, if that attempt of it is outstanding. Without `attempt`, any attempt
    /// counts.
    pub(super) fn carrier(&mut self, index: ChunkIndex, attempt: Option<Attempt>) -> Option<&mut Carrier> {
        let chunk = self.chunks.get_mut(&index).filter(|chunk| attempt.is_none_or(|a| a == chunk.attempt));
        chunk.map(|chunk| &mut chunk.carrier)
    }

    /// Notes that a lane had a chunk of `len` bytes whole. Gives `len` if that is the first time, 0
    /// else.
    pub(super) fn hand(&mut self, index: ChunkIndex, len: u64) -> u64 {
        let chunk = self.chunks.get_mut(&index).filter(|chunk| !chunk.is_handed);
        let len = chunk.map_or(0, |chunk| {
            chunk.is_handed = true;
            len
        });
        self.bytes_done = self.bytes_done.saturating_add(len);
        len
    }

    /// The bytes of a part of it.
    fn bytes_of(&self, part: &TreePart) -> u64 {
        let bytes_below = |chunks: u64| chunks.saturating_mul(self.map.size().bytes()).min(self.map.len());
        bytes_below(part.start.0.saturating_add(part.chunks)).saturating_sub(bytes_below(part.start.0))
    }

    pub(super) fn map(&self) -> ChunkMap {
        self.map
    }

    /// Whether it needs a descriptor until its outcome.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Pieces in which the receiver said that it holds the file.
    pub(super) fn parts_held(&self) -> usize {
        self.parts_held
    }

    /// The root, once it was said to the receiver. `None` before.
    pub(super) fn root_said(&self) -> Option<Hash32> {
        self.merger.root().filter(|_| self.ended)
    }
}

impl Sender {
    pub(super) fn large(&mut self, file: FileId) -> Option<&mut LargeSource> {
        match self.entries.get_mut(&file) {
            Some(OfferState::Large(large)) => Some(large),
            _ => None,
        }
    }

    /// Takes the parts of a file that the receiver holds: they join its digest tree and are not
    /// sent.
    pub(super) fn on_resume(&mut self, resume: &Resume) -> Result<(), Fault> {
        let refused = |what: &dyn std::fmt::Display| {
            Err(Fault::protocol(format_args!("the receiver holds part of entry {}, {what}", resume.file.0)))
        };
        let sizes = self.config.chunk_min.bytes()..=self.config.chunk_max.bytes();
        let large = match self.entries.get_mut(&resume.file) {
            Some(OfferState::Large(large)) => large,
            Some(OfferState::Idle) => return Ok(()),
            None if self.manifest.was_sent(resume.file) => return Ok(()),
            _ => return refused(&"which goes in no chunks"),
        };
        let is_fixed = large.is_stream() && resume.chunk != large.map.size();
        let has_size = sizes.contains(&resume.chunk.bytes())
            || (resume.chunk <= self.config.chunk_max && is_cut(large.map.len(), resume.chunk));
        if large.next.0 > 0 || large.resumed || is_fixed || !has_size {
            return refused(&"of which it wanted chunks already, or in chunks of a size that was not agreed");
        }
        if large.merger.inserted() == 0 && !large.is_stream() {
            let begun = large.begun;
            **large = LargeSource { begun, ..LargeSource::new(ChunkMap::new(large.map.len(), resume.chunk)) };
        }
        for part in &resume.parts {
            if let Err(e) = large.merger.insert_part(part) {
                return refused(&e);
            }
            let bytes = large.bytes_of(part);
            large.bytes_done = large.bytes_done.saturating_add(bytes);
            self.payload.done = self.payload.done.saturating_add(bytes);
        }
        let parts = large.merger.parts_held();
        if !self.outstanding.hold(std::mem::replace(&mut large.parts_held, parts), parts) {
            return refused(&"in more pieces than files are left in");
        }
        if large.is_stream() {
            self.release_parts(resume);
        }
        if !resume.more
            && let Some(large) = self.large(resume.file)
        {
            large.resumed = true;
            self.check_source_if_read(resume.file);
            self.end_stream(resume.file)?;
        }
        self.begin(resume.file)
    }

    /// Marks a file as begun: it needs a descriptor from now on.
    fn begin(&mut self, file: FileId) -> Result<(), Fault> {
        if let Some(large) = self.large(file)
            && !std::mem::replace(&mut large.begun, true)
        {
            self.outstanding.begin_file();
        }
        self.outstanding.check_files()
    }

    /// Takes wanted chunks. With `known`, a chunk is wanted only if its digest differs.
    pub(super) fn on_want_chunks(
        &mut self,
        file: FileId,
        start: ChunkIndex,
        count: u64,
        known: Option<&[Hash32]>,
    ) -> Result<(), Fault> {
        let room = self.outstanding.room() as u64;
        let large = match self.entries.get_mut(&file) {
            Some(OfferState::Large(large)) => large,
            // Its fault is said; the receiver did not know that yet.
            Some(OfferState::Idle) => return Ok(()),
            // It failed at the receiver, and its outcome overtook this.
            None if self.manifest.was_sent(file) => return Ok(()),
            _ => return Err(Fault::protocol(format_args!("chunks wanted of entry {}, which has none", file.0))),
        };
        if large.is_stream() && known.is_some() {
            return Err(Fault::protocol(format_args!("chunks of entry {} are compared, which is a stream", file.0)));
        }
        let Some((start, count)) = large.clip(start, count) else { return Ok(()) };
        let end = start.0.checked_add(count).filter(|end| *end <= large.map.chunks());
        // Only chunks that are held are passed over.
        let in_order =
            start >= large.next && large.merger.contains_all(large.next, start) && 0 < count && count <= room;
        let Some(end) = end.filter(|_| in_order) else {
            return Err(Fault::protocol(format_args!(
                "chunks wanted of entry {} out of order, out of bounds or too many",
                file.0
            )));
        };
        large.next = ChunkIndex(end);
        self.outstanding.want(count as usize);
        let (map, kind) = (large.map, large.map.kind());
        for (at, index) in (start.0..end).map(ChunkIndex).enumerate() {
            if large.merger.contains(index) {
                return Err(Fault::protocol(format_args!("{} is wanted, which was held", Unit::Chunk { file, index })));
            }
            let expect = known.and_then(|known| known.get(at)).map(|hash| match kind {
                DigestKind::Root => Digest::Root(*hash),
                DigestKind::Cv => Digest::Cv(*hash),
            });
            large.chunks.insert(index, SentChunk::wanted(Attempt::FIRST, None));
            if large.can_be_read(index) {
                self.actions.push_back(SenderAction::ReadChunk { file, index, attempt: Attempt::FIRST, map, expect });
            }
        }
        self.begin(file)?;
        self.end_stream(file)
    }

    pub(super) fn chunk_sent(&mut self, file: FileId, index: ChunkIndex, sent: &Sent) {
        let digest = sent.digest;
        let Some(large) = self.large(file) else { return };
        let Some(chunk) = large.chunks.get_mut(&index).filter(|chunk| chunk.attempt == sent.attempt) else { return };
        (chunk.sent, chunk.carrier) = (Some(digest), Carrier::of(sent));
        let overtook = chunk.overtook.take();
        let first = *chunk.first.get_or_insert(digest);
        if first != digest {
            let fault = Fault::new(
                FaultCode::Changed,
                Blame::Local,
                "the source gives other bytes than when it was read before",
            );
            return self.say_file_fault(file, &fault);
        }
        let merged = self.merge_first(file, index, digest);
        let judged = overtook.map_or(Ok(()), |finding| self.chunk_judged(file, index, finding));
        if let Err(fault) = merged.and(judged) {
            self.abort(fault);
        }
    }

    /// Acts on a verdict on a chunk that was sent.
    fn chunk_judged(&mut self, file: FileId, index: ChunkIndex, finding: Finding) -> Result<(), Fault> {
        match finding {
            Finding::Good(digest) => self.acknowledge(file, index, digest),
            Finding::Again => {
                self.read_again(file, index);
                Ok(())
            }
            // Its file fails at the receiver, which says so next.
            Finding::GivenUp => {
                self.forget_chunk(file, index);
                Ok(())
            }
        }
    }

    fn forget_chunk(&mut self, file: FileId, index: ChunkIndex) {
        if let Some(large) = self.large(file)
            && large.chunks.remove(&index).is_some()
        {
            self.outstanding.end_chunk();
        }
    }

    /// Orders the next sending of a chunk. It is ordered only after the sending before was
    /// reported: read sooner, the chunk might arrive well and its file be sealed before a sending
    /// between shows that the source had other bytes.
    fn read_again(&mut self, file: FileId, index: ChunkIndex) {
        let Some(large) = self.large(file) else { return };
        let map = large.map;
        let Some(chunk) = large.chunks.get_mut(&index) else { return };
        *chunk = chunk.damaged();
        let attempt = chunk.attempt;
        self.actions.push_back(SenderAction::ReadChunk { file, index, attempt, map, expect: None });
    }

    /// Takes the digest of a chunk that was read for the first time into the file's tree. After the
    /// last one the source is checked.
    fn merge_first(&mut self, file: FileId, index: ChunkIndex, digest: Digest) -> Result<(), Fault> {
        let Some(large) = self.large(file).filter(|large| !large.merger.contains(index)) else { return Ok(()) };
        large.merger.insert(index, digest).map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, e))?;
        self.check_source_if_read(file);
        Ok(())
    }

    /// Has the source checked if every chunk was read.
    pub(super) fn check_source_if_read(&mut self, file: FileId) {
        if let Some(root) = self.large(file).and_then(|large| large.merger.root()) {
            self.actions.push_back(SenderAction::CheckSource { file, root });
        }
    }

    /// Takes a chunk that the receiver verified, with the digest that it computed.
    fn acknowledge(&mut self, file: FileId, index: ChunkIndex, good: Digest) -> Result<(), Fault> {
        let chunk = self.large(file).and_then(|large| large.chunks.get(&index));
        let again = chunk.and_then(|chunk| Some((chunk.again?, chunk.first)));
        match chunk.and_then(|chunk| chunk.sent) {
            Some(sent) if sent != good => Err(wrong_digest(Unit::Chunk { file, index })),
            _ => {
                self.forget_chunk(file, index);
                if let Some((attempt, first)) = again {
                    self.send_again(file, index, SentChunk::lost(attempt, first));
                }
                Ok(())
            }
        }
    }

    /// A chunk could not be read.
    pub fn handle_unreadable(&mut self, file: FileId, fault: &Fault) {
        if !self.is_over && self.large(file).is_some() {
            self.say_file_fault(file, fault);
        }
    }

    /// The result of [`SenderAction::CheckSource`]: an error if the file has changed.
    pub fn handle_check_source(&mut self, file: FileId, result: Result<(), Fault>) {
        if self.is_over {
            return;
        }
        let Some(large) = self.large(file).filter(|large| !large.ended) else { return };
        match (result, large.merger.root()) {
            (Ok(()), Some(root)) => {
                large.ended = true;
                self.actions.push_back(SenderAction::Send(Message::FileEnd(FileEnd { file, root })));
            }
            (Ok(()), None) => {}
            (Err(fault), _) => self.say_file_fault(file, &fault),
        }
    }

    pub(super) fn on_chunk_verdict(
        &mut self,
        file: FileId,
        index: ChunkIndex,
        attempt: Attempt,
        finding: Finding,
    ) -> Result<(), Fault> {
        let unit = Unit::Chunk { file, index };
        let large = match self.entries.get_mut(&file) {
            Some(OfferState::Large(large)) => large,
            Some(OfferState::Idle) => return Ok(()),
            _ => return Err(Fault::protocol(format_args!("a verdict on {unit}, which is not outstanding"))),
        };
        let Some(chunk) = large.chunks.get_mut(&index).filter(|c| c.attempt == attempt && c.overtook.is_none()) else {
            return Err(Fault::protocol(format_args!("a verdict on {unit} that was not sent so")));
        };
        may_be_said(unit, attempt.since(chunk.counted_from), finding)?;
        if chunk.sent.is_none() {
            chunk.overtook = Some(finding);
            return Ok(());
        }
        self.chunk_judged(file, index, finding)
    }
}

/// Whether a file of `len` bytes may be cut into chunks that are smaller than any session's: into a
/// few, so that all lanes share it.
fn is_cut(len: u64, chunk: ChunkSize) -> bool {
    chunk.bytes() >= CHUNK_BYTES_CUT_MIN && len.div_ceil(chunk.bytes()) <= CUT_CHUNKS_MAX
}
