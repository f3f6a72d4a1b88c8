//! Plays seeds of worlds of sets, one or many at once.
//!
//! In: seeds. Out: counts, or the first broken promise of the lowest seed that failed. A panic in a
//! machine is a failure as well.

use super::mutants::SetMutant;
use super::plan::SetPlan;
use super::world::SetWorld;
use crate::play::{Failure, caught, many};
use crate::trace::Trace;

/// The settings for playing a world of a set.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetOptions {
    /// The planted bug. Default: `None`.
    pub mutant: Option<SetMutant>,
    /// Whether every event is traced. Default: no.
    pub trace: bool,
}

/// A world of a set that ended as it should.
#[derive(Clone, Debug)]
pub struct SetPlayed {
    /// Its counts.
    pub seen: SetTallies,
    /// Its events, if they were traced.
    pub trace: Vec<String>,
}

/// Counts of worlds of sets, which show whether they play enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetTallies {
    /// Events played.
    pub events: u64,
    /// Virtual microseconds.
    pub time_us: u64,
    /// Times that a process died or the power was cut, ...
    pub crashes: u64,
    /// ... that a target came back as it was before, ...
    pub old: u64,
    /// ... and that a set was refused, as targets were exchanged or missing.
    pub refused: u64,
    /// Files that were committed, ...
    pub committed: u64,
    /// ... continued after a crash, with ...
    pub continued: u64,
    /// ... so many chunks, ...
    pub resumed: u64,
    /// ... and begun anew.
    pub begun_anew: u64,
    /// Chunks that were written to a second target.
    pub hedged: u64,
    /// Writes that came back after another one of their chunk.
    pub losers: u64,
    /// Orders that were carried out after their process had died.
    pub after_death: u64,
    /// Chunks that were given up on a target, and written elsewhere.
    pub given_up: u64,
    /// Times that a reader was told why it gets nothing.
    pub said: u64,
    /// Stripe files that were lost, ...
    pub stripes_lost: u64,
    /// ... and of these, made again.
    pub rebuilt: u64,
}

impl SetTallies {
    fn add(&mut self, other: &SetTallies) {
        self.events += other.events;
        self.time_us += other.time_us;
        self.crashes += other.crashes;
        self.old += other.old;
        self.refused += other.refused;
        self.committed += other.committed;
        self.continued += other.continued;
        self.resumed += other.resumed;
        self.begun_anew += other.begun_anew;
        self.hedged += other.hedged;
        self.losers += other.losers;
        self.after_death += other.after_death;
        self.given_up += other.given_up;
        self.said += other.said;
        self.stripes_lost += other.stripes_lost;
        self.rebuilt += other.rebuilt;
    }
}

/// Plays the world of a set of one seed.
///
/// # Errors
/// [`Failure`] when it breaks a promise, never ends, or a machine panics.
pub fn play_set(seed: u64, options: SetOptions) -> Result<SetPlayed, Failure> {
    let mut world = SetWorld::new(SetPlan::random(seed), seed, options.mutant, Trace::new(options.trace));
    let said = caught(|| world.run());
    let broken = said.or(world.host.ledger.violation.take());
    let (seen, trace) = (world.host.seen, world.host.trace.into_lines());
    match broken {
        None => Ok(SetPlayed { seen, trace }),
        Some(what) => Err(Failure { seed, what, trace, replay: "--sets " }),
    }
}

/// Plays `seeds` worlds of sets from the seed `from` on, on `threads` threads; gives the sum of
/// their counts.
///
/// # Errors
/// [`Failure`] of the lowest seed that was found to fail before all threads stopped, played again
/// with its trace.
pub fn play_many_sets(from: u64, seeds: u64, threads: usize, options: SetOptions) -> Result<SetTallies, Failure> {
    let play = |seed, sum: &mut SetTallies| play_set(seed, options).map(|played| sum.add(&played.seen));
    let played = many((from, seeds), threads, play, SetTallies::add);
    played.map_err(|failure| play_set(failure.seed, SetOptions { trace: true, ..options }).err().unwrap_or(failure))
}
