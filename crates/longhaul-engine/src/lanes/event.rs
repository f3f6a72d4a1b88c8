//! What lanes tell their session: that one joined, that none could be dialled, that one's thread is
//! over.
//!
//! In: lanes, from their threads and dials. Out: a [`LaneEvent`] to whoever listens for the
//! session. Knows no session.

use longhaul_core::{Fault, LaneId};
use longhaul_proto::sender::Unfinished;
use tokio::sync::mpsc::UnboundedSender;

use super::JoinedLane;

/// What happens to lanes and their session must hear.
#[derive(Debug)]
pub(crate) enum LaneEvent {
    /// A lane joined.
    Joined(JoinedLane),
    /// Lanes cannot be dialled, so that the session is of no use.
    Undialled(Fault),
    /// A lane's thread is over.
    Ended(LaneEnd),
}

/// The end of a lane's thread, and of this side's end of the lane.
#[derive(Debug)]
pub(crate) struct LaneEnd {
    /// Which.
    pub(crate) id: LaneId,
    /// Why, unless the sender ended it in order.
    pub(crate) fault: Option<Fault>,
    /// What a sending lane had in hand.
    pub(crate) unfinished: Option<Unfinished>,
    /// Units that a receiving lane delivered.
    pub(crate) landed: u64,
}

/// A session, as its lanes know it.
pub(crate) trait LaneListener: Send + Sync {
    /// Hears `event`. A session that is over drops it, which closes a lane that joined.
    fn hear(&self, event: LaneEvent);

    /// Whether the session is over, so that nobody hears.
    fn is_over(&self) -> bool;
}

impl<E: From<LaneEvent> + Send> LaneListener for UnboundedSender<E> {
    fn hear(&self, event: LaneEvent) {
        let _ = self.send(event.into());
    }

    fn is_over(&self) -> bool {
        self.is_closed()
    }
}
