//! Owns threads for blocking file work that is not chunk I/O: each pool runs its jobs in the order
//! given, `n` at a time.
//!
//! In: jobs. Out: their results, by whatever channel a job has. It does not know what a job does.

use crossbeam_channel::{Sender, unbounded};
use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_disk::{Affinity, ThreadWork};
use std::thread::{Builder, JoinHandle};

type Work = Box<dyn FnOnce() + Send>;

/// Runs `work` on one of the runtime's threads for blocking work.
///
/// # Errors
/// The fault of `work`, or one of ours if it panics.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, e))?
}

/// A pool of threads. Dropping it waits for all queued jobs.
#[derive(Debug)]
pub(crate) struct Workers {
    queue: Option<Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `n` threads, which run where `affinity` says.
    ///
    /// # Errors
    /// An error when the system gives no thread.
    pub(crate) fn start(name: &'static str, n: usize, affinity: &Affinity) -> std::io::Result<Workers> {
        let (queue, jobs) = unbounded::<Work>();
        let thread = |i| {
            let (jobs, affinity) = (jobs.clone(), affinity.clone());
            Builder::new().name(format!("{name}-{i}")).spawn(move || {
                affinity.bind(ThreadWork::Elsewhere(name));
                jobs.iter().for_each(|job| job());
            })
        };
        let threads = (0..n).map(thread).collect::<Result<_, _>>()?;
        Ok(Workers { queue: Some(queue), threads })
    }

    /// Queues a job.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(queue) = &self.queue {
            let _ = queue.send(Box::new(job));
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue = None;
        let here = std::thread::current().id();
        // A job may have been the last to hold the pool: its own thread ends after it.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != here) {
            let _ = thread.join();
        }
    }
}
