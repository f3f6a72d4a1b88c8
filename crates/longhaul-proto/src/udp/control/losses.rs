//! The losses of a path: what it loses by itself, and what is lost in a queue that overflows.
//!
//! In: rounds, and what is known of the queue. Out: a judgement. It decides nothing about rates.

use super::rounds::UdpRound;

/// A judgement of the losses of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossVerdict {
    /// The path loses as much by itself.
    Own,
    /// More than that was lost, or packets were marked.
    Excess,
}

/// The losses, and what is made of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossJudge {
    /// The part of its packets that the path loses by itself.
    pub(super) own: f64,
    /// Packets lost beyond that while a queue stood.
    overflow: f64,
    /// Rounds for which losses are still those of a queue that stood.
    stood: u32,
    /// Rounds for which losses do not count: they belong to what was answered already.
    pub(super) pardon: u32,
}

impl LossJudge {
    /// Whether more was lost than the path loses by itself. `queue`: as a multiple of the one that
    /// is aimed at; `learns`: how much of a round is learned for the path's own loss. While one
    /// stands, losses add up from round to round (a CUSUM, Page 1954): its overflow costs each flow
    /// few packets at a time.
    pub(super) fn judge(&mut self, round: &UdpRound, queue: f64, learns: f64, borne: f64) -> LossVerdict {
        let packets = round.packets + round.lost;
        let share = round.lost / packets.max(1.0);
        let expected = OWN_LOSS_ROOM * self.own * packets;
        let noise = SIGMAS * (expected + 1.0).sqrt();
        // A loss is found a round trip or more after the queue overflowed.
        self.stood = if queue > STANDING { STOOD_ROUNDS } else { self.stood.saturating_sub(1) };
        let stands = self.stood > 0;
        if packets >= PACKETS_LEAST {
            let learns = if share < self.own {
                OWN_STEP_DOWN
            } else if stands || self.pardon > 0 {
                0.0
            } else {
                learns
            };
            self.own += learns * (share.min(OWN_LOST_MOST) - self.own);
        }
        if self.pardon > 0 {
            (self.pardon, self.overflow) = (self.pardon - 1, 0.0);
            return LossVerdict::Own;
        }
        let more = round.lost + f64::from(round.marked) - expected;
        self.overflow = if stands { (self.overflow + more).max(0.0) } else { self.overflow * OVERFLOW_REMEMBERED };
        let is_excess = self.overflow > noise || more > noise + borne * packets;
        if is_excess {
            self.overflow = 0.0;
            LossVerdict::Excess
        } else {
            LossVerdict::Own
        }
    }
}

/// How much more than the path's own loss is its own, as losses come unevenly.
const OWN_LOSS_ROOM: f64 = 1.5;
const OWN_LOST_MOST: f64 = 0.1;
/// The part of a round that is learned if less is lost than is thought: that is known whatever
/// the queue.
const OWN_STEP_DOWN: f64 = 0.1;
/// Packets of a round that says anything of the path's own loss.
const PACKETS_LEAST: f64 = 20.0;
/// Deviations of a Poisson process within which a loss is chance.
const SIGMAS: f64 = 3.0;
/// From this multiple of the queue that is aimed at on, losses are those of a queue ...
const STANDING: f64 = 1.3;
/// ... and so they are for this many rounds.
const STOOD_ROUNDS: u32 = 3;
/// The part of these losses that is remembered from one round without a queue to the next.
const OVERFLOW_REMEMBERED: f64 = 0.95;
