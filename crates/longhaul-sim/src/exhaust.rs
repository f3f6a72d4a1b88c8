//! Small worlds that are played with every possible fault of one kind, instead of some by chance: a
//! crash at every moment with every possible state after it, and a failure of every single
//! operation.
//!
//! Takes the quiet plan; gives the number of cases that were played, or the first that broke a
//! promise.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::env::Nth;
use crate::fs::Fs;
use crate::mutants::Mutant;
use crate::plan::Plan;
use crate::play::Failure;
use crate::rng::Rng;
use crate::world::World;

/// The number of cases that were played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exhausted {
    /// Moments, or operations.
    pub moments: u64,
    /// Cases, no two alike.
    pub cases: u64,
}

/// The lanes of a world that is played with every fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExhaustedLanes {
    /// Units come in order, as over a stream.
    InOrder,
    /// Units overtake each other, as in datagrams.
    Overtaking,
}

/// Plays a transfer of three chunks and two small files over a file that stands. The receiver's
/// host dies after every event, with every state of its file system that missing syncs allow. The
/// command is run again on each.
///
/// If more than eight parts are volatile at once, not every subset of them is played, only: all,
/// none, each alone, each missing, each prefix, and some by chance. `lanes`: how units come.
///
/// # Errors
/// [`Failure`] of the first case that breaks a promise.
pub fn crash_everywhere(seed: u64, lanes: ExhaustedLanes, mutant: Option<Mutant>) -> Result<Exhausted, Failure> {
    let mut plan = Plan::quiet(seed);
    if lanes == ExhaustedLanes::Overtaking {
        // Datagrams are always encrypted.
        (plan.safe, plan.rates.lanes.overtaking) = (false, true);
    }
    let mut world = World::new(plan, seed, mutant, false);
    let mut rng = Rng::new(seed);
    let mut played = HashSet::new();
    let mut sum = Exhausted::default();
    while !world.is_over() {
        world.step();
        sum.moments += 1;
        for leaves in states(&mut rng, world.env.fs.volatile_parts()) {
            let fs = world.env.fs.crashed(&leaves);
            if !played.insert(fingerprint(&world, &fs)) {
                continue;
            }
            sum.cases += 1;
            let mut next = World::after(&world, fs);
            next.run();
            broken(
                seed,
                &mut next,
                &format!("lanes {lanes:?}, a crash after event {} that leaves {leaves:?}", sum.moments),
            )?;
        }
    }
    broken(seed, &mut world, "no fault").map(|()| sum)
}

/// Plays the same transfer once for each operation of the receiver's file system, which fails:
/// alone, or with all that follow until the session has ended.
///
/// # Errors
/// [`Failure`] of the first case that breaks a promise.
pub fn fail_everywhere(seed: u64, mutant: Option<Mutant>) -> Result<Exhausted, Failure> {
    let play = |nth| {
        let mut world = World::new(Plan::quiet(seed), seed, mutant, false);
        world.env.nth = nth;
        world.run();
        broken(seed, &mut world, &format!("{nth:?}")).map(|()| world.env.ops)
    };
    let ops = play(None)?;
    for at in 1..=ops {
        play(Some(Nth { at, persistent: false }))?;
        play(Some(Nth { at, persistent: true }))?;
    }
    Ok(Exhausted { moments: ops, cases: 2 * ops })
}

fn broken(seed: u64, world: &mut World, case: &str) -> Result<(), Failure> {
    match world.env.ledger.violation.take() {
        None => Ok(()),
        Some(what) => Err(Failure { seed, what: format!("{what} ({case})"), trace: Vec::new(), replay: "" }),
    }
}

/// The fingerprint of a case: two cases with the same file system and the same promises are the
/// same.
fn fingerprint(world: &World, fs: &Fs) -> u64 {
    let mut hasher = DefaultHasher::new();
    fs.medium().hash(&mut hasher);
    format!("{:?}", world.env.ledger).hash(&mut hasher);
    hasher.finish()
}

/// The subsets of parts that a crash leaves: all of them, or a telling selection.
fn states(rng: &mut Rng, parts: usize) -> Vec<Vec<bool>> {
    if parts <= PARTS_MAX {
        return (0..1_u32 << parts).map(|mask| (0..parts).map(|at| mask >> at & 1 == 1).collect()).collect();
    }
    let one = |of: usize, this: bool| (0..parts).map(move |at| (at == of) == this).collect::<Vec<_>>();
    let mut states: Vec<Vec<bool>> = (0..parts).flat_map(|of| [one(of, true), one(of, false)]).collect();
    states.extend((0..=parts).map(|end| (0..parts).map(|at| at < end).collect()));
    states.extend((0..CHANCES).map(|_| (0..parts).map(|_| rng.permille(500)).collect()));
    states
}

/// The most parts of which every subset is played: at most 256 cases a moment.
const PARTS_MAX: usize = 8;
/// Subsets that are chosen by chance if there are more parts.
const CHANCES: usize = 64;
