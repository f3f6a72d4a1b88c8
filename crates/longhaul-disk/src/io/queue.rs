//! A device's queue, whichever engine serves it, and the request that travels through it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use longhaul_sys::{Slab, Slot};

use crate::affinity::{Affinity, ThreadWork};
use crate::error::DiskError;
use crate::io::Done;
use crate::io::depth::{Depth, QueueDepth};
use crate::io::threads::{ThreadsQueue, move_bytes, move_nothing};
use crate::io::transfer::{Job, QueueId};
use crate::io::uring::RingQueue;

/// One read or write on its way.
pub(crate) struct Request {
    pub(crate) job: Job,
    pub(crate) len: usize,
    pub(crate) slot: Slot,
    pub(crate) done: Done,
}

/// The means of a device's queue.
pub(crate) struct QueueMeans {
    /// Requests in flight.
    pub(crate) depth: QueueDepth,
    /// Where its threads run.
    pub(crate) affinity: Affinity,
}

/// One device's queue. Dropping it waits for all that was submitted.
pub(crate) enum Queue {
    Uring(RingQueue),
    Threads(ThreadsQueue),
}

impl Request {
    /// Gives the slot back with the result.
    pub(crate) fn finish(self, result: Result<(), DiskError>) {
        let result = self.job.served(self.len, Duration::ZERO, result);
        finish(self.done, self.slot, result);
    }
}

/// Runs a callback. A panic in it is a bug above, but must not take the engine's thread and all
/// other requests with it.
pub(crate) fn finish(done: Done, slot: Slot, result: Result<(), DiskError>) {
    if catch_unwind(AssertUnwindSafe(|| done(slot, result))).is_err() {
        tracing::error!("the callback of an I/O request panicked");
    }
}

impl Queue {
    pub(crate) fn uring(dev: u64, means: &QueueMeans, slab: &Arc<Slab>) -> io::Result<Queue> {
        RingQueue::start(dev, means, slab).map(Queue::Uring)
    }

    pub(crate) fn threads(id: QueueId, means: &QueueMeans) -> io::Result<Queue> {
        let work = match id {
            QueueId::Disk(dev) => ThreadWork::Device(dev),
            QueueId::Given(_) => ThreadWork::Elsewhere("given files"),
        };
        let affinity = means.affinity.clone();
        let begin = move || affinity.bind(work);
        ThreadsQueue::start(thread_name(id), &means.depth, begin, move_bytes).map(Queue::Threads)
    }

    /// A queue that completes everything and does nothing.
    pub(crate) fn void(id: QueueId) -> io::Result<Queue> {
        ThreadsQueue::start(thread_name(id), &QueueDepth::new(Depth::Fixed(1)), || (), move_nothing).map(Queue::Threads)
    }

    pub(crate) fn submit(&self, request: Request) {
        match self {
            Queue::Uring(queue) => queue.submit(request),
            Queue::Threads(queue) => queue.submit(request),
        }
    }

    /// Processor time of its threads so far.
    pub(crate) fn cpu_nanos(&self) -> u64 {
        match self {
            Queue::Uring(queue) => queue.cpu_nanos(),
            Queue::Threads(queue) => queue.cpu_nanos(),
        }
    }

    /// Slots registered with the kernel.
    pub(crate) fn registered(&self) -> usize {
        match self {
            Queue::Uring(queue) => queue.registered(),
            Queue::Threads(_) => 0,
        }
    }
}

/// The name of a queue's threads, before their number.
fn thread_name(id: QueueId) -> String {
    match id {
        QueueId::Disk(dev) => format!("disk-{dev:x}"),
        QueueId::Given(number) => format!("given-{number:x}"),
    }
}

/// The error of a queue whose threads are gone.
pub(crate) fn gone(engine: &'static str) -> DiskError {
    DiskError::Engine { engine, source: io::Error::from(io::ErrorKind::BrokenPipe) }
}
