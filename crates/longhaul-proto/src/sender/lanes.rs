//! The units of lost lanes at the sender: they are read again and given to other lanes, once both
//! ends have closed the lost one.
//!
//! In: ends of lanes from the engine, `LaneLost` and `LaneClosed` from the receiver. Out:
//! `LaneLost`, orders to close this end, and orders to read again. The units of a lane are not
//! listed here: each outstanding unit knows its carrier, so that there is nothing to keep in step
//! and nothing to bound. Knows nothing of streams.

use std::collections::BTreeMap;

use longhaul_core::{Attempt, LaneId, Unit};

use super::{OfferState, Sender, SenderAction, Sent};
use crate::wire::message::{LandedUnits, LaneLost, Message};

/// The carrier of an outstanding unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Nothing: the unit waits to be read or for a lane.
    None,
    /// The unit was handed to this lane whole, under this number.
    Lane(LaneId, u64),
    /// The unit was in hand of this lane when that broke.
    Interrupted(LaneId),
    /// The unit went down with a lane that had it in part or whole, and waits for another.
    Lost,
}

/// A unit that a lane had in hand when it broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The unit.
    pub unit: Unit,
    /// Which sending.
    pub attempt: Attempt,
}

/// The lanes of this session that are not closed at both ends.
#[derive(Debug, Default)]
pub(super) struct SendingLanes {
    open: BTreeMap<LaneId, SendingLane>,
}

/// How far each end of a lane is closed.
#[derive(Debug, Default)]
struct SendingLane {
    /// Whether the receiver knows that the lane is lost, or was told so.
    lost: bool,
    /// The units in hand when this side's end was closed. `None` while this end is open.
    ended: Option<Vec<Unfinished>>,
    /// The units that the receiver took in before its end was closed. `None` while that is open.
    landed: Option<LandedUnits>,
}

impl Carrier {
    pub(super) fn of(sent: &Sent) -> Carrier {
        Carrier::Lane(sent.lane, sent.seq)
    }
}

impl Sender {
    /// A lane joined and will take units.
    pub fn handle_lane_joined(&mut self, lane: LaneId) {
        self.lanes.open.entry(lane).or_default();
    }

    /// This side's end of a lane is closed. Every unit that it sent whole was reported, and those
    /// that are `unfinished` will not go on.
    pub fn handle_lane_ended(&mut self, lane: LaneId, unfinished: impl IntoIterator<Item = Unfinished>) {
        let Some(known) = self.lanes.open.get_mut(&lane).filter(|_| !self.is_over) else { return };
        known.ended.get_or_insert_with(|| unfinished.into_iter().collect());
        self.say_lane_lost(lane);
        self.reassign(lane);
    }

    /// This side ended a lane in order: every unit that it took was sent whole and reported. The
    /// receiver closes its end when it has taken them in, and says so.
    pub fn handle_lane_retired(&mut self, lane: LaneId) {
        let Some(known) = self.lanes.open.get_mut(&lane).filter(|_| !self.is_over) else { return };
        known.ended.get_or_insert_default();
        self.reassign(lane);
    }

    /// Gives up a lane that makes no progress while others do.
    pub fn lose_lane(&mut self, lane: LaneId) {
        if self.lanes.open.contains_key(&lane) && !self.is_over {
            self.say_lane_lost(lane);
            self.actions.push_back(SenderAction::CloseLane(lane));
        }
    }

    fn say_lane_lost(&mut self, lane: LaneId) {
        let Some(known) = self.lanes.open.get_mut(&lane) else { return };
        if !std::mem::replace(&mut known.lost, true) {
            self.actions.push_back(SenderAction::Send(Message::LaneLost(LaneLost { lane })));
        }
    }

    /// The receiver gives up a lane. Its `LaneClosed` follows unasked. A lane that is not known
    /// here has carried nothing.
    pub(super) fn on_lane_lost(&mut self, lane: LaneId) {
        if let Some(known) = self.lanes.open.get_mut(&lane) {
            known.lost = true;
            self.actions.push_back(SenderAction::CloseLane(lane));
        }
    }

    /// The receiver's end of a lane is closed.
    pub(super) fn on_lane_closed(&mut self, lane: LaneId, landed: LandedUnits) {
        let Some(known) = self.lanes.open.get_mut(&lane) else { return };
        known.lost = true;
        known.landed.get_or_insert(landed);
        if known.ended.is_none() {
            self.actions.push_back(SenderAction::CloseLane(lane));
        }
        self.reassign(lane);
    }

    /// Orders the units that went down with a lane again, once both ends have closed it: as the
    /// same attempt, because they never arrived.
    fn reassign(&mut self, lane: LaneId) {
        let is_closed = |known: &&SendingLane| known.ended.is_some() && known.landed.is_some();
        if self.lanes.open.get(&lane).filter(is_closed).is_none() {
            return;
        }
        let SendingLane { ended, landed, .. } = self.lanes.open.remove(&lane).unwrap_or_default();
        let landed = landed.unwrap_or_default();
        let down = |carrier: &Carrier| match carrier {
            Carrier::Lane(on, seq) => *on == lane && !landed.has(*seq),
            Carrier::Interrupted(on) => *on == lane,
            Carrier::None | Carrier::Lost => false,
        };
        for Unfinished { unit, attempt } in ended.unwrap_or_default() {
            if let Some(carrier) = self.carrier(unit, Some(attempt))
                && !matches!(carrier, Carrier::Lane(..))
            {
                *carrier = Carrier::Interrupted(lane);
            }
        }
        for (file, state) in &mut self.entries {
            let OfferState::Large(large) = state else { continue };
            let map = large.map();
            for (index, attempt) in large.lose(down) {
                self.actions.push_back(SenderAction::ReadChunk { file: *file, index, attempt, map, expect: None });
            }
        }
        for (id, bundle) in self.bundles.lose(down) {
            let (attempt, files) = (bundle.attempt, bundle.files.clone());
            self.actions.push_back(SenderAction::Pack { bundle: id, attempt, files });
        }
    }

    /// The carrier of a unit, if it is outstanding.
    pub(super) fn carrier_of(&mut self, unit: Unit) -> Carrier {
        self.carrier(unit, None).map_or(Carrier::None, |carrier| *carrier)
    }

    fn carrier(&mut self, unit: Unit, attempt: Option<Attempt>) -> Option<&mut Carrier> {
        match unit {
            Unit::Chunk { file, index } => self.large(file)?.carrier(index, attempt),
            Unit::Bundle(id) => {
                let bundle = self.bundles.get_mut(id).filter(|b| attempt.is_none_or(|a| a == b.attempt))?;
                Some(&mut bundle.carrier)
            }
        }
    }
}
