//! The play of a seed: the sessions over a path, what the line is in each, and what is told of it.
//!
//! In: a seed. Out: plain data. Acts nowhere.

use longhaul_core::PathShare;

use crate::rng::Rng;

/// A world of a road.
#[derive(Clone, Debug)]
pub(crate) struct RoadPlan {
    /// The sessions, in order.
    pub(crate) sessions: Vec<RoadSession>,
}

/// One session, and the line as it is meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoadSession {
    /// The line.
    pub(crate) line: RoadLine,
    /// The share that it takes.
    pub(crate) share: PathShare,
    /// The way in which it is told of the path.
    pub(crate) lie: RoadLie,
    /// Seeds the losses.
    pub(crate) seed: u64,
}

/// A line. It stays as it is for a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoadLine {
    /// Bytes/s.
    pub(crate) rate: f64,
    /// Its round trip without a queue, in seconds.
    pub(crate) rtt: f64,
    /// The queue that it has room for, in round trips.
    pub(crate) queue: f64,
    /// The part of all packets that it loses by itself.
    pub(crate) loss: f64,
    /// The part of it that others take, who give way to nobody.
    pub(crate) others: f64,
}

/// The way in which a record is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RoadLie {
    /// As the session before left it.
    None,
    /// The rate is so many times as high.
    Times(f64),
    /// The round trip is so many times as long.
    RoundTrip(f64),
    /// Nothing is told.
    Forgotten,
}

impl RoadPlan {
    /// The plan of a seed.
    pub(crate) fn random(seed: u64) -> RoadPlan {
        let mut rng = Rng::new(seed);
        let mut line = RoadLine::random(&mut rng);
        let count = 2 + rng.below(3);
        let mut sessions = Vec::new();
        for _ in 0..count {
            let share = if rng.permille(200) { PathShare::Polite } else { PathShare::Fair };
            sessions.push(RoadSession { line, share, lie: RoadLie::random(&mut rng), seed: rng.next() });
            line = line.changed(&mut rng);
        }
        RoadPlan { sessions }
    }
}

impl RoadLine {
    fn random(rng: &mut Rng) -> RoadLine {
        RoadLine {
            rate: *rng.pick(&[1.25e6, 12.5e6, 62.5e6, 125e6, 250e6]),
            rtt: *rng.pick(&[0.005, 0.02, 0.06, 0.1, 0.2]),
            queue: *rng.pick(&[0.2, 0.5, 1.0, 2.0]),
            loss: *rng.pick(&[0.0, 0.0, 0.001, 0.01]),
            others: 0.0,
        }
    }

    /// The line when the next session begins.
    fn changed(self, rng: &mut Rng) -> RoadLine {
        match rng.below(8) {
            0 => RoadLine { rate: self.rate * rng.pick(&[0.01, 0.1, 0.3, 3.0]), ..self },
            1 => RoadLine { rtt: self.rtt * rng.pick(&[0.5, 1.1, 2.0]), ..self },
            2 => RoadLine { others: *rng.pick(&[0.0, 0.3, 0.6, 0.9]), ..self },
            3 => RoadLine { loss: *rng.pick(&[0.0, 0.01, 0.03]), ..self },
            4 => RoadLine { queue: *rng.pick(&[0.2, 1.0]), ..self },
            _ => self,
        }
    }
}

impl RoadLie {
    fn random(rng: &mut Rng) -> RoadLie {
        match rng.below(5) {
            0 => RoadLie::Times(*rng.pick(&[0.01, 0.3, 2.0, 4.0, 10.0, 100.0])),
            1 => RoadLie::RoundTrip(*rng.pick(&[0.5, 1.2, 2.0])),
            2 if rng.permille(300) => RoadLie::Forgotten,
            _ => RoadLie::None,
        }
    }
}
