//! Tells a path that has become longer from a queue of others: a queue shrinks when less is sent.
//!
//! In: round trips, and the rates at which they were seen. Out: the new shortest round trip. It
//! sets no rate.
//!
//! Whoever fills a queue waits for acknowledgements, which come no sooner when this session yields;
//! so of a queue that stands there is less then, by the part of the path that it gave up. Only a
//! session that had a good part of the path can tell, and losses say that there is a queue.

/// A round trip that stays the same while this session sends less. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SameRoundTrip {
    /// The round trip, and the shortest of those that were about the same. 0 if there is none.
    rtt: f64,
    shortest: f64,
    /// The highest rate at which it was seen.
    rate: f64,
    /// Rounds in which much less was sent, and their time.
    less: (u32, f64),
}

impl SameRoundTrip {
    /// Takes a round on a path that carries `capacity`. Returns the shortest round trip, if the
    /// path was found to be longer. `queue`: the round trip less the shortest known.
    pub(super) fn look(&mut self, (rtt, seconds): (f64, f64), queue: f64, rate: f64, capacity: f64) -> Option<f64> {
        if (rtt - self.rtt).abs() > SAME * queue.max(0.0) + SAME_LEAST {
            *self = SameRoundTrip { rtt, shortest: rtt, rate, less: (0, 0.0) };
        }
        self.shortest = self.shortest.min(rtt);
        self.rate = self.rate.max(rate);
        let is_less = self.rate - rate >= GIVEN_UP * capacity;
        self.less = if is_less { (self.less.0 + 1, self.less.1 + seconds) } else { (0, 0.0) };
        (self.less.0 >= ROUNDS && self.less.1 >= SECONDS).then_some(self.shortest)
    }

    /// Forgets all, as there was a loss of a queue.
    pub(super) fn forget(&mut self) {
        *self = SameRoundTrip::default();
    }
}

/// Round trips that differ by this part of the queue, and seconds besides, are the same.
const SAME: f64 = 0.05;
const SAME_LEAST: f64 = 0.0003;
/// The part of what the path carries by which less must be sent: of a queue that stands, as much of
/// the round trip would be gone.
const GIVEN_UP: f64 = 0.25;
/// The rounds and the seconds for which less must be sent: for a short while, others may happen to
/// take what was given up.
const ROUNDS: u32 = 12;
const SECONDS: f64 = 1.0;
