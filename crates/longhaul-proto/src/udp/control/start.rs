//! The beginning: the rate nearly triples each round trip until the path is full.
//!
//! In: quarters of rounds, and rounds. Out: a rate, and when the path is full. What an earlier
//! session left is begun with, at half, and trusted until the first loss or queue.

use longhaul_core::PathShare;

use super::losses::LossVerdict;
use super::rounds::UdpRound;
use super::{KnownPath, UdpControl, UdpControlConfig, UdpPhase};

/// The search for the path's rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartSearch {
    /// The rate that an earlier session gives. `None` if there is none, or it is proven.
    known: Option<f64>,
    /// The delivered rate when it last grew by a quarter, and the rounds since.
    grown: (f64, u32),
    /// The most that arrived in a quarter of a round.
    most: f64,
    /// Quarters of rounds in a row in which a queue stood.
    queued: u32,
    /// The path's own loss as it was thought to be one and two rounds ago.
    own: [f64; 2],
    /// How many of these do not end it, how fast it grows, and bytes on their way as a multiple of
    /// what arrived.
    patience: u32,
    gain: f64,
    flight: f64,
    /// Whether the rate of the path is known.
    pub(super) is_over: bool,
}

impl StartSearch {
    /// Nothing is known but what an earlier session left.
    pub(super) fn new(config: &UdpControlConfig) -> StartSearch {
        let is_same = |known: &KnownPath| {
            let (then, now) = (known.round_trip.as_secs_f64(), config.round_trip.as_secs_f64());
            (then - now).abs() <= SAME_ROUND_TRIP * then
        };
        let known = config.known.filter(is_same).map(|known| KNOWN_PART * known.rate as f64);
        let is_polite = config.share == PathShare::Polite;
        let (patience, gain, flight) = if is_polite { POLITE } else { USUAL };
        StartSearch {
            known,
            grown: (0.0, 0),
            most: 0.0,
            queued: 0,
            own: [0.0; 2],
            patience,
            gain,
            flight,
            is_over: false,
        }
    }

    /// The rate at first.
    pub(super) fn first_rate(&self, round_trip: f64) -> f64 {
        let usual = FIRST_PACKETS * FIRST_PACKET / round_trip.max(super::rounds::ROUND_SHORTEST);
        self.known.unwrap_or(usual).max(usual)
    }

    /// Whether each round carries a quarter more than the one before.
    pub(super) fn is_growing(&self) -> bool {
        self.grown.1 == 0
    }

    /// Bytes that may be on their way.
    pub(super) fn flight(&self, rate: f64, base: f64) -> f64 {
        let first = if self.most == 0.0 || self.known.is_some() { rate } else { 0.0 };
        first.max(self.flight * self.most) * base
    }
}

impl UdpControl {
    /// A quarter of a round of the start is over.
    pub(super) fn start_step(&mut self, step: &UdpRound) {
        self.start.most = self.start.most.max(step.rate);
        let queue = step.queue.unwrap_or_default();
        let limit = self.full_queue();
        let packets = step.packets + step.lost;
        let share = step.lost / packets.max(1.0);
        self.others.look(step.rate, self.lanes.round_trip(), share);
        let is_lossy = step.lost >= LOST_LEAST
            && (share > LOST_START || queue > limit / 2.0 && share > LOST_QUEUED + OWN_ROOM * self.losses.own);
        let is_known = self.start.known.is_some();
        let is_doubted = is_known && (queue > limit / 2.0 || step.lost >= 3.0 && share > LOST_QUEUED);
        self.start.queued = if queue > limit { self.start.queued + 1 } else { 0 };
        if self.start.queued > self.start.patience || is_lossy || is_doubted {
            return self.leave_start();
        }
        if self.start.known.is_some_and(|known| step.rate > PROVEN * known) {
            self.start.known = None;
        }
        if step.limited.is_none() || step.rate > USED * self.pace.rate {
            self.pace.rate = self.pace.rate.max(self.start.gain * step.rate).min(self.pace.ceiling);
        }
    }

    /// A round of the start is over.
    pub(super) fn start_round(&mut self, round: &UdpRound, queue: f64, verdict: LossVerdict) {
        let (rate, rounds) = self.start.grown;
        self.start.own = [self.losses.own, self.start.own[0]];
        let grows = round.rate > GROWTH * rate;
        self.start.grown = match (grows, self.pace.limited) {
            (true, _) => (round.rate, 0),
            (false, Some(_)) => (rate, rounds),
            (false, None) => (rate, rounds + 1),
        };
        if self.pace.rate >= self.pace.ceiling && round.rate > USED * self.pace.ceiling {
            self.carried_on();
        } else if self.start.grown.1 >= FULL_ROUNDS
            || queue > self.full_queue() && self.start.grown.1 > 0
            || verdict == LossVerdict::Excess && self.start.grown.1 > 0
        {
            self.leave_start();
        }
    }

    /// The ceiling is reached: there is nothing to drain.
    fn carried_on(&mut self) {
        self.pace.rate = self.pace.ceiling;
        self.enter(UdpPhase::Steady);
    }

    fn leave_start(&mut self) {
        self.start.is_over = true;
        // The last rounds may have lost in a queue that is too short to be seen.
        self.losses.bound_own(self.start.own[1]);
        self.pace.rate = self.carried.most().max(self.start.most.min(self.pace.rate)) * super::steady::DRAIN;
        self.enter(UdpPhase::Drain);
    }

    /// A queue as long as this shows that the path is full.
    fn full_queue(&self) -> f64 {
        let (part, least) = if self.share == PathShare::Polite { POLITE_FULL } else { FULL };
        (self.lanes.base() * part).max(least)
    }
}

/// Quarters of rounds with a queue that do not end the start; the rate of what arrives, times this,
/// is sent: 2 / ln 2 as BBR has it, nearly; bytes on their way, as a multiple of what arrived.
const USUAL: (u32, f64, f64) = (1, 2.77, 2.4);
const POLITE: (u32, f64, f64) = (0, 1.25, 1.2);
/// Packets of the first round trip, and their bytes.
const FIRST_PACKETS: f64 = 32.0;
const FIRST_PACKET: f64 = 1232.0;
/// The part of a known rate that is begun with, the change of the round trip up to which the path
/// is taken for the same, and the part of it that must arrive.
const KNOWN_PART: f64 = 0.5;
const SAME_ROUND_TRIP: f64 = 0.25;
const PROVEN: f64 = 0.8;
/// The rate still grows if it does by a quarter, and the path is full after so many rounds in which
/// it does not.
const GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// The queue, as a part of the round trip and in seconds at least, that shows a path to be full.
const FULL: (f64, f64) = (0.125, 0.004);
const POLITE_FULL: (f64, f64) = (0.05, 0.0015);
/// The part of all packets whose loss ends the start, the one that does if a queue stands, and the
/// packets at least.
const LOST_START: f64 = 0.15;
const LOST_QUEUED: f64 = 0.02;
const OWN_ROOM: f64 = 1.2;
const LOST_LEAST: f64 = 8.0;
/// Lanes that had nothing to send and carry this part of the rate use it all the same.
const USED: f64 = 0.9;
