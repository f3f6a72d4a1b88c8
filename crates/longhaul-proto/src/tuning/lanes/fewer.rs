//! Lanes that are taken back though they carry something: those with which a session over a long
//! path begins, once the path is known; those that were added, while too much is lost; and spare
//! ones while another part than the network limits.
//!
//! In: the search ([`Tuner`]), and a second of it. Out: its decisions. It adds no lanes but those
//! that it took back without need.

use std::time::Duration;

use super::{FELL, LaneDecision, LaneSample, PAYS, SearchPhase, Second, Tuner, TuningConfig, Why, slowest};

/// The lanes beyond the usual number with which a session over a long path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartLanes {
    /// They stand, and more may be of use.
    Needed,
    /// They stand, and more are of no use: it may do without them.
    Spare,
    /// They were ended while another part than the network limited.
    Ended,
    /// There are none, or it was found whether it does.
    Settled,
}

impl StartLanes {
    /// The lanes of a search that begins.
    pub(super) fn of(config: &TuningConfig) -> StartLanes {
        if config.usual < config.start { StartLanes::Needed } else { StartLanes::Settled }
    }

    /// More lanes are of no use.
    pub(super) fn need_no_more(&mut self) {
        if *self == StartLanes::Needed {
            *self = StartLanes::Spare;
        }
    }
}

impl Tuner {
    /// Takes back lanes that were added, if too much has been lost for some seconds: those of the
    /// trial, or half of all, and so on while it lasts.
    pub(super) fn take_back(&mut self, second: &Second<'_>) -> Option<LaneDecision> {
        let (is_lossy, lanes) = (second.excess_loss > EXCESS_LOSS_MOST, second.lanes.len() as u32);
        self.room.lossy = if is_lossy { self.room.lossy + second.elapsed } else { Duration::ZERO };
        let spare = lanes.saturating_sub(self.begun_with());
        // A burst is seen for a round trip or two.
        if self.room.lossy < LOSSY_FOR.max(self.rtt * LOSSY_ROUNDS) || spare == 0 {
            return None;
        }
        self.room.lossy = Duration::from_nanos(1);
        let count = match self.phase {
            SearchPhase::Trial { added, .. } => added,
            _ => lanes / 2,
        };
        let ended = slowest(second.lanes, count.clamp(1, spare));
        let level = match self.phase {
            SearchPhase::Trial { before, .. } => before,
            _ => self
                .deliveries
                .speeds
                .iter()
                .filter(|(id, _)| !ended.contains(id))
                .map(|(_, speed)| *speed as u64)
                .sum(),
        };
        self.stay(level);
        self.unchanged = Duration::ZERO;
        self.forget();
        Some(LaneDecision::Retire(ended, Why::LosesTooMuch { lost: second.excess_loss }))
    }

    /// Another part is slower than the network: the measurements of now say nothing about lanes.
    pub(super) fn not_the_network(&mut self, second: &Second<'_>) -> Vec<LaneDecision> {
        self.elsewhere += second.elapsed;
        self.is_less = false;
        self.forget();
        let lanes = second.lanes.len() as u32;
        match self.phase {
            SearchPhase::Trial { .. } => {
                // The network limited without those that were ended before, and does not with them.
                if self.room.start_lanes == StartLanes::Ended {
                    self.room.start_lanes = StartLanes::Settled;
                }
                self.enter(SearchPhase::Measure);
            }
            SearchPhase::Fewer { .. } => {
                self.keep_fewer(lanes);
                self.enter(SearchPhase::Measure);
            }
            SearchPhase::Measure | SearchPhase::Stay { .. } => {}
        }
        let spare = lanes.saturating_sub(self.least());
        if self.elsewhere < SPARE_AFTER || spare == 0 {
            return Vec::new();
        }
        self.elsewhere = Duration::ZERO;
        if self.room.start_lanes != StartLanes::Settled {
            self.room.start_lanes = StartLanes::Ended;
        }
        vec![LaneDecision::Retire(slowest(second.lanes, spare), Why::NotTheNetwork)]
    }

    /// The lanes to which those that were added on trial come back.
    pub(super) fn begun_with(&self) -> u32 {
        if self.room.start_lanes == StartLanes::Ended { self.config.usual } else { self.config.start }
    }

    /// The lanes that stay while another part than the network limits.
    fn least(&self) -> u32 {
        let is_settled = self.room.start_lanes == StartLanes::Settled;
        if is_settled { self.config.start } else { self.config.start.min(self.config.usual) }
    }

    /// Whether lanes of the start stand that may be of no more use. For a short rest it is not
    /// looked: the others need some time to take what one of them leaves.
    pub(super) fn has_start_lanes(&self, lanes: &[LaneSample]) -> bool {
        self.room.start_lanes == StartLanes::Spare && self.room.is_long && lanes.len() as u32 > self.config.usual
    }

    /// Ends one of them, and measures what the others carry. `before`: what all of them carried,
    /// of which so many are `ended` already.
    pub(super) fn end_start_lane(&mut self, before: u64, ended: u32, lanes: &[LaneSample]) -> Vec<LaneDecision> {
        self.enter(SearchPhase::Fewer { before, ended: ended + 1 });
        self.unchanged = Duration::ZERO;
        vec![LaneDecision::Retire(slowest(lanes, 1), Why::OfTheStart { rate: before })]
    }

    /// Goes on to the next one, or has all of them come back if the others carry less than all did.
    /// Where the path is full, it is not the lanes that lack, unless clearly less is carried.
    pub(super) fn judge_fewer(
        &mut self,
        (before, ended): (u64, u32),
        after: u64,
        lanes: &[LaneSample],
    ) -> Vec<LaneDecision> {
        let is_clear = after < before - before / FELL;
        let is_less = after < before - before / PAYS && (is_clear || !self.room.is_full);
        if is_less {
            self.room.start_lanes = StartLanes::Settled;
            self.unchanged = Duration::ZERO;
            self.enter(SearchPhase::Stay { level: before, left: self.patience });
            return vec![LaneDecision::Add(ended, Why::FewerCarryLess { before, after })];
        }
        if self.has_start_lanes(lanes) {
            return self.end_start_lane(before, ended, lanes);
        }
        self.keep_fewer(lanes.len() as u32);
        self.enter(SearchPhase::Stay { level: after, left: self.patience });
        Vec::new()
    }

    /// Keeps to the lanes that are left.
    pub(super) fn keep_fewer(&mut self, lanes: u32) {
        self.config.start = lanes.clamp(self.config.usual, self.config.start);
        self.room.start_lanes = StartLanes::Settled;
    }
}

/// Thousandths of the packets that lanes may lose beyond what the path loses by itself (BBRv3 bears
/// two in a hundred, draft-ietf-ccwg-bbr), and how long they may lose more.
const EXCESS_LOSS_MOST: u16 = 20;
const LOSSY_FOR: Duration = Duration::from_secs(3);
/// The same in round trips, where those are long.
const LOSSY_ROUNDS: u32 = 6;
/// The time after which lanes beyond the first ones are retired if they are of no use.
const SPARE_AFTER: Duration = Duration::from_secs(30);
