//! A simulator: the real sender and receiver machines and the real journal, with a virtual clock,
//! link and disk, from one seed. Whatever may go wrong does; at every step the promises are
//! checked.
//!
//! Takes seeds; gives what became of each: a world that ended as it should, or the first promise
//! that was broken, with the events that led there. For development only: nothing of the product
//! depends on it.

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
