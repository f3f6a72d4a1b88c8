//! Owns the events that lanes report to their session: a lane joined, none could be dialled, a
//! lane's thread ended, there is another way for them.
//!
//! In: lanes, from their threads and dials. Out: a [`LaneEvent`] to the session's listener. It
//! knows no session.

use longhaul_core::{Fault, LaneId, Transport};
use longhaul_proto::sender::Unfinished;
use longhaul_proto::wire::message::LandedUnits;
use tokio::sync::mpsc::UnboundedSender;

use super::JoinedLane;

/// An event of a lane that its session has to deal with.
#[derive(Debug)]
pub(crate) enum LaneEvent {
    /// A lane joined.
    Joined(JoinedLane),
    /// Lanes cannot be dialled, so that the session is of no use.
    Undialled(Fault),
    /// A lane's thread ended.
    Ended(LaneEnd),
    /// Lanes over this transport have a way beside the ssh session over which the session began.
    WayFound(Transport),
}

/// The end of a lane's thread, and thereby of this side's end of the lane.
#[derive(Debug)]
pub(crate) struct LaneEnd {
    /// The lane.
    pub(crate) id: LaneId,
    /// Why it ended. `None` if the sender ended it in order.
    pub(crate) fault: Option<Fault>,
    /// The units that a sending lane had in hand.
    pub(crate) unfinished: Vec<Unfinished>,
    /// Units that a receiving lane delivered.
    pub(crate) landed: LandedUnits,
}

/// A session, as its lanes know it.
pub(crate) trait LaneListener: Send + Sync {
    /// Hears `event`. A session that is over drops it, which closes a lane that joined.
    fn hear(&self, event: LaneEvent);

    /// Whether the session is over, so that nobody hears events.
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
