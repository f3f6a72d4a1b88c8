//! Plays seeds, one or many at once, and says which of them fail.
//!
//! A panic in a machine is a failure as well. Knows nothing of the events in a world.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::mutants::Mutant;
use crate::plan::Plan;
use crate::tallies::Tallies;
use crate::world::World;

/// The settings for playing a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The planted bug. Default: `None`.
    pub mutant: Option<Mutant>,
    /// Whether every event is traced. Default: no.
    pub trace: bool,
}

/// A world that ended as it should.
#[derive(Clone, Debug)]
pub struct Played {
    /// Its counts.
    pub seen: Tallies,
    /// Its events, if they were traced.
    pub trace: Vec<String>,
}

/// A seed whose world broke a promise.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed}: {what}\n{}\nreplay: cargo xtask sim {replay}--seeds 1 --from {seed} --trace", trace.join("\n"))]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The promise.
    pub what: String,
    /// The events up to there, if they were traced.
    pub trace: Vec<String>,
    /// The words that the command which plays it again takes besides: nothing, or an option and a
    /// space.
    pub replay: &'static str,
}

/// Plays the world of one seed.
///
/// # Errors
/// [`Failure`] when it breaks a promise, never ends, or a machine panics.
pub fn play(seed: u64, options: Options) -> Result<Played, Failure> {
    let plan = Plan::random(seed);
    let mut ideal = World::new(plan.ideal(), seed, None, false);
    ideal.run();
    let mut world = World::new(plan, seed, options.mutant, options.trace);
    world.allow(ideal.env.seen.time_us);
    let broken = caught(|| world.run()).or(world.env.ledger.violation.take());
    let (mut seen, trace) = (world.env.seen, world.env.trace.into_lines());
    seen.ideal_us = ideal.env.seen.time_us;
    match broken {
        None => Ok(Played { seen, trace }),
        Some(what) => Err(Failure { seed, what, trace, replay: "" }),
    }
}

/// The words of a panic of `run`. `None`: there was none.
pub(crate) fn caught(run: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Some(format!("panic: {}", said.unwrap_or_default()))
}

/// Plays `seeds` worlds from the seed `from` on, on `threads` threads; gives the sum of their
/// counts.
///
/// # Errors
/// [`Failure`] of the lowest seed that was found to fail before all threads stopped, played again
/// with its trace.
pub fn play_many(from: u64, seeds: u64, threads: usize, options: Options) -> Result<Tallies, Failure> {
    let play_one = |seed, sum: &mut Tallies| play(seed, options).map(|played| sum.add(&played.seen));
    let played = many((from, seeds), threads, play_one, Tallies::add);
    played.map_err(|failure| play(failure.seed, Options { trace: true, ..options }).err().unwrap_or(failure))
}

/// Plays `seeds` worlds from the seed `from` on, on `threads` threads. `play` adds the counts of a
/// world to a sum, and `add` one sum to another.
pub(crate) fn many<Sum: Default + Send>(
    (from, seeds): (u64, u64),
    threads: usize,
    play: impl Fn(u64, &mut Sum) -> Result<(), Failure> + Sync,
    add: impl Fn(&mut Sum, &Sum) + Sync,
) -> Result<Sum, Failure> {
    let (next, stop) = (AtomicU64::new(from), AtomicBool::new(false));
    let (sum, failed) = (Mutex::new(Sum::default()), Mutex::new(None::<Failure>));
    let work = || {
        let mut own = Sum::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from.saturating_add(seeds) {
                break;
            }
            if let Err(failure) = play(seed, &mut own) {
                stop.store(true, Ordering::Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|before| failure.seed < before.seed) {
                    *failed = Some(failure);
                }
            }
        }
        add(&mut sum.lock().unwrap_or_else(PoisonError::into_inner), &own);
    };
    std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner)),
        Some(failure) => Err(failure),
    }
}
