//! How many requests a device is given at a time: as many as were asked for, or as many as still
//! pay, found while it works.
//!
//! In: each request that a queue has served. Out: permits, one for each request that may be under
//! way. Knows no files and no system calls; how the depth is found is decided in
//! `longhaul_core::load`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::DepthSearch;
use longhaul_core::limits::DISK_DEPTH_MAX;
use tokio::sync::Notify;

use crate::error::DiskError;

/// How many requests in flight a device gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The same number of requests all the time.
    Fixed(usize),
    /// As many as still pay. Each device begins with `start`, and never gets more than `most`.
    Found {
        /// The number to begin with.
        start: usize,
        /// The largest number.
        most: usize,
    },
}

impl Depth {
    /// The number to begin with.
    pub fn start(self) -> usize {
        match self {
            Depth::Fixed(depth) | Depth::Found { start: depth, .. } => depth,
        }
    }

    /// The largest number that it may become.
    pub fn most(self) -> usize {
        match self {
            Depth::Fixed(depth) | Depth::Found { most: depth, .. } => depth,
        }
    }

    /// The same for a device that takes no more than `most`.
    pub(crate) fn at_most(self, most: usize) -> Depth {
        let least = |depth: usize| depth.min(most).clamp(1, DISK_DEPTH_MAX as usize);
        match self {
            Depth::Fixed(depth) => Depth::Fixed(least(depth)),
            Depth::Found { start, most } => Depth::Found { start: least(start), most: least(most) },
        }
    }
}

/// The depth of one queue. Clones share it.
#[derive(Clone)]
pub(crate) struct QueueDepth(Arc<SharedDepth>);

struct SharedDepth {
    /// The largest number that it may become.
    most: usize,
    /// The number to use now, and the one that was found best.
    now: AtomicUsize,
    found: AtomicUsize,
    /// `None` where the number was asked for.
    search: Option<Mutex<DepthSearch>>,
    began: Instant,
}

impl QueueDepth {
    /// The depth of a queue that begins.
    pub(crate) fn new(depth: Depth) -> QueueDepth {
        let (start, most) = (depth.start(), depth.most());
        let search = match depth {
            Depth::Fixed(_) => None,
            Depth::Found { start, most } => Some(Mutex::new(DepthSearch::new(start, most))),
        };
        let (now, found) = (AtomicUsize::new(start), AtomicUsize::new(start));
        QueueDepth(Arc::new(SharedDepth { most, now, found, search, began: Instant::now() }))
    }

    /// The largest number that it may become.
    pub(crate) fn most(&self) -> usize {
        self.0.most
    }

    /// The number to use now.
    pub(crate) fn now(&self) -> usize {
        self.0.now.load(Ordering::Relaxed)
    }

    /// The number that was found best so far. `None` where it was asked for.
    pub(crate) fn found(&self) -> Option<usize> {
        self.0.search.as_ref().map(|_| self.0.found.load(Ordering::Relaxed))
    }

    /// Notes a request that the system had for `took`. One that failed says nothing of the device.
    fn served(&self, len: usize, took: Duration, result: &Result<(), DiskError>) {
        if result.is_ok() {
            self.served_by(self.0.began.elapsed(), len, took);
        }
    }

    fn served_by(&self, now: Duration, len: usize, took: Duration) {
        let Some(search) = &self.0.search else { return };
        let mut search = search.lock().unwrap_or_else(PoisonError::into_inner);
        let now = search.serve(now, len as u64, took);
        self.0.now.store(now, Ordering::Relaxed);
        self.0.found.store(search.found(), Ordering::Relaxed);
    }
}

/// Lets as many requests of a ring be under way as its depth says. For one thread.
pub(crate) struct RingGate {
    depth: QueueDepth,
    under_way: Cell<usize>,
    /// Told when a request is over. There is one waiter at most: the loop that takes requests.
    freed: Notify,
}

/// The right of one request of a ring to be under way.
pub(crate) struct RingPermit(Rc<RingGate>);

impl RingGate {
    /// A gate that lets as many requests in as the depth says.
    pub(crate) fn new(depth: &QueueDepth) -> Rc<RingGate> {
        Rc::new(RingGate { depth: depth.clone(), under_way: Cell::new(0), freed: Notify::new() })
    }

    /// Waits until one more may be under way.
    pub(crate) async fn enter(self: &Rc<Self>) -> RingPermit {
        while self.under_way.get() >= self.depth.now() {
            self.freed.notified().await;
        }
        self.under_way.set(self.under_way.get() + 1);
        RingPermit(Rc::clone(self))
    }

    /// Waits until nothing is under way.
    pub(crate) async fn idle(&self) {
        while self.under_way.get() > 0 {
            self.freed.notified().await;
        }
    }
}

impl RingPermit {
    /// Notes that the system had the request for `took`.
    pub(crate) fn served(&self, len: usize, took: Duration, result: &Result<(), DiskError>) {
        self.0.depth.served(len, took, result);
    }
}

impl Drop for RingPermit {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get().saturating_sub(1));
        self.0.freed.notify_one();
    }
}

/// Lets as many threads of a pool be at work, or wait for work, as its depth says.
pub(crate) struct ThreadGate {
    depth: QueueDepth,
    at_work: Mutex<usize>,
    freed: Condvar,
}

/// The right of one thread to take a request.
pub(crate) struct ThreadPermit<'g>(&'g ThreadGate);

impl ThreadGate {
    /// A gate that lets as many threads work as the depth says.
    pub(crate) fn new(depth: &QueueDepth) -> ThreadGate {
        ThreadGate { depth: depth.clone(), at_work: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until one more thread may be at work.
    pub(crate) fn enter(&self) -> ThreadPermit<'_> {
        let may_not = |at_work: &mut usize| *at_work >= self.depth.now();
        let mut at_work = self.freed.wait_while(self.at_work(), may_not).unwrap_or_else(PoisonError::into_inner);
        *at_work += 1;
        ThreadPermit(self)
    }

    fn at_work(&self) -> MutexGuard<'_, usize> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadPermit<'_> {
    /// Notes that the system had a request for `took`. Gives the number of threads to have now.
    pub(crate) fn served(&self, len: usize, took: Duration, result: &Result<(), DiskError>) -> usize {
        let before = self.0.depth.now();
        self.0.depth.served(len, took, result);
        let now = self.0.depth.now();
        if now > before {
            // Whoever is about to wait has looked already, or looks after this.
            drop(self.0.at_work());
            self.0.freed.notify_all();
        }
        now
    }
}

impl Drop for ThreadPermit<'_> {
    fn drop(&mut self) {
        *self.0.at_work() -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_no_more_than_it_takes_and_one_at_least() {
        assert_eq!(Depth::Fixed(8).at_most(4), Depth::Fixed(4));
        assert_eq!(Depth::Fixed(0).at_most(usize::MAX), Depth::Fixed(1));
        assert_eq!(Depth::Fixed(usize::MAX).at_most(usize::MAX), Depth::Fixed(DISK_DEPTH_MAX as usize));
        assert_eq!(Depth::Found { start: 8, most: 32 }.at_most(16), Depth::Found { start: 8, most: 16 });
        assert_eq!(Depth::Found { start: 8, most: 32 }.at_most(2), Depth::Found { start: 2, most: 2 });
    }

    #[test]
    fn a_thread_works_only_as_long_as_no_more_do_than_the_depth_says() {
        let depth = QueueDepth::new(Depth::Found { start: 2, most: 4 });
        let gate = ThreadGate::new(&depth);
        let (one, two) = (gate.enter(), gate.enter());
        std::thread::scope(|scope| {
            let (entered, third) = std::sync::mpsc::channel();
            let gate = &gate;
            scope.spawn(move || {
                let _permit = gate.enter();
                entered.send(()).expect("somebody hears it");
            });
            assert_eq!(*gate.at_work(), 2);
            assert!(third.try_recv().is_err());
            // A shallower queue: the one that ends makes no room.
            depth.0.now.store(1, Ordering::Relaxed);
            drop(one);
            assert!(third.try_recv().is_err());
            drop(two);
            third.recv().expect("it enters");
        });
    }

    #[tokio::test]
    async fn a_ring_is_idle_once_all_permits_are_given_back() {
        let depth = QueueDepth::new(Depth::Found { start: 2, most: 4 });
        let gate = RingGate::new(&depth);
        let (one, two) = (gate.enter().await, gate.enter().await);
        let waits = async |gate: &Rc<RingGate>| {
            tokio::select! { biased; _ = gate.enter() => false, () = std::future::ready(()) => true }
        };
        assert!(waits(&gate).await);
        depth.0.now.store(3, Ordering::Relaxed);
        assert!(!waits(&gate).await, "deeper, there is room");
        depth.0.now.store(1, Ordering::Relaxed);
        drop(one);
        assert!(waits(&gate).await, "shallower, there is none yet");
        drop(two);
        gate.idle().await;
        drop(gate.enter().await);
    }

    #[test]
    fn a_depth_that_was_asked_for_stays_and_another_follows_the_search() {
        // Requests that take as long as there are others: more in flight adds nothing.
        let serve = |depth: &QueueDepth| {
            for n in 0..64 {
                depth.served_by(Duration::from_millis(12 * n), 1 << 20, Duration::from_millis(12) * depth.now() as u32);
            }
        };
        let (fixed, found) = (QueueDepth::new(Depth::Fixed(2)), QueueDepth::new(Depth::Found { start: 2, most: 4 }));
        serve(&fixed);
        serve(&found);
        assert_eq!((fixed.now(), fixed.found()), (2, None));
        assert_eq!((found.now(), found.found(), found.most()), (4, Some(2), 4), "a deeper queue is being tried");
    }
}
