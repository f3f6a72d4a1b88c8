//! The engine that works everywhere: as many threads per device as its depth says, each with one
//! `pread` or `pwrite` at a time. Threads are added while the depth grows; when it shrinks, some
//! wait. Files that are no descriptors have it in any case.

use std::io;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::io::pread;
use tokio::sync::Mutex;

use crate::direct::Handle;
use crate::error::DiskError;
use crate::io::account::Account;
use crate::io::depth::{QueueDepth, ThreadGate};
use crate::io::join;
use crate::io::queue::{Buffer, Request, gone};
use crate::io::transfer::{Job, Step, Transfer};

/// A pool for one device.
pub(crate) struct ThreadsQueue {
    /// Unbounded, but each request holds a slot, so there are never more than the slab has. Taken
    /// to end the threads.
    requests: Option<Sender<Request>>,
    pool: Arc<Pool>,
}

/// The threads of a pool, and what each of them needs.
struct Pool {
    /// Their name, before their number.
    name: String,
    receiver: Receiver<Request>,
    work: Work,
    /// The first thing that each does.
    begin: Box<dyn Fn() + Send + Sync>,
    gate: ThreadGate,
    account: Account,
    threads: StdMutex<PoolThreads>,
}

#[derive(Default)]
struct PoolThreads {
    /// Threads that were started.
    started: usize,
    /// The threads that were not joined.
    handles: Vec<JoinHandle<()>>,
    /// Whether the system gave no further one.
    is_at_limit: bool,
}

/// The work of a thread on a request.
pub(crate) type Work = fn(&Job, usize, &mut Buffer) -> Result<(), DiskError>;

impl ThreadsQueue {
    /// Starts as many threads as `depth` says now. `begin` is what each does first.
    pub(crate) fn start(
        name: String,
        depth: &QueueDepth,
        begin: impl Fn() + Send + Sync + 'static,
        work: Work,
    ) -> io::Result<ThreadsQueue> {
        let (sender, receiver) = unbounded();
        let (gate, account, threads) = (ThreadGate::new(depth), Account::default(), StdMutex::default());
        let pool = Arc::new(Pool { name, receiver, work, begin: Box::new(begin), gate, account, threads });
        // If one thread cannot be started, dropping the queue ends those that were.
        let queue = ThreadsQueue { requests: Some(sender), pool };
        for _ in 0..depth.now() {
            queue.pool.add_thread()?;
        }
        Ok(queue)
    }

    /// Processor time of its threads so far.
    pub(crate) fn cpu_nanos(&self) -> u64 {
        self.pool.account.nanos()
    }

    pub(crate) fn submit(&self, request: Request) {
        let Some(requests) = &self.requests else { return request.finish(Err(gone("threads"))) };
        if let Err(refused) = requests.send(request) {
            refused.into_inner().finish(Err(gone("threads")));
        }
    }
}

impl Drop for ThreadsQueue {
    fn drop(&mut self) {
        self.requests = None;
        // One that is being joined may have started another one before its end.
        while let Some(thread) = { self.pool.threads().handles.pop() } {
            join(thread);
        }
    }
}

impl Pool {
    fn threads(&self) -> std::sync::MutexGuard<'_, PoolThreads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let (pool, mut threads) = (Arc::clone(self), self.threads());
        let name = format!("{}-{}", self.name, threads.started);
        let thread = thread::Builder::new().name(name).spawn(move || {
            (pool.begin)();
            pool.serve();
        })?;
        threads.started += 1;
        threads.handles.push(thread);
        Ok(())
    }

    fn serve(self: &Arc<Self>) {
        let mut account = self.account.of_this_thread();
        loop {
            let permit = self.gate.enter();
            let Ok(Request { job, len, payload }) = self.receiver.recv() else { return };
            let began = Instant::now();
            let (mut buffer, teller) = payload.split();
            let result = (self.work)(&job, len, &mut buffer);
            let took = began.elapsed();
            let wanted = permit.served(len, took, &result);
            let result = job.served(len, took, result);
            // This may close the file: do it before the callback tells that the request is over.
            drop(job);
            account.add();
            teller.tell(buffer, result);
            drop(permit);
            self.grow(wanted);
        }
    }

    /// Adds threads up to so many, as long as the system gives them.
    fn grow(self: &Arc<Self>, wanted: usize) {
        let is_missing = |threads: &PoolThreads| threads.started < wanted && !threads.is_at_limit;
        while is_missing(&self.threads()) {
            if let Err(error) = self.add_thread() {
                tracing::debug!(%error, wanted, "no further thread for a disk");
                self.threads().is_at_limit = true;
            }
        }
    }
}

/// Reads or writes.
pub(crate) fn move_bytes(job: &Job, len: usize, buffer: &mut Buffer) -> Result<(), DiskError> {
    if let Some(outcome) = job.move_given(len, buffer) {
        return outcome;
    }
    let mut transfer = Transfer::begin(job, len, buffer.bytes().len())?;
    let Some(handle) = job.handle() else { return Ok(()) };
    while let Some(step) = transfer.next(buffer.bytes())? {
        transfer.pad(&step, buffer);
        let outcome = {
            let _turn = job.turn().map(Mutex::blocking_lock);
            perform(handle, &step, buffer)
        };
        transfer.absorb(&step, outcome)?;
    }
    Ok(())
}

/// Does nothing, as the void engine.
pub(crate) fn move_nothing(_job: &Job, _len: usize, _buffer: &mut Buffer) -> Result<(), DiskError> {
    Ok(())
}

/// Makes one call.
pub(crate) fn perform(handle: &Handle, step: &Step, buffer: &mut Buffer) -> io::Result<usize> {
    Ok(match step {
        Step::Read { range, offset } => match buffer.own() {
            Some(slot) => pread(handle, &mut slot[range.clone()], *offset)?,
            // Only writes share a buffer.
            None => return Err(io::ErrorKind::InvalidInput.into()),
        },
        Step::Write { range, offset } => handle.kernel().pwrite(handle, &buffer.bytes()[range.clone()], *offset)?,
        Step::Reserve { offset, len } => {
            handle.kernel().reserve(handle, *offset, *len)?;
            0
        }
    })
}
