//! The engine on io_uring: one thread per device runs a tokio-uring runtime and keeps as many
//! requests in the kernel as `depth` says.
//!
//! The only module that knows tokio-uring (with the loan of slots in `longhaul-sys`).

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use longhaul_sys::{RingSlots, Slab};
use rustix::fs::FallocateFlags;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_uring::fs::File;
use tokio_uring::{Builder, Runtime};

use crate::affinity::ThreadWork;
use crate::error::DiskError;
use crate::io::account::Account;
use crate::io::depth::{QueueDepth, RingGate};
use crate::io::join;
use crate::io::queue::{Buffer, QueueMeans, Request, gone};
use crate::io::threads;
use crate::io::transfer::{Job, Step, Transfer};

/// A ring for one device.
pub(crate) struct RingQueue {
    /// Unbounded, but each request holds a slot, so there are never more than the slab has. Taken
    /// to end the thread.
    requests: Option<UnboundedSender<Request>>,
    thread: Option<JoinHandle<()>>,
    registered: Arc<AtomicUsize>,
    account: Account,
}

/// Whether this kernel, and the confinement of this process, allow a ring.
pub(crate) fn probe() -> io::Result<()> {
    // On a thread of its own: a runtime can be neither made nor dropped inside of another one.
    let probe = thread::Builder::new().name("disk-probe".into()).spawn(|| Runtime::new(&builder(1)).map(drop))?;
    probe.join().unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::Unsupported)))
}

impl RingQueue {
    pub(crate) fn start(dev: u64, means: &QueueMeans, slab: &Arc<Slab>) -> io::Result<RingQueue> {
        let (depth, affinity) = (means.depth.clone(), means.affinity.clone());
        let (sender, receiver) = unbounded_channel();
        let (started, outcome) = mpsc::channel();
        let registered = Arc::new(AtomicUsize::new(0));
        let (slab, counter) = (Arc::clone(slab), Arc::clone(&registered));
        let account = Account::default();
        let counted = account.clone();
        let thread = thread::Builder::new().name(format!("disk-{dev:x}")).spawn(move || {
            affinity.bind(ThreadWork::Device(dev));
            let runtime = match Runtime::new(&builder(depth.most())) {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(()));
            runtime.block_on(serve(receiver, Registration::new(&slab, counter), &depth, &counted));
        })?;
        let queue = RingQueue { requests: Some(sender), thread: Some(thread), registered, account };
        match outcome.recv() {
            Ok(outcome) => outcome.map(|()| queue),
            Err(_) => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    }

    pub(crate) fn submit(&self, request: Request) {
        let Some(requests) = &self.requests else { return request.finish(Err(gone("uring"))) };
        if let Err(refused) = requests.send(request) {
            refused.0.finish(Err(gone("uring")));
        }
    }

    /// Processor time of its thread so far.
    pub(crate) fn cpu_nanos(&self) -> u64 {
        self.account.nanos()
    }

    /// Slots registered with the ring.
    pub(crate) fn registered(&self) -> usize {
        self.registered.load(Ordering::Relaxed)
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

async fn serve(
    mut requests: UnboundedReceiver<Request>,
    mut registration: Registration,
    depth: &QueueDepth,
    account: &Account,
) {
    let account = Rc::new(RefCell::new(account.of_this_thread()));
    let gate = RingGate::new(depth);
    let ring = Rc::clone(&registration.ring);
    while let Some(request) = requests.recv().await {
        let slot = request.payload.slot_index();
        if registration.wants(slot) {
            // The table may only change while no request uses it.
            gate.idle().await;
            registration.grow(slot);
        }
        let permit = gate.enter().await;
        let (ring, account) = (Rc::clone(&ring), Rc::clone(&account));
        tokio_uring::spawn(async move {
            let Request { job, len, payload } = request;
            let began = Instant::now();
            let (buffer, teller) = payload.split();
            let (result, buffer) = run(&ring, &job, len, buffer).await;
            let took = began.elapsed();
            permit.served(len, took, &result);
            let result = job.served(len, took, result);
            drop(job);
            account.borrow_mut().add();
            teller.tell(buffer, result);
            drop(permit);
        });
    }
    gate.idle().await;
}

async fn run(ring: &RingSlots, job: &Job, len: usize, mut buffer: Buffer) -> (Result<(), DiskError>, Buffer) {
    let mut transfer = match Transfer::begin(job, len, buffer.bytes().len()) {
        Ok(transfer) => transfer,
        Err(error) => return (Err(error), buffer),
    };
    let Some(handle) = job.handle() else { return (Ok(()), buffer) };
    // tokio-uring wants to own (and close) its descriptor; a duplicate costs a microsecond per
    // chunk and shares the flags, so that leaving direct I/O works as everywhere.
    let file = match handle.as_fd().try_clone_to_owned() {
        Ok(fd) => File::from_std(std::fs::File::from(fd)),
        Err(error) => return (Err(handle.error("open", error)), buffer),
    };
    loop {
        let step = match transfer.next(buffer.bytes()) {
            Ok(Some(step)) => step,
            Ok(None) => return (Ok(()), buffer),
            Err(error) => return (Err(error), buffer),
        };
        transfer.pad(&step, &mut buffer);
        let turn = match job.turn() {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let outcome = if handle.kernel().is_interposed() {
            threads::perform(handle, &step, &mut buffer)
        } else {
            let (outcome, back) = perform(ring, &file, &step, buffer).await;
            buffer = back;
            outcome
        };
        drop(turn);
        if let Err(error) = transfer.absorb(&step, outcome) {
            return (Err(error), buffer);
        }
    }
}

async fn perform(ring: &RingSlots, file: &File, step: &Step, buffer: Buffer) -> (io::Result<usize>, Buffer) {
    match (step, buffer) {
        (Step::Read { range, offset }, Buffer::Own(slot)) => {
            let (outcome, slot) = ring.read_at(file, slot, range.clone(), *offset).await;
            (outcome, Buffer::Own(slot))
        }
        // Only writes share a buffer.
        (Step::Read { .. }, buffer) => (Err(io::ErrorKind::InvalidInput.into()), buffer),
        (Step::Write { range, offset }, Buffer::Own(slot)) => {
            let (outcome, slot) = ring.write_at(file, slot, range.clone(), *offset).await;
            (outcome, Buffer::Own(slot))
        }
        (Step::Write { range, offset }, Buffer::Shared(slot)) => {
            let (outcome, slot) = ring.write_shared_at(file, slot, range.clone(), *offset).await;
            (outcome, Buffer::Shared(slot))
        }
        (Step::Reserve { offset, len }, buffer) => {
            let flags = FallocateFlags::KEEP_SIZE.bits() as i32;
            (file.fallocate(*offset, *len, flags).await.map(|()| 0), buffer)
        }
    }
}

/// The rule when and how many slots are registered with one ring.
///
/// Registering pins a slot's memory, used or not, so it starts when a transfer has shown to be
/// worth it and covers the slots in use, doubling as higher ones turn up. Where the limit of locked
/// memory stops it, it stays at what fitted.
struct Registration {
    ring: Rc<RingSlots>,
    slots: usize,
    /// The number of slots that fit in the locked memory.
    slots_max: usize,
    requests: usize,
    registered: Arc<AtomicUsize>,
}

impl Registration {
    fn new(slab: &Arc<Slab>, registered: Arc<AtomicUsize>) -> Registration {
        let ring = Rc::new(RingSlots::new(slab));
        Registration { ring, slots: slab.slots(), slots_max: slab.slots(), requests: 0, registered }
    }

    /// Whether the table should grow before a request on this slot. Called once for each request.
    fn wants(&mut self, slot: usize) -> bool {
        self.requests = self.requests.saturating_add(1);
        self.requests > UNREGISTERED_REQUESTS
            && slot >= self.ring.registered()
            && self.ring.registered() < self.slots_max
    }

    /// Registers enough slots to cover this one, or as many as may be locked. No request may be
    /// under way.
    fn grow(&mut self, slot: usize) {
        let before = self.ring.registered();
        let mut wanted = (slot + 1).next_power_of_two().max(REGISTERED_MIN).min(self.slots_max);
        while let Err(error) = self.ring.register(wanted) {
            let fewer = wanted.div_ceil(2).max(before).min(wanted - 1);
            tracing::debug!(wanted, fewer, %error, "cannot register slots");
            self.slots_max = fewer;
            wanted = fewer;
        }
        if wanted == self.slots_max && wanted < self.slots {
            tracing::info!(
                registered = wanted,
                slots = self.slots,
                memlock_bytes = ?longhaul_sys::memlock_limit(),
                "not all buffers fit the limit of locked memory: plain I/O for the rest, at some more CPU per byte"
            );
        }
        self.registered.store(self.ring.registered(), Ordering::Relaxed);
    }
}

fn builder(depth: usize) -> Builder {
    let mut builder = tokio_uring::builder();
    builder.entries(depth.next_power_of_two().max(ENTRIES_MIN) as u32);
    builder
}

/// Requests served before anything is registered: a transfer of a few files never pays for pinning.
const UNREGISTERED_REQUESTS: usize = 16;
/// The smallest registration. Fewer slots are not worth one.
const REGISTERED_MIN: usize = 8;
/// Room for the reservations and closings beside the requests.
const ENTRIES_MIN: usize = 16;
