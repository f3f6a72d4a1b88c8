//! Signs of life of a session's receiving lanes: whether what the sender says it sent is still on its way.
//!
//! Lanes beat with every piece; the session loop asks. On a `safe` lane whoever is on the way can make a header promise more
//! than was ever sent, or take bytes out: without this the lane, and the session, would wait for them for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What all receiving lanes of a session beat on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<Beats>);

#[derive(Debug, Default)]
struct Beats {
    pieces: AtomicU64,
    waiting: AtomicUsize,
}

/// Watches a [`Pulse`].
#[derive(Debug)]
pub(crate) struct Watch {
    pulse: Pulse,
    pieces: u64,
    since: Instant,
}

impl Pulse {
    /// A piece arrived.
    pub(crate) fn beat(&self) {
        self.0.pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `wait`, which waits for a free buffer: meanwhile it is this side that is slow.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = wait();
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        waited
    }
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn new(pulse: Pulse) -> Watch {
        Watch { pulse, pieces: 0, since: Instant::now() }
    }

    /// Whether something is `owed`, nothing keeps this side from taking it, and no lane has brought anything for too long.
    pub(crate) fn is_overdue(&mut self, owed: bool) -> bool {
        let pieces = self.pulse.0.pieces.load(Ordering::Relaxed);
        let held_up = self.pulse.0.waiting.load(Ordering::Relaxed) > 0;
        if !owed || held_up || pieces != self.pieces {
            (self.pieces, self.since) = (pieces, Instant::now());
        }
        self.since.elapsed() >= OVERDUE
    }
}

/// As long as a peer may be silent. A piece of 256 KiB takes less on any lane of more than 9 KB/s.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);
