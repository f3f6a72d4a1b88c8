//! A device's queue, whichever engine serves it, and the request that travels through it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use longhaul_sys::{SharedSlot, Slab, Slot};

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
    pub(crate) payload: Payload,
}

/// The buffer of a request, and who is told of its end.
pub(crate) enum Payload {
    /// A buffer that this request alone uses, and that goes back to who is told.
    Own(Slot, Done),
    /// A buffer that several writes read, padded before.
    Shared(SharedSlot, SharedDone),
}

/// The buffer of a request while a call uses it.
pub(crate) enum Buffer {
    /// One that this request alone uses.
    Own(Slot),
    /// One that several writes read.
    Shared(SharedSlot),
}

/// The rest of a payload whose buffer is in use: who is told of the end.
pub(crate) enum Teller {
    /// Gets the buffer back.
    Own(Done),
    /// Does not.
    Shared(SharedDone),
}

/// Called with the result of a write whose buffer is shared.
pub(crate) type SharedDone = Box<dyn FnOnce(Result<(), DiskError>) + Send>;

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
    /// Gives the buffer back with the result.
    pub(crate) fn finish(self, result: Result<(), DiskError>) {
        let result = self.job.served(self.len, Duration::ZERO, result);
        // This may close the file: before it is told that the request is over.
        drop(self.job);
        self.payload.finish(result);
    }
}

impl Payload {
    /// Tells the end of the request.
    pub(crate) fn finish(self, result: Result<(), DiskError>) {
        let (buffer, teller) = self.split();
        teller.tell(buffer, result);
    }

    /// The buffer, and who is told of the end of what is done with it.
    pub(crate) fn split(self) -> (Buffer, Teller) {
        match self {
            Payload::Own(slot, done) => (Buffer::Own(slot), Teller::Own(done)),
            Payload::Shared(slot, done) => (Buffer::Shared(slot), Teller::Shared(done)),
        }
    }

    /// The number of its slot.
    pub(crate) fn slot_index(&self) -> usize {
        match self {
            Payload::Own(slot, _) => slot.index() as usize,
            Payload::Shared(slot, _) => slot.index() as usize,
        }
    }
}

impl Buffer {
    /// The bytes, for one who only reads them.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Own(slot) => slot,
            Buffer::Shared(slot) => slot,
        }
    }

    /// The bytes, for one who changes them. `None`: others read them.
    pub(crate) fn own(&mut self) -> Option<&mut [u8]> {
        match self {
            Buffer::Own(slot) => Some(slot),
            Buffer::Shared(_) => None,
        }
    }
}

impl Teller {
    /// Tells the end of a request, and gives its buffer back.
    pub(crate) fn tell(self, buffer: Buffer, result: Result<(), DiskError>) {
        guarded(|| match (self, buffer) {
            (Teller::Own(done), Buffer::Own(slot)) => done(slot, result),
            (Teller::Shared(done), buffer) => {
                drop(buffer);
                done(result);
            }
            // A payload is split into what belongs together.
            (Teller::Own(_), Buffer::Shared(_)) => tracing::error!("a buffer came back shared"),
        });
    }
}

/// Runs a callback. A panic in it is a bug above, but must not take the engine's thread and all
/// other requests with it.
pub(crate) fn guarded(callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
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
