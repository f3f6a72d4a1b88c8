//! Plays seeds of worlds of roads, one or many at once.
//!
//! In: seeds. Out: counts, or the first broken promise of the lowest seed that failed.

use longhaul_proto::udp::control::{KnownPath, KnownRate};

use super::check::broken;
use super::mutants::RoadMutant;
use super::plan::{RoadLie, RoadPlan, RoadSession};
use super::road::Road;
use crate::play::{Failure, many};

/// The settings for playing a world of a road.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoadOptions {
    /// The planted bug. Default: `None`.
    pub mutant: Option<RoadMutant>,
}

/// Counts of worlds of roads, which show whether they play enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoadTallies {
    /// Sessions that were played.
    pub sessions: u64,
    /// Sessions whose known rate was proven, ...
    pub proven: u64,
    /// ... was found to be wrong, ...
    pub wrong: u64,
    /// ... and was not tried.
    pub unused: u64,
}

impl RoadTallies {
    fn add(&mut self, other: &RoadTallies) {
        self.sessions += other.sessions;
        self.proven += other.proven;
        self.wrong += other.wrong;
        self.unused += other.unused;
    }
}

/// Plays the world of a road of one seed.
///
/// # Errors
/// [`Failure`] when a session breaks a promise.
pub fn play_road(seed: u64, options: RoadOptions) -> Result<RoadTallies, Failure> {
    let (mut record, mut seen) = (None, RoadTallies::default());
    for session in RoadPlan::random(seed).sessions {
        let told = told(&session, record);
        let mut known = Road::new(session, told, options.mutant).play();
        if options.mutant == Some(RoadMutant::KeepsWrongRate) && matches!(known.known, KnownRate::Wrong(_)) {
            known.left = told;
        }
        let first = Road::new(session, None, None).play();
        if let Some(what) = broken(&session, told, &known, &first) {
            return Err(Failure { seed, what, trace: Vec::new(), replay: "--roads " });
        }
        seen.sessions += 1;
        match known.known {
            KnownRate::Proven => seen.proven += 1,
            KnownRate::Wrong(_) => seen.wrong += 1,
            KnownRate::Unused | KnownRate::Tried => seen.unused += 1,
        }
        record = known.left.or(told);
    }
    Ok(seen)
}

/// The record as a session is told it.
fn told(session: &RoadSession, record: Option<KnownPath>) -> Option<KnownPath> {
    let record = record?;
    match session.lie {
        RoadLie::None => Some(record),
        RoadLie::Times(times) => Some(KnownPath { rate: (record.rate as f64 * times) as u64, ..record }),
        RoadLie::RoundTrip(times) => Some(KnownPath { round_trip: record.round_trip.mul_f64(times), ..record }),
        RoadLie::Forgotten => None,
    }
}

/// Plays `seeds` worlds of roads from the seed `from` on, on `threads` threads; gives the sum of
/// their counts.
///
/// # Errors
/// [`Failure`] of the lowest seed that was found to fail before all threads stopped.
pub fn play_many_roads(from: u64, seeds: u64, threads: usize, options: RoadOptions) -> Result<RoadTallies, Failure> {
    let play = |seed, sum: &mut RoadTallies| play_road(seed, options).map(|seen| sum.add(&seen));
    many((from, seeds), threads, play, RoadTallies::add)
}
