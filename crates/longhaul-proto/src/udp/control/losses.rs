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
#[derive(Clone, Copy, Debug)]
pub(super) struct LossJudge {
    /// The part of its packets that the path loses by itself.
    pub(super) own: f64,
    /// The same of late; and of the last half a minute, seen when far less was sent than the path
    /// carries and no queue was near: losses come unevenly.
    latest: f64,
    uneven: f64,
    /// Rounds in a row in which no queue was near.
    empty: u32,
    /// Packets lost beyond that while a queue stood.
    overflow: f64,
    /// Rounds for which losses are still those of a queue that stood.
    stood: u32,
    /// The rounds in which losses beyond what is borne came, whatever the queue: their packets,
    /// those of them that were lost, bytes that arrived, seconds, and these losses.
    run: [f64; 5],
    /// After an excess: a rate that is carried for sure, if very much was lost twice, or infinity;
    /// and the rounds since very much was.
    pub(super) deep: f64,
    deep_age: u32,
    /// Packets of rounds that had too few to be judged alone, and those of them that were lost.
    few: [f64; 2],
    /// Packets since one was lost while less was sent than the path carries.
    pub(super) clean: f64,
    /// Rounds for which losses do not count: they belong to what was answered already.
    pub(super) pardon: u32,
}

impl LossJudge {
    /// Whether no queue was near for long.
    pub(super) fn is_empty(&self) -> bool {
        self.empty > EMPTY_ROUNDS
    }

    /// The path loses no more than this by itself, as is known by now.
    pub(super) fn bound_own(&mut self, own: f64) {
        (self.latest, self.uneven, self.own) = (self.latest.min(own), self.uneven.min(own), self.own.min(own));
    }

    /// Nothing was lost.
    pub(super) fn new() -> LossJudge {
        let deep = f64::INFINITY;
        LossJudge {
            own: 0.0,
            latest: 0.0,
            uneven: 0.0,
            empty: 0,
            overflow: 0.0,
            stood: 0,
            run: [0.0; 5],
            deep,
            deep_age: u32::MAX,
            few: [0.0; 2],
            clean: 0.0,
            pardon: 0,
        }
    }

    /// Whether more was lost than the path loses by itself. `queue`: as a multiple of the one that
    /// is aimed at; `learns`: how much of a round is learned for the path's own loss of late, and
    /// for that of longer; `borne` is a part of all packets and `spare` a number of them that may
    /// be lost besides. While one stands, losses add up from round to round (a CUSUM, Page 1954):
    /// its overflow costs each flow few packets at a time.
    pub(super) fn judge(
        &mut self,
        round: &UdpRound,
        queue: f64,
        (learns, uneven): (f64, f64),
        (borne, spare): (f64, f64),
    ) -> LossVerdict {
        let (borne, spare) = self.less_borne(borne, spare);
        let packets = round.packets + round.lost;
        let expected = OWN_LOSS_ROOM * self.own * packets;
        let noise = SIGMAS * (expected + spare).sqrt();
        // A loss is found a round trip or more after the queue overflowed.
        self.stood = if queue > STANDING { STOOD_ROUNDS } else { self.stood.saturating_sub(1) };
        let stands = self.stood > 0;
        self.empty = if queue < EMPTY && round.limited.is_none() { self.empty.saturating_add(1) } else { 0 };
        if !self.look_clean(round, learns.max(uneven)) {
            self.learn(round, (learns, uneven));
        }
        if self.pardon > 0 {
            (self.pardon, self.overflow, self.run) = (self.pardon - 1, 0.0, [0.0; 5]);
            return LossVerdict::Own;
        }
        let more = round.lost + f64::from(round.marked) - expected;
        self.overflow = if stands { (self.overflow + more).max(0.0) } else { self.overflow * OVERFLOW_REMEMBERED };
        // Rounds of few packets show little by themselves.
        let part = [packets, round.lost, round.rate * round.seconds, round.seconds, more - borne * packets];
        let run = [0, 1, 2, 3, 4].map(|at| self.run[at] + part[at]);
        self.run = if run[4] > 0.0 { run } else { [0.0; 5] };
        let is_sum = self.run[4] > SUM_LEAST.max(SIGMAS * noise);
        if self.overflow <= noise && more <= noise + borne * packets && !is_sum {
            return LossVerdict::Own;
        }
        let [packets, lost, bytes, seconds, _] = self.run;
        let is_deep = lost > (OWN_LOSS_ROOM * self.own + DEEP) * packets && seconds > 0.0;
        // A moment in which nothing passes makes no path narrower.
        let is_again = is_deep && self.deep_age <= DEEP_ROUNDS;
        self.deep = if is_again { DEEP_KEPT * bytes / seconds } else { f64::INFINITY };
        if is_deep {
            self.deep_age = 0;
        }
        (self.overflow, self.run) = (0.0, [0.0; 5]);
        LossVerdict::Excess
    }

    /// Whether a path that lost nothing for long loses nothing by itself.
    pub(super) fn is_clean(&self) -> bool {
        self.clean > CLEAN_PACKETS && self.own < CLEAN_OWN
    }

    /// Less is borne where many packets came and none was lost: what is lost there is overflow.
    fn less_borne(&self, borne: f64, spare: f64) -> (f64, f64) {
        let least = if self.clean > CLEAN_PACKETS { CLEAN_SPARE } else { f64::INFINITY };
        (borne.min(CLEAN_CHANCE / self.clean.max(1.0)), spare.min(least))
    }

    /// Counts packets of a round in which less was sent than the path carries. Whether its losses
    /// are those of a clean path: a queue of others, and not to be learned for the path's own,
    /// unless they come again and again.
    fn look_clean(&mut self, round: &UdpRound, learns: f64) -> bool {
        if learns <= 0.0 || self.stood > 0 || self.pardon > 0 {
            return false;
        }
        if round.lost == 0.0 {
            self.clean = (self.clean + round.packets).min(CLEAN_MOST);
            return false;
        }
        let was_clean = self.clean > CLEAN_PACKETS;
        self.clean = if was_clean { self.clean * CLEAN_KEPT } else { 0.0 };
        was_clean
    }

    /// Learns the path's own loss from a round, or from as many as have packets enough.
    fn learn(&mut self, round: &UdpRound, (learns, uneven): (f64, f64)) {
        let is_clear = self.stood == 0 && self.pardon == 0;
        let has_weight = learns > 0.0 || uneven > 0.0;
        let few = if has_weight { self.few } else { [0.0; 2] };
        let [packets, lost] = [few[0] + round.packets + round.lost, few[1] + round.lost];
        if packets >= PACKETS_LEAST {
            self.few = [0.0; 2];
            self.deep_age = self.deep_age.saturating_add(1);
            let share = lost / packets;
            let learns = if share < self.latest {
                OWN_STEP_DOWN
            } else if is_clear {
                learns
            } else {
                0.0
            };
            self.latest += learns * (share.min(OWN_LOST_MOST) - self.latest);
            if self.is_empty() && self.pardon == 0 && share > self.uneven {
                self.uneven += uneven * (share.min(OWN_LOST_MOST) - self.uneven);
            }
        } else {
            // Where few packets go in a round, what a queue lost is not mixed with the rest, and
            // what was lost at a rate that may be too high says nothing of the path.
            if !is_clear {
                self.few = [0.0; 2];
            } else if has_weight {
                self.few = [packets, lost];
            }
        }
        self.uneven *= 1.0 - (round.seconds / OWN_SECONDS).min(OWN_STEP_DOWN);
        self.own = self.latest.max(self.uneven);
    }
}

/// Packets in a row that show a path to lose nothing by itself, how many are remembered, and the
/// part of them after a round with a loss; the most that it may seem to lose for all that.
const CLEAN_PACKETS: f64 = 1000.0;
const CLEAN_MOST: f64 = 10_000.0;
const CLEAN_KEPT: f64 = 0.25;
const CLEAN_OWN: f64 = 0.003;
/// Losses that may have been missed by chance among these packets, and packets whose loss is chance
/// there: three deviations of this are 1.5.
const CLEAN_CHANCE: f64 = 3.0;
const CLEAN_SPARE: f64 = 0.25;
/// How much more than the path's own loss is its own, as losses come unevenly.
const OWN_LOSS_ROOM: f64 = 1.5;
const OWN_LOST_MOST: f64 = 0.1;
/// The part of a round that is learned if less is lost than is thought: that is known whatever the
/// queue; and the seconds in which uneven losses are forgotten.
const OWN_SECONDS: f64 = 20.0;
/// Up to this multiple of the queue that is aimed at, none is near, and after so many rounds none
/// was when what is found lost was sent.
const EMPTY: f64 = 0.5;
const EMPTY_ROUNDS: u32 = 6;
const OWN_STEP_DOWN: f64 = 0.1;
/// Packets of a round, or of several in a row, that say anything of the path's own loss.
const PACKETS_LEAST: f64 = 20.0;
/// Deviations of a Poisson process within which a loss is chance.
const SIGMAS: f64 = 3.0;
/// Packets beyond what is borne that are too many, however long they took.
const SUM_LEAST: f64 = 10.0;
/// The part of all packets whose loss shows that far less is carried than is sent; then this part
/// of what arrived is sent.
const DEEP: f64 = 0.1;
const DEEP_KEPT: f64 = 0.9;
/// ... if it is so twice within so many rounds: of a slow source they may be seconds apart.
const DEEP_ROUNDS: u32 = 8;
/// From this multiple of the queue that is aimed at on, losses are those of a queue ...
const STANDING: f64 = 1.3;
/// ... and so they are for this many rounds.
const STOOD_ROUNDS: u32 = 3;
/// The part of these losses that is remembered from one round without a queue to the next.
const OVERFLOW_REMEMBERED: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    fn round(packets: f64, lost: f64) -> UdpRound {
        let (marked, dropped, wrong, limited) = (0, 0, 0, None);
        UdpRound { seconds: 0.01, rate: 1e6, packets, lost, marked, dropped, wrong, queue: Some(0.0), limited }
    }

    #[test]
    fn few_packets_of_rounds_that_say_nothing_of_the_path_are_not_learned_with_those_that_do() {
        let mut judge = LossJudge::new();
        judge.learn(&round(5.0, 5.0), (0.0, 0.0));
        // Twenty packets of which none is lost.
        (0..4).for_each(|_| judge.learn(&round(5.0, 0.0), (1.0, 0.0)));
        assert_eq!((judge.own, judge.few), (0.0, [0.0; 2]));
        (0..4).for_each(|_| judge.learn(&round(4.0, 1.0), (1.0, 0.0)));
        assert!(judge.own > 0.05, "{}", judge.own);
    }
}
