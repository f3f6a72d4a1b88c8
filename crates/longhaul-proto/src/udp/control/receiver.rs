//! The rate that the receiver's system takes, while datagrams are dropped at its socket.
//!
//! In: rounds. Out: a cap. It knows nothing of the path.

use super::rounds::UdpRound;

/// The cap. There is none while the rate is infinite.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiverCap {
    rate: f64,
    /// The mean of what arrived, over a second, and what did in the last rounds.
    mean: f64,
    recent: [f64; ROUNDS_KEPT],
    /// Seconds since it was lowered, and since something was dropped.
    lowered: f64,
    quiet: f64,
    /// The part of it by which it rises in a second.
    step: f64,
}

impl ReceiverCap {
    /// No cap.
    pub(super) fn new() -> ReceiverCap {
        ReceiverCap {
            rate: f64::INFINITY,
            mean: 0.0,
            recent: [0.0; ROUNDS_KEPT],
            lowered: f64::INFINITY,
            quiet: f64::INFINITY,
            step: STEP_FIRST,
        }
    }

    /// Takes a round; `asked` is the rate without a cap. Drops lower it once in a round trip, as
    /// what is on its way was sent before; without drops it rises step by step until it is no cap
    /// any more. A receiver that stood still for a moment is not held to the rate of that moment,
    /// and one that was sent more each round not to what was sent a second ago.
    /// Drops of a socket that somebody else fills with forged packets lower nothing: a lower rate
    /// would leave them more room, and nothing else.
    pub(super) fn take(&mut self, round: &UdpRound, round_trip: f64, asked: f64) {
        self.lowered += round.seconds;
        self.quiet += round.seconds;
        let part = if self.mean > 0.0 { (round.seconds / MEAN_SECONDS).min(1.0) } else { 1.0 };
        self.mean += (round.rate - self.mean) * part;
        self.recent.rotate_right(1);
        self.recent[0] = round.rate;
        let is_flooded = f64::from(round.wrong) > FORGED * round.packets;
        if round.dropped > 0 && !is_flooded {
            (self.quiet, self.step) = (0.0, STEP_FIRST);
            let took = self.recent.iter().copied().fold(self.mean, f64::max);
            // A round in which nothing came says nothing of what it takes.
            if self.lowered > round_trip + round.seconds && took > 0.0 {
                (self.rate, self.lowered) = (TAKES * self.rate.min(asked).min(took), 0.0);
            }
        } else if self.quiet > QUIET_SECONDS {
            let seconds = round.seconds.min(1.0);
            self.rate *= 1.0 + self.step * seconds;
            self.step = (self.step * seconds.exp2()).min(STEP_MOST);
        }
        if self.rate >= asked {
            self.rate = f64::INFINITY;
        }
    }

    /// The rate that it takes, or infinity.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether the receiver limits the rate.
    pub(super) fn is_on(&self) -> bool {
        self.rate.is_finite()
    }
}

/// Seconds over which what arrived is a mean.
const MEAN_SECONDS: f64 = 1.0;
/// The part of what it took that is sent to a receiver whose system drops.
const TAKES: f64 = 0.9;
/// Forged packets for each packet that came, from which on the drops are theirs. Those whose place
/// is taken already are counted by samples.
const FORGED: f64 = 0.25;
/// Rounds of late, in one of which it took as much as it does.
const ROUNDS_KEPT: usize = 3;
/// Seconds without a drop after which it rises; the part of it by which it does in a second at
/// first, which doubles each second; and the largest.
const QUIET_SECONDS: f64 = 1.0;
const STEP_FIRST: f64 = 0.1;
const STEP_MOST: f64 = 1.0;
