//! Whether a session that takes itself for one among others is alone after all.
//!
//! In: the queue of each round in which it shares the path. Out: moments in which less is sent, and
//! what they show. It decides nothing.
//!
//! For a round trip less is sent than there is for this session. If it is alone, the queue becomes
//! shorter by just that; if others fill the path, by their part less; and if it does not change at
//! all though this session has a good part of the path, it is none: the path has become longer.

/// The finding of a moment in which less was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AloneFinding {
    /// Others have a part of the path.
    Others,
    /// Nobody else has.
    Alone,
    /// The path has become longer: there is no queue.
    NoQueue,
}

/// The probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct AloneProbe {
    /// Seconds until the next one.
    wait: f64,
    /// The time in the queue and on the path before, the shortest since, and by how much it becomes
    /// shorter if nobody else is there.
    before: f64,
    least: f64,
    due: f64,
    /// Rounds since it began. `None` if there is none.
    rounds: Option<u32>,
    /// The finding of the last one.
    last: AloneFinding,
}

impl Default for AloneProbe {
    /// The first one is soon.
    fn default() -> AloneProbe {
        AloneProbe { wait: FIRST, before: 0.0, least: 0.0, due: 0.0, rounds: None, last: AloneFinding::Others }
    }
}

impl AloneProbe {
    /// Takes the time that a round's packets were in the queue and on the path, the round's own,
    /// and the part of what the path carried that this session has: 0 if no long queue seems to
    /// stand. Gives a finding that two probes in a row agree on.
    pub(super) fn take(&mut self, time: f64, seconds: f64, part: f64) -> Option<AloneFinding> {
        let Some(rounds) = self.rounds.as_mut() else {
            self.wait -= seconds;
            return None;
        };
        *rounds += 1;
        self.least = self.least.min(time);
        if *rounds < ROUNDS {
            return None;
        }
        self.rounds = None;
        let fell = self.before - self.least;
        let finding = if fell > ALONE * self.due {
            AloneFinding::Alone
        } else if fell < NO_QUEUE * self.due && part > MUCH {
            AloneFinding::NoQueue
        } else {
            AloneFinding::Others
        };
        let is_sure = finding == self.last && finding != AloneFinding::Others;
        self.last = finding;
        self.wait = if finding == AloneFinding::Others { EACH } else { AGAIN.max(AGAIN_ROUNDS * seconds) };
        is_sure.then_some(finding)
    }

    /// Whether less is sent, or was just now.
    pub(super) fn is_on(&self) -> bool {
        self.rounds.is_some()
    }

    /// The part of the rate that is to be sent for the next round trip, if it is time for that.
    pub(super) fn begin(&mut self, queue: f64, base: f64, round_trip: f64) -> Option<f64> {
        if self.wait > 0.0 || self.rounds.is_some() || queue < QUEUE_LEAST {
            return None;
        }
        let less = (EMPTIES * queue / round_trip).min(LESS_MOST);
        let time = queue + base;
        (self.before, self.least, self.due, self.rounds) = (time, time, less * round_trip, Some(0));
        Some(1.0 - less)
    }
}

/// Seconds until the first probe, between two, and between one that found something and the next,
/// in rounds too.
const FIRST: f64 = 1.0;
const EACH: f64 = 15.0;
const AGAIN: f64 = 0.5;
const AGAIN_ROUNDS: f64 = 6.0;
/// Rounds after which what was sent less has shown.
const ROUNDS: u32 = 4;
/// The part of the queue that a probe empties, and most that is sent less.
const EMPTIES: f64 = 0.8;
const LESS_MOST: f64 = 0.5;
/// A queue that can be told from chance, in seconds.
const QUEUE_LEAST: f64 = 0.002;
/// From this part of what one alone sees on, one is alone; and up to this one there was no queue.
const ALONE: f64 = 0.8;
const NO_QUEUE: f64 = 0.05;
/// A session that has this part of what the path carried would feel a queue become shorter.
const MUCH: f64 = 0.3;
