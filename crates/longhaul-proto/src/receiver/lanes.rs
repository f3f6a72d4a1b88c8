//! Lanes at the receiver: which are open, which are closed, and how many units of each were taken
//! in.
//!
//! In: lanes that join and end, from the engine; `LaneLost` from the sender. Out: `LaneLost`,
//! `LaneClosed`, orders to close this end. Units that a closed lane never brought are no longer
//! waited for. Knows nothing of streams, or of the content of units.

use std::collections::{BTreeSet, HashMap};

use longhaul_core::limits::LANES_EVER_MAX;
use longhaul_core::{Fault, LaneId};

use super::arrivals::Arrivals;
use super::{Landed, Receiver, ReceiverAction};
use crate::time::Timestamp;
use crate::wire::message::{Declared, LandedUnits, LaneClosed, LaneLost, Message, UdpLaneClosed};

/// All lanes that this session ever had, and the units that they brought.
#[derive(Debug, Default)]
pub(super) struct ReceivingLanes {
    lanes: HashMap<LaneId, ReceivingLane>,
    /// Arrivals and declarations without their other half.
    arrivals: Arrivals,
    /// Payload bytes that arrived as second or third attempts.
    bytes_resent: u64,
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
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReceivingLane {
    Open,
    /// This side's end is being closed.
    Closing,
    /// It is closed, after the units in `landed` were taken in. `answered` if the sender's
    /// `LaneLost` was answered: it may cross this side's `LaneClosed` once.
    Closed {
        landed: LandedUnits,
        answered: bool,
    },
}

/// The consequence of a lane that the sender lost.
enum OnLost {
    /// This side's end is to be closed.
    Close,
    /// This side's end is being closed already.
    Wait,
    /// It is closed here.
    Answer(Box<Message>),
}

impl ReceivingLanes {
    /// Opens a lane. False if it was closed before.
    fn join(&mut self, lane: LaneId) -> bool {
        *self.lanes.entry(lane).or_insert(ReceivingLane::Open) == ReceivingLane::Open
    }

    /// Whether this side's end is not closed yet.
    fn stands(&self, lane: LaneId) -> bool {
        matches!(self.lanes.get(&lane), Some(ReceivingLane::Open | ReceivingLane::Closing))
    }

    /// Notes that this side's end is being closed. True if it was open.
    fn begin_closing(&mut self, lane: LaneId) -> bool {
        let known = self.lanes.get_mut(&lane).filter(|known| **known == ReceivingLane::Open);
        known.map(|known| *known = ReceivingLane::Closing).is_some()
    }

    /// Notes that this side's end is closed after these units. Gives the word for the sender.
    fn close(&mut self, lane: LaneId, landed: LandedUnits, answered: bool) -> Message {
        self.arrivals.close(lane);
        let word = if landed.beyond.is_empty() {
            Message::LaneClosed(LaneClosed { lane, landed: landed.below })
        } else {
            Message::UdpLaneClosed(UdpLaneClosed { lane, landed: landed.clone() })
        };
        self.lanes.insert(lane, ReceivingLane::Closed { landed, answered });
        word
    }

    /// Takes a lane that the sender lost.
    fn lose(&mut self, lane: LaneId) -> Result<OnLost, Fault> {
        match self.lanes.get(&lane) {
            Some(ReceivingLane::Open) => Ok(OnLost::Close),
            Some(ReceivingLane::Closing) => Ok(OnLost::Wait),
            Some(ReceivingLane::Closed { landed, answered: false }) => {
                let landed = landed.clone();
                Ok(OnLost::Answer(Box::new(self.close(lane, landed, true))))
            }
            Some(ReceivingLane::Closed { answered: true, .. }) => {
                Err(Fault::protocol(format_args!("lane {} is lost twice", lane.0)))
            }
            None if self.lanes.len() >= LANES_EVER_MAX as usize => {
                Err(Fault::protocol("more lanes are lost than there ever were"))
            }
            // It never joined here, so it has brought nothing.
            None => Ok(OnLost::Answer(Box::new(self.close(lane, LandedUnits::default(), true)))),
        }
    }

    /// Takes a unit that arrived without an authentic digest. See [`Arrivals::land`].
    pub(super) fn land(&mut self, now: Timestamp, landed: Landed) -> Result<Option<(Landed, Declared)>, Fault> {
        self.arrivals.land(now, landed)
    }

    /// Takes a declaration. See [`Arrivals::declare`]. Units on their way on a closed lane never
    /// arrive; the sender sends and declares them anew.
    pub(super) fn declare(&mut self, declared: Declared) -> Result<Option<(Landed, Declared)>, Fault> {
        let known = self.lanes.get(&declared.lane);
        if matches!(known, Some(ReceivingLane::Closed { landed, .. }) if !landed.has(declared.seq)) {
            return Ok(None);
        }
        self.arrivals.declare(declared)
    }

    /// Whether a declared unit has not landed.
    pub(super) fn is_owed(&self) -> bool {
        self.arrivals.is_owed()
    }

    /// When the oldest arrival has waited too long for its declaration. `None` if none waits.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.arrivals.deadline()
    }

    /// Counts payload bytes that arrived once more.
    pub(super) fn count_resent(&mut self, bytes: u64) {
        self.bytes_resent = self.bytes_resent.saturating_add(bytes);
    }

    /// Payload bytes that arrived as second or third attempts.
    pub(super) fn bytes_resent(&self) -> u64 {
        self.bytes_resent
    }
}

impl Receiver {
    /// A lane joined. False if the sender gave it up before: it must be closed again, and no unit
    /// of it may be taken in.
    pub fn handle_lane_joined(&mut self, lane: LaneId) -> bool {
        self.lanes.join(lane)
    }

    /// This side's end of a lane is closed. Its units in `landed` (a number: the first so many)
    /// were reported by [`Receiver::handle_landed`], and no other will be.
    pub fn handle_lane_ended(&mut self, now: Timestamp, lane: LaneId, landed: impl Into<LandedUnits>) {
        if self.is_over() || !self.lanes.stands(lane) {
            return;
        }
        let closed = self.lanes.close(lane, landed.into(), false);
        self.actions.say(closed);
        self.settle_down(now);
    }

    /// Gives up a lane that brings nothing while other lanes do.
    pub fn lose_lane(&mut self, lane: LaneId) {
        if !self.is_over() && self.begin_closing(lane) {
            self.actions.say(Message::LaneLost(LaneLost { lane }));
        }
    }

    /// The lanes with declared units that have not landed.
    pub fn lanes_owing(&self) -> BTreeSet<LaneId> {
        self.lanes.arrivals.owing()
    }

    pub(super) fn on_lane_lost(&mut self, lane: LaneId) -> Result<(), Fault> {
        match self.lanes.lose(lane)? {
            OnLost::Close => drop(self.begin_closing(lane)),
            OnLost::Wait => {}
            OnLost::Answer(closed) => self.actions.say(*closed),
        }
        Ok(())
    }

    /// Orders this end of a lane to be closed. True if it was open.
    fn begin_closing(&mut self, lane: LaneId) -> bool {
        let was_open = self.lanes.begin_closing(lane);
        if was_open {
            self.actions.push(ReceiverAction::CloseLane(lane));
        }
        was_open
    }
}
