//! Processor time of an engine's threads, which shows the cost of I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// The processor time that the threads of one queue have spent. Clones share one account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account(Arc<AtomicU64>);

impl Account {
    /// Opens the part of the calling thread, whose processor time counts from the thread's start.
    pub(crate) fn of_this_thread(&self) -> Part {
        Part { account: self.clone(), reported_us: 0 }
    }

    /// The nanoseconds spent so far.
    pub(crate) fn nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One thread's part of an account.
#[derive(Debug)]
pub(crate) struct Part {
    account: Account,
    reported_us: u64,
}

impl Part {
    /// Adds the time that the calling thread, always the same one, has spent since the last call.
    pub(crate) fn add(&mut self) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        self.account.0.fetch_add(now.saturating_sub(self.reported_us), Ordering::Relaxed);
        self.reported_us = now;
    }
}
