//! Chunk I/O: slots are filled from source files and emptied into target files, several requests
//! deep on each device.
//!
//! Takes requests from the engine of the session, gives each slot back through its callback in
//! every case. One queue per device, made when the device is first used. Knows nothing of chunks'
//! digests, of paths or peers.

mod account;
mod depth;
mod line;
mod queue;
mod threads;
mod transfer;
mod uring;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use longhaul_core::Place;
use longhaul_core::limits::DEVICES_MAX;
use longhaul_sys::{Slab, Slot};
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::affinity::{Affinity, BoundThreads};
use crate::destination::{StreamFigures, TargetFile};
use crate::error::DiskError;
use crate::io::depth::QueueDepth;
use crate::io::line::ChunkLine;
use crate::io::queue::{Payload, Queue, QueueMeans, Request};
use crate::io::transfer::{Job, QueueId};
use crate::source::SourceFile;
use crate::stripe::Whereabouts;
use crate::sysfs::Sysfs;

pub use depth::Depth;

/// Which engine to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum EngineKind {
    /// The ring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// io_uring, or no engine.
    Uring,
    /// A thread per request in flight.
    Threads,
    /// Reads and writes nothing: for measuring all the rest. Only for users of the library.
    Void,
}

/// The engine that runs, and its figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Never [`EngineKind::Auto`].
    pub engine: EngineKind,
    /// Requests in flight per device; where that was left to the engine, the most that it found
    /// best for a device so far.
    pub depth: usize,
    /// Devices in use.
    pub devices: usize,
    /// The largest number of slots that one device's ring has registered so far; 0 without a ring.
    pub slots_registered: usize,
    /// Slots in the slab.
    pub slots: usize,
    /// Processor time that the engine's own threads have spent so far, in nanoseconds. The work of
    /// the kernel's threads for a ring is not in it.
    pub cpu_nanos: u64,
    /// The threads of this side that were bound to CPUs, those of the engine and others. Empty if
    /// they run anywhere.
    pub bound: Vec<BoundThreads>,
    /// The stream that went out beside it, written by a thread of its own. `None` for any other
    /// destination.
    #[serde(default)]
    pub stream: Option<StreamFigures>,
    /// The requests in flight that were found best for each device so far. Empty where their number
    /// was asked for.
    #[serde(default)]
    pub depths: Vec<DeviceDepth>,
}

/// The requests in flight that were found best for a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDepth {
    /// The device, as `MAJOR:MINOR`.
    pub device: String,
    /// Their number.
    pub depth: usize,
}

/// Called with the slot and the result of a read. It runs on an engine's thread, which does nothing
/// else meanwhile: it should hand over and return.
pub type Done = Box<dyn FnOnce(Slot, Result<(), DiskError>) + Send>;

/// Called with the slot and the result of a write, as [`Done`] is. Of a chunk of a striped file it
/// gets no slot: another write may still read that, and it returns to its slab by itself.
pub type WriteDone = Box<dyn FnOnce(Option<Slot>, Result<(), DiskError>) + Send>;

/// Reads and writes slots. Clones share one engine; dropping the last waits for all requests.
#[derive(Clone)]
pub struct ChunkIo {
    shared: Arc<Shared>,
}

struct Shared {
    engine: EngineKind,
    /// Whether a device whose ring cannot be started may use threads instead.
    fall_back: bool,
    fell_back: AtomicBool,
    depth: Depth,
    affinity: Affinity,
    slab: Arc<Slab>,
    line: Arc<ChunkLine>,
    queues: Mutex<HashMap<QueueId, DeviceQueue>>,
}

/// The queue of a device, and its depth.
struct DeviceQueue {
    queue: Arc<Queue>,
    depth: QueueDepth,
}

impl ChunkIo {
    /// Starts an engine with `depth` requests in flight per device (1 to `DISK_DEPTH_MAX`; 4 to 8
    /// suffice for chunks of megabytes). A ring registers the slots of `slab`; others are read and
    /// written as well.
    ///
    /// # Errors
    /// [`DiskError::Engine`] when [`EngineKind::Uring`] is asked for and not available.
    pub fn start(kind: EngineKind, depth: usize, slab: &Arc<Slab>) -> Result<ChunkIo, DiskError> {
        ChunkIo::start_bound(kind, Depth::Fixed(depth), slab, Affinity::default())
    }

    /// The same with threads that run where `affinity` says, and a depth that may be found.
    ///
    /// # Errors
    /// As [`ChunkIo::start`].
    pub fn start_bound(
        kind: EngineKind,
        depth: Depth,
        slab: &Arc<Slab>,
        affinity: Affinity,
    ) -> Result<ChunkIo, DiskError> {
        let engine = choose(kind, uring::probe)?;
        let shared = Arc::new_cyclic(|shared| Shared {
            engine,
            fall_back: kind == EngineKind::Auto,
            fell_back: AtomicBool::new(false),
            depth: depth.at_most(usize::MAX),
            affinity,
            slab: Arc::clone(slab),
            line: Arc::new(ChunkLine::new(shared, slab)),
            queues: Mutex::default(),
        });
        Ok(ChunkIo { shared })
    }

    /// Reads `len` bytes at `offset` of `file` into the slot's start. The rest of the slot may
    /// change.
    ///
    /// Fails with [`DiskError::Changed`] if the file ends earlier.
    pub fn read(&self, file: Arc<SourceFile>, offset: u64, len: usize, slot: Slot, done: Done) {
        if let Some(error) = file.over() {
            return Payload::Own(slot, done).finish(Err(error));
        }
        // A range within one chunk of a striped file is read by the disk that it lies on.
        let within = file.in_stripes().and_then(|striped| striped.whereabouts(offset, len));
        let job = match within {
            Some(Whereabouts { target, offset }) => Job::Read { file, body: Some(target), offset },
            None => Job::Read { file, body: None, offset },
        };
        self.shared.submit(Request { job, len, payload: Payload::Own(slot, done) });
    }

    /// Writes the slot's first `len` bytes to `place` of `file`, through the queue of the device
    /// that the body on that target lies on. A body of a stream takes it at once and keeps it until
    /// its turn comes; a chunk of a striped file goes to the target that will have it soonest. The
    /// rest of the slot may change to zeros.
    ///
    /// Fails with [`DiskError::Bounds`] if the file has no such place.
    pub fn write(&self, file: Arc<TargetFile>, place: Place, len: usize, slot: Slot, done: WriteDone) {
        if file.striped().is_some() {
            return self.shared.line.write(file, place.offset, len, slot, done);
        }
        let done: Done = Box::new(move |slot, result| done(Some(slot), result));
        if let Some(error) = file.lacks(place, len) {
            return Payload::Own(slot, done).finish(Err(error));
        }
        if let Some(body) = file.in_stream(place.target) {
            return body.take(place.offset, len, slot, done);
        }
        self.shared.submit(Request { job: Job::Write { file, place }, len, payload: Payload::Own(slot, done) });
    }

    /// Where its threads run, for those that work beside them.
    pub fn affinity(&self) -> &Affinity {
        &self.shared.affinity
    }

    /// The engine that runs, and its figures so far.
    pub fn report(&self) -> EngineReport {
        let queues = self.shared.queues();
        let fell_back = self.shared.fell_back.load(Ordering::Relaxed);
        EngineReport {
            engine: if fell_back { EngineKind::Threads } else { self.shared.engine },
            depth: most(queues.values().map(|of| of.depth.found()), self.shared.depth.start()),
            devices: queues.len(),
            slots_registered: queues.values().map(|of| of.queue.registered()).max().unwrap_or(0),
            slots: self.shared.slab.slots(),
            cpu_nanos: queues.values().map(|of| of.queue.cpu_nanos()).sum(),
            bound: self.shared.affinity.bound(),
            stream: None,
            depths: device_depths(&queues),
        }
    }

    /// The requests in flight that the deepest queue may have now.
    pub fn depth_now(&self) -> usize {
        let queues = self.shared.queues();
        most(queues.values().map(|of| Some(of.depth.now())), self.shared.depth.start())
    }
}

impl Shared {
    fn submit(&self, request: Request) {
        let queue = self.queue_for(request.job.queue());
        // From now on it waits for the disk: the start of a queue of ours is no load of the target.
        request.job.queued(request.len);
        match queue {
            Ok(queue) => queue.submit(request),
            Err(error) => request.finish(Err(error)),
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<QueueId, DeviceQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue_for(&self, id: QueueId) -> Result<Arc<Queue>, DiskError> {
        let mut queues = self.queues();
        if let Some(of) = queues.get(&id) {
            return Ok(Arc::clone(&of.queue));
        }
        let of_its_kind = |other: &QueueId| matches!(other, QueueId::Disk(_)) == matches!(id, QueueId::Disk(_));
        if queues.keys().filter(|other| of_its_kind(other)).count() >= DEVICES_MAX {
            let (QueueId::Disk(number) | QueueId::Given(number)) = id;
            let mut shared = queues.iter().filter(|(other, _)| of_its_kind(other)).map(|(_, of)| &of.queue);
            if let Some(queue) = shared.nth((number % DEVICES_MAX as u64) as usize) {
                return Ok(Arc::clone(queue));
            }
        }
        let depth = QueueDepth::new(self.depth_for(id));
        let queue = Arc::new(self.start_queue(id, &depth)?);
        queues.insert(id, DeviceQueue { queue: Arc::clone(&queue), depth });
        Ok(queue)
    }

    fn start_queue(&self, id: QueueId, depth: &QueueDepth) -> Result<Queue, DiskError> {
        let engine_error = |engine| move |source| DiskError::Engine { engine, source };
        let means = QueueMeans { depth: depth.clone(), affinity: self.affinity.clone() };
        let threads = || Queue::threads(id, &means).map_err(engine_error("threads"));
        match (self.engine, id) {
            (EngineKind::Void, _) => Queue::void(id).map_err(engine_error("void")),
            (EngineKind::Threads, _) | (_, QueueId::Given(_)) => threads(),
            (EngineKind::Uring | EngineKind::Auto, QueueId::Disk(dev)) => match Queue::uring(dev, &means, &self.slab) {
                Ok(queue) => Ok(queue),
                Err(error) if self.fall_back => {
                    tracing::warn!(dev, %error, "no ring for this device, threads instead");
                    self.fell_back.store(true, Ordering::Relaxed);
                    threads()
                }
                Err(error) => Err(engine_error("uring")(error)),
            },
        }
    }

    /// Requests in flight on a device: no more than its own queue takes, as further ones would only
    /// wait in the kernel. Nothing is searched where no device is.
    fn depth_for(&self, id: QueueId) -> Depth {
        let QueueId::Disk(dev) = id else { return Depth::Fixed(self.depth.start()) };
        let facts = Sysfs::default().device(dev);
        tracing::debug!(
            target: "longhaul::disk",
            device = format_args!("{}:{}", major(dev), minor(dev)),
            medium = facts.medium.name(),
            queue_requests = ?facts.queue_requests,
            block_bytes = ?facts.block_bytes,
            node = ?facts.node,
            "a device is used"
        );
        facts.queue_requests.map_or(self.depth, |most| self.depth.at_most(most as usize))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.line.close() {
            return;
        }
        // Only writes are left that lost to others of their chunks: nobody waits for a disk that
        // hangs. Their buffers stay claimed until they end.
        let queues = std::mem::take(&mut *self.queues());
        let wait = move || drop(queues);
        if let Err(error) = thread::Builder::new().name("disk-end".into()).spawn(wait) {
            tracing::debug!(%error, "no thread for writes that are still under way");
        }
    }
}

/// The largest of some depths, `start` where there is none.
fn most(depths: impl Iterator<Item = Option<usize>>, start: usize) -> usize {
    depths.flatten().max().unwrap_or(start)
}

/// The depths that were found, by device.
fn device_depths(queues: &HashMap<QueueId, DeviceQueue>) -> Vec<DeviceDepth> {
    let found = |(id, of): (&QueueId, &DeviceQueue)| match id {
        QueueId::Disk(dev) => Some((*dev, of.depth.found()?)),
        QueueId::Given(_) => None,
    };
    let mut found: Vec<_> = queues.iter().filter_map(found).collect();
    found.sort_unstable();
    let shown = |(dev, depth)| DeviceDepth { device: format!("{}:{}", major(dev), minor(dev)), depth };
    found.into_iter().map(shown).collect()
}

/// Settles [`EngineKind::Auto`] by probing whether the kernel allows a ring.
fn choose(kind: EngineKind, probe: impl FnOnce() -> io::Result<()>) -> Result<EngineKind, DiskError> {
    match kind {
        EngineKind::Threads | EngineKind::Void => Ok(kind),
        EngineKind::Uring => {
            probe().map(|()| EngineKind::Uring).map_err(|source| DiskError::Engine { engine: "uring", source })
        }
        EngineKind::Auto => Ok(match probe() {
            Ok(()) => EngineKind::Uring,
            Err(error) => {
                tracing::info!(%error, "io_uring is not available here, using threads");
                EngineKind::Threads
            }
        }),
    }
}

/// Joins a thread, unless it is the one that runs this: the last handle may be dropped inside of a
/// callback.
fn join(handle: thread::JoinHandle<()>) {
    if handle.thread().id() != thread::current().id() && handle.join().is_err() {
        tracing::error!("an I/O thread panicked");
    }
}

#[cfg(test)]
mod tests;
