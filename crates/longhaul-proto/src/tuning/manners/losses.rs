//! The losses of a path: what it loses by itself, and what is lost in a queue that overflows.
//!
//! In: packets delivered and lost in a round, and whether a queue stood. Out: a judgement. It
//! decides nothing about rates.

use super::{PathPhase, PathRound};

/// A judgement of the losses of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The path loses as much by itself.
    Own,
    /// More than that was lost.
    Excess,
}

/// The losses, and what is made of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// The part of its packets that the path loses by itself.
    pub(super) own: f64,
    /// The largest part that was lost in a round without a queue while little was sent: losses come
    /// in bursts on some paths.
    burst: f64,
    /// Rounds in which the first was measured.
    known: u32,
    /// Packets lost beyond that while a queue stood.
    pub(super) overflow: f64,
    /// Rounds for which losses are still those of a queue that stood.
    stood: u32,
    /// Rounds for which losses do not count: they belong to what was answered already.
    pub(super) pardon: u32,
    recent: RecentLosses,
}

/// Packets of the last second, and of the one that goes on: nothing of a burst stays in the next.
#[derive(Clone, Copy, Debug, Default)]
struct RecentLosses {
    packets: f64,
    lost: f64,
    /// The packets of the second that goes on, and how much of it is over.
    now: (f64, f64),
    seconds: f64,
}

impl Losses {
    /// Whether more was lost than the path loses by itself. `queue`: as a multiple of the one that
    /// is aimed at. `has_little`: far less is sent than the path carries. While a queue stands,
    /// losses add up from round to round (a CUSUM, Page 1954): its overflow costs each flow few
    /// packets at a time.
    pub(super) fn judge(&mut self, round: &PathRound, (queue, has_little): (f64, bool), phase: PathPhase) -> Loss {
        let size = f64::from(round.packet_bytes.max(1));
        let (packets, lost) = ((round.delivered + round.lost) as f64 / size, round.lost as f64 / size);
        self.recent.add(packets, lost, round.elapsed.as_secs_f64());
        let expected = (OWN_LOSS_ROOM * self.own).max(BURST_ROOM * self.burst) * packets;
        let noise = SIGMAS * (expected + 1.0).sqrt();
        // A loss is found a round trip or more after the queue overflowed.
        self.stood = if queue > STANDING { STOOD_ROUNDS } else { self.stood.saturating_sub(1) };
        let stands = self.stood > 0;
        let is_calm = match phase {
            PathPhase::Open => queue < 1.0,
            PathPhase::Drain => false,
            PathPhase::Steady => !stands && self.pardon == 0,
        };
        let part = lost / packets.max(1.0);
        self.burst *= BURST_REMEMBERED;
        if is_calm && has_little && phase == PathPhase::Steady {
            self.burst = self.burst.max(part.min(BURST_MOST));
        }
        if is_calm {
            self.known = self.known.saturating_add(1);
            self.own += OWN_LOSS_STEP * (part.min(OWN_LOST_MOST) - self.own);
        }
        if self.pardon > 0 {
            (self.pardon, self.overflow) = (self.pardon - 1, 0.0);
            return Loss::Own;
        }
        let more = lost - expected;
        let added = if stands { more } else { 0.0 };
        let remembered = if stands { OVERFLOW_REMEMBERED_STANDING } else { OVERFLOW_REMEMBERED };
        self.overflow = (self.overflow * remembered + added).max(0.0);
        let borne = if phase == PathPhase::Open { LOSS_BORNE_OPEN } else { LOSS_BORNE };
        // Lanes that begin lose some packets on any path, and what it loses by itself is not known.
        let adds_up = phase != PathPhase::Open || self.known >= KNOWN_ROUNDS;
        let is_excess = adds_up && self.overflow > noise || more > noise + borne * packets;
        if is_excess { Loss::Excess } else { Loss::Own }
    }

    /// The part of the packets of the last second that was lost beyond what the path loses by
    /// itself, be it in bursts. 0 where chance explains it, and where the path loses so much by
    /// itself that how much is not known.
    pub(super) fn excess(&self) -> f64 {
        let RecentLosses { packets, lost, .. } = self.recent;
        if self.own >= OWN_LOST_MOST * OWN_LOST_KNOWN {
            return 0.0;
        }
        let own = self.own.max(self.burst) * packets;
        let more = lost - own - SIGMAS * (own + 1.0).sqrt();
        (more / packets.max(1.0)).max(0.0)
    }
}

impl RecentLosses {
    fn add(&mut self, packets: f64, lost: f64, seconds: f64) {
        self.now = (self.now.0 + packets, self.now.1 + lost);
        self.seconds += seconds;
        if self.seconds >= RECENT_SECONDS {
            (self.packets, self.lost) = self.now;
            (self.now, self.seconds) = ((0.0, 0.0), 0.0);
        }
    }
}

/// How much more than the path's own loss is its own, as losses come unevenly.
const OWN_LOSS_ROOM: f64 = 1.5;
const OWN_LOSS_STEP: f64 = 0.1;
const OWN_LOST_MOST: f64 = 0.1;
/// The part of that from which on it may be more.
const OWN_LOST_KNOWN: f64 = 0.9;
/// The same for a burst of losses, the most that is reckoned with, and the part of it that is
/// remembered after a round.
const BURST_ROOM: f64 = 1.1;
const BURST_MOST: f64 = 0.3;
const BURST_REMEMBERED: f64 = 0.999;
/// Rounds after which the path's own loss is known well enough to add up losses beyond it.
const KNOWN_ROUNDS: u32 = 10;
/// The part of all packets that may be lost besides.
const LOSS_BORNE: f64 = 0.01;
/// The same while the path's own loss is hardly known: lanes that double their rate lose more than
/// that as soon as a short queue is full.
const LOSS_BORNE_OPEN: f64 = 0.08;
/// Deviations of a Poisson process within which a loss is chance.
const SIGMAS: f64 = 5.0;
/// From this multiple of the queue that is aimed at on, losses are those of a queue ...
const STANDING: f64 = 1.3;
/// ... and so they are for this many rounds.
const STOOD_ROUNDS: u32 = 3;
/// The part of these losses that is remembered from one round without a queue to the next.
const OVERFLOW_REMEMBERED: f64 = 0.95;
/// The same with a queue: losses that are rarer than one in a hundred rounds are chance.
const OVERFLOW_REMEMBERED_STANDING: f64 = 0.995;
/// Seconds of which the losses are told. Looks come a little early.
const RECENT_SECONDS: f64 = 0.95;
