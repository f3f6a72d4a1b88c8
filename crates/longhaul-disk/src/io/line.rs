//! [`ChunkLine`]: chunks of striped files on their way to the targets.
//!
//! In: chunks, each in a buffer, and the ends of their writes. Out: writes to the queues of the
//! devices; each chunk's caller is told once. Which target takes a chunk, and which write does not
//! come back and is made again on another target, is decided by the scheduler
//! ([`ChunkScheduler`]); which of several writes counts, by the draft of the file. A chunk that no
//! target takes now waits in line. A buffer that several writes read returns when the last of them
//! has ended.
//!
//! It never waits for a disk: bodies are made, and made longer, by threads of their own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::load::{ChunkScheduler, HANG_MIN, WriteEnd, WriteId, WriteResult, patience};
use longhaul_core::stripe::Spot;
use longhaul_core::{ChunkIndex, TargetId};
use longhaul_sys::{SharedSlot, Slab, Slot};

use super::queue::{Payload, Request, gone, guarded};
use super::transfer::Job;
use super::{Shared, WriteDone};
use crate::destination::{Full, TargetFile, WriteTurn, is_for_another};
use crate::error::DiskError;
use crate::load::TargetLoad;

/// The chunks of striped files that are not written yet.
pub(super) struct ChunkLine {
    io: Weak<Shared>,
    slab: Arc<Slab>,
    began: Instant,
    state: Mutex<LineState>,
    /// Told when the watch has something to look at.
    begun: Condvar,
}

#[derive(Default)]
struct LineState {
    /// Made for the number of targets of the first file.
    scheduler: Option<ChunkScheduler>,
    chunks: HashMap<WriteId, LineChunk>,
    /// Chunks with no write under way.
    waiting: VecDeque<WriteId>,
    /// The targets that were written to.
    loads: BTreeMap<TargetId, Arc<TargetLoad>>,
    /// Whether a thread looks for writes that do not come back.
    is_watched: bool,
    is_closed: bool,
}

/// A chunk in line.
struct LineChunk {
    file: Arc<TargetFile>,
    index: ChunkIndex,
    len: usize,
    slot: SharedSlot,
    /// Its caller, until that is told.
    done: Option<WriteDone>,
    /// The error of its last write that failed.
    error: Option<DiskError>,
}

/// A chunk whose caller is to be told now.
type Told = (LineChunk, Result<(), DiskError>);

impl ChunkLine {
    /// A line for the queues of `io`, of chunks in buffers of `slab`.
    pub(super) fn new(io: &Weak<Shared>, slab: &Arc<Slab>) -> ChunkLine {
        ChunkLine {
            io: Weak::clone(io),
            slab: Arc::clone(slab),
            began: Instant::now(),
            state: Mutex::default(),
            begun: Condvar::new(),
        }
    }

    /// Writes the slot's first `len` bytes as the chunk at `offset` of a striped file.
    pub(super) fn write(
        self: &Arc<Self>,
        file: Arc<TargetFile>,
        offset: u64,
        len: usize,
        mut slot: Slot,
        done: WriteDone,
    ) {
        let striped = file.striped().map(|striped| (striped.chunk_at(offset, len), striped.target_count()));
        let Some((Some(index), targets)) = striped else {
            let error = DiskError::Bounds { path: file.path().into(), offset, len };
            return guarded(|| done(Some(slot), Err(error)));
        };
        // Direct writes take whole blocks, and nobody may change a buffer that is shared.
        let padded = len.next_multiple_of(BLOCK_BYTES).min(slot.len());
        slot[len..padded].fill(0);
        let chunk = LineChunk { file, index, len, slot: slot.share(), done: Some(done), error: None };
        {
            let mut state = self.state();
            if state.is_closed {
                drop(state);
                return chunk.tell(Err(gone("striped")));
            }
            let memory_bytes = self.slab.given_bytes();
            let scheduler = state.scheduler.get_or_insert_with(|| ChunkScheduler::new(memory_bytes, targets));
            // There is more memory as more is needed.
            scheduler.has_memory(memory_bytes);
            let id = scheduler.take(len as u64);
            state.chunks.insert(id, chunk);
            state.waiting.push_back(id);
        }
        self.go_on();
    }

    /// Begins the writes of chunks in line, as far as targets take them.
    fn go_on(self: &Arc<Self>) {
        let (mut begun, mut told, mut unready) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut state = self.state();
            // Where one chunk of a file finds no target, the next one finds none either.
            let mut stuck: Vec<*const TargetFile> = Vec::new();
            for id in std::mem::take(&mut state.waiting) {
                let file = state.chunks.get(&id).map(|chunk| Arc::as_ptr(&chunk.file));
                if file.is_some_and(|file| stuck.contains(&file)) {
                    state.waiting.push_back(id);
                    continue;
                }
                match self.place(&mut state, id, &mut unready) {
                    Placing::Begun(request) => begun.push(request),
                    Placing::Waits => {
                        state.waiting.push_back(id);
                        stuck.extend(file);
                    }
                    Placing::Nowhere(error) => {
                        if let Some(scheduler) = &mut state.scheduler {
                            scheduler.give_up(id);
                        }
                        told.extend(state.chunks.remove(&id).map(|chunk| (chunk, Err(error))));
                    }
                }
            }
            self.watch(&mut state);
        }
        self.carry_out(begun, told, unready);
    }

    /// Has writes begun, callers told, and bodies made, outside of the lock.
    fn carry_out(self: &Arc<Self>, begun: Vec<Request>, told: Vec<Told>, unready: Vec<(Arc<TargetFile>, TargetId)>) {
        unready.into_iter().for_each(|(file, target)| self.prepare(file, target));
        for request in begun {
            match self.io.upgrade() {
                Some(shared) => shared.submit(request),
                None => request.finish(Err(gone("striped"))),
            }
        }
        told.into_iter().for_each(|(chunk, result)| chunk.tell(result));
    }

    /// Begins a write of a chunk, if a target takes it now.
    fn place(
        self: &Arc<Self>,
        state: &mut LineState,
        id: WriteId,
        unready: &mut Vec<(Arc<TargetFile>, TargetId)>,
    ) -> Placing {
        let LineState { scheduler: Some(scheduler), chunks, loads, .. } = state else { return Placing::Waits };
        let Some(chunk) = chunks.get_mut(&id) else { return Placing::Waits };
        let Some(striped) = chunk.file.striped() else { return Placing::Waits };
        // Who prepares a body goes on with the line afterwards: what it has done by then is seen.
        let was_preparing = striped.is_preparing();
        let all = striped.candidates();
        let (mut candidates, mut prepares) = (all.clone(), false);
        while let Some(target) = scheduler.choose(id, &candidates) {
            // A body that is nearly used up is made longer meanwhile. Of those that are to be made,
            // the best is: the next one only while somebody makes that.
            if !prepares && striped.takes_preparation(target) {
                prepares = true;
                unready.push((Arc::clone(&chunk.file), target));
            }
            if striped.is_ready(target) {
                let turn = if scheduler.is_under_way(id) { WriteTurn::Hedge } else { WriteTurn::First };
                let (spot, place) = striped.begin_write(chunk.index, target, (chunk.len, turn));
                scheduler.begin(self.began.elapsed(), id, target);
                if let Some(load) = striped.load(target) {
                    loads.entry(target).or_insert_with(|| Arc::clone(load));
                }
                let (line, write) = (Arc::clone(self), (id, spot));
                let done = Box::new(move |result| line.ended(write, result));
                let job = Job::Write { file: Arc::clone(&chunk.file), place };
                return Placing::Begun(Request {
                    job,
                    len: chunk.len,
                    payload: Payload::Shared(chunk.slot.clone(), done),
                });
            }
            candidates.retain(|candidate| candidate.target != target);
        }
        // It waits for a body to be made, or for a target that has its share of the memory.
        let is_under_way = was_preparing || !unready.is_empty() || striped.is_preparing();
        let could_take = || all.iter().any(|candidate| scheduler.pinned_bytes(candidate.target) > 0);
        if is_under_way || could_take() || scheduler.is_under_way(id) {
            return Placing::Waits;
        }
        Placing::Nowhere(chunk.error.take().unwrap_or_else(|| striped.no_room()))
    }

    /// Makes the body of a file on a target ready, on a thread of its own.
    fn prepare(self: &Arc<Self>, file: Arc<TargetFile>, target: TargetId) {
        let (line, theirs) = (Arc::downgrade(self), Arc::clone(&file));
        let prepare = move || {
            theirs.striped().into_iter().for_each(|striped| striped.prepare(target));
            drop(theirs);
            line.upgrade().iter().for_each(ChunkLine::go_on);
        };
        if thread::Builder::new().name("bodies".into()).spawn(prepare).is_err() {
            // It is tried again with the next chunk, or by the watch.
            file.striped().into_iter().for_each(|striped| striped.leave_unprepared(target));
        }
    }

    /// A write of a chunk has ended.
    fn ended(self: &Arc<Self>, (id, spot): (WriteId, Spot), result: Result<(), DiskError>) {
        let mut told = None;
        let file = {
            let mut state = self.state();
            let LineState { scheduler: Some(scheduler), chunks, waiting, is_closed, .. } = &mut *state else { return };
            let Some(chunk) = chunks.get_mut(&id) else { return };
            let file = Arc::clone(&chunk.file);
            if let Some(striped) = chunk.file.striped() {
                match &result {
                    Ok(()) => _ = striped.end_write(chunk.index, spot),
                    Err(error) => {
                        let full = if is_for_another(error) { Full::Yes } else { Full::No };
                        striped.fail_write(chunk.index, spot, chunk.len, full);
                    }
                }
            }
            let outcome = if result.is_ok() { WriteResult::Written } else { WriteResult::Failed };
            let end = scheduler.end(self.began.elapsed(), id, spot.target, outcome);
            match (end, result) {
                (WriteEnd::First, result) => told = chunk.done.take().map(|done| (done, result)),
                // The buffer is here: another target takes it.
                (WriteEnd::Alone, Err(error)) if is_for_another(&error) && !*is_closed => {
                    chunk.error = Some(error);
                    waiting.push_front(id);
                }
                (WriteEnd::Alone, result) => {
                    scheduler.give_up(id);
                    told = chunk.done.take().map(|done| (done, result));
                }
                (WriteEnd::Late | WriteEnd::Waits, _) => {}
            }
            if !scheduler.has(id) {
                chunks.remove(&id);
            }
            file
        };
        // The disk may take its time for that: nobody else waits for it.
        file.striped().into_iter().for_each(|striped| striped.remove_if_forsaken(spot.target));
        // This may close the file: before the callback tells that the request is over.
        drop(file);
        if let Some((done, result)) = told {
            tell(done, result);
        }
        self.go_on();
    }

    /// Makes writes again that do not come back, on other targets.
    fn hedge(self: &Arc<Self>) {
        let (mut begun, mut unready) = (Vec::new(), Vec::new());
        {
            let mut state = self.state();
            let LineState { scheduler: Some(scheduler), loads, .. } = &mut *state else { return };
            let latency = |target: TargetId| loads.get(&target).and_then(|load| load.figures().latency);
            let overdue = scheduler.overdue(self.began.elapsed(), |target| patience(latency(target)));
            for write in &overdue {
                // One that answers others does not hang.
                let load = loads.get(&write.target);
                let silent = load.filter(|load| load.silent_for().is_some_and(|silent| silent >= HANG_MIN));
                silent.into_iter().for_each(|load| load.hangs(write.waited));
            }
            for write in overdue {
                if let Placing::Begun(request) = self.place(&mut state, write.write, &mut unready) {
                    begun.push(request);
                }
            }
        }
        self.carry_out(begun, Vec::new(), unready);
    }

    /// Has a thread look for writes that do not come back, while there are writes.
    fn watch(self: &Arc<Self>, state: &mut LineState) {
        if state.is_watched || state.chunks.is_empty() {
            return self.begun.notify_all();
        }
        let line = Arc::downgrade(self);
        let watch = move || {
            let mut idle = 0;
            while let Some(line) = line.upgrade() {
                let mut state = line.state();
                idle = if state.chunks.is_empty() { idle + 1 } else { 0 };
                if idle > IDLE_LOOKS_MAX || state.is_closed && state.chunks.is_empty() {
                    state.is_watched = false;
                    return;
                }
                let (state, _) = line.begun.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
                drop(state);
                line.hedge();
                line.go_on();
            }
        };
        // Without the thread, writes that hang are waited for.
        state.is_watched = thread::Builder::new().name("hedge".into()).spawn(watch).is_ok();
    }

    /// Lets no chunk wait any more. Returns whether any write is under way.
    pub(super) fn close(&self) -> bool {
        let (left, is_under_way) = {
            let mut state = self.state();
            state.is_closed = true;
            let waiting = std::mem::take(&mut state.waiting);
            let left: Vec<LineChunk> = waiting.iter().filter_map(|id| state.chunks.remove(id)).collect();
            (left, !state.chunks.is_empty())
        };
        left.into_iter().for_each(|chunk| chunk.tell(Err(gone("striped"))));
        is_under_way
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of placing a chunk.
enum Placing {
    /// A write of it begins.
    Begun(Request),
    /// No target takes it now.
    Waits,
    /// No target will take it.
    Nowhere(DiskError),
}

impl LineChunk {
    /// Tells the caller, if that is still to be done.
    fn tell(self, result: Result<(), DiskError>) {
        let LineChunk { file, slot, done, .. } = self;
        // This may close the file, and frees the buffer: before the caller is told.
        drop((file, slot));
        if let Some(done) = done {
            tell(done, result);
        }
    }
}

/// Tells a caller, whose buffer is not given back: it returns to its slab by itself.
fn tell(done: WriteDone, result: Result<(), DiskError>) {
    guarded(|| done(None, result));
}

/// Direct writes take whole blocks of no more than this size.
const BLOCK_BYTES: usize = 4096;
/// Writes are looked at so often: a hang is found within this time after its two seconds.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The watch ends after so many looks at an empty line: its thread costs little, and less than one
/// for each chunk that comes alone.
const IDLE_LOOKS_MAX: u32 = 12;
