//! The pace of work on the disks of a set: bytes that were read, against the time that they may
//! take.
//!
//! In: a rate, and bytes as they are read, by several threads. Out: waiting. Knows no files.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A pace.
#[derive(Debug)]
pub(super) struct Pace {
    began: Instant,
    bytes: AtomicU64,
    /// Bytes per second. `None`: as fast as the disks.
    rate: Option<u64>,
}

impl Pace {
    /// At most `rate` bytes per second from now on. `None`: as fast as the disks.
    pub(super) fn new(rate: Option<u64>) -> Pace {
        Pace { began: Instant::now(), bytes: AtomicU64::new(0), rate }
    }

    /// Waits until as many bytes may have been read as were.
    pub(super) fn wait(&self, bytes: u64) {
        self.wait_unless(bytes, &|| false);
    }

    /// The same, but no longer than until `is_over` says so.
    pub(super) fn wait_unless(&self, bytes: u64, is_over: &dyn Fn() -> bool) {
        let read = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(rate) = self.rate else { return };
        let due = Duration::from_secs_f64(read as f64 / rate.max(1) as f64);
        while let Some(rest) = due.checked_sub(self.began.elapsed()).filter(|rest| !rest.is_zero())
            && !is_over()
        {
            thread::sleep(rest.min(ASKED_EVERY));
        }
    }
}

/// A user who stops a command does not notice such a time.
const ASKED_EVERY: Duration = Duration::from_millis(100);
