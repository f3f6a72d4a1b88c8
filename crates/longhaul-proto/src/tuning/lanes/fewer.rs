//! Lanes that are taken back though they carry something: those with which a session over a long
//! path begins, once the path is known, and those that were added while too much is lost.
//!
//! In: the search ([`Tuner`]), and a second of it. Out: its decisions. It adds no lanes but those
//! that it took back without need.

use std::time::Duration;

use super::{LaneDecision, LaneSample, PAYS, SearchPhase, Second, Tuner, TuningConfig, Why, slowest};

/// The lanes beyond the usual number with which a session over a long path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartLanes {
    /// They stand, and more may be of use.
    Needed,
    /// They stand, and more are of no use: it may do without them.
    Spare,
    /// There are none, or it was found whether it does.
    Settled,
}

impl StartLanes {
    /// Those of a search that begins.
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
        let spare = lanes.saturating_sub(self.config.start.min(lanes));
        if self.room.lossy < LOSSY_FOR || spare == 0 {
            return None;
        }
        self.room.lossy = Duration::from_nanos(1);
        let (count, level) = match self.phase {
            SearchPhase::Trial { before, added } => (added, before),
            _ => (lanes / 2, 0),
        };
        self.stay(level);
        self.unchanged = Duration::ZERO;
        self.forget();
        let why = Why::LosesTooMuch { lost: second.excess_loss };
        Some(LaneDecision::Retire(slowest(second.lanes, count.clamp(1, spare)), why))
    }

    /// Whether lanes of the start stand that may be of no more use.
    pub(super) fn has_start_lanes(&self, lanes: &[LaneSample]) -> bool {
        self.room.start_lanes == StartLanes::Spare && self.room.is_worthwhile && self.beyond_usual(lanes) > 0
    }

    fn beyond_usual(&self, lanes: &[LaneSample]) -> u32 {
        (lanes.len() as u32).saturating_sub(self.config.usual)
    }

    /// Ends them, and measures what the others carry.
    pub(super) fn end_start_lanes(&mut self, rate: u64, lanes: &[LaneSample]) -> Vec<LaneDecision> {
        let ended = self.beyond_usual(lanes);
        self.room.start_lanes = StartLanes::Settled;
        self.enter(SearchPhase::Fewer { before: rate, ended });
        self.unchanged = Duration::ZERO;
        vec![LaneDecision::Retire(slowest(lanes, ended), Why::OfTheStart { rate })]
    }

    /// Keeps to the lanes that are left, unless they carry less than all did. Where the path is
    /// full, it is not the lanes that lack.
    pub(super) fn judge_fewer(&mut self, before: u64, ended: u32, after: u64) -> Vec<LaneDecision> {
        self.unchanged = Duration::ZERO;
        let is_less = after < before - before / PAYS && !self.room.is_full;
        let level = if is_less { before } else { after };
        self.enter(SearchPhase::Stay { level, left: self.patience });
        if is_less {
            return vec![LaneDecision::Add(ended, Why::FewerCarryLess { before, after })];
        }
        self.config.start = self.config.usual;
        Vec::new()
    }
}

/// Thousandths of the packets that lanes may lose beyond what the path loses by itself (BBRv3 bears
/// two in a hundred, draft-ietf-ccwg-bbr), and how long they may lose more.
const EXCESS_LOSS_MOST: u16 = 20;
const LOSSY_FOR: Duration = Duration::from_secs(3);
