//! A flow under BBR's first version (Cardwell et al., *BBR: Congestion-Based Congestion Control*,
//! ACM Queue 2016), as simple as shows what it does to others: it paces at the most that it was
//! seen to get in the last ten round trips, has two BDP on their way at most, and takes no loss for
//! a sign.
//!
//! In: trains that arrived. Out: packets to send. It knows no line.

use std::collections::VecDeque;

use super::Train;

/// The flow. Rates are in packets a second.
#[derive(Clone, Debug)]
pub(crate) struct BbrFlow {
    begin: f64,
    phase: BbrPhase,
    /// The rates of the last rounds, the shortest round trip, and when that was seen.
    rates: VecDeque<f64>,
    shortest: f64,
    seen: f64,
    /// The round that is under way: when it began, and what had arrived then.
    round: (f64, f64),
    arrived: f64,
    flying: f64,
    /// Packets that may be sent, and as of when.
    credit: (f64, f64),
    heard: VecDeque<(f64, Train)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BbrPhase {
    /// The rate was found to be so high, and did not grow for so many rounds.
    Startup(f64, u32),
    Drain,
    /// The place in the cycle of gains, since when.
    Cycle(usize, f64),
    /// Hardly anything is on its way until then, so that the shortest round trip is seen.
    Probe(f64),
}

impl BbrFlow {
    pub(crate) fn new(begin: f64, rtt: f64) -> BbrFlow {
        BbrFlow {
            begin,
            phase: BbrPhase::Startup(0.0, 0),
            rates: VecDeque::from([10.0 / rtt]),
            shortest: f64::INFINITY,
            seen: begin,
            round: (begin, 0.0),
            arrived: 0.0,
            flying: 0.0,
            credit: (0.0, begin),
            heard: VecDeque::new(),
        }
    }

    pub(crate) fn travel(&mut self, due: f64, train: Train) {
        self.heard.push_back((due, train));
    }

    pub(crate) fn hear(&mut self, now: f64) {
        let mut ends = false;
        while let Some((_, train)) = self.heard.front().copied().filter(|(due, _)| *due <= now) {
            self.heard.pop_front();
            self.flying -= f64::from(train.packets + train.lost);
            self.arrived += f64::from(train.packets);
            if train.packets > 0 && now - train.sent <= self.shortest {
                (self.shortest, self.seen) = (now - train.sent, now);
            }
            ends |= train.sent >= self.round.0;
        }
        // All that came at this moment is of the round: a part of it would make its rate too high.
        if ends {
            self.end_round(now);
        }
        self.advance(now);
    }

    /// The first packet of a round has been answered.
    fn end_round(&mut self, now: f64) {
        let (began, before) = std::mem::replace(&mut self.round, (now, self.arrived));
        self.rates.push_back((self.arrived - before) / (now - began));
        if self.rates.len() > ROUNDS {
            self.rates.pop_front();
        }
        if let BbrPhase::Startup(most, rounds) = self.phase {
            let rate = self.rate();
            self.phase = match rounds {
                _ if rate >= 1.25 * most => BbrPhase::Startup(rate, 0),
                2.. => BbrPhase::Drain,
                _ => BbrPhase::Startup(most, rounds + 1),
            };
        }
    }

    fn advance(&mut self, now: f64) {
        self.phase = match self.phase {
            BbrPhase::Drain if self.flying <= self.rate() * self.shortest => BbrPhase::Cycle(0, now),
            BbrPhase::Cycle(at, since) if now - since > self.shortest => BbrPhase::Cycle((at + 1) % GAINS.len(), now),
            BbrPhase::Probe(until) if now >= until => {
                self.seen = now;
                BbrPhase::Cycle(0, now)
            }
            phase => phase,
        };
        if matches!(self.phase, BbrPhase::Cycle(..)) && now - self.seen > FORGETS {
            // What is seen now is the shortest again.
            self.shortest = f64::INFINITY;
            self.phase = BbrPhase::Probe(now + PROBES);
        }
    }

    /// The most of the last rounds.
    fn rate(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Packets that it sends now.
    pub(crate) fn send(&mut self, now: f64) -> u32 {
        if now < self.begin {
            return 0;
        }
        let (gain, room) = match self.phase {
            BbrPhase::Startup(..) => (START_GAIN, START_GAIN),
            BbrPhase::Drain => (1.0 / START_GAIN, START_GAIN),
            BbrPhase::Cycle(at, _) => (GAINS[at], 2.0),
            BbrPhase::Probe(_) => (1.0, 0.0),
        };
        let (rate, (credit, before)) = (self.rate(), self.credit);
        let credit = (credit + gain * rate * (now - before)).min((0.005 * gain * rate).max(4.0));
        let shortest = if self.shortest.is_finite() { self.shortest } else { 0.0 };
        let most = if self.arrived > 0.0 { (room * rate * shortest).max(4.0) } else { 10.0 };
        let packets = credit.min(most - self.flying).max(0.0).floor();
        self.credit = (credit - packets, now);
        self.flying += packets;
        packets as u32
    }
}

/// The pace of a cycle, each for a round trip.
const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// 2 / ln 2: the rate doubles each round trip.
const START_GAIN: f64 = 2.885;
/// Rounds whose rates are remembered.
const ROUNDS: usize = 10;
/// Seconds after which the shortest round trip is looked for anew, and how long that takes.
const FORGETS: f64 = 10.0;
const PROBES: f64 = 0.2;
