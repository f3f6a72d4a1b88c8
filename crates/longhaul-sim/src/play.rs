//! Plays seeds, one or many at once, and says which of them fail.
//!
//! A panic in a machine is a failure as well. Knows nothing of the events in a world.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::mutants::Mutant;
use crate::plan::Plan;
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

/// Counts of worlds, which show whether they play enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tallies {
    /// Sessions of the command.
    pub sessions: u64,
    /// Events played.
    pub events: u64,
    /// Times that the receiver's host died.
    pub crashes: u64,
    /// Times that a partial was continued, ...
    pub continued: u64,
    /// ... and of these, from another version of its source.
    pub revised: u64,
    /// Chunks that were declared without payload, as the receiver had them.
    pub same: u64,
    /// Chunks of standing files that were copied, ...
    pub copied: u64,
    /// ... and files that stood with the content of their sources.
    pub equal: u64,
    /// Lanes that were lost and replaced.
    pub lanes_lost: u64,
    /// Payload bytes sent.
    pub sent: u64,
    /// Bytes of the source's tree at the start.
    pub tree: u64,
    /// Virtual microseconds, ...
    pub time_us: u64,
    /// ... those of them after the last fault, ...
    pub calm_us: u64,
    /// ... and those that the same worlds take without any fault.
    pub ideal_us: u64,
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

impl Tallies {
    fn add(&mut self, other: &Tallies) {
        self.sessions += other.sessions;
        self.events += other.events;
        self.crashes += other.crashes;
        self.continued += other.continued;
        self.revised += other.revised;
        self.same += other.same;
        self.copied += other.copied;
        self.equal += other.equal;
        self.lanes_lost += other.lanes_lost;
        self.sent += other.sent;
        self.tree += other.tree;
        self.time_us += other.time_us;
        self.calm_us += other.calm_us;
        self.ideal_us += other.ideal_us;
    }
}
