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
#[error("seed {seed}: {what}\n{}\nreplay: cargo xtask sim --seeds 1 --from {seed} --trace", trace.join("\n"))]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The promise.
    pub what: String,
    /// The events up to there, if they were traced.
    pub trace: Vec<String>,
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
    let panicked = catch_unwind(AssertUnwindSafe(|| world.run())).err();
    let said = panicked.map(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    });
    let broken = said.map(|said| format!("panic: {said}")).or(world.env.ledger.violation.take());
    let (mut seen, trace) = (world.env.seen, world.env.trace.into_lines());
    seen.ideal_us = ideal.env.seen.time_us;
    match broken {
        None => Ok(Played { seen, trace }),
        Some(what) => Err(Failure { seed, what, trace }),
    }
}

/// Plays `seeds` worlds from the seed `from` on, on `threads` threads; gives the sum of their
/// counts.
///
/// # Errors
/// [`Failure`] of the lowest seed that was found to fail before all threads stopped, played again
/// with its trace.
pub fn play_many(from: u64, seeds: u64, threads: usize, options: Options) -> Result<Tallies, Failure> {
    let (next, stop) = (AtomicU64::new(from), AtomicBool::new(false));
    let (sum, failed) = (Mutex::new(Tallies::default()), Mutex::new(None::<Failure>));
    let work = || {
        let mut own = Tallies::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from.saturating_add(seeds) {
                break;
            }
            match play(seed, options) {
                Ok(played) => own.add(&played.seen),
                Err(failure) => {
                    stop.store(true, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    if failed.as_ref().is_none_or(|before| failure.seed < before.seed) {
                        *failed = Some(failure);
                    }
                }
            }
        }
        sum.lock().unwrap_or_else(PoisonError::into_inner).add(&own);
    };
    std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner)),
        Some(failure) => Err(play(failure.seed, Options { trace: true, ..options }).err().unwrap_or(failure)),
    }
}
