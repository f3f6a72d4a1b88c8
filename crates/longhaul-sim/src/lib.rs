//! A simulator: the real sender and receiver machines, with a virtual clock, link and disk, from
//! one seed. Journals have the real format, are replayed by the real code, and what is written to
//! them is decided by the real machine (`crates/longhaul-proto/src/journal/keeper`). Everything
//! that can go wrong does, and the promises are checked at every step.
//!
//! Takes seeds. Gives the result of each: a world that ended as it should, or the first broken
//! promise with the events that led to it. For development only: nothing of the product depends on
//! it.

mod check;
mod clock;
mod env;
mod exhaust;
mod fs;
mod link;
mod mutants;
mod names;
mod plan;
mod play;
mod receiving;
mod rng;
mod sending;
mod source;
mod trace;
mod world;

pub use exhaust::{Exhausted, crash_everywhere, fail_everywhere};
pub use mutants::Mutant;
pub use play::{Failure, Options, Played, Tallies, play, play_many};
