//! Owns the signs of life of both sides of a session: when each was last heard, and when the next
//! heartbeat is due.
//!
//! In: that a message came or left. Out: whether the other side is silent or stalls, and whether
//! this side should speak. It knows no connection and no lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_proto::wire::message::Heartbeat;

use super::SILENCE_MAX;
use crate::journals::presence::Presence;

/// The signs of life of a session. See the module.
pub(super) struct LifeSigns {
    last_heard: Instant,
    last_spoke: Instant,
    /// When the other side last reported that its disk stalls. `None` if it never did.
    peer_stalled: Option<Instant>,
    /// Shows other sessions whether this one lives.
    presence: Arc<Presence>,
    /// Whether this side's loop was held up since the last look.
    held_up: Arc<AtomicBool>,
}

impl LifeSigns {
    /// A session whose sides were heard at `now`.
    pub(super) fn new(presence: Arc<Presence>, now: Instant) -> LifeSigns {
        LifeSigns { last_heard: now, last_spoke: now, peer_stalled: None, presence, held_up: Arc::default() }
    }

    /// Records that a message of the other side came.
    pub(super) fn hear(&mut self) {
        self.last_heard = Instant::now();
        self.presence.hear();
    }

    /// Records the other side's heartbeat, which came just now. Returns whether it asks for one of
    /// this side.
    pub(super) fn hear_heartbeat(&mut self, heartbeat: &Heartbeat) -> bool {
        if heartbeat.stalled {
            self.peer_stalled = Some(self.last_heard);
        }
        heartbeat.answer
    }

    /// Takes the other side for alive, because nobody listens to it.
    pub(super) fn excuse_silence(&mut self) {
        self.last_heard = Instant::now();
    }

    /// Set by whoever holds this side's loop up.
    pub(super) fn held_up(&self) -> Arc<AtomicBool> {
        self.held_up.clone()
    }

    /// Whether this side's loop was held up since the last call.
    pub(super) fn take_held_up(&self) -> bool {
        self.held_up.swap(false, Ordering::Relaxed)
    }

    /// Records that this side sends a sign of life.
    pub(super) fn speak(&mut self) {
        self.last_spoke = Instant::now();
    }

    /// When the other side was last heard.
    pub(super) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// Whether the other side is taken for dead.
    pub(super) fn is_silent(&self) -> bool {
        self.last_heard.elapsed() >= SILENCE_MAX
    }

    /// Whether the other side was heard within two heartbeats.
    pub(super) fn is_heard_of_late(&self) -> bool {
        is_of_late(self.last_heard)
    }

    /// Whether the other side reported within two heartbeats that its disk stalls.
    pub(super) fn peer_stalls(&self) -> bool {
        self.peer_stalled.is_some_and(is_of_late)
    }

    /// Whether another session asked since the last call whether this one lives.
    pub(super) fn take_question(&self) -> bool {
        self.presence.take_question()
    }

    /// Whether this side has said nothing for so long that it sends a heartbeat.
    pub(super) fn is_heartbeat_due(&self) -> bool {
        self.last_spoke.elapsed() >= HEARTBEAT_EVERY
    }
}

fn is_of_late(at: Instant) -> bool {
    at.elapsed() < 2 * HEARTBEAT_EVERY
}

/// The fault of a session whose other side is taken for dead.
pub(super) fn closed_by_peer() -> Fault {
    Fault::new(FaultCode::Lost, Blame::Path, "the other side closed the control connection").hint(hint::Again::Now)
}

/// The fault of a session whose other side is silent.
pub(super) fn silent() -> Fault {
    let why = format_args!("the other side was silent for {} s", SILENCE_MAX.as_secs());
    Fault::new(FaultCode::TimedOut, Blame::Path, why).hint(hint::Again::Now)
}

/// A side that has sent nothing for this long sends a heartbeat.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
