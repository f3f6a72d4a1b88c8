//! Whether others fill the path too, and what a session claims beside them.
//!
//! In: what rounds showed. Out: facts and a claim. It sets no rate.

/// The other flows on a path, as far as they are felt.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherFlows {
    /// The share of recent rounds in which they held the rate down.
    pub(super) pressed: f64,
    /// Seconds since a queue stood or overflowed.
    pub(super) calm: f64,
    /// Rounds in which this session had all of the path again.
    pub(super) alone: u32,
    /// Seconds since others were known to be there.
    since: f64,
    /// The rate that arrived when much was lost for the first time. 0 if that never was.
    met: f64,
    /// Whether it is known that others were there before this session.
    is_late: bool,
    /// The round trip at first, when next to nothing was on its way; and the bytes that were and
    /// the round trip when the path was full.
    first: f64,
    ended: (f64, f64),
    /// The rate that was had among others last, and the seconds since.
    had: (f64, f64),
}

impl OtherFlows {
    /// None are known.
    pub(super) fn new() -> OtherFlows {
        OtherFlows {
            pressed: 0.0,
            calm: 0.0,
            alone: 0,
            since: f64::INFINITY,
            met: 0.0,
            is_late: false,
            first: 0.0,
            ended: (0.0, 0.0),
            had: (0.0, f64::INFINITY),
        }
    }

    /// Takes the seconds of a round that is over.
    pub(super) fn pass(&mut self, seconds: f64) {
        self.calm += seconds;
        self.since += seconds;
        self.had.1 += seconds;
    }

    /// Takes for how many rounds one counts in which others may have held the rate down: for one if
    /// a queue stood, for [`OVERFLOW_ROUNDS`] if one overflowed, for none otherwise.
    pub(super) fn press(&mut self, rounds: f64) {
        self.pressed += (rounds - self.pressed) / MEAN_ROUNDS;
    }

    /// Takes a round of the start.
    pub(super) fn look(&mut self, rate: f64, round_trip: f64, lost: f64) {
        self.ended = (rate * round_trip, round_trip);
        if self.met == 0.0 && lost > LOST_MUCH {
            self.met = rate;
        }
    }

    /// Notes whether others were there before this session: the queue that stood has become
    /// shorter, or it overflowed though this session had but a part of what the path carries.
    /// `first` and `base` are the round trip at first, and the shortest of late.
    pub(super) fn note_first(&mut self, first: f64, base: f64, capacity: f64) {
        self.first = first;
        let had_queue = base < self.first * CAME_LATE - CAME_LATE_LEAST;
        self.is_late |= had_queue || self.met > 0.0 && self.met < MET * capacity;
    }

    /// Whether others were there before this session, as far as is known.
    pub(super) fn came_first(&self) -> bool {
        self.is_late
    }

    /// Whether others were felt in the last minute.
    pub(super) fn were_here(&self) -> bool {
        self.since < REMEMBERED
    }

    /// The rate that is claimed beside others: half of what the path carries, as far as is known.
    pub(super) fn claim(&mut self, capacity: f64, recent: f64) -> f64 {
        (self.calm, self.alone, self.since) = (0.0, 0, 0.0);
        let whole = if self.is_late { self.whole().min(WHOLE_MOST * capacity) } else { 0.0 };
        let had = if self.is_late || self.had.1 < REMEMBERED { recent } else { 0.0 };
        self.had = (recent, 0.0);
        (HALF * capacity.max(whole)).max(had)
    }

    /// The rate of a path whose queue stood all the while: what was added to it, for the time by
    /// which it became longer.
    fn whole(&self) -> f64 {
        let longer = self.ended.1 - self.first;
        if longer < LONGER * self.first { 0.0 } else { self.ended.0 / longer }
    }

    /// They are gone.
    pub(super) fn forget(&mut self) {
        (self.pressed, self.calm, self.alone, self.had.1, self.since) = (0.0, 0.0, 0, 0.0, 0.0);
    }
}

/// Rounds over which a share of rounds is a mean.
const MEAN_ROUNDS: f64 = 20.0;
/// Rounds with a queue for which an overflow counts.
pub(super) const OVERFLOW_ROUNDS: f64 = 6.0;
/// Seconds for which others are remembered.
const REMEMBERED: f64 = 60.0;
/// The part of the path that is claimed beside others.
const HALF: f64 = 0.5;
/// A shortest round trip of less than this part of the first one shows that a queue stood then.
const CAME_LATE: f64 = 0.95;
/// ... and seconds shorter, as threads that wake late make round trips longer too.
const CAME_LATE_LEAST: f64 = 0.001;
/// The part of all packets that is much, ...
const LOST_MUCH: f64 = 0.05;
/// ... and the part of what the path carries at which that shows that others are there: a queue of
/// one's own overflows when all of it is carried.
const MET: f64 = 0.75;
/// A round trip that is longer by this part shows how a queue grew, ...
const LONGER: f64 = 0.1;
/// ... and the path to be so many times as fast as what was carried, at most.
const WHOLE_MOST: f64 = 2.0;
