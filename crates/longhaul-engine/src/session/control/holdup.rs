//! Keeps a session alive whose loop does not run, as somebody outside of it has it wait.
//!
//! In: word of whoever holds the loop up, every few seconds for as long as that lasts. Out: signs
//! of life to the other side, which say that this side stalls; and once the loop runs again, the
//! time in which nobody listened counts neither as silence nor as idleness. It knows no reasons.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::Message;
use longhaul_proto::wire::message::Heartbeat;

use super::ControlLink;
use crate::session::outbox::Queue;

/// Tells both sides of a session that its loop is held up. See the module.
pub(crate) struct Holdup {
    queue: Arc<Queue>,
    held_up: Arc<AtomicBool>,
}

impl Holdup {
    /// Speaks on this queue alone.
    #[cfg(test)]
    pub(crate) fn of(queue: Arc<Queue>) -> Holdup {
        Holdup { queue, held_up: Arc::default() }
    }

    /// The loop is held up still. Behind the last message of the session this does nothing.
    pub(crate) fn goes_on(&self) {
        self.held_up.store(true, Ordering::Relaxed);
        self.queue.send(Message::Heartbeat(Heartbeat { stalled: true, answer: false }));
    }
}

impl ControlLink {
    /// Speaks for the session while its loop is held up. `None` once its last message was said.
    pub(crate) fn holdup(&self) -> Option<Holdup> {
        Some(Holdup { queue: self.connection.queue()?, held_up: self.signs.held_up() })
    }

    /// Whether the loop was held up since the last call.
    pub(super) fn was_held_up(&mut self) -> bool {
        let was_held_up = self.signs.take_held_up();
        if was_held_up {
            self.movement.excuse();
        }
        was_held_up
    }
}
