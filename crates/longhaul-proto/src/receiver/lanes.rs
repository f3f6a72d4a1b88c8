//! Lanes at the receiver: which are open, which are closed, and how many units of each were taken
//! in.
//!
//! In: lanes that join and end, from the engine; `LaneLost` from the sender. Out: `LaneLost`,
//! `LaneClosed`, orders to close this end. Units that a closed lane never brought are no longer
//! waited for. Knows nothing of streams, or of the content of units.

use std::collections::{BTreeSet, HashMap};

use longhaul_core::limits::LANES_EVER_MAX;
use longhaul_core::{Fault, LaneId};

use super::{Receiver, ReceiverAction};
use crate::time::Timestamp;
use crate::wire::message::{LaneClosed, LaneLost, Message};

/// All lanes that this session ever had.
#[derive(Debug, Default)]
pub(super) struct ReceivingLanes {
    lanes: HashMap<LaneId, ReceivingLane>,
}

/// The state of a lane at the receiver.
///
/// ```text
/// state            event                          action                  next state
/// (none)           it joined                      -                       Open
/// (none)           LaneLost from the sender       LaneClosed              Closed, answered
/// Open             LaneLost, or this side         CloseLane (and          Closing
///                  gives it up                    LaneLost by this side)
/// Open or Closing  this side's end is closed      LaneClosed              Closed
/// Closed           LaneLost that crossed it       LaneClosed, once more   Closed, answered
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceivingLane {
    Open,
    /// This side's end is being closed.
    Closing,
    /// It is closed, after `landed` units were taken in. `answered` if the sender's `LaneLost` was
    /// answered: it may cross this side's `LaneClosed` once.
    Closed {
        landed: u64,
        answered: bool,
    },
}

impl ReceivingLanes {
    /// Whether the unit with that number can no longer arrive.
    pub(super) fn is_beyond(&self, lane: LaneId, seq: u64) -> bool {
        matches!(self.lanes.get(&lane), Some(ReceivingLane::Closed { landed, .. }) if seq >= *landed)
    }
}

impl Receiver {
    /// A lane joined. False if the sender gave it up before: it must be closed again, and no unit
    /// of it may be taken in.
    pub fn handle_lane_joined(&mut self, lane: LaneId) -> bool {
        *self.lanes.lanes.entry(lane).or_insert(ReceivingLane::Open) == ReceivingLane::Open
    }

    /// This side's end of a lane is closed. Its first `landed` units were reported by
    /// [`Receiver::handle_landed`], and no other will be.
    pub fn handle_lane_ended(&mut self, now: Timestamp, lane: LaneId, landed: u64) {
        if self.is_over() || !matches!(self.lanes.lanes.get(&lane), Some(ReceivingLane::Open | ReceivingLane::Closing))
        {
            return;
        }
        self.close_lane(lane, landed, false);
        self.settle_down(now);
    }

    /// Gives up a lane that brings nothing while other lanes do.
    pub fn lose_lane(&mut self, lane: LaneId) {
        if !self.is_over() && self.begin_closing(lane) {
            self.actions.push_back(ReceiverAction::Send(Message::LaneLost(LaneLost { lane })));
        }
    }

    /// The lanes with declared units that have not landed.
    pub fn lanes_owing(&self) -> BTreeSet<LaneId> {
        self.arrivals.owing()
    }

    pub(super) fn on_lane_lost(&mut self, lane: LaneId) -> Result<(), Fault> {
        match self.lanes.lanes.get(&lane) {
            Some(ReceivingLane::Open) => drop(self.begin_closing(lane)),
            Some(ReceivingLane::Closing) => {}
            Some(&ReceivingLane::Closed { landed, answered: false }) => self.close_lane(lane, landed, true),
            Some(ReceivingLane::Closed { answered: true, .. }) => {
                return Err(Fault::protocol(format_args!("lane {} is lost twice", lane.0)));
            }
            None if self.lanes.lanes.len() >= LANES_EVER_MAX as usize => {
                return Err(Fault::protocol("more lanes are lost than there ever were"));
            }
            // It never joined here, so it has brought nothing.
            None => self.close_lane(lane, 0, true),
        }
        Ok(())
    }

    /// Orders this end of a lane to be closed. True if it was open.
    fn begin_closing(&mut self, lane: LaneId) -> bool {
        let Some(known) = self.lanes.lanes.get_mut(&lane).filter(|known| **known == ReceivingLane::Open) else {
            return false;
        };
        *known = ReceivingLane::Closing;
        self.actions.push_back(ReceiverAction::CloseLane(lane));
        true
    }

    fn close_lane(&mut self, lane: LaneId, landed: u64, answered: bool) {
        self.lanes.lanes.insert(lane, ReceivingLane::Closed { landed, answered });
        self.arrivals.close(lane);
        self.actions.push_back(ReceiverAction::Send(Message::LaneClosed(LaneClosed { lane, landed })));
    }
}
