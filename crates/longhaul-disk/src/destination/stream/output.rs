//! Owns the thread that writes a stream: chunks and entries in their order, in blocks, to the sink.
//!
//! In: chunks in any order, each with its buffer and the callback that hears of it; entries without
//! chunks; the end. Out: buffers, once their bytes are out. A chunk that comes early waits in its
//! buffer, so that memory is what the session has. Knows no peers and no digests: what comes here
//! is verified.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use longhaul_sys::Slot;
use serde::{Deserialize, Serialize};

use super::blocks::Blocks;
use super::lineup::{Lineup, NextChunk, Turn};
use super::outflow::{Outflow, Supply};
use super::sink::StreamSink;
use super::{Prefill, StreamForm, StreamShape, tar};
use crate::error::{DiskError, PathText};

/// Hears of a chunk, with its buffer: its bytes are out, or will never be.
pub(crate) type ChunkOut = Box<dyn FnOnce(Slot, Result<(), DiskError>) + Send>;

/// The figures of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFigures {
    /// Bytes that left, headers and padding among them.
    pub bytes: u64,
    /// Blocks that left.
    pub blocks: u64,
    /// How often the buffers ran empty before the end and were filled again. 0 where no prefill was
    /// asked for.
    pub under_runs: u64,
}

/// The one place out of which a stream goes, for all sessions of a run.
#[derive(Debug)]
pub struct StreamOutput {
    shared: Arc<OutputShared>,
}

#[derive(Debug)]
struct OutputShared {
    shape: StreamShape,
    /// The name of the sink, for people.
    name: PathText,
    state: Mutex<OutputState>,
    /// Something of the state changed.
    news: Condvar,
}

#[derive(Debug)]
struct OutputState {
    lineup: Lineup<ChunkInBuffer>,
    outflow: Outflow,
    /// Entries without chunks that go out between files.
    entries: VecDeque<Vec<u8>>,
    /// The number of entries that were ever put behind the others, and of those that are out.
    entries_put: u64,
    entries_out: u64,
    /// Chunks that were asked for and are not out.
    chunks_expected: usize,
    /// Whether anything left the line: the stream cannot begin anew.
    is_begun: bool,
    end: StreamEnd,
    /// The number of sessions that gave up: whoever waits for the stream waits no longer then.
    given_up: u64,
    failure: Option<StreamFailure>,
    figures: StreamFigures,
}

/// A chunk that waits for its turn.
struct ChunkInBuffer {
    slot: Slot,
    len: usize,
    out: ChunkOut,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    /// More may come.
    Open,
    /// Nothing more comes; what is here is still to go out.
    Asked,
    /// Everything is out.
    Out,
}

/// The reason for which a stream goes no further. An error of the system cannot be cloned.
#[derive(Clone, Debug)]
enum StreamFailure {
    /// The session that fed it is over.
    GivenUp,
    /// The sink failed.
    Sink { kind: io::ErrorKind, errno: Option<i32> },
}

/// The next thing to write.
enum OutputStep {
    Chunk(NextChunk<ChunkInBuffer>),
    Entry(Vec<u8>),
    End,
}

impl StreamOutput {
    /// Starts the thread that writes to `sink`.
    ///
    /// # Errors
    /// [`DiskError::Engine`] if there is no thread to be had.
    pub fn start(sink: StreamSink, shape: StreamShape) -> Result<Arc<StreamOutput>, DiskError> {
        let state = OutputState {
            lineup: Lineup::default(),
            outflow: Outflow::new(0),
            entries: VecDeque::new(),
            entries_put: 0,
            entries_out: 0,
            chunks_expected: 0,
            is_begun: false,
            end: StreamEnd::Open,
            given_up: 0,
            failure: None,
            figures: StreamFigures::default(),
        };
        let name = sink.name().clone();
        let shared = Arc::new(OutputShared { shape, name, state: Mutex::new(state), news: Condvar::new() });
        let (theirs, blocks) = (shared.clone(), Blocks::new(sink, shape.block_bytes, shape.last));
        // Nobody waits for its end: a write to a reader that stands still never comes back.
        let thread = thread::Builder::new().name("stream".to_owned()).spawn(move || theirs.write(blocks));
        thread.map_err(|source| DiskError::Engine { engine: "stream", source })?;
        Ok(Arc::new(StreamOutput { shared }))
    }

    /// The form of what goes out.
    pub fn shape(&self) -> &StreamShape {
        &self.shared.shape
    }

    /// Tells how many chunks of which size a session keeps for it at most: the measure of its
    /// prefill.
    pub fn sized(&self, chunks_max: usize, chunk_bytes: u64) {
        let prefill = self.shared.shape.prefill;
        let mut state = self.lock();
        if !state.is_begun {
            state.outflow = Outflow::new(prefill.chunks(chunks_max, chunk_bytes));
        }
    }

    /// Tells how many chunks are asked for and not out: when all of them are here, nothing more
    /// comes before some have left.
    pub fn expect_chunks(&self, chunks: usize) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.chunks_expected, chunks) != chunks {
            self.shared.news.notify_all();
        }
    }

    /// Whether bytes may have left: another session could not begin anew.
    pub fn is_begun(&self) -> bool {
        self.lock().is_begun
    }

    /// The figures so far.
    pub fn figures(&self) -> StreamFigures {
        self.lock().figures
    }

    /// Gives back every chunk that waits, because the session that brought them ends. If anything
    /// was written, nothing follows it any more.
    pub fn give_up(&self) {
        let mut state = self.lock();
        if state.end == StreamEnd::Out {
            return;
        }
        if state.is_begun {
            state.failure.get_or_insert(StreamFailure::GivenUp);
        }
        let left = state.lineup.clear();
        state.entries_out += state.entries.len() as u64;
        state.entries.clear();
        state.given_up += 1;
        drop(state);
        self.shared.news.notify_all();
        self.shared.give_back(left, &StreamFailure::GivenUp);
    }

    /// Enters a file behind all others. `head` goes out before its first byte.
    pub(super) fn enter(&self, len: u64, head: Vec<u8>) -> Turn {
        self.lock().lineup.enter(len, head)
    }

    /// Takes a chunk of a file.
    pub(super) fn take(&self, turn: Turn, offset: u64, len: usize, slot: Slot, out: ChunkOut) {
        let mut state = self.lock();
        let chunk = ChunkInBuffer { slot, len, out };
        let put = match &state.failure {
            Some(failure) => Err((chunk, failure.clone())),
            None => state.lineup.put(turn, offset, len as u64, chunk).map_err(|chunk| (chunk, StreamFailure::GivenUp)),
        };
        drop(state);
        self.shared.news.notify_all();
        if let Err((chunk, failure)) = put {
            self.shared.give_back(vec![chunk], &failure);
        }
    }

    /// Takes a file out of the line that will not be whole.
    pub(super) fn leave(&self, turn: Turn) {
        let mut state = self.lock();
        let Some(left) = state.lineup.leave(turn) else { return };
        if left.was_begun {
            state.failure.get_or_insert(StreamFailure::GivenUp);
        }
        drop(state);
        self.shared.news.notify_all();
        self.shared.give_back(left.items, &StreamFailure::GivenUp);
    }

    /// Puts an entry without chunks behind what was put before, and waits until it is out. No file
    /// that is out in part depends on that: the rest of it goes first.
    ///
    /// # Errors
    /// The failure of the stream.
    pub(super) fn append(&self, entry: Vec<u8>) -> Result<(), DiskError> {
        let mut state = self.lock();
        state.entries.push_back(entry);
        state.entries_put += 1;
        let number = state.entries_put;
        self.shared.news.notify_all();
        self.wait(state, |state| state.entries_out >= number)
    }

    /// Ends the stream, and waits until everything is out, and durable where that is possible.
    ///
    /// # Errors
    /// The failure of the stream.
    pub(super) fn end(&self) -> Result<(), DiskError> {
        let mut state = self.lock();
        if state.end == StreamEnd::Open {
            state.end = StreamEnd::Asked;
        }
        self.shared.news.notify_all();
        self.wait(state, |state| state.end == StreamEnd::Out)
    }

    fn wait(
        &self,
        mut state: MutexGuard<'_, OutputState>,
        is_over: impl Fn(&OutputState) -> bool,
    ) -> Result<(), DiskError> {
        let given_up = state.given_up;
        loop {
            if state.given_up != given_up {
                return Err(self.shared.error(&StreamFailure::GivenUp));
            }
            if is_over(&state) {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(self.shared.error(failure));
            }
            state = self.shared.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.shared.lock()
    }
}

impl Drop for StreamOutput {
    fn drop(&mut self) {
        let mut state = self.lock();
        state.failure.get_or_insert(StreamFailure::GivenUp);
        drop(state);
        self.give_up();
        self.shared.news.notify_all();
    }
}

impl OutputShared {
    /// Writes one thing after the other, until the end or a failure.
    fn write(&self, mut blocks: Blocks<StreamSink>) {
        while let Some(step) = self.next_step() {
            let is_end = matches!(step, OutputStep::End);
            let (outcome, chunk) = match step {
                OutputStep::Chunk(next) => (self.write_chunk(&mut blocks, &next), Some(next.item)),
                OutputStep::Entry(entry) => (blocks.put(&entry), None),
                OutputStep::End => (self.write_end(&mut blocks), None),
            };
            let mut state = self.lock();
            let under_runs = state.outflow.under_runs();
            state.figures = StreamFigures { bytes: blocks.bytes(), blocks: blocks.blocks(), under_runs };
            let failure = outcome.err().map(|error| StreamFailure::of(&error));
            match (&failure, chunk.is_some()) {
                (Some(failure), _) => state.failure = Some(failure.clone()),
                (None, _) if is_end => state.end = StreamEnd::Out,
                (None, false) => state.entries_out += 1,
                (None, true) => {}
            }
            let left = if failure.is_some() { state.lineup.clear() } else { Vec::new() };
            drop(state);
            self.news.notify_all();
            if let Some(ChunkInBuffer { slot, out, .. }) = chunk {
                out(slot, failure.as_ref().map_or(Ok(()), |failure| Err(self.error(failure))));
            }
            if let Some(failure) = failure {
                return self.give_back(left, &failure);
            }
            if is_end {
                return;
            }
        }
    }

    /// Waits for the next thing to write. `None` if there will be none.
    fn next_step(&self) -> Option<OutputStep> {
        let mut state = self.lock();
        loop {
            if state.failure.is_some() {
                return None;
            }
            if let Some(step) = state.next_step() {
                return Some(step);
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn write_chunk(&self, blocks: &mut Blocks<StreamSink>, next: &NextChunk<ChunkInBuffer>) -> io::Result<()> {
        blocks.put(&next.head)?;
        blocks.put(next.item.slot.get(..next.item.len).ok_or(io::ErrorKind::InvalidInput)?)?;
        match (self.shape.form, next.ends) {
            (StreamForm::Tar, Some(len)) => blocks.put_zeros(tar::padding(len)),
            _ => Ok(()),
        }
    }

    fn write_end(&self, blocks: &mut Blocks<StreamSink>) -> io::Result<()> {
        if self.shape.form == StreamForm::Tar {
            blocks.put_zeros(tar::END_BYTES)?;
        }
        blocks.end()?;
        blocks.sink().sync()
    }

    /// Gives chunks back that will not go out.
    fn give_back(&self, chunks: Vec<ChunkInBuffer>, failure: &StreamFailure) {
        for ChunkInBuffer { slot, out, .. } in chunks {
            out(slot, Err(self.error(failure)));
        }
    }

    fn error(&self, failure: &StreamFailure) -> DiskError {
        let source = match failure {
            StreamFailure::GivenUp => io::Error::other("what goes before it did not go out whole"),
            StreamFailure::Sink { errno: Some(errno), .. } => io::Error::from_raw_os_error(*errno),
            StreamFailure::Sink { kind, errno: None } => io::Error::from(*kind),
        };
        DiskError::call("write to", &self.name, source)
    }

    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputState {
    /// The next thing to write, if its time has come.
    fn next_step(&mut self) -> Option<OutputStep> {
        let entries = if self.lineup.is_within_file() { 0 } else { self.entries.len() };
        let is_all_here = self.end == StreamEnd::Asked || self.lineup.held() >= self.chunks_expected;
        let supply = if is_all_here { Supply::AllHere } else { Supply::Coming };
        let step = if self.outflow.may_write(entries + self.lineup.ready(), supply) {
            match entries {
                0 => self.lineup.take().map(OutputStep::Chunk),
                _ => self.entries.pop_front().map(OutputStep::Entry),
            }
        } else {
            (self.end == StreamEnd::Asked && entries == 0 && self.lineup.held() == 0).then_some(OutputStep::End)
        };
        self.is_begun |= step.is_some();
        step
    }
}

impl StreamFailure {
    fn of(error: &io::Error) -> StreamFailure {
        StreamFailure::Sink { kind: error.kind(), errno: error.raw_os_error() }
    }
}

impl Prefill {
    /// The chunks that must be ready before anything leaves, where at most `chunks_max` of
    /// `chunk_bytes` are kept. A chunk counts as a whole one, however few bytes it has: it is
    /// buffers that fill.
    pub(super) fn chunks(self, chunks_max: usize, chunk_bytes: u64) -> usize {
        let wanted = match self {
            Prefill::None => return 0,
            Prefill::Bytes(bytes) => usize::try_from(bytes.div_ceil(chunk_bytes.max(1))).unwrap_or(usize::MAX),
            Prefill::Percent(percent) => chunks_max.saturating_mul(usize::from(percent)).div_ceil(100),
        };
        wanted.clamp(1, chunks_max.max(1))
    }
}

impl std::fmt::Debug for ChunkInBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkInBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}
