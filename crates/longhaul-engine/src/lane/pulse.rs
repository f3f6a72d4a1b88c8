//! Notices lanes that have fallen silent: that an acknowledged byte reached the other end is what TCP says, not what is true
//! where something stands between.
//!
//! In: beats from receiving lanes, one for each piece, and which lanes still owe what was declared. Out: the lanes' watch, asked
//! by the session loop. The control channel tells of a peer that lives, not of bytes that were lost on the way: this is how a
//! receiver learns that it would wait for them for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::LaneId;
use longhaul_net::LaneCloser;

/// What one receiving lane beats on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<Beats>);

#[derive(Debug, Default)]
struct Beats {
    pieces: AtomicU64,
    waiting: AtomicBool,
    within: AtomicBool,
}

/// Watches the lanes of a session.
#[derive(Debug)]
pub(crate) struct Watch {
    lanes: Vec<Watched>,
    next: Instant,
    /// Since when nothing came on any lane that is owed.
    since: Instant,
}

#[derive(Debug)]
struct Watched {
    id: LaneId,
    pulse: Pulse,
    lane: LaneCloser,
    pieces: u64,
    /// Since when nothing came that is due.
    since: Instant,
}

impl Pulse {
    /// A piece arrived.
    pub(crate) fn beat(&self) {
        self.0.pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `wait`, which waits for a free buffer: meanwhile it is this side that is slow.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.0.waiting.store(true, Ordering::Relaxed);
        let waited = wait();
        self.0.waiting.store(false, Ordering::Relaxed);
        waited
    }

    /// Runs `receive`, which takes in what a header announced: the sender has all of it and owes it at once.
    pub(crate) fn within<T>(&self, receive: impl FnOnce() -> T) -> T {
        self.0.within.store(true, Ordering::Relaxed);
        let received = receive();
        self.0.within.store(false, Ordering::Relaxed);
        received
    }
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn new() -> Watch {
        let now = Instant::now();
        Watch { lanes: Vec::new(), next: now + LOOK_EVERY, since: now }
    }

    /// Watches one more lane, which is to beat on the pulse.
    pub(crate) fn add(&mut self, id: LaneId, lane: LaneCloser) -> Pulse {
        let pulse = Pulse::default();
        self.lanes.push(Watched { id, pulse: pulse.clone(), lane, pieces: 0, since: Instant::now() });
        pulse
    }

    /// Whether it is time to look; the answer is asked for often, and costs.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Whether what is due stays away for too long though nothing keeps this side from taking it: on one lane in the middle of a
    /// unit or `owing` one, whatever the others bring; or on all of them, if anything is owed.
    pub(crate) fn is_overdue(&mut self, owing: &[LaneId]) -> bool {
        let now = Instant::now();
        self.next = now + LOOK_EVERY;
        let mut stands_still = !owing.is_empty();
        let mut overdue = false;
        for lane in &mut self.lanes {
            let held_up = lane.pulse.0.waiting.load(Ordering::Relaxed);
            let pieces = lane.pulse.0.pieces.load(Ordering::Relaxed);
            let moves = held_up || pieces != lane.pieces;
            let due = lane.pulse.0.within.load(Ordering::Relaxed) || owing.contains(&lane.id);
            if moves || !due {
                (lane.pieces, lane.since) = (pieces, now);
            }
            stands_still &= !moves;
            // A slow lane, one of many, may take longer for a piece: the kernel knows whether bytes still come.
            overdue |= now - lane.since >= OVERDUE && lane.lane.quiet().is_some_and(|quiet| quiet >= OVERDUE);
        }
        if !stands_still {
            self.since = now;
        }
        overdue || now - self.since >= OVERDUE
    }
}

/// As long as a peer may be silent. A piece of 256 KiB takes less on any lane of more than 9 KB/s.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);
/// Fine enough for [`OVERDUE`].
const LOOK_EVERY: Duration = Duration::from_secs(1);
