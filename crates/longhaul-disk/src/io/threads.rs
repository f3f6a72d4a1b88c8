//! The engine that works everywhere: `depth` threads per device, each with one `pread` or `pwrite`
//! at a time. Files that are no descriptors have it in any case.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::io::pread;
use tokio::sync::Mutex;

use crate::direct::Handle;
use crate::error::DiskError;
use crate::io::account::Account;
use crate::io::join;
use crate::io::queue::{Buffer, Request, gone};
use crate::io::transfer::{Job, Step, Transfer};

/// A pool for one device.
pub(crate) struct ThreadsQueue {
    /// Unbounded, but each request holds a slot, so there are never more than the slab has. Taken
    /// to end the threads.
    requests: Option<Sender<Request>>,
    threads: Vec<JoinHandle<()>>,
    account: Account,
}

/// The work of a thread on a request.
pub(crate) type Work = fn(&Job, usize, &mut Buffer) -> Result<(), DiskError>;

impl ThreadsQueue {
    /// Starts `depth` threads. `begin` makes what each does first.
    pub(crate) fn start<B: FnOnce() + Send + 'static>(
        name: &str,
        depth: usize,
        begin: impl Fn() -> B,
        work: Work,
    ) -> io::Result<ThreadsQueue> {
        let (sender, receiver) = unbounded();
        let mut queue =
            ThreadsQueue { requests: Some(sender), threads: Vec::with_capacity(depth), account: Account::default() };
        for n in 0..depth {
            let (receiver, account, begin) = (receiver.clone(), queue.account.clone(), begin());
            // If one thread cannot be started, dropping the queue ends those that were.
            let thread = thread::Builder::new().name(format!("{name}-{n}")).spawn(move || {
                begin();
                serve(&receiver, work, &account);
            })?;
            queue.threads.push(thread);
        }
        Ok(queue)
    }

    /// Processor time of its threads so far.
    pub(crate) fn cpu_nanos(&self) -> u64 {
        self.account.nanos()
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
        self.threads.drain(..).for_each(join);
    }
}

fn serve(requests: &Receiver<Request>, work: Work, account: &Account) {
    let mut account = account.of_this_thread();
    for Request { job, len, payload } in requests {
        let began = Instant::now();
        let (mut buffer, teller) = payload.split();
        let result = work(&job, len, &mut buffer);
        let result = job.served(len, began.elapsed(), result);
        // This may close the file: do it before the callback tells that the request is over.
        drop(job);
        account.add();
        teller.tell(buffer, result);
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
